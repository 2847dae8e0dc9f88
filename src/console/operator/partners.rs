//! Pages of partners: their rights, limits and keys.

use axum::extract::RawQuery;
use axum::http::Method;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::json;

use super::super::document::{Tone, badge, card, copied, table, time, time_or};
use super::super::fields::new_body;
use super::super::form_page::done;
use super::super::forms::{Forms as _, danger};
use super::super::page::{ErrorPage, Html};
use super::edited::{Current, Edited, change, edit_form, form, not_done, save, tidy};
use super::fields;
use super::frame::{Section, below, heading, page};
use super::limits::{self, Limited};
use super::visitor::{OperatorForm, OperatorVisitor};
use crate::api::control::{Listed, NewPartnerKeyView, PartnerKeyView, PartnerView};

/// `GET /operator-console/partners`
pub(super) async fn list(
    visitor: OperatorVisitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let partners: Listed<PartnerView> = visitor.client.get("/operator/partners").await?;
    let columns = ["Name", "State", "Verifies numbers", "Created"];
    let rows: Vec<_> = partners
        .items
        .iter()
        .map(|partner| {
            let at = visitor.path(&format!("partners/{}", partner.id));
            vec![
                html! { a.row href=(at) { (partner.name) } },
                state(partner),
                html! { (if partner.verifies_numbers { "yes" } else { "no" }) },
                time(&partner.created_at),
            ]
        })
        .collect();
    let content = html! {
        (done(raw.as_deref()))
        section.card aria-label="Partners" { (table("Partners", &columns, &rows, "There is no partner.")) }
        (card("new-partner", "New partner", &form(&visitor, "partners", &fields::of_new_partner(), "Create")))
    };

    let heading = heading(
        "Partners",
        "Resellers, who create orgs with keys of their own.",
    );
    Ok(page(
        &visitor,
        Section::Partners,
        "Partners",
        &heading,
        &content,
    ))
}

fn state(partner: &PartnerView) -> Markup {
    match partner.active {
        true => badge(Tone::Good, "active"),
        false => badge(Tone::Bad, "inactive"),
    }
}

/// `GET /operator-console/partners/{partnerId}`
pub(super) async fn show(
    visitor: OperatorVisitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    shown(&visitor, &done(raw.as_deref())).await
}

async fn shown(visitor: &OperatorVisitor, said: &Markup) -> Result<Html, ErrorPage> {
    let id = visitor.id("partnerId")?;
    let path = format!("/operator/partners/{id}");
    let partner: PartnerView = visitor.client.get(&path).await?;
    let limits = limits::form(visitor, Limited::Partner(id)).await?;
    let keys: Listed<PartnerKeyView> = visitor.client.get(&format!("{path}/keys")).await?;
    let at = format!("partners/{id}");

    let content = html! {
        (said)
        div.edit {
            div {
                (card("partner", "This partner", &html! {
                    dl {
                        dt { "Id" } dd { code { (partner.id) } }
                        dt { "State" } dd { (state(&partner)) }
                        dt { "Created" } dd { (time(&partner.created_at)) }
                    }
                }))
                (card("keys", "Keys", &html! {
                    (key_rows(visitor, &at, &keys.items))
                    (form(visitor, &format!("{at}/keys"), &fields::of_key(), "Create a key"))
                }))
                (card("settings", "Settings", &html! {
                    (edit_form(visitor, Edited::Partner(id), &Current::of_partner(&partner), None, None))
                    p.soft { "While a partner is inactive its orgs are suspended." }
                }))
            }
            (card("limits", "Limits", &limits))
        }
    };

    let name = &partner.name;
    let heading = below(visitor, "partners", "Partners", name);

    Ok(page(visitor, Section::Partners, name, &heading, &content))
}

fn key_rows(visitor: &OperatorVisitor, at: &str, keys: &[PartnerKeyView]) -> Markup {
    let columns = ["Name", "Created", "Last used", ""];

    let rows: Vec<_> = keys
        .iter()
        .map(|key| {
            let revoke = format!("{at}/keys/{}/revoke", key.id);
            vec![
                html! { (key.name) },
                time(&key.created_at),
                time_or(key.last_used_at.as_deref(), "never"),
                danger(
                    visitor,
                    &revoke,
                    "Revoke",
                    "Requests with it are refused at once.",
                ),
            ]
        })
        .collect();
    table("Keys", &columns, &rows, "The partner has no key.")
}

/// `POST /operator-console/partners`: creates one.
pub(super) async fn create(form: OperatorForm) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    let mut body = new_body(&fields::of_new_partner(), &form.fields);
    tidy(&mut body);

    match visitor
        .client
        .post::<PartnerView>("/operator/partners", &body)
        .await
    {
        Ok(partner) => {
            let made = visitor.path(&format!("partners/{}?done=done", partner.id));
            Ok(Redirect::to(&made).into_response())
        }
        Err(refused) => not_done(visitor, Section::Partners, &refused, "partners"),
    }
}

/// `POST /operator-console/partners/{partnerId}`
pub(super) async fn update(form: OperatorForm) -> Result<Response, ErrorPage> {
    let id = form.visitor.id("partnerId")?;
    save(&form, Edited::Partner(id)).await
}

/// `POST /operator-console/partners/{partnerId}/limits`
pub(super) async fn limit(form: OperatorForm) -> Result<Response, ErrorPage> {
    let id = form.visitor.id("partnerId")?;
    limits::save(&form, Limited::Partner(id)).await
}

/// `POST /operator-console/partners/{partnerId}/keys`: makes a key and shows it once.
pub(super) async fn create_key(form: OperatorForm) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    let id = visitor.id("partnerId")?;
    let path = format!("/operator/partners/{id}/keys");
    let body = match form.fields.text(fields::KEY_NAME).trim() {
        "" => json!({}),
        name => json!({"name": name}),
    };

    match visitor.client.post::<NewPartnerKeyView>(&path, &body).await {
        Ok(made) => {
            let said = html! {
                div.banner.good role="status" {
                    p { strong { "This is the new key." } " It is shown this once: copy it now." }
                    (copied("new-key", &made.partner_key))
                }
            };
            Ok(shown(visitor, &said).await?.into_response())
        }
        Err(refused) => not_done(
            visitor,
            Section::Partners,
            &refused,
            &format!("partners/{id}"),
        ),
    }
}

/// `POST /operator-console/partners/{partnerId}/keys/{keyId}/revoke`
pub(super) async fn revoke_key(form: OperatorForm) -> Result<Response, ErrorPage> {
    let (partner, key) = (form.visitor.id("partnerId")?, form.visitor.id("keyId")?);
    let path = format!("/operator/partners/{partner}/keys/{key}");
    let back = format!("partners/{partner}");
    change(
        &form.visitor,
        Method::DELETE,
        &path,
        None,
        Section::Partners,
        &back,
    )
    .await
}
