//! Translates sections of the configuration into the settings of the core and other modules.

use std::sync::Arc;
use std::time::Duration;

use trunkline_calls::limits::outbound_limits::OutboundBounds;
use trunkline_calls::parts::target;
use trunkline_calls::registrar;
use trunkline_calls::trust::token::SessionTokens;
use trunkline_model::address::AddressPolicy;
use trunkline_model::peer_pattern::PeerPattern;
use trunkline_model::reserved::ReservedPeers;
use trunkline_sip::auth::{Algorithm, NonceKeys};
use trunkline_sip::endpoint::SentBy;
use trunkline_sip::slot::{Minter, Node};
use trunkline_store::{Keyring, Store};

use super::{clock, local};
use crate::config::{Config, DefaultRuntime};
use crate::traces::{Collector, Disk};

/// Default port of HEP collectors.
const HEP_PORT: u16 = 9_060;

/// Timer T2, the longest interval between retransmissions (RFC 3261 §17.1.2.2).
pub(super) const T2: Duration = Duration::from_secs(4);
/// Timer T4, the longest time that a message stays in the network (RFC 3261 §17.1.2.2).
pub(super) const T4: Duration = Duration::from_secs(5);

/// Shortest registration of a PBX; one that asks for less gets 423 (RFC 3261 §10.3).
const SHORTEST_REGISTRATION: Duration = Duration::from_secs(30);
/// Longest registration of a PBX; one that asks for more is cut to it.
const LONGEST_REGISTRATION: Duration = Duration::from_secs(3_600);
/// Contacts that one trunk may have registered.
const CONTACTS_PER_TRUNK: usize = 10;

/// Session interval that we ask for, in seconds (RFC 4028 §4).
const SESSION_EXPIRES_S: u32 = 1_800;

/// Seconds in `Retry-After` of a call that was shed.
const RETRY_AFTER_S: u32 = 5;

pub(super) fn disk(config: &Config) -> Option<Disk> {
    let settings = &config.traces;
    (settings.max_bytes > 0).then(|| Disk {
        directory: settings.directory.clone(),
        max_bytes: settings.max_bytes,
        retention: settings.retention,
    })
}

pub(super) fn collector(config: &Config) -> Option<Collector> {
    let collector = config.traces.hep.as_ref()?;
    Some(Collector {
        // A look-up takes an IPv6 address without brackets.
        host: collector.host().trim_matches(['[', ']']).to_owned(),
        port: collector.port.unwrap_or(HEP_PORT),
        node: u32::from(config.sip.node) + 1,
    })
}

pub(super) fn minter(store: &Store, node: u8) -> Minter {
    // Derived, not drawn: tags and branches of an earlier run are still known as ours after a restart.
    let mut secret = [0; 16];
    secret.copy_from_slice(&store.keyring().derive("sip tags")[..16]);
    Minter::new(Node(node), secret)
}

/// Draws the keys of nonces. The table of used nonces knows this node since its start only: a nonce of another node, or
/// of an earlier run, could be replayed. So this node's own key is new at each start, while a shared key lets all nodes
/// recognize nonces of the installation.
pub(super) fn nonce_keys(store: &Store) -> NonceKeys {
    NonceKeys {
        node: rand::random(),
        deployment: store.keyring().derive("sip nonces"),
    }
}

/// Makes session tokens, the same on every node of the installation.
pub(crate) fn session_tokens(keyring: &Keyring) -> SessionTokens {
    SessionTokens::new(keyring.derive("session tokens"))
}

pub(super) fn sent_by(config: &Config, addresses: &[std::net::SocketAddr]) -> Vec<SentBy> {
    let listeners = config.sip.listeners.iter().zip(addresses);
    listeners
        .map(|(listener, bound)| config.sip.sent_by(listener, *bound))
        .collect()
}

