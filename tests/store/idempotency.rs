//! Stored answers: one claim, one answer, kept for a day, and sealed.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Claim, Conflict, Effects, Error, Purge, RequestKey, Store, StoredAnswer, Tx, agents,
    deleted_orgs, erasures, idempotency, nodes,
};
use uuid::Uuid;

use crate::on_both;
use crate::test_db::{self, NOW, TestDb, done, later};

const NODE: Option<u8> = Some(3);
const ORG: Uuid = Uuid::from_u128(0xa);

/// The kept answers of a store.
pub(crate) struct Answers(pub(crate) Store);

impl Answers {
    pub(crate) async fn claim(
        &self,
        asked: &RequestKey,
        node: Option<u8>,
        now: Moment,
    ) -> Result<Claim, Error> {
        let asked = asked.clone();
        let claimed = self
            .0
            .write(move |tx| idempotency::claim(tx, &asked, node, now));
        claimed.await
    }

    pub(crate) async fn look_up(
        &self,
        asked: &RequestKey,
        now: Moment,
    ) -> Result<Option<Claim>, Error> {
        let asked = asked.clone();
        let known = self
            .0
            .read_inline(move |tx| idempotency::look_up(tx, &asked, now));
        known.await
    }

    pub(crate) async fn keep(
        &self,
        asked: &RequestKey,
        kept: &StoredAnswer,
        effects: &Effects,
        now: Moment,
    ) -> Result<(), Error> {
        let (asked, kept) = (asked.clone(), kept.clone());
        let last = move |tx: &mut Tx| idempotency::keep(tx, &asked, &kept, now);
        self.0.write_held(effects, last).await
    }

    async fn begin(&self, asked: &RequestKey, now: Moment) -> Result<(), Error> {
        let asked = asked.clone();
        let begun = move |tx: &mut Tx| idempotency::begin(tx, &asked, now);
        self.0.write(begun).await
    }

    async fn give_up(&self, asked: &RequestKey) -> Result<(), Error> {
        let asked = asked.clone();
        self.0
            .write(move |tx| idempotency::give_up(tx, &asked))
            .await
    }

    async fn free(&self, node: u8) -> Result<u64, Error> {
        self.0.write(move |tx| idempotency::free(tx, node)).await
    }

    async fn prune(&self, now: Moment) -> Result<(), Error> {
        self.0.write(move |tx| idempotency::prune(tx, now)).await
    }
}

/// Returns the key of a request.
pub(crate) fn asked() -> RequestKey {
    RequestKey {
        credential: Uuid::from_u128(7),
        org: None,
        attempt: Uuid::from_u128(1),
        method: "POST",
        path: "/phone".to_owned(),
        key: "k".to_owned(),
        body: [1; 32],
    }
}

/// Returns the stored answer to that request.
pub(crate) fn kept() -> StoredAnswer {
    StoredAnswer {
        status: 201,
        text: "{\"a\":1}".to_owned(),
        refusal: false,
        etag: None,
    }
}

async fn a_request_is_claimed_once_and_then_answered(db: &TestDb) {
    let store = db.open().await;
    let answers = Answers(store.clone());
    assert_eq!(
        answers
            .look_up(&asked(), NOW)
            .await
            .expect("the store works"),
        None
    );

    assert_eq!(
        answers
            .claim(&asked(), NODE, NOW)
            .await
            .expect("the store works"),
        Claim::New
    );

    assert_eq!(
        answers
            .claim(&asked(), NODE, NOW)
            .await
            .expect("the store works"),
        Claim::InProgress
    );

    let other = RequestKey {
        body: [2; 32],
        ..asked()
    };

    assert_eq!(
        answers
            .claim(&other, NODE, NOW)
            .await
            .expect("the store works"),
        Claim::OtherBody
    );

    answers
        .keep(&asked(), &kept(), &Effects::default(), NOW)
        .await
        .expect("the store works");

    let done = Claim::Done(kept());
    assert_eq!(
        answers
            .claim(&asked(), NODE, NOW)
            .await
            .expect("the store works"),
        done
    );

    assert_eq!(
        answers
            .claim(&other, NODE, NOW)
            .await
            .expect("the store works"),
        Claim::OtherBody
    );

    let differ: [fn(&mut RequestKey); 3] = [
        |asked| asked.credential = Uuid::from_u128(8),
        |asked| asked.path.push('x'),
        |asked| asked.key.push('x'),
    ];

    for differ in differ {
        let mut asked = asked();
        differ(&mut asked);
        assert_eq!(
            answers
                .claim(&asked, NODE, NOW)
                .await
                .expect("the store works"),
            Claim::New
        );
    }
}

