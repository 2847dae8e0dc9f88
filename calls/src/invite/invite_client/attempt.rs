//! An attempt at one target, and the early dialogs that its INVITE makes (RFC 3261 §13.2.2.1, RFC 3262 §4).

use smallvec::SmallVec;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::fault::Fault;
use trunkline_sip::flow::Flow;
use trunkline_sip::slot::{CallId, Tag};
use trunkline_sip::wire::{HeaderName, Message};

use super::{EarlyDialog, OurOffer};
use crate::invite::attempts::NoAnswer;
use crate::parts::target::Target;
use crate::trust::digest_answers::DigestAnswers;
use crate::{has_sdp, sdp_of};

/// Early dialogs of one client, over all targets. Responses of a further one count as responses without a dialog.
const MAX_FORKS: u8 = 16;

/// An attempt at one target: it would make a dialog of its own, so it has its own From-tag.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) target: Target,
    pub(super) flow: Flow,
    pub(super) tag: Tag,
    pub(super) call_id: CallId,
    /// Requests so far, which is the CSeq of the last one.
    pub(super) requests: u32,
    pub(super) digest_answers: DigestAnswers,
    /// A provisional answer has come.
    pub(super) heard: bool,
    /// Use of a new connection in place of one that closed.
    pub(super) reconnects: Reconnects,
    /// Early dialogs of the last request.
    pub(super) forks: SmallVec<[Fork; 1]>,
}

/// Use of a new connection in place of one that closed before any response to the INVITE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Reconnects {
    /// One new connection may be used.
    Once,
    /// It has been used.
    NoMore,
}

/// An early dialog, as the client knows it.
#[derive(Debug)]
pub(super) struct Fork {
    pub(super) number: u8,
    pub(super) tag: Box<[u8]>,
    /// RSeq of its last reliable answer (RFC 3262 §4).
    pub(super) rseq: Option<u32>,
    /// Its last SDP.
    pub(super) sdp: Option<Box<[u8]>>,
}

/// Meaning of a provisional answer.
pub(super) enum ProvisionalOutcome {
    Dialog(EarlyDialog),
    /// It makes no dialog, or exceeds the bound.
    NoDialog,
    /// It has been acknowledged already, or a response before it is missing.
    Repetition,
}

impl Attempt {
    /// Returns whether the INVITE is sent again over a new connection. A peer may close an idle connection while the INVITE is on its way; a
    /// response, or a connection that was never established, rules that out.
    pub(super) fn reconnects(&mut self, why: &NoAnswer) -> bool {
        let has_ended =
            *why == NoAnswer::Broken(Fault::Closed) && self.flow.transport.is_reliable();
        let is_ours_to_open = self.target.by.is_none();
        has_ended
            && is_ours_to_open
            && !self.heard
            && std::mem::replace(&mut self.reconnects, Reconnects::NoMore) == Reconnects::Once
    }

    /// Returns the state of our offer in the early dialog that a peer's request belongs to; `None` if there is no such dialog.
    pub(super) fn early_offer(&self, request: &Message<'_>) -> Option<OurOffer> {
        let is_ours = self.call_id.as_bytes() == request.call_id();
        let tag = request.from_tag().filter(|_| is_ours)?;
        let fork = self.forks.iter().find(|fork| *fork.tag == *tag)?;
        Some(match fork.rseq.is_some() && fork.sdp.is_some() {
            true => OurOffer::Answered,
            false => OurOffer::Open,
        })
    }

    /// Notes a provisional answer. `forks`: the number of the next early dialog.
    pub(super) fn hear(&mut self, forks: &mut u8, message: &Message<'_>) -> ProvisionalOutcome {
        let tag = message.to_tag().unwrap_or_default();
        let known = self.forks.iter().position(|fork| *fork.tag == *tag);
        let (at, begins) = match known {
            Some(at) => (at, None),
            // A proxy may fork without end, and each branch costs a dialog here and one towards the caller.
            None if *forks >= MAX_FORKS => return ProvisionalOutcome::NoDialog,
            None => {
                let Some(dialog) = Dialog::uac(self.target.uri.as_bytes(), message) else {
                    return ProvisionalOutcome::NoDialog;
                };
                self.forks.push(Fork {
                    number: *forks,
                    tag: tag.into(),
                    rseq: None,
                    sdp: None,
                });
                *forks += 1;
                (self.forks.len() - 1, Some(dialog))
            }
        };

        let fork = &mut self.forks[at];
        // Without `Require: 100rel` the response isn't reliable, whatever RSeq it has (RFC 3262 §3).
        let rseq = message
            .number(HeaderName::RSeq)
            .filter(|_| message.has_token(HeaderName::Require, "100rel"));
        // RFC 3262 §4: one out of order "MUST NOT be acknowledged with a PRACK, and MUST NOT be processed further".
        if rseq.is_some_and(|rseq| !fork.takes(rseq)) {
            return ProvisionalOutcome::Repetition;
        }
        if has_sdp(message) {
            fork.sdp = Some(sdp_of(message.body()).into());
        }
        ProvisionalOutcome::Dialog(EarlyDialog {
            fork: fork.number,
            rseq,
            begins,
        })
    }
}

impl Fork {
    /// Returns whether a reliable answer is the next one. They are acknowledged in their order, each once (RFC 3262 §4).
    fn takes(&mut self, rseq: u32) -> bool {
        let is_next = self
            .rseq
            .is_none_or(|last| last.checked_add(1) == Some(rseq));
        if is_next {
            self.rseq = Some(rseq);
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reliable_answers_of_a_fork_are_taken_in_their_order() {
        let mut fork = Fork {
            number: 0,
            tag: Box::default(),
            rseq: None,
            sdp: None,
        };
        let taken = [7, 7, 9, 8, 8, 9, u32::MAX].map(|rseq| fork.takes(rseq));
        assert_eq!(taken, [true, false, false, true, false, true, false]);
    }
}
