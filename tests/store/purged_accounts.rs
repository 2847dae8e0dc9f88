//! Accounts of the people of a purged org.

use trunkline_store::{
    LoginLink, NewLogin, NewOrg, Purge, Store, TokenHash, deleted_orgs, logins, orgs, purge,
    sessions,
};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, done, found, later, partner};

crate::on_both!(
    an_account_goes_with_the_last_org_of_its_person,
    a_link_that_is_made_during_the_purge_of_another_org_works,
);

/// Makes two orgs of one partner, which have one account of a person together.
async fn two_orgs(store: &Store, names: [String; 2]) -> [Uuid; 2] {
    let partner = partner(store).await;
    let mut made = [Uuid::nil(); 2];
    for (made, name) in made.iter_mut().zip(names) {
        let new = NewOrg::named(&name);
        let org = done(store, move |tx| orgs::create(tx, Some(partner), &new, NOW)).await;
        *made = org.id;
    }
    made
}

/// Makes a login link; the name is that of a new account.
async fn link(store: &Store, org: Uuid, email: &str, name: &str, token: TokenHash) {
    let login = NewLogin {
        email: email.to_owned(),
        name: Some(name.to_owned()),
        roles: Vec::new(),
    };
    let link = LoginLink {
        token_hash: token,
        expires_at: later(60),
        confirm: false,
    };
    done(store, move |tx| {
        logins::create_link(tx, org, &login, &link, NOW)
    })
    .await;
}

/// Opens a session by the link, and returns its org.
async fn opened(store: &Store, link: TokenHash) -> Option<Uuid> {
    let session = link.map(|octet| !octet);
    done(store, move |tx| {
        sessions::open(tx, link, session, later(60), NOW)
    })
    .await
}

async fn delete(store: &Store, org: Uuid) {
    done(store, move |tx| {
        deleted_orgs::delete(tx, org, Purge::Now, NOW)
    })
    .await;
}

async fn purge_all(store: &Store, org: Uuid) {
    while done(store, move |tx| purge::delete_some(tx, org)).await > 0 {}
    assert!(done(store, move |tx| deleted_orgs::finish_purge(tx, org, NOW)).await);
}

async fn an_account_goes_with_the_last_org_of_its_person(db: &TestDb) {
    let store = db.open().await;
    let names = ["Ours", "Theirs"].map(str::to_owned);
    let [ours, theirs] = two_orgs(&store, names).await;
    let (ann, bob) = ("ann@example.com", "bob@example.com");
    link(&store, ours, ann, "Ann", [1; 32]).await;
    link(&store, ours, bob, "Bob", [2; 32]).await;
    link(&store, theirs, bob, "Bob", [3; 32]).await;

    delete(&store, ours).await;
    purge_all(&store, ours).await;
    assert_eq!(opened(&store, [1; 32]).await, None);
    assert_eq!(opened(&store, [3; 32]).await, Some(theirs));

    // A link names the accounts that it makes: Ann's was deleted and Bob's was kept.
    link(&store, theirs, ann, "New", [4; 32]).await;
    link(&store, theirs, bob, "New", [5; 32]).await;
    let members = found(&store, move |tx| logins::members(tx, theirs, None, 0, 10)).await;
    let mut names: Vec<_> = members
        .iter()
        .map(|member| (&*member.email, &*member.name))
        .collect();
    names.sort_unstable();
    assert_eq!(names, [(ann, "New"), (bob, "Bob")]);
}

async fn a_link_that_is_made_during_the_purge_of_another_org_works(db: &TestDb) {
    let store = db.open().await;
    for turn in 1..=20 {
        let names = [format!("Ours {turn}"), format!("Theirs {turn}")];
        let [ours, theirs] = two_orgs(&store, names).await;
        let person = format!("ann{turn}@example.com");
        link(&store, ours, &person, "Ann", [turn; 32]).await;
        delete(&store, ours).await;

        let token = [100 + turn; 32];
        tokio::join!(
            purge_all(&store, ours),
            link(&store, theirs, &person, "Ann", token)
        );
        assert_eq!(opened(&store, token).await, Some(theirs), "{turn}");
    }
}
