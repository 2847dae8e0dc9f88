//! Handoffs carry their contact, are erased with it, and can be deleted one by one.

use trunkline_sip::moment::Moment;
use trunkline_store::{
    Error, Handoff, HandoffFilter, Kind, NewHandoff, OrgLimit, Reason, Wrong, events, handoffs,
    of_contact, org_limits,
};
use uuid::Uuid;

use crate::erasures::{calls, contact, dump, erase, request};
use crate::test_db::{NOW, TestDb, done, found, later, open_erasures, org, started};

crate::on_both!(
    a_handoff_has_the_contact_that_is_named_or_that_of_its_call,
    a_chat_is_erased_with_its_contact,
    deleted_handoffs_are_counted_nowhere,
    a_deleted_handoff_is_gone_from_its_event_too,
);

const SECRET: &str = "wants to leave her bank";

fn handoff(session: &str, contact: Option<Uuid>) -> NewHandoff {
    NewHandoff {
        session_id: session.to_owned(),
        contact_id: contact,
        summary: SECRET.to_owned(),
        explanation: None,
        reasons: vec![Reason::ProhibitedTopic],
        sentiment: None,
    }
}

fn of(contact: Option<Uuid>) -> HandoffFilter {
    HandoffFilter {
        reason: None,
        confirmed: None,
        contact,
        from: Moment::from_micros(0),
        to: later(1_000_000),
    }
}

async fn a_handoff_has_the_contact_that_is_named_or_that_of_its_call(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let (ann, foreign) = (contact(&store, ours).await, contact(&store, theirs).await);
    let [by_number, by_contact, _] = calls(&store, ours, ann).await;

    let session = started(by_contact, ours, NOW).session.to_string();
    let nameless = started(by_number, ours, NOW).session.to_string();
    for (session, named, contact) in [
        ("chat", Some(ann), Some(ann)),
        ("chat", None, None),
        (&session, None, Some(ann)),
        // The transfer of this call has made a handoff already.
        (&nameless, None, None),
    ] {
        let new = handoff(session, named);
        let made = done(&store, move |tx| handoffs::record(tx, ours, new, later(60))).await;
        assert_eq!(made.contact_id, contact, "{session} {named:?}");
    }

    for absent in [foreign, Uuid::nil()] {
        let new = handoff("chat", Some(absent));
        let refused = store
            .write(move |tx| handoffs::record(tx, ours, new, later(70)))
            .await;
        let unknown = Wrong::Unknown {
            kind: Kind::Contact,
            id: absent,
        };
        assert!(matches!(refused, Err(Error::Wrong(wrong)) if wrong == unknown));
    }

    // Another org's session is no session of ours.
    let new = handoff(&session, None);
    let made = done(&store, move |tx| {
        handoffs::record(tx, theirs, new, later(60))
    })
    .await;
    assert_eq!(made.contact_id, None);

    let page = found(&store, move |tx| {
        handoffs::list(tx, ours, of(Some(ann)), None, 1)
    })
    .await;
    assert_eq!((page.total, page.items.len()), (2, 1));
    let after = page.next;
    let page = found(&store, move |tx| {
        handoffs::list(tx, ours, of(Some(ann)), after, 1)
    })
    .await;
    assert_eq!((page.total, page.next), (2, None));
    let exported = found(&store, move |tx| {
        of_contact::handoffs(tx, ours, ann, None, 9)
    });
    assert_eq!(exported.await.0.len(), 2);
}

async fn a_chat_is_erased_with_its_contact(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let ann = contact(&store, ours).await;
    let new = handoff("chat-of-ann", Some(ann));
    done(&store, move |tx| handoffs::record(tx, ours, new, later(10))).await;
    let new = handoff("chat-of-bob", None);
    done(&store, move |tx| handoffs::record(tx, ours, new, later(11))).await;

    let asked = request(&store, ours, ann).await;
    let [erasure] = &open_erasures(&store, 3).await[..] else {
        panic!("one erasure")
    };
    erase(&store, erasure, 3).await;
    let left = dump(db).await;
    let named = |text: &str| {
        left.iter()
            .filter(|(_, value)| value.contains(text))
            .count()
    };
    assert_eq!(named("chat-of-ann"), 0, "{left:?}");
    // Bob's handoff, and its event.
    assert_eq!((named("chat-of-bob"), named(SECRET)), (2, 2), "{left:?}");

    let erased = found(&store, move |tx| {
        trunkline_store::erasures::by_id(tx, ours, asked.id)
    });
    let erased = erased.await.erased;
    assert_eq!((erased.handoffs, erased.events), (1, 1), "{erased:?}");

    // It stays counted.
    let page = found(&store, move |tx| {
        handoffs::list(tx, ours, of(None), None, 9)
    })
    .await;
    let erased = &page.items[1];
    let texts = (&*erased.session_id, &*erased.summary, erased.contact_id);
    assert_eq!((page.total, texts), (2, ("anonymous", "", None)));
}

