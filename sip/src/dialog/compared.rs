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

/// Returns whether the peer has moved its audio. The first audio stream of `now` that is on is compared with all that are on in `known`. The peer
/// hasn't moved if one of those has its connection, its port and all of its keys. `known` may have more streams and more keys, as an
/// offer has.
pub fn moves_audio(known: &[u8], now: &[u8]) -> bool {
    let known = AudioTarget::all_of(known);
    let now = AudioTarget::all_of(now).into_iter().next();
    now.is_some_and(|now| !known.is_empty() && !known.iter().any(|known| known.covers(&now)))
}

/// Destination of an audio stream that is on.
struct AudioTarget<'s> {
    connection: Option<&'s [u8]>,
    port: &'s [u8],
    /// `a=crypto` (RFC 4568) and `a=fingerprint` (RFC 8122), of the stream or else of the session.
    keys: Vec<&'s [u8]>,
}

impl<'s> AudioTarget<'s> {
    fn all_of(sdp: &'s [u8]) -> Vec<Self> {
        let mut sections = Vec::new();
        let mut session = Section::default();
        for line in lines(sdp) {
            if line.starts_with(b"m=") {
                sections.push(Section {
                    media: line,
                    ..Section::default()
                });
            }
            // Lines before the first `m=` are the session's, and hold for each stream without lines of its own.
            let section = sections.last_mut().unwrap_or(&mut session);
            if let Some(connection) = line.strip_prefix(b"c=") {
                section.connection = Some(connection);
            } else if line.starts_with(b"a=crypto:") || line.starts_with(b"a=fingerprint:") {
                section.keys.push(line);
            }
        }

        let targets = sections.into_iter().filter_map(|section| {
            let audio = section.media.strip_prefix(b"m=audio ")?;
            let port = audio.split(|octet| *octet == b' ').next()?;
            (port != b"0").then(|| Self {
                connection: section.connection.or(session.connection),
                port,
                keys: match section.keys.is_empty() {
                    true => session.keys.clone(),
                    false => section.keys,
                },
            })
        });
        targets.collect()
    }

    fn covers(&self, now: &Self) -> bool {
        let is_same_place = (self.connection, self.port) == (now.connection, now.port);
        is_same_place && now.keys.iter().all(|key| self.keys.contains(key))
    }
}

/// Lines of a media section, or those before the first one.
#[derive(Default)]
struct Section<'s> {
    media: &'s [u8],
    connection: Option<&'s [u8]>,
    keys: Vec<&'s [u8]>,
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
        const KNOWN: &str = "c=IN IP4 192.0.2.1\r\nm=video 0 X 9\r\nm=audio 4000 RTP/SAVP 0 8\r\na=crypto:1 K\r\na=crypto:2 L\r\n\
            m=audio 4002 RTP/AVP 0\r\n";
        const SESSION: &str =
            "c=IN IP4 192.0.2.1\na=fingerprint:sha-256 F\nm=audio 4000 UDP/TLS/RTP/SAVP 0\n";

        for (change, known, now, moves) in [
            (
                "fewer codecs and keys, and a direction",
                KNOWN,
                "c=IN IP4 192.0.2.1\nm=audio 4000 RTP/SAVP 0\na=sendonly\na=crypto:2 L\n",
                false,
            ),
            (
                "the second stream was taken",
                KNOWN,
                "c=IN IP4 192.0.2.1\nm=audio 0 RTP/SAVP 0\nm=audio 4002 RTP/AVP 0\n",
                false,
            ),
            (
                "a connection of the stream",
                KNOWN,
                "c=IN IP4 192.0.2.9\nm=audio 4000 RTP/SAVP 0\nc=IN IP4 192.0.2.1\na=crypto:1 K\n",
                false,
            ),
            (
                "no audio",
                KNOWN,
                "c=IN IP4 192.0.2.9\nm=image 4000 udptl t38\n",
                false,
            ),
            (
                "nothing known",
                "",
                "c=IN IP4 192.0.2.1\nm=audio 4000 RTP/AVP 0\n",
                false,
            ),
            (
                "the fingerprint at the stream",
                SESSION,
                "c=IN IP4 192.0.2.1\nm=audio 4000 UDP/TLS/RTP/SAVP 0\na=fingerprint:sha-256 F\n",
                false,
            ),
            (
                "the session's fingerprint",
                SESSION,
                "c=IN IP4 192.0.2.1\na=fingerprint:sha-256 G\nm=audio 4000 UDP/TLS/RTP/SAVP 0\n",
                true,
            ),
            (
                "the connection",
                KNOWN,
                "c=IN IP4 192.0.2.9\nm=audio 4000 RTP/SAVP 0\na=crypto:1 K\n",
                true,
            ),
            (
                "the port",
                KNOWN,
                "c=IN IP4 192.0.2.1\nm=audio 4004 RTP/SAVP 0\na=crypto:1 K\n",
                true,
            ),
            (
                "the key",
                KNOWN,
                "c=IN IP4 192.0.2.1\nm=audio 4000 RTP/SAVP 0\na=crypto:1 M\n",
                true,
            ),
        ] {
            let found = moves_audio(known.as_bytes(), now.as_bytes());
            assert_eq!(found, moves, "{change}");
        }
    }
}
