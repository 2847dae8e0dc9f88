//! Each of the four routing steps is chosen by a real INVITE, and the stored decision gives the reason.

use serde_json::{Value, json};

use trunkline_testkit::{Caller, Daemon, DaemonSetup, Runtime, Trace, tools};

/// Plays one call; returns the runtime's trace and the record.
fn call(daemon: &Daemon, runtime: Runtime, caller: &Caller) -> (Trace, Value) {
    let agent = runtime.play("runtime_answers");
    caller.play("caller_hangs_up").finish();
    (agent.finish(), daemon.record())
}

fn assert_chosen(daemon: &Daemon, (runtime, record): (Trace, Value), agent: &str, step: &str) {
    assert_eq!(
        runtime.request("INVITE").header("X-PLATFORM-AGENT-ID"),
        Some(agent),
        "{runtime}"
    );
    assert_eq!(record["agent_id"], agent, "{record}");
    let routing = daemon.routing(&record);
    assert_eq!(
        routing["outcome"],
        json!({"agent": {"id": agent, "step": step}}),
        "{routing}"
    );
}

#[test]
fn the_header_names_the_agent() {
    if !tools(&["sipp"]) {
        return;
    }
    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    let sales = setup.agent("Sales", runtime);
    let daemon = setup.serve();
    let seen = call(&daemon, runtime, &daemon.caller().names_agent(&sales));
    assert_chosen(&daemon, seen, &sales, "header");
}

#[test]
fn the_dialled_number_is_assigned_to_the_agent() {
    if !tools(&["sipp"]) {
        return;
    }
    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    let sales = setup.agent("Sales", runtime);
    setup.assign("+493012345601", &sales);
    let daemon = setup.serve();
    let seen = call(&daemon, runtime, &daemon.caller().dials("+493012345601"));
    assert_chosen(&daemon, seen, &sales, "assigned_number");
}

#[test]
fn the_trunks_numbers_are_tried_in_their_order() {
    if !tools(&["sipp"]) {
        return;
    }
    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    setup.disable(&setup.first_agent); // it holds the first number on the trunk's list
    let sales = setup.agent("Sales", runtime);
    setup.assign("+493012345602", &sales);
    setup.list("+493012345602");
    let daemon = setup.serve();
    let seen = call(&daemon, runtime, &daemon.caller().dials("trunk"));
    assert_chosen(&daemon, seen, &sales, "trunk_numbers");
}

#[test]
fn the_orgs_first_available_agent_takes_what_is_left() {
    if !tools(&["sipp"]) {
        return;
    }
    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    setup.disable(&setup.first_agent);
    let sales = setup.agent("Sales", runtime);
    setup.agent("Younger", Runtime::new());
    let daemon = setup.serve();
    let seen = call(&daemon, runtime, &daemon.caller().dials("+493099999999"));
    assert_chosen(&daemon, seen, &sales, "first_available");
}

#[test]
fn another_orgs_agent_is_noted_and_passed() {
    if !tools(&["sipp"]) {
        return;
    }

    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    let foreign = setup.foreign_agent();
    setup.disable(&setup.first_agent);
    let sales = setup.agent("Sales", runtime);
    let daemon = setup.serve();
    let (trace, record) = call(&daemon, runtime, &daemon.caller().names_agent(&foreign));

    let routing = daemon.routing(&record);
    assert_eq!(
        routing["trail"][0],
        json!({"step": "header", "at": {"header": foreign}, "found": "nothing"}),
        "{routing}"
    );
    assert_chosen(&daemon, (trace, record), &sales, "first_available");
}

/// A change by the command line takes effect on a running daemon.
#[test]
fn a_change_reaches_a_running_daemon() {
    if !tools(&["sipp"]) {
        return;
    }
    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    let daemon = setup.serve();
    let sales = daemon.setup.agent("Sales", runtime);
    daemon.setup.assign("+12025550177", &sales);
    daemon.setup.settle();
    let seen = call(&daemon, runtime, &daemon.caller().dials("+12025550177"));
    assert_chosen(&daemon, seen, &sales, "assigned_number");
}

/// The directory applies edits of its own process at once, so the test doesn't wait a second.
#[test]
fn what_was_set_up_over_the_api_takes_the_next_call() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = (DaemonSetup::new().serve(), Runtime::new());
    let made = |(status, body): (u16, Value)| {
        assert!(status == 200 || status == 201, "{status}: {body}");
        body
    };
    let agent = made(daemon.change(
        "POST",
        "/phone",
        &json!({
            "name": "Sales", "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": false,
            "runtime": {"type": "sip", "uri": runtime.uri()},
        }),
    ));

    let agent = agent["id"].as_str().expect("an id").to_owned();
    let number = json!({"phone_number": "+493012345601"});
    let number = made(daemon.change("POST", "/phone/numbers", &number));
    daemon.setup.run(&[
        "number",
        "verify",
        "+493012345601",
        "--org",
        &daemon.setup.org,
        "--json",
    ]);
    let ids = json!({"phone_number_ids": [number["id"]]});
    let path = format!("/phone/sip/agents/{agent}/inbound-numbers");
    made(daemon.change("PUT", &path, &ids));
    let question = json!({"to": "+493012345601", "from": "+441632960001"});
    let foreseen = made(daemon.change("POST", "/phone/sip/route-test", &question));
    let seen = call(&daemon, runtime, &daemon.caller().dials("+493012345601"));

    let decided = daemon.routing(&seen.1);
    assert_eq!(
        (&foreseen["outcome"], &foreseen["trail"]),
        (&decided["outcome"], &decided["trail"])
    );
    assert_chosen(&daemon, seen, &agent, "assigned_number");
}
