//! Pages of the list of calls over as many calls as one org may have, with each filter that the API has.
//!
//! A daemon records one call and stops, its database is filled with copies of that call, and CPU is measured while a new daemon serves pages.

use std::io;
use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

use super::bench::{Fault, Setting, drain, make};
use super::line::{Line, launch, many_requests, start};
use crate::daemon::Daemon;
use crate::engine::{Engine, Sockets};
use crate::exchange::Plan;
use crate::http;
use crate::kernel::pin_to;
use crate::process::cpu_seconds;
use crate::report::Report;
use crate::seed::BLOCK;

/// Fills the database of a stopped daemon with copies of its newest call, a minute apart, up to `count` calls, and measures pages of the list.
///
/// # Errors
/// There is no daemon, or its database can't be filled.
pub fn list(setting: &Setting, count: u32) -> Result<Report, Fault> {
    /// Pages read before, and while, CPU is measured.
    const PAGES: (u32, u32) = (5, 40);
    let data = TempDir::new_in(&setting.scratch)?;
    let sockets = Sockets::bind()?;
    let (server, parties) = start(setting, data.path(), &sockets)?;
    let database = data.path().join("trunkline/trunkline.db");
    let mut engine = Engine::new(sockets, &parties, Plan::default(), None, setting.room);
    make(&mut engine, 1, 10.0);
    drain(&mut engine);
    let mut line = Line {
        server,
        database: database.clone(),
        report: Report::new(format!("list of {count} calls")),
    };
    line.recorded(1)?;
    let sockets = engine.into_sockets();
    // A call without a record has no copies, which is a fault already.
    let Line {
        mut report, server, ..
    } = line;
    // Stops the daemon.
    drop(server);

    copies(&database, count).map_err(crate::seed::CannotFill::from)?;
    // Pages are read as fast as they come, so the limit of requests is raised again.
    let server = launch(setting, data.path(), sockets.callee()?, many_requests()).start()?;
    if let Some((_, own)) = setting.cores {
        pin_to(own)?;
    }
    let pages = Pages {
        server: &server,
        key: server.announcement.api_key.clone(),
    };
    let (agent, trunk) = (copied_id(AGENT, 1), copied_id(TRUNK, 1));
    let deep = pages.cursor_behind(DEEP)?;
    for (name, query) in [
        ("cpu_ms_a_page", String::new()),
        ("cpu_ms_a_deep_page", format!("&cursor={deep}")),
        ("cpu_ms_a_page_of_an_agent", format!("&agent_id={agent}")),
        ("cpu_ms_a_page_of_a_trunk", format!("&trunk_id={trunk}")),
        (
            "cpu_ms_a_page_of_a_direction",
            "&direction=outbound".to_owned(),
        ),
        ("cpu_ms_a_page_of_a_status", "&status=failed".to_owned()),
        ("cpu_ms_a_page_of_a_rare_status", "&status=busy".to_owned()),
        // The old name of `phone_number`, which is the one that earlier revisions know.
        (
            "cpu_ms_a_page_of_a_number",
            "&number=%2B441632960999".to_owned(),
        ),
        (
            "cpu_ms_a_page_of_a_number_and_a_status",
            "&number=%2B441632960999&status=failed".to_owned(),
        ),
        (
            "cpu_ms_a_page_of_the_own_number",
            format!(
                "&number=%2B{}",
                server.announcement.phone_number.trim_start_matches('+')
            ),
        ),
        (
            "cpu_ms_a_page_of_an_agent_and_a_status",
            format!("&agent_id={agent}&status=failed"),
        ),
        (
            "cpu_ms_a_page_of_all_but_the_number",
            format!("&agent_id={agent}&trunk_id={trunk}&direction=inbound&status=failed"),
        ),
        (
            "cpu_ms_a_page_of_a_year",
            "&start_date=2025-01-01&end_date=2025-12-31&status=failed".to_owned(),
        ),
    ] {
        let path = format!("/phone/calls?limit=20{query}");
        pages.read(&path, PAGES.0)?;
        let before = cpu_seconds(server.pid())?;
        pages.read(&path, PAGES.1)?;
        let spent = cpu_seconds(server.pid())? - before;
        report.measure(name, spent * 1e3 / f64::from(PAGES.1));
    }
    Ok(report)
}

/// Reader of pages of the list of calls.
struct Pages<'s> {
    server: &'s Daemon,
    key: String,
}

