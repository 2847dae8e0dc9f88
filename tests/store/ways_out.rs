//! Outbound trunks, transfer destinations, and what an agent has of both.

use trunkline_model::auth_realms::KnownRealm;
use trunkline_model::settings::{TransferTarget, TransferWay, Via};
use trunkline_sip::flow::Transport;
use trunkline_store::{
    Change, DestinationChange, Error, Kind, NewDestination, NewOutboundTrunk, OutboundTrunkChange,
    Password, Refused, Wrong, feed,
};
use uuid::Uuid;

use crate::bed::{Bed, NOW, agent, later, number, org};

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

fn desk(name: &str) -> NewDestination {
    NewDestination {
        name: name.to_owned(),
        target: TransferTarget::Sip("sip:desk@pbx.example.com".into()),
        via: Via::Trunk,
    }
}

fn is_absent<T>(result: Result<T, Error>, kind: Kind) -> bool {
    matches!(result, Err(Error::Wrong(Wrong::Absent(of))) if of == kind)
}

async fn an_outbound_trunk_is_kept_sealed(bed: &Bed) {
    let store = bed.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let trunks = store.outbound_trunks();
    let mut made = Vec::new();
    for (second, settings) in [(0, carrier()), (1, registered())] {
        let trunk = trunks
            .create(ours, &settings, 10, later(second))
            .await
            .expect("a trunk");
        assert_eq!(trunk.settings, settings);
        assert_eq!(trunks.by_id(ours, trunk.id).await.expect("there"), trunk);
        assert!(is_absent(
            trunks.by_id(theirs, trunk.id).await,
            Kind::OutboundTrunk
        ));
        made.push(trunk);
    }
    assert!(!format!("{made:?}").contains("s3cret"));
    let first = trunks
        .page(ours, &Default::default(), None, 1)
        .await
        .expect("a page");
    let second = trunks
        .page(ours, &Default::default(), first.next, 1)
        .await
        .expect("a page");
    assert_eq!((first.total, second.next), (2, None));
    assert_eq!([&first.items[0], &second.items[0]], [&made[1], &made[0]]);

    let renamed = trunks
        .update(ours, made[0].id, &named("Other"), later(9))
        .await;
    let renamed = renamed.expect("a trunk");
    assert_eq!(
        (&*renamed.settings.name, renamed.updated_at),
        ("Other", later(9))
    );
    assert_eq!(renamed.settings.credentials, made[0].settings.credentials);
    assert!(is_absent(
        trunks.update(theirs, made[0].id, &named("x"), NOW).await,
        Kind::OutboundTrunk
    ));
}

async fn a_trunk_that_is_used_stays(bed: &Bed) {
    let store = bed.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let (anna, stranger) = (
        agent(&store, ours, "Anna").await.id,
        agent(&store, theirs, "Bea").await.id,
    );
    let trunks = store.outbound_trunks();
    let trunk = trunks
        .create(ours, &carrier(), 10, NOW)
        .await
        .expect("a trunk");
    let foreign = trunks
        .create(theirs, &carrier(), 10, NOW)
        .await
        .expect("a trunk");
    assert!(is_absent(
        trunks.assign(ours, stranger, Some(trunk.id), NOW).await,
        Kind::Agent
    ));
    let unknown = trunks.assign(ours, anna, Some(foreign.id), NOW).await;
    assert!(matches!(unknown, Err(Error::Wrong(Wrong::Unknown { id, .. })) if id == foreign.id));
    trunks
        .assign(ours, anna, Some(trunk.id), NOW)
        .await
        .expect("assigned");
    let refused = trunks.delete(ours, trunk.id, NOW).await;
    let agents = vec![(anna, "Anna".to_owned())];
    assert!(
        matches!(refused, Err(Error::Refused(Refused::TrunkInUse { agents: used })) if used == agents)
    );
    trunks.assign(ours, anna, None, NOW).await.expect("free");
    assert!(is_absent(
        trunks.delete(theirs, trunk.id, NOW).await,
        Kind::OutboundTrunk
    ));
    trunks.delete(ours, trunk.id, NOW).await.expect("deleted");
    assert!(is_absent(
        trunks.by_id(ours, trunk.id).await,
        Kind::OutboundTrunk
    ));
}

