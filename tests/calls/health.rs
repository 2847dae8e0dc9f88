//! Health of peers: a peer that is down costs a caller no time, and one that is up again is called again.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use trunkline_sip::header::uri::{Host, Uri};

use crate::calls::secured::secured;
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::probe::Probe;
use trunkline_testkit::{Authority, DaemonSetup, Deadline, Responder, Runtime, tls, tools};

const PATIENCE: Duration = Duration::from_secs(20);

/// A peer that answers OPTIONS while it is up, and refuses calls with 486.
struct Peer {
    address: SocketAddr,
    answers: Arc<AtomicBool>,
    /// OPTIONS to a host other than its own.
    misled: Arc<AtomicUsize>,
}

impl Peer {
    fn start() -> Self {
        Self::named("127.0.0.1")
    }

    /// Makes a peer that ignores OPTIONS for another host.
    fn named(name: &'static str) -> Self {
        let (answers, misled) = (
            Arc::new(AtomicBool::new(true)),
            Arc::<AtomicUsize>::default(),
        );
        let (says, others) = (Arc::clone(&answers), Arc::clone(&misled));
        let responder = Responder::start(Ipv4Addr::LOCALHOST, move |request| {
            let status = match request.method()? {
                "OPTIONS" => "200 OK",
                "INVITE" => "486 Busy Here",
                _ => return None,
            };
            let request_uri = request.start_line().split(' ').nth(1)?;
            let uri = Uri::parse(request_uri.as_bytes()).expect("a URI");
            let host = match uri.host {
                Host::V4(ip) => ip.to_string(),
                Host::V6(ip) => ip.to_string(),
                Host::Name(name) => String::from_utf8_lossy(name).into_owned(),
            };
            if request.is_request("OPTIONS") && host != name {
                others.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let is_said = says.load(Ordering::Relaxed);
            is_said.then(|| request.reply(status, ""))
        });

        Self {
            address: responder.address,
            answers,
            misled,
        }
    }
}

fn watching(setup: DaemonSetup) -> DaemonSetup {
    setup
        .set("TRUNKLINE__SIP__HEALTH_INTERVAL_S", "1")
        .set("TRUNKLINE__SIP__T1_MS", "40")
}

#[test]
fn an_outbound_trunk_shows_whether_its_peer_answers() {
    let peer = Peer::start();
    let daemon = watching(DaemonSetup::new()).serve();
    let (status, trunk) = daemon.change(
        "POST",
        "/phone/sip/outbound-trunks",
        &json!({
            "name": "carrier", "host": peer.address.ip().to_string(), "port": peer.address.port(),
            "caller_number": "+442079460000", "transport": "udp"
        }),
    );
    assert_eq!(status, 201, "{trunk}");

    let id = trunk["id"].as_str().expect("an id").to_owned();
    let path = format!(
        "/phone/sip/agents/{}/outbound-trunk",
        daemon.setup.first_agent
    );
    assert_eq!(
        daemon.change("PUT", &path, &json!({ "trunk_id": id })).0,
        200
    );

    let becomes = |expected: bool| {
        let path = format!("/phone/sip/outbound-trunks/{id}");
        let seen = Deadline::after(PATIENCE)
            .poll(|| (daemon.shown(&path)["reachable"] == expected).then_some(()));
        assert!(seen.is_some(), "not {expected}: {}", daemon.shown(&path));
    };
    becomes(true);
    peer.answers.store(false, Ordering::Relaxed);
    becomes(false);
    let told = || daemon.log().contains("doesn't answer OPTIONS");
    let told = Deadline::after(PATIENCE).poll(|| told().then_some(()));
    assert!(told.is_some(), "{}", daemon.log());

    let call = json!({"phone_agent_id": daemon.setup.first_agent, "phone_number": "+14155550100"});
    let (status, refused) = daemon.change("POST", "/phone/outbound-call", &call);
    assert_eq!(status, 409, "{refused}");
    assert_eq!(
        refused["message"], "The outbound trunk cannot be reached",
        "{refused}"
    );
    assert!(daemon.calls().is_empty(), "nothing was begun");

    peer.answers.store(true, Ordering::Relaxed);
    becomes(true);
}

#[test]
fn a_call_to_a_runtime_that_was_found_down_fails_as_unreachable() {
    if !tools(&["sipp"]) {
        return;
    }

    // It listens all the time, so no INVITE there would be refused by the kernel.
    let answers = Arc::new(AtomicBool::new(true));
    let says = Arc::clone(&answers);
    let runtime = Responder::start(Ipv4Addr::LOCALHOST, move |request| {
        let is_said = says.load(Ordering::Relaxed);
        is_said.then(|| request.reply("200 OK", ""))
    });
    let setup = watching(DaemonSetup::new());
    let uri = format!("sip:{{agent_id}}@{}", runtime.address);
    setup.runtime(&setup.first_agent, &uri);

    let daemon = setup.serve();

    // Silence counts only after an answer: the second request shows that the first answer has come.
    let asked = || (runtime.requests("OPTIONS").len() > 1).then_some(());
    assert!(Deadline::after(PATIENCE).poll(asked).is_some());
    answers.store(false, Ordering::Relaxed);
    let told = || daemon.log().contains("doesn't answer OPTIONS");
    assert!(
        Deadline::after(PATIENCE)
            .poll(|| told().then_some(()))
            .is_some()
    );

    daemon.caller().play("caller_is_refused").finish();

    let call = daemon.record();
    assert_eq!(call["reason"], "runtime_unreachable", "{call}");
    assert_eq!(runtime.taken(), 0, "the call isn't sent to it");
}

#[test]
fn a_name_that_leads_to_another_orgs_runtime_takes_nothing_from_it() {
    const TRUNK: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    let authority = Authority::new();
    authority.certify("runtime", "honest.test");
    let (own, secure) = (Peer::named("honest.test"), tls::busy(&authority, "runtime"));
    let others = ["b0.test", "b1.test", "b2.test", "b3.test"];
    let names = others.iter().chain(["honest.test", "gone.test"].iter());
    let names = dns::serve(
        names
            .map(|name| (*name, Record::Address(Ipv4Addr::LOCALHOST)))
            .collect(),
    );
    let nameservers = vec![("TRUNKLINE__SIP__NAMESERVERS", names.to_string())];
    let setup = DaemonSetup::with(Ipv4Addr::LOCALHOST.into(), nameservers);
    let (setup, _) = secured(&authority, setup);
    setup.dedicate(&TRUNK.to_string());
    let create = |org: &str, runtime: &str, more: &[&str]| {
        let mut arguments = vec!["agent", "create", "--org", org, "--name", runtime];
        arguments.extend(["--runtime", runtime, "--json"]);
        arguments.extend(more);
        setup.run(&arguments)["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };

    let attacker = setup.run(&["org", "create", "--name", "Attacker", "--json"]);
    let attacker = attacker["id"].as_str().expect("an id");
    for name in others {
        create(
            attacker,
            &format!("sip:x@{name}:{}", own.address.port()),
            &[],
        );
        let tls = format!("sip:x@{name}:{};transport=tls", secure.port());
        create(attacker, &tls, &[]);
    }

    let by_udp = format!("sip:x@honest.test:{}", own.address.port());
    let by_tls = format!("sip:x@honest.test:{};transport=tls", secure.port());
    let gone = format!("sip:x@gone.test:{}", Runtime::new().address().port());
    let agents = [
        create(&setup.org, &by_udp, &[]),
        create(&setup.org, &by_tls, &[]),
        create(&setup.org, &gone, &["--fallback", &by_udp]),
    ];
    let daemon = watching(setup).serve();
    let found_down = |name: &str| {
        let log = daemon.log();
        let mut lines = log.lines();
        lines.any(|line| line.contains("doesn't answer OPTIONS") && line.contains(name))
    };
    let until = |what: &str, seen: &dyn Fn() -> bool| {
        let came = Deadline::after(PATIENCE).poll(|| seen().then_some(()));
        assert!(came.is_some(), "{what}: {}", daemon.log());
    };
    until("nobody proves the attacker's names", &|| {
        others.iter().all(|name| found_down(name))
    });
    let asked = own.misled.load(Ordering::Relaxed);
    until("the attacker's names stay unanswered", &|| {
        own.misled.load(Ordering::Relaxed) > asked + 3 * others.len()
    });
    until("the org's own dead runtime is found", &|| {
        found_down("gone.test")
    });
    assert!(!found_down("honest.test"), "{}", daemon.log());

    let probe = Probe::new(TRUNK, daemon.sip());
    for _ in 0..5 {
        for agent in &agents {
            let status = probe.call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"));
            assert_eq!(status, Some(486), "{}", daemon.log());
        }
    }
}
