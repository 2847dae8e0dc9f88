//! `[traces]`: retention of SIP messages, and collectors that get copies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::host::HostPort;
use super::http::base_url;
use super::section::Section;

/// Traces of calls.
#[derive(Clone, Debug)]
pub struct TracesConfig {
    /// True if messages are copied at all.
    pub enabled: bool,
    /// Directory of the trace files: `traces` in the data directory.
    pub directory: PathBuf,
    /// Maximum size of all files, in octets; 0 keeps traces in memory only.
    pub max_bytes: u64,
    /// Time that a trace is kept.
    pub retention: Duration,
    /// HEP collector, by UDP.
    pub hep: Option<HostPort>,
    /// Base URL of an OTLP collector, by HTTP.
    pub otlp: Option<Box<str>>,
}

impl TracesConfig {
    pub(super) fn read(section: &mut Section<'_>, data_dir: &Path) -> Self {
        let megabytes: u64 = section.number("max_mb", 0..=1_000_000).unwrap_or(1_024);
        Self {
            enabled: section.switch("enabled").unwrap_or(true),
            directory: data_dir.join("traces"),
            max_bytes: megabytes << 20,
            retention: section.days("retention_days", 1..=365, 7),
            hep: section.parsed("hep"),
            otlp: base_url(section, "otlp"),
        }
    }
}
