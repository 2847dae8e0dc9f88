//! A printed message in fewer octets (RFC 3261 §7.3.3): compact header names and no optional blanks. The start line and the
//! body stay as they are, and so does the meaning.

use super::HeaderName;

/// Most octets of a request by UDP if the path's MTU isn't known (RFC 3261 §18.1.1).
pub const LARGEST_DATAGRAM: usize = 1_300;

/// Appends `message`, in the form that the printer makes, to `out`.
pub fn compact(message: &[u8], out: &mut Vec<u8>) {
    write(message, out, says_nothing);
}

/// [`compact`] for an answer to a small request from an unverified source: also leaves out Server, Allow, Accept and Supported,
/// but not the Allow of a 405 and the Accept of a 415, which must be there (RFC 3261 §21.4.6, §21.4.13).
pub fn compact_answer(message: &[u8], out: &mut Vec<u8>) {
    const NICETIES: [&[u8]; 4] = [b"Server: ", b"Allow: ", b"Accept: ", b"Supported: "];
    let needed: Option<&[u8]> = match message.get(b"SIP/2.0 ".len()..).unwrap_or_default() {
        [b'4', b'0', b'5', ..] => Some(b"Allow: "),
        [b'4', b'1', b'5', ..] => Some(b"Accept: "),
        _ => None,
    };
    write(message, out, |line| {
        let is_needed = needed.is_some_and(|name| line.starts_with(name));
        !is_needed && NICETIES.iter().any(|name| line.starts_with(name))
    });
}

/// [`compact_answer`] for a challenge that is still too large: without the reason phrase (RFC 3261 §7.2), with the first challenge alone, and
/// without the algorithm where that is the default, MD5 (RFC 7616 §3.3).
pub fn compact_challenge(message: &[u8], out: &mut Vec<u8>) {
    const CHALLENGE: &[u8] = b"WWW-Authenticate:";
    const DEFAULT: &[u8] = b", algorithm=MD5";

    let mut shorter = Vec::with_capacity(message.len());
    let mut has_challenge = false;
    for (at, line) in message.split_inclusive(|octet| *octet == b'\n').enumerate() {
        if at == 0 {
            // "SIP/2.0 401 " stays, its blank included.
            shorter.extend_from_slice(line.get(..12).unwrap_or(line));
            shorter.extend_from_slice(b"\r\n");
        } else if !line.starts_with(CHALLENGE) {
            shorter.extend_from_slice(line);
        } else if !std::mem::replace(&mut has_challenge, true) {
            // The last one: a realm may hold the same text.
            let default = memchr::memmem::rfind(line, DEFAULT);
            // "MD5-sess" begins with it too.
            let default = default.filter(|at| line.get(at + DEFAULT.len()) == Some(&b','));
            let (before, behind) = match default {
                Some(at) => (&line[..at], &line[at + DEFAULT.len()..]),
                None => (line, &b""[..]),
            };
            for part in [before, behind] {
                extend_without_blanks(&mut shorter, part);
            }
        }
    }
    compact_answer(&shorter, out);
}

/// Appends parameters without the blanks between them. A realm may hold a comma, and so a blank behind one counts only behind a quote or a token.
fn extend_without_blanks(out: &mut Vec<u8>, parameters: &[u8]) {
    let mut is_quoted = false;
    for (at, octet) in parameters.iter().enumerate() {
        is_quoted ^= *octet == b'"' && !parameters[..at].ends_with(b"\\");
        let is_between = *octet == b' ' && !is_quoted && parameters[..at].ends_with(b",");
        if !is_between {
            out.push(*octet);
        }
    }
}

fn write(message: &[u8], out: &mut Vec<u8>, is_left_out: impl Fn(&[u8]) -> bool) {
    let line_end = memchr::memmem::Finder::new(b"\r\n");
    let mut rest = message;
    let mut is_start = true;
    while let Some(end) = line_end.find(rest) {
        let (line, behind) = rest.split_at(end);
        rest = &behind[2..];
        if line.is_empty() {
            out.extend_from_slice(b"\r\n");
            break;
        }
        match std::mem::take(&mut is_start) {
            true => out.extend_from_slice(line),
            false if is_left_out(line) => continue,
            false => header(line, out),
        }
        out.extend_from_slice(b"\r\n");
    }

    out.extend_from_slice(rest);
}

/// Returns true for a line that states the default: the smallest session interval (RFC 4028 §5).
fn says_nothing(line: &[u8]) -> bool {
    line == b"Min-SE: 90"
}

