//! Callers behind NAT over UDP: while their call is up they are asked by OPTIONS every now and then, since what they answer keeps the way through
//! the NAT open for a BYE, a re-INVITE or a REFER of ours.

use std::time::Duration;

use trunkline_sip::flow::Flow;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::Message;

use super::call::{Call, CallKey, Phase};
use super::context::{CallTimer, Cx};
use super::sources;

/// Begins for a call whose INVITE says that something between changes addresses; `None` where nothing does.
pub(super) fn begin(
    cx: &mut Cx<'_>,
    call: CallKey,
    flow: &Flow,
    invite: &Message<'_>,
) -> Option<TimerId> {
    let is_behind_nat = !flow.transport.is_reliable() && !invite.top_via().is_at(flow.peer);
    is_behind_nat.then(|| schedule(cx, call))
}

/// A fifth more or less than the interval, so that calls of one moment aren't due together.
fn schedule(cx: &mut Cx<'_>, call: CallKey) -> TimerId {
    let interval = cx.core.config.keep_alive;
    let spread = u32::try_from(cx.endpoint.entropy().bits64() % 400).unwrap_or_default();
    let after: Duration = interval * (800 + spread) / 1_000;
    cx.schedule(call, after, CallTimer::KeepAlive)
}

impl Call {
    /// It is time to ask the caller again. Whatever it answers is for the NAT alone.
    pub(super) fn on_keep_alive(&mut self, cx: &mut Cx<'_>) {
        // The caller's place may have been taken meanwhile, by another way.
        if self.keep_alive.take().is_none() || self.phase == Phase::Over {
            return;
        }
        sources::send_options(cx.core, cx.endpoint, self.caller.flow, self.slot);
        self.keep_alive = Some(schedule(cx, self.key));
    }
}
