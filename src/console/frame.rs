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
    let link = |entry: &Entry| Link {
        path: visitor.path(entry.at),
        title: entry.title,
        is_current: entry.section == section,
    };
    let group = |(title, entries): &(&'static str, &[Entry])| {
        let own = entries.iter();
        let shown = own.filter(|entry| visitor.writes() || !entry.administrators);
        (*title, shown.map(link).collect())
    };
    let role = match session.writes {
        true => "administrator",
        false => "reads only",
    };

    Frame {
        base: &visitor.base,
        whose: &session.org_name,
        groups: GROUPS.iter().map(group).collect(),
        account: html! { strong { (session.name) } span { (session.email) } span { (role) } },
        log_out: format!("{}/dashboard/logout", visitor.base),
        token: token(visitor),
    }
    .around(title, heading, content)
}

/// Head, navigation and foot around the pages of an org, and around the operator's.
pub(super) struct Frame<'f> {
    /// Path prefix of the console.
    pub(super) base: &'f str,
    /// Name of the org, or `Operator`.
    pub(super) whose: &'f str,
    /// Groups of the navigation, each with its title.
    pub(super) groups: Vec<(&'static str, Vec<Link>)>,
    /// The person who is logged in.
    pub(super) account: Markup,
    /// Path that logs the person out, and the token of that form.
    pub(super) log_out: String,
    pub(super) token: Markup,
}

/// A page in the navigation.
pub(super) struct Link {
    pub(super) path: String,
    pub(super) title: &'static str,
    pub(super) is_current: bool,
}

impl Frame<'_> {
    /// Makes a page within the frame.
    pub(super) fn around(self, title: &str, heading: &Markup, content: &Markup) -> Html {
        let body = html! {
            a.skip href="#content" { "Skip to the content" }
            div.frame {
                aside {
                    div.brand { (mark()) div { strong { "Trunkline" } span.org { (self.whose) } } }
                    input.menu #menu type="checkbox" aria-label="Show the navigation";
                    nav aria-label="Console" {
                        @for (group, links) in &self.groups {
                            h2 { (group) }
                            ul {
                                @for link in links {
                                    li { a href=(link.path) aria-current=[link.is_current.then_some("page")] { (link.title) } }
                                }
                            }
                        }
                        div.account {
                            div.person { (self.account) }
                            form method="post" action=(self.log_out) {
                                (self.token)
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
            &format!("{title} · {}", self.whose),
            self.base,
            &body,
        ))
    }
}
