//! The back-to-back user agent, pure: messages, time and results of effects go in, transmits and effects come out. It has no socket, store or clock.
//!
//! [`Calls`] holds the calls of one shard and brings each input to its call (`shard`). A new INVITE goes through [`admission`] and `shard::setup`. A
//! call (`call`) gives its input to the feature that it is for: each feature works on its own state and on the legs, and returns what follows for
//! the call.
//!
//! - Legs: `leg` is one, `bridge` the two that are connected, `crossing` the table of what passes between them. `relay`, `reoffer`, `answer`,
//!   `in_dialog` and `provisional_relay` pass it; `request_queue` and `exchange` keep our own offers from meeting a peer's.
//! - INVITEs of ours: `dial` says what one is for, `invite_client` tries its targets, `dialing` and `calling` say what comes of it.
//! - Features: [`hold`], [`transfer`], `join`, `session`, `replaces`, `bot`, `builtin`, `local_media`, [`verification`], `source_trust`. Where a
//!   feature is a state machine (`hold`), another module gives it its inputs and carries out its steps (`holding`).
//! - The caller: `credentials` says whose challenge is answered with what, `dialog_proof` what a call by address owes, `traced` by which identities
//!   a trace knows a leg, `call_end` how the record has an end.
//! - Beside calls: [`registrar`] for PBXs that register, [`peers`] for OPTIONS and our own registrations with carriers.

#![warn(missing_docs)]

mod acknowledge;
mod address_change;
pub mod admission;
mod allow;
mod allowance;
mod answer;
mod attempt_counter;
pub mod attempts;
pub mod bot;
mod bot_state;
mod bridge;
mod builtin;
mod bye;
mod call;
mod call_end;
mod call_status;
mod callee;
mod calling;
mod challenge;
mod context;
mod credentials;
mod crossing;
mod delayed_ack;
mod destination_route;
mod dial;
mod dial_failure;
mod dial_policy;
mod dialing;
mod dialog_proof;
mod digest_answers;
mod effect;
mod exchange;
mod failed_login;
pub mod flow;
pub mod flow_choice;
mod generation;
pub mod health;
pub mod hold;
mod hold_state;
mod holding;
mod ids;
mod in_dialog;
mod info_body;
mod invite_client;
mod invite_facts;
mod ip_family;
mod join;
pub mod joining;
mod keep_alive;
mod known_addresses;
mod large_invite;
mod late_answer;
mod leg;
mod lifetime;
pub mod limits;
pub mod live;
mod local_media;
mod media_profile;
mod media_rules;
mod next_hop;
mod origin;
pub mod outbound;
pub mod outbound_limits;
mod own_request;
pub mod pbx;
mod peer_liveness;
pub mod peers;
mod preloaded_route;
mod privacy;
mod proven_sources;
mod provisional;
mod provisional_relay;
mod refusal;
mod refusal_records;
mod refused_logins;
pub mod registrar;
mod relay;
mod reoffer;
mod repeat;
mod replaces;
mod reply;
mod request_origin;
mod request_queue;
mod requests;
mod resolver_cache;
mod role;
mod runtime_chain;
mod runtime_invite;
mod session;
mod shard;
mod sips;
mod source_probe;
mod source_trust;
mod spoken_code;
mod stale_nonces;
pub mod target;
pub mod token;
mod traced;
pub mod transfer;
mod transferring;
mod uas_invite;
mod unacceptable_body;
mod unanswered_challenges;
mod uncertain_acks;
mod unproven_calls;
pub mod verification;
pub mod wall_clock;

use trunkline_sip::dialog::body::{has_sdp, sdp_of};

pub use context::{Config, Core, node_and_slot_of};
pub use crossing::HeaderPrefix;
pub use dialog_proof::{ProofOutcome, ProvenBy};
pub use effect::{
    AgreedMedia, AuthFailure, ChallengeOutcome, ChallengeReport, Challenger, Effect, MediaRecord,
    Unanswerable, UnansweredChallenge, UnknownSource, UnknownUser,
};
pub use ids::CallKey;
pub use privacy::ANONYMOUS_USER;
pub use proven_sources::ProvenSources;
pub use refusal::Reason;
pub use role::LegRole;
pub use shard::{Calls, DOCTOR, HangUpRequester, member};
pub use traced::{DialogIdentity, InviteIdentity, InviteParts, SecretHeaders, TracedLeg};
pub use trunkline_sip::flow::is_private;
