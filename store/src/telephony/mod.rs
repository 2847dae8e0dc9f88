//! Rows that route calls: agents, numbers, trunks, destinations, registrations; and reads of them for the directory.

pub mod agent_config;
pub mod agents;
pub mod auth_failures;
pub mod bot_tokens;
pub mod challenges;
pub mod dedications;
pub mod destinations;
pub mod inbound_trunks;
pub mod media_addresses;
pub mod names;
pub mod number_codes;
pub(crate) mod numbering;
pub mod numbers;
pub mod old_pairs;
pub mod outbound_trunks;
pub mod prompts;
pub mod registrations;
pub(crate) mod snapshot;
pub(crate) mod status_callbacks;
pub mod tied_peers;
