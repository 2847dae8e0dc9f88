//! kill -9 the moment that a call is listed: it has a record all the same.

use std::time::Duration;

use crate::caller::{Caller, Dialling};
use crate::harness::{Deadline, House};
use crate::house::until;
use crate::one_shard;
use crate::runtime::Runtime;

const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn a_call_that_was_listed_has_a_record_after_kill_9() {
    let house = one_shard(House::new());
    let _silent = Runtime::of(&house);
    let mut daemon = house.serve();

    for round in 1..=ROUNDS {
        let caller = Caller::new(daemon.sip(), daemon.credentials());
        let number = daemon.house.first_number.clone();
        caller.dial(&Dialling::new(
            &format!("kept{round}"),
            &number,
            daemon.sip(),
        ));
        until(|| {
            let calls = daemon.calls();
            let is_listed = calls.iter().any(|call| call["status"] == "ringing");
            is_listed.then_some(())
        });

        daemon.process.signal("KILL");
        let ended = daemon.process.wait(Deadline::after(LIMIT));
        assert!(ended.is_some(), "it can't catch that");
        daemon.process = daemon.house.start();
        for call in daemon.records(round) {
            assert_eq!(call["status"], "lost", "round {round}: {call}");
        }
    }
}