async fn destinations_have_names_of_their_own(bed: &Bed) {
    let store = bed.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let destinations = store.destinations();
    let made = destinations
        .create(ours, &desk("Ärzte"), NOW)
        .await
        .expect("a destination");
    assert_eq!(
        destinations.by_id(ours, made.id).await.expect("there"),
        made
    );
    assert!(is_absent(
        destinations.by_id(theirs, made.id).await,
        Kind::Destination
    ));
    let taken = destinations.create(ours, &desk("äRZTE"), NOW).await;
    assert!(matches!(taken, Err(Error::Refused(Refused::NameTaken(_)))));
    destinations
        .create(theirs, &desk("Ärzte"), NOW)
        .await
        .expect("another org's");
    let other = destinations
        .create(ours, &desk("Desk"), later(1))
        .await
        .expect("a destination");
    let change = DestinationChange {
        name: Some("ärzte".to_owned()),
        target: Some(TransferTarget::Phone(number("+4930000001"))),
        via: Some(Via::Pbx),
    };
    let taken = destinations.update(ours, other.id, &change, NOW).await;
    assert!(matches!(taken, Err(Error::Refused(Refused::NameTaken(_)))));
    let changed = destinations.update(ours, made.id, &change, later(2)).await;
    let changed = changed.expect("its own name in another case");
    assert_eq!(
        destinations.by_id(ours, made.id).await.expect("there"),
        changed
    );
    let page = destinations
        .page(ours, &Default::default(), None, 9)
        .await
        .expect("a page");
    assert_eq!(page.items, [other.clone(), changed]);
    assert!(is_absent(
        destinations.delete(theirs, other.id, NOW).await,
        Kind::Destination
    ));
    destinations
        .delete(ours, other.id, NOW)
        .await
        .expect("deleted");
    let page = destinations
        .page(ours, &Default::default(), None, 9)
        .await
        .expect("a page");
    assert_eq!(page.total, 1);
}

async fn an_agent_has_what_is_assigned(bed: &Bed) {
    let store = bed.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let anna = agent(&store, ours, "Anna").await.id;
    let destinations = store.destinations();
    let first = destinations
        .create(ours, &desk("First"), NOW)
        .await
        .expect("a destination");
    let foreign = destinations
        .create(theirs, &desk("Foreign"), NOW)
        .await
        .expect("a destination");
    for _ in 0..2 {
        let assigned = destinations.assign(ours, anna, first.id, NOW).await;
        assert_eq!(assigned.expect("assigned"), first);
    }
    let unknown = destinations.assign(ours, anna, foreign.id, NOW).await;
    assert!(matches!(unknown, Err(Error::Wrong(Wrong::Unknown { id, .. })) if id == foreign.id));
    assert!(is_absent(
        destinations.assign(theirs, anna, foreign.id, NOW).await,
        Kind::Agent
    ));
    assert!(is_absent(
        destinations.create_for(theirs, anna, &desk("x"), NOW).await,
        Kind::Agent
    ));
    let second = destinations
        .create_for(ours, anna, &desk("Second"), later(1))
        .await
        .expect("made and assigned");
    let taken = destinations
        .create_for(ours, anna, &desk("FIRST"), NOW)
        .await;
    assert!(matches!(taken, Err(Error::Refused(Refused::NameTaken(_)))));

    let config = store.agent_config(ours, anna).await.expect("a config");
    assert_eq!(config.destinations, [second.clone(), first.clone()]);
    assert!(config.numbers.is_empty() && config.outbound_trunk.is_none());
    assert!(is_absent(
        store.agent_config(theirs, anna).await,
        Kind::Agent
    ));
    let all = Default::default();
    let page = destinations.of_agent(ours, anna, &all, None, 1).await;
    let page = page.expect("a page");
    assert_eq!((page.items, page.total), (vec![second.clone()], 2));
    let page = destinations.of_agent(ours, anna, &all, page.next, 1).await;
    assert_eq!(page.expect("a page").items, std::slice::from_ref(&first));

    destinations
        .unassign(ours, anna, first.id, NOW)
        .await
        .expect("taken");
    let is = destinations.is_assigned(ours, anna, first.id).await;
    assert!(!is.expect("an answer"));
    assert!(is_absent(
        destinations.unassign(ours, anna, first.id, NOW).await,
        Kind::Destination
    ));
    destinations
        .delete(ours, second.id, NOW)
        .await
        .expect("deleted");
    let config = store.agent_config(ours, anna).await.expect("a config");
    assert_eq!(config.destinations, []);
}

