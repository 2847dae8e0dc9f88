//! HTML of the dashboard. Maud escapes all text; nothing here decides anything.

use maud::{DOCTYPE, Markup, html};
use trunkline_model::record::Direction;
use trunkline_sip::moment::Moment;
use trunkline_store::{Agent, AgentKind, Call, Handoff, InboundTrunk, Number, OrgKey, Page};
use uuid::Uuid;

use crate::api::SCOPES;
use crate::api::credentials::DashboardSession;
use crate::api::time::written;

/// Contents of an org's page.
#[derive(Debug)]
pub(super) struct OrgPage<'p> {
    /// Prefix of every path.
    pub(super) base: &'p str,
    pub(super) session: &'p DashboardSession,
    pub(super) form_token: String,
    pub(super) agents: Page<Agent>,
    pub(super) numbers: Page<Number>,
    pub(super) trunk: Option<InboundTrunk>,
    pub(super) sip_endpoint: String,
    pub(super) keys: Page<OrgKey>,
    /// Key that was created by this request.
    pub(super) secret: Option<&'p str>,
    pub(super) calls: Vec<Call>,
    pub(super) handoffs: Page<Handoff>,
}

const SECTIONS: [(&str, &str); 6] = [
    ("agents", "Agents"),
    ("numbers", "Numbers"),
    ("trunk", "Trunk"),
    ("keys", "API keys"),
    ("calls", "Calls"),
    ("handoffs", "Handoffs"),
];

pub(super) fn document(title: &str, style: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Trunkline" }
                link rel="stylesheet" href=(style);
            }
            body { (body) }
        }
    }
}

/// Page with one message.
pub(super) fn notice(title: &str, text: &str) -> Markup {
    let body = html! {
        main.notice {
            h1 { (title) }
            p { (text) }
        }
    };
    // The prefix that a proxy may put before paths isn't known here; without it the page just has no style.
    document(title, "/dashboard/style.css", &body)
}

/// Confirmation page of a login link: its button consumes the link.
pub(super) fn confirmation(to: &str, token: &str) -> Markup {
    let body = html! {
        main.notice {
            h1 { "Log in to the dashboard" }
            p { "This link works once. Press the button to use it in this browser." }
            form method="post" action=(to) {
                input type="hidden" name="token" value=(token);
                button { "Log in" }
            }
        }
    };
    document("Log in", "/dashboard/style.css", &body)
}

/// The page of an org.
pub(super) fn org(page: &OrgPage<'_>) -> Markup {
    let session = &page.session.record;
    let role = if session.writes {
        "can change"
    } else {
        "can look"
    };

    let body = html! {
        a.skip href="#agents" { "Skip to the content" }
        header {
            div.who {
                h1 { (session.org_name) }
                p { (session.name) " (" (session.email) "), " (role) }
            }
            form method="post" action={ (page.base) "/dashboard/logout" } {
                (form_token(page))
                button type="submit" { "Log out" }
            }
            nav aria-label="Sections" {
                ul { @for (id, title) in SECTIONS { li { a href={ "#" (id) } { (title) } } } }
            }
        }

        main {
            (agents(page))
            (numbers(page))
            (trunk(page))
            (keys(page))
            (calls(page))
            (handoffs(page))
        }
    };

    let style = format!("{}/dashboard/style.css", page.base);
    document(&session.org_name, &style, &body)
}

fn form_token(page: &OrgPage<'_>) -> Markup {
    html! { input type="hidden" name="form_token" value=(page.form_token); }
}

/// Section with a table, or a text if the table is empty. Each cell repeats its column's title, for narrow screens.
fn table<T>(
    [id, title, empty]: [&str; 3],
    columns: &[&str],
    rows: &[T],
    total: u64,
    cells: impl Fn(&T) -> Vec<Markup>,
) -> Markup {
    let more = total.saturating_sub(rows.len() as u64);
    html! {
        @if rows.is_empty() {
            p.empty { (empty) }
        } @else {
            table aria-labelledby={ (id) "-title" } {
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (column, cell) in columns.iter().zip(cells(row)) {
                                td data-label=(column) { (cell) }
                            }
                        }
                    }
                }
            }
            @if more > 0 { p.more { "and " (more) " more " (title.to_lowercase()) } }
        }
    }
}

