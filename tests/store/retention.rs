//! Data older than an org's retention is deleted, and nothing else.

use std::fs;
use std::time::Duration;

use trunkline_model::record::{Ended, Fact, HangupBy, Started, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::{Journal, Origin, Settings};
use trunkline_store::{
    ContactDetails, HandoffFilter, NewHandoff, OrgChange, Retained, RetentionChange, RetentionDays,
    Store, UsageParts, UsageWindow, aged, calls, events, handoffs, lost, orgs, usage,
};
use uuid::Uuid;

use crate::contacts::counted;
use crate::test_db::{self, NOW, TestDb, done, found, number, org, started};

crate::on_both!(
    old_calls_go_and_are_counted_on,
    what_retention_has_deleted_does_not_come_back_after_a_kill,
    the_events_of_a_lost_call_go_with_it,
    sessions_are_emptied_and_their_calls_stay,
    sessions_of_late_calls_are_emptied,
    contacts_go_once_no_call_names_them,
    a_contact_that_goes_after_its_look_up_is_not_named,
    a_call_that_is_projected_meanwhile_keeps_its_contact,
    old_handoffs_go,
    an_orgs_own_days_stand_before_the_operators,
);

const DAY: Duration = Duration::from_secs(24 * 3600);
const RUN: Origin = Origin { node: 3, boot: 7 };

/// Returns the time so many days after the start.
fn day(days: u32) -> Moment {
    NOW + DAY * days
}

async fn keep(store: &Store, org: Uuid, retention: RetentionChange) {
    let change = OrgChange {
        retention,
        ..OrgChange::default()
    };
    done(store, move |tx| orgs::update(tx, org, &change, NOW)).await;
}

/// Deletes all expired rows of a kind; returns their number.
async fn delete(store: &Store, kind: Retained, default_days: Option<u32>, now: Moment) -> u64 {
    let over = store
        .read(move |tx| aged::over(tx, kind, default_days, now))
        .await;
    let mut deleted = 0;

    for (org, before) in over.expect("orgs") {
        loop {
            let rows = store.delete_before(org, kind, before, now).await;
            match rows.expect("rows go") {
                0 => break,
                some => deleted += some,
            }
        }
    }
    deleted
}

fn call(org: Uuid, id: u128, at: Moment, is_over: bool) -> Vec<Fact> {
    let call = Uuid::from_u128(id);
    let started = Started {
        from_e164: Some(number("+441632960001")),
        headers: vec![("X-Ticket".into(), "17".into())],
        metadata: Some("{\"a\":1}".into()),
        ..started(call, org, at)
    };
    let mut facts = vec![Fact::Started(started.into())];
    if is_over {
        facts.push(Fact::Answered {
            call,
            org,
            at,
            runtime_call_id: "r".into(),
        });
        let ended = Ended {
            call,
            org,
            at: at + Duration::from_secs(61),
            status: Status::Completed,
            sip_code: 200,
            reason: None,
            reason_detail: None,
            hangup_by: HangupBy::Caller,
            cause: None,
        };
        facts.push(Fact::Ended(ended.into()));
    }

    facts
}

async fn project(store: &Store, facts: &[Fact]) {
    let projected = test_db::project(store, RUN, facts).await;
    projected.expect("projected");
}

async fn answered_seconds(store: &Store, org: Uuid) -> i64 {
    let window = UsageWindow {
        from: Moment::from_micros(0),
        to: Moment::from_secs(4_000_000_000),
    };
    let usage = store.read(move |tx| usage::of_org(tx, org, window, UsageParts::default(), 10));
    usage.await.expect("usage")[0].answered_seconds
}

async fn old_calls_go_and_are_counted_on(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let mut facts = Vec::new();
    for id in 0..250 {
        facts.extend(call(ours, id + 1, day(0), true));
        facts.extend(call(theirs, id + 5_001, day(0), true));
    }

    facts.extend(call(ours, 1_001, day(0), false));
    facts.extend(call(ours, 1_002, day(20), true));
    project(&store, &facts).await;
    let change = RetentionChange {
        calls: Some(Some(30)),
        ..RetentionChange::default()
    };
    keep(&store, ours, change).await;
    assert_eq!(answered_seconds(&store, ours).await, 251 * 61);

    assert_eq!(delete(&store, Retained::Calls, None, day(29)).await, 0);
    assert_eq!(delete(&store, Retained::Calls, None, day(31)).await, 250);
    found(&store, move |tx| {
        calls::by_id(tx, ours, Uuid::from_u128(1_001))
    })
    .await;
    found(&store, move |tx| {
        calls::by_id(tx, ours, Uuid::from_u128(1_002))
    })
    .await;
    assert_eq!(answered_seconds(&store, ours).await, 251 * 61);

    found(&store, move |tx| {
        calls::by_id(tx, theirs, Uuid::from_u128(5_001))
    })
    .await;
}

/// The segment that was written last still holds facts which are stored, and whose rows have expired meanwhile.
async fn what_retention_has_deleted_does_not_come_back_after_a_kill(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let (directory, killed) = (db.directory().join("run"), db.directory().join("killed"));
    let (mut journal, projector) =
        Journal::open(&directory, RUN, Settings::default()).expect("a journal");

    let projecting = tokio::spawn(projector.run(store.clone()));
    let old = journal.append(&mut call(ours, 1, day(0), true));
    let old = old.expect("room");
    let mut projected = journal.projected();
    let stored = projected.wait_for(|stored| *stored >= old).await;
    stored.expect("a projector");

    projecting.abort();
    let late = journal.append(&mut call(ours, 2, day(29), true));
    journal.synced(late.expect("room")).await.expect("synced");
    fs::create_dir(&killed).expect("a directory");
    for file in fs::read_dir(&directory).expect("files") {
        let file = file.expect("a file");
        fs::copy(file.path(), killed.join(file.file_name())).expect("copied");
    }

    assert_eq!(delete(&store, Retained::Calls, Some(30), day(31)).await, 1);
    let next = Origin {
        boot: RUN.boot + 1,
        ..RUN
    };
    let (_journal, mut projector) =
        Journal::open(&killed, next, Settings::default()).expect("a journal");
    let replayed = projector.replay(&store).await.expect("replayed");

    assert_eq!(replayed.facts, 3, "those of the second call");
    assert_eq!(delete(&store, Retained::Calls, Some(30), day(31)).await, 0);
    assert_eq!(answered_seconds(&store, ours).await, 2 * 61);
    let late = Uuid::from_u128(2);
    found(&store, move |tx| calls::by_id(tx, ours, late)).await;
}

/// The end that a lost call is assumed to have differs from the true one, which comes later.
async fn the_events_of_a_lost_call_go_with_it(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let facts = call(ours, 1, day(0), true);
    project(&store, &facts[..1]).await;
    done(&store, |tx| {
        let gone = day(0) + Duration::from_secs(10);
        lost::close(tx, RUN.node, RUN.boot + 1, gone)?;
        lost::record_ends(tx, RUN.node, RUN.boot + 1)
    })
    .await;
    project(&store, &facts[1..]).await;

    let told = async || found(&store, move |tx| events::since(tx, ours, 0, 10)).await;
    let kinds: Vec<String> = told().await.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["call.started", "call.ended", "call.answered"]);

    assert_eq!(delete(&store, Retained::Calls, Some(30), day(31)).await, 1);
    assert_eq!(told().await, []);
}

