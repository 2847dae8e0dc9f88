//! Codes that are spoken to numbers: their frequency, their lifetime, and their sum over all nodes.

use std::time::Duration;

use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Acting, CodeLimit, Conflict, Error, MadeCode, Number, Purge, Store, TriedCode, deleted_orgs,
    events, number_codes, numbers, purge,
};
use uuid::Uuid;

use crate::audit::{acting, all, operator};
use crate::test_db::{NOW, TestDb, done, found, later, of_partner, org, partner};

crate::on_both!(
    a_code_verifies_its_number,
    a_code_ends_by_time_by_tries_and_by_another,
    a_number_is_called_three_times_a_day_whoever_asks,
    a_partner_has_half_of_the_deployments_calls,
    an_org_has_ten_calls_to_five_numbers,
    calls_of_a_deleted_org_count,
    nodes_count_together
);

const DAY: u64 = 24 * 3600;
/// Calls of the deployment in a day.
const PER_DAY: u32 = 200;

async fn number(store: &Store, org: Uuid, number: &str) -> Number {
    let number = E164::parse(number).expect("a number");
    done(store, move |tx| {
        numbers::create(tx, org, number, false, NOW)
    })
    .await
}

async fn make(store: &Store, number: &Number, code: &str, now: Moment) -> MadeCode {
    let (org, number, code) = (number.org_id, number.id, code.to_owned());
    done(store, move |tx| {
        number_codes::make(tx, org, number, code.as_bytes(), PER_DAY, now)
    })
    .await
}

async fn try_code(store: &Store, number: &Number, code: &str, now: Moment) -> TriedCode {
    let (org, number, code) = (number.org_id, number.id, code.to_owned());
    done(store, move |tx| {
        number_codes::try_code(tx, org, number, code.as_bytes(), now)
    })
    .await
}

async fn a_code_verifies_its_number(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let mine = number(&store, ours, "+442079460123").await;
    let other = number(&store, theirs, "+442079460123").await;
    assert_eq!(
        try_code(&store, &mine, "123456", NOW).await,
        TriedCode::None
    );

    let made = make(&store, &mine, "123456", NOW).await;
    assert!(
        matches!(made, MadeCode::Code { calls_left: 2, expires_at, .. } if expires_at == later(600)),
        "{made:?}"
    );
    assert_eq!(
        try_code(&store, &other, "123456", NOW).await,
        TriedCode::None
    );
    assert_eq!(
        try_code(&store, &mine, "123457", NOW).await,
        TriedCode::Wrong { left: 4 }
    );

    let TriedCode::Right(verified) = try_code(&store, &mine, "123456", later(599)).await else {
        panic!("it is right")
    };
    assert_eq!(verified.verified_at, Some(later(599)));
    let TriedCode::Right(again) = try_code(&store, &mine, "000000", later(700)).await else {
        panic!("it is verified")
    };
    assert_eq!(again, verified);

    let refused = store
        .write(move |tx| number_codes::make(tx, theirs, other.id, b"123456", PER_DAY, later(700)))
        .await;
    assert!(
        matches!(
            refused,
            Err(Error::Conflict(Conflict::NumberVerifiedElsewhere(_)))
        ),
        "{refused:?}"
    );

    let events = found(&store, move |tx| events::since(tx, ours, 0, 9)).await;
    let verified = events
        .iter()
        .filter(|event| event.kind == "number.verified");
    assert_eq!(verified.count(), 1);
}

async fn a_code_ends_by_time_by_tries_and_by_another(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let mine = number(&store, org, "+442079460123").await;
    make(&store, &mine, "111111", NOW).await;

    assert_eq!(
        try_code(&store, &mine, "111111", later(600)).await,
        TriedCode::None
    );

    make(&store, &mine, "222222", later(1_000)).await;
    make(&store, &mine, "333333", later(1_001)).await;
    for left in (0..5).rev() {
        let tried = try_code(&store, &mine, "222222", later(1_002)).await;
        assert_eq!(tried, TriedCode::Wrong { left });
    }

    assert_eq!(
        try_code(&store, &mine, "333333", later(1_003)).await,
        TriedCode::None
    );
}

