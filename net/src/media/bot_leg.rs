//! A call's bot: its connection, the caller's audio on the way to it, and its audio on the way to the caller.

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::moment::Moment;

use crate::bot::frame::{BotFrame, MAX_CONTROL, Opcode, Reader};
use crate::bot::link::{Link, LinkProgress};
use crate::bot::message::{self, BotMessage};
use crate::bot::wire::{FRAME, Wire};
use crate::bot::{Bot, BotEnd, NORMAL_CLOSURE};

use super::allowance::{Allowance, Taken};
use super::audio_budget::AudioShare;
use super::inbound::{Inbound, InboundCounts};
use super::keys::{KeyFrame, SentKeys};
use super::playout::{MarkOutcome, Played, Playout, PlayoutCounts};
use super::rtp::Header;

/// Messages with an unknown meaning that a bot may send at once, and per second after that. A bot that exceeds this bound, or one of those
/// below, is disconnected.
const JUNK_AT_ONCE: u32 = 500;
const JUNK_A_SECOND: u32 = 100;

/// Messages other than audio that a bot may send at once, and per second after that: enough for a mark behind each 20 ms of a burst. They are
/// bounded because we may have to send a frame in return for each.
const CHATTER_AT_ONCE: u32 = 2_000;
const CHATTER_A_SECOND: u32 = 500;

/// Octets that a bot may send at once, and per second after that. Ten minutes of audio are at most 10 MB, whatever the size of the messages,
/// and a bot that is interrupted may send its next turn at once.
const OCTETS_AT_ONCE: u32 = 32 << 20;
const OCTETS_A_SECOND: u32 = 1 << 20;

/// Frames that a bot may send at once, and per second after that. Ten minutes of audio are 30,000 frames of 20 ms.
const FRAMES_AT_ONCE: u32 = 60_000;
const FRAMES_A_SECOND: u32 = 2_000;

/// Decodes base64 with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Buffers that a thread lends to one bot at a time.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// A message to the bot.
    message: Vec<u8>,
    /// Audio of the bot.
    audio: Vec<u8>,
}

/// Bot of a call.
#[derive(Debug)]
pub(super) struct BotLeg {
    link: Link,
    reader: Reader,
    wire: Wire,
    parameters: Vec<(String, String)>,
    inbound: Inbound,
    playout: Playout,
    started_at: Option<Moment>,
    junk: Junk,
    /// Messages other than audio, understood or not.
    chatter: Allowance,
    /// Everything that the bot sends, audio and fragments included.
    octets: Allowance,
    /// Frames of every kind, fragments and control frames included.
    frames: Allowance,
    /// Memory reserved for a message that hasn't come whole.
    unfinished: AudioShare,
    keys: SentKeys,
    /// Draws the masks of frames.
    entropy: Entropy,
}

/// Messages with an unknown meaning, and how many more are tolerated.
#[derive(Debug)]
struct Junk {
    total: u64,
    allowance: Allowance,
}

/// Figures of a bot.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct BotCounts {
    pub(super) inbound: InboundCounts,
    pub(super) playout: PlayoutCounts,
    /// Hold of the playout, as learnt so far.
    pub(super) hold: Duration,
    pub(super) junk: u64,
}

impl BotLeg {
    /// Takes a bot that has accepted the WebSocket. `hold` was learnt in earlier calls.
    ///
    /// # Errors
    /// Its socket refuses options.
    pub(super) fn new(
        bot: Bot,
        hold: Duration,
        share: AudioShare,
        entropy: Entropy,
    ) -> io::Result<Self> {
        let (link, reader, start) = Link::new(bot)?;

        Ok(Self {
            link,
            reader,
            wire: Wire::new(&start),
            parameters: start.parameters,
            inbound: Inbound::default(),
            unfinished: share.another(),
            playout: Playout::new(hold, share),
            started_at: None,
            junk: Junk {
                total: 0,
                allowance: Allowance::new(JUNK_AT_ONCE, JUNK_A_SECOND),
            },
            chatter: Allowance::new(CHATTER_AT_ONCE, CHATTER_A_SECOND),
            octets: Allowance::new(OCTETS_AT_ONCE, OCTETS_A_SECOND),
            frames: Allowance::new(FRAMES_AT_ONCE, FRAMES_A_SECOND),
            keys: SentKeys::default(),
            entropy,
        })
    }

    /// Returns its connection, to be registered with a poll.
    pub(super) const fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Sends `connected` and `start`, and begins the first slot. A second call changes nothing.
    ///
    /// # Errors
    /// The bot is gone.
    pub(super) fn start(&mut self, scratch: &mut Scratch, now: Moment) -> Result<(), BotEnd> {
        if self.started_at.is_some() {
            return Ok(());
        }
        self.started_at = Some(now);
        self.inbound.start(now);

        self.wire.connected(&mut scratch.message);
        self.send(scratch)?;
        self.wire.start(&mut scratch.message, &self.parameters);
        self.send(scratch)
    }

    /// Returns whether the call is up.
    pub(super) const fn is_started(&self) -> bool {
        self.started_at.is_some()
    }

