//! A contact is erased that other people's calls were transferred to, and whose own calls have facts that are projected late.

use serde_json::json;
use trunkline_model::attempt::{Attempt, AttemptLeg, AttemptOutcome};
use trunkline_model::handoff::Report;
use trunkline_model::media::CallMedia;
use trunkline_model::record::{Ended, Fact, HangupBy, Started, Status};
use trunkline_model::settings::TransferTarget;
use trunkline_model::transfer::{State as TransferState, Transfer, TransferMethod};
use trunkline_store::{
    ErasedLegs, OpenErasure, RowsErased, Store, attempts, calls, erasing, erasures, lost, nodes,
};
use uuid::Uuid;

use crate::erasures::{AFTER, NUMBER, RUN, contact, dump, erase, request};
use crate::test_db::{self, NOW, TestDb, done, found, later, number, open_erasures, org, started};

crate::on_both!(
    traces_of_a_call_transferred_to_an_erased_contact_are_searched,
    a_late_attempt_at_an_erased_contact_is_erased_from_anothers_call,
    an_erasure_waits_for_the_end_of_a_call_transferred_to_the_contact,
    facts_projected_after_an_erasure_bring_nothing_back,
);

const BOB: &str = "+441632960007";
const DESK: &str = "+441632960009";
/// Text of the runtime in a call of another person, which stays.
const KEPT: &str = "Busy Here";

/// Words and address of the contact, in facts that are projected late.
const SUMMARY: &str = "wants a refund";
const DETAIL: &str = "Gone for lunch";
const ADDRESS: &str = "192.0.2.77:4000";

fn ended(org: Uuid, call: Uuid) -> Fact {
    let ended = Ended {
        call,
        org,
        at: later(60),
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };
    Fact::Ended(ended.into())
}

fn transfer(org: Uuid, call: Uuid, to: &str, summary: &str) -> Fact {
    let transfer = Transfer {
        id: Uuid::from_u128(call.as_u128() ^ 0x100),
        call,
        org,
        session: started(call, org, NOW).session,
        destination: None,
        name: "human".into(),
        target: TransferTarget::Phone(number(to)),
        way: TransferMethod::Bridge,
        state: TransferState::Completed,
        sip_code: None,
        answer_confirmed: Some(true),
        caller_may_be_gone: false,
        report: Report {
            summary: summary.into(),
            explanation: Some(summary.into()),
            ..Report::default()
        },
        requested_at: later(20),
        accepted_at: None,
        ringing_at: None,
        ended_at: Some(later(30)),
        handed_over: true,
        counted_at: None,
        kept_by: None,
        step: 1,
    };
    Fact::Transfer(transfer.into())
}

fn attempt(org: Uuid, call: Uuid, place: u8, target: &str, detail: &str) -> Fact {
    let attempt = Attempt {
        call,
        org,
        number: place,
        leg: AttemptLeg::Destination,
        target: target.into(),
        address: None,
        transport: None,
        began_at: later(20),
        ended_at: later(21),
        outcome: AttemptOutcome::SipStatus,
        sip_code: Some(486),
        detail: Some(detail.into()),
    };
    Fact::Attempt(attempt.into())
}

fn at_contact(org: Uuid, call: Uuid) -> Fact {
    attempt(
        org,
        call,
        2,
        "sip:+442071838750@carrier.example",
        "not here",
    )
}

fn media(org: Uuid, call: Uuid) -> Fact {
    let received = json!({
        "packets": 1, "octets": 160, "packets_lost": 0, "packets_late": 0, "jitter_ms": 0.0, "mos": null,
    });
    let sent = json!({
        "packets": 1, "octets": 160, "packets_lost": null, "jitter_ms": null, "mos": null,
    });
    let media: CallMedia = serde_json::from_value(json!({
        "call": call,
        "org": org,
        "figures": {
            "received": received,
            "sent": sent,
            "round_trip_ms": null,
            "first_word_ms": null,
            "clears": 0,
            "clear_to_silence_ms": null,
            "underruns": 0,
            "discarded_octets": 0,
            "unknown_messages": 0,
        },
        "steps": [{"at": later(2), "step": "first_packet", "from": ADDRESS}],
    }))
    .expect("a fact");
    Fact::Media(media.into())
}

