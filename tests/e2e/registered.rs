//! Registered PBXs: known after a restart, and to every node that shares the database.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::node::{Node, NodeSetup, text};
use crate::e2e::nodes::Pair;
use trunkline_testkit::database::Database;
use trunkline_testkit::process::free_port;
use trunkline_testkit::talker::{Talker, offer};
use trunkline_testkit::{Credentials, Deadline, Message, Pbx};

/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(30);
/// Wait before a check that nothing has come.
const A_WHILE: Duration = Duration::from_secs(2);

const TRUNK: &str = "/phone/sip/inbound-trunk";
const PRIVATE: &str = "10.1.2.3:5060";
/// Destination of transfers.
const SALES: &str = "+442071838751";

fn credentials(outset: &Value) -> Credentials {
    Credentials {
        username: text(&outset["trunk"]["auth_username"]),
        password: text(&outset["trunk"]["auth_password"]),
    }
}

/// Returns whether a node shows the trunk as registered, and the number of its registrations.
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

/// Waits until so many live registrations are in the node's own database.
fn written_down(node: &Node, count: i64) {
    let file = node.setup.data().join("trunkline.db");
    let database = rusqlite::Connection::open(file).expect("the database opens");
    let sql = "SELECT COUNT(*) FROM registrations WHERE expires_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000";
    let standing = || database.query_row(sql, [], |row| row.get::<_, i64>(0)).ok();
    let there = Deadline::after(LIMIT).poll(|| (standing() == Some(count)).then_some(()));
    assert!(there.is_some(), "{:?} instead of {count}", standing());
}

/// Makes the agent dial through the PBX that has registered.
fn dials_the_pbx(node: &Node, key: &str, agent: &str) {
    let trunk = json!({"name": "PBX", "to_registered": true, "caller_number": "+442071838750"});
    let trunk = node.made("POST", "/phone/sip/outbound-trunks", key, &trunk);
    let path = format!("/phone/sip/agents/{agent}/outbound-trunk");
    node.made("PUT", &path, key, &json!({"trunk_id": trunk["id"]}));
}

fn order(agent: &str) -> Value {
    json!({"phone_agent_id": agent, "phone_number": "+442071838752"})
}

/// Makes a node call the PBX, which answers and hangs up.
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

    // The call's end may not be stored yet.
    assert!(matches!(status, 200 | 202), "{status}: {ended}");

    let (pbx, heard) = answers.join().expect("the PBX");
    assert_eq!(heard.first().and_then(Message::method), Some("INVITE"));

    pbx
}

#[test]
fn a_registration_survives_a_restart_where_its_contact_leads_to_the_pbx() {
    let setup = NodeSetup::new(&[]);
    let outset = setup.run(&["quickstart", "--json", "--no-serve"]);
    let mut node = setup.serve();
    let (key, agent) = (text(&outset["api_key"]), text(&outset["agent_id"]));
    dials_the_pbx(&node, &key, &agent);
    let sip = node.setup.sip;
    let mut pbx = Pbx::udp_to(sip, credentials(&outset));
    let contact = format!("Contact: <sip:pbx@{}>\r\nExpires: 600\r\n", pbx.address());
    assert_eq!(pbx.register(&contact).status(), Some(200));

    // This PBX is behind NAT: only the flow of its REGISTER leads back to it.
    let mut behind = Pbx::udp_to(sip, credentials(&outset));
    behind.sent_by = PRIVATE.to_owned();
    let private = format!("Contact: <sip:behind@{PRIVATE}>\r\nExpires: 600\r\n");
    assert_eq!(behind.register(&private).status(), Some(200));
    shows(&node, &key, 2);

    written_down(&node, 2);
    node.kill();
    node.serve_again();
    shows(&node, &key, 1);
    let mut pbx = calls(&node, &key, &agent, pbx);

    // Its binding counts again after a REGISTER.
    assert_eq!(behind.register(&private).status(), Some(200));
    shows(&node, &key, 2);
    assert_eq!(
        behind.register("Contact: *\r\nExpires: 0\r\n").status(),
        Some(200)
    );
    shows(&node, &key, 0);

    // A removed binding stays removed.
    assert_eq!(pbx.register(&contact).status(), Some(200));
    written_down(&node, 1);
    assert_eq!(
        pbx.register("Contact: *\r\nExpires: 0\r\n").status(),
        Some(200)
    );
    written_down(&node, 0);
    node.end();
    node.serve_again();
    std::thread::sleep(A_WHILE);
    assert_eq!(shown(&node, &key), (false, 0));
}

