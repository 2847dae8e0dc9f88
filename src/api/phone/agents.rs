//! `/phone`: phone agents.
//!
//! An `inbound` agent answers calls and may dial; an `outbound` one only dials. The `runtime` is the software that
//! speaks for the agent; `null` is the deployment's default. A change applies to the next call; calls that are up
//! continue as they began.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;
use trunkline_model::builtin::{Flow, Prompt};
use trunkline_model::settings::{Runtime, is_builtin, is_web_socket};
use trunkline_routing::E164;
use trunkline_store::{
    Agent, AgentChange, AgentKind, Kind, NewAgent, Tx, Versioned, agents, prompts,
};
use uuid::Uuid;

use super::runtime::RUNTIME;
use super::sip_uri::{may_call, may_open};
use super::voices::VoiceId;
use super::{CALLS_AT_ONCE, OF_ORG, WRITE};
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{Bool, Choice, Count, ListOf, NAME, NUMBER, Text};
use crate::api::idempotency::once;
use crate::api::language::Tag;
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::version::{HasVersion, IfMatch, Tagged};
use crate::api::{Api, ApiError, Success};
use crate::config::Voice;
use crate::webhooks::Target;

pub(super) fn operations(api: &mut Operations<'_>) {
    let voices = &api.config().phone.voices;
    let mut of = api.area("Phone agents", OF_ORG);
    of.get(
        "/phone",
        list,
        "listAgents",
        "The org's agents, newest first",
        |op| {
            op.query(
                "type",
                json!({"type": "string", "enum": ["inbound", "outbound"]}),
                "Only agents of this type.",
            )
            .query(
                "enabled",
                json!({"type": "boolean"}),
                "Only agents that are enabled, or that are not.",
            )
            .lists::<AgentView>()
        },
    );

    of.post_once(
        "/phone",
        once(create),
        "createAgent",
        "Creates an agent",
        |op| {
            let body = read_by(|fields| new_agent(fields, voices));
            op.versioned().makes::<AgentView>(body)
        },
    );

    of.get("/phone/{agent_id}", one, "showAgent", "One agent", |op| {
        op.gives_versioned::<AgentView>()
    });

    of.patch(
        "/phone/{agent_id}",
        update,
        "updateAgent",
        "Updates an agent: absent fields are unchanged, `null` clears a field",
        |op| {
            let body = read_by(|fields| change(fields, voices));
            op.of_version().body(body).gives_versioned::<AgentView>()
        },
    );

    of.delete(
        "/phone/{agent_id}",
        delete,
        "deleteAgent",
        "Deletes an agent and frees its numbers; calls that are up continue",
        |op| op.of_version().deletes(),
    );
}

/// A phone agent as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Agent")]
pub(crate) struct AgentView {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) r#type: AgentKind,
    pub(crate) language: String,
    pub(crate) first_message: String,
    pub(crate) use_org_knowledgebase: bool,
    pub(crate) voice_id: Option<String>,
    pub(crate) handoff_phone_number: Option<E164>,
    #[serde(rename = "actionIds")]
    action_ids: Vec<String>,
    pub(crate) enabled: bool,
    /// `null`: no limit.
    pub(crate) max_concurrent_calls: Option<u32>,
    /// `null`: the deployment's default.
    #[schemars(with = "Option<Runtime>")]
    pub(crate) runtime: Option<RuntimeView>,
    /// `null`: the deployment's default.
    pub(crate) media_timeout_s: Option<u32>,
    outbound_trunk_id: Option<Uuid>,
    created_at: String,
    pub(crate) updated_at: String,
}

/// A runtime as the API shows it.
#[derive(Debug, Deserialize)]
#[serde(from = "Runtime")]
pub(crate) struct RuntimeView {
    pub(crate) runtime: Runtime,
    values: HeaderValues,
}

impl From<Runtime> for RuntimeView {
    /// Makes the view of a runtime that was read from another view, and has the values that were shown there.
    fn from(runtime: Runtime) -> Self {
        let values = HeaderValues::Shown;
        Self { runtime, values }
    }
}

