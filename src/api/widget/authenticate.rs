//! `POST /widget/authenticate-user` and `…-by-external-id`: an org's backend identifies a visitor and gets a token for
//! it.
//!
//! The external-id variant finds the contact by that id only; the plain one by e-mail or phone, and never one that has
//! an external id. Either creates the contact if there is none. For each detail, absent leaves it, `null` clears it, a
//! value replaces it.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use trunkline_store::{Acting, Contact, ContactDetails};
use uuid::Uuid;

use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::email::EMAIL;
use crate::api::field_type::{FieldType as _, FreeObject, ID, ListOf, Text};
use crate::api::language::LANGUAGE;
use crate::api::object::Object;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::{Api, ApiError, token};

/// Operations of an org's backend on the people who use its widget.
pub(super) const OF_ORG: Audience = Audience::Org {
    read: &[SCOPE],
    write: &[SCOPE],
};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Widget contacts", OF_ORG);
    of.post(
        "/widget/authenticate-user",
        by_addresses,
        "authenticateUser",
        "Creates a token for the visitor with this e-mail address or phone number",
        |op| {
            let body = read_by(addressed);
            op.body(body).may_refuse(&[409]).gives::<Identity>(200)
        },
    );

    of.post(
        "/widget/authenticate-user-by-external-id",
        by_external_id,
        "authenticateUserByExternalId",
        "Creates a token for the visitor with this external id",
        |op| {
            let body = read_by(identified);
            op.body(body).may_refuse(&[409]).gives::<Identity>(200)
        },
    );
}

/// Scope of both variants, because both create identities.
pub(super) const SCOPE: &str = "widget:write";

/// Maximum size of a free-form object as JSON, in octets.
const LARGEST_OBJECT: usize = 16 * 1024;

/// Identity of the visitor.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WidgetIdentity")]
pub(super) struct Identity {
    token: String,
    contact: ContactId,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ContactReference")]
struct ContactId {
    id: Uuid,
}

/// `POST /widget/authenticate-user`: at least one of `email` and `phone`.
pub(super) async fn by_addresses(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<Json<Identity>, ApiError> {
    let details = addressed(body.fields()?)?;
    let contacts = api.store().contacts();
    let contact = contacts
        .identify_by_addresses(caller.org, &details, api.now())
        .await?;
    Ok(identity(&api, &contact))
}

/// `POST /widget/authenticate-user-by-external-id`: `external_id`, and any detail.
pub(super) async fn by_external_id(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<Json<Identity>, ApiError> {
    let (external_id, details) = identified(body.fields()?)?;
    let contacts = api.store().contacts();
    let contact = contacts
        .identify_by_external_id(caller.org, &external_id, &details, api.now())
        .await?;
    Ok(identity(&api, &contact))
}

fn identity(api: &Api, contact: &Contact) -> Json<Identity> {
    Acting::about(contact.id);
    let token = token::mint_contact(
        api.store().keyring(),
        api.base_url(),
        contact.id,
        contact.org_id,
        api.now(),
    );
    Json(Identity {
        token,
        contact: ContactId { id: contact.id },
    })
}

pub(super) fn addressed(mut fields: Fields) -> Result<ContactDetails, ApiError> {
    // Asked before the fields are read, which takes them out. An address of `null` identifies nobody.
    let (email, phone) = (fields.has_value("email"), fields.has_value("phone"));
    let details = details(&mut fields);
    if !email && !phone {
        fields.refuse("email", "is required where there is no phone");
    }

    fields.amend_schema(|schema| {
        // One of the two has to be there, and then it isn't `null`.
        let with = |name: &str, shape: Value| {
            let mut schema = schema.clone();
            schema["properties"][name] = shape;
            schema["required"] = json!([name]);
            schema
        };
        *schema = json!({"anyOf": [with("email", EMAIL.schema()), with("phone", PHONE.schema())]});
    });

    fields.done(|| Some(details))
}

pub(super) fn identified(mut fields: Fields) -> Result<(String, ContactDetails), ApiError> {
    let external_id = fields.required("external_id", Text::line(1..=255));
    let details = details(&mut fields);
    fields.done(|| Some((external_id?, details)))
}

/// Reads the fields of a change.
pub(super) fn changed(mut fields: Fields) -> Result<ContactDetails, ApiError> {
    let details = details(&mut fields);
    fields.done(|| Some(details))
}

const PHONE: Text = Text::line(1..=64);

fn details(fields: &mut Fields) -> ContactDetails {
    ContactDetails {
        email: fields.clearable("email", EMAIL),
        phone: fields.clearable("phone", PHONE),
        name: fields.clearable("name", Text::line(0..=255)),
        avatar_url: fields.clearable("avatar_url", Text::line(0..=2048)),
        language: fields
            .clearable("language", LANGUAGE)
            .map(|code| code.map(str::to_owned)),
        chat_context: fields.clearable("chat_context", Text::lines(0..=16_384)),
        custom_data: fields.clearable("customData", FreeObject::new(LARGEST_OBJECT)),
        mcp_access: fields.clearable("mcp_access", Object(mcp_access)),
        http_action_overrides: fields.clearable("http_action_overrides", Object(overrides)),
    }
}

fn mcp_access(fields: &mut Fields) -> Option<Map<String, Value>> {
    let server_ids = fields.optional("server_ids", ListOf::new(ID, 0..=100));
    let account_id = fields.optional("account_id", Text::line(0..=255));
    let server_ids = server_ids.map(|ids| {
        let texts = ids.into_iter().map(|id| Value::from(id.to_string()));
        ("server_ids".to_owned(), texts.collect())
    });
    let account_id = account_id.map(|id| ("account_id".to_owned(), Value::from(id)));
    Some(server_ids.into_iter().chain(account_id).collect())
}

fn overrides(fields: &mut Fields) -> Option<Map<String, Value>> {
    let mut read = |name: &str| {
        let values = fields.optional(name, FreeObject::new(LARGEST_OBJECT))?;
        Some((name.to_owned(), Value::Object(values)))
    };
    let names = ["query_params", "path_params", "body_params", "headers"];
    Some(names.into_iter().filter_map(&mut read).collect())
}
