//! Webhooks and their deliveries: one node at a time holds a delivery.

use std::time::Duration;

use serde_json::json;
use trunkline_store::{
    Attempt, Delivery, DeliveryState, EventType, LeasedDelivery, NewEvent, NewWebhook, Outcome,
    PartnerOfOrg, Password, WebhookChange, deliveries, partners, webhooks,
};

use crate::test_db::{NOW, TestDb, done, found, later, of_partner, org, partner};

crate::on_both!(
    what_webhooks_are_owed_is_held_by_one_node,
    a_delivery_that_is_asked_for_again_during_an_attempt_is_made,
    a_webhook_is_changed_and_settled,
    what_is_due_has_the_partner_of_its_org,
);

/// Nodes that ask concurrently share the due deliveries, each delivery once.
async fn what_webhooks_are_owed_is_held_by_one_node(db: &TestDb) {
    const DUE: usize = 40;

    let store = db.open().await;
    let org = org(&store, "Ours").await.id;
    let new = NewWebhook {
        url: "https://example.com/".to_owned(),
        description: None,
        types: vec![EventType::TrunkLost],
        enabled: true,
    };

    let secret = Password::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let given = secret.clone();
    let webhook = done(&store, move |tx| {
        webhooks::create(tx, org, &new, &secret, NOW)
    })
    .await;
    assert_eq!(webhook.secret, given);

    for kind in [EventType::TrunkLost, EventType::TrunkRegistered] {
        for _ in 0..DUE {
            let event = NewEvent::new(org, kind, &json!({}), NOW);
            store.emit(event).await.expect("emitted");
        }
    }

    let lease = Duration::from_secs(90);
    let nodes = (0..4).map(|node| {
        let (store, webhook) = (store.clone(), webhook.id);
        tokio::spawn(async move {
            let (holder, mut held) = (format!("node {node}"), Vec::new());
            loop {
                let by = holder.clone();
                let some = done(&store, move |tx| {
                    deliveries::lease(tx, webhook, &by, 3, lease, NOW)
                })
                .await;
                if some.is_empty() {
                    return held;
                }
                held.extend(some.into_iter().map(|held| held.delivery.event_id));
            }
        })
    });

    let nodes: Vec<_> = nodes.collect();
    let mut by_node = Vec::new();
    for node in nodes {
        by_node.push(node.await.expect("a node"));
    }

    let mut held = by_node.concat();
    let count = held.len();
    held.sort_unstable();
    held.dedup();

    assert_eq!((count, held.len()), (DUE, DUE));
    assert_eq!(found(&store, move |tx| deliveries::due(tx, NOW)).await, []);

    // A restarted node releases its own deliveries; those of others stay until their lease ends.
    let counts = by_node.iter().map(|held| held.len() as u64).zip(0..);
    let (own, node) = counts.max().expect("four nodes");
    let freed = done(&store, move |tx| {
        deliveries::release(tx, &format!("node {node}"))
    })
    .await;
    assert_eq!(freed, own);
    let due = found(&store, move |tx| deliveries::due(tx, NOW)).await;
    assert_eq!(due.len(), 1);

    let again = done(&store, move |tx| {
        deliveries::lease(tx, webhook.id, "node 4", 100, lease, NOW)
    })
    .await;
    assert_eq!(again.len() as u64, own);
    assert_eq!(found(&store, move |tx| deliveries::due(tx, NOW)).await, []);
    assert_eq!(
        found(&store, move |tx| deliveries::due(tx, later(90)))
            .await
            .len(),
        1
    );

    // A fact that is projected again queues no second delivery.
    let again = NewEvent::of(org, EventType::TrunkLost, org, &json!({}), NOW);
    for _ in 0..2 {
        store.emit(again.clone()).await.expect("emitted");
    }

    let page = found(&store, move |tx| {
        deliveries::page(tx, org, webhook.id, None, None, 1)
    })
    .await;

    assert_eq!(page.total, DUE as u64 + 1);
}

