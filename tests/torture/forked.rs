//! 2xx responses of many forks to one INVITE: the first is the call, each other one is acknowledged and ended with BYE (RFC 3261 §13.2.2.4).

use std::collections::HashSet;

use crate::caller::{Caller, Dialling, OFFER};
use crate::daemon_requests::{accepting, runtime};
use crate::one_shard;
use trunkline_testkit::message::status_of;
use trunkline_testkit::{DaemonSetup, Message};

/// More forks than the daemon keeps while their BYEs are unanswered.
const FORKS: usize = 300;

#[test]
fn each_fork_that_has_lost_is_hung_up_on() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("forked", &daemon.setup.first_number, daemon.sip());
    caller.dial(&dialling);
    let invite = runtime.request("INVITE");

    // No fork answers its BYE.
    let mut heard = Vec::new();
    for number in 0..FORKS {
        let tag = format!("fork-{number}");
        runtime.send(invite.answer("200 OK", &tag, &accepting(&runtime), OFFER));
        if number % 20 == 19 {
            heard.extend(runtime.answers_until_probed());
        }
    }
    heard.extend(runtime.answers_until_probed());

    let byes = heard.iter().filter(|request| request.is_request("BYE"));
    let hung_up: HashSet<String> = byes.map(Message::to_tag).collect();
    assert_eq!(hung_up.len(), FORKS - 1, "{hung_up:?}");
    assert!(!hung_up.contains("fork-0"), "it has won");
    assert_eq!(status_of(&caller.peer.outcome("2 INVITE")), 200);
}
