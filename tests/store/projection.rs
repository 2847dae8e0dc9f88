//! Facts of calls become rows: in any grouping, repeated, late.

use std::time::Duration;

use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_routing::{Caller, Decision, Dialled, Outcome, Step};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{Call, CallFilter, Conflict, Error, Renewal, Store, calls, lost, nodes};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, done, found, later, number, project};

crate::on_both!(
    facts_in_any_grouping_make_the_same_row,
    a_lost_call_that_ended_is_corrected,
    a_decision_is_read_back,
    what_a_peer_sends_is_storable,
    a_hold_is_shown_as_it_was_told_last,
    calls_are_listed_by_page,
    calls_are_counted_to_ten_thousand,
    nodes_take_turns,
);

const ORG: Uuid = Uuid::from_u128(1);
const RUN: Origin = Origin { node: 3, boot: 7 };

fn started(call: u128, at: Moment) -> Started {
    Started {
        call: Uuid::from_u128(call),
        org: ORG,
        session: Uuid::from_u128(100 + call),
        agent: Some(Uuid::from_u128(50)),
        trunk: None,
        direction: Direction::Inbound,
        from: "030 1".into(),
        to: "+4930000001".into(),
        from_e164: None,
        to_e164: Some(number("+4930000001")),
        caller_call_id: "a@b".into(),
        at,
        decision: None,
        headers: vec![("X-Queue".into(), "7".into())],
        metadata: None,
        invite_facts: None,
        clock_offset: 0,
    }
}

fn ended(call: u128, status: Status, at: Moment) -> Fact {
    let ended = Ended {
        call: Uuid::from_u128(call),
        org: ORG,
        at,
        status,
        sip_code: 200,
        reason: None,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };
    Fact::Ended(ended.into())
}

/// Returns a whole life of a call, in order.
fn life(call: u128) -> Vec<Fact> {
    let id = Uuid::from_u128(call);
    vec![
        Fact::Started(started(call, NOW).into()),
        Fact::Contact {
            call: id,
            org: ORG,
            contact: Uuid::from_u128(60),
        },
        Fact::Ringing {
            call: id,
            org: ORG,
            at: later(1),
        },
        Fact::Answered {
            call: id,
            org: ORG,
            at: later(2),
            runtime_call_id: "r".into(),
        },
        ended(call, Status::Completed, later(3)),
    ]
}

async fn call(store: &Store, call: u128) -> Call {
    found(store, move |tx| {
        calls::by_id(tx, ORG, Uuid::from_u128(call))
    })
    .await
}

async fn facts_in_any_grouping_make_the_same_row(db: &TestDb) {
    let store = db.open().await;
    project(&store, RUN, &life(1)).await.expect("projected");
    let whole = call(&store, 1).await;
    assert_eq!(whole.status, Status::Completed);
    assert_eq!(
        (
            whole.started_at,
            whole.ringing_at,
            whole.answered_at,
            whole.ended_at
        ),
        (NOW, Some(later(1)), Some(later(2)), Some(later(3)))
    );
    assert_eq!(
        (&*whole.from_number, whole.from_e164, whole.to_e164),
        ("030 1", None, Some(number("+4930000001")))
    );
    assert_eq!(
        (
            whole.runtime_call_id.as_deref(),
            whole.hangup_by,
            whole.sip_code
        ),
        (Some("r"), Some(HangupBy::Caller), Some(200))
    );

    let statuses = [
        Status::Queued,
        Status::Queued,
        Status::Ringing,
        Status::InProgress,
        Status::Completed,
    ];
    for (fact, status) in life(2).into_iter().zip(statuses) {
        project(&store, RUN, &[fact]).await.expect("projected");
        assert_eq!(call(&store, 2).await.status, status);
    }
    for fact in life(3).into_iter().rev() {
        project(&store, RUN, &[fact]).await.expect("projected");
    }
    let mut twice = life(4);
    twice.extend(life(4));
    project(&store, RUN, &twice).await.expect("projected");
    for fact in life(4) {
        project(&store, RUN, &[fact])
            .await
            .expect("projected again");
    }
    for number in 2..=4 {
        let same = Call {
            id: whole.id,
            session_id: whole.session_id,
            ..call(&store, number).await
        };
        assert_eq!(same, whole, "call {number}");
    }
    let many: Vec<_> = (1_000..1_150).flat_map(life).collect();
    project(&store, RUN, &many).await.expect("projected");
    let page = found(&store, move |tx| {
        calls::list(tx, ORG, &CallFilter::default(), None, 1)
    })
    .await;
    assert_eq!(page.total, 154);
}