#[test]
fn a_registration_at_one_node_is_known_to_the_other() {
    let prefixes = ("TRUNKLINE__PHONE__OUTBOUND_PREFIXES", "+44");
    let Some(mut pair) = Pair::new(&[prefixes]) else {
        return;
    };
    let (key, agent) = (pair.key.clone(), text(&pair.outset["agent_id"]));
    dials_the_pbx(&pair.first, &key, &agent);
    let (first, second) = (pair.first.setup.sip, pair.second.setup.sip);

    // Any node calls the PBX directly if no NAT changes its address.
    let mut pbx = Pbx::udp_to(second, credentials(&pair.outset));
    let contact = format!("Contact: <sip:pbx@{}>\r\nExpires: 600\r\n", pbx.address());
    assert_eq!(pbx.register(&contact).status(), Some(200));

    shows(&pair.first, &key, 1);
    pbx.listens_to(first);
    let mut pbx = calls(&pair.first, &key, &agent, pbx);
    pbx.listens_to(second);
    assert_eq!(
        pbx.register("Contact: *\r\nExpires: 0\r\n").status(),
        Some(200)
    );

    shows(&pair.first, &key, 0);
    let (status, refused) = pair
        .first
        .change("POST", "/phone/outbound-call", &key, &order(&agent));
    assert_eq!(status, 409, "{refused}");

    // A PBX on TCP is called by the node that has its connection.
    let mut pbx = Pbx::tcp_to(second, credentials(&pair.outset));
    pbx.sent_by = PRIVATE.to_owned();
    let private = format!("Contact: <sip:pbx@{PRIVATE};transport=tcp>\r\n");
    assert_eq!(pbx.register(&private).status(), Some(200));
    shows(&pair.first, &key, 1);
    let pbx = calls(&pair.first, &key, &agent, pbx);

    // That node's refusal is passed on with its code.
    let order = json!({"phone_agent_id": agent, "phone_number": "+14155550100"});
    for node in [&pair.first, &pair.second] {
        let (status, refused) = node.change("POST", "/phone/outbound-call", &key, &order);
        assert_eq!(status, 403, "{refused}");
        assert_eq!(refused["code"], "destination_not_allowed", "{refused}");
    }

    // The connection ends with that node.
    pair.second.end();
    shows(&pair.first, &key, 0);
    drop(pbx);
}

/// Returns the states in the events of the trunk's PBXs, in order.
fn told(database: &Database) -> Vec<String> {
    database.texts(
        "SELECT type || ' ' || COALESCE(body::json->'data'->>'reason', '') FROM events WHERE type LIKE 'trunk.%' ORDER BY seq",
    )
}

#[test]
fn the_loss_of_a_node_tells_its_registrations_as_lost_once() {
    let lease = ("TRUNKLINE__SIP__NODE_LEASE_S", "5");
    let Some(mut pair) = Pair::new(&[lease]) else {
        return;
    };
    let mut third = pair.environment();
    third.push((lease.0.to_owned(), lease.1.to_owned()));
    third.push(("TRUNKLINE__SIP__NODE".to_owned(), "2".to_owned()));
    let third = NodeSetup::new(&third).serve();
    let (key, second) = (pair.key.clone(), pair.second.setup.sip);
    let mut hidden = Pbx::tcp_to(second, credentials(&pair.outset));
    hidden.sent_by = PRIVATE.to_owned();
    let private = format!("Contact: <sip:pbx@{PRIVATE};transport=tcp>\r\nExpires: 600\r\n");
    assert_eq!(hidden.register(&private).status(), Some(200));

    for node in [&pair.first, &third] {
        shows(node, &key, 1);
    }
    pair.second.kill();
    let lost = || {
        let told = told(&pair.database);
        (told.len() > 1).then_some(told)
    };
    let told_as = Deadline::after(LIMIT).poll(lost);
    let expected = ["trunk.registered ", "trunk.lost node_lost"];
    assert_eq!(told_as.as_deref(), Some(&expected.map(str::to_owned)[..]));

    // The other node adds nothing, nor does the restarted one.
    pair.second.serve_again();
    std::thread::sleep(A_WHILE);
    assert_eq!(told(&pair.database), expected);
    shows(&pair.first, &key, 0);

    // A PBX with a reachable Contact outlives its node, and ends like any other.
    let mut open = Pbx::udp_to(second, credentials(&pair.outset));
    let contact = format!("Contact: <sip:pbx@{}>\r\nExpires: 30\r\n", open.address());
    assert_eq!(open.register(&contact).status(), Some(200));

    for node in [&pair.first, &third] {
        shows(node, &key, 1);
    }
    pair.second.kill();
    let lost = || {
        let told = told(&pair.database);
        (told.len() > 3).then_some(told)
    };
    let told_as = Deadline::after(2 * LIMIT).poll(lost).unwrap_or_default();
    assert_eq!(told_as[2..], ["trunk.registered ", "trunk.lost expired"]);
    std::thread::sleep(A_WHILE);
    assert_eq!(told(&pair.database).len(), 4, "it is told once");
}

