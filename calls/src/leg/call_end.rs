//! End of a call as its record has it, and the refusal of a call that isn't answered (RFC 3261 §13.3.1).

use std::borrow::Cow;

use trunkline_model::record::{HangupBy, Status};
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::unacceptable_body::UnacceptableBody;
use crate::core::context::Config;
use crate::invite::invite_client::Failed;
use crate::parts::crossing;
use crate::parts::crossing::{Crossing, RuntimeRefusal};
use crate::parts::dial_failure::{DialFailure, refusal_lines};
use crate::parts::refusal::Reason;

/// Most characters of the details of a reason.
const MAX_DETAIL: usize = 256;

/// End of a call, for its record.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CallEnd {
    pub(crate) status: Status,
    pub(crate) sip_code: u16,
    pub(crate) reason: Option<Reason>,
    pub(crate) by: HangupBy,
    /// Q.850 cause, where a peer named one.
    pub(crate) cause: Option<u8>,
}

/// End of a call, with details of its reason for people.
#[derive(Debug)]
pub(crate) struct DetailedEnd {
    pub(crate) end: CallEnd,
    pub(crate) reason_detail: Option<Box<str>>,
}

impl From<CallEnd> for DetailedEnd {
    fn from(end: CallEnd) -> Self {
        let reason_detail = None;
        Self { end, reason_detail }
    }
}

impl CallEnd {
    /// End of a call that has been answered.
    pub(crate) const fn of_answered(status: Status, by: HangupBy) -> Self {
        Self {
            status,
            sip_code: 200,
            reason: None,
            by,
            cause: None,
        }
    }

    /// End of a call that its runtime refuses.
    const fn of_runtime(sip_code: u16) -> Self {
        let (reason, status) = match sip_code {
            486 | 600 => (Reason::Declined, Status::Busy),
            480 => (Reason::Declined, Status::NoAnswer),
            415 | 488 | 606 => (Reason::NoCommonMedia, Status::Failed),
            _ => (Reason::Declined, Status::Failed),
        };
        Self {
            status,
            sip_code,
            reason: Some(reason),
            by: HangupBy::Agent,
            cause: None,
        }
    }

    /// End of a call whose callee doesn't answer. Only a callee that has refused has ended it: one that was silent or can't be reached has done
    /// nothing.
    pub(crate) fn of_callee(failure: DialFailure) -> Self {
        let has_refused = failure.is_answer && failure.reason != Reason::RingingTimeout;
        let by = match has_refused {
            true => HangupBy::Callee,
            false => HangupBy::Platform,
        };
        Self {
            status: failure.status,
            sip_code: failure.sip_code,
            reason: Some(failure.reason),
            by,
            cause: failure.cause,
        }
    }
}

/// Refusal of a call that isn't answered.
#[derive(Debug)]
pub(crate) struct CallRefusal<'r> {
    pub(crate) end: CallEnd,
    words: Words<'r>,
}

/// Content of the response that refuses a call.
#[derive(Debug)]
enum Words<'r> {
    /// The caller gives up, with these Reason lines for the runtime.
    Canceled(Vec<u8>),
    /// Our reason, with the lines of the last target's refusal.
    Ours(&'r [u8]),
    /// The refusal of a peer, as it crosses.
    Peer(&'r Message<'r>),
    /// The fault of the offer.
    Offer(UnacceptableBody),
}

impl<'r> CallRefusal<'r> {
    /// A refusal of ours, with the Reason and Retry-After of the last target's.
    pub(crate) const fn saying(reason: Reason, said: &'r [u8]) -> Self {
        Self {
            end: CallEnd {
                status: reason.unanswered(),
                sip_code: reason.status(),
                reason: Some(reason),
                by: HangupBy::Platform,
                cause: None,
            },
            words: Words::Ours(said),
        }
    }

    /// A peer's refusal, with its reason phrase, headers and body as they cross.
    pub(crate) const fn of_peer(end: CallEnd, message: &'r Message<'r>) -> Self {
        Self {
            end,
            words: Words::Peer(message),
        }
    }

    /// The answer to the INVITE of a caller that gives up, with the Reason lines of its CANCEL or BYE.
    pub(crate) const fn canceled(reasons: Vec<u8>) -> Self {
        Self {
            end: CallEnd {
                status: Status::Canceled,
                sip_code: 487,
                reason: Some(Reason::CallerCanceled),
                by: HangupBy::Caller,
                cause: None,
            },
            words: Words::Canceled(reasons),
        }
    }

    /// Returns the lines of our CANCEL to the runtime.
    pub(crate) fn cancel_lines(&self) -> &[u8] {
        match &self.words {
            Words::Canceled(reasons) => reasons,
            Words::Ours(_) | Words::Peer(_) | Words::Offer(_) => b"",
        }
    }

