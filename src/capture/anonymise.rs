//! Takes people and places out of a call before it is passed on: addresses, host names, numbers, names, Call-IDs and
//! credentials are replaced, the same by the same throughout a capture. What decides routing stays: the form of a number (`+`, `00`,
//! national), its country and length, whether an address is private. Headers that aren't known are blanked: what isn't understood
//! isn't passed on.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::flow::Call;
use super::message::Message;

/// Replaces, and remembers by what.
#[derive(Debug, Default)]
pub struct Anonymiser {
    addresses: HashMap<IpAddr, IpAddr>,
    hosts: HashMap<String, String>,
    users: HashMap<String, String>,
    subscribers: HashMap<String, usize>,
    call_ids: HashMap<String, String>,
}

/// What happens to the value of a header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Treatment {
    /// Names and URIs are replaced.
    Address,
    /// Nothing but addresses is replaced.
    Protocol,
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
const PROTOCOL: [&str; 34] = [
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
    "User-Agent",
    "Server",
    "Retry-After",
    "Timestamp",
    "MIME-Version",
    "Privacy",
    "Refer-Sub",
    "Reason",
    "P-Early-Media",
];

fn treatment(name: &str) -> Treatment {
    let is_in = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if is_in(&ADDRESS) {
        Treatment::Address
    } else if is_in(&PROTOCOL) {
        Treatment::Protocol
    } else if is_in(&["Via"]) {
        Treatment::Via
    } else if is_in(&["Call-ID", "Replaces", "In-Reply-To", "Target-Dialog"]) {
        Treatment::CallId
    } else if is_in(&[
        "Authorization",
        "Proxy-Authorization",
        "WWW-Authenticate",
        "Proxy-Authenticate",
    ]) {
        Treatment::Digest
    } else if is_in(&["Warning"]) {
        Treatment::Warning
    } else {
        Treatment::Blank
    }
}

impl Anonymiser {
    /// Rewrites a call in its place.
    pub fn call(&mut self, call: &mut Call) {
        for (_, address) in &mut call.peers {
            address.set_ip(self.address(address.ip()));
        }
        for entry in &mut call.entries {
            let mut message = Message::parse(&entry.octets);
            self.message(&mut message);
            entry.octets = message.to_octets();
            for expectation in &mut entry.expectations {
                *expectation = self.plain(expectation);
            }
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
            let (method, uri) = (message.method(), self.uris(&message.request_uri()));
            message.set_start_line(&format!("{method} {uri} SIP/2.0"));
        }
        for line in message.lines_mut() {
            let name = line.name().into_owned();
            let value = line.value();
            let replaced = match treatment(&name) {
                Treatment::Address => self.address_header(&value),
                Treatment::Protocol => self.plain(&value),
                Treatment::Via => self.via(&value),
                Treatment::CallId => self.call_id(&value),
                Treatment::Digest => self.digest(&value),
                Treatment::Warning => self.warning(&value),
                Treatment::Blank => blank(&value),
            };
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

    fn address(&mut self, address: IpAddr) -> IpAddr {
        if address.is_unspecified() || address.is_loopback() {
            return address;
        }
        let number = self.addresses.len() + 1;
        *self.addresses.entry(address).or_insert_with(|| {
            let [.., high, low] = (number as u64).to_be_bytes();
            match address {
                IpAddr::V4(v4) if v4.is_private() => Ipv4Addr::new(10, 0, high, low).into(),
                IpAddr::V4(_) if number < 255 => Ipv4Addr::new(192, 0, 2, low).into(),
                IpAddr::V4(_) => Ipv4Addr::new(198, 18, high, low).into(),
                IpAddr::V6(_) => Ipv6Addr::new(
                    0x2001,
                    0xdb8,
                    0,
                    0,
                    0,
                    0,
                    0,
                    u16::from_be_bytes([high, low]),
                )
                .into(),
            }
        })
    }

    /// A name, or an address with or without brackets.
    fn host(&mut self, host: &str) -> String {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.address(address).to_string();
        }
        if let Some(inner) = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            && let Ok(address) = inner.parse::<IpAddr>()
        {
            return format!("[{}]", self.address(address));
        }
        if host.is_empty() || host.eq_ignore_ascii_case("localhost") || host.ends_with(".invalid") {
            return host.to_owned();
        }
        let number = self.hosts.len() + 1;
        self.hosts
            .entry(host.to_ascii_lowercase())
            .or_insert_with(|| format!("host-{number}.invalid"))
            .clone()
    }

    fn user(&mut self, user: &str) -> String {
        let is_number = user.bytes().any(|octet| octet.is_ascii_digit())
            && user
                .bytes()
                .all(|octet| octet.is_ascii_digit() || b"+-.()* ".contains(&octet));
        if is_number {
            return self.number(user);
        }
        if user.is_empty() || user.eq_ignore_ascii_case("anonymous") {
            return user.to_owned();
        }
        let number = self.users.len() + 1;
        self.users
            .entry(user.to_owned())
            .or_insert_with(|| format!("user-{number}"))
            .clone()
    }

    /// Keeps `+` or `00`, two digits of a country or the national `0`, and the length; the last seven digits are one subscriber's.
    fn number(&mut self, number: &str) -> String {
        let digits: String = number.chars().filter(char::is_ascii_digit).collect();
        let kept = match (number.starts_with('+'), digits.as_bytes()) {
            (true, _) => 2,
            (false, [b'0', b'0', ..]) => 4,
            (false, [b'0', ..]) => 1,
            (false, _) => 0,
        };
        let tail = digits.len().min(7);
        let kept = kept.min(digits.len() - tail);
        let next = self.subscribers.len() + 1;
        let subscriber = *self
            .subscribers
            .entry(digits[digits.len() - tail..].to_owned())
            .or_insert(next);
        let mapped = if tail == 7 {
            format!("555{:04}", subscriber % 10_000)
        } else {
            let room = 10_usize.pow(u32::try_from(tail).unwrap_or(6));
            format!("{:0tail$}", subscriber % room)
        };
        let plus = if number.starts_with('+') { "+" } else { "" };
        let middle = "0".repeat(digits.len() - tail - kept);
        format!("{plus}{}{middle}{mapped}", &digits[..kept])
    }

    /// Every URI in a text.
    fn uris(&mut self, text: &str) -> String {
        let lower = text.to_ascii_lowercase();
        let mut shown = String::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let scheme = ["sips:", "sip:", "tel:"]
                .iter()
                .filter_map(|scheme| {
                    lower[at..]
                        .find(scheme)
                        .map(|found| (at + found, scheme.len()))
                })
                .min();
            let Some((found, length)) = scheme else { break };
            shown.push_str(&self.plain(&text[at..found]));
            shown.push_str(&text[found..found + length]);
            let rest = &text[found + length..];
            let end = rest.find(['>', '"', ' ', ',']).unwrap_or(rest.len());
            shown.push_str(&self.uri(
                &rest[..end],
                length == 4 && lower[found..].starts_with("tel"),
            ));
            at = found + length + end;
        }
        shown.push_str(&self.plain(&text[at.min(text.len())..]));
        shown
    }

