//! SDP of media that ends here: G.711 over plain RTP, with telephone events (RFC 8866, RFC 3264,
//! RFC 3551, RFC 4733). This module doesn't read SDP that crosses a bridge.
//!
//! It reads leniently, in one pass over the lines. It writes each description anew and copies only what an answer must repeat.

use std::borrow::Cow;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use super::connection_line::Connection;
pub use super::direction::Direction;
pub use super::ip_version::IpVersion;
pub use super::payload::{AudioPayload, Codec, Format, PayloadTypes};
pub use super::rtp_attributes::PacketTime;
use super::rtp_attributes::RtpAttributes;

/// Most media sections in one description. A description with more is refused.
const MOST_MEDIA: usize = 32;

/// Highest payload type that RFC 3551 §6 assigns to a codec, or keeps for one.
const LAST_STATIC: u8 = 34;

/// Payload type of telephone events in offers of ours.
const TELEPHONE_EVENT: u8 = 101;
/// Greatest dynamic payload type (RFC 3551 §6).
const LAST_DYNAMIC: u8 = 127;

/// The audio stream that both sides agreed on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Audio {
    /// Address and port at which the peer wants its RTP.
    pub remote: SocketAddr,
    /// The payload of the audio that we send: the first of the peer's that we have.
    pub payload: AudioPayload,
    /// The payload type of the telephone events that we send, if the peer supports them.
    pub telephone_event: Option<u8>,
    /// The payload types that the peer may send.
    pub received: PayloadTypes,
    /// Our direction.
    pub direction: Direction,
    /// Audio in each packet that we send.
    pub packet_time: PacketTime,
    /// Address at which the peer wants our RTCP, if it names one.
    pub rtcp: Option<SocketAddr>,
}

/// An answer to an offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AudioAnswer {
    /// The SDP.
    pub body: Vec<u8>,
    /// The stream; `None` if the offer disables every stream.
    pub audio: Option<Audio>,
}

/// Nothing in the offer can be accepted; the answer is 488.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct NoMatch {
    /// Missing part, or the line that can't be read, as a sentence without its full stop.
    pub what: Cow<'static, str>,
}

/// Answers an offer with its first usable audio stream and disables all others. `session_id` and `version` go into the origin line:
/// the first stays the same for a dialog, the second grows by one with each change.
pub fn answer_audio(
    offer: &[u8],
    local: SocketAddr,
    session_id: u64,
    version: u64,
) -> Result<AudioAnswer, NoMatch> {
    let offer = Description::read(offer)?;
    let agreed = offer
        .media
        .iter()
        .enumerate()
        .find_map(|(index, media)| Some((index, media.audio(local)?)));
    let is_off = offer.media.iter().all(|media| media.port == 0);
    // An offer that disables every stream is no mismatch: it is answered in kind.
    if agreed.is_none() && !is_off {
        return Err(offer.mismatch());
    }

    let mut body = Vec::with_capacity(320);
    // RFC 3264 §6: "The "t=" line in the answer MUST equal that of the offer".
    head(&mut body, local, session_id, version, offer.time);
    // RFC 3264 §6: "the answer MUST contain exactly the same number of "m=" lines as the offer", in their order.
    for (index, media) in offer.media.iter().enumerate() {
        match &agreed {
            Some((chosen, audio)) if *chosen == index => {
                section(&mut body, local.port(), media.protocol, audio)
            }
            Some(_) | None => media.switched_off(&mut body),
        }
    }

    Ok(AudioAnswer {
        body,
        audio: agreed.map(|(_, audio)| audio),
    })
}

/// Returns what keeps media of ours from answering the offer, as a sentence without its full stop; `None` if they can.
pub fn mismatch(offer: &[u8]) -> Option<Cow<'static, str>> {
    let offer = match Description::read(offer) {
        Ok(offer) => offer,
        Err(no) => return Some(no.what),
    };
    let is_met = |version: IpVersion| {
        let local = SocketAddr::new(version.unspecified(), 0);
        offer.media.iter().any(|media| media.audio(local).is_some())
    };
    let is_off = offer.media.iter().all(|media| media.port == 0);
    let is_answered = is_off || is_met(IpVersion::V4) || is_met(IpVersion::V6);
    (!is_answered).then(|| offer.mismatch().what)
}