async fn a_claim_that_is_given_up_is_free(db: &TestDb) {
    let store = db.open().await;
    let answers = Answers(store.clone());
    answers
        .claim(&asked(), NODE, NOW)
        .await
        .expect("the store works");
    answers.give_up(&asked()).await.expect("the store works");

    assert_eq!(
        answers
            .claim(&asked(), NODE, NOW)
            .await
            .expect("the store works"),
        Claim::New
    );

    answers
        .keep(&asked(), &kept(), &Effects::default(), NOW)
        .await
        .expect("the store works");

    // A request that has an answer keeps it.
    answers.give_up(&asked()).await.expect("the store works");

    let claim = answers
        .claim(&asked(), NODE, NOW)
        .await
        .expect("the store works");

    assert_eq!(claim, Claim::Done(kept()));
}

async fn claims_of_a_dead_run_are_freed(db: &TestDb) {
    let store = db.open().await;
    let answers = Answers(store.clone());
    let with = |key: &str| RequestKey {
        key: key.to_owned(),
        ..asked()
    };
    let [dead, done, others] = ["dead", "done", "others"].map(with);
    let claim =
        async |asked: &RequestKey, node| answers.claim(asked, node, NOW).await.expect("a claim");
    for (asked, node) in [(&dead, NODE), (&done, NODE), (&others, Some(4))] {
        assert_eq!(claim(asked, node).await, Claim::New);
    }

    answers
        .keep(&done, &kept(), &Effects::default(), NOW)
        .await
        .expect("kept");

    assert_eq!(answers.free(3).await.expect("freed"), 1);
    assert_eq!(claim(&dead, NODE).await, Claim::New);
    assert_eq!(claim(&done, NODE).await, Claim::Done(kept()));
    assert_eq!(claim(&others, NODE).await, Claim::InProgress);
}

/// On the other nodes too, as soon as the node has no lease any more.
async fn a_claim_whose_node_has_no_lease_is_free(db: &TestDb) {
    let store = db.open().await;
    let answers = Answers(store.clone());
    let (held_up, alive) = held_up_and_alive(&store).await;
    let claim = async |key: &str, node: u8| {
        let claim = answers.claim(&of_call(key), Some(node), NOW).await;
        claim.expect("a claim")
    };

    assert_eq!(claim("of the living", alive).await, Claim::New);
    assert_eq!(claim("of the living", alive).await, Claim::InProgress);
    assert_eq!(claim("of the dead", held_up).await, Claim::New);
    assert_eq!(claim("of the dead", alive).await, Claim::New);
    assert_eq!(claim("of the dead", alive).await, Claim::InProgress);
}

