//! Which agent takes a call: numbers, the directory view, the four steps, the decision and its trail.
//!
//! Pure: no clock, no socket, no database. Everything that decides a call is in [`Facts`], [`Org`] and the question whether an
//! agent is at its limit, so the same inputs give the same [`Decision`] in a live call, a route test and a replay.

pub mod country;
pub mod decide;
pub mod decision;
pub mod directory;
pub mod e164;
pub mod facts;
mod near;
pub mod numbers;
mod sentences;

pub use country::Country;
pub use decide::decide;
pub use decision::{At, Decision, Differs, Found, Looked, NearMiss, Outcome, State, Step};
pub use directory::{Agent, Org, Trunk};
pub use e164::E164;
pub use facts::{Caller, Dialled, Facts};
