//! The node under test: the real endpoint and the real calls, driven as a shard drives them, with a virtual clock and a
//! virtual world around.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use trunkline_bounds::NoShare;
use trunkline_calls::core::live::HoldStatus;
use trunkline_calls::core::live::LiveCalls;
use trunkline_calls::dial::outbound::NewOutboundCall;
use trunkline_calls::features::transfer::{DestinationChoice, TransferRequest};
use trunkline_calls::invite::attempts::DnsFault;
use trunkline_calls::limits::Limits;
use trunkline_calls::limits::outbound_limits::{OutboundBounds, OutboundLimits};
use trunkline_calls::parts::target::{Target, UnresolvedTarget};
use trunkline_calls::{CallKey, Calls, Config, Core, Effect, HangUpRequester, Reason};
use trunkline_model::destinations::Destination;
use trunkline_model::persistent::PersistentMap;
use trunkline_model::record::Fact;
use trunkline_model::settings::{ReferFormat, Runtime, TransferTarget, TransferWay, Via};
use trunkline_model::view::{Login, OrgView, TrunkView, View};
use trunkline_routing as routing;
use trunkline_routing::E164;
use trunkline_sip::auth::{Algorithm, NonceKeys, NonceWindow, Nonces, Secret};
use trunkline_sip::endpoint::{self, Endpoint};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::fault::Fault;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Node as NodeNumber, Slot};
use trunkline_sip::wire::{Framing, lex};
use uuid::Uuid;

use crate::bots::Attached;
use crate::builtin::Playing;
use crate::dice::Dice;
use crate::handover::DESTINATIONS;
use crate::network::Datagram;
use crate::plan::Agent;
use crate::trunk::{peer_login, runtime_of, way_out};

/// The set-up deadline.
pub(crate) const SETUP: Duration = Duration::from_secs(60);
/// The longest call.
pub(crate) const LONGEST: Duration = Duration::from_secs(900);
const NONCE_LIFETIME: Duration = Duration::from_secs(30);
pub(crate) const REALM: &str = "trunkline";

pub(crate) const ORG: Uuid = Uuid::from_u128(1);
pub(crate) const NODE: &str = "203.0.113.5:5060";
pub(crate) const RUNTIME_A: &str = "192.0.2.1:5060";
pub(crate) const RUNTIME_B: &str = "192.0.2.2:5060";
/// Address of the carrier that outbound trunks lead to.
pub(crate) const CARRIER: &str = "192.0.2.40:5060";
/// Address at which no host answers; the network reports it.
pub(crate) const UNREACHABLE_PEER: &str = "192.0.2.66:5060";

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Requests of the node to the world, for whose results it waits.
#[derive(Debug)]
pub(crate) enum Wish {
    /// With the session by which the bot names the call.
    DialBot(CallKey, Uuid),
    /// With the serial, and whether it is the call's first sound.
    PlaySound(CallKey, u32, bool),
    HandOff(CallKey),
    Resolve(CallKey, UnresolvedTarget),
    FindContact(CallKey),
}

/// State that the world keeps when a node dies.
#[derive(Clone, Debug)]
struct Kept {
    minter: Minter,
    nonces: Arc<Nonces>,
    view: Arc<View>,
    config: Arc<Config>,
    no_media: bool,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) calls: Calls,
    pub(crate) limits: Arc<Limits>,
    pub(crate) live: Arc<LiveCalls>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) wishes: Vec<Wish>,
    /// Open media, by call.
    pub(crate) media: HashSet<CallKey>,
    pub(crate) bots: Attached,
    pub(crate) playing: Playing,
    /// Outcomes of bots, for the tally.
    pub(crate) bots_seen: Vec<&'static str>,
    /// Faults: commands to media that isn't open, and holds without an end.
    pub(crate) faults: Vec<String>,
    /// Outcomes of holds, for the tally.
    pub(crate) holds: Vec<&'static str>,
    pub(crate) endpoint: Endpoint,
    kept: Kept,
}

impl Node {
    pub(crate) fn new(
        dice: &mut Dice,
        agent_limit: Option<u32>,
        no_media: bool,
        now: Moment,
    ) -> Self {
        let kept = Kept {
            minter: Minter::new(NodeNumber(7), [7; 16]),
            nonces: Arc::new(Nonces::new(
                NonceKeys {
                    node: [3; 32],
                    deployment: [0; 32],
                },
                NONCE_LIFETIME,
            )),
            view: Arc::new(view(agent_limit)),
            config: Arc::new(config()),
            no_media,
        };
        Self::boot(kept, dice, now)
    }

