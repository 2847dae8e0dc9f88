//! Credentials, nonces and addresses: what proves who has sent a message.

pub(crate) mod challenge_report;
pub(crate) mod credentials;
pub(crate) mod digest_answers;
pub(crate) mod failed_login;
pub(crate) mod known_addresses;
pub(crate) mod proven_sources;
pub(crate) mod refused_logins;
pub(crate) mod stale_nonces;
pub mod token;
pub(crate) mod unanswered_challenges;