impl Pages<'_> {
    /// Reads a page so many times; returns it.
    fn read(&self, path: &str, times: u32) -> io::Result<String> {
        let mut page = String::new();
        for _ in 0..times {
            let (status, answer) = http::get(self.server.http, path, Some(&self.key))?;
            if status != 200 {
                return Err(io::Error::other(format!("{path}: {status} {answer}")));
            }
            page = answer;
        }
        Ok(page)
    }

    /// Returns the cursor behind so many calls.
    fn cursor_behind(&self, calls: u32) -> io::Result<String> {
        let mut cursor = String::new();
        for _ in 0..calls / 100 {
            let from = if cursor.is_empty() {
                String::new()
            } else {
                format!("&cursor={cursor}")
            };
            let page = self.read(&format!("/phone/calls?limit=100{from}"), 1)?;
            let page: Value = serde_json::from_str(&page)?;
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        Ok(cursor)
    }
}

/// Calls before the position of a deep page.
const DEEP: u32 = 100_000;
/// First octet of the ids of agents and trunks that copies have.
const AGENT: u8 = 0xa1;
const TRUNK: u8 = 0xb2;
/// Agents of the copies, of which the last two place calls; a trunk for each of four.
const AGENTS: u8 = 20;
const TRUNKS: u8 = 5;

/// Returns the id of an agent or a trunk of the copies.
fn copied_id(kind: u8, number: u8) -> String {
    let start = format!("{kind:02x}{kind:02x}{kind:02x}{kind:02x}-0000-7000-8000-0000000000");
    format!("{start}{number:02x}")
}

/// Copies the newest call with new ids, whatever columns its build has: of 20 agents and five trunks, a call in ten failed and one in 5,000 was
/// busy, and numbers differ.
fn copies(file: &Path, count: u32) -> rusqlite::Result<()> {
    let database = Connection::open(file)?;
    let columns: Vec<String> = database
        .prepare("SELECT name FROM pragma_table_info('calls')")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let has_lists = columns.iter().any(|column| column == "list");

    // The kinds of calls by their numbers: agent, trunk, direction, status, and the list of these.
    database.execute_batch(
        "CREATE TEMP TABLE kinds (agent INTEGER, outcome TEXT, agent_id BLOB, trunk_id BLOB, direction TEXT, list INTEGER,
             PRIMARY KEY (agent, outcome))",
    )?;
    for agent in 0..AGENTS {
        for (number, outcome) in [(1, "completed"), (2, "busy"), (4, "failed")] {
            let octets = |kind, number| copied_id(kind, number).replace('-', "");
            let direction = if agent + 2 < AGENTS {
                "inbound"
            } else {
                "outbound"
            };
            let sql = format!(
                "INSERT INTO temp.kinds VALUES ({agent}, '{outcome}', x'{}', x'{}', '{direction}', {})",
                octets(AGENT, agent),
                octets(TRUNK, agent % TRUNKS),
                (i64::from(agent) + 1) * 16 + number
            );
            database.execute(&sql, [])?;
        }
    }
    if has_lists {
        database.execute_batch(&format!(
            "INSERT INTO call_lists (list, org_id, agent_id, trunk_id, direction, outcome)
                 SELECT kinds.list, calls.org_id, kinds.agent_id, kinds.trunk_id, kinds.direction, kinds.outcome FROM temp.kinds, calls;
             INSERT INTO call_blocks (block, org_id)
                 WITH RECURSIVE numbered(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbered WHERE i < {count} / {BLOCK})
                 SELECT i + 1, org_id FROM numbered, calls;"
        ))?;
    }

    let value = |column: &String| match column.as_str() {
        "id" | "session_id" => "randomblob(16)".to_owned(),
        "started_at" | "ringing_at" | "answered_at" | "ended_at" => {
            format!("copied.{column} - 60000000 * (i + 1)")
        }
        "status" => "kinds.outcome".to_owned(),
        "agent_id" | "trunk_id" | "direction" | "list" => format!("kinds.{column}"),
        // The newest calls are in the last block.
        "block" => format!("({count} - i) / {BLOCK} + 1"),
        "from_number" | "from_e164" => "printf('+44163296%04d', i % 5000)".to_owned(),
        "caller_call_id" => "'call-' || i || '@pbx.example.com'".to_owned(),
        _ => format!("copied.{column}"),
    };
    let values: Vec<String> = columns.iter().map(value).collect();
    let statement = format!(
        "INSERT INTO calls ({}) WITH RECURSIVE numbered(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbered WHERE i + 1 < {count})
         SELECT {} FROM numbered CROSS JOIN (SELECT * FROM calls ORDER BY started_at DESC LIMIT 1) AS copied
         JOIN temp.kinds ON kinds.agent = i % {AGENTS} AND kinds.outcome = CASE WHEN i / {AGENTS} % 10 = 3 THEN 'failed'
             WHEN i % 5000 = 97 THEN 'busy' ELSE 'completed' END",
        columns.join(", "),
        values.join(", ")
    );
    database.execute(&statement, [])?;
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
}
