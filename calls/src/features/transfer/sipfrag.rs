//! Content of a NOTIFY for a REFER: a fragment of the destination's response (RFC 3515 §2.4.5, RFC 3420), and how long the subscription lasts (RFC
//! 6665).

use std::time::Duration;

/// Wait for the next NOTIFY if the PBX gives no expiry, since a destination may ring long.
const NEXT_NEWS: Duration = Duration::from_secs(180);
/// Wait for the last NOTIFY of an expired subscription (64*T1).
const LAST_NEWS: Duration = Duration::from_secs(32);
/// Longest wait for the next NOTIFY, whatever expiry the PBX gives.
const MOST: Duration = Duration::from_secs(300);

/// Returns the wait for the next NOTIFY of a subscription with so many seconds left (RFC 6665 §4.1.2.4).
pub(super) fn next_notify(expires: Option<u32>) -> Duration {
    let lasts = |seconds: u32| Duration::from_secs(seconds.into()) + LAST_NEWS;
    expires.map_or(NEXT_NEWS, lasts).min(MOST)
}

/// Returns the status in a `message/sipfrag` body, whatever Content-Type says.
pub(crate) fn status_of(body: &[u8]) -> Option<u16> {
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
    fn the_next_notify_is_awaited_for_as_long_as_the_subscription_lasts() {
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
