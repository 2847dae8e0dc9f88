//! `GET /widget/contacts/{contact_id}/export`: everything that is kept of a contact, for a person who asks for it.
//! Calls come in pages, and then handoffs.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_store::{ContactCall, of_contact};
use uuid::Uuid;

use super::authenticate;
use super::contacts::{WholeContactView, find};
use crate::api::caller::Caller;
use crate::api::handoff_analytics::HandoffView;
use crate::api::operations::{Audience, Operations};
use crate::api::page::Paging;
use crate::api::path::Named;
use crate::api::phone::{CallView, TransferView};
use crate::api::query::Query;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Widget contacts", OF_EXPORTS);
    of.get(
        "/widget/contacts/{contact_id}/export",
        show,
        "exportContact",
        "All data of a contact, with its calls and handoffs in pages",
        |op| op.paged().gives::<ExportView>(200),
    );
}

/// Scopes of everything that an export holds.
const OF_EXPORTS: Audience = Audience::Org {
    read: &[authenticate::SCOPE, "calls:read", "handoff:read"],
    write: &[],
};

/// Everything that is kept of a contact: itself, and a page of its calls and handoffs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ContactExport")]
pub(super) struct ExportView {
    contact: WholeContactView,
    /// Calls that name the contact, and those with its number that name nobody, newest first.
    calls: Vec<ContactCallView>,
    /// Handoffs that name the contact, chats and calls, newest first. They begin on the page of the last call.
    handoffs: Vec<HandoffView>,
    /// The cursor of the next page; `null` on the last one.
    next: Option<String>,
}

/// A call of a contact with everything that is kept of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ContactCall")]
struct ContactCallView {
    #[serde(flatten)]
    call: CallView,
    /// The caller's own headers, in their order.
    headers: Vec<HeaderView>,
    /// The last 100 transfers, in their order.
    transfers: Vec<TransferView>,
    /// The first 100 handoffs that name the call's session, in their order.
    handoffs: Vec<HandoffView>,
}

/// A header of SIP.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CallHeader")]
struct HeaderView {
    name: Box<str>,
    value: Box<str>,
}

impl From<ContactCall> for ContactCallView {
    fn from(of: ContactCall) -> Self {
        let headers = of.headers.into_iter();
        Self {
            call: of.call.into(),
            headers: headers
                .map(|(name, value)| HeaderView { name, value })
                .collect(),
            transfers: of.transfers.into_iter().map(TransferView::from).collect(),
            handoffs: of.handoffs.into_iter().map(HandoffView::from).collect(),
        }
    }
}

/// `GET /widget/contacts/{contact_id}/export?limit&cursor`
pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    mut query: Query,
) -> Result<Json<ExportView>, ApiError> {
    let contact = find(&api, &caller, &named).await?;
    let mut paging = Paging::read(&mut query, "export", Of::default());
    if paging.after.is_some() && paging.filters.contact != Some(contact.id) {
        query.refuse("cursor: was made for another contact");
    }
    query.finish()?;

    // On the first page no cursor has named the contact yet. The cursor of the next page must.
    paging.filters.contact = Some(contact.id);
    let (id, after, limit) = (contact.id, paging.after, paging.limit);
    let mut calls = Vec::new();
    let mut after_handoffs = after;
    if paging.filters.part == Part::Calls {
        let of = contact.clone();
        let read = api.read_of(caller.org, move |tx| {
            of_contact::calls(tx, caller.org, &of, after, limit)
        });
        let (page, next) = read.await?;
        calls = page.into_iter().map(ContactCallView::from).collect();
        if let Some(place) = next {
            return Ok(Json(ExportView {
                contact: contact.into(),
                calls,
                handoffs: Vec::new(),
                next: Some(paging.next(place)),
            }));
        }
        after_handoffs = None;
    }

    paging.filters.part = Part::Handoffs;
    let read = api.read_of(caller.org, move |tx| {
        of_contact::handoffs(tx, caller.org, id, after_handoffs, limit)
    });
    let (handoffs, next) = read.await?;
    Ok(Json(ExportView {
        contact: contact.into(),
        calls,
        handoffs: handoffs.into_iter().map(HandoffView::from).collect(),
        next: next.map(|place| paging.next(place)),
    }))
}

/// Contact of the export that a cursor walks, and the part that it has come to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Of {
    contact: Option<Uuid>,
    part: Part,
}

/// Part of an export.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
enum Part {
    #[default]
    Calls,
    Handoffs,
}
