//! Scan of a message on its way into a trace: finds its key and its class, and strikes out credentials in place.

use trunkline_sip::header::text;

/// Replacement for each octet of a credential.
const STRUCK: u8 = b'x';
/// Header parameters that prove an identity.
pub(super) const PROOFS: [&[u8]; 6] = [
    b"response",
    b"nonce",
    b"cnonce",
    b"opaque",
    b"nextnonce",
    b"rspauth",
];

/// Result of the scan.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ScannedMessage {
    /// Hash of the Call-ID, the same in every process; the hash of nothing if there is none.
    pub(super) key: u64,
    /// True for a sent message that belongs to a call. False for one that any peer may get, and for each received message.
    pub(super) is_call: bool,
}

/// Key of a Call-ID: FNV-1a, a filter before the comparison itself.
pub(super) fn key(call_id: &[u8]) -> u64 {
    call_id.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Treatment of a header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Meaning {
    CallId,
    CSeq,
    /// Parameters behind a scheme that prove an identity are struck out.
    Proofs,
    /// The same without a scheme (Authentication-Info).
    BareProofs,
    /// The whole value is struck out.
    Token,
}

impl Meaning {
    /// Returns the treatment by the name of the header; for most names their length alone rules it out.
    fn of(name: &[u8]) -> Option<Self> {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match name.len() {
            1 if is(b"i") => Some(Self::CallId),
            4 if is(b"cseq") => Some(Self::CSeq),
            7 if is(b"call-id") => Some(Self::CallId),
            13 if is(b"authorization") => Some(Self::Proofs),
            16 if is(b"www-authenticate") => Some(Self::Proofs),
            18 if is(b"proxy-authenticate") => Some(Self::Proofs),
            19 if is(b"proxy-authorization") => Some(Self::Proofs),
            19 if is(b"authentication-info") => Some(Self::BareProofs),
            _ if is_secret(name) => Some(Self::Token),
            _ => None,
        }
    }
}

/// Returns true for a header whose whole value is secret: the session token and the proof that joins two calls, whose names begin with the
/// operator's prefix, and the secrets of a runtime, known by how their names end (`X-API-Key`, `Cookie`).
pub(super) fn is_secret(name: &[u8]) -> bool {
    let ends_in = |end: &[u8]| {
        let begins_at = name.len().checked_sub(end.len());
        begins_at.is_some_and(|at| name[at..].eq_ignore_ascii_case(end))
    };
    const ENDS: [&[u8]; 6] = [
        b"-token",
        b"-join",
        b"-key",
        b"-secret",
        b"-password",
        b"cookie",
    ];
    ENDS.into_iter().any(ends_in)
}

/// Strikes credentials out of a message in place. Returns its key and its class.
pub(super) fn strike_out(octets: &mut [u8], is_sent: bool) -> ScannedMessage {
    let mut call_id = 0..0;
    let mut cseq = 0..0;
    // A bare line feed ends a line as well: what a lenient reader takes for a header must not keep its credentials.
    let mut at = memchr::memchr(b'\n', octets).map_or(octets.len(), |end| end + 1);
    let first = at;

    while at < octets.len() {
        let end = end_of_header(octets, at);
        let line = &mut octets[at..end];
        if is_blank(line) {
            at = end;
            break;
        }

        if let Some(colon) = line.iter().position(|octet| *octet == b':')
            && let Some(meaning) = Meaning::of(line[..colon].trim_ascii_end())
        {
            let value = trimmed(line, colon + 1);
            match meaning {
                Meaning::CallId => call_id = at + value.start..at + value.end,
                Meaning::CSeq => cseq = at + value.start..at + value.end,
                Meaning::Proofs => strike_proofs(&mut line[value]),
                Meaning::BareProofs => strike_parameters(&mut line[value]),
                Meaning::Token => line[value].fill(STRUCK),
            }
        }

        at = end;
    }

    let (head, body) = octets.split_at_mut(at);
    strike_passwords(head);
    strike_keys(body);

    ScannedMessage {
        key: key(&octets[call_id]),
        is_call: is_sent && is_of_call(&octets[..first], &octets[cseq]),
    }
}

/// Returns the Call-ID.
pub(super) fn call_id(octets: &[u8]) -> &[u8] {
    header(octets, &[b"call-id", b"i"]).unwrap_or_default()
}

/// Returns the value of the first header with one of these names.
pub(super) fn header<'a>(octets: &'a [u8], names: &[&[u8]]) -> Option<&'a [u8]> {
    let mut at = memchr::memchr(b'\n', octets).map_or(octets.len(), |end| end + 1);
    while at < octets.len() {
        let end = end_of_header(octets, at);
        let line = octets[at..end].trim_ascii_end();
        if line.is_empty() {
            break;
        }
        if let Some(value) = value_of(line, names) {
            return Some(&line[value]);
        }
        at = end;
    }
    None
}