    /// Passes on the caller's audio, in µ-law.
    ///
    /// # Errors
    /// The bot is gone.
    pub(super) fn hear(
        &mut self,
        header: &Header,
        audio: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), BotEnd> {
        self.pass_on(scratch, |inbound, pass| {
            inbound.hear(header, audio, now, pass)
        })
    }

    /// Passes on a key that the caller pressed.
    ///
    /// # Errors
    /// The bot is gone.
    pub(super) fn press(&mut self, digit: char, scratch: &mut Scratch) -> Result<(), BotEnd> {
        if !self.is_started() {
            return Ok(());
        }
        self.wire.dtmf(&mut scratch.message, digit);
        self.send(scratch)
    }

    /// Fills the slots of a caller that sends nothing.
    ///
    /// # Errors
    /// The bot is gone.
    pub(super) fn tick(&mut self, scratch: &mut Scratch, now: Moment) -> Result<(), BotEnd> {
        self.pass_on(scratch, |inbound, pass| inbound.tick(now, pass))
    }

    /// Sends the frames that `feed` makes ready.
    fn pass_on(
        &mut self,
        scratch: &mut Scratch,
        feed: impl FnOnce(&mut Inbound, &mut dyn FnMut(&[u8; FRAME])),
    ) -> Result<(), BotEnd> {
        let Self {
            inbound,
            link,
            wire,
            entropy,
            ..
        } = self;
        let mut sent = Ok(());
        feed(inbound, &mut |frame| {
            sent = sent.and_then(|()| pass(link, wire, entropy, scratch, frame));
        });
        sent
    }

