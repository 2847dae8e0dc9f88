//! Authorizes commands to a call: the org by a key with `calls:write`, or the agent's runtime by the token from its
//! INVITE. The token hangs up and transfers its own call while that is up, and nothing else.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use trunkline_calls::trust::token::{self, SessionTokens};
use trunkline_store::{Acting, Actor, ActorKind, Error, Kind, calls};
use uuid::Uuid;

use crate::api::caller::{Caller, Credential, Operator, credential};
use crate::api::connection_limiter::Proof;
use crate::api::path::Named;
use crate::api::quota::{Policy, Tally};
use crate::api::{Api, ApiError, dashboard_session};

const NO_TOKEN: ApiError = ApiError::Unauthorized("The session token is not one of this call");
const REQUIRED: &str =
    "An API key or the call's session token is required: Authorization: Bearer <credential>";

/// Authorized sender of a command, with the call that the path names.
#[derive(Clone, Debug)]
pub(crate) struct CallActor {
    pub(super) org: Uuid,
    /// Id of the key or the session.
    id: Uuid,
    sender: Sender,
    org_state: OrgState,
}

/// Sender of a command.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Sender {
    Org,
    Runtime,
}

/// State of the sender's org.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum OrgState {
    Active,
    /// Calls that are up go on, and can be ended.
    Suspended,
}

impl CallActor {
    /// Returns true for the agent's runtime, which doesn't learn a withheld number.
    pub(super) fn is_runtime(&self) -> bool {
        self.sender == Sender::Runtime
    }

    /// Checks that the sender may do more than end the call.
    ///
    /// # Errors
    /// 403 for a suspended org.
    pub(super) fn must_not_be_suspended(&self) -> Result<(), ApiError> {
        match self.org_state {
            OrgState::Active => Ok(()),
            OrgState::Suspended => Err(ApiError::suspended()),
        }
    }
}

impl FromRequestParts<Api> for CallActor {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        // `idempotency` has extracted it before, and counted the request.
        if let Some(known) = parts.extensions.get::<Self>() {
            return Ok(known.clone());
        }

        let by_cookie = dashboard_session::is_presented(&parts.headers, api);
        let is_org = by_cookie || Operator::of(parts).is_some();
        if is_org || !credential(parts, REQUIRED)?.starts_with(token::PREFIX) {
            let caller = Caller::from_request_parts(parts, api).await?;
            let (org, id) = (caller.org, caller.key_id());
            return Ok(Self {
                org,
                id,
                sender: Sender::Org,
                // `Caller` has refused the keys of a suspended org.
                org_state: OrgState::Active,
            });
        }

        let presented = credential(parts, REQUIRED)?.to_owned();
        let Ok(named) = Named::from_request_parts(parts, api).await;
        // 401 for a text that is no id, as for another call's: the token proves nothing about either.
        let call = named.id("call_id", Kind::Call).map_err(|_| NO_TOKEN)?;
        let session = match api.live().session_of(call) {
            Some(session) => session,
            None => session_on_other_node(api, &presented, call).await?,
        };

        let tokens = api.session_tokens();
        let org = tokens.read(&presented, session).ok_or(NO_TOKEN)?;
        // After the token is verified: a guess gets no entry among the limits.
        Proof::note(parts);
        let limit = api.config().limits.requests_per_minute;
        let quotas = api.quotas();
        Tally::of(parts).note(quotas.take(Policy::Session, session, limit, api.monotonic()))?;

        let actor = Actor {
            kind: ActorKind::SessionToken,
            id: Some(session),
            name: "session token".to_owned(),
        };

        Acting::by(actor, Some(org), None);
        // From memory: a runtime can end its call while the database is away.
        let view = api.directory().load();
        let org_state = match view.org(org).is_some_and(|org| org.suspended) {
            true => OrgState::Suspended,
            false => OrgState::Active,
        };
        Ok(Self {
            org,
            id: session,
            sender: Sender::Runtime,
            org_state,
        })
    }
}

/// Finds the session of a call that is up on another node.
async fn session_on_other_node(api: &Api, token: &str, call: Uuid) -> Result<Uuid, ApiError> {
    // An id that names this node, or no node, costs no query. The claimed org only finds the row: the caller of this
    // function verifies the token.
    let other_node = api.engine().and_then(|engine| engine.another_of(call));
    let org = SessionTokens::claimed(token).filter(|_| other_node.is_some());
    let org = org.ok_or(NO_TOKEN)?;
    let found = api.read_inline(move |tx| calls::by_id(tx, org, call)).await;
    match found {
        Ok(call) if call.ended_at.is_none() => Ok(call.session_id),
        // The same answer as for a wrong token: an unauthenticated client learns nothing about calls.
        Ok(_) | Err(Error::Wrong(_)) => Err(NO_TOKEN),
        Err(error) => Err(error.into()),
    }
}

impl Credential for CallActor {
    fn key_id(&self) -> Uuid {
        self.id
    }

    fn org(&self) -> Option<Uuid> {
        Some(self.org)
    }
}
