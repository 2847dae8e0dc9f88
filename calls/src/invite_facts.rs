//! Reads a caller's first INVITE: the facts that routed it, its proof of identity, and its phone system's SIP traits. They are stored with the call,
//! to explain it, to route it again by another directory, and to find harmful settings.
//!
//! Every text and list is bounded.

use std::mem;
use std::net::{IpAddr, SocketAddr};

use trunkline_model::invite_facts::{InviteFacts, PeerTraits, Proof};
use trunkline_routing::Facts;
use trunkline_sip::flow::{Flow, is_private};
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::text;
use trunkline_sip::header::uri::{Uri, push_host_and_port};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{HeaderName, Message};

/// Bounds on what is kept: characters of a text, codecs of an offer, identities that were asserted. The rest is left out.
const KEPT: usize = 128;
const CODECS: usize = 16;
const ASSERTED: usize = 4;

/// Reads a caller's first INVITE.
pub(crate) fn read(
    message: &Message<'_>,
    request_uri: Option<&Uri<'_>>,
    flow: &Flow,
    facts: &Facts,
    proof: Proof,
    now: Moment,
) -> InviteFacts {
    let mut host = String::new();
    if let Some(uri) = request_uri {
        push_host_and_port(&mut host, &uri.host, uri.port);
    }

    InviteFacts {
        facts: kept(facts),
        proof,
        source: SocketAddr::new(flow.peer.ip().to_canonical(), flow.peer.port()),
        transport: flow.transport.uri_name().into(),
        host: cut(&host),
        user_agent: message
            .first(HeaderName::UserAgent)
            .map(|value| cut(&text::lossy(value))),
        traits: traits(message, flow.peer.ip().to_canonical(), now),
    }
}

/// A peer's text for display: bounded, without control characters.
fn cut(text: &str) -> Box<str> {
    let is_plain = |octet: &u8| (b' '..=b'~').contains(octet);
    if text.len() <= KEPT && text.as_bytes().iter().all(is_plain) {
        return text.into();
    }
    let shown = text.chars().take(KEPT);
    let plain = shown.map(|char| if char.is_control() { '\u{fffd}' } else { char });
    plain.collect::<String>().into()
}

/// Facts within bounds, in a form that every database accepts.
fn kept(facts: &Facts) -> Facts {
    let cut = |text: &str| -> String {
        if text.len() <= KEPT && !text.contains('\0') {
            return text.to_owned();
        }
        let kept = text.chars().take(KEPT);
        kept.map(|char| if char == '\0' { '\u{fffd}' } else { char })
            .collect()
    };

    let some = |text: &Option<String>| text.as_deref().map(cut);
    Facts {
        agent_header: some(&facts.agent_header),
        other_agent_header: facts.other_agent_header.as_deref().map(cut).map(Into::into),
        request_user: some(&facts.request_user),
        to_user: some(&facts.to_user),
        from_user: some(&facts.from_user),
        asserted: facts
            .asserted
            .iter()
            .take(ASSERTED)
            .map(|text| cut(text))
            .collect(),
        anonymous: facts.anonymous,
    }
}

/// SIP traits of the sender: its extensions, codecs, NAT and clock.
fn traits(message: &Message<'_>, source: IpAddr, now: Moment) -> PeerTraits {
    let has_allow = message.first(HeaderName::Allow).is_some();
    let allows = |method: &str| has_allow.then(|| message.has_token(HeaderName::Allow, method));
    let session_expires = message.number(HeaderName::SessionExpires);
    let can = |option: &str| {
        message.has_token(HeaderName::Supported, option)
            || message.has_token(HeaderName::Require, option)
    };

    let mut traits = PeerTraits {
        timer: session_expires.is_some() || can("timer"),
        session_expires,
        refer: allows("REFER"),
        update: allows("UPDATE"),
        reliable: can("100rel"),
        clock_skew_s: skew(message, now),
        ..PeerTraits::default()
    };

    let mut sdp = Sdp::read(message.body());
    if let Some(sdp) = &mut sdp {
        traits.offer = true;
        traits.codecs = mem::take(&mut sdp.codecs).into();
        traits.telephone_event = sdp.telephone_event;
        traits.encrypted = sdp.encrypted;
    }

    // From a private network, private addresses are no sign of NAT.
    if !is_private(source) {
        look_behind_nat(&mut traits, message, source, sdp.as_ref());
    }

    traits
}

