//! The session description in a message's body (RFC 3261 §7.4), and the location of its sender that may accompany it (RFC 6442).

use std::borrow::Cow;

use crate::header::content_type;
use crate::wire::{HeaderName, Message};

/// Returns whether a message carries an SDP.
pub fn has_sdp(message: &Message<'_>) -> bool {
    !message.body().is_empty()
        && message
            // Some peers send an SDP without Content-Type, OpenAI's edge among them.
            .first(HeaderName::ContentType)
            .is_none_or(content_type::may_hold_sdp)
}

/// Returns the SDP in a body: all of it, or the SDP part of a multipart body (RFC 2046 §5.1); empty if no part is an SDP.
///
/// A multipart body is recognised by its first delimiter, since no line of an SDP begins like one.
pub fn sdp_of(body: &[u8]) -> &[u8] {
    // Nearly every body is an SDP, and each is parsed several times in a call.
    if body.starts_with(b"v=") {
        return body;
    }
    let is_delimiter = |line: &Line<'_>| line.trimmed.starts_with(b"--");
    match lines(body).find(is_delimiter) {
        Some(first) => sdp_part(body, first.trimmed, DEEPEST).unwrap_or_default(),
        None => body,
    }
}

fn sdp_part<'b>(body: &'b [u8], delimiter: &[u8], depth: u8) -> Option<&'b [u8]> {
    let depth = depth.checked_sub(1)?;
    let mut open = None;

    // A body may end without its last delimiter: its end closes the last part, so that nothing in there is overlooked.
    for line in delimiters(body, delimiter).chain([Line::end_of(body)]) {
        let part = open.map(|start| &body[start..line.start]);
        open = (line.trimmed == delimiter).then_some(line.end);
        let Some(part) = part else { continue };

        let (content_type, content) = head_of(part);
        let content = &part[content..];
        if content_type::is_sdp(&content_type) {
            return Some(without_blank_end(content));
        }
        if content_type::is_multipart(&content_type)
            && let Some(inner) = self::delimiter(&content_type, content)
            && let Some(sdp) = sdp_part(content, &inner, depth)
        {
            return Some(sdp);
        }
    }

    None
}

/// Depth to which nested multiparts are read. A deeper one never counts as an SDP, and [`without_location`] removes it, since it may hold a location.
const DEEPEST: u8 = 4;

/// Returns a body of this type without the location of its sender: empty if all of it is a location, else all other parts.
pub fn without_location<'b>(content_type: &[u8], body: &'b [u8]) -> Cow<'b, [u8]> {
    without_places(content_type, body, DEEPEST)
}

fn without_places<'b>(content_type: &[u8], body: &'b [u8], depth: u8) -> Cow<'b, [u8]> {
    if content_type::is_location(content_type) {
        return Cow::Borrowed(b"");
    }
    if !content_type::is_multipart(content_type) {
        return Cow::Borrowed(body);
    }
    let Some(depth) = depth.checked_sub(1) else {
        return Cow::Borrowed(b"");
    };
    let Some(delimiter) = delimiter(content_type, body) else {
        return Cow::Borrowed(body);
    };

    let mut kept: Vec<Cow<'_, [u8]>> = Vec::new();
    let (mut has_part, mut is_whole, mut at) = (false, true, 0);
    let mut open = None;
    for line in delimiters(body, &delimiter).chain([Line::end_of(body)]) {
        let piece = &body[at..line.start];
        // The text before the first delimiter and after the last one belongs to no part.
        let part = match open {
            Some(content) => without_place(piece, content - at, depth),
            None => Some(Cow::Borrowed(piece)),
        };

        has_part |= open.is_some() && part.is_some();
        // A part that is borrowed has lost nothing.
        is_whole &= matches!(part, Some(Cow::Borrowed(_)));
        kept.extend(part);

        open = (line.trimmed == &*delimiter).then_some(line.end);
        at = line.start;
    }

    match (is_whole, has_part) {
        (true, _) => Cow::Borrowed(body),
        (false, true) => kept.concat().into(),
        // RFC 2046 §5.1.1: a multipart body has at least one part, so without any there is no body.
        (false, false) => Cow::Borrowed(b""),
    }
}

/// The delimiter line between the parts: from the type's boundary parameter, or else the first delimiter in the body.
fn delimiter<'b>(content_type: &'b [u8], body: &'b [u8]) -> Option<Cow<'b, [u8]>> {
    match content_type::boundary(content_type) {
        Some(boundary) => Some([b"--", &*boundary].concat().into()),
        None => {
            let first = lines(body).find(|line| line.trimmed.starts_with(b"--"))?;
            Some(Cow::Borrowed(first.trimmed))
        }
    }
}

