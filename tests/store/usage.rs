//! Usage equals the calls made, in whatever order the facts come.

use std::collections::BTreeMap;
use std::time::Duration;

use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{UsageParts, UsageRow, UsageWindow, lost, usage};
use uuid::Uuid;

use crate::test_db::{self, NOW, TestDb, found, later, started};

crate::on_both!(usage_equals_what_was_made);

const RUN: Origin = Origin { node: 3, boot: 7 };
const CALLS: u64 = 2_000;
const ALL: UsageWindow = UsageWindow {
    from: Moment::from_micros(0),
    to: Moment::from_secs(4_000_000_000),
};
const BY_ALL: UsageParts = UsageParts {
    day: true,
    org: true,
    agent: true,
    trunk: true,
    direction: true,
};

/// The same numbers each time (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

type Group = (
    Option<i64>,
    Option<Uuid>,
    Option<Uuid>,
    Option<Uuid>,
    Option<&'static str>,
);

fn group(row: &UsageRow) -> Group {
    let direction = row.direction.map(Direction::as_str);
    (row.day, row.org_id, row.agent_id, row.trunk_id, direction)
}

/// Makes the facts of one call, and adds it to the expected usage.
fn made(dice: &mut Dice, number: u64, usage: &mut BTreeMap<Group, (i64, i64, i64)>) -> Vec<Fact> {
    let call = Uuid::from_u128(u128::from(number) + 1);
    let org = Uuid::from_u128(1 + u128::from(dice.below(3)));
    let agent =
        [None, Some(Uuid::from_u128(50)), Some(Uuid::from_u128(51))][dice.below(3) as usize];
    let trunk =
        [None, Some(Uuid::from_u128(60)), Some(Uuid::from_u128(61))][dice.below(3) as usize];
    let direction = [Direction::Inbound, Direction::Outbound][dice.below(2) as usize];
    let at = later(dice.below(3 * 86_400));
    let mut facts = vec![Fact::Started(
        Started {
            agent,
            trunk,
            direction,
            ..started(call, org, at)
        }
        .into(),
    )];

    let talked = dice.below(2) * (1 + dice.below(90_000));
    let answered_at = at + Duration::from_millis(700);
    if talked > 0 {
        facts.push(Fact::Answered {
            call,
            org,
            at: answered_at,
            runtime_call_id: "r".into(),
        });
    }

    facts.push(Fact::Ended(
        Ended {
            call,
            org,
            at: answered_at + Duration::from_millis(talked),
            status: if talked > 0 {
                Status::Completed
            } else {
                Status::NoAnswer
            },
            sip_code: 200,
            reason: None,
            reason_detail: None,
            hangup_by: HangupBy::Caller,
            cause: None,
        }
        .into(),
    ));
    let day = i64::try_from(at.as_micros() / 86_400_000_000).expect("a day");
    let counted = usage
        .entry((Some(day), Some(org), agent, trunk, Some(direction.as_str())))
        .or_default();
    counted.0 += 1;
    counted.1 += i64::from(talked > 0);
    counted.2 += i64::try_from(talked.div_ceil(1_000)).expect("seconds");

    facts
}

async fn usage_equals_what_was_made(db: &TestDb) {
    let mut dice = Dice(20_261_125);
    let mut made_usage = BTreeMap::new();
    let mut facts: Vec<Fact> = (0..CALLS)
        .flat_map(|number| made(&mut dice, number, &mut made_usage))
        .collect();
    for place in (1..facts.len()).rev() {
        facts.swap(place, dice.below(place as u64 + 1) as usize);
    }

    let mut store = db.open().await;
    let (mut place, mut turn) = (0, 0);
    while place < facts.len() {
        let end = facts.len().min(place + 1 + dice.below(400) as usize);
        let batch = test_db::project(&store, RUN, &facts[place..end]).await;
        batch.expect("projected");
        turn += 1;
        // After a crash, facts are repeated from before the last one written.
        place = end.saturating_sub(if turn % 4 == 0 { 50 } else { 0 });
        if end == facts.len() {
            break;
        }
        if turn % 3 == 0 {
            let lost = store.write(move |tx| {
                lost::close(
                    tx,
                    RUN.node,
                    RUN.boot + 1,
                    NOW + Duration::from_secs(999_999),
                )
            });
            assert!(lost.await.expect("closed") > 0, "calls are open");
            store = db.open().await;
        }
    }

    let mut counted = BTreeMap::new();
    for org in 1..=3 {
        let org = Uuid::from_u128(org);
        let rows = store
            .read(move |tx| usage::of_org(tx, org, ALL, BY_ALL, 1_000))
            .await;
        for row in rows.expect("usage") {
            counted.insert(
                group(&row),
                (row.calls, row.answered_calls, row.answered_seconds),
            );
        }
    }
    assert_eq!(counted, made_usage);

    let one = found(&store, move |tx| {
        usage::of_org(tx, Uuid::from_u128(1), ALL, UsageParts::default(), 9)
    })
    .await;
    let by_trunk = UsageParts {
        trunk: true,
        ..UsageParts::default()
    };
    let trunks = store
        .read(move |tx| usage::of_org(tx, Uuid::from_u128(1), ALL, by_trunk, 9))
        .await;
    let trunks: Vec<_> = trunks
        .expect("usage")
        .iter()
        .map(|row| row.trunk_id)
        .collect();
    assert_eq!(
        trunks,
        [None, Some(Uuid::from_u128(60)), Some(Uuid::from_u128(61))]
    );

    let calls: i64 = made_usage
        .iter()
        .filter(|((_, org, ..), _)| *org == Some(Uuid::from_u128(1)))
        .map(|(_, (calls, ..))| calls)
        .sum();
    assert_eq!((one.len(), one[0].calls), (1, calls));
}
