//! Builds the directory view from the rows of every org, and keeps the position in the change feed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use trunkline_bounds::PartnerShare;
use trunkline_model::address::{AddressPolicy, is_near_network};
use trunkline_model::auth_realms::AuthRealms;
use trunkline_model::destinations::Destination;
use trunkline_model::media_networks::MediaNetworks;
use trunkline_model::settings::Runtime;
use trunkline_model::tied::TiedPeers;
use trunkline_model::view::{BotTokens, Login, OrgView, OutboundRoute, PeerLogin, TrunkView, View};
use trunkline_sip::auth::Secret;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    AgentKind, BotToken, Change, InboundTrunk, OrgLimit, OrgRows, OutboundTrunk, Password, Store,
    feed,
};
use uuid::Uuid;

use super::Defaults;
use super::entry::{OrgEntry, replace};

/// Number of changed orgs that are read one by one in any case.
const ONE_BY_ONE: usize = 100;
/// Above one changed org in this many, everything is read again.
const SHARE: usize = 8;

/// Everything read so far.
#[derive(Debug)]
pub(super) struct DirectoryBuilder {
    defaults: Defaults,
    default_runtime: Arc<Runtime>,
    entries: HashMap<Uuid, OrgEntry>,
    view: View,
    seq: i64,
}

/// Progress of one turn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Nothing that the view shows has changed.
    Nothing,
    /// All changes were read.
    All,
    /// More changes wait than one turn reads.
    Some,
}

impl DirectoryBuilder {
    /// Reads everything.
    pub(super) async fn read(
        store: &Store,
        defaults: Defaults,
    ) -> Result<Self, trunkline_store::Error> {
        let default_runtime = Arc::new(defaults.runtime.clone());
        let mut builder = Self {
            defaults,
            default_runtime,
            entries: HashMap::new(),
            view: View::default(),
            seq: 0,
        };
        builder.read_all(store).await?;
        Ok(builder)
    }

    /// Reads the changes since the last turn. After an error the call may be repeated: it reads the same changes again.
    pub(super) async fn catch_up(
        &mut self,
        store: &Store,
    ) -> Result<Progress, trunkline_store::Error> {
        let seq = self.seq;
        let changes = store.read_inline(move |tx| feed::since(tx, seq)).await?;
        let orgs: HashSet<Uuid> = changes.changes.iter().filter_map(touched).collect();
        let many = changes.changes.iter().any(touches_many);
        // One org takes as many queries as all of them together, so for many changed orgs one pass over everything
        // costs less.
        if changes.missed || many || orgs.len() > ONE_BY_ONE.max(self.entries.len() / SHARE) {
            self.read_all(store).await?;
            return Ok(Progress::All);
        }

        for org in &orgs {
            let of = Some(*org);
            let mut rows = store
                .read(move |tx| trunkline_store::rows_of(tx, of))
                .await?;
            // No row means that the org was deleted. The rows may be newer than the change, which is then read once
            // more.
            let entry = rows.pop().map(|rows| self.entry(&rows));
            self.replace(*org, entry);
        }

        self.seq = changes.seq;
        Ok(match (changes.more, orgs.is_empty()) {
            (true, _) => Progress::Some,
            (false, false) => Progress::All,
            (false, true) => Progress::Nothing,
        })
    }

    fn replace(&mut self, org: Uuid, entry: Option<OrgEntry>) {
        let before = self.entries.remove(&org);
        replace(&mut self.view, org, before.as_ref(), entry.as_ref());
        if let Some(entry) = entry {
            self.entries.insert(org, entry);
        }
    }

    /// Reads the position before the rows, so that a concurrent change is read twice rather than never.
    async fn read_all(&mut self, store: &Store) -> Result<(), trunkline_store::Error> {
        let seq = store.read(feed::position).await?;
        let rows = store.read(|tx| trunkline_store::rows_of(tx, None)).await?;
        // Only at start-up: later passes would log the same networks again.
        if self.seq == 0 {
            report_sources(&rows, &self.defaults.addresses);
        }

        (self.entries, self.view) = (HashMap::with_capacity(rows.len()), View::default());
        for rows in rows {
            let entry = self.entry(&rows);
            self.replace(rows.org.id, Some(entry));
        }
        self.seq = seq;
        Ok(())
    }

    /// Position of the last change read.
    pub(super) fn seq(&self) -> i64 {
        self.seq
    }

    /// Makes the view.
    pub(super) fn view(&self) -> View {
        self.view.clone()
    }