    /// What stands behind the scheme; embedded headers and a password are left out.
    fn uri(&mut self, rest: &str, is_tel: bool) -> String {
        let rest = rest.split('?').next().unwrap_or_default();
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None if is_tel => (Some(rest), ""),
            None => (None, rest),
        };
        let (address, parameters) = host
            .split_once(';')
            .map_or((host, None), |(address, rest)| (address, Some(rest)));
        let (name, port) = match address.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|octet| octet.is_ascii_digit()) => {
                (name, Some(port))
            }
            Some(_) | None => (address, None),
        };
        let mut shown = String::new();
        if let Some(user) = user {
            let (user, of_user) = user
                .split_once(';')
                .map_or((user, None), |(user, rest)| (user, Some(rest)));
            let user = user.split(':').next().unwrap_or_default();
            shown.push_str(&self.user(user));
            if let Some(rest) = of_user {
                shown.push(';');
                shown.push_str(&blank_values(rest));
            }
            if !is_tel {
                shown.push('@');
            }
        }
        shown.push_str(&self.host(name));
        if let Some(port) = port {
            shown.push(':');
            shown.push_str(port);
        }
        if let Some(parameters) = parameters {
            shown.push(';');
            shown.push_str(&self.plain(parameters));
        }
        shown
    }

    fn address_header(&mut self, value: &str) -> String {
        let Some(angle) = value.find('<') else {
            return self.uris(value);
        };
        let name = value[..angle].trim();
        let rest = self.uris(&value[angle..]);
        if name.is_empty() {
            rest
        } else {
            format!("\"{}\" {rest}", self.user(name.trim_matches('"')))
        }
    }

    fn via(&mut self, value: &str) -> String {
        let elements: Vec<String> = value
            .split(',')
            .map(|element| {
                let element = element.trim();
                let (sent, parameters) = element
                    .split_once(';')
                    .map_or((element, None), |(sent, rest)| (sent, Some(rest)));
                let (protocol, by) = sent.trim().rsplit_once(' ').unwrap_or(("", sent));
                let by = self.uri(by.trim(), false);
                let parameters =
                    parameters.map_or_else(String::new, |rest| format!(";{}", self.plain(rest)));
                format!("{protocol} {by}{parameters}")
            })
            .collect();
        elements.join(", ")
    }

    fn call_id(&mut self, value: &str) -> String {
        let (id, rest) = value
            .split_once(';')
            .map_or((value, None), |(id, rest)| (id, Some(rest)));
        let number = self.call_ids.len() + 1;
        let id = self
            .call_ids
            .entry(id.trim().to_owned())
            .or_insert_with(|| format!("call-{number}@anonymous.invalid"))
            .clone();
        rest.map_or_else(|| id.clone(), |rest| format!("{id};{rest}"))
    }

    fn digest(&mut self, value: &str) -> String {
        let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
        let fields: Vec<String> = rest
            .split(',')
            .map(|field| {
                let (name, value) = field.trim().split_once('=').unwrap_or((field.trim(), ""));
                let inner = value.trim_matches('"');
                let shown = match name.trim().to_ascii_lowercase().as_str() {
                    "username" => format!("\"{}\"", self.user(inner)),
                    "realm" => format!("\"{}\"", self.host(inner)),
                    "uri" => format!("\"{}\"", self.uris(inner)),
                    "algorithm" | "qop" | "nc" | "stale" => value.to_owned(),
                    _ => format!("\"{}\"", "0".repeat(inner.len().min(64))),
                };
                format!("{name}={shown}")
            })
            .collect();
        format!("{scheme} {}", fields.join(", "))
    }

    fn warning(&mut self, value: &str) -> String {
        let mut words = value.splitn(3, ' ');
        let (code, agent, text) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        format!("{code} {} {}", self.uri(agent, false), self.digits(text))
    }

    /// Addresses in a text, and numbers of seven and more digits.
    fn digits(&mut self, text: &str) -> String {
        let text = self.plain(text);
        let mut shown = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(|char: char| char.is_ascii_digit() || char == '+') {
            shown.push_str(&rest[..at]);
            let run = rest[at..]
                .find(|char: char| !char.is_ascii_digit() && char != '+')
                .unwrap_or(rest.len() - at);
            let number = &rest[at..at + run];
            if run >= 7 {
                shown.push_str(&self.number(number));
            } else {
                shown.push_str(number);
            }
            rest = &rest[at + run..];
        }
        shown.push_str(rest);
        shown
    }

    /// Addresses in a text.
    fn plain(&mut self, text: &str) -> String {
        let is_part = |char: char| char.is_ascii_hexdigit() || char == '.' || char == ':';
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(is_part) {
            shown.push_str(&rest[..at]);
            let run = rest[at..]
                .find(|char| !is_part(char))
                .unwrap_or(rest.len() - at);
            shown.push_str(&self.run(&rest[at..at + run]));
            rest = &rest[at + run..];
        }
        shown.push_str(rest);
        shown
    }

    /// A run of digits, dots and colons: an address, one with a port, or neither.
    fn run(&mut self, run: &str) -> String {
        if let Ok(address) = run.parse::<IpAddr>() {
            return self.address(address).to_string();
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

    fn body(&mut self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        if !text.starts_with("v=0") {
            return if text.starts_with("SIP/2.0 ") || text.starts_with("Signal=") {
                text.into_owned()
            } else {
                blank(&text)
            };
        }
        let lines = text.lines().filter_map(|line| self.sdp_line(line));
        lines.fold(String::with_capacity(text.len()), |body, line| {
            body + &line + "\r\n"
        })
    }

    fn sdp_line(&mut self, line: &str) -> Option<String> {
        let (kind, value) = line.split_once('=').unwrap_or(("", line));
        match kind {
            "i" | "u" | "e" | "p" | "k" => None,
            "s" => Some("s=-".to_owned()),
            "o" | "c" => {
                let mut words: Vec<String> = value.split(' ').map(str::to_owned).collect();
                if let (Some(host), true) = (words.last_mut(), value.contains("IN IP")) {
                    *host = self.host(host);
                }
                if let ("o", Some(user)) = (kind, words.first_mut()) {
                    "-".clone_into(user);
                }
                Some(format!("{kind}={}", words.join(" ")))
            }
            "a" if [
                "crypto",
                "ice-",
                "fingerprint",
                "candidate",
                "key-mgmt",
                "setup-key",
            ]
            .iter()
            .any(|secret| value.starts_with(secret)) =>
            {
                let (name, rest) = value.split_once(':').unwrap_or((value, ""));
                Some(format!("a={name}:{}", blank(rest)))
            }
            _ => Some(format!("{kind}={}", self.plain(value))),
        }
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

/// Parameters keep their names.
fn blank_values(parameters: &str) -> String {
    let shown: Vec<String> = parameters
        .split(';')
        .map(|parameter| match parameter.split_once('=') {
            Some((name, value)) => format!("{name}={}", blank(value)),
            None => parameter.to_owned(),
        })
        .collect();
    shown.join(";")
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
            "192.0.2.1:5060, ::1, 2001:db8::2"
        );
        assert_eq!(shown("1.2.3"), "1.2.3");
    }

    #[test]
    fn a_number_keeps_its_form_and_stays_the_same_subscriber() {
        let mut anonymiser = Anonymiser::default();
        let numbers = [
            "+442071838750",
            "00442071838750",
            "02071838750",
            "+442071838751",
            "1006",
        ];
        let shown = numbers.map(|number| anonymiser.user(number));
        assert_eq!(
            shown,
            [
                "+440005550001",
                "00440005550001",
                "00005550001",
                "+440005550002",
                "0003"
            ]
        );
    }
}
