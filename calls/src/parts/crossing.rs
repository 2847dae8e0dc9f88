//! Table of what passes from one leg to the other: headers, option tags, response codes.
//!
//! A back-to-back user agent sets Via, Call-ID, tags, CSeq, Contact and routes on each leg itself, and decrements Max-Forwards. Other
//! headers cross only where a row here says so. Bodies cross octet for octet, except for a location that is withheld and for SDP that a
//! hold or an origin line of ours changes.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use trunkline_sip::dialog::body;
use trunkline_sip::header::privacy::Privacy;
use trunkline_sip::header::{content_type, privacy};
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message};

/// In the INVITE that starts a call, towards the runtime.
const INVITE: u8 = 1;
/// In requests inside a call.
const IN_DIALOG: u8 = 1 << 1;
/// In responses.
const RESPONSE: u8 = 1 << 2;
/// Wherever the body crosses that it describes.
const BODY: u8 = 1 << 3;
/// From the caller's INVITE to a transfer destination.
const HANDED_OVER: u8 = 1 << 4;
/// Names the caller or its location: withheld if the caller wants privacy (RFC 3323, RFC 3325, RFC 7044).
const NAMES_CALLER: u8 = 1 << 5;
/// Tells of the caller what it added by itself: withheld under `Privacy: user` and an anonymous From (RFC 3323 §5.3).
const INFORMS: u8 = 1 << 6;
/// Data of the caller's software: withheld under `Privacy: header`.
const TELLS: u8 = 1 << 7;

const ANYWHERE: u8 = INVITE | IN_DIALOG | RESPONSE;
const PRIVATE: u8 = NAMES_CALLER | INFORMS | TELLS;

/// Headers that cross and where, beside `X-` headers.
///
/// Identity signs From, To and Date (RFC 8224), which are the caller's towards the runtime and others towards a destination.
const ROWS: [(&str, u8); 34] = [
    ("Accept", ANYWHERE),
    ("Accept-Encoding", RESPONSE),
    ("Accept-Language", INVITE),
    ("Alert-Info", ANYWHERE),
    ("Call-Info", ANYWHERE | INFORMS),
    ("Content-Disposition", BODY),
    ("Content-Encoding", BODY),
    ("Content-Language", BODY),
    ("Content-Type", BODY),
    ("Date", ANYWHERE),
    ("Diversion", INVITE | HANDED_OVER | NAMES_CALLER),
    ("Event", IN_DIALOG),
    (
        "Geolocation",
        INVITE | IN_DIALOG | HANDED_OVER | NAMES_CALLER,
    ),
    ("Geolocation-Error", RESPONSE),
    ("Geolocation-Routing", INVITE | IN_DIALOG | HANDED_OVER),
    (
        "History-Info",
        INVITE | RESPONSE | HANDED_OVER | NAMES_CALLER,
    ),
    ("Identity", INVITE | NAMES_CALLER),
    ("Info-Package", IN_DIALOG),
    ("MIME-Version", BODY),
    ("Organization", INVITE | INFORMS),
    ("P-Asserted-Identity", ANYWHERE | HANDED_OVER | NAMES_CALLER),
    ("P-Early-Media", ANYWHERE),
    ("P-Preferred-Identity", INVITE | HANDED_OVER | NAMES_CALLER),
    ("Priority", INVITE | IN_DIALOG),
    ("Privacy", ANYWHERE | HANDED_OVER),
    ("Reason", ANYWHERE),
    ("Recv-Info", IN_DIALOG | RESPONSE),
    (
        "Referred-By",
        INVITE | IN_DIALOG | HANDED_OVER | NAMES_CALLER,
    ),
    ("Remote-Party-ID", ANYWHERE | HANDED_OVER | NAMES_CALLER),
    ("Retry-After", RESPONSE),
    ("Session-ID", ANYWHERE | HANDED_OVER),
    ("Subject", INVITE | IN_DIALOG | INFORMS),
    ("User-to-User", ANYWHERE | TELLS),
    ("Warning", RESPONSE),
];

/// Directions in which each header name known to the lexer crosses, by its number: most lines have such a name and need one lookup.
const KNOWN: [u8; HeaderName::ALL.len()] = {
    let mut kinds = [0; HeaderName::ALL.len()];
    let mut name = 0;
    while name < kinds.len() {
        let known = HeaderName::ALL[name].as_str().as_bytes();
        let mut row = 0;
        while row < ROWS.len() {
            if known.eq_ignore_ascii_case(ROWS[row].0.as_bytes()) {
                kinds[name] = ROWS[row].1;
            }
            row += 1;
        }
        name += 1;
    }
    kinds
};

