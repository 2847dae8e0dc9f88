//! Deliveries of events to webhooks: queued with the event, leased by the node that attempts them, and kept as a log.
//!
//! Only the node with the lease attempts a delivery. If that node dies, another takes the delivery up when the lease expires, or the node's
//! own next run does. So each delivery is attempted at least once, and the event's body is always the same.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::calls::events;
use crate::driver::column::{count, from_row, json, maybe, micros, moment, named, to_json};
use crate::driver::error::{Broke, Error, Kind, Wrong};
use crate::driver::event::{EventType, NewEvent};
use crate::driver::ids::id_at;
use crate::driver::page::{COUNT_LIMIT, Page, Position};
use crate::driver::rows::Insert;
use crate::driver::tx::Tx;
use crate::tenants::webhooks::{Row as WebhookRow, Webhook};

/// Most attempts in the log of a delivery; older ones are dropped.
const LOGGED: usize = 20;

/// State of a delivery.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// Waiting for the next attempt.
    Pending,
    /// The receiver has accepted the event.
    Delivered,
    /// Given up.
    Failed,
}

impl DeliveryState {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

/// One attempt of a delivery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Start of the attempt.
    pub at: Moment,
    /// Duration in milliseconds.
    pub took_ms: u64,
    /// HTTP status of the receiver's response.
    pub http_status: Option<u16>,
    /// Stable code of the fault; `None`: success.
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
    /// Present state.
    pub state: DeliveryState,
    /// Attempts since the delivery was last queued.
    pub attempts: u32,
    /// Time of the next attempt.
    pub next_attempt_at: Option<Moment>,
    /// The last attempts, oldest first.
    pub log: Vec<Attempt>,
    /// Time at which the delivery was first queued.
    pub created_at: Moment,
    /// Time at which the receiver accepted the event.
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

/// A delivery with its body, leased for an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeasedDelivery {
    /// The delivery.
    pub delivery: Delivery,
    /// Body to send.
    pub body: String,
}

/// Outcome of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The receiver has accepted the event.
    Delivered,
    /// Failed, to be tried again at this time.
    Again(Moment),
    /// Failed for good.
    GivenUp,
    /// The receiver is gone for good: the webhook is disabled, and all its deliveries are given up.
    Gone {
        /// URL of the attempt. If the webhook has another one by now, or was disabled meanwhile, it stays as it is and the delivery stays due.
        url: String,
    },
}

/// A webhook that may subscribe to an event.
struct Wants {
    id: Uuid,
    org_id: Uuid,
    /// Agent of the only calls whose events it gets; `None`: all calls.
    agent_id: Option<Uuid>,
    types: Vec<EventType>,
}
from_row!(Wants {
    id,
    org_id,
    agent_id,
    types: json
});

/// Queues the deliveries of these new events, in the caller's transaction.
pub(crate) fn queue_for_webhooks(tx: &mut Tx, events: &[&NewEvent]) -> Result<(), Error> {
    let mut orgs: Vec<Uuid> = events.iter().map(|event| event.org).collect();
    orgs.sort_unstable();
    orgs.dedup();
    let mut wants: HashMap<Uuid, Vec<Wants>> = HashMap::new();

    for org in orgs {
        let sql = "SELECT id, org_id, agent_id, types FROM webhooks WHERE org_id = $1 AND enabled";
        for webhook in tx.all(sql, &[&org])? {
            let webhook: Wants = webhook;
            wants.entry(webhook.org_id).or_default().push(webhook);
        }
    }

    // Events name their call only: the agents are read for orgs with a webhook of one agent.
    let agents = agents_of(tx, events, &wants)?;
    let owed = events.iter().flat_map(|event| {
        let of_org = wants.get(&event.org).into_iter().flatten();
        of_org
            // Without types a webhook gets all events.
            .filter(|webhook| webhook.types.is_empty() || webhook.types.contains(&event.kind))
            .filter(|webhook| {
                webhook.agent_id.is_none() || webhook.agent_id == agents.get(&event.id).copied()
            })
            .map(|webhook| (webhook.id, *event))
    });
    let owed: Vec<_> = owed.collect();
    for some in owed.chunks(50) {
        queue(tx, some)?;
    }

    Ok(())
}

