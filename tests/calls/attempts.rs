//! Targets that fail over real sockets: each leads to the fallback, and the call's record has the outcome of each attempt.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::outbound::{give_trunk, order};
use crate::calls::secured::secured;
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::probe::Probe;
use trunkline_testkit::process::free_port;
use trunkline_testkit::{Authority, Daemon, DaemonSetup, Deadline, Responder, Runtime, http, tls};

const TRUNK: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PATIENCE: Duration = Duration::from_secs(10);

/// Gives the agent this runtime, and waits until calls are routed to it.
fn set_runtime(daemon: &Daemon, runtime: &Value) {
    let path = format!("/phone/{}", daemon.setup.first_agent);
    let (status, shown) = daemon.change("PATCH", &path, &json!({ "runtime": runtime }));
    assert_eq!(status, 200, "{shown}");

    daemon.setup.settle();
}

/// Calls the agent; returns the final status.
fn dial(daemon: &Daemon, probe: &Probe) -> Option<u16> {
    let agent = &daemon.setup.first_agent;
    probe.call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"))
}

/// Calls the agent with this runtime; returns the final status and the routing of that call, once it has ended.
fn call(daemon: &Daemon, probe: &Probe, runtime: &Value) -> (Option<u16>, Value) {
    set_runtime(daemon, runtime);
    let before = daemon.calls().len();
    let status = dial(daemon, probe);

    let ended = Deadline::after(PATIENCE).poll(|| {
        let calls = daemon.calls();
        let is_over = calls.len() > before && !calls[0]["ended_at"].is_null();
        is_over.then(|| calls[0].clone())
    });
    let record = ended.expect("a record of the call");
    (status, daemon.routing(&record))
}

fn outcomes(routing: &Value) -> Vec<(&str, Option<u64>)> {
    let attempts = routing["attempts"].as_array().expect("attempts");
    attempts
        .iter()
        .map(|attempt| {
            let outcome = attempt["outcome"].as_str().expect("an outcome");
            (outcome, attempt["sip_code"].as_u64())
        })
        .collect()
}

fn metric(daemon: &Daemon, cause: &str) -> Option<f64> {
    let (_, text) = http::get(daemon.setup.http, "/metrics", None)?;
    let start = format!("trunkline_fail_overs_total{{cause=\"{cause}\"}} ");
    text.lines()
        .find_map(|line| line.strip_prefix(&start)?.parse().ok())
}

#[test]
fn each_way_that_a_target_fails_leads_to_the_fallback_and_is_on_record() {
    let fallback = Responder::busy();
    let authority = Authority::new();
    authority.certify("other", "other.test");
    let impostor = tls::busy(&authority, "other");
    let names = dns::serve(vec![("bot.test", Record::Address(Ipv4Addr::LOCALHOST))]);
    let (setup, _) = secured(&authority, DaemonSetup::new());
    let setup = setup.set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
    setup.dedicate(&TRUNK.to_string());
    let daemon = setup.serve();
    let probe = Probe::new(TRUNK, daemon.sip());

    // Bound until the end of the test, so that its port isn't answered by ICMP.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = |address: SocketAddr| format!("sip:x@{address}");
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let overlong = format!("X-Ticket: {}\r\n", "x".repeat(9_000)).leak();

    let routes = "Record-Route: <sip:proxy.test;lr>\r\n".repeat(65).leak();

    let cases = [
        ("ICMP", at(nobody), "unreachable", None, "nobody listens"),
        (
            "a refused connection",
            format!("sip:x@{nobody};transport=tcp"),
            "connection_refused",
            None,
            "the connection was refused",
        ),
        (
            "a certificate for another name",
            format!("sip:x@bot.test:{};transport=tls", impostor.port()),
            "tls_failed",
            None,
            "its certificate doesn't prove bot.test: it is for other.test",
        ),
        (
            "a bare 100",
            at(Responder::answering("100 Trying", "").address),
            "only_trying",
            None,
            "only a 100 came",
        ),
        (
            "503",
            at(Responder::answering("503 Service Unavailable", "").address),
            "sip_status",
            Some(503),
            "it answered 503",
        ),
        (
            "503 with a line that is too long",
            at(Responder::answering("503 Service Unavailable", overlong).address),
            "sip_status",
            Some(503),
            "it answered 503",
        ),
        (
            "503 with a line that is no header",
            at(Responder::answering("503 Service Unavailable", "stray line\r\n").address),
            "sip_status",
            Some(503),
            "it answered 503",
        ),
        (
            "200 with a second To",
            at(Responder::answering("200 OK", "To: <sip:x@second.test>\r\n").address),
            "timeout",
            None,
            "it answered 200, which can't be read: line 7: To occurs twice",
        ),
        (
            "200 with too many routes",
            at(Responder::answering("200 OK", routes).address),
            "sip_status",
            Some(200),
            "it answered 200: it has more than 64 Record-Routes",
        ),
        (
            "silence",
            at(silent.local_addr().expect("an address")),
            "timeout",
            None,
            "no answer came in time",
        ),
        (
            "a name without an address",
            "sip:x@nobody.test:5060".to_owned(),
            "dns_failed",
            None,
            "the name has no address",
        ),
    ];

    for (case, first, outcome, code, said) in cases {
        let runtime = json!({"type": "sip", "uri": first, "fallbacks": [at(fallback.address)]});
        let before = fallback.taken();
        let counted_before = metric(&daemon, outcome).unwrap_or_default();

        let (status, routing) = call(&daemon, &probe, &runtime);
        assert_eq!(status, Some(486), "{case}: {routing}");
        assert_eq!(fallback.taken() - before, 1, "{case}");
        assert_eq!(
            outcomes(&routing),
            [(outcome, code), ("sip_status", Some(486))],
            "{case}: {routing}"
        );

        let attempt = &routing["attempts"][0];
        assert_eq!(attempt["target"], *first, "{case}");
        assert_eq!(attempt["leg"], "runtime", "{case}");
        let explanation = routing["explanation"].to_string();
        assert!(explanation.contains(said), "{case}: {explanation}");

        // The trace shows the attempt among its decisions.
        let call = daemon.calls()[0]["id"].as_str().expect("an id").to_owned();
        let trace = daemon.shown(&format!("/phone/calls/{call}/trace"));
        let items = trace["items"].as_array().expect("items").iter();
        let mut decisions = items.filter(|item| item["type"] == "decision");
        let is_said = |item: &Value| {
            item["text"]
                .as_str()
                .is_some_and(|text| text.contains(said))
        };
        assert!(decisions.any(is_said), "{case}: {trace}");

        let counted = metric(&daemon, outcome);
        assert!(
            counted.is_some_and(|count| count > counted_before),
            "{case}: {counted:?} after {counted_before}"
        );

        // The log has a line under the call's id for each target that can't be reached.
        if code.is_none() && !matches!(outcome, "timeout" | "only_trying") {
            let line = daemon.log_line(&["a target can't be reached", &call]);
            assert!(line.contains(outcome), "{case}: {line}");
        }
    }

    let log = daemon.log();
    assert_eq!(
        log.matches("the peer was not verified").count(),
        1,
        "only the lines of calls repeat it within an hour: {log}"
    );

    // A call that its first target takes leaves no attempts.
    set_runtime(&daemon, &json!({"type": "echo"}));
    assert_eq!(dial(&daemon, &probe), Some(200));
    let routing = daemon.routing(&daemon.calls()[0]);
    assert_eq!(routing["attempts"], json!([]), "{routing}");
    drop(silent);
}

