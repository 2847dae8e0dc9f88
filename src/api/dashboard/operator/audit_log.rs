//! Page of the installation's audit log: each change, of every org, with the command, key or session that made it.

use std::collections::BTreeMap;

use axum::extract::RawQuery;
use axum::http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::super::audit_log::rows;
use super::super::backend::{items, parameter, query, text};
use super::super::document::table;

use super::super::forms::Forms as _;
use super::super::page::{ErrorPage, Html};
use super::frame::{Section, heading, page};
use super::visitor::OperatorVisitor;

/// Column of the org or partner that a change is about.
const ORG_AT: usize = 2;

/// List and id of the org of an entry, or else of its partner.
fn subject(entry: &Value) -> Option<(&'static str, &str)> {
    let org = entry["org_id"].as_str().map(|id| ("orgs", id));
    org.or_else(|| Some(("partners", entry["partner_id"].as_str()?)))
}

/// Links to the subjects of a page's entries, each by its name. A deleted one has only an id.
async fn links<'l>(visitor: &OperatorVisitor, log: &'l Value) -> BTreeMap<&'l str, Markup> {
    let mut links = BTreeMap::new();
    for (list, id) in items(log).iter().filter_map(subject) {
        if links.contains_key(id) {
            continue;
        }
        let at = format!("{list}/{id}");
        let link = match visitor.client.get(&format!("/operator/{at}")).await {
            Ok(found) => {
                html! { a href=(visitor.path(&at)) { (text(&found, "name")) } @if list == "partners" { " " span.soft { "partner" } } }
            }
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => {
                html! { span.soft { "deleted " code { (id) } } }
            }
            Err(_) => html! { code { (id) } },
        };
        links.insert(id, link);
    }
    links
}

/// `GET /operator-console/audit?cursor`
pub(super) async fn show(
    visitor: OperatorVisitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let cursor = parameter(raw.as_deref(), "cursor");
    let asked = query(&[("limit", "50"), ("cursor", &cursor)]);
    let log = visitor
        .client
        .get(&format!("/operator/audit{asked}"))
        .await?;

    let (columns, mut rows) = rows(&log);
    let mut columns = columns.to_vec();
    columns.insert(ORG_AT, "Org or partner");
    let links = links(&visitor, &log).await;
    for (row, entry) in rows.iter_mut().zip(items(&log)) {
        let link = subject(entry).and_then(|(_, id)| links.get(id)).cloned();
        row.insert(ORG_AT, link.unwrap_or_default());
    }

    let next = query(&[("cursor", text(&log, "next"))]);
    let content = html! {
        section.card aria-label="Audit log" {
            (table("Audit log", &columns, &rows, "Nothing was changed yet."))
            @if !next.is_empty() {
                div.pages { a.button href={ (visitor.path("audit")) (next) } rel="next" { "Older" } }
            }
        }
    };
    let heading = heading(
        "Audit log",
        "Each change of the installation and of every org.",
    );

    Ok(page(
        &visitor,
        Section::Audit,
        "Audit log",
        &heading,
        &content,
    ))
}
