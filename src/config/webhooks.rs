//! `[webhooks]`: sending of events to receivers.

use std::path::PathBuf;
use std::time::Duration;

use super::section::Section;

/// The sending of webhooks.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// True if receivers may have private addresses and addresses of this machine, and may be reached without TLS.
    pub allow_private_addresses: bool,
    /// Time that a receiver has to answer.
    pub timeout: Duration,
    /// CAs for receivers, beside the system's.
    pub tls_ca: Option<PathBuf>,
}

impl Webhooks {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            allow_private_addresses: section.switch("allow_private_addresses").unwrap_or(false),
            timeout: Duration::from_secs(section.number("timeout_s", 1..=30).unwrap_or(15)),
            tls_ca: section.text("tls_ca").map(PathBuf::from),
        }
    }
}
