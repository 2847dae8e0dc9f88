//! Both dialects' migrations make the same tables, columns and indexes: compared as SQL text, and as the databases report them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use trunkline_store::OpenFault;

use crate::test_db::{TestDb, on_postgres, on_sqlite};

/// Returns name, common type and constraints of each column, by table.
fn columns(sql: &str) -> BTreeMap<String, Vec<String>> {
    let mut tables = BTreeMap::new();
    let mut table = None;
    for line in sql
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("--"))
    {
        if let Some(name) = line
            .strip_prefix("CREATE TABLE ")
            .and_then(|rest| rest.strip_suffix(" ("))
        {
            table = Some(name.to_owned());
        } else if line.starts_with(')') {
            table = None;
        } else if let Some(name) = &table {
            tables
                .entry(name.clone())
                .or_insert_with(Vec::new)
                .push(common(line));
        } else if !line.is_empty() {
            tables
                .entry("outside tables".to_owned())
                .or_insert_with(Vec::new)
                .push(common(line));
        }
    }

    tables
}

fn common(line: &str) -> String {
    let line = line
        .replace(
            "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            "INTEGER PRIMARY KEY AUTOINCREMENT",
        )
        .replace("NOT NULL PRIMARY KEY", "PRIMARY KEY");

    let words = line.split_inclusive([' ', ',']).map(|word| {
        let end = word.trim_end_matches([' ', ',', ';']).len();
        let common = match &word[..end] {
            "UUID" | "BYTEA" => "BLOB",
            "BIGINT" | "BOOLEAN" => "INTEGER",
            "FALSE" => "0",
            "TRUE" => "1",
            "'00000000-0000-0000-0000-000000000000'::uuid" => "zeroblob(16)",
            other => other,
        };
        format!("{common}{}", word[end..].trim_end_matches(' '))
    });

    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Returns the number of tables read, and of other statements.
fn shape(read: &BTreeMap<String, Vec<String>>) -> (usize, usize) {
    let outside = read.get("outside tables");
    let ends = |lines: &Vec<String>| lines.iter().filter(|line| line.ends_with(';')).count();
    let tables = read.len() - usize::from(outside.is_some());
    (tables, outside.map_or(0, ends))
}

/// Returns the same numbers, counted by semicolons in the SQL text.
fn counted(sql: &str) -> (usize, usize) {
    let lines = sql.lines().filter(|line| !line.trim().starts_with("--"));
    let text: String = lines.collect::<Vec<_>>().join("\n");
    let statements = text.split(';').map(str::trim);
    let statements = statements.filter(|statement| !statement.is_empty());
    let (tables, others): (Vec<_>, Vec<_>) =
        statements.partition(|statement| statement.starts_with("CREATE TABLE "));
    (tables.len(), others.len())
}

#[test]
fn both_dialects_have_the_same_tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<_> = std::fs::read_dir(root.join("sqlite"))
        .expect("migrations")
        .flatten()
        .collect();
    files.sort_by_key(std::fs::DirEntry::file_name);

    let names = |dialect: &str| -> BTreeSet<_> {
        let files = std::fs::read_dir(root.join(dialect)).expect("migrations");
        files.flatten().map(|file| file.file_name()).collect()
    };

    assert_eq!(names("sqlite"), names("postgres"));
    assert!(!files.is_empty());

    for file in files {
        let read = |path: &Path| std::fs::read_to_string(path).expect("a migration");
        let text = read(&file.path());
        let sqlite = columns(&text);
        let postgres = columns(&read(&root.join("postgres").join(file.file_name())));
        assert_eq!(sqlite, postgres, "{}", file.file_name().display());
        assert_eq!(
            shape(&sqlite),
            counted(&text),
            "{} was read otherwise than it is written",
            file.file_name().display()
        );
    }
}

/// `table.column type null-or-not key-or-not`, and `index on table (columns) unique-or-not`, of a migrated database.
type Told = BTreeSet<String>;

const SQLITE_COLUMNS: &str = "SELECT tables.name || '.' || columns.name || ' ' || columns.type
    || CASE WHEN columns.\"notnull\" = 1 OR columns.pk > 0 THEN ' NOT NULL' ELSE '' END || CASE WHEN columns.pk > 0 THEN ' KEY' ELSE '' END
    FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite_%'";