/// Returns the IP version in which media of ours can answer the offer: that of `near` if there is a stream for it, else the other one if there
/// is a stream for that.
pub fn version_for(offer: &[u8], near: IpAddr) -> IpVersion {
    let near = IpVersion::of(near);
    let other = match near {
        IpVersion::V4 => IpVersion::V6,
        IpVersion::V6 => IpVersion::V4,
    };
    let offer = Description::read(offer).map_or(Vec::new(), |offer| offer.media);
    let is_met = |version: IpVersion| {
        let local = SocketAddr::new(version.unspecified(), 0);
        offer.iter().any(|media| media.audio(local).is_some())
    };
    match !is_met(near) && is_met(other) {
        true => other,
        false => near,
    }
}

/// The line of an offer that can't be read, by its letter and its number from 1. Its text is the peer's, and isn't repeated.
fn unreadable(letter: char, line: usize) -> NoMatch {
    NoMatch {
        what: format!("Line {line} of the offer ({letter}=) can't be read").into(),
    }
}

/// An offer of both kinds of G.711 and telephone events.
pub fn offer_audio(local: SocketAddr, session_id: u64, version: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(320);
    head(&mut body, local, session_id, version, b"0 0");
    offered_section(&mut body, local.port(), None);
    body
}

/// The same offer to a peer that has an SDP of ours, `before`, in this dialog. Each of its streams keeps its place: "if the previous SDP had N
/// media lines, the new SDP MUST have at least N media lines" (RFC 3264 §8). All but the audio have port 0.
pub fn offer_audio_after(
    before: &[u8],
    local: SocketAddr,
    session_id: u64,
    version: u64,
) -> Vec<u8> {
    let before = Description::read(before).map_or(Vec::new(), |before| before.media);
    let place = |is_on: bool| {
        let is_it = |media: &Media<'_>| media.kind == b"audio" && (media.port != 0 || !is_on);
        before.iter().position(is_it)
    };
    // RFC 3264 §8.1: a new stream may reuse the place of one that was disabled.
    let audio = place(true).or_else(|| place(false)).unwrap_or(before.len());

    let mut body = Vec::with_capacity(320);
    head(&mut body, local, session_id, version, b"0 0");
    for index in 0..before.len().max(audio + 1) {
        match before.get(index).filter(|_| index != audio) {
            Some(other) => other.switched_off(&mut body),
            None => offered_section(&mut body, local.port(), before.get(index)),
        }
    }
    body
}

/// Writes an audio section that offers both kinds of G.711 and telephone events. Dynamic numbers that the section `before` gives to these keep
/// their meaning: "the mapping from a particular dynamic payload type number to a particular codec within that media stream MUST NOT change for
/// the duration of a session" (RFC 3264 §8.3.2).
fn offered_section(body: &mut Vec<u8>, port: u16, before: Option<&Media<'_>>) {
    // Static numbers are offered below anyway.
    let dynamic = before
        .and_then(Media::payload)
        .filter(|payload| AudioPayload::of_static(payload.number).is_none());
    let event = before.and_then(Media::telephone_event).unwrap_or_else(|| {
        let is_taken =
            |number: u8| before.is_some_and(|it| it.numbers().any(|known| known == number));
        let mut free = (TELEPHONE_EVENT..=LAST_DYNAMIC).filter(|number| !is_taken(*number));
        free.next().unwrap_or(TELEPHONE_EVENT)
    });

    print(body, format_args!("m=audio {port} RTP/AVP"));
    let payloads = [dynamic, Some(AudioPayload::PCMU), Some(AudioPayload::PCMA)];
    for payload in payloads.iter().flatten() {
        print(body, format_args!(" {}", payload.number));
    }
    print(body, format_args!(" {event}\r\n"));
    for payload in payloads.iter().flatten() {
        rtpmap(body, *payload);
    }
    event_lines(body, event);
    body.extend_from_slice(b"a=ptime:20\r\na=sendrecv\r\n");
}

fn rtpmap(body: &mut Vec<u8>, AudioPayload { number, codec }: AudioPayload) {
    let name = codec.as_str();
    print(body, format_args!("a=rtpmap:{number} {name}/8000\r\n"));
}

fn event_lines(body: &mut Vec<u8>, event: u8) {
    print(
        body,
        format_args!("a=rtpmap:{event} telephone-event/8000\r\na=fmtp:{event} 0-15\r\n"),
    );
}

