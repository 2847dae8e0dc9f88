//! RTP session of one call: the peer that it hears, and the stream that it sends. Pure: packets and time come in, packets go out.
//!
//! Packets go to the address that the peer is heard from (symmetric RTP, RFC 4961), which may differ from the signalled one behind a NAT.
//! That address is learnt from packets in sequence; packets of other addresses are dropped. A peer that sends no audio is sent to at the
//! address in its SDP, if something has come from there or the call is proven to come from its IP address; any other address may be a third
//! party's and gets a few packets of silence. The sent stream is our own: one SSRC, with continuous sequence numbers and timestamps whatever
//! the peer does.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use trunkline_sip::dialog::sdp::{Codec, Format};
use trunkline_sip::moment::Moment;

use super::g711;
use super::keys::{HeardKeys, HeardTones, KeyFrame};
use super::learning::Learning;
use super::negotiated::NegotiatedMedia;
use super::presence;
use super::rtcp;
use super::rtp::{self, Header, Packet, Packets};
use super::silence::SilenceClock;
use super::source_filter::SourceFilter;
use super::speech::{Opening, Speech, SpeechPacket};
use super::stream::Stream;

/// Most packets that are echoed in any second: 50 of a stream of 20 ms, a tenth more, and some of keys.
const PER_SECOND: usize = 60;

/// Longest packet of G.711 that is passed on or searched for tones: 200 ms.
pub(super) const MAX_AUDIO: usize = 1_600;

/// Ticks for which a bot's audio waits for a peer that can't be sent to before it is heard: 2 s. An address is learnt from four packets of the
/// peer, and audio that is played before that is lost. After these ticks audio is withheld until the peer is heard.
const MAX_UNHEARD: u32 = 100;

/// RTP session of one call.
#[derive(Debug)]
pub(super) struct Session {
    agreed: Option<NegotiatedMedia>,
    learning: Learning,
    /// Address in SDP, if a packet has come from there that isn't audio: comfort noise, RTCP, STUN.
    noticed: Option<SocketAddr>,
    /// RTCP has come from the address that SDP names for it.
    is_rtcp_heard: bool,
    /// A packet to the peer came back with ICMP port unreachable, and nothing has come from the peer since.
    is_unreachable: bool,
    /// Time at which the peer's audio was last heard, or from which it should be heard.
    heard_at: Moment,
    silence: SilenceClock,
    first: FirstPacket,
    stream: Stream,
    keys: HeardKeys,
    tones: HeardTones,
    /// Key event that the peer's packets have reported and that hasn't been taken yet.
    pressed: Option<u8>,
    pace: Pace,
    /// Audio that the peer hears instead of its echo.
    speech: Option<Speech>,
    opening: Opening,
    wait: Wait,
    /// A wait for the peer has just ended, until this is taken.
    has_waited: bool,
    /// Audio goes to the negotiated address even before the peer is heard.
    is_near: bool,
}

impl Session {
    /// Creates a session that has negotiated nothing. `seed` makes SSRC and first numbers unpredictable (RFC 3550 §5.1).
    pub(super) fn new(seed: u64) -> Self {
        Self {
            agreed: None,
            learning: Learning::default(),
            noticed: None,
            is_rtcp_heard: false,
            is_unreachable: false,
            heard_at: Moment::default(),
            silence: SilenceClock::default(),
            first: FirstPacket::default(),
            stream: Stream::new(seed),
            keys: HeardKeys::default(),
            tones: HeardTones::default(),
            pressed: None,
            pace: Pace::default(),
            speech: None,
            opening: Opening::default(),
            wait: Wait::None,
            has_waited: false,
            is_near: false,
        }
    }

    /// Sends to the negotiated address at once if `is_near`: the address is a port of this node.
    pub(super) const fn speak_first(&mut self, is_near: bool) {
        self.is_near = is_near;
    }

    /// Plays `speech` from now on. No packet is echoed any more, not even once the speech has ended.
    pub(super) fn say(&mut self, speech: Speech) {
        self.speech = Some(speech);
    }

