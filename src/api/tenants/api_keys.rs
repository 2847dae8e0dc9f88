//! `/partner/v1/orgs/{orgId}/api-keys`: keys of a partner's org, no matter who created them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::NewOrgKey;
use uuid::Uuid;

use crate::api::api_keys::{KeyRequest, KeyView, each_once, page_of};
use crate::api::body::{Body, Fields};
use crate::api::caller::Provisioner;
use crate::api::field_type::{Text, id, shown};
use crate::api::idempotency::once_for;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::page::Page;
use crate::api::path::Named;
use crate::api::query::{Query, text_schema};
use crate::api::{Api, ApiError, SCOPES, Success, token};

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let mut of = api.provisioning(by);
    of.get(
        "/orgs/{orgId}/api-keys",
        list,
        "listOrgKeys",
        "All keys of the org, newest first",
        |op| {
            op.query("name", text_schema(), "Only keys of this name.")
                .lists::<KeyView>()
        },
    );

    of.post_once(
        "/orgs/{orgId}/api-keys",
        once_for::<Provisioner, _>(create),
        "createOrgKey",
        "Creates a key of the org, shown once; without `scopes` it has every scope",
        |op| {
            let body = read_by(new_key);
            op.body(body).gives::<NewKeyView>(201)
        },
    );

    of.delete(
        "/orgs/{orgId}/api-keys/{apiKeyId}",
        revoke,
        "revokeOrgKey",
        "Revokes a key of the org for good, no matter who created it",
        |op| op.may_refuse(&[404]).gives::<Success>(200),
    );
}

/// A new key, the one time that it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NewOrgKey")]
pub(super) struct NewKeyView {
    api_key_id: Uuid,
    pub(crate) api_key: String,
}

/// `GET /partner/v1/orgs/{orgId}/api-keys?limit&cursor`: all keys of the org, newest first.
pub(super) async fn list(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    query: Query,
) -> Result<Page<KeyView>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    page_of(&api, org, query).await
}

/// `POST /partner/v1/orgs/{orgId}/api-keys {name, scopes, expires_at}`: 201. Without `scopes` the key has every scope.
pub(super) async fn create(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    body: Body,
) -> Result<(StatusCode, Json<NewKeyView>), ApiError> {
    let org = caller.org(&api, &named).await?.id;
    let request = new_key(body.fields()?)?;
    request.must_end_after(api.now())?;
    let scopes = request.scopes.as_deref().map_or(SCOPES.to_vec(), each_once);
    let new = NewOrgKey {
        expires_at: request.expires_at,
        ..NewOrgKey::lasting(&request.name, &scopes)
    };

    let (key, api_key) = token::issue(api.store(), org, new, api.now()).await?;
    let shown = NewKeyView {
        api_key_id: key.id,
        api_key,
    };
    Ok((StatusCode::CREATED, Json(shown)))
}

pub(super) fn new_key(fields: Fields) -> Result<KeyRequest, ApiError> {
    KeyRequest::read(fields, Text::line(1..=255))
}

/// `DELETE /partner/v1/orgs/{orgId}/api-keys/{apiKeyId}`: revokes the key for good, on this node at once.
pub(super) async fn revoke(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    let given = named.text("apiKeyId").unwrap_or_default();
    let not_an_id = || ApiError::bad(format!("apiKeyId: {} is not an id", shown(given)));
    let key = id(given).ok_or_else(not_an_id)?;

    query.finish()?;
    api.revoke_key(org, key).await?;
    Ok(Json(Success::DONE))
}
