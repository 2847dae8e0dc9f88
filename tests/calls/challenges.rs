//! Peers that challenge our requests: the right ones get the digest of their own pair, and all others get none.
//!
//! All ends are bare sockets. The attacker has an address of its own; a proxy that relays its 401 sends it from the proxy's address.

use std::collections::HashSet;
use std::net::SocketAddr;

use serde_json::{Value, json};

use trunkline_testkit::kamailio::{self, Kamailio};
use trunkline_testkit::leg::{
    ATTACKER, Agent, HONEST, Harvest, Leg, PATIENCE, WITHOUT_QOP, in_force, inbound, recorded,
    refuse, with_runtime, with_sdp,
};
use trunkline_testkit::{
    Credentials, Daemon, DaemonSetup, Deadline, Message, Peer, Runtime, proves, tools,
};

/// Another challenge of the same trusted peer.
const ANEW: &str = "realm=\"pbx.example\", nonce=\"another\", qop=\"auth\"";

/// Makes `asker` send a request, challenges it at `at` (an address of `peer`) with each of these in turn, and returns the resulting requests with
/// credentials. The last of them is accepted.
pub(crate) fn challenged(
    asker: &Leg,
    peer: &Leg,
    at: &Peer,
    method: &str,
    challenges: &[&str],
) -> Vec<Message> {
    let number = asker.ask(method);
    let mut pending = challenges.iter();
    let (mut proofs, mut is_first, mut options) = (Vec::new(), true, None);

    let settled = Deadline::after(PATIENCE).poll(|| {
        if let Some(message) = at.soon() {
            if message.is_request(method) && peer.is_new(&message) {
                if !std::mem::take(&mut is_first) {
                    proofs.push(message.clone());
                }
                match pending.next() {
                    Some(challenge) => refuse(at, &message, challenge),
                    None if matches!(method, "INVITE" | "UPDATE") => {
                        with_sdp(at, &message, &format!("Contact: <sip:{}>\r\n", at.own));
                    }
                    None => at.answer(&message, "200 OK", "", ""),
                }

                // A BYE is answered to its sender before it is relayed: the peer that answers this has seen the 401 before.
                if method == "BYE" {
                    options = Some(peer.send_by(at, "OPTIONS", "", ""));
                }
            }

            let expected = options.map(|number| format!("{number} OPTIONS"));
            if message.is_final()
                && message.header("CSeq") == expected.as_deref()
                && method == "BYE"
            {
                return Some(());
            }
        }

        let message = asker.end.soon()?;
        let is_meant = message.header("CSeq") == Some(&*format!("{number} {method}"));
        let settles = is_meant && message.is_final() && method != "BYE";
        if settles && method == "INVITE" {
            asker.acknowledge(&message);
        }
        assert!(!settles || !is_first, "{method}: {message:?}");
        settles.then_some(())
    });
    assert!(settled.is_some(), "{method} isn't settled: {proofs:?}");

    proofs
}

pub(crate) fn is_proof(proofs: &[Message], method: &str, pair: &Credentials) -> bool {
    matches!(proofs, [one] if proves(one, "Authorization", method, pair))
}

/// Waits until the transfer of this call has failed.
fn failed_transfer(daemon: &Daemon, call: &str) {
    let path = format!("/phone/calls/{call}");
    let failed = Deadline::after(PATIENCE)
        .poll(|| (daemon.shown(&path)["transfer"]["status"] == "failed").then_some(()));
    assert!(failed.is_some(), "{}", daemon.shown(&path));
}

/// Returns the id of the only call that is up.
fn live(daemon: &Daemon) -> String {
    let calls = daemon.calls();
    let live = calls.iter().find(|call| call["ended_at"].is_null());
    let id = live.expect("a live call")["id"].as_str();
    id.expect("text").to_owned()
}

