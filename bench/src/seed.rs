//! Rows of a large directory and of a long list of calls, written directly into the database of a stopped daemon.

use std::path::Path;

use rusqlite::Connection;

/// Number of rows of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Orgs besides the first.
    pub orgs: u32,
    /// Agents of the first org, besides its own first agent.
    pub agents: u32,
    /// Verified numbers over the other orgs, each held by an agent.
    pub numbers: u32,
}

/// Error: the database can't be filled.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct CannotFill(#[from] rusqlite::Error);

/// Fills the database `file`.
///
/// # Errors
/// It isn't the database of a daemon that has run `quickstart`, or SQLite fails.
pub fn fill(file: &Path, rows: Rows) -> Result<(), CannotFill> {
    let mut database = Connection::open(file)?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    let Rows {
        orgs,
        agents,
        numbers,
    } = rows;

    let writing = database.transaction()?;
    let now = created_at(&writing)?;
    let numbered = |count: u32| {
        format!(
            "WITH RECURSIVE numbered(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbered WHERE i + 1 < {count})"
        )
    };

    // Rank 0 is the first org.
    let statements = [
        "CREATE TEMP TABLE ranked (rank INTEGER PRIMARY KEY, id BLOB NOT NULL)".to_owned(),
        "INSERT INTO ranked SELECT 0, id FROM orgs".to_owned(),
        format!(
            "INSERT INTO ranked {} SELECT i + 1, randomblob(16) FROM numbered",
            numbered(orgs)
        ),
        format!(
            "INSERT INTO orgs (id, name, widget_token, language, created_at, updated_at)
             SELECT id, 'Org ' || rank, hex(randomblob(16)), 'en', {now} + rank, {now} + rank FROM ranked WHERE rank > 0"
        ),

        // These agents only make calls, so that none of them takes calls from the agent that answers.
        format!(
            "INSERT INTO agents (id, org_id, name, type, language, first_message, use_org_knowledgebase, action_ids, enabled, created_at, updated_at) {}
             SELECT randomblob(16), ranked.id, 'Agent ' || i, 'outbound', 'en', 'Hello, this is agent ' || i, 1, '[]', 1, {now} + i, {now} + i
             FROM numbered JOIN ranked ON ranked.rank = 0 WHERE {agents} > 0",
            numbered(agents)
        ),

        // Each other org has one agent, with the org's own id.
        format!(
            "INSERT INTO agents (id, org_id, name, type, language, first_message, use_org_knowledgebase, action_ids, enabled, created_at, updated_at)
             SELECT id, id, 'Agent', 'inbound', 'en', 'Hello', 1, '[]', 1, {now}, {now} FROM ranked WHERE rank > 0 AND {numbers} > 0"
        ),

        format!(
            "INSERT INTO numbers (id, org_id, number, verified_at, agent_id, created_at) {}
             SELECT randomblob(16), ranked.id, printf('+9%011d', i), {now}, ranked.id, {now}
             FROM numbered JOIN ranked ON ranked.rank = 1 + i % {orgs} WHERE {numbers} > 0",
            numbered(numbers)
        ),
    ];

    for statement in statements {
        writing.execute(&statement, [])?;
    }
    writing.commit()?;
    Ok(())
}

/// Returns the time at which the first org was made.
fn created_at(database: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT created_at FROM orgs";
    database.query_row(sql, [], |row| row.get(0))
}

/// Calls of one block, as the daemon makes them.
pub(crate) const BLOCK: u32 = 4_096;

/// Adds calls of the first org to the database `file`, a minute apart, the newest a minute ago.
///
/// # Errors
/// Those of [`fill`].
pub fn calls(file: &Path, count: u32) -> Result<(), CannotFill> {
    let database = Connection::open(file)?;
    let now = created_at(&database)?;

    // One call in ten failed, and one in ten was refused. The last digits of the lists are their outcomes.
    database.execute_batch(&format!(
        "INSERT INTO call_lists (list, org_id, agent_id, direction, outcome)
             SELECT lists.list, orgs.id, agents.id, 'inbound', lists.outcome
             FROM (SELECT 17 AS list, 'completed' AS outcome UNION SELECT 20, 'failed' UNION SELECT 22, 'refused') AS lists, orgs, agents;
         INSERT INTO call_blocks (block, org_id)
             WITH RECURSIVE numbered(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbered WHERE i <= {count} / {BLOCK})
             SELECT i, orgs.id FROM numbered, orgs"
    ))?;
    let statement = format!(
        "INSERT INTO calls (id, org_id, node, boot, session_id, agent_id, direction, status, from_number, to_number, from_e164, to_e164,
             started_at, ringing_at, answered_at, ended_at, sip_code, reason, hangup_by, caller_call_id, lost_told, list, block)
         WITH RECURSIVE numbered(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbered WHERE i + 1 < {count})
         SELECT randomblob(16), orgs.id, 0, 1, randomblob(16), agents.id, 'inbound',
             CASE i % 10 WHEN 3 THEN 'failed' WHEN 7 THEN 'refused' ELSE 'completed' END,
             printf('+44163%07d', i % 5000), '+442071838750', printf('+44163%07d', i % 5000), '+442071838750',
             {now} - 60000000 * ({count} - i), {now} - 60000000 * ({count} - i) + 200000,
             CASE i % 10 WHEN 3 THEN NULL WHEN 7 THEN NULL ELSE {now} - 60000000 * ({count} - i) + 900000 END,
             {now} - 60000000 * ({count} - i) + 45000000,
             CASE i % 10 WHEN 3 THEN 503 WHEN 7 THEN 403 ELSE 200 END,
             CASE i % 10 WHEN 3 THEN 'runtime_unreachable' WHEN 7 THEN 'no_agent' END, 'caller', 'call-' || i || '@pbx.example.com', 1,
             CASE i % 10 WHEN 3 THEN 20 WHEN 7 THEN 22 ELSE 17 END, 1 + i / {BLOCK}
         FROM numbered, orgs, agents"
    );

    database.execute(&statement, [])?;
    Ok(())
}
