//! Scan of a message on its way into a trace: finds its key and its class, and strikes out credentials in place.

use std::ops::Range;

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

/// Method that a message is about, as far as it matters to whose it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Invite,
    Ack,
    Cancel,
    Other,
}

impl Method {
    fn of(name: &[u8]) -> Self {
        match name {
            b"INVITE" => Self::Invite,
            b"ACK" => Self::Ack,
            b"CANCEL" => Self::Cancel,
            _ => Self::Other,
        }
    }
}

/// Parts of a message that tell its dialog and its transaction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen<'a> {
    pub(super) is_request: bool,
    /// Method of the request, or of the request that is answered.
    pub(super) method: Method,
    /// Request-URI; empty for a response.
    pub(super) request_uri: &'a [u8],
    /// Empty if there is none.
    pub(super) call_id: &'a [u8],
    pub(super) from_tag: Option<&'a [u8]>,
    pub(super) to_tag: Option<&'a [u8]>,
    /// The top Via, with those behind it on its line; empty if there is none.
    via: &'a [u8],
}

impl<'a> Seen<'a> {
    /// Reads a message.
    pub(super) fn of(octets: &'a [u8]) -> Self {
        let mut places = HeaderPositions::begin(octets);
        while let Some((meaning, value)) = places.next_header(octets) {
            places.note(meaning, value);
        }
        places.read(octets)
    }

    /// Returns protocol, transport and sent-by of the top Via; empty if there is none.
    pub(super) fn sent_by(&self) -> &'a [u8] {
        let end = memchr::memchr2(b';', b',', self.via).unwrap_or(self.via.len());
        self.via[..end].trim_ascii()
    }

    /// Returns the branch of the top Via; empty if there is none.
    pub(super) fn branch(&self) -> &'a [u8] {
        parameter(self.via, b"branch", Ends::AtComma).unwrap_or_default()
    }
}

/// HeaderPositions of a message's identifying headers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct HeaderPositions {
    /// End of the start line.
    first: usize,
    /// Start of the next header; at the end, of the body.
    at: usize,
    is_over: bool,
    call_id: Range<usize>,
    cseq: Range<usize>,
    from: Range<usize>,
    to: Range<usize>,
    via: Range<usize>,
}

impl HeaderPositions {
    fn begin(octets: &[u8]) -> Self {
        // A bare line feed ends a line as well: what a lenient reader takes for a header must not keep its credentials.
        let first = memchr::memchr(b'\n', octets).map_or(octets.len(), |end| end + 1);
        Self {
            first,
            at: first,
            ..Self::default()
        }
    }

    /// Returns the next header with a meaning, and the place of its value; `None` behind the last.
    fn next_header(&mut self, octets: &[u8]) -> Option<(Meaning, Range<usize>)> {
        while !self.is_over && self.at < octets.len() {
            let start = self.at;
            let end = end_of_header(octets, start);
            self.at = end;
            let line = &octets[start..end];
            if is_blank(line) {
                break;
            }
            // Names are short: a loop finds their end sooner than `memchr`.
            if let Some(colon) = line.iter().position(|octet| *octet == b':')
                && let Some(meaning) = Meaning::of(line[..colon].trim_ascii_end())
            {
                let value = trimmed(line, colon + 1);
                return Some((meaning, start + value.start..start + value.end));
            }
        }
        self.is_over = true;
        None
    }

    fn note(&mut self, meaning: Meaning, value: Range<usize>) {
        let place = match meaning {
            Meaning::CallId => &mut self.call_id,
            Meaning::CSeq => &mut self.cseq,
            Meaning::From => &mut self.from,
            Meaning::To => &mut self.to,
            Meaning::Via => &mut self.via,
            Meaning::Proofs | Meaning::BareProofs | Meaning::Token => return,
        };
        // The first Via is the top one; the others occur once.
        if place.end == 0 {
            *place = value;
        }
    }