#[test]
fn a_cancelled_request_is_not_sent_again_with_credentials() {
    let (daemon, agent) = with_runtime();
    let pair = daemon.credentials();
    let (pbx, asker) = inbound(&daemon, &agent, &pair, (None, None));
    let number = asker.ask("INVITE");
    let invite = pbx.end.request("INVITE");
    pbx.end.answer(&invite, "100 Trying", "", "");
    let cancel = asker.dialog.request(&asker.end, (number, "CANCEL"), "", "");
    asker.end.send(cancel);
    let cancel = pbx.end.request("CANCEL");
    pbx.end.answer(&cancel, "200 OK", "", "");
    // The challenge was on its way when the CANCEL came.
    refuse(&pbx.end, &invite, HONEST);

    let ended = asker.end.outcome(&format!("{number} INVITE"));
    assert_eq!(ended.status(), Some(487), "{ended:?}");
    asker.acknowledge(&ended);
    // Whatever the daemon sent to the PBX came before the answer to this.
    let last = pbx.send_by(&pbx.end, "OPTIONS", "", "");
    let last = format!("{last} OPTIONS");
    let sent_again = |message: &Message| {
        message.is_request("INVITE") && message.value("CSeq") != invite.value("CSeq")
    };
    let answered = Deadline::after(PATIENCE).poll(|| {
        let message = pbx.end.soon()?;
        assert!(!sent_again(&message), "{message:?}");
        (message.is_final() && message.answers(&last)).then_some(())
    });
    assert!(answered.is_some(), "the OPTIONS isn't answered");
}

#[test]
fn a_callers_pair_goes_back_to_where_it_was_proven_alone() {
    let (daemon, agent) = with_runtime();
    let reflections = Harvest::fetched(&daemon).reflections();
    let pair = daemon.credentials();

    // Behind a Contact, and behind a proxy on the recorded route, no challenge is answered.
    for is_proxy in [false, true] {
        let attacker = Peer::on(ATTACKER, daemon.sip());
        let route = is_proxy.then_some(attacker.own);
        let (pbx, asker) = inbound(&daemon, &agent, &pair, (Some(attacker.own), route));
        for asked in reflections.iter().map(String::as_str).chain([HONEST]) {
            for method in ["INFO", "UPDATE", "INVITE"] {
                let proofs = challenged(&asker, &pbx, &attacker, method, &[asked]);
                assert!(proofs.is_empty(), "{method}, {asked}: {proofs:?}");
            }
        }
        let proofs = challenged(&asker, &pbx, &attacker, "BYE", &[HONEST]);
        assert!(proofs.is_empty(), "{proofs:?}");
    }

    // Where the pair was proven, another realm is answered once for each request; our own realm and nonces never.
    let (pbx, asker) = inbound(&daemon, &agent, &pair, (None, None));
    for method in ["INFO", "UPDATE", "INVITE"] {
        for asked in &reflections {
            let proofs = challenged(&asker, &pbx, &pbx.end, method, &[asked]);
            assert!(proofs.is_empty(), "{method}, {asked}: {proofs:?}");
        }
        let proofs = challenged(&asker, &pbx, &pbx.end, method, &[HONEST]);
        assert!(is_proof(&proofs, method, &pair), "{method}: {proofs:?}");
    }
    let proofs = challenged(&asker, &pbx, &pbx.end, "BYE", &[HONEST, ANEW]);
    assert!(is_proof(&proofs, "BYE", &pair), "{proofs:?}");

    // A call that was admitted with the pair from before a rotation is answered with that pair.
    let (older, older_asker) = inbound(&daemon, &agent, &pair, (None, None));
    let path = "/phone/sip/inbound-trunk/rotate-credentials";
    let (status, rotated) = daemon.change("POST", path, &json!({}));
    assert_eq!(status, 200, "{rotated}");

    in_force(&daemon);
    let text = |name: &str| rotated[name].as_str().expect("text").to_owned();
    let new = Credentials {
        username: text("auth_username"),
        password: text("auth_password"),
    };
    assert_ne!(new.password, pair.password);

    let (newer, newer_asker) = inbound(&daemon, &agent, &new, (None, None));
    for (pbx, asker, pair) in [(older, older_asker, pair), (newer, newer_asker, new)] {
        let proofs = challenged(&asker, &pbx, &pbx.end, "BYE", &[HONEST]);
        assert!(is_proof(&proofs, "BYE", &pair), "{proofs:?}");
    }
    for call in daemon.records(5) {
        assert_eq!(call["status"], "completed", "{call}");
    }
}

