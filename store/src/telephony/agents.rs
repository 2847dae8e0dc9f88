//! Phone agents. Knows SQL and the seal of the runtime's secrets (its password, and the values of its headers); nothing of calls.

use trunkline_model::runtime_headers::RuntimeHeaders;
use trunkline_model::settings::Runtime;
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::prompts;
use super::status_callbacks;
use crate::driver::change::Change;
use crate::driver::column::{count, from_row, json, maybe, moment, named, number, to_json};
use crate::driver::edit::{lock_org, set};
use crate::driver::error::{Broke, Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::keyring::Keyring;
use crate::driver::org_limit::OrgLimit;
use crate::driver::page::{List, Narrow, Page, Position};
use crate::driver::tx::Tx;
use crate::driver::value::{Param, Value};
use crate::tenants::org_limits::leave_room_for;
use crate::tenants::password::Password;

/// A phone agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agent {
    /// The agent.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub name: String,
    /// Direction of the calls that the agent is for.
    pub kind: AgentKind,
    /// Language code.
    pub language: String,
    /// Greeting.
    pub first_message: String,
    /// The agent reads the org's knowledge base.
    pub use_org_knowledgebase: bool,
    /// Its voice.
    pub voice_id: Option<String>,
    /// Number for human escalation.
    pub handoff_phone_number: Option<E164>,
    /// Opaque ids of the actions it may call.
    pub action_ids: Vec<String>,
    /// The agent takes calls.
    pub enabled: bool,
    /// Most concurrent calls; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
    /// The runtime that answers; `None`: the configured one.
    pub runtime: Option<Runtime>,
    /// Seconds without RTP after which the caller is asked whether it is still there, 0: never; `None`: the configured ones.
    pub media_timeout_s: Option<u32>,
    runtime_by_operator: Option<bool>,
    /// Secrets of the runtime, sealed: its password, and behind a NUL, which no password has, a JSON object of its headers.
    runtime_password: Option<Vec<u8>>,
    /// Outbound trunk over which the agent dials.
    pub outbound_trunk_id: Option<Uuid>,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last change.
    pub updated_at: Moment,
}

/// Direction of the calls that an agent is for.
#[derive(
    Copy, Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// The agent answers calls, and may dial.
    Inbound,
    /// The agent dials; it never receives an inbound call.
    Outbound,
}

/// A new agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewAgent {
    /// Its name.
    pub name: String,
    /// Direction of the calls that the agent is for.
    pub kind: AgentKind,
    /// Language code.
    pub language: String,
    /// Greeting.
    pub first_message: String,
    /// The agent reads the org's knowledge base.
    pub use_org_knowledgebase: bool,
    /// Its voice.
    pub voice_id: Option<String>,
    /// Number for human escalation.
    pub handoff_phone_number: Option<E164>,
    /// Opaque ids of the actions it may call.
    pub action_ids: Vec<String>,
    /// The agent takes calls.
    pub enabled: bool,
    /// Most concurrent calls; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
    /// The runtime that answers; `None`: the configured one.
    pub runtime: Option<Runtime>,
    /// Seconds without RTP after which the caller is asked whether it is still there, 0: never; `None`: the configured ones.
    pub media_timeout_s: Option<u32>,
}

impl NewAgent {
    /// Returns an enabled inbound agent of this name, in English, all else empty.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: AgentKind::Inbound,
            language: "en".to_owned(),
            first_message: String::new(),
            use_org_knowledgebase: false,
            voice_id: None,
            handoff_phone_number: None,
            action_ids: Vec::new(),
            enabled: true,
            max_concurrent_calls: None,
            runtime: None,
            media_timeout_s: None,
        }
    }
}

/// A change of an agent; `None` leaves a field as it is, and `Some(None)` clears one that may be empty. The fields are those of [`Agent`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AgentChange {
    pub name: Option<String>,
    pub kind: Option<AgentKind>,
    pub language: Option<String>,
    pub first_message: Option<String>,
    pub use_org_knowledgebase: Option<bool>,
    pub voice_id: Option<Option<String>>,
    pub handoff_phone_number: Option<Option<E164>>,
    pub action_ids: Option<Vec<String>>,
    pub enabled: Option<bool>,
    pub max_concurrent_calls: Option<Option<u32>>,
    pub runtime: Option<Option<Runtime>>,
    pub media_timeout_s: Option<Option<u32>>,
}