async fn a_number_is_called_three_times_a_day_whoever_asks(db: &TestDb) {
    let store = db.open().await;
    let (one, two) = (org(&store, "One").await.id, org(&store, "Two").await.id);
    let ours = number(&store, one, "+442079460123").await;
    let theirs = number(&store, two, "+442079460123").await;

    for (second, number) in [(0, &ours), (1, &theirs), (2, &ours)] {
        let made = make(&store, number, "123456", later(second)).await;
        assert!(matches!(made, MadeCode::Code { .. }), "{made:?}");
    }

    let wait = Duration::from_secs(DAY - 10);
    for number in [&ours, &theirs] {
        let made = make(&store, number, "654321", later(10)).await;
        assert_eq!(made, MadeCode::TooOften { wait });
    }
    let right = try_code(&store, &ours, "123456", later(10)).await;
    assert!(
        matches!(right, TriedCode::Right(_)),
        "the code before stays"
    );

    // A number that was deleted and added again keeps its count of calls.
    done(&store, move |tx| {
        numbers::delete(tx, one, ours.id, later(11))
    })
    .await;
    let anew = number(&store, one, "+442079460123").await;
    let made = make(&store, &anew, "123456", later(12)).await;
    assert!(matches!(made, MadeCode::TooOften { .. }), "{made:?}");

    let made = make(&store, &anew, "123456", later(DAY)).await;
    let MadeCode::Code {
        id, calls_left: 0, ..
    } = made
    else {
        panic!("{made:?}")
    };
    done(&store, move |tx| number_codes::take_back(tx, one, id)).await;
    done(&store, move |tx| number_codes::prune(tx, later(DAY))).await;
    let made = make(&store, &anew, "123456", later(DAY)).await;
    assert!(
        matches!(made, MadeCode::Code { calls_left: 0, .. }),
        "{made:?}"
    );

    done(&store, move |tx| number_codes::prune(tx, later(3 * DAY))).await;
    let made = make(&store, &anew, "123456", later(3 * DAY)).await;
    assert!(
        matches!(made, MadeCode::Code { calls_left: 2, .. }),
        "{made:?}"
    );
}

async fn a_partner_has_half_of_the_deployments_calls(db: &TestDb) {
    const CALLS: u32 = 4;
    let store = db.open().await;
    let partner = partner(&store).await;
    let first = of_partner(&store, partner, "first").await.id;
    let second = of_partner(&store, partner, "second").await.id;
    let others = [
        org(&store, "Alone").await.id,
        org(&store, "Another").await.id,
    ];
    let numbers = [
        number(&store, first, "+442079460001").await,
        number(&store, second, "+442079460002").await,
        number(&store, others[0], "+442079460003").await,
        number(&store, others[1], "+442079460004").await,
    ];

    let ask = |turn: usize, second: u64| {
        let (org, number) = (numbers[turn].org_id, numbers[turn].id);
        done(&store, move |tx| {
            number_codes::make(tx, org, number, b"123456", CALLS, later(second))
        })
    };
    let day_after = |second: u64| MadeCode::UsedUp {
        wait: Duration::from_secs(DAY - 10 + second),
    };

    ask(2, 0).await;
    for (turn, second) in [(0, 1), (1, 2)] {
        let made = ask(turn, second).await;
        assert!(matches!(made, MadeCode::Code { .. }), "{made:?}");
    }
    assert_eq!(ask(0, 10).await, day_after(1), "the partner's half");
    let made = ask(3, 10).await;
    assert!(matches!(made, MadeCode::Code { .. }), "{made:?}");
    assert_eq!(ask(2, 10).await, day_after(0), "all of them");

    let refused = async {
        Acting::by(operator(), None, None);
        ask(2, 10).await
    };
    let refused = acting(later(10)).scope(refused).await;
    assert_eq!(refused, day_after(0));
    assert_eq!(all(&store).await, [], "a refusal changes nothing");

    let made = ask(2, DAY).await;
    assert!(matches!(made, MadeCode::Code { .. }), "{made:?}");
}

