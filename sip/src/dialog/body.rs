//! The session description in a message's body (RFC 3261 §7.4).

use crate::header::content_type;
use crate::wire::{HeaderName, Message};

/// Returns whether a message carries an SDP.
pub fn has_sdp(message: &Message<'_>) -> bool {
    !message.body().is_empty()
        && message
            .first(HeaderName::ContentType)
            .is_none_or(content_type::may_hold_sdp)
}

/// Returns the SDP in a body: all of it, or that part of a multipart one (RFC 2046 §5.1); nothing if no part is one.
///
/// A multipart body is known by its first delimiter, since no line of an SDP begins like one.
pub fn sdp_of(body: &[u8]) -> &[u8] {
    // Nearly every body is one, and each is asked about several times in a call.
    if body.starts_with(b"v=") {
        return body;
    }
    let mut lines = lines(body);
    let Some(delimiter) = lines.find(|line| line.trimmed.starts_with(b"--")) else {
        return body;
    };

    let mut part = Part::Headers { is_sdp: false };
    let mut start = None;
    for line in lines {
        if line.trimmed.starts_with(delimiter.trimmed) {
            if let Some(start) = start {
                return without_blank_end(&body[start..line.start]);
            }
            part = Part::Headers { is_sdp: false };
            continue;
        }
        part = match part {
            Part::Headers { is_sdp: true } if line.trimmed.is_empty() => {
                start = Some(line.end);
                Part::Content
            }
            Part::Headers { is_sdp: false } if line.trimmed.is_empty() => Part::Content,
            Part::Headers { is_sdp } => Part::Headers {
                is_sdp: is_sdp || names_sdp(line.trimmed),
            },
            Part::Content => Part::Content,
        };
    }
    // Its last delimiter is missing.
    start.map_or(b"", |start| without_blank_end(&body[start..]))
}

enum Part {
    Headers { is_sdp: bool },
    Content,
}

struct Line<'b> {
    start: usize,
    /// Behind its line feed.
    end: usize,
    trimmed: &'b [u8],
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

/// Returns whether a header line of a part says that the part is an SDP.
fn names_sdp(line: &[u8]) -> bool {
    let (name, value) = line.split_at(memchr::memchr(b':', line).unwrap_or(line.len()));
    let name = name.trim_ascii();
    let is_type = name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"c");
    is_type && content_type::is_sdp(value.get(1..).unwrap_or_default())
}

/// Without empty lines at the end; the line end of the last line, which belongs to the delimiter, stays.
fn without_blank_end(part: &[u8]) -> &[u8] {
    let end = part.trim_ascii_end().len();
    let feed = memchr::memchr(b'\n', &part[end..]).map_or(part.len(), |feed| end + feed + 1);
    &part[..feed]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDP: &str = "v=0\r\no=- 1 1 IN IP4 h\r\ns=-\r\nm=audio 4000 RTP/AVP 0\r\n";
    const PLACE: &str = "--b\r\nContent-Type: application/pidf+xml\r\n\r\n<presence/>\r\n";

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
