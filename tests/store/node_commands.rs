//! Commands of one node to another.

use std::time::Duration;

use trunkline_store::{CommandState, node_commands as commands};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, done, found, later};

crate::on_both!(what_a_node_is_asked_is_done_once);

const ORG: Uuid = Uuid::from_u128(1);

async fn what_a_node_is_asked_is_done_once(db: &TestDb) {
    let store = db.open().await;
    let of = |call| (ORG, Uuid::from_u128(call));
    let first = done(&store, move |tx| {
        commands::put(tx, of(1).0, of(1).1, 1, "one", NOW)
    })
    .await;
    let other = done(&store, move |tx| {
        commands::put(tx, of(2).0, of(2).1, 2, "two", NOW)
    })
    .await;
    // The nodes' clocks may be anywhere: NOW isn't the database's time.
    let take = async |node| {
        let minute = Duration::from_secs(60);
        done(&store, move |tx| commands::take(tx, node, minute, later(1))).await
    };
    let taken = take(1).await;
    let told: Vec<_> = taken.iter().map(|ask| (ask.id, &*ask.what)).collect();
    assert_eq!(told, [(first, "one")]);
    assert_eq!((taken[0].org_id, taken[0].call_id), of(1));
    assert_eq!(take(1).await, [], "once");
    db.execute("UPDATE asks SET asked_at = asked_at - 61000000 WHERE node = 2")
        .await;
    assert_eq!(take(2).await, [], "its sender has given up");

    let state = async |org, ask| found(&store, move |tx| commands::state(tx, org, ask)).await;
    assert_eq!(state(ORG, first).await, CommandState::Taken);
    assert_eq!(state(ORG, other).await, CommandState::Waits);

    done(&store, move |tx| commands::answer(tx, first, 409, "No")).await;
    let no = CommandState::Answered(409, "No".to_owned());
    assert_eq!(state(ORG, first).await, no);

    let foreign = Uuid::from_u128(2);
    let others = state(foreign, first).await;
    assert_eq!(others, CommandState::Waits);

    let withdraw = async |org, ask| done(&store, move |tx| commands::withdraw(tx, org, ask)).await;
    assert!(!withdraw(ORG, first).await && !withdraw(foreign, other).await);
    assert!(withdraw(ORG, other).await);
    db.execute("UPDATE asks SET asked_at = asked_at + 61000000 WHERE node = 2")
        .await;
    assert_eq!(take(2).await, [], "taken back");

    // A command that was taken keeps its answer until its sender forgets it.
    for (org, then) in [(foreign, no), (ORG, CommandState::Waits)] {
        done(&store, move |tx| commands::forget(tx, org, first)).await;
        assert_eq!(state(ORG, first).await, then);
    }

    let old = done(&store, move |tx| {
        commands::put(tx, of(3).0, of(3).1, 1, "old", NOW)
    })
    .await;
    db.execute("UPDATE asks SET asked_at = asked_at - 61000000 WHERE node = 1")
        .await;
    done(&store, move |tx| {
        commands::put(tx, of(4).0, of(4).1, 1, "new", NOW)
    })
    .await;

    assert_eq!(state(ORG, old).await, CommandState::Waits);
    assert!(!withdraw(ORG, old).await);
}
