//! Origin line of the SDP towards a peer that gets several parties' descriptions: a callee, whose first offer is ours and whose later ones are the
//! runtime's, and a caller who is transferred. For the peer they must be one session whose version grows by one with each change (RFC 3264 §8, RFC
//! 8866 §5.2).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};

use trunkline_sip::dialog::compared::lines;
use uuid::Uuid;

/// Our session as one peer knows it.
#[derive(Debug)]
pub(crate) struct Origin {
    /// User name and session id.
    session: Box<str>,
    /// Network type, address type, address.
    address: Box<str>,
    version: u64,
    /// Digest of the last SDP without its origin line.
    digest: Option<u64>,
}

/// Origin line of the SDP that a peer has of us.
#[derive(Debug)]
pub(crate) enum OwnOrigin {
    /// Origin line of the party whose SDP the peer got last.
    LastParty(Box<[u8]>),
    /// One of our own, under which it gets every SDP.
    Own(Origin),
}

/// `sess-id` of the SDP that we make in a call.
pub(crate) const fn sdp_session(call: Uuid) -> u64 {
    call.as_u64_pair().1 >> 2
}

impl OwnOrigin {
    /// Origin of our own SDP in a call, which the peer's next SDP continues.
    pub(crate) fn of_call(call: Uuid, local: SocketAddr) -> Self {
        Self::Own(Origin::new(sdp_session(call), local.ip()))
    }
}

/// Returns the origin line of a description.
pub(crate) fn origin_line(sdp: &[u8]) -> Option<&[u8]> {
    lines(sdp).find(|line| line.starts_with(b"o="))
}

impl Origin {
    /// Makes the session of our own first offer, whose version was 1.
    pub(crate) fn new(session: u64, ip: IpAddr) -> Self {
        let family = if ip.is_ipv4() { "IP4" } else { "IP6" };
        Self {
            session: format!("- {session}").into(),
            address: format!("IN {family} {ip}").into(),
            version: 1,
            digest: None,
        }
    }

    /// Continues the session of the SDP that has this origin line.
    pub(crate) fn after(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line.strip_prefix(b"o=")?).ok()?;
        let mut words = line.trim_ascii_end().splitn(4, ' ');
        let (user, id) = (words.next()?, words.next()?);
        let version = words.next()?.parse().ok()?;
        Some(Self {
            session: format!("{user} {id}").into(),
            address: words.next()?.into(),
            version,
            digest: None,
        })
    }

    /// Returns an SDP of another session as the next version of this one.
    pub(crate) fn adopt(&mut self, sdp: &[u8]) -> Vec<u8> {
        let mut hasher = DefaultHasher::new();
        for line in lines(sdp).filter(|line| !line.starts_with(b"o=")) {
            line.hash(&mut hasher);
        }

        let digest = hasher.finish();
        // RFC 3264 §8: "If the version in the origin line does not increment, the SDP MUST be identical".
        if self.digest.replace(digest) != Some(digest) {
            self.version = self.version.wrapping_add(1);
        }

        let own = format!("o={} {} {}\r\n", self.session, self.version, self.address);
        let mut out = Vec::with_capacity(sdp.len() + own.len());
        for line in sdp.split_inclusive(|octet| *octet == b'\n') {
            if line.starts_with(b"o=") {
                out.extend_from_slice(own.as_bytes());
            } else {
                out.extend_from_slice(line);
            }
        }

        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_sdp_becomes_the_next_version_of_ours() {
        let mut origin = Origin::new(77, "192.0.2.1".parse().unwrap());
        let sdp = |id: u32, port: u32| {
            format!("v=0\r\no=x {id} {id} IN IP4 h\r\ns=-\r\nm=audio {port} RTP/AVP 0\r\n")
        };

        for (case, id, port, version) in [
            ("the runtime's", 3, 4000, 2),
            ("the same again", 3, 4000, 2),
            ("only its version grew", 4, 4000, 2),
            ("it moved", 5, 4002, 3),
            ("and back", 6, 4000, 4),
        ] {
            let adopted = String::from_utf8(origin.adopt(sdp(id, port).as_bytes())).unwrap();
            let expected = format!(
                "v=0\r\no=- 77 {version} IN IP4 192.0.2.1\r\ns=-\r\nm=audio {port} RTP/AVP 0\r\n"
            );
            assert_eq!(adopted, expected, "{case}");
        }
    }

    #[test]
    fn what_follows_a_foreign_sdp_is_its_next_version() {
        let mut origin = Origin::after(b"o=root 17 41 IN IP4 192.0.2.9").unwrap();
        let sdp = b"v=0\r\no=x 1 1 IN IP4 h\r\ns=-\r\nm=audio 4000 RTP/AVP 0\r\n";
        let adopted = String::from_utf8(origin.adopt(sdp)).unwrap();
        assert!(
            adopted.contains("\r\no=root 17 42 IN IP4 192.0.2.9\r\n"),
            "{adopted}"
        );
        for line in [&b"o=root 17"[..], b"o=a 1 x IN IP4 h", b"s=-"] {
            assert!(Origin::after(line).is_none(), "{line:?}");
        }
    }
}
