//! Finds media addresses in a trace that the other side can't reach. SDP crosses the bridge unchanged, so a private
//! `c=` sent to a peer outside means no audio, unless that peer sends its audio to where packets come from. Computed
//! from the messages; nothing is stored for it.

use std::net::IpAddr;

use trunkline_capture::message::Message;
use trunkline_sip::flow::is_private;
use trunkline_sip::moment::Moment;

use super::legs::Message as Leg;

/// Returns each private media address that was sent to a peer outside, once per leg, with the time of the first
/// message.
pub(super) fn unreachable(legs: &[Leg]) -> Vec<(Moment, String)> {
    let mut said: Vec<(&str, IpAddr)> = Vec::new();
    let mut lines = Vec::new();
    for leg in legs.iter().filter(|leg| leg.is_sent) {
        let peer = leg.captured.target.ip();
        let Some(media) = private_media(leg).filter(|_| !is_private(peer)) else {
            continue;
        };

        if said.contains(&(leg.name, media)) {
            continue;
        }

        said.push((leg.name, media));
        let origin = origin(legs, leg, media);
        // Behind one public address they are most likely in one network: a PBX that is called back reaches its own phones.
        if origin.is_some_and(|origin| origin.captured.source.ip() == peer) {
            continue;
        }
        let text = sentence(media, origin.map(|origin| origin.name), leg.name, peer);
        lines.push((Moment::from_micros(leg.captured.at), text));
    }

    lines
}

/// Returns a message in which another leg's peer named this media address; `None` for an address of this node.
fn origin<'l>(legs: &'l [Leg], towards: &Leg, media: IpAddr) -> Option<&'l Leg> {
    let others = legs
        .iter()
        .filter(|leg| !leg.is_sent && leg.name != towards.name);
    let mut named = others.filter(|leg| private_media(leg) == Some(media));
    named.next()
}

fn sentence(media: IpAddr, origin: Option<&str>, leg: &str, peer: IpAddr) -> String {
    match origin {
        Some(origin) => format!(
            "The {origin}'s media address is {media}, a private one, and the {leg} is outside, at {peer}: audio of the {leg} arrives only if it is sent to the address from which the {origin}'s packets come."
        ),
        None => format!(
            "This node's media address is {media}, a private one, and the {leg} is outside, at {peer}: set media.ip, or the listener's own advertised address, to one that is reached from there."
        ),
    }
}

/// Returns the private address in a message's SDP; `None` if ICE may find another (RFC 8839).
fn private_media(leg: &Leg) -> Option<IpAddr> {
    // Quick check: most messages of a call have no such line.
    memchr::memmem::find(&leg.captured.octets, b"c=IN IP")?;

    let message = Message::parse(&leg.captured.octets);
    let text = String::from_utf8_lossy(&message.body);
    if !text.starts_with("v=") || text.contains("a=candidate") {
        return None;
    }
    audio_connection(&text).filter(|ip| is_private(*ip))
}

/// Address of the first audio stream: its own `c=`, or else the session's (RFC 8866 §5.7).
fn audio_connection(sdp: &str) -> Option<IpAddr> {
    let mut connection = None;
    let mut is_audio = None;
    for line in sdp.lines() {
        if let Some(media) = line.strip_prefix("m=") {
            if is_audio == Some(true) {
                break;
            }
            is_audio = Some(media.starts_with("audio"));
        } else if let Some(value) = line.strip_prefix("c=")
            && is_audio != Some(false)
        {
            let address = value.split_ascii_whitespace().nth(2)?;
            connection = address.split('/').next()?.parse().ok();
        }
    }

    connection.filter(|_| is_audio.is_some())
}

#[cfg(test)]
mod tests {
    use trunkline_capture::{Captured, Transport};

    use super::*;

    const CALLER: &str = "203.0.113.5:5060";
    const RUNTIME: &str = "198.51.100.9:5060";
    const INSIDE: &str = "10.0.0.9:5060";

