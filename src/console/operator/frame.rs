//! Frame of the operator's pages: the navigation beside them, and their heading.

use maud::{Markup, html};

use super::super::forms::{Forms as _, token};
use super::super::frame::{Frame, Link};
use super::super::page::Html;
use super::visitor::OperatorVisitor;

/// Place of a page in the navigation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Section {
    Orgs,
    Partners,
    Node,
    Sources,
    Audit,
}

const ENTRIES: [(Section, &str, &str); 5] = [
    (Section::Orgs, "", "Organizations"),
    (Section::Partners, "partners", "Partners"),
    (Section::Node, "nodes", "Nodes and health"),
    (Section::Sources, "sources", "Failing sources"),
    (Section::Audit, "audit", "Audit log"),
];

/// A page with its heading.
pub(super) fn page(
    visitor: &OperatorVisitor,
    section: Section,
    title: &str,
    heading: &Markup,
    content: &Markup,
) -> Html {
    let link = |(place, at, title): (Section, &str, &'static str)| Link {
        path: visitor.path(at),
        title,
        is_current: place == section,
    };
    Frame {
        base: &visitor.base,
        whose: "Operator",
        groups: vec![("Installation", ENTRIES.map(link).into())],
        account: html! { strong { "Operator" } span { "user " (visitor.session.uid) " of this machine" } },
        log_out: visitor.path("logout"),
        token: token(visitor),
    }
    .around(title, heading, content)
}

/// Heading with a sentence below it.
pub(super) fn heading(title: &str, about: &str) -> Markup {
    html! { div { h1 { (title) } p.under { (about) } } }
}

/// Heading below the list that the page belongs to.
pub(super) fn below(visitor: &OperatorVisitor, at: &str, list: &str, title: &str) -> Markup {
    html! { div { p.crumbs { a href=(visitor.path(at)) { (list) } } h1 { (title) } } }
}
