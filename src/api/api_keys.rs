//! `/api-keys`: the org's own API keys. A new key is shown once. It gets no scope that the key creating it lacks, and
//! expires no later.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use trunkline_store::{Kind, NewOrgKey, OrgKey, org_keys};
use uuid::Uuid;

use super::body::{Body, Fields};
use super::caller::Caller;
use super::field_type::{Choice, ListOf, NAME, Parsed, Text};
use super::idempotency::once;
use super::openapi::read_by;
use super::operations::{Audience, Operations};
use super::page::{Page, Paging};
use super::path::Named;
use super::query::{Query, text_schema};
use super::time::{timestamp, written};
use super::{Api, ApiError, SCOPES, Success, token};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("API keys", OF_ORG);
    of.get(
        "/api-keys",
        list,
        "listKeys",
        "The org's keys, newest first",
        |op| {
            op.query("name", text_schema(), "Only keys of this name.")
                .lists::<KeyView>()
        },
    );

    of.post_once("/api-keys", once(create), "createKey", "Creates a key, shown once; it gets no scope that the requesting key lacks, and expires no later", |op| {
            let body = read_by(new_key);
            op
                .body(body)
                .gives::<NewKeyView>(201)
        });
    of.delete(
        "/api-keys/{api_key_id}",
        revoke,
        "revokeKey",
        "Revokes a key for good",
        |op| op.gives::<Success>(200),
    );
}

/// Scope that every endpoint here requires.
const SCOPE: &str = "keys:write";
const OF_ORG: Audience = Audience::Org {
    read: &[SCOPE],
    write: &[SCOPE],
};

/// A key as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Key")]
pub(crate) struct KeyView {
    pub(crate) api_key_id: Uuid,
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) created_at: String,
    pub(crate) last_used_at: Option<String>,
    /// Time at which the key expires; `null`: it is valid until it is revoked.
    pub(crate) expires_at: Option<String>,
}

/// A new key, the one time that it is shown.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NewKey")]
pub(crate) struct NewKeyView {
    #[serde(flatten)]
    key: KeyView,
    pub(crate) api_key: String,
}

impl From<OrgKey> for KeyView {
    fn from(key: OrgKey) -> Self {
        Self {
            api_key_id: key.id,
            name: key.name,
            scopes: key.scopes,
            created_at: written(key.created_at),
            last_used_at: key.last_used_at.map(written),
            expires_at: key.expires_at.map(written),
        }
    }
}

/// Words of the request for the scopes, which are their own names.
const WORDS: [(&str, &str); SCOPES.len()] = {
    let mut words = [("", ""); SCOPES.len()];
    let mut at = 0;
    while at < SCOPES.len() {
        words[at] = (SCOPES[at], SCOPES[at]);
        at += 1;
    }
    words
};

/// Key to create, as a request describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeyRequest {
    pub(super) name: String,
    /// `None`: every scope that the creating key has.
    pub(super) scopes: Option<Vec<&'static str>>,
    /// Time of expiry.
    pub(super) expires_at: Option<Moment>,
}

/// Type of the field that sets the time of expiry.
const END: Parsed<Moment> = Parsed::new("an RFC 3339 time", timestamp)
    .format("date-time")
    .example("2036-01-31T12:00:00Z");

/// `POST /api-keys {name, scopes, expires_at}`: 201. Defaults: the name `Default`, the scopes and the expiry of the key
/// that makes the request. 403 for a scope that this key lacks, and for a later expiry.
async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Json<NewKeyView>), ApiError> {
    let request = new_key(body.fields()?)?;
    request.must_end_after(api.now())?;
    let scopes = granted(&caller, request.scopes)?;
    let new = NewOrgKey {
        expires_at: granted_end(&caller, request.expires_at)?,
        ..NewOrgKey::lasting(&request.name, &scopes)
    };

    let (store, now) = (api.store(), api.now());
    // The org's limit of keys doesn't bind the operator.
    let (key, api_key) = match caller.is_operator() {
        true => token::issue_for_operator(store, caller.org, new, now).await?,
        false => token::issue(store, caller.org, new, now).await?,
    };

    let key = key.into();
    Ok((StatusCode::CREATED, Json(NewKeyView { key, api_key })))
}

/// `GET /api-keys?limit&cursor`: keys of the org, newest first, no matter which credential created them.
async fn list(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
) -> Result<Page<KeyView>, ApiError> {
    page_of(&api, caller.org, query).await
}

/// Returns the page of an org's keys that a request asks for.
///
/// # Errors
/// 400 for a wrong parameter.
pub(super) async fn page_of(
    api: &Api,
    org: Uuid,
    mut query: Query,
) -> Result<Page<KeyView>, ApiError> {
    let narrow = [query.text("name"), None];
    let paging = Paging::read(&mut query, "api-keys", narrow);
    query.finish()?;
    paging
        .find(api.store(), org, org_keys::page, KeyView::from)
        .await
}

/// `DELETE /api-keys/{api_key_id}`: revokes a key for good, which may be the requesting one. 403 for a key with a scope
/// that the requesting one lacks.
async fn revoke(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let id = named.id("api_key_id", Kind::OrgKey)?;
    let key = api
        .read_inline(move |tx| org_keys::by_id(tx, caller.org, id))
        .await?;
    let key = key.ok_or_else(|| ApiError::absent(Kind::OrgKey))?;

    // A key can't revoke scopes that it couldn't grant.
    key.scopes
        .iter()
        .try_for_each(|scope| caller.needs(scope))?;

    query.finish()?;
    api.revoke_key(caller.org, id).await?;
    Ok(Json(Success::DONE))
}

fn new_key(fields: Fields) -> Result<KeyRequest, ApiError> {
    KeyRequest::read(fields, NAME)
}

impl KeyRequest {
    /// Reads a request for a new key; the name is `Default` if absent.
    ///
    /// # Errors
    /// 400 with every fault.
    pub(super) fn read(mut fields: Fields, name: Text) -> Result<Self, ApiError> {
        let name = fields.optional("name", name);
        let name = name.unwrap_or_else(|| "Default".to_owned());
        let scopes = fields.optional("scopes", ListOf::new(Choice(&WORDS), 1..=SCOPES.len()));
        let expires_at = fields.optional("expires_at", END);
        fields.done(|| {
            Some(Self {
                name,
                scopes,
                expires_at,
            })
        })
    }

    /// Checks that the key would expire in the future.
    ///
    /// # Errors
    /// 400 for a key that would have expired already.
    pub(super) fn must_end_after(&self, now: Moment) -> Result<(), ApiError> {
        match self.expires_at {
            Some(end) if end <= now => Err(ApiError::bad("expires_at: must lie in the future")),
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns the scopes for the new key.
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
    Ok(each_once(&named))
}

/// Scopes in the order of [`SCOPES`].
pub(super) fn each_once(named: &[&str]) -> Vec<&'static str> {
    let mut scopes = SCOPES.to_vec();
    scopes.retain(|scope| named.contains(scope));
    scopes
}

/// Returns the expiry of the new key: no later than that of the key that creates it.
fn granted_end(caller: &Caller, named: Option<Moment>) -> Result<Option<Moment>, ApiError> {
    match (caller.ends_at(), named) {
        (Some(own), Some(named)) if own < named => Err(ApiError::Forbidden(format!(
            "This key ends at {}, and can't make one that ends later",
            written(own)
        ))),
        (own, named) => Ok(named.or(own)),
    }
}
