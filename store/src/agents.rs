//! Phone agents.

use trunkline_model::settings::Runtime;
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{count, from_row, json, maybe, micros, moment, named, number, to_json};
use super::error::{Broke, Error, Kind, Wrong};
use super::keyring::Keyring;
use super::org_limits::{OrgLimit, leave_room_for};
use super::page::{Narrow, Page, Position, fetch_page};
use super::password::Password;
use super::pool::{Source, Writing, execute, fetch_all, fetch_optional};
use super::{Change, Store, new_id, set};

/// A phone agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agent {
    /// The agent.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub name: String,
    /// Whether it answers.
    pub kind: AgentKind,
    /// Language code.
    pub language: String,
    /// What it says first.
    pub first_message: String,
    /// Whether it reads the org's knowledge base.
    pub use_org_knowledgebase: bool,
    /// Its voice.
    pub voice_id: Option<String>,
    /// Where a human is reached.
    pub handoff_phone_number: Option<E164>,
    /// Opaque ids of the actions it may call.
    pub action_ids: Vec<String>,
    /// Whether it takes calls.
    pub enabled: bool,
    /// Calls at once; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
    /// What answers for it; `None`: as configured.
    pub runtime: Option<Runtime>,
    /// Whether the operator's command line set it; `None`: no.
    pub runtime_by_operator: Option<bool>,
    /// The password of its runtime, sealed.
    pub runtime_password: Option<Vec<u8>>,
    /// The trunk that it dials through.
    pub outbound_trunk_id: Option<Uuid>,
    /// When it was made.
    pub created_at: Moment,
    /// When it was changed last.
    pub updated_at: Moment,
}

/// Which calls an agent is for.
#[derive(
    Copy, Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// It answers calls, and may dial.
    Inbound,
    /// It dials; no inbound call is ever given to it.
    Outbound,
}

/// What an agent is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewAgent {
    /// Its name.
    pub name: String,
    /// Whether it answers.
    pub kind: AgentKind,
    /// Language code.
    pub language: String,
    /// What it says first.
    pub first_message: String,
    /// Whether it reads the org's knowledge base.
    pub use_org_knowledgebase: bool,
    /// Its voice.
    pub voice_id: Option<String>,
    /// Where a human is reached.
    pub handoff_phone_number: Option<E164>,
    /// Opaque ids of the actions it may call.
    pub action_ids: Vec<String>,
    /// Whether it takes calls.
    pub enabled: bool,
    /// Calls at once; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
    /// What answers for it; `None`: as configured.
    pub runtime: Option<Runtime>,
}

/// What to change; `None` leaves a field as it is, and `Some(None)` clears one that may be empty. The fields are the record's.
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
}

/// The phone agents.
#[derive(Copy, Clone, Debug)]
pub struct Agents<'s>(&'s Store);

impl Store {
    /// The phone agents.
    pub fn agents(&self) -> Agents<'_> {
        Agents(self)
    }
}