    /// Writes the next packet of speech to `octets`, if it is due, and returns its destination. Sends nothing to a peer that holds.
    pub(super) fn speak<'p>(
        &mut self,
        octets: &'p mut [u8],
        now: Moment,
    ) -> Option<(SocketAddr, Packets<'p>)> {
        let Some(agreed) = self.agreed() else {
            self.stream.pause();
            return None;
        };
        let target = self.target();
        let said = self.speech.as_mut()?.next(&agreed, target, now)?;
        let SpeechPacket { to, payload, .. } = &said;
        let parts = agreed.packet_time.parts();
        let header = self.stream.own(agreed.payload.number, said.is_first, parts);
        Some((*to, rtp::write_parts(octets, &header, payload, parts)?))
    }

    /// Returns whether the peer hears speech instead of its echo.
    pub(super) const fn is_spoken_to(&self) -> bool {
        self.speech.is_some()
    }

    /// Returns whether speech waits for a listener that isn't there.
    pub(super) fn is_unheard(&self) -> bool {
        self.speech.is_some() && self.agreed().is_some() && self.target().is_none()
    }

    /// Returns whether the speech has ended; true once.
    pub(super) fn take_end(&mut self) -> bool {
        self.speech.as_mut().is_some_and(Speech::take_end)
    }

    /// Returns whether an offer and its answer have been passed.
    pub(super) const fn is_negotiated(&self) -> bool {
        self.agreed.is_some()
    }

    /// Sets the result of an offer and its answer, and learns the peer's address again. A peer that stays at its address goes on being heard.
    /// For a peer that moves, or comes back from hold, the time of silence begins anew. A peer that moves is sent opening packets and
    /// waited for again.
    pub(super) fn negotiate(&mut self, agreed: NegotiatedMedia, now: Moment) {
        let moves = self
            .agreed
            .is_none_or(|before| before.remote != agreed.remote);
        // `is_missed` still asks the media agreed before: a peer that comes back from hold wasn't missed until now.
        if moves || !self.is_missed() {
            self.heard_at = now;
            self.silence.hear(now);
        }
        // The peer may have opened its port only now.
        self.is_unreachable = false;
        self.is_rtcp_heard &= self.agreed.is_some_and(|before| before.rtcp == agreed.rtcp);
        if moves {
            self.noticed = None;
            // Anew, since a peer that sends only once it hears something would get no packet at its new address.
            self.opening = Opening::default();
            if self.wait == Wait::Over {
                self.wait = Wait::None;
            }
            if let Some(speech) = &mut self.speech {
                speech.await_listener();
            }
        }
        // Behind a NAT the address follows the one that signals, which may change while SDP stays the same.
        self.noticed = self
            .noticed
            .filter(|known| agreed.expects(known.ip()) && *known == agreed.listens_at());
        self.learning.restart(&agreed, moves);
        self.agreed = Some(agreed);
    }

    /// Takes a packet; `None` if it isn't one of the peer's. `is_ours` returns whether an address is an RTP port of this node.
    pub(super) fn accept(
        &mut self,
        octets: &[u8],
        source: SocketAddr,
        is_ours: impl Fn(SocketAddr) -> bool,
        now: Moment,
    ) -> Option<Packet> {
        // What the peer must not send isn't taken, not even to learn its address.
        let agreed = self.agreed.filter(NegotiatedMedia::may_send)?;
        let packet = Packet::read(octets)?;
        let format = agreed.format(packet.header.payload_type)?;
        if self.first == FirstPacket::Awaited {
            self.first = FirstPacket::Came;
        }

        let silence = now.since(self.heard_at);
        if !self
            .learning
            .hears(&agreed, source, &packet.header, silence, is_ours, now)
        {
            return None;
        }

        self.heard_at = now;
        self.silence.hear(now);
        self.is_unreachable = false;

        let (header, payload) = (&packet.header, packet.payload(octets));
        let pressed = match format {
            Format::TelephoneEvent => self.keys.hear(header, payload, now),
            // A peer with telephone-events may send a key as a tone too. Searching for tones would then press it twice.
            Format::Audio(_) if agreed.telephone_event.is_some() || payload.len() > MAX_AUDIO => {
                None
            }
            Format::Audio(Codec::Pcma) => self
                .tones
                .hear(payload.iter().map(|octet| g711::mu_of_a(*octet))),
            Format::Audio(Codec::Pcmu) => self.tones.hear(payload.iter().copied()),
        };
        self.pressed = pressed.or(self.pressed);

        Some(packet)
    }

    /// Takes a packet that isn't audio of the peer: comfort noise, another payload type, RTCP or STUN. From the address in SDP it shows that
    /// the peer listens there, and from there or from the learnt address that it is alive, whatever its direction.
    pub(super) fn notice(&mut self, octets: &[u8], source: SocketAddr, now: Moment) {
        let Some(agreed) = self.agreed.filter(|agreed| !agreed.is_held()) else {
            return;
        };
        let listens_at = agreed.listens_at();
        let is_from = |address| presence::is_from(address, octets, source);
        let is_rtcp = rtcp::is_rtcp(octets) && agreed.names_rtcp(source);
        let is_listed = agreed.expects(listens_at.ip())
            && (is_from(listens_at) || is_rtcp && agreed.expects(source.ip()));
        if !is_listed && !self.learning.source().is_some_and(is_from) {
            return;
        }

        if is_listed {
            self.noticed = Some(listens_at);
        }
        self.silence.hear(now);
        self.is_unreachable = false;
    }

    /// Notes that a message with our tag has come from the IP address that signals: no third party has begun the call in its name.
    pub(super) const fn prove(&mut self) {
        if let Some(agreed) = &mut self.agreed {
            agreed.peer.is_proven = true;
        }
    }

    /// Notes that no socket is bound at `address`, which a packet of ours was sent to. Returns whether audio went there; it stops until the
    /// peer is heard.
    pub(super) fn note_unreachable(&mut self, address: SocketAddr) -> bool {
        let is_target = self.target() == Some(address);
        self.is_unreachable |= is_target;
        is_target
    }

    /// Returns the echo of a packet that was accepted, as the peer's SDP wants it; `None` if nothing is echoed.
    pub(super) fn echo<'p>(
        &mut self,
        packet: &Packet,
        octets: &'p mut [u8],
        now: Moment,
    ) -> Option<&'p [u8]> {
        let Some(agreed) = self.agreed() else {
            self.stream.pause();
            return None;
        };
        // What the peer sends may have another number, or another codec, than what it takes.
        let format = agreed.format(packet.header.payload_type)?;
        let payload_type = match format {
            Format::TelephoneEvent => agreed.telephone_event?,
            Format::Audio(_) => agreed.payload.number,
        };
        if self.speech.is_some() || !self.pace.admits(now) {
            return None;
        }

        let mut resumes = false;
        if let Format::Audio(codec) = format {
            g711::convert(packet.payload_mut(octets), codec, agreed.payload.codec);
            resumes = self.stream.take_pause();
        }
        let header = Header {
            payload_type,
            marker: packet.header.marker || resumes,
            ..packet.header
        };
        let header = self.stream.next(&header, now);
        Some(packet.rewrite(octets, &header))
    }

    /// Returns whether the first packet with a negotiated payload type has come; true once.
    pub(super) fn take_first(&mut self) -> bool {
        let is_news = self.first == FirstPacket::Came;
        if is_news {
            self.first = FirstPacket::Reported;
        }
        is_news
    }

    /// Returns the negotiated media, unless the peer takes no packets.
    pub(super) fn agreed(&self) -> Option<NegotiatedMedia> {
        self.agreed.filter(NegotiatedMedia::takes)
    }

    /// Returns the codec of a packet; `None` if the packet is no audio.
    pub(super) fn codec(&self, packet: &Packet) -> Option<Codec> {
        match self.agreed?.format(packet.header.payload_type)? {
            Format::Audio(codec) => Some(codec),
            Format::TelephoneEvent => None,
        }
    }

    /// Returns whether the peer should be heard: one that is on hold, or puts us on hold, needn't send.
    pub(super) fn is_missed(&self) -> bool {
        self.agreed.as_ref().is_some_and(NegotiatedMedia::talks)
    }

    /// Returns the fate of audio in this tick. A peer on hold isn't waited for.
    pub(super) fn audience(&mut self) -> Audience {
        if self.agreed().is_none() || self.target().is_some() {
            self.end_wait(Wait::None);
            return Audience::Listens;
        }

        let ticks = match self.wait {
            Wait::None => 0,
            Wait::Ticks(ticks) => ticks,
            Wait::Over => return Audience::Absent,
        };
        if ticks == MAX_UNHEARD || self.is_unreachable {
            self.end_wait(Wait::Over);
            return Audience::Absent;
        }
        self.wait = Wait::Ticks(ticks + 1);
        Audience::Awaited
    }

    fn end_wait(&mut self, next: Wait) {
        let before = std::mem::replace(&mut self.wait, next);
        self.has_waited |= matches!(before, Wait::Ticks(_));
    }

    /// Returns whether audio has waited for the peer and waits no longer; true once.
    pub(super) const fn take_waited(&mut self) -> bool {
        std::mem::replace(&mut self.has_waited, false)
    }

    /// Returns the address that audio goes to: where the peer is heard, or else where it says that it listens, if that is known to be its own.
    pub(super) fn target(&self) -> Option<SocketAddr> {
        let agreed = self.agreed.as_ref().filter(|agreed| agreed.takes())?;
        if self.is_unreachable {
            return None;
        }
        // An address that SDP alone names may be a third party's: it gets no stream.
        let claimed = agreed.peer.claimed.filter(|_| agreed.peer.is_proven);
        let near = self.is_near.then_some(agreed.remote);
        self.learning.source().or(self.noticed).or(claimed).or(near)
    }

    /// Writes a frame of µ-law audio for the peer, and returns its destination: the peer's address if it is known, or, for a few packets of
    /// silence, the negotiated one, so that a NAT or firewall in between opens.
    pub(super) fn frame<'p>(
        &mut self,
        octets: &'p mut [u8],
        audio: &[u8; 160],
        is_first: bool,
        now: Moment,
    ) -> Option<(SocketAddr, Packets<'p>)> {
        let agreed = self.agreed()?;
        let (to, audio) = match self.target() {
            Some(target) => (target, audio),
            None if self.is_unreachable => return None,
            None => (self.opening.next(&agreed, now)?, &[g711::SILENCE; 160]),
        };

        let parts = agreed.packet_time.parts();
        let header = self.stream.own(agreed.payload.number, is_first, parts);
        // By the codec that SDP names, not by the number: G.711 may have a dynamic one (RFC 3551 §3).
        let packets = match agreed.payload.codec {
            Codec::Pcma => rtp::write_parts(octets, &header, &audio.map(g711::a_of_mu), parts),
            Codec::Pcmu => rtp::write_parts(octets, &header, audio, parts),
        };
        Some((to, packets?))
    }

    /// Writes a frame of a key for the peer, if telephone-events were negotiated and the peer's address is known; `None`: play the key as
    /// tones.
    pub(super) fn key<'p>(
        &mut self,
        octets: &'p mut [u8],
        frame: KeyFrame,
    ) -> Option<(SocketAddr, &'p [u8])> {
        let payload_type = self.agreed()?.telephone_event?;
        let to = self.target()?;
        let payload = frame.event()?;
        let header = self.stream.event(payload_type, frame.is_first());
        Some((to, rtp::write(octets, &header, &payload)?))
    }

    /// Returns whether keys are sent to the peer as tones.
    pub(super) fn wants_tones(&self) -> bool {
        self.agreed()
            .is_some_and(|agreed| agreed.telephone_event.is_none())
    }

    /// Returns the address of the peer's RTCP: the one that its SDP names (RFC 3605), if that is at the learnt IP address or RTCP has come from there;
    /// else the learnt address, with the next higher port (RFC 3550 §11).
    pub(super) fn rtcp_peer(&self) -> Option<SocketAddr> {
        let peer = self.learning.source()?;
        let is_known = |named: &SocketAddr| {
            self.is_rtcp_heard || named.ip().to_canonical() == peer.ip().to_canonical()
        };
        let named = self.agreed.and_then(|agreed| agreed.rtcp).filter(is_known);
        let next = || Some(SocketAddr::new(peer.ip(), peer.port().checked_add(1)?));
        named.or_else(next)
    }

    /// Returns whether RTCP from `source` is the peer's: from the learnt address, the next higher port there, or where its SDP says.
    pub(super) fn hears_rtcp(&mut self, source: SocketAddr) -> bool {
        let is_named = self.agreed.is_some_and(|agreed| agreed.names_rtcp(source));
        self.is_rtcp_heard |= is_named;
        let is_near = self.learning.source().is_some_and(|peer| {
            let ports = [Some(peer.port()), peer.port().checked_add(1)];
            peer.ip().to_canonical() == source.ip().to_canonical()
                && ports.contains(&Some(source.port()))
        });
        is_named && self.learning.source().is_some() || is_near
    }

    /// Returns the learnt address of the peer.
    pub(super) const fn peer(&self) -> Option<SocketAddr> {
        self.learning.source()
    }

    /// Returns the sources whose packets may be the peer's; `None` before negotiation.
    pub(super) fn expected(&self) -> Option<SourceFilter> {
        let agreed = self.agreed.as_ref()?;
        Some(match self.learning.source() {
            Some(learnt) => SourceFilter::Learnt(learnt),
            None => SourceFilter::Negotiated(agreed.sources),
        })
    }

    /// Returns the address in SDP that a peer which hasn't been heard says it listens at, unless it is on hold. A port that nobody has bound may be
    /// where the peer was heard, and is noted by itself.
    pub(super) fn withholds_from(&self) -> Option<SocketAddr> {
        let agreed = self.agreed().filter(|_| !self.is_unreachable)?;
        Some(agreed.listens_at())
    }

    /// Returns the SSRC of the sent stream, and its timestamp now.
    pub(super) const fn stream(&self) -> (u32, u32) {
        (self.stream.ssrc(), self.stream.timestamp())
    }

    /// Skips a slot of 20 ms in which nothing is sent.
    pub(super) const fn pass(&mut self) {
        self.stream.pass();
    }

    /// Returns the event that the last packets reported for the first time (RFC 4733 §3.2).
    pub(super) const fn take_digit(&mut self) -> Option<u8> {
        self.pressed.take()
    }

    /// Returns whether the peer should be heard and has been silent for so long that it is to be asked whether it is still there.
    pub(super) fn report_silence(&mut self, now: Moment) -> bool {
        let patience = self.agreed.and_then(|agreed| agreed.peer.silence);
        let patience = patience.filter(|_| self.is_missed());
        patience.is_some_and(|patience| self.silence.report(patience, now))
    }

    /// Returns whether the silence that was reported goes on: the peer should still be heard, and hasn't been.
    pub(super) fn is_silent(&self) -> bool {
        self.silence.is_reported() && self.is_missed()
    }

    /// Returns the IP address that signals, if silence of the peer is reported, and the time for which a peer that should be heard has been
    /// silent.
    pub(super) fn silence(&self, now: Moment) -> Option<(IpAddr, Duration)> {
        let peer = self.agreed.as_ref().map(|agreed| agreed.peer)?;
        peer.silence?;
        let silence = match self.is_missed() {
            true => self.silence.lasts(now),
            false => Duration::ZERO,
        };
        Some((peer.signals_from?, silence))
    }

    /// Returns the trunk of the call.
    pub(super) fn trunk(&self) -> Option<u128> {
        self.agreed.map(|agreed| agreed.peer.trunk)
    }

    /// Lets the clock of the peer's silence stand still for `time`.
    pub(super) fn postpone_silence(&mut self, time: Duration) {
        self.silence.stand_still(time);
    }

    /// Takes the report of the peer's silence back.
    pub(super) const fn withdraw_silence(&mut self, now: Moment) {
        self.silence.withdraw(now);
    }
}

