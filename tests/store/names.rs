//! Objects are found by their names, also beyond the newest ten thousand of their kind.

use trunkline_store::names::{self, NamedKind};
use trunkline_store::{Store, agents, destinations, numbers, outbound_trunks};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, done, found, new_agent, number, org};
use crate::ways_out::{carrier, desk};

crate::on_both!(a_whole_name_is_found_whatever_its_age);

/// Statements that make 10,050 newer copies of the one object of each kind, with ids by this function.
macro_rules! copies {
    ($id:literal) => {
        [
            copies!($id, "agents (id, name, created_at, org_id, type, language, first_message, use_org_knowledgebase, action_ids, enabled, updated_at)",
                "'Agent ' || turn, created_at + turn, org_id, type, language, first_message, use_org_knowledgebase, action_ids, enabled, updated_at
                 FROM agents"),
            copies!($id, "destinations (id, name, name_folded, created_at, org_id, type, value, updated_at)",
                "'Desk ' || turn, 'desk ' || turn, created_at + turn, org_id, type, value, updated_at FROM destinations"),
            copies!($id, "numbers (id, number, created_at, org_id)",
                "'+1202' || (5000000 + turn), created_at + turn, org_id FROM numbers"),
            copies!($id, "outbound_trunks (id, name, created_at, org_id, host, port, transport, caller_number, to_registered, p_asserted_identity, register, updated_at)",
                "'Trunk ' || turn, created_at + turn, org_id, host, port, transport, caller_number, to_registered, p_asserted_identity, register, updated_at
                 FROM outbound_trunks"),
        ]
    };
    ($id:literal, $into:literal, $from:literal) => {
        concat!("INSERT INTO ", $into, " WITH RECURSIVE turns (turn) AS (SELECT 1 UNION ALL SELECT turn + 1 FROM turns WHERE turn < 10050)
            SELECT ", $id, ", ", $from, " CROSS JOIN turns")
    };
}

async fn a_whole_name_is_found_whatever_its_age(db: &TestDb) {
    let store = db.open().await;
    let (ours, theirs) = (org(&store, "Ours").await.id, org(&store, "Theirs").await.id);
    done(&store, move |tx| {
        agents::create(tx, ours, &new_agent("Frühe Hilfe"), NOW)?;
        destinations::create(tx, ours, &desk("Ärzte"), NOW)?;
        numbers::create(tx, ours, number("+442071838750"), false, NOW)?;
        outbound_trunks::create(tx, ours, &carrier(), 10, NOW)
    })
    .await;
    let copies = match db.is_postgres() {
        true => copies!("gen_random_uuid()"),
        false => copies!("randomblob(16)"),
    };
    for statement in copies {
        db.execute(statement).await;
    }

    for (kind, name, spellings, part) in [
        (
            NamedKind::Agent,
            "Frühe Hilfe",
            &["Frühe Hilfe", " frühe hilfe ", "FRÜHE HILFE", "FrühE hILFE"][..],
            "Frühe",
        ),
        (NamedKind::Destination, "Ärzte", &["Ärzte", "äRZTE"], "Ärz"),
        (
            NamedKind::Number,
            "+442071838750",
            &["+442071838750"],
            "+44207",
        ),
        (
            NamedKind::OutboundTrunk,
            "Carrier",
            &["Carrier", "cARRIER"],
            "Carr",
        ),
    ] {
        for spelling in spellings {
            let mut of_ours = search(&store, ours, kind, spelling).await;
            assert_eq!(of_ours.pop().as_deref(), Some(name), "{spelling}");
            let of_theirs = search(&store, theirs, kind, spelling).await;
            assert!(of_theirs.is_empty(), "{spelling}");
        }
        // A part of it is searched among the newest ten thousand alone.
        assert!(search(&store, ours, kind, part).await.is_empty(), "{part}");
    }

    // Those among the newest are found once.
    let newest = search(&store, ours, NamedKind::Agent, "agent 10050").await;
    assert_eq!(newest, ["Agent 10050"]);
}

async fn search(store: &Store, org: Uuid, kind: NamedKind, text: &'static str) -> Vec<String> {
    let objects = found(store, move |tx| names::searched(tx, org, &[kind], text)).await;
    let named = names::with_text(objects, text).into_iter();
    named.map(|(_, object)| object.name).collect()
}
