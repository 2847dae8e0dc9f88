//! An org is deleted, restored and purged, and its usage stays.

use std::time::Duration;

use trunkline::api::token;
use trunkline_model::record::{Ended, Fact, HangupBy, Started, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{
    Conflict, Error, Kind, LoginLink, NewLogin, NewOrg, NewOrgKey, Org, Purge, Store, UsageParts,
    UsageWindow, Wrong, deleted_orgs, events, logins, numbers, org_keys, orgs, purge, rows_of,
    sessions, usage,
};
use uuid::Uuid;

use crate::test_db::{
    self, NOW, TestDb, agent, done, found, later, number, of_partner, org, partner, started,
};

crate::on_both!(
    a_deleted_org_is_absent_and_comes_back,
    what_others_took_meanwhile_stays_theirs,
    a_number_that_another_org_verified_and_gave_back_needs_a_new_proof,
    a_deleted_org_is_purged_and_its_usage_stays,
    a_session_ends_with_its_org,
    windows_that_adjoin_count_a_purged_day_once,
    two_restores_and_a_creation_at_once_give_one_external_id,
    a_restore_and_a_verification_at_once_give_the_number_to_one,
);

const DAYS: Duration = Duration::from_secs(24 * 3600);

fn is_absent<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Wrong(Wrong::Absent(Kind::Org))))
}

/// Also one that was opened while the org was being deleted.
async fn a_session_ends_with_its_org(db: &TestDb) {
    let store = db.open().await;
    let id = org(&store, "Ours").await.id;
    let login = NewLogin {
        email: "ann@example.com".to_owned(),
        name: None,
        roles: Vec::new(),
    };
    let link = LoginLink {
        token_hash: [1; 32],
        expires_at: later(60),
        confirm: false,
    };
    done(&store, move |tx| {
        logins::create_link(tx, id, &login, &link, NOW)?;
        sessions::open(tx, [1; 32], [2; 32], later(60), NOW)
    })
    .await
    .expect("a session");

    let session = async || found(&store, |tx| sessions::by_token(tx, [2; 32], NOW)).await;
    assert!(session().await.is_some());
    db.execute("UPDATE orgs SET deleted_at = 1, purge_at = 2")
        .await;
    assert_eq!(session().await, None);
}

async fn a_deleted_org_is_absent_and_comes_back(db: &TestDb) {
    let store = db.open().await;
    let partner = partner(&store).await;
    let before = of_partner(&store, partner, "a").await;
    let id = before.id;
    let (key, _) = token::issue(
        &store,
        id,
        NewOrgKey::lasting("Backend", &["calls:read"]),
        NOW,
    )
    .await
    .expect("a key");

    let held = done(&store, move |tx| {
        numbers::create(tx, id, number("+442071838750"), true, NOW)
    })
    .await;

    let answers = agent(&store, id, "Agent").await;
    let numbers = [held.id];
    done(&store, move |tx| {
        numbers::assign(tx, id, answers.id, &numbers, NOW)
    })
    .await;

    done(&store, move |tx| {
        deleted_orgs::delete(tx, id, Purge::Later, NOW)
    })
    .await;
    assert!(
        is_absent(
            &store
                .write(move |tx| deleted_orgs::delete(tx, id, Purge::Now, NOW))
                .await
        ),
        "twice"
    );

    assert!(is_absent(
        &store.read_inline(move |tx| orgs::by_id(tx, id)).await
    ));
    assert!(is_absent(
        &store
            .write(move |tx| orgs::rotate_widget_token(tx, id, NOW))
            .await
    ));
    assert!(is_absent(
        &store
            .read_inline(move |tx| orgs::by_external_id(tx, partner, "a"))
            .await
    ));
    let listed = found(&store, move |tx| orgs::page(tx, &[None, None], None, 10)).await;
    assert_eq!((listed.items, listed.total), (Vec::new(), 0));

    let [narrow, other] = [None, None];
    let listed = store
        .read_inline(move |tx| orgs::of_partner(tx, partner, &[narrow, other], 10, 0))
        .await;
    assert_eq!(listed.expect("orgs"), (Vec::new(), 0));
    assert_eq!(found(&store, move |tx| rows_of(tx, None)).await, []);
    assert_eq!(found(&store, move |tx| rows_of(tx, Some(id))).await, []);

    let keys = store
        .read_inline(move |tx| org_keys::by_id(tx, id, key.id))
        .await;
    assert_eq!(keys.expect("a look"), None);
    let issued = token::issue(&store, id, NewOrgKey::lasting("Another", &[]), NOW).await;
    assert!(is_absent(&issued.map(drop)));

    let verified = store
        .read_inline(move |tx| numbers::verified_in(tx, &held.number))
        .await;
    assert_eq!(verified.expect("a look"), None);

    let deleted = found(&store, move |tx| deleted_orgs::deleted(tx, None, NOW)).await;
    assert_eq!(deleted[0].deleted_external_id.as_deref(), Some("a"));
    assert_eq!(deleted[0].purge_at, Some(NOW + 30 * DAYS));

    let restored = deleted_orgs::restore(&store, id, later(60))
        .await
        .expect("restored");
    assert_eq!(restored, before);

    let again = deleted_orgs::restore(&store, id, later(61))
        .await
        .expect("restored already");
    assert_eq!(again, before);

    let back = found(&store, move |tx| numbers::by_id(tx, id, held.id)).await;
    assert_eq!(
        (back.verified_at, back.agent_id),
        (held.verified_at, Some(answers.id))
    );
    let rows = found(&store, move |tx| rows_of(tx, Some(id))).await;
    assert_eq!(rows[0].agents.len(), 1);
    let keys = store
        .read_inline(move |tx| org_keys::by_id(tx, id, key.id))
        .await;
    assert_eq!(keys.expect("a look"), None, "keys don't come back");
}

