//! What routing and digest know of every org: a plain value, of which a changed one is made when something changes.
//!
//! Pure: no database, no clock, no sockets. An INVITE is judged from here alone. A clone shares all it can with its origin, so
//! the cost of a change is that of the org that has changed.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use trunkline_routing::{Country, E164};
use trunkline_sip::auth::Secret;
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::auth_realms::AuthRealms;
use super::destinations::Destination;
use super::org_limit::StoredLimit;
use super::persistent::PersistentMap;
use super::settings::{ReferFormat, Runtime, TransferWay};
use super::sources::Sources;
use crate::address::{NamedBy, is_near};
use crate::tied::{Namer, TiedPeers};

/// Every org, by id, by trunk user name, by number and by source address.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// By id.
    pub orgs: PersistentMap<Uuid, Arc<OrgView>>,
    /// Trunk credentials by digest user name; the old pair of a rotated trunk is listed until it expires.
    pub by_username: PersistentMap<Arc<str>, Login>,
    /// The org of each verified number.
    pub by_number: PersistentMap<E164, Uuid>,
    /// The countries that trunks read numbers in, with the count of these trunks.
    pub countries: PersistentMap<Country, usize>,
    /// The orgs with an outbound trunk that is to be registered with its carrier.
    pub registering: PersistentMap<Uuid, ()>,
    /// Networks that the operator has dedicated to one org.
    pub dedicated: Sources,
    /// `allowed_addresses` of the trunks; a carrier's network may stand for many orgs.
    pub allowed: Sources,
    /// Those within loopback and link-local, where a wider network never leads: the ones that `sip.allow_private_peers` lists.
    pub allowed_near: Sources,
    /// Those that the operator entered: over UDP, too, they are believed at once.
    pub operators: Sources,
}

/// One org: what the four steps read, and what follows from their choice.
#[derive(Clone, Debug)]
pub struct OrgView {
    /// It begins no calls: its INVITEs, REGISTERs and orders are refused.
    pub suspended: bool,
    /// Agents, numbers, trunk and limits.
    pub routing: trunkline_routing::Org,
    /// By agent.
    pub runtimes: HashMap<Uuid, Arc<Runtime>>,
    /// Agents whose runtime the operator set.
    pub operators_runtimes: HashSet<Uuid>,
    /// Peers that the operator has tied to it.
    pub tied: TiedPeers,
    /// The inbound trunk, if the org has one.
    pub trunk: Option<TrunkView>,
    /// The trunk that an agent dials through, by agent; one without any isn't listed.
    pub ways_out: HashMap<Uuid, Arc<WayOut>>,
    /// Every outbound trunk, whether or not an agent dials through it.
    pub outbound: Vec<Arc<WayOut>>,
    /// How many of these register with their carriers.
    pub registrations: StoredLimit,
    /// Whom each agent may hand callers to, in the order of their assignment.
    pub destinations: HashMap<Uuid, Arc<[Destination]>>,
}

/// An outbound trunk: what a call needs to leave by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WayOut {
    /// The org.
    pub org: Uuid,
    /// The trunk.
    pub id: Uuid,
    /// The carrier's or PBX's host and port; `None`: whoever is registered with the org's inbound trunk.
    pub peer: Option<(Box<str>, u16)>,
    /// Whose word its host is.
    pub named: NamedBy,
    /// How it is reached.
    pub transport: Transport,
    /// What its challenges are answered with.
    pub login: Option<Arc<PeerLogin>>,
    /// The realms that this is for.
    pub realms: Arc<AuthRealms>,
    /// The number that calls come from.
    pub caller_number: E164,
    /// The host in From; `None`: our own.
    pub from_host: Option<Box<str>>,
    /// Whether P-Asserted-Identity names the caller number (RFC 3325).
    pub p_asserted_identity: bool,
    /// Whether we register with the peer.
    pub register: bool,
    /// Calls at once; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
    /// New calls in a second; `None`: no limit.
    pub calls_per_second: Option<u32>,
    /// How callees are handed over.
    pub transfer_way: TransferWay,
    /// Whether the peer was seen to keep its caller after an accepted REFER had failed.
    pub keeps_caller: bool,
}

/// What we answer a peer's digest challenges with.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerLogin {
    /// The user name.
    pub user: Box<str>,
    /// The password.
    pub password: Box<str>,
}

impl std::fmt::Debug for PeerLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerLogin")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// What an inbound trunk says besides routing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrunkView {
    /// The trunk.
    pub id: Uuid,
    /// Noise suppression, handed to the runtime.
    pub krisp_enabled: bool,
    /// RTP may come from another address than that of SDP or signalling, where SDP names a private one.
    pub rtp_from_any_address: bool,
    /// The digest user name.
    pub username: Box<str>,
    /// How `Refer-To` names a phone number.
    pub refer_to: ReferFormat,
    /// The host in `Refer-To`; without one that of the peer's Contact.
    pub refer_host: Option<Box<str>>,
    /// Whether the context headers also stand inside the `Refer-To` URI.
    pub refer_headers_in_uri: bool,
    /// How callers are handed over.
    pub transfer_way: TransferWay,
    /// Whether a failed REFER is followed by a bridge.
    pub bridge_when_refer_fails: bool,
    /// Whether the PBX was seen to keep its caller after an accepted REFER had failed.
    pub keeps_caller: bool,
}