/// Place of a message in the call, which decides what crosses.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum CrossingKind {
    /// The INVITE that starts the call, towards the runtime.
    Invite,
    /// The caller's INVITE, towards a transfer destination.
    HandedOver,
    /// A request inside the call.
    InDialog,
    /// Any response.
    Response,
}

impl CrossingKind {
    const fn bit(self) -> u8 {
        match self {
            Self::Invite => INVITE,
            Self::HandedOver => HANDED_OVER,
            Self::InDialog => IN_DIALOG,
            Self::Response => RESPONSE,
        }
    }
}

/// One message on its way to the other leg.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Crossing<'p> {
    pub(crate) kind: CrossingKind,
    /// Rule for the headers that name the caller, by the leg that the message came on.
    pub(crate) identity: Identity,
    /// `X-PLATFORM`: such headers are ours to set and never cross.
    pub(crate) prefix: &'p str,
}

/// Rule for headers that name the caller.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Identity {
    /// They cross even if the message asks for privacy: the message goes to the caller.
    Crosses,
    /// They cross unless the message asks for privacy.
    AsAsked,
    /// They are withheld as the call's first INVITE asked, or as the message asks if that is more.
    Withheld(Privacy),
}

impl Identity {
    /// Level of privacy for a message.
    fn privacy(self, message: &Message<'_>) -> Privacy {
        match self {
            Self::Crosses => Privacy::None,
            Self::AsAsked => wanted(message),
            Self::Withheld(level) => level.max(wanted(message)),
        }
    }

    pub(crate) fn is_withheld(self, message: &Message<'_>) -> bool {
        self.privacy(message).hides_identity()
    }
}

/// Returns the privacy that a message asks for: by Privacy, or by an anonymous From. The From of a response is the other side's.
pub(crate) fn wanted(message: &Message<'_>) -> Privacy {
    let wishes = message.all(HeaderName::Privacy).map(Privacy::of);
    let asked = wishes.max().unwrap_or_default();
    match message.is_request() && privacy::names_nobody(message.from()) {
        true => asked.max(Privacy::User),
        false => asked,
    }
}

/// Returns whether a header with this row is withheld at a level of privacy.
fn is_withheld_at(row: u8, level: Privacy) -> bool {
    (row & NAMES_CALLER != 0 && level >= Privacy::Identity)
        || (row & INFORMS != 0 && level >= Privacy::User)
        || (row & TELLS != 0 && level >= Privacy::Header)
}

impl<'p> Crossing<'p> {
    /// Crossing of the runtime's final answer to the caller's INVITE.
    pub(crate) const fn of_final_answer(prefix: &'p str) -> Self {
        Self {
            kind: CrossingKind::Response,
            identity: Identity::Crosses,
            prefix,
        }
    }
}

impl Crossing<'_> {
    /// Writes the headers that cross, with those that describe the body, which crosses too.
    pub(crate) fn copy(self, head: &mut Head<'_>, message: &Message<'_>) {
        self.copy_but(head, message, &self.body(message), &[]);
    }

    /// Returns the body that crosses. If the headers that name the caller are withheld, so is a part with the caller's location (RFC 4119), which the
    /// withheld Geolocation refers to.
    pub(crate) fn body<'m>(self, message: &Message<'m>) -> Cow<'m, [u8]> {
        let whole = message.body();
        let content_type = message.first(HeaderName::ContentType).unwrap_or_default();
        // Nearly every body is an SDP, which one comparison shows.
        let may_hold_place = !whole.is_empty()
            && !content_type::is_sdp(content_type)
            && (content_type::is_multipart(content_type)
                || content_type::is_location(content_type));
        match may_hold_place && self.identity.is_withheld(message) {
            true => body::without_location(content_type, whole),
            false => Cow::Borrowed(whole),
        }
    }

    /// Writes the headers that cross when the body doesn't.
    pub(crate) fn copy_without_body(self, head: &mut Head<'_>, message: &Message<'_>) {
        self.copy_but(head, message, b"", &[]);
    }

    /// Writes the headers that cross with this body, except those that the runtime's `own` headers replace, in any spelling.
    pub(crate) fn copy_but(
        self,
        head: &mut Head<'_>,
        message: &Message<'_>,
        body: &[u8],
        own: &[(Box<str>, Box<str>)],
    ) {
        let kinds = match body {
            [] => self.kind.bit(),
            _ => self.kind.bit() | BODY,
        };

        // Privacy is judged when the first header that it may withhold comes up, and then counts for all of them.
        let mut level = None;
        for header in message.headers() {
            let Some((name, row)) = spelled(header.name, header.raw_name, self.prefix) else {
                continue;
            };
            let judge = || self.identity.privacy(message);
            if row & kinds == 0
                || (row & PRIVATE != 0 && is_withheld_at(row, *level.get_or_insert_with(judge)))
                || own.iter().any(|(own, _)| is_alike(own, name))
            {
                continue;
            }
            head.unfolded(name, header.value);
        }

        // Some runtimes omit Content-Type, and some PBXs drop an answer without it.
        if is_bare_sdp(body) && message.first(HeaderName::ContentType).is_none() {
            head.line("Content-Type", b"application/sdp");
        }
    }
}

