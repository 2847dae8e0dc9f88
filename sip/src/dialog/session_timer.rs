//! Session timers: the refresher, the interval, and the moment when a session counts as gone (RFC 4028 §7 to §10). Pure arithmetic:
//! the call that runs the timer asks for the next moment.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::header::session_expires::{self as header, Refresher, SessionExpires};
use crate::moment::Moment;
use crate::wire::print::Head;
use crate::wire::{HeaderName, Message};

/// The shortest interval allowed, in seconds (RFC 4028 §4).
pub const LEAST: u32 = 90;

/// Longest interval to which a peer's 422 raises ours, in seconds, and most 422s in a row that may raise it. A 422 beyond either raises
/// nothing ([`SessionTimer::raised`]).
const LONGEST_RAISED: u32 = 86_400;
const MOST_RAISES: u8 = 5;

/// Session timer that one dialog has agreed on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionTimer {
    interval: u32,
    we_refresh: bool,
    /// The greatest Min-SE with which the peer has refused a refresh, in seconds.
    least: u32,
    /// Number of refusals in a row that have raised the interval.
    raises: u8,
}

/// Reason to refuse a peer's request for a session timer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unacceptable {
    /// It asks for a shorter interval than we accept: 422 with this Min-SE, in seconds (RFC 4028 §9).
    #[error("a session interval below {min_se} s")]
    TooBrief {
        /// The shortest interval that we accept, in seconds.
        min_se: u32,
    },
}

impl SessionTimer {
    /// Session timer for our 2xx to an INVITE or UPDATE: `min_se` is the shortest interval that we accept and `ours` the one that we
    /// prefer, both in seconds. `None` if the peer neither asks for a timer nor supports timers.
    ///
    /// # Errors
    /// See [`Unacceptable`].
    pub fn for_uas(
        request: &Message<'_>,
        min_se: u32,
        ours: u32,
    ) -> Result<Option<Self>, Unacceptable> {
        let knows_timers = request.has_token(HeaderName::Supported, "timer");
        // A value that is no number of seconds asks for nothing: the call can do without it (RFC 3261 §8.2.2).
        let asked = request.first(HeaderName::SessionExpires);
        let asked = asked.and_then(SessionExpires::parse);
        let least = request.first(HeaderName::MinSe).and_then(header::min_se);
        let least = least.unwrap_or(LEAST).max(min_se);

        let Some(asked) = asked else {
            // RFC 4028 §9: the UAS may request a timer where the request doesn't, and its interval "MUST NOT be set to a
            // duration lower than the value in the Min-SE header field in the request".
            let ours = Self::new(ours.max(least), true);
            return Ok(knows_timers.then_some(ours));
        };

        // A peer without timers would not understand a 422. Its Session-Expires comes from a proxy, which gets the interval that it asked for.
        if knows_timers && asked.seconds < min_se {
            return Err(Unacceptable::TooBrief { min_se });
        }

        // The interval may be reduced, down to the shortest that both sides accept. It isn't raised, unless it is below 90 seconds (`new`).
        let interval = asked.seconds.min(ours.max(least));
        // RFC 4028 §9, table 2: a peer without timers can't refresh, and where a peer names no refresher either side
        // may be it.
        let we_refresh = !knows_timers || asked.refresher != Some(Refresher::Uac);
        Ok(Some(Self::new(interval, we_refresh)))
    }

    /// Session timer of the peer's 2xx; `asked` is the interval in our request. `None` if the peer wants no timer, which also
    /// ends a running one (RFC 4028 §7.2).
    pub fn for_uac(response: &Message<'_>, asked: Option<u32>) -> Option<Self> {
        let agreed = SessionExpires::parse(response.first(HeaderName::SessionExpires)?)?;
        // A 2xx without `refresher`, against RFC 4028 §9, leaves the refreshes to us, so that one side sends them.
        let we_refresh = agreed.refresher != Some(Refresher::Uas);
        // The peer may not raise the interval. If it does and we refresh, we keep our shorter one: refreshing too often is harmless. If it
        // refreshes, we take its longer one, so as not to end the session too early.
        let interval = match asked {
            Some(asked) if we_refresh => agreed.seconds.min(asked),
            Some(_) | None => agreed.seconds,
        };
        Some(Self::new(interval, we_refresh))
    }

