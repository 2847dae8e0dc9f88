//! Deployment under examination, as every check sees it.

use std::net::IpAddr;

use trunkline_calls::is_private;
use trunkline_store::Recorded;

use crate::config::Config;
use crate::engine::Resolver;

/// Deployment under examination.
pub(super) struct Deployment<'c> {
    pub(super) config: &'c Config,
    pub(super) resolver: Resolver,
    /// Recent calls of all orgs, newest first.
    pub(super) calls: Vec<Recorded>,
}

impl Deployment<'_> {
    /// Returns a public address from which a call came.
    pub(super) fn source_outside(&self) -> Option<IpAddr> {
        let asked = self.calls.iter().filter_map(|call| call.asked.as_ref());
        asked
            .map(|asked| asked.source.ip())
            .find(|source| !is_private(*source))
    }
}
