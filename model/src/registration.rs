//! Registrations of PBXs beyond the process that heard them: what is kept of a binding over a restart and for other nodes, and how the
//! last one of a trunk went.

use std::collections::HashSet;
use std::net::SocketAddr;

use trunkline_sip::flow::Transport;
use trunkline_sip::header::uri::Uri;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// What is kept of a binding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The org.
    pub org: Uuid,
    /// Its inbound trunk.
    pub trunk: Uuid,
    /// The node that has its flow.
    pub node: u8,
    /// The Contact URI.
    pub contact: Box<str>,
    /// Which device it is.
    pub instance: Option<Box<str>>,
    /// The preference, in thousandths.
    pub q: Option<u16>,
    /// How the REGISTER came.
    pub transport: Transport,
    /// Where it came from.
    pub source: SocketAddr,
    /// Whether only the REGISTER's own way leads back.
    pub is_behind_nat: bool,
    /// The user name of the pair that it verified with.
    pub username: Box<str>,
    /// The User-Agent of the REGISTER.
    pub user_agent: Option<Box<str>>,
    /// Call-ID of the REGISTER.
    pub call_id: Box<[u8]>,
    /// Its CSeq.
    pub cseq: u32,
    /// Since when it exists.
    pub registered_at: Moment,
    /// When it was last refreshed.
    pub refreshed_at: Moment,
    /// When it ends; in the past once it was removed.
    pub expires_at: Moment,
}

impl Kept {
    /// Whether its Contact says where it is, so that every node can call it.
    pub fn has_way_without_flow(&self) -> bool {
        let address = || contact_address(&self.contact, self.transport, self.source);
        !self.is_behind_nat && address().is_some()
    }

    /// Has its times on another clock.
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

/// A trunk whose bindings have changed since they were kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsaved {
    /// The trunk.
    pub trunk: Uuid,
    /// All that it has on this node.
    pub own: Vec<Kept>,
    /// Contacts of other nodes that a REGISTER here has removed.
    pub removed: HashSet<Box<str>>,
}

/// How the last binding went.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The PBX removed it.
    Removed,
    /// It wasn't refreshed in time.
    Expired,
    /// Its connection closed.
    Disconnected,
    /// The node that had its connection is gone.
    NodeLost,
}

impl Loss {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Expired => "expired",
            Self::Disconnected => "disconnected",
            Self::NodeLost => "node_lost",
        }
    }
}

/// The address that a Contact names, where a request may go there by the way that its REGISTER came.
pub fn contact_address(
    contact: &str,
    came_by: Transport,
    source: SocketAddr,
) -> Option<SocketAddr> {
    let uri = Uri::parse(contact.as_bytes()).ok()?;
    let transport = uri.transport().unwrap_or(Transport::Udp);
    uri.socket_addr()
        .filter(|_| transport == came_by)
        .filter(|address| address.is_ipv4() == source.is_ipv4())
}
