//! The explanation of a call is stored with it, and only the org's own calls are routed again.

use std::time::Duration;

use trunkline_model::attempt::{Attempt, AttemptLeg, AttemptOutcome};
use trunkline_model::invite_facts::PeerTraits;
use trunkline_model::invite_facts::{InviteFacts, Proof};
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_routing::{Caller, Decision, Dialled, Facts, NearMiss, Outcome};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{
    Error, NewAuthFailure, Store, Wrong, attempts, auth_failures, calls, explained,
};
use uuid::Uuid;

use crate::test_db::{self, NOW, TestDb, done, found, later, org};

crate::on_both!(
    what_an_invite_said_is_read_back,
    attempts_are_written_once_and_read_in_their_order,
    a_record_has_the_details_of_its_reason,
    recorded_calls_are_of_one_org_and_period,
    failed_log_ins_are_found_by_their_call,
);

const RUN: Origin = Origin { node: 3, boot: 7 };

pub(crate) fn asked(dialled: &str) -> InviteFacts {
    InviteFacts {
        facts: Facts {
            request_user: Some(dialled.to_owned()),
            asserted: ["100".to_owned()].into(),
            ..Facts::default()
        },
        proof: Proof::AllowedAddress,
        source: "[2001:db8::1]:5060".parse().expect("an address"),
        transport: "tcp".into(),
        host: "sip.example.com".into(),
        user_agent: Some("PBX \u{fffd}".into()),
        traits: PeerTraits {
            timer: true,
            codecs: ["PCMA".into()].into(),
            clock_skew_s: Some(-7),
            ..PeerTraits::default()
        },
    }
}

fn decision() -> Decision {
    Decision {
        outcome: Outcome::NoAgent,
        dialled: Dialled::default(),
        caller: Caller::default(),
        trail: Vec::new(),
        near_misses: vec![NearMiss::AgentId {
            header: "x".to_owned(),
        }],
    }
}

fn started(org: Uuid, call: u128, direction: Direction, at: Moment) -> Fact {
    Fact::Started(std::sync::Arc::new(Started {
        call: Uuid::from_u128(call),
        org,
        session: Uuid::from_u128(100 + call),
        agent: None,
        trunk: None,
        direction,
        from: "100".into(),
        to: "030".into(),
        from_e164: None,
        to_e164: None,
        caller_call_id: format!("{call}@pbx").into(),
        at,
        decision: Some(Box::new(decision())),
        headers: Vec::new(),
        metadata: None,
        invite_facts: Some(Box::new(asked("030"))),
        clock_offset: 0,
    }))
}

fn refused(org: Uuid, call: u128, reason: &str) -> Fact {
    Fact::Ended(Box::new(Ended {
        call: Uuid::from_u128(call),
        org,
        at: later(900),
        status: Status::Refused,
        sip_code: 480,
        reason: Some(reason.into()),
        reason_detail: None,
        hangup_by: HangupBy::Platform,
        cause: None,
    }))
}

async fn project(store: &Store, facts: &[Fact]) {
    let projected = test_db::project(store, RUN, facts).await;
    projected.expect("projected");
}

async fn what_an_invite_said_is_read_back(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    project(&store, &[started(ours, 1, Direction::Inbound, NOW)]).await;

    // Facts may be repeated, and later ones may lack the explanation.
    let again = [
        started(ours, 1, Direction::Inbound, NOW),
        refused(ours, 1, "no_agent"),
    ];
    project(&store, &again).await;

    let explained = found(&store, move |tx| {
        explained::of_call(tx, ours, Uuid::from_u128(1))
    })
    .await;

    assert_eq!(explained.asked, Some(asked("030")));
    assert_eq!(explained.decision, Some(decision()));

    let foreign = store
        .read_inline(move |tx| explained::of_call(tx, theirs, Uuid::from_u128(1)))
        .await;
    assert!(
        matches!(foreign, Err(Error::Wrong(Wrong::Absent(_)))),
        "{foreign:?}"
    );
}