const SQLITE_INDEXES: &str = "SELECT indexes.name || ' ON ' || indexes.tbl_name || ' ('
    || (SELECT group_concat(COALESCE(columns.name, 'expression'), ', ') FROM pragma_index_info(indexes.name) AS columns) || ')'
    || (SELECT CASE WHEN listed.\"unique\" = 1 THEN ' UNIQUE' ELSE '' END FROM pragma_index_list(indexes.tbl_name) AS listed
        WHERE listed.name = indexes.name)
    FROM sqlite_master AS indexes WHERE indexes.type = 'index' AND indexes.sql IS NOT NULL";
const POSTGRES_COLUMNS: &str = "SELECT c.table_name || '.' || c.column_name || ' ' || c.data_type
    || CASE WHEN c.is_nullable = 'NO' THEN ' NOT NULL' ELSE '' END
    || CASE WHEN EXISTS (SELECT 1 FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                         WHERE i.indisprimary AND i.indrelid = to_regclass(c.table_name) AND a.attname = c.column_name)
            THEN ' KEY' ELSE '' END
    FROM information_schema.columns AS c WHERE c.table_schema = 'public'";
const POSTGRES_INDEXES: &str = "SELECT named.relname || ' ON ' || tables.relname || ' ('
    || (SELECT string_agg(COALESCE(a.attname, 'expression'), ', ' ORDER BY k.place)
        FROM unnest(i.indkey) WITH ORDINALITY AS k (attribute, place)
        LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attribute AND k.attribute > 0) || ')'
    || CASE WHEN i.indisunique THEN ' UNIQUE' ELSE '' END
    FROM pg_index AS i JOIN pg_class AS named ON named.oid = i.indexrelid JOIN pg_class AS tables ON tables.oid = i.indrelid
    JOIN pg_namespace AS spaces ON spaces.oid = tables.relnamespace
    WHERE spaces.nspname = 'public' AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = i.indexrelid AND contype IN ('p', 'u', 'x'))";

fn on_sqlite_file(db: &TestDb) -> Told {
    let rows = [SQLITE_COLUMNS, SQLITE_INDEXES].into_iter();
    rows.flat_map(|sql| texts(&db.sqlite(), sql))
        .map(|row| row.replace("BIGINT", "INTEGER"))
        .collect()
}

/// Returns the rows of a query that has one column of text.
fn texts(database: &rusqlite::Connection, sql: &str) -> Vec<String> {
    let mut statement = database.prepare(sql).expect(sql);
    let rows = statement.query_map([], |row| row.get(0)).expect(sql);
    rows.collect::<Result<_, _>>().expect(sql)
}

async fn on_server(db: &TestDb) -> Told {
    let url = db.options.url.as_deref().expect("a server's");
    let mut connection = PgConnection::connect(url).await.expect("it answers");
    let mut told = Told::new();
    for sql in [POSTGRES_COLUMNS, POSTGRES_INDEXES] {
        let rows: Vec<(String,)> = sqlx::query_as(sql)
            .fetch_all(&mut connection)
            .await
            .expect(sql);
        told.extend(rows.into_iter().map(|(row,)| row));
    }

    let kinds = [
        (" uuid", " BLOB"),
        (" bytea", " BLOB"),
        (" bigint", " INTEGER"),
        (" boolean", " INTEGER"),
        (" text", " TEXT"),
        (" double precision", " REAL"),
    ];

    let common = |row: String| {
        kinds
            .iter()
            .fold(row, |row, (own, common)| row.replace(own, common))
    };
    told.into_iter().map(common).collect()
}

#[test]
fn both_databases_have_the_same_schema() {
    on_postgres(|db| {
        Box::pin(async move {
            let beside = TestDb::new(None);
            db.open().await.close().await;
            beside.open().await.close().await;
            let (ours, theirs) = (on_sqlite_file(&beside), on_server(db).await);
            let only_ours: Vec<_> = ours.difference(&theirs).collect();
            let only_theirs: Vec<_> = theirs.difference(&ours).collect();
            assert!(
                only_ours.is_empty() && only_theirs.is_empty(),
                "on SQLite alone: {only_ours:#?}; on PostgreSQL alone: {only_theirs:#?}"
            );
            assert!(ours.len() > 100, "{ours:#?}");
        })
    });
}