/// Its receiver may have had the event, but the one who asked for it again doesn't know.
async fn a_delivery_that_is_asked_for_again_during_an_attempt_is_made(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Ours").await.id;
    let new = NewWebhook {
        url: "https://example.com/".to_owned(),
        description: None,
        types: Vec::new(),
        enabled: true,
    };
    let secret = Password::new("whsec_AAAA".to_owned());
    let webhook = done(&store, move |tx| {
        webhooks::create(tx, org, &new, &secret, NOW)
    })
    .await;
    let event = NewEvent::new(org, EventType::TrunkLost, &json!({}), NOW);
    store.emit(event).await.expect("emitted");

    let lease = async |now| {
        let lease = Duration::from_secs(90);
        let held = done(&store, move |tx| {
            deliveries::lease(tx, webhook.id, "node 1", 1, lease, now)
        });
        held.await.remove(0).delivery
    };
    let settle = async |held: Delivery, now| {
        let attempt = Attempt {
            at: now,
            took_ms: 7,
            http_status: Some(200),
            fault: None,
        };
        done(&store, move |tx| {
            deliveries::settle(tx, &held, "node 1", attempt, Outcome::Delivered, now)
        })
        .await;
    };

    let first = lease(NOW).await;
    let id = first.id;
    done(&store, move |tx| {
        deliveries::requeue(tx, org, webhook.id, id, later(1))
    })
    .await;
    let state = async || {
        let read = found(&store, move |tx| deliveries::by_id(tx, org, webhook.id, id));
        read.await.delivery.state
    };

    // The first attempt is settled while the same node has begun the second.
    let second = lease(later(1)).await;
    settle(first, later(2)).await;
    assert_eq!(state().await, DeliveryState::Pending);
    settle(second, later(3)).await;
    assert_eq!(state().await, DeliveryState::Delivered);
}

