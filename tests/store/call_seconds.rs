//! The end of a call has its duration.

use serde_json::Value;
use trunkline_model::record::Status;
use uuid::Uuid;

use crate::events::{RUN, life, lose_call, told};
use crate::test_db::{self, TestDb, later};
use trunkline_testkit::event_schema::assert_fits;

crate::on_both!(an_end_says_how_long_the_call_was,);

async fn an_end_says_how_long_the_call_was(db: &TestDb) {
    let store = db.open().await;
    let orgs = [1, 2, 3].map(Uuid::from_u128);
    let facts = orgs.map(|org| life(org, org.as_u128(), Status::Completed));
    let [answered, unanswered, lost] = &facts;

    // The journal's facts come in order, and again after a crash.
    for again in [answered.as_slice(), &answered[3..], answered] {
        test_db::project(&store, RUN, again)
            .await
            .expect("projected");
    }

    let unanswered = [unanswered[0].clone(), unanswered[3].clone()];
    test_db::project(&store, RUN, &unanswered)
        .await
        .expect("projected");
    test_db::project(&store, RUN, &lost[..3])
        .await
        .expect("projected");
    lose_call(&store, later(9)).await;

    for (org, seconds) in orgs.into_iter().zip([(3, 1), (3, 0), (9, 7)]) {
        let told = told(&store, org).await;
        let (end, before) = told.split_last().expect("events");
        let (duration, answered) = seconds;
        assert_eq!(end.0, "call.ended");
        assert_eq!(end.1["duration_seconds"], duration, "{org}");
        assert_eq!(end.1["answered_seconds"], answered, "{org}");
        for (kind, data) in before {
            assert_eq!(data["duration_seconds"], Value::Null, "{kind}");
            assert_fits(kind, data);
        }
    }
}
