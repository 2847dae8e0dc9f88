//! `/operator/partners/{partnerId}/keys`: keys of a partner. A new key is shown once.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use trunkline_store::{Change, Error, Kind, PartnerKey, Store, partners};
use uuid::Uuid;

use super::listed::{self, Listed};
use super::partners::partner_in;
use crate::api::body::{Body, Fields};
use crate::api::caller::Operator;
use crate::api::caller::PARTNER_KEY;
use crate::api::field_type::NAME;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError, Success};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/partners/{partnerId}/keys",
        list,
        "listPartnerKeys",
        "The partner's keys, newest first",
        |op| op.gives::<Listed<PartnerKeyView>>(200),
    );

    of.post(
        "/partners/{partnerId}/keys",
        create,
        "createPartnerKey",
        "Creates a key of the partner, shown once",
        |op| op.body(read_by(new_key)).gives::<NewPartnerKeyView>(201),
    );

    of.delete(
        "/partners/{partnerId}/keys/{keyId}",
        revoke,
        "revokePartnerKey",
        "Revokes a key of the partner for good",
        |op| op.deletes(),
    );
}

/// A key of a partner.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PartnerKey")]
pub(crate) struct PartnerKeyView {
    pub(crate) id: Uuid,
    partner_id: Uuid,
    pub(crate) name: String,
    pub(crate) created_at: String,
    pub(crate) last_used_at: Option<String>,
}

/// A new key, the one time that it is shown.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NewPartnerKey")]
pub(crate) struct NewPartnerKeyView {
    #[serde(flatten)]
    key: PartnerKeyView,
    /// The key itself. It is shown only this once.
    pub(crate) partner_key: String,
}

impl From<PartnerKey> for PartnerKeyView {
    fn from(key: PartnerKey) -> Self {
        Self {
            id: key.id,
            partner_id: key.partner_id,
            name: key.name,
            created_at: written(key.created_at),
            last_used_at: key.last_used_at.map(written),
        }
    }
}

/// `GET /operator/partners/{partnerId}/keys`: newest first.
pub(super) async fn list(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Listed<PartnerKeyView>>, ApiError> {
    let partner = partner_in(&api, &named).await?.id;
    query.finish()?;
    listed::all_of(&api, partner, partners::keys).await
}

/// `POST /operator/partners/{partnerId}/keys {name}`: 201.
pub(super) async fn create(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    body: Body,
) -> Result<(StatusCode, Json<NewPartnerKeyView>), ApiError> {
    let partner = partner_in(&api, &named).await?.id;
    let name = new_key(body.fields()?)?;
    let made = create_partner_key(api.store(), partner, &name, api.now());
    let (key, partner_key) = made.await?;
    let key = key.into();
    Ok((
        StatusCode::CREATED,
        Json(NewPartnerKeyView { key, partner_key }),
    ))
}

/// Reads the name of a new key; `Default` if absent.
pub(super) fn new_key(mut fields: Fields) -> Result<String, ApiError> {
    let name = fields.optional("name", NAME);
    fields.done(|| Some(name.unwrap_or_else(|| "Default".to_owned())))
}

/// `DELETE /operator/partners/{partnerId}/keys/{keyId}`: revokes the key for good.
pub(super) async fn revoke(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let partner = partner_in(&api, &named).await?.id;
    let key = named.id("keyId", Kind::PartnerKey)?;
    let revoked = listed::delete(&api, query, move |tx, now| {
        partners::revoke_key(tx, partner, key, now)
    });
    let revoked = revoked.await?;
    // At once on this node, even if the follower of the change feed lags.
    api.forget_credentials(Change::Partner(partner));
    Ok(revoked)
}

/// Creates a key: `tlp_` and 256 random bits. Only its SHA-256 is stored.
///
/// # Errors
/// [`Wrong::Absent`](trunkline_store::Wrong::Absent) if there is no such partner.
pub(crate) async fn create_partner_key(
    store: &Store,
    partner: Uuid,
    name: &str,
    now: Moment,
) -> Result<(PartnerKey, String), Error> {
    // 256 random bits can't be guessed, so a fast hash is enough to store.
    let random = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
    let key = format!("{PARTNER_KEY}{random}");
    let hash = Sha256::digest(&key).into();
    let name = name.to_owned();
    let row = store.write(move |tx| partners::add_key(tx, partner, &name, hash, now));
    Ok((row.await?, key))
}