/// Returns the agents of the calls that these events are about, where a webhook of an agent may want them.
fn agents_of(
    tx: &mut Tx,
    events: &[&NewEvent],
    wants: &HashMap<Uuid, Vec<Wants>>,
) -> Result<HashMap<Uuid, Uuid>, Error> {
    let mut agents = HashMap::new();
    for event in events {
        let mut of_org = wants.get(&event.org).into_iter().flatten();
        let is_wanted =
            of_org.any(|webhook| webhook.agent_id.is_some() && webhook.types.contains(&event.kind));

        let Some(call) = event.call().filter(|_| is_wanted) else {
            continue;
        };

        let sql = "SELECT agent_id FROM calls WHERE org_id = $1 AND id = $2";
        let row: Option<(Option<Uuid>,)> = tx.one(sql, &[&event.org, &call])?;
        if let Some((Some(agent),)) = row {
            agents.insert(event.id, agent);
        }
    }
    Ok(agents)
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

/// A webhook with due deliveries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueWebhook {
    /// The webhook.
    pub webhook: Webhook,
    /// The partner of its org.
    pub partner: Option<PartnerOfOrg>,
}

/// Partner of an org.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PartnerOfOrg {
    /// The partner.
    pub id: Uuid,
    /// Share of a node, in per cent, that its orgs have together; `None`: the default.
    pub node_share_percent: Option<u32>,
}

struct PartnerRow {
    org_id: Uuid,
    partner_id: Uuid,
    node_share_percent: Option<u32>,
}
from_row!(PartnerRow {
    org_id,
    partner_id,
    node_share_percent: maybe(count),
});

/// Condition on a webhook, with the time as `$1`: deliveries of it are due, and no node has leased them.
macro_rules! is_due {
    () => {
        "enabled AND EXISTS (
             SELECT 1 FROM webhook_deliveries WHERE webhook_id = webhooks.id AND state = 'pending'
             AND next_attempt_at <= $1 AND (held_until IS NULL OR held_until <= $1))
             AND EXISTS (SELECT 1 FROM orgs WHERE orgs.id = webhooks.org_id AND deleted_at IS NULL)"
    };
}

/// Returns webhooks with due deliveries that no node has leased.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn due(tx: &mut Tx, now: Moment) -> Result<Vec<DueWebhook>, Error> {
    let sql = concat!("SELECT * FROM webhooks WHERE ", is_due!());
    let rows: Vec<WebhookRow> = tx.all(sql, &[&now])?;
    // Most checks find none.
    if rows.is_empty() {
        return Ok(Vec::new());
    }

    let sql = concat!(
        "SELECT orgs.id AS org_id, partners.id AS partner_id, node_share_percent
         FROM orgs JOIN partners ON partners.id = orgs.partner_id
         WHERE orgs.id IN (SELECT org_id FROM webhooks WHERE ",
        is_due!(),
        ")"
    );
    let partners: Vec<PartnerRow> = tx.all(sql, &[&now])?;
    let partners: HashMap<Uuid, PartnerOfOrg> = partners
        .into_iter()
        .map(|row| {
            let partner = PartnerOfOrg {
                id: row.partner_id,
                node_share_percent: row.node_share_percent,
            };
            (row.org_id, partner)
        })
        .collect();

    let keyring = tx.keyring();
    let open = |row: WebhookRow| {
        let webhook = row.open(&keyring)?;
        let partner = partners.get(&webhook.org_id).copied();
        Ok::<_, Broke>(DueWebhook { webhook, partner })
    };
    Ok(rows.into_iter().map(open).collect::<Result<_, _>>()?)
}

/// Most waiting deliveries that are counted.
macro_rules! most_counted {
    () => {
        "100000"
    };
}