async fn project(store: &Store, facts: &[Fact]) {
    let projected = test_db::project(store, RUN, facts).await;
    projected.expect("projected");
}

/// Begins a call of Bob's, which is transferred to the contact.
async fn transferred(store: &Store, org: Uuid) -> Uuid {
    let call = Uuid::from_u128(1);
    let begun = Started {
        from: BOB.into(),
        from_e164: Some(number(BOB)),
        caller_call_id: "bobs@pbx".into(),
        metadata: Some(json!({"who": "Bob"}).to_string().into()),
        ..started(call, org, later(10))
    };
    let facts = [
        Fact::Started(begun.into()),
        attempt(org, call, 1, "sip:agent@runtime.example", KEPT),
        transfer(org, call, NUMBER, ""),
    ];
    project(store, &facts).await;
    call
}

async fn erase_rows(store: &Store, erasure: &OpenErasure) -> RowsErased {
    let rows = erasing::erase_rows(store, erasure, AFTER).await;
    rows.expect("no fault")
}

async fn legs(store: &Store, erasure: Uuid) -> Vec<ErasedLegs> {
    found(store, move |tx| erasures::legs(tx, erasure)).await
}

async fn traces_of_a_call_transferred_to_an_erased_contact_are_searched(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let id = contact(&store, ours).await;
    let call = transferred(&store, ours).await;
    project(&store, &[at_contact(ours, call), ended(ours, call)]).await;

    let asked = request(&store, ours, id).await;
    let erasure = open_erasures(&store, 3).await.remove(0);
    assert_eq!(erase_rows(&store, &erasure).await, RowsErased::All);

    let [legs] = &legs(&store, erasure.id).await[..] else {
        panic!("the legs of one call")
    };
    assert_eq!(legs.call, call);
    assert!(legs.from < later(10) && legs.until > later(60), "{legs:?}");

    // Another pass must not take Bob's call for one of the contact's.
    erase(&store, &erasure, 3).await;
    let receipt = found(&store, move |tx| erasures::by_id(tx, ours, asked.id)).await;
    let erased = receipt.erased;
    assert_eq!((erased.calls, erased.transfers), (0, 1));
    assert_eq!(erased.call_attempts, 1);

    let kept = found(&store, move |tx| calls::by_id(tx, ours, call)).await;
    assert_eq!(kept.from_e164, Some(number(BOB)));
    assert_eq!(kept.metadata, Some(json!({"who": "Bob"}).to_string()));
    let target = kept.transfer.expect("a transfer").target;
    assert_eq!(target.value(), "sip:anonymous@anonymous.invalid");

    let tried = found(&store, move |tx| attempts::of_call(tx, ours, call)).await;
    let details = tried.iter().map(|attempt| attempt.detail.as_deref());
    assert!(details.eq([Some(KEPT), None]), "{tried:?}");
    assert_eq!(&*tried[1].target, "sip:anonymous@anonymous.invalid");
}

/// The attempt is in the journal of a node that was cut off after it had recorded the transfer.
async fn a_late_attempt_at_an_erased_contact_is_erased_from_anothers_call(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let id = contact(&store, ours).await;
    let call = transferred(&store, ours).await;
    project(&store, &[ended(ours, call)]).await;

    request(&store, ours, id).await;
    let erasure = open_erasures(&store, 3).await.remove(0);
    assert_eq!(erase_rows(&store, &erasure).await, RowsErased::All);
    project(&store, &[at_contact(ours, call)]).await;
    erase(&store, &erasure, 3).await;

    let tried = found(&store, move |tx| attempts::of_call(tx, ours, call)).await;
    let details = tried.iter().map(|attempt| attempt.detail.as_deref());
    assert!(details.eq([Some(KEPT), None]), "{tried:?}");
    assert_eq!(&*tried[1].target, "sip:anonymous@anonymous.invalid");
}

