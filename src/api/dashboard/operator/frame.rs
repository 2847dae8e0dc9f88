//! Frame of the operator's pages: the navigation beside them, and their heading.

use maud::{Markup, html};

use super::super::document::{document, mark};
use super::super::forms::{Forms as _, token};
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
    let body = html! {
        a.skip href="#content" { "Skip to the content" }
        div.frame {
            aside {
                div.brand { (mark()) div { strong { "Trunkline" } span.org { "Operator" } } }
                input.menu #menu type="checkbox" aria-label="Show the navigation";
                nav aria-label="Console" {
                    h2 { "Installation" }
                    ul {
                        @for (place, at, title) in ENTRIES {
                            li { a href=(visitor.path(at)) aria-current=[(place == section).then_some("page")] { (title) } }
                        }
                    }

                    div.account {
                        div.person { strong { "Operator" } span { "user " (visitor.session.uid) " of this machine" } }
                        form method="post" action=(visitor.path("logout")) {
                            (token(visitor))
                            button.plain type="submit" { "Log out" }
                        }
                    }
                }
            }

            main #content tabindex="-1" {
                header.head { (heading) }
                (content)
            }
        }
    };

    Html(document(
        &format!("{title} · Operator"),
        &visitor.base,
        &body,
    ))
}

/// Heading with a sentence below it.
pub(super) fn heading(title: &str, about: &str) -> Markup {
    html! { div { h1 { (title) } p.under { (about) } } }
}

/// Heading below the list that the page belongs to.
pub(super) fn below(visitor: &OperatorVisitor, at: &str, list: &str, title: &str) -> Markup {
    html! { div { p.crumbs { a href=(visitor.path(at)) { (list) } } h1 { (title) } } }
}
