//! Parts of an org's page: networks whose calls are the org's without credentials, and private peers that the org may name. Each is added and
//! removed on its own, so that two people don't undo each other's changes.

use axum::http::Method;
use axum::response::Response;
use ipnet::IpNet;
use maud::{Markup, html};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::document::{card, time};
use super::super::fields::{Field, Input};
use super::super::forms::{Forms as _, token};
use super::super::page::ErrorPage;
use super::edited::{change, form};
use super::frame::Section;
use super::visitor::{OperatorForm, OperatorVisitor};
use crate::api::control::{Listed, NetworkView, TiedView};
use crate::config;

/// Entries of one list of an org.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Allowed {
    Networks,
    Peers,
}

impl Allowed {
    /// Last part of the paths, of pages and of the API.
    const fn at(self) -> &'static str {
        match self {
            Self::Networks => "networks",
            Self::Peers => "tied-peers",
        }
    }

    /// Field of an entry.
    const fn field(self) -> &'static str {
        match self {
            Self::Networks => "network",
            Self::Peers => "peer",
        }
    }

    fn fields(self) -> [Field; 1] {
        [match self {
            Self::Networks => Field::new("network", "Address or network", Input::Text)
                .help("Such as 192.0.2.7 or 192.0.2.0/24. Calls from there are this org's, and need no credentials."),
            Self::Peers => Field::new("peer", "Host, address or network", Input::Text)
                .help("A reserved or private peer that this org may name as a runtime, trunk or destination."),
        }]
    }

    /// Path segment of the entry that a text names; `None` for a text that can't name one.
    fn entry(self, named: &str) -> Option<String> {
        // Parsed and written anew: another text of the form could lead to any path of the API.
        let text = match self {
            Self::Networks => named.parse::<IpNet>().ok()?.to_string(),
            Self::Peers => config::peer(named).ok()?.to_string(),
        };
        // The slash of a CIDR block would end the path segment.
        Some(text.replace('/', "%2F"))
    }
}

/// Entry of a list: its text, and the time at which it was added.
#[derive(Debug)]
struct Entry {
    name: String,
    created_at: String,
}

impl From<NetworkView> for Entry {
    fn from(view: NetworkView) -> Self {
        Self {
            name: view.network.to_string(),
            created_at: view.created_at,
        }
    }
}

impl From<TiedView> for Entry {
    fn from(view: TiedView) -> Self {
        Self {
            name: view.peer,
            created_at: view.created_at,
        }
    }
}

/// Cards of both lists.
pub(super) async fn cards(visitor: &OperatorVisitor, org: Uuid) -> Result<Markup, ErrorPage> {
    let networks = entries::<NetworkView>(visitor, org, Allowed::Networks).await?;
    let peers = entries::<TiedView>(visitor, org, Allowed::Peers).await?;
    let networks = listed(visitor, org, Allowed::Networks, &networks);
    let peers = listed(visitor, org, Allowed::Peers, &peers);
    Ok(html! {
        (card("networks", "Networks without credentials", &networks))
        (card("tied-peers", "Private peers", &peers))
    })
}

async fn entries<View: DeserializeOwned + Into<Entry>>(
    visitor: &OperatorVisitor,
    org: Uuid,
    allowed: Allowed,
) -> Result<Vec<Entry>, ErrorPage> {
    let path = format!("/operator/orgs/{org}/{}", allowed.at());
    let list: Listed<View> = visitor.client.get(&path).await?;
    Ok(list.items.into_iter().map(View::into).collect())
}

fn listed(visitor: &OperatorVisitor, org: Uuid, allowed: Allowed, entries: &[Entry]) -> Markup {
    let page = format!("orgs/{org}/{}", allowed.at());

    html! {
        @if entries.is_empty() { p.empty { "None." } }
        ul.plain {
            @for Entry { name, created_at } in entries {
                li {
                    span { code { (name) } " " span.soft { "since " (time(created_at)) } }
                    form method="post" action=(visitor.path(&format!("{page}/remove"))) {
                        (token(visitor))
                        input type="hidden" name=(allowed.field()) value=(name);
                        button.small type="submit" aria-label={ "Remove " (name) } { "Remove" }
                    }
                }
            }
        }
        (form(visitor, &page, &allowed.fields(), "Add"))
    }
}

async fn add(form: &OperatorForm, allowed: Allowed) -> Result<Response, ErrorPage> {
    let org = form.visitor.id("orgId")?;
    let path = format!("/operator/orgs/{org}/{}", allowed.at());
    let body = json!({allowed.field(): form.fields.text(allowed.field()).trim()});
    send(form, org, Method::POST, &path, Some(&body)).await
}

async fn remove(form: &OperatorForm, allowed: Allowed) -> Result<Response, ErrorPage> {
    let org = form.visitor.id("orgId")?;
    let entry = allowed.entry(form.fields.text(allowed.field()).trim());
    let entry = entry.ok_or_else(ErrorPage::not_found)?;
    let path = format!("/operator/orgs/{org}/{}/{entry}", allowed.at());
    send(form, org, Method::DELETE, &path, None).await
}

async fn send(
    form: &OperatorForm,
    org: Uuid,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Response, ErrorPage> {
    let back = format!("orgs/{org}");
    change(&form.visitor, method, path, body, Section::Orgs, &back).await
}

/// `POST /operator-console/orgs/{orgId}/networks`
pub(super) async fn add_network(form: OperatorForm) -> Result<Response, ErrorPage> {
    add(&form, Allowed::Networks).await
}

/// `POST /operator-console/orgs/{orgId}/networks/remove`
pub(super) async fn remove_network(form: OperatorForm) -> Result<Response, ErrorPage> {
    remove(&form, Allowed::Networks).await
}

/// `POST /operator-console/orgs/{orgId}/tied-peers`
pub(super) async fn add_peer(form: OperatorForm) -> Result<Response, ErrorPage> {
    add(&form, Allowed::Peers).await
}

/// `POST /operator-console/orgs/{orgId}/tied-peers/remove`
pub(super) async fn remove_peer(form: OperatorForm) -> Result<Response, ErrorPage> {
    remove(&form, Allowed::Peers).await
}
