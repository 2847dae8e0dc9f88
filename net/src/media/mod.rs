//! Media that Trunkline terminates (RFC 3550, RFC 4733): for the built-in echo agent, for spoken codes, and for bots on a WebSocket.
//!
//! Owns the RTP sockets, the threads that serve them, and the choice of the peer's address on each. A thread owns its calls with all
//! that belongs to them; commands reach it through a channel. Knows nothing of SIP or SDP: a call is a number, and [`Media::update`] passes
//! what it negotiated.

mod allowance;
mod audio_budget;
mod beats;
mod bot_leg;
mod browser_leg;
mod call;
mod clip;
mod closing_links;
mod command;
mod concealment;
mod event;
mod floods;
mod g711;
mod inbound;
mod keys;
mod known_ips;
mod learning;
mod meters;
mod negotiated;
mod outages;
mod playout;
mod ports;
mod presence;
mod quality;
mod reception;
mod rtcp;
mod rtp;
mod rtp_socket;
mod session;
mod settings;
mod silence;
mod source_filter;
mod speech;
pub mod spoken;
mod statistics;
mod stream;
mod surplus;
mod timeline;
mod tokens;
pub mod wav;
mod wheel;
mod worker;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};

use trunkline_bounds::{Holder, NoShare, Shares};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::moment::Moment;

pub use browser_leg::{AudioFrame, BrowserAudio};
pub use clip::{Clip, Sound};
pub use event::MediaEvent;
pub use negotiated::{MediaPeer, NegotiatedMedia};
pub use settings::MediaSettings;
pub use spoken::sample;
pub use statistics::{MediaStatistics, SentStatistics};
pub use timeline::{MediaStep, MediaStepKind};

use crate::bot::Bot;

use command::Mailbox;
use ports::Ports;
use speech::Speech;
use worker::Worker;

/// Handle of the media threads; clones share it, and dropping the last one ends them.
#[derive(Clone)]
pub struct Media {
    ports: Arc<Ports>,
    /// Dropped with the last handle, which stops the workers.
    _running: Arc<Running>,
}

impl Media {
    /// Starts the threads; ports are bound when calls need them. The threads call `on_event` with the key of a call.
    ///
    /// # Errors
    /// The address isn't this machine's, no port of the range is free, or the machine refuses sockets or threads.
    pub fn new(
        settings: &MediaSettings,
        entropy: Entropy,
        clock: impl Fn() -> Moment + Copy + Send + 'static,
        on_event: impl Fn(u64, MediaEvent) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        describe();
        let polls = (0..settings.workers.max(1))
            .map(|_| mio::Poll::new())
            .collect::<io::Result<Vec<_>>>()?;
        let (mailboxes, commands): (Vec<_>, Vec<_>) = polls
            .iter()
            .map(|poll| {
                let (commands, mailbox) = mpsc::channel();
                let waker = mio::Waker::new(poll.registry(), tokens::WAKER)?;
                Ok((Mailbox::new(commands, waker), mailbox))
            })
            .collect::<io::Result<Vec<_>>>()?
            .into_iter()
            .unzip();
        let ports = Arc::new(Ports::new(settings, mailboxes, entropy)?);
        let running = Arc::new(Running(Arc::clone(&ports)));

        for (index, (poll, commands)) in polls.into_iter().zip(commands).enumerate() {
            let ports = Arc::clone(&ports);
            Worker::new(index, poll, commands, ports, clock, on_event.clone()).start()?;
        }

        Ok(Self {
            ports,
            _running: running,
        })
    }

    /// Binds a port at `ip` for the call `key`, in the share of `holder`; packets that arrive there are discarded until [`Media::update`]. A call
    /// that already has a port gets the same one.
    ///
    /// # Errors
    /// All ports are taken, or the share of `holder`.
    pub fn open(&self, key: u64, ip: IpAddr, holder: Holder) -> Result<SocketAddr, NoShare> {
        self.ports.open(key, ip, holder)
    }

    /// Returns the shares that orgs have of the ports.
    pub fn port_shares(&self) -> Arc<Shares> {
        Arc::clone(self.ports.shares())
    }

    /// Sets the negotiated media of the call `key`. Audio goes to the address that the peer is heard from; before it is heard, to the one that
    /// it claims, once that is proven. Any other negotiated address gets at most a few packets of silence, unless it is at an IP address that
    /// was learnt in another call of the trunk, or is a port of this node and the peer of a browser.
    pub fn update(&self, key: u64, agreed: NegotiatedMedia, now: Moment) {
        self.ports.update(key, agreed, now);
    }

    /// Notes that the peer of the call `key` takes part in it: a message with our tag has come from the IP address that signals.
    pub fn prove(&self, key: u64) {
        self.ports.prove(key);
    }

    /// Speaks these digits to the peer of the call `key`, in place of the echo. The speech begins once the peer's address is known.
    pub fn speak_code(&self, key: u64, digits: &[u8]) {
        self.ports.speak(key, Speech::new(spoken::code(digits)));
    }

