//! Comparison of a received message with the captured one. Parts that change from call to call (tags, branches, nonces, generated
//! identifiers, addresses) are reduced to their shape on both sides; everything else has to be equal.

use std::net::SocketAddr;

use super::rewrite::without_transport;
use crate::message::{Message, parameter, user_of};

/// A difference, and its place.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Difference {
    /// Number of the message within the captured call, from 1.
    pub message: Option<usize>,
    /// Short label of the message.
    pub label: String,
    /// The header's name, `start line`, `body`, `time`, or `message` for all of it.
    pub part: String,
    /// Captured or stated value.
    pub expected: String,
    /// Received value.
    pub found: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.message {
            Some(number) => write!(f, "message {number}, {}, {}", self.label, self.part)?,
            None => write!(f, "{}, {}", self.label, self.part)?,
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)
    }
}

/// Addresses of one side, and their placeholders.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressMap {
    addresses: Vec<(String, String)>,
    /// UUIDs that are compared literally: those that the options put in the place of captured ones.
    named: Vec<String>,
}

impl AddressMap {
    pub(super) fn new(addresses: &[SocketAddr]) -> Self {
        let mut places: Vec<(String, String)> = Vec::new();
        for address in addresses {
            places.push((address.to_string(), "{address}".to_owned()));
            let ip = match address {
                SocketAddr::V4(v4) => v4.ip().to_string(),
                SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
            };
            places.push((ip, "{address}".to_owned()));
        }

        // The longest first: of an address with its port, the address alone must not be replaced.
        places.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        places.dedup();
        Self {
            addresses: places,
            named: Vec::new(),
        }
    }

    /// Compares those of these texts that are UUIDs literally.
    pub(super) fn naming<'t>(mut self, texts: impl Iterator<Item = &'t str>) -> Self {
        let named = texts.filter(|text| uuid::Uuid::try_parse(text).is_ok());
        self.named = named.map(str::to_ascii_lowercase).collect();
        self
    }

    /// Replaces known addresses by their placeholders, with or without port.
    fn reduce(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (address, place) in &self.addresses {
            let mut shown = String::new();
            let mut rest = text.as_str();
            while let Some(at) = rest.find(address.as_str()) {
                let behind = &rest[at + address.len()..];
                let touches = |char: Option<char>| {
                    char.is_some_and(|char| char.is_ascii_digit() || char == '.')
                };
                shown.push_str(&rest[..at]);

                if touches(behind.chars().next()) || touches(rest[..at].chars().next_back()) {
                    shown.push_str(address);
                    rest = behind;
                } else {
                    shown.push_str(place);
                    rest = without_port(behind);
                }
            }

            shown.push_str(rest);
            text = shown;
        }

        without_loopback(&text)
    }
}