/// A node that is held up looks like a dead one. Of its attempt and the one that another node makes meanwhile, one begins.
async fn a_call_is_begun_by_one_attempt_alone(db: &TestDb) {
    let store = db.open().await;
    let answers = Answers(store.clone());
    let (held_up, alive) = held_up_and_alive(&store).await;
    let claim = async |asked: &RequestKey, node: u8, now: Moment| {
        let claim = answers.claim(asked, Some(node), now).await;
        claim.expect("a claim")
    };

    // Held up before it begins.
    let (first, second) = (of_call("before"), of_call("before"));
    assert_eq!(claim(&first, held_up, NOW).await, Claim::New);
    assert_eq!(claim(&second, alive, NOW).await, Claim::New);
    answers.begin(&second, NOW).await.expect("it begins");
    let refused = answers.begin(&first, NOW).await;
    assert!(
        matches!(refused, Err(Error::Conflict(Conflict::ClaimEnded))),
        "{refused:?}"
    );
    assert_eq!(claim(&second, alive, NOW).await, Claim::InProgress);
    assert_eq!(claim(&second, alive, later(120)).await, Claim::Unknown);

    // Held up, or killed, once it has begun: here, or by an order to another node, which may carry it out for long.
    let asked = of_call("after");
    assert_eq!(claim(&asked, held_up, NOW).await, Claim::New);
    answers.begin(&asked, NOW).await.expect("it begins");
    let again = of_call("after");
    for now in [NOW, later(60), later(24 * 3_600 - 1)] {
        assert_eq!(claim(&again, alive, now).await, Claim::Unknown);
    }
    assert_eq!(answers.free(held_up).await.expect("freed"), 0);
    let (lease, node) = (Duration::from_secs(3_600), held_up);
    done(&store, move |tx| nodes::begin(tx, node, "a", lease)).await;
    assert_eq!(claim(&again, alive, later(60)).await, Claim::Unknown);
    let other_body = RequestKey {
        body: [2; 32],
        ..again.clone()
    };
    assert_eq!(claim(&other_body, alive, NOW).await, Claim::OtherBody);

    // A node that was only held up answers all the same.
    answers
        .keep(&asked, &kept(), &Effects::default(), later(60))
        .await
        .expect("kept");
    assert_eq!(claim(&again, alive, later(60)).await, Claim::Done(kept()));

    // What was refused before anything was dialled is free.
    let asked = of_call("refused");
    assert_eq!(claim(&asked, alive, NOW).await, Claim::New);
    answers.begin(&asked, NOW).await.expect("it begins");
    answers.give_up(&asked).await.expect("given up");
    assert_eq!(claim(&of_call("refused"), alive, NOW).await, Claim::New);
}

/// Begins the runs of two nodes: one whose lease has ended, and one that has its lease.
async fn held_up_and_alive(store: &Store) -> (u8, u8) {
    let (held_up, alive) = (5, 6);
    let (ended, long) = (Duration::ZERO, Duration::from_secs(3_600));
    done(store, move |tx| nodes::begin(tx, held_up, "a", ended)).await;
    done(store, move |tx| nodes::begin(tx, alive, "b", long)).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    (held_up, alive)
}

/// Returns the key of an attempt of its own.
fn of_call(key: &str) -> RequestKey {
    RequestKey {
        key: key.to_owned(),
        org: Some(ORG),
        attempt: Uuid::new_v4(),
        ..asked()
    }
}

async fn answers_end_after_a_day_and_claims_of_the_dead_sooner(db: &TestDb) {
    let store = db.open().await;
    let answers = Answers(store.clone());
    answers
        .claim(&asked(), NODE, NOW)
        .await
        .expect("the store works");

    let claim = answers
        .claim(&asked(), NODE, later(119))
        .await
        .expect("the store works");
    assert_eq!(claim, Claim::InProgress);

    let claim = answers
        .claim(&asked(), NODE, later(120))
        .await
        .expect("the store works");
    assert_eq!(claim, Claim::New);

    answers
        .keep(&asked(), &kept(), &Effects::default(), later(120))
        .await
        .expect("the store works");

    let last = later(120 + 24 * 3600 - 1);
    answers.prune(last).await.expect("the store works");

    let claim = answers
        .claim(&asked(), NODE, last)
        .await
        .expect("the store works");
    assert_eq!(claim, Claim::Done(kept()));

    let after = later(120 + 24 * 3600);
    assert_eq!(
        answers
            .look_up(&asked(), after)
            .await
            .expect("the store works"),
        None
    );
    answers.prune(after).await.expect("the store works");

    assert_eq!(
        answers
            .look_up(&asked(), last)
            .await
            .expect("the store works"),
        None
    );
}

