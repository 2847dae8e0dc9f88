//! `DELETE /widget/contacts/{contact_id}` erases a contact and everything kept of it; `GET
//! /widget/erasures/{erasure_id}` shows the receipt.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::{
    Conflict, Contact, Erased, Erasure, Error, KeptConfiguration, Kind, Tx, Versioned, Wrong,
    erasures, of_contact,
};
use uuid::Uuid;

use super::authenticate;
use crate::api::caller::Caller;
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::version::IfMatch;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Widget contacts", OF_ERASURES);
    of.delete(
        "/widget/contacts/{contact_id}",
        erase,
        "eraseContact",
        "Erases a contact and all its data; answers the state of the erasure, or its receipt",
        |op| op.of_version().may_refuse(&[409]).gives::<ErasureView>(200),
    );

    of.get(
        "/widget/erasures/{erasure_id}",
        show,
        "showErasure",
        "State of an erasure, and its receipt",
        |op| op.gives::<ErasureView>(200),
    );
}

/// Scopes of everything that an erasure changes.
const OF_ERASURES: Audience = Audience::Org {
    read: &[authenticate::SCOPE],
    write: &[authenticate::SCOPE, "calls:write", "handoff:write"],
};

/// Copies that an erasure can't reach.
const OUT_OF_REACH: [&str; 6] = [
    "logs of the daemon, and collectors of HEP and OpenTelemetry that it sends to",
    "backups, replicas and snapshots of the database and of the data directory",
    "PostgreSQL's write-ahead log, and its dead rows until they are vacuumed",
    "free space of an SQLite file from before 0.1.0, until VACUUM, and freed blocks of the file system",
    "copies of events at the receivers of webhooks and of event streams",
    "what runtimes, PBXs, carriers and destinations of transfers keep",
];

/// State of an erasure.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ErasureState")]
enum ErasureState {
    /// A serving node hasn't done its part, or a call is still up.
    InProgress,
    /// Every serving node has done its part.
    Complete,
}

/// An erasure of a contact: its state, and the receipt once it is complete.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Erasure")]
pub(super) struct ErasureView {
    id: Uuid,
    /// The contact that was erased.
    contact_id: Uuid,
    status: ErasureState,
    /// Time of the request; later data isn't erased.
    requested_at: String,
    /// Time at which every serving node had done its part; `null` before.
    completed_at: Option<String>,
    /// Numbers of erased items, by kind.
    erased: ErasedView,
    /// Numbers of the org's own settings that name the same phone number, and stay.
    kept: KeptView,
    /// Nodes that have done their part.
    nodes: Vec<ErasureNodeView>,
    /// Nodes that haven't. Those that are left once it is complete are away, and do their part when they start.
    waits_for_nodes: Vec<i64>,
    /// Copies that the daemon can't reach.
    out_of_reach: Vec<&'static str>,
}

/// A node that has done its part of an erasure.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ErasureNode")]
struct ErasureNodeView {
    /// The node's number.
    node: i64,
    /// Time at which it had done its part.
    done_at: String,
}

/// Numbers of erased items, by kind.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ErasedCounts")]
struct ErasedView {
    /// The contact, and contacts that had nothing but its number or address.
    contacts: u64,
    /// Other contacts that lost the same number or address.
    other_contacts: u64,
    /// Calls that no longer name the contact.
    calls: u64,
    /// Attempts of such calls at their targets.
    call_attempts: u64,
    /// Transfers that lost their summaries.
    transfers: u64,
    /// Handoffs that lost their summaries, and no longer name the contact.
    handoffs: u64,
    /// Events that no longer name the contact.
    events: u64,
    /// Answers that were kept for an `Idempotency-Key`.
    kept_answers: u64,
    /// Requests that one node passed on to another.
    node_commands: u64,
    /// Failed log-ins in which the contact was dialled.
    failed_log_ins: u64,
    /// Messages of traces.
    trace_messages: u64,
    /// Lines of the journal that had been set aside.
    journal_lines: u64,
}

/// Configuration of the org that names the same number.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ErasureKept")]
struct KeptView {
    /// Phone numbers of the org.
    numbers: u64,
    /// Agents whose `handoff_phone_number` it is.
    agents: u64,
    /// Transfer destinations.
    destinations: u64,
    /// Outbound trunks whose `caller_number` it is.
    outbound_trunks: u64,
}

