//! What passes from one leg to the other, as data: headers, option tags, response codes.
//!
//! A back-to-back user agent owns Via, Call-ID, tags, CSeq, Contact and routes on each leg, and counts Max-Forwards down.
//! Everything else crosses only where a row here says so. Bodies cross octet for octet.

use trunkline_sip::header::content_type;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message};

/// Headers that describe the body; they cross wherever a body does.
const BODY: &[&str] = &[
    "Content-Type",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "MIME-Version",
];

/// Headers of an INVITE that cross to the runtime, beside `X-` headers.
const INVITE: &[&str] = &[
    "Accept",
    "Accept-Language",
    "Alert-Info",
    "Call-Info",
    "Date",
    "Diversion",
    "History-Info",
    "Organization",
    "P-Asserted-Identity",
    "P-Preferred-Identity",
    "Priority",
    "Privacy",
    "Reason",
    "Subject",
    "User-to-User",
];

/// Headers of requests inside a call that cross, beside `X-` headers.
const IN_DIALOG: &[&str] = &[
    "Accept",
    "Alert-Info",
    "Call-Info",
    "Date",
    "Event",
    "Info-Package",
    "Priority",
    "Privacy",
    "Reason",
    "Recv-Info",
    "Subject",
    "User-to-User",
];

/// Headers of a response that cross, beside `X-` headers.
const RESPONSE: &[&str] = &[
    "Accept",
    "Accept-Encoding",
    "Alert-Info",
    "Call-Info",
    "Date",
    "P-Asserted-Identity",
    "Reason",
    "Recv-Info",
    "Retry-After",
    "User-to-User",
    "Warning",
];

/// What a message's place in the call lets cross.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The INVITE that starts the call, towards the runtime.
    Invite,
    /// A request inside the call.
    InDialog,
    /// Any response.
    Response,
}

impl Place {
    const fn rows(self) -> &'static [&'static str] {
        match self {
            Self::Invite => INVITE,
            Self::InDialog => IN_DIALOG,
            Self::Response => RESPONSE,
        }
    }
}

/// Copies what crosses. `prefix` is the platform's own header prefix (`X-PLATFORM`): such headers are ours
/// to set and never cross.
pub(crate) fn copy_headers(head: &mut Head<'_>, message: &Message<'_>, place: Place, prefix: &str) {
    copy(head, message, place, prefix, !message.body().is_empty());
}

/// Those of the caller's INVITE, without such as the runtime's `own` headers are called, in any spelling.
pub(crate) fn copy_invite(
    head: &mut Head<'_>,
    message: &Message<'_>,
    prefix: &str,
    own: &[(Box<str>, Box<str>)],
) {
    if own.is_empty() {
        return copy_headers(head, message, Place::Invite, prefix);
    }
    let with_body = !message.body().is_empty();
    for header in message.headers() {
        let (name, raw) = (header.name, header.raw_name);
        let Some(name) = crossing_name(name, raw, Place::Invite, with_body, prefix) else {
            continue;
        };
        if !own.iter().any(|(own, _)| is_alike(own, name)) {
            head.line(name, &header.unfolded());
        }
    }
}

/// Whether two names of headers are the same to software that takes `_` for `-`.
pub(crate) fn is_alike(one: &str, other: &str) -> bool {
    let spelled = |name: &str| {
        let octet = |octet: u8| match octet {
            b'_' => b'-',
            octet => octet.to_ascii_lowercase(),
        };
        name.bytes().map(octet).collect::<Vec<_>>()
    };
    spelled(one) == spelled(other)
}

/// The same, `with_body` or leaving it behind.
pub(crate) fn copy(
    head: &mut Head<'_>,
    message: &Message<'_>,
    place: Place,
    prefix: &str,
    with_body: bool,
) {
    for header in message.headers() {
        let Some(name) = crossing_name(header.name, header.raw_name, place, with_body, prefix)
        else {
            continue;
        };
        head.line(name, &header.unfolded());
    }
}

/// The octets of names and values that are kept of a caller's own headers, and how many of them.
const KEPT: usize = 4096;
const KEPT_HEADERS: usize = 64;

/// The `X-` headers of the caller's own that the runtime gets with the INVITE, for the record; what is too much for it is left out.
pub(crate) fn own_headers(message: &Message<'_>, prefix: &str) -> Vec<(Box<str>, Box<str>)> {
    let mut room = KEPT;
    let mut kept = Vec::new();
    for header in message
        .headers()
        .filter(|header| header.name == HeaderName::Other)
    {
        let name = std::str::from_utf8(header.raw_name).unwrap_or_default();
        if !is_extension(name) || is_platform(name, prefix) || kept.len() == KEPT_HEADERS {
            continue;
        }
        let unfolded = header.unfolded();
        let value = String::from_utf8_lossy(&unfolded);
        if let Some(left) = room.checked_sub(name.len() + value.len()) {
            room = left;
            kept.push((name.into(), value.into()));
        }
    }
    kept
}