/// Rows of a database of version 49, where the way from there changes or adds something: a partner, its org, an agent, a network that was
/// dedicated to the org, an API key and a session of a person. A second key has no hash, and a second session no id: these end.
const ROWS_OF_49: &str = "
    INSERT INTO partners (id, name, active, created_at) VALUES ('00000000000000000000000000000001', 'Reseller', TRUE, 7);
    INSERT INTO orgs (id, partner_id, name, widget_token, language, created_at, requests_per_minute, sessions_emptied_to)
        VALUES ('00000000000000000000000000000002', '00000000000000000000000000000001', 'Acme', 'w', 'en', 8, 5, 6);
    INSERT INTO agents (id, org_id, name, type, language, first_message, use_org_knowledgebase, action_ids, enabled, created_at, updated_at)
        VALUES ('00000000000000000000000000000003', '00000000000000000000000000000002', 'Echo', 'inbound', 'en', '', TRUE, '[]', TRUE, 9, 9);
    INSERT INTO transfers (id, org_id, call_id, name, type, value, state, reasons, summary, sentiment, requested_at, ended_at, way, step,
        answer_confirmed, caller_may_be_gone, counted_at, lost_from)
        VALUES ('00000000000000000000000000000004', '00000000000000000000000000000002', '00000000000000000000000000000005', 'Desk', 'phone',
            '+442071838751', 'completed', '[]', 'why', 'calm', 11, 12, 'bridge', 103, TRUE, TRUE, 13, 'ringing'),
        ('00000000000000000000000000000006', '00000000000000000000000000000002', '00000000000000000000000000000005', 'Old', 'sip',
            'sip:a@b', 'failed', '[]', '', NULL, 14, NULL, 'refer', 101, NULL, NULL, NULL, NULL);
    INSERT INTO dedications (network, org_id, created_at) VALUES ('192.0.2.0/24', '00000000000000000000000000000002', 9);
    INSERT INTO org_keys (id, org_id, name, scopes, created_at, last_used_at, token_hash, kid, expires_at)
        VALUES ('00000000000000000000000000000004', '00000000000000000000000000000002', 'Hashed', '[]', 9, 10, '01', 'k', 11);
    INSERT INTO org_keys (id, org_id, name, scopes, created_at)
        VALUES ('00000000000000000000000000000005', '00000000000000000000000000000002', 'Unused', '[]', 9);
    INSERT INTO users (id, email, name, created_at) VALUES ('00000000000000000000000000000006', 'ann@example.com', 'Ann', 9);
    INSERT INTO memberships (org_id, user_id, created_at)
        VALUES ('00000000000000000000000000000002', '00000000000000000000000000000006', 9);
    INSERT INTO dashboard_sessions (token_hash, org_id, user_id, expires_at, created_at, id)
        VALUES ('02', '00000000000000000000000000000002', '00000000000000000000000000000006', 12, 9, '00000000000000000000000000000007');
    INSERT INTO dashboard_sessions (token_hash, org_id, user_id, expires_at, created_at)
        VALUES ('03', '00000000000000000000000000000002', '00000000000000000000000000000006', 12, 9);";