/// Replaces every loopback address: a machine has many, and a capture holds those of the machine on which it was made.
fn without_loopback(text: &str) -> String {
    if !text.contains("127.") && !text.contains("::1") {
        return text.to_owned();
    }

    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        match loopback(rest, shown.chars().next_back()) {
            Some(behind) => {
                shown.push_str("{address}");
                rest = without_port(behind);
            }
            None => {
                shown.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }

    shown
}

/// Returns the text behind a loopback address at its beginning; `before` is the character in front of it.
fn loopback(text: &str, before: Option<char>) -> Option<&str> {
    if let Some(behind) = text.strip_prefix("[::1]") {
        return Some(behind);
    }
    let touches = |char: char| char.is_ascii_alphanumeric() || char == '.';
    if before.is_some_and(touches) {
        return None;
    }

    if let Some(behind) = text.strip_prefix("::1") {
        let goes_on = behind.starts_with(|char: char| char.is_ascii_hexdigit() || char == ':');
        return (!goes_on && before != Some(':')).then_some(behind);
    }

    let is_inner = |octet: u8| octet.is_ascii_digit() || octet == b'.';
    let end = text.bytes().take_while(|octet| is_inner(*octet)).count();
    let address: std::net::Ipv4Addr = text[..end].parse().ok()?;
    address.is_loopback().then(|| &text[end..])
}

fn without_port(text: &str) -> &str {
    let Some(rest) = text.strip_prefix(':') else {
        return text;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 { text } else { &rest[digits..] }
}

impl AddressMap {
    /// Replaces UUIDs, except those that are compared literally.
    fn identifiers(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let uuid = rest
                .get(..36)
                .filter(|head| uuid::Uuid::try_parse(head).is_ok());
            if let Some(uuid) = uuid {
                let uuid = uuid.to_ascii_lowercase();
                shown.push_str(if self.named.contains(&uuid) {
                    &uuid
                } else {
                    "{uuid}"
                });
                rest = &rest[36..];
            } else {
                let next = rest.chars().next().map_or(1, char::len_utf8);
                shown.push_str(&rest[..next]);
                rest = &rest[next..];
            }
        }

        shown
    }

    /// Returns the called user of an initial request.
    fn called_user(&self, message: &Message) -> Option<String> {
        if message.status().is_some() || message.tag("To").is_some() {
            return None;
        }
        let user = user_of(&message.request_uri()).unwrap_or_default();
        Some(format!(
            "{} for {:?}",
            message.method(),
            self.identifiers(&user)
        ))
    }
}

/// Headers that aren't compared: their values follow from the length, the time, or a number drawn for the live call.
const IGNORED: [&str; 5] = ["Content-Length", "Date", "Timestamp", "RSeq", "RAck"];

/// Reduces a message to the parts that have to be equal.
fn reduced(message: &Message, places: &AddressMap) -> Vec<(String, String)> {
    let mut headers = Vec::new();

    for line in message.lines() {
        let name = line.name().into_owned();
        if IGNORED
            .iter()
            .any(|ignored| ignored.eq_ignore_ascii_case(&name))
        {
            continue;
        }

        // 90 seconds is the least interval, and the default without the header (RFC 4028 §5): large INVITEs leave it out.
        if name.eq_ignore_ascii_case("Min-SE") && line.value().trim() == "90" {
            continue;
        }

        let value = value(&name, &line.value(), places);
        headers.push((name, value));
    }

    headers
}

fn value(name: &str, value: &str, places: &AddressMap) -> String {
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "call-id" => "{call-id}".to_owned(),
        "via" => via(value),
        "from" | "to" => with_tag_hidden(&places.reduce(value)),
        "contact" => contact(&places.reduce(value)),
        "route" | "record-route" => route(&places.reduce(value)),
        "www-authenticate" | "proxy-authenticate" | "authorization" | "proxy-authorization" => {
            digest(value)
        }
        // The daemon leaves white space out where an INVITE would be too large for UDP; it has no meaning (RFC 3261 §7.3.1).
        "allow" | "supported" | "require" | "accept" => {
            let elements: Vec<&str> = value.split(',').map(str::trim).collect();
            elements.join(", ")
        }
        // The version behind the slash is another one after each release.
        "user-agent" | "server" => value.split('/').next().unwrap_or_default().to_owned(),
        // The number differs when a different number of challenges was answered.
        "cseq" => value
            .split_whitespace()
            .last()
            .unwrap_or_default()
            .to_owned(),
        _ if lower.ends_with("-token") => "{token}".to_owned(),
        _ => places.identifiers(&places.reduce(value)),
    }
}

/// Reduces a Via to its parameter names.
fn via(value: &str) -> String {
    let shapes: Vec<String> = value
        .split(',')
        .map(|element| {
            let mut parts = element.split(';').map(str::trim);
            let protocol = parts.next().unwrap_or_default();
            let protocol = protocol
                .rsplit_once(' ')
                .map_or(protocol, |(protocol, _)| protocol);

            // The transport is an option of the replay.
            let protocol = protocol
                .rsplit_once('/')
                .map_or(protocol, |(version, _)| version);

            let mut names: Vec<String> = parts
                .map(|part| {
                    part.split('=')
                        .next()
                        .unwrap_or_default()
                        .to_ascii_lowercase()
                })
                .filter(|name| name != "rport" && name != "received" && name != "alias")
                .collect();

            names.sort_unstable();
            format!("{protocol};{}", names.join(";"))
        })
        .collect();

    shapes.join(", ")
}

/// Placeholder of a tag in a compared value.
const ANY_TAG: &str = "tag={tag}";

fn with_tag_hidden(value: &str) -> String {
    match parameter(value, "tag") {
        Some(tag) if !tag.is_empty() => value.replace(&format!("tag={tag}"), ANY_TAG),
        Some(_) | None => value.to_owned(),
    }
}

/// Reduces a Contact to host and parameters. The user part of the daemon's Contact identifies the dialog, and the transport (so `sips` too) is an
/// option of the replay.
fn contact(value: &str) -> String {
    let Some((scheme, rest)) = value
        .split_once("sip:")
        .or_else(|| value.split_once("sips:"))
    else {
        return value.to_owned();
    };
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    format!("{scheme}sip:{}", without_transport(rest))
}

