//! Registrations that outlive their node, or are lost with it.

use std::collections::HashSet;
use std::time::Duration;

use trunkline_model::registration::{StoredBinding, UnsavedBindings};
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use trunkline_store::{InboundTrunkChange, inbound_trunks, numbers, registrations};

use crate::test_db::{NOW, TestDb, done, number, org};

crate::on_both!(a_loss_is_reported_once_whichever_node_began_first);

/// Of two nodes that take over, the one that began first may wait for the other, and then has the earlier time.
async fn a_loss_is_reported_once_whichever_node_began_first(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Acme").await.id;
    done(&store, move |tx| {
        numbers::create(tx, org, number("+4930000001"), true, NOW)
    })
    .await;
    let new = InboundTrunkChange::default();
    let trunk = done(&store, move |tx| inbound_trunks::create(tx, org, &new, NOW)).await;
    let trunk = trunk.id;

    // By the nodes' clocks; before the clock of any database.
    let begun = Moment::from_secs(1_700_000_000);
    let binding = StoredBinding {
        org,
        trunk,
        node: 1,
        contact: "sip:pbx@10.0.0.1".into(),
        path: None,
        instance: None,
        q: None,
        transport: Transport::Tcp,
        source: ([127, 0, 0, 1], 5060).into(),
        is_behind_nat: true,
        username: "acme".into(),
        user_agent: None,
        call_id: b"a@b".as_slice().into(),
        cseq: 1,
        registered_at: begun,
        refreshed_at: begun,
        expires_at: NOW,
    };
    let unsaved = [UnsavedBindings {
        trunk,
        own: vec![binding],
        removed: HashSet::new(),
    }];
    done(&store, move |tx| {
        registrations::save(tx, 1, &unsaved, begun)
    })
    .await;

    let mut told = Vec::new();
    for (node, seconds) in [(2, 10), (3, 5)] {
        let now = begun + Duration::from_secs(seconds);
        let taken = done(&store, move |tx| {
            registrations::take_over(tx, node, &[1], now)
        });
        told.push(taken.await.lost);
    }
    assert_eq!(told, [vec![(org, trunk)], Vec::new()]);
}
