//! `GET /widget/me`: identifies a widget token, so that the widget's own server can check it.
//!
//! Every holder of the token sees the answer, the visitor's browser included. So personal connections, overrides and
//! the chat's context, which the org keeps with the contact, are not part of it.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use trunkline_store::{Contact, Error, Wrong, orgs};
use uuid::Uuid;

use super::cors;
use crate::api::caller::credential;
use crate::api::connection_limiter::Proof;
use crate::api::operations::{Audience, Operations};
use crate::api::query::Query;
use crate::api::quota::{Policy, Tally};
use crate::api::time::written;
use crate::api::token::{self, VisitorId};
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Widget contacts", Audience::Visitor);
    of.add(
        "get",
        "/widget/me",
        cors::open(get(show)),
        "showVisitor",
        "Contact of the widget token",
        |op| op.may_refuse(&[403]).gives::<ContactView>(200),
    );
}

/// Contact whose token came with the request.
#[derive(Debug)]
pub(super) struct Visitor(Contact);

impl FromRequestParts<Api> for Visitor {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let invalid = ApiError::Unauthorized("The widget token is invalid or has ended");
        let token = credential(
            parts,
            "A widget token is required: Authorization: Bearer <token>",
        )?;
        api.follow_key_of(token).await;
        let Some(VisitorId { contact, org }) =
            token::read_contact(api.store().keyring(), token, api.now())
        else {
            return Err(invalid);
        };

        // After the signature: only a token of ours reads contacts, and gets an entry among the limits.
        Proof::note(parts);
        let limit = api.config().limits.requests_per_minute;
        let quotas = api.quotas();
        Tally::of(parts).note(quotas.take(Policy::Visitor, contact, limit, api.monotonic()))?;
        match api.store().contacts().by_id(org, contact).await {
            Ok(contact) => match api.read_inline(move |tx| orgs::by_id(tx, org)).await {
                Ok(org) if org.is_suspended() => Err(ApiError::suspended()),
                Ok(_) => Ok(Self(contact)),
                Err(Error::Wrong(Wrong::Absent(_))) => Err(invalid),
                Err(error) => Err(error.into()),
            },
            Err(Error::Wrong(Wrong::Absent(_))) => Err(invalid),
            Err(error) => Err(error.into()),
        }
    }
}

/// A contact as its own token shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Contact")]
pub(super) struct ContactView {
    id: Uuid,
    external_id: Option<String>,
    email: Option<String>,
    phone: Option<String>,
    name: Option<String>,
    avatar_url: Option<String>,
    language: Option<String>,
    #[serde(rename = "customData")]
    custom_data: Option<Map<String, Value>>,
    created_at: String,
    /// Time of the last change, which is the version for `If-Match`.
    pub(super) updated_at: String,
}

/// `GET /widget/me`
pub(super) async fn show(
    Visitor(contact): Visitor,
    query: Query,
    State(_): State<Api>,
) -> Result<Json<ContactView>, ApiError> {
    query.finish()?;
    Ok(Json(contact.into()))
}

impl From<Contact> for ContactView {
    fn from(contact: Contact) -> Self {
        Self {
            id: contact.id,
            external_id: contact.external_id,
            email: contact.email,
            phone: contact.phone,
            name: contact.name,
            avatar_url: contact.avatar_url,
            language: contact.language,
            custom_data: contact.custom_data,
            created_at: written(contact.created_at),
            updated_at: written(contact.updated_at),
        }
    }
}
