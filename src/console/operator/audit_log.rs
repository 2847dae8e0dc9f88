//! Page of the installation's audit log: each change, of every org, with the command, key or session that made it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use axum::extract::RawQuery;
use axum::http::StatusCode;
use maud::{Markup, html};
use uuid::Uuid;

use super::super::audit_log::rows;
use super::super::backend::{BackendRefusal, parameter, query};
use super::super::document::table;
use super::super::forms::Forms as _;
use super::super::page::{ErrorPage, Html};
use super::frame::{Section, heading, page};
use super::visitor::OperatorVisitor;
use crate::api::audit::AuditView;
use crate::api::control::PartnerView;
use crate::api::page::Page;
use crate::api::tenants::WholeOrgView;

/// Column of the org or partner that a change is about.
const ORG_AT: usize = 2;

/// Org or partner that a change is about.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Subject {
    Org(Uuid),
    Partner(Uuid),
}

impl Subject {
    /// Returns the org of an entry, or else its partner.
    fn of(entry: &AuditView) -> Option<Self> {
        let org = entry.org_id.map(Self::Org);
        org.or_else(|| entry.partner_id.map(Self::Partner))
    }

    /// Page of the subject, and its path below `/operator`.
    fn at(self) -> String {
        match self {
            Self::Org(id) => format!("orgs/{id}"),
            Self::Partner(id) => format!("partners/{id}"),
        }
    }

    async fn name(self, visitor: &OperatorVisitor) -> Result<String, BackendRefusal> {
        let (client, path) = (&visitor.client, format!("/operator/{}", self.at()));
        Ok(match self {
            Self::Org(_) => client.get::<WholeOrgView>(&path).await?.org.org.name,
            Self::Partner(_) => client.get::<PartnerView>(&path).await?.name,
        })
    }

    /// Link by the subject's name. A deleted one has only an id.
    async fn link(self, visitor: &OperatorVisitor) -> Markup {
        let (Self::Org(id) | Self::Partner(id)) = self;
        match self.name(visitor).await {
            Ok(name) => html! {
                a href=(visitor.path(&self.at())) { (name) }
                @match self { Self::Org(_) => {}, Self::Partner(_) => { " " span.soft { "partner" } } }
            },
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => {
                html! { span.soft { "deleted " code { (id) } } }
            }
            Err(_) => html! { code { (id) } },
        }
    }
}

/// Links to the subjects of a page's entries.
async fn links(visitor: &OperatorVisitor, log: &[AuditView]) -> BTreeMap<Subject, Markup> {
    let mut links = BTreeMap::new();
    for subject in log.iter().filter_map(Subject::of) {
        if let Entry::Vacant(place) = links.entry(subject) {
            place.insert(subject.link(visitor).await);
        }
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
    let path = format!("/operator/audit{asked}");
    let log: Page<AuditView> = visitor.client.get(&path).await?;

    let (columns, mut rows) = rows(&log.items);
    let mut columns = columns.to_vec();
    columns.insert(ORG_AT, "Org or partner");
    let links = links(&visitor, &log.items).await;
    for (row, entry) in rows.iter_mut().zip(&log.items) {
        let link = Subject::of(entry)
            .and_then(|subject| links.get(&subject))
            .cloned();
        row.insert(ORG_AT, link.unwrap_or_default());
    }

    let content = html! {
        section.card aria-label="Audit log" {
            (table("Audit log", &columns, &rows, "Nothing was changed yet."))
            @if let Some(next) = &log.next {
                div.pages { a.button href={ (visitor.path("audit")) (query(&[("cursor", next)])) } rel="next" { "Older" } }
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
