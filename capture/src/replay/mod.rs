//! Replay of captured calls: plays the caller's side and, on request, the runtime's against a live daemon, and compares the daemon's
//! messages with the captured ones or with the statements of the flow.
//!
//! `script` lists the messages to send and to expect, `rewrite` adapts a captured message to the live call, `compare` finds the first
//! difference, `reach` knows the requests that can't be reproduced. `wire` is the transport, with its sockets in `link` and its record in
//! `recorder`; `announce` tells the daemon that the sides listen. `session` plays one call; `ladder` and `report` show the result.

mod announce;
mod closing;
pub mod compare;
mod incoming;
pub mod ladder;
mod link;
mod options;
mod played;
mod reach;
mod recorder;
pub mod report;
mod rewrite;
mod script;
mod session;
mod wire;

pub use announce::announce;
pub use compare::Difference;
pub use incoming::Incoming;
pub use options::Options;
pub use played::{Outcome, Played, Step};
pub use reach::{ENDED_ON_REQUEST, unplayable};
pub use session::{captured_on, play, play_over};
pub use wire::{Wire, WireClosed};