async fn a_hold_is_shown_as_it_was_told_last(db: &TestDb) {
    let store = db.open().await;
    project(&store, RUN, &life(1)[..4])
        .await
        .expect("projected");
    assert_eq!(call(&store, 1).await.held, None);
    let turned = |held| Fact::Held {
        call: Uuid::from_u128(1),
        org: ORG,
        held,
    };
    for (facts, held) in [
        (vec![turned(true)], true),
        (vec![turned(true)], true),
        (vec![turned(false)], false),
        (vec![turned(true), turned(false), turned(true)], true),
    ] {
        project(&store, RUN, &facts).await.expect("projected");
        let shown = call(&store, 1).await;
        assert_eq!(shown.held, Some(held), "{facts:?}");
        assert_eq!(shown.status, Status::InProgress);
    }

    project(&store, RUN, &life(1))
        .await
        .expect("projected again");
    assert_eq!(call(&store, 1).await.held, Some(true));
}

async fn a_lost_call_that_ended_is_corrected(db: &TestDb) {
    let store = db.open().await;
    let earlier = Origin {
        boot: RUN.boot - 1,
        ..RUN
    };
    let elsewhere = Origin { node: 4, boot: 1 };
    for (number, origin) in [(1, earlier), (2, RUN), (3, elsewhere)] {
        project(&store, origin, &life(number)[..4])
            .await
            .expect("projected");
    }

    project(&store, earlier, &life(4)).await.expect("projected");
    assert_eq!(
        done(&store, move |tx| lost::close(
            tx,
            RUN.node,
            RUN.boot,
            later(10)
        ))
        .await,
        1
    );

    let lost = call(&store, 1).await;
    assert_eq!(
        (lost.status, lost.ended_at, lost.reason.as_deref()),
        (Status::Lost, Some(later(10)), Some("node_lost"))
    );

    for number in [2, 3] {
        assert_eq!(call(&store, number).await.status, Status::InProgress);
    }

    project(&store, earlier, &life(1)[..4])
        .await
        .expect("projected again");
    assert_eq!(
        call(&store, 1).await,
        lost,
        "what doesn't end a call doesn't revive it"
    );
    project(&store, earlier, &life(1)[4..])
        .await
        .expect("a late end");
    let corrected = call(&store, 1).await;
    assert_eq!(
        (corrected.status, corrected.ended_at, corrected.reason),
        (Status::Completed, Some(later(3)), None)
    );

    project(&store, earlier, &[ended(1, Status::Failed, later(9))])
        .await
        .expect("a second end");
    assert_eq!(
        call(&store, 1).await.status,
        Status::Completed,
        "the first end stays"
    );
}

async fn a_decision_is_read_back(db: &TestDb) {
    let store = db.open().await;
    let decision = Decision {
        outcome: Outcome::Agent {
            id: Uuid::from_u128(50),
            step: Step::AssignedNumber,
        },
        dialled: Dialled {
            raw: "+4930000001".into(),
            e164: Some(number("+4930000001")),
        },
        caller: Caller {
            raw: "anonymous".into(),
            e164: None,
        },
        trail: vec![],
        near_misses: vec![],
    };
    let with = Started {
        decision: Some(Box::new(decision.clone())),
        ..started(1, NOW)
    };
    let facts = [
        Fact::Started(with.into()),
        Fact::Started(started(2, NOW).into()),
    ];
    project(&store, RUN, &facts).await.expect("projected");

    let read = async |org, call| {
        store
            .read_inline(move |tx| calls::decision(tx, org, Uuid::from_u128(call)))
            .await
    };
    assert_eq!(read(ORG, 1).await.expect("a call"), Some(decision));
    assert_eq!(read(ORG, 2).await.expect("a call"), None);
    assert!(read(Uuid::from_u128(2), 1).await.is_err(), "another org's");
}

/// A fact that the database refused would be retried for ever.
async fn what_a_peer_sends_is_storable(db: &TestDb) {
    let store = db.open().await;
    let odd = Started {
        from: "a\0b'\u{1f4de}\r\n".into(),
        caller_call_id: "\0".into(),
        ..started(1, NOW)
    };
    project(&store, RUN, &[Fact::Started(odd.into())])
        .await
        .expect("projected");
    let call = call(&store, 1).await;
    assert_eq!(
        (&*call.from_number, &*call.caller_call_id),
        ("a\u{fffd}b'\u{1f4de}\r\n", "\u{fffd}")
    );
}