    /// A new process of the same node: what was kept on disk is there, everything else is gone.
    pub(crate) fn restarted(&self, dice: &mut Dice, now: Moment) -> Self {
        Self::boot(self.kept.clone(), dice, now)
    }

    fn boot(kept: Kept, dice: &mut Dice, now: Moment) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&dice.bits().to_be_bytes());

        let (limits, live) = (Limits::new(10_000), LiveCalls::new());
        let core = Core::new(
            Arc::clone(&kept.config),
            kept.minter.clone(),
            (
                Arc::clone(&kept.nonces),
                Arc::new(NonceWindow::new(NONCE_LIFETIME, 1_000)),
            ),
            (Arc::clone(&limits), outbound_limits()),
            Arc::clone(&live),
            now,
        );

        let endpoint = Endpoint::new(
            endpoint::Config {
                minter: kept.minter.clone(),
                t1: Duration::from_millis(500),
                t2: Duration::from_secs(4),
                t4: Duration::from_secs(5),
                server: "Trunkline".into(),
                sent_by: vec![NODE.into(), NODE.into()],
                max_transactions: 10_000,
            },
            Entropy::from_seed(seed),
        );

        Self {
            calls: Calls::new(core),
            limits,
            live,
            facts: Vec::new(),
            wishes: Vec::new(),
            media: HashSet::new(),
            faults: Vec::new(),
            bots: Attached::default(),
            playing: Playing::default(),
            bots_seen: Vec::new(),
            holds: Vec::new(),
            endpoint,
            kept,
        }
    }

    /// Has the org's trunk allow a network for a number. Before the first message.
    pub(crate) fn allow(&mut self, network: &str, number: &str) {
        let view = Arc::get_mut(&mut self.kept.view).expect("nothing else has the view");
        let network = network.parse().expect("a network");
        view.allowed = std::iter::once((network, ORG)).collect();
        let mut org = OrgView::clone(view.org(ORG).expect("the org"));
        let trunk = org.routing.trunk.as_mut().expect("a trunk");
        trunk.numbers = vec![E164::parse(number).expect("a number")];
        view.orgs.insert(ORG, Arc::new(org));
    }

    pub(crate) const fn view(&self) -> &Arc<View> {
        &self.kept.view
    }

    /// One message, as a shard takes it.
    pub(crate) fn receive(&mut self, datagram: &Datagram, now: Moment) {
        let flow = flow_of(datagram.from, datagram.connection);
        let framing = match datagram.connection {
            Some(_) => Framing::Stream,
            None => Framing::Datagram,
        };
        let view = Arc::clone(&self.kept.view);
        match lex(&datagram.octets, framing) {
            Ok(message) => {
                let received = self.endpoint.receive_message(message, flow, now);
                self.calls
                    .handle(&mut self.endpoint, &view, flow, received, now);
            }
            Err(malformed) => self.endpoint.receive_malformed(&malformed, &flow),
        }
        self.settle(now);
    }

    /// Nobody is at that address, or the connection is gone.
    pub(crate) fn lost(&mut self, peer: SocketAddr, connection: Option<u32>, now: Moment) {
        let flow = flow_of(peer, connection);
        self.endpoint.handle_flow_lost(&flow, &Fault::Closed, now);
        self.calls.handle_flow_lost(&flow, 0);
        self.settle(now);
    }

    pub(crate) fn resolved(&mut self, key: CallKey, targets: Vec<Target>, now: Moment) {
        let found = match targets.is_empty() {
            true => Err(DnsFault::NoAddress),
            false => Ok(targets),
        };
        self.calls
            .handle_resolved(&mut self.endpoint, key, found, now);
        self.settle(now);
    }

    pub(crate) fn contact_found(&mut self, key: CallKey, contact: Option<Uuid>, now: Moment) {
        self.calls
            .handle_contact(&mut self.endpoint, key, contact, now);
        self.settle(now);
    }

    pub(crate) fn hang_up_all(&mut self, now: Moment) {
        self.calls
            .hang_up_all(&mut self.endpoint, Reason::Operator, now);
        self.settle(now);
    }

    /// Places a call, as the API does.
    pub(crate) fn place(&mut self, order: &NewOutboundCall, now: Moment) {
        let view = Arc::clone(&self.kept.view);
        let slot = Slot::new(5).expect("a slot");
        // A node that drains refuses.
        let _refused = self
            .calls
            .place(&mut self.endpoint, &view, slot, order, now);
        self.settle(now);
    }

    /// Requests a transfer of the caller, as the API does. The node may refuse it.
    pub(crate) fn hand_over(&mut self, call: Uuid, destination: usize, now: Moment) {
        let view = Arc::clone(&self.kept.view);
        let ask = TransferRequest {
            chosen: DestinationChoice::Name(DESTINATIONS[destination].into()),
            report: trunkline_model::handoff::Report::default(),
        };
        let _refused = self
            .calls
            .transfer(&mut self.endpoint, &view, call, ask, now);
        self.settle(now);
    }

    /// Ends a call, as the API does.
    pub(crate) fn hang_up(&mut self, call: Uuid, now: Moment) {
        self.calls
            .hang_up_by_id(&mut self.endpoint, call, HangUpRequester::Operator, now);
        self.settle(now);
    }

    /// Holds or resumes a call, as the API does. Returns the number of that change, if it begins.
    pub(crate) fn hold(&mut self, call: Uuid, held: bool, now: Moment) -> Option<u32> {
        let begun = self.calls.hold(&mut self.endpoint, call, held, now);
        self.settle(now);
        begun.ok().flatten()
    }

    /// By the last look the change of this number has come to an end, unless its call has.
    pub(crate) fn settled(&mut self, call: Uuid, number: u32, last: bool) {
        let Some(live) = self.live.one(ORG, call).filter(|live| !live.is_over()) else {
            return;
        };

        match (live.hold.settled >= number, live.hold) {
            (false, _) if last => self
                .faults
                .push(format!("{call}: hold {number} has no end")),
            (false, _) => self.holds.push("hold under way"),
            (
                true,
                HoldStatus {
                    refused: Some(_), ..
                },
            ) => self.holds.push("hold refused"),
            (true, HoldStatus { held: true, .. }) => self.holds.push("held"),
            (true, HoldStatus { held: false, .. }) => self.holds.push("resumed"),
        }
    }

    /// The callers of media of ours are silent: they are asked whether they are still there.
    pub(crate) fn silence(&mut self, now: Moment) {
        let mut open: Vec<CallKey> = self.media.iter().copied().collect();
        open.sort_by_key(|key| format!("{key:?}"));
        for key in open {
            self.calls.handle_media_silent(&mut self.endpoint, key, now);
        }
        self.settle(now);
    }

    pub(crate) fn next_timeout(&self) -> Option<Moment> {
        let moments = [self.endpoint.next_timeout(), self.calls.next_timeout()];
        moments.into_iter().flatten().min()
    }

    pub(crate) fn timeouts(&mut self, now: Moment) {
        self.endpoint.handle_timeout(now);
        self.settle(now);
        self.calls.handle_timeout(&mut self.endpoint, now);
        self.settle(now);
    }

    /// Takes events of the endpoint, and effects of the calls.
    pub(crate) fn settle(&mut self, now: Moment) {
        while let Some(event) = self.endpoint.poll_event() {
            self.calls.handle_event(&mut self.endpoint, event, now);
        }
        while let Some(effect) = self.calls.poll_effect() {
            self.carry_out(effect, now);
        }
    }

    fn carry_out(&mut self, effect: Effect, now: Moment) {
        match effect {
            Effect::Resolve { call, wanted, .. } => self.wishes.push(Wish::Resolve(call, wanted)),

            Effect::Connect {
                call,
                target,
                datagram,
                ..
            } => {
                let targets = vec![target.reached_by(datagram)];
                self.calls
                    .handle_resolved(&mut self.endpoint, call, Ok(targets), now);
            }

            Effect::FindContact { call, .. } => self.wishes.push(Wish::FindContact(call)),
            Effect::OpenMedia { call, .. } => {
                let local = match self.kept.no_media {
                    true => Err(NoShare::Full),
                    false => Ok(address("203.0.113.5:20000")),
                };
                if local.is_ok() && !self.media.insert(call) {
                    self.faults.push("media opened twice".into());
                }
                self.calls
                    .handle_media_open(&mut self.endpoint, call, local, now);
            }
            Effect::UpdateMedia { call, .. } => {
                if !self.media.contains(&call) {
                    self.faults.push("media changed where none is open".into());
                }
            }

            Effect::ProveMedia { call } => {
                if !self.media.contains(&call) {
                    self.faults.push("media proven where none is open".into());
                }
            }

            Effect::DialBot { call, dial } => self.dial_bot(call, dial.session),
            Effect::StartBot { call, answered_at } => self.start_bot(call, answered_at, now),
            Effect::PressKey { call, .. } => self.press_key(call),
            Effect::PlaySound {
                call,
                serial,
                sound,
                ..
            } => self.play_sound(call, serial, &sound),

            Effect::HandOff { call } => self.wishes.push(Wish::HandOff(call)),
            Effect::SpeakCode { .. } => self.faults.push("nobody verifies a number here".into()),
            Effect::CloseMedia { call, .. } => {
                self.bots.close(call);
                self.playing.close(call);
                if !self.media.remove(&call) {
                    self.faults.push("media closed where none is open".into());
                }
            }

            Effect::Fact(fact) => {
                // A call is shown until its end is a row, which here it is at once.
                if let Fact::Ended(ended) = &fact {
                    self.live.forget(ended.call);
                }
                self.facts.push(fact);
            }

            Effect::AuthFailure(_)
            | Effect::UnknownUser(_)
            | Effect::UnansweredChallenge(_)
            | Effect::FailedOver { .. }
            | Effect::Challenged(_)
            | Effect::Traced(..)
            | Effect::Untraced(_)
            | Effect::TurnedAway { .. }
            | Effect::UnknownSource(_)
            | Effect::Proof(_)
            | Effect::StreamSilent { .. }
            | Effect::ResolveHop { .. } => {}
        }
    }

    pub(crate) fn transmits(&mut self) -> Vec<Datagram> {
        let sent = self
            .endpoint
            .transmits()
            .map(|(flow, octets)| Datagram {
                from: address(NODE),
                to: flow.peer,
                connection: flow.transport.is_reliable().then_some(flow.connection),
                octets: octets.to_vec(),
            })
            .collect();
        self.endpoint.clear_transmits();
        sent
    }

    /// Returns what is left over, by name; empty once all is quiet.
    pub(crate) fn left_over(&self) -> Vec<String> {
        let counts = self.endpoint.counts();
        let (tags, timers) = self.calls.left_over();
        let left = [
            ("calls", self.calls.len()),
            ("tags", tags),
            ("timers of calls", timers),
            ("INVITEs received", counts.server_invite),
            ("requests received", counts.server_other),
            ("INVITEs sent", counts.client_invite),
            ("requests sent", counts.client_other),
            ("tombstones", counts.tombstones),
            ("timers", counts.timers),
            ("permits", self.limits.calls()),
            ("live calls", self.live.len()),
            ("open media", self.media.len()),
            ("bots", self.bots.len()),
        ];

        left.into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{count} {what}"))
            .collect()
    }
}

