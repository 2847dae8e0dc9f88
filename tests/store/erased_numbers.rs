//! A contact that is erased had another number at the time of a lost call, whose event is stored whole.

use serde_json::Value;
use trunkline_model::record::{Direction, Fact, Started};
use trunkline_store::{Tx, events, lost};
use uuid::Uuid;

use crate::erasures::{RUN, contact, erase, request};
use crate::test_db::{self, NOW, TestDb, done, found, later, number, open_erasures, org, started};

crate::on_both!(the_end_of_a_lost_call_names_no_earlier_number);

/// Number that the contact had at the time of its calls.
const EARLIER: &str = "+441632960042";

async fn the_end_of_a_lost_call_names_no_earlier_number(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let contact = contact(&store, ours).await;

    let (came, went) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let came_from = Started {
        from: EARLIER.into(),
        from_e164: Some(number(EARLIER)),
        ..started(came, ours, NOW)
    };
    let went_to = Started {
        direction: Direction::Outbound,
        to: EARLIER.into(),
        to_e164: Some(number(EARLIER)),
        ..started(went, ours, NOW)
    };
    let of = |call| Fact::Contact {
        call,
        org: ours,
        contact,
    };
    let facts = [
        Fact::Started(came_from.into()),
        of(came),
        Fact::Started(went_to.into()),
        of(went),
    ];
    let projected = test_db::project(&store, RUN, &facts).await;
    projected.expect("projected");
    let next = RUN.boot + 1;
    done(&store, move |tx| {
        lost::close(tx, RUN.node, next, later(9))?;
        lost::record_ends(tx, RUN.node, next)
    })
    .await;

    let since = move |tx: &mut Tx| events::since(tx, ours, 0, 100);
    let naming = async || {
        let events = found(&store, since).await;
        events.into_iter().filter(|it| it.body.contains(EARLIER))
    };
    assert_eq!(naming().await.count(), 4, "beginnings and ends");

    request(&store, ours, contact).await;
    for erasure in open_erasures(&store, RUN.node).await {
        erase(&store, &erasure, RUN.node).await;
    }
    let left: Vec<String> = naming().await.map(|event| event.body).collect();
    assert_eq!(left, Vec::<String>::new());

    // The other side of each call isn't the contact.
    let events = found(&store, since).await;
    let ends = events.iter().filter(|event| event.kind == "call.ended");
    let mut ends: Vec<[String; 2]> = ends
        .map(|event| serde_json::from_str(&event.body).expect("JSON"))
        .map(|body: Value| {
            ["from_number", "to_number"]
                .map(|name| body["data"][name].as_str().expect("text").to_owned())
        })
        .collect();
    ends.sort();
    assert_eq!(ends, [["100", "anonymous"], ["anonymous", "200"]]);
}
