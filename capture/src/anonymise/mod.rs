//! Anonymisation of a call before it is shared. Addresses, host names, numbers, names, Call-IDs and credentials are replaced, each
//! consistently throughout a capture. The properties that decide routing stay: the form of a number (`+`, `00`, national), its country and
//! length, and whether an address is private. Unknown headers and parameters are blanked, since they could hold anything.
//!
//! `names` assigns the replacements, `shuffle` computes them without storing every value, `body` treats bodies, `treatment` says how each
//! header is treated, `phrases` knows the texts that stay.

mod body;
mod names;
mod phrases;
mod shuffle;
mod treatment;

use std::borrow::Cow;
use std::net::IpAddr;

use trunkline_sip::header::text::{cut_quoted, elements, find_outside};

use self::names::Names;
use self::phrases::is_impersonal_phrase;
use self::treatment::{Treatment, is_impersonal, is_in, treatment};
use super::flow::Call;
use super::message::Message;

/// Replaces private values, consistently over all calls.
#[derive(Debug, Default)]
pub struct Anonymiser {
    names: Names,
    /// Phrases that stay beside the standard ones.
    own: Vec<&'static str>,
}

impl Anonymiser {
    /// Creates an anonymiser that keeps these phrases and codes as well: those that the daemon itself writes and that name nobody.
    pub fn keeping(own: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            own: own.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Anonymises a call in place.
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
        // A wrong length stays wrong: it may be the fault for which the call is shared.
        let is_length_right = message.is_length_right();

        if message.status().is_none() {
            let (method, uri) = (message.method(), self.uri(&message.request_uri()));
            message.set_start_line(&format!("{method} {uri} SIP/2.0"));
        } else {
            let line = message.start_line().into_owned();
            let shown = self.status_line(&line);
            // Only if something changes, so that a line stays octet for octet as it was captured.
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

    /// Anonymises a status line such as `SIP/2.0 404 Not Found`. A server's own reason phrase may hold anything.
    fn status_line(&self, line: &str) -> String {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (version, status, phrase) = (word(), word(), word());
        format!("{version} {status} {}", self.phrase_or_blank(phrase))
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
            Treatment::Reason => each(Self::reason),
            Treatment::Program => self.plain(&without_hardware(value)),
            Treatment::Digest => self.digest(value),
            Treatment::Phrase => self.phrase_or_blank(value),
            Treatment::Blank => blank(value),
        }
    }

    /// Changes an expectation of a flow as its message is changed; `None` if that isn't possible.
    fn stated(&mut self, stated: String) -> Option<String> {
        let words: Vec<&str> = stated.splitn(4, ' ').collect();

        match words.as_slice() {
            ["header", name, "is", text] => {
                let text = self.value(treatment(name), text);
                Some(format!("header {name} is {text}"))
            }

            // A part of a value has no counterpart in what replaces the whole.
            ["header", name, "contains", text] => match treatment(name) {
                kind @ (Treatment::Protocol | Treatment::Program) => {
                    let text = self.value(kind, text);
                    Some(format!("header {name} contains {text}"))
                }
                Treatment::Address
                | Treatment::Via
                | Treatment::CallId
                | Treatment::Digest
                | Treatment::Warning
                | Treatment::Reason
                | Treatment::Phrase
                | Treatment::Blank => None,
            },

            ["optional"]
            | ["header", _]
            | ["no", "header", _]
            | ["status" | "method" | "within" | "wait", _] => Some(stated),
            _ => None,
        }
    }

    /// Anonymises a URI; drops embedded headers and a password.
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

    /// Anonymises a host, with its port if it has one.
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

    /// Anonymises the parameters behind a semicolon. Values of unknown ones are blanked, and the names of those without a value.
    fn parameters(&mut self, parameters: &str) -> String {
        let mut shown = Vec::new();
        let mut rest = Some(parameters);
        while let Some(text) = rest {
            let (parameter, behind) = cut_at(text, b';');
            rest = behind;
            let parameter = parameter.trim();
            shown.push(match parameter.split_once('=') {
                None if is_impersonal(parameter) => parameter.to_owned(),
                None => blank(parameter),
                Some((name, value)) => format!("{name}={}", self.parameter(name, value)),
            });
        }

        shown.join(";")
    }

    fn parameter(&mut self, name: &str, value: &str) -> String {
        let name = name.trim();
        if is_in(&["received", "maddr"], name) {
            self.place(value.trim())
        } else if is_impersonal(name) {
            self.plain(value)
        } else if is_in(&["text"], name) {
            self.quoted_phrase(value)
        } else {
            blank(value)
        }
    }

    /// Anonymises a value of Reason: a protocol, and its parameters (RFC 3326).
    fn reason(&mut self, value: &str) -> String {
        let (protocol, parameters) = cut_at(value, b';');
        let protocol = match protocol.trim() {
            known if is_in(&["SIP", "Q.850", "Preemption"], known) => known.to_owned(),
            other => blank(other),
        };
        match parameters {
            Some(parameters) => format!("{protocol};{}", self.parameters(parameters)),
            None => protocol,
        }
    }

    /// Anonymises one address of From, Contact, …: a name, a URI with or without brackets, parameters.
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
            // Without brackets, parameters belong to the header (RFC 3261 §20.10).
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
            // Nonce, cnonce and response together would allow guessing the password offline.
            _ => format!("\"{}\"", "0".repeat(inner.len().min(64))),
        };
        format!("{name}={shown}")
    }

    fn warning(&mut self, value: &str) -> String {
        let mut words = value.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (code, agent, text) = (word(), word(), word());
        format!("{code} {} {}", self.place(agent), self.quoted_phrase(text))
    }

    /// Returns a phrase that names nobody as it is, any other blanked.
    fn phrase_or_blank(&self, text: &str) -> String {
        match is_impersonal_phrase(text, &self.own) {
            true => text.to_owned(),
            false => blank(text),
        }
    }

    /// As [`Self::phrase_or_blank`], with or without quotes.
    fn quoted_phrase(&self, text: &str) -> String {
        let text = text.trim();
        let inner = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        match inner {
            Some(inner) => format!("\"{}\"", self.phrase_or_blank(inner)),
            None => self.phrase_or_blank(text),
        }
    }

    /// Replaces the addresses in a text.
    fn plain(&mut self, text: &str) -> String {
        let is_part = |char: char| char.is_ascii_hexdigit() || char == '.' || char == ':';
        with_runs(text, is_part, |run| self.run(run).into())
    }

    /// Replaces a run of digits, dots and colons that is an address, with or without a port.
    fn run(&mut self, run: &str) -> String {
        if let Ok(address) = run.parse::<IpAddr>() {
            return self.names.address(address).to_string();
        }

        if let Some((head, tail)) = run.split_once(':')
            && !tail.contains(':')
        {
            return format!("{}:{}", self.run(head), self.run(tail));
        }

        // Digits of another token, such as a branch, may touch an address, so it is searched for within the run. A longer run is blanked.
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

/// Splits at a separator outside of quotes.
fn cut_at(text: &str, separator: u8) -> (&str, Option<&str>) {
    match find_outside(text.as_bytes(), separator) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Replaces letters by `x` and digits by `0`, so that the shape stays.
fn blank(text: &str) -> String {
    text.chars()
        .map(|char| match char {
            char if char.is_ascii_digit() => '0',
            char if char.is_alphanumeric() => 'x',
            char => char,
        })
        .collect()
}

/// Returns the text with each run of such characters changed.
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

/// Blanks words with as many hexadecimal digits as a MAC address.
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
mod tests;