async fn sessions_are_emptied_and_their_calls_stay(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let mut facts = Vec::new();
    for id in 0..600 {
        let at = day(0) + Duration::from_secs(id);
        facts.extend(call(ours, u128::from(id) + 1, at, true));
    }

    facts.extend(call(ours, 1_002, day(20), true));
    project(&store, &facts).await;
    let change = RetentionChange {
        sessions: Some(Some(7)),
        ..RetentionChange::default()
    };
    keep(&store, ours, change).await;

    assert_eq!(delete(&store, Retained::Sessions, None, day(10)).await, 600);
    assert_eq!(delete(&store, Retained::Sessions, None, day(11)).await, 0);
    for (id, is_emptied) in [(1, true), (600, true), (1_002, false)] {
        let session = Uuid::from_u128(id + 1_000_000);
        let (call, headers) = found(&store, move |tx| calls::of_session(tx, ours, session)).await;
        assert_eq!(headers.is_empty(), is_emptied, "{id}");
        assert_eq!(call.metadata.is_none(), is_emptied, "{id}");
        assert_eq!(call.from_e164, Some(number("+441632960001")));
    }
    // The next sweep continues where the last one ended.
    assert_eq!(delete(&store, Retained::Sessions, None, day(30)).await, 1);
}

/// A node projects an old call after newer ones, and a call ends late that began at the same time as one that is emptied already.
async fn sessions_of_late_calls_are_emptied(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let mut facts = call(ours, 1, day(0), true);
    facts.extend(call(ours, 2, day(0), false));
    facts.extend(call(ours, 3, day(1), true));
    project(&store, &facts).await;
    assert_eq!(
        delete(&store, Retained::Sessions, Some(7), day(10)).await,
        2,
        "one is up"
    );

    let mut late = call(ours, 2, day(0), true).split_off(1);
    late.extend(call(ours, 4, day(0) - Duration::from_secs(60), true));
    project(&store, &late).await;
    assert_eq!(
        delete(&store, Retained::Sessions, Some(7), day(10)).await,
        2
    );
    for id in 1..=4 {
        let session = Uuid::from_u128(id + 1_000_000);
        let (call, headers) = found(&store, move |tx| calls::of_session(tx, ours, session)).await;
        assert_eq!((headers.len(), call.metadata), (0, None), "{id}");
    }
}

