//! Page of the audit log: each change to the org, with the key, session or command that made it.

use axum::extract::RawQuery;
use maud::{Markup, html};
use serde_json::Value;

use super::backend::{items, query, text};
use super::document::{spaced, table, time};
use super::frame::{Section, page};
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;

/// `GET /dashboard/{org_id}/audit`
pub(super) async fn show(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Html, ErrorPage> {
    let cursor = super::resource::parameter(raw.as_deref(), "cursor");
    let asked = query(&[("limit", "50"), ("cursor", &cursor)]);
    let log = visitor.client.get(&format!("/phone/audit{asked}")).await?;
    let (columns, rows) = rows(&log);
    let content = html! {
        section.card aria-label="Audit log" {
            (table("Audit log", &columns, &rows, "Nothing was changed yet."))
            @if !text(&log, "next").is_empty() {
                div.pages { a.button href=(visitor.path(&format!("audit{}", query(&[("cursor", text(&log, "next"))])))) rel="next" { "Older" } }
            }
        }
    };
    Ok(page(&visitor, Section::Audit, "Audit log", &content))
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
            html! { (spaced(text(entry, "resource"))) },
            html! { (fields.join(", ")) },
            html! { (text(entry, "address")) },
        ]
    });
    (columns, rows.collect())
}