    /// Reads the parts at these places.
    pub(super) fn read<'a>(&self, octets: &'a [u8]) -> Seen<'a> {
        let start_line = &octets[..self.first];
        let is_request = !start_line
            .get(..4)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"SIP/"));
        let mut words = start_line.split(|octet| *octet == b' ');
        let first_word = words.next();
        let request_uri = words.next().filter(|_| is_request);
        let method = match is_request {
            true => first_word,
            false => octets[self.cseq.clone()]
                .rsplit(u8::is_ascii_whitespace)
                .next(),
        };
        let tag = |place: &Range<usize>| parameter(&octets[place.clone()], b"tag", Ends::AtEnd);
        Seen {
            is_request,
            method: Method::of(method.unwrap_or_default()),
            request_uri: request_uri.unwrap_or_default(),
            call_id: &octets[self.call_id.clone()],
            from_tag: tag(&self.from),
            to_tag: tag(&self.to),
            via: &octets[self.via.clone()],
        }
    }
}

/// End of the element in which a parameter is looked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Ends {
    AtComma,
    AtEnd,
}

/// Returns the value of a header's parameter, outside of quotes and of angle brackets.
fn parameter<'a>(value: &'a [u8], name: &[u8], ends: Ends) -> Option<&'a [u8]> {
    let Some(parameters) = plain_parameters(value, ends) else {
        return parameter_among_quotes(value, name, ends);
    };
    let mut rest = parameters;
    while let [b';', behind @ ..] = rest {
        let end = memchr::memchr(b';', behind).unwrap_or(behind.len());
        let given = value_of(&behind[..end], name);
        if given.is_some() {
            return given;
        }
        rest = &behind[end..];
    }
    None
}

/// Returns the parameters of a value that can be cut at semicolons, from the first semicolon on: those of `"name" <uri>;parameters`, as nearly every
/// From and To is, and those of the first element of a list without quotes and brackets, as every Via is. `None` for any other value.
fn plain_parameters(value: &[u8], ends: Ends) -> Option<&[u8]> {
    if ends == Ends::AtComma {
        let element = &value[..memchr::memchr(b',', value).unwrap_or(value.len())];
        let start = memchr::memchr3(b'"', b'<', b';', element).unwrap_or(element.len());
        let parameters = &element[start..];
        return memchr::memchr2(b'"', b'<', parameters)
            .is_none()
            .then_some(parameters);
    }

    let uri = match value {
        [b'<', ..] => value,
        [b'"', quoted @ ..] => {
            let end = memchr::memchr2(b'"', b'\\', quoted)?;
            quoted[end..].strip_prefix(b"\"")?.trim_ascii_start()
        }
        _ => return None,
    };
    let uri = uri.strip_prefix(b"<")?;
    let behind = &uri[memchr::memchr(b'>', uri)? + 1..];
    let start = memchr::memchr3(b'"', b'<', b';', behind).unwrap_or(behind.len());
    let parameters = &behind[start..];
    memchr::memchr2(b'"', b'<', parameters)
        .is_none()
        .then_some(parameters)
}

/// Returns the value of a `name = value` if it has this name.
fn value_of<'a>(parameter: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, given) = text_pair(parameter)?;
    found.eq_ignore_ascii_case(name).then_some(given)
}

/// The same, octet by octet.
fn parameter_among_quotes<'a>(value: &'a [u8], name: &[u8], ends: Ends) -> Option<&'a [u8]> {
    let mut is_quoted = false;
    let mut is_uri = false;
    let mut start = None;
    let mut at = 0;

    let matches = |start: Option<usize>, end: usize| value_of(&value[start?..end], name);
    while let Some(octet) = value.get(at) {
        match octet {
            b'\\' if is_quoted => at += 1,
            b'"' if !is_uri => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'<' => is_uri = true,
            b'>' => is_uri = false,
            _ if is_uri => {}
            b';' => {
                if let Some(given) = matches(start, at) {
                    return Some(given);
                }
                start = Some(at + 1);
            }
            b',' if ends == Ends::AtComma => break,
            _ => {}
        }
        at += 1;
    }
    matches(start, at.min(value.len()))
}

