//! Frame of an org's pages: the navigation beside them, and their heading.

use maud::{Markup, html};

use super::document::{document, mark};
use super::forms::token;
use super::page::Html;
use super::visitor::Visitor;

/// Place of a page in the navigation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Section {
    Overview,
    Live,
    Calls,
    Usage,
    Phone,
    RouteTest,
    Agents,
    Numbers,
    Trunk,
    OutboundTrunks,
    Destinations,
    Webhooks,
    Keys,
    Members,
    Audit,
}

/// Entry of the navigation.
struct Entry {
    section: Section,
    at: &'static str,
    title: &'static str,
    /// True if only people who may change things have the page.
    administrators: bool,
}

const fn entry(section: Section, at: &'static str, title: &'static str) -> Entry {
    Entry {
        section,
        at,
        title,
        administrators: false,
    }
}

const fn reserved(section: Section, at: &'static str, title: &'static str) -> Entry {
    Entry {
        section,
        at,
        title,
        administrators: true,
    }
}

const GROUPS: [(&str, &[Entry]); 3] = [
    (
        "Watch",
        &[
            entry(Section::Overview, "", "Overview"),
            entry(Section::Live, "live", "Live"),
            entry(Section::Calls, "calls", "Calls"),
            entry(Section::Usage, "usage", "Usage"),
            reserved(Section::Phone, "phone", "Phone"),
            entry(Section::RouteTest, "route-test", "Which agent?"),
        ],
    ),
    (
        "Set up",
        &[
            entry(Section::Agents, "agents", "Agents"),
            entry(Section::Numbers, "numbers", "Numbers"),
            entry(Section::Trunk, "trunk", "Inbound trunk"),
            entry(
                Section::OutboundTrunks,
                "outbound-trunks",
                "Outbound trunks",
            ),
            entry(Section::Destinations, "destinations", "Destinations"),
        ],
    ),
    (
        "Connect",
        &[
            reserved(Section::Webhooks, "webhooks", "Webhooks"),
            reserved(Section::Keys, "keys", "API keys"),
            entry(Section::Members, "members", "Members"),
            reserved(Section::Audit, "audit", "Audit log"),
        ],
    ),
];

/// Page of an org.
pub(super) fn page(visitor: &Visitor, section: Section, title: &str, content: &Markup) -> Html {
    headed(visitor, section, title, &html! { h1 { (title) } }, content)
}

/// Page of an org with a heading of its own.
pub(super) fn headed(
    visitor: &Visitor,
    section: Section,
    title: &str,
    heading: &Markup,
    content: &Markup,
) -> Html {
    let session = &visitor.session.record;
    let body = html! {
        a.skip href="#content" { "Skip to the content" }
        div.frame {
            aside {
                div.brand {
                    (mark())
                    div { strong { "Trunkline" } span.org { (session.org_name) } }
                }

                input.menu #menu type="checkbox" aria-label="Show the navigation";
                nav aria-label="Console" {
                    @for (group, entries) in GROUPS {
                        h2 { (group) }
                        ul {
                            @for entry in entries.iter().filter(|entry| visitor.writes() || !entry.administrators) {
                                li { (link(visitor, entry, section)) }
                            }
                        }
                    }
                    (account(visitor))
                }
            }

            main #content tabindex="-1" {
                header.head { (heading) }
                (content)
            }
        }
    };

    let title = format!("{title} · {}", session.org_name);
    Html(document(&title, &visitor.base, &body))
}

fn link(visitor: &Visitor, entry: &Entry, section: Section) -> Markup {
    let current = (entry.section == section).then_some("page");
    html! { a href=(visitor.path(entry.at)) aria-current=[current] { (entry.title) } }
}

/// The person's name and role, and the way out.
fn account(visitor: &Visitor) -> Markup {
    let session = &visitor.session.record;
    let role = if session.writes {
        "administrator"
    } else {
        "reads only"
    };

    html! {
        div.account {
            div.person {
                strong { (session.name) }
                span { (session.email) }
                span { (role) }
            }
            form method="post" action={ (visitor.base) "/dashboard/logout" } {
                (token(visitor))
                button.plain type="submit" { "Log out" }
            }
        }
    }
}
