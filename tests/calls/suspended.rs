//! A suspended org: new calls are refused, calls that are up go on, and other orgs notice nothing.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{DaemonSetup, Deadline, Message, Pbx};

const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const NUMBER: &str = "+442071838799";
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_suspended_org_begins_nothing_and_its_live_call_finishes() {
    let setup = DaemonSetup::new().set("TRUNKLINE__LIMITS__SETUPS_PER_CALLER", "0");
    setup.dedicate(&OURS.to_string());
    let other = setup.run(&["org", "create", "--name", "Other", "--json"]);
    let other = other["id"].as_str().expect("an id");
    let agent = ["agent", "create", "--org", other, "--name", "A", "--json"];
    let agent = setup.run(&agent);
    let agent = agent["id"].as_str().expect("an id");
    let add = ["number", "add", NUMBER, "--org", other, "--verified"];
    setup.run(&[&add[..], &["--json"]].concat());
    let assign = ["number", "assign", NUMBER, "--org", other, "--agent", agent];
    setup.run(&[&assign[..], &["--json"]].concat());
    setup.run(&["trunk", "create", "--org", other, "--json"]);
    let theirs = OTHERS.to_string();
    setup.run(&["trunk", "dedicate", &theirs, "--org", other, "--json"]);
    let daemon = setup.serve();

    let rtp = Rtp::new(OURS);
    let sdp = offer(rtp.address());
    let call = || Talker::call(OURS, daemon.sip(), &daemon.setup.first_number, &sdp);
    let is_refused = |answer: &Message| {
        let reason = answer.header("X-Trunkline-Reason");
        (answer.status(), reason) == (Some(480), Some("org_suspended"))
    };
    let (live, answer) = call();
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    let mut pbx = Pbx::udp(&daemon);
    let contact = format!("Contact: <sip:pbx@{}>\r\n", pbx.address());
    assert_eq!(pbx.register(&contact).status(), Some(200));

    let org = daemon.setup.org.clone();
    let shown = daemon
        .setup
        .run(&["org", "suspend", &org, "--yes", "--json"]);
    assert_eq!(shown["suspended_by"], serde_json::json!(["operator"]));
    let refused = Deadline::after(PATIENCE).poll(|| is_refused(&call().1).then_some(()));
    assert!(refused.is_some(), "its INVITEs are refused");
    assert_eq!(pbx.register(&contact).status(), Some(403));
    let refused = Deadline::after(PATIENCE).poll(|| {
        let (status, body) = daemon.read("/phone", daemon.key());
        (status == 403).then_some(body)
    });
    let refused = refused.expect("its keys are refused");
    assert_eq!(refused["code"], "org_suspended", "{refused}");

    // Calls that are up go on, and the other org is served.
    let again = live.offer(&sdp);
    assert_eq!(again.status(), Some(200), "{again:?}");
    let (_, answer) = Talker::call(OTHERS, daemon.sip(), NUMBER, &offer((OTHERS, 9).into()));
    assert_eq!(answer.status(), Some(200), "{answer:?}");

    let shown = daemon.setup.run(&["org", "resume", &org, "--json"]);
    assert_eq!(shown["suspended_by"], serde_json::json!([]));
    let served = Deadline::after(PATIENCE).poll(|| (call().1.status() == Some(200)).then_some(()));
    assert!(served.is_some(), "its INVITEs are taken again");
    assert_eq!(pbx.register(&contact).status(), Some(200));

    // Rights of API keys follow later: calls may be accepted before.
    let status = || daemon.read("/phone", daemon.key()).0;
    let served = Deadline::after(PATIENCE).poll(|| (status() == 200).then_some(()));
    assert!(served.is_some(), "its keys work again: {}", status());
    let refused = Deadline::after(PATIENCE).poll(|| {
        let mut calls = daemon.calls().into_iter();
        calls.find(|call| call["reason"] == "org_suspended")
    });
    assert_eq!(refused.expect("a record")["status"], "refused");
}
