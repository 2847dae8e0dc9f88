//! Agents are made, shown, changed and deleted by their own org only.

use trunkline_model::builtin::Flow;
use trunkline_model::settings::{BotProtocol, OnClose, Runtime};
use trunkline_store::{AgentChange, Conflict, Error, Kind, Wrong, agents, prompts};

use crate::test_db::{NOW, TestDb, done, found, later, new_agent, org};

crate::on_both!(agents_change, an_agent_plays_only_prompts_that_are_there);

async fn agents_change(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let runtime = Runtime::Sip {
        uri: "sip:a@h".into(),
        fallbacks: vec!["sip:b@h".into()],
        failover_on: Vec::new(),
        headers: Default::default(),
        session_token: false,
        login: None,
        protocol: BotProtocol::Telnyx,
        on_close: OnClose::NextRuntime,
        flow: None,
    };

    let mut new = new_agent("Anna");
    (new.runtime, new.voice_id, new.max_concurrent_calls) =
        (Some(runtime), Some("v".to_owned()), Some(3));
    let made = done(&store, move |tx| agents::create(tx, ours, &new, NOW)).await;
    assert_eq!(
        found(&store, move |tx| agents::by_id(tx, ours, made.id)).await,
        made
    );
    assert!(matches!(
        store
            .read_inline(move |tx| agents::by_id(tx, theirs, made.id))
            .await,
        Err(Error::Wrong(Wrong::Absent(Kind::Agent)))
    ));

    let change = AgentChange {
        name: Some("Bea".to_owned()),
        voice_id: Some(None),
        runtime: Some(None),
        enabled: Some(false),
        ..AgentChange::default()
    };
    let changed = done(&store, {
        let change = change.clone();
        move |tx| agents::update(tx, ours, made.id, &change, later(1))
    })
    .await;
    assert_eq!(
        (
            &*changed.name,
            changed.enabled,
            changed.max_concurrent_calls
        ),
        ("Bea", false, Some(3))
    );
    assert_eq!((&changed.voice_id, &changed.runtime), (&None, &None));
    assert_eq!(
        found(&store, move |tx| agents::by_id(tx, ours, made.id)).await,
        changed
    );
    assert!(
        store
            .write(move |tx| agents::update(tx, theirs, made.id, &change, NOW))
            .await
            .is_err()
    );

    let second = done(&store, move |tx| {
        agents::create(tx, ours, &new_agent("Carl"), later(2))
    })
    .await;
    let listed = found(&store, move |tx| agents::list(tx, ours)).await;
    assert_eq!(
        listed.iter().map(|agent| agent.id).collect::<Vec<_>>(),
        [second.id, made.id]
    );
    assert!(
        store
            .write(move |tx| agents::delete(tx, theirs, made.id, NOW))
            .await
            .is_err()
    );

    done(&store, move |tx| agents::delete(tx, ours, made.id, NOW)).await;
    assert!(
        store
            .read_inline(move |tx| agents::by_id(tx, ours, made.id))
            .await
            .is_err()
    );
}

async fn an_agent_plays_only_prompts_that_are_there(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    let own = done(&store, move |tx| {
        prompts::create(tx, ours, "Hello", &[0xff], NOW)
    })
    .await;
    let runtime = serde_json::json!({"start": "a", "steps": {
        "a": {"do": "play", "prompt": {"id": own.id}, "next": "b"},
        "b": {"do": "hang_up"},
    }});
    let runtime = Runtime::Builtin {
        flow: Box::new(Flow::read(&runtime).expect("a sound flow")),
        fallbacks: Vec::new(),
    };
    let mut new = new_agent("Anna");
    new.runtime = Some(runtime.clone());
    let made = done(&store, {
        let new = new.clone();
        move |tx| agents::create(tx, ours, &new, NOW)
    })
    .await;
    let deleted = store
        .write(move |tx| prompts::delete(tx, ours, own.id))
        .await;
    assert!(matches!(
        deleted,
        Err(Error::Conflict(Conflict::PromptInUse { .. }))
    ));

    let foreign = store
        .write(move |tx| agents::create(tx, theirs, &new, NOW))
        .await;
    assert!(matches!(
        foreign,
        Err(Error::Conflict(Conflict::PromptAbsent(id))) if id == own.id
    ));

    let none = AgentChange {
        runtime: Some(None),
        ..AgentChange::default()
    };
    done(&store, move |tx| {
        agents::update(tx, ours, made.id, &none, later(1))
    })
    .await;
    done(&store, move |tx| prompts::delete(tx, ours, own.id)).await;
    let again = AgentChange {
        runtime: Some(Some(runtime)),
        ..AgentChange::default()
    };
    let again = store
        .write(move |tx| agents::update(tx, ours, made.id, &again, later(2)))
        .await;
    assert!(matches!(
        again,
        Err(Error::Conflict(Conflict::PromptAbsent(_)))
    ));
}
