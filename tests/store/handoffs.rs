//! Handoffs in order, counted by position.

use trunkline_sip::moment::Moment;
use trunkline_store::{
    Handoff, HandoffFilter, NewHandoff, Page, Reason, Sentiment, Store, handoffs,
};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, done, found, later, org};

crate::on_both!(
    handoffs_are_kept_as_given,
    windows_and_reasons_are_counted,
    a_page_of_long_texts_is_cut_and_goes_on,
    writers_at_once_stay_in_order,
    none_is_lost_when_the_table_is_made_anew
);

fn handoff(session: &str, reasons: &[Reason]) -> NewHandoff {
    NewHandoff {
        session_id: session.to_owned(),
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
    HandoffFilter { reason, from, to }
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
            done(&store, move |tx| {
                handoffs::record(tx, org, handoff("s", &[Reason::InsufficientTools]), now)
            })
            .await
            .created_at
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

/// The migration that groups handoffs by org copies them and their reasons, which would be deleted with the old table.
async fn none_is_lost_when_the_table_is_made_anew(db: &TestDb) {
    use Reason::{InsufficientTools, ProhibitedTopic};
    let store = db.open().await;

    let orgs = [org(&store, "One").await.id, org(&store, "Other").await.id];
    for at in 0..10 {
        let reasons = [ProhibitedTopic, InsufficientTools];
        done(&store, move |tx| {
            handoffs::record(
                tx,
                orgs[at % 2],
                handoff("s", &reasons[at % 2..]),
                later(at as u64),
            )
        })
        .await;
    }

    let before = listed(&store, orgs).await;
    store.close().await;

    db.execute(
        "DELETE FROM schema_migrations WHERE version >= 14;
         DROP TABLE journal_positions;
         ALTER TABLE partners DROP COLUMN node_share_percent;
         DROP INDEX transfers_lost;
         ALTER TABLE transfers DROP COLUMN lost_from;
         DROP INDEX idempotency_keys_of_org;
         ALTER TABLE idempotency_keys DROP COLUMN org_id;
         ALTER TABLE idempotency_keys DROP COLUMN attempt;
         DROP INDEX contacts_created;
         DROP INDEX contacts_by_email;
         DROP INDEX contacts_by_phone;
         DROP INDEX orgs_of_all;
         DROP INDEX calls_with_session;
         DROP INDEX transfers_newest;
         CREATE INDEX transfers_call ON transfers (org_id, call_id);
         DROP TABLE contact_counts;
         ALTER TABLE orgs DROP COLUMN updated_at;
         ALTER TABLE partners DROP COLUMN updated_at;
         ALTER TABLE org_keys DROP COLUMN expires_at;
         DROP TABLE number_codes;
         ALTER TABLE events DROP COLUMN call_id;
         ALTER TABLE events DROP COLUMN contact_id;
         ALTER TABLE inbound_trunks DROP COLUMN operator_addresses;
         ALTER TABLE agents DROP COLUMN runtime_by_operator;
         DROP INDEX transfers_counted;
         DROP INDEX calls_outbound;
         ALTER TABLE inbound_trunks DROP COLUMN transfer_way;
         ALTER TABLE outbound_trunks DROP COLUMN transfer_way;
         ALTER TABLE inbound_trunks DROP COLUMN refer_kept_caller_at;
         ALTER TABLE outbound_trunks DROP COLUMN refer_kept_caller_at;
         ALTER TABLE destinations DROP COLUMN via;
         ALTER TABLE transfers DROP COLUMN answer_confirmed;
         ALTER TABLE transfers DROP COLUMN caller_may_be_gone;
         ALTER TABLE transfers DROP COLUMN counted_at;
         ALTER TABLE orgs DROP COLUMN suspended_by_partner_at;
         ALTER TABLE orgs DROP COLUMN suspended_by_operator_at;
         ALTER TABLE orgs DROP COLUMN partner_inactive_at;
         ALTER TABLE partners DROP COLUMN verifies_numbers;
         DROP TABLE installation;
         ALTER TABLE outbound_trunks DROP COLUMN auth_realm;
         ALTER TABLE outbound_trunks DROP COLUMN auth_realms;
         ALTER TABLE outbound_trunks DROP COLUMN digest_require_qop;
         DROP INDEX calls_lost_untold;
         ALTER TABLE calls DROP COLUMN lost_told;
         DROP TABLE call_attempts;
         ALTER TABLE inbound_trunks DROP COLUMN unanswered_challenge;
         ALTER TABLE outbound_trunks DROP COLUMN unanswered_challenge;
         ALTER TABLE agents DROP COLUMN runtime_password;
         ALTER TABLE calls DROP COLUMN caller_withheld;
         ALTER TABLE idempotency_keys DROP COLUMN node;
         DROP TABLE registrations;
         ALTER TABLE org_keys DROP COLUMN token_hash;
         ALTER TABLE org_keys DROP COLUMN kid;
         ALTER TABLE login_links DROP COLUMN confirm;
         DROP INDEX dashboard_sessions_listed;
         ALTER TABLE dashboard_sessions DROP COLUMN id;
         DROP TABLE org_limits;
         DROP TABLE partner_org_limits;
         ALTER TABLE calls DROP COLUMN trunk_id;
         DROP TABLE call_ends;
         DROP TABLE drawn;
         DROP TABLE audit_log;
         DROP TABLE usage_kept;
         DROP TABLE purged_orgs;
         DROP INDEX contacts_listed;
         DROP INDEX login_links_of_org;
         DROP INDEX orgs_purged;
         ALTER TABLE orgs DROP COLUMN deleted_at;
         ALTER TABLE orgs DROP COLUMN purge_at;
         ALTER TABLE orgs DROP COLUMN deleted_external_id;
         ALTER TABLE numbers DROP COLUMN freed_verified_at;
         ALTER TABLE orgs DROP COLUMN retain_calls_days;
         ALTER TABLE orgs DROP COLUMN retain_sessions_days;
         ALTER TABLE orgs DROP COLUMN retain_contacts_days;
         ALTER TABLE orgs DROP COLUMN retain_handoffs_days;
         ALTER TABLE orgs DROP COLUMN sessions_emptied_to;
         DROP INDEX handoffs_session;
         DROP TABLE erasure_nodes;
         DROP TABLE erasure_calls;
         DROP TABLE erasures;
         DROP TABLE tied_peers;
         ALTER TABLE agents DROP COLUMN media_timeout_s;
         DROP TABLE media_addresses;
         ALTER TABLE inbound_trunks DROP COLUMN rtp_from_any_address;
         DROP TABLE bot_tokens;
         DROP INDEX auth_failures_at;
         DROP INDEX webhooks_of_agents;
         ALTER TABLE webhooks DROP COLUMN agent_id;
         ALTER TABLE calls DROP COLUMN media;
         ALTER TABLE calls DROP COLUMN media_steps;
         DROP TABLE prompts;
         ALTER TABLE dedications DROP COLUMN no_proof",
    )
    .await;

    let store = db.open().await;
    assert_eq!(listed(&store, orgs).await, before);
    let totals: Vec<_> = before.iter().map(|page| page.total).collect();
    assert_eq!(totals, [5, 5, 5, 5, 5, 0]);

    let recorded = store
        .write(move |tx| handoffs::record(tx, orgs[0], handoff("s", &[]), NOW))
        .await;
    let newest = before[0].items[0].created_at;
    assert!(recorded.expect("recorded").created_at > newest);
}

/// Returns all handoffs of each org, those for a prohibited topic, and those for insufficient tools.
async fn listed(store: &Store, orgs: [Uuid; 2]) -> Vec<Page<Handoff>> {
    let mut pages = Vec::new();
    for reason in [
        None,
        Some(Reason::InsufficientTools),
        Some(Reason::ProhibitedTopic),
    ] {
        for org in orgs {
            let page = store
                .read_inline(move |tx| handoffs::list(tx, org, all(reason), None, 99))
                .await;
            pages.push(page.expect("a page"));
        }
    }
    pages
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
