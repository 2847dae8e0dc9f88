//! Query plans of both databases for statements of the API: no statement scans a whole table.
//!
//! The test calls every operation of the tenancy matrix but the operator's. It collects the statements that the driver logs, and those of the store
//! where it reads without the driver, so a new route can't be forgotten, nor a new filter of a list: the filters are those of the OpenAPI document.
//! The test runs in its own process, because the log of statements is global to the process.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

use crate::openapi::document;
use crate::test_api::{TestApi, until_taken};
use crate::test_db::{Beside, TestDb};
use crate::test_org::{Asker, Of, TestOrg, rows};

/// Plan steps that may scan a table, by the beginning of their statement, each with the reason.
const WHOLE: [(&str, &str, &str); 12] = [
    ("nodes", "SELECT node, lease_expires_at", "a row a node"),
    ("nodes", "SELECT node, TRUE FROM nodes", "a row a node"),
    ("nodes", "SELECT CAST(node AS BIGINT)", "a row a node"),
    ("changes_pruned", "SELECT", "a table of one row"),
    (
        "SCAN matching",
        "SELECT COUNT(*) FROM (SELECT 1 AS one FROM calls",
        "no table: the rows that the query within has found by its index",
    ),
    (
        "SCAN matching",
        "SELECT COUNT(*) FROM (SELECT 1 AS one FROM call_lists",
        "no table: the rows that the query within has found by its index",
    ),
    (
        "SCAN matching",
        "SELECT COUNT(*) FROM (SELECT 1 AS one FROM call_blocks",
        "no table: the rows that the queries within have found by their indexes",
    ),
    (
        "SCAN given",
        "WITH given",
        "no table: the rows that a statement was given",
    ),
    (
        "SCAN matching",
        "SELECT COUNT(*) FROM (SELECT 1 AS one FROM contacts",
        "no table: the rows that the query within has found by its index",
    ),
    (
        "SCAN matching",
        "SELECT COUNT(*) FROM (SELECT 1 AS one FROM webhook_deliveries",
        "no table: the rows that the query within has found by its index",
    ),
    (
        "SCAN counted",
        "SELECT day, org_id, agent_id, trunk_id, direction,",
        "no table: the groups that the queries within have counted by their indexes",
    ),
    (
        "SCAN contacts",
        "INSERT INTO orgs",
        "children of the new row are looked for where a deferred foreign key is violated, and none is deferred",
    ),
];

/// The statements that were run.
#[derive(Clone, Debug, Default)]
struct Statements(Arc<Mutex<BTreeSet<String>>>);

impl Statements {
    fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.0.lock().expect("nobody panics"))
    }
}

impl<S: Subscriber> Layer<S> for Statements {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut found = Found::default();
        event.record(&mut found);
        let words = found.statement.split_whitespace();
        let statement = words.collect::<Vec<_>>().join(" ");
        let statement = if statement.is_empty() {
            found.summary
        } else {
            statement
        };
        self.0.lock().expect("nobody panics").insert(statement);
    }
}

/// A statement in the driver's log. `summary` has all of it, unless it is cut after four words: then `statement` has the full text.
#[derive(Debug, Default)]
struct Found {
    summary: String,
    statement: String,
}