pub(crate) fn flow_of(peer: SocketAddr, connection: Option<u32>) -> Flow {
    let (transport, listener) = match connection {
        Some(_) => (Transport::Tcp, 1),
        None => (Transport::Udp, 0),
    };
    Flow {
        transport,
        listener,
        connection: connection.unwrap_or_default(),
        local: address(NODE),
        peer,
    }
}

/// Addresses of a runtime's name.
pub(crate) fn resolve(wanted: &UnresolvedTarget) -> Vec<Target> {
    let found: &[&str] = match &*wanted.host {
        "runtime.example" => &[RUNTIME_A, RUNTIME_B],
        "carrier.example" => &[CARRIER, "192.0.2.41:5060"],
        _ => &[],
    };
    found
        .iter()
        .map(|at| Target {
            uri: wanted.uri.clone(),
            transport: Transport::Udp,
            address: address(at),
            by: None,
            route: None,
            named: wanted.named,
        })
        .collect()
}

pub(crate) fn agent_id(agent: Agent) -> Uuid {
    let at = Agent::ALL.iter().position(|held| *held == agent);
    Uuid::from_u128(0xa0 + at.expect("all are listed") as u128)
}

fn config() -> Config {
    Config {
        header_prefix: "X-PLATFORM".into(),
        realm: REALM.into(),
        algorithms: vec![Algorithm::Md5],
        default_runtime: Arc::new(Runtime::Echo),
        setup_timeout: SETUP,
        max_duration: LONGEST,
        session_expires: 120,
        dead_peer: Duration::from_secs(300),
        media_silence: Duration::from_secs(30),
        keep_alive: Duration::from_secs(25),
        listeners: vec![
            (Transport::Udp, address(NODE)),
            (Transport::Tcp, address(NODE)),
        ],
        asks_for_proof: true,
        public_listeners: Vec::new(),
        retry_after: 5,
        addresses: Arc::default(),
        trusted_runtimes: vec!["0.0.0.0/0".parse().expect("all")],
        session_tokens: trunkline_calls::trust::token::SessionTokens::new([9; 32]),
        node: NodeNumber(7),
    }
}