/// Notes private addresses in a packet that came from a public one.
fn look_behind_nat(
    traits: &mut PeerTraits,
    message: &Message<'_>,
    source: IpAddr,
    sdp: Option<&Sdp>,
) {
    let contact = contact_address(message);
    let shown = |address: IpAddr| address.to_string().into_boxed_str();
    traits.private_contact = contact.filter(|ip| is_private(*ip)).map(shown);

    let connection = sdp.and_then(|sdp| sdp.connection);
    traits.private_media = connection.filter(|ip| is_private(*ip)).map(shown);

    // A gateway with a SIP ALG rewrites some fields and forgets others: Contact or connection is public, and the origin line or the Call-ID still has
    // the private address.
    let call_id = text::lossy(message.call_id());
    let call_id = call_id
        .rsplit_once('@')
        .and_then(|(_, host)| host.parse().ok());
    let forgotten = [call_id, sdp.and_then(|sdp| sdp.origin)];
    let was_changed = contact == Some(source) || connection == Some(source);

    traits.rewritten = forgotten
        .into_iter()
        .flatten()
        .find(|ip: &IpAddr| was_changed && is_private(*ip))
        .map(shown);
}

fn contact_address(message: &Message<'_>) -> Option<IpAddr> {
    let value = message.first(HeaderName::Contact)?;
    let contact = NameAddr::parse(value).ok()?;
    contact.parse_uri().ok()?.host.address()
}

fn skew(message: &Message<'_>, now: Moment) -> Option<i64> {
    let date = std::str::from_utf8(message.first(HeaderName::Date)?).ok()?;
    let theirs = jiff::fmt::rfc2822::parse(date)
        .ok()?
        .timestamp()
        .as_second();
    let ours = i64::try_from(now.as_millis() / 1_000).ok()?;
    Some(theirs - ours)
}

/// Traits of an offer.
#[derive(Debug, Default)]
struct Sdp {
    codecs: Vec<Box<str>>,
    telephone_event: bool,
    encrypted: bool,
    origin: Option<IpAddr>,
    connection: Option<IpAddr>,
}

impl Sdp {
    /// Reads the first audio stream of an offer; `None` if the body isn't SDP alone.
    fn read(body: &[u8]) -> Option<Self> {
        if !body.starts_with(b"v=") {
            return None;
        }

        let text = text::lossy(body);
        let mut sdp = Self::default();
        let mut payloads: Vec<&str> = Vec::new();
        let mut names: Vec<(&str, &str)> = Vec::new();
        let mut audio = None;

        for line in lines(&text) {
            let Some((kind, value)) = line.split_at_checked(2) else {
                continue;
            };
            match kind {
                "o=" => {
                    let address = value.split_ascii_whitespace().nth(5);
                    sdp.origin = address.and_then(|ip| ip.parse().ok());
                }

                // That of the session, or the audio stream's own.
                "c=" if audio != Some(false) => {
                    let address = value.split_ascii_whitespace().nth(2).unwrap_or_default();
                    let address = address.split('/').next().unwrap_or_default();
                    sdp.connection = address.parse().ok();
                }

                "m=" => {
                    let mut fields = value.split_ascii_whitespace();
                    let is_audio = fields.next() == Some("audio") && audio.is_none();
                    audio = Some(is_audio);
                    if is_audio {
                        sdp.encrypted = fields
                            .nth(1)
                            .is_some_and(|profile| profile.contains("SAVP"));
                        payloads = fields.take(CODECS).collect();
                    }
                }

                "a=" if audio == Some(true) => {
                    let map = value.strip_prefix("rtpmap:").unwrap_or_default();
                    let mut fields = map.split_ascii_whitespace();
                    if let (Some(payload), Some(name)) = (fields.next(), fields.next())
                        // An offer may have thousands of lines, and each payload searches all of these names.
                        && names.len() < 4 * CODECS
                    {
                        names.push((payload, name));
                    }
                }
                _ => {}
            }
        }

        for payload in payloads {
            let named = names.iter().find(|(known, _)| *known == payload);
            let name = named.map_or_else(|| well_known(payload), |(_, name)| *name);
            let name = name.split('/').next().unwrap_or(name);
            if name.eq_ignore_ascii_case("telephone-event") {
                sdp.telephone_event = true;
            } else if !sdp
                .codecs
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name))
            {
                sdp.codecs.push(cut(name));
            }
        }

        Some(sdp)
    }
}

/// The lines of a text, with carriage returns. Runs for the offer of each call; `memchr` finds line ends faster than a search for a character.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut from = 0;
    memchr::memchr_iter(b'\n', text.as_bytes())
        .chain([text.len()])
        .map(move |end| &text[mem::replace(&mut from, end + 1)..end])
}

