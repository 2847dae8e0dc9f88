//! Outbound trunks, transfer destinations, and an agent's use of both.

use trunkline_model::auth_realms::KnownRealm;
use trunkline_model::settings::{TransferTarget, TransferWay, Via};
use trunkline_sip::flow::Transport;
use trunkline_store::{
    Change, Conflict, DestinationChange, Error, Kind, NewDestination, NewOutboundTrunk,
    OutboundTrunkChange, Password, Wrong, agent_config, destinations, feed, outbound_trunks,
};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, agent, done, found, later, number, org};

crate::on_both!(
    an_outbound_trunk_is_kept_sealed,
    a_trunk_that_is_used_stays,
    destinations_have_names_of_their_own,
    an_agent_has_what_is_assigned,
    every_edit_is_told,
    realms_are_learnt,
);

pub(crate) fn carrier() -> NewOutboundTrunk {
    NewOutboundTrunk {
        name: "Carrier".to_owned(),
        peer: Some(("sip.carrier.example".to_owned(), 5080)),
        transport: Transport::Tls,
        credentials: Some(("acme".to_owned(), Password::new("s3cret"))),
        caller_number: number("+4930000001"),
        from_host: Some("acme.example".to_owned()),
        p_asserted_identity: true,
        register: true,
        max_concurrent_calls: Some(7),
        transfer_way: TransferWay::Auto,
        calls_per_second: Some(2),
        auth_realm: None,
        digest_require_qop: true,
        user_phone: true,
    }
}

fn registered() -> NewOutboundTrunk {
    NewOutboundTrunk {
        peer: None,
        credentials: None,
        from_host: None,
        max_concurrent_calls: None,
        calls_per_second: None,
        transfer_way: TransferWay::default(),
        ..carrier()
    }
}

fn named(name: &str) -> OutboundTrunkChange {
    OutboundTrunkChange {
        name: Some(name.to_owned()),
        ..OutboundTrunkChange::default()
    }
}

pub(crate) fn desk(name: &str) -> NewDestination {
    NewDestination {
        name: name.to_owned(),
        target: TransferTarget::Sip("sip:desk@pbx.example.com".into()),
        via: Via::Trunk,
    }
}

fn is_absent<T>(result: Result<T, Error>, kind: Kind) -> bool {
    matches!(result, Err(Error::Wrong(Wrong::Absent(of))) if of == kind)
}

async fn an_outbound_trunk_is_kept_sealed(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let mut made = Vec::new();
    for (second, settings) in [(0, carrier()), (1, registered())] {
        let given = settings.clone();
        let trunk = done(&store, move |tx| {
            outbound_trunks::create(tx, ours, &given, 10, later(second))
        })
        .await;
        assert_eq!(trunk.settings, settings);
        assert_eq!(
            found(&store, move |tx| outbound_trunks::by_id(tx, ours, trunk.id)).await,
            trunk
        );
        assert!(is_absent(
            store
                .read_inline(move |tx| outbound_trunks::by_id(tx, theirs, trunk.id))
                .await,
            Kind::OutboundTrunk
        ));
        made.push(trunk);
    }
    assert!(!format!("{made:?}").contains("s3cret"));

    let first = found(&store, move |tx| {
        outbound_trunks::page(tx, ours, &Default::default(), None, 1)
    })
    .await;
    let second = found(&store, move |tx| {
        outbound_trunks::page(tx, ours, &Default::default(), first.next, 1)
    })
    .await;
    assert_eq!((first.total, second.next), (2, None));
    assert_eq!([&first.items[0], &second.items[0]], [&made[1], &made[0]]);

    let first = made[0].id;
    let renamed = done(&store, move |tx| {
        outbound_trunks::update(tx, ours, first, &named("Other"), later(9))
    })
    .await;
    assert_eq!(
        (&*renamed.settings.name, renamed.updated_at),
        ("Other", later(9))
    );
    assert_eq!(renamed.settings.credentials, made[0].settings.credentials);
    assert!(is_absent(
        store
            .write(move |tx| outbound_trunks::update(tx, theirs, first, &named("x"), NOW))
            .await,
        Kind::OutboundTrunk
    ));
}

