//! An org that has as many contacts as it may have: its calls go on, and known callers are known.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::message::SDP;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Peer};

const CALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Time for a look-up to be answered.
const LOOKED_UP: Duration = Duration::from_secs(1);

/// Calls the echo agent from this number; returns whether the call gets a contact.
fn has_contact(daemon: &Daemon, number: &str) -> bool {
    let peer = Peer::on(CALLER, daemon.sip());
    let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
    let id = format!("{number}-{}", peer.own.port());
    let mut dialog = Dialog::calling(&uri, number, &id, &peer)
        .with(&format!("Contact: <sip:caller@{}>", peer.own));
    let answer = peer.ask(&dialog.request(&peer, (1, "INVITE"), "", SDP));
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    dialog.accepted(&answer);
    peer.send(dialog.ack(&peer, 1, &answer));

    let contact = Deadline::after(LOOKED_UP).poll(|| {
        let calls = daemon.calls();
        let mut calls = calls.iter();
        let own = calls.find(|call| call["caller_call_id"] == dialog.id.as_str())?;
        own["contact_id"].is_string().then_some(())
    });
    let ended = peer.ask(&dialog.request(&peer, (2, "BYE"), "", ""));
    assert_eq!(ended.status(), Some(200), "{ended:?}");
    contact.is_some()
}

#[test]
fn calls_of_unknown_callers_go_on_without_a_contact() {
    let setup = DaemonSetup::new();
    setup.dedicate(&CALLER.to_string());
    let org = setup.org.clone();
    setup.run(&["org", "limits", org.as_str(), "--contacts", "1", "--json"]);
    let daemon = setup.serve();

    let (known, unknown) = ("+441632960001", ["+441632960002", "+441632960003"]);
    assert!(has_contact(&daemon, known));
    for number in unknown {
        assert!(!has_contact(&daemon, number), "{number}");
    }
    assert!(has_contact(&daemon, known));

    let refused = "as many contacts as it may have";
    daemon.log_line(&[refused]);
    let log = daemon.log();
    let lines = log.matches(refused).count();
    assert_eq!(lines, 1, "once a minute: {log}");
}
