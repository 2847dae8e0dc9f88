//! Expires registrations of PBXs once a second, and publishes when a PBX registers or is lost.

use std::sync::Weak;
use std::time::Duration;

use trunkline_calls::peers::OptionsBatch;
use trunkline_calls::registrar::bindings::{BindingChange, BindingChangeKind, Bindings};
use trunkline_model::registration::BindingLoss;
use trunkline_sip::moment::Moment;
use trunkline_store::{NewEvent, RegisteredPbx};
use uuid::Uuid;

use super::clock;
use super::event_sink::EventSink;
use super::inbox::{Inbox, Input};
use crate::jobs;
use crate::telemetry::metrics;

/// Removes expired bindings, and has those behind NAT probed by the shard of `inbox`, each about every `keep_alive`. Ends once the table is
/// dropped.
pub(crate) async fn sweep(
    bindings: Weak<Bindings>,
    event_sink: EventSink,
    inbox: Inbox,
    keep_alive: Duration,
) {
    let mut turns = jobs::REGISTRATIONS.ticks();
    loop {
        turns.tick().await;
        let Some(bindings) = bindings.upgrade() else {
            return;
        };

        let now = clock::now();
        for change in bindings.sweep(now) {
            note(&change, &event_sink, now);
        }

        // By OPTIONS, since a NAT has to keep its mapping only for what the PBX itself sends (RFC 4787, REQ-6), such
        // as the answer.
        let due = bindings.due_keep_alives(|| spread(keep_alive), now);
        // If the inbox is full, they are skipped once.
        if !due.is_empty() && !inbox.offer(Input::Inquire(OptionsBatch::KeepAlive(due))) {
            tracing::debug!("no room in the inbox to probe registered PBXs");
        }

        metrics::registrations(bindings.len());
    }
}

/// Varies the interval by up to a fifth, so that bindings made together aren't due together.
fn spread(interval: Duration) -> Duration {
    interval.mul_f64(rand::random_range(0.8..1.2))
}

/// Publishes that a trunk's PBX has registered or is gone.
pub(crate) fn note(change: &BindingChange, event_sink: &EventSink, now: Moment) {
    let BindingChange { org, trunk, what } = change;
    let event = match what {
        BindingChangeKind::Registered(binding) => {
            let (source, transport) = (binding.flow.peer, binding.flow.transport);
            tracing::info!(org.id = %org, trunk.id = %trunk, %source, %transport, "trunk registered");
            metrics::registration_change("registered");
            let pbx = RegisteredPbx {
                org: *org,
                trunk: *trunk,
                contact: &binding.contact,
                source,
                transport,
                user_agent: binding.user_agent.as_deref(),
                registered_at: clock::on_wall(binding.registered_at),
                expires_at: clock::on_wall(binding.expires_at),
            };

            NewEvent::trunk_registered(&pbx, clock::on_wall(now))
        }
        BindingChangeKind::Lost(loss) => {
            note_lost(*org, *trunk, *loss);
            NewEvent::trunk_lost(*org, *trunk, *loss, clock::on_wall(now))
        }
    };

    event_sink.push(*org, event);
}

/// Logs and counts that a trunk has lost its registration.
pub(super) fn note_lost(org: Uuid, trunk: Uuid, loss: BindingLoss) {
    let why = loss.as_str();
    tracing::info!(org.id = %org, trunk.id = %trunk, why, "trunk no longer registered");
    metrics::registration_change(why);
}
