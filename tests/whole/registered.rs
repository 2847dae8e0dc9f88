//! PBXs that have registered: known after a restart, and to every node that shares the database.

use std::time::Duration;

use serde_json::{Value, json};
use trunkline_sip::wire::Method;

use crate::harness::{Credentials, Deadline, Pbx};
use crate::node::{Node, Plot, text};
use crate::nodes::Pair;

/// Far beyond what it takes, since other tests may have the machine.
const LIMIT: Duration = Duration::from_secs(30);
/// How long it is looked that nothing comes.
const A_WHILE: Duration = Duration::from_secs(2);

const TRUNK: &str = "/phone/sip/inbound-trunk";
const PRIVATE: &str = "10.1.2.3:5060";

fn credentials(outset: &Value) -> Credentials {
    Credentials {
        username: text(&outset["trunk"]["auth_username"]),
        password: text(&outset["trunk"]["auth_password"]),
    }
}

/// The registrations that a node shows, and whether it calls the trunk registered.
fn shown(node: &Node, key: &str) -> (bool, usize) {
    let (_, trunk) = node.get(TRUNK, key);
    let trunk: Value = serde_json::from_str(&trunk).expect("JSON");
    let count = trunk["registrations"].as_array().map_or(0, Vec::len);
    (trunk["registered"] == true, count)
}

/// Waits until a node shows so many registrations.
fn shows(node: &Node, key: &str, count: usize) {
    let wanted = (count > 0, count);
    let there = Deadline::after(LIMIT).poll(|| (shown(node, key) == wanted).then_some(()));
    assert!(
        there.is_some(),
        "{:?} instead of {wanted:?}",
        shown(node, key)
    );
}

/// Lets the agent dial through whatever PBX has registered.
fn dials_the_pbx(node: &Node, key: &str, agent: &str) {
    let trunk = json!({"name": "PBX", "to_registered": true, "caller_number": "+442071838750"});
    let trunk = node.made("POST", "/phone/sip/outbound-trunks", key, &trunk);
    let path = format!("/phone/sip/agents/{agent}/outbound-trunk");
    node.made("PUT", &path, key, &json!({"trunk_id": trunk["id"]}));
}

fn order(agent: &str) -> Value {
    json!({"phone_agent_id": agent, "phone_number": "+442071838752"})
}

/// Has a node call the PBX, which answers, and hang up.
fn calls(node: &Node, key: &str, agent: &str, pbx: Pbx) -> Pbx {
    let (status, placed) = node.change("POST", "/phone/outbound-call", key, &order(agent));
    assert_eq!(status, 201, "{placed}");
    let answers = std::thread::spawn(move || {
        let mut pbx = pbx;
        let heard = pbx.take_call();
        (pbx, heard)
    });
    let call = format!("/phone/calls/{}", text(&placed["call_id"]));
    let up = Deadline::after(LIMIT).poll(|| {
        let (_, call) = node.get(&call, key);
        call.contains("\"in_progress\"").then_some(())
    });
    assert!(up.is_some(), "the PBX doesn't answer");
    let (status, ended) = node.change("POST", &format!("{call}/hangup"), key, &json!({}));
    assert_eq!(status, 200, "{ended}");
    let (pbx, heard) = answers.join().expect("the PBX");
    assert_eq!(
        heard.first().map(|(method, _)| *method),
        Some(Method::Invite)
    );
    pbx
}

#[test]
fn a_registration_survives_a_restart_where_its_contact_leads_to_the_pbx() {
    let plot = Plot::new(&[]);
    let outset = plot.run(&["quickstart", "--json", "--no-serve"]);
    let mut node = plot.serve();
    let (key, agent) = (text(&outset["api_key"]), text(&outset["agent_id"]));
    dials_the_pbx(&node, &key, &agent);
    let sip = node.plot.sip;
    let mut pbx = Pbx::udp_to(sip, credentials(&outset));
    let contact = format!("Contact: <sip:pbx@{}>\r\nExpires: 600\r\n", pbx.address());
    assert_eq!(pbx.register(&contact).status, 200);
    // One behind NAT, whose way back is the REGISTER's alone.
    let mut behind = Pbx::udp_to(sip, credentials(&outset));
    behind.sent_by = PRIVATE.to_owned();
    let private = format!("Contact: <sip:behind@{PRIVATE}>\r\nExpires: 600\r\n");
    assert_eq!(behind.register(&private).status, 200);
    shows(&node, &key, 2);

    // Written down within a fraction of a second.
    std::thread::sleep(A_WHILE);
    node.kill();
    node.serve_again();
    shows(&node, &key, 1);
    let mut pbx = calls(&node, &key, &agent, pbx);

    // It counts once it is heard again.
    assert_eq!(behind.register(&private).status, 200);
    shows(&node, &key, 2);
    assert_eq!(behind.register("Contact: *\r\nExpires: 0\r\n").status, 200);
    shows(&node, &key, 0);

    // What was removed stays so.
    assert_eq!(pbx.register(&contact).status, 200);
    assert_eq!(pbx.register("Contact: *\r\nExpires: 0\r\n").status, 200);
    std::thread::sleep(A_WHILE);
    node.end();
    node.serve_again();
    std::thread::sleep(A_WHILE);
    assert_eq!(shown(&node, &key), (false, 0));
}

#[test]
fn a_registration_at_one_node_is_known_to_the_other() {
    let Some(mut pair) = Pair::new(&[]) else {
        return;
    };
    let (key, agent) = (pair.key.clone(), text(&pair.outset["agent_id"]));
    dials_the_pbx(&pair.first, &key, &agent);
    let (first, second) = (pair.first.plot.sip, pair.second.plot.sip);

    // Called directly where nothing between changes its address.
    let mut pbx = Pbx::udp_to(second, credentials(&pair.outset));
    let contact = format!("Contact: <sip:pbx@{}>\r\nExpires: 600\r\n", pbx.address());
    assert_eq!(pbx.register(&contact).status, 200);
    shows(&pair.first, &key, 1);
    pbx.listens_to(first);
    let mut pbx = calls(&pair.first, &key, &agent, pbx);
    pbx.listens_to(second);
    assert_eq!(pbx.register("Contact: *\r\nExpires: 0\r\n").status, 200);
    shows(&pair.first, &key, 0);
    let (status, refused) = pair
        .first
        .change("POST", "/phone/outbound-call", &key, &order(&agent));
    assert_eq!(status, 409, "{refused}");

    // By the node that has the connection where nothing else leads to it.
    let mut pbx = Pbx::tcp_to(second, credentials(&pair.outset));
    pbx.sent_by = PRIVATE.to_owned();
    let private = format!("Contact: <sip:pbx@{PRIVATE};transport=tcp>\r\n");
    assert_eq!(pbx.register(&private).status, 200);
    shows(&pair.first, &key, 1);
    let pbx = calls(&pair.first, &key, &agent, pbx);

    // With that node its connection is gone.
    pair.second.end();
    shows(&pair.first, &key, 0);
    drop(pbx);
}
