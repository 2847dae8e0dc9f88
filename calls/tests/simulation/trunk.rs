//! The outbound trunks of the org under test.

use std::sync::Arc;

use trunkline_model::auth_realms::AuthRealms;
use trunkline_model::auth_realms::KnownRealm;
use trunkline_model::settings::{BotProtocol, OnClose, Runtime, TransferWay, Wake};
use trunkline_model::view::{OutboundRoute, PeerLogin};
use trunkline_routing::E164;
use trunkline_sip::flow::Transport;
use uuid::Uuid;

use crate::builtin;
use crate::node::{RUNTIME_A, RUNTIME_B, UNREACHABLE_PEER};
use crate::plan::Agent;

/// Realms in which its carriers have challenged before: only these may be answered inside a call.
const CARRIER_REALMS: [&str; 1] = ["pbx"];

/// The credentials of the org's trunks, whichever way they lead.
pub(crate) fn peer_login() -> Arc<PeerLogin> {
    Arc::new(PeerLogin {
        user: "trunk-user".into(),
        password: "secret".into(),
    })
}

/// The trunk of an agent; some have none, and hand over by way of the PBX.
pub(crate) fn way_out(agent: Agent) -> Option<Arc<OutboundRoute>> {
    let peer = match agent {
        Agent::Echo
        | Agent::One
        | Agent::AllDead
        | Agent::Bot
        | Agent::FlowThenBot
        | Agent::SipThenBot
        | Agent::DeadThenFlow => "192.0.2.40",
        Agent::Two => "carrier.example",
        Agent::Nowhere => "nowhere.example",
        Agent::DeadFirst
        | Agent::Named
        | Agent::Stream
        | Agent::BotThenSip
        | Agent::BotThenFlow => return None,
    };
    let realms = CARRIER_REALMS.map(|realm| KnownRealm {
        realm: realm.into(),
        offers_qop: true,
    });
    Some(Arc::new(OutboundRoute {
        org: Uuid::from_u128(1),
        realms: Arc::new(AuthRealms::new(None, &realms, false)),
        id: Uuid::from_u128(3),
        peer: Some((peer.into(), 5060)),
        named: Default::default(),
        transport: Transport::Udp,
        login: Some(peer_login()),
        caller_number: E164::parse("+442071838750").expect("a number"),
        from_host: None,
        p_asserted_identity: true,
        user_phone: false,
        register: false,
        max_concurrent_calls: None,
        calls_per_second: None,
        transfer_way: TransferWay::Refer,
        keeps_caller: false,
    }))
}

/// URL of all bots.
pub(crate) const BOT: &str = "wss://bot.example/ws";

/// The runtime of an agent.
pub(crate) fn runtime_of(agent: Agent) -> Runtime {
    let at = |place: &str| format!("sip:{{agent_id}}@{place}").into_boxed_str();
    let (uri, fallbacks) = match agent {
        Agent::Echo => return Runtime::Echo,
        Agent::One => (RUNTIME_A, vec![]),
        Agent::Two => (RUNTIME_A, vec![at(RUNTIME_B)]),
        Agent::DeadFirst => (UNREACHABLE_PEER, vec![at(RUNTIME_B)]),
        Agent::AllDead => (UNREACHABLE_PEER, vec![at(UNREACHABLE_PEER)]),
        Agent::Named => ("runtime.example", vec![]),
        Agent::Nowhere => ("nowhere.example", vec![]),
        Agent::Stream => ("192.0.2.1:5060;transport=tcp", vec![]),
        Agent::SipThenBot => (RUNTIME_A, vec![BOT.into()]),
        Agent::DeadThenFlow => return builtin::sip_then_flow(at(UNREACHABLE_PEER)),
        Agent::FlowThenBot => return builtin::flow_then_bot(),
        Agent::BotThenFlow => return builtin::bot_then_flow(),
        Agent::Bot => return Runtime::web_socket(BOT.into()),
        Agent::BotThenSip => {
            return Runtime::WebSocket {
                uri: BOT.into(),
                protocol: BotProtocol::Twilio,
                fallbacks: vec![at(RUNTIME_B), BOT.into()],
                wake: Wake::Answer,
                on_close: OnClose::NextRuntime,
                status_callback: None,
                status_callback_events: Vec::new(),
                flow: None,
            };
        }
    };

    let mut runtime = Runtime::sip(at(uri));
    if let Runtime::Sip {
        fallbacks: held, ..
    } = &mut runtime
    {
        *held = fallbacks;
    }
    runtime
}
