//! Rotation of the sealing key: interrupted anywhere, it leaves every value readable and can be run again.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use trunkline_model::record::{Ended, Fact, HangupBy, Started, Status};
use trunkline_model::runtime_headers::RuntimeHeaders;
use trunkline_model::settings::{Runtime, RuntimeLogin};
use trunkline_store::journal::Origin;
use trunkline_store::{
    Claim, Effects, InboundTrunkChange, NewBooking, NewOrg, NewWebhook, OpenFault, Password,
    RequestKey, RowsErased, Store, agents, bot_tokens, erasing, erasures, inbound_trunks,
    integrations, numbers, orgs, outbound_trunks, rows_of, webhooks,
};
use uuid::Uuid;

use crate::idempotency::{Answers, asked, kept};
use crate::test_db::{
    self, NOW, TestDb, done, found, later, new_agent, number, open_erasures, started,
};
use crate::ways_out::carrier;

crate::on_both!(
    every_value_is_sealed_anew,
    a_rotation_that_is_cut_off_is_run_again,
    a_value_that_cant_be_opened_keeps_the_old_key,
    rotations_at_once_lose_nothing,
    headers_in_clear_text_are_sealed,
);

/// Every sealed column of the schema.
const SEALED: [&str; 13] = [
    "agents.runtime_password",
    "bot_tokens.next_token",
    "bot_tokens.old_token",
    "bot_tokens.token",
    "erasure_calls.legs",
    "erasures.subject",
    "idempotency_keys.answer",
    "inbound_trunks.password",
    "integrations.credentials",
    "old_credentials.password",
    "outbound_trunks.password",
    "webhooks.old_secret",
    "webhooks.secret",
];

/// Makes an org with a value in every sealed column.
async fn fill(store: &Store) -> Uuid {
    let mut new = NewOrg::named("Acme");
    new.bookings.push(NewBooking {
        name: "Bookings".to_owned(),
        app_key: "an app key".to_owned(),
        user_key: "a user key".to_owned(),
        default_company_shortname: None,
    });
    let org = done(store, move |tx| orgs::create(tx, None, &new, NOW))
        .await
        .id;

    let mut agent = new_agent("Anna");
    let mut runtime = Runtime::sip("sip:a@h".into());
    if let Runtime::Sip { login, headers, .. } = &mut runtime {
        *login = Some(RuntimeLogin {
            user: "anna".into(),
            password: "a runtime's".into(),
        });
        *headers = header("a header's");
    }
    agent.runtime = Some(runtime);
    done(store, move |tx| agents::create(tx, org, &agent, NOW)).await;

    done(store, move |tx| {
        numbers::create(tx, org, number("+4930000001"), true, NOW)
    })
    .await;
    done(store, move |tx| {
        inbound_trunks::create(tx, org, &InboundTrunkChange::default(), NOW)
    })
    .await;
    done(store, move |tx| {
        inbound_trunks::rotate_credentials(tx, org, NOW)
    })
    .await;
    done(store, move |tx| {
        outbound_trunks::create(tx, org, &carrier(), 10, NOW)
    })
    .await;

    let hook = NewWebhook {
        url: "https://hooks.example.com/x".to_owned(),
        description: None,
        types: Vec::new(),
        enabled: true,
    };
    let secret = Password::new("a secret");
    let hook = done(store, move |tx| {
        webhooks::create(tx, org, &hook, &secret, NOW)
    })
    .await
    .id;
    let newer = Password::new("a newer secret");
    done(store, move |tx| {
        webhooks::rotate(tx, org, hook, &newer, NOW)
    })
    .await;

    for (token, promotes) in [("one", false), ("two", true), ("three", false)] {
        let token = Password::new(token);
        done(store, move |tx| bot_tokens::create(tx, org, &token, NOW)).await;
        if promotes {
            done(store, move |tx| bot_tokens::promote(tx, org, NOW)).await;
        }
    }

    let answers = Answers(store.clone());
    answers.claim(&asked(), None, NOW).await.expect("claimed");
    answers
        .keep(&asked(), &kept(), &Effects::default(), NOW)
        .await
        .expect("kept");
    begin_erasure(store, org).await;
    org
}

fn header(value: &str) -> RuntimeHeaders {
    BTreeMap::from([("X-Account".to_owned(), value.to_owned())]).into()
}

