//! Reading ended calls from a position on: nothing is skipped, however late a call is projected.

use std::collections::BTreeSet;
use std::time::Duration;

use trunkline_model::record::{Ended, Fact, HangupBy, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{CallFilter, Store, call_ends, lost};
use uuid::Uuid;

use crate::test_db::{self, NOW, TestDb, found, later, started};

crate::on_both!(
    a_reader_meets_every_call_while_nodes_project_late_ones,
    a_call_comes_with_its_end_and_again_when_it_changes,
    a_filter_passes_over_calls_and_never_past_them,
);

const RUN: Origin = Origin { node: 3, boot: 7 };
const ORG: Uuid = Uuid::from_u128(1);

fn begun(call: u128, at: Moment) -> Fact {
    Fact::Started(started(Uuid::from_u128(call), ORG, at).into())
}

fn ended(call: u128, at: Moment, status: Status) -> Fact {
    Fact::Ended(
        Ended {
            call: Uuid::from_u128(call),
            org: ORG,
            at,
            status,
            sip_code: 200,
            reason: None,
            reason_detail: None,
            hangup_by: HangupBy::Caller,
            cause: None,
        }
        .into(),
    )
}

/// Returns the ids of ended calls, in the order of a reader that reads `most` at a time.
async fn read(store: &Store, filter: &CallFilter, mut seq: i64, most: u32) -> (Vec<u128>, i64) {
    let mut ids = Vec::new();
    loop {
        let of = filter.clone();
        let ends = found(store, move |tx| call_ends::after(tx, ORG, &of, seq, most)).await;
        for end in &ends.ends {
            assert!(end.seq > seq, "numbers rise");
            seq = end.seq;
            ids.push(end.call.id.as_u128());
        }
        match ends.more_after {
            Some(more) => seq = more,
            None => return (ids, seq),
        }
    }
}

/// Each writer is a node that projects its calls in its own order, old calls after new ones.
async fn a_reader_meets_every_call_while_nodes_project_late_ones(db: &TestDb) {
    const NODES: u128 = 4;
    const EACH: u128 = 120;
    let mut writers = Vec::new();
    let mut nodes = db.open_nodes(NODES as usize + 1).await;
    let reader = nodes.remove(NODES as usize);

    for (node, store) in (0..NODES).zip(nodes) {
        writers.push(tokio::spawn(async move {
            let origin = Origin {
                node: node as u8,
                boot: 1,
            };
            for turn in 0..EACH {
                // The later a call is projected, the older it is.
                let at = NOW - Duration::from_secs(60 * turn as u64);
                let call = 1 + node * EACH + turn;
                let facts = [begun(call, at), ended(call, at, Status::Completed)];
                let first = test_db::project(&store, origin, &facts[..1]).await;
                first.expect("projected");
                let rest = if turn % 2 == 0 { &facts[1..] } else { &facts };
                test_db::project(&store, origin, rest)
                    .await
                    .expect("projected");
            }
        }));
    }

    let (mut seen, mut seq) = (BTreeSet::new(), 0);
    let all = CallFilter::default();
    while seen.len() < (NODES * EACH) as usize {
        let (ids, last) = read(&reader, &all, seq, 5).await;
        seen.extend(ids);
        seq = last;
        if writers.iter().all(tokio::task::JoinHandle::is_finished) {
            let (ids, _) = read(&reader, &all, seq, 5).await;
            seen.extend(ids);
            break;
        }
    }

    for writer in writers {
        writer.await.expect("a writer ends well");
    }
    assert_eq!(seen, (1..=NODES * EACH).collect(), "nothing is skipped");
}

async fn a_call_comes_with_its_end_and_again_when_it_changes(db: &TestDb) {
    let store = db.open().await;
    let all = CallFilter::default();
    test_db::project(&store, RUN, &[begun(1, NOW), begun(2, NOW)])
        .await
        .expect("projected");
    assert_eq!(read(&store, &all, 0, 9).await, (vec![], 0), "both are up");
    test_db::project(&store, RUN, &[ended(2, later(1), Status::Completed)])
        .await
        .expect("projected");
    let (ids, seq) = read(&store, &all, 0, 9).await;
    assert_eq!(ids, [2]);

    // An estimated end isn't listed until it is final: the node may bring the call back.
    let closed = store
        .write(move |tx| lost::close(tx, RUN.node, RUN.boot + 1, later(2)))
        .await;
    assert_eq!(closed.expect("closed"), 1);
    assert_eq!(read(&store, &all, seq, 9).await.0, []);
    let told = store
        .write(move |tx| lost::record_ends(tx, RUN.node, RUN.boot + 1))
        .await;
    assert_eq!(told.expect("settled"), 1);
    let (ids, lost) = read(&store, &all, seq, 9).await;
    assert_eq!(ids, [1]);

    test_db::project(&store, RUN, &[ended(1, later(3), Status::Completed)])
        .await
        .expect("projected");
    let of = all.clone();
    let ends = found(&store, move |tx| call_ends::after(tx, ORG, &of, lost, 9)).await;
    let statuses: Vec<_> = ends.ends.iter().map(|end| end.call.status).collect();
    assert_eq!(statuses, [Status::Completed], "the true end comes too");
    assert_eq!(read(&store, &all, 0, 1).await.0, [2, 1, 1]);
}

async fn a_filter_passes_over_calls_and_never_past_them(db: &TestDb) {
    let store = db.open().await;
    let facts: Vec<_> = (1..=20)
        .flat_map(|call| {
            let status = [Status::Completed, Status::Busy][usize::from(call % 7 == 0)];
            [
                begun(call, later(call as u64)),
                ended(call, later(99), status),
            ]
        })
        .collect();
    test_db::project(&store, RUN, &facts)
        .await
        .expect("projected");

    let busy = CallFilter {
        status: Some(Status::Busy),
        ..CallFilter::default()
    };
    for most in [1, 2, 50] {
        assert_eq!(read(&store, &busy, 0, most).await.0, [7, 14]);
    }

    let foreign = store
        .read(move |tx| call_ends::after(tx, Uuid::from_u128(2), &busy, 0, 9))
        .await;
    assert!(foreign.expect("calls").ends.is_empty(), "another org's");
}