async fn what_others_took_meanwhile_stays_theirs(db: &TestDb) {
    let store = db.open().await;
    let partner = partner(&store).await;
    let first = of_partner(&store, partner, "a").await.id;
    let taken = number("+442071838750");
    let ours = done(&store, move |tx| {
        numbers::create(tx, first, taken, true, NOW)
    })
    .await;
    done(&store, move |tx| {
        deleted_orgs::delete(tx, first, Purge::Later, NOW)
    })
    .await;

    let second = of_partner(&store, partner, "a").await.id;
    let theirs = done(&store, move |tx| {
        numbers::create(tx, second, taken, true, NOW)
    })
    .await;
    let refused = deleted_orgs::restore(&store, first, NOW).await;
    assert!(
        matches!(&refused, Err(Error::Conflict(Conflict::ExternalIdTaken(id))) if id == "a"),
        "{refused:?}"
    );

    // The other org is deleted as well, and purged only after its own time.
    done(&store, move |tx| {
        deleted_orgs::delete(tx, second, Purge::Later, NOW)
    })
    .await;
    deleted_orgs::restore(&store, first, NOW)
        .await
        .expect("the id is free again");
    let refused = deleted_orgs::restore(&store, second, NOW).await;
    assert!(matches!(
        refused,
        Err(Error::Conflict(Conflict::ExternalIdTaken(_)))
    ));

    let numbers_of = async |org, id| found(&store, move |tx| numbers::by_id(tx, org, id)).await;
    for (org, id) in [(first, ours.id), (second, theirs.id)] {
        let number = numbers_of(org, id).await;
        assert_eq!(number.verified_at, None, "the first one's proof is older");
    }

    let late = NOW + 30 * DAYS;
    assert!(
        is_absent(&deleted_orgs::restore(&store, second, late).await),
        "too late"
    );
    let partner_of = store
        .read_inline(move |tx| deleted_orgs::partner_of_restorable(tx, second, late))
        .await;
    assert!(is_absent(&partner_of), "as if absent");
}

async fn a_number_that_another_org_verified_and_gave_back_needs_a_new_proof(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let answers = agent(&store, ours, "Agent").await.id;
    let mut held = Vec::new();
    for text in ["+442071838750", "+442071838751", "+442071838752"] {
        let made = done(&store, move |tx| {
            let made = numbers::create(tx, ours, number(text), true, NOW)?;
            numbers::assign_one(tx, ours, answers, made.id, NOW)?;
            Ok(made)
        });
        held.push(made.await);
    }

    done(&store, move |tx| {
        deleted_orgs::delete(tx, ours, Purge::Later, NOW)
    })
    .await;

    // The first is verified as it is added, the second afterwards, and the third is only added.
    let texts = [held[0].number, held[1].number, held[2].number];
    done(&store, move |tx| {
        let first = numbers::create(tx, theirs, texts[0], true, NOW)?;
        let second = numbers::create(tx, theirs, texts[1], false, NOW)?;
        numbers::verify(tx, theirs, second.id, NOW)?;
        numbers::create(tx, theirs, texts[2], false, NOW)?;
        numbers::delete(tx, theirs, first.id, NOW)?;
        numbers::unverify(tx, theirs, second.id, NOW)
    })
    .await;

    let restored = deleted_orgs::restore(&store, ours, later(60)).await;
    restored.expect("restored");
    for (number, is_back) in held.iter().zip([false, false, true]) {
        let id = number.id;
        let now = found(&store, move |tx| numbers::by_id(tx, ours, id)).await;
        let expected = is_back.then_some((number.verified_at, Some(answers)));
        assert_eq!(
            (now.verified_at, now.agent_id),
            expected.unwrap_or_default(),
            "{}",
            number.number
        );
    }
}