    /// Attaches a bot to the call `key`: from now on the peer's audio goes to the bot, and the bot's to the peer. A bot that was attached
    /// before gets `stop`, and its connection is closed. The new bot is dropped if the call holds no port.
    pub fn attach(&self, key: u64, bot: Bot) {
        self.ports.attach(key, bot);
    }

    /// Attaches a browser to the call `key`, whose agent is the peer. Returns its ends of the audio.
    pub fn attach_browser(&self, key: u64) -> BrowserAudio {
        self.ports.attach_browser(key)
    }

    /// Returns whether an address is a bound port of this node's media: in use by a call, or kept for the next calls.
    pub fn is_port(&self, address: SocketAddr) -> bool {
        self.ports.is_ours(address)
    }

    /// Presses keys (`0` to `9`, `*`, `#`, `A` to `D`) on behalf of the browser of the call `key`.
    pub fn press(&self, key: u64, keys: &[u8]) {
        self.ports.press(key, keys);
    }

    /// Marks the call `key` as up since `answered_at`: its bot gets `connected` and `start`, and audio from then on. A bot that is attached
    /// later starts at once.
    pub fn start(&self, key: u64, answered_at: Moment) {
        self.ports.start(key, answered_at);
    }

    /// Passes a key that the peer of the call `key` pressed outside of its audio on to the call's bot. Ignores all but `0` to `9`, `*`, `#` and
    /// `A` to `D`.
    pub fn pass_key(&self, key: u64, pressed: char) {
        self.ports.pass_key(key, pressed);
    }

    /// Plays audio of ours to the peer of the call `key`, which is up, in place of the echo. An order with a smaller serial than the last one
    /// is ignored.
    pub fn play(&self, key: u64, serial: u32, sound: Sound) {
        self.ports.play(key, serial, sound);
    }

    /// Returns the figures of the call's media so far; `None` if the call holds no port.
    pub fn statistics(&self, key: u64) -> Option<MediaStatistics> {
        self.ports.statistics(key)
    }

    /// Returns whether the call `key`, of which [`MediaEvent::Silent`] was reported, is still silent: media may have come while the report waited.
    pub fn is_silent(&self, key: u64) -> bool {
        self.ports.is_silent(key)
    }

    /// Releases the port of the call `key`, and returns the figures of its media. Its bot gets `stop`.
    pub fn close(&self, key: u64, now: Moment) -> Option<MediaStatistics> {
        self.ports.close(key, now)
    }

    /// Returns whether a media thread hangs: it has had no turn for ten seconds.
    pub fn is_hanging(&self, now: Moment) -> bool {
        self.ports.beats.is_one_missing(now)
    }

    /// Returns the number of calls that hold a port.
    pub fn open_calls(&self) -> usize {
        self.ports.open_calls()
    }
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Media")
            .field("open_calls", &self.open_calls())
            .finish_non_exhaustive()
    }
}

fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

    for (name, help) in [
        (
            "trunkline_media_packets_total",
            "RTP packets received, by their fate",
        ),
        (
            "trunkline_media_bot_ends_total",
            "Bots that disconnected before the end of their call, by cause",
        ),
        (
            "trunkline_media_underruns_total",
            "Times that a bot's audio ran out inside a talk spurt",
        ),
        (
            "trunkline_media_concealed_frames_total",
            "Frames of 20 ms to bots that were concealed or filled",
        ),
        (
            "trunkline_media_packets_too_late_total",
            "RTP packets that came too late for their audio to be passed on to a bot",
        ),
        (
            "trunkline_media_bot_octets_discarded_total",
            "Octets of bots' audio beyond ten minutes queued",
        ),
        (
            "trunkline_media_bot_junk_total",
            "Messages of bots that were not understood",
        ),
    ] {
        describe_counter!(name, help);
    }

    for (name, help) in [
        ("trunkline_media_calls", "Calls that hold an RTP port"),
        (
            "trunkline_media_sockets",
            "RTP sockets bound, in use or kept for the next calls",
        ),
        ("trunkline_media_bots", "Bots attached to calls"),
    ] {
        describe_gauge!(name, help);
    }

    for (name, help) in [
        (
            "trunkline_media_first_word_seconds",
            "From the answer of a call to its bot's first audio",
        ),
        (
            "trunkline_media_clear_seconds",
            "From a bot's clear to the last audible packet",
        ),
        (
            "trunkline_media_tick_late_seconds",
            "Delay of the ticks of 20 ms",
        ),
    ] {
        describe_histogram!(name, Unit::Seconds, help);
    }

    for (name, help) in [
        (
            "trunkline_media_jitter_seconds",
            "Interarrival jitter at the end of a call, by direction",
        ),
        (
            "trunkline_media_round_trip_seconds",
            "Time to the peer and back at the end of a call",
        ),
    ] {
        describe_histogram!(name, Unit::Seconds, help);
    }

    for (name, help) in [
        (
            "trunkline_media_mos",
            "Mean opinion score of a call, by direction",
        ),
        (
            "trunkline_media_loss_ratio",
            "Share of a call's packets that were lost, by direction",
        ),
    ] {
        describe_histogram!(name, help);
    }
}

/// Stops the workers when dropped.
struct Running(Arc<Ports>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests;
