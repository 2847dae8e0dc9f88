//! Erasures beside what others do at the same time: another node, changes of other contacts, requests.

use trunkline_store::{ContactDetails, NewHandoff, RowsErased, erasing, erasures, handoffs};

use crate::erasures::{AFTER, NUMBER, calls, contact, dump, erase, request};
use crate::test_db::{self, NOW, TestDb, done, found, later, open_erasures, org};

crate::on_both!(
    two_nodes_at_once_count_each_row_once,
    changes_of_other_contacts_survive,
);

async fn two_nodes_at_once_count_each_row_once(db: &TestDb) {
    let nodes = db.open_nodes(2).await;
    let store = &nodes[0];
    let mut receipts = Vec::new();
    for name in ["One node", "Two nodes"] {
        let org = org(store, name).await.id;
        let id = contact(store, org).await;
        calls(store, org, id).await;
        for at in 0..20 {
            let reported = NewHandoff {
                session_id: format!("s-{at}"),
                contact_id: None,
                summary: "call 020 7183 8750 back".to_owned(),
                explanation: None,
                reasons: Vec::new(),
                sentiment: None,
            };
            done(store, move |tx| {
                handoffs::record(tx, org, reported, later(40 + at))
            })
            .await;
        }
        receipts.push((org, request(store, org, id).await.id));
    }

    let erasures = open_erasures(store, 3).await;
    let of = |place: usize| erasures.iter().find(|it| it.id == receipts[place].1);
    let (one, two) = (of(0).expect("open"), of(1).expect("open"));
    let alone = erasing::erase_rows(store, one, AFTER).await;
    assert_eq!(alone.expect("erased"), RowsErased::All);

    let (first, second) = tokio::join!(
        erasing::erase_rows(&nodes[0], two, AFTER),
        erasing::erase_rows(&nodes[1], two, AFTER)
    );
    let both = (first.expect("erased"), second.expect("erased"));
    assert_eq!(both, (RowsErased::All, RowsErased::All));

    let mut counts = Vec::new();
    for (org, id) in receipts {
        let receipt = found(store, move |tx| erasures::by_id(tx, org, id)).await;
        counts.push(receipt.erased);
    }
    assert_eq!(counts[0].handoffs, 21);
    assert_eq!(counts[0], counts[1]);
}

async fn changes_of_other_contacts_survive(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let id = contact(&store, ours).await;
    let named = |name: &str| ContactDetails {
        name: Some(Some(name.to_owned())),
        ..ContactDetails::default()
    };
    let mut others = Vec::new();
    for place in 0..200 {
        let shares = ContactDetails {
            phone: Some(Some(NUMBER.to_owned())),
            ..named("Old")
        };
        let external_id = format!("shares/{place}");
        let made = store
            .contacts()
            .identify_by_external_id(ours, &external_id, &shares, NOW);
        others.push(made.await.expect("a contact").id);
    }

    request(&store, ours, id).await;
    let erasure = open_erasures(&store, 3).await.remove(0);
    let rename = async {
        for other in &others {
            let renamed = store
                .contacts()
                .update(ours, *other, &named("New"), None, AFTER)
                .await;
            renamed.expect("a contact");
        }
    };
    let (erased, ()) = tokio::join!(erasing::erase_rows(&store, &erasure, AFTER), rename);
    assert_eq!(erased.expect("erased"), RowsErased::All);

    for other in others {
        let left = store.contacts().by_id(ours, other).await;
        let left = left.expect("a contact");
        assert_eq!((left.name.as_deref(), left.phone), (Some("New"), None));
    }
}

/// A request stores its answer between the two reads of a portion: that portion's last row is searched all the same.
#[test]
fn a_row_that_comes_meanwhile_hides_no_other() {
    test_db::on_sqlite(|db| Box::pin(a_row_comes_meanwhile(db)));
}

async fn a_row_comes_meanwhile(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let id = contact(&store, ours).await;

    // A portion, whose first and last row name the contact.
    db.execute(
        "WITH RECURSIVE numbered(at) AS (SELECT 0 UNION ALL SELECT at + 1 FROM numbered WHERE at < 199)
         INSERT INTO idempotency_keys (credential_id, method, path, key, body_hash, expires_at, org_id)
         SELECT x'00000000000000000000000000000005', 'POST', '/phone',
             printf('%03d', at) || CASE WHEN at IN (0, 199) THEN ' 020 7183 8750' ELSE '' END,
             x'', 9000000000000000, (SELECT id FROM orgs)
         FROM numbered",
    )
    .await;
    request(&store, ours, id).await;
    let erasure = open_erasures(&store, 3).await.remove(0);

    // The transaction that erases begins by locking the erasure.
    db.execute(
        "CREATE TRIGGER late AFTER UPDATE ON erasures BEGIN
             INSERT OR IGNORE INTO idempotency_keys (credential_id, method, path, key, body_hash, expires_at, org_id)
             SELECT x'00000000000000000000000000000005', 'POST', '/phone', '0', x'', 9000000000000000, id FROM orgs;
         END",
    )
    .await;
    erase(&store, &erasure, 3).await;

    let values = dump(db).await;
    let named = values
        .iter()
        .find(|(_, value)| value.contains("020 7183 8750"));
    assert_eq!(named, None);
}

/// Another node erases the calls between this node's look at the calls found so far and its own search: their events count all the same.
#[test]
fn events_of_calls_that_another_node_erases_meanwhile_are_counted() {
    test_db::on_sqlite(|db| Box::pin(another_node_erases_calls_meanwhile(db)));
}

async fn another_node_erases_calls_meanwhile(db: &TestDb) {
    let store = db.open().await;
    let mut receipts = Vec::new();
    for name in ["Alone", "Beside another node"] {
        let org = org(&store, name).await.id;
        let id = contact(&store, org).await;
        calls(&store, org, id).await;
        receipts.push((org, request(&store, org, id).await.id));
    }
    let erasures = open_erasures(&store, 3).await;
    let of = |place: usize| erasures.iter().find(|it| it.id == receipts[place].1);
    erase(&store, of(0).expect("open"), 3).await;

    // A call of an earlier pass, whose attempts are erased first: that transaction begins by locking the erasure.
    db.execute(
        "INSERT INTO erasure_calls (erasure_id, call_id, legs)
             SELECT id, x'00000000000000000000000000000001', x'' FROM erasures WHERE completed_at IS NULL;
         CREATE TRIGGER other_node AFTER UPDATE ON erasures BEGIN
             INSERT OR IGNORE INTO erasure_calls (erasure_id, call_id, session_id, legs)
                 SELECT NEW.id, id, session_id, x'' FROM calls
                 WHERE org_id = NEW.org_id AND (contact_id = NEW.contact_id OR from_e164 = '+442071838750');
             UPDATE calls SET contact_id = NULL, from_number = 'anonymous', from_e164 = NULL, to_number = 'anonymous', to_e164 = NULL,
                 caller_call_id = NULL, runtime_call_id = NULL, metadata = NULL, decision = NULL, headers = NULL, asked = NULL
                 WHERE id IN (SELECT call_id FROM erasure_calls);
         END",
    )
    .await;
    erase(&store, of(1).expect("open"), 3).await;

    let mut events = Vec::new();
    for (org, id) in receipts {
        let receipt = found(&store, move |tx| erasures::by_id(tx, org, id)).await;
        events.push(receipt.erased.events);
    }
    assert!(events[0] > 0);
    assert_eq!(events[0], events[1]);
}
