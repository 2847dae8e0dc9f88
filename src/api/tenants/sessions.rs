//! `/partner/v1/orgs/{orgId}/sessions`: sessions of people who are logged in to the org's dashboard.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::{Change, Kind, ListedSession, Tx, sessions};
use uuid::Uuid;

use crate::api::caller::Provisioner;
use crate::api::operations::{Audience, Operations};
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::{Query, text_schema};
use crate::api::time::written;
use crate::api::{Api, ApiError, Success};

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let mut of = api.provisioning(by);
    of.get(
        "/orgs/{orgId}/sessions",
        list,
        "listDashboardSessions",
        "Sessions of the org's dashboard, newest first",
        |op| {
            op.query("email", text_schema(), "Only sessions of this address.")
                .lists::<DashboardSessionView>()
        },
    );

    of.delete(
        "/orgs/{orgId}/sessions",
        end_all,
        "endDashboardSessions",
        "Ends all sessions of the org's dashboard",
        |op| op.deletes(),
    );

    of.delete(
        "/orgs/{orgId}/sessions/{sessionId}",
        end_one,
        "endDashboardSession",
        "Ends one session of the org's dashboard",
        |op| op.may_refuse(&[404]).deletes(),
    );
}

/// A session of the dashboard.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DashboardSession")]
pub(super) struct DashboardSessionView {
    id: Uuid,
    email: String,
    name: String,
    created_at: String,
    expires_at: String,
}

impl From<ListedSession> for DashboardSessionView {
    fn from(session: ListedSession) -> Self {
        Self {
            id: session.id,
            email: session.email,
            name: session.name,
            created_at: written(session.created_at),
            expires_at: written(session.expires_at),
        }
    }
}

/// `GET /partner/v1/orgs/{orgId}/sessions?email&limit&cursor`: current sessions, newest first.
pub(super) async fn list(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    mut query: Query,
) -> Result<Page<DashboardSessionView>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    // Addresses are stored in lower case.
    let email = query.text("email").map(|email| email.to_ascii_lowercase());
    let paging = Paging::read(&mut query, "sessions", email);
    query.finish()?;

    let now = api.now();
    let of_org = move |tx: &mut Tx, org, email: &Option<String>, after, limit| {
        sessions::page(tx, org, email.as_deref(), after, limit, now)
    };
    paging
        .find(api.store(), org, of_org, DashboardSessionView::from)
        .await
}

/// `DELETE /partner/v1/orgs/{orgId}/sessions`: ends all sessions of the org's dashboard.
pub(super) async fn end_all(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    query.finish()?;
    end(&api, org, None).await
}

/// `DELETE /partner/v1/orgs/{orgId}/sessions/{sessionId}`: ends one session.
pub(super) async fn end_one(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    let session = named.id("sessionId", Kind::DashboardSession)?;
    query.finish()?;
    end(&api, org, Some(session)).await
}

/// Ends sessions, on this node at once.
async fn end(api: &Api, org: Uuid, session: Option<Uuid>) -> Result<Json<Success>, ApiError> {
    api.write(move |tx, now| sessions::end_of_org(tx, org, session, now))
        .await?;
    api.forget_credentials(Change::Session(org));
    Ok(Json(Success::DONE))
}