/// A person who is a member at two orgs of a second partner and in one that has none, with what that is hung on, and the operator's account
/// in orgs of both partners.
const ACCOUNTS_OF_49: &str = "
    INSERT INTO partners (id, name, active, created_at) VALUES ('01000000000000000000000000000001', 'Rival', TRUE, 7);
    INSERT INTO orgs (id, partner_id, name, widget_token, language, created_at)
        VALUES ('02000000000000000000000000000001', '01000000000000000000000000000001', 'Beta', 'x', 'en', 8),
        ('02000000000000000000000000000002', '01000000000000000000000000000001', 'Gamma', 'y', 'en', 8),
        ('02000000000000000000000000000003', NULL, 'Own', 'z', 'en', 8);
    INSERT INTO roles (id, org_id, name, access, created_at)
        VALUES ('03000000000000000000000000000001', '02000000000000000000000000000001', 'admin', 'write', 8),
        ('03000000000000000000000000000003', '02000000000000000000000000000003', 'admin', 'write', 8);
    INSERT INTO users (id, email, name, created_at)
        VALUES ('04000000000000000000000000000001', 'operator@localhost.localdomain', 'operator', 9),
        ('04000000000000000000000000000002', 'bob@example.com', 'Left', 9);
    INSERT INTO memberships (org_id, user_id, created_at)
        VALUES ('02000000000000000000000000000001', '00000000000000000000000000000006', 10),
        ('02000000000000000000000000000002', '00000000000000000000000000000006', 11),
        ('02000000000000000000000000000003', '00000000000000000000000000000006', 12),
        ('02000000000000000000000000000001', '04000000000000000000000000000001', 13),
        ('00000000000000000000000000000002', '04000000000000000000000000000001', 14);
    INSERT INTO membership_roles (org_id, user_id, role_id)
        VALUES ('02000000000000000000000000000001', '00000000000000000000000000000006', '03000000000000000000000000000001'),
        ('02000000000000000000000000000003', '00000000000000000000000000000006', '03000000000000000000000000000003'),
        ('02000000000000000000000000000001', '04000000000000000000000000000001', '03000000000000000000000000000001');
    INSERT INTO login_links (token_hash, org_id, user_id, expires_at, created_at)
        VALUES ('04', '02000000000000000000000000000001', '00000000000000000000000000000006', 12, 9),
        ('05', '02000000000000000000000000000001', '04000000000000000000000000000001', 12, 9);
    INSERT INTO dashboard_sessions (token_hash, org_id, user_id, expires_at, created_at, id)
        VALUES ('06', '02000000000000000000000000000002', '00000000000000000000000000000006', 12, 9, '05000000000000000000000000000001');";
/// The members with the names, roles, links and sessions that they have, and in how many orgs their account is.
const ACCOUNTS_KEPT: &str = "
    SELECT orgs.name || ' ' || email || ' ' || users.name || ' since ' || memberships.created_at
        || ' roles ' || (SELECT COUNT(*) FROM membership_roles AS r WHERE r.org_id = orgs.id AND r.user_id = users.id)
        || ' links ' || (SELECT COUNT(*) FROM login_links AS l WHERE l.org_id = orgs.id AND l.user_id = users.id)
        || ' sessions ' || (SELECT COUNT(*) FROM dashboard_sessions AS s WHERE s.org_id = orgs.id AND s.user_id = users.id)
        || ' orgs ' || (SELECT COUNT(*) FROM memberships AS m WHERE m.user_id = users.id)
        FROM memberships JOIN orgs ON orgs.id = org_id JOIN users ON users.id = user_id
    UNION ALL SELECT email || ' in none' FROM users WHERE NOT EXISTS (SELECT 1 FROM memberships WHERE user_id = users.id) ORDER BY 1";
const ACCOUNTS_SPLIT: [&str; 6] = [
    "Acme ann@example.com Ann since 9 roles 0 links 0 sessions 1 orgs 1",
    "Acme operator@localhost.localdomain operator since 14 roles 0 links 0 sessions 0 orgs 2",
    "Beta ann@example.com ann since 10 roles 1 links 1 sessions 0 orgs 2",
    "Beta operator@localhost.localdomain operator since 13 roles 1 links 0 sessions 0 orgs 2",
    "Gamma ann@example.com ann since 11 roles 0 links 0 sessions 1 orgs 2",
    "Own ann@example.com ann since 12 roles 1 links 0 sessions 0 orgs 1",
];
/// The keys and sessions that stay, with all of their columns.
const KEYS_AND_SESSIONS_KEPT: &str = "
    SELECT name || ' ' || scopes || ' ' || created_at || ' ' || last_used_at || ' ' || kid || ' ' || expires_at FROM org_keys UNION ALL
    SELECT email || ' ' || dashboard_sessions.created_at || ' ' || expires_at FROM dashboard_sessions JOIN users ON users.id = user_id
    ORDER BY 1";
