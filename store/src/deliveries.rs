//! What webhooks are owed: queued with the event, held by the node that attempts it, and kept as a log.
//!
//! A delivery is attempted by whoever holds it, for as long as it holds it: a node that dies in between leaves it to be taken up
//! when its time is over, or by its own next run. So each is attempted at least once, and what is sent is always the event's body.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{count, from_row, json, maybe, micros, moment, named, to_json};
use super::error::{Error, Kind, Wrong};
use super::event::{EventType, NewEvent};
use super::page::{Page, Position};
use super::rows::Insert;
use super::tx::Tx;
use super::webhooks::{Row as WebhookRow, Webhook};
use super::{events, id_at};

/// Attempts that the log of a delivery keeps.
const LOGGED: usize = 20;

/// Where a delivery stands.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It waits for its next attempt.
    Pending,
    /// The receiver has taken it.
    Delivered,
    /// It was given up.
    Failed,
}

impl DeliveryState {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

/// One attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// When it began.
    pub at: Moment,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What the receiver answered.
    pub http_status: Option<u16>,
    /// A stable word for what went wrong; `None`: nothing.
    pub fault: Option<String>,
}

/// A delivery: one event for one webhook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Its id.
    pub id: Uuid,
    /// The webhook.
    pub webhook_id: Uuid,
    /// The event.
    pub event_id: Uuid,
    /// The event's type.
    pub event_type: EventType,
    /// Where it stands.
    pub state: DeliveryState,
    /// Attempts since it was queued last.
    pub attempts: u32,
    /// When the next one is due.
    pub next_attempt_at: Option<Moment>,
    /// The last attempts, oldest first.
    pub log: Vec<Attempt>,
    /// When it was queued first.
    pub created_at: Moment,
    /// When the receiver took it.
    pub delivered_at: Option<Moment>,
}
from_row!(Delivery {
    id,
    webhook_id,
    event_id,
    event_type: named,
    state: named,
    attempts: count,
    next_attempt_at: maybe(moment),
    log: json,
    created_at: moment,
    delivered_at: maybe(moment),
});

/// A delivery that is held to be attempted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The delivery.
    pub delivery: Delivery,
    /// What is sent.
    pub body: String,
}

/// What came of an attempt.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The receiver has taken it.
    Delivered,
    /// It is tried again then.
    Again(Moment),
    /// It is given up.
    GivenUp,
    /// The receiver is gone for good: the webhook is disabled, and all that it is owed is given up.
    Gone,
}

/// A webhook that may be owed something.
struct Wants {
    id: Uuid,
    org_id: Uuid,
    types: Vec<EventType>,
}
from_row!(Wants {
    id,
    org_id,
    types: json
});

/// Queues what the webhooks are owed of these events, which are new, in the caller's transaction.
pub(super) fn owe(tx: &mut Tx, events: &[&NewEvent]) -> Result<(), Error> {
    let mut orgs: Vec<Uuid> = events.iter().map(|event| event.org).collect();
    orgs.sort_unstable();
    orgs.dedup();
    let mut wants: HashMap<Uuid, Vec<Wants>> = HashMap::new();

    for org in orgs {
        let sql = "SELECT id, org_id, types FROM webhooks WHERE org_id = $1 AND enabled";
        for webhook in tx.all(sql, &[&org])? {
            let webhook: Wants = webhook;
            wants.entry(webhook.org_id).or_default().push(webhook);
        }
    }

    let owed = events.iter().flat_map(|event| {
        let of_org = wants.get(&event.org).into_iter().flatten();
        of_org
            .filter(|webhook| webhook.types.is_empty() || webhook.types.contains(&event.kind))
            .map(|webhook| (webhook.id, *event))
    });
    let owed: Vec<_> = owed.collect();
    for some in owed.chunks(50) {
        queue(tx, some)?;
    }

    Ok(())
}

fn queue(tx: &mut Tx, owed: &[(Uuid, &NewEvent)]) -> Result<(), Error> {
    let rows: Vec<_> = owed
        .iter()
        .map(|(webhook, event)| {
            [
                id_at(event.at).into(),
                event.org.into(),
                (*webhook).into(),
                event.id.into(),
                event.kind.as_str().into(),
                DeliveryState::Pending.as_str().into(),
                0.into(),
                micros(event.at).into(),
                "[]".into(),
                micros(event.at).into(),
            ]
        })
        .collect();

    tx.insert(QUEUE, &rows)?;
    Ok(())
}

const QUEUE: Insert = Insert {
    into: "webhook_deliveries (id, org_id, webhook_id, event_id, event_type, state, attempts, next_attempt_at, log, created_at)",
    ending: "",
};

/// Webhooks that are owed something which is due and which nobody holds.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn due(tx: &mut Tx, now: Moment) -> Result<Vec<Webhook>, Error> {
    let rows: Vec<WebhookRow> = tx.all(
        "SELECT * FROM webhooks WHERE enabled AND EXISTS (
             SELECT 1 FROM webhook_deliveries WHERE webhook_id = webhooks.id AND state = 'pending'
             AND next_attempt_at <= $1 AND (held_until IS NULL OR held_until <= $1))
             AND EXISTS (SELECT 1 FROM orgs WHERE orgs.id = webhooks.org_id AND deleted_at IS NULL)",
        &[&now],
    )?;
    let keyring = tx.keyring();
    let open = |row: WebhookRow| row.open(&keyring);
    Ok(rows.into_iter().map(open).collect::<Result<_, _>>()?)
}

