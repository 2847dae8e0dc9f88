//! Telemetry of the running daemon: log lines without credentials, and metrics.

mod catalogue;
mod log;
mod log_queue;
pub mod metrics;
pub mod process;
pub mod redact;

pub use log::start as start_logging;
