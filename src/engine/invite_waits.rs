//! New INVITEs of a shard under load: they are queued behind the messages of calls, shed when they come too late, and cancelled while they wait.

use std::sync::Arc;

use trunkline_model::view::View;
use trunkline_sip::endpoint::Response;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Message, Method, lex};

use super::clock;
use super::inbox::ForwardedMessage;
use super::invite_queue::{Fate, NextInvite, QueuedInvite, is_new_invite};
use super::shard::{Shard, framing};

/// Queued new INVITEs handled in one turn.
const QUEUED_INVITES_A_TURN: usize = 32;

impl Shard {
    /// Handles a message at once, or queues it if it is a new INVITE under load.
    pub(super) fn admit(
        &mut self,
        view: &Arc<View>,
        flow: Flow,
        message: Message<'_>,
        received_at: Moment,
        now: Moment,
    ) {
        if !is_new_invite(&message) {
            return self.handle_message(view, flow, message, Fate::Served, now);
        }

        // While one INVITE waits the next one queues as well, or it would overtake those that came before it.
        let waits = self.pressed || self.inbox_pressed || !self.invite_queue.is_empty();
        if !waits {
            // It hasn't been queued here, but may have waited in the socket's buffer or in the inbox.
            let fate = match self.invite_queue.is_late(received_at, now) {
                true => Fate::Shed,
                false => Fate::Served,
            };
            return self.handle_message(view, flow, message, fate, now);
        }

        let key = self.endpoint.invite_key(&message);
        // A retransmission is answered by its transaction, and takes no turn of an INVITE.
        if self.endpoint.has_accepted(key, now) {
            return self.handle_message(view, flow, message, Fate::Served, now);
        }
        // RFC 3261 §17.2.1: so would one be whose INVITE waits, but there is no answer to repeat yet.
        if self.invite_queue.absorbs(key, &flow) {
            return self.observer.received(&message);
        }

        let lane = self.calls.lane_of(view, &flow, &message, now);
        if !self.invite_queue.takes(lane, message.raw().len(), now) {
            return self.refuse_invite(view, flow, message, now);
        }

        let arrived = ForwardedMessage {
            flow,
            octets: message.raw().into(),
            received_at,
        };
        self.invite_queue.push(lane, QueuedInvite { key, arrived });
    }

    /// Refuses an INVITE while the turn has time for it; beyond, drops it, so that messages of calls are read in time.
    fn refuse_invite(&mut self, view: &Arc<View>, flow: Flow, message: Message<'_>, now: Moment) {
        // By UDP the INVITE comes again (RFC 3261 §17.1.1.2, Timer A). On a stream it comes once, so it is always
        // answered.
        if self.sheds_left == 0 && flow.transport == Transport::Udp {
            return self.observer.dropped(1);
        }
        self.sheds_left = self.sheds_left.saturating_sub(1);
        self.handle_message(view, flow, message, Fate::Shed, now);
    }

    /// Handles queued new INVITEs, after the messages of calls.
    pub(super) fn handle_queued_invites(&mut self) {
        let view = self.directory.load();

        for _ in 0..QUEUED_INVITES_A_TURN {
            let Some(NextInvite {
                arrived,
                is_canceled,
            }) = self.invite_queue.pop()
            else {
                break;
            };

            let ForwardedMessage {
                flow,
                octets,
                received_at,
            } = arrived;
            // It was read when it came, so reading it doesn't fail.
            if let Ok(message) = lex(&octets, framing(flow)) {
                let now = clock::now();
                // Asked for a cancelled INVITE too: its wait tells the detector of pressure as much as any other's.
                let late = self.invite_queue.is_late(received_at, now);
                let fate = match (is_canceled, late) {
                    (true, _) => Fate::Canceled,
                    (false, true) => Fate::Shed,
                    (false, false) => Fate::Served,
                };
                self.handle_message(&view, flow, message, fate, now);
            }
        }
    }

    /// Answers the CANCEL of an INVITE that hasn't been accepted, because it waits for its turn or for the proof of its source; false if
    /// no such INVITE waits.
    pub(super) fn cancel_waiting(
        &mut self,
        flow: Flow,
        message: &Message<'_>,
        now: Moment,
    ) -> bool {
        if !message.is_request() || message.method() != Method::Cancel {
            return false;
        }
        let key = self.endpoint.invite_key(message);
        if self.endpoint.has_accepted(key, now) {
            return false;
        }
        // The INVITE gets its 487 when its turn comes.
        if self.invite_queue.cancel(key, &flow) {
            self.endpoint
                .respond_stateless(message, &flow, &Response::bare(200));
            return true;
        }
        self.calls.cancel_waiting(&mut self.endpoint, flow, message)
    }
}
