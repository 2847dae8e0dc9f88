//! Media sections of descriptions that cross from one party to another. A session never has fewer of them than before (RFC 3264 §8), and an answer has as
//! many as its offer (§6), also where another party, with fewer streams, goes on with the session.

use std::borrow::Cow;

use super::compared::lines;

/// Returns the number of media sections.
pub fn count(sdp: &[u8]) -> usize {
    starts(sdp).count()
}

/// Returns an offer with at least as many sections as `before`, the description that its receiver has. Those that are missing follow at the end, with
/// port 0.
pub fn extended<'o>(offer: &'o [u8], before: &[u8]) -> Cow<'o, [u8]> {
    let offered = count(offer);
    let mut missing = lines(before)
        .filter(|line| line.starts_with(b"m="))
        .skip(offered)
        .peekable();
    if missing.peek().is_none() {
        return offer.into();
    }

    // RFC 8866 §5.7: without a connection of the session, each section needs one.
    let session = starts(offer).next().unwrap_or(offer.len());
    let mut connections = lines(offer).filter(|line| line.starts_with(b"c="));
    let is_in_sections = !lines(&offer[..session]).any(|line| line.starts_with(b"c="));
    let connection = connections.next().filter(|_| is_in_sections);

    let mut extended = offer.to_vec();
    if !offer.ends_with(b"\n") {
        extended.extend_from_slice(b"\r\n");
    }
    for line in missing {
        let mut fields = line.splitn(3, |octet| *octet == b' ');
        let (Some(kind), Some(_port), Some(rest)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        for piece in [kind, b" 0 ", rest, b"\r\n"] {
            extended.extend_from_slice(piece);
        }
        if let Some(connection) = connection {
            extended.extend_from_slice(connection);
            extended.extend_from_slice(b"\r\n");
        }
    }
    extended.into()
}

/// Returns an answer without its last `added` sections, which were added to its offer.
pub fn without_last(answer: &[u8], added: usize) -> &[u8] {
    if added == 0 {
        return answer;
    }
    let kept = count(answer).saturating_sub(added);
    match starts(answer).nth(kept) {
        Some(end) => &answer[..end],
        None => answer,
    }
}

/// Positions of the media sections.
fn starts(sdp: &[u8]) -> impl Iterator<Item = usize> {
    let lines = std::iter::once(0).chain(memchr::memchr_iter(b'\n', sdp).map(|end| end + 1));
    lines.filter(move |start| sdp[*start..].starts_with(b"m="))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "v=0\r\no=- 1 1 IN IP4 h\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n";
    const AUDIO: &str = "m=audio 4000 RTP/AVP 0\r\na=sendrecv\r\n";
    const VIDEO: &str = "m=video 4002 RTP/AVP 96 97\r\na=rtpmap:96 H264/90000\r\n";
    const FAX: &str = "m=image 0 udptl t38\r\n";

    #[test]
    fn an_offer_keeps_the_number_of_sections() {
        let no_session = HEAD.replace("c=IN IP4 192.0.2.1\r\n", "");
        let own = format!("{AUDIO}c=IN IP4 192.0.2.9\r\n");
        for (case, offer, before, expected) in [
            (
                "as many",
                format!("{HEAD}{AUDIO}"),
                format!("{HEAD}{AUDIO}"),
                format!("{HEAD}{AUDIO}"),
            ),
            (
                "more",
                format!("{HEAD}{AUDIO}{VIDEO}"),
                format!("{HEAD}{AUDIO}"),
                format!("{HEAD}{AUDIO}{VIDEO}"),
            ),
            (
                "fewer",
                format!("{HEAD}{AUDIO}"),
                format!("{HEAD}{AUDIO}{VIDEO}{FAX}"),
                format!("{HEAD}{AUDIO}m=video 0 RTP/AVP 96 97\r\n{FAX}"),
            ),
            (
                "without a last line end",
                format!("{HEAD}m=audio 4000 RTP/AVP 0"),
                format!("{HEAD}{AUDIO}{FAX}"),
                format!("{HEAD}m=audio 4000 RTP/AVP 0\r\n{FAX}"),
            ),
            (
                "with a connection in each section",
                format!("{no_session}{own}"),
                format!("{HEAD}{AUDIO}{FAX}"),
                format!("{no_session}{own}{FAX}c=IN IP4 192.0.2.9\r\n"),
            ),
        ] {
            let extended = extended(offer.as_bytes(), before.as_bytes());
            assert_eq!(String::from_utf8_lossy(&extended), expected, "{case}");
        }
    }

    #[test]
    fn an_answer_loses_what_was_added_to_its_offer() {
        let answer = format!("{HEAD}{AUDIO}{VIDEO}{FAX}");
        for (added, kept) in [
            (0, format!("{HEAD}{AUDIO}{VIDEO}{FAX}")),
            (1, format!("{HEAD}{AUDIO}{VIDEO}")),
            (2, format!("{HEAD}{AUDIO}")),
            (9, HEAD.to_owned()),
        ] {
            let found = without_last(answer.as_bytes(), added);
            assert_eq!(String::from_utf8_lossy(found), kept, "{added}");
        }
    }
}
