//! Media of one call on its thread: the peer's packets on the way to the echo or a bot, and echo, speech or bot's audio on the way to the peer.

mod absence;
mod browser;
mod keys;
mod reports;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use trunkline_sip::dialog::sdp::Codec;
#[cfg(test)]
use trunkline_sip::dialog::sdp::{AudioPayload, PacketTime, PayloadTypes};
use trunkline_sip::moment::Moment;

use crate::bot::BotEnd;
use crate::bot::wire::FRAME;

use super::allowance::{Flood, PacketAllowances, Taken};
use super::bot_leg::{BotCounts, BotLeg, Scratch};
use super::browser_leg::BrowserLeg;
use super::clip::{Player, Sound};
use super::event::MediaEvent;
use super::g711;
#[cfg(test)]
use super::negotiated::MediaPeer;
use super::negotiated::NegotiatedMedia;
use super::playout::Played;
use super::reception::Reception;
use super::rtcp::Rtcp;
use super::rtp::{Packet, Packets};
use super::session::{Audience, MAX_AUDIO, Session};
use super::statistics::{Figures, MediaStatistics, Shared};
use super::surplus::Surplus;
use super::timeline::MediaStepKind;

/// Time between two ticks.
const TICK: Duration = Duration::from_millis(20);

/// Most skipped ticks for which the timestamps advance, after a thread was held up for long.
const MAX_PASSED: u128 = 50;

/// Media of one call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) key: u64,
    pub(super) socket: Arc<UdpSocket>,
    pub(super) session: Session,
    allowances: PacketAllowances,
    bot: Option<Box<BotLeg>>,
    browser: Option<Box<BrowserLeg>>,
    /// Audio of ours in place of the echo.
    player: Option<Box<Player>>,
    /// The call is up.
    is_started: bool,
    /// Time of the answer: as passed to [`Call::start`], or else of the first negotiation.
    answered_at: Option<Moment>,
    /// Reason why the bot has gone, until it is reported.
    ended: Option<BotEnd>,
    /// The last frame that was sent was silence.
    is_quiet: bool,
    /// Address from which audio was last withheld.
    withheld_from: Option<SocketAddr>,
    /// IP address that was learnt, until it is taken.
    new_ip: Option<IpAddr>,
    /// The peer is heard again after a silence that was reported, until this is taken.
    is_back: bool,
    ticked_at: Option<Moment>,
    rtcp: Rtcp,
    rtcp_socket: Option<Arc<UdpSocket>>,
    reception: Reception,
    /// Packets that the echo hasn't returned, which pay for its reports.
    surplus: Surplus,
    figures: Figures,
    /// Figures of the bots before this one.
    past: Figures,
    /// Counts of the bot when its steps were last noted.
    noted: BotCounts,
    /// Hold of the playout ([`super::playout`]) that has grown, until it is passed on to other calls of the agent.
    learnt: Option<Duration>,
    shared: Arc<Shared>,
}

/// Outcome for a received packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Fate<'p> {
    /// The packet goes back to the peer, at this address.
    Echoed(SocketAddr, &'p [u8]),
    /// The bot, the browser or the player gets the packet.
    Passed,
    Discarded,
}