/// Returns true if the line, with those that continue it, is empty.
fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Returns the end of the header that begins here, including continuation lines.
fn end_of_header(octets: &[u8], at: usize) -> usize {
    let mut end = at;
    loop {
        end = memchr::memchr(b'\n', &octets[end..]).map_or(octets.len(), |line| end + line + 1);
        let goes_on = matches!(octets.get(end), Some(b' ' | b'\t'));
        // A blank line ends the head, also if the body begins with a blank, which would continue a header.
        if !goes_on || is_blank(&octets[at..end]) {
            return end;
        }
    }
}

/// Returns the range of a header's value, if it has one of these names.
fn value_of(line: &[u8], names: &[&[u8]]) -> Option<std::ops::Range<usize>> {
    names.iter().find_map(|name| {
        let (head, rest) = line.split_at_checked(name.len())?;
        if !head.eq_ignore_ascii_case(name) {
            return None;
        }
        let blank = rest.len() - rest.trim_ascii_start().len();
        (rest.get(blank) == Some(&b':')).then(|| trimmed(line, name.len() + blank + 1))
    })
}

fn trimmed(line: &[u8], from: usize) -> std::ops::Range<usize> {
    let value = &line[from..];
    let start = from + value.len() - value.trim_ascii_start().len();
    start..(start + value.trim_ascii().len())
}

/// Strikes out the proofs in `Digest …`; of any other scheme, everything.
fn strike_proofs(value: &mut [u8]) {
    const DIGEST: &[u8] = b"digest";
    if !value
        .get(..DIGEST.len())
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case(DIGEST))
    {
        // `Basic` and `Bearer` carry the secret itself.
        let credentials = memchr::memchr(b' ', value).map_or(0, |space| space + 1);
        return value[credentials..].fill(STRUCK);
    }
    strike_parameters(&mut value[DIGEST.len()..]);
}

/// Strikes out the proofs among a header's parameters. A name inside the quotes of another value counts as well: readers differ on where a string
/// with `\"` ends, and what is struck out beyond the proofs is no loss.
fn strike_parameters(value: &mut [u8]) {
    let mut at = 0;
    while let Some(equals) = memchr::memchr(b'=', &value[at..]) {
        let name = value[at..at + equals].trim_ascii_end();
        let start = name
            .iter()
            .rposition(|octet| matches!(octet, b',' | b';' | b'"' | b' ' | b'\t' | b'\r' | b'\n'))
            .map_or(0, |before| before + 1);
        let is_proof = PROOFS
            .iter()
            .any(|proof| name[start..].eq_ignore_ascii_case(proof));

        at += equals + 1;
        if !is_proof {
            continue;
        }

        at += value[at..].len() - value[at..].trim_ascii_start().len();
        let struck = match text::cut_quoted(&value[at..]) {
            Some((inner, _)) => at + 1..at + 1 + inner.len(),
            // The quote is never closed.
            None if value.get(at) == Some(&b'"') => at + 1..value.len(),
            None => at..memchr::memchr(b',', &value[at..]).map_or(value.len(), |end| at + end),
        };

        at = struck.end;
        value[struck].fill(STRUCK);
    }
}

/// Strikes out the passwords of URIs in the start line and the headers (RFC 3261 §19.1.1: `sip:user:password@host`).
fn strike_passwords(head: &mut [u8]) {
    let mut from = 0;
    while let Some(found) = memchr::memchr(b'@', &head[from..]) {
        let end = from + found;
        let is_before = |octet: &u8| {
            matches!(
                octet,
                b'<' | b'>' | b',' | b'"' | b' ' | b'\t' | b'\r' | b'\n'
            )
        };
        let start = head[from..end].iter().rposition(is_before);
        // The search went back to the last `@` at most, so no octet is looked at twice.
        let uri = start.map_or(from, |before| from + before + 1);

        if let Some(user) = user_part(&head[uri..end])
            && let Some(colon) = memchr::memchr(b':', &head[uri + user..end])
        {
            head[uri + user + colon + 1..end].fill(STRUCK);
        }
        from = end + 1;
    }
}

