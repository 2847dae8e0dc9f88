//! Targets that leave an INVITE unanswered, or whose answer can't be used: the next one is tried, or the client gives up (RFC 3261 §17.1.1, RFC 3263
//! §4.3).

use trunkline_sip::dialog;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, UnreadableResponse};

use super::{ATTEMPT_PATIENCE, Attempt, Failed, InviteClient, InviteEvent, InviteText, State};
use crate::core::context::Cx;
use crate::invite::attempts::{AttemptResult, NoAnswer};
use crate::invite::large_invite::{STREAM_PATIENCE, UdpFallback};
use crate::parts::dial_failure::{DialFailure, UNREACHABLE, reason_line};
use crate::parts::ids::CallTimer;
use crate::parts::refusal::Reason;
use crate::parts::target::Target;

impl InviteClient {
    /// Handles a transaction that timed out, or whose flow broke.
    pub(crate) fn handle_no_answer(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        why: &NoAnswer,
    ) -> InviteEvent<'static> {
        let Some((_, mut attempt)) = self.take_inviting() else {
            return InviteEvent::Waits;
        };
        if attempt.reconnects(why) {
            cx.cancel_timer(&mut self.timer);
            return self.ask_again(cx, text, attempt);
        }

        note_unanswered(cx, &attempt);
        self.pass(cx, (&attempt.target).into(), &why.into());
        self.leave(cx, why.status());
        self.advance(cx, text)
    }

    /// Notes a response to the INVITE that can't be read. The peer may send another one, so the INVITE goes on.
    pub(crate) const fn note_unreadable(&mut self, response: UnreadableResponse) {
        self.attempts.hear_unreadable(response);
    }

    /// Records a 2xx that makes no dialog.
    pub(super) fn pass_unusable(
        &mut self,
        cx: &mut Cx<'_>,
        target: &Target,
        message: &Message<'_>,
    ) {
        let why = dialog::unusable_because(message);
        let came = AttemptResult::Unusable(message.status(), why);
        self.pass(cx, target.into(), &came);
    }

    /// Handles a silent target while another one waits, or another path to it.
    pub(crate) fn handle_silence(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
    ) -> InviteEvent<'static> {
        self.timer = None;
        // The peer has sent a 1xx on the connection, so no datagram follows. It gets the rest of a target's usual time.
        if matches!(self.datagram, UdpFallback::Unneeded) {
            self.datagram = UdpFallback::Excluded;
            let rest = ATTEMPT_PATIENCE - STREAM_PATIENCE;
            if self.has_another() {
                self.timer = Some(cx.schedule(self.leg.key, rest, CallTimer::Attempt));
            }
            return InviteEvent::Waits;
        }
        let Some((client, attempt)) = self.take_inviting() else {
            return InviteEvent::Waits;
        };

        // A 2xx that crosses this CANCEL gets ACK and BYE: no attempt owns its transaction any more.
        cx.endpoint.cancel(client, b"", cx.now);
        self.pass(cx, (&attempt.target).into(), &AttemptResult::Silence);
        self.leave(cx, 408);
        self.advance(cx, text)
    }

    /// Tries the next target: the 2xx of this one can't be used and was hung up on.
    pub(crate) fn pass_over(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
    ) -> InviteEvent<'static> {
        self.state = State::Idle;
        self.advance(cx, text)
    }

    /// Gives up: the peer has the INVITE and doesn't answer, or no peer was found.
    pub(crate) fn give_up(&mut self, cx: &mut Cx<'_>) -> Failed<'static> {
        let reason = match &self.state {
            State::Inviting(_, attempt) if attempt.heard => Reason::RingingTimeout,
            State::Inviting(_, attempt) => {
                note_unanswered(cx, attempt);
                Reason::TrunkUnreachable
            }
            State::Idle
            | State::LookingAhead(_)
            | State::Resolving(_)
            | State::Connecting(_)
            | State::Over => Reason::TrunkUnreachable,
        };
        // Before `cancel`, which would record the attempt as cancelled.
        self.note_silence(cx);

        let mut lines = Vec::new();
        reason_line(&mut Head::new(&mut lines), reason);
        self.cancel(cx, &lines);

        Failed {
            failure: DialFailure {
                sip_code: 408,
                reason,
                status: reason.unanswered(),
                cause: None,
                is_answer: false,
            },
            said: Box::default(),
            message: None,
        }
    }

    /// Records that the target was silent until the ringing time or the set-up deadline was over.
    pub(crate) fn note_silence(&mut self, cx: &mut Cx<'_>) {
        if let State::Inviting(_, attempt) | State::Connecting(attempt) = &self.state {
            let owner = self.leg.owner;
            self.attempts
                .failed(cx, owner, (&attempt.target).into(), &AttemptResult::Silence);
        }
    }

    /// Takes the INVITE that is out and becomes idle; any other state stays.
    pub(super) fn take_inviting(&mut self) -> Option<(ClientTx, Box<Attempt>)> {
        if !matches!(self.state, State::Inviting(..)) {
            return None;
        }
        let State::Inviting(client, attempt) = std::mem::replace(&mut self.state, State::Idle)
        else {
            return None;
        };
        Some((client, attempt))
    }

    /// Ends an attempt without an answer. A peer that accepted a connection and stayed silent is tried by datagram next.
    fn leave(&mut self, cx: &mut Cx<'_>, sip_code: u16) {
        cx.cancel_timer(&mut self.timer);
        if let Some(target) = self.datagram.take(cx) {
            self.targets.push_front(target);
        }
        self.last = Some(DialFailure {
            sip_code,
            ..UNREACHABLE
        });
    }

    /// Continues unless an INVITE is out.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>, text: &dyn InviteText) -> InviteEvent<'static> {
        match &self.state {
            State::Idle => self.advance(cx, text),
            State::LookingAhead(_)
            | State::Resolving(_)
            | State::Connecting(_)
            | State::Inviting(..)
            | State::Over => InviteEvent::Waits,
        }
    }
}

/// Marks a registered PBX that is silent to an INVITE as unreachable until it is heard again.
fn note_unanswered(cx: &Cx<'_>, attempt: &Attempt) {
    if let Some(flow) = attempt.target.by.filter(|_| !attempt.heard) {
        cx.core.bindings.note_unanswered(&flow);
    }
}
