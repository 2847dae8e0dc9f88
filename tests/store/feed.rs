//! The change feed: nothing is missed, in whatever order writers commit.

use std::collections::HashSet;

use sqlx::{Connection, PgConnection};
use trunkline::api::token;
use trunkline_store::feed::KEPT;
use trunkline_store::{Change, NewOrgKey, agents, feed};

use crate::test_db::{NOW, TestDb, agent, done, found, org};

crate::on_both!(
    a_write_is_followed,
    interleaved_writers_are_all_seen,
    a_reader_that_was_away_starts_anew,
);

/// SQLite has one writer at a time.
#[test]
fn an_earlier_number_is_waited_for() {
    crate::test_db::on_postgres(|db| Box::pin(waited_for(db)));
}

async fn a_write_is_followed(db: &TestDb) {
    let (writer, reader) = (db.open().await, db.open().await);
    let start = reader.read(feed::position).await.expect("a position");
    let org = org(&writer, "Org").await.id;
    let key = token::issue(&writer, org, NewOrgKey::lasting("Key", &[]), NOW)
        .await
        .expect("a key")
        .0
        .id;
    agent(&writer, org, "Anna").await;

    assert!(
        writer
            .write(move |tx| agents::delete(tx, org, key, NOW))
            .await
            .is_err(),
        "no such agent"
    );

    let changes = reader
        .read_inline(move |tx| feed::since(tx, start))
        .await
        .expect("changes");

    assert_eq!(
        changes.changes,
        [
            Change::Org(org),
            Change::OrgKey { org, key },
            Change::Org(org)
        ]
    );

    assert!(!changes.missed);
    assert_eq!(
        changes.seq,
        reader.read(feed::position).await.expect("a position")
    );

    let rest = reader
        .read_inline(move |tx| feed::since(tx, changes.seq))
        .await
        .expect("changes");

    assert_eq!((rest.changes, rest.seq), (vec![], changes.seq));
}

/// A reader that follows while many write must see every change once.
async fn interleaved_writers_are_all_seen(db: &TestDb) {
    const WRITERS: usize = 6;
    const EACH: usize = 10;

    let stores = db.open_nodes(3).await;
    let reader = &stores[2];
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = stores[writer % 2].clone();
        tasks.spawn(async move {
            let mut made = Vec::new();
            for _ in 0..EACH {
                made.push(org(&store, "Org").await.id);
            }
            made
        });
    }

    let mut seen = Vec::new();
    let mut seq = 0;
    while seen.len() < WRITERS * EACH {
        let done = tasks.is_empty();
        let changes = reader
            .read_inline(move |tx| feed::since(tx, seq))
            .await
            .expect("changes");
        assert!(
            !done || !changes.changes.is_empty(),
            "only {} of {} were seen",
            seen.len(),
            WRITERS * EACH
        );
        seq = changes.seq;
        seen.extend(changes.changes);
        while tasks.try_join_next().is_some() {}
    }

    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), WRITERS * EACH);
}

async fn a_reader_that_was_away_starts_anew(db: &TestDb) {
    let store = db.open().await;
    org(&store, "Old").await;

    let away = found(&store, feed::position).await;
    org(&store, "Unseen").await;

    let last = found(&store, feed::position).await;
    done(&store, move |tx| feed::prune(tx, NOW + KEPT)).await;

    assert!(
        !found(&store, move |tx| feed::since(tx, away)).await.missed,
        "not older than the limit"
    );

    done(&store, move |tx| {
        feed::prune(tx, NOW + KEPT + std::time::Duration::from_secs(1))
    })
    .await;
    assert_eq!(found(&store, feed::position).await, last);

    let changes = found(&store, move |tx| feed::since(tx, away)).await;
    assert_eq!(
        (changes.missed, changes.seq, changes.changes),
        (true, last, vec![])
    );

    let changes = found(&store, move |tx| feed::since(tx, last)).await;
    assert!(!changes.missed);

    let org = org(&store, "New").await.id;
    assert_eq!(
        found(&store, move |tx| feed::since(tx, last)).await.changes,
        [Change::Org(org)]
    );
}

/// A writer that has a number and hasn't committed holds up the next one; else a reader would skip its change.
async fn waited_for(db: &TestDb) {
    let store = db.open().await;
    let url = db.options.url.as_deref().expect("PostgreSQL has a URL");
    let first = org(&store, "First").await.id;
    let start = found(&store, feed::position).await;

    let mut slow = PgConnection::connect(url)
        .await
        .expect("the database answers");
    let mut slow = slow.begin().await.expect("a transaction");
    for sql in [
        "SELECT pg_advisory_xact_lock(8390898172846669826)",
        "INSERT INTO changes (org_id, kind, at) SELECT id, 'org', 0 FROM orgs",
    ] {
        sqlx::raw_sql(sql).execute(&mut *slow).await.expect(sql);
    }

    let fast = tokio::spawn({
        let store = store.clone();
        async move { org(&store, "Second").await.id }
    });

    let mut watch = PgConnection::connect(url)
        .await
        .expect("the database answers");
    let waiting = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

    loop {
        let (waiting,): (i64,) = sqlx::query_as(waiting)
            .fetch_one(&mut watch)
            .await
            .expect("locks");
        assert!(!fast.is_finished(), "it overtook");
        if waiting == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }

    assert_eq!(
        found(&store, move |tx| feed::since(tx, start))
            .await
            .changes,
        []
    );

    slow.commit().await.expect("a commit");
    let second = fast.await.expect("an org");
    let changes = found(&store, move |tx| feed::since(tx, start))
        .await
        .changes;
    assert_eq!(changes, [Change::Org(first), Change::Org(second)]);
}