fn is_bare_sdp(body: &[u8]) -> bool {
    body.starts_with(b"v=0")
}

/// Returns whether two header names are equal to software that reads `_` as `-`.
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

/// Bounds on a caller's own headers in the record: octets of names and values, and number. Headers beyond them are left out.
const KEPT: usize = 4096;
const KEPT_HEADERS: usize = 64;

/// The caller's own `X-` headers in the runtime's INVITE, for the record, up to the bounds.
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
        // One that is too long leaves its room to shorter ones after it.
        if let Some(left) = room.checked_sub(name.len() + value.len()) {
            room = left;
            // Most callers have one, and the record stays with the call.
            if kept.is_empty() {
                kept.reserve_exact(1);
            }
            kept.push((name.into(), value.into()));
        }
    }

    kept
}

/// Returns the name to write a header by, and where it crosses; `None` for one that never crosses.
fn spelled<'m>(name: HeaderName, raw: &'m [u8], prefix: &str) -> Option<(&'m str, u8)> {
    if name != HeaderName::Other {
        let kinds = KNOWN[name as usize];
        return (kinds != 0).then_some((name.as_str(), kinds));
    }
    let spelled = std::str::from_utf8(raw).ok()?;
    if is_extension(spelled) {
        return (!is_platform(spelled, prefix)).then_some((spelled, ANYWHERE));
    }
    let mut rows = ROWS.iter();
    let row = rows.find(|(row, _)| row.eq_ignore_ascii_case(spelled))?;
    Some((spelled, row.1))
}

fn is_extension(name: &str) -> bool {
    name.len() > 2 && name.as_bytes()[..2].eq_ignore_ascii_case(b"X-")
}

/// Returns whether a name is one of ours, also to software that reads `_` as `-`.
fn is_platform(name: &str, prefix: &str) -> bool {
    let (name, prefix) = (name.as_bytes(), prefix.as_bytes());
    let plain = |octet: &u8| match octet {
        b'_' => b'-',
        octet => octet.to_ascii_lowercase(),
    };
    let Some((begins, [next, ..])) = name.split_at_checked(prefix.len()) else {
        return false;
    };
    plain(next) == b'-' && begins.iter().map(plain).eq(prefix.iter().map(plain))
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

/// Consequence of a runtime's final refusal of the first INVITE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum RuntimeRefusal {
    /// The caller gets the same code.
    Same,
    /// The next target is tried; if none is left, the caller gets 480.
    FailOver,
    /// The next target is tried; if none is left, it counts as a failure of the runtime.
    Trouble,
    /// A redirection, followed within the runtime's own hosts.
    Redirect,
    /// The session interval is too brief: the INVITE is sent again with the runtime's Min-SE.
    Brief,
    /// The runtime failed: 480 `runtime_refused`.
    Unavailable,
}

/// Maps a runtime's status code.
pub(crate) const fn refusal(status: u16) -> RuntimeRefusal {
    match status {
        300..=399 => RuntimeRefusal::Redirect,
        408 | 503 => RuntimeRefusal::FailOver,
        500 | 502 | 504 => RuntimeRefusal::Trouble,
        422 => RuntimeRefusal::Brief,
        // Codes about the call itself rather than the path to the runtime.
        415 | 480 | 486 | 488 | 600 | 603 | 606 | 607 | 608 => RuntimeRefusal::Same,
        // A runtime's 401, 404 or 484 would read as a fault of the caller's log-in or number.
        _ => RuntimeRefusal::Unavailable,
    }
}

/// Maps a peer's final refusal of a request inside the call to the status for the other side.
pub(crate) const fn in_dialog_refusal(status: u16) -> u16 {
    match status {
        // These never cross: a challenge, an extension or an interval concerns us and that peer only.
        300..=399 | 401 | 407 | 420 | 422 => 488,
        other => other,
    }
}

/// The operator's prefix of the context headers, such as `X-PLATFORM`, with the names that it begins: each call needs the same few, so they are made
/// once. As text it is the prefix alone. Clones share it.
#[derive(Clone, Debug)]
pub struct HeaderPrefix(Arc<ContextNames>);

