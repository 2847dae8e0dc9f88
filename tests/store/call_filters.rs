//! Filters of calls find what a comparison of all calls finds: each filter, each pair and triple of them, page by page, with exact totals.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_routing::E164;
use trunkline_store::{Call, CallFilter, Position, Store, calls, lost};
use uuid::Uuid;

use crate::events::RUN;
use crate::test_db::{TestDb, later, project, started};

crate::on_both!(
    filters_find_what_a_comparison_finds,
    a_number_of_many_calls_is_found_by_pages,
);

const AGENTS: [Option<Uuid>; 4] = [
    None,
    Some(Uuid::from_u128(11)),
    Some(Uuid::from_u128(12)),
    Some(Uuid::from_u128(13)),
];
const TRUNKS: [Option<Uuid>; 3] = [None, Some(Uuid::from_u128(21)), Some(Uuid::from_u128(22))];
/// Numbers as sent, each with its E.164.
const NUMBERS: [(&str, Option<&str>); 5] = [
    ("+442071838750", Some("+442071838750")),
    ("02071838750", Some("+442071838750")),
    ("+15551230000", Some("+15551230000")),
    ("100", None),
    ("anonymous", None),
];

/// Returns a number below `below`, which a test can repeat.
fn chosen(seed: &mut u64, below: usize) -> usize {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % below
}

fn e164(number: Option<&str>) -> Option<E164> {
    number.map(|number| E164::parse(number).expect("a number"))
}

/// Returns the facts of a call with arbitrary properties; that of its beginning comes first.
fn call(seed: &mut u64, org: Uuid, id: u128) -> Vec<Fact> {
    let id = Uuid::from_u128(id);
    // Several calls begin at the same time, in no order of their ids.
    let at = later(chosen(seed, 40) as u64);
    let [from, to] = [0; 2].map(|_| NUMBERS[chosen(seed, NUMBERS.len())]);
    let begun = Started {
        agent: AGENTS[chosen(seed, AGENTS.len())],
        trunk: TRUNKS[chosen(seed, TRUNKS.len())],
        direction: [Direction::Inbound, Direction::Outbound][chosen(seed, 2)],
        from: from.0.into(),
        to: to.0.into(),
        from_e164: e164(from.1),
        to_e164: e164(to.1),
        ..started(id, org, at)
    };
    let ringing = Fact::Ringing {
        call: id,
        org,
        at: at + Duration::from_secs(1),
    };
    let answered = Fact::Answered {
        call: id,
        org,
        at: at + Duration::from_secs(2),
        runtime_call_id: "r".into(),
    };
    let ended = Fact::Ended(
        Ended {
            call: id,
            org,
            at: at + Duration::from_secs(3),
            status: Status::FINAL[chosen(seed, 7)],
            sip_code: 200,
            reason: None,
            reason_detail: None,
            hangup_by: HangupBy::Caller,
            cause: None,
        }
        .into(),
    );

    let mut facts = vec![Fact::Started(begun.into())];
    match chosen(seed, 8) {
        0 => {}
        1 => facts.push(ringing),
        2 => facts.extend([ringing, answered]),
        3 => facts.push(ended),
        _ => facts.extend([ringing, answered, ended]),
    }
    facts
}

/// Returns the facts of several calls. One in a hundred has an id that begins a block.
fn calls_of(seed: &mut u64, org: Uuid, numbers: Range<u128>) -> Vec<Vec<Fact>> {
    let ids = numbers.map(|number| number << 12 | u128::from(number % 100 != 0));
    ids.map(|id| call(seed, org, id)).collect()
}

/// Projects facts in pieces, some of them twice, and some calls' ends before their beginnings.
async fn project_in_pieces(store: &Store, seed: &mut u64, calls: Vec<Vec<Fact>>) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for mut facts in calls {
        match chosen(seed, 4) {
            0 => first.extend(facts),
            1 => {
                let rest = facts.split_off(1);
                first.extend(rest);
                second.extend(facts);
            }
            2 => {
                second.extend(facts.split_off(1));
                first.extend(facts);
            }
            _ => {
                second.extend(facts.clone());
                first.extend(facts);
            }
        }
    }
    for some in first.chunks(100).chain(second.chunks(100)) {
        project(store, RUN, some).await.expect("projected");
    }
}

/// Reads all pages of a filter; checks that each page has the same total.
async fn found(store: &Store, org: Uuid, filter: &CallFilter, limit: u32) -> (Vec<Call>, u64) {
    let mut calls = Vec::new();
    let (mut after, mut total) = (None, None);
    loop {
        let asked = filter.clone();
        let page = store.read(move |tx| calls::list(tx, org, &asked, after, limit));
        let page = page.await.expect("a page");
        assert_eq!(*total.get_or_insert(page.total), page.total, "{filter:?}");
        assert!(!page.total_is_bounded);
        calls.extend(page.items);
        after = page.next;
        if after.is_none() {
            return (calls, page.total);
        }
    }
}

