//! Calls that are up on other nodes.

use trunkline_model::record::Status;
use trunkline_store::calls_up::{CallCounts, on_other_nodes};
use trunkline_store::journal::Origin;
use uuid::Uuid;

use crate::events::life;
use crate::test_db::{TestDb, found, project};

crate::on_both!(calls_of_other_nodes_are_found_behind_those_of_this_one);

async fn calls_of_other_nodes_are_found_behind_those_of_this_one(db: &TestDb) {
    let store = db.open().await;
    let [org, other_org] = [1, 2].map(Uuid::from_u128);
    let up = |call| life(org, call, Status::Completed)[..3].to_vec();
    let rings = |call| life(org, call, Status::Completed)[..2].to_vec();
    let hold = |call| trunkline_model::record::Fact::Held {
        call: Uuid::from_u128(call),
        org,
        held: true,
    };

    // All began at the same time, so that the ones of node 3 come first by their ids.
    for (node, facts) in [
        (1, up(1)),
        (1, [up(2), vec![hold(2)]].concat()),
        (2, rings(3)),
        (2, life(org, 4, Status::Completed)),
        (2, life(other_org, 5, Status::Completed)[..3].to_vec()),
        (3, (100..150).flat_map(up).collect()),
    ] {
        let run = Origin { node, boot: 1 };
        project(&store, run, &facts).await.expect("projected");
    }

    let counts = CallCounts {
        ringing: 1,
        in_progress: 2,
        held: 1,
    };
    for (limit, expected) in [(10, &[3, 2, 1][..]), (2, &[3, 2])] {
        let others = found(&store, move |tx| on_other_nodes(tx, org, Some(3), limit)).await;
        let ids: Vec<u128> = others.newest.iter().map(|call| call.id.as_u128()).collect();
        assert_eq!((&*ids, others.counts), (expected, counts));
    }

    let all = found(&store, move |tx| on_other_nodes(tx, org, None, 10)).await;
    assert_eq!((all.newest.len(), all.counts.total()), (10, 53));
}
