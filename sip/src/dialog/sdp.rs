//! SDP of media that ends here: G.711 over plain RTP, with telephone events (RFC 8866, RFC 3264,
//! RFC 3551, RFC 4733). This module doesn't read SDP that crosses a bridge.
//!
//! It reads leniently, in one pass over the lines. It writes each description anew and copies only what an answer must repeat.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// Most media sections in one description. A description with more is refused.
const MOST_MEDIA: usize = 32;
const PCMU: u8 = 0;
const PCMA: u8 = 8;

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

/// The audio stream that both sides agreed on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Audio {
    /// Address and port at which the peer wants its RTP.
    pub remote: SocketAddr,
    /// The payload type: 0 is PCMU, 8 is PCMA.
    pub payload: u8,
    /// The payload type of telephone events, if the peer supports them.
    pub telephone_event: Option<u8>,
    /// Our direction.
    pub direction: Direction,
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
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct NoMatch {
    /// Missing part, as a sentence without its full stop.
    pub what: &'static str,
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
    if agreed.is_none() && !is_off {
        return Err(NoMatch {
            what: "The offer holds no G.711 audio over plain RTP",
        });
    }

    let mut body = Vec::with_capacity(320);
    head(&mut body, local, session_id, version, offer.time);
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

/// An offer of both kinds of G.711 and telephone events.
pub fn offer_audio(local: SocketAddr, session_id: u64, version: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(320);
    head(&mut body, local, session_id, version, b"0 0");
    offered_section(&mut body, local.port());
    body
}

/// The same for a peer that has an SDP of ours in this dialog. Each of its streams keeps its place: "if the previous SDP had N media lines, the
/// new SDP MUST have at least N media lines" (RFC 3264 §8). All but the audio have port 0.
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
    let audio = place(true).or_else(|| place(false)).unwrap_or(before.len());

    let mut body = Vec::with_capacity(320);
    head(&mut body, local, session_id, version, b"0 0");
    for index in 0..before.len().max(audio + 1) {
        match before.get(index).filter(|_| index != audio) {
            Some(other) => other.switched_off(&mut body),
            None => offered_section(&mut body, local.port()),
        }
    }
    body
}

fn offered_section(body: &mut Vec<u8>, port: u16) {
    print(body, format_args!("m=audio {port} RTP/AVP 0 8 101\r\n"));
    body.extend_from_slice(
        b"a=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:101 telephone-event/8000\r\n\
          a=fmtp:101 0-15\r\na=ptime:20\r\na=sendrecv\r\n",
    );
}

/// Reads the answer to [`offer_audio`]; `None` if it accepts no audio.
pub fn read_answer(answer: &[u8]) -> Option<Audio> {
    let answer = Description::read(answer).ok()?;
    let any = |remote: SocketAddr| SocketAddr::new(remote.ip(), 0);
    answer
        .media
        .iter()
        .find_map(|media| media.audio(any(media.remote?)))
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
    let payload = audio.payload;
    let name = if payload == PCMU { "PCMU" } else { "PCMA" };

    print(body, format_args!("m=audio {port} "));
    body.extend_from_slice(protocol);
    print(body, format_args!(" {payload}"));
    if let Some(event) = audio.telephone_event {
        print(body, format_args!(" {event}"));
    }
    print(body, format_args!("\r\na=rtpmap:{payload} {name}/8000\r\n"));

    if let Some(event) = audio.telephone_event {
        print(
            body,
            format_args!("a=rtpmap:{event} telephone-event/8000\r\na=fmtp:{event} 0-15\r\n"),
        );
    }

    print(body, format_args!("a={}\r\n", audio.direction.as_str()));
}

fn print(body: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    body.write_fmt(text)
        .expect("writing to a vector can't fail");
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

    // RFC 3264 §6.1: the stream that one side sends, the other receives.
    const fn reversed(self) -> Self {
        match self {
            Self::SendRecv => Self::SendRecv,
            Self::SendOnly => Self::RecvOnly,
            Self::RecvOnly => Self::SendOnly,
            Self::Inactive => Self::Inactive,
        }
    }

    const fn without_sending(self) -> Self {
        match self {
            Self::SendRecv | Self::RecvOnly => Self::RecvOnly,
            Self::SendOnly | Self::Inactive => Self::Inactive,
        }
    }
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
    direction: Direction, // the peer's
    telephone_event: Option<u8>,
}

/// Session-level values, which apply to a section that has none of its own.
#[derive(Copy, Clone)]
struct Defaults {
    ip: Option<IpAddr>,
    direction: Direction,
}

