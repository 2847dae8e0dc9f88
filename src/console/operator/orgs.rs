//! Pages of every org: created, suspended, limited, deleted and restored, and the way into an org's own console.

use axum::extract::RawQuery;
use axum::http::Method;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::json;
use trunkline_store::OPERATOR_EMAIL;
use trunkline_store::orgs::SuspendedBy;

use super::super::backend::{parameter, query};
use super::super::document::{Tone, badge, card, spaced, table, time};
use super::super::fields::new_body;
use super::super::form_page::done;
use super::super::forms::{Forms as _, button, danger};
use super::super::page::{ErrorPage, Html};
use super::edited::{Current, Edited, change, edit_form, form, not_done, save};
use super::frame::{Section, below, heading, page};
use super::limits::{self, Limited};
use super::visitor::{OperatorForm, OperatorVisitor};
use super::{allowed, fields};
use crate::api::control::PartnerView;
use crate::api::page::Page;
use crate::api::tenants::{
    DeletedOrgView, DeletedOrgsView, LinkView, NewOrgView, OperatorsOrgView, WholeOrgView,
};

/// `GET /operator-console?search&cursor`
pub(super) async fn list(
    visitor: OperatorVisitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let search = parameter(raw.as_deref(), "search");
    let cursor = parameter(raw.as_deref(), "cursor");
    let asked = query(&[("search", &search), ("cursor", &cursor)]);

    let path = format!("/operator/orgs{asked}");
    let orgs: Page<OperatorsOrgView> = visitor.client.get(&path).await?;
    let deleted: DeletedOrgsView = visitor.client.get("/operator/deleted-orgs").await?;

    let content = html! {
        (done(raw.as_deref()))
        section.card aria-label="Organizations" {
            form.filters method="get" action=(visitor.path("")) {
                div.field { label for="search" { "Name, external id or id" } input #search type="search" name="search" value=(search); }
                button type="submit" { "Find" }
            }
            (rows(&visitor, &orgs.items))
            div.pages {
                span.soft { (orgs.total) @if search.is_empty() { " in all" } @else { " found" } }
                @if let Some(next) = &orgs.next {
                    a.button href={ (visitor.path("")) (query(&[("search", &search), ("cursor", next)])) } rel="next" { "Older" }
                }
            }
        }
        (card("new-org", "New organization", &form(&visitor, "", &fields::of_org(None), "Create")))
        @if !deleted.items.is_empty() { (card("deleted", "Deleted", &restorable(&visitor, &deleted.items))) }
    };

    let heading = heading(
        "Organizations",
        "Every org of this installation, the newest first.",
    );

    Ok(page(
        &visitor,
        Section::Orgs,
        "Organizations",
        &heading,
        &content,
    ))
}

fn rows(visitor: &OperatorVisitor, orgs: &[OperatorsOrgView]) -> Markup {
    let columns = ["Name", "State", "Created"];
    let rows: Vec<_> = orgs
        .iter()
        .map(|listed| {
            let (created_at, org) = (&listed.org.created_at, &listed.org.org);
            let at = visitor.path(&format!("orgs/{}", org.id));
            vec![
                html! { a.row href=(at) { (org.name) } },
                state(&listed.suspended_by),
                time(created_at),
            ]
        })
        .collect();
    table("Organizations", &columns, &rows, "There is no such org.")
}

fn state(suspended_by: &[SuspendedBy]) -> Markup {
    let by: Vec<_> = suspended_by.iter().map(|by| spaced(by.as_str())).collect();
    match by.is_empty() {
        true => badge(Tone::Good, "active"),
        false => badge(Tone::Bad, &format!("suspended by {}", by.join(", "))),
    }
}

fn restorable(visitor: &OperatorVisitor, deleted: &[DeletedOrgView]) -> Markup {
    let columns = ["Name", "Deleted", "Gone for good", ""];
    let rows: Vec<_> = deleted
        .iter()
        .map(|org| {
            let restore = format!("orgs/{}/restore", org.id);
            vec![
                html! { (org.name) },
                time(org.deleted_at.as_deref().unwrap_or_default()),
                time(org.purge_at.as_deref().unwrap_or_default()),
                button(visitor, &restore, "Restore"),
            ]
        })
        .collect();
    table("Deleted organizations", &columns, &rows, "None.")
}

/// `GET /operator-console/orgs/{orgId}`
pub(super) async fn show(
    visitor: OperatorVisitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let id = visitor.id("orgId")?;
    let path = format!("/operator/orgs/{id}");
    let org: WholeOrgView = visitor.client.get(&path).await?;
    let limits = limits::form(&visitor, Limited::Org(id)).await?;
    let at = format!("orgs/{id}");

    let partner: Option<PartnerView> = match org.partner_id {
        Some(partner) => {
            let path = format!("/operator/partners/{partner}");
            Some(visitor.client.get(&path).await?)
        }
        None => None,
    };
    let edit = |edited, current: &Current| edit_form(&visitor, edited, current, None, None);

    let content = html! {
        (done(raw.as_deref()))
        div.edit {
            div {
                (card("org", "This organization", &facts(&visitor, &org, partner.as_ref())))
                (card("settings", "Settings", &edit(Edited::Org(id), &Current::of_org(&org))))
                (card("retention", "Days for which data is kept", &edit(Edited::Retention(id), &Current::of_retention(&org))))
                (allowed::cards(&visitor, id).await?)
                (danger(&visitor, &format!("{at}/delete"), "Delete", "It behaves as absent at once, and its keys end. Calls that are up finish. It can be restored for 30 days."))
            }
            (card("limits", "Limits", &limits))
        }
    };

    let name = &org.org.org.name;
    let heading = below(&visitor, "", "Organizations", name);

    Ok(page(&visitor, Section::Orgs, name, &heading, &content))
}

fn facts(visitor: &OperatorVisitor, whole: &WholeOrgView, partner: Option<&PartnerView>) -> Markup {
    let (created_at, org) = (&whole.org.created_at, &whole.org.org);
    let at = format!("orgs/{}", org.id);
    let is_operators = whole.suspended_by.contains(&SuspendedBy::Operator);

    html! {
        dl {
            dt { "Id" } dd { code { (org.id) } }
            dt { "State" } dd { (state(&whole.suspended_by)) }
            @if let Some(partner) = partner {
                dt { "Partner" } dd { a href=(visitor.path(&format!("partners/{}", partner.id))) { (partner.name) } }
            }
            @if let Some(external) = &org.external_id { dt { "External id" } dd { code { (external) } } }
            dt { "Created" } dd { (time(created_at)) }
        }
        div.commands {
            (button(visitor, &format!("{at}/console"), "Open its console"))
            @if is_operators {
                (button(visitor, &format!("{at}/resume"), "Resume"))
            } @else {
                (danger(visitor, &format!("{at}/suspend"), "Suspend", "Its keys, calls and registrations are refused, and its people are shown why. Calls that are up go on."))
            }
        }
    }
}

/// `POST /operator-console`: creates an org.
pub(super) async fn create(form: OperatorForm) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    let body = new_body(&fields::of_org(None), &form.fields);
    match visitor
        .client
        .post::<NewOrgView>("/operator/orgs", &body)
        .await
    {
        Ok(org) => {
            let made = visitor.path(&format!("orgs/{}?done=done", org.id));
            Ok(Redirect::to(&made).into_response())
        }
        Err(refused) => not_done(visitor, Section::Orgs, &refused, ""),
    }
}