const KEPT: [&str; 3] = [
    "Hashed [] 9 10 k 11",
    "ann@example.com 9 12",
    "ann@example.com 9 12",
];
/// Every column of the transfers that has a value, but for the ids.
const TRANSFERS: &str = "SELECT name || ' ' || type || ' ' || value || ' ' || state || ' ' || reasons || ' ' || summary || ' '
    || COALESCE(sentiment, '-') || ' ' || requested_at || ' ' || COALESCE(ended_at, 0) || ' ' || way || ' ' || step || ' '
    || CASE WHEN answer_confirmed THEN 'confirmed' ELSE '-' END || ' ' || CASE WHEN caller_may_be_gone THEN 'gone' ELSE 'there' END || ' '
    || COALESCE(counted_at, 0) || ' ' || COALESCE(lost_from, '-') FROM transfers ORDER BY requested_at";
const TRANSFERS_KEPT: [&str; 2] = [
    "Desk phone +442071838751 completed [] why calm 11 12 bridge 103 confirmed gone 13 ringing",
    "Old sip sip:a@b failed []  - 14 0 refer 101 - there 0 -",
];
const SQLITE_49: &str = include_str!("../../fixtures/forerunner/sqlite.sql");
const POSTGRES_49: &str = include_str!("../../fixtures/forerunner/postgres.sql");

/// Puts a database of version 49 in the place of a new one, whose keys stay.
fn replace_by_49(db: &TestDb) {
    let file = db.options.data_dir.join("trunkline.db");
    std::fs::remove_file(file).expect("the new one goes");
    let rows = format!("{ROWS_OF_49}{ACCOUNTS_OF_49}");
    let rows = rows.replace("('0", "(x'0").replace(", '0", ", x'0");
    let script = format!("{SQLITE_49}\n{rows}");
    db.sqlite().execute_batch(&script).expect("version 49");
}

/// The statements that make the schema, without comments, quotes and blanks, and the rows that it begins with.
fn sqlite_dump(db: &TestDb) -> BTreeSet<String> {
    let database = db.sqlite();
    let statements = texts(
        &database,
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL",
    );
    let plain = |statement: String| {
        let lines = statement.lines().map(|line| match line.split_once("--") {
            Some((before, _)) => before,
            None => line,
        });
        let text = lines.collect::<String>();
        text.chars()
            .filter(|c| !c.is_whitespace() && *c != '"')
            .collect()
    };
    let mut dump: BTreeSet<String> = statements.into_iter().map(plain).collect();
    let seeds = "SELECT list || ' ' || last FROM drawn UNION ALL SELECT id || ' ' || seq FROM changes_pruned";
    dump.extend(texts(&database, seeds));
    let versions = "SELECT version || ' ' || name || ' ' || fingerprint FROM schema_migrations";
    dump.extend(texts(&database, versions));
    dump
}

#[test]
fn a_sqlite_database_of_version_49_becomes_a_new_one() {
    on_sqlite(|db| {
        Box::pin(async move {
            db.open().await.close().await;
            let new = sqlite_dump(db);
            replace_by_49(db);
            db.open().await.close().await;

            assert_same(&new, &sqlite_dump(db));
            let kept = "SELECT partners.name || ' ' || orgs.name || ' ' || agents.name || ' ' || dedications.network || ' ' || no_proof
                FROM dedications, agents JOIN orgs ON orgs.id = agents.org_id JOIN partners ON partners.id = partner_id";
            let rows = texts(&db.sqlite(), kept);
            assert_eq!(rows, ["Reseller Acme Echo 192.0.2.0/24 1"]);
            assert_eq!(texts(&db.sqlite(), TRANSFERS), TRANSFERS_KEPT);
            let rows = texts(&db.sqlite(), KEYS_AND_SESSIONS_KEPT);
            assert_eq!(rows, KEPT);
            assert_eq!(texts(&db.sqlite(), ACCOUNTS_KEPT), ACCOUNTS_SPLIT);
        })
    });
}

const POSTGRES_DUMP: [&str; 5] = [
    "SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || COALESCE(column_default, '')
         || ' ' || is_identity || ' ' || COALESCE(identity_generation, '') FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
         WHERE connamespace = 'public'::regnamespace",
    "SELECT list || ' ' || last FROM drawn UNION ALL SELECT id || ' ' || seq FROM changes_pruned",
    "SELECT version || ' ' || name || ' ' || fingerprint FROM schema_migrations",
];

