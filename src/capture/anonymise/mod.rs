//! Takes people and places out of a call before it is passed on: addresses, host names, numbers, names, Call-IDs and
//! credentials are replaced, the same by the same throughout a capture. What decides routing stays: the form of a number (`+`, `00`,
//! national), its country and length, whether an address is private. Headers and parameters that aren't known are blanked: what isn't
//! understood isn't passed on.
//!
//! `names` knows what stands for whom, `shuffle` how that is found without remembering everybody, `body` what is in bodies.

mod body;
mod names;
mod shuffle;

use std::borrow::Cow;
use std::net::IpAddr;

use trunkline_sip::header::text::{cut_quoted, elements, find_outside};

use self::names::Names;
use super::flow::Call;
use super::message::Message;

/// Replaces, and remembers by what.
#[derive(Debug, Default)]
pub struct Anonymiser {
    names: Names,
}

/// What happens to the value of a header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Treatment {
    /// Names and URIs are replaced.
    Address,
    /// Nothing but addresses is replaced.
    Protocol,
    /// Words stay, addresses and numbers are replaced.
    Text,
    /// The name of a program, which may tell the hardware's address.
    Program,
    Via,
    CallId,
    Digest,
    Warning,
    /// Letters and digits are blanked.
    Blank,
}

const ADDRESS: [&str; 16] = [
    "From",
    "To",
    "Contact",
    "P-Asserted-Identity",
    "P-Preferred-Identity",
    "P-Called-Party-ID",
    "Remote-Party-ID",
    "Diversion",
    "History-Info",
    "Refer-To",
    "Referred-By",
    "Reply-To",
    "Route",
    "Record-Route",
    "Path",
    "Service-Route",
];
const PROTOCOL: [&str; 31] = [
    "CSeq",
    "Max-Forwards",
    "Content-Length",
    "Content-Type",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Allow",
    "Supported",
    "Require",
    "Proxy-Require",
    "Unsupported",
    "Session-Expires",
    "Min-SE",
    "Expires",
    "Min-Expires",
    "RSeq",
    "RAck",
    "Date",
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Event",
    "Allow-Events",
    "Subscription-State",
    "Retry-After",
    "Timestamp",
    "MIME-Version",
    "Privacy",
    "Refer-Sub",
    "P-Early-Media",
];

/// Parameters of URIs and headers whose values are nobody's.
const PARAMETERS: [&str; 34] = [
    "alias",
    "branch",
    "cause",
    "counter",
    "early-only",
    "expires",
    "from-tag",
    "ftag",
    "index",
    "limit",
    "line",
    "local-tag",
    "lr",
    "method",
    "nat",
    "ob",
    "outbound",
    "party",
    "privacy",
    "q",
    "r2",
    "reason",
    "refresher",
    "reg-id",
    "remote-tag",
    "rinstance",
    "rport",
    "screen",
    "tag",
    "to-tag",
    "transport",
    "ttl",
    "user",
    "x-nat",
];

