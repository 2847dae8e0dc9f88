//! Finds peers that tenants have configured and that the address policy refuses. They are logged at start-up;
//! `trunkline doctor` shows which setting allows them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use trunkline_calls::parts::target::{self, DialTarget};
use trunkline_calls::peers::health::probe_uri;
use trunkline_model::address::{AddressPolicy, Refusal};
use trunkline_model::settings::{TransferTarget, is_web_socket};
use trunkline_store::{OrgRows, Store};
use uuid::Uuid;

use super::resolve::Resolver;

/// Most peers that are resolved; further ones are skipped.
const MAX_PEERS: usize = 2_000;
/// Names resolved at the same time.
const CONCURRENT: usize = 32;
/// Refused peers that the log names at start-up.
const MAX_LOGGED: usize = 100;

/// Peer that the address policy refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RefusedPeer {
    pub(crate) org: Uuid,
    /// Description of the setting that names the peer.
    pub(crate) whose: String,
    /// Scheme, host, port and transport of its URI.
    pub(crate) uri: Box<str>,
    pub(crate) address: SocketAddr,
    pub(crate) refusal: Refusal,
}

/// Returns the refused peers of these orgs: runtimes and fallbacks, hosts of outbound trunks, SIP destinations.
pub(crate) async fn refused(
    rows: &[OrgRows],
    resolver: &Resolver,
    policy: &AddressPolicy,
) -> Vec<RefusedPeer> {
    let mut named: BTreeMap<(Uuid, Box<str>), (String, Option<DialTarget>)> = BTreeMap::new();
    for rows in rows {
        for (uri, whose) in named_by(rows) {
            let place = target::dial_target(&uri).or_else(|| target::dial_target_of_url(&uri));
            let place = place.map(|place| place.of_org(&rows.tied));
            named.entry((rows.org.id, uri)).or_insert((whose, place));
        }
    }

    // A scheme other than ws: counts as encrypted here, because the policy's rule on plain text is about WebSockets.
    let looking =
        named
            .into_iter()
            .take(MAX_PEERS)
            .map(|((org, uri), (whose, place))| async move {
                let targets = match place {
                    Some(DialTarget::Resolved(target)) => vec![target],
                    Some(DialTarget::Unresolved(name)) => resolver.resolve(&name).await,
                    None => Vec::new(),
                };

                let is_encrypted = !uri.starts_with("ws:");
                let refused = targets.into_iter().find_map(|target| {
                    let judged = policy.examine_of(target.address, target.named);
                    let judged =
                        judged.and_then(|()| policy.examine_plain(target.address, is_encrypted));
                    Some((target.address, judged.err()?))
                });

                refused.map(|(address, refusal)| RefusedPeer {
                    org,
                    whose,
                    uri,
                    address,
                    refusal,
                })
            });

    let looking = futures_util::stream::iter(looking).buffered(CONCURRENT);
    looking.filter_map(std::future::ready).collect().await
}

/// Peers that an org's tenants have configured, with a description of each setting. Values set by the operator's
/// command line aren't judged.
fn named_by(rows: &OrgRows) -> Vec<(Box<str>, String)> {
    let org = &rows.org.name;
    let mut named = Vec::new();
    for agent in &rows.agents {
        let Some(runtime) = &agent.runtime else {
            continue;
        };
        if agent.is_runtime_by_operator() {
            continue;
        }

        for template in runtime.uris() {
            let uri = target::fill(template, agent.id, rows.org.id);
            let whose = format!("the runtime of agent {:?} of {org:?}", agent.name);
            let uri = match is_web_socket(&uri) {
                true => Some(without_query(&uri)),
                false => probe_uri(&uri),
            };
            named.extend(uri.map(|uri| (uri, whose)));
        }
    }

    for trunk in &rows.outbound_trunks {
        let settings = &trunk.settings;
        if let Some((host, port)) = &settings.peer {
            let transport = settings.transport.uri_name();
            let port = Some(*port)
                .filter(|port| *port != target::default_port(settings.transport))
                .map(|port| format!(":{port}"))
                .unwrap_or_default();
            let uri = format!("sip:{host}{port};transport={transport}");
            let whose = format!("outbound trunk {:?} of {org:?}", settings.name);
            named.extend(probe_uri(&uri).map(|uri| (uri, whose)));
        }
    }

    for (_, destination) in &rows.destinations {
        if let TransferTarget::Sip(uri) = &destination.target {
            let whose = format!("destination {:?} of {org:?}", destination.name);
            named.extend(probe_uri(uri).map(|uri| (uri, whose)));
        }
    }

    named
}

/// URL without its query, which may hold a secret.
fn without_query(url: &str) -> Box<str> {
    url.split_once('?').map_or(url, |(url, _)| url).into()
}

/// Logs the configured peers that the policy refuses: [`MAX_LOGGED`] of them by name.
pub(super) async fn report(store: Store, resolver: Resolver, policy: Arc<AddressPolicy>) {
    let rows = match store.read(|tx| trunkline_store::rows_of(tx, None)).await {
        Ok(rows) => rows,
        Err(error) => {
            return tracing::warn!(%error, "configured peers can't be checked against the address policy");
        }
    };

    // At every start, so that a stricter policy doesn't refuse peers in silence.
    let refused = refused(&rows, &resolver, &policy).await;
    for peer in refused.iter().take(MAX_LOGGED) {
        let RefusedPeer {
            org,
            whose,
            uri,
            address,
            refusal,
        } = peer;
        tracing::warn!(org.id = %org, %whose, %uri, peer = %address, reason = refusal.code(), "a peer isn't contacted: its address {refusal}");
    }

    if refused.len() > MAX_LOGGED {
        let more = refused.len() - MAX_LOGGED;
        tracing::warn!(
            more,
            "further peers are refused: trunkline doctor names them"
        );
    }
}
