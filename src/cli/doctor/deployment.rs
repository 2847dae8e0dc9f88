//! Deployment under examination.

use std::net::IpAddr;

use trunkline_calls::is_private;
use trunkline_store::Recorded;

use crate::config::Config;
use crate::engine::Resolver;

/// Deployment as every check sees it.
pub(super) struct Deployment<'c> {
    pub(super) config: &'c Config,
    pub(super) resolver: Resolver,
    /// Calls of late, of all orgs, newest first.
    pub(super) calls: Vec<Recorded>,
}

impl Deployment<'_> {
    /// A public address that a call came from.
    pub(super) fn source_outside(&self) -> Option<IpAddr> {
        let asked = self.calls.iter().filter_map(|call| call.asked.as_ref());
        asked
            .map(|asked| asked.source.ip())
            .find(|source| !is_private(*source))
    }
}