impl<'a> Description<'a> {
    fn read(body: &'a [u8]) -> Result<Self, NoMatch> {
        let mut description = Self {
            time: b"0 0",
            media: Vec::new(),
        };
        let mut defaults = Defaults {
            ip: None,
            direction: Direction::SendRecv,
        };
        let mut begins = false;
        for line in body.split(|octet| *octet == b'\n') {
            let [key, b'=', value @ ..] = line.trim_ascii_end() else {
                continue;
            };
            begins |= *key == b'v';
            description.line(*key, value, &mut defaults)?;
        }

        // The SDP may be one of several parts of a body.
        if begins {
            Ok(description)
        } else {
            Err(NoMatch {
                what: "The body is no session description",
            })
        }
    }

    fn line(&mut self, key: u8, value: &'a [u8], defaults: &mut Defaults) -> Result<(), NoMatch> {
        match (key, self.media.last_mut()) {
            (b'm', _) => self.media_line(value, *defaults)?,
            (b't', None) => self.time = value,
            (b'c', None) => defaults.ip = connection(value),
            (b'c', Some(media)) => media.connect(connection(value)),
            (b'a', None) => {
                defaults.direction = Direction::read(value).unwrap_or(defaults.direction)
            }
            (b'a', Some(media)) => media.attribute(value),
            _ => {}
        }
        Ok(())
    }

    fn media_line(&mut self, value: &'a [u8], defaults: Defaults) -> Result<(), NoMatch> {
        if self.media.len() == MOST_MEDIA {
            return Err(NoMatch {
                what: "The offer holds too many streams",
            });
        }
        let media = Media::read(value, defaults).ok_or(NoMatch {
            what: "The offer can't be read",
        })?;
        self.media.push(media);
        Ok(())
    }
}

impl<'a> Media<'a> {
    // `audio 49170 RTP/AVP 0 8`; the port may be followed by a count of ports.
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
            direction: defaults.direction,
            telephone_event: None,
        };
        media.connect(defaults.ip);
        Some(media)
    }

    fn connect(&mut self, ip: Option<IpAddr>) {
        self.remote = ip.map(|ip| SocketAddr::new(ip, self.port));
    }

    fn attribute(&mut self, value: &[u8]) {
        if let Some(direction) = Direction::read(value) {
            self.direction = direction;
        } else if let Some(event) = value.strip_prefix(b"rtpmap:").and_then(telephone_event)
            && self.has_format(event)
        {
            self.telephone_event.get_or_insert(event);
        }
    }

    fn has_format(&self, payload: u8) -> bool {
        self.payloads().any(|format| format == payload)
    }

    fn payloads(&self) -> impl Iterator<Item = u8> {
        self.formats
            .split(|octet| *octet == b' ')
            .filter_map(number::<u8>)
    }

    // The stream that this section describes, if it can be accepted at `local`.
    fn audio(&self, local: SocketAddr) -> Option<Audio> {
        let is_plain = matches!(self.protocol, b"RTP/AVP" | b"RTP/AVPF");
        let remote = self
            .remote
            .filter(|remote| remote.is_ipv4() == local.is_ipv4())?;
        if self.kind != b"audio" || !is_plain || self.port == 0 {
            return None;
        }

        let direction = self.direction.reversed();
        Some(Audio {
            remote,
            payload: self
                .payloads()
                .find(|payload| matches!(*payload, PCMU | PCMA))?,
            telephone_event: self.telephone_event,
            // RFC 3264 §8.4: the old way to put a call on hold is the address 0.0.0.0.
            direction: if remote.ip().is_unspecified() {
                direction.without_sending()
            } else {
                direction
            },
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

// `IN IP4 192.0.2.1`, perhaps with `/127` of a multicast group. Host names are not looked up.
fn connection(value: &[u8]) -> Option<IpAddr> {
    let address = value
        .strip_prefix(b"IN IP4 ")
        .or_else(|| value.strip_prefix(b"IN IP6 "))?;
    let address = address.split(|octet| *octet == b'/').next()?;
    std::str::from_utf8(address).ok()?.trim().parse().ok()
}

// `101 telephone-event/8000`
fn telephone_event(mapping: &[u8]) -> Option<u8> {
    let space = memchr::memchr(b' ', mapping)?;
    let name = mapping[space + 1..].trim_ascii();
    name.eq_ignore_ascii_case(b"telephone-event/8000")
        .then(|| number(&mapping[..space]))?
}

fn number<N: TryFrom<u32>>(digits: &[u8]) -> Option<N> {
    N::try_from(crate::header::text::number(digits)?).ok()
}

#[cfg(test)]
#[path = "sdp_tests.rs"]
mod tests;
