//! The bot of a call: the runtimes that are left to try, and the state of its WebSocket.

use std::net::SocketAddr;

use trunkline_sip::dialog::sdp::Audio;
use trunkline_sip::wheel::TimerId;

use super::runtime_chain::RuntimeChain;
use crate::flow::Builtin;
use crate::invite::attempts::Attempts;

/// The bot of a call.
#[derive(Debug)]
pub(crate) struct Bot {
    pub(crate) chain: RuntimeChain,
    pub(crate) attempts: Attempts,
    pub(crate) state: State,
    /// URL and address of the bot that is attached.
    pub(crate) reached: Option<(Box<str>, SocketAddr)>,
    /// A bot of the list has had the call.
    pub(crate) has_spoken: bool,
    /// Audio agreed on with the peer before a bot was attached.
    pub(crate) kept: Option<Audio>,
}

/// State of the bot's WebSocket.
#[derive(Debug)]
pub(crate) enum State {
    /// It isn't opened yet: our media aren't open, or the callee hasn't answered. The set-up's own timers end this.
    Waiting,
    /// It is being opened. The engine gives up after five seconds, and reports it by `Calls::handle_bot`.
    Dialling(Box<str>),
    /// It is open, and the bot gets the call once the call is up. The set-up's own timers bound this.
    Attached,
    /// The bot has the call.
    Started,
    /// The built-in agent, which needs no WebSocket.
    Builtin(Box<Builtin>),
    /// It has been closed, and the call ends: none follows.
    Over,
}

impl Bot {
    /// The bots of this list are dialled one after another.
    pub(crate) fn new(chain: RuntimeChain) -> Self {
        // Where runtimes of the list were tried over SIP before, these attempts follow those.
        let attempts = match chain.is_untried() {
            true => Attempts::default(),
            false => Attempts::following(),
        };
        Self {
            chain,
            attempts,
            state: State::Waiting,
            reached: None,
            has_spoken: false,
            kept: None,
        }
    }

    /// Keeps the audio agreed on with the peer until a bot is attached; false if it is used at once.
    pub(crate) fn keeps(&mut self, audio: Audio) -> bool {
        let waits = match self.state {
            // Once a bot has had the call the media run, and the peer's change applies at once.
            State::Waiting | State::Dialling(_) => !self.has_spoken,
            State::Attached | State::Started | State::Builtin(_) | State::Over => false,
        };
        if waits {
            self.kept = Some(audio);
        }
        waits
    }

    pub(crate) const fn is_builtin(&self) -> bool {
        matches!(self.state, State::Builtin(_))
    }

    pub(crate) fn builtin_mut(&mut self) -> Option<&mut Builtin> {
        match &mut self.state {
            State::Builtin(builtin) => Some(builtin),
            State::Waiting
            | State::Dialling(_)
            | State::Attached
            | State::Started
            | State::Over => None,
        }
    }

    /// Returns the timer that runs for the agent.
    pub(crate) fn timer(&self) -> Option<TimerId> {
        match &self.state {
            State::Builtin(builtin) => builtin.timer(),
            State::Waiting
            | State::Dialling(_)
            | State::Attached
            | State::Started
            | State::Over => None,
        }
    }
}
