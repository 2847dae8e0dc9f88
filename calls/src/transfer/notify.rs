//! NOTIFY: what the PBX says about the REFER, as a fragment of the answer that the destination gave it (RFC 3515 §2.4.5,
//! RFC 3420, RFC 6665).

use std::time::Duration;

use trunkline_model::transfer::State;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::header::subscription_state::SubscriptionState;
use trunkline_sip::wire::{HeaderName, Message};

use super::Wait;
use crate::call::Call;
use crate::context::Cx;
use crate::ids::LegId;

/// A 200 that comes so soon after the 202, and without a 18x, says nothing of an answer: FreeSWITCH and Asterisk send it by
/// default as soon as they have begun.
const TOO_SOON: Duration = Duration::from_millis(500);
/// Time that the next NOTIFY may take where the PBX doesn't say, for a destination may ring for long.
const NEXT_NEWS: Duration = Duration::from_secs(180);
/// Time that the last NOTIFY of a subscription that has expired may be on its way (64*T1).
const LAST_NEWS: Duration = Duration::from_secs(32);
/// The longest time for the next NOTIFY, whatever the PBX says.
const MOST: Duration = Duration::from_secs(300);

impl Call {
    /// A NOTIFY inside the call.
    pub(crate) fn on_notify(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        let event = message.first(HeaderName::Event).unwrap_or_default();
        let mut parts = event.split(|octet| *octet == b';').map(<[u8]>::trim_ascii);
        let package = parts.next().unwrap_or_default();
        if !package.eq_ignore_ascii_case(b"refer") && !package.is_empty() {
            let allowed = b"refer";
            return cx.respond(
                server,
                489,
                None,
                |head| head.line("Allow-Events", allowed),
                b"",
            );
        }
        let Some(transfer) = self.transfer.as_deref().filter(|_| self.is_trunk(id)) else {
            return cx.respond(server, 481, None, |_| {}, b"");
        };
        cx.respond(server, 200, None, |_| {}, b"");
        let id = parts.find_map(|part| part.strip_prefix(b"id="));
        let id = id.and_then(|id| std::str::from_utf8(id).ok()?.parse::<u32>().ok());
        // That of an earlier REFER has nothing more to say.
        let stale = id.is_some_and(|id| id < transfer.cseq);
        let is_awaited = matches!(
            transfer.wait,
            Wait::Answer | Wait::Again | Wait::Notify | Wait::Parting
        );
        if !stale && transfer.is_open() && is_awaited {
            let state = message.first(HeaderName::SubscriptionState);
            let state = SubscriptionState::parse(state.unwrap_or_default());
            self.take_news(cx, status_of(message.body()), state);
        }
    }

    fn take_news(&mut self, cx: &mut Cx<'_>, status: Option<u16>, state: SubscriptionState) {
        self.refer_accepted(cx);
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };

        let record = &mut transfer.record;
        let since = record.accepted_at.map(|at| cx.now.since(at));
        let too_soon = record.ringing_at.is_none() && since.is_some_and(|since| since < TOO_SOON);
        match status {
            Some(200..=299) => {
                record.answer_confirmed = Some(!too_soon);
                self.settle(cx, State::Completed, None);
            }
            Some(status @ 300..) => self.on_refer_failed(cx, status),
            Some(status @ 180..=189) if record.state == State::Accepted => {
                transfer.heard = status;
                let record = &mut transfer.record;
                record.state = State::Ringing;
                record.ringing_at = Some(cx.now);
                self.tell_transfer(cx);
                self.tell_runtime(cx, status, false);
                self.go_on(cx, state);
            }
            Some(_) | None => self.go_on(cx, state),
        }
    }

    /// More is to come, unless this was the last word.
    fn go_on(&mut self, cx: &mut Cx<'_>, state: SubscriptionState) {
        let parting = |transfer: &super::Transfer| transfer.wait == Wait::Parting;
        match state {
            SubscriptionState::Terminated => self.settle(cx, State::Unknown, None),
            SubscriptionState::Open { .. } if self.transfer.as_deref().is_some_and(parting) => {}
            SubscriptionState::Open { expires } => {
                self.wait_for(cx, Wait::Notify, Some(next_notify(expires)));
            }
        }
    }
}

/// Returns the wait for the next NOTIFY of a subscription that lasts for so many seconds yet (RFC 6665 §4.1.2.4).
fn next_notify(expires: Option<u32>) -> Duration {
    let lasts = |seconds: u32| Duration::from_secs(seconds.into()) + LAST_NEWS;
    expires.map_or(NEXT_NEWS, lasts).min(MOST)
}

/// The status in a `message/sipfrag` body, whatever its type is called.
fn status_of(body: &[u8]) -> Option<u16> {
    let line = body
        .trim_ascii_start()
        .split(|octet| *octet == b'\n')
        .next()?;
    let rest = line
        .get(..8)
        .filter(|version| version.eq_ignore_ascii_case(b"SIP/2.0 "));
    rest?;
    let digits = line
        .get(8..11)
        .filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let status = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let ends = line.get(11).is_none_or(u8::is_ascii_whitespace);
    (ends && (100..700).contains(&status)).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_news_is_awaited_for_as_long_as_the_subscription_lasts() {
        for (expires, seconds) in [
            (None, 180),
            (Some(0), 32),
            (Some(5), 37),
            (Some(60), 92),
            (Some(3_600), 300),
            (Some(u32::MAX), 300),
        ] {
            assert_eq!(next_notify(expires).as_secs(), seconds, "{expires:?}");
        }
    }

    #[test]
    fn a_fragment_is_read_leniently_and_never_guessed() {
        let cases: [(&str, &[u8], Option<u16>); 10] = [
            ("as it should be", b"SIP/2.0 180 Ringing\r\n", Some(180)),
            ("without an end", b"SIP/2.0 200 OK", Some(200)),
            ("without a phrase", b"SIP/2.0 503", Some(503)),
            (
                "behind an empty line",
                b"\r\nSIP/2.0 404 Not Found\r\n",
                Some(404),
            ),
            (
                "with headers",
                b"SIP/2.0 486 Busy Here\r\nContact: <sip:a@b>\r\n\r\n",
                Some(486),
            ),
            ("in lower case", b"sip/2.0 200 ok", Some(200)),
            ("empty", b"", None),
            ("a request", b"INVITE sip:a@b SIP/2.0\r\n", None),
            ("four digits", b"SIP/2.0 2000 OK", None),
            ("no number", b"SIP/2.0 OK", None),
        ];
        for (case, body, status) in cases {
            assert_eq!(status_of(body), status, "{case}");
        }
    }
}