/// `POST /operator-console/orgs/{orgId}`: renames the org.
pub(super) async fn update(form: OperatorForm) -> Result<Response, ErrorPage> {
    let id = form.visitor.id("orgId")?;
    save(&form, Edited::Org(id)).await
}

/// `POST /operator-console/orgs/{orgId}/retention`
pub(super) async fn retain(form: OperatorForm) -> Result<Response, ErrorPage> {
    let id = form.visitor.id("orgId")?;
    save(&form, Edited::Retention(id)).await
}

/// `POST /operator-console/orgs/{orgId}/limits`
pub(super) async fn limit(form: OperatorForm) -> Result<Response, ErrorPage> {
    let id = form.visitor.id("orgId")?;
    limits::save(&form, Limited::Org(id)).await
}

/// `POST /operator-console/orgs/{orgId}/suspend`
pub(super) async fn suspend(form: OperatorForm) -> Result<Response, ErrorPage> {
    command(&form, "suspend").await
}

/// `POST /operator-console/orgs/{orgId}/resume`
pub(super) async fn resume(form: OperatorForm) -> Result<Response, ErrorPage> {
    command(&form, "resume").await
}

/// `POST /operator-console/orgs/{orgId}/restore`
pub(super) async fn restore(form: OperatorForm) -> Result<Response, ErrorPage> {
    command(&form, "restore").await
}

async fn command(form: &OperatorForm, word: &str) -> Result<Response, ErrorPage> {
    let id = form.visitor.id("orgId")?;
    let path = format!("/operator/orgs/{id}/{word}");
    let back = format!("orgs/{id}");
    change(
        &form.visitor,
        Method::POST,
        &path,
        None,
        Section::Orgs,
        &back,
    )
    .await
}

/// `POST /operator-console/orgs/{orgId}/delete`: it can be restored for a while.
pub(super) async fn delete(form: OperatorForm) -> Result<Response, ErrorPage> {
    let path = format!("/operator/orgs/{}", form.visitor.id("orgId")?);
    change(
        &form.visitor,
        Method::DELETE,
        &path,
        None,
        Section::Orgs,
        "",
    )
    .await
}

/// `POST /operator-console/orgs/{orgId}/console`: logs the operator in to the org's pages by a link, as `trunkline console` does.
pub(super) async fn open_console(form: OperatorForm) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    let id = visitor.id("orgId")?;
    let path = format!("/operator/orgs/{id}/login-links");
    // The account that `trunkline console` uses too.
    let body = json!({"email": OPERATOR_EMAIL, "name": "Operator"});

    match visitor.client.post::<LinkView>(&path, &body).await {
        Ok(link) => {
            // The page's content policy lets a form lead to its own origin only: keep the path and drop the host of the link.
            let (_, token) = link.url().split_once('?').unwrap_or_default();
            let to = format!("{}/partner-login?{token}", visitor.base);
            Ok(Redirect::to(&to).into_response())
        }
        Err(refused) => not_done(visitor, Section::Orgs, &refused, &format!("orgs/{id}")),
    }
}