async fn a_trunk_that_is_used_stays(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let (anna, stranger) = (
        agent(&store, ours, "Anna").await.id,
        agent(&store, theirs, "Bea").await.id,
    );
    let trunk = done(&store, move |tx| {
        outbound_trunks::create(tx, ours, &carrier(), 10, NOW)
    })
    .await;
    let foreign = done(&store, move |tx| {
        outbound_trunks::create(tx, theirs, &carrier(), 10, NOW)
    })
    .await;

    assert!(is_absent(
        store
            .write(move |tx| outbound_trunks::assign(tx, ours, stranger, Some(trunk.id), NOW))
            .await,
        Kind::Agent
    ));

    let unknown = store
        .write(move |tx| outbound_trunks::assign(tx, ours, anna, Some(foreign.id), NOW))
        .await;
    assert!(matches!(unknown, Err(Error::Wrong(Wrong::Unknown { id, .. })) if id == foreign.id));

    done(&store, move |tx| {
        outbound_trunks::assign(tx, ours, anna, Some(trunk.id), NOW)
    })
    .await;

    let refused = store
        .write(move |tx| outbound_trunks::delete(tx, ours, trunk.id, NOW))
        .await;
    let agents = vec![(anna, "Anna".to_owned())];
    assert!(
        matches!(refused, Err(Error::Conflict(Conflict::TrunkInUse { agents: used })) if used == agents)
    );

    done(&store, move |tx| {
        outbound_trunks::assign(tx, ours, anna, None, NOW)
    })
    .await;

    assert!(is_absent(
        store
            .write(move |tx| outbound_trunks::delete(tx, theirs, trunk.id, NOW))
            .await,
        Kind::OutboundTrunk
    ));

    done(&store, move |tx| {
        outbound_trunks::delete(tx, ours, trunk.id, NOW)
    })
    .await;

    assert!(is_absent(
        store
            .read_inline(move |tx| outbound_trunks::by_id(tx, ours, trunk.id))
            .await,
        Kind::OutboundTrunk
    ));
}

async fn destinations_have_names_of_their_own(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let made = done(&store, move |tx| {
        destinations::create(tx, ours, &desk("Ärzte"), NOW)
    })
    .await;

    assert_eq!(
        found(&store, move |tx| destinations::by_id(tx, ours, made.id)).await,
        made
    );
    assert!(is_absent(
        store
            .read_inline(move |tx| destinations::by_id(tx, theirs, made.id))
            .await,
        Kind::Destination
    ));

    let taken = store
        .write(move |tx| destinations::create(tx, ours, &desk("äRZTE"), NOW))
        .await;
    assert!(matches!(
        taken,
        Err(Error::Conflict(Conflict::NameTaken(_)))
    ));

    done(&store, move |tx| {
        destinations::create(tx, theirs, &desk("Ärzte"), NOW)
    })
    .await;

    let other = done(&store, move |tx| {
        destinations::create(tx, ours, &desk("Desk"), later(1))
    })
    .await;
    let change = DestinationChange {
        name: Some("ärzte".to_owned()),
        target: Some(TransferTarget::Phone(number("+4930000001"))),
        via: Some(Via::Pbx),
    };

    let same = change.clone();
    let taken = store
        .write(move |tx| destinations::update(tx, ours, other.id, &same, NOW))
        .await;
    assert!(matches!(
        taken,
        Err(Error::Conflict(Conflict::NameTaken(_)))
    ));

    let changed = done(&store, move |tx| {
        destinations::update(tx, ours, made.id, &change, later(2))
    })
    .await;

    assert_eq!(
        found(&store, move |tx| destinations::by_id(tx, ours, made.id)).await,
        changed
    );

    let page = found(&store, move |tx| {
        destinations::page(tx, ours, &Default::default(), None, 9)
    })
    .await;

    assert_eq!(page.items, [other.clone(), changed]);
    assert!(is_absent(
        store
            .write(move |tx| destinations::delete(tx, theirs, other.id, NOW))
            .await,
        Kind::Destination
    ));

    done(&store, move |tx| {
        destinations::delete(tx, ours, other.id, NOW)
    })
    .await;

    let page = found(&store, move |tx| {
        destinations::page(tx, ours, &Default::default(), None, 9)
    })
    .await;

    assert_eq!(page.total, 1);
}

