//! The outbound trunks of the org under test.

use std::sync::Arc;

use trunkline_model::auth_realms::AuthRealms;
use trunkline_model::auth_realms::KnownRealm;
use trunkline_model::settings::TransferWay;
use trunkline_model::view::{OutboundRoute, PeerLogin};
use trunkline_routing::E164;
use trunkline_sip::flow::Transport;
use uuid::Uuid;

use crate::plan::Agent;

/// What its carriers have challenged with before: only these realms may be answered inside a call.
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
        Agent::Echo | Agent::One | Agent::AllDead => "192.0.2.40",
        Agent::Two => "carrier.example",
        Agent::Nowhere => "nowhere.example",
        Agent::DeadFirst | Agent::Named | Agent::Stream => return None,
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
        register: false,
        max_concurrent_calls: None,
        calls_per_second: None,
        transfer_way: TransferWay::Refer,
        keeps_caller: false,
    }))
}