    fn entry(&self, rows: &OrgRows) -> OrgEntry {
        let trunk = rows.trunk.as_ref();
        let outbound: Vec<Arc<OutboundRoute>> = {
            let outbound_route = |trunk| outbound_route(trunk, &rows.tied);
            rows.outbound_trunks.iter().map(outbound_route).collect()
        };

        // A network that isn't trusted stays in the database, and `report_sources` names it at start-up.
        let policy = &self.defaults.addresses;
        let (allowed_near, allowed) = trunk
            .map_or(&[][..], |trunk| &trunk.allowed_addresses)
            .iter()
            .filter(|network| policy.examine_source(**network).is_ok())
            .partition(|network| is_near_network(**network));

        OrgEntry {
            org: Arc::new(OrgView {
                suspended: rows.org.is_suspended(),
                partner: partner_share(rows),
                routing: routing(rows),
                runtimes: self.runtimes(rows),
                media_silences: media_silences(rows),
                media_networks: MediaNetworks::new(rows.media_networks.clone()),
                operators_runtimes: operators_runtimes(rows),
                tied: rows.tied.clone(),
                trunk: trunk.map(trunk_view),
                outbound_routes: outbound_routes(rows, &outbound),
                outbound,
                registrations: rows.limits.of(OrgLimit::Registrations),
                destinations: destinations(rows),
                bot_token: rows.bot_token.as_ref().map(bot_tokens),
            }),
            logins: trunk
                .map(|trunk| self.logins(rows, trunk))
                .unwrap_or_default(),
            dedicated: rows.dedicated.clone(),
            without_proof: rows.without_proof.clone(),
            allowed,
            allowed_near,
            operators: trunk
                .map(|trunk| trunk.operator_addresses.clone())
                .unwrap_or_default(),
        }
    }

    fn runtimes(&self, rows: &OrgRows) -> HashMap<Uuid, Arc<Runtime>> {
        let runtime = |own: &Option<Runtime>| {
            own.as_ref().map_or_else(
                || Arc::clone(&self.default_runtime),
                |own| Arc::new(own.clone()),
            )
        };
        rows.agents
            .iter()
            .map(|agent| (agent.id, runtime(&agent.runtime)))
            .collect()
    }

    fn logins(&self, rows: &OrgRows, trunk: &InboundTrunk) -> Vec<(Arc<str>, Login)> {
        let login = |username: &str, password: &Password, expires_at: Option<Moment>| {
            let secret = Arc::new(Secret::new(
                username,
                &self.defaults.realm,
                password.reveal(),
            ));

            (
                username.into(),
                Login {
                    org: rows.org.id,
                    trunk: trunk.id,
                    secret,
                    pair: Arc::new(PeerLogin {
                        user: username.into(),
                        password: password.reveal().into(),
                    }),
                    expires_at,
                },
            )
        };

        let old = rows
            .old_credentials
            .iter()
            .map(|old| login(&old.username, &old.password, Some(old.expires_at)));

        old.chain([login(&trunk.username, &trunk.password, None)])
            .collect()
    }
}

fn partner_share(rows: &OrgRows) -> Option<PartnerShare> {
    let percent = rows
        .node_share_percent
        .and_then(|set| u8::try_from(set).ok());
    rows.org.partner_id.map(|id| PartnerShare {
        id,
        percent: percent.unwrap_or(PartnerShare::DEFAULT),
    })
}

/// Networks of trunks that the log names at start-up.
const MAX_REPORTED: usize = 20;

/// Logs entries of trunks' IP allow lists that a tenant could no longer make.
fn report_sources(rows: &[OrgRows], policy: &AddressPolicy) {
    let of_org = |rows: &OrgRows| {
        let trunk = rows.trunk.as_ref();
        let reported = trunk.map(|trunk| {
            policy.report_sources(&trunk.allowed_addresses, &trunk.operator_addresses)
        });
        let org = rows.org.id;
        reported.into_iter().flatten().map(move |one| (org, one))
    };
    for (org, (network, refusal)) in rows.iter().flat_map(of_org).take(MAX_REPORTED) {
        tracing::warn!(org.id = %org, %network, reason = refusal.code(), "allowed_addresses of a trunk: the network {refusal}");
    }
}

fn bot_tokens(stored: &BotToken) -> BotTokens {
    let revealed = |token: &Password| Box::<str>::from(token.reveal());
    BotTokens {
        signs: revealed(&stored.token),
        next: stored.next.as_ref().map(|(token, _)| revealed(token)),
        old: stored
            .old
            .as_ref()
            .map(|(token, until)| (revealed(token), *until)),
    }
}

/// Silence of media after which a peer is asked, of the agents that have their own.
fn media_silences(rows: &OrgRows) -> HashMap<Uuid, Duration> {
    let own = rows.agents.iter().filter_map(|agent| {
        let seconds = agent.media_timeout_s?;
        Some((agent.id, Duration::from_secs(seconds.into())))
    });
    own.collect()
}

/// Agents whose runtime was set by the operator's command line.
fn operators_runtimes(rows: &OrgRows) -> HashSet<Uuid> {
    let set = rows
        .agents
        .iter()
        .filter(|agent| agent.is_runtime_by_operator());
    set.map(|agent| agent.id).collect()
}

fn touched(change: &Change) -> Option<Uuid> {
    match change {
        Change::Org(org) => Some(*org),
        Change::OrgKey { .. }
        | Change::Partner(_)
        | Change::PartnerState(_)
        | Change::Session(_)
        | Change::SigningKeys
        | Change::Contacts(_) => None,
    }
}

/// Returns true if the change concerns orgs that it doesn't name.
const fn touches_many(change: &Change) -> bool {
    matches!(change, Change::PartnerState(_))
}