fn view(agent_limit: Option<u32>) -> View {
    let (org, trunk) = (ORG, Uuid::from_u128(2));
    let agents = Agent::ALL.iter().zip(1..).map(|(agent, created)| {
        let name = format!("{agent:?}").into();
        let id = agent_id(*agent);
        routing::Agent {
            id,
            name,
            inbound: true,
            enabled: true,
            max_concurrent_calls: agent_limit,
            created,
        }
    });

    let routing = routing::Org {
        id: org,
        agents: agents.collect(),
        held: HashMap::new(),
        numbers: HashSet::new(),
        trunk: Some(routing::Trunk {
            id: trunk,
            numbers: Vec::new(),
            default_country: None,
            max_concurrent_calls: None,
        }),
        max_concurrent_calls: None,
    };

    let runtimes = Agent::ALL
        .iter()
        .map(|agent| (agent_id(*agent), Arc::new(runtime_of(*agent))));
    let login = Login {
        org,
        trunk,
        secret: Arc::new(Secret::new("trunk-user", REALM, "secret")),
        pair: peer_login(),
        expires_at: None,
    };

    let trusted = "198.51.101.0/24".parse().expect("a network");
    View {
        orgs: PersistentMap::from([(
            org,
            Arc::new(OrgView {
                routing,
                runtimes: runtimes.collect(),
                media_silences: Default::default(),
                media_networks: Default::default(),
                operators_runtimes: Default::default(),
                bot_token: None,
                tied: Default::default(),
                suspended: false,
                partner: None,
                trunk: Some(trunk_view(trunk)),
                outbound_routes: Agent::ALL
                    .iter()
                    .filter_map(|agent| Some((agent_id(*agent), way_out(*agent)?)))
                    .collect(),
                outbound: Vec::new(),
                registrations: Default::default(),
                destinations: Agent::ALL
                    .iter()
                    .map(|agent| (agent_id(*agent), destinations().into()))
                    .collect(),
            }),
        )]),
        by_username: [("trunk-user".into(), login)].into(),
        dedicated: std::iter::once((trusted, org)).collect(),
        without_proof: std::iter::once((trusted, org)).collect(),
        ..View::default()
    }
}

fn trunk_view(id: Uuid) -> TrunkView {
    TrunkView {
        id,
        krisp_enabled: false,
        rtp_from_any_address: false,
        username: "trunk-user".into(),
        refer_to: ReferFormat::Sip,
        refer_host: None,
        refer_headers_in_uri: true,
        transfer_way: TransferWay::Refer,
        bridge_when_refer_fails: true,
        keeps_caller: false,
    }
}

fn destinations() -> Vec<Destination> {
    let number = E164::parse("+442071838751").expect("a number");
    let targets = [
        TransferTarget::Phone(number),
        TransferTarget::Sip("sip:desk@192.0.2.50:5060".into()),
    ];
    let named = DESTINATIONS.iter().zip(targets);
    named
        .map(|(name, target)| Destination {
            id: None,
            name: (*name).into(),
            target,
            via: Via::Trunk,
        })
        .collect()
}

/// Bounds that no case meets.
fn outbound_limits() -> Arc<OutboundLimits> {
    OutboundLimits::new(OutboundBounds {
        at_once: 1_000_000,
        per_minute: 1_000_000,
        per_day: 1_000_000,
        prefixes: Vec::new(),
    })
}