/// Returns how many deliveries wait for an attempt, 100,000 at most, and when the oldest of these was queued.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn backlog(tx: &mut Tx) -> Result<(u64, Option<Moment>), Error> {
    let sql = concat!(
        "SELECT COUNT(*), MIN(created_at) FROM (
             SELECT created_at FROM webhook_deliveries WHERE state = 'pending' ORDER BY webhook_id, next_attempt_at LIMIT ",
        most_counted!(),
        ") AS pending"
    );
    let (waiting, oldest): (i64, Option<i64>) = tx.exactly_one(sql, &[])?;
    let oldest = oldest.and_then(|micros| u64::try_from(micros).ok());
    Ok((waiting.unsigned_abs(), oldest.map(Moment::from_micros)))
}

/// Leases up to `limit` due deliveries of the webhook for the time `lease`.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn lease(
    tx: &mut Tx,
    webhook: Uuid,
    holder: &str,
    limit: u32,
    lease: Duration,
    now: Moment,
) -> Result<Vec<LeasedDelivery>, Error> {
    // SKIP LOCKED: nodes that lease at the same time take different deliveries instead of waiting for each other.
    let sql = tx.by_dialect(
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
    // RETURNING gives rows in no order.
    taken.sort_unstable_by_key(|delivery| (delivery.next_attempt_at, delivery.id));
    let mut held = Vec::with_capacity(taken.len());
    for delivery in taken {
        // A pruned event has no body; its delivery is pruned with it.
        if let Some(body) = events::body(tx, delivery.event_id)? {
            held.push(LeasedDelivery { delivery, body });
        }
    }

    Ok(held)
}

/// Releases the deliveries that an earlier run of this node had leased.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn release(tx: &mut Tx, holder: &str) -> Result<u64, Error> {
    let sql = "UPDATE webhook_deliveries SET held_by = NULL, held_until = NULL WHERE held_by = $1 AND state = 'pending'";
    tx.run(sql, &[&holder])
}

/// Stores the outcome of an attempt, and returns it as stored. Does nothing and returns `None` if the lease has been lost, or is that of a later
/// attempt of the same holder.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn settle(
    tx: &mut Tx,
    held: &Delivery,
    holder: &str,
    attempt: Attempt,
    outcome: Outcome,
    now: Moment,
) -> Result<Option<Outcome>, Error> {
    let is_kept = match &outcome {
        Outcome::Gone { url } => !disable(tx, held, holder, url, now)?,
        Outcome::Delivered | Outcome::Again(_) | Outcome::GivenUp => false,
    };
    // The receiver at the new URL hasn't refused anything, and a webhook that its owner has disabled is asked again once it is enabled.
    let outcome = if is_kept {
        Outcome::Again(now)
    } else {
        outcome
    };

    let mut log = held.log.clone();
    log.push(attempt);
    let log = &log[log.len().saturating_sub(LOGGED)..];
    let (state, next, delivered) = match &outcome {
        Outcome::Delivered => (DeliveryState::Delivered, None, Some(now)),
        Outcome::Again(next) => (DeliveryState::Pending, Some(*next), None),
        Outcome::GivenUp | Outcome::Gone { .. } => (DeliveryState::Failed, None, None),
    };

    let settled = tx.run(
        "UPDATE webhook_deliveries SET state = $3, attempts = attempts + 1, next_attempt_at = $4, log = $5, delivered_at = $6,
             held_by = NULL, held_until = NULL
         WHERE id = $1 AND held_by = $2 AND next_attempt_at = $7",
        &[&held.id, &holder, &state.as_str(), &next, &to_json(log), &delivered, &held.next_attempt_at],
    )?;
    if let Outcome::Gone { .. } = outcome {
        let sql = "UPDATE webhook_deliveries SET state = 'failed', next_attempt_at = NULL, held_by = NULL, held_until = NULL
                   WHERE webhook_id = $1 AND state = 'pending'";
        tx.run(sql, &[&held.webhook_id])?;
    }

    Ok((settled == 1).then_some(outcome))
}