fn section(id: &str, title: &str, content: &Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ (id) "-title" } {
            h2 id={ (id) "-title" } { (title) }
            (content)
        }
    }
}

fn agents(page: &OrgPage<'_>) -> Markup {
    let columns = ["Name", "Type", "State", "Language"];
    let agents = &page.agents;
    let words = ["agents", "Agents", "There is no agent yet."];
    let cells = |agent: &Agent| {
        let kind = match agent.kind {
            AgentKind::Inbound => "answers",
            AgentKind::Outbound => "calls out",
        };
        vec![
            html! { (agent.name) },
            html! { (kind) },
            html! { (if agent.enabled { "enabled" } else { "disabled" }) },
            html! { (agent.language) },
        ]
    };

    section(
        "agents",
        "Agents",
        &table(words, &columns, &agents.items, agents.total, cells),
    )
}

fn agent_name<'p>(page: &'p OrgPage<'_>, agent: Option<Uuid>) -> &'p str {
    let named = |id: Uuid| page.agents.items.iter().find(|agent| agent.id == id);
    match agent {
        Some(id) => named(id).map_or("another", |agent| &agent.name),
        None => "none",
    }
}

fn numbers(page: &OrgPage<'_>) -> Markup {
    let columns = ["Number", "State", "Agent"];
    let numbers = &page.numbers;
    let words = ["numbers", "Numbers", "There is no number yet."];
    let cells = |number: &Number| {
        let state = if number.verified_at.is_some() {
            "verified"
        } else {
            "not verified"
        };
        vec![
            html! { (number.number) },
            html! { (state) },
            html! { (agent_name(page, number.agent_id)) },
        ]
    };

    section(
        "numbers",
        "Numbers",
        &table(words, &columns, &numbers.items, numbers.total, cells),
    )
}

fn trunk(page: &OrgPage<'_>) -> Markup {
    let content = match &page.trunk {
        None => html! { p.empty { "There is no inbound trunk yet." } },
        Some(trunk) => html! {
            dl {
                dt { "SIP endpoint" } dd { code { (page.sip_endpoint) } }
                dt { "User name" } dd { code { (trunk.username) } }
                @if page.session.record.writes {
                    dt { "Password" }
                    dd { details { summary { "Show the password" } code { (trunk.password.reveal()) } } }
                }
                dt { "Numbers" }
                dd {
                    @if trunk.numbers.is_empty() { "none" }
                    @for (at, number) in trunk.numbers.iter().enumerate() {
                        @if at > 0 { ", " } (number)
                    }
                }
                dt { "Noise suppression" } dd { (if trunk.krisp_enabled { "on" } else { "off" }) }
            }
        },
    };
    section("trunk", "Trunk", &content)
}

fn keys(page: &OrgPage<'_>) -> Markup {
    let writes = page.session.record.writes;
    let columns: &[&str] = if writes {
        &["Name", "Scopes", "Made", "Last used", "Ends", "Revoke"]
    } else {
        &["Name", "Scopes", "Made", "Last used", "Ends"]
    };

    let words = ["keys", "Keys", "There is no API key yet."];
    let cells = |key: &OrgKey| {
        let mut cells = vec![
            html! { (key.name) },
            html! { (scopes(key)) },
            time(key.created_at),
            key.last_used_at.map_or_else(|| html! { "never" }, time),
            key.expires_at
                .map_or_else(|| html! { "when it is revoked" }, time),
        ];
        if writes {
            cells.push(revoke(page, key));
        }
        cells
    };

    let content = html! {
        @if let Some(secret) = page.secret {
            div.secret role="status" {
                p { strong { "Your new API key." } " It is shown this once: copy it now." }
                code id="new-key" tabindex="0" { (secret) }
            }
        }
        (table(words, columns, &page.keys.items, page.keys.total, cells))
        @if writes { (new_key(page)) }
    };

    section("keys", "API keys", &content)
}

