//! Callers and bots of a load, in one thread. Each caller's audio is stamped with the time, so that its bot can measure the delay. The bots
//! speak, send bursts and clear them.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::os::fd::AsRawFd as _;

use crate::clock::Clock;
use crate::histogram::Histogram;
use crate::kernel::{Receiver, Sender};
use crate::outbox::Outbox;
use crate::web_socket::{After, Identity, WebSocket};

/// Time between two packets, in microseconds.
const SLOT: u64 = 20_000;
/// Octets of audio in a packet.
const FRAME: usize = 160;
/// Silence in µ-law.
const SILENCE: u8 = 0xff;
/// Lowest of the 16 octets that encode four bits of a time each. None of the 16 is silence.
const NIBBLE: u8 = 0x10;
/// Octet after a time.
const STAMPED: u8 = 0x5a;
/// Octets of a stamp: a time of 32 bits, and the octet after it.
const STAMP: usize = 9;
/// Characters of base64 that hold a stamp.
const STAMP_CHARACTERS: usize = 12;

const LISTENER: Token = Token(0);
const RTP: Token = Token(1);
const FIRST: usize = 2;

/// Length of a bot's cycle in microseconds: it speaks, sends a burst, clears it, and is silent for the rest.
const CYCLE: u64 = 8_000_000;
/// Time of the burst in the cycle.
const BURST_AT: u64 = 6_000_000;
/// Time of the clear in the cycle.
const CLEAR_AT: u64 = 6_400_000;
/// Octets of a burst: 2 s.
const BURST: usize = 16_000;
/// Time after a clear by which the last audible packet has been sent.
const SETTLED: u64 = 500_000;

/// A message that means nothing to the daemon.
const JUNK: &[u8] = br#"{"event":"junk"}"#;

/// Behaviour of the load.
#[derive(Clone, Copy, Debug)]
pub struct Voices {
    /// Milliseconds of audio in a message of a bot.
    pub message_ms: u64,
    /// Bots that send junk instead of audio, if there are any.
    pub hostile: Option<Hostile>,
}

/// Bots that send junk.
#[derive(Clone, Copy, Debug)]
pub struct Hostile {
    /// Place of the first caller with such a bot; all behind it have one too.
    pub from: usize,
    /// Messages a second of each such bot.
    pub rate: u64,
}

/// Figures of a load.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Delay from a caller's packet to its bot.
    pub to_bot: Histogram,
    /// Time from a bot's clear to its caller's last audible packet.
    pub cleared: Histogram,
    /// Lateness of our own packets.
    pub own_late: Histogram,
    /// Frames that bots received.
    pub frames: u64,
    /// Packets that callers received.
    pub packets: u64,
    /// Packets that the kernel refused.
    pub untaken: u64,
    /// WebSockets of bots that speak, which ended.
    pub ended: u64,
    /// WebSockets of hostile bots, which ended.
    pub hostile_ended: u64,
    /// Messages of hostile bots.
    pub junk: u64,
}

#[derive(Debug)]
struct Caller {
    to: SocketAddrV4,
    sequence: u16,
    audible_at: u64,
}

#[derive(Debug)]
struct Bot {
    socket: WebSocket,
    /// The place of its caller, once `start` has named it.
    caller: Option<usize>,
    began_at: u64,
    said: u64,
    is_burst_sent: bool,
    cleared_at: Option<u64>,
}

/// The load.
#[derive(Debug)]
pub struct VoiceLoad {
    clock: Clock,
    voices: Voices,
    poll: Poll,
    listener: TcpListener,
    identity: Identity,
    rtp: UdpSocket,
    new: mpsc::Receiver<(usize, SocketAddrV4)>,
    callers: Vec<Option<Caller>>,
    by_port: Vec<Option<u32>>,
    bots: Vec<Option<Bot>>,
    sender: Sender,
    receiver: Receiver,
    outbox: Outbox,
    next_slot: u64,
    message: Vec<u8>,
    burst: Vec<u8>,
    /// Figures so far.
    pub heard: Heard,
}