/// Treatment of the values of a runtime's headers, which may be credentials.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum HeaderValues {
    /// The reader may set them, and so may see them.
    Shown,
    Masked,
}

impl Serialize for RuntimeView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = json!(self.runtime);
        if let Some(headers) = self.runtime.headers()
            && self.values == HeaderValues::Shown
            && !headers.is_empty()
        {
            shown["headers"] = json!(headers.reveal());
        }
        shown.serialize(serializer)
    }
}

impl HasVersion for AgentView {
    fn version(&self) -> &str {
        &self.updated_at
    }
}

impl From<Agent> for AgentView {
    fn from(agent: Agent) -> Self {
        Self::of(agent, HeaderValues::Masked)
    }
}

impl AgentView {
    /// An agent as a key with this scope may see it.
    fn to(caller: &Caller, agent: Agent) -> Self {
        let values = match caller.may(WRITE) {
            true => HeaderValues::Shown,
            false => HeaderValues::Masked,
        };
        Self::of(agent, values)
    }

    fn of(agent: Agent, values: HeaderValues) -> Self {
        let runtime = agent.runtime;
        let runtime = runtime.map(|runtime| RuntimeView { runtime, values });
        Self {
            id: agent.id,
            name: agent.name,
            r#type: agent.kind,
            language: agent.language,
            first_message: agent.first_message,
            use_org_knowledgebase: agent.use_org_knowledgebase,
            voice_id: agent.voice_id,
            handoff_phone_number: agent.handoff_phone_number,
            action_ids: agent.action_ids,
            enabled: agent.enabled,
            max_concurrent_calls: agent.max_concurrent_calls,
            runtime,
            media_timeout_s: agent.media_timeout_s,
            outbound_trunk_id: agent.outbound_trunk_id,
            created_at: written(agent.created_at),
            updated_at: written(agent.updated_at),
        }
    }
}

const TYPE: Choice<AgentKind> = Choice(&[
    ("inbound", AgentKind::Inbound),
    ("outbound", AgentKind::Outbound),
]);
const FIRST_MESSAGE: Text = Text::lines(0..=5_000);
const MEDIA_TIMEOUT: Count = Count::new(0..=3_600);
const ACTION_IDS: ListOf<Text> = ListOf::new(Text::line(1..=255), 0..=100);

/// `POST /phone`: creates an agent. 201, or 400.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Tagged<AgentView>), ApiError> {
    let new = new_agent(body.fields()?, &api.config().phone.voices)?;
    let (org, by_operator) = (caller.org, caller.is_operator());
    may_call_runtime(&api, &caller, None, new.runtime.as_ref()).await?;

    let agent = api.write(move |tx, now| {
        let agent = agents::create(tx, org, &new, now)?;
        // The operator may name any address, so this runtime is marked as exempt from the address policy at calls too.
        if by_operator && agent.runtime.is_some() {
            agents::trust_runtime(tx, org, agent.id, now)?;
        }
        Ok(agent)
    });
    let agent = agent.await?;
    Ok((
        StatusCode::CREATED,
        Tagged::new(AgentView::to(&caller, agent)),
    ))
}

/// `GET /phone?limit&cursor`: the org's agents, newest first.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<AgentView>, ApiError> {
    let narrow = [
        query.one_of("type", &["inbound", "outbound"]),
        query.switch("enabled"),
    ];
    let paging = Paging::read(&mut query, "agents", narrow);
    query.finish()?;
    let find = match caller.may(WRITE) {
        true => agents::opened_page,
        false => agents::page,
    };
    let view = |agent| AgentView::to(&caller, agent);
    paging.find(api.store(), caller.org, find, view).await
}

