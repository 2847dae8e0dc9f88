//! Transactions as their callers see them: a failed one is rolled back and harms no other, a caller that goes away leaves nothing behind, and
//! shutdown waits for what is under way.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;
use trunkline_store::{
    Broke, Effects, Error, Kind, Narrow, NewHandoff, Store, Tx, Wrong, agents, events, handoffs,
};
use uuid::Uuid;

use crate::on_both;
use crate::test_db::{self, NOW, TestDb, done, found, new_agent};

/// Far beyond the duration of any step.
const LIMIT: Duration = Duration::from_secs(30);

fn make(tx: &mut Tx, org: Uuid, name: &str) -> Result<Uuid, Error> {
    agents::create(tx, org, &new_agent(name), NOW).map(|agent| agent.id)
}

async fn names(store: &Store, org: Uuid) -> Vec<String> {
    let listed = store.read(move |tx| agents::list(tx, org)).await;
    let mut names: Vec<_> = listed
        .expect("agents")
        .into_iter()
        .map(|agent| agent.name)
        .collect();
    names.sort_unstable();
    names
}

async fn what_fails_or_panics_is_rolled_back_and_the_next_is_served(db: &TestDb) {
    let store = db.open().await;
    let org = test_db::org(&store, "Rolled back").await.id;
    // More often than there are threads.
    for _ in 0..6 {
        let failed = store.write(move |tx| {
            make(tx, org, "Failed")?;
            agents::by_id(tx, org, Uuid::nil())
        });
        let fault = failed.await.expect_err("there is no such agent");
        assert!(
            matches!(fault, Error::Wrong(Wrong::Absent(Kind::Agent))),
            "{fault}"
        );

        let writer = store.clone();
        let panicking = async move {
            let panicked = writer.write(move |tx| {
                make(tx, org, "Panicked")?;
                panic!("on purpose");
                #[expect(unreachable_code, reason = "it says what the closure returns")]
                Ok(())
            });
            panicked.await
        };
        let ended = tokio::spawn(panicking).await.expect_err("it panics");
        let panic = ended.into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        let reader = store.clone();
        let panicked = tokio::spawn(async move {
            let read = reader.read(|_| -> Result<(), Error> { panic!("a reader as well") });
            read.await
        });
        assert!(panicked.await.expect_err("it panics").is_panic());
    }
    assert_eq!(names(&store, org).await, [] as [&str; 0]);
    done(&store, move |tx| make(tx, org, "Made")).await;
    assert_eq!(names(&store, org).await, ["Made"]);
}

async fn what_nobody_waits_for_is_not_committed(db: &TestDb) {
    let store = db.open().await;
    let org = test_db::org(&store, "Gone").await.id;
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        let written = writer.write(move |tx| {
            make(tx, org, "Nobody's")?;
            let _ = begun.send(());
            // The channel closes with the sender, also if the test fails.
            let _ = may_go_on.recv();
            Ok(())
        });
        written.await
    });

    has_begun.await.expect("it begins");
    writing.abort();
    assert!(writing.await.expect_err("aborted").is_cancelled());
    drop(go_on);

    // On SQLite this waits for the other transaction.
    done(&store, move |tx| make(tx, org, "Made")).await;
    assert_eq!(names(&store, org).await, ["Made"]);
}

async fn a_read_after_a_write_sees_it_and_a_snapshot_does_not_move(db: &TestDb) {
    let store = db.open().await;
    let org = test_db::org(&store, "Seen").await.id;
    let (seen, has_seen) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let reader = store.clone();
    let reading = tokio::spawn(async move {
        let read = reader.read(move |tx| {
            let before = agents::page(tx, org, &Narrow::default(), None, 1)?.total;
            let _ = seen.send(());
            let _ = may_go_on.recv();
            Ok((before, agents::list(tx, org)?.len()))
        });
        read.await
    });

    has_seen.await.expect("it reads");
    for count in 1..=9 {
        done(&store, move |tx| make(tx, org, "Made")).await;
        assert_eq!(names(&store, org).await.len(), count);
        let inline = store.read_inline(move |tx| agents::list(tx, org)).await;
        assert_eq!(inline.expect("agents").len(), count);
    }
    drop(go_on);

    let (before, after) = reading.await.expect("no panic").expect("read");
    assert_eq!((before, after), (0, 0));
}

