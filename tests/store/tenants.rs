//! Orgs, their keys, partners: no tenant sees another's.

use std::sync::mpsc;
use std::time::Duration;

use ipnet::IpNet;
use trunkline::api::token;
use trunkline_store::{
    Conflict, Error, Kind, NewOrg, NewOrgKey, NewPartner, Purge, Store, Tx, Wrong, deleted_orgs,
    org_keys, orgs, partners,
};

use crate::test_db::{self, NOW, TestDb, done, found, later, of_partner, org, partner};

crate::on_both!(
    an_org_is_born,
    all_orgs_are_listed_by_page,
    keys_come_and_go,
    partners_see_their_own,
    partner_keys_are_found_by_hash,
    an_inactive_partner_gets_no_org,
    a_partner_has_as_many_orgs_as_the_operator_lets_it,
    keys_survive
);

/// Collects all pages of the list, by names.
async fn all_pages(store: &Store, narrow: [Option<&str>; 2]) -> Vec<String> {
    let narrow = narrow.map(|text| text.map(str::to_owned));
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let narrow = narrow.clone();
        let page = found(store, move |tx| orgs::page(tx, &narrow, after, 2)).await;
        names.extend(page.items.into_iter().map(|org| org.name));
        after = page.next;
        if after.is_none() {
            assert_eq!(page.total, names.len() as u64);
            return names;
        }
    }
}

async fn all_orgs_are_listed_by_page(db: &TestDb) {
    let store = db.open().await;
    let partner = partner(&store).await;
    let mut made = Vec::new();
    for (place, name) in [
        "Harbour",
        "\u{dc}berfahrt",
        "Bakery",
        "\u{fc}ber",
        "50% off",
    ]
    .into_iter()
    .enumerate()
    {
        let new = NewOrg {
            external_id: Some(format!("Crm-{place}")),
            ..NewOrg::named(name)
        };
        // Two at a time are of one moment.
        let at = later(place as u64 / 2);
        let org = done(&store, move |tx| orgs::create(tx, Some(partner), &new, at));
        made.push(org.await);
    }

    let mut newest_first = made.clone();
    newest_first.sort_by_key(|org| std::cmp::Reverse((org.created_at, org.id)));
    let names = |is_named: &dyn Fn(&str) -> bool| -> Vec<String> {
        let names = newest_first.iter().map(|org| org.name.clone());
        names.filter(|name| is_named(name)).collect()
    };

    assert_eq!(all_pages(&store, [None, None]).await, names(&|_| true));
    assert_eq!(
        all_pages(&store, [None, Some("cRM-")]).await,
        names(&|_| true)
    );
    let umlaut = |name: &str| name.to_lowercase().contains('\u{fc}');
    assert_eq!(
        all_pages(&store, [None, Some(" \u{dc}BER ")]).await,
        names(&umlaut)
    );
    let id = made[0].id.to_string();
    for (narrow, expected) in [
        ([Some("Bakery"), None], "Bakery"),
        ([Some("Bakery"), Some("ake")], "Bakery"),
        ([None, Some("%")], "50% off"),
        ([None, Some(&*id)], "Harbour"),
    ] {
        assert_eq!(all_pages(&store, narrow).await, [expected], "{narrow:?}");
    }
    assert_eq!(all_pages(&store, [Some("bakery"), None]).await, [""; 0]);
}

async fn an_org_is_born(db: &TestDb) {
    let store = db.open().await;
    let (first, second) = (org(&store, "First").await, org(&store, "Second").await);
    assert_ne!(first.widget_token, second.widget_token);
    assert_eq!(
        found(&store, move |tx| orgs::by_id(tx, first.id)).await,
        first
    );

    let listed = found(&store, move |tx| orgs::page(tx, &[None, None], None, 10)).await;
    let mut names: Vec<_> = listed.items.iter().map(|org| &*org.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["First", "Second"]);

    let named = store
        .write(move |tx| orgs::create(tx, None, &NewOrg::named("a\0b"), NOW))
        .await;
    assert!(
        matches!(named, Ok(_) | Err(Error::Wrong(Wrong::Text))),
        "PostgreSQL has no NUL"
    );

    let absent = store
        .write(|tx| orgs::rotate_widget_token(tx, uuid::Uuid::nil(), NOW))
        .await;
    assert!(matches!(
        absent,
        Err(Error::Wrong(Wrong::Absent(Kind::Org)))
    ));
}

