//! Page of the installation's audit log: each change, of every org, with the command, key or session that made it.

use axum::extract::RawQuery;
use maud::html;

use super::super::audit_log::rows;
use super::super::backend::{query, text};
use super::super::document::table;
use super::super::forms::Forms as _;
use super::super::page::{ErrorPage, Html};
use super::super::resource::parameter;
use super::frame::{Section, heading, page};
use super::visitor::OperatorVisitor;

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
    let (columns, rows) = rows(&log);
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
