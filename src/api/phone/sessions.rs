//! `GET /phone/sessions/{session_id}`: the context of a call for its agent's runtime.
//!
//! The runtime authenticates with the token from its INVITE, which opens this session only and ends with the call. An
//! org key with `calls:read` reads any session of the org, past ones included, without the data for the agent's
//! actions.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use trunkline_calls::ANONYMOUS_USER;
use trunkline_calls::trust::token;
use trunkline_model::destinations::Destination;
use trunkline_model::record::{Direction, Status};
use trunkline_routing::E164;
use trunkline_store::{
    AgentConfig, Call, Contact, Error, Kind, Wrong, agent_config, calls, orgs, partners,
};
use uuid::Uuid;

use super::OF_CALLS;
use super::agents::AgentView;
use crate::api::caller::{Caller, Operator, credential};
use crate::api::connection_limiter::Proof;
use crate::api::integrations::{self, Disclosure, IntegrationsView};
use crate::api::operations::Operations;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::quota::{Policy, Tally};
use crate::api::time::written;
use crate::api::{Api, ApiError, dashboard_session};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    of.get(
        "/phone/sessions/{session_id}",
        show,
        "showSession",
        "Context of a call for its agent's runtime",
        |op| op.or_session().gives::<SessionView>(200),
    );
}

/// Authenticated reader of a session.
#[derive(Debug)]
pub(crate) enum SessionReader {
    /// Runtime of a call that is up, of this org.
    Runtime(Uuid),
    /// Org, by its key.
    Org(Caller),
}

const NO_TOKEN: ApiError = ApiError::Unauthorized("The session token is invalid");
const OVER: ApiError = ApiError::Unauthorized("The session is over, and its token with it");

impl FromRequestParts<Api> for SessionReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let required =
            "A session token or an API key is required: Authorization: Bearer <credential>";
        let by_cookie = dashboard_session::is_presented(&parts.headers, api);
        // Neither a session of the console nor the operator needs an `Authorization` header, which `credential` requires.
        let is_org = by_cookie || Operator::of(parts).is_some();
        if is_org || !credential(parts, required)?.starts_with(token::PREFIX) {
            return Ok(Self::Org(Caller::from_request_parts(parts, api).await?));
        }

        let token = credential(parts, required)?.to_owned();
        let Ok(named) = Named::from_request_parts(parts, api).await;
        // 401 for a text that is no id, as for a session that isn't the token's: a token opens its own session only.
        let session = named
            .id("session_id", Kind::Session)
            .map_err(|_| NO_TOKEN)?;
        let org = api.session_tokens().read(&token, session).ok_or(NO_TOKEN)?;
        // After the token is verified: a guess gets no entry among the limits.
        Proof::note(parts);
        let limit = api.config().limits.requests_per_minute;
        let taken = api
            .quotas()
            .take(Policy::Session, session, limit, api.monotonic());

        Tally::of(parts).note(taken)?;
        Ok(Self::Runtime(org))
    }
}

/// A session's context.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub(crate) struct SessionView {
    session_id: Uuid,
    call_id: Uuid,
    direction: Direction,
    status: Status,
    started_at: String,
    answered_at: Option<String>,
    ended_at: Option<String>,
    org: OrgView,
    /// `null` if there was none, or it has been deleted.
    agent: Option<AgentView>,
    /// Transfer destinations of the agent, by name.
    destinations: Vec<DestinationView>,
    /// `null` for an anonymous caller.
    contact: Option<ContactView>,
    /// Caller's number; the runtime sees `anonymous` if the caller asked not to be named.
    caller: NumberView,
    /// True if the caller asked not to be named.
    caller_withheld: bool,
    /// Called number.
    dialled: NumberView,
    /// The `X-` headers that the caller sent, but for the platform's own.
    headers: BTreeMap<Box<str>, String>,
}

/// Org of the call, as its agent presents it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionOrg")]
struct OrgView {
    id: Uuid,
    external_id: Option<String>,
    name: String,
    website: Option<String>,
    language: String,
    /// The system prompt: the org's, or else its partner's.
    ai_instructions: Option<String>,
    /// Accounts with third parties, under the key of each platform.
    integrations: IntegrationsView,
}