/// Begins an erasure that some node has still to do, with a call that was found.
async fn begin_erasure(store: &Store, org: Uuid) {
    let callers = [(org, number("+441632960001"))];
    let contacts = store.contacts();
    let made = contacts.find_or_create_by_phone_many(&callers, NOW).await;
    let contact = made.expect("a contact")[0].expect("a contact");
    let call = Uuid::from_u128(org.as_u128() ^ 1);
    let begun = Started {
        from_e164: Some(callers[0].1),
        ..started(call, org, NOW)
    };
    let ended = Ended {
        call,
        org,
        at: NOW,
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };

    let facts = [Fact::Started(begun.into()), Fact::Ended(ended.into())];
    let run = Origin { node: 3, boot: 7 };
    let projected = test_db::project(store, run, &facts).await;

    projected.expect("projected");
    done(store, move |tx| {
        erasures::request(tx, org, contact, later(60))
    })
    .await;
    for erasure in open_erasures(store, 3).await {
        let rows = erasing::erase_rows(store, &erasure, later(60)).await;
        assert_eq!(rows.expect("rows are erased"), RowsErased::All);
    }
}

/// Returns every sealed value, opened.
async fn opened(store: &Store, org: Uuid) -> Vec<String> {
    let rows = found(store, move |tx| rows_of(tx, Some(org))).await;
    let rows = &rows[0];
    let trunk = rows.trunk.as_ref().expect("a trunk");
    let runtime = rows.agents[0].runtime.as_ref();
    let headers = runtime.and_then(Runtime::headers).expect("headers");
    let runtime = runtime.and_then(Runtime::login);
    let outbound = rows.outbound_trunks[0].settings.credentials.as_ref();
    let all = Default::default();
    let hooks = store
        .read_inline(move |tx| webhooks::page(tx, org, &all, None, 9))
        .await;
    let hook = &hooks.expect("it opens").items[0];
    let (old, _) = hook.old_secret.as_ref().expect("an old secret");
    let bookings = found(store, move |tx| integrations::bookings(tx, org)).await;
    let (app, user) = bookings[0].credentials(store.keyring()).expect("it opens");
    let answer = Answers(store.clone()).look_up(&asked(), NOW).await;

    assert_eq!(answer.expect("it opens"), Some(Claim::Done(kept())));

    let erasure = open_erasures(store, 3).await.remove(0);
    let legs = found(store, move |tx| erasures::legs(tx, erasure.id)).await;
    vec![
        legs[0].call.to_string(),
        trunk.password.reveal().to_owned(),
        rows.old_credentials[0].password.reveal().to_owned(),
        runtime.expect("a login").password.to_string(),
        headers.reveal()["X-Account"].clone(),
        outbound.expect("a pair").1.reveal().to_owned(),
        hook.secret.reveal().to_owned(),
        old.reveal().to_owned(),
        app,
        user,
    ]
}

/// Returns the prefix of values that the current key seals.
fn sealer(store: &Store) -> Vec<u8> {
    store.keyring().seal(b"", b"")[..8].to_vec()
}

/// Returns the columns of the whole database that hold a value of this key.
async fn columns_of(db: &TestDb, key: &[u8]) -> BTreeSet<String> {
    match &db.options.url {
        Some(url) => columns_of_postgres(url, key).await.expect("columns"),
        None => columns_of_sqlite(&db.sqlite(), key).expect("columns"),
    }
}

fn columns_of_sqlite(database: &Connection, key: &[u8]) -> rusqlite::Result<BTreeSet<String>> {
    let mut columns = database.prepare(
        "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
         WHERE tables.type = 'table' AND columns.type = 'BLOB'",
    )?;
    let columns = columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let columns: Vec<(String, String)> = columns.collect::<Result<_, _>>()?;

    let mut holding = BTreeSet::new();
    for (table, column) in columns {
        let count = format!("SELECT COUNT(*) FROM {table} WHERE substr({column}, 1, 8) = $1");
        let count: i64 = database.query_row(&count, [key], |row| row.get(0))?;
        if count > 0 {
            holding.insert(format!("{table}.{column}"));
        }
    }
    Ok(holding)
}