async fn an_agent_has_what_is_assigned(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let anna = agent(&store, ours, "Anna").await.id;

    let first = done(&store, move |tx| {
        destinations::create(tx, ours, &desk("First"), NOW)
    })
    .await;
    let foreign = done(&store, move |tx| {
        destinations::create(tx, theirs, &desk("Foreign"), NOW)
    })
    .await;

    for _ in 0..2 {
        let assigned = store
            .write(move |tx| destinations::assign(tx, ours, anna, first.id, NOW))
            .await;
        assert_eq!(assigned.expect("assigned"), first);
    }

    let unknown = store
        .write(move |tx| destinations::assign(tx, ours, anna, foreign.id, NOW))
        .await;
    assert!(matches!(unknown, Err(Error::Wrong(Wrong::Unknown { id, .. })) if id == foreign.id));
    assert!(is_absent(
        store
            .write(move |tx| destinations::assign(tx, theirs, anna, foreign.id, NOW))
            .await,
        Kind::Agent
    ));
    assert!(is_absent(
        store
            .write(move |tx| destinations::create_for(tx, theirs, anna, &desk("x"), NOW))
            .await,
        Kind::Agent
    ));

    let second = done(&store, move |tx| {
        destinations::create_for(tx, ours, anna, &desk("Second"), later(1))
    })
    .await;

    let taken = store
        .write(move |tx| destinations::create_for(tx, ours, anna, &desk("FIRST"), NOW))
        .await;
    assert!(matches!(
        taken,
        Err(Error::Conflict(Conflict::NameTaken(_)))
    ));

    let config = found(&store, move |tx| agent_config::of_agent(tx, ours, anna)).await;
    assert_eq!(config.destinations, [second.clone(), first.clone()]);
    assert!(config.numbers.is_empty() && config.outbound_trunk.is_none());
    assert!(is_absent(
        store
            .read_inline(move |tx| agent_config::of_agent(tx, theirs, anna))
            .await,
        Kind::Agent
    ));

    let [all, both]: [[_; 2]; 2] = Default::default();
    let page = found(&store, move |tx| {
        destinations::page_of_agent(tx, ours, anna, &all, None, 1)
    })
    .await;
    assert_eq!((page.items, page.total), (vec![second.clone()], 2));
    let page = store
        .read_inline(move |tx| destinations::page_of_agent(tx, ours, anna, &both, page.next, 1))
        .await;
    assert_eq!(page.expect("a page").items, std::slice::from_ref(&first));

    done(&store, move |tx| {
        destinations::unassign(tx, ours, anna, first.id, NOW)
    })
    .await;

    let is = store
        .read_inline(move |tx| destinations::is_assigned(tx, ours, anna, first.id))
        .await;
    assert!(!is.expect("an answer"));
    assert!(is_absent(
        store
            .write(move |tx| destinations::unassign(tx, ours, anna, first.id, NOW))
            .await,
        Kind::Destination
    ));

    done(&store, move |tx| {
        destinations::delete(tx, ours, second.id, NOW)
    })
    .await;
    let config = found(&store, move |tx| agent_config::of_agent(tx, ours, anna)).await;
    assert_eq!(config.destinations, []);
}

