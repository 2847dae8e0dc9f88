//! Starts that fail: each error names the fix, and nothing on disk has changed.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures_util::future::join_all;
use trunkline::api::token;
use trunkline_store::{Change, OpenFault, Options, Store, TokenKind, feed, orgs, realm};
use uuid::Uuid;

use crate::test_db::{NOW, TestDb, done, found, org};

crate::on_both!(
    a_future_migration_is_refused,
    opens_at_once_are_one_database,
    a_signing_key_is_rotated,
    the_realm_that_was_used_is_kept,
);

mod files {
    use crate::test_db::on_sqlite;

    macro_rules! told {
        ($($story:ident),* $(,)?) => {$(
            #[test]
            fn $story() {
                on_sqlite(|db| Box::pin(super::$story(db)));
            }
        )*};
    }
    told!(
        files_are_for_their_owner_alone,
        garbage_is_no_database,
        another_programs_file_is_left_alone,
        keys_belong_to_their_database,
        a_directory_that_cant_be_made,
        urls_of_no_kind,
    );
}

#[test]
fn a_master_key_is_needed_and_the_same() {
    crate::test_db::on_postgres(|db| Box::pin(master_key(db)));
}

async fn a_future_migration_is_refused(db: &TestDb) {
    db.open().await.close().await;
    db.execute("INSERT INTO schema_migrations (version, name, fingerprint, applied_at) VALUES (99, 'from the future', '', 0)").await;
    let before = contents(db.directory());
    let fault = db.try_open().await.expect_err("the future");
    assert!(matches!(fault, OpenFault::Future { found: 99, .. }));
    assert!(fault.to_string().contains("newer version"), "{fault}");
    assert_eq!(contents(db.directory()), before);
}

/// A new installation begins with the default realm, and keeps what it has used.
async fn the_realm_that_was_used_is_kept(db: &TestDb) {
    let store = db.open().await;
    assert_eq!(found(&store, realm::known).await, None);
    let kept = async |configured, default| {
        done(&store, move |tx| realm::keep(tx, configured, default)).await
    };
    assert_eq!(kept(None, "sip.example.com").await, "sip.example.com");
    assert_eq!(kept(None, "other.example.com").await, "sip.example.com");
    assert_eq!(kept(Some("set"), "other.example.com").await, "set");
    assert_eq!(kept(None, "other.example.com").await, "set");
    assert_eq!(found(&store, realm::known).await.as_deref(), Some("set"));
}

/// The new key signs, tokens of the old one stay valid, and sealed values open; two concurrent rotations add a key each.
async fn a_signing_key_is_rotated(db: &TestDb) {
    let store = db.open().await;
    let (org, key) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let old = token::mint(store.keyring(), key, org, &[], NOW);
    let sealed = store.keyring().seal(b"whose", b"secret");
    let first = store.keyring().signing_key().id().to_owned();

    let start = found(&store, feed::position).await;
    let (one, other) = (db.open().await, db.open().await);
    let (made, too) = tokio::join!(one.rotate_signing_key(NOW), other.rotate_signing_key(NOW));
    made.and(too).expect("keys");

    // An open store keeps its keys until it follows the feed.
    let ids = |store: &Store| -> Vec<String> {
        let keys = store.keyring().signing_keys();
        keys.iter().map(|pair| pair.id().to_owned()).collect()
    };
    assert_eq!(ids(&store), [&*first]);

    let told = found(&store, move |tx| feed::since(tx, start))
        .await
        .changes;
    assert_eq!(told, [Change::SigningKeys; 2]);

    assert!(store.follow_signing_keys().await.expect("keys"));
    assert!(!store.follow_signing_keys().await.expect("keys"));
    let known = ids(&store);
    assert_eq!(known.len(), 3, "{known:?}");
    assert_eq!(known[2], first);
    let made = [&one, &other].map(|store| ids(store)[0].clone());
    assert!(made.contains(&known[0]), "{made:?} {known:?}");
    assert_eq!(ids(&db.open().await), known);

    let keyring = store.keyring();
    let new = token::mint(keyring, key, org, &[], NOW);
    assert_ne!(new.split('.').next(), old.split('.').next());

    for token in [&old, &new] {
        assert_eq!(
            token::read(keyring, token).map(|claims| claims.sub),
            Some(key)
        );
    }
    assert_eq!(
        keyring.open(b"whose", &sealed).expect("it opens"),
        b"secret"
    );

    // A key retired by another process is refused here once the store follows the feed, and after a restart.
    one.retire_signing_key(&first, NOW).await.expect("retired");
    assert_eq!(token::read(one.keyring(), &old), None);
    assert!(store.follow_signing_keys().await.expect("keys"));
    assert_eq!(ids(&store), known[..2]);
    for keyring in [store.keyring(), db.open().await.keyring()] {
        assert_eq!(token::read(keyring, &old), None);
        assert!(token::read(keyring, &new).is_some());
        assert_eq!(keyring.retired_keys(TokenKind::ApiKey)[0].id(), first);
    }
}