fn header(line: &[u8], out: &mut Vec<u8>) {
    let Some(colon) = memchr::memchr(b':', line) else {
        return out.extend_from_slice(line);
    };

    let (written, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let name = HeaderName::from_bytes(written);
    match name.letter() {
        Some(letter) => out.push(letter),
        None => out.extend_from_slice(written),
    }
    out.push(b':');

    let is_list_of_tokens = matches!(
        name,
        HeaderName::Allow | HeaderName::Supported | HeaderName::Require | HeaderName::AllowEvents
    );
    // In any other value a blank may carry meaning, inside a quoted string for instance.
    if is_list_of_tokens {
        out.extend(value.iter().filter(|octet| **octet != b' '));
    } else {
        out.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Framing, lex};

    #[test]
    fn a_compact_request_says_the_same_in_fewer_octets() {
        let printed = b"INVITE sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1;rport\r\nMax-Forwards: 70\r\n\
            From: \"A: B\" <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nContact: <sip:a@h>\r\n\
            Allow: INVITE, ACK, BYE\r\nSupported: timer, 100rel\r\nSession-Expires: 1800\r\nMin-SE: 90\r\n\
            X-Long-Name: one, two: three\r\nContent-Type: text/plain\r\nContent-Length: 17\r\n\r\nTo: you\r\n\r\nTo: me";
        let mut out = b"before".to_vec();
        compact(printed, &mut out);
        let shorter = &out[b"before".len()..];
        let expected = "INVITE sip:a@b SIP/2.0\r\nv:SIP/2.0/UDP h;branch=z9hG4bK1;rport\r\nMax-Forwards:70\r\n\
            f:\"A: B\" <sip:a@b>;tag=1\r\nt:<sip:c@d>\r\ni:x\r\nCSeq:1 INVITE\r\nm:<sip:a@h>\r\n\
            Allow:INVITE,ACK,BYE\r\nk:timer,100rel\r\nx:1800\r\n\
            X-Long-Name:one, two: three\r\nc:text/plain\r\nl:17\r\n\r\nTo: you\r\n\r\nTo: me";
        assert_eq!(String::from_utf8_lossy(shorter), expected);

        let (long, short) = (
            lex(printed, Framing::Datagram),
            lex(shorter, Framing::Datagram),
        );
        let (long, short) = (long.expect("a request"), short.expect("a request"));
        for name in [
            HeaderName::From,
            HeaderName::To,
            HeaderName::CallId,
            HeaderName::Contact,
            HeaderName::SessionExpires,
            HeaderName::ContentType,
        ] {
            assert_eq!(long.first(name), short.first(name), "{name:?}");
        }
        assert_eq!(long.body(), short.body());
        assert_eq!(long.top_via(), short.top_via());
    }

    #[test]
    fn a_compact_challenge_can_be_answered_as_before() {
        let printed = b"SIP/2.0 401 Unauthorized\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:a@b>;tag=2\r\n\
            Call-ID: x\r\nCSeq: 1 REGISTER\r\n\
            WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", algorithm=MD5, qop=\"auth\"\r\n\
            WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", algorithm=SHA-256, qop=\"auth\"\r\nContent-Length: 0\r\n\r\n";
        let mut out = Vec::new();
        compact_challenge(printed, &mut out);
        let expected = "SIP/2.0 401 \r\nv:SIP/2.0/UDP h;branch=z9hG4bK1\r\nf:<sip:a@b>;tag=1\r\nt:<sip:a@b>;tag=2\r\ni:x\r\nCSeq:1 REGISTER\r\n\
            WWW-Authenticate:Digest realm=\"r\",nonce=\"n\",qop=\"auth\"\r\nl:0\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        assert_eq!(
            lex(&out, Framing::Datagram).expect("an answer").status(),
            401
        );
    }

    #[test]
    fn a_compact_answer_keeps_what_its_status_requires() {
        for (status, kept) in [
            ("405 Method Not Allowed", "Allow:INVITE\r\n"),
            ("415 Unsupported Media Type", "Accept:application/sdp\r\n"),
            ("488 Not Acceptable Here", ""),
        ] {
            let printed = format!(
                "SIP/2.0 {status}\r\nServer: S\r\nAllow: INVITE\r\nAccept: application/sdp\r\nSupported: timer\r\n\r\n"
            );
            let mut out = Vec::new();
            compact_answer(printed.as_bytes(), &mut out);
            let expected = format!("SIP/2.0 {status}\r\n{kept}\r\n");
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