fn crossing_name<'m>(
    name: HeaderName,
    raw: &'m [u8],
    place: Place,
    with_body: bool,
    prefix: &str,
) -> Option<&'m str> {
    let canonical = name.as_str();
    let spelled = if canonical.is_empty() {
        std::str::from_utf8(raw).ok()?
    } else {
        canonical
    };
    if is_extension(spelled) {
        return (!is_platform(spelled, prefix)).then_some(spelled);
    }
    let listed = |rows: &[&str]| rows.iter().any(|row| row.eq_ignore_ascii_case(spelled));
    (listed(place.rows()) || (with_body && listed(BODY))).then_some(spelled)
}

fn is_extension(name: &str) -> bool {
    name.len() > 2 && name.as_bytes()[..2].eq_ignore_ascii_case(b"X-")
}

fn is_platform(name: &str, prefix: &str) -> bool {
    let (name, prefix) = (name.as_bytes(), prefix.as_bytes());
    name.len() > prefix.len()
        && name[..prefix.len()].eq_ignore_ascii_case(prefix)
        && name[prefix.len()] == b'-'
}

/// Option tags that we understand ourselves, so that a `Require` of them is no fault.
pub(crate) const OUR_OPTIONS: &[&str] = &["100rel", "replaces", "timer"];

/// The value of `Unsupported` where a request requires what we lack (RFC 3261 §8.2.2.3).
pub(crate) fn lacking_options(message: &Message<'_>) -> Option<Vec<u8>> {
    let is_ours = |tag: &[u8]| {
        OUR_OPTIONS
            .iter()
            .any(|ours| tag.eq_ignore_ascii_case(ours.as_bytes()))
    };
    let lacking: Vec<&[u8]> = message
        .elements(HeaderName::Require)
        .filter(|tag| !is_ours(tag))
        .collect();
    (!lacking.is_empty()).then(|| lacking.join(&b", "[..]))
}

/// What becomes of a runtime's final refusal of the first INVITE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The caller gets the same code.
    Same,
    /// The next target is tried; with none left the caller gets 480.
    FailOver,
    /// The same, but with none left it is the runtime's own trouble.
    Trouble,
    /// A redirection, followed within the runtime's own hosts.
    Redirect,
    /// A too brief session interval: asked again with the runtime's Min-SE.
    Brief,
    /// The runtime's own trouble: 480 `runtime_refused`.
    Unavailable,
}

/// A runtime's status code, mapped.
pub(crate) const fn refusal(status: u16) -> Refusal {
    match status {
        300..=399 => Refusal::Redirect,
        408 | 503 => Refusal::FailOver,
        500 | 502 | 504 => Refusal::Trouble,
        422 => Refusal::Brief,
        // What says something about the call itself, rather than about the way to the runtime.
        415 | 480 | 486 | 488 | 600 | 603 | 606 | 607 | 608 => Refusal::Same,
        _ => Refusal::Unavailable,
    }
}

/// A peer's final refusal of a request inside the call, as the other side is told it.
pub(crate) const fn in_dialog_refusal(status: u16) -> u16 {
    match status {
        // Never cross: a challenge, an extension or an interval is between us and that peer alone.
        300..=399 | 401 | 407 | 420 | 422 => 488,
        other => other,
    }
}

/// Whether a message carries an SDP body.
pub(crate) fn has_sdp(message: &Message<'_>) -> bool {
    !message.body().is_empty()
        && message
            .first(HeaderName::ContentType)
            .is_none_or(content_type::may_hold_sdp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_cross_by_the_table() {
        let cases = [
            (
                "an extension header",
                HeaderName::Other,
                "x-ticket",
                Place::Invite,
                true,
            ),
            (
                "ours as a caller sends it",
                HeaderName::Other,
                "X-Platform-Contact-Id",
                Place::Invite,
                false,
            ),
            (
                "one that only begins like ours",
                HeaderName::Other,
                "X-Platformer",
                Place::Invite,
                true,
            ),
            (
                "a compact content type without a body",
                HeaderName::ContentType,
                "c",
                Place::Invite,
                false,
            ),
            (
                "user to user",
                HeaderName::Other,
                "user-to-user",
                Place::Response,
                true,
            ),
            (
                "credentials",
                HeaderName::Authorization,
                "Authorization",
                Place::Invite,
                false,
            ),
            (
                "a route",
                HeaderName::Route,
                "Route",
                Place::InDialog,
                false,
            ),
        ];
        for (case, name, raw, place, crosses) in cases {
            let crossed = crossing_name(name, raw.as_bytes(), place, false, "X-PLATFORM");
            assert_eq!(crossed.is_some(), crosses, "{case}");
        }
        let with_body = crossing_name(
            HeaderName::ContentType,
            b"c",
            Place::InDialog,
            true,
            "X-PLATFORM",
        );
        assert_eq!(with_body, Some("Content-Type"));
    }

    #[test]
    fn challenges_never_cross() {
        for status in [301, 302, 401, 407, 420, 422] {
            assert_eq!(in_dialog_refusal(status), 488, "{status}");
            assert_ne!(refusal(status), Refusal::Same, "{status}");
        }
        assert_eq!(refusal(486), Refusal::Same);
        assert_eq!(refusal(500), Refusal::Trouble);
        assert_eq!(refusal(501), Refusal::Unavailable);
    }
}