impl Agents<'_> {
    /// Makes an agent.
    ///
    /// # Errors
    /// [`Wrong::Absent`] if there is no such org, [`Refused::AtLimit`](super::Refused::AtLimit).
    pub async fn create(self, org: Uuid, new: &NewAgent, now: Moment) -> Result<Agent, Error> {
        let mut writing = self.0.edit(org).await?;
        leave_room_for(&mut writing, org, OrgLimit::Agents).await?;
        let mut agent = Agent::new(org, new.clone(), now);
        agent.seal_password(self.0.keyring());
        execute!(
            writing,
            "INSERT INTO agents (id, org_id, name, type, language, first_message, use_org_knowledgebase, voice_id,
                 handoff_phone_number, action_ids, enabled, max_concurrent_calls, runtime, created_at, updated_at,
                 runtime_by_operator, runtime_password)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
            agent.id,
            org,
            &agent.name,
            agent.kind.as_str(),
            &agent.language,
            &agent.first_message,
            agent.use_org_knowledgebase,
            &agent.voice_id,
            agent.handoff_phone_number.as_ref().map(E164::as_str),
            to_json(&agent.action_ids),
            agent.enabled,
            agent.max_concurrent_calls.map(i64::from),
            agent.runtime.as_ref().map(to_json),
            micros(now),
            micros(now),
            agent.runtime_by_operator,
            agent.runtime_password.as_deref(),
        )?;
        self.0.commit(writing, &[Change::Org(org)], now).await?;
        Ok(agent)
    }

    /// The agent of this id.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn by_id(self, org: Uuid, agent: Uuid) -> Result<Agent, Error> {
        let mut reading = self.0.pool().peek().await?;
        find(reading.source(), org, agent).await
    }

    /// The org's agents, newest first.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn list(self, org: Uuid) -> Result<Vec<Agent>, Error> {
        let mut reading = self.0.pool().peek().await?;
        let sql = "SELECT *, type AS kind FROM agents WHERE org_id = $1 ORDER BY created_at DESC, id DESC";
        fetch_all!(reading, sql, org)
    }

    /// A page of the org's agents, newest first, narrowed by type and `enabled`, after `after`.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn page(
        self,
        org: Uuid,
        narrow: &Narrow,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Page<Agent>, Error> {
        let mut reading = self.0.pool().peek_snapshot().await?;
        let page = fetch_page!(reading, Agent: "*, type AS kind", "agents" by "type", "CASE WHEN enabled THEN 'true' ELSE 'false' END", org, narrow, after, limit);
        Ok(page)
    }

    /// Changes an agent; gives it as it is then.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn update(
        self,
        org: Uuid,
        agent: Uuid,
        change: &AgentChange,
        now: Moment,
    ) -> Result<Agent, Error> {
        let mut writing = self.0.edit(org).await?;
        let mut agent = find(writing.source(), org, agent).await?;
        agent.apply(change.clone(), now);
        if change.runtime.is_some() {
            agent.seal_password(self.0.keyring());
        }
        execute!(
            writing,
            "UPDATE agents SET name = $3, type = $4, language = $5, first_message = $6, use_org_knowledgebase = $7,
                 voice_id = $8, handoff_phone_number = $9, action_ids = $10, enabled = $11, max_concurrent_calls = $12,
                 runtime = $13, updated_at = $14, runtime_by_operator = $15, runtime_password = $16
             WHERE org_id = $1 AND id = $2",
            org,
            agent.id,
            &agent.name,
            agent.kind.as_str(),
            &agent.language,
            &agent.first_message,
            agent.use_org_knowledgebase,
            &agent.voice_id,
            agent.handoff_phone_number.as_ref().map(E164::as_str),
            to_json(&agent.action_ids),
            agent.enabled,
            agent.max_concurrent_calls.map(i64::from),
            agent.runtime.as_ref().map(to_json),
            micros(now),
            agent.runtime_by_operator,
            agent.runtime_password.as_deref(),
        )?;
        self.0.commit(writing, &[Change::Org(org)], now).await?;
        Ok(agent)
    }

    /// Takes the agent's runtime for the operator's word, for as long as it stays the same.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn trust_runtime(self, org: Uuid, agent: Uuid, now: Moment) -> Result<(), Error> {
        let mut writing = self.0.edit(org).await?;
        let sql = "UPDATE agents SET runtime_by_operator = $3 WHERE org_id = $1 AND id = $2";
        if execute!(writing, sql, org, agent, true)? == 0 {
            return Err(Wrong::Absent(Kind::Agent).into());
        }
        self.0.commit(writing, &[Change::Org(org)], now).await
    }

    /// Deletes an agent and frees its numbers.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn delete(self, org: Uuid, agent: Uuid, now: Moment) -> Result<(), Error> {
        let mut writing = self.0.edit(org).await?;
        execute!(
            writing,
            "UPDATE numbers SET agent_id = NULL WHERE org_id = $1 AND agent_id = $2",
            org,
            agent
        )?;
        if execute!(
            writing,
            "DELETE FROM agents WHERE org_id = $1 AND id = $2",
            org,
            agent
        )? == 0
        {
            return Err(Wrong::Absent(Kind::Agent).into());
        }
        self.0.commit(writing, &[Change::Org(org)], now).await
    }
}

/// The agent of this id, in the caller's transaction.
pub(super) async fn find(mut on: Source<'_>, org: Uuid, agent: Uuid) -> Result<Agent, Error> {
    let sql = "SELECT *, type AS kind FROM agents WHERE org_id = $1 AND id = $2";
    let row = fetch_optional!(on, sql, org, agent)?;
    Ok(row.ok_or(Wrong::Absent(Kind::Agent))?)
}

/// Refuses an agent that isn't the org's.
pub(super) async fn must_exist(writing: &mut Writing, org: Uuid, agent: Uuid) -> Result<(), Error> {
    let sql = "SELECT id FROM agents WHERE org_id = $1 AND id = $2";
    let row: Option<(Uuid,)> = fetch_optional!(writing, sql, org, agent)?;
    row.ok_or(Wrong::Absent(Kind::Agent))?;
    Ok(())
}

impl Agent {
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
            runtime_by_operator: None,
            runtime_password: None,
            outbound_trunk_id: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Seals the password that its runtime has been given.
    fn seal_password(&mut self, keyring: &Keyring) {
        let login = self.runtime.as_ref().and_then(Runtime::login);
        self.runtime_password = login.map(|login| {
            let password = Password::new(&*login.password);
            password.seal(keyring, &owner(self.id))
        });
    }

    /// Gives its runtime the password that calls need.
    pub(super) fn open_password(&mut self, keyring: &Keyring) -> Result<(), Broke> {
        let login = self.runtime.as_mut().and_then(Runtime::login_mut);
        if let (Some(login), Some(sealed)) = (login, &self.runtime_password) {
            let password = Password::open(keyring, &owner(self.id), sealed)?;
            login.password = password.reveal().into();
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
        if let Some(runtime) = change.runtime {
            // The operator's word holds for as long as the runtime stays the same.
            self.runtime_by_operator = self.runtime_by_operator.filter(|_| self.runtime == runtime);
            self.runtime = runtime;
        }
        self.updated_at = now;
    }
}

/// What the password of an agent's runtime is sealed under.
pub(super) fn owner(agent: Uuid) -> Vec<u8> {
    [b"agent runtime\0", agent.as_bytes().as_slice()].concat()
}

impl AgentKind {
    /// The name as the API and the database have it.
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
    runtime_by_operator,
    runtime_password,
    outbound_trunk_id,
    created_at: moment,
    updated_at: moment,
});
