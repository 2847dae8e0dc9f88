//! An agent that loses its dialog while its caller is being transferred, as a runtime does that restarts.

use std::thread;

use crate::torture::daemon_requests::runtime;
use crate::torture::handed_over::{ASTERISK, DONE, NUMBER, OVER, Pbx, RINGING};
use crate::torture::one_shard;
use trunkline_testkit::{DaemonSetup, assert_handed_over};

const TEXT: &str = "Content-Type: text/plain\r\n";
const SDP: &str = "Content-Type: application/sdp\r\n";
const HELD: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\na=sendonly\r\n";

/// The agent's 481 would end the caller's dialog, if it were relayed (RFC 3261 §12.2.1.2), while its PBX still transfers it.
#[test]
fn a_caller_whose_agent_is_lost_keeps_its_dialog_and_is_transferred() {
    let setup = one_shard(DaemonSetup::new());
    // On a busy machine an INVITE comes again, and must not be taken for that of the next call.
    let mut runtime = runtime(&setup).attentive();
    let daemon = setup.serve();
    daemon.destination("Sales", "phone", NUMBER);
    daemon.setup.settle();

    for (method, lines, body, status) in [
        ("INFO", TEXT, "1", 200),
        ("MESSAGE", TEXT, "hello", 480),
        ("UPDATE", SDP, HELD, 491),
        ("INVITE", SDP, HELD, 491),
    ] {
        let id = format!("lost-{method}");
        let (pbx, _) = Pbx::calls_runtime(&daemon, &runtime, &id, ASTERISK);
        pbx.transfers(&daemon, "Sales");
        pbx.accepts_refer();
        pbx.notifies(RINGING, "active;expires=60");

        let restarted = thread::spawn(move || {
            let relayed = runtime.request(method);
            runtime.reply(&relayed, "481 Call/Transaction Does Not Exist", "");
            runtime
        });
        assert_eq!(pbx.says(method, lines, body), status, "{method}");
        runtime = restarted.join().expect("the runtime was asked");
        let came = pbx.so_far();
        let is_bye = |message: &String| message.starts_with("BYE ");
        assert!(!came.iter().any(is_bye), "{method}: {came:?}");

        pbx.notifies(DONE, OVER);
        pbx.transferred(&daemon, "completed");
        let bye = pbx.request("BYE");
        pbx.answers(&bye, "200 OK");
        assert_handed_over(&pbx.ended(&daemon));
    }
}
