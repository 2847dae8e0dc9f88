//! Everything that routing and digest authentication know of every org, as one immutable value that is replaced on each change.
//!
//! Pure: no database, no clock, no sockets. An INVITE is judged by this value alone. A clone shares all it can with its origin, so the cost
//! of a change is that of the one org that has changed.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_bounds::{Holder, PartnerShare};
use trunkline_routing::{Country, E164};
use trunkline_sip::auth::Secret;
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::auth_realms::AuthRealms;
use super::destinations::Destination;
use super::media_networks::MediaNetworks;
use super::org_limit::StoredLimit;
use super::persistent::PersistentMap;
use super::settings::{ReferFormat, Runtime, TransferWay};
use super::sources::Sources;
use crate::address::{NamedBy, is_near};
use crate::tied::{Namer, TiedPeers};

/// All orgs, indexed by id, trunk user name, number and source address.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Orgs by id.
    pub orgs: PersistentMap<Uuid, Arc<OrgView>>,
    /// Trunk credentials by digest user name; the old credentials of a rotated trunk are listed until they expire.
    pub by_username: PersistentMap<Arc<str>, Login>,
    /// Org of each verified number.
    pub by_number: PersistentMap<E164, Uuid>,
    /// Countries in whose national form trunks send numbers, with the number of such trunks.
    pub countries: PersistentMap<Country, usize>,
    /// Orgs with an outbound trunk that registers with its carrier.
    pub registering: PersistentMap<Uuid, ()>,
    /// Networks that the operator has dedicated to one org.
    pub dedicated: Sources,
    /// Those of `dedicated` whose calls over UDP need no proof: the operator vouches for their source.
    pub without_proof: Sources,
    /// `allowed_addresses` of all trunks; several orgs may list the network of the same carrier.
    pub allowed: Sources,
    /// Loopback and link-local entries of `allowed` that `sip.allow_private_peers` lists. Such an address matches only here, never a wider
    /// network in `allowed`.
    pub allowed_near: Sources,
    /// Entries of `allowed` that the operator entered: calls from them are trusted at once, over UDP too.
    pub operators: Sources,
}

/// One org: the input of the four routing steps, and the settings that apply once an agent is chosen.
#[derive(Clone, Debug)]
pub struct OrgView {
    /// The org is suspended: its INVITEs, REGISTERs and outbound calls are refused.
    pub suspended: bool,
    /// Share of this node that the orgs of its partner have together.
    pub partner: Option<PartnerShare>,
    /// Agents, numbers, trunk and limits.
    pub routing: trunkline_routing::Org,
    /// Runtimes by agent.
    pub runtimes: HashMap<Uuid, Arc<Runtime>>,
    /// Silence of media after which the peer is asked whether it is still there, of each agent that has its own; zero: never.
    pub media_silences: HashMap<Uuid, Duration>,
    /// Networks in which the org's peers have their media.
    pub media_networks: MediaNetworks,
    /// Agents whose runtime the operator has set.
    pub operators_runtimes: HashSet<Uuid>,
    /// Peers that the operator has tied to the org.
    pub tied: TiedPeers,
    /// The inbound trunk, if the org has one.
    pub trunk: Option<TrunkView>,
    /// Outbound trunk of each agent that has one.
    pub outbound_routes: HashMap<Uuid, Arc<OutboundRoute>>,
    /// All outbound trunks, also those that no agent uses.
    pub outbound: Vec<Arc<OutboundRoute>>,
    /// Limit on the outbound trunks that register with their carriers.
    pub registrations: StoredLimit,
    /// Transfer destinations of each agent, in the order of their assignment.
    pub destinations: HashMap<Uuid, Arc<[Destination]>>,
    /// Tokens of the org's bots.
    pub bot_token: Option<BotTokens>,
}

/// Tokens of an org's bots.
#[derive(Clone, PartialEq, Eq)]
pub struct BotTokens {
    /// Token that signs the handshakes of WebSockets, and opens the endpoint of bots.
    pub signs: Box<str>,
    /// Token that opens the endpoint, and signs once it is promoted.
    pub next: Option<Box<str>>,
    /// Previous token, which opens the endpoint until this time.
    pub old: Option<(Box<str>, Moment)>,
}

impl BotTokens {
    /// Returns the tokens that open the endpoint now.
    pub fn opening(&self, now: Moment) -> impl Iterator<Item = &str> {
        let old = self.old.as_ref().filter(|(_, until)| now < *until);
        let next = self.next.as_deref().into_iter();
        std::iter::once(&*self.signs)
            .chain(next)
            .chain(old.map(|(token, _)| &**token))
    }
}

impl std::fmt::Debug for BotTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BotTokens")
    }
}

/// Settings of an outbound trunk that a call over it needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutboundRoute {
    /// The org.
    pub org: Uuid,
    /// The trunk.
    pub id: Uuid,
    /// Host and port of the carrier or PBX; `None`: the PBX that is registered with the org's inbound trunk.
    pub peer: Option<(Box<str>, u16)>,
    /// Party that named the host.
    pub named: NamedBy,
    /// Transport to the peer.
    pub transport: Transport,
    /// Credentials for the peer's digest challenges.
    pub login: Option<Arc<PeerLogin>>,
    /// Realms for which the credentials are meant.
    pub realms: Arc<AuthRealms>,
    /// Caller number of outbound calls.
    pub caller_number: E164,
    /// Host in From; `None`: this node's own.
    pub from_host: Option<Box<str>>,
    /// P-Asserted-Identity carries the caller number (RFC 3325).
    pub p_asserted_identity: bool,
    /// INVITEs carry `user=phone` in Request-URI, To and From (RFC 3261 §19.1.1).
    pub user_phone: bool,
    /// This node registers with the peer.
    pub register: bool,
    /// Most concurrent calls; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
    /// Most new calls per second; `None`: no limit.
    pub calls_per_second: Option<u32>,
    /// Method by which callees are transferred.
    pub transfer_way: TransferWay,
    /// The peer was seen to keep the call after an accepted REFER had failed.
    pub keeps_caller: bool,
}