async fn attempts_are_written_once_and_read_in_their_order(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let call = Uuid::from_u128(1);
    let first = Attempt {
        call,
        org: ours,
        number: 1,
        leg: AttemptLeg::Runtime,
        target: "sip:x@bot.test".into(),
        address: "192.0.2.1:5061".parse().ok(),
        transport: Some("tls".into()),
        began_at: NOW,
        ended_at: later(1),
        outcome: AttemptOutcome::TlsFailed,
        sip_code: None,
        detail: Some("its certificate has expired".into()),
    };

    let second = Attempt {
        number: 2,
        leg: AttemptLeg::Destination,
        address: None,
        transport: None,
        outcome: AttemptOutcome::SipStatus,
        sip_code: Some(486),
        detail: None,
        ..first.clone()
    };

    // Facts may be repeated, in any grouping.
    let fact = |attempt: &Attempt| Fact::Attempt(Box::new(attempt.clone()));
    project(&store, &[fact(&second)]).await;

    let again = [
        started(ours, 1, Direction::Inbound, NOW),
        fact(&first),
        fact(&second),
    ];
    project(&store, &again).await;

    let read = store
        .read_inline(move |tx| attempts::of_call(tx, ours, call))
        .await;
    assert_eq!(read.expect("attempts"), [first, second]);

    let foreign = store
        .read_inline(move |tx| attempts::of_call(tx, theirs, call))
        .await;
    assert_eq!(foreign.expect("nothing"), []);
}

/// Also where the end comes by itself, and where the fact is projected again.
async fn a_record_has_the_details_of_its_reason(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let mut end = refused(ours, 1, "no_common_media");
    if let Fact::Ended(ended) = &mut end {
        ended.reason_detail = Some("The offer holds no audio stream".into());
    }
    project(&store, &[started(ours, 1, Direction::Inbound, NOW)]).await;
    for _ in 0..2 {
        project(&store, std::slice::from_ref(&end)).await;
        let call = Uuid::from_u128(1);
        let call = found(&store, move |tx| calls::by_id(tx, ours, call)).await;
        assert_eq!(call.reason.as_deref(), Some("no_common_media"));
        let detail = call.reason_detail.as_deref();
        assert_eq!(detail, Some("The offer holds no audio stream"));
    }
}

async fn recorded_calls_are_of_one_org_and_period(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let facts = [
        started(ours, 1, Direction::Inbound, later(10)),
        started(ours, 2, Direction::Inbound, later(20)),
        refused(ours, 2, "examined"),
        started(ours, 3, Direction::Outbound, later(30)),
        started(ours, 4, Direction::Inbound, later(40)),
        started(theirs, 5, Direction::Inbound, later(20)),
    ];
    project(&store, &facts).await;

    let ids = async |from: u64, until: u64, reason: Option<&'static str>, most: u32| {
        let found = found(&store, move |tx| {
            explained::recorded(tx, ours, later(from), later(until), reason, most)
        })
        .await
        .into_iter();
        found.map(|call| call.id.as_u128()).collect::<Vec<_>>()
    };

    assert_eq!(ids(0, 100, None, 10).await, [4, 2, 1]);
    assert_eq!(ids(0, 100, None, 2).await, [4, 2]);
    assert_eq!(ids(20, 39, None, 10).await, [2]);
    assert_eq!(ids(0, 100, Some("examined"), 10).await, [2]);

    let period = (NOW, later(100));
    let one = found(&store, move |tx| {
        explained::of_call_id(tx, ours, "2@pbx", period.0, period.1)
    })
    .await;
    assert_eq!(one.expect("a call").reason.as_deref(), Some("examined"));

    for (org, call_id, period) in [
        (theirs, "2@pbx", period),
        (ours, "nobody", period),
        (ours, "2@pbx", (NOW, later(1))),
    ] {
        let none = found(&store, move |tx| {
            explained::of_call_id(tx, org, call_id, period.0, period.1)
        })
        .await;
        assert_eq!(none, None, "{call_id}");
    }
}

async fn failed_log_ins_are_found_by_their_call(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let failure = |org: Uuid, call_id: &str, at: u64| NewAuthFailure {
        org,
        trunk: Uuid::from_u128(9),
        username: "trunk-x".into(),
        source: "192.0.2.1".parse().expect("an address"),
        part: "password",
        at: NOW + Duration::from_secs(at),
        sip_call_id: call_id.into(),
        dialled: Some("+4930".into()),
    };

    let failures = [
        failure(ours, "a", 2),
        failure(ours, "a", 1),
        failure(ours, "b", 1),
        failure(theirs, "a", 1),
    ];
    done(&store, move |tx| auth_failures::record(tx, &failures)).await;

    let failed = found(&store, move |tx| explained::log_ins_failed(tx, ours, "a")).await;
    let times: Vec<Moment> = failed.iter().map(|failure| failure.at).collect();
    assert_eq!(times, [later(1), later(2)]);
    assert_eq!(failed[0].dialled.as_deref(), Some("+4930"));
}