async fn contacts_go_once_no_call_names_them(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let contacts = store.contacts();
    let mut ids = Vec::new();

    for name in ["named", "unnamed", "young"] {
        let details = ContactDetails {
            name: Some(Some(name.to_owned())),
            ..ContactDetails::default()
        };
        let at = if name == "young" { day(25) } else { day(0) };
        let made = contacts.identify_by_external_id(ours, name, &details, at);
        ids.push(made.await.expect("a contact").id);
    }

    let [named, unnamed, young] = ids[..] else {
        panic!("three contacts")
    };
    let mut facts = call(ours, 1, day(0), true);
    facts.push(Fact::Contact {
        call: Uuid::from_u128(1),
        org: ours,
        contact: named,
    });
    project(&store, &facts).await;
    let change = RetentionChange {
        calls: Some(Some(60)),
        contacts: Some(Some(30)),
        ..RetentionChange::default()
    };
    keep(&store, ours, change).await;

    assert_eq!(delete(&store, Retained::Contacts, None, day(31)).await, 1);
    assert!(contacts.by_id(ours, unnamed).await.is_err());
    contacts.by_id(ours, named).await.expect("a call names it");
    contacts.by_id(ours, young).await.expect("it is young");
    assert_eq!(delete(&store, Retained::Calls, None, day(61)).await, 1);
    assert_eq!(delete(&store, Retained::Contacts, None, day(61)).await, 2);
    assert!(contacts.by_id(ours, named).await.is_err());
    assert_eq!(counted(&store, ours).await, 0);
}

/// A contact that is past its days.
async fn old_contact(store: &Store, org: Uuid) -> Uuid {
    let details = ContactDetails::default();
    let contacts = store.contacts();
    let made = contacts.identify_by_external_id(org, "old", &details, day(0));
    let change = RetentionChange {
        contacts: Some(Some(30)),
        ..RetentionChange::default()
    };
    keep(store, org, change).await;
    made.await.expect("a contact").id
}

