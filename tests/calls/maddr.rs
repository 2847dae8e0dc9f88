//! `maddr` of a Contact, of a recorded route and of a destination: it sets where a request goes (RFC 3261 §19.1.1, RFC 3263 §4), and so whose
//! credentials apply.

use std::net::UdpSocket;

use serde_json::json;

use crate::calls::challenges::trunk_with;
use trunkline_testkit::leg::{
    ATTACKER, HONEST, PATIENCE, inbound, inbound_by, refuse, with_runtime, with_sdp,
};
use trunkline_testkit::{Deadline, Peer};

/// An address that nothing here listens on.
const NOWHERE: &str = "192.0.2.9";

#[test]
fn requests_in_a_dialog_go_where_maddr_says() {
    let (daemon, agent) = with_runtime();

    for in_route in [false, true] {
        let hop = Peer::new(daemon.sip());
        let (ip, port) = (hop.own.ip(), hop.own.port());
        let lines = match in_route {
            false => format!("Contact: <sip:agent@{NOWHERE}:{port};maddr={ip}>\r\n"),
            true => format!(
                "Record-Route: <sip:{NOWHERE}:{port};lr;maddr={ip}>\r\nContact: <sip:agent@{NOWHERE}>\r\n"
            ),
        };
        let accept = |invite| {
            with_sdp(&agent.end, &invite, &lines);
            invite
        };
        let pair = daemon.credentials();
        let (pbx, _) = inbound_by(&daemon, &agent, Some(&pair), (None, None), accept);

        hop.request("ACK");
        pbx.ask("BYE");
        let ended = hop.request("BYE");
        hop.reply(&ended, "200 OK", "");
    }
}

#[test]
fn a_trunks_pair_does_not_follow_its_host_to_another_maddr() {
    let (daemon, agent) = with_runtime();
    let carrier = Peer::new(daemon.sip());
    // The carrier's port at the attacker's address.
    let socket = UdpSocket::bind((ATTACKER, carrier.own.port())).expect("the same port");
    let attacker = Peer::bound(socket, Some(daemon.sip()));
    trunk_with(&daemon, carrier.own, &json!({}));
    let value = format!("sip:+19005550100@{};maddr={ATTACKER}", carrier.own);
    daemon.destination_via("trunk", "Sales", "sip", &value);

    let pair = daemon.credentials();
    inbound(&daemon, &agent, &pair, (None, None));
    let path = format!("/phone/calls/{}", daemon.answered_call());
    let ask = json!({"destination": "sales"});
    let (status, begun) = daemon.change("POST", &format!("{path}/transfer"), &ask);
    assert_eq!(status, 202, "{begun}");

    // The daemon doesn't answer the challenge, so the transfer fails.
    let invite = attacker.request("INVITE");
    refuse(&attacker, &invite, HONEST);
    let failed = Deadline::after(PATIENCE).poll(|| {
        if let Some(message) = attacker.soon() {
            assert_eq!(message.header("Authorization"), None, "{message:?}");
        }
        (daemon.shown(&path)["transfer"]["status"] == "failed").then_some(())
    });
    assert!(failed.is_some(), "{}", daemon.shown(&path));
}
