//! Telemetry of the running daemon: log lines without credentials, and metrics.

mod log;
pub mod metrics;
pub mod redact;

pub use log::start as start_logging;
