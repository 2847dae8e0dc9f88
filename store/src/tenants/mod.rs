//! Orgs, partners and what they own beside telephony: keys, log-ins, limits, webhooks; nodes.

pub mod audit;
pub mod deleted_orgs;
pub mod idempotency;
pub mod integrations;
pub(crate) mod key_uses;
pub mod logins;
pub mod node_commands;
pub mod nodes;
pub mod org_keys;
pub mod org_limits;
pub mod orgs;
pub mod partners;
pub(crate) mod password;
pub mod realm;
pub(crate) mod retention;
pub mod sessions;
pub mod versions;
pub mod webhooks;