    /// Returns the reason phrase of a peer.
    pub(crate) fn phrase(&self) -> Option<Cow<'r, str>> {
        match &self.words {
            Words::Peer(message) => Some(String::from_utf8_lossy(message.reason())),
            Words::Canceled(_) | Words::Ours(_) | Words::Offer(_) => None,
        }
    }

    /// Returns what the caller's offer lacks, as the Warning of the response says.
    pub(crate) fn reason_detail(&self) -> Option<Box<str>> {
        match &self.words {
            Words::Offer(UnacceptableBody::NoCommonMedia(cause)) => {
                Some(cause.chars().take(MAX_DETAIL).collect())
            }
            Words::Offer(UnacceptableBody::OtherType | UnacceptableBody::Encoded)
            | Words::Canceled(_)
            | Words::Ours(_)
            | Words::Peer(_) => None,
        }
    }

    /// Writes the header lines of the response.
    pub(crate) fn write(&self, head: &mut Head<'_>, config: &Config) {
        match &self.words {
            Words::Canceled(_) => {}
            Words::Ours(said) => {
                self.write_reason(head);
                head.raw(said);
                // RFC 3261 §21.5.4: "If no Retry-After is given, the client MUST act as if it had received a 500".
                if self.end.sip_code == 503 {
                    head.number("Retry-After", u64::from(config.retry_after));
                }
            }
            Words::Peer(message) => {
                self.write_reason(head);
                Crossing::of_final_answer(&config.header_prefix).copy(head, message);
            }
            Words::Offer(no) => {
                no.lines(head);
                self.write_reason(head);
            }
        }
    }

    fn write_reason(&self, head: &mut Head<'_>) {
        if let Some(reason) = self.end.reason {
            refusal_lines(head, reason);
        }
    }

    /// Returns the body of the response.
    pub(crate) fn body(&self) -> &'r [u8] {
        match &self.words {
            Words::Peer(message) => message.body(),
            Words::Canceled(_) | Words::Ours(_) | Words::Offer(_) => b"",
        }
    }

    /// Refusal of a call that no runtime takes.
    pub(crate) fn of_runtime(failed: &'r Failed<'r>) -> Self {
        let Some(message) = failed.message else {
            let is_forbidden = failed.failure.reason == Reason::PeerNotAllowed;
            let reason = match is_forbidden {
                true => Reason::PeerNotAllowed,
                false => Reason::RuntimeUnreachable,
            };
            return Self::saying(reason, &failed.said);
        };

        match crossing::refusal(message.status()) {
            RuntimeRefusal::Same => Self::of_peer(CallEnd::of_runtime(message.status()), message),
            RuntimeRefusal::FailOver
            | RuntimeRefusal::Trouble
            | RuntimeRefusal::Redirect
            | RuntimeRefusal::Brief
            | RuntimeRefusal::Unavailable => Self::saying(Reason::RuntimeRefused, &failed.said),
        }
    }
}

impl From<Reason> for CallRefusal<'_> {
    fn from(reason: Reason) -> Self {
        Self::saying(reason, b"")
    }
}

/// Refusal of a call whose first offer our media can't accept.
impl From<UnacceptableBody> for CallRefusal<'_> {
    fn from(no: UnacceptableBody) -> Self {
        let reason = Reason::NoCommonMedia;
        Self {
            end: CallEnd {
                status: reason.unanswered(),
                sip_code: no.status(),
                reason: Some(reason),
                by: HangupBy::Platform,
                cause: None,
            },
            words: Words::Offer(no),
        }
    }
}

/// Consequence of a final answer to the caller's INVITE for its call.
#[derive(Debug)]
#[must_use]
pub(crate) enum AnswerProgress {
    /// None: the INVITE has its final answer, or its dialog is gone.
    Nothing,
    /// The caller has its 200.
    Accepted {
        /// Call-ID of the runtime's leg; empty where our own media answer.
        runtime_call_id: Box<str>,
    },
    /// The caller's INVITE is to be refused.
    Refused(CallRefusal<'static>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::dial_failure::UNREACHABLE;

    #[test]
    fn only_a_callee_that_has_refused_has_ended_its_call() {
        let busy = DialFailure {
            sip_code: 486,
            reason: Reason::CalleeBusy,
            status: Status::Busy,
            cause: None,
            is_answer: true,
        };
        let silent = DialFailure {
            sip_code: 408,
            is_answer: false,
            ..busy
        };
        let rings = DialFailure {
            reason: Reason::RingingTimeout,
            ..silent
        };
        for (name, failure, by) in [
            ("it refuses", busy, HangupBy::Callee),
            ("it is silent", silent, HangupBy::Platform),
            ("it rings for too long", rings, HangupBy::Platform),
            ("it can't be reached", UNREACHABLE, HangupBy::Platform),
        ] {
            assert_eq!(CallEnd::of_callee(failure).by, by, "{name}");
        }
    }
}