impl Visit for Found {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "summary" => self.summary = value.to_owned(),
            "db.statement" | "statement" => self.statement = value.to_owned(),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

/// Returns the statements that run while the test calls every operation but the operator's.
async fn asked(api: &TestApi, statements: &Statements) -> BTreeSet<String> {
    // A node reads everything when it starts.
    statements.take();
    let document = document();
    for (row, turn) in rows().iter().zip(0..) {
        if row.of == Of::Operator {
            // The operator lists all orgs, and a change to a partner rebuilds the directory.
            continue;
        }

        let test_org = TestOrg::new(api, turn).await;
        let owner = test_org.owner(api, row.of).await;
        let answer = until_taken(async || row.ask(api, &test_org, &owner).await).await;
        assert_eq!(
            answer.status,
            row.status,
            "{}: {}",
            row.operation(),
            answer.text
        );

        if row.method == "get" {
            // Lists with filters run other statements.
            let parameters = &document["paths"][row.path]["get"]["parameters"];
            narrowed(api, row.path, parameters, (&test_org, &owner)).await;
        }
    }

    api.state.write_uses().await;
    statements.take()
}

/// Requests the list with each of its query parameters by itself, as its owner.
async fn narrowed(
    api: &TestApi,
    path: &str,
    parameters: &Value,
    (test_org, owner): (&TestOrg, &Asker),
) {
    let of_query = parameters.as_array().into_iter().flatten();
    let of_query = of_query.filter(|parameter| parameter["in"] == "query");
    let names = of_query.filter_map(|parameter| parameter["name"].as_str());

    for name in names.filter(|name| !["limit", "cursor"].contains(name)) {
        let value = value_of(path, name, test_org);
        let asked = format!("{}?{name}={value}", test_org.filled(path));
        let answer = until_taken(async || {
            let mut request = Request::get(&asked);
            if let Some((header, credential)) = &owner.header {
                request = request.header(*header, credential);
            }
            api.send(request.body(Body::empty())).await
        });
        let answer = answer.await;
        assert_eq!(answer.status, 200, "{asked}: {}", answer.text);
    }
}

/// Returns a value that this query parameter may have, escaped.
fn value_of<'o>(path: &str, name: &str, test_org: &'o TestOrg) -> &'o str {
    match (path, name) {
        ("/phone", "type") => "inbound",
        (_, "type") => "phone",
        ("/partner/v1/usage", "group_by") => "day,org,agent,trunk,direction",
        (_, "group_by") => "day,agent,trunk,direction",
        (_, "ids") => &test_org.ids["agent_id"],
        (_, "kind") => "agent",
        (_, "search") => "sal",
        (_, "org_id") => &test_org.ids["orgId"],
        (_, "contact_id") => &test_org.ids["contact_id"],
        (_, "agent_id") => &test_org.ids["agent_id"],
        (_, "trunk_id") => &test_org.ids["trunk_id"],
        (_, "actor_id" | "resource_id") => "00000000-0000-0000-0000-000000000000",
        (_, "actor") => "org_key",
        (_, "resource") => "call",
        (_, "name") => "Sales",
        (_, "email") => "ada%40example.org",
        (_, "external_id") => "own-1",
        (_, "username") => "acme",
        (_, "source") => "192.0.2.1",
        (_, "url") => "https%3A%2F%2Fhooks.example.com%2Fx",
        (_, "phone" | "phone_number") => "%2B442071838750",
        (_, "verified" | "enabled" | "confirmed") => "true",
        (_, "direction") => "inbound",
        (path, "status") if path.ends_with("/deliveries") => "pending",
        (_, "status") => "completed",
        (_, "transport") => "udp",
        (_, "access") => "read",
        (_, "reason") => "ai_implied_handoff",
        (_, "language") => "en",
        (_, "types") => "call.ended",
        (_, "offset") => "1",
        (_, "last_event_id") => "0",
        (_, "start_date") => "2026-01-01",
        (_, "end_date") => "2026-12-31",
        (path, name) => panic!("{path} has the new filter {name}: give it a value here"),
    }
}

/// Returns whether a statement touches rows, so that it has a plan.
fn is_planned(statement: &str) -> bool {
    let first = statement.split(' ').next().unwrap_or_default();
    ["SELECT", "WITH", "INSERT", "UPDATE", "DELETE"].contains(&first)
}

fn query_plan(connection: &rusqlite::Connection, statement: &str) -> rusqlite::Result<Vec<String>> {
    let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}"))?;
    // Its parameters stay unbound.
    let mut rows = explained.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next()? {
        steps.push(row.get("detail")?);
    }
    Ok(steps)
}