/// `GET /phone/{agent_id}`
pub(crate) async fn one(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Tagged<AgentView>, ApiError> {
    let agent = find(&api, &caller, &named).await?;
    query.finish()?;
    Ok(Tagged::new(AgentView::to(&caller, agent)))
}

/// `PATCH /phone/{agent_id}`: an absent field is unchanged; `null` clears a field that may be empty.
pub(crate) async fn update(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<AgentView>, ApiError> {
    // Before the version and the body are judged: another org's agent is 404 whatever the request says, as an agent
    // that doesn't exist is.
    let agent = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    let change = change(body.fields()?, &api.config().phone.voices)?;
    let runtime = change.runtime.as_ref().and_then(Option::as_ref);
    let (org, by_operator) = (caller.org, caller.is_operator());
    may_call_runtime(&api, &caller, agent.runtime.as_ref(), runtime).await?;

    let object = Versioned::Agent(agent.id);
    let changed = api.change(org, object, version, move |tx, now| {
        let changed = agents::update(tx, org, agent.id, &change, now)?;
        if by_operator && matches!(change.runtime, Some(Some(_))) {
            agents::trust_runtime(tx, org, agent.id, now)?;
        }
        Ok(changed)
    });
    let changed = changed.await?;

    Ok(Tagged::new(AgentView::to(&caller, changed)))
}

/// `DELETE /phone/{agent_id}`: deletes the agent and frees its numbers; calls that are up continue.
pub(crate) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let agent = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    query.finish()?;
    let (org, object) = (caller.org, Versioned::Agent(agent.id));
    let delete = move |tx: &mut Tx, now| agents::delete(tx, org, agent.id, now);
    api.change(org, object, version, delete).await?;
    Ok(Json(Success::DONE))
}

/// Returns true if a header's name begins with our prefix, in any case and with `_` for `-`: some software takes both for the same.
fn is_ours(name: &str, prefix: &str) -> bool {
    let spelled = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    spelled(name).starts_with(&spelled(prefix))
}

/// Refuses a runtime that the address policy forbids. An unchanged runtime isn't checked, and the operator may name any.
async fn may_call_runtime(
    api: &Api,
    caller: &Caller,
    before: Option<&Runtime>,
    runtime: Option<&Runtime>,
) -> Result<(), ApiError> {
    let Some(runtime) = runtime.filter(|_| runtime != before) else {
        return Ok(());
    };

    // Also from the operator: runtimes read these headers as Trunkline's own, so a fixed value could pass for the
    // call's.
    if let Runtime::Sip { headers, .. } = runtime {
        let prefix = &api.config().sip.header_prefix;
        if let Some(name) = headers.names().find(|name| is_ours(name, prefix)) {
            return Err(ApiError::bad(format!(
                "runtime.headers.{name}: names that begin with {prefix} are Trunkline's own"
            )));
        }
    }

    if let Some((url, _)) = runtime.status_callback() {
        let private_allowed = api.config().webhooks.allow_private_addresses;
        Target::parse(url, private_allowed)
            .map_err(|fault| ApiError::bad(format!("runtime.status_callback: {fault}")))?;
    }

    may_play(api, caller.org, runtime).await?;
    if caller.is_operator() {
        return Ok(());
    }

    let path = |at: usize| match at.checked_sub(1) {
        None => "runtime.uri".to_owned(),
        Some(at) => format!("runtime.fallbacks[{at}]"),
    };

    let named = runtime.entries().enumerate();
    // An entry `builtin:` names the flow of this runtime and has no address.
    let named = named.filter(|(_, entry)| !is_builtin(entry));
    let named = named.map(|(at, uri)| (path(at), uri));
    let (bots, sip): (Vec<_>, Vec<_>) = named.partition(|(_, uri)| is_web_socket(uri));
    may_open(api, caller.org, &bots).await?;
    may_call(api, caller.org, sip.into_iter()).await
}

/// Refuses a flow with a prompt that can't be played.
async fn may_play(api: &Api, org: Uuid, runtime: &Runtime) -> Result<(), ApiError> {
    let all = || runtime.flow().into_iter().flat_map(Flow::prompts);
    let ids = all().filter_map(|(_, prompt)| match prompt {
        Prompt::Id(id) => Some(*id),
        Prompt::Bundled(_) | Prompt::Text(_) => None,
    });
    let ids: Vec<Uuid> = ids.collect();

    let missing = match ids.is_empty() {
        true => Vec::new(),
        false => {
            api.read_inline(move |tx| prompts::missing(tx, org, &ids))
                .await?
        }
    };

    let prompts = all();
    let faults = prompts.filter_map(|(path, prompt)| {
        let fault = match prompt {
            Prompt::Bundled(_) => return None,
            Prompt::Id(id) if !missing.contains(id) => return None,
            Prompt::Text(_) if api.config().speech.synthesiser.is_some() => return None,
            Prompt::Text(_) => {
                "texts can't be spoken here: the operator has configured no synthesiser ([speech])"
            }
            Prompt::Id(_) => "there is no such prompt",
        };
        Some(format!("runtime.flow{path}: {fault}"))
    });
    let faults: Vec<String> = faults.collect();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(ApiError::BadRequest(faults)),
    }
}