/// Static payload types of RFC 3551 §6 that phones offer without an rtpmap.
fn well_known(payload: &str) -> &str {
    match payload {
        "0" => "PCMU",
        "3" => "GSM",
        "4" => "G723",
        "8" => "PCMA",
        "9" => "G722",
        "15" => "G728",
        "18" => "G729",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::flow::Transport;
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    fn asked(peer: &str, lines: &str, sdp: &str) -> InviteFacts {
        let octets = format!(
            "INVITE sip:030123@sip.example.com:5070 SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
             To: <sip:b@c>\r\nCSeq: 1 INVITE\r\n{lines}Content-Length: {}\r\n\r\n{sdp}",
            sdp.len()
        );
        let message = lex(octets.as_bytes(), Framing::Datagram).expect("an INVITE");
        let flow = Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: "192.0.2.1:5060".parse().expect("address"),
            peer: peer.parse().expect("address"),
        };
        let facts = Facts {
            request_user: Some("x".repeat(900)),
            ..Facts::default()
        };
        let request_uri = Uri::parse(message.request_uri()).expect("a URI");
        read(
            &message,
            Some(&request_uri),
            &flow,
            &facts,
            Proof::Digest,
            Moment::from_secs(1_769_860_800),
        )
    }

    #[test]
    fn what_an_invite_says_is_read_and_bounded() {
        let sdp = "v=0\r\no=- 1 1 IN IP4 10.0.0.5\r\ns=-\r\nc=IN IP4 198.51.100.7\r\nt=0 0\r\nm=audio 4000 RTP/AVP 8 96 0 101\r\n\
                   a=rtpmap:96 opus/48000/2\r\na=rtpmap:101 telephone-event/8000\r\nm=video 4002 RTP/SAVP 97\r\na=rtpmap:97 H264/90000\r\n";
        let lines = "Call-ID: 77@10.0.0.5\r\nContact: <sip:a@198.51.100.7:5060>\r\nUser-Agent: Asterisk PBX 20.5\r\nAllow: INVITE, REFER\r\n\
                     Supported: timer, 100rel\r\nSession-Expires: 1800\r\nDate: Sat, 31 Jan 2026 12:01:00 GMT\r\n";
        let read = asked("198.51.100.7:5060", lines, sdp);
        assert_eq!(&*read.host, "sip.example.com:5070");
        assert_eq!(read.user_agent.as_deref(), Some("Asterisk PBX 20.5"));
        assert_eq!(
            read.facts.request_user.as_ref().map(String::len),
            Some(KEPT)
        );
        let codecs: Vec<&str> = read.traits.codecs.iter().map(AsRef::as_ref).collect();
        assert_eq!(codecs, ["PCMA", "opus", "PCMU"]);
        let expected = PeerTraits {
            timer: true,
            session_expires: Some(1800),
            refer: Some(true),
            update: Some(false),
            reliable: true,
            offer: true,
            codecs: read.traits.codecs.clone(),
            telephone_event: true,
            encrypted: false,
            private_contact: None,
            private_media: None,
            rewritten: Some("10.0.0.5".into()),
            clock_skew_s: Some(60),
        };
        assert_eq!(read.traits, expected);
    }

    #[test]
    fn private_addresses_hurt_only_behind_a_public_one() {
        let sdp = "v=0\r\no=- 1 1 IN IP4 10.0.0.5\r\ns=-\r\nc=IN IP4 10.0.0.5\r\nt=0 0\r\nm=audio 4000 RTP/SAVP 0\r\n";
        let lines = "Call-ID: 77@10.0.0.5\r\nContact: <sip:a@10.0.0.5:5060>\r\n";
        let outside = asked("198.51.100.7:5060", lines, sdp).traits;
        assert_eq!(outside.private_contact.as_deref(), Some("10.0.0.5"));
        assert_eq!(outside.private_media.as_deref(), Some("10.0.0.5"));
        assert_eq!(outside.rewritten, None, "nothing was changed on the way");
        assert!(outside.encrypted && !outside.timer && outside.refer.is_none());
        let inside = asked("10.0.0.5:5060", lines, sdp).traits;
        assert_eq!((inside.private_contact, inside.private_media), (None, None));
    }

    #[test]
    fn it_is_read_again_as_it_was_written() {
        let read = asked("198.51.100.7:5060", "Call-ID: x\r\n", "");
        let stored = serde_json::to_string(&read).expect("plain values");
        assert_eq!(
            serde_json::from_str::<InviteFacts>(&stored).expect("read"),
            read
        );
    }
}
