//! Check that runtimes of agents and carriers are reachable: each address once, by OPTIONS, and bots by a connection. A peer that takes calls
//! needn't answer either.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::time::timeout;
use trunkline_calls::parts::target::{self, DialTarget, Target};
use trunkline_model::address::{AddressPolicy, NamedBy};
use trunkline_model::record::Direction;
use trunkline_model::settings::{Runtime, is_web_socket};
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use trunkline_store::{CallFilter, Store, attempts, calls, written};
use uuid::Uuid;

use super::deployment::{Deployment, RUNTIME};
use super::orgs::CheckedOrgs;
use super::ping::{PingAnswer, ping};
use crate::explain::finding::Finding;

/// Most addresses that are probed; a finding says how many further ones there are.
const MAX_PROBED: usize = 64;
/// Time for a connection to a bot.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Place to ask. In the order of places runtimes come first, so that [`MAX_PROBED`] leaves out carriers before runtimes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    is_carrier: bool,
    /// URI as [`place_alone`] shortens it.
    uri: String,
    /// True if the address policy judges its addresses: a tenant has named it.
    is_judged: bool,
}

impl Place {
    /// A runtime that the operator has named.
    fn of_runtime(uri: &str) -> Self {
        Self {
            is_carrier: false,
            uri: place_alone(uri),
            is_judged: false,
        }
    }

    const fn check(&self) -> &'static str {
        match self.is_carrier {
            true => "carrier",
            false => RUNTIME,
        }
    }

    fn target(&self) -> Option<DialTarget> {
        match is_web_socket(&self.uri) {
            true => target::dial_target_of_url(&self.uri),
            false => target::dial_target(&self.uri),
        }
    }
}

/// Settings that name a place.
#[derive(Debug)]
struct NamingSettings {
    /// One of them, in words.
    whose: String,
    /// Calls that go there first, by the org and its agent or outbound trunk.
    callers: Vec<(Uuid, CallFilter)>,
}

/// Time within which a call that was answered outranks a probe that wasn't.
const RECENT: Duration = Duration::from_secs(24 * 3_600);
/// Agents and trunks of a silent place whose calls are looked at.
const MAX_CALLERS: usize = 20;
/// Newest calls of each of them that are looked at.
const MAX_CALLS: u32 = 5;

pub(super) async fn examine(
    store: &Store,
    deployment: &Deployment<'_>,
    orgs: &CheckedOrgs,
    policy: &AddressPolicy,
    now: Moment,
) -> Vec<Finding> {
    let places = places(deployment, orgs);
    let left_out = places.len().saturating_sub(MAX_PROBED);

    let asked = places.into_iter().take(MAX_PROBED);
    let asked = asked.map(async |(place, named)| {
        let found = one(deployment, policy, place, &named.whose).await?;
        if !found.is_problem() {
            return Some(found);
        }
        Some(match last_taken(store, &named, now).await {
            Some(at) => Finding::hint(
                found.check,
                format!(
                    "{} Calls outrank that: it took one at {}.",
                    found.text,
                    written(at)
                ),
            ),
            None => found,
        })
    });
    // All at once: many silent peers take no longer than the one of them with the most addresses.
    let mut findings: Vec<Finding> = join_all(asked).await.into_iter().flatten().collect();
    if left_out > 0 {
        findings.push(Finding::warning(
            RUNTIME,
            format!("{left_out} further addresses of runtimes and carriers were not asked."),
            "`reachable` in GET /phone/sip/outbound-trunks says which carriers answer.",
        ));
    }

    findings
}

/// Returns when a place that answers no probe has taken its last call, unless a later one failed there.
async fn last_taken(store: &Store, named: &NamingSettings, now: Moment) -> Option<Moment> {
    let mut last: Option<(Moment, bool)> = None;
    for (org, filter) in named.callers.iter().take(MAX_CALLERS) {
        let filter = CallFilter {
            from: Some(now - RECENT),
            ..filter.clone()
        };
        let org = *org;
        let newest = store.read(move |tx| {
            let calls = calls::list(tx, org, &filter, None, MAX_CALLS)?.items;
            let mut told = Vec::with_capacity(calls.len());
            for call in calls {
                let attempts = attempts::of_call(tx, org, call.id)?;
                told.push((call.answered_at, call.started_at, attempts.is_empty()));
            }
            Ok(told)
        });
        // A failing database is the finding of another check.
        for (answered, started, is_first) in newest.await.unwrap_or_default() {
            // An attempt is recorded where the place failed, or another than the first was reached. A call that ended before either tells
            // nothing.
            let told = match (answered, is_first) {
                (Some(answered), true) => Some((answered, true)),
                (_, false) => Some((started, false)),
                (None, true) => None,
            };
            last = last.max(told);
        }
    }
    last.and_then(|(at, was_taken)| was_taken.then_some(at))
}

