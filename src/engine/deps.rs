//! Dependencies of the engine, passed to it once at its start.

use std::sync::Arc;

use tokio::runtime;
use tokio::sync::watch;
use trunkline_bounds::Descriptors;
use trunkline_calls::core::live::LiveCalls;
use trunkline_model::record::Fact;
use trunkline_net::listener::tls::Security;
use trunkline_sip::moment::Moment;
use trunkline_store::Store;
use trunkline_store::journal::Journal;
use uuid::Uuid;

use super::{MediaAddresses, ReservedNames};
use crate::config::Config;
use crate::directory::Directory;
use crate::speech::SpeechMaker;

/// Everything the engine is given at its start.
#[derive(Debug)]
pub struct EngineDeps {
    /// The configuration.
    pub config: Arc<Config>,
    /// Names that tenants must not route calls to.
    pub(crate) reserved_names: ReservedNames,
    /// Addresses on which RTP is received.
    pub(crate) media_addresses: Arc<MediaAddresses>,
    /// Address on which the API listens.
    pub http: std::net::SocketAddr,
    /// Database.
    pub store: Store,
    /// Directory of orgs, agents, trunks and numbers, always current.
    pub directory: Arc<Directory>,
    /// Journal that takes facts about calls.
    pub journal: Journal<Fact>,
    /// Calls that are up, as the API lists them.
    pub live: Arc<LiveCalls>,
    /// Speaks the texts of built-in agents.
    pub(crate) speech: SpeechMaker,
    /// Certificates and trust anchors of SIP over TLS.
    pub security: Arc<Security>,
    /// Descriptors of SIP connections and of calls' sockets.
    pub descriptors: Arc<Descriptors>,
    /// Number of this node.
    pub node: u8,
    /// Count of the times that other nodes may have considered this run dead.
    pub lapses: watch::Receiver<u64>,
    /// Outbound calls that orgs began within the day before this process started, oldest first.
    pub begun: Vec<(Uuid, Moment)>,
    /// Runtime for work outside the shards: streams, DNS, the store.
    pub runtime: runtime::Handle,
}