/// Credentials with which a peer's digest challenges are answered.
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

/// Settings of an inbound trunk besides routing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrunkView {
    /// The trunk.
    pub id: Uuid,
    /// Noise suppression, handed to the runtime.
    pub krisp_enabled: bool,
    /// If SDP names a private address, RTP may come from an address that neither SDP nor signalling names.
    pub rtp_from_any_address: bool,
    /// The digest user name.
    pub username: Box<str>,
    /// Form in which `Refer-To` names a phone number.
    pub refer_to: ReferFormat,
    /// The host in `Refer-To`; `None`: the host of the peer's Contact.
    pub refer_host: Option<Box<str>>,
    /// The context headers are repeated inside the `Refer-To` URI.
    pub refer_headers_in_uri: bool,
    /// Method by which callers are transferred.
    pub transfer_way: TransferWay,
    /// A failed REFER is followed by a bridge.
    pub bridge_when_refer_fails: bool,
    /// The PBX was seen to keep the call after an accepted REFER had failed.
    pub keeps_caller: bool,
}

/// Digest credentials of an inbound trunk.
#[derive(Clone, Debug)]
pub struct Login {
    /// The org.
    pub org: Uuid,
    /// Its inbound trunk.
    pub trunk: Uuid,
    /// Secret against which a digest response is verified.
    pub secret: Arc<Secret>,
    /// User name and password, with which the PBX's own challenges are answered once it has authenticated.
    pub pair: Arc<PeerLogin>,
    /// Expiry as a wall-clock time, since the store keeps it; set on the old credentials after a rotation.
    pub expires_at: Option<Moment>,
}

impl Login {
    /// Returns true if the credentials are valid at this wall-clock time.
    pub fn is_valid(&self, wall_time: Moment) -> bool {
        self.expires_at.is_none_or(|end| wall_time < end)
    }
}

/// Org of a source address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The operator has dedicated the address to this org: any number of the org may be called.
    Dedicated(Uuid),
    /// The `allowed_addresses` of these orgs' trunks hold the address, narrowest network first: only numbers on the trunk's own list may be
    /// called.
    Allowed(SmallVec<[Uuid; 2]>),
    /// No org lists the address.
    Unknown,
}

impl OrgView {
    /// Returns the org as one that takes of what this node has.
    pub fn holder(&self) -> Holder {
        Holder {
            org: self.routing.id,
            partner: self.partner,
        }
    }

    /// Returns whether RTP may come from an address that neither SDP nor signalling names, where SDP names a private one.
    pub fn rtp_from_any_address(&self) -> bool {
        (self.trunk.as_ref()).is_some_and(|trunk| trunk.rtp_from_any_address)
    }

    /// Returns the party that sets the runtime of an agent.
    pub fn namer(&self, agent: Uuid) -> Namer {
        match self.operators_runtimes.contains(&agent) {
            true => Namer::Operator,
            false => Namer::Org(self.tied.clone()),
        }
    }
}

impl View {
    /// Returns the org of this id.
    pub fn org(&self, id: Uuid) -> Option<&Arc<OrgView>> {
        self.orgs.get(&id)
    }

    /// Returns the credentials of this digest user name. Expired ones are included: ask [`Login::is_valid`].
    pub fn login(&self, username: &[u8]) -> Option<&Login> {
        self.by_username.get(std::str::from_utf8(username).ok()?)
    }

    /// Returns whether the operator entered a network of this org's trunk that holds `address`.
    pub fn operator_allows(&self, address: IpAddr, org: Uuid) -> bool {
        self.operators.matches(address).any(|found| found == org)
    }

    /// Returns whether the operator vouches for the source of calls from `address`: the narrowest dedicated network decides.
    pub fn needs_no_proof(&self, address: IpAddr) -> bool {
        let network = self.without_proof.narrowest(address);
        network.is_some() && network == self.dedicated.narrowest(address)
    }

    /// Returns the org of a source `address`. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn by_source(&self, address: IpAddr) -> Source {
        // The operator's word comes first: a tenant that lists the same address on its trunk gets none of the calls
        // from there.
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

    #[test]
    fn the_narrowest_dedicated_network_says_whether_a_proof_is_needed() {
        let view = View {
            dedicated: sources(&[
                ("192.0.2.0/24", 1),
                ("192.0.2.7/32", 2),
                ("198.51.100.0/24", 1),
                ("198.51.100.7/32", 2),
            ]),
            without_proof: sources(&[("192.0.2.0/24", 1), ("198.51.100.7/32", 2)]),
            allowed: sources(&[("203.0.113.0/24", 1)]),
            ..View::default()
        };
        for (address, needs_none) in [
            ("192.0.2.1", true),
            ("192.0.2.7", false),
            ("198.51.100.1", false),
            ("198.51.100.7", true),
            ("::ffff:198.51.100.7", true),
            ("203.0.113.1", false),
        ] {
            let ip = address.parse().expect("an address");
            assert_eq!(view.needs_no_proof(ip), needs_none, "{address}");
        }
    }
}
