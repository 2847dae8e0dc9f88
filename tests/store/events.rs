//! Events of facts and writes: recorded once each, in the order of their commits.

use std::time::Duration;

use serde_json::{Value, json};
use trunkline::api::token;
use trunkline_model::media::CallMedia;
use trunkline_model::record::{Ended, Fact, HangupBy, Started, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{
    ContactDetails, Event, EventType, LeasedDelivery, NewEvent, NewHandoff, NewOrgKey, NewWebhook,
    Password, Store, calls, deliveries, events, handoffs, lost, org_keys, webhooks,
};
use uuid::Uuid;

use crate::test_db::{self, NOW, TestDb, done, found, later, org};
use trunkline_testkit::event_schema::assert_fits;

crate::on_both!(
    a_call_tells_each_stage_once,
    a_refused_call_says_so,
    an_end_is_told_once,
    an_end_tells_the_figures_of_its_media,
    what_was_told_stays_octet_by_octet,
    writes_tell_what_they_did,
    readers_never_miss_a_number,
    another_node_learns,
    old_and_surplus_events_are_forgotten,
    an_event_from_the_future_keeps_no_old_ones,
);

pub(crate) const RUN: Origin = Origin { node: 3, boot: 7 };

pub(crate) fn life(org: Uuid, call: u128, last: Status) -> Vec<Fact> {
    let id = Uuid::from_u128(call);

    // Parsed as from the journal, so that the test names only the fields that matter.
    let started: Started = serde_json::from_value(json!({
        "call": id,
        "org": org,
        "session": Uuid::from_u128(100 + call),
        "agent": null,
        "direction": "inbound",
        "from": "100",
        "to": "200",
        "from_e164": null,
        "to_e164": null,
        "caller_call_id": "a@b",
        "at": NOW,
        "decision": null,
    }))
    .expect("a fact");

    let ended = Ended {
        call: id,
        org,
        at: later(3),
        status: last,
        sip_code: 200,
        reason: None,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };

    vec![
        Fact::Started(started.into()),
        Fact::Ringing {
            call: id,
            org,
            at: later(1),
        },
        Fact::Answered {
            call: id,
            org,
            at: later(2),
            runtime_call_id: "r".into(),
        },
        Fact::Ended(ended.into()),
    ]
}

async fn all(store: &Store, org: Uuid) -> Vec<Event> {
    found(store, move |tx| events::since(tx, org, 0, 1000)).await
}

pub(crate) async fn told(store: &Store, org: Uuid) -> Vec<(String, Value)> {
    let events = all(store, org).await;
    let told = events.into_iter().map(|event| {
        let body: Value = serde_json::from_str(&event.body).expect("JSON");
        assert_eq!(body["id"], event.id.to_string());
        assert_eq!(body["type"], event.kind);
        (event.kind, body["data"].clone())
    });
    told.collect()
}

/// Closes the one call of [`RUN`] that is up, as another node does once the run's lease has expired, and records its end.
pub(crate) async fn lose_call(store: &Store, at: Moment) {
    let next = RUN.boot + 1;
    let closed = done(store, move |tx| lost::close(tx, RUN.node, next, at)).await;
    assert_eq!(closed, 1);
    let ends = done(store, move |tx| lost::record_ends(tx, RUN.node, next)).await;
    assert_eq!(ends, 1);
}

fn kinds(told: &[(String, Value)]) -> Vec<&str> {
    told.iter().map(|(kind, _)| kind.as_str()).collect()
}

const STAGES: [&str; 4] = [
    "call.started",
    "call.ringing",
    "call.answered",
    "call.ended",
];

async fn a_call_tells_each_stage_once(db: &TestDb) {
    let store = db.open().await;
    let (whole, pieces) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let facts = life(whole, 1, Status::Completed);

    test_db::project(&store, RUN, &facts)
        .await
        .expect("projected");
    test_db::project(&store, RUN, &facts)
        .await
        .expect("projected again");
    for fact in &facts[2..] {
        let again = std::slice::from_ref(fact);
        test_db::project(&store, RUN, again)
            .await
            .expect("projected again");
    }

    for fact in life(pieces, 2, Status::Completed) {
        test_db::project(&store, RUN, &[fact])
            .await
            .expect("projected");
    }

    let (whole, pieces) = (told(&store, whole).await, told(&store, pieces).await);
    assert_eq!(kinds(&whole), STAGES);
    assert_eq!(kinds(&pieces), STAGES);

    for (kind, data) in &whole {
        assert_fits(kind, data);
    }

    for ((_, one), (kind, other)) in whole.iter().zip(&pieces) {
        for field in [
            "status",
            "started_at",
            "ringing_at",
            "answered_at",
            "ended_at",
            "sip_code",
        ] {
            assert_eq!(one[field], other[field], "{kind}: {field}");
        }
    }

    let statuses: Vec<_> = whole.iter().map(|(_, data)| &data["status"]).collect();
    assert_eq!(statuses, ["queued", "ringing", "in_progress", "completed"]);
    assert_eq!(whole[1].1["answered_at"], Value::Null);
    assert_eq!(whole[3].1["call_id"], Uuid::from_u128(1).to_string());
}

async fn a_refused_call_says_so(db: &TestDb) {
    let store = db.open().await;
    let org = Uuid::from_u128(1);
    let facts = life(org, 1, Status::Refused);
    let ends = [facts[0].clone(), facts[3].clone()];
    test_db::project(&store, RUN, &ends)
        .await
        .expect("projected");
    assert_eq!(
        kinds(&told(&store, org).await),
        ["call.started", "call.refused"]
    );
}

/// A node that is only suspended is taken for dead as well, while its calls go on.
async fn an_end_is_told_once(db: &TestDb) {
    let store = db.open().await;
    let next = RUN.boot + 1;
    let close = async || done(&store, move |tx| lost::close(tx, RUN.node, next, later(9))).await;
    let tell = async || done(&store, move |tx| lost::record_ends(tx, RUN.node, next)).await;
    let begin = async |number: u128| {
        let org = Uuid::from_u128(number);
        let facts = life(org, number, Status::Completed);
        test_db::project(&store, RUN, &facts[..3])
            .await
            .expect("projected");
        (org, facts)
    };

    let status = async |org: Uuid, number: u128| {
        found(&store, move |tx| {
            calls::by_id(tx, org, Uuid::from_u128(number))
        })
        .await
        .status
    };

    let (gone, facts) = begin(1).await;
    assert_eq!(close().await, 1);
    assert_eq!(status(gone, 1).await, Status::Lost);
    assert_eq!(kinds(&told(&store, gone).await), STAGES[..3], "not yet");
    assert_eq!((tell().await, tell().await), (1, 0));

    let last = told(&store, gone).await;
    assert_eq!(
        (kinds(&last), &last[3].1["status"]),
        (STAGES.to_vec(), &json!("lost"))
    );
    assert_eq!(
        done(&store, move |tx| lost::reopen(tx, RUN)).await,
        0,
        "it was told"
    );

    // The true end comes too late for an event; the call shows it.
    for _ in 0..2 {
        test_db::project(&store, RUN, &facts)
            .await
            .expect("projected");
    }
    assert_eq!(kinds(&told(&store, gone).await), STAGES);
    assert_eq!(status(gone, 1).await, Status::Completed);

    let (held_up, facts) = begin(2).await;
    assert_eq!(close().await, 1);
    assert_eq!(done(&store, move |tx| lost::reopen(tx, RUN)).await, 1);
    assert_eq!(status(held_up, 2).await, Status::InProgress);
    assert_eq!(tell().await, 0);

    test_db::project(&store, RUN, &facts[3..])
        .await
        .expect("projected");
    let last = told(&store, held_up).await;
    assert_eq!(
        (kinds(&last), &last[3].1["status"]),
        (STAGES.to_vec(), &json!("completed"))
    );

    let (ended, facts) = begin(3).await;
    assert_eq!(close().await, 1);
    test_db::project(&store, RUN, &facts[..3])
        .await
        .expect("projected again");
    assert_eq!(kinds(&told(&store, ended).await), STAGES[..3], "a guess");

    test_db::project(&store, RUN, &facts[3..])
        .await
        .expect("projected");
    assert_eq!(tell().await, 0, "the truth was told");
    let last = told(&store, ended).await;
    assert_eq!(
        (kinds(&last), &last[3].1["status"]),
        (STAGES.to_vec(), &json!("completed"))
    );
}

async fn an_end_tells_the_figures_of_its_media(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Ours").await.id;
    let call = Uuid::from_u128(1);
    let figures = json!({
        "received": {"packets": 95, "octets": 15_200, "packets_lost": 5, "packets_late": 0, "packets_discarded": 0, "jitter_ms": 1.3, "mos": 3.57},
        "sent": {"packets": 100, "octets": 16_000, "packets_lost": null, "jitter_ms": null, "mos": null},
        "round_trip_ms": 40.5,
        "first_word_ms": 640.0,
        "clears": 1,
        "clear_to_silence_ms": 12.5,
        "underruns": 2,
        "discarded_octets": 0,
        "unknown_messages": 0,
    });

    let media: CallMedia = serde_json::from_value(json!({
        "call": call,
        "org": org,
        "figures": figures,
        "steps": [{"at": NOW, "step": "opened"}, {"at": later(2), "step": "bot_closed", "cause": "closed"}],
    }))
    .expect("a fact");

    let facts = life(org, 1, Status::Completed);
    test_db::project(&store, RUN, &facts[..3])
        .await
        .expect("projected");
    let batch = [Fact::Media(media.clone().into()), facts[3].clone()];
    for _ in 0..2 {
        test_db::project(&store, RUN, &batch)
            .await
            .expect("projected");
    }

    let told = told(&store, org).await;
    assert_eq!(told.len(), 4, "{told:?}");
    for (kind, data) in &told {
        assert_fits(kind, data);
        let expected = match &**kind {
            "call.ended" => &figures,
            _ => &Value::Null,
        };
        assert_eq!(&data["media"], expected, "{kind}");
    }

    let row = found(&store, move |tx| calls::by_id(tx, org, call)).await;
    assert_eq!(row.media, Some(media.figures));
    let steps = found(&store, move |tx| calls::media_steps(tx, org, call)).await;
    assert_eq!(steps, media.steps);
}

/// Later changes to the call's row leave the event unchanged, in a stream and in a delivery.
async fn what_was_told_stays_octet_by_octet(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Ours").await.id;
    let new = NewWebhook {
        url: "https://example.com/".to_owned(),
        description: None,
        types: Vec::new(),
        enabled: true,
    };

    let secret = Password::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let webhook = done(&store, move |tx| {
        webhooks::create(tx, org, &new, &secret, NOW)
    })
    .await
    .id;

    let (contacts, details) = (store.contacts(), ContactDetails::default());
    let made = contacts.identify_by_external_id(org, "ann", &details, NOW);
    let (facts, contact) = (
        life(org, 1, Status::Completed),
        made.await.expect("made").id,
    );
    let known = Fact::Contact {
        call: Uuid::from_u128(1),
        org,
        contact,
    };

    let batches: [Vec<Fact>; 4] = [
        vec![facts[0].clone()],
        vec![known, facts[1].clone()],
        vec![facts[2].clone()],
        vec![facts[3].clone()],
    ];

    let mut kept = Vec::new();
    for (turn, batch) in batches.iter().enumerate() {
        if turn == 3 {
            let closed = store
                .write(move |tx| lost::close(tx, RUN.node, RUN.boot + 1, later(2)))
                .await;
            assert_eq!(closed.expect("closed"), 1);
            let told = store
                .write(move |tx| lost::record_ends(tx, RUN.node, RUN.boot + 1))
                .await;
            assert_eq!(told.expect("told"), 1);
            kept = grown(&store, org, kept).await;
            test_db::project(&store, RUN, batch)
                .await
                .expect("projected");
            let again = store.read(move |tx| events::since(tx, org, 0, 1000)).await;
            assert_eq!(again.expect("events"), kept, "an end is told once");
            continue;
        }
        test_db::project(&store, RUN, batch)
            .await
            .expect("projected");
        kept = grown(&store, org, kept).await;
    }

    let told = told(&store, org).await;
    let [started, ringing, answered, lost] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(started.1["contact_id"], Value::Null);

    for (kind, data) in [ringing, answered, lost] {
        assert_eq!(data["contact_id"], contact.to_string(), "{kind}");
        assert_fits(kind, data);
    }

    assert_eq!(
        (&lost.1["sip_code"], &lost.1["status"]),
        (&Value::Null, &json!("lost"))
    );

    let lease = Duration::from_secs(90);
    let held = store
        .write(move |tx| deliveries::lease(tx, webhook, "node", 10, lease, later(9)))
        .await;
    let mut held = held.expect("held");
    held.sort_by_key(|held| {
        kept.iter()
            .position(|event| event.id == held.delivery.event_id)
    });

    let sent: Vec<_> = held.iter().map(|held| &held.body).collect();
    assert_eq!(
        sent,
        kept.iter().map(|event| &event.body).collect::<Vec<_>>()
    );

    for LeasedDelivery { delivery, body } in held.clone() {
        let again = store
            .read_inline(move |tx| deliveries::by_id(tx, org, webhook, delivery.id))
            .await;
        assert_eq!(again.expect("kept").body, *body);
    }
}

/// Returns the org's events, at least one more than before, and checks that they begin with those.
async fn grown(store: &Store, org: Uuid, had: Vec<Event>) -> Vec<Event> {
    let events = all(store, org).await;
    assert!(events.len() > had.len(), "{events:?}");
    assert_eq!(events[..had.len()], had);
    events
}

async fn writes_tell_what_they_did(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Ours").await.id;
    let handoff = NewHandoff {
        session_id: "s".to_owned(),
        contact_id: None,
        summary: "Wants a human".to_owned(),
        explanation: None,
        reasons: Vec::new(),
        sentiment: None,
    };

    let made = store
        .write(move |tx| handoffs::record(tx, org, handoff, NOW))
        .await;
    let key = token::issue(&store, org, NewOrgKey::lasting("Old", &[]), NOW)
        .await
        .expect("a key")
        .0
        .id;
    done(&store, move |tx| org_keys::revoke(tx, org, key, later(1))).await;

    let lost = NewEvent::new(org, EventType::TrunkLost, &json!({"x": 1}), NOW);
    store.emit(lost).await.expect("emitted");

    let told = told(&store, org).await;
    for (kind, data) in &told[..2] {
        assert_fits(kind, data);
    }

    assert_eq!(
        kinds(&told),
        ["handoff.created", "key.revoked", "trunk.lost"]
    );
    assert_eq!(
        told[0].1["handoff_id"],
        made.expect("recorded").id.to_string()
    );
    assert_eq!(told[1].1["api_key_id"], key.to_string());
    assert_eq!(told[1].1["name"], "Old");
}

/// A reader that reads up to a number while others write must not find smaller numbers later.
async fn readers_never_miss_a_number(db: &TestDb) {
    const WRITERS: u128 = 4;
    const EACH: u64 = 25;

    let store = db.open().await;
    let org = Uuid::from_u128(1);
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for turn in 0..EACH {
                let at = Moment::from_secs(1_000 + turn);
                let subject = Uuid::from_u128(writer);
                let event = NewEvent::of(org, EventType::TrunkLost, subject, &json!({}), at);
                store.emit(event).await.expect("emitted");
            }
        })
    });

    let writers: Vec<_> = writers.collect();
    let mut signal = store.follow_events().await;
    let (mut seq, mut seen) = (0, 0);
    while seen < 100 {
        let events = found(&store, move |tx| events::since(tx, org, seq, 7)).await;
        seen += events.len();
        match events.last() {
            Some(last) => seq = last.seq,
            None => signal.wait().await,
        }
    }

    for writer in writers {
        writer.await.expect("written");
    }

    assert_eq!(found(&store, events::position).await, seq);
    assert_eq!(all(&store, org).await.len(), 100);
}

