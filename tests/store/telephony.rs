//! Numbers, inbound trunks, contacts, failed log-ins.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use trunkline_store::{
    Conflict, Error, InboundTrunkChange, Kind, NewAuthFailure, Tx, Wrong, agents, auth_failures,
    inbound_trunks, numbers, old_pairs,
};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, agent, done, found, later, number, org};

crate::on_both!(
    a_number_is_verified_in_one_org,
    a_number_has_one_agent,
    a_trunk_lists_verified_numbers,
    a_rotated_password_is_new_and_sealed,
    the_credentials_of_ten_rotations_work,
    callers_become_contacts,
    two_at_once_make_one_contact,
    failed_logins_are_bounded,
);

async fn a_number_is_verified_in_one_org(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let phone = number("+4930123456");
    let number = done(&store, move |tx| {
        numbers::create(tx, ours, phone, false, NOW)
    })
    .await;
    assert_eq!(number.verified_at, None);

    let again = store
        .write(move |tx| numbers::create(tx, ours, phone, false, NOW))
        .await;
    assert!(matches!(
        again,
        Err(Error::Conflict(Conflict::NumberExists(_)))
    ));

    let verified = done(&store, move |tx| {
        numbers::verify(tx, ours, number.id, later(5))
    })
    .await;
    assert_eq!(verified.verified_at, Some(later(5)));
    let again = done(&store, move |tx| {
        numbers::verify(tx, ours, number.id, later(6))
    })
    .await;
    assert_eq!(again.verified_at, Some(later(5)));

    let refused = store
        .write(move |tx| numbers::create(tx, theirs, phone, true, NOW))
        .await;
    assert!(matches!(
        refused,
        Err(Error::Conflict(Conflict::NumberVerifiedElsewhere(_)))
    ));

    let unverified = done(&store, move |tx| {
        numbers::create(tx, theirs, phone, false, NOW)
    })
    .await;
    let refused = store
        .write(move |tx| numbers::verify(tx, theirs, unverified.id, NOW))
        .await;
    assert!(matches!(
        refused,
        Err(Error::Conflict(Conflict::NumberVerifiedElsewhere(_)))
    ));

    done(&store, move |tx| {
        numbers::unverify(tx, ours, number.id, NOW)
    })
    .await;
    done(&store, move |tx| {
        numbers::verify(tx, theirs, unverified.id, NOW)
    })
    .await;

    assert_eq!(
        found(&store, move |tx| numbers::by_number(tx, theirs, &phone))
            .await
            .id,
        unverified.id
    );
    assert!(
        store
            .read_inline(move |tx| numbers::by_id(tx, theirs, number.id))
            .await
            .is_err()
    );
    assert!(
        store
            .write(move |tx| numbers::delete(tx, theirs, number.id, NOW))
            .await
            .is_err()
    );

    done(&store, move |tx| numbers::delete(tx, ours, number.id, NOW)).await;
    assert!(
        found(&store, move |tx| numbers::list(tx, ours))
            .await
            .is_empty()
    );
}

