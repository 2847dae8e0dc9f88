//! `/webhooks`: receivers of the org's events. A secret is shown once, when it is created.

mod deliveries;
mod own;

pub(crate) use deliveries::{DeliveryAttemptView, DeliveryView, WholeView};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trunkline_store::{EventType, NewWebhook, Tx, Versioned, Webhook, WebhookChange, webhooks};
use uuid::Uuid;

use super::body::{Body, Fields};
use super::caller::Caller;
use super::field_type::{Bool, Choice, ListOf, Text};
use super::page::{Page, Paging};
use super::path::Named;
use super::phone::EVENT_TYPES;
use super::query::Query;
use super::time::written;
use super::version::{HasVersion, IfMatch, Tagged};
use super::{Api, ApiError, Success};
use crate::api::idempotency::once;
use crate::api::openapi::{no_fields, read_by};
use crate::api::operations::Operations;
use crate::api::query::text_schema;
use crate::config::Config;
use crate::webhooks::{Target, new_secret};
use own::{OF_ORG, TAG, find};

pub(super) fn operations(api: &mut Operations<'_>) {
    let config = api.config();
    deliveries::operations(api);
    let mut of = api.area(TAG, OF_ORG);
    of.get(
        "/webhooks",
        list,
        "listWebhooks",
        "The org's webhooks, newest first",
        |op| {
            op.query(
                "enabled",
                json!({"type": "boolean"}),
                "Only webhooks that are enabled, or that are not.",
            )
            .query("url", text_schema(), "Only webhooks of this URL.")
            .paged()
            .gives::<Page<WebhookView>>(200)
        },
    );

    of.post_once(
        "/webhooks",
        once(create),
        "createWebhook",
        "Creates a webhook; its secret is shown once",
        |op| {
            let body = read_by(|fields| new_webhook(config, fields));
            op.body(body).versioned().gives::<SecretView>(201)
        },
    );

    of.get(
        "/webhooks/{webhook_id}",
        one,
        "showWebhook",
        "One webhook",
        |op| op.gives_versioned::<WebhookView>(),
    );

    of.patch(
        "/webhooks/{webhook_id}",
        update,
        "updateWebhook",
        "Updates a webhook: absent fields are unchanged",
        |op| {
            let body = read_by(|fields| change(config, fields));
            let op = op.of_version();
            op.body(body).gives_versioned::<WebhookView>()
        },
    );

    of.delete(
        "/webhooks/{webhook_id}",
        delete,
        "deleteWebhook",
        "Deletes a webhook and its deliveries",
        |op| op.of_version().deletes(),
    );

    of.post_once(
        "/webhooks/{webhook_id}/rotate-secret",
        once(rotate),
        "rotateWebhookSecret",
        "Creates a new secret; for a day both sign",
        |op| {
            op.of_version()
                .body(no_fields())
                .gives_versioned::<SecretView>()
        },
    );
}

const TYPES: ListOf<Choice<EventType>> =
    ListOf::new(Choice(&EVENT_TYPES), 0..=EventType::ALL.len());
const URL: Text = Text::line(1..=2048);
const DESCRIPTION: Text = Text::line(0..=500);

/// A webhook as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Webhook")]
pub(crate) struct WebhookView {
    pub(crate) id: Uuid,
    pub(crate) url: String,
    pub(crate) description: Option<String>,
    /// Types of events to send; empty for all.
    pub(crate) types: Vec<EventType>,
    pub(crate) enabled: bool,
    /// `gone` if its receiver answered 410.
    pub(crate) disabled_reason: Option<String>,
    /// End of the time in which the secret before the last rotation signs as well.
    old_secret_expires_at: Option<String>,
    created_at: String,
    pub(crate) updated_at: String,
}

impl HasVersion for WebhookView {
    fn version(&self) -> &str {
        &self.updated_at
    }
}

impl HasVersion for SecretView {
    fn version(&self) -> &str {
        &self.webhook.updated_at
    }
}

/// A webhook with its secret, which is shown this once.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebhookWithSecret")]
pub(crate) struct SecretView {
    #[serde(flatten)]
    pub(crate) webhook: WebhookView,
    pub(crate) secret: String,
}

impl From<Webhook> for WebhookView {
    fn from(webhook: Webhook) -> Self {
        Self {
            id: webhook.id,
            url: webhook.url,
            description: webhook.description,
            types: webhook.types,
            enabled: webhook.enabled,
            disabled_reason: webhook.disabled_reason,
            old_secret_expires_at: webhook.old_secret.map(|(_, until)| written(until)),
            created_at: written(webhook.created_at),
            updated_at: written(webhook.updated_at),
        }
    }
}