/// Creates an agent.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org, [`Conflict::AtLimit`](crate::Conflict::AtLimit),
/// [`Conflict::PromptAbsent`](crate::Conflict::PromptAbsent).
pub fn create(tx: &mut Tx, org: Uuid, new: &NewAgent, now: Moment) -> Result<Agent, Error> {
    lock_org(tx, org)?;
    leave_room_for(tx, org, OrgLimit::Agents, now)?;
    prompts::check(tx, org, new.runtime.as_ref())?;

    let mut agent = Agent::new(org, new.clone(), now);
    agent.seal_secrets(&tx.keyring());
    tx.run(
        // $14, the time of the change, is that of the creation as well.
        "INSERT INTO agents (id, org_id, name, type, language, first_message, use_org_knowledgebase, voice_id,
             handoff_phone_number, action_ids, enabled, max_concurrent_calls, runtime, updated_at, runtime_by_operator,
             runtime_password, media_timeout_s, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $14)",
        &agent.values().each_ref().map(|value| value as &dyn Param),
    )?;

    status_callbacks::follow(tx, org, agent.id, agent.runtime.as_ref(), now)?;
    tx.changed(Change::Org(org), now);
    Ok(agent)
}

/// Returns the agent of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, agent: Uuid) -> Result<Agent, Error> {
    let sql = "SELECT *, type AS kind FROM agents WHERE org_id = $1 AND id = $2";
    let row = tx.one(sql, &[&org, &agent])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Agent))?)
}

/// Returns the agent of this id, with the secrets of its runtime.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn opened_by_id(tx: &mut Tx, org: Uuid, agent: Uuid) -> Result<Agent, Error> {
    let mut agent = by_id(tx, org, agent)?;
    agent.open_secrets(&tx.keyring())?;
    Ok(agent)
}

/// Returns the org's agents, newest first.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn list(tx: &mut Tx, org: Uuid) -> Result<Vec<Agent>, Error> {
    let sql =
        "SELECT *, type AS kind FROM agents WHERE org_id = $1 ORDER BY created_at DESC, id DESC";
    tx.all(sql, &[&org])
}

const LIST: List = List {
    columns: "*, type AS kind",
    table: "agents",
    by: ["type", "CASE WHEN enabled THEN 'true' ELSE 'false' END"],
};

/// Returns a page of the org's agents, newest first, filtered by type and `enabled`, after `after`.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Agent>, Error> {
    LIST.page(tx, org, narrow, after, limit, |agent: &Agent| Position {
        at: agent.created_at,
        id: agent.id,
    })
}

/// Returns a page as [`page`] does, with the secrets of the runtimes.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn opened_page(
    tx: &mut Tx,
    org: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Agent>, Error> {
    let mut found = page(tx, org, narrow, after, limit)?;
    for agent in &mut found.items {
        agent.open_secrets(&tx.keyring())?;
    }
    Ok(found)
}

/// Changes an agent; returns it as changed. What changes nothing leaves its version as it is.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::PromptAbsent`](crate::Conflict::PromptAbsent).
pub fn update(
    tx: &mut Tx,
    org: Uuid,
    agent: Uuid,
    change: &AgentChange,
    now: Moment,
) -> Result<Agent, Error> {
    lock_org(tx, org)?;
    let before = opened_by_id(tx, org, agent)?;
    let mut agent = before.clone();
    agent.apply(change.clone(), before.updated_at);
    if agent == before {
        tx.mark_internal();
        return Ok(before);
    }
    agent.updated_at = now;
    if change.runtime.is_some() {
        prompts::check(tx, org, agent.runtime.as_ref())?;
        agent.seal_secrets(&tx.keyring());
    }

    tx.run(
        "UPDATE agents SET name = $3, type = $4, language = $5, first_message = $6, use_org_knowledgebase = $7,
             voice_id = $8, handoff_phone_number = $9, action_ids = $10, enabled = $11, max_concurrent_calls = $12,
             runtime = $13, updated_at = $14, runtime_by_operator = $15, runtime_password = $16, media_timeout_s = $17
         WHERE org_id = $2 AND id = $1",
        &agent.values().each_ref().map(|value| value as &dyn Param),
    )?;

    if change.runtime.is_some() {
        status_callbacks::follow(tx, org, agent.id, agent.runtime.as_ref(), now)?;
    }
    tx.changed(Change::Org(org), now);
    Ok(agent)
}

