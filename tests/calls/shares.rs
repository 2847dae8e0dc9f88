//! Shares of the node: one org can't use up what others need.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{DaemonSetup, Deadline, Message, http};

const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const NUMBER: &str = "+442071838799";

#[test]
fn an_org_leaves_room_for_others() {
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__LIMITS__MAX_CALLS", "24")
        .set("TRUNKLINE__LIMITS__SETUPS_PER_CALLER", "0");
    setup.dedicate(&GREEDY.to_string());
    let made = setup.run(&["org", "create", "--name", "Elsewhere", "--json"]);
    let org = made["id"].as_str().expect("an id");
    let agent = setup.run(&["agent", "create", "--org", org, "--name", "Other", "--json"]);
    let agent = agent["id"].as_str().expect("an id");
    setup.run(&[
        "number",
        "add",
        NUMBER,
        "--org",
        org,
        "--verified",
        "--json",
    ]);
    setup.run(&[
        "number", "assign", NUMBER, "--org", org, "--agent", agent, "--json",
    ]);
    setup.run(&["trunk", "create", "--org", org, "--json"]);
    setup.run(&[
        "trunk",
        "dedicate",
        &OTHER.to_string(),
        "--org",
        org,
        "--json",
    ]);
    let daemon = setup.serve();

    let rtp = Rtp::new(GREEDY);
    let sdp = offer(rtp.address());
    let greedy = || Talker::call(GREEDY, daemon.sip(), &daemon.setup.first_number, &sdp).1;
    let other = || Talker::call(OTHER, daemon.sip(), NUMBER, &offer((OTHER, 9).into())).1;
    let is_busy = |answer: &Message| {
        let reason = answer.header("X-Trunkline-Reason");
        (answer.status(), reason) == (Some(480), Some("org_busy"))
    };

    let first = greedy();
    assert_eq!(first.status(), Some(200), "{first:?}");
    for _ in 1..22 {
        let answer = greedy();
        assert_eq!(answer.status(), Some(200), "{answer:?}");
    }

    let beyond = greedy();
    assert!(is_busy(&beyond), "a tenth is left free: {beyond:?}");
    let others = other();
    assert_eq!(others.status(), Some(200), "others get in: {others:?}");
    let again = greedy();
    assert!(is_busy(&again), "its share is smaller now: {again:?}");
    let others = other();
    assert_eq!(others.status(), Some(200), "others get in: {others:?}");
    let media = first.media();
    assert_eq!(rtp.converse(media), Some(media), "calls that are up go on");

    let is_counted = |line: &str| line.contains("refus") && line.contains("org_busy");
    let counted = Deadline::after(Duration::from_secs(10)).poll(|| {
        let (_, metrics) = http::get(daemon.setup.http, "/metrics", None)?;
        metrics.lines().any(is_counted).then_some(())
    });
    assert!(counted.is_some(), "the refusals are counted");
}