    /// Fills the next frame for the caller, and returns the marks that were reached before it.
    ///
    /// # Errors
    /// The bot is gone.
    pub(super) fn play(
        &mut self,
        frame: &mut [u8; FRAME],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Played, BotEnd> {
        self.return_marks(scratch)?;
        Ok(self.playout.play(frame, now))
    }

    /// Lets the time of a frame pass for a peer that isn't there, and returns the marks that were reached before it. Marks of the audio that
    /// is withheld are not returned.
    ///
    /// # Errors
    /// The bot is gone.
    pub(super) fn withhold(
        &mut self,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Played, BotEnd> {
        self.return_marks(scratch)?;
        Ok(self.playout.withhold(now))
    }

    /// Ends a wait of the bot's audio for the peer.
    pub(super) fn end_wait(&mut self, now: Moment) {
        self.playout.end_wait(now);
    }

    /// Returns this tick's frame of a key that the bot presses. The bot's audio waits meanwhile.
    pub(super) fn key(&mut self) -> Option<KeyFrame> {
        self.keys.next()
    }

    /// Returns the time between a clear and its last audible packet; once.
    pub(super) const fn take_cleared(&mut self) -> Option<Duration> {
        self.playout.take_cleared()
    }

    /// Reads the bot's messages for one turn.
    pub(super) fn read(&mut self, scratch: &mut Scratch, now: Moment) -> LinkProgress {
        let buffer = self.reader.buffer();
        let before = buffer.len();
        // The end of the connection is reported last: a Close frame before it gives the better reason.
        let turn = self.link.read(buffer);
        let octets = buffer.len() - before;

        if let Err(end) = self
            .take_messages(scratch, now)
            .and_then(|()| self.count(octets, now))
            .and_then(|()| self.return_marks(scratch))
        {
            return LinkProgress::Ended(self.cause(end));
        }
        turn
    }

    /// Returns the cause of a bot's end. A bot that doesn't read the marks that are returned to it is too slow, or lost, even if a bound on
    /// its own messages ended it.
    fn cause(&self, end: BotEnd) -> BotEnd {
        let is_behind = self.playout.has_reached() && !self.link.is_idle();
        match is_behind && end == BotEnd::Protocol {
            true => self.link.overflow(),
            false => end,
        }
    }

    /// Counts the octets and frames of a turn, and reserves memory for an unfinished message.
    ///
    /// # Errors
    /// The bot sends more than any bot needs, or its account has no memory left.
    fn count(&mut self, octets: usize, now: Moment) -> Result<(), BotEnd> {
        let octets = u32::try_from(octets).unwrap_or(u32::MAX);
        // Measured without these limits: eight bots at full speed stretch the pace of 20 ms to 35 ms (p99).
        borne_many(&mut self.octets, octets, now)?;
        borne_many(&mut self.frames, self.reader.take_frames(), now)?;

        // After the whole messages were taken, this is what a bot can make us keep without ever finishing it.
        let held = self.reader.held();
        if held == 0 {
            self.unfinished.release();
        } else if self.unfinished.reserve(held) < held {
            return Err(BotEnd::Protocol);
        }
        Ok(())
    }

    fn take_messages(&mut self, scratch: &mut Scratch, now: Moment) -> Result<(), BotEnd> {
        loop {
            let received = match self.reader.next() {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(()),
                Err(_) => return Err(BotEnd::Protocol),
            };
            let mut is_audio = false;

            let is_understood = match received {
                BotFrame::Text(text) => match message::read(text) {
                    Some(BotMessage::Media(payload)) => {
                        scratch.audio.clear();
                        let decoded = BASE64.decode_vec(payload.as_bytes(), &mut scratch.audio);
                        // Without audio it counts as chatter, whose limit is tighter than that on frames.
                        is_audio = decoded.is_ok() && !scratch.audio.is_empty();
                        if decoded.is_ok() {
                            self.playout.push(&scratch.audio, now);
                        }
                        decoded.is_ok()
                    }
                    Some(BotMessage::Mark(name)) => self.playout.mark(&name) == MarkOutcome::Kept,
                    Some(BotMessage::Clear) => {
                        self.playout.clear(now);
                        true
                    }
                    Some(BotMessage::Dtmf(keys)) => self.keys.press(keys.as_bytes()),
                    Some(BotMessage::Unknown) | None => false,
                },

                BotFrame::Binary => false,
                BotFrame::Pong => true,
                BotFrame::Ping(data) => {
                    let mut copy = [0; MAX_CONTROL];
                    let length = data.len();
                    copy[..length].copy_from_slice(data);
                    let mask = mask(&mut self.entropy);
                    self.link.send(Opcode::Pong, &copy[..length], mask)?;
                    // A bot that only sends pings is tolerated no longer than one that sends junk.
                    self.junk.take(now, Counted::No)?;
                    true
                }
                BotFrame::Close => return Err(BotEnd::Closed),
            };

            if !is_understood {
                self.junk.take(now, Counted::Yes)?;
            } else if !is_audio {
                borne(&mut self.chatter, now)?;
            }
        }
    }

    /// Returns the marks that were reached, as far as the socket takes them. The others follow with the next ticks: a `clear` may reach more
    /// of them than the buffer of a slow bot has room for.
    fn return_marks(&mut self, scratch: &mut Scratch) -> Result<(), BotEnd> {
        // Nothing may come before `start`, not even a mark that was reached at once.
        if !self.is_started() {
            return Ok(());
        }
        while self.link.is_idle()
            && let Some(name) = self.playout.reached()
        {
            self.wire.mark(&mut scratch.message, &name);
            self.send(scratch)?;
        }
        Ok(())
    }

    /// Writes what the socket didn't take before.
    ///
    /// # Errors
    /// The bot is gone.
    pub(super) fn flush(&mut self) -> Result<(), BotEnd> {
        self.link.flush()
    }

    /// Sends `stop` to a bot that got `start`, and closes the WebSocket.
    pub(super) fn stop(&mut self, scratch: &mut Scratch) {
        if self.is_started() {
            self.wire.stop(&mut scratch.message);
            // A bot that is gone doesn't need `stop`.
            let _ = self.send(scratch);
        }
        self.close(NORMAL_CLOSURE);
    }

    /// Closes the WebSocket with this status.
    pub(super) fn close(&mut self, status: u16) {
        let mask = mask(&mut self.entropy);
        // The connection ends in any case.
        let _ = self.link.send(Opcode::Close, &status.to_be_bytes(), mask);
        self.link.finish();
    }

    /// Returns the connection, once the bot's leg is over.
    pub(super) fn into_link(self) -> Link {
        self.link
    }

    /// Returns the figures so far.
    pub(super) const fn counts(&self) -> BotCounts {
        BotCounts {
            inbound: self.inbound.counts(),
            playout: self.playout.counts(),
            hold: self.playout.hold(),
            junk: self.junk.total,
        }
    }

    fn send(&mut self, scratch: &Scratch) -> Result<(), BotEnd> {
        let mask = mask(&mut self.entropy);
        self.link.send(Opcode::Text, &scratch.message, mask)
    }
}

fn pass(
    link: &mut Link,
    wire: &mut Wire,
    entropy: &mut Entropy,
    scratch: &mut Scratch,
    frame: &[u8; FRAME],
) -> Result<(), BotEnd> {
    wire.media(&mut scratch.message, frame);
    link.send(Opcode::Text, &scratch.message, mask(entropy))
}

fn mask(entropy: &mut Entropy) -> [u8; 4] {
    // RFC 6455 §5.3: "The masking key needs to be unpredictable", and each frame has a new one.
    (entropy.bits64() as u32).to_be_bytes()
}

/// Counting of a message in [`Junk::total`]. A ping uses up the same allowance, but isn't counted.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Counted {
    Yes,
    No,
}

impl Junk {
    /// Takes a message with an unknown meaning.
    fn take(&mut self, now: Moment, counted: Counted) -> Result<(), BotEnd> {
        self.total += u64::from(counted == Counted::Yes);
        borne(&mut self.allowance, now)
    }
}

/// Takes a message from an allowance; returns the bot's end if there are too many.
fn borne(allowance: &mut Allowance, now: Moment) -> Result<(), BotEnd> {
    borne_many(allowance, 1, now)
}

fn borne_many(allowance: &mut Allowance, count: u32, now: Moment) -> Result<(), BotEnd> {
    match allowance.take_many(count, now) {
        Taken::Within => Ok(()),
        Taken::Exceeded => Err(BotEnd::Protocol),
    }
}
