//! Comparison of two session descriptions of peers.

/// Returns whether two descriptions ask for the same media: all lines are equal except those that name the session (RFC 8866 §5).
pub fn is_same_media(one: &[u8], other: &[u8]) -> bool {
    let names_session = |line: &[u8]| {
        let names: [&[u8]; 3] = [b"o=", b"s=", b"t="];
        names.iter().any(|name| line.starts_with(name))
    };
    let media = |sdp| lines(sdp).filter(|line| !line.is_empty() && !names_session(line));
    media(one).eq(media(other))
}

/// Lines of a description, without their ends.
pub fn lines(sdp: &[u8]) -> impl Iterator<Item = &[u8]> {
    sdp.split(|octet| *octet == b'\n')
        .map(<[u8]>::trim_ascii_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_compared_without_the_sessions_name() {
        let one = b"v=0\r\no=a 1 1 IN IP4 h\r\ns=a\r\nm=audio 4000 RTP/AVP 0\r\n";
        let same = b"v=0\no=a 1 2 IN IP4 h\ns=b\nm=audio 4000 RTP/AVP 0\n";
        let other = b"v=0\r\no=a 1 1 IN IP4 h\r\ns=a\r\nm=audio 4002 RTP/AVP 0\r\n";
        assert!(is_same_media(one, same));
        assert!(!is_same_media(one, other));
    }
}