async fn opens_at_once_are_one_database(db: &TestDb) {
    let opened = join_all((0..4).map(|_| db.try_open())).await;
    let stores: Vec<_> = opened
        .into_iter()
        .map(|open| open.expect("a store"))
        .collect();
    let org = org(&stores[0], "Org").await;

    for store in &stores {
        assert_eq!(
            store.keyring().signing_key().id(),
            stores[0].keyring().signing_key().id()
        );
        assert_eq!(found(store, move |tx| orgs::by_id(tx, org.id)).await, org);
        store.check().await.expect("it answers");
    }
}

async fn files_are_for_their_owner_alone(db: &TestDb) {
    let _open = db.open().await;
    let mode = |path: &Path| {
        std::fs::metadata(path)
            .expect("a file")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&db.options.data_dir), 0o700);
    for file in ["keys.json", "trunkline.db", "trunkline.db-wal"] {
        assert_eq!(mode(&db.options.data_dir.join(file)), 0o600, "{file}");
    }
}

async fn garbage_is_no_database(db: &TestDb) {
    std::fs::create_dir(&db.options.data_dir).expect("a directory");
    let file = db.options.data_dir.join("trunkline.db");
    for octets in [
        &b"this is no database, it is a text that somebody wrote"[..],
        &[0; 5_000],
    ] {
        std::fs::write(&file, octets).expect("a file");
        unchanged(db, |fault| matches!(fault, OpenFault::Unreadable { .. })).await;
    }
    std::fs::remove_file(&file).expect("a file");
    std::fs::create_dir(&file).expect("a directory");
    unchanged(db, |fault| matches!(fault, OpenFault::Unusable { .. })).await;
}

async fn another_programs_file_is_left_alone(db: &TestDb) {
    std::fs::create_dir(&db.options.data_dir).expect("a directory");
    std::fs::write(db.options.data_dir.join("trunkline.db"), []).expect("a file");
    db.execute("CREATE TABLE recipes (name TEXT)").await;
    unchanged(db, |fault| matches!(fault, OpenFault::Foreign { .. })).await;
}

async fn keys_belong_to_their_database(db: &TestDb) {
    db.open().await.close().await;
    let keys = db.options.data_dir.join("keys.json");
    let kept = std::fs::read(&keys).expect("keys");
    std::fs::remove_file(&keys).expect("a file");
    unchanged(db, |fault| matches!(fault, OpenFault::NoKeys { .. })).await;
    std::fs::write(&keys, b"{\"sealing\":[\"abc\"]}").expect("a file");
    unchanged(db, |fault| {
        matches!(fault, OpenFault::UnreadableKeys { .. })
    })
    .await;
    let other = Options {
        data_dir: db.directory().join("other"),
        ..db.options.clone()
    };
    trunkline_store::Store::open(&other, NOW)
        .await
        .expect("another store")
        .close()
        .await;
    std::fs::copy(other.data_dir.join("keys.json"), &keys).expect("a copy");
    unchanged(db, |fault| matches!(fault, OpenFault::WrongKeys { .. })).await;
    std::fs::write(&keys, kept).expect("a file");
    db.open().await;
}

