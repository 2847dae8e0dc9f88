//! Session of a call, whose token the runtime gets with its INVITE, read over HTTP.

use std::time::Duration;

use serde_json::json;

use trunkline_testkit::{DaemonSetup, Runtime, tools};

/// The token that the runtime got opens its call's session, and expires with the call.
#[test]
fn a_runtime_reads_its_session_while_the_call_lasts() {
    if !tools(&["sipp"]) {
        return;
    }

    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    setup.runtime(&setup.first_agent, &runtime.uri());
    let daemon = setup.serve();

    // The first call creates the caller's contact; on a slow disk that may be too late for its INVITE.
    let agent = runtime.play("runtime_answers");
    daemon.caller().play("caller_hangs_up").finish();
    agent.finish();
    let agent = runtime.play("runtime_answers");
    let caller = daemon
        .caller()
        .talks(Duration::from_secs(6))
        .play("caller_hangs_up");
    agent.wait_for("ACK");
    let trace = agent.so_far();
    let invite = trace.request("INVITE");
    let header = |name| invite.header(name).expect("the header is there").to_owned();
    let path = format!("/phone/sessions/{}", header("X-PLATFORM-SESSION-ID"));
    let token = header("X-PLATFORM-SESSION-TOKEN");
    let (status, shown) = daemon.read(&path, &token);

    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["status"], "in_progress");
    assert_eq!(shown["agent"]["id"], daemon.setup.first_agent);
    assert_eq!(shown["caller"]["e164"], "+441632960001");
    assert_eq!(shown["contact"]["id"], header("X-PLATFORM-CONTACT-ID"));
    assert_eq!(shown["headers"]["X-Account"], "4711");
    assert_eq!(shown["headers"]["X-Queue-Name"], "front desk");
    assert_eq!(
        daemon.read(&path, daemon.key()).1["call_id"],
        shown["call_id"]
    );

    caller.finish();
    agent.finish();
    daemon.records(2);
    let (status, over) = daemon.read(&path, &token);
    assert_eq!(
        (status, &over["message"]),
        (401, &json!("The session is over, and its token with it"))
    );

    let (status, shown) = daemon.read(&path, daemon.key());

    assert_eq!((status, &shown["status"]), (200, &json!("completed")));
    assert_eq!(shown["headers"]["X-Account"], "4711");
    assert!(
        !daemon.log().contains(&token),
        "the token stands in the log"
    );
}