/// PBXs may keep hashes that were made with the realm.
#[test]
fn the_realm_is_the_public_host_and_stays_what_it_was() {
    let realm = |daemon: &Daemon| Harvest::fetched(daemon).realm;
    let mut daemon = DaemonSetup::new().serve();
    assert_eq!(realm(&daemon), "127.0.0.1");
    daemon.restart(&[
        ("TRUNKLINE__SIP__PUBLIC_HOST", "sip.example.com"),
        // No name server of the test knows that name.
        ("TRUNKLINE__MEDIA__IP", "127.0.0.1"),
    ]);
    assert_eq!(realm(&daemon), "127.0.0.1");
    daemon.restart(&[("TRUNKLINE__SIP__REALM", "voice.example.com")]);
    assert_eq!(realm(&daemon), "voice.example.com");
}

/// In a bridged transfer, the destination gets no digest, and the PBX that is called back gets its own pair.
#[test]
fn a_bridged_invite_takes_the_callers_pair_to_its_pbx_alone() {
    let (daemon, agent) = with_runtime();
    let reflections = Harvest::fetched(&daemon).reflections();
    let pair = daemon.credentials();
    let attacker = Peer::on(ATTACKER, daemon.sip());

    // The agent has a trunk, whose pair isn't for the destination either.
    trunk(&daemon, Peer::new(daemon.sip()).own);
    let bridge = json!({"transfer_way": "bridge", "bridge_when_refer_fails": false});
    let (status, changed) = daemon.change("PATCH", "/phone/sip/inbound-trunk", &bridge);
    assert_eq!(status, 200, "{changed}");
    in_force(&daemon);

    daemon.destination("desk", "sip", &format!("sip:desk@{}", attacker.own));
    daemon.destination("sales", "phone", "+442071838751");

    let (pbx, asker) = inbound(&daemon, &agent, &pair, (None, None));
    let call = live(&daemon);
    let transfer = |destination: &str| {
        let path = format!("/phone/calls/{call}/transfer");
        let (status, begun) = daemon.change("POST", &path, &json!({"destination": destination}));
        assert_eq!(status, 202, "{begun}");
    };

    for asked in reflections.iter().map(String::as_str).chain([HONEST]) {
        transfer("desk");
        let invite = attacker.request("INVITE");
        assert_eq!(invite.header("Authorization"), None);
        refuse(&attacker, &invite, asked);
        failed_transfer(&daemon, &call);

        while let Some(message) = attacker.soon() {
            assert_eq!(
                message.header("Authorization"),
                None,
                "{asked}: {message:?}"
            );
        }
    }

    for (asked, is_answered) in [
        (&*reflections[0], false),
        (&*reflections[1], false),
        (HONEST, true),
        (WITHOUT_QOP, true),
    ] {
        transfer("sales");
        let is_bridge = |message: &Message| message.is_request("INVITE");
        let bridge = pbx.end.next("the bridge", is_bridge);
        refuse(&pbx.end, &bridge, asked);

        if is_answered {
            let proven = pbx.end.next("its proof", |message| {
                is_bridge(message) && message.header("Authorization").is_some()
            });
            assert!(
                proves(&proven, "Authorization", "INVITE", &pair),
                "{proven:?}"
            );
            pbx.end.reply(&proven, "486 Busy Here", "");
        }

        failed_transfer(&daemon, &call);
        while let Some(message) = pbx.end.soon() {
            let proof = message.header("Authorization");
            assert_eq!(proof, None, "{asked}: {message:?}");
        }
    }

    let proofs = challenged(&asker, &pbx, &pbx.end, "BYE", &[]);
    assert!(proofs.is_empty(), "{proofs:?}");
}

const ACME: (&str, &str) = ("acme", "wonder land");

