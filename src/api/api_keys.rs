//! `/api-keys`: the org's own API keys. A key is shown once, when it is made, and grants no scope that its maker lacks.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::body::{Body, Fields};
use super::caller::Caller;
use super::idempotency::once;
use super::openapi::{Book, read_by};
use super::page::{Page, Paging};
use super::path::Named;
use super::query::{Query, text_schema};
use super::routes::Routes;
use super::shape::{Choice, ListOf, NAME};
use super::time::written;
use super::{Api, ApiError, SCOPES, Success, token};
use crate::store::{Kind, OrgKey};

/// The scope that all of this needs.
const SCOPE: &str = "keys:write";

pub(super) fn router() -> Routes {
    Routes::new()
        .route("/", get(list).post(once(create)))
        .route("/{api_key_id}", delete(revoke))
}

pub(super) fn openapi(book: &mut Book) {
    const TAG: &str = "API keys";
    book.add(
        "get",
        "/api-keys",
        "listKeys",
        "The org's keys, newest first",
        |op| {
            op.tag(TAG)
                .org(SCOPE)
                .query("name", text_schema(), "Only keys of this name.")
                .lists::<KeyView>()
        },
    );
    book.add(
        "post",
        "/api-keys",
        "createKey",
        "Makes a key, shown once; it has no scope that its maker lacks",
        |op| {
            let body = read_by(new_key);
            op.tag(TAG)
                .org(SCOPE)
                .once()
                .body(body)
                .gives::<NewKeyView>(201)
        },
    );
    book.add(
        "delete",
        "/api-keys/{api_key_id}",
        "revokeKey",
        "Revokes a key for good",
        |op| op.tag(TAG).org(SCOPE).gives::<Success>(200),
    );
}

/// A key as the API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Key")]
struct KeyView {
    api_key_id: Uuid,
    name: String,
    scopes: Vec<String>,
    created_at: String,
    last_used_at: Option<String>,
}

/// A key on the one occasion that it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NewKey")]
struct NewKeyView {
    #[serde(flatten)]
    key: KeyView,
    api_key: String,
}

impl From<OrgKey> for KeyView {
    fn from(key: OrgKey) -> Self {
        Self {
            api_key_id: key.id,
            name: key.name,
            scopes: key.scopes,
            created_at: written(key.created_at),
            last_used_at: key.last_used_at.map(written),
        }
    }
}

/// Each scope as one of the words that are taken.
const WORDS: [(&str, &str); SCOPES.len()] = {
    let mut words = [("", ""); SCOPES.len()];
    let mut at = 0;
    while at < SCOPES.len() {
        words[at] = (SCOPES[at], SCOPES[at]);
        at += 1;
    }
    words
};

/// `POST /api-keys {name, scopes}`: 201. The name is `Default` unless told otherwise; without `scopes` the key has those of the key
/// that makes it. 403 for a scope that this one lacks.
async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Json<NewKeyView>), ApiError> {
    caller.needs(SCOPE)?;
    let (name, scopes) = new_key(body.fields()?)?;
    let scopes = granted(&caller, scopes)?;
    let issued = token::issue(api.store(), caller.org, &name, &scopes, api.now());
    let (key, api_key) = issued.await?;
    let key = key.into();
    Ok((StatusCode::CREATED, Json(NewKeyView { key, api_key })))
}

/// `GET /api-keys?limit&cursor`: the org's keys, whoever made them, newest first.
async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<KeyView>, ApiError> {
    caller.needs(SCOPE)?;
    let narrow = [query.text("name"), None];
    let paging = Paging::read(&mut query, "api-keys", narrow);
    query.finish()?;
    let keys = api.store().org_keys();
    let page = keys
        .page(caller.org, &paging.filters, paging.after, paging.limit)
        .await?;
    Ok(paging.page(page, KeyView::from))
}

/// `DELETE /api-keys/{api_key_id}`: revokes a key for good, be it the one that asks. 403 for a key with a scope that this one lacks.
async fn revoke(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    caller.needs(SCOPE)?;
    let id = named.id("api_key_id", Kind::OrgKey)?;
    let keys = api.store().org_keys();
    let key = keys.by_id(caller.org, id).await?;
    let key = key.ok_or_else(|| ApiError::absent(Kind::OrgKey))?;
    // Nor may it take away what it can't give.
    key.scopes
        .iter()
        .try_for_each(|scope| caller.needs(scope))?;
    query.finish()?;
    api.revoke_key(caller.org, id).await?;
    Ok(Json(Success::DONE))
}

fn new_key(mut fields: Fields) -> Result<(String, Option<Vec<&'static str>>), ApiError> {
    let name = fields.optional("name", NAME);
    let scopes = ListOf::new(Choice(&WORDS), 1..=SCOPES.len());
    let scopes = fields.optional("scopes", scopes);
    let name = name.unwrap_or_else(|| "Default".to_owned());
    fields.done(|| Some((name, scopes)))
}

/// The scopes that the new key gets, each once.
fn granted(
    caller: &Caller,
    named: Option<Vec<&'static str>>,
) -> Result<Vec<&'static str>, ApiError> {
    let Some(named) = named else {
        return Ok(SCOPES
            .into_iter()
            .filter(|scope| caller.may(scope))
            .collect());
    };
    for scope in &named {
        caller.needs(scope)?;
    }
    Ok(SCOPES
        .into_iter()
        .filter(|scope| named.contains(scope))
        .collect())
}