/// Marks the agent's runtime as set by the operator, for as long as it stays the same.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn trust_runtime(tx: &mut Tx, org: Uuid, agent: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    if by_id(tx, org, agent)?.is_runtime_by_operator() {
        return Ok(());
    }
    let sql = "UPDATE agents SET runtime_by_operator = $3 WHERE org_id = $1 AND id = $2";
    tx.run(sql, &[&org, &agent, &true])?;
    // Also if the change before it has changed nothing.
    tx.mark_audited();
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Agents that [`seal_headers`] examines in one transaction.
const EXAMINED: i64 = 100;

/// Seals the headers of runtimes that an earlier build has stored in clear text, of the first agents behind `after`. Returns the last agent
/// that it examined; `None` if there is none.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn seal_headers(tx: &mut Tx, after: Uuid) -> Result<Option<Uuid>, Error> {
    tx.mark_internal();
    let sql = "SELECT *, type AS kind FROM agents WHERE id > $1 AND runtime LIKE '%\"headers\":{%' ORDER BY id LIMIT $2";
    let agents: Vec<Agent> = tx.all(sql, &[&after, &EXAMINED])?;
    let last = agents.last().map(|agent| agent.id);

    let keyring = tx.keyring();
    for mut agent in agents {
        let headers = agent.runtime.as_ref().and_then(Runtime::headers);
        if headers.is_none_or(|headers| headers.is_empty() || headers.are_masked()) {
            continue;
        }
        agent.open_secrets(&keyring)?;
        agent.seal_secrets(&keyring);
        let sql =
            "UPDATE agents SET runtime = $3, runtime_password = $4 WHERE org_id = $1 AND id = $2";
        let runtime = agent.runtime.as_ref().map(to_json);
        tx.run(
            sql,
            &[
                &agent.org_id,
                &agent.id,
                &runtime.as_deref(),
                &agent.runtime_password,
            ],
        )?;
    }
    Ok(last)
}

/// Deletes an agent and frees its numbers.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn delete(tx: &mut Tx, org: Uuid, agent: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "UPDATE numbers SET agent_id = NULL WHERE org_id = $1 AND agent_id = $2";
    tx.run(sql, &[&org, &agent])?;

    status_callbacks::forget(tx, org, agent)?;
    let sql = "DELETE FROM agents WHERE org_id = $1 AND id = $2";
    if tx.run(sql, &[&org, &agent])? == 0 {
        return Err(Wrong::Absent(Kind::Agent).into());
    }
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Refuses an agent that isn't the org's.
pub(crate) fn must_exist(tx: &mut Tx, org: Uuid, agent: Uuid) -> Result<(), Error> {
    let sql = "SELECT id FROM agents WHERE org_id = $1 AND id = $2";
    let row: Option<(Uuid,)> = tx.one(sql, &[&org, &agent])?;
    row.ok_or(Wrong::Absent(Kind::Agent))?;
    Ok(())
}

impl Agent {
    /// Returns whether the operator's command line set the runtime, which may then be at any address.
    pub fn is_runtime_by_operator(&self) -> bool {
        // NULL unless `trust_runtime` has set it.
        self.runtime_by_operator == Some(true)
    }