fn matches(filter: &CallFilter, call: &Call) -> bool {
    let number = |number: &str| {
        let parsed = E164::parse(number).ok();
        [&*call.from_number, &*call.to_number].contains(&number)
            || parsed.is_some() && [call.from_e164, call.to_e164].contains(&parsed)
    };
    filter
        .agent
        .is_none_or(|agent| call.agent_id == Some(agent))
        && filter
            .trunk
            .is_none_or(|trunk| call.trunk_id == Some(trunk))
        && filter
            .direction
            .is_none_or(|direction| call.direction == direction)
        && filter.status.is_none_or(|status| call.status == status)
        && filter.number.as_deref().is_none_or(number)
        && filter.from.is_none_or(|from| call.started_at >= from)
        && filter.to.is_none_or(|to| call.started_at <= to)
}

/// Returns an arbitrary filter with at most three restrictions.
fn filter(seed: &mut u64) -> CallFilter {
    let mut filter = CallFilter::default();
    for _ in 0..=chosen(seed, 3) {
        match chosen(seed, 7) {
            0 => filter.agent = AGENTS[1 + chosen(seed, 3)],
            1 => filter.trunk = TRUNKS[1 + chosen(seed, 2)],
            2 => {
                filter.direction = Some([Direction::Inbound, Direction::Outbound][chosen(seed, 2)])
            }
            3 => {
                let up = [Status::Queued, Status::Ringing, Status::InProgress];
                let all: Vec<_> = up.into_iter().chain(Status::FINAL).collect();
                filter.status = Some(all[chosen(seed, all.len())]);
            }
            4 => filter.number = Some(NUMBERS[chosen(seed, NUMBERS.len())].0.to_owned()),
            5 => filter.from = Some(later(chosen(seed, 40) as u64)),
            _ => filter.to = Some(later(chosen(seed, 40) as u64)),
        }
    }
    filter
}

async fn agree(store: &Store, org: Uuid, seed: &mut u64, filters: usize, limits: &[u32]) {
    let (all, _) = found(store, org, &CallFilter::default(), 100).await;
    for _ in 0..filters {
        let filter = filter(seed);
        let limit = limits[chosen(seed, limits.len())];
        let (calls, total) = found(store, org, &filter, limit).await;
        let expected: Vec<_> = all
            .iter()
            .filter(|call| matches(&filter, call))
            .cloned()
            .collect();
        let ids = |calls: &[Call]| {
            calls
                .iter()
                .map(|call| call.id.as_u128())
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&calls), ids(&expected), "{filter:?}, {limit} a page");
        assert_eq!(total, expected.len() as u64, "{filter:?}");
    }
}

async fn filters_find_what_a_comparison_finds(db: &TestDb) {
    let store = db.open().await;
    let [org, other] = [1, 2].map(Uuid::from_u128);
    let mut seed = 7;

    let mut facts = calls_of(&mut seed, org, 1..301);
    facts.extend(calls_of(&mut seed, other, 301..331));
    project_in_pieces(&store, &mut seed, facts).await;

    let (all, total) = found(&store, org, &CallFilter::default(), 100).await;
    assert_eq!((all.len(), total), (300, 300));
    assert!(all.is_sorted_by_key(|call| Reverse((call.started_at, call.id))));
    agree(&store, org, &mut seed, 150, &[1, 7, 100]).await;

    // Calls that are closed as lost, and reopened, are found by what they are then.
    let closed = store.write(|tx| lost::close(tx, RUN.node, RUN.boot + 1, later(60)));
    assert!(closed.await.expect("closed") > 10);
    agree(&store, org, &mut seed, 60, &[7, 100]).await;
    store
        .write(|tx| lost::reopen(tx, RUN))
        .await
        .expect("reopened");
    agree(&store, org, &mut seed, 60, &[7, 100]).await;
}

async fn a_number_of_many_calls_is_found_by_pages(db: &TestDb) {
    let store = db.open().await;
    let org = Uuid::from_u128(1);
    let mut seed = 11;
    let facts = calls_of(&mut seed, org, 1..4_001);
    project_in_pieces(&store, &mut seed, facts).await;

    // More than a thousand calls have each of the numbers.
    agree(&store, org, &mut seed, 25, &[100]).await;
    let after = Position {
        at: later(3),
        id: Uuid::from_u128(2_000 << 12),
    };
    for number in NUMBERS {
        let filter = CallFilter {
            number: Some(number.0.to_owned()),
            ..CallFilter::default()
        };
        let (all, _) = found(&store, org, &filter, 100).await;
        let page = store.read(move |tx| calls::list(tx, org, &filter, Some(after), 20));
        let mut expected = all;
        expected.retain(|call| (call.started_at, call.id) < (after.at, after.id));
        expected.truncate(20);
        assert!(page.await.expect("a page").items == expected, "{number:?}");
    }
}