impl From<Erased> for ErasedView {
    fn from(erased: Erased) -> Self {
        Self {
            contacts: erased.contacts,
            other_contacts: erased.other_contacts,
            calls: erased.calls,
            call_attempts: erased.call_attempts,
            transfers: erased.transfers,
            handoffs: erased.handoffs,
            events: erased.events,
            kept_answers: erased.kept_answers,
            node_commands: erased.node_commands,
            failed_log_ins: erased.failed_log_ins,
            trace_messages: erased.trace_messages,
            journal_lines: erased.journal_lines,
        }
    }
}

impl From<KeptConfiguration> for KeptView {
    fn from(kept: KeptConfiguration) -> Self {
        Self {
            numbers: kept.numbers,
            agents: kept.agents,
            destinations: kept.destinations,
            outbound_trunks: kept.outbound_trunks,
        }
    }
}

impl From<Erasure> for ErasureView {
    fn from(erasure: Erasure) -> Self {
        let nodes = erasure.nodes.iter().map(|done| ErasureNodeView {
            node: done.node,
            done_at: written(done.done_at),
        });

        Self {
            id: erasure.id,
            contact_id: erasure.contact_id,
            status: match erasure.completed_at {
                Some(_) => ErasureState::Complete,
                None => ErasureState::InProgress,
            },
            requested_at: written(erasure.requested_at),
            completed_at: erasure.completed_at.map(written),
            erased: erasure.erased.into(),
            kept: erasure.kept.into(),
            nodes: nodes.collect(),
            waits_for_nodes: erasure.waits_for,
            out_of_reach: OUT_OF_REACH.to_vec(),
        }
    }
}

/// `DELETE /widget/contacts/{contact_id}`: deletes the contact at once; each node erases what it holds of it within
/// seconds. A repeated request answers the same erasure. 409 `contact_on_call` while a call of the contact is up.
pub(super) async fn erase(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    query: Query,
) -> Result<Json<ErasureView>, ApiError> {
    let id = named.id("contact_id", Kind::Contact)?;
    let version = version.versions()?;
    let contact = match api.store().contacts().by_id(caller.org, id).await {
        Ok(contact) => contact,
        // The contact is gone: a repeated request shows the erasure that deleted it.
        Err(Error::Wrong(Wrong::Absent(_))) => {
            let earlier = match api
                .read(move |tx| erasures::of_contact(tx, caller.org, id))
                .await
            {
                Ok(earlier) => earlier,
                Err(Error::Wrong(Wrong::Absent(_))) => {
                    return Err(ApiError::absent(Kind::Contact));
                }
                Err(error) => return Err(error.into()),
            };

            query.finish()?;
            return Ok(Json(earlier.into()));
        }
        Err(error) => return Err(error.into()),
    };

    query.finish()?;
    // Calls of other nodes are judged in the transaction, by their rows.
    if is_on_call(&api, &contact).await? {
        return Err(Conflict::ContactOnCall.into());
    }

    let org = caller.org;
    let request = move |tx: &mut Tx, now| erasures::request(tx, org, id, now);
    let erasure = match version {
        // Of two requests at once the second finds no contact with a version any more, only the erasure.
        None => api.write(request).await?,
        version => {
            api.change(org, Versioned::Contact(id), version, request)
                .await?
        }
    };
    Ok(Json(erasure.into()))
}

/// Returns true if a call of the contact is up on this node. The store may not have the call yet.
async fn is_on_call(api: &Api, contact: &Contact) -> Result<bool, ApiError> {
    let of = contact.clone();
    // By the number too: a call goes on without its contact where the look-up takes too long.
    let number = api.read_inline(move |tx| of_contact::number(tx, of.org_id, &of));
    let number = number.await?;

    let live = api.live().of_org(contact.org_id);
    Ok(live.iter().any(|live| {
        let numbers = [live.started.from_e164, live.started.to_e164];
        let is_theirs = live.contact == Some(contact.id)
            || number.is_some_and(|number| numbers.contains(&Some(number)));
        is_theirs && !live.is_over()
    }))
}

/// `GET /widget/erasures/{erasure_id}`
pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<ErasureView>, ApiError> {
    let id = named.id("erasure_id", Kind::Erasure)?;
    let erasure = api
        .read(move |tx| erasures::by_id(tx, caller.org, id))
        .await?;
    query.finish()?;
    Ok(Json(erasure.into()))
}