async fn keys_come_and_go(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let scopes = ["calls:read", "phone:write"];
    let (key, _) = token::issue(&store, ours, NewOrgKey::lasting("Backend", &scopes), NOW)
        .await
        .expect("a key");
    assert_eq!(key.scopes, ["calls:read", "phone:write"]);
    assert_eq!(
        found(&store, move |tx| org_keys::by_id(tx, ours, key.id)).await,
        Some(key.clone())
    );
    assert_eq!(
        found(&store, move |tx| org_keys::by_id(tx, theirs, key.id)).await,
        None
    );
    assert_eq!(
        found(&store, move |tx| org_keys::list(tx, ours)).await,
        std::slice::from_ref(&key)
    );

    let foreign = store
        .write(move |tx| org_keys::revoke(tx, theirs, key.id, NOW))
        .await;
    assert!(matches!(
        foreign,
        Err(Error::Wrong(Wrong::Absent(Kind::OrgKey)))
    ));

    done(&store, move |tx| org_keys::revoke(tx, ours, key.id, NOW)).await;
    assert_eq!(
        found(&store, move |tx| org_keys::by_id(tx, ours, key.id)).await,
        None
    );
    let orphan = token::issue(&store, uuid::Uuid::nil(), NewOrgKey::lasting("x", &[]), NOW).await;
    assert!(matches!(
        orphan,
        Err(Error::Wrong(Wrong::Absent(Kind::Org)))
    ));
}

async fn partners_see_their_own(db: &TestDb) {
    let store = db.open().await;
    let partner = |name: &str| NewPartner {
        name: name.to_owned(),
        ..NewPartner::default()
    };
    let ours = done(&store, move |tx| {
        partners::create(tx, &partner("Ours"), NOW)
    })
    .await
    .id;
    let theirs = done(&store, move |tx| {
        partners::create(tx, &partner("Theirs"), NOW)
    })
    .await
    .id;
    let new = |external: &str| NewOrg {
        external_id: Some(external.to_owned()),
        ..NewOrg::named("Org")
    };

    for (at, external) in (0..).zip(["a", "b", "c"]) {
        done(&store, move |tx| {
            orgs::create(tx, Some(ours), &new(external), later(at))
        })
        .await;
    }

    done(&store, move |tx| {
        orgs::create(tx, Some(theirs), &new("a"), NOW)
    })
    .await;
    done(&store, move |tx| {
        orgs::create(tx, Some(theirs), &NewOrg::named("No id"), NOW)
    })
    .await;
    done(&store, move |tx| {
        orgs::create(tx, Some(theirs), &NewOrg::named("No id either"), NOW)
    })
    .await;

    let again = store
        .write(move |tx| orgs::create(tx, Some(ours), &new("a"), NOW))
        .await;
    assert!(matches!(again, Err(Error::Conflict(Conflict::ExternalIdTaken(id))) if id == "a"));

    let (page, total) = found(&store, move |tx| {
        orgs::of_partner(tx, ours, &Default::default(), 2, 1)
    })
    .await;
    assert_eq!(
        page.iter()
            .filter_map(|org| org.external_id.as_deref())
            .collect::<Vec<_>>(),
        ["b", "a"]
    );
    assert_eq!(total, 3);

    let found = found(&store, move |tx| orgs::by_external_id(tx, theirs, "a")).await;
    assert_eq!(found.partner_id, Some(theirs));
    assert!(
        store
            .read_inline(move |tx| orgs::by_external_id(tx, theirs, "b"))
            .await
            .is_err()
    );
}

async fn partner_keys_are_found_by_hash(db: &TestDb) {
    let store = db.open().await;
    let networks: Vec<IpNet> = vec!["192.0.2.0/24".parse().expect("a network")];
    let new = NewPartner {
        name: "P".to_owned(),
        allowed_networks: Some(networks.clone()),
        ..NewPartner::default()
    };
    let partner = done(&store, move |tx| partners::create(tx, &new, NOW)).await;
    assert_eq!(partner.allowed_networks, Some(networks));

    let key = done(&store, move |tx| {
        partners::add_key(tx, partner.id, "First", [7; 32], NOW)
    })
    .await;
    let holder = found(&store, move |tx| partners::by_key(tx, [7; 32])).await;
    assert_eq!(holder, Some((key.clone(), partner.clone())));
    assert_eq!(
        found(&store, move |tx| partners::by_key(tx, [8; 32])).await,
        None
    );

    for networks in [Some(Vec::new()), None] {
        let kept = networks.clone();
        let allowed = done(&store, move |tx| {
            partners::allow(tx, partner.id, networks.as_deref(), NOW)
        });
        assert_eq!(allowed.await.allowed_networks, kept);
    }

    done(&store, move |tx| {
        partners::set_active(tx, partner.id, false, NOW)
    })
    .await;
    let (_, partner_of_key) = found(&store, move |tx| partners::by_key(tx, [7; 32]))
        .await
        .expect("a partner");
    assert!(!partner_of_key.active);

    done(&store, move |tx| {
        partners::revoke_key(tx, partner.id, key.id, NOW)
    })
    .await;
    assert_eq!(
        found(&store, move |tx| partners::by_key(tx, [7; 32])).await,
        None
    );
}