pub(crate) fn acme() -> Credentials {
    Credentials {
        username: ACME.0.to_owned(),
        password: ACME.1.to_owned(),
    }
}

/// Makes a trunk with a pair at this address, and has the first agent dial through it.
fn trunk(daemon: &Daemon, carrier: SocketAddr) -> Value {
    trunk_with(daemon, carrier, &json!({}))
}

/// The same with further fields.
pub(crate) fn trunk_with(daemon: &Daemon, carrier: SocketAddr, more: &Value) -> Value {
    let (username, password) = ACME;
    let mut trunk = json!({
        "name": "Carrier", "host": carrier.ip().to_string(), "port": carrier.port(),
        "caller_number": "+442071838750", "username": username, "password": password,
    });
    for (name, value) in more.as_object().expect("fields") {
        trunk[name] = value.clone();
    }

    let (status, trunk) = daemon.change("POST", "/phone/sip/outbound-trunks", &trunk);
    assert_eq!(status, 201, "{trunk}");

    let path = format!(
        "/phone/sip/agents/{}/outbound-trunk",
        daemon.setup.first_agent
    );
    let (status, config) = daemon.change("PUT", &path, &json!({"trunk_id": trunk["id"]}));
    assert_eq!(status, 200, "{config}");

    in_force(daemon);
    trunk
}

/// Orders a call of the first agent; returns its id.
pub(crate) fn order(daemon: &Daemon, number: &str) -> String {
    let order = json!({"phone_agent_id": daemon.setup.first_agent, "phone_number": number});
    let (status, placed) = daemon.change("POST", "/phone/outbound-call", &order);
    assert_eq!(status, 201, "{placed}");
    placed["call_id"].as_str().expect("an id").to_owned()
}

/// The carrier has two realms, a proxy's and its own, and connects the call to `target`, past a proxy that stays on the route or not. Then the
/// runtime answers.
fn outbound(
    daemon: &Daemon,
    carrier: &Agent,
    agent: &Agent,
    (target, stays): (SocketAddr, bool),
) -> (Leg, Leg) {
    order(daemon, "+14155550100");
    let invite = carrier.next();
    assert_eq!(invite.header("Authorization"), None, "{invite:?}");

    let proxys = "Proxy-Authenticate: Digest realm=\"edge\", nonce=\"e\", qop=\"auth\"\r\n";
    carrier
        .end
        .reply(&invite, "407 Proxy Authentication Required", proxys);

    let with = |name: &'static str| {
        move |message: &Message| message.is_request("INVITE") && message.header(name).is_some()
    };
    let proven = carrier
        .end
        .next("the proxy's proof", with("Proxy-Authorization"));
    assert!(
        proves(&proven, "Proxy-Authorization", "INVITE", &acme()),
        "{proven:?}"
    );
    refuse(&carrier.end, &proven, HONEST);

    let proven = carrier.end.next("both proofs", with("Authorization"));
    for header in ["Authorization", "Proxy-Authorization"] {
        assert!(proves(&proven, header, "INVITE", &acme()), "{proven:?}");
    }

    let route = recorded(stays.then_some(carrier.end.own));
    with_sdp(
        &carrier.end,
        &proven,
        &format!("{route}Contact: <sip:{target}>\r\n"),
    );

    let called = agent.answers();
    agent.end.request("ACK");
    (
        Leg::called(&carrier.end, &invite),
        Leg::called(&agent.end, &called),
    )
}