#[test]
fn a_node_that_was_held_up_tells_its_registrations_anew() {
    let Some(pair) = Pair::new(&[("TRUNKLINE__SIP__NODE_LEASE_S", "5")]) else {
        return;
    };
    let (key, held_up) = (pair.key.as_str(), &pair.second);
    let mut pbx = Pbx::tcp_to(held_up.setup.sip, credentials(&pair.outset));
    pbx.sent_by = PRIVATE.to_owned();
    let private = format!("Contact: <sip:pbx@{PRIVATE};transport=tcp>\r\nExpires: 600\r\n");
    assert_eq!(pbx.register(&private).status(), Some(200));
    shows(&pair.first, key, 1);

    held_up.signal("STOP");
    let count = |wanted: usize| {
        let reached = || (told(&pair.database).len() >= wanted).then_some(());
        let reached = Deadline::after(LIMIT).poll(reached);
        assert!(reached.is_some(), "{:?}", told(&pair.database));
    };
    count(2);
    shows(&pair.first, key, 0);
    held_up.signal("CONT");
    count(3);
    shows(&pair.first, key, 1);

    // A refresh, and the next checks of both nodes, add no event.
    assert_eq!(pbx.register(&private).status(), Some(200));
    std::thread::sleep(A_WHILE);
    let expected = [
        "trunk.registered ",
        "trunk.lost node_lost",
        "trunk.registered ",
    ];
    assert_eq!(told(&pair.database), expected);

    let sql = "SELECT body::json->'data'->>'contact' FROM events WHERE type = 'trunk.registered' ORDER BY seq";
    let contacts = pair.database.texts(sql);
    assert_eq!(
        contacts[0], contacts[1],
        "one event says what the other does"
    );
}

#[test]
fn a_transfer_needs_no_flow_of_another_node() {
    let Some(pair) = Pair::new(&[]) else {
        return;
    };
    let (node, key) = (&pair.first, pair.key.as_str());
    let agent = text(&pair.outset["agent_id"]);
    let (own, carrier) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 3]));
    let org = text(&pair.outset["org_id"]);

    for source in [own, carrier] {
        let source = source.to_string();
        node.setup
            .run(&["trunk", "dedicate", &source, "--org", &org, "--json"]);
    }

    node.made("PATCH", TRUNK, key, &json!({"transfer_way": "bridge"}));
    let path = format!("/phone/sip/agents/{agent}/transfer-destinations");
    for (name, via) in [("Sales", "pbx"), ("Desk", "trunk")] {
        let create = json!({"name": name, "type": "phone", "value": SALES, "via": via});
        node.made("POST", &path, key, &json!({"create": create}));
    }

    let mut pbx = Pbx::tcp_to(pair.second.setup.sip, credentials(&pair.outset));
    pbx.sent_by = PRIVATE.to_owned();
    let private = format!("Contact: <sip:pbx@{PRIVATE};transport=tcp>\r\n");
    assert_eq!(pbx.register(&private).status(), Some(200));

    shows(node, key, 1);
    let transfer = |call: &str, name: &str| {
        let path = format!("/phone/calls/{call}/transfer");
        let (status, begun) = node.change("POST", &path, key, &json!({"destination": name}));
        assert_eq!(status, 202, "{begun}");
    };
    let sdp = |ip: IpAddr| offer(SocketAddr::new(ip, 4_000));
    let number = text(&pair.outset["phone_number"]);
    let up = || {
        let up = Deadline::after(LIMIT).poll(|| {
            let (_, page) = node.get("/phone/calls?status=in_progress", key);
            let page: Value = serde_json::from_str(&page).ok()?;
            page["items"].get(0).map(|call| text(&call["id"]))
        });
        up.expect("a call that is up")
    };

    // The PBX that called from behind NAT is called on that call's flow, not through the carrier, where nothing listens.
    let trunk = json!({"name": "Carrier", "host": "127.0.0.1", "port": free_port(), "transport": "udp",
        "caller_number": "+442071838750"});
    let trunk = node.made("POST", "/phone/sip/outbound-trunks", key, &trunk);
    let dials = format!("/phone/sip/agents/{agent}/outbound-trunk");
    node.made("PUT", &dials, key, &json!({"trunk_id": trunk["id"]}));
    let sip = node.setup.sip;
    let (talker, answer) = Talker::call_with(Some(PRIVATE), own, sip, &number, &sdp(own));
    assert_eq!(answer.status(), Some(200), "{answer:?}");

    let call = up();
    transfer(&call, "Sales");
    let invite = talker.asked("INVITE").expect("the PBX is called");
    let line = invite.start_line();
    assert!(
        line.starts_with(&format!("INVITE sip:{SALES}@")),
        "{invite}"
    );

    let (status, ended) = node.change(
        "POST",
        &format!("/phone/calls/{call}/hangup"),
        key,
        &json!({}),
    );
    assert!(matches!(status, 200 | 202), "{status}: {ended}");

    // Any other caller's PBX gets a REFER.
    dials_the_pbx(node, key, &agent);
    let (talker, answer) = Talker::call(carrier, sip, &number, &sdp(carrier));
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    transfer(&up(), "Desk");
    let first = talker.asked("").expect("a request");
    assert!(first.is_request("REFER"), "{first}");
}