impl From<Webhook> for SecretView {
    fn from(webhook: Webhook) -> Self {
        Self {
            secret: webhook.secret.reveal().to_owned(),
            webhook: webhook.into(),
        }
    }
}

/// `POST /webhooks {url, types, description, enabled}`: 201 with the secret; 409 at the org's limit.
async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Tagged<SecretView>), ApiError> {
    let new = new_webhook(api.config(), body.fields()?)?;
    let made = api
        .write(move |tx, now| webhooks::create(tx, caller.org, &new, &new_secret(), now))
        .await?;
    Ok((StatusCode::CREATED, Tagged::new(made.into())))
}

/// `GET /webhooks?limit&cursor`, newest first.
async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<WebhookView>, ApiError> {
    let narrow = [query.switch("enabled"), query.text("url")];
    let paging = Paging::read(&mut query, "webhooks", narrow);
    query.finish()?;
    paging
        .find(api.store(), caller.org, webhooks::page, WebhookView::from)
        .await
}

/// `GET /webhooks/{webhook_id}`
async fn one(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Tagged<WebhookView>, ApiError> {
    let webhook = find(&api, &caller, &named).await?;
    query.finish()?;
    Ok(Tagged::new(webhook.into()))
}

/// `PATCH /webhooks/{webhook_id} {url, types, description, enabled}`: an absent field is unchanged.
async fn update(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<WebhookView>, ApiError> {
    let webhook = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    let change = change(api.config(), body.fields()?)?;
    let (org, object) = (caller.org, Versioned::Webhook(webhook.id));
    let update = move |tx: &mut Tx, now| webhooks::update(tx, org, webhook.id, &change, now);
    let changed = api.change(org, object, version, update).await?;
    Ok(Tagged::new(changed.into()))
}

/// `DELETE /webhooks/{webhook_id}`: deletes the webhook and its pending deliveries.
async fn delete(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let webhook = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    query.finish()?;
    let (org, object) = (caller.org, Versioned::Webhook(webhook.id));
    let delete = move |tx: &mut Tx, _| webhooks::delete(tx, org, webhook.id);
    api.change(org, object, version, delete).await?;
    Ok(Json(Success::DONE))
}

/// `POST /webhooks/{webhook_id}/rotate-secret`: 200 with another secret. The previous one signs as well for a day.
async fn rotate(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<SecretView>, ApiError> {
    let webhook = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    body.empty()?;
    let (org, object) = (caller.org, Versioned::Webhook(webhook.id));
    let rotate = move |tx: &mut Tx, now| webhooks::rotate(tx, org, webhook.id, &new_secret(), now);
    let rotated = api.change(org, object, version, rotate).await?;
    Ok(Tagged::new(rotated.into()))
}

fn new_webhook(config: &Config, mut fields: Fields) -> Result<NewWebhook, ApiError> {
    let url = fields.required("url", URL);
    judge(config, url.as_deref(), &mut fields);
    let description = fields.optional("description", DESCRIPTION);
    let types = fields.optional("types", TYPES);
    let enabled = fields.optional("enabled", Bool);
    fields.done(|| {
        Some(NewWebhook {
            url: url?,
            description,
            // An empty list means every type, also those that later versions add.
            types: each_once(types.unwrap_or_default()),
            enabled: enabled.unwrap_or(true),
        })
    })
}

fn change(config: &Config, mut fields: Fields) -> Result<WebhookChange, ApiError> {
    let url = fields.change("url", URL);
    judge(config, url.as_deref(), &mut fields);
    let description = fields.clearable("description", DESCRIPTION);
    let types = fields.change("types", TYPES);
    let enabled = fields.change("enabled", Bool);
    fields.done(|| {
        Some(WebhookChange {
            url,
            description,
            types: types.map(each_once),
            enabled,
        })
    })
}

/// Notes why a URL can't be a receiver's.
fn judge(config: &Config, url: Option<&str>, fields: &mut Fields) {
    // A name isn't resolved here: its addresses are judged at each delivery, as they may change at any time.
    let private_allowed = config.webhooks.allow_private_addresses;
    if let Some(Err(fault)) = url.map(|url| Target::parse(url, private_allowed)) {
        fields.refuse("url", fault);
    }
}

fn each_once(named: Vec<EventType>) -> Vec<EventType> {
    let all = EventType::ALL.into_iter();
    all.filter(|kind| named.contains(kind)).collect()
}
