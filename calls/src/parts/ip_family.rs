//! IP families of media. SDP crosses a bridge unchanged and media isn't relayed, so an end with IPv4 media and one with IPv6 can't hear each other.
//! Such a call is refused instead of answered.

use std::net::IpAddr;

use trunkline_sip::dialog::sdp::IpVersion;

/// Returns the IP version of all `c=` lines (RFC 8866 §5.7); `None` if they differ, or if the peer can use either: with ICE (RFC 8839), or with a
/// connection that is on hold or a name.
fn version_of(sdp: &[u8]) -> Option<IpVersion> {
    const EITHER: [&[u8]; 3] = [b"a=candidate", b"a=altc", b"a=group:ANAT"];

    let mut found = None;
    let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', sdp).map(|end| end + 1));
    for line in starts.map(|start| &sdp[start..]) {
        let connection = match line {
            [b'a', ..] if EITHER.iter().any(|either| line.starts_with(either)) => return None,
            [b'c', b'=', rest @ ..] => rest.split(|octet| *octet == b'\n').next()?,
            _ => continue,
        };
        let text = std::str::from_utf8(connection).ok()?;
        let address = text.split_ascii_whitespace().nth(2)?;
        let address: IpAddr = address.split('/').next()?.parse().ok()?;
        let family = Some(IpVersion::of(address)).filter(|_| !address.is_unspecified())?;
        if found.is_some_and(|before| before != family) {
            return None;
        }
        found = Some(family);
    }

    found
}

/// Returns whether two descriptions have media of different families.
pub(crate) fn differ(one: &[u8], two: &[u8]) -> bool {
    // Without IPv6 in either there is one family: most calls pay for this check only.
    if [one, two]
        .iter()
        .all(|sdp| memchr::memmem::find(sdp, b"IP6").is_none())
    {
        return false;
    }
    let ip_family = (version_of(one), version_of(two));
    matches!(ip_family, (Some(one), Some(two)) if one != two)
}

/// Returns whether a caller with this offer can't hear the media of an answer. A caller without an offer is assumed to have media of its signalling's
/// family.
pub(crate) fn is_out_of_reach(answer: &[u8], offer: Option<&[u8]>, signalling: IpAddr) -> bool {
    match offer {
        Some(offer) => differ(offer, answer),
        None => version_of(answer).is_some_and(|media| media != IpVersion::of(signalling)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_of_two_families_never_meets() {
        let v4 = "v=0\r\nc=IN IP4 192.0.2.1\r\nm=audio 4000 RTP/AVP 0\r\n";
        let v6 = "v=0\r\nc=IN IP6 2001:db8::1\r\nm=audio 4000 RTP/AVP 0\r\n";
        let by_media = "v=0\r\nm=audio 4000 RTP/AVP 0\r\nc=IN IP6 2001:db8::1\r\n";
        let held = "v=0\r\nc=IN IP4 0.0.0.0\r\nm=audio 4000 RTP/AVP 0\r\n";
        let named = "v=0\r\nc=IN IP4 media.example.com\r\nm=audio 4000 RTP/AVP 0\r\n";
        let ice = format!("{v4}a=candidate:1 1 UDP 1 2001:db8::1 4000 typ host\r\n");
        let mixed = format!("{v4}c=IN IP6 2001:db8::1\r\n");

        for (case, one, two, differs) in [
            ("IPv4 and IPv6", v4, v6, true),
            ("at the media line", v4, by_media, true),
            ("IPv4", v4, v4, false),
            ("IPv6", v6, by_media, false),
            ("on hold", held, v6, false),
            ("a name", named, v6, false),
            ("ICE", &ice, v6, false),
            ("one of each", &mixed, v6, false),
            ("nothing", "", v6, false),
        ] {
            assert_eq!(differ(one.as_bytes(), two.as_bytes()), differs, "{case}");
            assert_eq!(differ(two.as_bytes(), one.as_bytes()), differs, "{case}");
        }
    }
}