/// Names of the headers that give a call's context to its runtime.
#[derive(Debug)]
pub(crate) struct ContextNames {
    prefix: Box<str>,
    pub(crate) session_id: Box<str>,
    pub(crate) agent_id: Box<str>,
    pub(crate) contact_id: Box<str>,
    pub(crate) session_token: Box<str>,
    pub(crate) krisp_enabled: Box<str>,
}

impl HeaderPrefix {
    /// Name of the header that asks for an agent: `X-PLATFORM-AGENT-ID`.
    pub fn agent_id(&self) -> &str {
        &self.0.agent_id
    }

    pub(crate) fn names(&self) -> &ContextNames {
        &self.0
    }
}

impl From<&str> for HeaderPrefix {
    fn from(prefix: &str) -> Self {
        let name = |end: &str| [prefix, "-", end].concat().into();
        Self(Arc::new(ContextNames {
            session_id: name("SESSION-ID"),
            agent_id: name("AGENT-ID"),
            contact_id: name("CONTACT-ID"),
            session_token: name("SESSION-TOKEN"),
            krisp_enabled: name("KRISP-ENABLED"),
            prefix: prefix.into(),
        }))
    }
}

impl Deref for HeaderPrefix {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.prefix
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    const PREFIX: &str = "X-PLATFORM";
    const SDP: &str = "v=0\r\no=- 1 1 IN IP4 h\r\n";

