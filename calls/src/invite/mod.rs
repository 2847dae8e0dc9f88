//! INVITEs of ours: their targets, their attempts, and what becomes of an answer that comes late.

pub mod attempts;
pub(crate) mod challenge_answer;
pub(crate) mod dial_policy;
pub(crate) mod invite_client;
pub(crate) mod large_invite;
pub(crate) mod late_answer;
