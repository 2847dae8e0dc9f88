//! The back-to-back user agent, pure: messages, time and results of effects go in, transmits and effects come out. It has no socket, store or clock.
//!
//! [`Calls`] holds the calls of one shard. A new INVITE goes through [`admission`] and `setup`; what the runtime answers through
//! `answer`; what happens inside a call through `in_dialog` and `reoffer`; its end through `hangup`.

#![warn(missing_docs)]

pub mod admission;
mod allow;
mod answer;
mod asked;
pub mod attempts;
mod blame;
pub mod bot;
mod bot_state;
mod bridge;
mod builtin;
mod bye;
mod call;
mod call_status;
mod callee;
mod calling;
pub mod caps;
mod challenge;
mod contact;
mod context;
mod credentials;
mod crossing;
mod delayed_ack;
mod destination_route;
mod dial;
mod dialing;
mod dialled;
mod dialogs;
mod dispatch;
mod early;
mod effect;
mod exchange;
mod families;
pub mod flow;
mod generation;
mod hangup;
pub mod health;
mod held;
pub mod hold;
mod hold_command;
mod holding;
mod hops;
mod ids;
mod in_dialog;
mod invite_client;
mod join;
pub mod joining;
mod keep_alive;
mod large;
mod late_answer;
mod leg;
pub mod limits;
pub mod live;
mod local_media;
mod media_joining;
pub mod member;
mod moved;
mod ordered;
mod origin;
pub mod outbound;
mod own_request;
pub mod pbx;
pub mod peers;
mod places;
mod presence;
mod privacy;
mod proofs;
mod provisional;
mod provisional_relay;
mod recorded;
mod refusal;
pub mod registrar;
mod reoffer;
mod repeats;
mod replaces;
mod reply;
mod request_origin;
mod request_queue;
mod requests;
mod role;
mod runtime_chain;
mod runtime_invite;
mod secure;
mod session;
mod setup;
mod shard;
mod shares;
mod source_probe;
mod source_trust;
mod sources;
mod spoken_code;
mod stale;
pub mod target;
pub mod token;
pub mod transfer;
mod transferring;
mod turns;
mod uas_invite;
mod unanswered;
mod unproven;
pub mod verification;
pub mod wall;
pub mod ways;

use trunkline_sip::dialog::body::{has_sdp, sdp_of};

pub use context::{Config, Core, place_of};
pub use effect::{
    AgreedMedia, AuthFailure, ChallengeOutcome, Challenged, Challenger, Effect, Foreign,
    MediaRecord, Unanswerable, UnknownUser, Unproven,
};
pub use hangup::HangUpBy;
pub use ids::CallKey;
pub use privacy::NOBODY_USER;
pub use refusal::Reason;
pub use role::LegRole;
pub use setup::DOCTOR;
pub use shard::Calls;
pub use sources::ProvenSources;
pub use trunkline_sip::flow::is_private;
