//! Page of the nodes, with the health of the one that answers; and page of the sources whose log-ins fail.

use axum::extract::RawQuery;
use maud::{Markup, html};
use trunkline_store::journal;
use trunkline_store::nodes::NodeState;

use super::super::document::{Tone, badge, card, findings, table, time};
use super::super::form_page::done;
use super::super::forms::Forms as _;
use super::super::page::{ErrorPage, Html};
use super::frame::{Section, heading, page};
use super::visitor::OperatorVisitor;
use crate::api::control::{HealthView, Listed, NodeView, SourceView};
use crate::explain::finding::Finding;

/// `GET /operator-console/nodes`
pub(super) async fn show(
    visitor: OperatorVisitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let health: HealthView = visitor.client.get("/operator/health").await?;
    let nodes: Listed<NodeView> = visitor.client.get("/operator/nodes").await?;
    let content = html! {
        (done(raw.as_deref()))
        (card("nodes", "Nodes", &rows(&nodes.items, &health)))
        div.edit {
            (card("health", "This node", &facts(&health)))
            (card("certificates", "Certificates", &certificates(&health.certificates)))
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

fn rows(nodes: &[NodeView], health: &HealthView) -> Markup {
    let columns = ["Node", "Host", "State", "Calls", "Started", "Lease until"];

    let rows: Vec<_> = nodes
        .iter()
        .map(|node| {
            let tone = match node.status {
                NodeState::Serving => Tone::Good,
                NodeState::Draining => Tone::Warn,
                NodeState::Silent => Tone::Bad,
                NodeState::Ended => Tone::Quiet,
            };

            vec![
                html! { (node.node) @if Some(node.node) == health.node { " " (badge(Tone::Quiet, "this one")) } },
                html! { (node.host) },
                badge(tone, node.status.as_str()),
                html! { (node.calls) },
                time(&node.started_at),
                time(&node.lease_expires_at),
            ]
        })
        .collect();

    html! {
        (table("Nodes", &columns, &rows, "No node has served yet."))
        p.soft { "A silent node neither renews its lease nor reported its end: it was killed, hangs, or can't reach the database. Other nodes close its calls." }
    }
}

/// Addresses of the listeners, each once: those of several transports share one.
fn sip_addresses(health: &HealthView) -> Vec<&str> {
    let mut addresses: Vec<_> = health.sip_addresses.iter().map(String::as_str).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn facts(health: &HealthView) -> Markup {
    html! {
        dl {
            dt { "Version" } dd { (health.version) }
            dt { "New calls" } dd {
                @if health.draining { (badge(Tone::Warn, "draining: none are taken")) } @else { (badge(Tone::Good, "taken")) }
            }
            dt { "Database" } dd {
                (health.database) " "
                @if health.database_answers { (badge(Tone::Good, "answers")) } @else { (badge(Tone::Bad, "doesn't answer")) }
            }
            @if let Some(ahead) = health.clock_ahead_seconds {
                dt { "Clock" } dd { (format!("{ahead:+.3}")) " s against the database's" }
            }
            dt { "Journal" } dd {
                @match health.journal {
                    Some(journal::State::Ok) => (badge(Tone::Good, "ok")),
                    Some(journal::State::Waiting) => { (badge(Tone::Warn, "waiting")) " for the database: facts of calls are kept on disk until it takes them" }
                    Some(journal::State::Failing) => { (badge(Tone::Bad, "failing")) " the disk takes no facts: new calls are refused" }
                    None => span.soft { "none here" },
                }
            }
            dt { "SIP" } dd { @for address in sip_addresses(health) { code { (address) } " " } }
        }
    }
}

fn certificates(checked: &[Finding]) -> Markup {
    html! {
        @if checked.is_empty() {
            p.empty { "None is configured: SIP and the API are served without TLS." }
        }
        (findings(checked))
    }
}

/// `GET /operator-console/sources`
pub(super) async fn sources(visitor: OperatorVisitor) -> Result<Html, ErrorPage> {
    let found: Listed<SourceView> = visitor.client.get("/operator/sources").await?;
    let columns = [
        "Address",
        "Failed log-ins",
        "User names",
        "Organization",
        "Last one",
    ];

    let rows: Vec<_> = found
        .items
        .iter()
        .map(|source| {
            let org = visitor.path(&format!("orgs/{}", source.org_id));
            vec![
                html! { code { (source.source) } },
                html! { (source.failures) },
                html! { (source.usernames) },
                html! { a href=(org) { (source.org_name) } },
                time(&source.last_at),
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