impl Call {
    pub(super) fn new(
        key: u64,
        socket: Arc<UdpSocket>,
        session: Session,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            key,
            socket,
            session,
            allowances: PacketAllowances::default(),
            bot: None,
            browser: None,
            player: None,
            is_started: false,
            answered_at: None,
            ended: None,
            is_quiet: true,
            withheld_from: None,
            new_ip: None,
            is_back: false,
            ticked_at: None,
            rtcp: Rtcp::default(),
            rtcp_socket: None,
            reception: Reception::default(),
            surplus: Surplus::default(),
            figures: Figures::default(),
            past: Figures::default(),
            noted: BotCounts::default(),
            learnt: None,
            shared,
        }
    }

    /// Makes an address the peer's, and marks the call as up with a bot, for reports only.
    #[cfg(test)]
    pub(super) fn become_heard_at(&mut self, peer: SocketAddr, now: Moment) {
        self.negotiate(
            NegotiatedMedia {
                remote: peer,
                payload: AudioPayload::PCMA,
                telephone_event: None,
                received: PayloadTypes::of(AudioPayload::PCMA, None),
                direction: trunkline_sip::dialog::sdp::Direction::SendRecv,
                packet_time: PacketTime::default(),
                rtcp: None,
                sources: [peer.ip(); 2],
                from_any: false,
                peer: MediaPeer::default(),
            },
            now,
        );

        for sequence in 0..4 {
            let mut octets = [
                0x80,
                AudioPayload::PCMA.number,
                0,
                sequence,
                0,
                0,
                0,
                0,
                1,
                2,
                3,
                4,
                0xd5,
            ];
            self.receive(&mut octets, peer, |_| false, &mut Scratch::default(), now);
        }
        self.is_started = true;
        self.figures.has_concealment = true;
    }

    /// Charges a packet of any kind that came to the RTP socket.
    pub(super) fn take_packet(&mut self, source: SocketAddr, now: Moment) -> Result<(), Flood> {
        let expected = self.session.expected();
        self.allowances.take_rtp(expected, source, now)
    }

    /// Charges a packet that came to the RTCP socket.
    pub(super) fn take_report(&mut self, now: Moment) -> Taken {
        self.allowances.take_rtcp(now)
    }

    /// Returns the bot, if one is attached.
    pub(super) fn bot(&mut self) -> Option<&mut BotLeg> {
        self.bot.as_deref_mut()
    }

    /// Returns whether a bot or a browser was ever attached.
    pub(super) const fn had_bot(&self) -> bool {
        self.figures.has_concealment
    }

    /// Returns whether the peer hears itself.
    pub(super) fn is_echo(&self) -> bool {
        let is_ours = self.had_bot() || self.player.is_some() || self.session.is_spoken_to();
        !is_ours && self.browser.is_none()
    }

    /// Returns the figures as published.
    pub(super) fn figures(&self) -> MediaStatistics {
        self.shared.read()
    }

    /// Attaches a bot in place of the echo or of another bot. It starts at once if the call is up. Returns the previous bot, stopped.
    pub(super) fn attach(
        &mut self,
        bot: BotLeg,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Box<BotLeg>> {
        let mut before = self.bot.take();
        if let Some(before) = &mut before {
            before.stop(scratch);
        }

        // The new bot counts from 0: the call's figures are those of its earlier bots and the new one's together.
        self.past = self.figures;
        self.noted = BotCounts::default();
        self.shared.note(MediaStepKind::BotConnected, now);
        self.figures.has_concealment = true;
        self.player = None;
        self.bot = Some(Box::new(bot));
        // An end that was noted but not taken yet was the previous bot's.
        self.ended = None;

        if self.is_started {
            self.start_bot(scratch, now);
        }
        before
    }

    /// Takes the result of an offer and its answer.
    pub(super) fn negotiate(&mut self, agreed: NegotiatedMedia, now: Moment) {
        self.answered_at.get_or_insert(now);
        self.figures.is_negotiated = true;
        self.reception.renegotiate(agreed.direction.receives());
        self.session.negotiate(agreed, now);
        self.shared.write_silence(self.session.is_silent());
        self.publish(now);
    }

    /// Returns whether the peer has been silent for so long that it is to be asked whether it is still there.
    pub(super) fn report_silence(&mut self, now: Moment) -> bool {
        let is_news = self.session.report_silence(now);
        if is_news {
            // Shared too, since the report may wait for room in its shard's inbox while media comes again.
            self.shared.write_silence(true);
        }
        is_news
    }

    /// Marks the call as up since `answered_at`: the bot gets its start.
    pub(super) fn start(&mut self, answered_at: Moment, scratch: &mut Scratch, now: Moment) {
        self.is_started = true;
        self.start_browser(now);
        self.answered_at = Some(answered_at);
        self.start_bot(scratch, now);
    }

    fn start_bot(&mut self, scratch: &mut Scratch, now: Moment) {
        let Some(bot) = &mut self.bot else { return };
        if !bot.is_started() {
            self.shared.note(MediaStepKind::Started, now);
        }
        let started = bot.start(scratch, now);
        self.check(started);
    }

    /// Plays audio of ours in place of the echo. The call is up.
    pub(super) fn play(&mut self, serial: u32, sound: Sound) {
        self.is_started = true;
        self.player.get_or_insert_default().play(serial, sound);
    }

    /// Ends the call: the bot gets `stop`. `is_listener` returns whether an address is a listener of this node.
    pub(super) fn stop(
        &mut self,
        is_listener: impl Fn(SocketAddr) -> bool,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        if let Some(bot) = &mut self.bot {
            bot.stop(scratch);
        }
        self.say_goodbye(is_listener);
        self.publish(now);
    }

    /// Takes a packet. `is_ours` returns whether an address is an RTP port of this node.
    pub(super) fn receive<'p>(
        &mut self,
        octets: &'p mut [u8],
        source: SocketAddr,
        is_ours: impl Fn(SocketAddr) -> bool,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Fate<'p> {
        let (known, was_silent) = (self.session.peer(), self.session.is_silent());
        let accepted = self.session.accept(octets, source, is_ours, now);

        // Noted also if the packet isn't accepted: the record then shows that packets come, and from where.
        if self.session.take_first() {
            self.shared.note(MediaStepKind::FirstPacket(source), now);
        }
        if self.session.peer() != known {
            self.shared.note(MediaStepKind::Learnt(source), now);
            self.reception.relocate();
            self.new_ip = Some(source.ip());
        }
        if accepted.is_none() {
            self.session.notice(octets, source, now);
            // Comfort noise has numbers of the stream (RFC 3389 §4), which would count as lost without it.
            let is_peers = self.session.peer() == Some(source);
            if let Some(packet) = Packet::read(octets).filter(|_| is_peers) {
                self.reception.hear(&packet.header, false, now);
            }
        }
        self.end_silence(was_silent);
        let Some(packet) = accepted else {
            return Fate::Discarded;
        };

        let audio = self.session.codec(&packet);
        self.reception.hear(&packet.header, audio.is_some(), now);
        self.figures.packets_received += 1;
        self.figures.octets_received += packet.payload(octets).len() as u64;

        if self.browser.is_some() {
            if let Some(codec) = audio {
                self.pass_to_browser(&packet, codec, octets, now);
            }
            return Fate::Passed;
        }

        // A call whose bot has gone doesn't become an echo again: its peer hears silence until another is attached.
        if !self.had_bot() && self.player.is_none() {
            let length = octets.len();
            let Some(echo) = self.session.echo(&packet, octets, now) else {
                self.surplus.add(length);
                return Fate::Discarded;
            };
            self.figures.packets_sent += 1;
            self.figures.octets_sent += packet.payload_len() as u64;

            if audio.is_some() && self.figures.first_word.is_none() {
                let since = self.answered_at.unwrap_or(now);
                self.figures.first_word = Some(now.since(since));
                self.shared.note(MediaStepKind::FirstAudio, now);
            }
            // `source` is the learnt address: a packet of any other isn't accepted.
            return Fate::Echoed(source, echo);
        }

        if let Some(codec) = audio
            && let Some(payload) = mu_law_of(&packet, codec, octets)
        {
            self.pass(&packet, payload, scratch, now);
        }
        Fate::Passed
    }

    fn pass(&mut self, packet: &Packet, payload: &[u8], scratch: &mut Scratch, now: Moment) {
        if let Some(player) = &mut self.player {
            player.hear(&packet.header, payload);
        }
        let Some(bot) = &mut self.bot else { return };
        let heard = bot.hear(&packet.header, payload, scratch, now);
        self.check(heard);
    }

    /// Runs the tick of every 20 ms: fills the slot of a caller that sends nothing, and returns the packets that are due to the peer.
    pub(super) fn tick<'p>(
        &mut self,
        octets: &'p mut [u8],
        scratch: &mut Scratch,
        news: &mut Vec<(u64, MediaEvent)>,
        now: Moment,
    ) -> Option<(SocketAddr, Packets<'p>)> {
        // A code needs no start: it is spoken once media is negotiated.
        if self.session.is_spoken_to() {
            return self.speak(octets, news, now);
        }
        if !self.is_started {
            return None;
        }

        self.let_pass(now);
        if self.browser.is_some() {
            return self.tick_browser(octets, now);
        }

        let mut frame = [g711::SILENCE; FRAME];
        let mut played = Played::Filled;
        let audience = self.session.audience();
        if let Some(bot) = &mut self.bot {
            if self.session.take_waited() {
                bot.end_wait(now);
            }
            // A key waits until the peer is there. Otherwise its beginning would be lost.
            let key = if audience.listens() { bot.key() } else { None };
            if let Some(key) = key {
                if self.session.wants_tones() {
                    key.tone(&mut frame);
                // In the pause after a key there is no event: `frame` is sent as it is, with silence.
                } else if key.event().is_some() {
                    let ticked = bot.tick(scratch, now);
                    self.check(ticked);
                    return self.send_key(octets, key);
                }
            }

            let ticked = bot.tick(scratch, now).and_then(|()| match audience {
                _ if key.is_some() => Ok(Played::Filled),
                Audience::Awaited => Ok(Played::Filled),
                Audience::Absent => bot.withhold(scratch, now),
                Audience::Listens => bot.play(&mut frame, scratch, now),
            });
            match ticked {
                Ok(what) => played = what,
                Err(end) => self.check(Err(end)),
            }
        } else if let Some(player) = &mut self.player {
            played = player.fill(&mut frame, audience.listens(), now);
            if let Some(serial) = player.take_ended() {
                news.push((self.key, MediaEvent::Played(serial)));
            }
        // An echo sends nothing of its own accord, only what it receives.
        } else if !self.had_bot() {
            return None;
        }

        if played == Played::Audio && !audience.listens() {
            self.note_withheld(now);
            frame = [g711::SILENCE; FRAME];
            played = Played::Filled;
        }
        let is_first = self.is_quiet && played == Played::Audio;
        let sent = self.session.frame(octets, &frame, is_first, now);
        // RFC 3550 §5.1: the timestamp grows by a block "regardless of whether the block is transmitted in a packet or
        // dropped as silent".
        let Some((to, packets)) = sent else {
            self.session.pass();
            return None;
        };

        self.is_quiet = played == Played::Filled;
        self.figures.packets_sent += packets.count() as u64;
        self.figures.octets_sent += FRAME as u64;

        if played == Played::Audio && self.figures.first_word.is_none() {
            let after = now.since(self.answered_at.unwrap_or(now));
            self.figures.first_word = Some(after);
            self.shared.note(MediaStepKind::FirstAudio, now);
            news.push((self.key, MediaEvent::BotSpoke { after }));
        }

        Some((to, packets))
    }

    fn speak<'p>(
        &mut self,
        octets: &'p mut [u8],
        news: &mut Vec<(u64, MediaEvent)>,
        now: Moment,
    ) -> Option<(SocketAddr, Packets<'p>)> {
        if self.session.is_unheard() {
            self.note_withheld(now);
        }
        let spoken = self.session.speak(octets, now);
        if self.session.take_end() {
            news.push((self.key, MediaEvent::Spoken));
        }
        spoken
    }

    /// Advances the timestamps over ticks that were skipped.
    fn let_pass(&mut self, now: Moment) {
        if let Some(before) = self.ticked_at {
            let half = TICK.as_micros() / 2;
            let ticks = (now.since(before).as_micros() + half) / TICK.as_micros();
            // The tick that runs now advances the timestamp itself.
            for _ in 1..ticks.min(MAX_PASSED) {
                self.session.pass();
            }
        }
        self.ticked_at = Some(now);
    }

    /// Notes the bot's end if a message couldn't be sent to it. The first end counts.
    pub(super) fn check(&mut self, sent: Result<(), BotEnd>) {
        if let Err(end) = sent {
            self.ended.get_or_insert(end);
        }
    }

    /// Returns the bot that has gone, with the reason; once.
    pub(super) fn take_ended(&mut self, now: Moment) -> Option<(Box<BotLeg>, BotEnd)> {
        let end = self.ended?;
        let mut bot = self.bot.take()?;
        self.note(&bot, now);
        self.shared.note(MediaStepKind::BotClosed(end), now);
        bot.close(end.close_status());
        Some((bot, end))
    }

    /// Returns the bot of a call that is over.
    pub(super) const fn take_bot(&mut self) -> Option<Box<BotLeg>> {
        self.bot.take()
    }

    /// Publishes the figures.
    pub(super) fn publish(&mut self, now: Moment) {
        if let Some(bot) = self.bot.take() {
            self.note(&bot, now);
            self.bot = Some(bot);
        }

        if let Some(browser) = &self.browser {
            let counts = browser.counts();
            self.figures.packets_late = counts.late;
            self.figures.packets_discarded = counts.discarded;
        }
        self.figures.packets_expected = self.reception.expected();
        self.figures.packets_lost = self.reception.lost();
        self.figures.jitter = self.reception.jitter();
        self.shared.write(&self.figures);
    }

    fn note(&mut self, bot: &BotLeg, now: Moment) {
        let (counts, past) = (bot.counts(), &self.past);
        self.figures.packets_late = past.packets_late + counts.inbound.late;
        self.figures.packets_discarded = past.packets_discarded + counts.inbound.discarded;
        self.figures.underruns = past.underruns + counts.playout.underruns;
        self.figures.clears = past.clears + counts.playout.clears;
        self.figures.discarded = past.discarded + counts.playout.discarded;
        self.figures.junk = past.junk + counts.junk;
        self.figures.hold = counts.hold;

        let (playout, noted) = (counts.playout, self.noted.playout);
        for (kind, is_new) in [
            (MediaStepKind::Underrun, playout.underruns > noted.underruns),
            (MediaStepKind::Mark, playout.marks > noted.marks),
            (MediaStepKind::Cleared, playout.clears > noted.clears),
            (
                MediaStepKind::Discarded,
                playout.discarded > noted.discarded,
            ),
        ] {
            if is_new {
                self.shared.note(kind, now);
            }
        }
        if counts.hold > self.noted.hold {
            self.learnt = Some(counts.hold);
        }
        self.noted = counts;
    }

    /// Returns the hold that the bot's audio needs, once it has grown.
    pub(super) const fn take_learnt(&mut self) -> Option<Duration> {
        self.learnt.take()
    }

    /// Returns the time between a clear and its last audible packet; once.
    pub(super) fn take_cleared(&mut self, now: Moment) -> Option<Duration> {
        let after = self.bot.as_mut()?.take_cleared()?;
        self.figures.clear_to_silence = self.figures.clear_to_silence.max(Some(after));
        self.shared.note(MediaStepKind::Silent, now);
        Some(after)
    }
}

/// Returns the payload of an audio packet, converted to µ-law in place; `None` if it is longer than any audio.
fn mu_law_of<'p>(packet: &Packet, codec: Codec, octets: &'p mut [u8]) -> Option<&'p [u8]> {
    let payload = packet.payload_mut(octets);
    if payload.len() > MAX_AUDIO {
        return None;
    }
    g711::convert(payload, codec, Codec::Pcmu);
    Some(payload)
}