async fn a_directory_that_cant_be_made(db: &TestDb) {
    std::fs::write(
        &db.options.data_dir,
        b"a file where the directory should be",
    )
    .expect("a file");
    unchanged(db, |fault| {
        matches!(
            fault,
            OpenFault::Directory { .. } | OpenFault::Unreadable { .. }
        )
    })
    .await;
}

async fn urls_of_no_kind(db: &TestDb) {
    for url in ["mysql://u:hush@h/d", "sqlite:", "trunkline.db"] {
        let options = Options {
            url: Some(url.to_owned()),
            ..db.options.clone()
        };
        let fault = trunkline_store::Store::open(&options, NOW)
            .await
            .expect_err(url);
        assert!(matches!(fault, OpenFault::Url), "{url}");
        assert!(!fault.to_string().contains("hush"));
    }
    assert!(contents(db.directory()).is_empty());

    let options = Options {
        url: Some("postgres://u:hush@127.0.0.1:1/d".to_owned()),
        ..db.options.clone()
    };
    let fault = trunkline_store::Store::open(&options, NOW)
        .await
        .expect_err("nobody listens");
    assert!(
        matches!(fault, OpenFault::Unreachable(_)) && !fault.to_string().contains("hush"),
        "{fault}"
    );
}

async fn master_key(db: &TestDb) {
    let with = |key: Option<&str>| Options {
        master_key: key.map(|key| key.to_owned().into()),
        ..db.options.clone()
    };
    let fault = async |options: Options| {
        trunkline_store::Store::open(&options, NOW)
            .await
            .expect_err("a fault")
    };

    assert!(matches!(fault(with(None)).await, OpenFault::NoMasterKey));
    assert!(matches!(
        fault(with(Some("short"))).await,
        OpenFault::WeakMasterKey
    ));
    db.open().await.close().await;

    let wrong = fault(with(Some("a master key of somebody else, also long"))).await;
    assert!(matches!(wrong, OpenFault::WrongMasterKey));
    assert!(
        contents(db.directory()).is_empty(),
        "PostgreSQL's keys are not on the disk"
    );

    let store = db.open().await;
    let weak = store.rotate_master_key("short", NOW).await;
    assert!(matches!(weak, Err(OpenFault::WeakMasterKey)));

    let new = "another master key, long enough as well";
    store.rotate_master_key(new, NOW).await.expect("rotated");

    assert!(matches!(
        db.try_open().await.expect_err("the old one"),
        OpenFault::WrongMasterKey
    ));

    let renewed = Store::open(&with(Some(new)), NOW)
        .await
        .expect("the new one");

    // A process that still runs under the old master key keeps the keys it has, and can't read new ones.
    let sealed = store.keyring().seal(b"whose", b"secret");
    assert!(renewed.keyring().open(b"whose", &sealed).is_ok());

    let followed = store.follow_signing_keys().await;
    assert!(matches!(followed, Err(OpenFault::WrongMasterKey)));
}

async fn unchanged(db: &TestDb, expected: impl Fn(&OpenFault) -> bool) {
    let before = contents(db.directory());
    let fault = db.try_open().await.expect_err("a fault");
    assert!(expected(&fault), "{fault:?}");
    assert_eq!(contents(db.directory()), before, "{fault}");
}

/// Returns every file below with its contents; directories have none.
fn contents(directory: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(contents(&path));
            found.insert(path, Vec::new());
        } else {
            let octets = std::fs::read(&path).expect("a file");
            found.insert(path, octets);
        }
    }
    found
}