fn scopes(key: &OrgKey) -> String {
    if key.scopes.len() == SCOPES.len() {
        "all".to_owned()
    } else {
        key.scopes.join(", ")
    }
}

fn revoke(page: &OrgPage<'_>, key: &OrgKey) -> Markup {
    let org = page.session.record.org_id;
    html! {
        details.revoke {
            summary aria-label={ "Revoke " (key.name) } { "Revoke…" }
            form method="post" action={ (page.base) "/dashboard/" (org) "/keys/" (key.id) "/revoke" } {
                (form_token(page))
                p { "Whoever uses this key is locked out at once, for good." }
                button.danger type="submit" { "Revoke this key" }
            }
        }
    }
}

fn new_key(page: &OrgPage<'_>) -> Markup {
    let org = page.session.record.org_id;
    html! {
        form.new method="post" action={ (page.base) "/dashboard/" (org) "/keys#keys" } {
            (form_token(page))
            h3 { "Make a key" }
            label for="key-name" { "Name" }
            input id="key-name" name="name" maxlength="200" autocomplete="off" placeholder="Default";
            label for="key-end" { "Last day, in UTC; empty: good until it is revoked" }
            input id="key-end" name="last_day" type="date";
            fieldset {
                legend { "Scopes" }
                @for scope in SCOPES {
                    label.scope { input type="checkbox" name=(scope) value="on" checked; (scope) }
                }
            }
            button type="submit" { "Make the key" }
        }
    }
}

fn calls(page: &OrgPage<'_>) -> Markup {
    let columns = [
        "Time",
        "Direction",
        "From",
        "To",
        "Agent",
        "Status",
        "Lasted",
    ];

    let words = ["calls", "Calls", "There was no call yet."];
    let cells = |call: &Call| {
        let direction = match call.direction {
            Direction::Inbound => "in",
            Direction::Outbound => "out",
        };
        let status = call.status.as_str().replace('_', " ");
        vec![
            html! { a href={ (page.base) "/dashboard/" (call.org_id) "/calls/" (call.id) } { (time(call.started_at)) } },
            html! { (direction) },
            html! { (call.from_number) },
            html! { (call.to_number) },
            html! { (agent_name(page, call.agent_id)) },
            html! { (status) @if let Some(reason) = &call.reason { " (" (reason.replace('_', " ")) ")" } },
            html! { (lasted(call)) },
        ]
    };

    let total = page.calls.len() as u64;
    section(
        "calls",
        "Recent calls",
        &table(words, &columns, &page.calls, total, cells),
    )
}

pub(super) fn lasted(call: &Call) -> String {
    match call.answered_at.zip(call.ended_at) {
        Some((from, to)) => {
            let seconds = to.since(from).as_secs();
            format!("{}:{:02}", seconds / 60, seconds % 60)
        }
        None if call.answered_at.is_some() => "going on".to_owned(),
        None => "not answered".to_owned(),
    }
}

fn handoffs(page: &OrgPage<'_>) -> Markup {
    let columns = ["Time", "Summary", "Reasons", "Sentiment"];
    let words = ["handoffs", "Handoffs", "Nothing was handed to a human yet."];
    let cells = |handoff: &Handoff| {
        let reasons: Vec<_> = handoff
            .reasons
            .iter()
            .map(|reason| reason.as_str())
            .collect();
        vec![
            time(handoff.created_at),
            html! { (handoff.summary) },
            html! { (reasons.join(", ").replace('_', " ")) },
            html! { (handoff.sentiment.map_or("none", |sentiment| sentiment.as_str())) },
        ]
    };

    let handoffs = &page.handoffs;
    let table = table(words, &columns, &handoffs.items, handoffs.total, cells);
    section("handoffs", "Recent handoffs", &table)
}

pub(super) fn time(at: Moment) -> Markup {
    let written = written(at);
    let shown = written.get(..16).unwrap_or(&written).replace('T', " ");
    html! { time datetime=(written) { (shown) " UTC" } }
}
