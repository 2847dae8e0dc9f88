//! Handoffs in order, counted by position.

use trunkline_sip::moment::Moment;
use trunkline_store::{Broke, Error, HandoffFilter, NewHandoff, Reason, Sentiment, handoffs};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, done, found, later, org};

crate::on_both!(
    handoffs_are_kept_as_given,
    windows_and_reasons_are_counted,
    a_page_of_long_texts_is_cut_and_goes_on,
    writers_at_once_stay_in_order
);

fn handoff(session: &str, reasons: &[Reason]) -> NewHandoff {
    NewHandoff {
        session_id: session.to_owned(),
        contact_id: None,
        summary: "Sümmary".to_owned(),
        explanation: Some("because".to_owned()),
        reasons: reasons.to_vec(),
        sentiment: Some(Sentiment::Happy),
    }
}

fn all(reason: Option<Reason>) -> HandoffFilter {
    between(reason, Moment::from_micros(0), later(1_000_000))
}

fn between(reason: Option<Reason>, from: Moment, to: Moment) -> HandoffFilter {
    HandoffFilter {
        reason,
        confirmed: None,
        contact: None,
        from,
        to,
    }
}

async fn handoffs_are_kept_as_given(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let made = done(&store, move |tx| {
        handoffs::record(tx, ours, handoff("s", &[Reason::ProhibitedTopic]), NOW)
    })
    .await;
    let page = found(&store, move |tx| {
        handoffs::list(tx, ours, all(None), None, 9)
    })
    .await;
    assert_eq!(page.items, [made]);

    let page = found(&store, move |tx| {
        handoffs::list(tx, theirs, all(None), None, 9)
    })
    .await;
    assert_eq!((page.items.len(), page.total), (0, 0));

    let nowhere = store
        .write(move |tx| handoffs::record(tx, Uuid::nil(), handoff("s", &[]), NOW))
        .await;
    assert!(nowhere.is_err());
}

async fn windows_and_reasons_are_counted(db: &TestDb) {
    use Reason::{InsufficientTools, ProhibitedTopic};
    let store = db.open().await;
    let (org, other) = (org(&store, "Org").await.id, org(&store, "Other").await.id);
    for at in 0..30 {
        let reasons = if at % 3 == 0 {
            [ProhibitedTopic, InsufficientTools].as_slice()
        } else {
            &[InsufficientTools]
        };
        for org in [org, other] {
            done(&store, move |tx| {
                handoffs::record(tx, org, handoff("s", reasons), later(at))
            })
            .await;
        }
    }

    for (name, filter, total) in [
        ("all", all(None), 30),
        ("a reason of all", all(Some(InsufficientTools)), 30),
        ("a reason of a third", all(Some(ProhibitedTopic)), 10),
        ("no reason", all(Some(Reason::AiImpliedHandoff)), 0),
        ("both ends are in it", between(None, later(3), later(6)), 4),
        (
            "both ends of a reason",
            between(Some(ProhibitedTopic), later(3), later(6)),
            2,
        ),
        (
            "between two",
            between(Some(ProhibitedTopic), later(4), later(5)),
            0,
        ),
        (
            "before all",
            between(
                None,
                later(0) - std::time::Duration::from_secs(9),
                NOW - std::time::Duration::from_secs(1),
            ),
            0,
        ),
        ("after all", between(None, later(30), later(99)), 0),
    ] {
        let (mut seen, mut after) = (0, None);
        loop {
            let page = found(&store, move |tx| handoffs::list(tx, org, filter, after, 4)).await;
            assert_eq!(page.total, total, "{name}");
            seen += page.items.len() as u64;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, total, "{name}");
    }
}

async fn writers_at_once_stay_in_order(db: &TestDb) {
    let stores = db.open_nodes(2).await;
    let org = org(&stores[0], "Org").await.id;
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..40_u64 {
        let store = stores[at as usize % 2].clone();
        // Clocks differ, and one goes backwards.
        let now = later(40 - at / 2);
        tasks.spawn(async move {
            loop {
                let recorded = store.write(move |tx| {
                    handoffs::record(tx, org, handoff("s", &[Reason::InsufficientTools]), now)
                });
                match recorded.await {
                    // On a busy machine forty turns of one org take longer than a writer waits.
                    Err(Error::Broke(Broke::Busy)) => {}
                    recorded => break recorded.expect("a change").created_at,
                }
            }
        });
    }

    let mut times = tasks.join_all().await;
    times.sort_unstable();
    times.dedup();
    assert_eq!(times.len(), 40, "each has a time of its own");

    for reason in [None, Some(Reason::InsufficientTools)] {
        let page = stores[0]
            .read_inline(move |tx| handoffs::list(tx, org, all(reason), None, 100))
            .await
            .expect("a page");
        let listed: Vec<_> = page
            .items
            .iter()
            .rev()
            .map(|handoff| handoff.created_at)
            .collect();
        assert_eq!((page.total, listed), (40, times.clone()));
    }
}

async fn a_page_of_long_texts_is_cut_and_goes_on(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    for at in 0..20 {
        let new = NewHandoff {
            summary: "s".repeat(100_000),
            ..handoff("s", &[Reason::InsufficientTools])
        };
        done(&store, move |tx| handoffs::record(tx, org, new, later(at))).await;
    }

    let (mut seen, mut sizes, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = found(&store, move |tx| {
            handoffs::list(tx, org, all(None), after, 100)
        })
        .await;
        assert_eq!(page.total, 20);
        sizes.push(page.items.len());
        seen.extend(page.items.iter().map(|handoff| handoff.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(sizes, [11, 9]);

    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 20);
}