async fn answers_are_there_after_a_restart(db: &TestDb) {
    let store = db.open().await;
    Answers(store.clone())
        .claim(&asked(), NODE, NOW)
        .await
        .expect("the store works");

    let kept = kept();
    Answers(store.clone())
        .keep(&asked(), &kept, &Effects::default(), NOW)
        .await
        .expect("the store works");
    store.close().await;

    let store = db.open().await;
    let claim = Answers(store.clone())
        .claim(&asked(), NODE, NOW)
        .await
        .expect("the store works");

    assert_eq!(claim, Claim::Done(kept));
}

async fn of_a_hundred_at_once_one_has_the_claim(db: &TestDb) {
    let store = db.open().await;
    let claim =
        |store: Store| async move { Answers(store.clone()).claim(&asked(), NODE, NOW).await };
    let tasks: Vec<_> = (0..100)
        .map(|_| tokio::spawn(claim(store.clone())))
        .collect();
    let mut counts = HashMap::new();

    for task in tasks {
        let claim = task
            .await
            .expect("the store works")
            .expect("the store works");
        *counts.entry(format!("{claim:?}")).or_insert(0) += 1;
    }

    let expected = [("New".to_owned(), 1), ("InProgress".to_owned(), 99)];
    assert_eq!(counts, HashMap::from(expected));
}

async fn effects_are_committed_with_the_answer_or_not_at_all(db: &TestDb) {
    let store = db.open().await;
    let org = test_db::org(&store, "Held").await.id;
    let answers = Answers(store.clone());
    let claim = answers.claim(&asked(), NODE, NOW).await.expect("a claim");
    assert_eq!(claim, Claim::New);
    let effects = Effects::default();
    let is_there = async |agent| {
        store
            .read_inline(move |tx| agents::by_id(tx, org, agent))
            .await
            .is_ok()
    };

    let undone = effects.hold(test_db::agent(&store, org, "Undone")).await.id;
    assert!(!is_there(undone).await, "nothing is committed yet");
    effects.undo();
    let dropped = effects
        .hold(test_db::agent(&store, org, "Dropped"))
        .await
        .id;
    drop(effects);
    assert!(!is_there(undone).await && !is_there(dropped).await);

    let effects = Effects::default();
    let (first, second) = effects
        .hold(async {
            let first = test_db::agent(&store, org, "First").await;
            (first, test_db::agent(&store, org, "Second").await)
        })
        .await;
    let kept_now = answers.keep(&asked(), &kept(), &effects, NOW).await;
    kept_now.expect("kept");
    assert!(is_there(first.id).await && is_there(second.id).await);
    let claim = answers.look_up(&asked(), NOW).await.expect("looked up");
    assert_eq!(claim, Some(Claim::Done(kept())));
}

/// A request that took longer than its claim, while another attempt ran.
async fn a_request_that_has_lost_its_claim_changes_nothing(db: &TestDb) {
    let store = db.open().await;
    let org = test_db::org(&store, "Held").await.id;
    let answers = Answers(store.clone());
    let claim = async |asked: &RequestKey, now| answers.claim(asked, NODE, now).await;
    assert_eq!(claim(&asked(), NOW).await.expect("a claim"), Claim::New);
    let effects = Effects::default();
    let made = effects.hold(test_db::agent(&store, org, "Late")).await;

    let again = RequestKey {
        attempt: Uuid::from_u128(2),
        ..asked()
    };
    // On SQLite the held transaction is the only writer, so the other attempt comes once it is undone.
    if !db.is_postgres() {
        effects.undo();
    }
    assert_eq!(
        claim(&again, later(120)).await.expect("a claim"),
        Claim::New
    );
    answers
        .give_up(&asked())
        .await
        .expect("nothing is given up");

    let refused = answers.keep(&asked(), &kept(), &effects, later(121)).await;
    assert!(
        matches!(refused, Err(Error::Conflict(Conflict::ClaimEnded))),
        "{refused:?}"
    );
    let found = store.read_inline(move |tx| agents::by_id(tx, org, made.id));
    assert!(found.await.is_err(), "it is rolled back");

    answers
        .keep(&again, &kept(), &Effects::default(), later(121))
        .await
        .expect("kept");
    let claim = answers.look_up(&asked(), later(121)).await;
    assert_eq!(claim.expect("looked up"), Some(Claim::Done(kept())));
}