/// Returns the plan steps that scan a whole table, or sort all contacts that match.
async fn whole(beside: &mut Beside, statement: &str) -> Vec<String> {
    match beside {
        Beside::Sqlite(connection) => {
            let steps = query_plan(connection, statement);
            let steps = steps.unwrap_or_else(|fault| panic!("{fault}: {statement}"));
            let is_scan = |step: &str| step.starts_with("SCAN ") && step != "SCAN CONSTANT ROW";
            let is_sort = |step: &str| {
                step == "USE TEMP B-TREE FOR ORDER BY" && statement.contains("FROM contacts")
            };
            let whole = steps
                .into_iter()
                .filter(|step| is_scan(step) || is_sort(step));
            whole.collect()
        }
        Beside::Postgres(connection) => {
            // A statement may leave out some of the values that it shares with others.
            let values = (1..100).filter(|n| statement.contains(&format!("${n}")));
            let mut kinds = vec!["unknown"; values.max().unwrap_or_default()];

            // PostgreSQL can't infer the type of every parameter: the loop tries types until the statement is accepted.
            let (mut last, mut tried) = (0, 0);
            while let Err(fault) = prepare(connection, &kinds, statement).await {
                let untold = fault.strip_prefix("could not determine data type of parameter $");
                match untold.and_then(|number| number.parse::<usize>().ok()) {
                    Some(untold) => (last, tried) = (untold - 1, 0),
                    None => tried += 1,
                }
                let kind = ["text", "uuid", "boolean", "bigint"].get(tried);
                kinds[last] = kind.unwrap_or_else(|| panic!("{fault}: {statement}"));
            }

            let values = vec!["NULL"; kinds.len()].join(", ");
            let values = match kinds.len() {
                0 => values,
                _ => format!("({values})"),
            };

            let sql = AssertSqlSafe(format!("EXPLAIN EXECUTE asked{values}"));
            let rows: Vec<(String,)> = sqlx::query_as(sql)
                .persistent(false)
                .fetch_all(connection)
                .await
                .unwrap_or_else(|fault| panic!("{fault}: {statement}"));
            let steps = rows.into_iter().map(|(step,)| step);
            steps.filter(|step| step.contains("Seq Scan")).collect()
        }
    }
}

async fn prepare(
    connection: &mut PgConnection,
    kinds: &[&str],
    statement: &str,
) -> Result<(), String> {
    let kinds = match kinds.len() {
        0 => String::new(),
        _ => format!("({})", kinds.join(", ")),
    };
    let prepare = format!("DEALLOCATE ALL; PREPARE asked {kinds} AS {statement}");
    let prepared = sqlx::raw_sql(AssertSqlSafe(prepare)).execute(connection);
    let told = |fault: sqlx::Error| match fault.as_database_error() {
        Some(fault) => fault.message().to_owned(),
        None => fault.to_string(),
    };
    prepared.await.map(drop).map_err(told)
}

async fn judge(db: TestDb, statements: &Statements) {
    let api = TestApi::built("", db).await;
    let asked = asked(&api, statements).await;
    let mut beside = api.db.beside().await;
    if let Beside::Postgres(connection) = &mut beside {
        // PostgreSQL scans small tables unless that is made expensive; the plan must be generic.
        let plain = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan";
        let set = sqlx::raw_sql(plain).execute(connection).await;
        set.expect("settings");
    }

    let mut faults = Vec::new();
    let mut planned = 0;
    for statement in asked.iter().filter(|statement| is_planned(statement)) {
        planned += 1;
        for step in whole(&mut beside, statement).await {
            let may = |(own, begin, _): &(&str, &str, &str)| {
                step.contains(own) && statement.starts_with(begin)
            };
            if !WHOLE.iter().any(may) {
                faults.push(format!("{step}: {statement}"));
            }
        }
    }

    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(planned > 100, "only {planned} statements were run");
}

/// Set in the test's own process.
const ALONE: &str = "TRUNKLINE_TEST_PLANS";

#[test]
fn no_statement_reads_a_table_from_end_to_end() {
    if std::env::var_os(ALONE).is_some() {
        return judge_all();
    }

    let own = std::env::current_exe().expect("its path");
    let judged = Command::new(own)
        .args([
            "--exact",
            "plans::no_statement_reads_a_table_from_end_to_end",
        ])
        .env(ALONE, "1")
        .output()
        .expect("it runs");
    let [said, complaint] =
        [judged.stdout, judged.stderr].map(|octets| String::from_utf8_lossy(&octets).into_owned());
    assert!(judged.status.success(), "{said}{complaint}");

    assert!(said.contains("1 passed"), "{said}{complaint}");
}

#[tokio::main(flavor = "current_thread")]
async fn judge_all() {
    let statements = Statements::default();
    let tell = ["sqlx::query", "trunkline::store::statement"];
    let layer = statements
        .clone()
        .with_filter(filter_fn(move |metadata| tell.contains(&metadata.target())));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).expect("the only one");
    judge(TestDb::sqlite(), &statements).await;
    if let Some(db) = TestDb::postgres().await {
        judge(db, &statements).await;
    }
}
