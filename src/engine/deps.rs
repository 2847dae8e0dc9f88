//! Dependencies of the engine.

use std::sync::Arc;

use tokio::runtime;
use tokio::sync::watch;
use trunkline_calls::live::LiveCalls;
use trunkline_model::record::Fact;
use trunkline_net::listener::tls::Security;
use trunkline_sip::moment::Moment;
use trunkline_store::Store;
use trunkline_store::journal::Journal;
use uuid::Uuid;

use super::{MediaAddresses, ReservedNames};
use crate::config::Config;
use crate::directory::Directory;

/// What the engine works with.
#[derive(Debug)]
pub struct EngineDeps {
    /// The configuration.
    pub config: Arc<Config>,
    /// Names that no tenant may lead calls to.
    pub(crate) reserved_names: ReservedNames,
    /// Where RTP is received.
    pub(crate) media_addresses: Arc<MediaAddresses>,
    /// Where the API is bound.
    pub http: std::net::SocketAddr,
    /// Contacts, failed log-ins, the installation's keys.
    pub store: Store,
    /// The live view.
    pub directory: Arc<Directory>,
    /// Where facts go.
    pub journal: Journal<Fact>,
    /// Where the calls that are up are shown.
    pub live: Arc<LiveCalls>,
    /// What is shown and believed on TLS.
    pub security: Arc<Security>,
    /// This node's number.
    pub node: u8,
    /// How often other nodes may have taken this run for dead.
    pub lapses: watch::Receiver<u64>,
    /// What orgs began within the last day before this process did, oldest first.
    pub begun: Vec<(Uuid, Moment)>,
    /// Serves what isn't a shard's: streams, names, the store.
    pub runtime: runtime::Handle,
}
