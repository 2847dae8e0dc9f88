//! Messages with credentials hidden, and in a few words.

use std::fmt::Write as _;

use trunkline_sip::wire::{Framing, lex};

use trunkline_capture::message::Message;

use super::scan::{PROOFS, is_secret};

/// Replacement of a credential.
const HIDDEN: &str = "[hidden]";

/// Hides the credentials of a message: digest answers, session tokens, keys of media.
pub fn masked(octets: &[u8]) -> Vec<u8> {
    let mut message = Message::parse(octets);
    let is_length_right = message.is_length_right();
    for line in message.lines_mut() {
        let name = line.name().to_ascii_lowercase();
        let value = line.value();
        let shown = match name.as_str() {
            "authorization" | "proxy-authorization" | "www-authenticate" | "proxy-authenticate" => {
                without_proofs(&value)
            }
            _ if is_secret(name.as_bytes()) => HIDDEN.to_owned(),
            _ => continue,
        };
        line.set(&shown);
    }

    if memchr::memmem::find(&message.body, b"inline:").is_some()
        || memchr::memmem::find(&message.body, b"a=ice-pwd:").is_some()
    {
        message.body = without_keys(&message.body);
        // A wrong Content-Length stays: it may be the fault that the reader looks for.
        if is_length_right {
            message.set("Content-Length", &message.body.len().to_string());
        }
    }

    message.to_octets()
}

fn without_proofs(value: &str) -> String {
    let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("Digest") {
        return format!("{scheme} {HIDDEN}");
    }

    let fields = rest.split(',').map(|field| {
        let (name, _) = field.trim().split_once('=').unwrap_or((field.trim(), ""));
        if PROOFS
            .iter()
            .any(|proof| proof.eq_ignore_ascii_case(name.as_bytes()))
        {
            format!("{name}=\"{HIDDEN}\"")
        } else {
            field.trim().to_owned()
        }
    });

    format!("{scheme} {}", fields.collect::<Vec<_>>().join(", "))
}

fn without_keys(body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(body);
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let end = if line.ends_with("\r\n") { "\r\n" } else { "" };
        match line.split_once("inline:") {
            Some((before, _)) => {
                let _ = write!(shown, "{before}inline:{HIDDEN}{end}");
            }
            None if line.starts_with("a=ice-pwd:") => {
                let _ = write!(shown, "a=ice-pwd:{HIDDEN}{end}");
            }
            None => shown.push_str(line),
        }
    }
    shown.into_bytes()
}

/// Describes a message in a few words.
pub fn label(message: &Message) -> String {
    match message.status() {
        Some(_) => {
            let line = message.start_line();
            let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
            format!("{rest} ({})", message.method())
        }
        None => message.method(),
    }
}

/// Describes a message of a trace, with the line of it that can't be read, if there is one.
pub fn summary(octets: &[u8], is_sent: bool) -> String {
    let label = label(&Message::parse(octets));
    if is_sent {
        return label;
    }
    match lex(octets, Framing::Datagram) {
        Err(malformed) => format!("{label}: can't be read, {malformed}"),
        Ok(message) => match message.skipped_lines() {
            Some(skipped) => format!(
                "{label}: line {} is no header and was ignored",
                skipped.first
            ),
            None => label,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let octets = |line: &str| {
            format!(
                "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
                 Call-ID: x\r\nCSeq: 1 INVITE\r\n{line}\r\nContent-Length: 0\r\n\r\n"
            )
        };
        for (name, line, is_sent, shown) in [
            ("a header", "X-A: b", false, "200 OK (INVITE)"),
            (
                "a line that is none",
                "stray",
                false,
                "200 OK (INVITE): line 7 is no header and was ignored",
            ),
            (
                "a second To",
                "To: <sip:e@f>",
                false,
                "200 OK (INVITE): can't be read, line 7: To occurs twice",
            ),
            ("one of ours", "stray", true, "200 OK (INVITE)"),
        ] {
            assert_eq!(summary(octets(line).as_bytes(), is_sent), shown, "{name}");
        }
    }

    #[test]
    fn no_credential_is_shown() {
        let message = b"INVITE sip:a SIP/2.0\r\nAuthorization: Digest username=\"u\", realm=\"r\", nonce=\"n1\", response=\"r1\", cnonce=\"c1\"\r\n\
            Proxy-Authorization: Basic dTpw\r\nX-PLATFORM-SESSION-TOKEN: t1\r\nX-PLATFORM-JOIN: t3\r\nContent-Length: 41\r\n\r\n\
            v=0\r\na=crypto:1 X inline:k1\r\na=ice-pwd:p1\r\n";
        let shown = String::from_utf8(masked(message)).unwrap();
        for gone in ["n1", "r1", "c1", "dTpw", ": t1", ": t3", "k1", "p1"] {
            assert!(!shown.contains(gone), "{gone} in {shown}");
        }
        assert!(shown.contains("username=\"u\", realm=\"r\""), "{shown}");
        let untouched = b"BYE sip:a SIP/2.0\r\nSubject :  x\r\n\r\n";
        assert_eq!(masked(untouched), untouched);
    }
}