/// Destination that the agent may transfer the caller to.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionDestination")]
struct DestinationView {
    /// `null` for the agent's handoff number.
    pub(crate) id: Option<Uuid>,
    pub(crate) name: String,
    /// `phone` or `sip`.
    r#type: &'static str,
    pub(crate) value: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionNumber")]
struct NumberView {
    /// As it was sent.
    number: String,
    e164: Option<E164>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionContact")]
struct ContactView {
    id: Uuid,
    external_id: Option<String>,
    email: Option<String>,
    phone: Option<String>,
    name: Option<String>,
    avatar_url: Option<String>,
    language: Option<String>,
    #[serde(rename = "customData")]
    custom_data: Option<Map<String, Value>>,
    chat_context: Option<String>,
    /// Data for the agent's actions only.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    actions: Option<ActionsView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ActionsView {
    mcp_access: Option<Map<String, Value>>,
    http_action_overrides: Option<Map<String, Value>>,
}

/// `GET /phone/sessions/{session_id}`: 401 with the token of another session, or of one that is over; 404 for a key of
/// another org.
pub(crate) async fn show(
    State(api): State<Api>,
    reader: SessionReader,
    named: Named,
    query: Query,
) -> Result<Json<SessionView>, ApiError> {
    // Only a runtime gets the data for the agent's actions, and only an org key with the scope the credentials of integrations.
    let (org, for_actions, credentials) = match &reader {
        SessionReader::Runtime(org) => (*org, true, Disclosure::Handle),
        SessionReader::Org(caller) => {
            let may_see = caller.may(integrations::CREDENTIALS);
            let shown = match may_see {
                true => Disclosure::Credentials,
                false => Disclosure::Handle,
            };
            (caller.org, false, shown)
        }
    };

    let session = named.id("session_id", Kind::Session)?;
    let (call, headers, over) = find(&api, org, session).await?;
    // The token of a runtime ends with the call.
    if over && for_actions {
        return Err(OVER);
    }

    query.finish()?;

    // The agent, and below the contact, may have been deleted since the call.
    let config = match call.agent_id {
        Some(agent) => or_none(
            api.read_inline(move |tx| agent_config::of_agent(tx, org, agent))
                .await,
        )?,
        None => None,
    };

    let contact = match call.contact_id {
        Some(contact) => or_none(api.store().contacts().by_id(org, contact).await)?,
        None => None,
    };

    let mut by_name: BTreeMap<Box<str>, String> = BTreeMap::new();
    for (name, value) in headers {
        // RFC 3261 §7.3.1: several fields of one name equal one field with a list.
        let values = by_name.entry(name).or_default();
        if !values.is_empty() {
            values.push_str(", ");
        }
        values.push_str(&value);
    }

    let withheld = call.caller_withheld == Some(true);
    Ok(Json(SessionView {
        session_id: call.session_id,
        call_id: call.id,
        direction: call.direction,
        status: call.status,
        started_at: written(call.started_at),
        answered_at: call.answered_at.map(written),
        ended_at: call.ended_at.map(written),
        org: of_org(&api, org, credentials).await?,
        destinations: config.as_ref().map(destinations).unwrap_or_default(),
        agent: config.map(|config| config.agent.into()),
        contact: contact.map(|contact| ContactView::new(contact, for_actions)),
        // Privacy holds towards the runtime. The org's own record keeps the number.
        caller: caller_view(call.from_number, call.from_e164, withheld && for_actions),
        caller_withheld: withheld,
        dialled: NumberView {
            number: call.to_number,
            e164: call.to_e164,
        },
        headers: by_name,
    }))
}

fn caller_view(number: String, e164: Option<E164>, is_withheld: bool) -> NumberView {
    match is_withheld {
        true => NumberView {
            number: ANONYMOUS_USER.to_owned(),
            e164: None,
        },
        false => NumberView { number, e164 },
    }
}

/// Returns the call of a session in its current state, its caller's headers, and whether it is over. Memory has a call
/// from its INVITE on.
async fn find(
    api: &Api,
    org: Uuid,
    session: Uuid,
) -> Result<(Call, Vec<(Box<str>, Box<str>)>, bool), ApiError> {
    if let Some(live) = api
        .live()
        .of_session(org, session)
        .filter(|live| !live.is_over())
    {
        let headers = live.started.headers.clone();
        return Ok((super::calls::from_memory(live), headers, false));
    }
    match api
        .read_inline(move |tx| calls::of_session(tx, org, session))
        .await
    {
        Ok((call, headers)) => {
            // Memory still has the call, but not as one that is up: it is over, and its end isn't a row yet.
            let over = call.ended_at.is_some() || api.live().one(org, call.id).is_some();
            Ok((call, headers, over))
        }

        // The call has ended, and not even its beginning is stored yet.
        Err(error) => match api.live().of_session(org, session) {
            Some(live) => {
                let headers = live.started.headers.clone();
                Ok((super::calls::from_memory(live), headers, true))
            }
            None => Err(error.into()),
        },
    }
}

/// Returns the org with the system prompt in force.
async fn of_org(api: &Api, org: Uuid, credentials: Disclosure) -> Result<OrgView, ApiError> {
    let org = api.read_inline(move |tx| orgs::by_id(tx, org)).await?;
    let ai_instructions = match (&org.ai_instructions, org.partner_id) {
        (None, Some(partner)) => {
            api.read_inline(move |tx| partners::by_id(tx, partner))
                .await?
                .ai_instructions
        }
        (own, _) => own.clone(),
    };

    Ok(OrgView {
        id: org.id,
        external_id: org.external_id,
        name: org.name,
        website: org.website,
        language: org.language,
        ai_instructions,
        integrations: integrations::of_org(api, org.id, credentials).await?,
    })
}

fn or_none<T>(found: Result<T, Error>) -> Result<Option<T>, ApiError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Wrong(Wrong::Absent(_))) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the destinations of an agent, in order of their names.
fn destinations(config: &AgentConfig) -> Vec<DestinationView> {
    let assigned = config.destinations.iter().map(|held| Destination {
        id: Some(held.id),
        name: held.name.as_str().into(),
        target: held.target.clone(),
        via: held.via,
    });
    let own = Destination::of_agent(assigned.collect(), config.agent.handoff_phone_number);
    let views = own.into_iter().map(|own| DestinationView {
        id: own.id,
        name: own.name.into(),
        r#type: own.target.kind(),
        value: own.target.value().to_owned(),
    });

    let mut views: Vec<_> = views.collect();
    views.sort_by_cached_key(|view| view.name.to_lowercase());
    views
}

impl ContactView {
    fn new(contact: Contact, for_actions: bool) -> Self {
        Self {
            id: contact.id,
            external_id: contact.external_id,
            email: contact.email,
            phone: contact.phone,
            name: contact.name,
            avatar_url: contact.avatar_url,
            language: contact.language,
            custom_data: contact.custom_data,
            chat_context: contact.chat_context,
            actions: for_actions.then_some(ActionsView {
                mcp_access: contact.mcp_access,
                http_action_overrides: contact.http_action_overrides,
            }),
        }
    }
}
