//! The directory shows what the store holds, and follows changes by any writer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use trunkline::directory::{Defaults, Directory};
use trunkline_model::settings::Runtime;
use trunkline_model::view::{Source, View};
use trunkline_store::{
    AgentChange, DefaultLimits, InboundTrunkChange, LimitedBy, OrgLimit, Store, agents,
    dedications, feed, inbound_trunks, numbers, org_limits,
};

use crate::test_db::{NOW, TestDb, agent, done, later, new_agent, number, org};

crate::on_both!(
    the_view_shows_an_org,
    every_edit_is_followed,
    many_edits_at_once_are_followed,
    a_start_finds_what_was_there,
    the_view_stays_while_the_database_is_away,
);

const DEFAULTS: DefaultLimits = DefaultLimits {
    registrations: 10,
    requests_per_minute: 100,
    streaming_requests_per_minute: 1_000,
};

async fn directory(store: &Store) -> Arc<Directory> {
    let defaults = Defaults {
        realm: "trunkline".to_owned(),
        runtime: Runtime::Echo,
        addresses: Default::default(),
    };
    Directory::start(store.clone(), defaults, || NOW)
        .await
        .expect("a directory")
}

/// Waits until the view matches. The bound only ends a test that would hang.
async fn until(directory: &Directory, what: &str, so: impl Fn(&View) -> bool) {
    let seen = tokio::time::timeout(Duration::from_secs(60), async {
        while !so(&directory.load()) {
            tokio::task::yield_now().await;
        }
    });
    seen.await.unwrap_or_else(|_| panic!("never seen: {what}"));
}

async fn the_view_shows_an_org(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let first = agent(&store, org, "Anna").await.id;
    let runtime = Runtime::sip("sip:b@h".into());
    let mut new = new_agent("Bea");
    (new.runtime, new.max_concurrent_calls) = (Some(runtime.clone()), Some(2));
    let second = done(&store, move |tx| agents::create(tx, org, &new, later(1)))
        .await
        .id;
    let [one, two, raw] = ["+4930000001", "+4930000002", "+4930000003"].map(number);
    let one_id = done(&store, move |tx| numbers::create(tx, org, one, true, NOW))
        .await
        .id;
    let two_id = done(&store, move |tx| numbers::create(tx, org, two, true, NOW))
        .await
        .id;
    done(&store, move |tx| numbers::create(tx, org, raw, false, NOW)).await;
    done(&store, move |tx| {
        numbers::assign(tx, org, second, &[one_id], NOW)
    })
    .await;
    let new = InboundTrunkChange {
        numbers: Some(vec![two, one]),
        krisp_enabled: Some(true),
        allowed_addresses: Some(vec!["198.51.100.0/24".parse().expect("a network")]),
        default_country: Some(Some("DE".parse().expect("a country"))),
        ..InboundTrunkChange::default()
    };
    let trunk = done(&store, move |tx| inbound_trunks::create(tx, org, &new, NOW)).await;
    done(&store, move |tx| numbers::unverify(tx, org, two_id, NOW)).await;
    done(&store, move |tx| {
        dedications::create(
            tx,
            org,
            "192.0.2.0/24".parse().expect("a network"),
            None,
            NOW,
        )
    })
    .await;
    let limits = [(OrgLimit::Calls, Some(9))];
    done(&store, move |tx| {
        org_limits::limit(tx, org, &limits, LimitedBy::Operator, DEFAULTS, NOW)
    })
    .await;

    let view = directory(&store).await.load();
    let shown = view.org(org).expect("the org");
    let routing = &shown.routing;
    assert_eq!(
        routing
            .agents
            .iter()
            .map(|agent| agent.id)
            .collect::<Vec<_>>(),
        [first, second]
    );
    assert_eq!(routing.agents[1].max_concurrent_calls, Some(2));
    assert_eq!(routing.held.get(&one), Some(&second));
    assert_eq!(routing.numbers.iter().collect::<Vec<_>>(), [&one]);
    assert_eq!(routing.max_concurrent_calls, Some(9));
    assert_eq!(
        routing.trunk.as_ref().expect("a trunk").numbers,
        [one],
        "what isn't verified is passed over"
    );
    assert_eq!(
        (&*shown.runtimes[&first], &*shown.runtimes[&second]),
        (&Runtime::Echo, &runtime)
    );

    let shown = shown.trunk.as_ref().expect("a trunk");
    assert!(shown.krisp_enabled && shown.id == trunk.id && *shown.username == trunk.username);
    let login = view.login(trunk.username.as_bytes()).expect("a login");
    assert_eq!(
        (login.org, login.trunk, login.expires_at),
        (org, trunk.id, None)
    );

    let source = |address: &str| view.by_source(address.parse::<IpAddr>().expect("an address"));
    assert_eq!(source("192.0.2.1"), Source::Dedicated(org));
    assert_eq!(
        source("198.51.100.1"),
        Source::Allowed([org].into_iter().collect())
    );
    assert_eq!(source("203.0.113.1"), Source::Unknown);
}

