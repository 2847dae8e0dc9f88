//! Page of the audit log: each change to the org, with the key, session or command that made it, and its CSV.

use axum::extract::RawQuery;
use axum::response::Response;
use maud::{Markup, html};

use super::backend::{parameter, query};
use super::document::{spaced, table, time};
use super::fields::{Field, Input, choices};
use super::form_page::{form_of, shown_status};
use super::frame::{Section, headed};
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;
use crate::api::audit::AuditView;
use crate::api::page::Page;

/// Filters of the form, as the query and the API name them.
const FILTERS: [&str; 3] = ["actor", "start_date", "end_date"];
/// Filter that only links set: the changes of one object.
const OBJECT: &str = "resource_id";

/// Kinds of credentials, as the API names them.
const ACTORS: [(&str, &str); 7] = [
    ("", "Anybody"),
    ("org_key", "An API key"),
    ("dashboard", "A person"),
    ("session_token", "A runtime, by its session token"),
    ("partner_key", "The partner"),
    ("operator", "The operator, in the console"),
    ("command", "The operator, by a command"),
];

/// Filters of a request.
fn wanted(raw: Option<&str>) -> Vec<(&'static str, String)> {
    let all = FILTERS.into_iter().chain([OBJECT]);
    all.map(|name| (name, parameter(raw, name).trim().to_owned()))
        .collect()
}

fn query_of(filters: &[(&'static str, String)], more: &[(&'static str, &str)]) -> String {
    let own = filters.iter().map(|(name, value)| (*name, value.as_str()));
    let pairs: Vec<_> = own.chain(more.iter().copied()).collect();
    query(&pairs)
}

/// `GET /dashboard/{org_id}/audit?actor&start_date&end_date&resource_id`
pub(super) async fn show(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Html, ErrorPage> {
    let filters = wanted(raw.as_deref());
    let cursor = parameter(raw.as_deref(), "cursor");
    let asked = query_of(&filters, &[("limit", "50"), ("cursor", &cursor)]);
    let path = format!("/phone/audit{asked}");
    let (entries, next, refused) = match visitor.client.get::<Page<AuditView>>(&path).await {
        Ok(page) => (page.items, page.next, None),
        Err(refused) => {
            shown_status(&refused)?;
            (Vec::new(), None, Some(refused))
        }
    };

    let value = |wanted: &str| {
        let filter = filters.iter().find(|(name, _)| *name == wanted);
        filter.map_or("", |(_, value)| value)
    };
    let fields = [
        Field::new("actor", "Changed by", Input::Select(choices(&ACTORS))).holds(value("actor")),
        Field::new("start_date", "From", Input::Date).holds(value("start_date")),
        Field::new("end_date", "To", Input::Date).holds(value("end_date")),
    ];

    let object = value(OBJECT);
    let (columns, rows) = rows(&entries);
    let csv = visitor.path(&format!("audit.csv{}", query_of(&filters, &[])));
    let heading = html! {
        h1 { "Audit log" }
        div.actions { a.button href=(csv) download { "Download CSV" } }
    };

    let content = html! {
        form.filters method="get" action=(visitor.path("audit")) role="search" {
            (form_of(&fields, None, refused.as_ref()))
            @if !object.is_empty() { input type="hidden" name=(OBJECT) value=(object); }
            div.go {
                button type="submit" { "Search" }
                @if filters.iter().any(|(_, value)| !value.is_empty()) { a.plain href=(visitor.path("audit")) { "Clear" } }
            }
        }
        section.card aria-label="Audit log" {
            @if !object.is_empty() { p.soft { "Changes of one object." } }
            (table("Audit log", &columns, &rows, "No change matches."))
            @if let Some(next) = &next {
                div.pages { a.button href=(visitor.path(&format!("audit{}", query_of(&filters, &[("cursor", next)])))) rel="next" { "Older" } }
            }
        }
    };

    Ok(headed(
        &visitor,
        Section::Audit,
        "Audit log",
        &heading,
        &content,
    ))
}

/// `GET /dashboard/{org_id}/audit.csv`: the changes that match, oldest first, as the API exports them.
pub(super) async fn csv(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Response, ErrorPage> {
    let path = format!("/phone/audit{}", query_of(&wanted(raw.as_deref()), &[]));
    let file = "attachment; filename=\"audit.csv\"";
    Ok(visitor.client.csv(&path, file).await)
}

/// Columns of a log, and the cells of its entries.
pub(super) fn rows(log: &[AuditView]) -> ([&'static str; 6], Vec<Vec<Markup>>) {
    let columns = ["When", "Changed by", "Change", "What", "Fields", "From"];
    let rows = log.iter().map(|entry| {
        vec![
            time(&entry.at),
            html! { (entry.actor_name) " " span.soft { (spaced(&entry.actor)) } },
            html! { code { (entry.action) } },
            html! {
                (spaced(&entry.resource))
                @if let Some(name) = &entry.resource_name { " " strong { (name) } }
            },
            html! { (entry.fields.join(", ")) },
            html! { (entry.address.as_deref().unwrap_or_default()) },
        ]
    });

    (columns, rows.collect())
}
