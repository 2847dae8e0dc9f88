//! Counts of calls by outcome in the parts of a window.

use std::time::Duration;

use trunkline_model::record::Status;
use trunkline_store::call_figures::{FigureWindow, of_org};
use uuid::Uuid;

use crate::events::{RUN, life};
use crate::test_db::{self, TestDb, later};

crate::on_both!(calls_are_counted_by_outcome_in_each_part);

async fn calls_are_counted_by_outcome_in_each_part(db: &TestDb) {
    let store = db.open().await;
    let [org, other] = [1, 2].map(Uuid::from_u128);
    let [first, second] = [
        life(org, 1, Status::Completed),
        life(org, 2, Status::Completed),
    ];

    for facts in [
        first.as_slice(),
        // It was never answered.
        &[second[0].clone(), second[3].clone()],
        &life(other, 3, Status::Completed),
    ] {
        test_db::project(&store, RUN, facts)
            .await
            .expect("projected");
    }

    let window = |from, to| FigureWindow {
        from,
        to,
        part: Duration::from_secs(3_600),
    };
    let whole = window(later(0) - Duration::from_secs(3_600), later(60));
    let rows = store
        .read(move |tx| of_org(tx, org, whole))
        .await
        .expect("rows");
    let sum = |count: fn(&trunkline_store::call_figures::FigureRow) -> i64| {
        rows.iter().map(count).sum::<i64>()
    };
    assert_eq!(
        (sum(|row| row.calls), sum(|row| row.answered)),
        (2, 1),
        "{rows:?}"
    );
    assert!(sum(|row| row.set_up_micros) > 0);
    assert!(rows.iter().all(|row| row.part == 1), "{rows:?}");

    let before = window(
        later(0) - Duration::from_secs(7_200),
        later(0) - Duration::from_secs(3_600),
    );
    let rows = store.read(move |tx| of_org(tx, org, before)).await;
    assert_eq!(rows.expect("rows"), []);
}