async fn an_org_has_ten_calls_to_five_numbers(db: &TestDb) {
    let store = db.open().await;
    let mine = org(&store, "Org").await.id;
    let mut numbers = Vec::new();
    for at in 0..6 {
        numbers.push(number(&store, mine, &format!("+44207946000{at}")).await);
    }
    let left = |second: u64, limit| MadeCode::OrgUsedUp {
        limit,
        wait: Duration::from_secs(DAY - second),
    };

    for (second, number) in (0..).zip(&numbers[..5]) {
        let made = make(&store, number, "123456", later(second)).await;
        assert!(matches!(made, MadeCode::Code { .. }), "{made:?}");
    }
    // The first number was called again, so the second one's call is the first to leave.
    make(&store, &numbers[0], "123456", later(5)).await;
    let made = make(&store, &numbers[5], "123456", later(11)).await;
    assert_eq!(made, left(10, CodeLimit::Numbers(5)));

    for (second, number) in (12..).zip(&numbers[1..5]) {
        make(&store, number, "123456", later(second)).await;
    }
    let made = make(&store, &numbers[1], "123456", later(20)).await;
    assert_eq!(made, left(20, CodeLimit::Calls(10)));

    // Another org isn't touched, and a day later there is room.
    let theirs = org(&store, "Other").await.id;
    let theirs = number(&store, theirs, "+442079460009").await;
    for (number, at) in [(&theirs, later(20)), (&numbers[5], later(DAY + 16))] {
        let made = make(&store, number, "123456", at).await;
        assert!(matches!(made, MadeCode::Code { .. }), "{made:?}");
    }
}

/// Deleting and purging an org frees neither its numbers' calls nor its partner's.
async fn calls_of_a_deleted_org_count(db: &TestDb) {
    const CALLS: u32 = 4;
    let store = db.open().await;
    let partner = partner(&store).await;
    let first = of_partner(&store, partner, "first").await.id;
    let called = number(&store, first, "+442079460001").await;
    let ask = |number: &Number, second: u64| {
        let (org, number) = (number.org_id, number.id);
        done(&store, move |tx| {
            number_codes::make(tx, org, number, b"123456", CALLS, later(second))
        })
    };

    for second in [0, 1] {
        let made = ask(&called, second).await;
        assert!(matches!(made, MadeCode::Code { .. }), "{made:?}");
    }

    done(&store, move |tx| {
        deleted_orgs::delete(tx, first, Purge::Now, later(2))
    })
    .await;
    let tried = store
        .write(move |tx| number_codes::try_code(tx, first, called.id, b"123456", later(3)))
        .await;
    assert!(tried.is_err(), "the org is absent: {tried:?}");
    while done(&store, move |tx| purge::delete_some(tx, first)).await > 0 {}

    let second = of_partner(&store, partner, "second").await.id;
    let same = number(&store, second, "+442079460001").await;
    let made = ask(&same, 10).await;
    let wait = Duration::from_secs(DAY - 10);
    assert_eq!(made, MadeCode::UsedUp { wait }, "the partner's half");

    let other = org(&store, "Other").await.id;
    let same = number(&store, other, "+442079460001").await;
    let made = ask(&same, 11).await;
    let MadeCode::Code { calls_left: 0, .. } = made else {
        panic!("the third call to the number: {made:?}");
    };
}

async fn nodes_count_together(db: &TestDb) {
    let nodes = db.open_nodes(2).await;
    let (one, two) = (
        org(&nodes[0], "One").await.id,
        org(&nodes[0], "Two").await.id,
    );
    let numbers = [
        number(&nodes[0], one, "+442079460123").await,
        number(&nodes[0], two, "+442079460123").await,
    ];
    let asked = (0..8).map(|turn| make(&nodes[turn % 2], &numbers[turn / 2 % 2], "123456", NOW));
    let made = futures_util::future::join_all(asked).await;
    let called = made
        .iter()
        .filter(|made| matches!(made, MadeCode::Code { .. }));
    assert_eq!(called.count(), 3, "{made:?}");

    let next = later(2 * DAY);
    make(&nodes[0], &numbers[0], "123456", next).await;
    let tried = (0..12).map(|turn| try_code(&nodes[turn % 2], &numbers[0], "000000", next));
    let tried = futures_util::future::join_all(tried).await;
    let wrong = tried
        .iter()
        .filter(|tried| matches!(tried, TriedCode::Wrong { .. }));
    assert_eq!(wrong.count(), 5, "{tried:?}");
}