async fn postgres_dump(connection: &mut PgConnection) -> BTreeSet<String> {
    let mut dump = BTreeSet::new();
    for sql in POSTGRES_DUMP {
        let rows: Vec<String> = sqlx::query_scalar(sql)
            .fetch_all(&mut *connection)
            .await
            .expect(sql);
        dump.extend(rows);
    }
    dump
}

#[test]
fn a_postgresql_database_of_version_49_becomes_a_new_one() {
    on_postgres(|db| {
        Box::pin(async move {
            let url = db.options.url.as_deref().expect("a server's");
            let mut connection = PgConnection::connect(url).await.expect("it answers");
            db.open().await.close().await;
            let new = postgres_dump(&mut connection).await;
            // The keys stay.
            let script = format!(
                "ALTER SCHEMA public RENAME TO fresh; CREATE SCHEMA public; {POSTGRES_49}
                 {ROWS_OF_49} {ACCOUNTS_OF_49} INSERT INTO secrets SELECT * FROM fresh.secrets; DROP SCHEMA fresh CASCADE"
            );
            let made = sqlx::raw_sql(AssertSqlSafe(script))
                .execute(&mut connection)
                .await;
            made.expect("version 49");
            db.open().await.close().await;

            assert_same(&new, &postgres_dump(&mut connection).await);
            let kept = "SELECT partners.name || ' ' || orgs.name || ' ' || agents.name || ' ' || dedications.network || ' ' || no_proof
                FROM dedications, agents JOIN orgs ON orgs.id = agents.org_id JOIN partners ON partners.id = partner_id";
            let rows: Vec<String> = sqlx::query_scalar(kept)
                .fetch_all(&mut connection)
                .await
                .expect(kept);
            assert_eq!(rows, ["Reseller Acme Echo 192.0.2.0/24 true"]);
            let transfers: Vec<String> = sqlx::query_scalar(TRANSFERS)
                .fetch_all(&mut connection)
                .await
                .expect(TRANSFERS);
            assert_eq!(transfers, TRANSFERS_KEPT);
            let rows: Vec<String> = sqlx::query_scalar(KEYS_AND_SESSIONS_KEPT)
                .fetch_all(&mut connection)
                .await
                .expect("rows");
            assert_eq!(rows, KEPT);
            let rows: Vec<String> = sqlx::query_scalar(ACCOUNTS_KEPT)
                .fetch_all(&mut connection)
                .await
                .expect("rows");
            assert_eq!(rows, ACCOUNTS_SPLIT);
        })
    });
}

fn assert_same(new: &BTreeSet<String>, upgraded: &BTreeSet<String>) {
    let new_alone: Vec<_> = new.difference(upgraded).collect();
    let upgraded_alone: Vec<_> = upgraded.difference(new).collect();
    assert!(
        new_alone.is_empty() && upgraded_alone.is_empty(),
        "in a new database alone: {new_alone:#?}; in an upgraded one alone: {upgraded_alone:#?}"
    );
    assert!(new.len() > 100, "{new:#?}");
}

crate::on_both!(other_schemas_are_refused);

/// Anything older than version 49, and a schema of the same version with another text, is refused with the way out, and stays as it is.
async fn other_schemas_are_refused(db: &TestDb) {
    db.open().await.close().await;
    db.execute("UPDATE schema_migrations SET fingerprint = 'another'")
        .await;
    let fault = db.try_open().await.expect_err("another schema");
    assert!(matches!(fault, OpenFault::AnotherSchema { found: 1 }));
    assert!(fault.to_string().contains("the build that made it"));

    db.execute("ALTER TABLE schema_migrations DROP COLUMN fingerprint; UPDATE schema_migrations SET version = 48")
        .await;
    let fault = db.try_open().await.expect_err("an old schema");
    assert!(matches!(fault, OpenFault::TooOld { found: 48 }));
    assert!(fault.to_string().contains("start build c486631c once"));

    db.execute("UPDATE schema_migrations SET version = 50")
        .await;
    let fault = db.try_open().await.expect_err("no schema of 49");
    assert!(matches!(fault, OpenFault::AnotherSchema { found: 50 }));
}
