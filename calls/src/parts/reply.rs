//! Rule for the final answer to a request of ours inside a dialog (RFC 3261 §12.2.1.2, §14.1, §14.2, RFC 4028 §7.3, rules for dead peers). The
//! feature that sent the request decides what a refusal means.

use std::time::Duration;

use trunkline_sip::wire::{HeaderName, Message, Method};

/// Longest wait that a peer may demand, in seconds.
const MAX_RETRY_AFTER: u32 = 10;
/// Shortest pause before a request is repeated that a peer, or a broken connection, has delayed.
pub(crate) const PAUSE: Duration = Duration::from_millis(500);

/// Consequence of an answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// 2xx.
    Accepted,
    /// Repeat the request after a while.
    RetryAfter(Duration),
    /// Repeat the request with the session interval that the peer demands.
    TooBrief,
    /// The peer doesn't have the dialog.
    Gone,
    /// No answer came, or one that doesn't say whether the dialog still exists (408, or 481 to OPTIONS).
    Unheard,
    /// Any other refusal.
    Refused(u16),
}

impl Reply {
    /// Judges the final answer to a request; `glare` draws the wait after a 491.
    pub(crate) fn of(answer: &Message<'_>, glare: impl FnOnce() -> Duration) -> Self {
        // RFC 3261 §14.2: a busy dialog asks for "between 0 and 10 seconds"; a longer pause is taken for a refusal.
        let retry_after = answer
            .number(HeaderName::RetryAfter)
            .filter(|after| *after <= MAX_RETRY_AFTER);
        match (answer.status(), answer.method(), retry_after) {
            (200..=299, _, _) => Self::Accepted,
            (491, _, _) => Self::RetryAfter(glare()),
            // RFC 3261 §14.2: a peer whose own INVITE is unanswered refuses ours with 500 and a Retry-After.
            (500 | 503, _, Some(after)) => {
                Self::RetryAfter(Duration::from_secs(u64::from(after)).max(PAUSE))
            }
            (422, Method::Invite | Method::Update, _) => Self::TooBrief,
            // A peer may not match OPTIONS to dialogs.
            (481, Method::Options, _) | (408, _, _) => Self::Unheard,
            (481, _, _) => Self::Gone,
            (status, _, _) => Self::Refused(status),
        }
    }

    /// Judges a request without an answer: its flow broke (503, RFC 3261 §8.1.3.1), or nothing came (408). `connected`: it went over an
    /// existing connection, which may have been stale; the repetition opens a new one.
    pub(crate) const fn without_answer(status: u16, connected: bool) -> Self {
        match (status, connected) {
            (503, true) => Self::RetryAfter(PAUSE),
            (503, false) => Self::Refused(503),
            (_, _) => Self::Unheard,
        }
    }
}

/// Returns the wait after glare: the owner of the Call-ID 2.1 to 4 s, the other 0 to 2 s (RFC 3261 §14.1).
pub(crate) const fn glare_wait(owns_call_id: bool, random: u64) -> Duration {
    match owns_call_id {
        true => Duration::from_millis(2_100 + random % 190 * 10),
        false => Duration::from_millis(random % 200 * 10),
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    /// RFC 3261 §14.1: in units of 10 ms, 2.1 to 4 s for the owner of the Call-ID, 0 to 2 s for the other.
    #[test]
    fn waits_after_glare_are_those_of_the_rfc() {
        for (owns_call_id, random, milliseconds) in [
            (true, 0, 2_100),
            (true, 189, 3_990),
            (true, 190, 2_100),
            (false, 0, 0),
            (false, 199, 1_990),
            (false, 200, 0),
        ] {
            let wait = glare_wait(owns_call_id, random);
            assert_eq!(wait.as_millis(), milliseconds, "{owns_call_id} {random}");
        }
    }

    #[test]
    fn every_answer_has_one_meaning() {
        let glare = Duration::from_secs(3);
        let seconds = |seconds| Reply::RetryAfter(Duration::from_secs(seconds));
        for (case, status, method, lines, reply) in [
            ("accepted", 200, "INVITE", "", Reply::Accepted),
            ("accepted", 202, "REFER", "", Reply::Accepted),
            ("glare", 491, "INVITE", "", Reply::RetryAfter(glare)),
            ("glare", 491, "UPDATE", "", Reply::RetryAfter(glare)),
            ("glare", 491, "REFER", "", Reply::RetryAfter(glare)),
            ("later", 500, "INVITE", "Retry-After: 7\r\n", seconds(7)),
            ("later", 503, "UPDATE", "Retry-After: 10\r\n", seconds(10)),
            (
                "at once",
                500,
                "INVITE",
                "Retry-After: 0\r\n",
                Reply::RetryAfter(PAUSE),
            ),
            (
                "much later",
                503,
                "INVITE",
                "Retry-After: 11\r\n",
                Reply::Refused(503),
            ),
            ("broken", 500, "INVITE", "", Reply::Refused(500)),
            (
                "too brief",
                422,
                "INVITE",
                "Min-SE: 300\r\n",
                Reply::TooBrief,
            ),
            (
                "too brief",
                422,
                "UPDATE",
                "Min-SE: 300\r\n",
                Reply::TooBrief,
            ),
            ("no session", 422, "REFER", "", Reply::Refused(422)),
            ("unanswered", 408, "INVITE", "", Reply::Unheard),
            ("unanswered", 408, "OPTIONS", "", Reply::Unheard),
            ("gone", 481, "INVITE", "", Reply::Gone),
            ("gone", 481, "UPDATE", "", Reply::Gone),
            (
                "no dialog is looked for",
                481,
                "OPTIONS",
                "",
                Reply::Unheard,
            ),
            ("unproven", 401, "INVITE", "", Reply::Refused(401)),
            ("refused", 488, "INVITE", "", Reply::Refused(488)),
            ("unknown method", 501, "UPDATE", "", Reply::Refused(501)),
        ] {
            let answer = format!(
                "SIP/2.0 {status} X\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKa\r\nFrom: <sip:a@h>;tag=a\r\n\
                 To: <sip:b@h>;tag=b\r\nCall-ID: i\r\nCSeq: 1 {method}\r\n{lines}Content-Length: 0\r\n\r\n"
            );
            let answer = lex(answer.as_bytes(), Framing::Datagram).expect(case);
            assert_eq!(
                Reply::of(&answer, || glare),
                reply,
                "{case}: {status} {method}"
            );
        }
    }

    #[test]
    fn silence_differs_from_a_broken_connection() {
        for (status, connected, reply) in [
            (503, true, Reply::RetryAfter(PAUSE)),
            (503, false, Reply::Refused(503)),
            (408, true, Reply::Unheard),
            (408, false, Reply::Unheard),
        ] {
            assert_eq!(Reply::without_answer(status, connected), reply, "{status}");
        }
    }

    #[test]
    fn glare_waits_are_those_of_the_rfc() {
        for random in [0, 1, 189, 199, u64::MAX] {
            let owner = glare_wait(true, random);
            let (least, most) = (Duration::from_millis(2_100), Duration::from_secs(4));
            assert!(owner >= least && owner <= most, "{owner:?}");
            assert!(glare_wait(false, random) < Duration::from_secs(2));
        }
    }
}