/// Sessions of calls and of the dashboard, the operator, and keys that were revoked meanwhile.
async fn answers_to_other_credentials_than_keys_are_erased(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (
        test_db::org(&store, "Ours").await.id,
        test_db::org(&store, "Theirs").await.id,
    );
    let id = crate::erasures::contact(&store, ours).await;
    let answers = Answers(store.clone());
    let kept = StoredAnswer {
        text: json!({"from_number": crate::erasures::NUMBER}).to_string(),
        ..kept()
    };
    let of = |org| RequestKey {
        org: Some(org),
        credential: Uuid::new_v4(),
        ..asked()
    };
    let refused = StoredAnswer {
        text: format!(
            "number_exists\nThe org has {} already",
            crate::erasures::NUMBER
        ),
        refusal: true,
        ..kept.clone()
    };
    let (own, others, own_refusal) = (of(ours), of(theirs), of(ours));
    for (asked, kept) in [(&own, &kept), (&others, &kept), (&own_refusal, &refused)] {
        let claimed = answers.claim(asked, None, NOW).await;
        claimed.expect("a claim");
        let kept = answers.keep(asked, kept, &Effects::default(), NOW).await;
        kept.expect("kept");
    }

    let erasure = crate::erasures::request(&store, ours, id).await;
    for open in test_db::open_erasures(&store, crate::erasures::RUN.node).await {
        crate::erasures::erase(&store, &open, crate::erasures::RUN.node).await;
    }
    let receipt = test_db::found(&store, move |tx| erasures::by_id(tx, ours, erasure.id)).await;
    assert_eq!(receipt.erased.kept_answers, 2, "{receipt:?}");

    let text = async |asked| match answers.look_up(asked, NOW).await.expect("looked up") {
        Some(Claim::Done(kept)) => kept.text,
        other => panic!("an answer: {other:?}"),
    };
    assert!(!text(&own).await.contains(crate::erasures::NUMBER));
    assert_eq!(text(&others).await, kept.text);
    // A refusal is repeated by its code, without the contact.
    let told = text(&own_refusal).await;
    assert!(
        told.starts_with("number_exists\nThe answer") && !told.contains(crate::erasures::NUMBER),
        "{told}"
    );

    // They end with the org.
    test_db::done(&store, move |tx| {
        deleted_orgs::delete(tx, ours, Purge::Later, NOW)
    })
    .await;
    let left = answers.look_up(&own, NOW).await;
    assert_eq!(left.expect("looked up"), None);
    text(&others).await;
}

on_both!(
    answers_to_other_credentials_than_keys_are_erased,
    a_request_that_has_lost_its_claim_changes_nothing,
    effects_are_committed_with_the_answer_or_not_at_all,
    a_request_is_claimed_once_and_then_answered,
    a_claim_that_is_given_up_is_free,
    claims_of_a_dead_run_are_freed,
    a_claim_whose_node_has_no_lease_is_free,
    a_call_is_begun_by_one_attempt_alone,
    answers_end_after_a_day_and_claims_of_the_dead_sooner,
    answers_are_there_after_a_restart,
    of_a_hundred_at_once_one_has_the_claim,
);