    fn new(interval: u32, we_refresh: bool) -> Self {
        Self {
            // Whatever the peer says: a shorter interval would have us send refreshes at its pace.
            interval: interval.max(LEAST),
            we_refresh,
            least: LEAST,
            raises: 0,
        }
    }

    /// Interval to ask for after a 422 to our refresh (RFC 4028 §7.3); `None` if the 422 asks for no more than we offered, or for more than a day, or
    /// has raised the interval too often.
    pub fn raised(&self, refusal: &Message<'_>) -> Option<Self> {
        let least = refusal.first(HeaderName::MinSe).and_then(header::min_se)?;
        // Each proxy on the path may ask for more than the one before it, so several raises are honest. A peer that
        // never agrees would have us repeat the refresh for good.
        let is_fair = least > self.interval && least <= LONGEST_RAISED;
        (is_fair && self.raises < MOST_RAISES).then_some(Self {
            interval: least,
            least,
            raises: self.raises + 1,
            ..*self
        })
    }

    /// The timer of a later agreement in the same dialog; it keeps the Min-SE of `before`.
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        Self {
            least: before.least,
            ..self
        }
    }

    /// The longest interval to ask for; `ours` is the one that we prefer, in seconds.
    pub fn asked(&self, ours: u32) -> u32 {
        self.interval.min(ours.max(self.least))
    }

    /// Returns true if our side sends the refreshes.
    pub const fn we_refresh(&self) -> bool {
        self.we_refresh
    }

    /// The interval in seconds, at least 90.
    pub const fn interval(&self) -> u32 {
        self.interval
    }

    /// Moment to act if the last refresh was at `since`. The refresher sends a refresh at half the interval. The other side hangs up 32
    /// seconds or a third of the interval before the end, whichever is less, if no refresh came (RFC 4028 §7.2, §10).
    pub fn due(&self, since: Moment) -> Moment {
        match self.we_refresh {
            true => since + Duration::from_secs(u64::from(self.interval)) / 2,
            false => self.over(since),
        }
    }

    /// Moment to hang up if neither side has refreshed the session since `since`.
    pub fn over(&self, since: Moment) -> Moment {
        let interval = Duration::from_secs(u64::from(self.interval));
        since + (interval - (interval / 3).min(Duration::from_secs(32)))
    }

    /// Writes Session-Expires for our refresh, which keeps the roles as they are, and Min-SE once the peer has named one.
    pub fn request_lines(&self, head: &mut Head<'_>) {
        if self.least > LEAST {
            head.number("Min-SE", u64::from(self.least));
        }
        self.line(
            if self.we_refresh {
                Refresher::Uac
            } else {
                Refresher::Uas
            },
            head,
        );
    }

    /// Writes Session-Expires for our 2xx, and Require if the peer has to refresh (RFC 4028 §9).
    pub fn response_lines(&self, head: &mut Head<'_>) {
        if self.we_refresh {
            self.line(Refresher::Uas, head);
        } else {
            self.line(Refresher::Uac, head);
            head.line("Require", b"timer");
        }
    }

    fn line(&self, refresher: Refresher, head: &mut Head<'_>) {
        let value = SessionExpires {
            seconds: self.interval,
            refresher: Some(refresher),
        };
        head.fmt("Session-Expires", format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Framing, lex};

    fn with(start: &str, lines: &str) -> Vec<u8> {
        format!(
            "{start}\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
             Call-ID: x\r\nCSeq: 1 INVITE\r\n{lines}Content-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }

    fn uas(lines: &str) -> Result<Option<SessionTimer>, Unacceptable> {
        let octets = with("INVITE sip:c@d SIP/2.0", lines);
        SessionTimer::for_uas(&lex(&octets, Framing::Datagram).unwrap(), 120, 1800)
    }

    fn uac(lines: &str, asked: Option<u32>) -> Option<SessionTimer> {
        let octets = with("SIP/2.0 200 OK", lines);
        SessionTimer::for_uac(&lex(&octets, Framing::Datagram).unwrap(), asked)
    }

    #[test]
    fn the_answerer_agrees_by_table_2_of_the_rfc() {
        let timer = |interval, we_refresh| Ok(Some(SessionTimer::new(interval, we_refresh)));
        for (name, lines, agreed) in [
            ("no timers", "", Ok(None)),
            (
                "knows, doesn't ask",
                "Supported: 100rel, timer\r\n",
                timer(1800, true),
            ),
            (
                "asks, names nobody",
                "k: timer\r\nx: 600\r\n",
                timer(600, true),
            ),
            (
                "will refresh itself",
                "Supported: timer\r\nSession-Expires: 600;refresher=uac\r\n",
                timer(600, false),
            ),
            (
                "wants us to",
                "Supported: timer\r\nSession-Expires: 600;refresher=uas\r\n",
                timer(600, true),
            ),
            // A proxy's request: the peer itself knows no timers.
            ("a proxy asks", "Session-Expires: 600\r\n", timer(600, true)),
            (
                "a proxy can't name the peer",
                "Session-Expires: 600;refresher=uac\r\n",
                timer(600, true),
            ),
            (
                "asks for more",
                "Supported: timer\r\nSession-Expires: 7200\r\n",
                timer(1800, true),
            ),
            (
                "can't take ours",
                "Supported: timer\r\nSession-Expires: 7200\r\nMin-SE: 3600\r\n",
                timer(3600, true),
            ),
            (
                "no interval, a minimum",
                "Supported: timer\r\nMin-SE: 3600\r\n",
                timer(3600, true),
            ),
            // Below our 120 s a peer gets 422; one that knows no timers couldn't read it, so a proxy may go down to the RFC's 90 s.
            (
                "just enough",
                "Supported: timer\r\nSession-Expires: 120\r\n",
                timer(120, true),
            ),
            (
                "too brief",
                "Supported: timer\r\nSession-Expires: 119\r\n",
                Err(Unacceptable::TooBrief { min_se: 120 }),
            ),
            (
                "too brief, from a proxy",
                "Session-Expires: 100\r\n",
                timer(100, true),
            ),
            (
                "illegally brief, from a proxy",
                "Session-Expires: 5\r\n",
                timer(90, true),
            ),
            // What can't be read.
            (
                "unreadable: as absent",
                "Supported: timer\r\nSession-Expires: soon\r\n",
                timer(1800, true),
            ),
            ("below nothing", "Session-Expires: -1\r\n", Ok(None)),
            ("empty", "x:\r\n", Ok(None)),
            (
                "an unreadable minimum",
                "Supported: timer\r\nMin-SE: -90\r\n",
                timer(1800, true),
            ),
        ] {
            assert_eq!(uas(lines), agreed, "{name}");
        }
    }

    #[test]
    fn the_asker_takes_what_the_answer_says() {
        let timer = |interval, we_refresh| Some(SessionTimer::new(interval, we_refresh));
        for (name, lines, asked, agreed) in [
            ("none", "", Some(1800), None),
            (
                "ours to refresh",
                "Session-Expires: 1800;refresher=uac\r\n",
                Some(1800),
                timer(1800, true),
            ),
            (
                "theirs to refresh",
                "Session-Expires: 1800;refresher=uas\r\n",
                Some(1800),
                timer(1800, false),
            ),
            (
                "unsaid",
                "Session-Expires: 1800\r\n",
                Some(1800),
                timer(1800, true),
            ),
            (
                "cut",
                "Session-Expires: 300;refresher=uac\r\n",
                Some(1800),
                timer(300, true),
            ),
            (
                "raised, ours",
                "Session-Expires: 9000;refresher=uac\r\n",
                Some(1800),
                timer(1800, true),
            ),
            (
                "raised, theirs",
                "Session-Expires: 9000;refresher=uas\r\n",
                Some(1800),
                timer(9000, false),
            ),
            (
                "unasked",
                "Session-Expires: 900;refresher=uas\r\n",
                None,
                timer(900, false),
            ),
            (
                "a second",
                "Session-Expires: 1;refresher=uac\r\n",
                Some(1800),
                timer(90, true),
            ),
            ("unreadable", "Session-Expires: x\r\n", Some(1800), None),
        ] {
            assert_eq!(uac(lines, asked), agreed, "{name}");
        }
    }

    #[test]
    fn refreshes_and_ends_are_due_as_the_rfc_has_it() {
        let since = Moment::from_secs(1_790_000_000);
        for (interval, we_refresh, millis) in [
            (1800, true, 900_000),
            (1800, false, 1_768_000),
            (90, true, 45_000),
            (90, false, 60_000),
            (95, true, 47_500),
            (96, false, 64_000),
            (97, false, 65_000),
            (u32::MAX, true, u64::from(u32::MAX) * 500),
        ] {
            let due = SessionTimer {
                interval,
                we_refresh,
                least: LEAST,
                raises: 0,
            }
            .due(since);
            assert_eq!(
                due.since(since),
                Duration::from_millis(millis),
                "{interval}, {we_refresh}"
            );
        }
    }

    #[test]
    fn a_refused_refresh_is_asked_for_anew_as_the_peer_wants_it() {
        let refused = |lines: &str, timer: SessionTimer| {
            let octets = with("SIP/2.0 422 Session Interval Too Small", lines);
            timer.raised(&lex(&octets, Framing::Datagram).unwrap())
        };

        let timer = SessionTimer::new(90, true);
        let raised = refused("Min-SE: 300\r\n", timer).expect("more is asked for");
        assert_eq!((raised.interval(), raised.we_refresh()), (300, true));

        let mut lines = Vec::new();
        raised.request_lines(&mut Head::new(&mut lines));
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            "Min-SE: 300\r\nSession-Expires: 300;refresher=uac\r\n"
        );

        assert_eq!(refused("Min-SE: 300\r\n", raised), None);
        assert_eq!(refused("", timer), None);

        let agreed = SessionTimer::new(300, true).after(&raised);
        assert_eq!((agreed.asked(90), timer.asked(1800)), (300, 90));
    }

    #[test]
    fn both_sides_read_the_roles_that_were_written() {
        for we_refresh in [true, false] {
            let timer = SessionTimer {
                interval: 600,
                we_refresh,
                least: LEAST,
                raises: 0,
            };
            let theirs = SessionTimer {
                interval: 600,
                we_refresh: !we_refresh,
                least: LEAST,
                raises: 0,
            };
            let (mut request, mut response) = (Vec::new(), Vec::new());
            assert_eq!(timer.we_refresh(), we_refresh);
            timer.request_lines(&mut Head::new(&mut request));
            timer.response_lines(&mut Head::new(&mut response));
            let request = format!(
                "Supported: timer\r\n{}",
                String::from_utf8(request).unwrap()
            );
            let response = String::from_utf8(response).unwrap();
            assert_eq!(uas(&request), Ok(Some(theirs)), "{request}");
            assert!(!request.contains("Min-SE"), "no peer has named one");
            assert_eq!(uac(&response, Some(600)), Some(theirs), "{response}");
            assert_eq!(response.contains("Require: timer"), !we_refresh);
        }
    }

    #[test]
    fn a_peer_raises_the_interval_a_few_times_and_to_a_day_at_most() {
        let raised = |timer: SessionTimer, least: u32| {
            let lines = format!("Min-SE: {least}\r\n");
            let octets = with("SIP/2.0 422 Session Interval Too Small", &lines);
            timer.raised(&lex(&octets, Framing::Datagram).unwrap())
        };

        let first = SessionTimer::new(1_800, true);
        let intervals = |timer: &SessionTimer| raised(*timer, timer.interval() + 1);
        let all = std::iter::successors(Some(first), intervals).count();
        assert_eq!(all, 1 + usize::from(MOST_RAISES));

        assert!(raised(first, 86_400).is_some());
        assert_eq!(raised(first, 86_401), None);
        assert_eq!(raised(SessionTimer::new(u32::MAX, true), u32::MAX), None);
    }
}