/// A part, whose delimiter ends at `header`, without the location of its sender; `None` if nothing is left of it.
fn without_place(part: &[u8], header: usize, depth: u8) -> Option<Cow<'_, [u8]>> {
    let (content_type, content) = head_of(&part[header..]);
    let content = header + content;
    let whole = &part[content..];
    let left = without_places(&content_type, whole, depth);
    if left.len() == whole.len() {
        Some(Cow::Borrowed(part))
    } else if left.is_empty() {
        None
    } else {
        Some([&part[..content], &*left].concat().into())
    }
}

/// Returns the type of a part, and the position of its content behind the header.
fn head_of(part: &[u8]) -> (Vec<u8>, usize) {
    let mut content_type: Vec<u8> = Vec::new();
    let mut is_type = false;
    let mut content = part.len();
    for line in lines(part) {
        if line.trimmed.is_empty() {
            content = line.end;
            break;
        }
        // A line that begins with a blank continues the one before.
        match (line.trimmed, is_type) {
            ([b' ' | b'\t', ..], true) => content_type.extend_from_slice(line.trimmed),
            ([b' ' | b'\t', ..], false) => {}
            _ => {
                let value = value_of_type(line.trimmed).filter(|_| content_type.is_empty());
                is_type = value.is_some();
                content_type.extend_from_slice(value.unwrap_or_default());
            }
        }
    }

    (content_type.trim_ascii().to_vec(), content)
}

struct Line<'b> {
    start: usize,
    /// Position after the line feed.
    end: usize,
    trimmed: &'b [u8],
}

impl Line<'_> {
    const fn end_of(body: &[u8]) -> Self {
        Self {
            start: body.len(),
            end: body.len(),
            trimmed: b"",
        }
    }
}

fn lines(body: &[u8]) -> impl Iterator<Item = Line<'_>> {
    body.split_inclusive(|octet| *octet == b'\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some(Line {
                start,
                end: *at,
                trimmed: line.trim_ascii_end(),
            })
        })
}

/// The lines that begin a part, and the one behind the last part.
fn delimiters<'b>(body: &'b [u8], delimiter: &[u8]) -> impl Iterator<Item = Line<'b>> {
    lines(body).filter(move |line| {
        let behind = line.trimmed.strip_prefix(delimiter);
        behind.is_some_and(|behind| matches!(behind, b"" | b"--"))
    })
}

/// The value of a header line of a part that says its type.
fn value_of_type(line: &[u8]) -> Option<&[u8]> {
    let (name, value) = line.split_at(memchr::memchr(b':', line).unwrap_or(line.len()));
    let name = name.trim_ascii();
    let is_type = name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"c");
    is_type.then(|| value.get(1..).unwrap_or_default())
}