fn is_in(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn treatment(name: &str) -> Treatment {
    if is_in(&ADDRESS, name) {
        Treatment::Address
    } else if is_in(&PROTOCOL, name) {
        Treatment::Protocol
    } else if is_in(&["Reason"], name) {
        Treatment::Text
    } else if is_in(&["User-Agent", "Server"], name) {
        Treatment::Program
    } else if is_in(&["Via"], name) {
        Treatment::Via
    } else if is_in(
        &["Call-ID", "Replaces", "In-Reply-To", "Target-Dialog"],
        name,
    ) {
        Treatment::CallId
    } else if is_in(
        &[
            "Authorization",
            "Proxy-Authorization",
            "WWW-Authenticate",
            "Proxy-Authenticate",
        ],
        name,
    ) {
        Treatment::Digest
    } else if is_in(&["Warning"], name) {
        Treatment::Warning
    } else {
        Treatment::Blank
    }
}

impl Anonymiser {
    /// Rewrites a call in its place.
    pub fn call(&mut self, call: &mut Call) {
        for (_, address) in &mut call.peers {
            address.set_ip(self.names.address(address.ip()));
        }
        for entry in &mut call.entries {
            let mut message = Message::parse(&entry.octets);
            self.message(&mut message);
            entry.octets = message.to_octets();
            let stated = std::mem::take(&mut entry.expectations).into_iter();
            entry.expectations = stated.filter_map(|stated| self.stated(stated)).collect();
        }
        call.title = call.entries.first().map_or_else(String::new, |entry| {
            Message::parse(&entry.octets)
                .start_line()
                .trim_end_matches(" SIP/2.0")
                .to_owned()
        });
    }

    fn message(&mut self, message: &mut Message) {
        let is_length_right = message.is_length_right();
        if message.status().is_none() {
            let (method, uri) = (message.method(), self.uri(&message.request_uri()));
            message.set_start_line(&format!("{method} {uri} SIP/2.0"));
        } else {
            let line = message.start_line().into_owned();
            let shown = self.status_line(&line);
            if shown.trim_end() != line {
                message.set_start_line(&shown);
            }
        }
        for line in message.lines_mut() {
            let name = line.name().into_owned();
            let value = line.value();
            let replaced = self.value(treatment(&name), &value);
            if replaced != value || name.is_empty() {
                line.set(&replaced);
            }
        }
        if !message.body.is_empty() {
            message.body = self.body(&message.body).into_bytes();
            if is_length_right {
                message.set("Content-Length", &message.body.len().to_string());
            }
        }
    }

    /// `SIP/2.0 404 Not Found`: what a server says of its own may name somebody.
    fn status_line(&mut self, line: &str) -> String {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (version, status, phrase) = (word(), word(), word());
        format!("{version} {status} {}", self.text(phrase))
    }

    fn value(&mut self, treatment: Treatment, value: &str) -> String {
        let mut each = |change: fn(&mut Self, &str) -> String| {
            let elements = elements(value.as_bytes()).map(String::from_utf8_lossy);
            let changed: Vec<String> = elements.map(|element| change(self, &element)).collect();
            changed.join(", ")
        };
        match treatment {
            Treatment::Address => each(Self::address),
            Treatment::Via => each(Self::via),
            Treatment::CallId => each(Self::call_id),
            Treatment::Warning => each(Self::warning),
            Treatment::Protocol => self.plain(value),
            Treatment::Text => self.text(value),
            Treatment::Program => self.plain(&without_hardware(value)),
            Treatment::Digest => self.digest(value),
            Treatment::Blank => blank(value),
        }
    }

    /// What a flow expects, in the words of the messages as they are now; what can't be put so is left out.
    fn stated(&mut self, stated: String) -> Option<String> {
        let words: Vec<&str> = stated.splitn(4, ' ').collect();
        match words.as_slice() {
            ["header", name, "is", text] => {
                let text = self.value(treatment(name), text);
                Some(format!("header {name} is {text}"))
            }
            ["header", name, "contains", text] => match treatment(name) {
                kind @ (Treatment::Protocol | Treatment::Text | Treatment::Program) => {
                    let text = self.value(kind, text);
                    Some(format!("header {name} contains {text}"))
                }
                Treatment::Address
                | Treatment::Via
                | Treatment::CallId
                | Treatment::Digest
                | Treatment::Warning
                | Treatment::Blank => None,
            },
            ["optional"]
            | ["header", _]
            | ["no", "header", _]
            | ["status" | "method" | "within" | "wait", _] => Some(stated),
            _ => None,
        }
    }

    /// A URI; embedded headers and a password are left out.
    fn uri(&mut self, uri: &str) -> String {
        let (scheme, rest) = uri.split_once(':').unwrap_or(("", uri));
        let is_tel = scheme.eq_ignore_ascii_case("tel");
        if !is_tel && !is_in(&["sip", "sips"], scheme) {
            return blank(uri);
        }
        let rest = rest.split('?').next().unwrap_or_default();
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None if is_tel => (Some(rest), ""),
            None => (None, rest),
        };
        let mut shown = format!("{scheme}:");
        if let Some(user) = user {
            let (user, of_user) = user
                .split_once(';')
                .map_or((user, None), |(user, rest)| (user, Some(rest)));
            let user = user.split(':').next().unwrap_or_default();
            shown.push_str(&self.names.user(user));
            if let Some(rest) = of_user {
                shown.push(';');
                shown.push_str(&self.parameters(rest));
            }
            if !is_tel {
                shown.push('@');
            }
        }
        let (place, parameters) = cut_at(host, b';');
        shown.push_str(&self.place(place));
        if let Some(parameters) = parameters {
            shown.push(';');
            shown.push_str(&self.parameters(parameters));
        }
        shown
    }

    /// A host, and its port if it has one.
    fn place(&mut self, place: &str) -> String {
        match place.rsplit_once(':') {
            Some((host, port))
                if !port.is_empty() && port.bytes().all(|octet| octet.is_ascii_digit()) =>
            {
                format!("{}:{port}", self.names.host(host))
            }
            Some(_) | None => self.names.host(place),
        }
    }

    /// What stands behind a semicolon. Values of those that aren't known are blanked.
    fn parameters(&mut self, parameters: &str) -> String {
        let mut shown = Vec::new();
        let mut rest = Some(parameters);
        while let Some(text) = rest {
            let (parameter, behind) = cut_at(text, b';');
            rest = behind;
            let parameter = parameter.trim();
            shown.push(match parameter.split_once('=') {
                None => parameter.to_owned(),
                Some((name, value)) => format!("{name}={}", self.parameter(name, value)),
            });
        }
        shown.join(";")
    }

    fn parameter(&mut self, name: &str, value: &str) -> String {
        let name = name.trim();
        if is_in(&["received", "maddr"], name) {
            self.place(value.trim())
        } else if is_in(&PARAMETERS, name) {
            self.plain(value)
        } else {
            blank(value)
        }
    }

    /// One address of From, Contact, …: a name, a URI with or without brackets, parameters.
    fn address(&mut self, value: &str) -> String {
        if value == "*" {
            return value.to_owned();
        }
        let (name, rest) = match cut_quoted(value.as_bytes()) {
            Some((name, rest)) => (
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(rest).into_owned(),
            ),
            None => {
                let angle = value.find('<').unwrap_or(0);
                (value[..angle].trim().into(), value[angle..].to_owned())
            }
        };
        let mut shown = String::new();
        if !name.is_empty() {
            shown = format!("\"{}\" ", self.names.user(&name));
        }
        let rest = rest.trim();
        let parameters = match rest.strip_prefix('<').map(|rest| rest.split_once('>')) {
            Some(Some((uri, parameters))) => {
                shown.push_str(&format!("<{}>", self.uri(uri)));
                parameters.trim().strip_prefix(';')
            }
            Some(None) => {
                shown.push_str(&blank(rest));
                None
            }
            // Without brackets parameters are the header's (RFC 3261 §20.10).
            None => {
                let (uri, parameters) = cut_at(rest, b';');
                shown.push_str(&self.uri(uri.trim()));
                parameters
            }
        };
        if let Some(parameters) = parameters {
            shown.push(';');
            shown.push_str(&self.parameters(parameters));
        }
        shown
    }

    fn via(&mut self, value: &str) -> String {
        let (sent, parameters) = cut_at(value, b';');
        let (protocol, by) = sent.trim().rsplit_once(' ').unwrap_or(("", sent));
        let shown = format!("{} {}", protocol.trim(), self.place(by.trim()));
        match parameters {
            Some(parameters) => format!("{shown};{}", self.parameters(parameters)),
            None => shown,
        }
    }

    fn call_id(&mut self, value: &str) -> String {
        let (id, parameters) = value
            .split_once(';')
            .map_or((value, None), |(id, rest)| (id, Some(rest)));
        let id = self.names.call_id(id.trim());
        match parameters {
            Some(parameters) => format!("{id};{}", self.parameters(parameters)),
            None => id,
        }
    }

    fn digest(&mut self, value: &str) -> String {
        let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
        if !scheme.eq_ignore_ascii_case("Digest") {
            return blank(value);
        }
        let fields = elements(rest.as_bytes()).map(String::from_utf8_lossy);
        let fields: Vec<String> = fields.map(|field| self.digest_field(&field)).collect();
        format!("{scheme} {}", fields.join(", "))
    }

    fn digest_field(&mut self, field: &str) -> String {
        let Some((name, value)) = field.split_once('=') else {
            return blank(field);
        };
        let inner = value.trim().trim_matches('"');
        let shown = match name.trim().to_ascii_lowercase().as_str() {
            "username" => format!("\"{}\"", self.names.user(inner)),
            "realm" => format!("\"{}\"", self.names.host(inner)),
            "uri" => format!("\"{}\"", self.uri(inner)),
            "algorithm" | "qop" | "nc" | "stale" => value.to_owned(),
            _ => format!("\"{}\"", "0".repeat(inner.len().min(64))),
        };
        format!("{name}={shown}")
    }

    fn warning(&mut self, value: &str) -> String {
        let mut words = value.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (code, agent, text) = (word(), word(), word());
        format!("{code} {} {}", self.place(agent), self.text(text))
    }

    /// Words stay; URIs and addresses are replaced, and numbers of seven and more digits.
    fn text(&mut self, text: &str) -> String {
        let lower = text.to_ascii_lowercase();
        let mut shown = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(found) = next_uri(&lower[at..]).map(|found| at + found) {
            let uri = &text[found..];
            let end = uri.find([' ', '"', '<', '>', ',']).unwrap_or(uri.len());
            shown.push_str(&self.words(&text[at..found]));
            shown.push_str(&self.uri(&uri[..end]));
            at = found + end;
        }
        shown.push_str(&self.words(&text[at..]));
        shown
    }

    fn words(&mut self, text: &str) -> String {
        let text = self.plain(text);
        let is_part = |char: char| char.is_ascii_digit() || char == '+';
        with_runs(&text, is_part, |number| match number.len() {
            7.. => self.names.number(number).into(),
            _ => number.into(),
        })
    }

    /// Addresses in a text.
    fn plain(&mut self, text: &str) -> String {
        let is_part = |char: char| char.is_ascii_hexdigit() || char == '.' || char == ':';
        with_runs(text, is_part, |run| self.run(run).into())
    }

    /// A run of digits, dots and colons: an address, one with a port, or neither.
    fn run(&mut self, run: &str) -> String {
        if let Ok(address) = run.parse::<IpAddr>() {
            return self.names.address(address).to_string();
        }
        if let Some((head, tail)) = run.split_once(':')
            && !tail.contains(':')
        {
            return format!("{}:{}", self.run(head), self.run(tail));
        }
        // Digits of something else that touch an address: a branch, say.
        if run.len() > 64 {
            return blank(run);
        }
        if run.matches('.').count() >= 3 {
            for (start, char) in run.char_indices().skip(1) {
                if char.is_ascii_digit() && run[start..].parse::<IpAddr>().is_ok() {
                    return format!("{}{}", &run[..start], self.run(&run[start..]));
                }
            }
            let last = run.char_indices().next_back().map_or(0, |(at, _)| at);
            return format!("{}{}", self.run(&run[..last]), &run[last..]);
        }
        run.to_owned()
    }
}