/// Reduces a route. A proxy's parameters (Kamailio's `ftag`) hold the dialog's tags. A proxy that changes the transport appears twice.
fn route(value: &str) -> String {
    let mut value = without_transport(value);
    for name in ["ftag=", "vsf=", "vst="] {
        let mut done = 0;
        while let Some(at) = value[done..].find(name).map(|at| done + at + name.len()) {
            let end = value[at..]
                .find([';', '>', ','])
                .map_or(value.len(), |end| at + end);
            value.replace_range(at..end, "{tag}");
            done = at + "{tag}".len();
        }
    }
    value
}

fn digest(value: &str) -> String {
    let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
    let mut fields: Vec<String> = rest
        .split(',')
        .map(|field| {
            let (name, value) = field.trim().split_once('=').unwrap_or((field.trim(), ""));
            match name.to_ascii_lowercase().as_str() {
                // The realm isn't compared: by default it is the host, so it changes as addresses do.
                "algorithm" | "qop" => format!("{name}={}", value.trim_matches('"')),
                "stale" => format!("stale={}", value.trim_matches('"').to_ascii_lowercase()),
                _ => name.to_owned(),
            }
        })
        .collect();

    fields.sort_unstable();
    format!("{scheme} {}", fields.join(", "))
}

/// Reduces SDP by its session numbers and ports; other bodies stay.
fn body(message: &Message, places: &AddressMap) -> Vec<String> {
    let text = String::from_utf8_lossy(&message.body);
    let is_sdp = text.starts_with("v=0");

    text.lines()
        .map(|line| {
            let line = places.reduce(line);
            if !is_sdp {
                return places.identifiers(&line);
            }

            let mut words: Vec<&str> = line.split(' ').collect();
            if line.starts_with("o=") && words.len() >= 3 {
                words[1] = "{session}";
                words[2] = "{version}";
            // Port 0 means that the media is refused or ended (RFC 3264 §6), which has to be equal.
            } else if line.starts_with("m=") && words.len() >= 2 && words[1] != "0" {
                words[1] = "{port}";
            }

            words.join(" ")
        })
        .collect()
}

/// Addresses of the captured and the live call.
#[derive(Debug)]
pub(super) struct Sides<'a> {
    pub(super) captured: &'a AddressMap,
    pub(super) live: &'a AddressMap,
}

/// Compares a whole message with the captured one. Returns part, expected and found value of the first difference.
pub(super) fn compare_messages(
    captured: &Message,
    live: &Message,
    sides: &Sides<'_>,
) -> Option<(String, String, String)> {
    let (expected, found) = (reduced(captured, sides.captured), reduced(live, sides.live));

    let named = |headers: &[(String, String)], name: &str| -> Vec<String> {
        headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.clone())
            .collect()
    };

    let show = |values: &[String]| match values {
        [] => "none".to_owned(),
        values => format!("`{}`", values.join("`, `")),
    };
    // RFC 3261 §7.3.1: the order of lines with different names has no meaning, that of lines with the same name has.
    for (name, _) in expected.iter().chain(&found) {
        let (was, is) = (named(&expected, name), named(&found, name));
        if was != is {
            return Some((name.clone(), show(&was), show(&is)));
        }
    }

    let (was, is) = (
        sides.captured.called_user(captured),
        sides.live.called_user(live),
    );
    if was != is {
        let none = || "none".to_owned();
        let part = "start line".to_owned();
        return Some((part, was.unwrap_or_else(none), is.unwrap_or_else(none)));
    }

    let (was, is) = (body(captured, sides.captured), body(live, sides.live));
    if was == is {
        return None;
    }

    let at = was
        .iter()
        .zip(&is)
        .take_while(|(was, is)| was == is)
        .count();
    let line = |lines: &[String]| {
        lines
            .get(at)
            .map_or_else(|| "nothing more".to_owned(), |line| format!("`{line}`"))
    };

    Some((format!("body, line {}", at + 1), line(&was), line(&is)))
}

