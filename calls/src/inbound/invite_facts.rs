//! Reads a caller's first INVITE: the facts that routed it, its proof of identity, and its phone system's SIP traits. They are stored with the call,
//! to explain it, to route it again by another directory, and to find harmful settings.
//!
//! Every text and list is bounded.

use std::mem;
use std::net::{IpAddr, SocketAddr};

use trunkline_model::invite_facts::{InviteFacts, PeerTraits, Proof};
use trunkline_routing::Facts;
use trunkline_sip::dialog::body::sdp_of;
use trunkline_sip::dialog::sdp;
use trunkline_sip::flow::{Flow, is_private};
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::text;
use trunkline_sip::header::uri::{Uri, push_host_and_port};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{HeaderName, Message};

/// Bounds on what is kept: characters of a text, codecs of an offer, identities that were asserted. The rest is left out.
const KEPT: usize = 128;
const CODECS: usize = 16;
/// Most audio streams of an offer that are read.
const STREAMS: usize = 4;
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

    let mut offer = Sdp::read(message.body());
    if let Some(offer) = &mut offer {
        traits.offer = true;
        traits.codecs = mem::take(&mut offer.codecs).into();
        traits.telephone_event = offer.telephone_event;
        traits.encrypted = offer.encrypted;
        // Read a second time only where it looks as if media of ours had no answer.
        traits.mismatch = match offer.has_g711 && !offer.encrypted {
            true => None,
            false => sdp::mismatch(sdp_of(message.body())).map(Into::into),
        };
    }

    // From a private network, private addresses are no sign of NAT.
    if !is_private(source) {
        look_behind_nat(&mut traits, message, source, offer.as_ref());
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
    has_g711: bool,
    origin: Option<IpAddr>,
    connection: Option<IpAddr>,
}

/// An audio stream of an offer.
#[derive(Debug, Default)]
struct AudioStream<'s> {
    is_encrypted: bool,
    payloads: Vec<&'s str>,
    /// Payload types with the names that `rtpmap` gives them.
    names: Vec<(&'s str, &'s str)>,
}

impl<'s> AudioStream<'s> {
    /// Reads the value of an `m=` line; `None` for other media, and for a stream that is switched off.
    fn read(value: &'s str) -> Option<Self> {
        let mut fields = value.split_ascii_whitespace();
        let is_audio = fields.next() == Some("audio");
        let is_on = fields.next() != Some("0");
        let profile = fields.next().unwrap_or_default();
        (is_audio && is_on).then(|| Self {
            is_encrypted: profile.contains("SAVP"),
            payloads: fields.take(CODECS).collect(),
            names: Vec::new(),
        })
    }

    /// Reads the value of an `a=` line.
    fn attribute(&mut self, value: &'s str) {
        let map = value.strip_prefix("rtpmap:").unwrap_or_default();
        let mut fields = map.split_ascii_whitespace();
        if let (Some(payload), Some(name)) = (fields.next(), fields.next())
            // An offer may have thousands of lines, and each payload searches all of these names.
            && self.names.len() < 4 * CODECS
        {
            self.names.push((payload, name));
        }
    }

    /// Names of its payloads, without rates.
    fn formats(&self) -> impl Iterator<Item = &'s str> {
        self.payloads.iter().map(|payload| {
            let named = self.names.iter().find(|(known, _)| known == payload);
            let name = named.map_or_else(|| well_known(payload), |(_, name)| *name);
            name.split('/').next().unwrap_or(name)
        })
    }
}