/// Reads the answer to an offer of ours; `None` if it accepts no audio.
pub fn read_answer(offer: &[u8], answer: &[u8]) -> Option<Audio> {
    let answer = Description::read(answer).ok()?;
    // Passed in place of our own address. `Media::audio` refuses an offer of the other address family, but an answer
    // may have either.
    let any = |remote: SocketAddr| SocketAddr::new(remote.ip(), 0);
    let accepted = answer
        .media
        .iter()
        .enumerate()
        .find_map(|(index, media)| Some((index, media, media.audio(any(media.remote?))?)));
    let (index, media, mut audio) = accepted?;

    // We receive by the numbers of our offer and send by those of the answer, which may give a codec another one (RFC 3264 §5.1, §6.1). The peer
    // may send any format that both have, and change it in mid-call. A format that it left out of its answer is taken too: some
    // send one all the same. Peers that use their own numbers both ways are understood where our offer gives these no other meaning.
    let offered = Description::read(offer).map_or(Vec::new(), |offer| offer.media);
    let types = PayloadTypes::default();
    let types = offered.get(index).map_or(types, |offered| {
        offered.types(types, audio.telephone_event.is_some())
    });
    audio.received = media.types(types, true);
    Some(audio)
}

/// The answer that disables every stream of the offer. An unreadable offer gets an answer without streams.
pub fn reject(offer: &[u8], local: SocketAddr) -> Vec<u8> {
    let mut body = Vec::with_capacity(160);
    let offer = Description::read(offer).unwrap_or(Description {
        time: b"0 0",
        media: Vec::new(),
    });
    head(&mut body, local, 1, 1, offer.time);
    for media in &offer.media {
        media.switched_off(&mut body);
    }
    body
}

fn head(body: &mut Vec<u8>, local: SocketAddr, session_id: u64, version: u64, time: &[u8]) {
    let family = if local.is_ipv4() { "IP4" } else { "IP6" };
    let ip = local.ip();
    print(
        body,
        format_args!(
            "v=0\r\no=- {session_id} {version} IN {family} {ip}\r\ns=-\r\nc=IN {family} {ip}\r\nt="
        ),
    );
    body.extend_from_slice(time);
    body.extend_from_slice(b"\r\n");
}

fn section(body: &mut Vec<u8>, port: u16, protocol: &[u8], audio: &Audio) {
    print(body, format_args!("m=audio {port} "));
    body.extend_from_slice(protocol);
    print(body, format_args!(" {}", audio.payload.number));
    if let Some(event) = audio.telephone_event {
        print(body, format_args!(" {event}"));
    }
    body.extend_from_slice(b"\r\n");
    rtpmap(body, audio.payload);

    if let Some(event) = audio.telephone_event {
        event_lines(body, event);
    }

    print(body, format_args!("a={}\r\n", audio.direction.as_str()));
}

fn print(body: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    body.write_fmt(text)
        .expect("writing to a vector can't fail");
}

/// The parts of a session description that Trunkline reads.
struct Description<'a> {
    time: &'a [u8],
    media: Vec<Media<'a>>,
}

/// One media section, with the session-level values that apply to it.
struct Media<'a> {
    kind: &'a [u8],
    port: u16,
    protocol: &'a [u8],
    formats: &'a [u8],
    remote: Option<SocketAddr>,
    /// Number of the connection line that applies and has no address.
    unread: Option<usize>,
    direction: Direction, // the peer's
    rtp: RtpAttributes,
    maps: Vec<(u8, Mapped)>,
}

/// Meaning that an `a=rtpmap` gives to a payload type.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Mapped {
    Audio(Codec),
    TelephoneEvent,
    /// Any other codec, rate or number of channels.
    Other,
}

/// Session-level values, which apply to a section that has none of its own.
#[derive(Copy, Clone)]
struct Defaults {
    connection: Connection,
    direction: Direction,
}

impl<'a> Description<'a> {
    fn read(body: &'a [u8]) -> Result<Self, NoMatch> {
        let mut description = Self {
            time: b"0 0",
            media: Vec::new(),
        };
        let mut defaults = Defaults {
            connection: Connection::default(),
            direction: Direction::SendRecv,
        };
        let mut begins = false;

        for (before, line) in body.split(|octet| *octet == b'\n').enumerate() {
            let [key, b'=', value @ ..] = line.trim_ascii_end() else {
                continue;
            };
            begins |= *key == b'v';
            description.line(*key, before + 1, value, &mut defaults)?;
        }

        // A body without a `v=` line is no SDP. The line needn't be the first, since the SDP may be one of several parts.
        if begins {
            Ok(description)
        } else {
            Err(NoMatch {
                what: "The body is no session description".into(),
            })
        }
    }