/// A trunk's credentials.
#[derive(Clone, Debug)]
pub struct Login {
    /// The org.
    pub org: Uuid,
    /// Its inbound trunk.
    pub trunk: Uuid,
    /// What the digest answer is checked against.
    pub secret: Arc<Secret>,
    /// The pair itself, for a PBX that has proven it and challenges us.
    pub pair: Arc<PeerLogin>,
    /// Set on the old pair after a rotation.
    pub expires_at: Option<Moment>,
}

/// Whose a source address is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Dedicated to this org by the operator: any number of the org.
    Dedicated(Uuid),
    /// Among the `allowed_addresses` of these orgs' trunks, narrowest network first: numbers on the trunk's own list alone.
    Allowed(SmallVec<[Uuid; 2]>),
    /// Nobody's.
    Unknown,
}

impl OrgView {
    /// Returns whether RTP of the org's PBX may come from another address than that of SDP or signalling, where SDP names a private one.
    pub fn rtp_from_any_address(&self) -> bool {
        (self.trunk.as_ref()).is_some_and(|trunk| trunk.rtp_from_any_address)
    }

    /// Returns the one who names the runtime of an agent.
    pub fn namer(&self, agent: Uuid) -> Namer {
        match self.operators_runtimes.contains(&agent) {
            true => Namer::Operator,
            false => Namer::Org(self.tied.clone()),
        }
    }
}

impl View {
    /// The org of this id.
    pub fn org(&self, id: Uuid) -> Option<&Arc<OrgView>> {
        self.orgs.get(&id)
    }

    /// The credentials of this digest user name, expired ones included: the caller compares `expires_at` with its clock.
    pub fn login(&self, username: &[u8]) -> Option<&Login> {
        self.by_username.get(std::str::from_utf8(username).ok()?)
    }

    /// Whether the operator entered a network of this org's trunk that holds `address`.
    pub fn operator_allows(&self, address: IpAddr, org: Uuid) -> bool {
        self.operators.matches(address).any(|found| found == org)
    }

    /// Whose `address` is. IPv4-mapped IPv6 counts as IPv4.
    pub fn by_source(&self, address: IpAddr) -> Source {
        if let Some(org) = self.dedicated.matches(address).next() {
            return Source::Dedicated(org);
        }

        let sources = match is_near(address) {
            true => &self.allowed_near,
            false => &self.allowed,
        };
        let mut allowed = SmallVec::new();
        for org in sources.matches(address) {
            if !allowed.contains(&org) {
                allowed.push(org);
            }
        }

        if allowed.is_empty() {
            Source::Unknown
        } else {
            Source::Allowed(allowed)
        }
    }
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::*;

    fn org(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn sources(networks: &[(&str, u128)]) -> Sources {
        let parse = |network: &str| network.parse::<IpNet>().expect("a network");
        let networks = networks.iter();
        networks
            .map(|(network, id)| (parse(network), org(*id)))
            .collect()
    }

    fn allowed(ids: &[u128]) -> Source {
        Source::Allowed(ids.iter().copied().map(org).collect())
    }

    #[test]
    fn an_address_finds_its_orgs() {
        let view = View {
            dedicated: sources(&[
                ("192.0.2.0/24", 1),
                ("192.0.2.128/25", 2),
                ("2001:db8::/32", 3),
            ]),
            allowed: sources(&[
                ("198.51.100.0/24", 4),
                ("198.51.100.7/32", 5),
                ("198.51.0.0/16", 4),
                ("::ffff:203.0.113.0/120", 6),
                ("192.0.2.1/32", 7),
                ("203.0.113.77/24", 8),
                ("0.0.0.0/1", 9),
            ]),
            allowed_near: sources(&[("127.0.0.2/32", 5)]),
            ..View::default()
        };
        let cases = [
            ("dedicated", "192.0.2.1", Source::Dedicated(org(1))),
            (
                "narrowest dedicated wins",
                "192.0.2.200",
                Source::Dedicated(org(2)),
            ),
            ("dedicated IPv6", "2001:db8::1", Source::Dedicated(org(3))),
            (
                "mapped counts as IPv4",
                "::ffff:192.0.2.1",
                Source::Dedicated(org(1)),
            ),
            (
                "shared by two, narrowest first",
                "198.51.100.7",
                allowed(&[5, 4]),
            ),
            ("wider network of the same org", "198.51.7.7", allowed(&[4])),
            (
                "mapped network, host bits ignored",
                "203.0.113.9",
                allowed(&[6, 8]),
            ),
            ("a wide network", "8.8.8.8", allowed(&[9])),
            (
                "no wide network holds loopback",
                "127.0.0.1",
                Source::Unknown,
            ),
            ("listed loopback", "127.0.0.2", allowed(&[5])),
            ("nobody's", "203.0.114.9", Source::Unknown),
            ("nobody's IPv6", "2001:db9::1", Source::Unknown),
        ];
        for (name, address, source) in cases {
            assert_eq!(
                view.by_source(address.parse().expect("an address")),
                source,
                "{name}"
            );
        }
    }
}
