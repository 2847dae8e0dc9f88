//! Contacts are identified by the org's own id, or by their addresses.

use std::collections::HashSet;

use trunkline_store::{Contact, ContactDetails};

use crate::test_db::{NOW, TestDb, later, org};

crate::on_both!(
    details_are_kept_as_given,
    addresses_find_the_oldest,
    many_at_once_make_one_contact
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