/// Counts of every list and window agree with the rows, whatever was deleted in whichever order.
async fn deleted_handoffs_are_counted_nowhere(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let ann = contact(&store, ours).await;
    let mut kept: Vec<Handoff> = Vec::new();
    let mut made = 0_u64;
    let mut seed = 7_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };

    for round in 0..60 {
        if kept.is_empty() || random(5) < 3 {
            let reasons = match random(3) {
                0 => vec![Reason::ProhibitedTopic],
                1 => vec![Reason::InsufficientTools],
                _ => vec![Reason::ProhibitedTopic, Reason::InsufficientTools],
            };
            let new = NewHandoff {
                reasons,
                ..handoff("s", (random(2) == 0).then_some(ann))
            };
            made += 1;
            let at = later(made);
            kept.push(done(&store, move |tx| handoffs::record(tx, ours, new, at)).await);
        } else {
            // Often the newest or the oldest.
            let place = match random(4) {
                0 => kept.len() - 1,
                1 => 0,
                _ => random(kept.len()),
            };
            let gone = kept.remove(place).id;
            done(&store, move |tx| handoffs::delete(tx, ours, gone)).await;
            let again = store
                .write(move |tx| handoffs::delete(tx, ours, gone))
                .await;
            let absent = Wrong::Absent(Kind::Handoff);
            assert!(matches!(again, Err(Error::Wrong(wrong)) if wrong == absent));
        }

        for (name, filter) in filters(ann) {
            for (from, to) in [(0, 1_000), (5, 20), (made / 2, made), (made, 1_000)] {
                let filter = HandoffFilter {
                    from: later(from),
                    to: later(to),
                    ..filter
                };
                let expected = kept.iter().filter(|of| matches(filter, of)).count() as u64;
                let page = found(&store, move |tx| {
                    handoffs::list(tx, ours, filter, None, 100)
                })
                .await;
                let seen = (page.total, page.items.len() as u64);
                assert_eq!(seen, (expected, expected), "{round} {name} {from}..{to}");
            }
        }
        let counts = found(&store, move |tx| org_limits::counts(tx, ours, NOW)).await;
        let held = counts
            .iter()
            .find(|(limit, _)| *limit == OrgLimit::Handoffs);
        assert_eq!(
            held,
            Some(&(OrgLimit::Handoffs, kept.len() as u64)),
            "{round}"
        );
    }
}

fn filters(contact: Uuid) -> Vec<(&'static str, HandoffFilter)> {
    let all = of(None);
    let with = |reason| HandoffFilter { reason, ..all };
    vec![
        ("all", all),
        ("a reason", with(Some(Reason::ProhibitedTopic))),
        (
            "confirmed",
            HandoffFilter {
                confirmed: Some(true),
                ..with(Some(Reason::InsufficientTools))
            },
        ),
        ("a contact", of(Some(contact))),
        (
            "a contact's reason",
            HandoffFilter {
                reason: Some(Reason::InsufficientTools),
                ..of(Some(contact))
            },
        ),
    ]
}

fn matches(filter: HandoffFilter, handoff: &Handoff) -> bool {
    let at = handoff.created_at;
    (filter.from..=filter.to).contains(&at)
        && filter
            .reason
            .is_none_or(|reason| handoff.reasons.contains(&reason))
        && filter
            .contact
            .is_none_or(|contact| handoff.contact_id == Some(contact))
}

async fn a_deleted_handoff_is_gone_from_its_event_too(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let new = handoff("chat", None);
    let made = done(&store, move |tx| handoffs::record(tx, ours, new, later(10))).await;
    let id = made.id;
    let foreign = store
        .write(move |tx| handoffs::delete(tx, theirs, id))
        .await;
    let absent = Wrong::Absent(Kind::Handoff);
    assert!(matches!(foreign, Err(Error::Wrong(wrong)) if wrong == absent));

    done(&store, move |tx| handoffs::delete(tx, ours, id)).await;
    let events = found(&store, move |tx| events::since(tx, ours, 0, 9)).await;
    assert_eq!(events.len(), 1);
    let left = dump(db).await;
    let named: Vec<_> = left
        .iter()
        .filter(|(_, value)| value.contains(SECRET))
        .collect();
    assert!(named.is_empty(), "{named:?}");
}
