//! The back-to-back user agent, pure: messages, time and results of effects go in, transmits and effects come out. It has no socket, store or clock.
//!
//! [`Calls`] holds the calls of one shard and brings each input to its call. A call gives its input to the feature that it is for: each feature works on
//! its own state and on the legs, and returns what follows for the call.
//!
//! The folders are rooms, from top to bottom; an import only goes down, and never from one feature to another (`tests/invariants/rooms.rs`). A type's
//! methods stand in its room: what a room above does to it is a function, so that each call of it names its module.
//!
//! - `shard`: inputs of the engine, and the call that each is for. A new INVITE goes through [`inbound::admission`] and `shard::setup`.
//! - `call`: one call as data, and the one place that knows all features.
//! - [`inbound`]: the caller's INVITE from its arrival to its final answer.
//! - [`features`]: [`hold`](features::hold), [`join`](features::join), `replaces`, [`transfer`](features::transfer).
//! - `session`: refreshes (RFC 4028), and probes of silent peers.
//! - `dialog`: re-INVITE, UPDATE and other requests inside a call, challenges to ours, trust in their sources.
//! - [`dial`]: the call to a runtime, a callee or a destination, and what its outcome means.
//! - [`media`]: media of our own: bots, the built-in agent, the echo, spoken codes.
//! - `leg`: one peer, the bridge between two, requests of ours in their dialogs, and what crosses between them (`leg::relay`, by the table
//!   `parts::crossing`).
//! - [`invite`]: INVITEs of ours, target by target.
//! - [`core`]: what the calls of a shard share, effects, live calls, ACKs and next hops.
//! - [`peers`], [`registrar`]: OPTIONS and our registrations with carriers; PBXs that register.
//! - [`flow`]: the machine of the built-in agent. [`limits`]: calls at once and rates. [`trust`]: credentials, nonces and addresses. [`parts`]: identifiers,
//!   tables and other small types.

#![warn(missing_docs)]

mod call;
pub mod core;
pub mod dial;
mod dialog;
pub mod features;
pub mod flow;
pub mod inbound;
pub mod invite;
mod leg;
pub mod limits;
pub mod media;
pub mod parts;
pub mod peers;
pub mod registrar;
mod session;
mod shard;
pub mod trust;

use trunkline_sip::dialog::body::{has_sdp, sdp_of};

pub use self::core::context::{Config, Core, node_and_slot_of};
pub use self::core::effect::{
    AgreedMedia, AuthFailure, Effect, MediaRecord, ProofOutcome, ProvenBy, UnansweredChallenge,
    UnknownSource, UnknownUser,
};
pub use self::core::traced::{
    DialogIdentity, InviteIdentity, InviteParts, SecretHeaders, TracedLeg,
};
pub use parts::crossing::HeaderPrefix;
pub use parts::ids::CallKey;
pub use parts::privacy::ANONYMOUS_USER;
pub use parts::refusal::Reason;
pub use parts::role::LegRole;
pub use shard::{Calls, DOCTOR, HangUpRequester, member};
pub use trunkline_sip::flow::is_private;
pub use trust::challenge_report::{ChallengeOutcome, ChallengeReport, Challenger};
pub use trust::credentials::Unanswerable;
pub use trust::proven_sources::ProvenSources;