    fn new(org_id: Uuid, new: NewAgent, now: Moment) -> Self {
        Self {
            id: new_id(now),
            org_id,
            name: new.name,
            kind: new.kind,
            language: new.language,
            first_message: new.first_message,
            use_org_knowledgebase: new.use_org_knowledgebase,
            voice_id: new.voice_id,
            handoff_phone_number: new.handoff_phone_number,
            action_ids: new.action_ids,
            enabled: new.enabled,
            max_concurrent_calls: new.max_concurrent_calls,
            runtime: new.runtime,
            media_timeout_s: new.media_timeout_s,
            runtime_by_operator: None,
            runtime_password: None,
            outbound_trunk_id: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Returns the column values, in the order of the parameters in [`create`] and [`update`].
    fn values(&self) -> [Value<'_>; 17] {
        [
            self.id.into(),
            self.org_id.into(),
            self.name.value(),
            self.kind.as_str().into(),
            self.language.value(),
            self.first_message.value(),
            self.use_org_knowledgebase.value(),
            self.voice_id.value(),
            self.handoff_phone_number.value(),
            to_json(&self.action_ids).into(),
            self.enabled.value(),
            self.max_concurrent_calls.value(),
            self.runtime.as_ref().map(to_json).into(),
            self.updated_at.value(),
            self.runtime_by_operator.value(),
            self.runtime_password.value(),
            self.media_timeout_s.value(),
        ]
    }

    /// Seals the password of the runtime and the values of its headers, which its JSON lacks.
    fn seal_secrets(&mut self, keyring: &Keyring) {
        let runtime = self.runtime.as_ref();
        let login = runtime.and_then(Runtime::login);
        let headers = runtime.and_then(Runtime::headers);
        let headers = headers.filter(|headers| !headers.is_empty());

        let mut secrets = login.map(|login| login.password.to_string());
        if let Some(headers) = headers {
            let secrets = secrets.get_or_insert_default();
            secrets.push(SEPARATOR);
            secrets.push_str(&to_json(headers.reveal()));
        }
        self.runtime_password =
            secrets.map(|secrets| Password::new(secrets).seal(keyring, &owner(self.id)));
    }

    /// Opens the sealed secrets into the runtime, where calls need them.
    pub(crate) fn open_secrets(&mut self, keyring: &Keyring) -> Result<(), Broke> {
        let (Some(runtime), Some(sealed)) = (&mut self.runtime, &self.runtime_password) else {
            return Ok(());
        };
        let secrets = Password::open(keyring, &owner(self.id), sealed)?;
        let (password, headers) = match secrets.reveal().split_once(SEPARATOR) {
            Some((password, headers)) => (password, Some(headers)),
            None => (secrets.reveal(), None),
        };

        if let Some(login) = runtime.login_mut() {
            login.password = password.into();
        }
        if let (Some(shown), Some(headers)) = (runtime.headers_mut(), headers) {
            let column = "agents.runtime_password";
            *shown = json::<RuntimeHeaders>(headers).map_err(|_| Broke::Stored { column })?;
        }
        Ok(())
    }

    fn apply(&mut self, change: AgentChange, now: Moment) {
        set(&mut self.name, change.name);
        set(&mut self.kind, change.kind);
        set(&mut self.language, change.language);
        set(&mut self.first_message, change.first_message);
        set(
            &mut self.use_org_knowledgebase,
            change.use_org_knowledgebase,
        );
        set(&mut self.voice_id, change.voice_id);
        set(&mut self.handoff_phone_number, change.handoff_phone_number);
        set(&mut self.action_ids, change.action_ids);
        set(&mut self.enabled, change.enabled);
        set(&mut self.max_concurrent_calls, change.max_concurrent_calls);
        set(&mut self.media_timeout_s, change.media_timeout_s);

        if let Some(runtime) = change.runtime {
            // The operator's mark holds for as long as the runtime stays the same.
            self.runtime_by_operator = self.runtime_by_operator.filter(|_| self.runtime == runtime);
            self.runtime = runtime;
        }

        self.updated_at = now;
    }
}

/// Separates a password from the headers behind it.
const SEPARATOR: char = '\0';

/// Returns the context under which the runtime's secrets are sealed.
pub(crate) fn owner(agent: Uuid) -> Vec<u8> {
    [b"agent runtime\0", agent.as_bytes().as_slice()].concat()
}

impl AgentKind {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        }
    }
}

from_row!(Agent {
    id,
    org_id,
    name,
    kind: named,
    language,
    first_message,
    use_org_knowledgebase,
    voice_id,
    handoff_phone_number: maybe(number),
    action_ids: json,
    enabled,
    max_concurrent_calls: maybe(count),
    runtime: maybe(json),
    media_timeout_s: maybe(count),
    runtime_by_operator,
    runtime_password,
    outbound_trunk_id,
    created_at: moment,
    updated_at: moment,
});
