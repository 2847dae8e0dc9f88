//! The audit log: entries are committed with their changes, are numbered in the order in which they become visible, and expire.

use std::collections::BTreeSet;
use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_store::{
    Acting, Actor, ActorKind, AuditEntry, AuditFilter, AuditScope, AuditedAction, NewOrg, Store,
    audit, deleted_orgs, orgs,
};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, found, later, org};

crate::on_both!(
    a_change_and_its_entry_are_one,
    a_reader_misses_no_entry_of_another_node,
    old_entries_are_forgotten,
    an_entry_from_the_future_keeps_no_old_ones,
);

pub(crate) fn acting(at: Moment) -> Acting {
    Acting::new(AuditedAction {
        at,
        address: None,
        action: "org create".to_owned(),
        resource: "org",
        resource_id: None,
        request_id: None,
    })
}

pub(crate) fn operator() -> Actor {
    Actor {
        kind: ActorKind::Command,
        id: None,
        name: "trunkline org create".to_owned(),
    }
}

/// Makes an org in the operator's name.
async fn make(store: &Store, name: &str, at: Moment) -> Uuid {
    let new = NewOrg::named(name);
    let made = async {
        Acting::by(operator(), None, None);
        Acting::fields(["name"]);
        store
            .write(move |tx| orgs::create(tx, None, &new, at))
            .await
    };
    acting(at).scope(made).await.expect("an org").id
}

pub(crate) async fn all(store: &Store) -> Vec<AuditEntry> {
    let filter = AuditFilter::default();
    found(store, move |tx| {
        audit::after(tx, AuditScope::All, &filter, 0, 10_000)
    })
    .await
}

async fn a_change_and_its_entry_are_one(db: &TestDb) {
    let store = db.open().await;
    let made = make(&store, "Acme", NOW).await;
    let entries = all(&store).await;
    let [entry] = &entries[..] else {
        panic!("{entries:?}");
    };
    assert_eq!((entry.org_id, entry.resource_id), (Some(made), Some(made)));
    assert_eq!((entry.at, &*entry.actor), (NOW, "command"));
    assert_eq!(entry.fields, ["name"]);

    // A change without an actor, and one that is refused, leave no entry.
    org(&store, "Beside").await;
    let refused = async {
        Acting::by(operator(), None, None);
        store
            .write(move |tx| {
                deleted_orgs::delete(tx, Uuid::nil(), trunkline_store::Purge::Later, NOW)
            })
            .await
    };
    acting(NOW).scope(refused).await.expect_err("there is none");
    assert_eq!(all(&store).await, entries);
}

async fn a_reader_misses_no_entry_of_another_node(db: &TestDb) {
    const NODES: usize = 4;
    const EACH: usize = 30;
    let mut writers = Vec::new();
    let mut nodes = db.open_nodes(NODES + 1).await;
    let reader = nodes.remove(NODES);

    for (node, store) in nodes.into_iter().enumerate() {
        writers.push(tokio::spawn(async move {
            let mut made = Vec::new();
            for turn in 0..EACH {
                made.push(make(&store, &format!("{node} {turn}"), NOW).await);
            }
            made
        }));
    }

    let (mut seen, mut seq) = (BTreeSet::new(), 0);
    loop {
        let is_over = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let entries = found(&reader, move |tx| {
            audit::after(tx, AuditScope::All, &AuditFilter::default(), seq, 5)
        })
        .await;
        seq = entries.last().map_or(seq, |entry| entry.seq);
        seen.extend(entries.iter().filter_map(|entry| entry.resource_id));
        if is_over && entries.is_empty() {
            break;
        }
    }

    let mut made = BTreeSet::new();
    for writer in writers {
        made.extend(writer.await.expect("a writer ends well"));
    }
    assert_eq!(seen, made, "nothing is skipped");
}

async fn old_entries_are_forgotten(db: &TestDb) {
    let store = db.open().await;
    for at in 0..5 {
        make(&store, &format!("{at}"), later(at)).await;
    }
    let kept = Duration::from_secs(2);
    let pruned = audit::prune(&store, kept, later(4)).await;
    assert_eq!(pruned.expect("pruned"), 2);
    let times: Vec<_> = all(&store).await.iter().map(|entry| entry.at).collect();
    assert_eq!(times, [later(2), later(3), later(4)]);
}

async fn an_entry_from_the_future_keeps_no_old_ones(db: &TestDb) {
    let store = db.open().await;
    db.execute(
        "INSERT INTO audit_log (seq, at, actor, actor_name, action, resource, fields)
         WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 1101)
         SELECT n, CASE WHEN n = 1 THEN 9000000000000000 ELSE 0 END, 'command', '', '', 'org', '[]' FROM counted",
    )
    .await;
    let pruned = audit::prune(&store, Duration::from_secs(2), NOW).await;
    assert_eq!(pruned.expect("pruned"), 1_100);
    assert_eq!(all(&store).await.len(), 1);
}