async fn an_erasure_waits_for_the_end_of_a_call_transferred_to_the_contact(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let id = contact(&store, ours).await;
    let call = transferred(&store, ours).await;

    request(&store, ours, id).await;
    let erasure = open_erasures(&store, 3).await.remove(0);
    assert_eq!(erase_rows(&store, &erasure).await, RowsErased::CallIsUp);
    assert_eq!(legs(&store, erasure.id).await, []);

    project(&store, &[ended(ours, call)]).await;
    assert_eq!(erase_rows(&store, &erasure).await, RowsErased::All);
    let legs = legs(&store, erasure.id).await;
    assert!(legs[0].until > later(60), "its BYE is searched for too");
}

/// The node of a call is cut off, another one closes the call and erases its contact, and the facts of the first come last.
async fn facts_projected_after_an_erasure_bring_nothing_back(db: &TestDb) {
    let store = db.open().await;
    // Node 3 is waited for, so that the erasure is open until its part is done.
    done(&store, |tx| nodes::begin(tx, 3, "here", AFTER.since(NOW))).await;

    let summed_up = |org, call| transfer(org, call, DESK, SUMMARY);
    let tried = |org, call| attempt(org, call, 1, "sip:agent@runtime.example", DETAIL);
    for (place, name) in (1..).zip(["transfer", "media", "attempt", "all"]) {
        let ours = org(&store, name).await.id;
        let id = contact(&store, ours).await;
        let call = Uuid::from_u128(place);
        let begun = Started {
            from: NUMBER.into(),
            from_e164: Some(number(NUMBER)),
            ..started(call, ours, later(10))
        };
        project(&store, &[Fact::Started(begun.into())]).await;
        let next = RUN.boot + 1;
        done(&store, move |tx| {
            lost::close(tx, RUN.node, next, later(15))?;
            lost::record_ends(tx, RUN.node, next)
        })
        .await;

        let asked = request(&store, ours, id).await;
        let erasure = open_erasures(&store, 3).await.remove(0);
        erase(&store, &erasure, 1).await;

        let mut late = match name {
            "transfer" => vec![summed_up(ours, call)],
            "media" => vec![media(ours, call)],
            "attempt" => vec![tried(ours, call)],
            _ => vec![summed_up(ours, call), media(ours, call), tried(ours, call)],
        };
        late.push(ended(ours, call));
        project(&store, &late).await;
        assert!(!left(db).await.is_empty(), "{name}: it is found at first");
        erase(&store, &erasure, 3).await;
        assert_eq!(left(db).await, Vec::<String>::new(), "{name}");

        let receipt = found(&store, move |tx| erasures::by_id(tx, ours, asked.id)).await;
        let erased = receipt.erased;
        let counted = [
            erased.calls,
            erased.transfers,
            erased.handoffs,
            erased.call_attempts,
        ];
        let expected = match name {
            "transfer" => [1, 1, 1, 0],
            "media" => [1, 0, 0, 0],
            "attempt" => [1, 0, 0, 1],
            _ => [1, 1, 1, 1],
        };
        assert_eq!(counted, expected, "{name}");
    }
}

/// Returns the places that hold words or the address of the contact.
async fn left(db: &TestDb) -> Vec<String> {
    let values = dump(db).await.into_iter();
    let held = values.filter(|(_, value)| {
        [SUMMARY, DETAIL, ADDRESS]
            .into_iter()
            .any(|text| value.contains(text))
    });
    held.map(|(place, value)| format!("{place}: {value}"))
        .collect()
}