/// Message at `/phone/agents`, a path that many clients try first.
pub(crate) const NO_AGENTS: &str =
    "There is no such path: agents are made and listed at /phone, and one is at /phone/{agent_id}";

/// Returns the agent that the path names, with the secrets of its runtime for a caller who may set them.
pub(super) async fn find(api: &Api, caller: &Caller, named: &Named) -> Result<Agent, ApiError> {
    // The router takes `/phone/agents` for `/phone/{agent_id}`.
    if named.text("agent_id") == Some("agents") {
        return Err(ApiError::NotFound(NO_AGENTS.to_owned()));
    }
    let id = named.id("agent_id", Kind::Agent)?;
    let org = caller.org;
    let find = match caller.may(WRITE) {
        true => agents::opened_by_id,
        false => agents::by_id,
    };
    let agent = api.read_inline(move |tx| find(tx, org, id));
    Ok(agent.await?)
}

pub(super) fn new_agent(mut fields: Fields, voices: &[Voice]) -> Result<NewAgent, ApiError> {
    let name = fields.required("name", NAME);
    let kind = fields.required("type", TYPE);
    let language = fields.required("language", Tag);
    let first_message = fields.required("first_message", FIRST_MESSAGE);
    let use_org_knowledgebase = fields.required("use_org_knowledgebase", Bool);
    let voice_id = fields.optional("voice_id", VoiceId(voices));
    let handoff_phone_number = fields.optional("handoff_phone_number", NUMBER);
    let action_ids = fields.optional("actionIds", ACTION_IDS);
    let enabled = fields.optional("enabled", Bool);
    let max_concurrent_calls = fields.optional("max_concurrent_calls", CALLS_AT_ONCE);
    let runtime = fields.optional("runtime", RUNTIME);
    let media_timeout_s = fields.optional("media_timeout_s", MEDIA_TIMEOUT);

    fields.done(|| {
        Some(NewAgent {
            name: name?,
            kind: kind?,
            language: language?,
            first_message: first_message?,
            use_org_knowledgebase: use_org_knowledgebase?,
            voice_id,
            handoff_phone_number,
            action_ids: action_ids.unwrap_or_default(),
            enabled: enabled.unwrap_or(true),
            max_concurrent_calls,
            runtime,
            media_timeout_s,
        })
    })
}

pub(super) fn change(mut fields: Fields, voices: &[Voice]) -> Result<AgentChange, ApiError> {
    let change = AgentChange {
        name: fields.change("name", NAME),
        kind: fields.change("type", TYPE),
        language: fields.change("language", Tag),
        first_message: fields.change("first_message", FIRST_MESSAGE),
        use_org_knowledgebase: fields.change("use_org_knowledgebase", Bool),
        voice_id: fields.clearable("voice_id", VoiceId(voices)),
        handoff_phone_number: fields.clearable("handoff_phone_number", NUMBER),
        action_ids: fields.change("actionIds", ACTION_IDS),
        enabled: fields.change("enabled", Bool),
        max_concurrent_calls: fields.clearable("max_concurrent_calls", CALLS_AT_ONCE),
        runtime: fields.clearable("runtime", RUNTIME),
        media_timeout_s: fields.clearable("media_timeout_s", MEDIA_TIMEOUT),
    };
    fields.done(|| Some(change))
}
