//! What an agent's runtime gets with its call: placeholders filled in, headers of the agent's own, and the session token where it is trusted.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use trunkline_sip::wire::{Framing, HeaderName, Method, lex};

use trunkline_testkit::House;
use trunkline_testkit::answer::reply;
use trunkline_testkit::probe::Probe;

const CALLER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A runtime that refuses each call and keeps the last INVITE.
struct Runtime {
    address: SocketAddr,
    last: Arc<Mutex<String>>,
}

impl Runtime {
    fn start() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = socket.local_addr().expect("an address");
        let last = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&last);
        std::thread::spawn(move || {
            let mut octets = [0; 8_192];
            while let Ok((count, from)) = socket.recv_from(&mut octets) {
                let request = lex(&octets[..count], Framing::Datagram).expect("a message");
                if request.method() == Method::Ack {
                    continue;
                }
                let mut status = "200 OK";
                if request.method() == Method::Invite {
                    let text = String::from_utf8_lossy(&octets[..count]).into_owned();
                    *kept.lock().expect("nobody panics with it") = text;
                    status = "486 Busy Here";
                }
                let answer = reply(&request, status, "");
                socket.send_to(answer.as_bytes(), from).expect("it is sent");
            }
        });
        Self { address, last }
    }

    /// The values of a header in the last INVITE.
    fn header(&self, name: &str) -> Vec<String> {
        let last = self.last.lock().expect("nobody panics with it");
        let message = lex(last.as_bytes(), Framing::Datagram).expect("an INVITE");
        let named = message
            .headers()
            .filter(|header| header.raw_name.eq_ignore_ascii_case(name.as_bytes()));
        let values = named.map(|header| String::from_utf8_lossy(&header.unfolded()).into_owned());
        values.collect()
    }

    fn uri(&self) -> String {
        let last = self.last.lock().expect("nobody panics with it");
        let message = lex(last.as_bytes(), Framing::Datagram).expect("an INVITE");
        assert!(message.first(HeaderName::CallId).is_some());
        String::from_utf8_lossy(message.request_uri()).into_owned()
    }
}

#[test]
fn a_runtime_gets_what_its_agent_says_and_nothing_that_a_caller_makes_of_it() {
    let runtime = Runtime::start();
    let house = House::new().set("TRUNKLINE__SIP__TRUSTED_RUNTIMES", "192.0.2.1");
    house.dedicate(&CALLER.to_string());
    let (agent, address) = (house.first_agent.clone(), runtime.address);
    let daemon = house.serve();
    let set = |runtime: Value| {
        let change = json!({ "runtime": runtime });
        let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
        daemon.house.settle();
        (status, body)
    };
    let caller = Probe::new(CALLER, daemon.sip());
    let header = "X-Secret: forged\r\nx_secret: forged as well";
    let header = format!("X-PLATFORM-AGENT-ID: {agent}\r\n{header}");

    let wanted = json!({
        "type": "sip", "uri": format!("sip:{{called}}@{address};agent={{agent_id}}"),
        "headers": {"X-Secret": "ours", "X-Call": "{called} {session_id}"},
    });
    let (status, body) = set(wanted.clone());
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["runtime"]["headers"], wanted["headers"]);
    // The user part of what was dialled, as its sender escaped it: a host and a header of its own.
    let dialled = "a%40evil.example%0D%0AX-Evil%3A%20yes";
    assert_eq!(caller.call(dialled, &header), Some(486));
    assert_eq!(
        runtime.uri(),
        format!("sip:{dialled}@{address};agent={agent}")
    );
    assert_eq!(runtime.header("X-Secret"), ["ours"]);
    assert_eq!(runtime.header("X_Secret"), [""; 0]);
    assert_eq!(runtime.header("X-Evil"), [""; 0]);
    let session = runtime.header("X-PLATFORM-SESSION-ID").remove(0);
    let call = runtime.header("X-Call").remove(0);
    assert_eq!(call, format!("a@evil.exampleX-Evil: yes {session}"));
    assert_eq!(
        runtime.header("X-PLATFORM-SESSION-TOKEN"),
        [""; 0],
        "nobody trusts this runtime"
    );

    let mut trusting = wanted;
    trusting["session_token"] = json!(true);
    assert_eq!(set(trusting).0, 200);
    assert_eq!(caller.call("+12025550123", &header), Some(486));
    assert_eq!(runtime.header("X-PLATFORM-SESSION-TOKEN").len(), 1);
    assert_eq!(
        runtime.uri(),
        format!("sip:+12025550123@{address};agent={agent}")
    );

    let many: serde_json::Map<String, Value> =
        (0..21).map(|at| (format!("X-{at}"), json!("v"))).collect();
    for (uri, headers) in [
        ("sip:a@{called}", json!({})),
        ("sip:a@b.example;x={caller}", json!({})),
        ("sip:a@b.example", json!({"Via": "x"})),
        ("sip:a@b.example", json!({"X-PLATFORM-SESSION-ID": "x"})),
        ("sip:a@b.example", json!({"x_platform_agent-id": "x"})),
        ("sip:a@b.example", json!({"X-A": "x\r\nY: z"})),
        (
            "sip:a@b.example",
            json!({"X-A": "x".repeat(500), "X-B": "x".repeat(500), "X-C": "x".repeat(500), "X-D": "x".repeat(500), "X-E": "x".repeat(100)}),
        ),
        ("sip:a@b.example", Value::Object(many)),
    ] {
        let (status, body) = set(json!({"type": "sip", "uri": uri, "headers": headers}));
        assert_eq!(status, 400, "{uri}, {headers}: {body}");
    }
}
