//! Trunkline's daemon. See `ARCHITECTURE.md` for the map.

pub mod api;
pub mod calls;
pub mod cli;
pub mod config;
pub mod directory;
pub mod engine;
pub mod explain;
pub mod integrations;
pub mod journal;
mod memory;
pub mod peers;
mod private;
pub mod registrar;
pub mod store;
pub mod telemetry;
pub mod traces;
pub mod webhooks;