/// Cuts empty lines at the end. The line end of the last line, which belongs to the delimiter, stays.
fn without_blank_end(part: &[u8]) -> &[u8] {
    let end = part.trim_ascii_end().len();
    let feed = memchr::memchr(b'\n', &part[end..]).map_or(part.len(), |feed| end + feed + 1);
    &part[..feed]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Framing, lex};

    const SDP: &str = "v=0\r\no=- 1 1 IN IP4 h\r\ns=-\r\nm=audio 4000 RTP/AVP 0\r\n";
    const PLACE: &str = "--b\r\nContent-Type: application/pidf+xml\r\n\r\n<presence/>\r\n";

    #[test]
    fn a_body_without_a_type_may_be_an_sdp() {
        for (content_type, body, expected) in [
            ("Content-Type: application/sdp\r\n", SDP, true),
            ("Content-Type: multipart/mixed;boundary=b\r\n", SDP, true),
            ("", SDP, true),
            ("Content-Type: text/plain\r\n", SDP, false),
            ("Content-Type: application/sdp\r\n", "", false),
            ("", "", false),
        ] {
            let octets = format!(
                "INVITE sip:b SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a>;tag=1\r\nTo: <sip:b>\r\n\
                 Call-ID: x\r\nCSeq: 1 INVITE\r\n{content_type}Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let message = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
            assert_eq!(has_sdp(&message), expected, "{content_type:?} {body:?}");
        }
    }

    #[test]
    fn a_place_is_taken_out_of_a_body() {
        let part = format!("--b\r\nContent-Type: application/sdp\r\n\r\n{SDP}");
        let isup = "--b\r\nContent-Type: application/isup\r\n\r\n\x01--b\x02\r\n";
        let folded =
            "--b\r\nc:\r\n Application/PIDF+xml; charset=utf-8\r\nX: y\r\n\r\n<presence/>\r\n";
        let other = "--b1\r\nContent-Type: text/plain\r\n\r\nx\r\n";
        let nested = |inner: &str| {
            format!(
                "--b\r\nContent-Type: multipart/related; boundary=\"in\"\r\n\r\n--in\r\nContent-Type: text/plain\r\n\r\nx\r\n{inner}--in--\r\n"
            )
        };

        let inner = "--in\r\nContent-Type: application/pidf+xml\r\n\r\n<presence/>\r\n";
        let mixed = "multipart/mixed;boundary=b";
        for (case, content_type, body, left) in [
            ("an SDP", "application/sdp", SDP.to_owned(), SDP.to_owned()),
            (
                "a place",
                "application/pidf+xml",
                "<presence/>".to_owned(),
                String::new(),
            ),
            (
                "first of two",
                mixed,
                format!("{PLACE}{part}--b--\r\n"),
                format!("{part}--b--\r\n"),
            ),
            (
                "second of three",
                mixed,
                format!("A preamble\r\n{part}{folded}{isup}--b--\r\nAn epilogue"),
                format!("A preamble\r\n{part}{isup}--b--\r\nAn epilogue"),
            ),
            (
                "none",
                mixed,
                format!("{part}{isup}--b--"),
                format!("{part}{isup}--b--"),
            ),
            (
                "nothing else",
                mixed,
                format!("{PLACE}--b--\r\n"),
                String::new(),
            ),
            ("no end", mixed, format!("{part}{PLACE}"), part.clone()),
            (
                "no boundary in the type",
                "multipart/mixed",
                format!("{PLACE}{part}--b--"),
                format!("{part}--b--"),
            ),
            (
                "a boundary that begins alike is none",
                mixed,
                format!("{part}{other}--b--"),
                format!("{part}{other}--b--"),
            ),
            (
                "a line before that looks like a boundary",
                mixed,
                format!("--\r\n{PLACE}{part}--b--"),
                format!("--\r\n{part}--b--"),
            ),
            (
                "within a part",
                mixed,
                format!("{part}{}--b--", nested(inner)),
                format!("{part}{}--b--", nested("")),
            ),
        ] {
            let found = without_location(content_type.as_bytes(), body.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), left, "{case}");
        }
    }

    #[test]
    fn the_sdp_of_a_body_is_all_of_it_or_its_part() {
        let part = format!("--b\r\nContent-Type: application/sdp\r\n\r\n{SDP}");
        for (case, body, sdp) in [
            ("an SDP", SDP.to_owned(), SDP),
            ("nothing", String::new(), ""),
            ("another body", "<presence/>".to_owned(), "<presence/>"),
            ("first of two", format!("{part}{PLACE}--b--\r\n"), SDP),
            ("last of two", format!("{PLACE}{part}--b--\r\n"), SDP),
            ("an empty line behind it", format!("{part}\r\n--b--"), SDP),
            (
                "a preamble",
                format!("Several parts:\r\n\r\n{part}--b--"),
                SDP,
            ),
            ("no end", part.clone(), SDP),
            (
                "line feeds alone",
                format!("{part}--b--").replace('\r', ""),
                &SDP.replace('\r', ""),
            ),
            (
                "more headers",
                format!(
                    "--b \r\nContent-ID: <a@b>\r\nc : Application/SDP; charset=utf-8\r\nContent-Disposition: session\r\n\r\n{SDP}--b--"
                ),
                SDP,
            ),
            ("none of them", format!("{PLACE}--b--\r\n"), ""),
            (
                "a folded type",
                format!("--b\r\nContent-Type:\r\n application/sdp\r\n\r\n{SDP}--b--"),
                SDP,
            ),
            (
                "another header's folded line",
                format!("--b\r\nX: y\r\n Content-Type: application/sdp\r\n\r\n{SDP}--b--"),
                "",
            ),
            (
                "behind a part with a longer boundary",
                format!(
                    "--b\r\nContent-Type: multipart/alternative; boundary=b2\r\n\r\n--b2\r\n\r\nx\r\n--b2--\r\n{part}--b--"
                ),
                SDP,
            ),
            (
                "within a part",
                format!(
                    "--b\r\nContent-Type: multipart/alternative; boundary=b2\r\n\r\n--b2\r\nContent-Type: application/sdp\r\n\r\n{SDP}--b2--\r\n--b--"
                ),
                SDP,
            ),
            ("behind the last part", format!("{PLACE}--b--\r\n{SDP}"), ""),
            (
                "a part without headers",
                format!("--b\r\n\r\n{SDP}--b--"),
                "",
            ),
        ] {
            assert_eq!(
                String::from_utf8_lossy(sdp_of(body.as_bytes())),
                sdp,
                "{case}"
            );
        }
    }
}
