//! Trunkline's daemon. See `ARCHITECTURE.md` for the map of all crates.
//!
//! - [`config`]: one file a section; [`cli`]: the command line, one file a command, most of them clients of the API
//! - [`engine`]: the shards, and what runs effects of calls; [`directory`]: the view of all orgs that shards read
//! - [`api`]: routes; a folder an area, a file a resource. [`console`]: pages over the API, in the same service. [`webhooks`] sends events, [`integrations`] asks services of third
//!   parties, [`speech`] speaks texts
//! - [`explain`]: why a call went where it went; [`traces`]: copies of what passed
//! - `memory`: what a load has left goes back to the system; [`telemetry`]: log lines without credentials, metrics

pub mod api;
pub mod cli;
pub mod config;
pub mod console;
pub mod directory;
pub mod engine;
pub mod explain;
pub mod integrations;
mod jobs;
mod memory;
pub mod speech;
pub mod telemetry;
pub mod traces;
pub mod webhooks;