/// Takes hold of up to `limit` deliveries of the webhook that are due, for as long as `lease`.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn hold(
    tx: &mut Tx,
    webhook: Uuid,
    holder: &str,
    limit: u32,
    lease: Duration,
    now: Moment,
) -> Result<Vec<Held>, Error> {
    let sql = tx.words(
        "UPDATE webhook_deliveries SET held_by = $2, held_until = $3 WHERE id IN (
                 SELECT id FROM webhook_deliveries WHERE webhook_id = $1 AND state = 'pending' AND next_attempt_at <= $4
                 AND (held_until IS NULL OR held_until <= $4) ORDER BY next_attempt_at, id LIMIT $5
             ) RETURNING *",
        "UPDATE webhook_deliveries SET held_by = $2, held_until = $3 WHERE id IN (
                 SELECT id FROM webhook_deliveries WHERE webhook_id = $1 AND state = 'pending' AND next_attempt_at <= $4
                 AND (held_until IS NULL OR held_until <= $4) ORDER BY next_attempt_at, id LIMIT $5
                 FOR UPDATE SKIP LOCKED
             ) RETURNING *",
    );

    let mut taken: Vec<Delivery> =
        tx.all(sql, &[&webhook, &holder, &(now + lease), &now, &limit])?;
    taken.sort_unstable_by_key(|delivery| (delivery.next_attempt_at, delivery.id));
    let mut held = Vec::with_capacity(taken.len());
    for delivery in taken {
        // A delivery goes with its event.
        if let Some(body) = events::body(tx, delivery.event_id)? {
            held.push(Held { delivery, body });
        }
    }

    Ok(held)
}

/// Lets go of what an earlier run of this node held.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn let_go(tx: &mut Tx, holder: &str) -> Result<u64, Error> {
    let sql = "UPDATE webhook_deliveries SET held_by = NULL, held_until = NULL WHERE held_by = $1 AND state = 'pending'";
    tx.run(sql, &[&holder])
}

/// Writes down what came of an attempt. Nothing is written by whoever doesn't hold the delivery any more.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn settle(
    tx: &mut Tx,
    held: &Delivery,
    holder: &str,
    attempt: Attempt,
    outcome: Outcome,
    now: Moment,
) -> Result<(), Error> {
    let mut log = held.log.clone();
    log.push(attempt);
    let log = &log[log.len().saturating_sub(LOGGED)..];
    let (state, next, delivered) = match outcome {
        Outcome::Delivered => (DeliveryState::Delivered, None, Some(now)),
        Outcome::Again(next) => (DeliveryState::Pending, Some(next), None),
        Outcome::GivenUp | Outcome::Gone => (DeliveryState::Failed, None, None),
    };

    let settled = tx.run(
        "UPDATE webhook_deliveries SET state = $3, attempts = attempts + 1, next_attempt_at = $4, log = $5, delivered_at = $6,
             held_by = NULL, held_until = NULL
         WHERE id = $1 AND held_by = $2",
        &[&held.id, &holder, &state.as_str(), &next, &to_json(log), &delivered],
    )?;
    if settled == 1 && outcome == Outcome::Gone {
        let sql = "UPDATE webhooks SET enabled = FALSE, disabled_reason = 'gone', updated_at = $2 WHERE id = $1";
        tx.run(sql, &[&held.webhook_id, &now])?;
        let sql = "UPDATE webhook_deliveries SET state = 'failed', next_attempt_at = NULL, held_by = NULL, held_until = NULL
                   WHERE webhook_id = $1 AND state = 'pending'";
        tx.run(sql, &[&held.webhook_id])?;
    }

    Ok(())
}

/// A page of a webhook's deliveries, newest first, after `after`.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    webhook: Uuid,
    state: Option<DeliveryState>,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Delivery>, Error> {
    tx.snapshot()?;
    let after = after.unwrap_or(Position::START);
    let state = state.map(DeliveryState::as_str);
    let items: Vec<Delivery> = tx.all(
        "SELECT * FROM webhook_deliveries WHERE org_id = $1 AND webhook_id = $2 AND ($3 IS NULL OR state = $3)
         AND (created_at, id) < ($4, $5) ORDER BY created_at DESC, id DESC LIMIT $6",
        &[&org, &webhook, &state, &after.at_micros(), &after.id, &(i64::from(limit) + 1)],
    )?;

    let (total,): (i64,) = tx.only(
        "SELECT COUNT(*) FROM webhook_deliveries WHERE org_id = $1 AND webhook_id = $2 AND ($3 IS NULL OR state = $3)",
        &[&org, &webhook, &state],
    )?;

    Ok(Page::of(items, limit, total, |delivery| Position {
        at: delivery.created_at,
        id: delivery.id,
    }))
}

/// The delivery of this id, and what was sent.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, webhook: Uuid, delivery: Uuid) -> Result<Held, Error> {
    let sql = "SELECT * FROM webhook_deliveries WHERE org_id = $1 AND webhook_id = $2 AND id = $3";
    let row: Option<Delivery> = tx.one(sql, &[&org, &webhook, &delivery])?;
    let delivery = row.ok_or(Wrong::Absent(Kind::Delivery))?;
    let body = events::body(tx, delivery.event_id)?;
    let body = body.ok_or(Wrong::Absent(Kind::Delivery))?;
    Ok(Held { delivery, body })
}

/// Queues a delivery again, whatever came of it: the same event, with the same id and body.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn requeue(
    tx: &mut Tx,
    org: Uuid,
    webhook: Uuid,
    delivery: Uuid,
    now: Moment,
) -> Result<Delivery, Error> {
    let row: Option<Delivery> = tx.one(
        "UPDATE webhook_deliveries SET state = 'pending', attempts = 0, next_attempt_at = $4
         WHERE org_id = $1 AND webhook_id = $2 AND id = $3 RETURNING *",
        &[&org, &webhook, &delivery, &now],
    )?;
    tx.wake();
    Ok(row.ok_or(Wrong::Absent(Kind::Delivery))?)
}
