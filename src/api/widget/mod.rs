//! API of the chat widget, `/widget`.

mod authenticate;
mod config;
mod contacts;
mod cors;
mod erasure;
mod export;
mod me;

use axum::routing::{get, post};

use super::openapi::{OpenApiBuilder, read_by};
use super::query::text_schema;
use super::routes::Routes;
use authenticate::SCOPE;
use me::ContactView;

pub(super) fn router() -> Routes {
    Routes::new()
        .route("/authenticate-user", post(authenticate::by_addresses))
        .route(
            "/authenticate-user-by-external-id",
            post(authenticate::by_external_id),
        )
        .route("/contacts", get(contacts::list))
        .route(
            "/contacts/{contact_id}",
            get(contacts::show)
                .patch(contacts::update)
                .delete(erasure::erase),
        )
        .route("/contacts/{contact_id}/export", get(export::show))
        .route("/erasures/{erasure_id}", get(erasure::show))
        .route("/config", cors::open(get(config::show)))
        .route("/me", cors::open(get(me::show)))
}

pub(super) fn openapi(builder: &mut OpenApiBuilder) {
    const TAG: &str = "Widget contacts";

    builder.add(
        "post",
        "/widget/authenticate-user",
        "authenticateUser",
        "Creates a token for the visitor with this e-mail address or phone number",
        |op| {
            let body = read_by(authenticate::addressed);
            op.tag(TAG)
                .org(SCOPE)
                .body(body)
                .may_refuse(&[409])
                .gives::<authenticate::Identity>(200)
        },
    );

    builder.add(
        "post",
        "/widget/authenticate-user-by-external-id",
        "authenticateUserByExternalId",
        "Creates a token for the visitor with this external id",
        |op| {
            let body = read_by(authenticate::identified);
            op.tag(TAG)
                .org(SCOPE)
                .body(body)
                .may_refuse(&[409])
                .gives::<authenticate::Identity>(200)
        },
    );

    builder.add(
        "get",
        "/widget/contacts",
        "listContacts",
        "The org's contacts, newest first",
        |op| {
            op.tag(TAG)
                .org(SCOPE)
                .query(
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

    builder.add(
        "get",
        "/widget/contacts/{contact_id}",
        "showContact",
        "A contact with all its data",
        |op| {
            op.tag(TAG)
                .org(SCOPE)
                .gives::<contacts::WholeContactView>(200)
        },
    );

    builder.add(
        "patch",
        "/widget/contacts/{contact_id}",
        "updateContact",
        "Updates the contact: `null` clears a detail, absent fields are unchanged",
        |op| {
            let body = read_by(authenticate::changed);
            op.tag(TAG)
                .org(SCOPE)
                .body(body)
                .gives::<contacts::WholeContactView>(200)
        },
    );

    builder.add(
        "get",
        "/widget/contacts/{contact_id}/export",
        "exportContact",
        "All data of a contact, with its calls and handoffs in pages",
        |op| {
            op.tag(TAG)
                .org_with(&export::SCOPES)
                .paged()
                .gives::<export::ExportView>(200)
        },
    );

    builder.add(
        "delete",
        "/widget/contacts/{contact_id}",
        "eraseContact",
        "Erases a contact and all its data; answers the state of the erasure, or its receipt",
        |op| {
            op.tag(TAG)
                .org_with(&erasure::SCOPES)
                .may_refuse(&[409])
                .gives::<erasure::ErasureView>(200)
        },
    );

    builder.add(
        "get",
        "/widget/erasures/{erasure_id}",
        "showErasure",
        "State of an erasure, and its receipt",
        |op| op.tag(TAG).org(SCOPE).gives::<erasure::ErasureView>(200),
    );

    builder.add(
        "get",
        "/widget/me",
        "showVisitor",
        "Contact of the widget token",
        |op| {
            op.tag(TAG)
                .visitor()
                .may_refuse(&[403])
                .gives::<ContactView>(200)
        },
    );

    builder.add(
        "get",
        "/widget/config",
        "showWidgetConfig",
        "Configuration of the org's widget, for its website",
        |op| {
            op.tag(TAG)
                .site()
                .may_refuse(&[403])
                .gives::<config::ConfigView>(200)
        },
    );
}