    fn line(
        &mut self,
        key: u8,
        line: usize,
        value: &'a [u8],
        defaults: &mut Defaults,
    ) -> Result<(), NoMatch> {
        match (key, self.media.last_mut()) {
            (b'm', _) => self.media_line(value, line, *defaults)?,
            (b't', None) => self.time = value,
            (b'c', None) => defaults.connection = Connection::read(value, line),
            (b'c', Some(media)) => media.connect(Connection::read(value, line)),
            (b'a', None) => {
                defaults.direction = Direction::read(value).unwrap_or(defaults.direction)
            }
            (b'a', Some(media)) => media.attribute(value),
            _ => {}
        }
        Ok(())
    }

    /// Returns why none of its streams can be answered: what the nearest of them lacks.
    fn mismatch(&self) -> NoMatch {
        let audio = || {
            let on = self.media.iter().filter(|media| media.port != 0);
            on.filter(|media| media.kind == b"audio")
        };
        let what = if audio().next().is_none() {
            "The offer holds no audio stream"
        } else if !audio().any(Media::is_plain) {
            "The offer holds encrypted audio (SRTP) alone"
        } else if !audio().any(|media| media.is_plain() && media.payload().is_some()) {
            "The offer holds no G.711 (PCMU or PCMA) over plain RTP"
        } else {
            if let Some(line) = self.media.iter().find_map(Media::unread_connection) {
                return unreadable('c', line);
            }
            "The offer's audio is at a host name, or at an address of another IP version than ours"
        };
        NoMatch { what: what.into() }
    }

    fn media_line(
        &mut self,
        value: &'a [u8],
        line: usize,
        defaults: Defaults,
    ) -> Result<(), NoMatch> {
        if self.media.len() == MOST_MEDIA {
            return Err(NoMatch {
                what: "The offer holds too many streams".into(),
            });
        }
        let media = Media::read(value, defaults).ok_or_else(|| unreadable('m', line))?;
        self.media.push(media);
        Ok(())
    }
}

impl<'a> Media<'a> {
    /// Reads the value of a media line, such as `audio 49170 RTP/AVP 0 8`. A count of ports may follow the port.
    fn read(value: &'a [u8], defaults: Defaults) -> Option<Self> {
        let mut words = value.splitn(4, |octet| *octet == b' ');
        let (kind, port, protocol, formats) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        let port = port.split(|octet| *octet == b'/').next()?;

        let mut media = Self {
            kind,
            port: number(port)?,
            protocol,
            formats,
            remote: None,
            unread: None,
            direction: defaults.direction,
            rtp: RtpAttributes::default(),
            maps: Vec::new(),
        };

        media.connect(defaults.connection);
        Some(media)
    }

    fn connect(&mut self, connection: Connection) {
        self.remote = connection.ip.map(|ip| SocketAddr::new(ip, self.port));
        self.unread = connection.unread;
    }

    /// The connection line that keeps an audio stream from being used.
    fn unread_connection(&self) -> Option<usize> {
        self.unread
            .filter(|_| self.kind == b"audio" && self.port != 0)
    }

    fn attribute(&mut self, value: &[u8]) {
        if let Some(direction) = Direction::read(value) {
            self.direction = direction;
        } else if let Some((number, mapped)) = value.strip_prefix(b"rtpmap:").and_then(mapping)
            && self.mapped(number).is_none()
        {
            // The first mapping of a number counts, and so a section has at most 128 of them.
            self.maps.push((number, mapped));
        } else {
            self.rtp.take(value);
        }
    }

    fn mapped(&self, number: u8) -> Option<Mapped> {
        let mut maps = self.maps.iter();
        maps.find_map(|(of, mapped)| (*of == number).then_some(*mapped))
    }

    fn numbers(&self) -> impl Iterator<Item = u8> {
        self.formats
            .split(|octet| *octet == b' ')
            .filter_map(payload_type)
    }