async fn calls_are_listed_by_page(db: &TestDb) {
    let store = db.open().await;
    let mut facts: Vec<_> = [(1, 0), (2, 5), (3, 5), (4, 9)]
        .map(|(call, at)| Fact::Started(started(call, later(at)).into()))
        .into();
    facts.push(ended(4, Status::Busy, later(20)));
    let foreign = Started {
        org: Uuid::from_u128(2),
        ..started(5, NOW)
    };
    facts.push(Fact::Started(foreign.into()));
    let outbound = Started {
        direction: Direction::Outbound,
        trunk: Some(Uuid::from_u128(60)),
        agent: None,
        to: "x".into(),
        to_e164: None,
        ..started(6, later(1))
    };
    facts.push(Fact::Started(outbound.into()));
    facts.push(Fact::Contact {
        call: Uuid::from_u128(7),
        org: ORG,
        contact: Uuid::from_u128(60),
    });
    project(&store, RUN, &facts).await.expect("projected");

    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = found(&store, move |tx| {
            calls::list(tx, ORG, &CallFilter::default(), after, 2)
        })
        .await;
        assert_eq!(page.total, 5);
        seen.extend(page.items.iter().map(|call| call.id.as_u128()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, [4, 3, 2, 6, 1]);

    let all = CallFilter::default;
    let cases = [
        (
            "agent",
            CallFilter {
                agent: Some(Uuid::from_u128(50)),
                ..all()
            },
            &[4, 3, 2, 1][..],
        ),
        (
            "no such agent",
            CallFilter {
                agent: Some(Uuid::nil()),
                ..all()
            },
            &[],
        ),
        (
            "trunk",
            CallFilter {
                trunk: Some(Uuid::from_u128(60)),
                ..all()
            },
            &[6],
        ),
        (
            "direction",
            CallFilter {
                direction: Some(Direction::Outbound),
                ..all()
            },
            &[6],
        ),
        (
            "status",
            CallFilter {
                status: Some(Status::Busy),
                ..all()
            },
            &[4],
        ),
        (
            "number as sent",
            CallFilter {
                number: Some("030 1".to_owned()),
                ..all()
            },
            &[4, 3, 2, 6, 1],
        ),
        (
            "number",
            CallFilter {
                number: Some("+4930000001".to_owned()),
                ..all()
            },
            &[4, 3, 2, 1],
        ),
        (
            "window, inclusive",
            CallFilter {
                from: Some(later(1)),
                to: Some(later(5)),
                ..all()
            },
            &[3, 2, 6],
        ),
        (
            "all together",
            CallFilter {
                status: Some(Status::Queued),
                from: Some(later(5)),
                ..all()
            },
            &[3, 2],
        ),
    ];
    for (name, filter, expected) in cases {
        let page = found(&store, move |tx| calls::list(tx, ORG, &filter, None, 100)).await;
        let ids: Vec<_> = page.items.iter().map(|call| call.id.as_u128()).collect();
        assert_eq!(
            (ids.as_slice(), page.total),
            (expected, expected.len() as u64),
            "{name}"
        );
    }
}

async fn calls_are_counted_to_ten_thousand(db: &TestDb) {
    const COPIES: &str = "INSERT INTO calls (id, org_id, node, boot, session_id, direction, status, from_number, to_number, caller_call_id, list, block, started_at)
        WITH RECURSIVE turns (turn) AS (SELECT 1 UNION ALL SELECT turn + 1 FROM turns WHERE turn < 9999)
        SELECT gen_random_uuid(), org_id, node, boot, session_id, direction, status, from_number, to_number, caller_call_id, list, block, started_at - turn
        FROM calls CROSS JOIN turns";
    const ON_SQLITE: &str = "INSERT INTO calls (id, org_id, node, boot, session_id, direction, status, from_number, to_number, caller_call_id, list, block, started_at)
        WITH RECURSIVE turns (turn) AS (SELECT 1 UNION ALL SELECT turn + 1 FROM turns WHERE turn < 9999)
        SELECT randomblob(16), org_id, node, boot, session_id, direction, status, from_number, to_number, caller_call_id, list, block, started_at - turn
        FROM calls CROSS JOIN turns";
    let store = db.open().await;
    let first = Fact::Started(started(1, NOW).into());
    project(&store, RUN, &[first]).await.expect("projected");
    let copies = if db.is_postgres() { COPIES } else { ON_SQLITE };
    db.execute(copies).await;
    let inbound = CallFilter {
        direction: Some(Direction::Inbound),
        ..CallFilter::default()
    };
    for is_bounded in [false, true] {
        for filter in [CallFilter::default(), inbound.clone()] {
            let page = store
                .calls(ORG, filter.clone(), None, 3)
                .await
                .expect("calls");
            let total = (page.total, page.total_is_bounded, page.items.len());
            assert_eq!(total, (10_000, is_bounded, 3), "{filter:?}");
            assert_eq!(page.items[0].id.as_u128(), 1);
        }

        // The oldest of all, and one more than is counted.
        let further = Fact::Started(started(2, NOW - Duration::from_secs(3_600)).into());
        project(&store, RUN, &[further]).await.expect("projected");
    }
}

/// Leases use the database's clock, which no test can set: a lease of no length is over as soon as that clock has moved on.
async fn nodes_take_turns(db: &TestDb) {
    const LEASE: Duration = Duration::from_secs(3_600);
    const OVER: Duration = Duration::ZERO;
    let store = db.open().await;
    let begin = async |node, host: &'static str| {
        store
            .write(move |tx| nodes::begin(tx, node, host, LEASE))
            .await
    };
    assert_eq!(
        begin(0, "a").await.expect("a run"),
        Origin { node: 0, boot: 1 }
    );
    assert_eq!(
        begin(1, "b").await.expect("a run"),
        Origin { node: 1, boot: 1 }
    );
    let again = begin(0, "a").await.expect("the same host may at once");
    assert_eq!(again, Origin { node: 0, boot: 2 });
    let serving = async || -> Vec<u8> {
        let serving = found(&store, nodes::serving).await;
        serving.iter().map(|one| one.run.node).collect()
    };
    let sees = async |node: u8| {
        let serving = found(&store, nodes::serving).await;
        let mut of_node = serving.into_iter().filter(|one| one.run.node == node);
        of_node.next().expect("it serves").sees
    };
    assert_eq!(sees(0).await, [], "nobody before it has looked");
    let others = [Origin { node: 0, boot: 2 }, Origin { node: 1, boot: 1 }];
    done(&store, move |tx| nodes::see(tx, again, &others, &[])).await;
    assert_eq!(sees(0).await, others);
    let before = Origin { node: 0, boot: 1 };
    done(&store, move |tx| nodes::see(tx, before, &[], &[])).await;
    assert_eq!(sees(0).await, others);
    assert_eq!(serving().await, [0, 1]);
    done(&store, move |tx| nodes::drain(tx, again)).await;
    assert_eq!(serving().await, [1], "one that drains does nothing for all");
    let held = begin(1, "a").await;
    assert!(
        matches!(held, Err(Error::Conflict(Conflict::NodeServed { node: 1, host })) if host == "b")
    );
    let second = Origin { node: 1, boot: 1 };
    let renew = async |run, lease| done(&store, move |tx| nodes::renew(tx, run, lease)).await;
    assert_eq!(renew(second, LEASE).await, Renewal::Held);

    assert_eq!(renew(again, OVER).await, Renewal::Held);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(serving().await, [1]);
    assert_eq!(found(&store, nodes::expired).await, [], "nothing to close");
    for (run, number) in [(again, 1), (second, 2)] {
        let facts = &life(number)[..4];
        project(&store, run, facts).await.expect("projected");
    }
    assert_eq!(found(&store, nodes::expired).await, [again]);
    assert_eq!(renew(again, LEASE).await, Renewal::Lapsed);
    assert_eq!(found(&store, nodes::expired).await, []);
    assert_eq!(renew(again, OVER).await, Renewal::Held);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let taken = begin(0, "c").await.expect("the lease has expired");
    assert_eq!(taken, Origin { node: 0, boot: 3 });
    assert_eq!(renew(again, LEASE).await, Renewal::Replaced);
    assert_eq!(serving().await, [0, 1], "another run doesn't drain");

    assert_eq!(renew(taken, OVER).await, Renewal::Held);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(found(&store, nodes::expired).await, [taken]);
    let lost = store
        .write(move |tx| lost::close(tx, taken.node, taken.boot + 1, later(13)))
        .await;
    assert_eq!(lost.expect("closed"), 1);
    assert_eq!(found(&store, nodes::expired).await, []);
    let given_up = async |grace| found(&store, move |tx| nodes::given_up(tx, grace)).await;
    assert_eq!(given_up(LEASE).await, [], "it may only be held up");
    assert_eq!(given_up(OVER).await, [taken]);
    let told = store
        .write(move |tx| lost::record_ends(tx, taken.node, taken.boot + 1))
        .await;
    assert_eq!(told.expect("told"), 1);
    assert_eq!(given_up(OVER).await, []);
}
