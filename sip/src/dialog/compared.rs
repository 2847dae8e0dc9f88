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

/// Returns whether audio goes to the same place by both descriptions: the connection, port and keys of the first audio stream. True if one has no
/// audio.
pub fn is_same_audio_target(one: &[u8], other: &[u8]) -> bool {
    match (AudioTarget::of(one), AudioTarget::of(other)) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => true,
    }
}

#[derive(PartialEq, Eq)]
struct AudioTarget<'s> {
    connection: Option<&'s [u8]>,
    port: &'s [u8],
    /// `a=crypto` (RFC 4568) and `a=fingerprint` (RFC 8122).
    keys: Vec<&'s [u8]>,
}

impl<'s> AudioTarget<'s> {
    fn of(sdp: &'s [u8]) -> Option<Self> {
        let mut lines = lines(sdp);
        let mut connection = None;
        let port = lines.find_map(|line| {
            connection = line.strip_prefix(b"c=").or(connection);
            let audio = line.strip_prefix(b"m=audio ")?;
            audio.split(|octet| *octet == b' ').next()
        })?;

        let mut keys = Vec::new();
        for line in lines.take_while(|line| !line.starts_with(b"m=")) {
            connection = line.strip_prefix(b"c=").or(connection);
            if line.starts_with(b"a=crypto:") || line.starts_with(b"a=fingerprint:") {
                keys.push(line);
            }
        }

        Some(Self {
            connection,
            port,
            keys,
        })
    }
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

    #[test]
    fn audio_moves_with_its_connection_port_and_keys() {
        let known =
            "c=IN IP4 192.0.2.1\r\nm=audio 4000 RTP/AVP 0 8\r\na=crypto:1 K\r\nm=video 0 X 9\r\n";
        for (change, other, is_same) in [
            (
                "codecs and direction",
                "c=IN IP4 192.0.2.1\nm=audio 4000 RTP/AVP 0\na=sendonly\na=crypto:1 K\n",
                true,
            ),
            (
                "a connection of the stream",
                "c=IN IP4 192.0.2.9\nm=audio 4000 RTP/AVP 0\nc=IN IP4 192.0.2.1\na=crypto:1 K\n",
                true,
            ),
            (
                "no audio",
                "c=IN IP4 192.0.2.9\nm=image 4000 udptl t38\n",
                true,
            ),
            (
                "the connection",
                "c=IN IP4 192.0.2.9\nm=audio 4000 RTP/AVP 0\na=crypto:1 K\n",
                false,
            ),
            (
                "the port",
                "c=IN IP4 192.0.2.1\nm=audio 4002 RTP/AVP 0\na=crypto:1 K\n",
                false,
            ),
            (
                "the key",
                "c=IN IP4 192.0.2.1\nm=audio 4000 RTP/AVP 0\na=crypto:1 L\n",
                false,
            ),
        ] {
            let found = is_same_audio_target(known.as_bytes(), other.as_bytes());
            assert_eq!(found, is_same, "{change}");
        }
    }
}