/// Fate of audio for the peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Audience {
    /// It is sent, or the peer is on hold.
    Listens,
    /// It waits: the peer may be heard soon.
    Awaited,
    /// It is withheld: nothing shows that the peer listens at the address in SDP.
    Absent,
}

impl Audience {
    /// Returns whether audio needn't wait.
    pub(super) const fn listens(self) -> bool {
        matches!(self, Self::Listens)
    }
}

/// Wait of audio for the peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Wait {
    None,
    /// It has lasted for so many ticks.
    Ticks(u32),
    /// The peer wasn't heard in time.
    Over,
}

/// First packet with a negotiated payload type.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum FirstPacket {
    #[default]
    Awaited,
    Came,
    Reported,
}

/// Times of the last packets sent, the oldest at the front.
#[derive(Debug, Default)]
struct Pace {
    sent: VecDeque<Moment>,
}

impl Pace {
    fn admits(&mut self, now: Moment) -> bool {
        const SECOND: Duration = Duration::from_secs(1);
        if self.sent.len() == PER_SECOND {
            if self
                .sent
                .front()
                .is_some_and(|first| now.since(*first) < SECOND)
            {
                return false;
            }
            self.sent.pop_front();
        }

        self.sent.push_back(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::dialog::sdp::{AudioPayload, Direction, PacketTime, PayloadTypes};

    use super::super::keys::SentKeys;
    use super::super::negotiated::MediaPeer;
    use super::*;

    const SIGNALLED: &str = "192.0.2.1:4000";
    const MOVED: &str = "192.0.2.1:61000";
    const OTHER: &str = "203.0.113.66:9";
    const PATIENCE: Duration = Duration::from_secs(30);

    fn at(milliseconds: u64) -> Moment {
        Moment::from_secs(1_000) + Duration::from_millis(milliseconds)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn rtp(payload_type: u8, sequence: u16, timestamp: u32, ssrc: u32) -> Vec<u8> {
        let mut octets = vec![0x80, payload_type];
        octets.extend(sequence.to_be_bytes());
        octets.extend(timestamp.to_be_bytes());
        octets.extend(ssrc.to_be_bytes());
        octets.extend(b"audio");
        octets
    }

    fn agreed(remote: &str) -> NegotiatedMedia {
        let remote = address(remote);
        NegotiatedMedia {
            remote,
            payload: AudioPayload::PCMA,
            telephone_event: Some(101),
            received: PayloadTypes::of(AudioPayload::PCMA, Some(101)),
            direction: Direction::SendRecv,
            packet_time: PacketTime::default(),
            rtcp: None,
            sources: [remote.ip(); 2],
            from_any: false,
            peer: MediaPeer {
                silence: Some(PATIENCE),
                ..MediaPeer::default()
            },
        }
    }

    fn negotiated(remote: &str) -> Session {
        let mut session = Session::new(0x1111_1111_0000_0000);
        session.negotiate(agreed(remote), at(0));
        session
    }

    /// A session that has learnt its peer at `remote`, by three packets that aren't echoed and one that is.
    fn learnt(remote: &str) -> Session {
        let mut session = negotiated(remote);
        learn(&mut session, remote, at(0));
        session
    }

    fn learn(session: &mut Session, source: &str, now: Moment) {
        for sequence in 100..104 {
            let mut octets = rtp(8, sequence, 0, 77);
            receive(session, &mut octets, source, now);
        }
        assert_eq!(session.learning.source(), Some(address(source)));
    }

    fn receive<'p>(
        session: &mut Session,
        octets: &'p mut [u8],
        source: &str,
        now: Moment,
    ) -> Option<(SocketAddr, &'p [u8])> {
        let source = address(source);
        let packet = session.accept(octets, source, |_| false, now)?;
        session
            .echo(&packet, octets, now)
            .map(|echo| (source, echo))
    }

    fn key(session: &mut Session, event: u8, timestamp: u32, ssrc: u32, now: Moment) -> Option<u8> {
        let mut octets = rtp(101, 1, timestamp, ssrc);
        octets.truncate(12);
        octets.extend([event, 10, 0, 160]);
        receive(session, &mut octets, SIGNALLED, now);
        session.take_digit()
    }

    #[test]
    fn keys_are_events_or_tones_as_negotiated() {
        let mut session = learnt(SIGNALLED);
        assert_eq!(key(&mut session, 5, 800, 7, at(0)), Some(5));
        assert_eq!(key(&mut session, 5, 800, 7, at(20)), None, "once");

        let mut tones = SentKeys::default();
        assert!(tones.press(b"7"));
        let mut pressed = Vec::new();
        for telephone_event in [Some(101), None] {
            session.negotiate(
                NegotiatedMedia {
                    telephone_event,
                    received: PayloadTypes::of(AudioPayload::PCMA, telephone_event),
                    ..agreed(SIGNALLED)
                },
                at(100),
            );
            let mut tones = SentKeys::default();
            assert!(tones.press(b"7"));
            for sequence in 200.. {
                let Some(frame) = tones.next() else { break };
                let mut octets = rtp(8, sequence, 0, 77);
                octets.truncate(12);
                let mut audio = [0; 160];
                frame.tone(&mut audio);
                octets.extend(audio.map(g711::a_of_mu));
                receive(&mut session, &mut octets, SIGNALLED, at(200));
                pressed.extend(session.take_digit());
            }
        }
        assert_eq!(pressed, [7], "tones count where no events were negotiated");
    }

    #[test]
    fn tones_are_looked_for_in_packets_of_telephone_audio_alone() {
        for (name, frames, expected) in [("200 ms", 10, Some(7)), ("longer", 11, None)] {
            let mut session = learnt(SIGNALLED);
            session.negotiate(
                NegotiatedMedia {
                    telephone_event: None,
                    ..agreed(SIGNALLED)
                },
                at(100),
            );

            let mut tones = SentKeys::default();
            assert!(tones.press(b"7"));

            let mut octets = rtp(8, 200, 0, 77);
            octets.truncate(12);
            for _ in 0..frames {
                let mut audio = [g711::SILENCE; 160];
                if let Some(frame) = tones.next() {
                    frame.tone(&mut audio);
                }
                octets.extend(audio.map(g711::a_of_mu));
            }

            receive(&mut session, &mut octets, SIGNALLED, at(200));
            assert_eq!(session.take_digit(), expected, "{name}");
        }
    }

    #[test]
    fn a_key_for_the_peer_has_one_timestamp() {
        let mut session = learnt(SIGNALLED);
        let mut keys = SentKeys::default();
        assert!(keys.press(b"#"));

        let mut sent = Vec::new();
        while let Some(frame) = keys.next() {
            let mut octets = [0; 200];
            match session.key(&mut octets, frame) {
                Some((_, packet)) => {
                    let read = Packet::read(packet).unwrap();
                    sent.push((
                        read.header.timestamp,
                        read.header.marker,
                        read.header.payload_type,
                    ));
                }
                None => session.pass(),
            }
        }

        let first = sent[0].0;
        assert_eq!(sent[0], (first, true, 101));
        assert_eq!(sent[1..], [(first, false, 101); 7]);

        let mut octets = [0; 200];
        let (_, packets) = session
            .frame(&mut octets, &[0xff; 160], true, at(400))
            .unwrap();
        assert_eq!(
            Packet::read(packets.iter().next().unwrap())
                .unwrap()
                .header
                .timestamp,
            first + 11 * 160,
            "the clock of the stream went on"
        );
    }

    /// Returns where the echo of a valid packet from `source` goes.
    fn echoed_to(session: &mut Session, source: &str, now: Moment) -> Option<String> {
        receive(session, &mut rtp(8, 1, 0, 7), source, now).map(|(to, _)| to.to_string())
    }

    #[test]
    fn nothing_of_another_address_is_echoed_or_pressed() {
        let mut session = learnt(SIGNALLED);
        for (name, source) in [("another IP", OTHER), ("another port", MOVED)] {
            assert_eq!(echoed_to(&mut session, source, at(20)), None, "{name}");
            let mut pressed = rtp(101, 1, 800, 7);
            pressed.truncate(12);
            pressed.extend([5, 10, 0, 160]);
            receive(&mut session, &mut pressed, source, at(20));
            assert_eq!(session.take_digit(), None, "{name}");
        }
        assert!(echoed_to(&mut session, SIGNALLED, at(40)).is_some());
    }

    #[test]
    fn no_more_than_sixty_packets_a_second_are_sent() {
        let mut session = learnt(SIGNALLED);
        let mut sent = |milliseconds: std::ops::Range<u64>| {
            milliseconds
                .filter(|time| echoed_to(&mut session, SIGNALLED, at(*time)).is_some())
                .count()
        };
        // One packet was sent when the peer was learnt.
        assert_eq!(sent(1..1_000), PER_SECOND - 1);
        assert_eq!(sent(1_000..2_000), PER_SECOND);
        let paced: usize = (3_000..5_000)
            .step_by(20)
            .map(|time| sent(time..time + 1))
            .sum();
        assert_eq!(paced, 100, "a stream of 20 ms passes whole");
    }

    #[test]
    fn only_what_was_negotiated_is_echoed() {
        let cases = [
            ("audio", rtp(8, 1, 0, 7), true),
            ("telephone-event", rtp(101, 1, 0, 7), true),
            ("another codec", rtp(0, 1, 0, 7), false),
            ("comfort noise", rtp(13, 1, 0, 7), false),
            ("RTCP", rtp(200, 1, 0, 7), false),
            ("no RTP", b"OPTIONS sip:a SIP/2.0".to_vec(), false),
        ];

        for (name, mut octets, is_echoed) in cases {
            let mut session = learnt(SIGNALLED);
            assert_eq!(
                receive(&mut session, &mut octets, SIGNALLED, at(0)).is_some(),
                is_echoed,
                "{name}"
            );
        }
    }

    /// Each side is sent what it listed (RFC 3264 §5.1, §6.1): we sent an offer of `0 8 101`, and the answer was `97 8 96`.
    #[test]
    fn packets_are_read_by_their_own_number_and_echoed_under_the_peers() {
        let payload = AudioPayload {
            number: 97,
            codec: Codec::Pcma,
        };
        let received = PayloadTypes::of(AudioPayload::PCMU, Some(101))
            .with(8, Format::Audio(Codec::Pcma))
            .with(97, Format::Audio(Codec::Pcma))
            .with(96, Format::TelephoneEvent);
        let media = NegotiatedMedia {
            payload,
            telephone_event: Some(96),
            received,
            ..agreed(SIGNALLED)
        };
        let mut session = Session::new(0);
        session.negotiate(media, at(0));
        learn(&mut session, SIGNALLED, at(0));

        for (name, number, codec, echo) in [
            ("A-law", 8, Some(Codec::Pcma), Some((97, 0xd5))),
            ("A-law as answered", 97, Some(Codec::Pcma), Some((97, 0xd5))),
            (
                "µ-law",
                0,
                Some(Codec::Pcmu),
                Some((97, g711::a_of_mu(0xd5))),
            ),
            ("a key as offered", 101, None, Some((96, 0xd5))),
            ("a key as answered", 96, None, Some((96, 0xd5))),
            ("another codec", 18, None, None),
        ] {
            let mut octets = rtp(number, 105, 160, 77);
            octets.truncate(12);
            octets.extend([0xd5; 160]);
            let packet = session.accept(&octets, address(SIGNALLED), |_| false, at(20));
            let Some(packet) = packet else {
                assert_eq!(echo, None, "{name}");
                continue;
            };
            assert_eq!(session.codec(&packet), codec, "{name}");
            let echoed = session.echo(&packet, &mut octets, at(20)).expect(name);
            assert_eq!(Some((echoed[1] & 0x7f, echoed[12])), echo, "{name}");
        }
    }

    #[test]
    fn nothing_is_echoed_before_negotiation_or_on_hold() {
        let mut session = Session::new(0);
        assert_eq!(echoed_to(&mut session, SIGNALLED, at(0)), None);
        for held in ["0.0.0.0:4000", "192.0.2.1:0", "[::]:4000"] {
            session.negotiate(agreed(held), at(0));
            assert_eq!(echoed_to(&mut session, SIGNALLED, at(0)), None, "{held}");
        }
        session.negotiate(agreed(SIGNALLED), at(0));
        learn(&mut session, SIGNALLED, at(0));
        assert_eq!(
            echoed_to(&mut session, SIGNALLED, at(0)).as_deref(),
            Some(SIGNALLED)
        );
    }

    #[test]
    fn a_peer_that_moves_is_learnt_anew() {
        let mut session = learnt(SIGNALLED);
        session.negotiate(agreed(SIGNALLED), at(10));
        assert!(
            echoed_to(&mut session, SIGNALLED, at(20)).is_some(),
            "a re-INVITE that changes nothing interrupts nothing"
        );
        session.negotiate(agreed(MOVED), at(30));
        assert_eq!(echoed_to(&mut session, SIGNALLED, at(40)), None);
        learn(&mut session, MOVED, at(50));
        session.negotiate(agreed(OTHER), at(60));
        assert_eq!(echoed_to(&mut session, MOVED, at(70)), None);
        learn(&mut session, OTHER, at(80));
    }

    #[test]
    fn a_peer_that_moves_gets_opening_packets_and_is_waited_for() {
        let mut session = Session::new(0);
        let mut began_at = 0;
        for (name, remote, opening, waits) in [
            ("at first", SIGNALLED, 2, MAX_UNHEARD),
            ("no move", SIGNALLED, 0, 0),
            ("another port", MOVED, 2, MAX_UNHEARD),
        ] {
            session.negotiate(agreed(remote), at(began_at));
            let (mut opened, mut waited) = (0, 0);
            for tick in 0..200 {
                waited += u32::from(session.audience() == Audience::Awaited);
                let mut octets = [0; 200];
                let now = at(began_at + 20 * tick);
                if let Some((to, _)) = session.frame(&mut octets, &[0; 160], false, now) {
                    assert_eq!(to, address(remote), "{name}");
                    opened += 1;
                }
            }
            assert_eq!((opened, waited), (opening, waits), "{name}");
            began_at += 4_000;
        }
    }

    #[test]
    fn the_stream_sent_has_no_seam() {
        let mut session = negotiated(SIGNALLED);
        for sequence in 65_531..65_534 {
            let mut octets = rtp(8, sequence, 0, 7);
            assert_eq!(receive(&mut session, &mut octets, SIGNALLED, at(0)), None);
        }
        // Milliseconds; sequence, timestamp and SSRC received; sequence, timestamp and marker sent.
        let cases = [
            ("the first", 0, (65_534, 1_000, 7), (1, 0, true)),
            (
                "the next, over the wrap",
                20,
                (65_535, 1_160, 7),
                (2, 160, false),
            ),
            ("one lost", 60, (1, 1_480, 7), (4, 480, false)),
            ("the lost one late", 61, (0, 1_320, 7), (3, 320, false)),
            ("again", 61, (0, 1_320, 7), (3, 320, false)),
            (
                "a new source, 40 ms later",
                100,
                (500, 90_000, 8),
                (5, 800, true),
            ),
            ("its next", 120, (501, 90_160, 8), (6, 960, false)),
        ];

        for (name, time, (sequence, timestamp, ssrc), expected) in cases {
            let mut octets = rtp(8, sequence, timestamp, ssrc);
            let (_, echo) = receive(&mut session, &mut octets, SIGNALLED, at(time)).expect(name);
            let header = Packet::read(echo).expect(name).header;
            assert_eq!(
                (header.sequence, header.timestamp, header.marker),
                expected,
                "{name}"
            );
            assert_eq!(
                (header.ssrc, header.payload_type),
                (0x1111_1111, 8),
                "{name}"
            );
            assert!(echo.ends_with(b"audio"), "{name}");
        }
    }

    #[test]
    fn silence_is_reported_until_the_peer_is_heard() {
        let mut session = Session::new(0);
        assert!(
            !session.report_silence(at(3_600_000)),
            "nobody is expected before negotiation"
        );

        session.negotiate(agreed(SIGNALLED), at(0));
        assert!(!session.report_silence(at(29_999)));
        assert!(session.report_silence(at(30_000)));
        assert!(!session.report_silence(at(89_999)), "once");

        assert_eq!(echoed_to(&mut session, OTHER, at(89_999)), None);
        session.notice(&rtp(13, 1, 0, 7), address(OTHER), at(89_999));
        assert!(
            session.report_silence(at(90_000)),
            "another address isn't the peer"
        );

        learn(&mut session, SIGNALLED, at(90_000));
        assert!(!session.report_silence(at(119_999)));
        assert!(session.report_silence(at(120_000)), "and again");

        session.negotiate(agreed("0.0.0.0:9"), at(130_000));
        assert!(
            !session.report_silence(at(999_000)),
            "a peer on hold is not missed"
        );
    }

    #[test]
    fn a_direction_says_who_sends_and_who_is_missed() {
        for (direction, hears, sends) in [
            (Direction::SendRecv, true, true),
            (Direction::SendOnly, false, true),
            (Direction::RecvOnly, true, false),
            (Direction::Inactive, false, false),
        ] {
            let mut session = Session::new(0);
            session.negotiate(agreed(SIGNALLED), at(0));
            learn(&mut session, SIGNALLED, at(0));

            let agreed = NegotiatedMedia {
                direction,
                ..agreed(SIGNALLED)
            };
            session.negotiate(agreed, at(20));

            let mut octets = rtp(8, 90, 0, 1);
            let source = address(SIGNALLED);
            let packet = session.accept(&octets, source, |_| false, at(40));
            assert_eq!(packet.is_some(), hears, "{direction:?}");
            let echo = packet.and_then(|packet| {
                let echo = session.echo(&packet, &mut octets, at(40));
                echo.map(|_| ())
            });
            assert_eq!(echo.is_some(), hears && sends, "{direction:?}");

            let mut octets = [0; 200];
            let frame = session.frame(&mut octets, &[0; 160], false, at(60));
            assert_eq!(frame.is_some(), sends, "{direction:?}");
            let is_missed = session.report_silence(at(90_000));
            assert_eq!(is_missed, hears && sends, "{direction:?}");
        }
    }

    /// Returns how many of a second's frames are audio, and how many are sent in all, with their destination.
    fn second(session: &mut Session, from: u64) -> (usize, usize, Option<SocketAddr>) {
        let (mut audible, mut sent, mut target) = (0, 0, None);
        for tick in 0..50 {
            let (mut octets, now) = ([0; 200], at(from + 20 * tick));
            if let Some((to, packets)) = session.frame(&mut octets, &[0x23; 160], false, now) {
                let packet = packets.iter().next().expect("a packet");
                audible += usize::from(packet[12..] != [g711::a_of_mu(g711::SILENCE); 160]);
                sent += 1;
                assert!(target.is_none_or(|known| known == to), "one destination");
                target = Some(to);
            }
        }
        (audible, sent, target)
    }

    fn claiming(remote: &str, claimed: Option<&str>, is_proven: bool) -> NegotiatedMedia {
        let mut agreed = agreed(remote);
        agreed.peer.claimed = claimed.map(address);
        agreed.peer.is_proven = is_proven;
        if let Some(claimed) = agreed.peer.claimed {
            agreed.sources = [claimed.ip(); 2];
        }
        agreed
    }

    #[test]
    fn a_peer_that_sends_nothing_hears_where_its_address_is_proven() {
        const PRIVATE: &str = "10.0.0.7:4000";
        for (case, remote, claimed, is_proven, expected) in [
            (
                "proven",
                SIGNALLED,
                Some(SIGNALLED),
                true,
                (50, 50, Some(SIGNALLED)),
            ),
            (
                "not yet",
                SIGNALLED,
                Some(SIGNALLED),
                false,
                (0, 2, Some(SIGNALLED)),
            ),
            ("another address", OTHER, None, true, (0, 2, Some(OTHER))),
            (
                "behind a NAT",
                PRIVATE,
                Some(SIGNALLED),
                true,
                (50, 50, Some(SIGNALLED)),
            ),
            (
                "behind a NAT, not yet",
                PRIVATE,
                Some(SIGNALLED),
                false,
                (0, 2, Some(SIGNALLED)),
            ),
        ] {
            for direction in [Direction::SendRecv, Direction::SendOnly] {
                let mut session = Session::new(0);
                let agreed = NegotiatedMedia {
                    direction,
                    ..claiming(remote, claimed, is_proven)
                };
                session.negotiate(agreed, at(0));
                let (audible, sent, target) = second(&mut session, 0);
                let expected = (expected.0, expected.1, expected.2.map(address));
                assert_eq!((audible, sent, target), expected, "{case} {direction:?}");
            }
        }

        let mut session = Session::new(0);
        session.negotiate(claiming(SIGNALLED, Some(SIGNALLED), false), at(0));
        session.prove();
        assert_eq!(second(&mut session, 0).0, 50, "by the ACK");
        session.negotiate(claiming(MOVED, Some(MOVED), true), at(1_000));
        assert_eq!(second(&mut session, 1_000), (50, 50, Some(address(MOVED))));

        let mut unlisted = agreed("10.0.0.7:4000");
        unlisted.sources = [address(SIGNALLED).ip(); 2];
        let mut session = Session::new(0);
        session.negotiate(unlisted, at(0));
        assert_eq!(second(&mut session, 0).1, 0, "SDP may not name it");
    }

    #[test]
    fn what_comes_from_the_address_in_sdp_shows_that_the_peer_listens_there() {
        let (comfort_noise, report) = (rtp(13, 1, 0, 7), rtp(200, 1, 0, 7));
        for (case, octets, source, hears) in [
            ("comfort noise", &comfort_noise, SIGNALLED, true),
            ("RTCP", &report, "192.0.2.1:4001", true),
            ("one packet of audio", &rtp(8, 1, 0, 7), SIGNALLED, true),
            (
                "comfort noise of another port",
                &comfort_noise,
                MOVED,
                false,
            ),
            (
                "comfort noise of another address",
                &comfort_noise,
                OTHER,
                false,
            ),
        ] {
            for direction in [Direction::SendRecv, Direction::SendOnly] {
                let mut session = Session::new(0);
                let agreed = NegotiatedMedia {
                    direction,
                    ..agreed(SIGNALLED)
                };
                session.negotiate(agreed, at(0));
                assert_eq!(
                    second(&mut session, 0).0,
                    0,
                    "{case}: an address of SDP alone"
                );
                session.notice(octets, address(source), at(1_000));
                let expected = if hears { 50 } else { 0 };
                assert_eq!(
                    second(&mut session, 1_000).0,
                    expected,
                    "{case} {direction:?}"
                );
            }

            // And it is life.
            let mut session = learnt(SIGNALLED);
            session.notice(octets, address(source), at(29_000));
            assert_eq!(session.report_silence(at(30_000)), !hears, "{case}");
        }
    }

    #[test]
    fn an_address_behind_a_nat_is_good_while_the_peer_signals_from_there() {
        const PRIVATE: &str = "10.0.0.7:4000";
        const NAT: &str = "198.51.100.1:4000";
        const OTHER_NAT: &str = "198.51.100.2:4000";
        let mut session = Session::new(7);
        session.negotiate(claiming(PRIVATE, Some(NAT), false), at(0));
        session.notice(&rtp(13, 1, 160, 7), address(NAT), at(10));
        assert_eq!(session.target(), Some(address(NAT)));

        session.negotiate(claiming(PRIVATE, Some(NAT), false), at(20));
        assert_eq!(session.target(), Some(address(NAT)), "it stays");
        session.negotiate(claiming(PRIVATE, Some(OTHER_NAT), false), at(30));
        assert_eq!(session.target(), None, "it signals from another");
    }

    #[test]
    fn a_stream_to_a_closed_port_stops_until_the_peer_is_heard() {
        let mut session = Session::new(0);
        session.negotiate(claiming(SIGNALLED, Some(SIGNALLED), true), at(0));
        assert!(!session.note_unreachable(address("192.0.2.1:4001")), "RTCP");
        assert_eq!(second(&mut session, 0).1, 50);

        assert!(session.note_unreachable(address(SIGNALLED)));
        assert!(!session.note_unreachable(address(SIGNALLED)), "once");
        assert_eq!(second(&mut session, 1_000), (0, 0, None));
        assert_eq!(session.audience(), Audience::Absent, "nothing waits for it");
        session.notice(&rtp(13, 1, 0, 7), address(SIGNALLED), at(2_000));
        assert_eq!(second(&mut session, 2_000).0, 50);

        assert!(session.note_unreachable(address(SIGNALLED)));
        learn(&mut session, MOVED, at(3_000));
        assert_eq!(second(&mut session, 3_000), (50, 50, Some(address(MOVED))));

        assert!(session.note_unreachable(address(MOVED)));
        session.negotiate(claiming(SIGNALLED, Some(SIGNALLED), true), at(4_000));
        assert_eq!(
            second(&mut session, 4_000).0,
            50,
            "its port may be open now"
        );
    }

    #[test]
    fn audio_waits_for_two_seconds_and_is_withheld_from_then_on() {
        let mut session = Session::new(0);
        session.negotiate(agreed(SIGNALLED), at(0));
        let fates: Vec<_> = (0..102).map(|_| session.audience()).collect();
        assert!(fates[..100].iter().all(|fate| *fate == Audience::Awaited));
        assert_eq!(fates[100..], [Audience::Absent; 2]);
        assert!(session.take_waited() && !session.take_waited(), "once");

        session.notice(&rtp(13, 1, 0, 7), address(SIGNALLED), at(3_000));
        assert_eq!(session.audience(), Audience::Listens);
        assert!(!session.take_waited(), "nothing has waited since");

        session.negotiate(agreed(MOVED), at(4_000));
        assert_eq!(session.audience(), Audience::Awaited, "it has moved");
        session.notice(&rtp(13, 1, 0, 7), address(MOVED), at(4_020));
        assert_eq!(session.audience(), Audience::Listens);
        assert!(session.take_waited());

        session.negotiate(agreed("0.0.0.0:9"), at(5_000));
        assert_eq!(session.audience(), Audience::Listens, "on hold");
    }

    #[test]
    fn a_peer_that_takes_us_off_hold_has_time_to_speak() {
        let mut session = Session::new(0);
        let on_hold = NegotiatedMedia {
            direction: Direction::Inactive,
            ..agreed(SIGNALLED)
        };
        session.negotiate(on_hold, at(0));
        session.negotiate(agreed(SIGNALLED), at(60_000));
        assert!(!session.report_silence(at(89_999)));
        assert!(session.report_silence(at(90_000)));
    }
}
