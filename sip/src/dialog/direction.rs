//! Direction of the media in a peer's session description (RFC 3264 §5.1, §8.4, RFC 8866 §6.7): read, and rewritten. All other lines
//! stay as they are, octet for octet.

/// Direction of a stream from the local side's point of view.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// We send and receive.
    SendRecv,
    /// We only send.
    SendOnly,
    /// We only receive.
    RecvOnly,
    /// Neither side sends.
    Inactive,
}

impl Direction {
    /// The attribute's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SendRecv => "sendrecv",
            Self::SendOnly => "sendonly",
            Self::RecvOnly => "recvonly",
            Self::Inactive => "inactive",
        }
    }

    /// Returns true if we may send.
    pub const fn sends(self) -> bool {
        match self {
            Self::SendRecv | Self::SendOnly => true,
            Self::RecvOnly | Self::Inactive => false,
        }
    }

    /// Returns true if the peer may send.
    pub const fn receives(self) -> bool {
        match self {
            Self::SendRecv | Self::RecvOnly => true,
            Self::SendOnly | Self::Inactive => false,
        }
    }

    pub(super) fn read(attribute: &[u8]) -> Option<Self> {
        [
            Self::SendRecv,
            Self::SendOnly,
            Self::RecvOnly,
            Self::Inactive,
        ]
        .into_iter()
        .find(|direction| attribute == direction.as_str().as_bytes())
    }

    /// Returns the direction from the other side's point of view: the stream that one side sends, the other receives (RFC 3264 §6.1).
    pub(super) const fn reversed(self) -> Self {
        match self {
            Self::SendRecv => Self::SendRecv,
            Self::SendOnly => Self::RecvOnly,
            Self::RecvOnly => Self::SendOnly,
            Self::Inactive => Self::Inactive,
        }
    }

    pub(super) const fn without_sending(self) -> Self {
        match self {
            Self::SendRecv | Self::RecvOnly => Self::RecvOnly,
            Self::SendOnly | Self::Inactive => Self::Inactive,
        }
    }
}

/// Returns the description with this direction for every stream.
pub fn rewritten(sdp: &[u8], direction: Direction) -> Vec<u8> {
    let mut out = Vec::with_capacity(sdp.len() + 16);
    let mut has_media = false;
    for line in sdp.split_inclusive(|octet| *octet == b'\n') {
        // Each stream gets a direction line of its own below, which outweighs the session's. All direction lines of the
        // description are left out.
        if read(line).is_some() {
            continue;
        }
        if line.starts_with(b"m=") {
            if has_media {
                write(&mut out, direction);
            }
            has_media = true;
        }
        out.extend_from_slice(line);
    }

    if has_media {
        write(&mut out, direction);
    }
    out
}

/// Returns the direction of each stream, from the point of view of the description's author.
pub fn of(sdp: &[u8]) -> Vec<Direction> {
    let mut by_default = Direction::SendRecv;
    let mut streams: Vec<Direction> = Vec::new();
    for line in sdp.split_inclusive(|octet| *octet == b'\n') {
        if line.starts_with(b"m=") {
            streams.push(by_default);
        } else if let Some(direction) = read(line) {
            *streams.last_mut().unwrap_or(&mut by_default) = direction;
        }
    }
    streams
}

fn read(line: &[u8]) -> Option<Direction> {
    Direction::read(line.trim_ascii_end().strip_prefix(b"a=")?)
}

fn write(out: &mut Vec<u8>, direction: Direction) {
    // The last line of a peer's description may have no end.
    if !out.ends_with(b"\n") {
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"a=");
    out.extend_from_slice(direction.as_str().as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "v=0\r\no=a 1 1 IN IP4 h\r\ns=-\r\n";

    #[test]
    fn each_stream_gets_the_direction_and_nothing_else_changes() {
        for (case, given, expected) in [
            (
                "none given",
                "m=audio 4000 RTP/AVP 0\r\n",
                "m=audio 4000 RTP/AVP 0\r\na=sendonly\r\n",
            ),
            (
                "one of the session",
                "a=recvonly\r\nm=audio 4000 RTP/AVP 0\r\na=ptime:20\r\n",
                "m=audio 4000 RTP/AVP 0\r\na=ptime:20\r\na=sendonly\r\n",
            ),
            (
                "two streams, each its own",
                "m=audio 4000 RTP/AVP 0\r\na=sendrecv\r\na=x\r\nm=video 0 RTP/AVP 31\r\na=inactive\r\n",
                "m=audio 4000 RTP/AVP 0\r\na=x\r\na=sendonly\r\nm=video 0 RTP/AVP 31\r\na=sendonly\r\n",
            ),
            (
                "no line end",
                "m=audio 4000 RTP/AVP 0",
                "m=audio 4000 RTP/AVP 0\r\na=sendonly\r\n",
            ),
            ("no stream", "", ""),
        ] {
            let given = format!("{HEAD}{given}");
            let out = rewritten(given.as_bytes(), Direction::SendOnly);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!("{HEAD}{expected}"),
                "{case}"
            );
        }
    }

    #[test]
    fn directions_are_read_by_stream() {
        let sdp = "v=0\r\na=sendonly\r\nm=audio 1 RTP/AVP 0\r\nm=video 2 RTP/AVP 31\na=inactive\n";
        assert_eq!(
            of(sdp.as_bytes()),
            [Direction::SendOnly, Direction::Inactive]
        );
        assert_eq!(of(b"m=audio 1 RTP/AVP 0"), [Direction::SendRecv]);
        assert_eq!(of(b"a=recvonly\r\n"), []);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(lines in proptest::collection::vec("(m=audio 1 RTP/AVP 0|a=(sendrecv|inactive|x)|c=IN IP4 h)\r?\n", 0..8)) {
            let sdp = lines.concat();
            let out = rewritten(sdp.as_bytes(), Direction::RecvOnly);
            prop_assert!(of(&out).iter().all(|direction| *direction == Direction::RecvOnly));
            prop_assert_eq!(of(&out).len(), of(sdp.as_bytes()).len());
            prop_assert_eq!(rewritten(&out, Direction::RecvOnly), out);
        }
    }
}