async fn a_number_has_one_agent(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let (anna, bea) = (
        agent(&store, ours, "Anna").await.id,
        agent(&store, ours, "Bea").await.id,
    );
    let one = done(&store, move |tx| {
        numbers::create(tx, ours, number("+4930000001"), true, NOW)
    })
    .await
    .id;
    let two = done(&store, move |tx| {
        numbers::create(tx, ours, number("+4930000002"), true, later(1))
    })
    .await
    .id;
    let raw = done(&store, move |tx| {
        numbers::create(tx, ours, number("+4930000003"), false, NOW)
    })
    .await
    .id;
    let foreign = done(&store, move |tx| {
        numbers::create(tx, theirs, number("+4930000004"), true, NOW)
    })
    .await
    .id;

    let assigned = done(&store, move |tx| {
        numbers::assign(tx, ours, anna, &[two, one], NOW)
    })
    .await;
    assert_eq!(
        assigned.iter().map(|number| number.id).collect::<Vec<_>>(),
        [one, two]
    );

    let held = store
        .write(move |tx| numbers::assign(tx, ours, bea, &[one], NOW))
        .await;
    assert!(
        matches!(held, Err(Error::Conflict(Conflict::NumberHeld { agent, agent_name, .. })) if agent == anna && agent_name == "Anna")
    );

    let wrong = store
        .write(move |tx| numbers::assign(tx, ours, bea, &[one, raw, foreign], NOW))
        .await;
    let faults = [
        (1, Wrong::NotVerified(number("+4930000003"))),
        (
            2,
            Wrong::Unknown {
                kind: Kind::Number,
                id: foreign,
            },
        ),
    ];
    assert!(matches!(wrong, Err(Error::Wrong(Wrong::Entries(found))) if found == faults));

    let absent = store
        .write(move |tx| numbers::assign(tx, theirs, anna, &[foreign], NOW))
        .await;
    assert!(matches!(
        absent,
        Err(Error::Wrong(Wrong::Absent(Kind::Agent)))
    ));

    done(&store, move |tx| {
        numbers::assign(tx, ours, anna, &[two], NOW)
    })
    .await;
    done(&store, move |tx| {
        numbers::assign(tx, ours, bea, &[one], NOW)
    })
    .await;
    done(&store, move |tx| numbers::unverify(tx, ours, one, NOW)).await;
    assert!(
        found(&store, move |tx| numbers::of_agent(tx, ours, bea))
            .await
            .is_empty()
    );

    done(&store, move |tx| agents::delete(tx, ours, anna, NOW)).await;
    assert_eq!(
        found(&store, move |tx| numbers::by_id(tx, ours, two))
            .await
            .agent_id,
        None
    );
}

async fn a_trunk_lists_verified_numbers(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let new = InboundTrunkChange::default;
    let none = store
        .write(move |tx| inbound_trunks::create(tx, org, &new(), NOW))
        .await;
    assert!(matches!(none, Err(Error::Wrong(Wrong::NoVerifiedNumber))));

    let [one, two, raw] = ["+4930000001", "+4930000002", "+4930000003"].map(number);
    let first = done(&store, move |tx| numbers::create(tx, org, one, true, NOW))
        .await
        .id;
    done(&store, move |tx| {
        numbers::create(tx, org, two, true, later(1))
    })
    .await;
    done(&store, move |tx| numbers::create(tx, org, raw, false, NOW)).await;
    let unverified = InboundTrunkChange {
        numbers: Some(vec![one, raw]),
        ..new()
    };
    let refused = store
        .write(move |tx| inbound_trunks::create(tx, org, &unverified, NOW))
        .await;
    assert!(
        matches!(refused, Err(Error::Wrong(Wrong::Entries(faults))) if faults == [(1, Wrong::NotVerified(raw))])
    );

    let trunk = done(&store, move |tx| {
        inbound_trunks::create(tx, org, &new(), NOW)
    })
    .await;
    assert_eq!(trunk.numbers, [one, two]);
    assert_eq!(
        found(&store, move |tx| inbound_trunks::of_org(tx, org)).await,
        trunk
    );
    assert!(matches!(
        store
            .write(move |tx| inbound_trunks::create(tx, org, &new(), NOW))
            .await,
        Err(Error::Conflict(Conflict::TrunkExists))
    ));
    assert_eq!(
        done(&store, move |tx| inbound_trunks::remove_number(
            tx, org, &one, NOW
        ))
        .await
        .numbers,
        [two]
    );
    assert!(matches!(
        store
            .write(move |tx| inbound_trunks::remove_number(tx, org, &one, NOW))
            .await,
        Err(Error::Wrong(Wrong::Absent(Kind::Number)))
    ));
    assert_eq!(
        done(&store, move |tx| inbound_trunks::add_numbers(
            tx,
            org,
            &[one, two, one],
            NOW
        ))
        .await
        .numbers,
        [two, one]
    );

    done(&store, move |tx| numbers::unverify(tx, org, first, NOW)).await;
    assert_eq!(
        found(&store, move |tx| inbound_trunks::of_org(tx, org))
            .await
            .numbers,
        [two, one]
    );

    // Listed numbers stay listed, verified or not, and their order can be chosen.
    let again = store
        .write(move |tx| inbound_trunks::add_numbers(tx, org, &[one], NOW))
        .await;
    assert_eq!(again.expect("a trunk").numbers, [two, one]);

    let turned = InboundTrunkChange {
        numbers: Some(vec![one, two]),
        ..InboundTrunkChange::default()
    };
    let turned = done(&store, move |tx| {
        inbound_trunks::update(tx, org, &turned, NOW)
    })
    .await;
    assert_eq!(turned.numbers, [one, two]);
    assert_eq!(
        found(&store, move |tx| inbound_trunks::of_org(tx, org)).await,
        turned
    );

    let three = number("+4930000009");
    done(&store, move |tx| numbers::create(tx, org, three, true, NOW)).await;
    let synced = done(&store, move |tx| inbound_trunks::sync(tx, org, NOW)).await;
    assert_eq!(
        (synced.trunk.numbers, synced.added, synced.removed),
        (vec![two, three], vec![three], vec![one])
    );

    let change = InboundTrunkChange {
        krisp_enabled: Some(true),
        allowed_addresses: Some(vec!["192.0.2.0/24".parse().expect("a network")]),
        default_country: Some(Some("DE".parse().expect("a country"))),
        max_concurrent_calls: Some(Some(2)),
        ..InboundTrunkChange::default()
    };
    let changed = done(&store, move |tx| {
        inbound_trunks::update(tx, org, &change, later(9))
    })
    .await;
    assert!(changed.krisp_enabled && changed.refer_headers_in_uri);
    assert_eq!(
        found(&store, move |tx| inbound_trunks::of_org(tx, org)).await,
        changed
    );

    done(&store, move |tx| inbound_trunks::delete(tx, org, NOW)).await;
    assert!(matches!(
        store
            .read_inline(move |tx| inbound_trunks::of_org(tx, org))
            .await,
        Err(Error::Wrong(Wrong::Absent(Kind::InboundTrunk)))
    ));
}

