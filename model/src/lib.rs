//! Plain data that several parts of Trunkline share: an org's view, the facts of a call, transfers and their hand-offs, registrations that
//! outlive a process, addresses that a peer may have.
//!
//! Performs no I/O and takes no locks; knows `bounds`, `routing` and `sip` only. A [`view::View`] consists of [`persistent::PersistentMap`]s.
//!
//! # Example
//!
//! A source address is matched against the networks of trunks, the narrowest first:
//!
//! ```
//! use std::net::IpAddr;
//! use trunkline_model::sources::Sources;
//! use uuid::Uuid;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (carrier, pbx) = (Uuid::from_u128(1), Uuid::from_u128(2));
//! let mut sources = Sources::default();
//! sources.insert("192.0.2.0/24".parse()?, carrier);
//! sources.insert("192.0.2.7/32".parse()?, pbx);
//!
//! let address: IpAddr = "192.0.2.7".parse()?;
//! let found: Vec<Uuid> = sources.matches(address).collect();
//! assert_eq!(found, [pbx, carrier]);
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

pub mod address;
pub mod attempt;
pub mod auth_realms;
pub mod builtin;
pub mod destinations;
pub mod handoff;
pub mod invite_facts;
pub mod media;
pub mod media_networks;
pub mod org_limit;
pub mod peer_pattern;
pub mod persistent;
pub mod record;
pub mod registration;
pub mod reserved;
pub mod runtime_headers;
pub mod settings;
pub mod sources;
pub mod tied;
pub mod transfer;
pub mod view;
pub mod ws_url;