async fn every_edit_is_followed(db: &TestDb) {
    let (ours, elsewhere) = (db.open().await, db.open().await);
    let directory = directory(&ours).await;
    let org = org(&elsewhere, "Org").await.id;
    until(&directory, "an org", |view| view.org(org).is_some()).await;

    let agent = agent(&ours, org, "Anna").await.id;
    until(&directory, "an agent", |view| {
        view.orgs[&org].routing.agent(agent).is_some()
    })
    .await;

    let disabled = AgentChange {
        enabled: Some(false),
        ..AgentChange::default()
    };
    elsewhere
        .write(move |tx| agents::update(tx, org, agent, &disabled, NOW))
        .await
        .expect("an agent");
    until(&directory, "a change", |view| {
        view.orgs[&org]
            .routing
            .agents
            .iter()
            .all(|agent| !agent.enabled)
    })
    .await;

    elsewhere
        .write(move |tx| numbers::create(tx, org, number("+4930000001"), true, NOW))
        .await
        .expect("a number");

    let new = InboundTrunkChange::default();
    let before = elsewhere
        .write(move |tx| inbound_trunks::create(tx, org, &new, NOW))
        .await
        .expect("a trunk")
        .username;
    until(&directory, "a login", |view| {
        view.login(before.as_bytes()).is_some()
    })
    .await;

    let after = ours
        .write(move |tx| inbound_trunks::rotate_credentials(tx, org, NOW))
        .await
        .expect("a trunk")
        .username;
    until(&directory, "new credentials", |view| {
        view.login(after.as_bytes()).is_some()
    })
    .await;
    let view = directory.load();

    assert_eq!(
        view.login(after.as_bytes()).expect("a login").expires_at,
        None
    );
    assert_eq!(
        view.login(before.as_bytes()).expect("a login").expires_at,
        Some(later(24 * 3600))
    );

    elsewhere
        .write(move |tx| inbound_trunks::delete(tx, org, NOW))
        .await
        .expect("a deletion");
    until(&directory, "no login", |view| view.by_username.is_empty()).await;

    elsewhere
        .write(move |tx| agents::delete(tx, org, agent, NOW))
        .await
        .expect("a deletion");
    until(&directory, "no agent", |view| {
        view.orgs[&org].routing.agents.is_empty()
    })
    .await;

    assert!(directory.is_current());
}

async fn many_edits_at_once_are_followed(db: &TestDb) {
    let (ours, elsewhere) = (db.open().await, db.open().await);
    let directory = directory(&ours).await;
    for at in 0..120 {
        org(&elsewhere, &format!("Org {at}")).await;
    }
    until(&directory, "120 orgs", |view| view.orgs.len() == 120).await;
}

async fn a_start_finds_what_was_there(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    done(&store, move |tx| feed::prune(tx, later(48 * 3600))).await;
    let directory = directory(&store).await;
    assert!(directory.load().org(org).is_some());
    let agent = agent(&store, org, "Anna").await.id;
    until(&directory, "an agent", |view| {
        view.orgs[&org].routing.agent(agent).is_some()
    })
    .await;
}

async fn the_view_stays_while_the_database_is_away(db: &TestDb) {
    let store = db.open().await;
    let org = org(&store, "Org").await.id;
    let directory = directory(&store).await;
    assert!(directory.is_current());
    store.close().await;
    let noticed = tokio::time::timeout(Duration::from_secs(60), async {
        while directory.is_current() {
            tokio::task::yield_now().await;
        }
    });
    noticed.await.expect("it notices");
    assert!(directory.load().org(org).is_some());
}