/// Checks a statement of the flow. Returns part, expected and found value of a difference; a statement that can't be parsed is one too.
pub(super) fn stated(
    statement: &str,
    live: &Message,
    after_s: f64,
) -> Option<(String, String, String)> {
    let words: Vec<&str> = statement.splitn(4, ' ').collect();
    let differs =
        |part: &str, expected: String, found: String| Some((part.to_owned(), expected, found));
    let values = |name: &str| live.all(name);
    let shown = |name: &str| match values(name).as_slice() {
        [] => "none".to_owned(),
        values => format!("`{}`", values.join("`, `")),
    };

    match words.as_slice() {
        ["optional"] => None,
        ["status", status] => {
            let found = live
                .status()
                .map_or_else(|| live.method(), |status| status.to_string());
            (found != *status).then(|| ("start line".to_owned(), (*status).to_owned(), found))
        }
        ["method", method] => {
            let found = live.method();
            (found != *method).then(|| ("start line".to_owned(), (*method).to_owned(), found))
        }

        // For each statement about a header's presence: the arm with a guard finds a difference, the one without agrees.
        ["header", name] if values(name).is_empty() => {
            differs(name, "one".to_owned(), "none".to_owned())
        }
        ["header", _] => None,
        ["no", "header", name] if !values(name).is_empty() => {
            differs(name, "none".to_owned(), shown(name))
        }
        ["no", "header", _] => None,

        ["header", name, "is", text] => match values(name).iter().any(|value| value == text) {
            true => None,
            false => differs(name, format!("`{text}`"), shown(name)),
        },
        ["header", name, "contains", text] => {
            match values(name).iter().any(|value| value.contains(text)) {
                true => None,
                false => differs(name, format!("something with `{text}`"), shown(name)),
            }
        }

        ["within", seconds] => match seconds.parse::<f64>() {
            Ok(limit) if after_s <= limit => None,
            Ok(limit) => differs(
                "time",
                format!("within {limit} s"),
                format!("after {after_s:.3} s"),
            ),
            Err(_) => not_understood(statement),
        },

        ["body", "contains", ..] => {
            let text = statement.strip_prefix("body contains ").unwrap_or_default();
            let body = String::from_utf8_lossy(&live.body);
            (!body.contains(text)).then(|| {
                (
                    "body".to_owned(),
                    format!("something with `{text}`"),
                    format!("{} octets without it", body.len()),
                )
            })
        }
        _ => not_understood(statement),
    }
}

