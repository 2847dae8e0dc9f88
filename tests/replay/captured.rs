//! A capture of real calls, made on the loopback interface beside OPTIONS in both directions and a transfer by API. It is imported and replayed as
//! docs/replay.md prints it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use trunkline_testkit::not_run;
use trunkline_testkit::on_wire::OnWire;
use trunkline_testkit::referred::Step::{Answer, ByeComes, Refer};
use trunkline_testkit::shell::Shell;
use trunkline_testkit::{Caller, DaemonSetup, Deadline, Responder, tools};

const LIMIT: Duration = Duration::from_secs(30);
const ANSWER: &str = "v=0\r\no=agent 3 3 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 42000 RTP/AVP 8\r\n";
const ECHOING: &str = "+12025550177";

/// Waits until the capture holds an OPTIONS sent from now on, and so everything before it.
fn has_next(capture: &OnWire, qualifying: &Qualifying) {
    let next = qualifying.asked.load(Ordering::Relaxed) + 2;
    let question = format!("Call-ID: qualify-{next}\r\n");
    let holds = || memchr::memmem::find(&capture.octets(), question.as_bytes()).map(drop);
    // If it never does, the capture is written only at its end: then the test goes on without this check.
    Deadline::after(Duration::from_secs(10)).poll(holds);
}

/// A PBX that sends OPTIONS repeatedly (qualify).
struct Qualifying {
    is_over: Arc<AtomicBool>,
    /// Number of the last OPTIONS.
    asked: Arc<AtomicU32>,
}

impl Qualifying {
    fn start(daemon: SocketAddr) -> Self {
        let (is_over, asked) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (over, count) = (Arc::clone(&is_over), Arc::<AtomicU32>::clone(&asked));
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let at = socket.local_addr().expect("an address");
        std::thread::spawn(move || {
            for number in 1.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let options = format!(
                    "OPTIONS sip:{daemon} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bKq{number};rport\r\nMax-Forwards: 70\r\n\
                     From: <sip:pbx@{at}>;tag=q{number}\r\nTo: <sip:{daemon}>\r\nCall-ID: qualify-{number}\r\nCSeq: {number} OPTIONS\r\n\
                     Contact: <sip:pbx@{at}>\r\nContent-Length: 0\r\n\r\n"
                );
                socket
                    .send_to(options.as_bytes(), daemon)
                    .expect("it is sent");
                count.store(number, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Self { is_over, asked }
    }
}

impl Drop for Qualifying {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_capture_of_calls_is_imported_and_played() {
    if !tools(&["sipp", "dumpcap"]) {
        return;
    }
    // It answers until it is stopped, so that the port is free for the replay. At an address of its own, where no other test takes it meanwhile.
    let agent = Responder::accepting(Ipv4Addr::new(127, 0, 7, 9), None, ANSWER.to_owned());
    let at = agent.address;

    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__HEALTH_INTERVAL_S", "1");
    setup.runtime(&setup.first_agent, &format!("sip:{{agent_id}}@{at}"));

    let made = setup.run(&[
        "agent", "create", "--org", &setup.org, "--name", "Echo", "--json",
    ]);
    let echo = made["id"].as_str().expect("an id").to_owned();
    setup.assign(ECHOING, &echo);

    let daemon = setup.serve();
    let (status, body) = daemon.change(
        "POST",
        &format!("/phone/sip/agents/{echo}/transfer-destinations"),
        &json!({"create": {"name": "Sales", "type": "phone", "value": "+442071838751"}}),
    );
    assert_eq!(status, 201, "{body}");
    daemon.setup.settle();

    let shell = Shell::new();
    let file = shell.path("calls.pcapng");
    let filter = format!("port {} or port {}", daemon.sip().port(), at.port());
    let Some(capturing) = OnWire::start(&filter, &file) else {
        not_run::without("the right to capture on the loopback interface");
        return;
    };
    let qualifying = Qualifying::start(daemon.sip());
    has_next(&capturing, &qualifying);
    daemon.caller().play("caller_hangs_up").finish();
    daemon.record();

    // The API asks for a transfer.
    let caller = Caller {
        dials: ECHOING.to_owned(),
        ..daemon.caller()
    };
    let pbx = caller.takes(&[Refer, Answer("202 Accepted", ""), ByeComes]);
    let call = daemon.answered_call();
    let path = format!("/phone/calls/{call}/transfer");
    let (status, begun) = daemon.change("POST", &path, &json!({"destination": "Sales"}));
    assert_eq!(status, 202, "{begun}");

    let over = format!("/phone/calls/{call}");
    daemon.wait_for_status(&json!(call), "in_progress");
    let accepted = Deadline::after(LIMIT)
        .poll(|| (daemon.shown(&over)["transfer"]["status"] == "accepted").then_some(()));
    assert!(accepted.is_some(), "{}", daemon.shown(&over));

    let (status, ended) = daemon.change("POST", &format!("{over}/hangup"), &json!({}));
    assert!(status < 300, "{ended}");
    pbx.finish();
    has_next(&capturing, &qualifying);
    drop(qualifying);
    capturing.stop();

    let imported = shell.run(&["capture", "import", "calls.pcapng", "-o", "calls.flow"]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let said = format!("{}{}", imported.stdout, imported.stderr);
    assert!(said.contains(" messages in 2 calls"), "{said}");
    assert!(
        said.contains("OPTIONS outside calls were left out"),
        "{said}"
    );

    let flow = std::fs::read_to_string(shell.path("calls.flow")).expect("it is written");
    assert_eq!(flow.matches("\n=== call ").count(), 2, "{flow}");
    assert!(!flow.contains("\nOPTIONS "), "{flow}");
    assert!(flow.contains("\nREFER "), "{flow}");

    // The replay needs the runtime's port.
    agent.stop();
    let is_down = || {
        daemon
            .log()
            .contains("doesn't answer OPTIONS")
            .then_some(())
    };
    assert!(
        Deadline::after(LIMIT).poll(is_down).is_some(),
        "the runtime is never missed"
    );

    let credentials = daemon.credentials();
    let (to, at) = (daemon.sip().to_string(), at.to_string());
    let played = shell.run(&[
        "replay",
        "calls.flow",
        "--to",
        &to,
        "--runtime",
        &at,
        "--tolerance",
        "5",
        "--user",
        &credentials.username,
        "--password",
        &credentials.password,
    ]);
    assert_eq!(played.code, Some(0), "{}\n{}", played.stdout, played.stderr);

    for part in [
        "ok   INVITE sip:",
        "captured",
        "us ---> runtime  INVITE",
        "caller <--- us          REFER",
        "out of reach",
        "asked for a transfer. A replay sends no API requests, so the rest of the call is out of reach",
        "2 of 2 calls went as captured",
        "1 of them contain a step that the API began, which can't be replayed: they were played up to that step",
    ] {
        assert!(played.stdout.contains(part), "{part}:\n{}", played.stdout);
    }
}