    /// The first of the formats that is G.711; one with a static number if there is any.
    fn payload(&self) -> Option<AudioPayload> {
        let usable = || {
            self.numbers()
                .filter_map(|number| self.audio_payload(number))
        };
        let is_static = |payload: &AudioPayload| AudioPayload::of_static(payload.number).is_some();
        usable().find(is_static).or_else(|| usable().next())
    }

    fn audio_payload(&self, number: u8) -> Option<AudioPayload> {
        let fixed = AudioPayload::of_static(number);
        match self.mapped(number) {
            None => fixed,
            Some(Mapped::Audio(codec)) => match number {
                // A static number that is mapped to another codec counts as neither codec.
                0..=LAST_STATIC => fixed.filter(|payload| payload.codec == codec),
                _ => Some(AudioPayload { number, codec }),
            },
            Some(Mapped::TelephoneEvent | Mapped::Other) => None,
        }
    }

    /// Adds the payload types of this section to others, those of telephone events only if asked for.
    fn types(&self, others: PayloadTypes, with_events: bool) -> PayloadTypes {
        self.numbers().fold(others, |types, number| {
            let audio = self.audio_payload(number);
            match (audio, self.mapped(number)) {
                (Some(audio), _) => types.with(number, Format::Audio(audio.codec)),
                (None, Some(Mapped::TelephoneEvent)) if with_events => {
                    types.with(number, Format::TelephoneEvent)
                }
                (None, _) => types,
            }
        })
    }

    fn telephone_event(&self) -> Option<u8> {
        let is_event = |number: &u8| self.mapped(*number) == Some(Mapped::TelephoneEvent);
        self.numbers().find(is_event)
    }

    /// Returns whether its audio isn't encrypted. RTP/AVPF (RFC 4585) differs from RTP/AVP in its RTCP alone.
    fn is_plain(&self) -> bool {
        matches!(self.protocol, b"RTP/AVP" | b"RTP/AVPF")
    }

    /// The stream that this section describes, if it can be accepted at `local`.
    fn audio(&self, local: SocketAddr) -> Option<Audio> {
        // A host name in `c=` isn't looked up, and our socket can't send to the other address family.
        let remote = self
            .remote
            .filter(|remote| remote.is_ipv4() == local.is_ipv4())?;
        if self.kind != b"audio" || !self.is_plain() || self.port == 0 {
            return None;
        }

        let direction = self.direction.reversed();
        Some(Audio {
            remote,
            payload: self.payload()?,
            telephone_event: self.telephone_event(),
            // RFC 3264 §5.1: whoever offers a format may send it.
            received: self.types(PayloadTypes::default(), true),
            // RFC 3264 §8.4: the old way to put a call on hold is the address 0.0.0.0.
            direction: if remote.ip().is_unspecified() {
                direction.without_sending()
            } else {
                direction
            },
            packet_time: self.rtp.packet_time(),
            rtcp: self.rtp.rtcp(remote.ip()),
        })
    }

    fn switched_off(&self, body: &mut Vec<u8>) {
        for piece in [
            b"m=",
            self.kind,
            b" 0 ",
            self.protocol,
            b" ",
            self.formats,
            b"\r\n",
        ] {
            body.extend_from_slice(piece);
        }
    }
}

/// Reads the value of an rtpmap, such as `101 telephone-event/8000`. The number of channels may follow; it is 1 where absent.
fn mapping(mapping: &[u8]) -> Option<(u8, Mapped)> {
    let space = memchr::memchr(b' ', mapping)?;
    let name = mapping[space..].trim_ascii();
    let name = name.strip_suffix(b"/1").unwrap_or(name);
    let named = [
        (&b"PCMU/8000"[..], Mapped::Audio(Codec::Pcmu)),
        (b"PCMA/8000", Mapped::Audio(Codec::Pcma)),
        (b"telephone-event/8000", Mapped::TelephoneEvent),
    ];
    let mapped = named
        .into_iter()
        .find(|(known, _)| name.eq_ignore_ascii_case(known))
        .map_or(Mapped::Other, |(_, mapped)| mapped);
    Some((payload_type(&mapping[..space])?, mapped))
}

/// Reads a payload type, which has seven bits.
fn payload_type(digits: &[u8]) -> Option<u8> {
    number(digits).filter(|number| *number < 128)
}

fn number<N: TryFrom<u32>>(digits: &[u8]) -> Option<N> {
    N::try_from(crate::header::text::number(digits)?).ok()
}

#[cfg(test)]
#[path = "sdp_tests.rs"]
mod tests;