fn not_understood(statement: &str) -> Option<(String, String, String)> {
    Some((
        "statement".to_owned(),
        "status, method, header, no header, body contains, within or optional".to_owned(),
        format!("`? {statement}`"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(text.replace('\n', "\r\n").as_bytes())
    }

    fn differs(captured: &str, live: &str) -> Option<String> {
        let places = |address: &str| AddressMap::new(&[address.parse().unwrap()]);
        let sides = Sides {
            captured: &places("10.0.0.1:5060"),
            live: &places("127.0.0.1:40000"),
        };
        compare_messages(&message(captured), &message(live), &sides).map(|(part, ..)| part)
    }

    #[test]
    fn what_changes_from_call_to_call_is_no_difference() {
        for (name, captured, live, part) in [
            (
                "tags",
                "\nTo: <sip:a@10.0.0.1>;tag=1\n\n",
                "\nTo: <sip:a@127.0.0.1:40000>;tag=2\n\n",
                None,
            ),
            (
                "a proxy's notes, on both its transports",
                "\nRoute: <sip:10.0.0.1;r2=on;lr;ftag=1>,<sip:10.0.0.1;r2=on;lr;ftag=1>\n\n",
                "\nRoute: <sip:127.0.0.1;r2=on;lr;ftag=22>,<sip:127.0.0.1;r2=on;lr;ftag=22>\n\n",
                None,
            ),
            (
                "a tag that is gone",
                "\nTo: <sip:a@10.0.0.1>;tag=1\n\n",
                "\nTo: <sip:a@127.0.0.1>\n\n",
                Some("To"),
            ),
            (
                "another user",
                "\nTo: <sip:a@10.0.0.1>\n\n",
                "\nTo: <sip:b@127.0.0.1>\n\n",
                Some("To"),
            ),
            (
                "branches",
                "\nv: SIP/2.0/UDP h;branch=1\n\n",
                "\nVia: SIP/2.0/TCP i:9;branch=2;rport=9\n\n",
                None,
            ),
            (
                "a Via more",
                "\nVia: SIP/2.0/UDP h;branch=1\n\n",
                "\nVia: SIP/2.0/UDP i;branch=2, SIP/2.0/UDP h;branch=1\n\n",
                Some("Via"),
            ),
            (
                "nonces",
                "\nWWW-Authenticate: Digest realm=\"r\", nonce=\"a\"\n\n",
                "\nWWW-Authenticate: Digest nonce=\"b\", realm=\"r\"\n\n",
                None,
            ),
            (
                "another realm, as on another host",
                "\nWWW-Authenticate: Digest realm=\"r\", nonce=\"a\"\n\n",
                "\nWWW-Authenticate: Digest nonce=\"b\", realm=\"s\"\n\n",
                None,
            ),
            (
                "no realm",
                "\nWWW-Authenticate: Digest realm=\"r\", nonce=\"a\"\n\n",
                "\nWWW-Authenticate: Digest nonce=\"b\"\n\n",
                Some("WWW-Authenticate"),
            ),
            ("the default of Min-SE", "\nMin-SE: 90\n\n", "\n\n", None),
            (
                "another Min-SE",
                "\nMin-SE: 120\n\n",
                "\n\n",
                Some("Min-SE"),
            ),
            (
                "white space in a list",
                "\nAllow: INVITE, ACK\n\n",
                "\nAllow: INVITE,ACK\n\n",
                None,
            ),
            (
                "another list",
                "\nAllow: INVITE, ACK\n\n",
                "\nAllow: INVITE,BYE\n\n",
                Some("Allow"),
            ),
            (
                "identifiers",
                "\nX-P-SESSION-ID: 0198c0de-0000-7000-8000-000000000001\n\n",
                "\nX-P-SESSION-ID: 0198c0de-0000-7000-8000-000000000002\n\n",
                None,
            ),
            (
                "a header that is gone",
                "\nWarning: 399 x \"y\"\n\n",
                "\n\n",
                Some("Warning"),
            ),
            (
                "a header that is new",
                "\n\n",
                "\nWarning: 399 x \"y\"\n\n",
                Some("Warning"),
            ),
            (
                "ports of media",
                "\n\nv=0\no=- 1 1 IN IP4 10.0.0.1\nm=audio 4000 RTP/AVP 0\n",
                "\n\nv=0\no=- 2 2 IN IP4 127.0.0.1\nm=audio 5000 RTP/AVP 0\n",
                None,
            ),
            (
                "a codec",
                "\n\nv=0\nm=audio 4000 RTP/AVP 0\n",
                "\n\nv=0\nm=audio 4000 RTP/AVP 8\n",
                Some("body, line 2"),
            ),
            (
                "media that is refused",
                "\n\nv=0\nm=audio 4000 RTP/AVP 0\n",
                "\n\nv=0\nm=audio 0 RTP/AVP 0\n",
                Some("body, line 2"),
            ),
        ] {
            let [captured, live] = [captured, live].map(|text| format!("SIP/2.0 200 OK{text}"));
            assert_eq!(differs(&captured, &live).as_deref(), part, "{name}");
        }
    }

    #[test]
    fn loopback_addresses_are_one_place_on_both_sides() {
        let places = AddressMap::new(&["127.0.0.2:5060".parse().expect("an address")]);
        for (text, reduced) in [
            ("<sip:a@127.0.0.1:5080>", "<sip:a@{address}>"),
            ("<sip:a@127.0.0.2:5060>", "<sip:a@{address}>"),
            ("c=IN IP4 127.8.9.10", "c=IN IP4 {address}"),
            ("<sip:[::1]:5061;lr>", "<sip:{address};lr>"),
            ("<sip:127.0.0.1:5061;lr>", "<sip:{address};lr>"),
            ("c=IN IP6 ::1", "c=IN IP6 {address}"),
            ("1127.0.0.1 and 127.0.0.1.2", "1127.0.0.1 and 127.0.0.1.2"),
            ("2001:db8::1 and ::1f", "2001:db8::1 and ::1f"),
        ] {
            assert_eq!(places.reduce(text), reduced, "{text}");
        }
    }

    #[test]
    fn statements_are_held_to() {
        let live = message(
            "SIP/2.0 480 No\nWarning: 399 h \"no agent\"\nServer: trunkline\n\nbody here\n",
        );
        for (statement, part) in [
            ("status 480", None),
            ("status 486", Some("start line")),
            ("method BYE", Some("start line")),
            ("header Warning contains no agent", None),
            ("header Warning contains an agent", Some("Warning")),
            ("header Server is trunkline", None),
            ("header Server is other", Some("Server")),
            ("header Contact", Some("Contact")),
            ("no header Contact", None),
            ("no header Server", Some("Server")),
            ("body contains body here", None),
            ("body contains nothing", Some("body")),
            ("within 2", None),
            ("within 0.5", Some("time")),
            ("whatever", Some("statement")),
        ] {
            let found = stated(statement, &live, 1.0).map(|(part, ..)| part);
            assert_eq!(found.as_deref(), part, "{statement}");
        }
    }
}