/// Input of the four routing steps. A number without verification is ignored, listed or not.
fn routing(rows: &OrgRows) -> trunkline_routing::Org {
    let verified = || {
        rows.numbers
            .iter()
            .filter(|number| number.verified_at.is_some())
    };

    let numbers: HashSet<_> = verified().map(|number| number.number).collect();
    let trunk = rows.trunk.as_ref().map(|trunk| trunkline_routing::Trunk {
        id: trunk.id,
        numbers: trunk
            .numbers
            .iter()
            .copied()
            .filter(|number| numbers.contains(number))
            .collect(),
        default_country: trunk.default_country,
        max_concurrent_calls: trunk.max_concurrent_calls,
    });

    trunkline_routing::Org {
        id: rows.org.id,
        agents: rows.agents.iter().map(routing_agent).collect(),
        held: verified()
            .filter_map(|number| Some((number.number, number.agent_id?)))
            .collect(),
        numbers,
        trunk,
        max_concurrent_calls: most_calls(rows),
    }
}

/// Returns the org's limit of calls at once; `None` where nobody has set one.
fn most_calls(rows: &OrgRows) -> Option<u32> {
    let most = rows
        .limits
        .of(OrgLimit::Calls)
        .in_force(OrgLimit::MOST_CALLS);
    (most < OrgLimit::MOST_CALLS).then_some(most)
}

fn routing_agent(agent: &trunkline_store::Agent) -> trunkline_routing::Agent {
    trunkline_routing::Agent {
        id: agent.id,
        name: agent.name.as_str().into(),
        inbound: agent.kind == AgentKind::Inbound,
        enabled: agent.enabled,
        max_concurrent_calls: agent.max_concurrent_calls,
        created: i64::try_from(agent.created_at.as_micros()).unwrap_or(i64::MAX),
    }
}

/// Transfer destinations by agent.
fn destinations(rows: &OrgRows) -> HashMap<Uuid, Arc<[Destination]>> {
    let mut assigned: HashMap<Uuid, Vec<Destination>> = HashMap::new();
    for (agent, destination) in &rows.destinations {
        assigned
            .entry(*agent)
            .or_default()
            .push(destination.clone());
    }
    let of_agents = rows.agents.iter().filter_map(|agent| {
        let own = assigned.remove(&agent.id).unwrap_or_default();
        let own = Destination::of_agent(own, agent.handoff_phone_number);
        (!own.is_empty()).then(|| (agent.id, own.into()))
    });
    of_agents.collect()
}

fn trunk_view(trunk: &InboundTrunk) -> TrunkView {
    TrunkView {
        id: trunk.id,
        krisp_enabled: trunk.krisp_enabled,
        rtp_from_any_address: trunk.rtp_from_any_address,
        username: trunk.username.as_str().into(),
        refer_to: trunk.refer_to_format,
        refer_host: trunk.refer_host.as_deref().map(Into::into),
        refer_headers_in_uri: trunk.refer_headers_in_uri,
        transfer_way: trunk.transfer_way,
        bridge_when_refer_fails: trunk.bridge_when_refer_fails,
        keeps_caller: trunk.refer_kept_caller_at.is_some(),
    }
}

/// Outbound routes by agent.
fn outbound_routes(
    rows: &OrgRows,
    outbound: &[Arc<OutboundRoute>],
) -> HashMap<Uuid, Arc<OutboundRoute>> {
    let trunks: HashMap<Uuid, &Arc<OutboundRoute>> =
        outbound.iter().map(|trunk| (trunk.id, trunk)).collect();
    rows.agents
        .iter()
        .filter_map(|agent| {
            let trunk = trunks.get(&agent.outbound_trunk_id?)?;
            Some((agent.id, Arc::clone(trunk)))
        })
        .collect()
}

fn outbound_route(trunk: &OutboundTrunk, tied: &TiedPeers) -> Arc<OutboundRoute> {
    let settings = &trunk.settings;
    let host = settings.peer.as_ref().map(|(host, _)| tied.namer_of(host));
    let login = settings.credentials.as_ref().map(|(user, password)| {
        Arc::new(PeerLogin {
            user: user.as_str().into(),
            password: password.reveal().into(),
        })
    });

    Arc::new(OutboundRoute {
        org: trunk.org_id,
        id: trunk.id,
        peer: settings
            .peer
            .as_ref()
            .map(|(host, port)| (host.as_str().into(), *port)),
        named: host.unwrap_or_default(),
        transport: settings.transport,
        login,
        realms: Arc::new(AuthRealms::new(
            settings.auth_realm.as_deref(),
            &trunk.auth_realms,
            settings.digest_require_qop,
        )),
        caller_number: settings.caller_number,
        from_host: settings.from_host.as_deref().map(Into::into),
        p_asserted_identity: settings.p_asserted_identity,
        user_phone: settings.user_phone,
        register: settings.register,
        max_concurrent_calls: settings.max_concurrent_calls,
        calls_per_second: settings.calls_per_second,
        transfer_way: settings.transfer_way,
        keeps_caller: trunk.refer_kept_caller_at.is_some(),
    })
}