/// Where a URI begins.
fn next_uri(lower: &str) -> Option<usize> {
    let schemes = ["sip:", "sips:", "tel:"].iter();
    schemes.filter_map(|scheme| lower.find(scheme)).min()
}

/// Before and behind a separator that stands outside of quotes.
fn cut_at(text: &str, separator: u8) -> (&str, Option<&str>) {
    match find_outside(text.as_bytes(), separator) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Letters become `x` and digits `0`: the shape stays.
fn blank(text: &str) -> String {
    text.chars()
        .map(|char| match char {
            char if char.is_ascii_digit() => '0',
            char if char.is_alphanumeric() => 'x',
            char => char,
        })
        .collect()
}

/// The text with each run of such characters changed.
fn with_runs<'t>(
    text: &'t str,
    is_part: impl Fn(char) -> bool,
    mut change: impl FnMut(&'t str) -> Cow<'t, str>,
) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(&is_part) {
        let (before, found) = rest.split_at(at);
        let end = found.find(|char| !is_part(char)).unwrap_or(found.len());
        let (run, behind) = found.split_at(end);
        shown.push_str(before);
        shown.push_str(&change(run));
        rest = behind;
    }
    shown.push_str(rest);
    shown
}

/// Blanks what has as many hexadecimal digits as the address of a network card.
fn without_hardware(text: &str) -> String {
    let is_part = |char: char| char.is_ascii_hexdigit() || char == ':' || char == '-';
    with_runs(text, is_part, |word| {
        let digits = word.chars().filter(char::is_ascii_hexdigit).count();
        match digits {
            12.. => blank(word).into(),
            _ => word.into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::flow::{Entry, Role};
    use super::*;

    const INVITE: &str = "INVITE sip:+442071838750@pbx.acme.example:5070;user=phone SIP/2.0\r\n\
        Via: SIP/2.0/UDP 203.0.113.77:5060;branch=z9hG4bKabc;received=203.0.113.77, SIP/2.0/TCP gw.acme.example;branch=z9hG4bK2\r\n\
        From: \"Alice Liddell\" <sip:alice:secret@acme.example>;tag=1928301774\r\n\
        To: <tel:+442071838750>\r\nCall-ID: a84b4c76@203.0.113.77\r\nCSeq: 314159 INVITE\r\n\
        Contact: <sip:alice@192.168.7.9:5062;transport=tcp>\r\n\
        Authorization: Digest username=\"alice\", realm=\"acme.example\", nonce=\"dcd98b\", uri=\"sip:+442071838750@pbx.acme.example\", response=\"6629fae49393a05397450978507c4ef1\"\r\n\
        X-Customer: Alice Liddell 4711\r\nSubject: about Alice\r\nWarning: 399 pbx.acme.example \"+442071838750 is unknown\"\r\n\
        Content-Length: 99\r\n\r\n";
    const BODY: &str = "v=0\r\no=alice 1 1 IN IP4 192.168.7.9\r\ns=Alice\r\ne=alice@acme.example\r\nc=IN IP4 media.acme.example\r\nm=audio 4000 RTP/SAVP 0\r\n\
        a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:WVNfX19zZW1jdGwgKCkgewkyMjA7\r\na=rtcp:4001 IN IP4 192.168.7.9\r\n";

    fn anonymised(text: &str) -> String {
        let mut call = Call {
            peers: vec![(Role::Caller, "203.0.113.77:5060".parse().unwrap())],
            entries: vec![Entry {
                octets: text.as_bytes().to_vec(),
                ..Entry::default()
            }],
            ..Call::default()
        };
        Anonymiser::default().call(&mut call);
        format!(
            "{:?}\n{}\n{}",
            call.peers,
            call.title,
            String::from_utf8_lossy(&call.entries[0].octets)
        )
    }

    #[test]
    fn no_person_and_no_place_is_left() {
        let text = INVITE.replace(
            "Content-Length: 99",
            &format!("Content-Length: {}", BODY.len()),
        );
        let shown = anonymised(&format!("{text}{BODY}"));
        for gone in [
            "lice",
            "Liddell",
            "acme",
            "203.0.113.77",
            "192.168.7.9",
            "2071838750",
            "secret",
            "a84b4c76",
            "6629fae4",
            "WVNfX",
            "4711",
            "dcd98b",
        ] {
            assert!(!shown.contains(gone), "{gone} is left in\n{shown}");
        }
        for kept in [
            "sip:+44",
            ";user=phone",
            "tag=1928301774",
            "CSeq: 314159 INVITE",
            "branch=z9hG4bKabc",
            ":5062;transport=tcp",
        ] {
            assert!(shown.contains(kept), "{kept} is gone from\n{shown}");
        }
        let (_, message) = shown.split_once("INVITE sip").unwrap();
        let message = Message::parse(message.split_once("INVITE sip").unwrap().1.as_bytes());
        assert!(message.is_length_right(), "{shown}");
    }

    #[test]
    fn an_address_is_found_among_other_digits() {
        let mut anonymiser = Anonymiser::default();
        let mut shown = |text: &str| anonymiser.plain(text);
        assert_eq!(
            shown("z9hG4bK-46ea715e8.8.8.8;x"),
            "z9hG4bK-46ea715e192.0.2.1;x"
        );
        assert_eq!(shown("8.8.8.8ab at 12:34:56"), "192.0.2.1ab at 12:34:56");
        assert_eq!(
            shown("8.8.8.8:5060, ::1, 2001:4860::8888"),
            "192.0.2.1:5060, ::1, 2001:db8::1"
        );
        assert_eq!(shown("1.2.3"), "1.2.3");
    }

    /// Whatever is written where, by whoever is careless or hostile.
    #[test]
    fn nothing_slips_through() {
        for line in [
            "Contact: \"Alice <x\" <sip:1@h>, \"Secret, Bob\" <sip:secret@h>;+sip.instance=\"<urn:uuid:secret>\"",
            "From: Secret Bob <sip:1@h>;tag=1;epid=00secret",
            "From: <sip:secret@h",
            "From: sip:secret@h;tag=1",
            "From: secret",
            "Diversion: <mailto:secret@h>;reason=busy",
            "Authorization: Basic c2VjcmV0",
            "Authorization: Bearer secret.secret.secret",
            "Proxy-Authorization: Digest realm=\"Acme, secret\", username=\"a, secret\", secret, response=\"secret\"",
            "Via: SIP/2.0/UDP secret.example;branch=z9hG4bK1;received=secret.example;x=\"secret\"",
            "In-Reply-To: one@h, secret@h",
            "Replaces: secret@h;to-tag=1;from-tag=2;x=secret",
            "User-Agent: Phone 1.2 0015657secret4b150 00:15:65:7b:15:00",
            "User-Agent: Phone 1.2 001565748150 805ec0secret",
            "Reason: SIP;cause=486;text=\"+442071838750 is busy\"",
            "Warning: 392 h:5060 \"Noisy feedback: in_uri=sip:secret@secret.example out_uri=<SIP:secret.example>, tel:+442071838750\"",
            "Refer-To: <sip:1@h?Referred-By=secret>",
            "X-Anything: secret",
            "secret",
        ] {
            let shown = anonymised(&format!("BYE sip:1@h SIP/2.0\r\n{line}\r\n\r\n"));
            // What a user agent calls itself stays, but for the hardware's address.
            let words = if line.starts_with("User-Agent") {
                &["15:65", "001565748150"][..]
            } else {
                &["ecret", "Bob", "Alice", "Acme", "c2VjcmV0", "2071838750"]
            };
            for word in words {
                assert!(!shown.contains(word), "{word} is left of {line}:\n{shown}");
            }
        }
        let shown = anonymised("SIP/2.0 404 No 02071838750 here\r\n\r\n");
        assert!(
            shown.contains("404 No ") && !shown.contains("1838750"),
            "{shown}"
        );
    }

    #[test]
    fn what_is_expected_is_said_of_the_new_message() {
        let mut anonymiser = Anonymiser::default();
        for (stated, expected) in [
            ("status 480", Some("status 480")),
            (
                "header To is <sip:+442071838750@h>",
                Some("header To is <sip:+440005550001@host-1.invalid>"),
            ),
            (
                "header Allow contains REFER",
                Some("header Allow contains REFER"),
            ),
            ("header From contains Alice", None),
            ("body contains Alice", None),
            ("Alice", None),
        ] {
            let shown = anonymiser.stated(stated.to_owned());
            assert_eq!(shown.as_deref(), expected, "{stated}");
        }
    }
}