/// Learned realms are edits that routing and calls must see. At most four are kept, also with two concurrent writers; forgetting them is an edit too.
async fn realms_are_learnt(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let new = NewOutboundTrunk {
        digest_require_qop: false,
        user_phone: false,
        ..carrier()
    };
    let trunk = done(&store, move |tx| {
        outbound_trunks::create(tx, ours, &new, 10, NOW)
    })
    .await
    .id;

    let seen = |realm: &str, offers_qop| KnownRealm {
        realm: realm.into(),
        offers_qop,
    };
    let learn = async |realm: &str, offers_qop| {
        let seen = seen(realm, offers_qop);
        let learnt =
            store.write(move |tx| outbound_trunks::learn_realm(tx, ours, trunk, &seen, NOW));
        learnt.await.expect("learnt");
    };
    tokio::join!(learn("a", false), learn("b", true), learn("c", true));

    let before = found(&store, feed::position).await;
    learn("b", true).await;
    learn("b", false).await;

    assert!(
        found(&store, move |tx| feed::since(tx, before))
            .await
            .changes
            .is_empty()
    );

    learn("a", true).await;
    tokio::join!(learn("d", true), learn("e", true));

    let shown = found(&store, move |tx| outbound_trunks::by_id(tx, ours, trunk)).await;
    let mut known = shown.auth_realms;
    known.sort_by(|one, other| one.realm.cmp(&other.realm));

    assert_eq!(known.len(), 4, "{known:?}");
    assert_eq!(known[..3], ["a", "b", "c"].map(|realm| seen(realm, true)));

    let forgets = OutboundTrunkChange {
        forgets_realms: true,
        ..OutboundTrunkChange::default()
    };
    let cleared = done(&store, move |tx| {
        outbound_trunks::update(tx, ours, trunk, &forgets, NOW)
    })
    .await;
    assert_eq!(cleared.auth_realms, []);

    done(&store, move |tx| {
        outbound_trunks::learn_realm(tx, ours, Uuid::nil(), &seen("a", true), NOW)
    })
    .await;
}

async fn every_edit_is_told(db: &TestDb) {
    let store = db.open().await;
    let ours = org(&store, "Ours").await.id;
    let anna = agent(&store, ours, "Anna").await.id;
    let mut seq = found(&store, feed::position).await;
    let mut told = async |edit: &str| {
        let changes = found(&store, move |tx| feed::since(tx, seq)).await;
        assert_eq!(changes.changes, [Change::Org(ours)], "{edit}");
        seq = changes.seq;
    };

    let trunk = done(&store, move |tx| {
        outbound_trunks::create(tx, ours, &carrier(), 10, NOW)
    })
    .await
    .id;

    told("a trunk is made").await;
    done(&store, move |tx| {
        outbound_trunks::update(tx, ours, trunk, &named("x"), NOW)
    })
    .await;
    told("a trunk is renamed").await;
    done(&store, move |tx| {
        outbound_trunks::assign(tx, ours, anna, Some(trunk), NOW)
    })
    .await;
    told("a trunk is assigned").await;
    done(&store, move |tx| {
        outbound_trunks::assign(tx, ours, anna, None, NOW)
    })
    .await;
    told("a trunk is taken").await;
    done(&store, move |tx| {
        outbound_trunks::delete(tx, ours, trunk, NOW)
    })
    .await;
    told("a trunk is deleted").await;

    let made = store
        .write(move |tx| destinations::create(tx, ours, &desk("a"), NOW))
        .await;
    let made: Uuid = made.expect("made").id;

    told("a destination is made").await;
    done(&store, move |tx| {
        let change = DestinationChange {
            name: Some("b".to_owned()),
            ..DestinationChange::default()
        };
        destinations::update(tx, ours, made, &change, NOW)
    })
    .await;
    told("a destination is changed").await;
    done(&store, move |tx| {
        destinations::assign(tx, ours, anna, made, NOW)
    })
    .await;
    told("a destination is assigned").await;
    done(&store, move |tx| {
        destinations::unassign(tx, ours, anna, made, NOW)
    })
    .await;
    told("a destination is taken").await;
    done(&store, move |tx| {
        destinations::create_for(tx, ours, anna, &desk("c"), NOW)
    })
    .await;
    told("a destination is made for an agent").await;
    done(&store, move |tx| destinations::delete(tx, ours, made, NOW)).await;
    told("a destination is deleted").await;
}