async fn more_at_once_than_there_are_threads_take_turns(db: &TestDb) {
    let store = db.open().await;
    let org = test_db::org(&store, "Many").await.id;
    let tasks: Vec<_> = (0..60)
        .map(|place| {
            let store = store.clone();
            tokio::spawn(async move {
                if place % 2 == 0 {
                    store.write(move |tx| make(tx, org, "One of many")).await?;
                } else {
                    store.read(move |tx| agents::list(tx, org)).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();

    for task in tasks {
        task.await.expect("no panic").expect("each has its turn");
    }

    assert_eq!(names(&store, org).await.len(), 30);
}

async fn what_is_held_takes_part_in_the_turns(db: &TestDb) {
    let store = db.open().await;
    let org = test_db::org(&store, "Held").await.id;
    let effects = Effects::default();
    effects.hold(test_db::agent(&store, org, "Undone")).await;

    // An edit locks its org for other writers, on either database.
    let (writer, done) = (
        store.clone(),
        Arc::new(std::sync::atomic::AtomicBool::new(false)),
    );
    let is_done = Arc::clone(&done);
    let other = tokio::spawn(async move {
        let made = writer.write(move |tx| make(tx, org, "Other")).await;
        is_done.store(true, std::sync::atomic::Ordering::SeqCst);
        made
    });

    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!done.load(std::sync::atomic::Ordering::SeqCst), "it waits");
    // Reads go on meanwhile.
    assert_eq!(names(&store, org).await, [] as [&str; 0]);
    effects.undo();
    other.await.expect("no panic").expect("made");
    assert_eq!(names(&store, org).await, ["Other"]);

    // A failed step releases everything that is held.
    let failed = effects.hold(async {
        test_db::agent(&store, org, "Held").await;
        store
            .write(move |tx| agents::delete(tx, org, Uuid::nil(), NOW))
            .await
    });
    assert!(failed.await.is_err());
    test_db::done(&store, move |tx| make(tx, org, "After")).await;
    assert_eq!(names(&store, org).await, ["After", "Other"]);
}

async fn events_are_written_with_the_commit_alone(db: &TestDb) {
    let store = db.open().await;
    let org = test_db::org(&store, "Told").await.id;
    let before = found(&store, events::position).await;
    let mut recorded = store.events_recorded();
    let new = || NewHandoff {
        session_id: "session".to_owned(),
        contact_id: None,
        summary: "summary".to_owned(),
        explanation: None,
        reasons: Vec::new(),
        sentiment: None,
    };

    let effects = Effects::default();
    effects
        .hold(store.write(move |tx| handoffs::record(tx, org, new(), NOW)))
        .await
        .expect("held");

    assert!(
        !recorded.has_changed().expect("open"),
        "nothing is committed"
    );
    effects.undo();
    assert_eq!(found(&store, events::position).await, before);
    done(&store, move |tx| handoffs::record(tx, org, new(), NOW)).await;
    assert!(recorded.has_changed().expect("open"));
    recorded.mark_unchanged();

    let told = store
        .read(move |tx| events::since(tx, org, before, 9))
        .await;
    assert_eq!(told.expect("events").len(), 1);
}

async fn the_end_waits_for_what_is_under_way(db: &TestDb) {
    let store = db.open().await;
    let org = test_db::org(&store, "Closed").await.id;
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        let written = writer.write(move |tx| {
            let _ = begun.send(());
            let _ = may_go_on.recv();
            make(tx, org, "The last")
        });
        written.await
    });
    has_begun.await.expect("it begins");

    let closer = store.clone();
    let closing = tokio::spawn(async move { closer.close().await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!closing.is_finished());

    drop(go_on);
    writing.await.expect("no panic").expect("written");

    let closed = tokio::time::timeout(LIMIT, closing).await;
    closed.expect("it ends").expect("no panic");

    let fault = store.read(move |tx| agents::list(tx, org)).await;
    let fault = fault.expect_err("it is closed");
    assert!(
        matches!(&fault, Error::Broke(broke @ Broke::Closed) if broke.is_away()),
        "{fault}"
    );
    assert_eq!(names(&db.open().await, org).await, ["The last"]);
}

on_both!(
    what_fails_or_panics_is_rolled_back_and_the_next_is_served,
    what_nobody_waits_for_is_not_committed,
    a_read_after_a_write_sees_it_and_a_snapshot_does_not_move,
    more_at_once_than_there_are_threads_take_turns,
    what_is_held_takes_part_in_the_turns,
    events_are_written_with_the_commit_alone,
    the_end_waits_for_what_is_under_way,
);
