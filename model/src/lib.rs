//! Plain data that several parts of Trunkline share: an org's view, the facts of a call, transfers and their hand-offs, registrations
//! that outlive a process, addresses that a peer may have.
//!
//! Knows no I/O, no locks and no executor. `persistent` is the map that a view is made of.

pub mod address;
pub mod asked;
pub mod attempt;
pub mod auth_realms;
pub mod destinations;
pub mod handoff;
pub mod org_limit;
pub mod peer_pattern;
pub mod persistent;
pub mod record;
pub mod registration;
pub mod reserved;
pub mod settings;
pub mod sources;
pub mod tied;
pub mod transfer;
pub mod view;