impl Sdp {
    /// Reads the audio streams of an offer; `None` if the body isn't SDP alone. Where some aren't encrypted, the codecs are theirs: an encrypted
    /// stream beside a plain one is optional. The connection is that of the first stream.
    fn read(body: &[u8]) -> Option<Self> {
        if !body.starts_with(b"v=") {
            return None;
        }

        let text = text::lossy(body);
        let mut sdp = Self::default();
        let mut streams: Vec<AudioStream<'_>> = Vec::new();
        let mut section = Section::Session;

        for line in lines(&text) {
            let Some((kind, value)) = line.split_at_checked(2) else {
                continue;
            };
            match kind {
                "o=" => {
                    let address = value.split_ascii_whitespace().nth(5);
                    sdp.origin = address.and_then(|ip| ip.parse().ok());
                }

                // That of the session, or the first audio stream's own.
                "c=" if section == Section::Session
                    || (section == Section::Audio && streams.len() == 1) =>
                {
                    let address = value.split_ascii_whitespace().nth(2).unwrap_or_default();
                    let address = address.split('/').next().unwrap_or_default();
                    sdp.connection = address.parse().ok();
                }

                "m=" => {
                    let stream = AudioStream::read(value).filter(|_| streams.len() < STREAMS);
                    section = match &stream {
                        Some(_) => Section::Audio,
                        None => Section::Other,
                    };
                    streams.extend(stream);
                }

                "a=" if section == Section::Audio => {
                    if let Some(stream) = streams.last_mut() {
                        stream.attribute(value);
                    }
                }
                _ => {}
            }
        }

        let is_plain = streams.iter().any(|stream| !stream.is_encrypted);
        sdp.encrypted = !streams.is_empty() && !is_plain;
        let told = streams
            .iter()
            .filter(|stream| !stream.is_encrypted || !is_plain);
        for name in told.flat_map(AudioStream::formats) {
            sdp.add(name);
        }

        Some(sdp)
    }

    fn add(&mut self, name: &str) {
        let is_known = |known: &str| known.eq_ignore_ascii_case(name);
        if name.eq_ignore_ascii_case("telephone-event") {
            self.telephone_event = true;
            return;
        }
        self.has_g711 |= ["PCMU", "PCMA"]
            .iter()
            .any(|g711| g711.eq_ignore_ascii_case(name));
        if self.codecs.len() < CODECS && !self.codecs.iter().any(|known| is_known(known)) {
            self.codecs.push(cut(name));
        }
    }
}

/// Part of an offer that a line belongs to.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Section {
    Session,
    Audio,
    Other,
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
            mismatch: None,
            private_contact: None,
            private_media: None,
            rewritten: Some("10.0.0.5".into()),
            clock_skew_s: Some(60),
        };
        assert_eq!(read.traits, expected);
    }

    /// FreeSWITCH's `rtp_secure_media=optional` offers an encrypted stream and a plain one.
    #[test]
    fn all_audio_streams_of_an_offer_are_read() {
        let g711 = "m=audio 4000 RTP/AVP 8 101\r\na=rtpmap:101 telephone-event/8000\r\n";
        let srtp = "m=audio 4002 RTP/SAVP 0\r\na=crypto:1 K\r\n";
        let opus = "m=audio 4004 RTP/AVP 96\r\na=rtpmap:96 opus/48000/2\r\n";
        let g722 = "m=audio 4006 RTP/AVP 9\r\n";
        for (name, streams, encrypted, codecs, lacks) in [
            (
                "optional",
                format!("{srtp}{g711}"),
                false,
                &["PCMA"][..],
                None,
            ),
            (
                "the other way round",
                format!("{g711}{srtp}"),
                false,
                &["PCMA"],
                None,
            ),
            (
                "encrypted",
                srtp.to_owned(),
                true,
                &["PCMU"],
                Some("encrypted"),
            ),
            (
                "switched off",
                format!("m=audio 0 RTP/AVP 0\r\n{srtp}"),
                true,
                &["PCMU"],
                Some("encrypted"),
            ),
            ("opus", opus.to_owned(), false, &["opus"], Some("no G.711")),
            ("G.722", g722.to_owned(), false, &["G722"], Some("no G.711")),
            (
                "two plain ones",
                format!("{opus}{g711}"),
                false,
                &["opus", "PCMA"],
                None,
            ),
        ] {
            let sdp = format!("v=0\r\nc=IN IP4 198.51.100.7\r\nt=0 0\r\n{streams}");
            let traits = asked("198.51.100.7:5060", "Call-ID: x\r\n", &sdp).traits;
            let read: Vec<&str> = traits.codecs.iter().map(AsRef::as_ref).collect();
            assert_eq!((traits.encrypted, &*read), (encrypted, codecs), "{name}");
            let mismatch = traits.mismatch.as_deref();
            match lacks {
                Some(lacks) => assert!(
                    mismatch.is_some_and(|said| said.contains(lacks)),
                    "{name}: {mismatch:?}"
                ),
                None => assert_eq!(mismatch, None, "{name}"),
            }
        }
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
