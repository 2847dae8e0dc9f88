//! The end of a call has its duration.

use std::time::Duration;

use serde_json::Value;
use trunkline_model::record::{Fact, Started, Status};
use trunkline_store::{Tx, lost, nodes};
use uuid::Uuid;

use crate::events::{RUN, life, lose_call, told};
use crate::test_db::{self, TestDb, later};
use trunkline_testkit::event_schema::assert_fits;

crate::on_both!(
    an_end_says_how_long_the_call_was,
    a_lost_call_ends_at_the_last_sign_of_life_by_its_own_clock,
);

async fn an_end_says_how_long_the_call_was(db: &TestDb) {
    let store = db.open().await;
    let orgs = [1, 2, 3].map(Uuid::from_u128);
    let facts = orgs.map(|org| life(org, org.as_u128(), Status::Completed));
    let [answered, unanswered, lost] = &facts;

    // The journal's facts come in order, and again after a crash.
    for again in [answered.as_slice(), &answered[3..], answered] {
        test_db::project(&store, RUN, again)
            .await
            .expect("projected");
    }

    let unanswered = [unanswered[0].clone(), unanswered[3].clone()];
    test_db::project(&store, RUN, &unanswered)
        .await
        .expect("projected");
    test_db::project(&store, RUN, &lost[..3])
        .await
        .expect("projected");
    lose_call(&store, later(9)).await;

    for (org, seconds) in orgs.into_iter().zip([(3, 1), (3, 0), (9, 7)]) {
        let told = told(&store, org).await;
        let (end, before) = told.split_last().expect("events");
        let (duration, answered) = seconds;
        assert_eq!(end.0, "call.ended");
        assert_eq!(end.1["duration_s"], duration, "{org}");
        assert_eq!(end.1["answered_s"], answered, "{org}");
        for (kind, data) in before {
            assert_eq!(data["duration_s"], Value::Null, "{kind}");
            assert_fits(kind, data);
        }
    }
}

/// The clock was set back by an hour before the second call, and its node was killed later; nothing is known of the run of the third.
async fn a_lost_call_ends_at_the_last_sign_of_life_by_its_own_clock(db: &TestDb) {
    const LEASE: Duration = Duration::from_secs(30);
    const BACK: Duration = Duration::from_secs(3_600);
    let store = db.open().await;
    let begin = move |tx: &mut Tx| nodes::begin(tx, RUN.node, "host", LEASE);
    let earlier = test_db::done(&store, begin).await;
    let run = test_db::done(&store, begin).await;

    let orgs = [1, 2, 3].map(Uuid::from_u128);
    let offset = i64::try_from(BACK.as_micros()).expect("an hour");
    for (org, origin, clock_offset) in [
        (orgs[0], run, 0),
        (orgs[1], run, -offset),
        (orgs[2], earlier, 0),
    ] {
        let mut facts = life(org, org.as_u128(), Status::Completed);
        facts.truncate(3);
        if let Fact::Started(begun) = &mut facts[0] {
            let begun = Started {
                clock_offset,
                ..Started::clone(begun)
            };
            facts[0] = Fact::Started(begun.into());
        }
        let projected = test_db::project(&store, origin, &facts).await;
        projected.expect("projected");
    }

    // By the clock of timers the second call is an hour younger than its times say.
    let alive = later(9) + BACK;
    for run in [run, earlier] {
        test_db::done(&store, move |tx| nodes::note_alive(tx, run, alive)).await;
    }
    let next = test_db::done(&store, begin).await;
    let at = later(77);
    let closed = move |tx: &mut Tx| lost::close(tx, next.node, next.boot, at);
    assert_eq!(test_db::done(&store, closed).await, 3);
    let told_now = move |tx: &mut Tx| lost::record_ends(tx, next.node, next.boot);
    assert_eq!(test_db::done(&store, told_now).await, 3);

    for (org, answered) in orgs.into_iter().zip([3_607, 7, 75]) {
        let told = told(&store, org).await;
        let (_, end) = told.last().expect("events");
        assert_eq!(end["status"], "lost", "{end}");
        assert_eq!(end["answered_s"], answered, "{org}");
    }
}
