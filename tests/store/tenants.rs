//! Orgs, their keys, partners: what one tenant has, another doesn't see.

use ipnet::IpNet;
use trunkline::api::token;
use trunkline_store::{Error, Kind, NewOrg, NewOrgKey, NewPartner, Refused, Wrong};

use crate::bed::{Bed, NOW, later, org};

crate::on_both!(
    an_org_is_born,
    keys_come_and_go,
    partners_see_their_own,
    partner_keys_are_found_by_hash,
    keys_survive
);

async fn an_org_is_born(bed: &Bed) {
    let store = bed.open().await;
    let (first, second) = (org(&store, "First").await, org(&store, "Second").await);
    assert_ne!(first.widget_token, second.widget_token);
    assert_eq!(store.orgs().by_id(first.id).await.expect("an org"), first);
    let listed = store.orgs().list().await.expect("orgs");
    assert_eq!(
        listed
            .iter()
            .map(|org| &*org.name)
            .collect::<Vec<_>>()
            .len(),
        2
    );

    store
        .orgs()
        .limit_calls(first.id, Some(7), NOW)
        .await
        .expect("a limit");
    assert_eq!(
        store
            .orgs()
            .by_id(first.id)
            .await
            .expect("an org")
            .max_concurrent_calls,
        Some(7)
    );
    let named = store.orgs().create(None, &NewOrg::named("a\0b"), NOW).await;
    assert!(
        matches!(named, Ok(_) | Err(Error::Wrong(Wrong::Text))),
        "PostgreSQL has no NUL"
    );
    let absent = store.orgs().limit_calls(uuid::Uuid::nil(), None, NOW).await;
    assert!(matches!(
        absent,
        Err(Error::Wrong(Wrong::Absent(Kind::Org)))
    ));
}

async fn keys_come_and_go(bed: &Bed) {
    let store = bed.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let scopes = ["calls:read", "phone:write"];
    let (key, _) = token::issue(&store, ours, NewOrgKey::lasting("Backend", &scopes), NOW)
        .await
        .expect("a key");
    assert_eq!(key.scopes, ["calls:read", "phone:write"]);
    assert_eq!(
        store.org_keys().by_id(ours, key.id).await.expect("a look"),
        Some(key.clone())
    );
    assert_eq!(
        store
            .org_keys()
            .by_id(theirs, key.id)
            .await
            .expect("a look"),
        None
    );
    assert_eq!(
        store.org_keys().list(ours).await.expect("keys"),
        std::slice::from_ref(&key)
    );

    let foreign = store.org_keys().revoke(theirs, key.id, NOW).await;
    assert!(matches!(
        foreign,
        Err(Error::Wrong(Wrong::Absent(Kind::OrgKey)))
    ));
    store
        .org_keys()
        .revoke(ours, key.id, NOW)
        .await
        .expect("a revocation");
    assert_eq!(
        store.org_keys().by_id(ours, key.id).await.expect("a look"),
        None
    );
    let orphan = token::issue(&store, uuid::Uuid::nil(), NewOrgKey::lasting("x", &[]), NOW).await;
    assert!(matches!(
        orphan,
        Err(Error::Wrong(Wrong::Absent(Kind::Org)))
    ));
}

async fn partners_see_their_own(bed: &Bed) {
    let store = bed.open().await;
    let partner = |name: &str| NewPartner {
        name: name.to_owned(),
        ..NewPartner::default()
    };
    let ours = store
        .partners()
        .create(&partner("Ours"), NOW)
        .await
        .expect("a partner")
        .id;
    let theirs = store
        .partners()
        .create(&partner("Theirs"), NOW)
        .await
        .expect("a partner")
        .id;
    let new = |external: &str| NewOrg {
        external_id: Some(external.to_owned()),
        ..NewOrg::named("Org")
    };
    for (at, external) in (0..).zip(["a", "b", "c"]) {
        store
            .orgs()
            .create(Some(ours), &new(external), later(at))
            .await
            .expect("an org");
    }
    store
        .orgs()
        .create(Some(theirs), &new("a"), NOW)
        .await
        .expect("another partner may use the id");
    store
        .orgs()
        .create(Some(theirs), &NewOrg::named("No id"), NOW)
        .await
        .expect("an org");
    store
        .orgs()
        .create(Some(theirs), &NewOrg::named("No id either"), NOW)
        .await
        .expect("an org");

    let again = store.orgs().create(Some(ours), &new("a"), NOW).await;
    assert!(matches!(again, Err(Error::Refused(Refused::ExternalIdTaken(id))) if id == "a"));
    let (page, total) = store
        .orgs()
        .of_partner(ours, &Default::default(), 2, 1)
        .await
        .expect("a page");
    assert_eq!(
        page.iter()
            .filter_map(|org| org.external_id.as_deref())
            .collect::<Vec<_>>(),
        ["b", "a"]
    );
    assert_eq!(total, 3);
    let found = store
        .orgs()
        .by_external_id(theirs, "a")
        .await
        .expect("their org");
    assert_eq!(found.partner_id, Some(theirs));
    assert!(store.orgs().by_external_id(theirs, "b").await.is_err());
}

async fn partner_keys_are_found_by_hash(bed: &Bed) {
    let store = bed.open().await;
    let networks: Vec<IpNet> = vec!["192.0.2.0/24".parse().expect("a network")];
    let new = NewPartner {
        name: "P".to_owned(),
        allowed_networks: Some(networks.clone()),
        ..NewPartner::default()
    };
    let partner = store.partners().create(&new, NOW).await.expect("a partner");
    assert_eq!(partner.allowed_networks, Some(networks));
    let key = store
        .partners()
        .add_key(partner.id, "First", [7; 32], NOW)
        .await
        .expect("a key");
    let found = store.partners().by_key([7; 32]).await.expect("a look");
    assert_eq!(found, Some((key.clone(), partner.clone())));
    assert_eq!(
        store.partners().by_key([8; 32]).await.expect("a look"),
        None
    );
    for networks in [Some(&[][..]), None] {
        let allow = store.partners().allow(partner.id, networks, NOW).await;
        let kept = networks.map(<[IpNet]>::to_vec);
        assert_eq!(allow.expect("a partner").allowed_networks, kept);
    }

    store
        .partners()
        .set_active(partner.id, false, NOW)
        .await
        .expect("a partner");
    let (_, found) = store
        .partners()
        .by_key([7; 32])
        .await
        .expect("a look")
        .expect("a partner");
    assert!(!found.active);
    store
        .partners()
        .revoke_key(partner.id, key.id, NOW)
        .await
        .expect("a revocation");
    assert_eq!(
        store.partners().by_key([7; 32]).await.expect("a look"),
        None
    );
}

async fn keys_survive(bed: &Bed) {
    let first = bed.open().await;
    let sealed = first.keyring().seal(b"whose", b"secret");
    first.close().await;
    let second = bed.open().await;
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
