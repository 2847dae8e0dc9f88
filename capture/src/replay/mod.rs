//! Plays captured calls again: the caller's side, and on request the runtime's, against a live daemon, and compares what comes back
//! with what was captured or with what the flow states.
//!
//! `script` says what is sent and what is expected, `rewrite` makes a captured message fit for today, `compare` finds the first
//! difference, `reach` knows what can't be played, `wire` carries them and `link` holds the sockets, `recorder` remembers them, `announce` says that they are open, `session` plays one call, `ladder` and `report` show what happened.

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
pub use wire::{Gone, Wire};