/// A message with this many octets of audio, none of them silence.
fn spoken(octets: usize) -> Vec<u8> {
    let payload = STANDARD.encode(vec![0x31; octets]);
    format!("{{\"event\":\"media\",\"streamSid\":\"MZ\",\"media\":{{\"payload\":\"{payload}\"}}}}")
        .into_bytes()
}

impl VoiceLoad {
    /// Accepts bots at `listener`, under `identity`; `new` reports calls that are up.
    ///
    /// # Errors
    /// The kernel offers no poll.
    pub fn new(
        voices: Voices,
        listener: std::net::TcpListener,
        identity: Identity,
        rtp: UdpSocket,
        new: mpsc::Receiver<(usize, SocketAddrV4)>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        rtp.set_nonblocking(true)?;
        let poll = Poll::new()?;
        let mut listener = TcpListener::from_std(listener);
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        poll.registry()
            .register(&mut SourceFd(&rtp.as_raw_fd()), RTP, Interest::READABLE)?;

        Ok(Self {
            clock: Clock::start(),
            voices,
            poll,
            listener,
            identity,
            rtp,
            new,
            callers: Vec::new(),
            by_port: vec![None; 1 << 16],
            bots: Vec::new(),
            sender: Sender::default(),
            receiver: Receiver::default(),
            outbox: Outbox::default(),
            next_slot: 0,
            message: spoken(usize::try_from(voices.message_ms).unwrap_or(20) * 8),
            burst: spoken(BURST),
            heard: Heard::default(),
        })
    }

    /// Number of bots that speak whose call is up.
    pub fn up(&self) -> usize {
        let bots = self.bots.iter().flatten();
        let callers = bots.filter_map(|bot| bot.caller);
        callers
            .filter(|caller| self.hostile(*caller).is_none())
            .count()
    }

    /// The behaviour of a caller's bot, if it is hostile.
    fn hostile(&self, caller: usize) -> Option<Hostile> {
        self.voices.hostile.filter(|hostile| caller >= hostile.from)
    }