async fn a_rotated_password_is_new_and_sealed(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    done(&store, move |tx| {
        numbers::create(tx, org, number("+4930000001"), true, NOW)
    })
    .await;

    let new = InboundTrunkChange::default;
    let before = done(&store, move |tx| {
        inbound_trunks::create(tx, org, &new(), NOW)
    })
    .await;
    let after = done(&store, move |tx| {
        inbound_trunks::rotate_credentials(tx, org, later(1))
    })
    .await;

    assert_ne!(before.username, after.username);
    assert_ne!(before.password.reveal(), after.password.reveal());
    assert_eq!(
        found(&store, move |tx| inbound_trunks::of_org(tx, org)).await,
        after
    );
    assert!(!format!("{after:?}").contains(after.password.reveal()));

    store.close().await;
    let stored = stored(db).await;
    let holds = |text: &str| {
        stored
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(holds(&after.username) && holds(&before.username));
    assert!(!holds(after.password.reveal()) && !holds(before.password.reveal()));
}

/// Returns the octets in which the database has the trunk's credentials: on SQLite the whole file.
async fn stored(db: &TestDb) -> Vec<u8> {
    let Some(url) = &db.options.url else {
        return std::fs::read(db.options.data_dir.join("trunkline.db")).expect("the database");
    };

    let sql = "SELECT convert_to(username, 'UTF8') || password FROM inbound_trunks
        UNION ALL SELECT convert_to(username, 'UTF8') || password FROM old_credentials";
    let mut connection = PgConnection::connect(url)
        .await
        .expect("the database answers");
    let rows: Vec<Vec<u8>> = sqlx::query_scalar(sql)
        .fetch_all(&mut connection)
        .await
        .expect("rows");
    rows.concat()
}

async fn the_credentials_of_ten_rotations_work(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    for (org, phone) in [(ours, "+4930000001"), (theirs, "+4930000002")] {
        done(&store, move |tx| {
            numbers::create(tx, org, number(phone), true, NOW)?;
            inbound_trunks::create(tx, org, &InboundTrunkChange::default(), NOW)?;
            inbound_trunks::rotate_credentials(tx, org, NOW)
        })
        .await;
    }

    let mut rotated = Vec::new();
    for at in 1..=13 {
        let trunk = done(&store, move |tx| {
            inbound_trunks::rotate_credentials(tx, ours, later(at))
        })
        .await;
        rotated.push(trunk.username);
    }

    let names = async |org| -> Vec<String> {
        let old = move |tx: &mut Tx| old_pairs::page(tx, org, later(14), None, 100);
        let old = found(&store, old).await.items;
        old.into_iter().map(|pair| pair.username).collect()
    };
    rotated.pop();
    rotated.reverse();
    assert_eq!(names(ours).await, rotated[..10], "the newest ones");
    assert_eq!(names(theirs).await.len(), 1);
}

async fn callers_become_contacts(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let [one, two] = ["+4930000001", "+4930000002"].map(number);
    let callers = [(ours, one), (theirs, one), (ours, two), (ours, one)];
    let made = store
        .contacts()
        .find_or_create_by_phone_many(&callers, NOW)
        .await
        .expect("contacts");
    assert_eq!(made[0], made[3]);
    assert_eq!(
        made.iter().collect::<std::collections::HashSet<_>>().len(),
        3
    );

    let found = store
        .contacts()
        .find_or_create_by_phone_many(&callers, later(1))
        .await
        .expect("contacts");
    assert_eq!(made, found);

    let contact = store
        .contacts()
        .by_id(ours, made[0].expect("an id"))
        .await
        .expect("a contact");
    assert_eq!(contact.phone.as_deref(), Some("+4930000001"));
    assert!(store.contacts().by_id(theirs, contact.id).await.is_err());

    db.execute("UPDATE contacts SET external_id = 'x' WHERE phone_key = '+4930000002'")
        .await;
    let other = store
        .contacts()
        .find_or_create_by_phone_many(&[(ours, two)], later(2))
        .await
        .expect("contacts");
    assert_ne!(other[0], made[2]);

    let many: Vec<_> = (0..2_500)
        .map(|last| (ours, number(&format!("+49300{last:06}"))))
        .collect();
    let made = store
        .contacts()
        .find_or_create_by_phone_many(&many, NOW)
        .await
        .expect("contacts");
    assert_eq!(
        made.iter().collect::<std::collections::HashSet<_>>().len(),
        many.len()
    );
}

async fn two_at_once_make_one_contact(db: &TestDb) {
    let stores = [db.open().await, db.open().await];
    let org = org(&stores[0], "Org").await.id;
    let callers: Vec<_> = (0..20)
        .map(|last| (org, number(&format!("+49301234{last:02}"))))
        .collect();
    let mut tasks = tokio::task::JoinSet::new();

    for turn in 0..8 {
        let (store, mut callers) = (stores[turn % 2].clone(), callers.clone());
        callers.rotate_left(turn * 2);
        tasks.spawn(async move {
            let ids = store
                .contacts()
                .find_or_create_by_phone_many(&callers, NOW)
                .await
                .expect("contacts");
            callers.into_iter().zip(ids).collect::<Vec<_>>()
        });
    }

    let all: std::collections::HashSet<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(all.len(), callers.len());
}

async fn failed_logins_are_bounded(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let failure = |org: Uuid, at: u64| NewAuthFailure {
        org,
        trunk: Uuid::from_u128(9),
        username: "trunk-x".into(),
        source: "::ffff:192.0.2.1".parse().expect("an address"),
        part: "password",
        at: NOW + Duration::from_secs(at),
        sip_call_id: "call@pbx".into(),
        dialled: None,
    };

    done(&store, move |tx| {
        auth_failures::record(tx, &[failure(theirs, 0)])
    })
    .await;

    let many: Vec<_> = (0..1_003).map(|at| failure(ours, at)).collect();
    done(&store, move |tx| auth_failures::record(tx, &many)).await;

    let page = found(&store, move |tx| {
        auth_failures::list(tx, ours, &Default::default(), None, 2)
    })
    .await;

    assert_eq!(page.total, 1_000);
    assert_eq!(page.items[0].source.to_string(), "192.0.2.1");
    assert_eq!(
        page.items
            .iter()
            .map(|failure| failure.at)
            .collect::<Vec<_>>(),
        [later(1_002), later(1_001)]
    );

    let next = found(&store, move |tx| {
        auth_failures::list(tx, ours, &Default::default(), page.next, 1_000)
    })
    .await;

    assert_eq!(
        (next.items.len(), next.items[0].at, next.next),
        (998, later(1_000), None)
    );
    assert_eq!(
        found(&store, move |tx| auth_failures::list(
            tx,
            theirs,
            &Default::default(),
            None,
            10
        ))
        .await
        .items
        .len(),
        1
    );
}
