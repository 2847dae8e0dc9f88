//! Runtimes that challenge: the agent's own user name and password answer them, at the runtime's address only.

use std::path::Path;

use serde_json::{Value, json};

use crate::calls::challenges::{challenged, is_proof};
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::leg::{
    ATTACKER, Agent, HONEST, Harvest, Leg, WITHOUT_QOP, in_force, inbound_by, refuse, with_runtime,
    with_sdp,
};
use trunkline_testkit::message::SDP;
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Message, Peer, proves};

const PASSWORD: &str = "rabbit-hole-7";

fn pair() -> Credentials {
    Credentials {
        username: "acme".to_owned(),
        password: PASSWORD.to_owned(),
    }
}

/// Gives the first agent's runtime the pair; returns the agent as it is shown then.
fn log_in(daemon: &Daemon, agent: &Agent) -> Value {
    let runtime = json!({
        "type": "sip", "uri": format!("sip:agent@{}", agent.end.own), "username": "acme", "password": PASSWORD,
    });
    let path = format!("/phone/{}", daemon.setup.first_agent);
    let (status, shown) = daemon.change("PATCH", &path, &json!({"runtime": runtime}));
    assert_eq!(status, 200, "{shown}");
    in_force(daemon);
    shown
}

/// Waits for an INVITE that has this header.
fn with(agent: &Agent, name: &str) -> Message {
    let is_meant =
        |message: &Message| message.is_request("INVITE") && message.header(name).is_some();
    agent.end.next(name, is_meant)
}

/// Connects a call whose runtime has two realms and whose 2xx has `lines`.
fn answered(daemon: &Daemon, agent: &Agent, pair: &Credentials, lines: &str) -> (Leg, Leg) {
    let accept = |bare: Message| {
        assert_eq!(bare.header("Authorization"), None, "{bare:?}");
        refuse(&agent.end, &bare, WITHOUT_QOP);
        let first = with(agent, "Authorization");
        assert!(proves(&first, "Authorization", "INVITE", pair), "{first:?}");
        assert_eq!(first.header("Call-ID"), bare.header("Call-ID"));
        assert_eq!(first.header("CSeq"), Some("2 INVITE"));
        assert_eq!(first.body(), SDP.replace("\r\n", "\n").trim_end());
        let edge = "Proxy-Authenticate: Digest realm=\"edge\", nonce=\"e\", qop=\"auth\"\r\n";
        agent
            .end
            .reply(&first, "407 Proxy Authentication Required", edge);
        let both = with(agent, "Proxy-Authorization");
        for header in ["Authorization", "Proxy-Authorization"] {
            assert!(proves(&both, header, "INVITE", pair), "{both:?}");
        }
        with_sdp(&agent.end, &both, lines);
        both
    };

    let caller = daemon.credentials();
    inbound_by(daemon, agent, Some(&caller), (None, None), accept)
}

fn files_hold(folder: &Path, text: &str) -> bool {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| match path.is_dir() {
        true => files_hold(&path, text),
        false => {
            // The file may have been removed since it was listed.
            let octets = std::fs::read(&path).unwrap_or_default();
            memchr::memmem::find(&octets, text.as_bytes()).is_some()
        }
    })
}

#[test]
fn a_runtime_is_answered_with_its_agents_own_pair() {
    let (daemon, agent) = with_runtime();
    let reflections = Harvest::fetched(&daemon).reflections();
    let shown = log_in(&daemon, &agent);
    assert_eq!(shown["runtime"]["username"], "acme", "{shown}");
    assert!(!shown.to_string().contains(PASSWORD), "{shown}");

    // The runtime itself: inside the call only with qop.
    let home = format!("Contact: <sip:{}>\r\n", agent.end.own);
    let (pbx, runtime) = answered(&daemon, &agent, &pair(), &home);
    for method in ["INFO", "UPDATE", "INVITE"] {
        let proofs = challenged(&pbx, &runtime, &agent.end, method, &[WITHOUT_QOP]);
        assert!(proofs.is_empty(), "{method}: {proofs:?}");
        let proofs = challenged(&pbx, &runtime, &agent.end, method, &[HONEST]);
        assert!(is_proof(&proofs, method, &pair()), "{method}: {proofs:?}");
    }
    let proofs = challenged(&pbx, &runtime, &agent.end, "BYE", &[HONEST]);
    assert!(is_proof(&proofs, "BYE", &pair()), "{proofs:?}");

    // A peer behind the runtime's proxy, and one behind its Contact.
    for stays in [true, false] {
        let attacker = Peer::on(ATTACKER, daemon.sip());
        let route = match stays {
            true => format!("Record-Route: <sip:{};lr>\r\n", agent.end.own),
            false => String::new(),
        };
        let lines = format!("{route}Contact: <sip:{}>\r\n", attacker.own);
        let (pbx, runtime) = answered(&daemon, &agent, &pair(), &lines);
        let at = if stays { agent.end.clone() } else { attacker };
        for asked in reflections.iter().map(String::as_str).chain([HONEST]) {
            for method in ["INFO", "UPDATE", "INVITE"] {
                let proofs = challenged(&pbx, &runtime, &at, method, &[asked]);
                assert!(proofs.is_empty(), "{method}, {asked}: {proofs:?}");
            }
        }
        let proofs = challenged(&pbx, &runtime, &at, "BYE", &[HONEST]);
        assert!(proofs.is_empty(), "{proofs:?}");
    }

    // The operator's command changes the pair only; the password comes from a file.
    let setup = &daemon.setup;
    let file = setup.folder.path().join("secret");
    std::fs::write(&file, "through the looking-glass\n").expect("it can be written");
    let file = file.to_str().expect("a path");
    let agent_id = &setup.first_agent;
    setup.run(&[
        "agent",
        "update",
        agent_id,
        "--org",
        &setup.org,
        "--runtime-username",
        "alice",
        "--runtime-password-file",
        file,
        "--json",
    ]);
    setup.settle();
    let alice = Credentials {
        username: "alice".to_owned(),
        password: "through the looking-glass".to_owned(),
    };
    let (pbx, runtime) = answered(&daemon, &agent, &alice, &home);
    challenged(&pbx, &runtime, &agent.end, "BYE", &[]);

    for call in daemon.records(4) {
        assert_eq!(call["status"], "completed", "{call}");
    }
    for password in [PASSWORD, &alice.password] {
        assert!(!files_hold(&setup.folder.path().join("data"), password));
        assert!(!daemon.log().contains(password));
    }
}

/// A runtime without a pair doesn't get the pair of the agent's trunk.
#[test]
fn a_runtime_without_a_pair_gets_no_digest() {
    let setup = DaemonSetup::new();
    setup.allow("127.0.0.1/32");

    let agent = Agent::new(Peer::new(setup.sip));
    setup.runtime(&setup.first_agent, &format!("sip:agent@{}", agent.end.own));

    let daemon = setup.serve();
    crate::calls::challenges::trunk_with(&daemon, Peer::new(daemon.sip()).own, &json!({}));

    let caller = Peer::new(daemon.sip());
    let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
    let dialog = Dialog::calling(&uri, "x", "bare", &caller);
    caller.send(dialog.request(&caller, (1, "INVITE"), "", SDP));
    refuse(&agent.end, &agent.next(), HONEST);

    let refused = caller.outcome("1 INVITE");
    assert!(refused.status() >= Some(400), "{refused:?}");
    assert_eq!(refused.header("WWW-Authenticate"), None, "{refused:?}");

    while let Some(message) = agent.end.soon() {
        assert_eq!(message.header("Authorization"), None, "{message:?}");
    }
}
