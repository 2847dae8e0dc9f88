//! Calls to runtimes whose name servers fail.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::json;
use trunkline_testkit::dns::{Fault, Faulty, Record};
use trunkline_testkit::probe::Probe;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Responder, http};

const CALLER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A daemon whose first agent has a runtime with a host name, the server of that name, and the runtime, which answers 486.
struct Named {
    daemon: Daemon,
    names: Faulty,
    runtime: Responder,
}

impl Named {
    fn start(fault: Fault) -> Self {
        let runtime = Responder::busy();
        let local = Record::Address(Ipv4Addr::LOCALHOST);
        let names = Faulty::serve(vec![("bot.test", local)], fault);
        let nameservers = names.address.to_string();
        let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &nameservers);
        setup.dedicate(&CALLER.to_string());
        let uri = format!("sip:x@bot.test:{}", runtime.address.port());
        setup.runtime(&setup.first_agent, &uri);
        Self {
            daemon: setup.serve(),
            names,
            runtime,
        }
    }

    /// Places a call; returns its final status.
    fn call(&self) -> Option<u16> {
        let agent = &self.daemon.setup.first_agent;
        Probe::new(CALLER, self.daemon.sip())
            .call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"))
    }
}

/// RFC 8305 §3: addresses that arrived are used; the daemon doesn't wait for the other family's.
#[test]
fn a_name_server_that_drops_ipv6_questions_loses_no_call() {
    let named = Named::start(Fault::DropsAaaa);
    assert_eq!(named.call(), Some(486), "{}", named.daemon.log());
    assert_eq!(named.runtime.taken(), 1);
}

/// RFC 8767: stale addresses are used.
#[test]
fn a_known_name_is_called_while_its_name_server_is_silent() {
    let named = Named::start(Fault::Silent);
    assert_eq!(named.call(), Some(486));
    named.names.begin_to_fail();
    assert_eq!(named.call(), Some(486), "{}", named.daemon.log());
    assert_eq!(named.call(), Some(486));
    assert_eq!(named.runtime.taken(), 3);
}

/// RFC 9520: the failure is cached for seconds, so the next call neither waits nor queries.
#[test]
fn a_failure_of_a_name_server_is_remembered() {
    let named = Named::start(Fault::Fails);
    named.names.begin_to_fail();
    assert_eq!(named.call(), Some(480));
    let asked = named.names.asked();
    assert!(asked > 0);
    assert_eq!(named.call(), Some(480));
    assert_eq!(named.names.asked(), asked);
    assert_eq!(named.runtime.taken(), 0);
}

const GREEDY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Hosts of one org, each with so many services, each at so many silent names.
const HOSTS: usize = 24;
const FAN: usize = 8;

/// One org's hosts lead to thousands of names without an answering server, and its PBX calls them all. A call to another org's runtime, at a name
/// that was never looked up before, is served.
#[test]
fn names_of_one_org_take_nothing_from_the_others() {
    let local = Record::Address(Ipv4Addr::LOCALHOST);
    let fixed = |text: String| -> &'static str { text.leak() };
    let mut table = vec![];
    for victim in 0..HOSTS {
        table.push((fixed(format!("v{victim}.test")), local.clone()));
    }

    for host in 0..HOSTS {
        for service in 0..FAN {
            let of_service = fixed(format!("s{service}.h{host}.test"));
            let pointer = Record::Pointer(1, "SIP+D2U", of_service);
            table.push((fixed(format!("h{host}.test")), pointer));
            for at in 0..FAN {
                let silent = fixed(format!("t{at}.s{service}.h{host}.silent"));
                table.push((of_service, Record::Service(1, 5060, silent)));
            }
        }
    }

    let names = Faulty::serve(table, Fault::DropsUnder(".silent"));
    let nameservers = names.address.to_string();
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &nameservers);
    setup.dedicate(&CALLER.to_string());

    let greedy = setup.run(&["org", "create", "--name", "Greedy", "--json"]);
    let greedy = greedy["id"].as_str().expect("an id").to_owned();
    let source = GREEDY.to_string();
    setup.run(&["trunk", "dedicate", &source, "--org", &greedy, "--json"]);
    let key = setup.run(&["key", "create", "--org", &greedy, "--json"]);
    let key = key["api_key"].as_str().expect("a key").to_owned();

    let runtime = Responder::busy();
    let daemon = setup.serve();
    let agents: Vec<String> = (0..HOSTS)
        .map(|host| {
            let agent = json!({
                "name": format!("h{host}"), "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": false,
                "runtime": {"type": "sip", "uri": format!("sip:x@h{host}.test")},
            });
            let (status, made) = http::change("POST", daemon.setup.http, "/phone", &key, &agent);
            assert_eq!(status, 201, "{made}");
            made["id"].as_str().expect("an id").to_owned()
        })
        .collect();

    std::thread::scope(|scope| {
        for agent in &agents {
            let sip = daemon.sip();
            scope.spawn(move || {
                let line = format!("X-PLATFORM-AGENT-ID: {agent}");
                Probe::new(GREEDY, sip).call("someone", &line);
            });
        }
        let is_asked = || (names.asked() > 400).then_some(());
        let asked = Deadline::after(Duration::from_secs(30)).poll(is_asked);
        assert!(asked.is_some(), "{} questions", names.asked());

        for victim in 0..4 {
            let agent = &daemon.setup.first_agent;
            let uri = format!("sip:x@v{victim}.test:{}", runtime.address.port());
            let change = json!({"runtime": {"type": "sip", "uri": uri}});
            let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
            assert_eq!(status, 200, "{body}");
            let answered = Probe::new(CALLER, daemon.sip())
                .call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"));
            assert_eq!(answered, Some(486), "{victim}: {}", daemon.log());
        }
    });
    assert_eq!(runtime.taken(), 4);
}
