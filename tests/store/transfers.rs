//! Transfers as they are read with their calls.

use std::time::Duration;

use trunkline_model::handoff::Report;
use trunkline_model::record::{Ended, Fact, HangupBy, Started, Status};
use trunkline_model::settings::TransferTarget;
use trunkline_model::transfer::{State as TransferState, Transfer, TransferMethod};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{CallFilter, Store, call_ends, calls};
use uuid::Uuid;

use crate::test_db::{self, NOW, TestDb, found, number, org, started};

crate::on_both!(the_last_transfers_of_listed_calls_are_read_alone);

const RUN: Origin = Origin { node: 3, boot: 7 };
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Returns the facts of a call from this number, with a transfer for each summary.
fn call(org: Uuid, id: u128, at: Moment, from: &str, summaries: &[&str]) -> Vec<Fact> {
    let call = Uuid::from_u128(id);
    let begun = Started {
        from: from.into(),
        from_e164: Some(number(from)),
        ..started(call, org, at)
    };
    let session = begun.session;
    let mut facts = vec![Fact::Started(begun.into())];

    for (place, summary) in (1..).zip(summaries) {
        let transfer = Transfer {
            id: Uuid::from_u128(id * 100 + place),
            call,
            org,
            session,
            destination: None,
            name: "human".into(),
            target: TransferTarget::Phone(number("+441632960009")),
            way: TransferMethod::Refer,
            state: TransferState::Failed,
            sip_code: Some(486),
            answer_confirmed: None,
            caller_may_be_gone: false,
            report: Report {
                summary: (*summary).into(),
                ..Report::default()
            },
            requested_at: at + Duration::from_secs(place as u64),
            accepted_at: None,
            ringing_at: None,
            ended_at: None,
            handed_over: false,
            counted_at: None,
            kept_by: None,
            step: 1,
        };
        facts.push(Fact::Transfer(transfer.into()));
    }

    let ended = Ended {
        call,
        org,
        at: at + Duration::from_secs(60),
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };
    facts.push(Fact::Ended(ended.into()));
    facts
}

/// A row that can't be read fails every query that reads it.
async fn the_last_transfers_of_listed_calls_are_read_alone(db: &TestDb) {
    const ANN: &str = "+442071838750";
    let store = db.open().await;
    let id = org(&store, "Org").await.id;
    let facts = [
        call(id, 1, NOW, ANN, &["unread", "first"]),
        call(id, 2, NOW + YEAR / 2, "+441632960001", &["unread"]),
        call(id, 3, NOW + YEAR, ANN, &["unread", "unread", "third"]),
        call(id, 4, NOW + YEAR, ANN, &[]),
    ];
    let projected = test_db::project(&store, RUN, &facts.concat()).await;
    projected.expect("projected");
    db.execute("UPDATE transfers SET state = 'unknown to this version' WHERE summary = 'unread'")
        .await;

    let of_ann = CallFilter {
        number: Some(ANN.to_owned()),
        ..CallFilter::default()
    };
    let summaries = async |store: &Store, filter: CallFilter| -> Vec<Option<String>> {
        let page = store.calls(id, filter, None, 10).await.expect("calls");
        let summary = |call: trunkline_store::Call| Some(call.transfer?.summary);
        page.items.into_iter().map(summary).collect()
    };
    let listed = summaries(&store, of_ann.clone()).await;
    let expected = [None, Some("third".to_owned()), Some("first".to_owned())];
    assert_eq!(listed, expected);

    let one = found(&store, move |tx| calls::by_id(tx, id, Uuid::from_u128(3))).await;
    assert_eq!(one.transfer.expect("a transfer").summary, "third");

    let ends = found(&store, move |tx| call_ends::after(tx, id, &of_ann, 0, 10)).await;
    let transfers = ends.ends.into_iter().map(|end| end.call.transfer);
    let mut read: Vec<_> = transfers.flatten().map(|it| it.summary).collect();
    read.sort();
    assert_eq!(read, ["first", "third"]);
}