    fn message(name: &'static str, is_sent: bool, peer: &str, media: &str, more: &str) -> Leg {
        let sdp = format!(
            "v=0\r\no=- 1 1 IN IP4 {media}\r\ns=-\r\nc=IN IP4 {media}\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n{more}"
        );
        let octets = format!(
            "SIP/2.0 200 OK\r\nCall-ID: {name}\r\nCSeq: 1 INVITE\r\nContent-Length: {}\r\n\r\n{sdp}",
            sdp.len()
        );
        let (own, peer) = ("192.0.2.1:5060".parse().unwrap(), peer.parse().unwrap());
        let (source, target) = if is_sent { (own, peer) } else { (peer, own) };

        Leg {
            name,
            is_sent,
            captured: Captured {
                at: 7,
                source,
                target,
                transport: Transport::Udp,
                octets: octets.into_bytes(),
            },
        }
    }

    fn crossed(from: (&'static str, &str), to: (&'static str, &str), media: &str) -> Vec<Leg> {
        vec![
            message(from.0, false, from.1, media, ""),
            message(to.0, true, to.1, media, ""),
            // A retransmission adds no second line.
            message(to.0, true, to.1, media, ""),
        ]
    }

    #[test]
    fn a_private_address_that_goes_outside_is_told_once() {
        let (caller, runtime) = (("caller", CALLER), ("runtime", RUNTIME));
        let inside = ("runtime", INSIDE);
        for (case, legs, told) in [
            (
                "runtime's",
                crossed(inside, caller, "10.0.0.9"),
                Some("The runtime's"),
            ),
            (
                "caller's",
                crossed(caller, runtime, "192.168.1.2"),
                Some("The caller's"),
            ),
            (
                "ours",
                crossed(runtime, caller, "10.0.0.1")[1..].to_vec(),
                Some("This node's"),
            ),
            (
                "one PBX on both sides",
                crossed(caller, ("destination", "203.0.113.5:1024"), "10.0.0.5"),
                None,
            ),
            ("public", crossed(runtime, caller, "198.51.100.9"), None),
            ("both inside", crossed(caller, inside, "10.0.0.5"), None),
            ("on hold", crossed(runtime, caller, "0.0.0.0"), None),
        ] {
            let lines = unreachable(&legs);
            assert_eq!(
                lines.len(),
                usize::from(told.is_some()),
                "{case}: {lines:?}"
            );
            for (at, text) in &lines {
                assert_eq!(at.as_micros(), 7);
                assert!(
                    told.is_some_and(|told| text.starts_with(told)),
                    "{case}: {text}"
                );
            }
        }

        let ice = "a=candidate:1 1 UDP 1 198.51.100.9 4000 typ srflx\r\n";
        assert_eq!(
            unreachable(&[message("caller", true, CALLER, "10.0.0.9", ice)]),
            []
        );
    }

    #[test]
    fn the_audio_streams_own_address_counts() {
        for (sdp, address) in [
            (
                "v=0\nc=IN IP4 10.0.0.1\nm=audio 1 RTP/AVP 0\n",
                Some("10.0.0.1"),
            ),
            (
                "v=0\nc=IN IP4 10.0.0.1\nm=audio 1 RTP/AVP 0\nc=IN IP4 198.51.100.1\n",
                Some("198.51.100.1"),
            ),
            (
                "v=0\nm=video 1 RTP/AVP 0\nc=IN IP4 10.0.0.1\nm=audio 1 RTP/AVP 0\nc=IN IP6 fd00::1\n",
                Some("fd00::1"),
            ),
            (
                "v=0\nm=audio 1 RTP/AVP 0\nc=IN IP4 10.0.0.1\nm=audio 1 RTP/AVP 0\nc=IN IP4 10.0.0.2\n",
                Some("10.0.0.1"),
            ),
            (
                "v=0\nc=IN IP4 media.example.com\nm=audio 1 RTP/AVP 0\n",
                None,
            ),
            ("v=0\nc=IN IP4 10.0.0.1\n", None),
        ] {
            let expected = address.map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(audio_connection(sdp), expected, "{sdp}");
        }
    }
}