    /// The lines that cross of a request from this caller with these lines.
    fn crossed(
        kind: CrossingKind,
        identity: Identity,
        from: &str,
        lines: &str,
        body: &str,
    ) -> String {
        let octets = format!(
            "INVITE sip:b@h SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: {from};tag=1\r\nTo: <sip:b@h>\r\nCall-ID: x\r\n\
             CSeq: 1 INVITE\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let message = lex(octets.as_bytes(), Framing::Datagram).expect("a message");
        let mut out = Vec::new();
        let crossing = Crossing {
            kind,
            identity,
            prefix: PREFIX,
        };
        crossing.copy(&mut Head::new(&mut out), &message);
        String::from_utf8(out).expect("text")
    }

    fn crosses(kind: CrossingKind, line: &str, body: &str) -> String {
        let line = format!("{line}\r\n");
        crossed(kind, Identity::Crosses, "<sip:a@h>", &line, body)
    }

    #[test]
    fn each_row_crosses_where_it_says_and_nowhere_else() {
        for (name, row) in ROWS {
            let line = format!("{name}: value\r\n");

            for kind in [
                CrossingKind::Invite,
                CrossingKind::HandedOver,
                CrossingKind::InDialog,
                CrossingKind::Response,
            ] {
                for body in ["", "a body"] {
                    let described = row & BODY != 0 && !body.is_empty();
                    let expected = match row & kind.bit() != 0 || described {
                        true => &*line,
                        false => "",
                    };
                    assert_eq!(crosses(kind, line.trim_end(), body), expected, "{kind:?}");
                }
            }
        }
    }

    #[test]
    fn a_caller_who_wants_privacy_is_named_by_no_row() {
        let named = "\"Ada\" <sip:+441632960001@pbx.example>";
        let nobody = "\"Anonymous\" <sip:anonymous@anonymous.invalid>";

        for (name, row) in ROWS {
            let kinds = [
                CrossingKind::Invite,
                CrossingKind::HandedOver,
                CrossingKind::InDialog,
            ];
            let kinds = kinds.into_iter().filter(|kind| row & kind.bit() != 0);
            for kind in kinds.filter(|_| name != "Privacy") {
                let line = format!("{name}: value\r\n");
                for (case, from, privacy, level) in [
                    ("no wish", named, "", Privacy::None),
                    ("a wish that hides nothing", named, "none", Privacy::None),
                    ("id", named, "id", Privacy::Identity),
                    ("user", named, "critical;user", Privacy::User),
                    ("header", named, "header", Privacy::Header),
                    ("history", named, "history", Privacy::Identity),
                    ("From", nobody, "", Privacy::User),
                ] {
                    let privacy = match privacy {
                        "" => String::new(),
                        privacy => format!("Privacy: {privacy}\r\n"),
                    };
                    let lines = format!("{line}{privacy}");
                    let came = crossed(kind, Identity::AsAsked, from, &lines, "");
                    let expected = match is_withheld_at(row, level) {
                        true => privacy,
                        false => lines.clone(),
                    };
                    assert_eq!(came, expected, "{name}, {case}, {kind:?}");
                    let to_caller = crossed(kind, Identity::Crosses, from, &lines, "");
                    assert_eq!(to_caller, lines, "{name}, {case}, {kind:?}");
                }
                for level in [Privacy::Identity, Privacy::User, Privacy::Header] {
                    let came = crossed(kind, Identity::Withheld(level), named, &line, "");
                    assert_eq!(
                        came.is_empty(),
                        is_withheld_at(row, level),
                        "{name}, {kind:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn headers_of_the_rule_name_the_caller() {
        for name in [
            "P-Asserted-Identity",
            "P-Preferred-Identity",
            "Remote-Party-ID",
            "Identity",
            "Diversion",
            "History-Info",
            "Referred-By",
            "Geolocation",
        ] {
            let row = ROWS.iter().find(|(row, _)| *row == name).expect(name);
            assert_ne!(row.1 & NAMES_CALLER, 0, "{name}");
            assert_ne!(row.1 & INVITE, 0, "{name}");
        }
        // RFC 3323 §5.3; User-Agent, Reply-To and In-Reply-To cross for nobody.
        for name in ["Subject", "Call-Info", "Organization"] {
            let row = ROWS.iter().find(|(row, _)| *row == name).expect(name);
            assert_ne!(row.1 & INFORMS, 0, "{name}");
        }
        for name in ["User-Agent", "Reply-To", "In-Reply-To"] {
            assert!(ROWS.iter().all(|(row, _)| *row != name), "{name}");
        }
        let row = ROWS.iter().find(|(row, _)| *row == "User-to-User");
        assert!(row.is_some_and(|(_, row)| row & TELLS != 0));
    }

    #[test]
    fn what_is_ours_or_of_a_leg_never_crosses() {
        for (case, line, expected) in [
            ("an extension", "x-ticket: 1", "x-ticket: 1\r\n"),
            ("ours, as a caller sends it", "X-Platform-Contact-Id: 1", ""),
            ("ours to software", "X-PLATFORM_CONTACT_ID: 1", ""),
            ("ours to software, all of it", "x_platform_agent_id: 1", ""),
            (
                "one that begins like ours",
                "X-Platformer: 1",
                "X-Platformer: 1\r\n",
            ),
            ("credentials", "Authorization: Digest x", ""),
            ("a route", "Route: <sip:h;lr>", ""),
            ("a compact form", "y: signed", "Identity: signed\r\n"),
        ] {
            assert_eq!(crosses(CrossingKind::Invite, line, ""), expected, "{case}");
        }

        for (name, prefix, ours) in [
            ("X-A-B-ID", "X-A_B", true),
            ("X_A-B_ID", "X-A-B", true),
            ("X-A-B", "X-A-B", false),
            ("X-A-BC", "X-A-B", false),
        ] {
            assert_eq!(is_platform(name, prefix), ours, "{name} {prefix}");
        }
    }

    #[test]
    fn several_reasons_cross() {
        let lines = "Reason: Q.850;cause=16\r\nReason: SIP;cause=200\r\n";
        for kind in [
            CrossingKind::Invite,
            CrossingKind::InDialog,
            CrossingKind::Response,
        ] {
            let crossed = crossed(kind, Identity::AsAsked, "<sip:a@h>", lines, "");
            assert_eq!(crossed, lines, "{kind:?}");
        }
    }

    #[test]
    fn an_sdp_gets_the_type_that_was_left_out() {
        let typed = "Content-Type: application/sdp\r\n";

        for (case, line, body, expected) in [
            (
                "left out",
                "X-A: 1",
                SDP,
                "X-A: 1\r\nContent-Type: application/sdp\r\n",
            ),
            ("given", "c: application/sdp", SDP, typed),
            (
                "of several parts",
                "c: multipart/mixed;boundary=b",
                SDP,
                "Content-Type: multipart/mixed;boundary=b\r\n",
            ),
            ("no SDP", "X-A: 1", "hello", "X-A: 1\r\n"),
            ("no body", "X-A: 1", "", "X-A: 1\r\n"),
        ] {
            assert_eq!(
                crosses(CrossingKind::Response, line, body),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn challenges_never_cross() {
        for status in [301, 302, 401, 407, 420, 422] {
            assert_eq!(in_dialog_refusal(status), 488, "{status}");
            assert_ne!(refusal(status), RuntimeRefusal::Same, "{status}");
        }
        assert_eq!(refusal(486), RuntimeRefusal::Same);
        assert_eq!(refusal(500), RuntimeRefusal::Trouble);
        assert_eq!(refusal(501), RuntimeRefusal::Unavailable);
    }
}
