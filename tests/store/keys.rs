//! API keys of orgs that have ended.

use trunkline_store::{Issued, IssuedBy, NewOrgKey, org_keys};

use crate::test_db::{TestDb, done, found, later, org};

crate::on_both!(keys_that_have_ended_are_bounded);

async fn keys_that_have_ended_are_bounded(db: &TestDb) {
    const MADE: u64 = 130;
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let make = async |org, name: String, from: u64, seconds: Option<u64>| {
        let new = NewOrgKey {
            expires_at: seconds.map(|seconds| later(from + seconds)),
            ..NewOrgKey::lasting(&name, &[])
        };
        let issued = Issued {
            token_hash: [0; 32],
            kid: "k".to_owned(),
        };
        done(&store, move |tx| {
            org_keys::create(tx, org, &new, |_| issued, IssuedBy::Tenant, later(from))
        })
        .await
    };

    make(theirs, "theirs".to_owned(), 0, Some(1)).await;
    make(ours, "lasting".to_owned(), 0, None).await;
    make(ours, "long".to_owned(), 1, Some(10_000)).await;
    for at in 2..MADE {
        make(ours, format!("{at}"), at, Some(1)).await;
    }

    let listed = found(&store, move |tx| org_keys::list(tx, ours)).await;
    let names: Vec<String> = listed.into_iter().map(|key| key.name).collect();
    // The last one hasn't ended yet, and a hundred before it have.
    let mut expected: Vec<String> = (MADE - 101..MADE).rev().map(|at| at.to_string()).collect();
    expected.extend(["long".to_owned(), "lasting".to_owned()]);
    assert_eq!(names, expected);
    let others = found(&store, move |tx| org_keys::list(tx, theirs)).await;
    assert_eq!(others.len(), 1);
}