async fn columns_of_postgres(url: &str, key: &[u8]) -> sqlx::Result<BTreeSet<String>> {
    let mut connection = PgConnection::connect(url).await?;
    let columns = "SELECT table_name::text, column_name::text FROM information_schema.columns
        WHERE table_schema = 'public' AND data_type = 'bytea'";
    let columns: Vec<(String, String)> = sqlx::query_as(columns).fetch_all(&mut connection).await?;

    let mut holding = BTreeSet::new();
    for (table, column) in columns {
        let count = format!("SELECT COUNT(*) FROM {table} WHERE substr({column}, 1, 8) = $1");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(count))
            .bind(key)
            .fetch_one(&mut connection)
            .await?;
        if count > 0 {
            holding.insert(format!("{table}.{column}"));
        }
    }
    connection.close().await?;
    Ok(holding)
}

/// Returns the sealed columns of this database; SQLite also has a text that checks the key.
fn all_sealed(db: &TestDb) -> BTreeSet<String> {
    let mark = (!db.is_postgres()).then_some("secrets.value");
    SEALED.into_iter().chain(mark).map(str::to_owned).collect()
}

async fn every_value_is_sealed_anew(db: &TestDb) {
    let (store, other) = (db.open().await, db.open().await);
    let org = fill(&store).await;
    let (before, old) = (opened(&store, org).await, sealer(&store));
    assert_eq!(columns_of(db, &old).await, all_sealed(db));

    // A staged key must open values on every node before one seals with it.
    let staged = store.stage_sealing_key(NOW).await.expect("staged");
    assert_eq!(sealer(&store), old);
    other.follow_signing_keys().await.expect("keys");
    let used = store.use_staged_sealing_key(staged, NOW).await;
    used.expect("used");
    let new = store.keyring().seal(b"whose", b"secret");
    assert_eq!(new[..8], staged);
    assert_eq!(sealer(&other), old);
    let there = other.keyring().open(b"whose", &new);
    assert_eq!(there.expect("it opens"), b"secret");

    // Meanwhile the other store seals with the old key; that value is sealed anew with the rest.
    let answers = Answers(other.clone());
    let late = RequestKey {
        key: "late".to_owned(),
        ..asked()
    };
    answers.claim(&late, None, NOW).await.expect("claimed");
    answers
        .keep(&late, &kept(), &Effects::default(), NOW)
        .await
        .expect("kept");
    other.follow_signing_keys().await.expect("keys");
    assert_eq!(sealer(&other), staged);
    assert!(store.reseal().await.expect("sealed anew") > 8);
    assert_eq!(store.reseal().await.expect("nothing is left"), 0);
    assert_eq!(columns_of(db, &old).await, BTreeSet::new());
    assert_eq!(columns_of(db, &staged).await, all_sealed(db));

    store.retire_sealing_keys(NOW).await.expect("retired");
    store.retire_sealing_keys(NOW).await.expect("none is left");
    other.follow_signing_keys().await.expect("keys");
    for store in [&store, &other, &db.open().await] {
        assert!(store.keyring().open(b"whose", &new).is_ok());
        assert_eq!(opened(store, org).await, before);
    }
}

async fn a_rotation_that_is_cut_off_is_run_again(db: &TestDb) {
    let store = db.open().await;
    let org = fill(&store).await;
    let (before, old) = (opened(&store, org).await, sealer(&store));
    let sealed = store.keyring().seal(b"whose", b"secret");
    store.stage_sealing_key(NOW).await.expect("staged");
    store.close().await;

    // Interrupted after the first step: another run stages another key.
    let store = db.open().await;
    assert_eq!(
        (sealer(&store), opened(&store, org).await),
        (old.clone(), before.clone())
    );
    let staged = store.stage_sealing_key(NOW).await.expect("staged");
    let used = store.use_staged_sealing_key(staged, NOW).await;
    used.expect("used");
    store.close().await;

    // Interrupted after the second one: old values still have the old key, and new values have the new one.
    let store = db.open().await;
    assert_eq!(sealer(&store), staged);
    assert_eq!(opened(&store, org).await, before);
    let third = store.stage_sealing_key(NOW).await.expect("staged");
    let used = store.use_staged_sealing_key(third, NOW).await;
    used.expect("used");
    store.reseal().await.expect("sealed anew");
    store.retire_sealing_keys(NOW).await.expect("retired");
    store.close().await;

    let store = db.open().await;
    assert_eq!(opened(&store, org).await, before);
    assert!(store.keyring().open(b"whose", &sealed).is_err());
    for gone in [old, staged.to_vec()] {
        assert_eq!(columns_of(db, &gone).await, BTreeSet::new());
    }
    let none = store.use_staged_sealing_key(staged, NOW).await;
    assert!(matches!(none, Err(OpenFault::NoStagedKey)));
}

