//! `/webhooks/{webhook_id}/deliveries`: requests sent to a receiver and its answers, kept as long as events are.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trunkline_store::{
    Attempt, Delivery, DeliveryState, EventType, Kind, LeasedDelivery, deliveries,
};
use uuid::Uuid;

use super::own::find;
use super::{OF_ORG, TAG};
use crate::api::body::Body;
use crate::api::caller::Caller;
use crate::api::field_type::Choice;
use crate::api::openapi::no_fields;
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area(TAG, OF_ORG);
    of.get(
        "/webhooks/{webhook_id}/deliveries",
        list,
        "listDeliveries",
        "Deliveries, sent and pending, newest first",
        |op| {
            op.query_of::<trunkline_store::DeliveryState>(
                "status",
                "Only deliveries in this state.",
            )
            .paged()
            .gives::<Page<DeliveryView>>(200)
        },
    );

    of.get(
        "/webhooks/{webhook_id}/deliveries/{delivery_id}",
        one,
        "showDelivery",
        "One delivery with its event",
        |op| op.gives::<WholeView>(200),
    );

    of.post(
        "/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver",
        redeliver,
        "redeliver",
        "Sends the event of a delivery again",
        |op| {
            let op = op.may_refuse(&[409]).body(no_fields());
            op.gives::<DeliveryView>(200)
        },
    );
}

const STATE: Choice<DeliveryState> = Choice(&[
    ("pending", DeliveryState::Pending),
    ("delivered", DeliveryState::Delivered),
    ("failed", DeliveryState::Failed),
]);

/// A delivery as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Delivery")]
pub(crate) struct DeliveryView {
    pub(crate) id: Uuid,
    webhook_id: Uuid,
    /// Value of the header `webhook-id`.
    event_id: Uuid,
    pub(crate) event_type: EventType,
    pub(crate) status: DeliveryState,
    /// Attempts since the delivery was last queued.
    attempts: u32,
    pub(crate) next_attempt_at: Option<String>,
    /// The last attempts, oldest first.
    pub(crate) log: Vec<DeliveryAttemptView>,
    pub(crate) created_at: String,
    delivered_at: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DeliveryAttempt")]
pub(crate) struct DeliveryAttemptView {
    pub(crate) at: String,
    pub(crate) took_ms: u64,
    pub(crate) http_status: Option<u16>,
    pub(crate) fault: Option<String>,
}

/// A delivery with what is sent.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DeliveryWithEvent")]
pub(crate) struct WholeView {
    #[serde(flatten)]
    pub(crate) delivery: DeliveryView,
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub(crate) event: Box<RawValue>,
}

impl From<Attempt> for DeliveryAttemptView {
    fn from(attempt: Attempt) -> Self {
        Self {
            at: written(attempt.at),
            took_ms: attempt.took_ms,
            http_status: attempt.http_status,
            fault: attempt.fault,
        }
    }
}

impl From<Delivery> for DeliveryView {
    fn from(delivery: Delivery) -> Self {
        Self {
            id: delivery.id,
            webhook_id: delivery.webhook_id,
            event_id: delivery.event_id,
            event_type: delivery.event_type,
            status: delivery.state,
            attempts: delivery.attempts,
            next_attempt_at: delivery.next_attempt_at.map(written),
            log: delivery
                .log
                .into_iter()
                .map(DeliveryAttemptView::from)
                .collect(),
            created_at: written(delivery.created_at),
            delivered_at: delivery.delivered_at.map(written),
        }
    }
}

/// `GET /webhooks/{webhook_id}/deliveries?status&limit&cursor`, newest first.
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    mut query: Query,
) -> Result<Page<DeliveryView>, ApiError> {
    let webhook = find(&api, &caller, &named).await?;
    let state = query.read("status", |text| STATE.meaning(text));
    let paging = Paging::read(&mut query, "webhook-deliveries", state);
    query.finish()?;

    let (org, state) = (caller.org, paging.filters);
    let page = api
        .read_of(org, move |tx| {
            deliveries::page(tx, org, webhook.id, state, paging.after, paging.limit)
        })
        .await?;
    Ok(paging.page(page, DeliveryView::from))
}

/// `GET /webhooks/{webhook_id}/deliveries/{delivery_id}`: the delivery with the event as it is sent.
pub(super) async fn one(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<WholeView>, ApiError> {
    let LeasedDelivery { delivery, body } = find_delivery(&api, &caller, &named).await?;
    query.finish()?;
    let event = RawValue::from_string(body).map_err(|fault| ApiError::Broke(Box::new(fault)))?;
    Ok(Json(WholeView {
        delivery: delivery.into(),
        event,
    }))
}

/// `POST /webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver`: sends the event again at once, with the same id
/// and body. 409 while the webhook is disabled.
pub(super) async fn redeliver(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    body: Body,
) -> Result<Json<DeliveryView>, ApiError> {
    let webhook = find(&api, &caller, &named).await?;
    let LeasedDelivery { delivery, .. } = find_delivery(&api, &caller, &named).await?;
    body.empty()?;

    // A delivery of a disabled webhook would stay queued, and be sent whenever the webhook is enabled again.
    if !webhook.enabled {
        let message = "The webhook is disabled: enable it first".to_owned();
        return Err(ApiError::Conflict(message));
    }

    let queued = api
        .write(move |tx, now| deliveries::requeue(tx, caller.org, webhook.id, delivery.id, now))
        .await?;
    Ok(Json(queued.into()))
}

async fn find_delivery(
    api: &Api,
    caller: &Caller,
    named: &Named,
) -> Result<LeasedDelivery, ApiError> {
    let webhook = find(api, caller, named).await?;
    let id = named.id("delivery_id", Kind::Delivery)?;
    let org = caller.org;
    let found = api.read_inline(move |tx| deliveries::by_id(tx, org, webhook.id, id));
    Ok(found.await?)
}
