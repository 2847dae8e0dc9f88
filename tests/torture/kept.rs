//! kill -9 the moment that a call is answered or listed: it has a record all the same.

use std::time::Duration;

use crate::caller::{Caller, Dialling};
use crate::harness::{Daemon, Deadline, House};
use crate::house::until;
use crate::one_shard;
use crate::peer::status_of;
use crate::runtime::Runtime;

const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_secs(10);

/// Kills the daemon in each round once `acknowledged` says so, and starts it again.
fn killed_each_time(house: House, acknowledged: impl Fn(&Daemon, &Caller, &Dialling)) {
    let mut daemon = house.serve();
    for round in 1..=ROUNDS {
        let caller = Caller::new(daemon.sip(), daemon.credentials());
        let number = daemon.house.first_number.clone();
        let dialling = Dialling::new(&format!("kept{round}"), &number, daemon.sip());
        acknowledged(&daemon, &caller, &dialling);
        daemon.process.signal("KILL");
        let ended = daemon.process.wait(Deadline::after(LIMIT));
        assert!(ended.is_some(), "it can't catch that");
        daemon.process = daemon.house.start();
        for call in daemon.records(round) {
            assert_eq!(call["status"], "lost", "round {round}: {call}");
        }
    }
}

#[test]
fn a_call_that_was_answered_has_a_record_after_kill_9() {
    // The echo agent answers at once, long before a disk has taken anything.
    killed_each_time(one_shard(House::new()), |_, caller, dialling| {
        assert_eq!(status_of(&caller.call(dialling)), 200);
    });
}

#[test]
fn a_call_that_was_listed_has_a_record_after_kill_9() {
    let house = one_shard(House::new());
    let silent = Runtime::of(&house);
    killed_each_time(house, |daemon, caller, dialling| {
        caller.dial(dialling);
        until(|| {
            daemon
                .calls()
                .iter()
                .any(|call| call["status"] == "ringing")
                .then_some(())
        });
    });
    drop(silent);
}
