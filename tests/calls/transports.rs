//! The same call over TCP and IPv6.

use std::net::Ipv6Addr;

use trunkline_testkit::{Daemon, DaemonSetup, Runtime, tools};

fn assert_completed(daemon: &Daemon) {
    let call = daemon.record();
    assert_eq!(call["status"], "completed", "{call}");
}

#[test]
fn a_caller_on_tcp_reaches_a_runtime_on_udp() {
    if !tools(&["sipp"]) {
        return;
    }

    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    setup.runtime(&setup.first_agent, &runtime.uri());

    let daemon = setup.serve();
    let agent = runtime.play("runtime_answers");
    let caller = daemon.caller().over_tcp().play("caller_hangs_up").finish();
    agent.finish();

    let contact = caller
        .response(200, "INVITE")
        .header("Contact")
        .unwrap_or_default();

    assert!(
        contact.to_ascii_lowercase().contains("transport=tcp"),
        "requests in the dialog stay on TCP:\n{caller}"
    );
    assert_completed(&daemon);
}

#[test]
fn a_caller_on_udp_reaches_a_runtime_on_tcp() {
    if !tools(&["sipp"]) {
        return;
    }

    let (setup, runtime) = (DaemonSetup::new(), Runtime::new().over_tcp());
    setup.runtime(&setup.first_agent, &runtime.uri());

    let daemon = setup.serve();
    let agent = runtime.play("runtime_answers");
    daemon.caller().play("caller_hangs_up").finish();

    let agent = agent.finish();
    assert!(
        agent
            .request("INVITE")
            .header("Via")
            .is_some_and(|via| via.starts_with("SIP/2.0/TCP ")),
        "{agent}"
    );
    assert_completed(&daemon);
}

#[test]
fn a_runtime_on_tcp_hangs_up() {
    if !tools(&["sipp"]) {
        return;
    }

    let (setup, runtime) = (DaemonSetup::new(), Runtime::new().over_tcp());
    setup.runtime(&setup.first_agent, &runtime.uri());
    let daemon = setup.serve();
    let agent = runtime.play("runtime_hangs_up");
    daemon
        .caller()
        .over_tcp()
        .play("caller_is_hung_up_on")
        .finish();
    agent.finish();
    assert_completed(&daemon);
}

#[test]
fn a_caller_on_ipv6_is_answered() {
    if !tools(&["sipp"]) {
        return;
    }
    let daemon = DaemonSetup::on(Ipv6Addr::LOCALHOST.into()).serve();
    daemon.caller().play("caller_hangs_up").finish();
    daemon.caller().over_tcp().play("caller_hangs_up").finish();
    let calls = daemon.records(2);
    assert!(
        calls.iter().all(|call| call["status"] == "completed"),
        "{calls:?}"
    );
}
