//! Trunkline's daemon. See `ARCHITECTURE.md` for the map.

pub mod api;
pub mod cli;
pub mod config;
pub mod directory;
pub mod engine;
pub mod explain;
pub mod integrations;
mod memory;
pub mod speech;
pub mod telemetry;
pub mod traces;
pub mod webhooks;