/// Facts of a call that has just begun and found this contact.
fn call_of(org: Uuid, contact: Uuid) -> Vec<Fact> {
    let id = org.as_u128() + 1;
    let call = Uuid::from_u128(id);
    let mut facts = self::call(org, id, day(31), false);
    facts.push(Fact::Contact { call, org, contact });
    facts
}

async fn contact_of_call(store: &Store, org: Uuid) -> Option<Uuid> {
    let call = found(store, move |tx| {
        calls::by_id(tx, org, Uuid::from_u128(org.as_u128() + 1))
    });
    call.await.contact_id
}

async fn a_contact_that_goes_after_its_look_up_is_not_named(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let contact = old_contact(&store, ours).await;

    assert_eq!(delete(&store, Retained::Contacts, None, day(31)).await, 1);
    project(&store, &call_of(ours, contact)).await;
    assert_eq!(contact_of_call(&store, ours).await, None);
}

/// Calls are projected while their contacts are deleted: none names a contact that is gone.
async fn a_call_that_is_projected_meanwhile_keeps_its_contact(db: &TestDb) {
    let store = db.open().await;
    for turn in 0..20 {
        let ours = org(&store, &format!("Org {turn}")).await.id;
        let contact = old_contact(&store, ours).await;
        let facts = call_of(ours, contact);
        let deleting = store.delete_before(ours, Retained::Contacts, day(1), day(31));
        let (_, deleted) = tokio::join!(project(&store, &facts), deleting);

        let is_left = store.contacts().by_id(ours, contact).await.is_ok();
        assert_eq!(is_left, deleted.expect("rows go") == 0);
        let named = contact_of_call(&store, ours).await;
        assert_eq!(named, is_left.then_some(contact), "turn {turn}");
    }
}

async fn old_handoffs_go(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    for days in 0..40 {
        for org in [ours, theirs] {
            let new = NewHandoff {
                session_id: format!("s-{days}"),
                contact_id: None,
                summary: "Wants a human".to_owned(),
                explanation: None,
                reasons: Vec::new(),
                sentiment: None,
            };
            done(&store, move |tx| handoffs::record(tx, org, new, day(days))).await;
        }
    }

    let change = RetentionChange {
        handoffs: Some(Some(30)),
        ..RetentionChange::default()
    };
    keep(&store, ours, change).await;
    assert_eq!(delete(&store, Retained::Handoffs, None, day(39)).await, 9);

    for (org, left) in [(ours, 31), (theirs, 40)] {
        let filter = HandoffFilter {
            confirmed: None,
            contact: None,
            reason: None,
            from: day(0),
            to: day(100),
        };
        let page = store
            .read_inline(move |tx| handoffs::list(tx, org, filter, None, 1))
            .await;
        assert_eq!(page.expect("a page").total, left);
    }
}

async fn an_orgs_own_days_stand_before_the_operators(db: &TestDb) {
    let store = db.open().await;
    let (own, other) = (org(&store, "Own").await.id, org(&store, "Other").await.id);
    let mut facts = call(own, 1, day(0), true);
    facts.extend(call(other, 2, day(0), true));
    project(&store, &facts).await;
    let change = RetentionChange {
        calls: Some(Some(60)),
        ..RetentionChange::default()
    };
    keep(&store, own, change).await;
    let days = found(&store, move |tx| aged::days_of(tx, own)).await;
    let expected = RetentionDays {
        calls: Some(60),
        ..RetentionDays::default()
    };
    assert_eq!(days, expected);

    assert_eq!(delete(&store, Retained::Calls, Some(30), day(40)).await, 1);
    found(&store, move |tx| calls::by_id(tx, own, Uuid::from_u128(1))).await;
    let back = RetentionChange {
        calls: Some(None),
        ..RetentionChange::default()
    };
    keep(&store, own, back).await;
    assert_eq!(delete(&store, Retained::Calls, Some(30), day(40)).await, 1);
}