/// Returns the start of the user part in a text that begins with a SIP URI, or with a header's name, a colon and a SIP URI: a blank behind the
/// colon is optional (RFC 3261 §7.3.1).
fn user_part(text: &[u8]) -> Option<usize> {
    let behind_name = memchr::memchr(b':', text).map(|colon| colon + 1);
    [Some(0), behind_name].into_iter().flatten().find_map(|at| {
        [&b"sip:"[..], b"sips:"].into_iter().find_map(|scheme| {
            let named = text[at..].get(..scheme.len())?;
            named
                .eq_ignore_ascii_case(scheme)
                .then_some(at + scheme.len())
        })
    })
}

/// Strikes out keys of media in SDP: those of SDES, ICE, MIKEY and `k=`. Names are compared without regard to case, as lenient peers do.
fn strike_keys(body: &mut [u8]) {
    let mut rest = body;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let (line, next) = rest.split_at_mut(end);
        if matches!(line, [b'a' | b'A' | b'k' | b'K', b'=', ..]) {
            strike_line(line);
        }
        rest = next;
    }
}

fn strike_line(line: &mut [u8]) {
    const WHOLE: [&[u8]; 3] = [b"k=", b"a=ice-pwd:", b"a=key-mgmt:"];
    const INLINE: &[u8] = b"inline:";

    let length = line.trim_ascii_end().len();
    let line = &mut line[..length];
    let is = |name: &&&[u8]| {
        line.get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    if let Some(name) = WHOLE.iter().find(is) {
        return line[name.len()..].fill(STRUCK);
    }

    // A line may offer several keys, each with its parameters behind a bar (RFC 4568 §6.1).
    let mut from = 0;
    while let Some(found) = line[from..]
        .windows(INLINE.len())
        .position(|name| name.eq_ignore_ascii_case(INLINE))
    {
        let start = from + found + INLINE.len();
        let key = line[start..]
            .iter()
            .position(|octet| matches!(octet, b'|' | b';' | b' '));
        let end = key.map_or(line.len(), |key| start + key);
        line[start..end].fill(STRUCK);
        from = end;
    }
}

/// Returns true if a sent message belongs to a call: a request other than OPTIONS and REGISTER, or a response that only authenticated peers get.
fn is_of_call(first: &[u8], cseq: &[u8]) -> bool {
    let Some(status) = first.strip_prefix(b"SIP/2.0 ") else {
        // An OPTIONS inside a call needs no mark: its Call-ID is known as the call's by then.
        return !first.starts_with(b"OPTIONS ") && !first.starts_with(b"REGISTER ");
    };
    if cseq.ends_with(b"OPTIONS") || cseq.ends_with(b"REGISTER") {
        return false;
    }
    match status {
        [b'1' | b'2', ..] => true,
        // Responses that any peer may get.
        [b'4', b'0', b'0' | b'1' | b'3' | b'5' | b'7', ..]
        | [b'4', b'1' | b'2', ..]
        | [b'4', b'8', b'1' | b'2' | b'3', ..]
        | [b'5', ..] => false,
        _ => cseq.ends_with(b"INVITE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str, is_sent: bool) -> (String, ScannedMessage) {
        let mut octets = text.as_bytes().to_vec();
        let seen = strike_out(&mut octets, is_sent);
        (String::from_utf8(octets).unwrap(), seen)
    }

    #[test]
    fn no_credential_is_kept() {
        let (shown, _) = scanned(
            "INVITE sip:a SIP/2.0\r\nAuthorization: Digest username=\"u\",\r\n  realm=\"r\", nonce=\"n1\", Response = \"r1\",cnonce=c1, qop=auth\r\n\
             Proxy-Authorization: Basic dTpw\r\nX-PLATFORM-SESSION-TOKEN: t1\r\nAcme-Session-Token : t2\r\nX-PLATFORM-JOIN: t3\r\nWWW-Authenticate:Digest nonce=\"n2\r\n\
             i: one@two\r\n\r\nv=0\r\na=crypto:1 X inline:k1|2\r\na=ice-pwd:p1\r\na=crypto:2 X inline:k2",
            false,
        );
        for gone in [
            "n1", "r1", "c1", "dTpw", ": t1", ": t2", ": t3", "n2", "k1", "p1", "k2",
        ] {
            assert!(!shown.contains(gone), "{gone} in {shown}");
        }
        for kept in [
            "username=\"u\"",
            "realm=\"r\"",
            "qop=auth",
            "|2\r\n",
            "i: one@two",
            "Basic x",
        ] {
            assert!(shown.contains(kept), "{kept} not in {shown}");
        }
    }

    #[test]
    fn no_key_or_password_is_kept_in_any_writing() {
        let (shown, _) = scanned(
            "INVITE sip:a:pw1@b SIP/2.0\r\nFrom: \"x:y@z\" <SIPS:u:pw2@c>;tag=1\r\nContact: <sip:u@d:5060>, <sip:v:pw3@e>\r\nCall-ID: a:b@c\r\n\
             Authentication-Info: nextnonce=\"n1\", qop=auth, rspauth=r1\r\nX-API-Key: k0\r\nCookie: k00\r\n\r\n\
             v=0\r\nk=clear:k1\r\na=crypto:1 X INLINE:k2|2^31;inline:k3|x\r\na=ICE-PWD:k4\r\na=key-mgmt:mikey k5\r\ns=a=ice-pwd:kept",
            false,
        );
        for gone in [
            "pw1", "pw2", "pw3", "n1", "r1", "k0", "k1", "k2", "k3", "k4", "k5",
        ] {
            assert!(!shown.contains(gone), "{gone} in {shown}");
        }
        for kept in [
            "sip:a:xxx@b",
            "x:y@z",
            "<sip:u@d:5060>",
            "Call-ID: a:b@c",
            "qop=auth",
            "|2^31;",
            "ice-pwd:kept",
        ] {
            assert!(shown.contains(kept), "{kept} not in {shown}");
        }
    }

    #[test]
    fn a_password_right_behind_a_headers_name_is_struck_out() {
        let (shown, _) = scanned(
            "INVITE sip:a SIP/2.0\r\nFrom:sip:u:pw1@b;tag=1\r\nm:SIPS:v:pw2@c\r\nContact:sip:w@d\r\nCall-ID:a:b@c\r\n\r\n",
            false,
        );
        for kept in [
            "From:sip:u:xxx@b;tag=1",
            "m:SIPS:v:xxx@c",
            "Contact:sip:w@d",
            "Call-ID:a:b@c",
        ] {
            assert!(shown.contains(kept), "{kept} not in {shown}");
        }
    }

    #[test]
    fn an_escaped_quote_hides_no_proof() {
        for proofs in [
            r#"realm="a\"b=", response="p1", nonce="p2""#,
            r#"username="a\"=", nonce="b\"p1", response="p2""#,
        ] {
            let message = format!("BYE sip:a SIP/2.0\r\nAuthorization: Digest {proofs}\r\n\r\n");
            let (shown, _) = scanned(&message, false);
            assert!(!shown.contains("p1") && !shown.contains("p2"), "{shown}");
        }
    }

    #[test]
    fn nothing_else_is_changed() {
        let message = "BYE sip:a SIP/2.0\r\nSubject :  x\r\nX-Tok: y\r\nCall-ID: c\r\n\r\nbody";
        let (shown, seen) = scanned(message, false);
        assert_eq!(shown, message);
        assert_eq!(seen.key, key(b"c"));
        assert_eq!(call_id(message.as_bytes()), b"c");
        for cut in 0..message.len() {
            strike_out(&mut message.as_bytes()[..cut].to_vec(), true);
        }
    }

    #[test]
    fn admitted_peers_are_distinguished_from_unauthenticated_ones() {
        let answer = |status: u32, method: &str| {
            scanned(
                &format!("SIP/2.0 {status} X\r\nCSeq: 1 {method}\r\n\r\n"),
                true,
            )
            .1
            .is_call
        };
        assert!(answer(100, "INVITE") && answer(200, "BYE") && answer(486, "INVITE"));
        assert!(!answer(401, "INVITE") && !answer(481, "BYE") && !answer(200, "OPTIONS"));
        assert!(scanned("BYE sip:a SIP/2.0\r\n\r\n", true).1.is_call);
        assert!(!scanned("BYE sip:a SIP/2.0\r\n\r\n", false).1.is_call);
    }
}
