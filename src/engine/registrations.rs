//! Registrations as time passes: expiry once a second, and what is told of a PBX that has come or gone.

use std::sync::Weak;
use std::time::Duration;

use super::clock;
use crate::registrar::bindings::{Bindings, Change, What};
use crate::telemetry::metrics;

/// How often expired bindings are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// Forgets what has expired, for as long as somebody holds the table.
pub(crate) async fn sweep(bindings: Weak<Bindings>) {
    let mut turns = tokio::time::interval(LOOK);
    loop {
        turns.tick().await;
        let Some(bindings) = bindings.upgrade() else {
            return;
        };
        for change in bindings.sweep(clock::now()) {
            note(&change);
        }
        metrics::registrations(bindings.len());
    }
}

/// Says that a trunk's PBX has come or gone.
pub(crate) fn note(change: &Change) {
    let Change { org, trunk, what } = change;
    let word = match what {
        What::Registered(binding) => {
            let (source, transport) = (binding.flow.peer, binding.flow.transport);
            tracing::info!(org.id = %org, trunk.id = %trunk, %source, %transport, "trunk registered");
            "registered"
        }
        What::Lost(loss) => {
            let why = loss.as_str();
            tracing::info!(org.id = %org, trunk.id = %trunk, why, "trunk no longer registered");
            why
        }
    };
    metrics::registration_change(word);
}