/// Returns host and port of each listener, as our Contacts name them.
pub(super) fn advertised(config: &Config, addresses: &[std::net::SocketAddr]) -> Vec<String> {
    let listeners = config.sip.listeners.iter().zip(addresses);
    listeners
        .map(|(listener, bound)| config.sip.advertised(listener, *bound))
        .collect()
}

pub(super) fn algorithms(config: &Config) -> Vec<Algorithm> {
    if config.sip.digest_sha256 {
        // MD5 first: stock Asterisk answers nothing else.
        vec![Algorithm::Md5, Algorithm::Sha256]
    } else {
        vec![Algorithm::Md5]
    }
}

pub(super) fn registrar_config(config: &Config) -> registrar::Config {
    let sip = &config.sip;
    registrar::Config {
        realm: sip.realm(),
        algorithms: algorithms(config),
        shortest: SHORTEST_REGISTRATION,
        longest: LONGEST_REGISTRATION,
        contacts: CONTACTS_PER_TRUNK,
        wall: clock::wall(),
    }
}

pub(super) fn calls_config(
    config: &Config,
    keyring: &Keyring,
    node: u8,
    addresses: &[std::net::SocketAddr],
    policy: AddressPolicy,
) -> trunkline_calls::Config {
    let sip = &config.sip;
    let default_runtime = config.phone.default_runtime.runtime();

    trunkline_calls::Config {
        header_prefix: (&*sip.header_prefix).into(),
        realm: sip.realm(),
        algorithms: algorithms(config),
        default_runtime: Arc::new(default_runtime),
        setup_timeout: sip.setup_timeout,
        max_duration: sip.max_duration,
        session_expires: SESSION_EXPIRES_S,
        keep_alive: sip.keep_alive,
        dead_peer: sip.dead_peer,
        media_silence: config.media.silence,
        listeners: sip
            .listeners
            .iter()
            .zip(addresses)
            .map(|(listener, bound)| (listener.transport, *bound))
            .collect(),
        asks_for_proof: true,
        public_listeners: sip
            .listeners
            .iter()
            .map(|listener| sip.is_public(listener))
            .collect(),
        addresses: Arc::new(policy),
        retry_after: RETRY_AFTER_S,
        node: Node(node),
        session_tokens: session_tokens(keyring),
        trusted_runtimes: trusted_runtimes(config),
    }
}

/// Address policy by the configuration alone. It doesn't know ports that the system chooses, nor addresses of names.
pub(crate) fn configured_policy(config: &Config) -> AddressPolicy {
    let listeners = config.sip.listeners.iter().map(|one| one.address).collect();
    let reserved = ReservedPeers::new(config.sip.reserved_peers.clone());
    address_policy(config, listeners, config.http.listen, reserved)
}

/// Runtimes that the operator trusts: those listed, and the host of the default runtime.
fn trusted_runtimes(config: &Config) -> Vec<PeerPattern> {
    let mut trusted = config.sip.trusted_runtimes.clone().unwrap_or_default();
    if let DefaultRuntime::Sip(uri) = &config.phone.default_runtime {
        let host = target::host_of(uri.as_bytes());
        trusted.extend(host.and_then(|host| host.parse().ok()));
    }
    trusted
}

/// Address policy in force, which forbids contact with our own `listeners` and `http`.
pub(super) fn address_policy(
    config: &Config,
    mut listeners: Vec<std::net::SocketAddr>,
    http: std::net::SocketAddr,
    reserved: ReservedPeers,
) -> AddressPolicy {
    listeners.push(http);
    let allowed = config.sip.allow_private_peers.clone().unwrap_or_default();
    AddressPolicy::new(allowed, listeners, local::addresses()).reserving(reserved)
}

pub(super) fn bounds(config: &Config) -> OutboundBounds {
    let limits = &config.limits;
    OutboundBounds {
        at_once: limits.outbound_calls,
        per_minute: limits.outbound_calls_per_minute,
        per_day: limits.outbound_calls_per_day,
        prefixes: config.phone.outbound_prefixes.clone(),
    }
}