#[test]
fn a_trunks_digest_goes_to_the_trunk_alone() {
    let (daemon, agent) = with_runtime();
    let reflections = Harvest::fetched(&daemon).reflections();
    let carrier = Agent::new(Peer::new(daemon.sip()));
    trunk(&daemon, carrier.end.own);
    let mut calls = 0;

    // Behind a proxy that stays on the route, whose 401 comes from the proxy's address, and behind a Contact.
    for stays in [true, false] {
        let attacker = Peer::on(ATTACKER, daemon.sip());
        let at = if stays {
            carrier.end.clone()
        } else {
            attacker.clone()
        };
        // Both the re-INVITE that joins the two ends and the BYE that follows are challenged; neither comes again with credentials.
        let (callee, _) = outbound(&daemon, &carrier, &agent, (attacker.own, stays));
        let mut refused = HashSet::new();
        let over = Deadline::after(PATIENCE).poll(|| {
            let message = at.soon()?;
            let method = ["INVITE", "BYE"]
                .into_iter()
                .find(|method| message.is_request(method))?;
            assert_eq!(message.header("Authorization"), None, "{message:?}");
            // Without a tag in To, it is a retransmission of the call's first INVITE.
            if message.header("To").is_some_and(|to| to.contains(";tag="))
                && callee.is_new(&message)
            {
                refuse(&at, &message, HONEST);
                refused.insert(method);
            }
            (refused.len() == 2).then_some(())
        });
        assert!(over.is_some(), "{refused:?}");
        calls += 1;
        daemon.records(calls);

        let (callee, asker) = outbound(&daemon, &carrier, &agent, (attacker.own, stays));
        joined(&at, &callee, attacker.own);
        for asked in reflections.iter().map(String::as_str).chain([HONEST]) {
            for method in ["INFO", "UPDATE", "INVITE"] {
                let proofs = challenged(&asker, &callee, &at, method, &[asked]);
                assert!(proofs.is_empty(), "{method}, {asked}: {proofs:?}");
            }
        }
        let proofs = challenged(&asker, &callee, &at, "BYE", &[HONEST]);
        assert!(proofs.is_empty(), "{proofs:?}");
        calls += 1;
        daemon.records(calls);
    }

    // The carrier itself, with and without a proxy of its own on the route.
    for stays in [true, false] {
        let (callee, asker) = outbound(&daemon, &carrier, &agent, (carrier.end.own, stays));
        joined(&carrier.end, &callee, carrier.end.own);
        for method in ["INFO", "UPDATE", "INVITE"] {
            let proofs = challenged(&asker, &callee, &carrier.end, method, &[WITHOUT_QOP]);
            assert!(proofs.is_empty(), "{method}: {proofs:?}");
            let proofs = challenged(&asker, &callee, &carrier.end, method, &[HONEST]);
            assert!(is_proof(&proofs, method, &acme()), "{method}: {proofs:?}");
        }
        let proofs = challenged(&asker, &callee, &carrier.end, "BYE", &[HONEST]);
        assert!(is_proof(&proofs, "BYE", &acme()), "{proofs:?}");
        calls += 1;
        daemon.records(calls);
    }
    assert!(!daemon.log().contains(ACME.1));

    // Kamailio with its defaults: no qop.
    if !tools(&["kamailio", "sipp"]) {
        return;
    }

    let phone = Runtime::new();
    let kamailio = Kamailio::stock(daemon.sip(), phone.address());
    assert_eq!((kamailio::USER, kamailio::PASSWORD), ACME);

    trunk(&daemon, kamailio.address);
    daemon.setup.runtime(&daemon.setup.first_agent, "echo");
    daemon.setup.settle();
    let callee = phone.play("carrier_behind_a_proxy");
    let order = json!({
        "phone_agent_id": daemon.setup.first_agent, "phone_number": "+14155550100", "max_duration_s": 1
    });
    let (status, placed) = daemon.change("POST", "/phone/outbound-call", &order);
    assert_eq!(status, 201, "{placed}");
    callee.finish();
    let record = daemon.records(calls + 1).remove(0);
    assert_eq!(record["reason"], "max_duration", "{record}");
}

/// Accepts the re-INVITE that brings the runtime's media to the callee.
fn joined(at: &Peer, callee: &Leg, target: SocketAddr) {
    let joining = at.next("the re-INVITE", |message| {
        message.is_request("INVITE") && message.header("To").is_some_and(|to| to.contains(";tag="))
    });
    assert!(callee.is_new(&joining));
    with_sdp(at, &joining, &format!("Contact: <sip:{target}>\r\n"));
    at.request("ACK");
}
