//! Transfers as they are read with their calls.

use std::sync::mpsc;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use trunkline_model::handoff::Report;
use trunkline_model::record::{Ended, Fact, HangupBy, Started, Status};
use trunkline_model::settings::TransferTarget;
use trunkline_model::transfer::{State as TransferState, Transfer, TransferMethod};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{
    CallFilter, Contact, ContactDetails, Store, Tx, call_ends, calls, events, lost, of_contact,
};
use uuid::Uuid;

use crate::test_db::{self, NOW, TestDb, done, found, later, number, org, started};

crate::on_both!(
    the_last_transfers_of_listed_calls_are_read_alone,
    a_page_of_an_export_is_bounded_in_octets,
    an_export_has_the_last_transfers_of_a_call,
    pages_of_calls_are_bounded_in_octets,
    a_transfer_of_a_lost_call_ends_and_says_so,
);

/// SQLite has one writer at a time.
#[test]
fn a_transfer_that_begins_while_its_call_is_closed_as_lost_ends() {
    crate::test_db::on_postgres(|db| Box::pin(begun_while_its_call_is_closed(db)));
}

const RUN: Origin = Origin { node: 3, boot: 7 };
const ANN: &str = "+442071838750";
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Returns the first transfer of a call, in this state.
fn transfer(org: Uuid, call: u128, state: TransferState) -> Transfer {
    Transfer {
        id: Uuid::from_u128(call * 100),
        call: Uuid::from_u128(call),
        org,
        session: Uuid::from_u128(call + 1_000_000),
        destination: None,
        name: "human".into(),
        target: TransferTarget::Phone(number("+441632960009")),
        way: TransferMethod::Refer,
        state,
        sip_code: Some(486),
        answer_confirmed: None,
        caller_may_be_gone: false,
        report: Report::default(),
        requested_at: NOW,
        accepted_at: None,
        ringing_at: None,
        ended_at: None,
        handed_over: false,
        counted_at: None,
        kept_by: None,
        step: 1,
    }
}