/// Cuts `name = value` in two.
fn text_pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = memchr::memchr(b'=', text)?;
    let name = text[..equals].trim_ascii();
    Some((name, text[equals + 1..].trim_ascii()))
}

/// Key of a block's messages: FNV-1a of a call's id, or of the Call-ID of a message without a leg. A filter before the comparison itself.
pub(super) fn key(id: &[u8]) -> u64 {
    id.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Treatment of a header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Meaning {
    CallId,
    CSeq,
    From,
    To,
    Via,
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
            1 => match name[0].to_ascii_lowercase() {
                b'i' => Some(Self::CallId),
                b'f' => Some(Self::From),
                b't' => Some(Self::To),
                b'v' => Some(Self::Via),
                _ => None,
            },
            2 if is(b"to") => Some(Self::To),
            3 if is(b"via") => Some(Self::Via),
            4 if is(b"from") => Some(Self::From),
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
    // Most names are ruled out by their last letter.
    if !matches!(
        name.last().map(u8::to_ascii_lowercase),
        Some(b'n' | b'y' | b't' | b'd' | b'e')
    ) {
        return false;
    }
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

/// Strikes credentials out of a message's headers in place. Returns the places of its identifying headers, which are unchanged.
pub(super) fn strike_headers(octets: &mut [u8]) -> HeaderPositions {
    let mut places = HeaderPositions::begin(octets);
    while let Some((meaning, value)) = places.next_header(octets) {
        match meaning {
            Meaning::CallId | Meaning::CSeq | Meaning::From | Meaning::To | Meaning::Via => {
                places.note(meaning, value);
            }
            Meaning::Proofs => strike_proofs(&mut octets[value]),
            Meaning::BareProofs => strike_parameters(&mut octets[value]),
            Meaning::Token => octets[value].fill(STRUCK),
        }
    }
    places
}

/// Strikes out the passwords of URIs, which may be in any header, and the keys in the body.
pub(super) fn strike_rest(octets: &mut [u8], places: &HeaderPositions) {
    let (head, body) = octets.split_at_mut(places.at);
    strike_passwords(head);
    strike_keys(body);
}

/// Strikes out the values of headers that `is_secret` knows by name, in small letters, and value.
pub(super) fn strike_known(
    octets: &mut [u8],
    places: &HeaderPositions,
    is_secret: impl Fn(&[u8], &[u8]) -> bool,
) {
    let head = &mut octets[..places.at];
    let mut at = places.first;
    while at < head.len() {
        let end = end_of_header(head, at);
        let line = &head[at..end];
        if let Some(colon) = memchr::memchr(b':', line) {
            let value = trimmed(line, colon + 1);
            let name = line[..colon].trim_ascii_end().to_ascii_lowercase();
            if is_secret(&name, &line[value.clone()]) {
                head[at + value.start..at + value.end].fill(STRUCK);
            }
        }
        at = end;
    }
}

/// Returns a Request-URI as kept messages have it: with its password struck out.
pub(super) fn struck_uri(uri: &[u8]) -> Vec<u8> {
    let mut struck = uri.to_vec();
    strike_passwords(&mut struck);
    struck
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

fn trimmed(line: &[u8], from: usize) -> Range<usize> {
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
        if may_have_password(&head[from..end]) {
            // The search went back to the last `@` at most, so no octet is looked at twice.
            let start = head[from..end].iter().rposition(is_before_uri);
            let uri = start.map_or(from, |before| from + before + 1);
            if let Some(user) = user_part(&head[uri..end])
                && let Some(colon) = memchr::memchr(b':', &head[uri + user..end])
            {
                head[uri + user + colon + 1..end].fill(STRUCK);
            }
        }
        from = end + 1;
    }
}

/// Returns false for most texts before an `@`: their last colon is that of a scheme, or has a blank behind it.
fn may_have_password(text: &[u8]) -> bool {
    let Some(colon) = memchr::memrchr(b':', text) else {
        return false;
    };
    let scheme = match &text[..colon] {
        [before @ .., b's', b'i', b'p', b's'] | [before @ .., b's', b'i', b'p'] => Some(before),
        _ => None,
    };
    let is_of_scheme = scheme.is_some_and(|before| before.last().is_some_and(is_before_uri));
    let is_of_name = text.get(colon + 1).is_some_and(is_before_uri);
    !is_of_scheme && !is_of_name
}

/// Returns true for an octet that no URI has, and that therefore ends the text before one.
const fn is_before_uri(octet: &u8) -> bool {
    matches!(
        octet,
        b'<' | b'>' | b',' | b'"' | b' ' | b'\t' | b'\r' | b'\n'
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(text: &str) -> String {
        let mut octets = text.as_bytes().to_vec();
        let places = strike_headers(&mut octets);
        strike_rest(&mut octets, &places);
        String::from_utf8(octets).unwrap()
    }

    #[test]
    fn no_credential_is_kept() {
        let shown = struck(
            "INVITE sip:a SIP/2.0\r\nAuthorization: Digest username=\"u\",\r\n  realm=\"r\", nonce=\"n1\", Response = \"r1\",cnonce=c1, qop=auth\r\n\
             Proxy-Authorization: Basic dTpw\r\nX-PLATFORM-SESSION-TOKEN: t1\r\nAcme-Session-Token : t2\r\nX-PLATFORM-JOIN: t3\r\nWWW-Authenticate:Digest nonce=\"n2\r\n\
             i: one@two\r\n\r\nv=0\r\na=crypto:1 X inline:k1|2\r\na=ice-pwd:p1\r\na=crypto:2 X inline:k2",
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
        let shown = struck(
            "INVITE sip:a:pw1@b SIP/2.0\r\nFrom: \"x:y@z\" <SIPS:u:pw2@c>;tag=1\r\nContact: <sip:u@d:5060>, <sip:v:pw3@e>\r\nCall-ID: a:b@c\r\n\
             Authentication-Info: nextnonce=\"n1\", qop=auth, rspauth=r1\r\nX-API-Key: k0\r\nCookie: k00\r\n\r\n\
             v=0\r\nk=clear:k1\r\na=crypto:1 X INLINE:k2|2^31;inline:k3|x\r\na=ICE-PWD:k4\r\na=key-mgmt:mikey k5\r\ns=a=ice-pwd:kept",
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
        let shown = struck(
            "INVITE sip:a SIP/2.0\r\nFrom:sip:u:pw1@b;tag=1\r\nm:SIPS:v:pw2@c\r\nContact:sip:w@d\r\nCall-ID:a:b@c\r\n\r\n",
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
    fn only_a_user_with_a_colon_may_have_a_password() {
        for (text, may) in [
            ("INVITE sip:a", false),
            ("From: <sips:a", false),
            ("Call-ID: a:b", true),
            ("Call-ID: a", false),
            ("a", false),
            ("sip:a", true),
            ("<sip:a:b", true),
            ("<sip:sip:b", true),
            ("<SIP:a", true),
            ("<xsip:a", true),
            (": a", false),
        ] {
            assert_eq!(may_have_password(text.as_bytes()), may, "{text}");
        }
    }

    #[test]
    fn an_escaped_quote_hides_no_proof() {
        for proofs in [
            r#"realm="a\"b=", response="p1", nonce="p2""#,
            r#"username="a\"=", nonce="b\"p1", response="p2""#,
        ] {
            let message = format!("BYE sip:a SIP/2.0\r\nAuthorization: Digest {proofs}\r\n\r\n");
            let shown = struck(&message);
            assert!(!shown.contains("p1") && !shown.contains("p2"), "{shown}");
        }
    }

    #[test]
    fn nothing_else_is_changed() {
        let message = "BYE sip:a SIP/2.0\r\nSubject :  x\r\nX-Tok: y\r\nCall-ID: c\r\n\r\nbody";
        assert_eq!(struck(message), message);
        assert_eq!(Seen::of(message.as_bytes()).call_id, b"c");
        for cut in 0..message.len() {
            struck(&message[..cut]);
        }
    }

    #[test]
    fn a_parameter_is_the_same_by_either_way_of_reading() {
        for value in [
            "<sip:a@b;x=y>;q=1;tag=t",
            "sip:a@b;tag=t",
            "<sip:a@b>",
            "<sip:a;tag=no>;TAG = t ; x",
            "\"a\" <sip:a>;tag=t",
            "\"a>;tag=no\" <sip:a>;tag=t",
            "<sip:a>;x=<sip:b;tag=no>;tag=t",
            "<<sip:a>;tag=u>;tag=t",
            "\"a\" <sip:a>;x=\"<\";tag=t",
            "\"a\" b<sip:a>;tag=t",
            "\"a\\\";tag=no\" <sip:a>;tag=t",
            "\"\"<sip:a\">;tag=t",
            "<sip:a>,<sip:b>;tag=t",
            "SIP/2.0/UDP h;tag=t, SIP/2.0/UDP i;tag=u",
            "h;x,i;tag=u",
            "h;tag=\"a,b\";x",
            "h;x=\"a,b\";tag=t",
            "h;x=<a,b>;tag=t",
            "<sip:a",
            "\"a",
            "a>b;tag=t",
            "a;tag=no>;tag=t",
            ";tag=no<sip:a>;tag=t",
            "<sip:a>;x<;tag=no>;tag=t",
            "tag=no;tag=t;tag=u",
            ";tag",
            "",
        ] {
            for ends in [Ends::AtEnd, Ends::AtComma] {
                let read = [parameter, parameter_among_quotes]
                    .map(|read| read(value.as_bytes(), b"tag", ends));
                assert_eq!(read[0], read[1], "{value}, {ends:?}");
            }
        }
    }

    #[test]
    fn dialog_and_transaction_are_read_from_any_writing() {
        let cases: [(&str, &str, [&str; 4]); 4] = [
            (
                "plain",
                "BYE sip:a SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z1;rport\r\nVia: SIP/2.0/UDP i;branch=z2\r\nFrom: <sip:a>;tag=f\r\nTo: <sip:b>;tag=t\r\nCall-ID: c\r\n\r\n",
                ["c", "f", "t", "z1"],
            ),
            (
                "compact, folded, with blanks",
                "SIP/2.0 200 OK\r\nv:SIP/2.0/UDP h ; Branch = z1 , SIP/2.0/UDP i;branch=z2\r\nf : sip:a\r\n ;TAG = f;x\r\nt: <sip:b>;x=y;tag=t\r\ni:c@d\r\nCSeq: 1\r\n INVITE\r\n\r\n",
                ["c@d", "f", "t", "z1"],
            ),
            (
                "tags in quotes, in URIs and in the body",
                "BYE sip:a SIP/2.0\r\nFrom: \"a\\\";tag=no\" <sip:a;tag=no>;tag=f\r\nTo: <sip:b;tag=no>\r\n\r\nCall-ID: no\r\nVia: x;branch=no",
                ["", "f", "", ""],
            ),
            ("nothing", "rubbish", ["", "", "", ""]),
        ];
        for (name, text, expected) in cases {
            let seen = Seen::of(text.as_bytes());
            let [from, to] = [seen.from_tag, seen.to_tag].map(Option::unwrap_or_default);
            let read = [seen.call_id, from, to, seen.branch()];
            assert_eq!(read, expected.map(str::as_bytes), "{name}");
            for cut in 0..text.len() {
                Seen::of(&text.as_bytes()[..cut]);
            }
        }
        let folded = Seen::of(cases[1].1.as_bytes());
        assert_eq!((folded.is_request, folded.method), (false, Method::Invite));
    }
}