async fn another_node_learns(db: &TestDb) {
    const TURNS: u64 = 10;

    let (here, there) = (db.open().await, db.open().await);
    let org = Uuid::from_u128(1);
    let mut signal = there.follow_events().await;

    for turn in 1..=TURNS {
        let event = NewEvent::new(org, EventType::TrunkLost, &json!({}), later(turn));
        here.emit(event).await.expect("emitted");
        let learnt = async {
            while told(&there, org).await.len() < turn as usize {
                signal.wait().await;
            }
        };
        let learnt = tokio::time::timeout(Duration::from_secs(30), learnt).await;
        assert!(learnt.is_ok(), "turn {turn}: it never learns");
    }
}

async fn old_and_surplus_events_are_forgotten(db: &TestDb) {
    let store = db.open().await;
    let (quiet, busy) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let record = async |org, count: u64, from: u64| {
        for turn in 0..count {
            let event = NewEvent::new(org, EventType::TrunkLost, &json!({}), later(from + turn));
            store.emit(event).await.expect("emitted");
        }
    };
    record(quiet, 2, 0).await;
    record(busy, 5, 100).await;
    record(quiet, 2, 200).await;

    let kept = Duration::from_secs(150);
    let pruned = store.prune_events(kept, 3, later(200)).await;
    assert_eq!(pruned.expect("pruned"), 4);

    for (org, left) in [(quiet, 2), (busy, 3)] {
        assert_eq!(told(&store, org).await.len(), left);
    }
}

async fn an_event_from_the_future_keeps_no_old_ones(db: &TestDb) {
    let store = db.open().await;
    let org = Uuid::from_u128(1);
    let event = NewEvent::new(org, EventType::TrunkLost, &json!({}), later(10_000));
    store.emit(event).await.expect("emitted");

    let call = |id| Fact::Started(test_db::started(Uuid::from_u128(id), org, NOW).into());
    let facts: Vec<Fact> = (1..=1_100).map(call).collect();
    let projected = test_db::project(&store, RUN, &facts).await;
    projected.expect("projected");

    let pruned = store.prune_events(Duration::from_secs(150), 10_000, later(200));
    assert_eq!(pruned.await.expect("pruned"), 1_100);
    assert_eq!(told(&store, org).await.len(), 1);
}