async fn a_webhook_is_changed_and_settled(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Ours").await.id;
    let new = NewWebhook {
        url: "https://example.com/".to_owned(),
        description: Some("old".to_owned()),
        types: Vec::new(),
        enabled: true,
    };

    let password = |letter: &str| Password::new(format!("whsec_{}", letter.repeat(4)));
    let (first, second) = (password("A"), password("B"));
    let made = done(&store, move |tx| {
        webhooks::create(tx, org, &new, &first, NOW)
    })
    .await;
    let nothing = WebhookChange::default();
    let same = store
        .write(move |tx| webhooks::update(tx, org, made.id, &nothing, NOW))
        .await;
    assert_eq!(same.expect("unchanged"), made);

    let change = WebhookChange {
        url: Some("https://example.org/".to_owned()),
        description: Some(None),
        types: Some(vec![EventType::TrunkLost]),
        enabled: None,
    };
    let changed = done(&store, move |tx| {
        webhooks::update(tx, org, made.id, &change, later(1))
    })
    .await;

    assert_eq!(
        (&*changed.url, &changed.description, changed.enabled),
        ("https://example.org/", &None, true)
    );

    let rotated = done(&store, move |tx| {
        webhooks::rotate(tx, org, made.id, &second, later(2))
    })
    .await;

    assert_eq!(
        (rotated.secret, rotated.old_secret),
        (password("B"), Some((password("A"), later(86_402))))
    );

    for _ in 0..3 {
        let event = NewEvent::new(org, EventType::TrunkLost, &json!({}), NOW);
        store.emit(event).await.expect("emitted");
    }

    let attempt = |fault: Option<&str>| Attempt {
        at: later(3),
        took_ms: 7,
        http_status: Some(200),
        fault: fault.map(str::to_owned),
    };

    let lease = Duration::from_secs(90);
    let held = done(&store, move |tx| {
        deliveries::lease(tx, made.id, "node 1", 3, lease, later(3))
    })
    .await;
    let [taken, put_off, gone] = held.as_slice() else {
        panic!("three are due: {held:?}")
    };

    let settle = async |held: &LeasedDelivery, holder: &'static str, fault, outcome| {
        let (delivery, attempt) = (held.delivery.clone(), attempt(fault));
        let id = delivery.id;
        done(&store, move |tx| {
            deliveries::settle(tx, &delivery, holder, attempt, outcome, later(4))
        })
        .await;
        let settled = found(&store, move |tx| deliveries::by_id(tx, org, made.id, id));
        settled.await.delivery
    };

    let stranger = settle(taken, "node 2", None, Outcome::Delivered).await;
    assert_eq!(
        stranger, taken.delivery,
        "whoever doesn't hold it settles nothing"
    );

    let delivered = settle(taken, "node 1", None, Outcome::Delivered).await;
    assert_eq!(
        (delivered.state, delivered.attempts, delivered.delivered_at),
        (DeliveryState::Delivered, 1, Some(later(4)))
    );

    let again = settle(put_off, "node 1", Some("status"), Outcome::Again(later(9))).await;
    assert_eq!(
        (again.state, again.next_attempt_at),
        (DeliveryState::Pending, Some(later(9)))
    );
    assert_eq!(again.log, [attempt(Some("status"))]);

    // The attempt began before the URL was changed: the receiver at the new one has not been asked.
    let url = |url: &str| Outcome::Gone {
        url: url.to_owned(),
    };
    let old = url("https://example.com/");
    let moved = settle(gone, "node 1", Some("gone"), old).await;
    assert_eq!(
        (moved.state, moved.next_attempt_at),
        (DeliveryState::Pending, Some(later(4)))
    );
    let enabled = found(&store, move |tx| webhooks::by_id(tx, org, made.id)).await;
    assert!(enabled.enabled);

    let held = done(&store, move |tx| {
        deliveries::lease(tx, made.id, "node 1", 3, lease, later(4))
    })
    .await;
    let gone = settle(
        &held[0],
        "node 1",
        Some("gone"),
        url("https://example.org/"),
    )
    .await;
    assert_eq!(gone.state, DeliveryState::Failed);

    let failed = store
        .read(move |tx| deliveries::page(tx, org, made.id, Some(DeliveryState::Failed), None, 9))
        .await;
    assert_eq!(
        failed.expect("a page").total,
        2,
        "what it was still owed has failed as well"
    );

    let disabled = found(&store, move |tx| webhooks::by_id(tx, org, made.id)).await;
    assert_eq!(
        (disabled.enabled, disabled.disabled_reason.as_deref()),
        (false, Some("gone"))
    );

    let enable = WebhookChange {
        enabled: Some(true),
        ..WebhookChange::default()
    };
    let enabled = store
        .write(move |tx| webhooks::update(tx, org, made.id, &enable, NOW))
        .await;
    assert_eq!(enabled.expect("enabled").disabled_reason, None);

    let queued = store
        .write(move |tx| deliveries::requeue(tx, org, made.id, delivered.id, later(10)))
        .await;
    assert_eq!(queued.expect("queued").state, DeliveryState::Pending);
    assert_eq!(
        found(&store, move |tx| deliveries::due(tx, later(10)))
            .await
            .len(),
        1
    );
    done(&store, move |tx| webhooks::delete(tx, org, made.id)).await;

    assert_eq!(
        found(&store, move |tx| deliveries::due(tx, later(10))).await,
        []
    );
}

async fn what_is_due_has_the_partner_of_its_org(db: &TestDb) {
    let store = db.open().await;
    let (alone, reseller) = (org(&store, "Alone").await.id, partner(&store).await);
    let resold = of_partner(&store, reseller, "1").await.id;
    for org in [alone, resold] {
        let new = NewWebhook {
            url: "https://example.com/".to_owned(),
            description: None,
            types: Vec::new(),
            enabled: true,
        };
        let secret = Password::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        done(&store, move |tx| {
            webhooks::create(tx, org, &new, &secret, NOW)
        })
        .await;
        let event = NewEvent::new(org, EventType::TrunkLost, &json!({}), NOW);
        store.emit(event).await.expect("emitted");
    }

    let due_partners = async || {
        let due = found(&store, move |tx| deliveries::due(tx, NOW)).await;
        let due = due.into_iter().map(|due| (due.webhook.org_id, due.partner));
        due.collect::<std::collections::HashMap<_, _>>()
    };
    for percent in [None, Some(70)] {
        done(&store, move |tx| {
            partners::set_node_share(tx, reseller, percent, NOW)
        })
        .await;
        let partner = PartnerOfOrg {
            id: reseller,
            node_share_percent: percent,
        };
        let expected = [(alone, None), (resold, Some(partner))];
        assert_eq!(due_partners().await, expected.into());
    }
}