async fn a_value_that_cant_be_opened_keeps_the_old_key(db: &TestDb) {
    let store = db.open().await;
    let org = fill(&store).await;
    let (before, old) = (opened(&store, org).await, sealer(&store));
    db.execute("CREATE TABLE saved AS SELECT id, secret FROM webhooks; UPDATE webhooks SET secret = (SELECT password FROM inbound_trunks)")
        .await;
    let staged = store.stage_sealing_key(NOW).await.expect("staged");
    let used = store.use_staged_sealing_key(staged, NOW).await;
    used.expect("used");
    let fault = store.reseal().await.expect_err("it doesn't open");
    assert!(fault.to_string().contains("webhooks.secret"), "{fault}");
    assert!(store.retire_sealing_keys(NOW).await.is_err());

    // Values sealed before are sealed anew, and the old key still opens the rest.
    let left = columns_of(db, &old).await;
    assert!(left.contains("webhooks.old_secret") && !left.contains("inbound_trunks.password"));
    db.execute("UPDATE webhooks SET secret = (SELECT secret FROM saved); DROP TABLE saved")
        .await;
    assert_eq!(opened(&store, org).await, before);
    store.retire_sealing_keys(NOW).await.expect("retired");
    assert_eq!(opened(&db.open().await, org).await, before);
    assert_eq!(columns_of(db, &old).await, BTreeSet::new());
}

async fn rotations_at_once_lose_nothing(db: &TestDb) {
    let store = db.open().await;
    let org = fill(&store).await;
    let before = opened(&store, org).await;
    let rotate = async |store: Store, at: u64| {
        let staged = store.stage_sealing_key(later(at)).await.expect("staged");
        let used = store.use_staged_sealing_key(staged, later(at)).await;
        used.expect("used");
        store.reseal().await.expect("sealed anew");
    };
    let nodes = db.open_nodes(2).await;
    tokio::join!(rotate(nodes[0].clone(), 1), rotate(nodes[1].clone(), 2));
    store.follow_signing_keys().await.expect("keys");
    assert_eq!(opened(&store, org).await, before);

    let newest = sealer(&store);
    store.retire_sealing_keys(NOW).await.expect("retired");

    assert_eq!(columns_of(db, &newest).await, all_sealed(db));
    assert_eq!(opened(&db.open().await, org).await, before);
}

/// As earlier builds stored them: beside a sealed password, and without one.
async fn headers_in_clear_text_are_sealed(db: &TestDb) {
    let store = db.open().await;
    let org = fill(&store).await;
    db.execute(
        "UPDATE agents SET runtime = '{\"type\":\"sip\",\"uri\":\"sip:a@h\",\"fallbacks\":[],\"headers\":{\"X-Account\":\"in clear text\"}}',
             runtime_password = NULL",
    )
    .await;
    let headers = async || {
        let rows = found(&store, move |tx| rows_of(tx, Some(org))).await;
        let runtime = rows[0].agents[0].runtime.clone();
        runtime
            .expect("a runtime")
            .headers()
            .expect("headers")
            .clone()
    };
    assert_eq!(headers().await, header("in clear text"));

    let last = done(&store, |tx| agents::seal_headers(tx, Uuid::nil())).await;
    let last = last.expect("an agent with headers");
    let end = done(&store, move |tx| agents::seal_headers(tx, last)).await;
    assert_eq!(end, None);
    assert_eq!(headers().await, header("in clear text"));
    let stored = found(&store, move |tx| agents::by_id(tx, org, last)).await;
    let stored = stored.runtime.expect("a runtime");
    assert!(stored.headers().expect("headers").are_masked());

    // Once more: the mask isn't sealed in the values' place.
    done(&store, |tx| agents::seal_headers(tx, Uuid::nil())).await;
    assert_eq!(headers().await, header("in clear text"));
}
