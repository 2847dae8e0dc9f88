//! Contacts are identified by the org's own id, or by their addresses.

use std::collections::HashSet;

use trunkline_store::{
    Conflict, Contact, ContactDetails, Error, LimitedBy, OrgLimit, Store, erasures, of_contact,
    org_limits,
};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, done, found, later, number, org};

crate::on_both!(
    details_are_kept_as_given,
    addresses_find_the_oldest,
    many_at_once_make_one_contact,
    contacts_are_searched_by_each_detail,
    an_org_has_so_many_contacts
);

fn reached(email: Option<&str>, phone: Option<&str>) -> ContactDetails {
    let given = |text: Option<&str>| text.map(|text| Some(text.to_owned()));
    ContactDetails {
        email: given(email),
        phone: given(phone),
        ..ContactDetails::default()
    }
}

async fn details_are_kept_as_given(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let map = |text: &str| serde_json::from_str(text).expect("an object");
    let details = ContactDetails {
        name: Some(Some("Änn".to_owned())),
        avatar_url: Some(Some("https://a.example".to_owned())),
        language: Some(Some("ckb".to_owned())),
        chat_context: Some(Some("a\nb".to_owned())),
        custom_data: Some(Some(map(r#"{"a":{"b":[1,null,"\u0000"]}}"#))),
        mcp_access: Some(Some(map(r#"{"server_ids":[]}"#))),
        http_action_overrides: Some(Some(map(r#"{"headers":{"X":"1"}}"#))),
        ..reached(Some("Ann@Example.com"), Some("+44 20 7183 8750"))
    };

    let made = store
        .contacts()
        .identify_by_external_id(org, "x", &details, NOW)
        .await
        .expect("a contact");
    let read = store
        .contacts()
        .by_id(org, made.id)
        .await
        .expect("a contact");
    assert_eq!(read, made);

    let expected = Contact {
        id: made.id,
        org_id: org,
        external_id: Some("x".to_owned()),
        email: details.email.clone().flatten(),
        phone: details.phone.clone().flatten(),
        name: details.name.clone().flatten(),
        avatar_url: details.avatar_url.clone().flatten(),
        language: details.language.clone().flatten(),
        chat_context: details.chat_context.clone().flatten(),
        custom_data: details.custom_data.clone().flatten(),
        mcp_access: details.mcp_access.clone().flatten(),
        http_action_overrides: details.http_action_overrides.clone().flatten(),
        created_at: NOW,
        updated_at: NOW,
    };
    assert_eq!(read, expected);

    let again = store
        .contacts()
        .identify_by_external_id(org, "x", &details, later(5))
        .await
        .expect("a contact");
    assert_eq!(again, made, "nothing changed");
}

async fn addresses_find_the_oldest(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let identify = async |details: ContactDetails, at: u64| {
        let contact = store
            .contacts()
            .identify_by_addresses(org, &details, later(at))
            .await;
        contact.expect("a contact").id
    };
    let ann = identify(reached(Some("ann@example.com"), Some("+1 202 555 0100")), 0).await;
    let bob = identify(reached(Some("bob@example.com"), Some("+12025550100")), 1).await;
    assert_ne!(ann, bob);

    // An import could leave two contacts with one address. The older one matches.
    db.execute(
        "UPDATE contacts SET email_folded = 'ann@example.com' WHERE email = 'bob@example.com'",
    )
    .await;
    for (name, details, expected) in [
        ("e-mail", reached(Some("ANN@example.com"), None), ann),
        ("phone", reached(None, Some("tel:+12025550100")), ann),
    ] {
        assert_eq!(identify(details, 2).await, expected, "{name}");
    }
}

async fn many_at_once_make_one_contact(db: &TestDb) {
    let stores = [db.open().await, db.open().await];
    let org = org(&stores[0], "Org").await.id;

    for turn in 0..3 {
        let mut tasks = tokio::task::JoinSet::new();
        for at in 0..16 {
            let store = stores[at % 2].clone();
            let phone = format!("+1202555010{turn}");
            tasks.spawn(async move {
                let contacts = store.contacts();
                let contact = match turn {
                    0 => {
                        let details = reached(Some("ann@example.com"), Some(&phone));
                        contacts.identify_by_addresses(org, &details, NOW).await
                    }
                    1 => {
                        let details = reached(None, Some(&phone));
                        contacts.identify_by_addresses(org, &details, NOW).await
                    }
                    _ => {
                        let details = reached(None, Some(&phone));
                        contacts
                            .identify_by_external_id(org, "x", &details, NOW)
                            .await
                    }
                };
                contact.expect("a contact").id
            });
        }
        let ids: HashSet<_> = tasks.join_all().await.into_iter().collect();
        assert_eq!(ids.len(), 1, "{turn}");
    }
}

/// Returns the number of the org's contacts, as it is counted for their limit.
async fn contacts_are_searched_by_each_detail(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let contacts = store.contacts();
    let (ann, phone) = ("Ann@example.com", "+44 20 7183 8750");
    let made = [
        ("a", Some(ann), None),
        ("b", Some("bob@example.com"), Some(phone)),
        ("c", Some("ANN@example.com"), Some(phone)),
    ];
    for (place, (external_id, email, phone)) in (0..).zip(made) {
        let details = reached(email, phone);
        for org in [ours, theirs] {
            let made = contacts.identify_by_external_id(org, external_id, &details, later(place));
            made.await.expect("a contact");
        }
    }

    let text = |text: &str| Some(text.to_owned());
    let cases = [
        ("all", [None, None, None], "cba"),
        ("external id", [text("b"), None, None], "b"),
        ("e-mail", [None, text(ann), None], "ca"),
        ("phone", [None, None, text("+442071838750")], "cb"),
        ("e-mail and phone", [None, text(ann), text(phone)], "c"),
        ("all three", [text("b"), text(ann), text(phone)], ""),
    ];
    for (name, search, expected) in cases {
        let mut listed = String::new();
        let mut after = None;
        loop {
            let search = search.clone();
            let page = found(&store, move |tx| {
                of_contact::page(tx, ours, &search, after, 2)
            })
            .await;
            assert_eq!(page.total, expected.len() as u64, "{name}");
            listed.extend(page.items.into_iter().filter_map(|it| it.external_id));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(listed, expected, "{name}");
    }
}

pub(crate) async fn counted(store: &Store, org: Uuid) -> u64 {
    let counts = found(store, move |tx| org_limits::counts(tx, org, NOW)).await;
    let is_contacts = |count: &&(OrgLimit, u64)| count.0 == OrgLimit::Contacts;
    counts.iter().find(is_contacts).expect("it is counted").1
}

async fn an_org_has_so_many_contacts(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let contacts = store.contacts();
    let limit = async |most: Option<u32>| {
        let defaults = trunkline_store::DefaultLimits {
            registrations: 1,
            requests_per_minute: 1,
            streaming_requests_per_minute: 1,
        };
        let set = [(OrgLimit::Contacts, most)];
        let by = LimitedBy::Operator;
        done(&store, move |tx| {
            org_limits::limit(tx, ours, &set, by, defaults, NOW)
        })
        .await;
    };

    let identify = async |external_id: &str, name: &str| {
        let details = ContactDetails {
            name: Some(Some(name.to_owned())),
            ..ContactDetails::default()
        };
        let identified = contacts.identify_by_external_id(ours, external_id, &details, later(1));
        identified.await
    };
    assert_eq!(counted(&store, ours).await, 0);
    let own = identify("own", "Ann").await.expect("a contact").id;

    // Of callers of one look-up some get a contact; another org's all do.
    limit(Some(3)).await;
    let callers: Vec<_> = [ours, ours, theirs, ours, ours, theirs]
        .into_iter()
        .zip(["1", "2", "2", "3", "1", "4"])
        .map(|(org, last)| (org, number(&format!("+493000000{last}"))))
        .collect();

    for _ in 0..2 {
        let made = contacts.find_or_create_by_phone_many(&callers, NOW).await;
        let made = made.expect("contacts");
        let is_made: Vec<_> = made.iter().map(Option::is_some).collect();
        assert_eq!(is_made, [true, true, true, false, true, true]);
        assert_eq!(made[0], made[4]);
    }
    assert_eq!(counted(&store, ours).await, 3);
    assert_eq!(counted(&store, theirs).await, 2);

    // Those that exist can be changed.
    let refused = identify("new", "Bob").await;
    let Err(Error::Conflict(Conflict::AtLimit { limit: kind, most })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((kind, most), (OrgLimit::Contacts, 3));
    assert_eq!(identify("own", "Zoe").await.expect("changed").id, own);

    // Room is made by a deletion, and by a higher limit.
    done(&store, move |tx| erasures::request(tx, ours, own, later(2))).await;
    assert_eq!(counted(&store, ours).await, 2);
    identify("new", "Bob").await.expect("a contact");
    assert!(identify("newer", "Cyd").await.is_err());
    limit(None).await;
    identify("newer", "Cyd").await.expect("a contact");
    assert_eq!(counted(&store, ours).await, 4);
    assert_eq!(counted(&store, theirs).await, 2);
}
