//! Page of the audit log: each change to the org, with the key, session or command that made it, and its CSV.

use axum::extract::RawQuery;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::backend::{items, parameter, query, text};
use super::document::{spaced, table, time};
use super::fields::{Field, Filled, Input, choices};
use super::form_page::{form_of, shown_status};
use super::frame::{Section, headed};
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;

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
    let (log, refused) = match visitor.client.get(&format!("/phone/audit{asked}")).await {
        Ok(log) => (log, None),
        Err(refused) => {
            shown_status(&refused)?;
            (Value::Null, Some(refused))
        }
    };

    let fields = [
        Field::new("actor", "Changed by", Input::Select(choices(&ACTORS))),
        Field::new("start_date", "From", Input::Date),
        Field::new("end_date", "To", Input::Date),
    ];

    let shown = Value::Object(
        filters
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())))
            .collect(),
    );
    let object = text(&shown, OBJECT);
    let (columns, rows) = rows(&log);
    let csv = visitor.path(&format!("audit.csv{}", query_of(&filters, &[])));
    let heading = html! {
        h1 { "Audit log" }
        div.actions { a.button href=(csv) download { "Download CSV" } }
    };

    let content = html! {
        form.filters method="get" action=(visitor.path("audit")) role="search" {
            (form_of(&fields, Filled::With(&shown), refused.as_ref()))
            @if !object.is_empty() { input type="hidden" name=(OBJECT) value=(object); }
            div.go {
                button type="submit" { "Search" }
                @if filters.iter().any(|(_, value)| !value.is_empty()) { a.plain href=(visitor.path("audit")) { "Clear" } }
            }
        }
        section.card aria-label="Audit log" {
            @if !object.is_empty() { p.soft { "Changes of one object." } }
            (table("Audit log", &columns, &rows, "No change matches."))
            @if !text(&log, "next").is_empty() {
                div.pages { a.button href=(visitor.path(&format!("audit{}", query_of(&filters, &[("cursor", text(&log, "next"))])))) rel="next" { "Older" } }
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
pub(super) fn rows(log: &Value) -> ([&'static str; 6], Vec<Vec<Markup>>) {
    let columns = ["When", "Changed by", "Change", "What", "Fields", "From"];
    let rows = items(log).iter().map(|entry| {
        let fields = entry["fields"].as_array().map_or(&[][..], Vec::as_slice);
        let fields: Vec<_> = fields.iter().filter_map(Value::as_str).collect();
        vec![
            time(text(entry, "at")),
            html! { (text(entry, "actor_name")) " " span.soft { (spaced(text(entry, "actor"))) } },
            html! { code { (text(entry, "action")) } },
            html! {
                (spaced(text(entry, "resource")))
                @if let Some(name) = entry["resource_name"].as_str() { " " strong { (name) } }
            },
            html! { (fields.join(", ")) },
            html! { (text(entry, "address")) },
        ]
    });

    (columns, rows.collect())
}
