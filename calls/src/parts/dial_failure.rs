//! Reasons why a call of ours wasn't answered: the callee's side of a refusal, and our own words when we give up.

use trunkline_model::record::Status;
use trunkline_sip::header::reason;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message};

use super::pbx::Pbx;
use super::refusal::Reason;

/// Reason why a call wasn't answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct DialFailure {
    /// Status code of the refusal, or the equivalent one.
    pub(crate) sip_code: u16,
    pub(crate) reason: Reason,
    pub(crate) status: Status,
    /// The cause by Q.850, where the peer named one.
    pub(crate) cause: Option<u8>,
    /// It is the peer's own answer.
    pub(crate) is_answer: bool,
}

/// No target is left.
pub(crate) const UNREACHABLE: DialFailure = DialFailure {
    sip_code: 503,
    reason: Reason::TrunkUnreachable,
    status: Status::Failed,
    cause: None,
    is_answer: false,
};

/// The rule on addresses forbids all targets.
pub(crate) const FORBIDDEN: DialFailure = DialFailure {
    sip_code: Reason::PeerNotAllowed.status(),
    reason: Reason::PeerNotAllowed,
    ..UNREACHABLE
};

/// Returns the meaning of a callee's final refusal. A gateway's Q.850 cause is more exact than the code mapped from it.
pub(crate) fn failure(status: u16, message: &Message<'_>) -> DialFailure {
    let cause = message
        .elements(HeaderName::Reason)
        .filter_map(reason::Reason::parse)
        .filter(|reason| reason.is("Q.850"))
        .find_map(|reason| reason.cause)
        .and_then(|cause| u8::try_from(cause).ok());
    let said = reason_of(status, cause, Pbx::of_message(message));
    DialFailure {
        sip_code: status,
        reason: said,
        status: said.unanswered(),
        cause,
        is_answer: true,
    }
}

fn reason_of(status: u16, cause: Option<u8>, pbx: Option<Pbx>) -> Reason {
    // A failed log-in and a person's refusal go before the cause, which goes before codes that it is mapped to.
    match (status, cause) {
        (603, _) if pbx.is_some_and(|pbx| pbx.ends_unanswered_with(cause)) => {
            Reason::CalleeNoAnswer
        }
        (401 | 407, _) => Reason::TrunkAuthFailed,
        (603 | 607 | 608, _) => Reason::CalleeDeclined,
        (486 | 600, _) | (_, Some(17)) => Reason::CalleeBusy,
        (_, Some(18..=20)) => Reason::CalleeNoAnswer,
        (_, Some(21)) => Reason::CalleeDeclined,
        (_, Some(1 | 22 | 28)) => Reason::NumberUnreachable,
        (408 | 480 | 487, _) => Reason::CalleeNoAnswer,
        (404 | 410 | 484 | 604, _) => Reason::NumberUnreachable,
        (415 | 488 | 606, _) => Reason::NoCommonMedia,
        (503, _) => Reason::TrunkUnreachable,
        _ => Reason::TrunkRefused,
    }
}

/// Lines of a final refusal about its cause and a retry, which hold for whatever code the refusal is mapped to.
pub(crate) fn refused_with(refusal: &Message<'_>) -> Box<[u8]> {
    let mut lines = Vec::new();
    let mut head = Head::new(&mut lines);
    reasons(&mut head, refusal);
    if let Some(after) = refusal.first(HeaderName::RetryAfter) {
        head.line("Retry-After", after);
    }
    lines.into()
}

/// Writes all Reason values of a message, one per line (RFC 3326 §2 allows one per protocol).
pub(crate) fn reasons(head: &mut Head<'_>, message: &Message<'_>) {
    for reason in message.all(HeaderName::Reason) {
        head.line("Reason", reason);
    }
}

/// `Warning` and the machine-readable reason of a refusal.
pub(crate) fn refusal_lines(head: &mut Head<'_>, reason: Reason) {
    head.fmt(
        "Warning",
        format_args!("399 trunkline \"{}\"", reason.sentence()),
    );
    head.line("X-Trunkline-Reason", reason.code().as_bytes());
}

/// `Reason` of a CANCEL or BYE of ours (RFC 3326).
pub(crate) fn reason_line(head: &mut Head<'_>, reason: Reason) {
    let (cause, text) = (reason.status(), reason.sentence());
    head.fmt("Reason", format_args!("SIP;cause={cause};text=\"{text}\""));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateways_cause_says_more_than_its_code() {
        for (status, cause, pbx, reason) in [
            (486, None, None, Reason::CalleeBusy),
            (600, None, None, Reason::CalleeBusy),
            (603, None, None, Reason::CalleeDeclined),
            // Asterisk: `Dial` ran out of time, alone or before a plain `Hangup()`; an older one gives no cause.
            (603, Some(0), Some(Pbx::Asterisk), Reason::CalleeNoAnswer),
            (603, Some(16), Some(Pbx::Asterisk), Reason::CalleeNoAnswer),
            (603, None, Some(Pbx::FreePbx), Reason::CalleeNoAnswer),
            (603, Some(21), Some(Pbx::Asterisk), Reason::CalleeDeclined),
            (603, Some(16), Some(Pbx::FreeSwitch), Reason::CalleeDeclined),
            (480, None, None, Reason::CalleeNoAnswer),
            (480, Some(17), None, Reason::CalleeBusy),
            (480, Some(21), None, Reason::CalleeDeclined),
            (500, Some(19), None, Reason::CalleeNoAnswer),
            (403, Some(1), None, Reason::NumberUnreachable),
            (404, None, None, Reason::NumberUnreachable),
            (403, None, None, Reason::TrunkRefused),
            (488, None, None, Reason::NoCommonMedia),
            (401, None, None, Reason::TrunkAuthFailed),
            (503, None, None, Reason::TrunkUnreachable),
        ] {
            let said = reason_of(status, cause, pbx);
            assert_eq!(said, reason, "{status} {cause:?} {pbx:?}");
        }
    }
}