async fn a_restore_and_a_verification_at_once_give_the_number_to_one(db: &TestDb) {
    let store = db.open().await;
    for turn in 0..20 {
        let names = ["Ours", "Theirs"].map(|name| format!("{name} {turn}"));
        let ours = org(&store, &names[0]).await.id;
        let theirs = org(&store, &names[1]).await.id;
        let wanted = number(&format!("+4420718387{turn:02}"));
        let (held, claimed) = done(&store, move |tx| {
            let held = numbers::create(tx, ours, wanted, true, NOW)?;
            let claimed = numbers::create(tx, theirs, wanted, false, NOW)?;
            deleted_orgs::delete(tx, ours, Purge::Later, NOW)?;
            Ok((held.id, claimed.id))
        })
        .await;

        let (restored, verified) = tokio::join!(
            deleted_orgs::restore(&store, ours, NOW),
            store.write(move |tx| numbers::verify(tx, theirs, claimed, NOW))
        );
        restored.expect("restored");
        let held = found(&store, move |tx| numbers::by_id(tx, ours, held)).await;
        match verified {
            Ok(_) => assert_eq!(held.verified_at, None),
            Err(Error::Conflict(Conflict::NumberVerifiedElsewhere(_))) => {
                assert_eq!(held.verified_at, Some(NOW));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

async fn two_restores_and_a_creation_at_once_give_one_external_id(db: &TestDb) {
    let store = db.open().await;
    let partner = partner(&store).await;
    let mut deleted = Vec::new();
    for _ in 0..2 {
        let org = of_partner(&store, partner, "a").await.id;
        done(&store, move |tx| {
            deleted_orgs::delete(tx, org, Purge::Later, NOW)
        })
        .await;
        deleted.push(org);
    }

    let new = NewOrg {
        external_id: Some("a".to_owned()),
        ..NewOrg::named("Third")
    };
    let (one, two, three) = tokio::join!(
        deleted_orgs::restore(&store, deleted[0], NOW),
        deleted_orgs::restore(&store, deleted[1], NOW),
        store.write(move |tx| orgs::create(tx, Some(partner), &new, NOW))
    );

    let done = [one, two, three];
    let taken = |result: &Result<Org, Error>| {
        matches!(result, Err(Error::Conflict(Conflict::ExternalIdTaken(_))))
    };

    assert_eq!(
        done.iter().filter(|done| done.is_ok()).count(),
        1,
        "{done:?}"
    );

    assert_eq!(
        done.iter().filter(|done| taken(done)).count(),
        2,
        "{done:?}"
    );
}

fn call(org: Uuid, id: u128, at: Moment, talked: Option<u64>) -> Vec<Fact> {
    let call = Uuid::from_u128(id);
    let started = Started {
        trunk: Some(Uuid::from_u128(0x7)),
        from: "+441632960001".into(),
        from_e164: Some(number("+441632960001")),
        ..started(call, org, at)
    };
    let mut facts = vec![Fact::Started(started.into())];
    if let Some(seconds) = talked {
        facts.push(Fact::Answered {
            call,
            org,
            at,
            runtime_call_id: "r".into(),
        });
        facts.push(Fact::Ended(
            Ended {
                call,
                org,
                at: at + Duration::from_secs(seconds),
                status: Status::Completed,
                sip_code: 200,
                reason: None,
                reason_detail: None,
                hangup_by: HangupBy::Caller,
                cause: None,
            }
            .into(),
        ));
    }

    facts
}

async fn purge(store: &Store, org: Uuid) -> u64 {
    let mut rows = 0;
    loop {
        match done(store, move |tx| purge::delete_some(tx, org)).await {
            0 => return rows,
            some => rows += some,
        }
    }
}

async fn a_deleted_org_is_purged_and_its_usage_stays(db: &TestDb) {
    let store = db.open().await;
    let partner = partner(&store).await;
    let id = of_partner(&store, partner, "a").await.id;
    let other = org(&store, "Other").await.id;
    let run = Origin { node: 3, boot: 7 };
    let mut facts = Vec::new();

    for number in 0..250 {
        facts.extend(call(id, number + 1, later(number as u64), Some(61)));
        facts.extend(call(other, number + 5_001, later(number as u64), Some(61)));
    }
    facts.extend(call(id, 4_000, later(9), None));
    test_db::project(&store, run, &facts)
        .await
        .expect("projected");
    let contacts = store.contacts();
    let callers = [(id, number("+441632960001"))];
    let known = contacts.find_or_create_by_phone_many(&callers, NOW).await;
    let contact = known.expect("a contact")[0].expect("a contact");

    let window = UsageWindow {
        from: Moment::from_micros(0),
        to: Moment::from_secs(4_000_000_000),
    };
    let parts = UsageParts {
        day: true,
        org: true,
        agent: true,
        trunk: true,
        direction: true,
    };
    let usage = async || {
        found(&store, move |tx| {
            usage::of_partner(tx, partner, window, parts, 100)
        })
        .await
    };
    let before = usage().await;
    assert_eq!(before[0].calls, 251);
    assert_eq!(before[0].answered_seconds, 250 * 61);

    assert!(
        found(&store, move |tx| deleted_orgs::to_purge(tx, NOW))
            .await
            .is_empty()
    );

    done(&store, move |tx| {
        deleted_orgs::delete(tx, id, Purge::Now, NOW)
    })
    .await;
    assert_eq!(
        found(&store, move |tx| deleted_orgs::to_purge(tx, NOW)).await,
        [id]
    );
    assert!(
        is_absent(&deleted_orgs::restore(&store, id, NOW).await),
        "nothing to restore"
    );

    purge(&store, id).await;
    assert!(
        !done(&store, move |tx| deleted_orgs::finish_purge(tx, id, NOW)).await,
        "a call of it is up"
    );
    assert_eq!(usage().await, before, "one call is counted from its row");

    let end = call(id, 4_000, later(9), Some(0));
    test_db::project(&store, run, &end)
        .await
        .expect("projected");
    purge(&store, id).await;
    assert!(done(&store, move |tx| deleted_orgs::finish_purge(tx, id, NOW)).await);
    assert!(
        found(&store, move |tx| deleted_orgs::to_purge(tx, NOW))
            .await
            .is_empty()
    );

    let mut after = before.clone();
    after[0].answered_calls += 1;
    assert_eq!(usage().await, after);
    let row = contacts.by_id(id, contact).await;
    assert!(matches!(
        row,
        Err(Error::Wrong(Wrong::Absent(Kind::Contact)))
    ));

    // A fact that a node delivers late.
    let late = call(id, 4_001, later(10), Some(1));
    test_db::project(&store, run, &late)
        .await
        .expect("projected");
    assert_eq!(
        found(&store, move |tx| deleted_orgs::purged(tx, NOW)).await,
        [id]
    );
    assert!(purge(&store, id).await > 0);
    assert_eq!(purge(&store, id).await, 0);

    let theirs = store.read(move |tx| usage::of_org(tx, other, window, UsageParts::default(), 10));
    assert_eq!(theirs.await.expect("usage")[0].calls, 250);

    // Three events a call: started, answered, ended.
    for (org, expected) in [(id, 0), (other, 750)] {
        let left = found(&store, move |tx| events::since(tx, org, 0, 1_000)).await;
        assert_eq!(left.len(), expected);
    }
}

/// The calls of a purged day count at its beginning: windows that meet within that day count them once.
async fn windows_that_adjoin_count_a_purged_day_once(db: &TestDb) {
    let store = db.open().await;
    let partner = partner(&store).await;
    let id = of_partner(&store, partner, "a").await.id;
    let run = Origin { node: 3, boot: 7 };
    let micros = NOW.as_micros();
    let midnight = Moment::from_micros(micros - micros % 86_400_000_000);
    let noon = midnight + Duration::from_secs(12 * 3600);
    let facts = call(id, 1, noon, Some(61));
    test_db::project(&store, run, &facts)
        .await
        .expect("projected");
    done(&store, move |tx| {
        deleted_orgs::delete(tx, id, Purge::Now, NOW)
    })
    .await;
    // The call, its list and its block.
    assert_eq!(purge(&store, id).await, 3);

    let count = async |from: Moment, to: Moment| {
        let window = UsageWindow { from, to };
        let parts = UsageParts {
            org: true,
            ..UsageParts::default()
        };
        let rows = found(&store, move |tx| {
            usage::of_partner(tx, partner, window, parts, 10)
        })
        .await;
        assert!(rows.iter().all(|row| row.org_id == Some(id)), "{rows:?}");
        rows.iter().map(|row| row.calls).sum::<i64>()
    };

    let before = |at: Moment| Moment::from_micros(at.as_micros() - 1);
    let (first, last) = (midnight - DAYS, midnight + 2 * DAYS);
    for meet in [
        midnight,
        midnight + Duration::from_secs(1),
        noon,
        midnight + DAYS,
    ] {
        let counts = [count(first, before(meet)).await, count(meet, last).await];
        let is_after = meet > midnight;
        assert_eq!(
            counts,
            [i64::from(is_after), i64::from(!is_after)],
            "{meet:?}"
        );
    }
    assert_eq!(
        count(midnight, before(midnight + DAYS)).await,
        1,
        "a whole day"
    );
}