#[test]
fn an_outbound_call_lists_its_attempts_at_the_carriers_addresses() {
    let carrier = Responder::busy();
    let local = Record::Address(Ipv4Addr::LOCALHOST);
    let names = dns::serve(vec![
        (
            "_sip._udp.carrier.test",
            Record::Service(10, free_port(), "one.carrier.test"),
        ),
        (
            "_sip._udp.carrier.test",
            Record::Service(20, carrier.address.port(), "two.carrier.test"),
        ),
        ("one.carrier.test", local.clone()),
        ("two.carrier.test", local),
    ]);

    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
    let daemon = setup.serve();
    give_trunk(
        &daemon,
        Runtime::new(),
        &json!({"host": "carrier.test", "port": null}),
    );
    order(&daemon, &json!({}));

    let record = daemon.record();
    assert_eq!(record["status"], "busy", "{record}");

    let routing = daemon.routing(&record);
    assert_eq!(
        outcomes(&routing),
        [("unreachable", None), ("sip_status", Some(486))],
        "{routing}"
    );
    assert_eq!(routing["attempts"][1]["leg"], "callee", "{routing}");
    assert_eq!(
        routing["attempts"][1]["address"],
        carrier.address.to_string(),
        "{routing}"
    );
}

#[test]
fn an_address_that_may_not_be_contacted_has_a_reason_on_the_call() {
    let internal = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 3), 0)).expect("a port");
    let port = internal.local_addr().expect("an address").port();
    let names = dns::serve(vec![
        (
            "internal.test",
            Record::Address(Ipv4Addr::new(127, 0, 0, 3)),
        ),
        ("honest.test", Record::Address(Ipv4Addr::LOCALHOST)),
    ]);
    let honest = Responder::busy();
    let setup = DaemonSetup::with(
        Ipv4Addr::LOCALHOST.into(),
        vec![
            (
                "TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS",
                "127.0.0.1,127.0.0.2".to_owned(),
            ),
            ("TRUNKLINE__SIP__NAMESERVERS", names.to_string()),
        ],
    );
    setup.dedicate(&TRUNK.to_string());
    let daemon = setup.serve();
    let probe = Probe::new(TRUNK, daemon.sip());

    // The record doesn't tell an open port from a closed one.
    for port in [port, free_port()] {
        let uri = format!("sip:x@internal.test:{port};transport=tcp");
        let (status, routing) = call(&daemon, &probe, &json!({"type": "sip", "uri": uri}));
        assert_eq!(status, Some(480));
        assert_eq!(outcomes(&routing), [("not_allowed", None)], "{routing}");

        let attempt = &routing["attempts"][0];
        assert_eq!(attempt["address"], Value::Null, "{routing}");
        let detail = "it is a loopback, link-local or private address that sip.allow_private_peers doesn't list";
        assert_eq!(attempt["detail"], detail, "{routing}");
        let said = attempt["explanation"].as_str().expect("a sentence");
        let whole = format!("its address may not be contacted from here: {detail} (");
        assert!(said.contains(&whole), "{said}");

        let explanation = routing["explanation"].to_string();
        assert!(explanation.contains("(peer_not_allowed)"), "{explanation}");
        assert!(!routing.to_string().contains("127.0.0.3"), "{routing}");
        assert_eq!(daemon.calls()[0]["reason"], "peer_not_allowed");
    }

    let listed = format!("sip:x@honest.test:{}", honest.address.port());
    let (status, _) = call(&daemon, &probe, &json!({"type": "sip", "uri": listed}));
    assert_eq!(status, Some(486), "the listed peer is called");
    assert_eq!(honest.taken(), 1);
}
