//! Commands to media threads, and the mailbox that takes them.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use mio::Waker;
use trunkline_sip::entropy::Entropy;
use trunkline_sip::moment::Moment;

use crate::bot::Bot;

use super::audio_budget::AudioShare;
use super::browser_leg::BrowserLeg;
use super::clip::Sound;
use super::negotiated::NegotiatedMedia;
use super::speech::Speech;
use super::statistics::Shared;

/// Command to a media thread.
#[derive(Debug)]
pub(super) enum Command {
    /// Serve the socket of a new call.
    Open {
        key: u64,
        socket: Arc<UdpSocket>,
        statistics: Arc<Shared>,
        seed: u64,
    },
    /// Take the result of an offer and its answer.
    Update {
        key: u64,
        agreed: NegotiatedMedia,
        /// Socket of RTCP, on the port above that of RTP.
        rtcp: Option<Arc<UdpSocket>>,
        now: Moment,
    },
    /// The peer takes part in the call.
    Prove { key: u64 },
    /// Play speech.
    Speak { key: u64, speech: Speech },
    /// Play audio of ours in place of the echo.
    Play { key: u64, serial: u32, sound: Sound },
    /// Attach a bot.
    Attach {
        key: u64,
        bot: Box<Bot>,
        /// Socket of RTCP, as for an update.
        rtcp: Option<Arc<UdpSocket>>,
        hold: Duration,
        share: AudioShare,
        entropy: Box<Entropy>,
    },
    /// Attach a browser.
    AttachBrowser { key: u64, browser: Box<BrowserLeg> },
    /// Press keys on behalf of a call's browser.
    Press { key: u64, keys: Box<[u8]> },
    /// The call has been up since this time.
    Start { key: u64, answered_at: Moment },
    /// The peer pressed a key outside of its audio.
    PassKey { key: u64, pressed: char },
    /// The call is over.
    Close { key: u64 },
}

/// Mailbox of a media thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    commands: Sender<Command>,
    waker: Waker,
}

impl Mailbox {
    pub(super) const fn new(commands: Sender<Command>, waker: Waker) -> Self {
        Self { commands, waker }
    }

    /// Hands over a command. A thread that has ended takes none.
    pub(super) fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            self.wake();
        }
    }

    /// Wakes the thread. A thread that can't be woken still runs once a second.
    pub(super) fn wake(&self) {
        let _ = self.waker.wake();
    }
}
