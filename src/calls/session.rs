//! Session timers (RFC 4028), one on each leg: our own refreshes, and the end of a session that nobody
//! refreshes.

use std::time::Duration;

use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::call::{Call, OURS, Pending, Purpose, Side};
use super::context::{CallTimer, Cx};
use super::refusal::Reason;

impl Call {
    /// Starts the leg's timer anew, if its session has one.
    pub(crate) fn start_session(&mut self, cx: &mut Cx<'_>, side: Side) {
        let key = self.key;
        let Some(leg) = self.leg(side) else { return };
        let mut old = leg.session_timer.take();
        cx.cancel_timer(&mut old);
        if let Some(session) = &leg.session {
            let due = session.due(cx.now);
            leg.session_timer = Some(
                cx.core
                    .timers
                    .schedule(due, (key, CallTimer::Session(side))),
            );
        }
    }

    /// The leg's timer: time to refresh, or nobody has.
    pub(crate) fn on_session_timer(&mut self, cx: &mut Cx<'_>, side: Side) {
        let busy = self.pending.iter().any(|pending| pending.offers) || !self.awaited.is_empty();
        let Some(leg) = self.leg(side) else { return };
        leg.session_timer = None;
        if !leg.session.as_ref().is_some_and(SessionTimer::we_refresh) {
            return self.hang_up(cx, Reason::SessionExpired);
        }
        if busy {
            return self.refresh_later(cx, side, Duration::from_secs(2));
        }
        self.refresh(cx, side);
    }

    /// A bodiless UPDATE where the peer takes one, else a re-INVITE with the SDP that it has.
    fn refresh(&mut self, cx: &mut Cx<'_>, side: Side) {
        let Some(leg) = self.leg(side) else { return };
        let Some(fork) = leg.dialogs.first().map(|held| held.fork) else {
            return;
        };
        let sdp = leg.sdp.clone().filter(|_| !leg.abilities.update);
        let purpose = Purpose::Refresh;
        let sent = match sdp {
            None => self.send_on_leg(
                cx,
                side,
                fork,
                (Method::Update, "UPDATE"),
                (purpose, false, OURS),
                b"",
                |_| {},
            ),
            Some(body) => {
                let lines = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
                self.send_on_leg(
                    cx,
                    side,
                    fork,
                    (Method::Invite, "INVITE"),
                    (purpose, true, OURS),
                    &body,
                    lines,
                )
            }
        };
        if !sent {
            self.refresh_later(cx, side, Duration::from_secs(2));
        }
    }

    /// The answer to a refresh of ours. Only 408 and 481 say that the session is gone; any other answer
    /// shows that the peer is there.
    pub(crate) fn on_refresh_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        match message.status() {
            200..=299 => {
                if let Some(leg) = self.leg(pending.side) {
                    leg.flow = flow;
                }
                if pending.method == Method::Invite {
                    self.send_ack(
                        cx,
                        pending.side,
                        pending.fork,
                        pending.client,
                        pending.cseq,
                        None,
                    );
                }
                self.note_refresh(cx, pending, message);
            }
            408 | 481 => self.hang_up(cx, Reason::DialogGone),
            491 => {
                let wait = glare_wait(pending.side, cx.endpoint.entropy().bits64());
                self.refresh_later(cx, pending.side, wait);
            }
            // Refused, but heard: once more, after a 422 with the interval that the peer wants.
            status => {
                let interval = self.leg(pending.side).and_then(|leg| leg.session);
                let raised = interval.filter(|_| status == 422);
                if let Some(raised) = raised.and_then(|session| session.raised(message))
                    && let Some(leg) = self.leg(pending.side)
                {
                    leg.session = Some(raised);
                    return self.refresh_later(cx, pending.side, Duration::from_secs(2));
                }
                let again = interval.map_or(0, |session| session.interval() / 8);
                self.refresh_later(cx, pending.side, Duration::from_secs(u64::from(again)));
            }
        }
    }

    /// The connection broke under a refresh of ours.
    pub(crate) fn refresh_again(&mut self, cx: &mut Cx<'_>, side: Side) {
        self.refresh_later(cx, side, Duration::from_secs(2));
    }

    fn refresh_later(&mut self, cx: &mut Cx<'_>, side: Side, wait: Duration) {
        let timer = cx.schedule(self.key, wait, CallTimer::Session(side));
        if let Some(leg) = self.leg(side) {
            leg.session_timer = Some(timer);
        }
    }
}

/// RFC 3261 §14.1: the owner of the Call-ID (we, towards the runtime) waits 2.1 to 4 s, the other 0 to 2 s.
pub(crate) fn glare_wait(side: Side, random: u64) -> Duration {
    match side {
        Side::Agent => Duration::from_millis(2_100 + random % 190 * 10),
        Side::Caller => Duration::from_millis(random % 200 * 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glare_waits_are_those_of_the_rfc() {
        for random in [0, 1, 189, 199, u64::MAX] {
            let ours = glare_wait(Side::Agent, random);
            assert!(
                ours >= Duration::from_millis(2_100) && ours <= Duration::from_secs(4),
                "{ours:?}"
            );
            assert!(glare_wait(Side::Caller, random) < Duration::from_secs(2));
        }
    }
}
