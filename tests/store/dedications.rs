//! Networks that are dedicated to an org.

use trunkline_store::{Conflict, Error, dedications};

use crate::test_db::{NOW, TestDb, done, found, org};

crate::on_both!(a_network_is_dedicated_once, a_network_is_vouched_for);

async fn a_network_is_dedicated_once(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let network = "192.0.2.7/24".parse().expect("a network");
    let made = done(&store, move |tx| {
        dedications::create(tx, ours, network, None, NOW)
    })
    .await;
    assert_eq!(made.network.to_string(), "192.0.2.0/24");

    done(&store, move |tx| {
        dedications::create(tx, ours, network, None, NOW)
    })
    .await;

    let refused = store
        .write(move |tx| dedications::create(tx, theirs, network, None, NOW))
        .await;

    assert!(
        matches!(refused, Err(Error::Conflict(Conflict::NetworkDedicated { org, .. })) if org == ours)
    );
    assert_eq!(
        found(&store, move |tx| dedications::list(tx, ours)).await,
        [made]
    );
    assert!(
        store
            .write(move |tx| dedications::delete(tx, theirs, network, NOW))
            .await
            .is_err()
    );

    done(&store, move |tx| {
        dedications::delete(tx, ours, network, NOW)
    })
    .await;
    done(&store, move |tx| {
        dedications::create(tx, theirs, network, None, NOW)
    })
    .await;
}

async fn a_network_is_vouched_for(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Ours").await.id;
    let network = "192.0.2.0/24".parse().expect("a network");
    for (case, asked, marked) in [
        ("a new one has to be proven", None, false),
        ("marked", Some(true), true),
        ("dedicated again", None, true),
        ("taken back", Some(false), false),
    ] {
        let made = done(&store, move |tx| {
            dedications::create(tx, org, network, asked, NOW)
        })
        .await;
        assert_eq!(made.no_proof, marked, "{case}");
        let rows = found(&store, move |tx| trunkline_store::rows_of(tx, Some(org))).await;
        assert_eq!(rows[0].dedicated, [network], "{case}");
        assert_eq!(!rows[0].without_proof.is_empty(), marked, "{case}");
    }
}
