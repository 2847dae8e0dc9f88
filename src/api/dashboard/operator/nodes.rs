//! Page of the nodes, with the health of the one that answers; and page of the sources whose log-ins fail.

use axum::extract::RawQuery;
use maud::{Markup, html};
use serde_json::Value;

use super::super::backend::{items, text};
use super::super::document::{Tone, badge, card, findings, spaced, table, time};
use super::super::form_page::done;
use super::super::forms::Forms as _;
use super::super::page::{ErrorPage, Html};
use super::frame::{Section, heading, page};
use super::visitor::OperatorVisitor;

/// `GET /operator-console/nodes`
pub(super) async fn show(
    visitor: OperatorVisitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let health = visitor.client.get("/operator/health").await?;
    let nodes = visitor.client.get("/operator/nodes").await?;
    let content = html! {
        (done(raw.as_deref()))
        (card("nodes", "Nodes", &rows(&nodes, &health)))
        div.edit {
            (card("health", "This node", &facts(&health)))
            (card("certificates", "Certificates", &certificates(&health)))
        }
    };
    let heading = heading(
        "Nodes and health",
        "Nodes that share the database, and the health of the one that shows this page.",
    );

    Ok(page(
        &visitor,
        Section::Node,
        "Nodes and health",
        &heading,
        &content,
    ))
}

fn rows(nodes: &Value, health: &Value) -> Markup {
    let columns = ["Node", "Host", "State", "Calls", "Started", "Lease until"];

    let rows: Vec<_> = items(nodes)
        .iter()
        .map(|node| {
            let tone = match text(node, "status") {
                "serving" => Tone::Good,
                "draining" => Tone::Warn,
                "silent" => Tone::Bad,
                _ => Tone::Quiet,
            };

            vec![
                html! { (node["node"]) @if node["node"] == health["node"] { " " (badge(Tone::Quiet, "this one")) } },
                html! { (text(node, "host")) },
                badge(tone, text(node, "status")),
                html! { (node["calls"]) },
                time(text(node, "started_at")),
                time(text(node, "lease_expires_at")),
            ]
        })
        .collect();

    html! {
        (table("Nodes", &columns, &rows, "No node has served yet."))
        p.soft { "A silent node neither renews its lease nor reported its end: it was killed, hangs, or can't reach the database. Other nodes close its calls." }
    }
}

/// Addresses of the listeners, each once: those of several transports share one.
fn sip_addresses(health: &Value) -> Vec<&str> {
    let listed = health["sip_addresses"].as_array();
    let listed = listed.map_or(&[][..], Vec::as_slice).iter();
    let mut addresses: Vec<_> = listed.filter_map(Value::as_str).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn facts(health: &Value) -> Markup {
    let journal = health["journal"].as_str();

    html! {
        dl {
            dt { "Version" } dd { (text(health, "version")) }
            dt { "New calls" } dd {
                @if health["draining"] == true { (badge(Tone::Warn, "draining: none are taken")) } @else { (badge(Tone::Good, "taken")) }
            }
            dt { "Database" } dd {
                (text(health, "database")) " "
                @if health["database_answers"] == true { (badge(Tone::Good, "answers")) } @else { (badge(Tone::Bad, "doesn't answer")) }
            }
            @if let Some(ahead) = health["clock_ahead_seconds"].as_f64() {
                dt { "Clock" } dd { (format!("{ahead:+.3}")) " s against the database's" }
            }
            dt { "Journal" } dd {
                @match journal {
                    Some("ok") => (badge(Tone::Good, "ok")),
                    Some("waiting") => { (badge(Tone::Warn, "waiting")) " for the database: facts of calls are kept on disk until it takes them" }
                    Some(other) => { (badge(Tone::Bad, &spaced(other))) " the disk takes no facts: new calls are refused" }
                    None => span.soft { "none here" },
                }
            }
            dt { "SIP" } dd { @for address in sip_addresses(health) { code { (address) } " " } }
        }
    }
}

fn certificates(health: &Value) -> Markup {
    let checked = &health["certificates"];
    html! {
        @if checked.as_array().is_none_or(Vec::is_empty) {
            p.empty { "None is configured: SIP and the API are served without TLS." }
        }
        (findings(checked))
    }
}

/// `GET /operator-console/sources`
pub(super) async fn sources(visitor: OperatorVisitor) -> Result<Html, ErrorPage> {
    let found = visitor.client.get("/operator/sources").await?;
    let columns = [
        "Address",
        "Failed log-ins",
        "User names",
        "Organization",
        "Last one",
    ];

    let rows: Vec<_> = items(&found)
        .iter()
        .map(|source| {
            let org = visitor.path(&format!("orgs/{}", text(source, "org_id")));
            vec![
                html! { code { (text(source, "source")) } },
                html! { (source["failures"]) },
                html! { (source["usernames"]) },
                html! { a href=(org) { (text(source, "org_name")) } },
                time(text(source, "last_at")),
            ]
        })
        .collect();

    let content = html! {
        section.card aria-label="Failing sources" {
            (table("Failing sources", &columns, &rows, "No log-in has failed in the last 24 hours."))
            p.soft { "Log-ins under the user names of trunks that exist. Those under other names are in the log, where fail2ban reads them." }
        }
    };
    let heading = heading(
        "Failing sources",
        "Addresses whose log-ins failed in the last 24 hours.",
    );

    Ok(page(
        &visitor,
        Section::Sources,
        "Failing sources",
        &heading,
        &content,
    ))
}
