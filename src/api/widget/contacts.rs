//! `/widget/contacts`: an org's contacts; `/widget/contacts/{contact_id}`: one as the org's own systems see and change it, including what is kept for
//! its agents.

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use trunkline_store::{Contact, ContactSearch, Kind, of_contact};

use super::OF_ORG;
use super::authenticate;
use super::me::ContactView;
use crate::api::body::Body;
use crate::api::caller::Caller;
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::{Query, text_schema};
use crate::api::version::{HasVersion, IfMatch, Tagged};
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Widget contacts", OF_ORG);
    of.get(
        "/widget/contacts",
        list,
        "listContacts",
        "The org's contacts, newest first",
        |op| {
            op.query(
                "external_id",
                text_schema(),
                "Only the contact with this external id.",
            )
            .query(
                "email",
                text_schema(),
                "Only contacts with this e-mail address, in any case.",
            )
            .query(
                "phone",
                text_schema(),
                "Only contacts with this phone number, in any notation.",
            )
            .lists::<ContactView>()
        },
    );

    of.get(
        "/widget/contacts/{contact_id}",
        show,
        "showContact",
        "A contact with all its data",
        |op| op.gives_versioned::<WholeContactView>(),
    );

    of.patch(
        "/widget/contacts/{contact_id}",
        update,
        "updateContact",
        "Updates the contact: `null` clears a detail, absent fields are unchanged",
        |op| {
            let body = read_by(authenticate::changed);
            op.of_version()
                .body(body)
                .gives_versioned::<WholeContactView>()
        },
    );
}

/// A contact with everything that is kept of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WidgetContact")]
pub(super) struct WholeContactView {
    #[serde(flatten)]
    contact: ContactView,
    chat_context: Option<String>,
    mcp_access: Option<Map<String, Value>>,
    http_action_overrides: Option<Map<String, Value>>,
}

impl HasVersion for WholeContactView {
    fn version(&self) -> &str {
        &self.contact.updated_at
    }
}

impl From<Contact> for WholeContactView {
    fn from(mut contact: Contact) -> Self {
        Self {
            chat_context: contact.chat_context.take(),
            mcp_access: contact.mcp_access.take(),
            http_action_overrides: contact.http_action_overrides.take(),
            contact: contact.into(),
        }
    }
}

/// `GET /widget/contacts?external_id&email&phone&limit&cursor`: newest first.
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<ContactView>, ApiError> {
    let search: ContactSearch = ["external_id", "email", "phone"].map(|name| query.text(name));
    let paging = Paging::read(&mut query, "contacts", search);
    query.finish()?;
    paging
        .find(api.store(), caller.org, of_contact::page, ContactView::from)
        .await
}

/// `GET /widget/contacts/{contact_id}`
pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Tagged<WholeContactView>, ApiError> {
    let contact = find(&api, &caller, &named).await?;
    query.finish()?;
    Ok(Tagged::new(contact.into()))
}

/// `PATCH /widget/contacts/{contact_id}`: absent leaves a detail, `null` clears it, a value replaces it.
pub(super) async fn update(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<WholeContactView>, ApiError> {
    let contact = find(&api, &caller, &named).await?;
    let version = version.versions()?;
    let details = authenticate::changed(body.fields()?)?;
    let contacts = api.store().contacts();
    let changed = contacts
        .update(caller.org, contact.id, &details, version, api.now())
        .await?;
    Ok(Tagged::new(changed.into()))
}

/// Returns the contact that the path names.
pub(super) async fn find(api: &Api, caller: &Caller, named: &Named) -> Result<Contact, ApiError> {
    let id = named.id("contact_id", Kind::Contact)?;
    Ok(api.store().contacts().by_id(caller.org, id).await?)
}
