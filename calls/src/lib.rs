//! The back-to-back user agent, pure: messages, time and results of effects go in, transmits and effects come out. It has no socket, store or clock.
//!
//! [`Calls`] holds the calls of one shard and brings each input to its call (`shard`). A new INVITE goes through [`inbound::admission`] and `shard::setup`. A
//! call (`call`) gives its input to the feature that it is for: each feature works on its own state and on the legs, and returns what follows for
//! the call.
//!
//! - Legs: `leg` is one, `bridge` the two that are connected, `crossing` the table of what passes between them. `relay`, `reoffer`, `answer`,
//!   `in_dialog` and `provisional_relay` pass it; `request_queue` and `exchange` keep our own offers from meeting a peer's.
//! - INVITEs of ours: `dial` says what one is for, `invite_client` tries its targets, `dialing` and `calling` say what comes of it.
//! - Features: [`features::hold`], [`features::transfer`], `join`, `session`, `replaces`, `bot`, `builtin`, `local_media`, [`media::verification`], `source_trust`. Where a
//!   feature is a state machine (`hold`), another module gives it its inputs and carries out its steps (`holding`).
//! - The caller: `credentials` says whose challenge is answered with what, `dialog_proof` what a call by address owes, `traced` by which identities
//!   a trace knows a leg, `call_end` how the record has an end.
//! - Beside calls: [`registrar`] for PBXs that register, [`peers`] for OPTIONS and our own registrations with carriers.

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
