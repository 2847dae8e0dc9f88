//! Registrations of PBXs as they outlive the process that received them: the persistent form of a binding, which survives a restart and
//! which other nodes read, and the reason why a trunk lost its last binding.

use std::collections::HashSet;
use std::net::SocketAddr;

use trunkline_sip::flow::Transport;
use trunkline_sip::header::uri::Uri;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Persistent form of a binding (RFC 3261 §10.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredBinding {
    /// The org.
    pub org: Uuid,
    /// Its inbound trunk.
    pub trunk: Uuid,
    /// Number of the node on which the REGISTER arrived, or that has taken the binding over since.
    pub node: u8,
    /// The Contact URI.
    pub contact: Box<str>,
    /// Route of requests to it, as a Route header (RFC 3327).
    pub path: Option<Box<str>>,
    /// `+sip.instance` of the Contact (RFC 5626 §4.1).
    pub instance: Option<Box<str>>,
    /// `q` of the Contact, in thousandths.
    pub q: Option<u16>,
    /// Transport of the REGISTER.
    pub transport: Transport,
    /// Source address of the REGISTER.
    pub source: SocketAddr,
    /// The binding is reachable only over the flow of its REGISTER.
    pub is_behind_nat: bool,
    /// Digest user name that authenticated the REGISTER.
    pub username: Box<str>,
    /// The User-Agent of the REGISTER.
    pub user_agent: Option<Box<str>>,
    /// Call-ID of the REGISTER.
    pub call_id: Box<[u8]>,
    /// Its CSeq.
    pub cseq: u32,
    /// Creation of the binding.
    pub registered_at: Moment,
    /// Last refresh.
    pub refreshed_at: Moment,
    /// Expiry; in the past once the binding was removed.
    pub expires_at: Moment,
}

impl StoredBinding {
    /// Returns whether it is reachable without the flow, so that every node can send requests to it.
    pub fn has_way_without_flow(&self) -> bool {
        let path = self.path.as_deref();
        let address = || binding_address(&self.contact, path, self.transport, self.source);
        !self.is_behind_nat && address().is_some()
    }

    /// Converts all times, for instance to another clock.
    pub fn change_times(&mut self, change: impl Fn(Moment) -> Moment) {
        for time in [
            &mut self.registered_at,
            &mut self.refreshed_at,
            &mut self.expires_at,
        ] {
            *time = change(*time);
        }
    }
}

/// A trunk whose bindings have changed since they were last saved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsavedBindings {
    /// The trunk.
    pub trunk: Uuid,
    /// All bindings of the trunk on this node.
    pub own: Vec<StoredBinding>,
    /// Contacts of other nodes that a REGISTER here has removed.
    pub removed: HashSet<Box<str>>,
}

/// Reason why a trunk lost its last binding.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BindingLoss {
    /// The PBX removed the binding.
    Removed,
    /// The binding wasn't refreshed in time.
    Expired,
    /// The connection of the REGISTER closed.
    Disconnected,
    /// The node that held the connection is gone.
    NodeLost,
}

impl BindingLoss {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Expired => "expired",
            Self::Disconnected => "disconnected",
            Self::NodeLost => "node_lost",
        }
    }
}

/// Returns the address of a binding: the one that its Contact names, if a request can go there over the transport and address family of the
/// REGISTER. With a path it is the source of the REGISTER, at the port of the first hop: that proxy has sent it, and nobody may name another.
pub fn binding_address(
    contact: &str,
    path: Option<&str>,
    came_by: Transport,
    source: SocketAddr,
) -> Option<SocketAddr> {
    if let Some(path) = path {
        let (first, _) = path.strip_prefix('<')?.split_once('>')?;
        let port = Uri::parse(first.as_bytes()).ok()?.port_or_default();
        return Some(SocketAddr::new(source.ip(), port));
    }

    let uri = Uri::parse(contact.as_bytes()).ok()?;
    let transport = uri.transport().unwrap_or(Transport::Udp);
    uri.socket_addr()
        .filter(|_| transport == came_by)
        .filter(|address| address.is_ipv4() == source.is_ipv4())
}