/// Deactivated while a request that makes an org runs, the partner gets none, or one that is suspended.
async fn an_inactive_partner_gets_no_org(db: &TestDb) {
    let store = db.open().await;
    let partner = test_db::partner(&store).await;
    let new = |name: &str| NewOrg {
        external_id: Some(name.to_owned()),
        ..NewOrg::named(name)
    };
    let deactivate = move |tx: &mut Tx| partners::set_active(tx, partner, false, NOW);

    if db.is_postgres() {
        let (begun, wait) = mpsc::channel();
        let (done, over) = mpsc::channel();
        let before = new("Before");
        let making = store.clone();
        let making = tokio::spawn(async move {
            let made = making.write(move |tx| {
                let made = orgs::create(tx, Some(partner), &before, NOW)?;
                begun.send(()).expect("the test waits");
                // Passes only where the deactivation doesn't wait for this transaction.
                let _ = over.recv_timeout(Duration::from_millis(500));
                Ok(made)
            });
            made.await.expect("an org").id
        });
        tokio::task::spawn_blocking(move || wait.recv())
            .await
            .expect("no panic")
            .expect("the org is made");
        store.write(deactivate).await.expect("deactivated");
        let _ = done.send(());

        let org = making.await.expect("no panic");
        let made = found(&store, move |tx| orgs::by_id(tx, org)).await;
        assert!(made.partner_inactive_at.is_some(), "it is suspended");
    } else {
        store.write(deactivate).await.expect("deactivated");
    }

    let after = new("After");
    let made = store.write(move |tx| orgs::create(tx, Some(partner), &after, NOW));
    let refused = made.await;
    assert!(
        matches!(refused, Err(Error::Conflict(Conflict::PartnerInactive))),
        "{refused:?}"
    );
}

async fn keys_survive(db: &TestDb) {
    let first = db.open().await;
    let sealed = first.keyring().seal(b"whose", b"secret");
    first.close().await;
    let second = db.open().await;
    let (first, second) = (first.keyring(), second.keyring());
    assert_eq!(first.signing_key().id(), second.signing_key().id());
    assert_eq!(first.signing_key().pkcs8(), second.signing_key().pkcs8());
    assert_eq!(first.derive("nonces"), second.derive("nonces"));
    assert_ne!(second.derive("nonces"), second.derive("tags"));
    assert_eq!(second.open(b"whose", &sealed).expect("it opens"), b"secret");
    assert!(second.open(b"another's", &sealed).is_err());

    let mut altered = sealed;
    *altered.last_mut().expect("octets") ^= 1;
    assert!(second.open(b"whose", &altered).is_err());
}

async fn a_partner_has_as_many_orgs_as_the_operator_lets_it(db: &TestDb) {
    let store = db.open().await;
    let (partner, other) = (partner(&store).await, partner(&store).await);
    assert_eq!(
        found(&store, move |tx| partners::most_orgs(tx, partner)).await,
        1_000
    );
    done(&store, move |tx| partners::limit_orgs(tx, partner, Some(2))).await;
    let first = of_partner(&store, partner, "first").await.id;
    of_partner(&store, partner, "second").await;

    let third = move |tx: &mut Tx| orgs::create(tx, Some(partner), &NewOrg::named("Third"), NOW);
    let is_refused =
        |refused: Error| matches!(refused, Error::Conflict(Conflict::TooManyOrgs { most: 2 }));
    assert!(store.write(third).await.is_err_and(is_refused));
    of_partner(&store, other, "theirs").await;

    // One that was deleted makes room, and can't come back beyond the bound.
    done(&store, move |tx| {
        deleted_orgs::delete(tx, first, Purge::Later, NOW)
    })
    .await;
    done(&store, third).await;
    let restored = deleted_orgs::restore(&store, first, NOW).await;
    assert!(restored.is_err_and(is_refused));
    done(&store, move |tx| partners::limit_orgs(tx, partner, None)).await;
    let restored = deleted_orgs::restore(&store, first, NOW).await;
    assert_eq!(restored.expect("there is room").id, first);
}