/// Disables the webhook of a delivery whose receiver is gone. Returns false if the webhook has another URL by now or is disabled already, or
/// if the lease has been lost: then another attempt decides what becomes of the webhook.
fn disable(
    tx: &mut Tx,
    held: &Delivery,
    holder: &str,
    url: &str,
    now: Moment,
) -> Result<bool, Error> {
    // The webhook's row is locked before those of its deliveries, as where it is deleted: attempts that end at once don't deadlock.
    let disabled = tx.run(
        "UPDATE webhooks SET enabled = FALSE, disabled_reason = 'gone', updated_at = $2
         WHERE id = $1 AND url = $3 AND enabled AND EXISTS (
             SELECT 1 FROM webhook_deliveries WHERE id = $4 AND held_by = $5 AND next_attempt_at = $6)",
        &[&held.webhook_id, &now, &url, &held.id, &holder, &held.next_attempt_at],
    )?;
    Ok(disabled == 1)
}

/// Statement for a page of a webhook's deliveries.
macro_rules! listed {
    ($state:literal) => {
        concat!(
            "SELECT * FROM webhook_deliveries WHERE org_id = $1 AND webhook_id = $2",
            $state,
            " AND (created_at, id) < ($3, $4) ORDER BY created_at DESC, id DESC LIMIT $5"
        )
    };
}

/// Statement that counts a webhook's deliveries. The org is that of the webhook, so that no delivery is read for it.
macro_rules! counted {
    ($state:literal) => {
        concat!(
            "SELECT COUNT(*) FROM (SELECT 1 AS one FROM webhook_deliveries
             WHERE webhook_id = (SELECT id FROM webhooks WHERE org_id = $1 AND id = $2)",
            $state,
            " LIMIT $3) AS matching"
        )
    };
}

/// Returns a page of a webhook's deliveries, newest first, after `after`.
///
/// # Errors
/// [`Broke`]: the database fails.
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
    // A statement for each case, so that each is answered from the index that fits.
    let (listed, counted) = match state {
        None => (listed!(""), counted!("")),
        Some(_) => (listed!(" AND state = $6"), counted!(" AND state = $4")),
    };
    let most = i64::from(limit) + 1;
    let items: Vec<Delivery> = tx.all(
        listed,
        &[&org, &webhook, &after.at_micros(), &after.id, &most, &state],
    )?;
    let (total,): (i64,) = tx.exactly_one(counted, &[&org, &webhook, &COUNT_LIMIT, &state])?;

    let position = |delivery: &Delivery| Position {
        at: delivery.created_at,
        id: delivery.id,
    };
    Ok(Page::of(items, limit, total, position).bounded())
}

/// Returns the delivery of this id, with its body.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(
    tx: &mut Tx,
    org: Uuid,
    webhook: Uuid,
    delivery: Uuid,
) -> Result<LeasedDelivery, Error> {
    let sql = "SELECT * FROM webhook_deliveries WHERE org_id = $1 AND webhook_id = $2 AND id = $3";
    let row: Option<Delivery> = tx.one(sql, &[&org, &webhook, &delivery])?;
    let delivery = row.ok_or(Wrong::Absent(Kind::Delivery))?;
    let body = events::body(tx, delivery.event_id)?;
    let body = body.ok_or(Wrong::Absent(Kind::Delivery))?;
    Ok(LeasedDelivery { delivery, body })
}

/// Queues a delivery again, whatever its outcome: the same event, with the same id and body. An attempt that is under way loses its lease, so
/// that its outcome doesn't end the new delivery.
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
        "UPDATE webhook_deliveries SET state = 'pending', attempts = 0, next_attempt_at = $4, held_by = NULL, held_until = NULL
         WHERE org_id = $1 AND webhook_id = $2 AND id = $3 RETURNING *",
        &[&org, &webhook, &delivery, &now],
    )?;

    tx.wake();
    Ok(row.ok_or(Wrong::Absent(Kind::Delivery))?)
}