    /// Runs for `micros` microseconds.
    ///
    /// # Errors
    /// Polling or a socket fails.
    pub fn run(&mut self, micros: u64) -> io::Result<()> {
        let mut events = Events::with_capacity(1_024);
        let end = self.clock.now() + micros;
        while self.clock.now() < end {
            self.take_new();
            self.speak();
            let wait = (self.next_slot * 1_000).saturating_sub(self.clock.now());
            // A millisecond at most. The poll rounds a shorter wait up to the kernel's resolution of one.
            let wait = Duration::from_micros(wait.min(1_000));
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(()) | Err(_) => {}
            }

            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    // Read in every turn, below: the poll reports readiness only when it changes.
                    RTP => {}
                    Token(of) => self.hear_bot(of - FIRST),
                }
            }

            self.hear_callers()?;
        }
        Ok(())
    }

    fn take_new(&mut self) {
        while let Ok((place, to)) = self.new.try_recv() {
            if self.callers.len() <= place {
                self.callers.resize_with(place + 1, || None);
            }
            // All callers share one socket, so the port of the daemon's media says whose packet comes.
            self.by_port[usize::from(to.port())] = u32::try_from(place).ok();
            self.callers[place] = Some(Caller {
                to,
                sequence: 0,
                audible_at: 0,
            });
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            let mut socket = WebSocket::new(stream, &self.identity)?;
            let token = Token(self.bots.len() + FIRST);
            // Writable too: what the socket didn't take is flushed when it has room again.
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll
                .registry()
                .register(socket.stream(), token, both)?;

            self.bots.push(Some(Bot {
                socket,
                caller: None,
                began_at: 0,
                said: 0,
                is_burst_sent: false,
                cleared_at: None,
            }));
        }
        Ok(())
    }

    /// Sends everything due in the milliseconds that have begun: a twentieth of all callers and bots in each.
    fn speak(&mut self) {
        let now = self.clock.now();
        while self.next_slot * 1_000 <= now {
            let due = self.next_slot * 1_000;
            let slot = usize::try_from(self.next_slot % 20).unwrap_or(0);
            self.next_slot += 1;
            self.heard.own_late.record(now - due);
            for place in (slot..self.callers.len()).step_by(20) {
                self.say(place);
            }
            self.heard.untaken += self.sender.send(&self.rtp, &mut self.outbox);
            for place in (slot..self.bots.len()).step_by(20) {
                self.have_bot_speak(place);
            }
        }
    }

    fn say(&mut self, place: usize) {
        let Some(Some(caller)) = self.callers.get_mut(place) else {
            return;
        };
        caller.sequence = caller.sequence.wrapping_add(1);

        let mut packet = [0x20; 12 + FRAME];
        packet[..2].copy_from_slice(&[0x80, 0]);
        packet[2..4].copy_from_slice(&caller.sequence.to_be_bytes());
        let timestamp = u32::from(caller.sequence).wrapping_mul(160);
        packet[4..8].copy_from_slice(&timestamp.to_be_bytes());
        packet[8..12].copy_from_slice(&(place as u32).to_be_bytes());
        packet[12..12 + STAMP].copy_from_slice(&stamp(self.clock.now()));

        self.outbox.put(&packet);
        self.outbox.end(caller.to);
    }

    fn have_bot_speak(&mut self, place: usize) {
        let now = self.clock.now();
        let caller = self.bots[place].as_ref().and_then(|bot| bot.caller);
        if let Some(hostile) = caller.and_then(|caller| self.hostile(caller)) {
            return self.have_bot_flood(place, hostile);
        }

        let Some(bot) = self.bots[place].as_mut() else {
            return;
        };
        let Some(caller) = bot.caller else { return };
        let audible_at = self.callers.get(caller).and_then(Option::as_ref);
        let audible_at = audible_at.map_or(0, |caller| caller.audible_at);

        // Each bot has its own offset in the cycle, so that bursts and clears are spread.
        let since = now - bot.began_at + (place as u64 * 37_000) % CYCLE;
        let within = since % CYCLE;

        let mut sent = Ok(());
        if within < BURST_AT {
            bot.is_burst_sent = false;

            let each = self.voices.message_ms * 1_000;
            if now >= bot.said + each {
                // After falling behind by two messages the bot begins a new cadence: a burst of its backlog isn't speech.
                bot.said = if bot.said + 2 * each < now {
                    now
                } else {
                    bot.said + each
                };
                sent = bot.socket.send(&self.message);
            }
        } else if !bot.is_burst_sent {
            bot.is_burst_sent = true;
            sent = bot.socket.send(&self.burst);
        } else if (CLEAR_AT..CLEAR_AT + SLOT).contains(&within) {
            bot.cleared_at = Some(now);
            sent = bot
                .socket
                .send(b"{\"event\":\"clear\",\"streamSid\":\"MZ\"}");
        } else if let Some(cleared_at) = bot.cleared_at.filter(|at| now > at + SETTLED) {
            bot.cleared_at = None;
            self.heard
                .cleared
                // Zero where nothing audible came after the clear.
                .record(audible_at.saturating_sub(cleared_at));
        }

        if sent.is_err() {
            self.end(place);
        }
    }

    /// Sends the messages of a hostile bot in the time between two packets.
    fn have_bot_flood(&mut self, place: usize, hostile: Hostile) {
        for _ in 0..hostile.rate * SLOT / 1_000_000 {
            let Some(bot) = self.bots[place].as_mut() else {
                return;
            };
            match bot.socket.send(JUNK) {
                Ok(()) => self.heard.junk += 1,
                Err(_) => self.end(place),
            }
        }
    }

    fn hear_bot(&mut self, place: usize) {
        let Some(Some(bot)) = self.bots.get_mut(place) else {
            return;
        };
        let (clock, heard) = (self.clock, &mut self.heard);
        let mut started = None;
        let read = bot.socket.read(|text| {
            const PAYLOAD: &[u8] = b"\"payload\":\"";
            if let Some(at) = memmem::find(text, PAYLOAD) {
                heard.frames += 1;
                let begin = at + PAYLOAD.len();
                let sent = text.get(begin..begin + STAMP_CHARACTERS).and_then(stamped);
                if let Some(sent) = sent {
                    let now = clock.now() as u32;
                    // A stamp has 32 bits and wraps after 71 minutes; the difference stays right.
                    heard.to_bot.record(u64::from(now.wrapping_sub(sent)));
                }
            } else if memmem::find(text, b"\"event\":\"start\"").is_some() {
                started = caller_of(text);
            }
        });

        if let Some(caller) = started {
            bot.caller = Some(caller);
            bot.began_at = self.clock.now();
            bot.said = bot.began_at;
        }

        if !matches!(read, Ok(After::Open)) {
            self.end(place);
        }
    }

    fn end(&mut self, place: usize) {
        // The place stays empty: the poll's token is made from its number, which is never given to another bot.
        let caller = self.bots[place].take().and_then(|bot| bot.caller);
        let hostile = caller.filter(|caller| self.hostile(*caller).is_some());
        match hostile {
            Some(caller) => {
                self.heard.hostile_ended += 1;
                // The caller is forgotten, since the daemon gives the port of its media to another call.
                self.callers[caller] = None;
            }
            None => self.heard.ended += 1,
        }
    }

    /// Closes all WebSockets, which ends the calls.
    pub fn hang_up(&mut self) {
        self.bots.iter_mut().for_each(|bot| *bot = None);
    }

    fn hear_callers(&mut self) -> io::Result<()> {
        loop {
            let count = self.receiver.receive(&self.rtp)?;
            if count == 0 {
                return Ok(());
            }
            let now = self.clock.now();
            for at in 0..count {
                let (packet, from) = self.receiver.datagram(at);
                let Some(place) = self.by_port[usize::from(from.port())] else {
                    continue;
                };
                self.heard.packets += 1;
                let audio = packet.get(12..).unwrap_or_default();
                let is_audible = audio.iter().any(|octet| *octet != SILENCE);
                if is_audible && let Some(Some(caller)) = self.callers.get_mut(place as usize) {
                    caller.audible_at = now;
                }
            }
        }
    }
}