/// What routing or calls read must never change unseen.
/// Four at most; two writers at once keep to that; forgetting them is an edit.
async fn realms_are_learnt(bed: &Bed) {
    let store = bed.open().await;
    let ours = org(&store, "Ours").await.id;
    let trunks = store.outbound_trunks();
    let new = NewOutboundTrunk {
        digest_require_qop: false,
        ..carrier()
    };
    let trunk = trunks.create(ours, &new, 10, NOW).await.expect("made").id;
    let seen = |realm: &str, offers_qop| KnownRealm {
        realm: realm.into(),
        offers_qop,
    };
    let learn = async |realm: &str, offers_qop| {
        let seen = seen(realm, offers_qop);
        let learnt = store.outbound_trunks().learn_realm(ours, trunk, &seen, NOW);
        learnt.await.expect("learnt");
    };
    tokio::join!(learn("a", false), learn("b", true), learn("c", true));
    let before = store.read(feed::position).await.expect("a position");
    learn("b", true).await;
    learn("b", false).await;
    assert!(
        store
            .read_inline(move |tx| feed::since(tx, before))
            .await
            .expect("changes")
            .changes
            .is_empty()
    );
    learn("a", true).await;
    tokio::join!(learn("d", true), learn("e", true));
    let shown = store
        .outbound_trunks()
        .by_id(ours, trunk)
        .await
        .expect("it is there");
    let mut known = shown.auth_realms;
    known.sort_by(|one, other| one.realm.cmp(&other.realm));
    assert_eq!(known.len(), 4, "{known:?}");
    assert_eq!(known[..3], ["a", "b", "c"].map(|realm| seen(realm, true)));
    let forgets = OutboundTrunkChange {
        forgets_realms: true,
        ..OutboundTrunkChange::default()
    };
    let cleared = trunks
        .update(ours, trunk, &forgets, NOW)
        .await
        .expect("changed");
    assert_eq!(cleared.auth_realms, []);
    let gone = trunks
        .learn_realm(ours, Uuid::nil(), &seen("a", true), NOW)
        .await;
    gone.expect("a trunk that is gone learns nothing");
}

async fn every_edit_is_told(bed: &Bed) {
    let store = bed.open().await;
    let ours = org(&store, "Ours").await.id;
    let anna = agent(&store, ours, "Anna").await.id;
    let (trunks, destinations) = (store.outbound_trunks(), store.destinations());
    let mut seq = store.read(feed::position).await.expect("a position");
    let mut told = async |edit: &str| {
        let changes = store
            .read_inline(move |tx| feed::since(tx, seq))
            .await
            .expect("changes");
        assert_eq!(changes.changes, [Change::Org(ours)], "{edit}");
        seq = changes.seq;
    };
    let trunk = trunks
        .create(ours, &carrier(), 10, NOW)
        .await
        .expect("made")
        .id;
    told("a trunk is made").await;
    trunks
        .update(ours, trunk, &named("x"), NOW)
        .await
        .expect("renamed");
    told("a trunk is renamed").await;
    trunks
        .assign(ours, anna, Some(trunk), NOW)
        .await
        .expect("assigned");
    told("a trunk is assigned").await;
    trunks.assign(ours, anna, None, NOW).await.expect("free");
    told("a trunk is taken").await;
    trunks.delete(ours, trunk, NOW).await.expect("deleted");
    told("a trunk is deleted").await;
    let made = destinations.create(ours, &desk("a"), NOW).await;
    let made: Uuid = made.expect("made").id;
    told("a destination is made").await;
    destinations
        .update(ours, made, &DestinationChange::default(), NOW)
        .await
        .expect("changed");
    told("a destination is changed").await;
    destinations
        .assign(ours, anna, made, NOW)
        .await
        .expect("assigned");
    told("a destination is assigned").await;
    destinations
        .unassign(ours, anna, made, NOW)
        .await
        .expect("taken");
    told("a destination is taken").await;
    destinations
        .create_for(ours, anna, &desk("b"), NOW)
        .await
        .expect("made");
    told("a destination is made for an agent").await;
    destinations.delete(ours, made, NOW).await.expect("deleted");
    told("a destination is deleted").await;
}