/// Returns the facts of a call from this number, with a transfer for each summary.
fn call(org: Uuid, id: u128, at: Moment, from: &str, summaries: &[&str]) -> Vec<Fact> {
    let call = Uuid::from_u128(id);
    let begun = Started {
        from: from.into(),
        from_e164: Some(number(from)),
        ..started(call, org, at)
    };
    let mut facts = vec![Fact::Started(begun.into())];

    for (place, summary) in (1..).zip(summaries) {
        let transfer = Transfer {
            id: Uuid::from_u128(id * 100 + place),
            report: Report {
                summary: (*summary).into(),
                ..Report::default()
            },
            requested_at: at + Duration::from_secs(place as u64),
            ..transfer(org, id, TransferState::Failed)
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
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };
    facts.push(Fact::Ended(ended.into()));
    facts
}

/// A row that can't be read fails every query that reads it.
async fn the_last_transfers_of_listed_calls_are_read_alone(db: &TestDb) {
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

/// Makes a contact with the number.
async fn contact(store: &Store, org: Uuid, phone: &str) -> Contact {
    let details = ContactDetails {
        phone: Some(Some(phone.to_owned())),
        ..ContactDetails::default()
    };
    let contacts = store.contacts();
    let made = contacts.identify_by_external_id(org, "ann", &details, NOW);
    made.await.expect("a contact")
}

async fn a_page_of_an_export_is_bounded_in_octets(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let ann = contact(&store, org, ANN).await;

    let (long, many) = ("s".repeat(600 << 10), vec!["short"; 99]);
    let facts = [
        call(org, 1, NOW, ANN, &many),
        call(org, 2, NOW + YEAR, ANN, &[&long]),
        call(org, 3, NOW + YEAR * 2, ANN, &[&long]),
        call(org, 4, NOW + YEAR * 3, ANN, &[]),
    ];
    let projected = test_db::project(&store, RUN, &facts.concat()).await;
    projected.expect("projected");

    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let of = ann.clone();
        let read = found(&store, move |tx| {
            of_contact::calls(tx, org, &of, after, 100)
        });
        let (calls, next) = read.await;
        let page = calls
            .into_iter()
            .map(|it| (it.call.id.as_u128(), it.transfers.len()));
        pages.push(page.collect::<Vec<_>>());
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(pages, [vec![(4, 0), (3, 1), (2, 1)], vec![(1, 99)]]);
}

/// A call has as many transfers as its agent asks for.
async fn an_export_has_the_last_transfers_of_a_call(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let ann = contact(&store, org, ANN).await;

    let summaries: Vec<String> = (1..=150).map(|place| place.to_string()).collect();
    let summaries: Vec<&str> = summaries.iter().map(String::as_str).collect();
    let facts = call(org, 1, NOW, ANN, &summaries);
    let projected = test_db::project(&store, RUN, &facts).await;
    projected.expect("projected");

    let (calls, _) = found(&store, move |tx| {
        of_contact::calls(tx, org, &ann, None, 100)
    })
    .await;
    let shown = calls[0].transfers.iter().map(|it| it.summary.as_str());
    assert!(shown.eq(summaries[50..].iter().copied()));
}

/// Lists, and exports that nobody takes.
async fn pages_of_calls_are_bounded_in_octets(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let long = "s".repeat(600 << 10);
    for place in 0..5 {
        let id = u128::from(place) + 1;
        let facts = call(org, id, NOW + YEAR * place, ANN, &[&long]);
        let projected = test_db::project(&store, RUN, &facts).await;
        projected.expect("projected");
    }

    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = store.calls(org, CallFilter::default(), after, 100).await;
        let page = page.expect("calls");
        assert_eq!(page.total, 5);
        pages.push(page.items.len());
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(pages, [2, 2, 1]);

    let mut batches = Vec::new();
    let mut after = Some(0);
    while let Some(seq) = after {
        let all = CallFilter::default();
        let read = found(&store, move |tx| call_ends::after(tx, org, &all, seq, 200));
        let batch = read.await;
        batches.push(batch.ends.len());
        after = batch.more_after;
    }
    assert_eq!(batches, [2, 2, 1]);
}

/// The node of the call comes back when another has closed it.
async fn a_transfer_of_a_lost_call_ends_and_says_so(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let next = RUN.boot + 1;
    let close = async || done(&store, move |tx| lost::close(tx, RUN.node, next, later(9))).await;
    let reopen = async || done(&store, move |tx| lost::reopen(tx, RUN)).await;
    let tell = async || done(&store, move |tx| lost::record_ends(tx, RUN.node, next)).await;
    let shown = async || {
        let read = found(&store, move |tx| calls::by_id(tx, org, Uuid::from_u128(1)));
        let transfer = read.await.transfer.expect("a transfer");
        (transfer.state, transfer.ended_at)
    };
    let learn = async |state, step| {
        let is_over = state == TransferState::Completed;
        let transfer = Transfer {
            step,
            ended_at: is_over.then(|| later(20)),
            ..transfer(org, 1, state)
        };
        let fact = Fact::Transfer(transfer.into());
        let projected = test_db::project(&store, RUN, &[fact]).await;
        projected.expect("projected");
    };

    let begun = started(Uuid::from_u128(1), org, NOW);
    let projected = test_db::project(&store, RUN, &[Fact::Started(begun.into())]).await;
    projected.expect("projected");
    learn(TransferState::Requested, 1).await;

    // A node that was only held up goes on where it was.
    assert_eq!(close().await, 1);
    assert_eq!(shown().await, (TransferState::Unknown, Some(later(9))));
    learn(TransferState::Accepted, 2).await;
    assert_eq!(shown().await, (TransferState::Unknown, Some(later(9))));
    assert_eq!(reopen().await, 1);
    assert_eq!(shown().await, (TransferState::Accepted, None));

    assert_eq!(close().await, 1);
    assert_eq!(tell().await, 1);
    learn(TransferState::Ringing, 3).await;
    assert_eq!(shown().await, (TransferState::Unknown, Some(later(9))));
    learn(TransferState::Completed, 4).await;
    assert_eq!(shown().await, (TransferState::Completed, Some(later(20))));

    let events = found(&store, move |tx| events::since(tx, org, 0, 100)).await;
    let of_transfer = events
        .iter()
        .filter(|event| event.kind == "transfer.updated");
    let states: Vec<String> = of_transfer
        .map(|event| serde_json::from_str(&event.body).expect("JSON"))
        .map(|body: serde_json::Value| body["data"]["status"].as_str().expect("text").to_owned())
        .collect();
    let expected = [
        "requested",
        "accepted",
        "unknown",
        "ringing",
        "unknown",
        "completed",
    ];
    assert_eq!(states, expected);
}

/// A stalled node projects the first fact of a transfer after another node has closed its call, and before that one commits.
async fn begun_while_its_call_is_closed(db: &TestDb) {
    let store = db.open().await;
    let url = db.options.url.as_deref().expect("PostgreSQL has a URL");
    let org = org(&store, "Org").await.id;
    let begun = started(Uuid::from_u128(1), org, NOW);
    let projected = test_db::project(&store, RUN, &[Fact::Started(begun.into())]).await;
    projected.expect("projected");

    let (is_closed, closed) = tokio::sync::oneshot::channel();
    let (commit, may_commit) = mpsc::channel::<()>();
    let closing = tokio::spawn({
        let store = store.clone();
        let close = move |tx: &mut Tx| {
            lost::close(tx, RUN.node, RUN.boot + 1, later(9))?;
            is_closed.send(()).expect("the test waits");
            may_commit.recv().expect("the test goes on");
            Ok(())
        };
        async move { store.write(close).await }
    });
    closed.await.expect("closed");

    let projecting = tokio::spawn({
        let store = store.clone();
        let fact = Fact::Transfer(transfer(org, 1, TransferState::Requested).into());
        async move { test_db::project(&store, RUN, &[fact]).await }
    });
    let mut watch = PgConnection::connect(url).await.expect("a connection");
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let waits = async {
        loop {
            let waiting = sqlx::query_as(waiting).fetch_one(&mut watch).await;
            let (waiting,): (i64,) = waiting.expect("activity");
            assert!(!projecting.is_finished(), "it doesn't wait");
            if waiting == 1 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    // Long, for a busy machine.
    let waits = tokio::time::timeout(Duration::from_secs(60), waits).await;
    waits.expect("it waits for the node that closes the call");

    commit.send(()).expect("it waits");
    closing.await.expect("no panic").expect("closed");
    projecting.await.expect("no panic").expect("projected");

    let read = found(&store, move |tx| calls::by_id(tx, org, Uuid::from_u128(1)));
    let transfer = read.await.transfer.expect("a transfer");
    let shown = (transfer.state, transfer.ended_at);
    assert_eq!(shown, (TransferState::Unknown, Some(later(9))));
}
