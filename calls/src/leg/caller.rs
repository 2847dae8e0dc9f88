//! The caller whose INVITE has no final answer yet: sends it provisional responses, reliably where it takes them (RFC 3262).

use std::time::Duration;

use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::moment::Moment;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::print::Head;

use super::provisional_relay::{Delivery, Provisional, ProvisionalRelay, ProvisionalSink};
use super::{ActiveLeg, LegPeer, LegState, SipPeer};
use crate::core::context::Cx;
use crate::parts::allow::{CALLER, own_lines};
use crate::parts::ids::{CallKey, CallTimer};

/// The caller, as the receiver of responses to its INVITE.
pub(crate) struct Caller<'a, 'c> {
    key: CallKey,
    invite: ServerTx,
    leg: &'a mut SipPeer,
    cx: &'a mut Cx<'c>,
}

impl ProvisionalSink for Caller<'_, '_> {
    fn now(&self) -> Moment {
        self.cx.now
    }

    fn send(&mut self, fork: u8, answer: &Provisional, rseq: Option<u32>) {
        let body = self.leg.with_origin(&answer.body);
        let Some(dialog) = self.leg.dialog_ref(fork) else {
            return;
        };

        let contact = self.cx.contact(&self.leg.flow, self.leg.is_sips);
        let write = |head: &mut Head<'_>| {
            own_lines(head, &contact, CALLER);
            if let Some(rseq) = rseq {
                head.line("Require", b"100rel");
                head.number("RSeq", u64::from(rseq));
            }
            head.raw(&answer.head);
        };
        let tag = Some(dialog.local_tag());
        self.cx
            .respond(self.invite, answer.status, tag, write, &body);
    }

    fn wake(&mut self, fork: u8, after: Duration) -> TimerId {
        self.cx.schedule(self.key, after, CallTimer::Reliable(fork))
    }

    fn cancel(&mut self, timer: TimerId) {
        self.cx.core.timers.cancel(timer);
    }
}

/// Sends the caller a provisional response.
pub(crate) fn tell_caller(
    active: &mut ActiveLeg<'_>,
    cx: &mut Cx<'_>,
    fork: u8,
    delivery: Delivery,
    answer: Provisional,
) {
    if let Some((relay, mut caller)) = relay_and_caller(active, cx) {
        relay.handle_provisional(&mut caller, fork, delivery, answer);
    }
}

/// The provisional responses of a leg, and its peer to send them to; `None` unless its INVITE is open.
pub(crate) fn relay_and_caller<'a, 'c>(
    active: &'a mut ActiveLeg<'_>,
    cx: &'a mut Cx<'c>,
) -> Option<(&'a mut ProvisionalRelay, Caller<'a, 'c>)> {
    let (LegState::Incoming(incoming), LegPeer::Sip(peer)) =
        (&mut active.leg.state, &mut active.leg.peer)
    else {
        return None;
    };
    let caller = Caller {
        key: active.call,
        invite: incoming.server(),
        leg: peer,
        cx,
    };
    Some((&mut incoming.relay, caller))
}
