//! First INVITE of a member's user agent, in the shard that serves the call. The console's session has authenticated the member.

use std::panic::{AssertUnwindSafe, catch_unwind};

use trunkline_sip::endpoint::Received;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::lex;

use super::member_invite::{AwaitedRecord, MemberInvite};
use super::shard::{Shard, framing};

impl Shard {
    /// Handles the first INVITE. The console's session has authenticated the member, so no digest is asked for.
    pub(super) fn handle_member(&mut self, invite: MemberInvite, now: Moment) {
        let MemberInvite {
            caller,
            octets,
            received_at,
            begun,
        } = invite;
        let flow = caller.flow;
        // Our own user agent has printed it. If it can't be read, the dropped sender ends the requester's wait.
        let Ok(message) = lex(&octets, framing(flow)) else {
            return;
        };

        let view = self.directory.load();
        // The INVITE isn't queued, but it is shed by the same rule as queued ones.
        let is_late = self.invite_queue.is_late(received_at, now);

        self.observer.received(&message);
        self.effect_runner.tap.note(now, flow, false, message.raw());
        // Before the INVITE is handled, which makes the record.
        self.effect_runner.awaited = AwaitedRecord::of(message.call_id(), begun);

        let Self {
            endpoint, calls, ..
        } = self;
        let work = catch_unwind(AssertUnwindSafe(|| {
            let received = endpoint.receive_message(message, flow, now);
            if let Received::Request(request) = &received
                && is_late
            {
                calls.shed(endpoint, flow, request);
            } else {
                calls.handle_member(endpoint, &view, caller, received, now);
            }
        }));

        if work.is_err() {
            self.after_panic(now);
        }

        self.handle_events(now);
        // If the INVITE was refused without a record, the dropped sender ends the requester's wait.
        self.effect_runner.awaited = AwaitedRecord::default();
    }
}