/// Encodes a time, modulo 32 bits.
fn stamp(now: u64) -> [u8; STAMP] {
    let mut stamp = [STAMPED; STAMP];
    for (at, octet) in stamp[..8].iter_mut().enumerate() {
        *octet = NIBBLE | (now as u32 >> (at * 4) & 0xf) as u8;
    }
    stamp
}

/// Decodes a time from base64; `None` if the audio was concealed or blended.
fn stamped(text: &[u8]) -> Option<u32> {
    let mut octets = [0; STAMP];
    STANDARD.decode_slice(text, &mut octets).ok()?;
    let is_stamp = octets[8] == STAMPED && octets[..8].iter().all(|octet| octet & 0xf0 == NIBBLE);
    let time = octets[..8].iter().enumerate();
    let time = time.fold(0, |time, (at, octet)| {
        time | u32::from(octet & 0xf) << (at * 4)
    });
    is_stamp.then_some(time)
}

/// The number of a caller, without the common prefix.
fn caller_of(start: &[u8]) -> Option<usize> {
    const NUMBER: &[u8] = b"\"from_number\":\"";
    let begin = memmem::find(start, NUMBER)? + NUMBER.len();
    let number = start[begin..].split(|octet| *octet == b'"').next()?;
    let number = str::from_utf8(number).ok()?.strip_prefix(PREFIX)?;
    number.parse().ok()
}

/// Common prefix of all callers' numbers; seven digits follow.
pub const PREFIX: &str = "+4416";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_passes_in_audio() {
        for now in [0, 1, 0xdead_beef, u64::from(u32::MAX) + 5] {
            let text = STANDARD.encode(stamp(now));
            assert_eq!(text.len(), STAMP_CHARACTERS);
            assert_eq!(stamped(text.as_bytes()), Some(now as u32));
        }
        assert_eq!(stamped(STANDARD.encode([SILENCE; 9]).as_bytes()), None);
    }

    #[test]
    fn a_start_names_its_caller() {
        let start =
            br#"{"start":{"customParameters":{"from_number":"+44160000042","to_number":"+1"}}}"#;
        assert_eq!(caller_of(start), Some(42));
        assert_eq!(caller_of(b"{}"), None);
    }
}
