//! Orders, audio and events of a browser's call.

use tokio::sync::mpsc;
use trunkline_bounds::Holder;
use trunkline_net::media::BrowserAudio;
use uuid::Uuid;

/// Call that a browser asks for.
#[derive(Clone, Debug)]
pub struct BrowserOrder {
    /// The org of the session, in whose share the browser's RTP port counts.
    pub holder: Holder,
    /// Party that is called.
    pub callee: BrowserCallee,
    /// Name of the person, as the agent sees it.
    pub name: Box<str>,
}

/// Party that a browser calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BrowserCallee {
    /// An agent, named as the agent header names it.
    Agent(Uuid),
    /// Dialled number, from which the four steps choose.
    Number(Box<str>),
}

/// Call of a browser. Dropping it hangs up.
#[derive(Debug)]
pub struct BrowserCall {
    /// Events of the call; closed after the end.
    pub events: mpsc::Receiver<BrowserEvent>,
    /// Audio in both directions.
    pub audio: BrowserAudio,
    /// Commands for it.
    pub commands: mpsc::Sender<BrowserCommand>,
}

/// Event of a browser's call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BrowserEvent {
    /// The call has a record, of this id.
    Began(Uuid),
    /// The agent rings.
    Ringing,
    /// The agent has answered.
    Answered,
    /// No audio passes in either direction, for the reason in this sentence. The call continues.
    NoAudio(Box<str>),
    /// The call is over.
    Ended {
        /// SIP status of a refusal.
        status: Option<u16>,
        /// Stable code of a refusal.
        code: Option<Box<str>>,
        /// Reason as a sentence.
        sentence: Box<str>,
    },
}

/// Command for a browser's call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BrowserCommand {
    /// Presses keys.
    Press(Box<str>),
    /// Hangs up.
    HangUp,
}