/// Places of all runtimes and carriers, each with the settings that name it.
fn places(deployment: &Deployment<'_>, orgs: &CheckedOrgs) -> BTreeMap<Place, NamingSettings> {
    let mut places: BTreeMap<Place, NamingSettings> = BTreeMap::new();
    let default = deployment.config.phone.default_runtime.runtime();
    for (index, template) in default.uris().enumerate() {
        let uri = target::fill(template, Uuid::nil(), Uuid::nil());
        let users = orgs.rows.iter().flat_map(|rows| {
            let agents = rows.agents.iter().filter(|agent| agent.runtime.is_none());
            agents.map(|agent| of_agent(rows.org.id, agent.id))
        });
        let named = NamingSettings {
            whose: "the default runtime".to_owned(),
            callers: users.take_while(|_| index == 0).collect(),
        };
        places.insert(Place::of_runtime(&uri), named);
    }

    for rows in &orgs.rows {
        let named = |target: Option<DialTarget>| {
            target.map_or(NamedBy::Tenant, |target| {
                target.of_org(&rows.tied).named_by()
            })
        };
        for agent in &rows.agents {
            for (index, template) in agent.runtime.iter().flat_map(Runtime::uris).enumerate() {
                let uri = target::fill(template, agent.id, rows.org.id);
                let mut place = Place::of_runtime(&uri);
                let is_operators = agent.is_runtime_by_operator();
                place.is_judged = !is_operators && named(place.target()) == NamedBy::Tenant;
                let whose = format!("agent {:?} of {:?}", agent.name, rows.org.name);
                let entry = places
                    .entry(place)
                    .or_insert_with(|| NamingSettings::new(whose));
                if index == 0 {
                    entry.callers.push(of_agent(rows.org.id, agent.id));
                }
            }
        }

        for trunk in &rows.outbound_trunks {
            let Some((host, port)) = &trunk.settings.peer else {
                continue;
            };
            let transport = trunk.settings.transport.uri_name();
            let uri = format!("sip:{host}:{port};transport={transport}");
            let is_judged = named(target::dial_target(&uri)) == NamedBy::Tenant;
            let whose = format!(
                "outbound trunk {:?} of {:?}",
                trunk.settings.name, rows.org.name
            );
            let place = Place {
                is_carrier: true,
                uri,
                is_judged,
            };
            let entry = places
                .entry(place)
                .or_insert_with(|| NamingSettings::new(whose));
            let calls = CallFilter {
                trunk: Some(trunk.id),
                direction: Some(Direction::Outbound),
                ..CallFilter::default()
            };
            entry.callers.push((rows.org.id, calls));
        }
    }

    places
}

impl NamingSettings {
    const fn new(whose: String) -> Self {
        Self {
            whose,
            callers: Vec::new(),
        }
    }
}

/// Calls that go to an agent's runtime first.
fn of_agent(org: Uuid, agent: Uuid) -> (Uuid, CallFilter) {
    let calls = CallFilter {
        agent: Some(agent),
        direction: Some(Direction::Inbound),
        ..CallFilter::default()
    };
    (org, calls)
}

/// URI without its user part, which doesn't affect where it leads; a URL without its query, which may hold a secret.
fn place_alone(uri: &str) -> String {
    if is_web_socket(uri) {
        return uri.split_once('?').map_or(uri, |(url, _)| url).to_owned();
    }
    let Some((scheme, rest)) = uri.split_once(':') else {
        return uri.to_owned();
    };
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}:{host}")
}

/// Asks one place. `None` if the policy forbids all of its addresses, which the check of addresses reports: the daemon doesn't contact them either.
async fn one(
    deployment: &Deployment<'_>,
    policy: &AddressPolicy,
    place: Place,
    whose: &str,
) -> Option<Finding> {
    let check = place.check();
    let uri = &place.uri;
    let is_bot = is_web_socket(uri);
    let mut targets = match place.target() {
        Some(DialTarget::Resolved(target)) => vec![target],
        Some(DialTarget::Unresolved(wanted)) => deployment.resolver.resolve(&wanted).await,
        None => Vec::new(),
    };
    if targets.is_empty() {
        return Some(Finding::error(
            check,
            format!("{uri} ({whose}) can't be reached: its host has no address."),
            "Correct the host, or add its DNS records.",
        ));
    }

    if place.is_judged {
        // SIP counts as secure: TLS is demanded of WebSockets alone.
        let is_secure = !uri.starts_with("ws:");
        let judged =
            |target: &Target| policy.examine_web_socket(target.address, NamedBy::Tenant, is_secure);
        targets.retain(|target| judged(target).is_ok());
        if targets.is_empty() {
            return None;
        }
    }

    let mut silent = Vec::new();
    // One that answers is enough: the daemon goes on to the next address as well.
    for target in &targets {
        let answer = match is_bot {
            // A handshake would begin a conversation.
            true => connects(target.address).await,
            false => ping(target.transport, target.address).await,
        };
        if answer.is_alive() {
            return Some(Finding::ok(
                check,
                format!("{uri} ({whose}) answers at {}.", target.address),
            ));
        }
        silent.push(said(target, &answer));
    }

    Some(Finding::error(
        check,
        format!("{uri} ({whose}) can't be reached: {}.", silent.join(", ")),
        "Check that it runs and listens there, and check the firewalls between.",
    ))
}

/// Opens a connection, and sends nothing on it.
async fn connects(address: SocketAddr) -> PingAnswer {
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(_)) => PingAnswer::Connected,
        Ok(Err(error)) => PingAnswer::Refused(error.to_string()),
        Err(_) => PingAnswer::Silence,
    }
}

fn said(target: &Target, answer: &PingAnswer) -> String {
    let Target {
        transport, address, ..
    } = target;
    match answer {
        PingAnswer::Refused(why) => format!("{transport} {address}: {why}"),
        PingAnswer::Silence if *transport == Transport::Udp => {
            format!("{transport} {address} answers no OPTIONS")
        }
        PingAnswer::Silence | PingAnswer::Status(_) | PingAnswer::Connected => {
            format!("{transport} {address} is silent")
        }
    }
}
