//! `/partner/v1/orgs/{orgId}/api-keys`: keys of a partner's org, whoever made them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::caller::PartnerCaller;
use crate::api::body::{Body, Fields};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::shape::{Text, id, shown};
use crate::api::{Api, ApiError, SCOPES, Success, token};

/// A key on the one occasion that it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NewOrgKey")]
pub(super) struct NewKeyView {
    api_key_id: Uuid,
    api_key: String,
}

/// `POST /partner/v1/orgs/{orgId}/api-keys {name}`: 201 with a key that may do everything.
pub(super) async fn create(
    State(api): State<Api>,
    caller: PartnerCaller,
    named: Named,
    body: Body,
) -> Result<(StatusCode, Json<NewKeyView>), ApiError> {
    let org = caller.owned(&api, &named).await?.id;
    let name = named_key(body.fields()?)?;
    let name = name.as_deref().unwrap_or("Default");
    let (key, api_key) = token::issue(api.store(), org, name, &SCOPES, api.now()).await?;
    let shown = NewKeyView {
        api_key_id: key.id,
        api_key,
    };
    Ok((StatusCode::CREATED, Json(shown)))
}

pub(super) fn named_key(mut fields: Fields) -> Result<Option<String>, ApiError> {
    let name = fields.optional("name", Text::line(1..=255));
    fields.done(|| Some(name))
}

/// `DELETE /partner/v1/orgs/{orgId}/api-keys/{apiKeyId}`: for good, on this node at once.
pub(super) async fn revoke(
    State(api): State<Api>,
    caller: PartnerCaller,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let org = caller.owned(&api, &named).await?.id;
    let given = named.text("apiKeyId").unwrap_or_default();
    let not_an_id = || ApiError::bad(format!("apiKeyId: {} is not an id", shown(given)));
    let key = id(given).ok_or_else(not_an_id)?;
    query.finish()?;
    api.revoke_key(org, key).await?;
    Ok(Json(Success::DONE))
}
