//! List of calls, with the filters of the API, and its CSV.

use axum::extract::RawQuery;
use axum::response::Response;
use maud::{Markup, html};
use trunkline_model::record::{Direction, Status};
use trunkline_store::names::NamedKind;
use uuid::Uuid;

use super::backend::{BackendRefusal, parameter, query};
use super::choice::{self, Choice};
use super::document::{Tone, badge, card, duration, status, table, time};
use super::fields::{Field, Input, inputs};
use super::frame::{Section, headed};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;
use crate::api::page::Page;
use crate::api::phone::CallView;

/// Filters, as the query has them.
const FILTERS: [&str; 7] = [
    "phone_number",
    "status",
    "direction",
    "agent_id",
    "trunk_id",
    "start_date",
    "end_date",
];
/// Calls on a page.
const ROWS: &str = "50";
const STATUSES: [Status; 11] = [
    Status::Queued,
    Status::Ringing,
    Status::InProgress,
    Status::Completed,
    Status::Busy,
    Status::NoAnswer,
    Status::Failed,
    Status::Canceled,
    Status::Refused,
    Status::Transferred,
    Status::Lost,
];

/// Filters and position of a request for the list.
#[derive(Debug)]
struct CallListQuery {
    filters: Vec<(&'static str, String)>,
    cursor: String,
    /// Text that means the agent, as the form has it.
    agent: String,
}

impl CallListQuery {
    fn read(raw: Option<&str>) -> Self {
        let pairs: Vec<(String, String)> =
            serde_urlencoded::from_str(raw.unwrap_or_default()).unwrap_or_default();
        let value = |wanted: &str| {
            let found = pairs.iter().find(|(name, _)| name == wanted);
            found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        Self {
            filters: FILTERS.map(|name| (name, value(name))).into(),
            cursor: value("cursor"),
            agent: String::new(),
        }
    }

    /// Finds the agent that the form names, or the name of the one that a link has by its id. A name that means no agent is answered by the refusal to
    /// show.
    async fn find_agent(
        &mut self,
        visitor: &Visitor,
        raw: Option<&str>,
    ) -> Result<Option<BackendRefusal>, ErrorPage> {
        let typed = parameter(raw, "agent");
        if typed.trim().is_empty() {
            // What can't be an id is the list's to refuse.
            let known = crate::api::id_of(self.value("agent_id")).ok();
            let text = choice::text_of(&visitor.client, NamedKind::Agent, known).await;
            self.agent = text.unwrap_or_default();
            return Ok(None);
        }

        match choice::chosen(&visitor.client, NamedKind::Agent, "agent", &typed).await {
            Ok(id) => {
                self.agent = typed;
                let own = self.filters.iter_mut();
                for (_, value) in own.filter(|(name, _)| *name == "agent_id") {
                    *value = id.map(|id| id.to_string()).unwrap_or_default();
                }
                Ok(None)
            }

            Err(refused) if !refused.faults.is_empty() => {
                self.agent = typed;
                Ok(Some(refused))
            }
            Err(refused) => Err(refused.into()),
        }
    }

    fn value(&self, wanted: &str) -> &str {
        let found = self.filters.iter().find(|(name, _)| *name == wanted);
        found.map_or("", |(_, value)| value)
    }

    fn query(&self, more: &[(&'static str, &str)]) -> String {
        let own = self.filters.iter();
        let mut pairs: Vec<_> = own.map(|(name, value)| (*name, value.as_str())).collect();
        pairs.extend(more);
        query(&pairs)
    }

    fn is_filtered(&self) -> bool {
        !self.agent.is_empty() || self.filters.iter().any(|(_, value)| !value.is_empty())
    }
}

/// `GET /dashboard/{org_id}/calls`
pub(super) async fn list(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Html, ErrorPage> {
    let mut wanted = CallListQuery::read(raw.as_deref());
    let unknown = wanted.find_agent(&visitor, raw.as_deref()).await?;
    let asked = wanted.query(&[("limit", ROWS), ("cursor", &wanted.cursor)]);
    // A fault of a filter is shown on the page with the filters, where the person can correct it.
    let found = match unknown {
        Some(unknown) => Err(unknown),
        None => {
            let path = format!("/phone/calls{asked}");
            visitor.client.get::<Page<CallView>>(&path).await
        }
    };
    let found = match found {
        Err(refused) if !refused.status.is_client_error() || refused.faults.is_empty() => {
            return Err(refused.into());
        }
        found => found,
    };
    let calls = found.as_ref().map_or(&[][..], |page| &page.items);
    let mentioned = calls.iter().filter_map(|call| call.agent_id);
    let names = Names::of(&visitor.client, mentioned.collect()).await?;
    let agent = Choice::of(&visitor, NamedKind::Agent).await?;

    let csv = visitor.path(&format!("calls.csv{}", wanted.query(&[])));
    let heading = html! {
        h1 { "Calls" }
        div.actions { a.button href=(csv) download { "Download CSV" } }
    };
    let content = html! {
        (filters(&visitor, &wanted, agent))
        @match &found {
            Ok(found) => (found_calls(&visitor, &wanted, found, &names)),
            Err(refused) => (faults(refused)),
        }
    };
    Ok(headed(
        &visitor,
        Section::Calls,
        "Calls",
        &heading,
        &content,
    ))
}

/// `GET /dashboard/{org_id}/calls.csv`: ended calls that match, as the API exports them.
pub(super) async fn csv(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Response, ErrorPage> {
    let path = format!(
        "/phone/calls{}",
        CallListQuery::read(raw.as_deref()).query(&[])
    );
    let file = "attachment; filename=\"calls.csv\"";
    Ok(visitor.client.csv(&path, file).await)
}

fn faults(refused: &BackendRefusal) -> Markup {
    html! {
        div.banner.bad role="alert" {
            @for (field, message) in &refused.faults {
                p { @if let Some(field) = field { strong { (super::document::spaced(field)) } " " } (message) }
            }
        }
    }
}

fn filters(visitor: &Visitor, wanted: &CallListQuery, agents: Choice) -> Markup {
    let agent = Field::new("agent", "Agent", Input::Choice(agents)).holds(&*wanted.agent);
    let chosen = |name: &str, word: &str| wanted.value(name) == word;

    html! {
        form.filters method="get" action=(visitor.path("calls")) role="search" {
            div.field.wide {
                label for="phone_number" { "Number" }
                input #phone_number type="search" name="phone_number" value=(wanted.value("phone_number")) placeholder="+442071838750";
            }

            div.field {
                label for="status" { "Status" }
                select #status name="status" {
                    option value="" { "Any" }
                    @for word in STATUSES.map(Status::as_str) {
                        option value=(word) selected[chosen("status", word)] { (super::document::spaced(word)) }
                    }
                }
            }
            div.field {
                label for="direction" { "Direction" }
                select #direction name="direction" {
                    option value="" { "Both" }
                    @for word in [Direction::Inbound, Direction::Outbound].map(Direction::as_str) {
                        option value=(word) selected[chosen("direction", word)] { (word) }
                    }
                }
            }

            (inputs(&[agent], None, &[]))

            div.field {
                label for="start_date" { "From" }
                input #start_date type="date" name="start_date" value=(wanted.value("start_date"));
            }
            div.field {
                label for="end_date" { "To" }
                input #end_date type="date" name="end_date" value=(wanted.value("end_date"));
            }

            // Only links set it. It stays while the person narrows the list down.
            @if !wanted.value("trunk_id").is_empty() {
                input type="hidden" name="trunk_id" value=(wanted.value("trunk_id"));
            }
            div.go {
                button type="submit" { "Search" }
                @if wanted.is_filtered() { a.plain href=(visitor.path("calls")) { "Clear" } }
            }
        }
    }
}

fn found_calls(
    visitor: &Visitor,
    wanted: &CallListQuery,
    found: &Page<CallView>,
    names: &Names,
) -> Markup {
    let total = found.total;
    let empty = match wanted.is_filtered() {
        true => "No call matches these filters.",
        false => "There was no call yet.",
    };

    html! {
        section.card aria-label="Calls" {
            (rows(visitor, &found.items, names, empty))
            @if total > 0 {
                div.pages {
                    span.soft { @if found.total_is_bounded { "more than " } (total) @if total == 1 { " call" } @else { " calls" } }
                    @if !wanted.cursor.is_empty() {
                        a.button href=(visitor.path(&format!("calls{}", wanted.query(&[])))) { "Newest" }
                    }
                    @if let Some(next) = &found.next {
                        a.button href=(visitor.path(&format!("calls{}", wanted.query(&[("cursor", next)])))) rel="next" { "Older" }
                    }
                }
            }
        }
    }
}

/// Table of calls, as the API shows them.
pub(super) fn rows(visitor: &Visitor, calls: &[CallView], names: &Names, empty: &str) -> Markup {
    let columns = ["Started", "From", "To", "Agent", "Status", "Answered for"];
    let rows: Vec<_> = calls.iter().map(|call| row(visitor, call, names)).collect();
    table("Calls", &columns, &rows, empty)
}

/// Last calls of a trunk, with the other party of each.
///
/// # Errors
/// The API's refusal.
pub(super) async fn last_of_trunk(
    visitor: &Visitor,
    trunk: Uuid,
) -> Result<Markup, BackendRefusal> {
    let path = format!("/phone/calls?limit=5&trunk_id={trunk}");
    let found: Page<CallView> = visitor.client.get(&path).await?;
    let rows: Vec<_> = found
        .items
        .iter()
        .map(|call| {
            let page = visitor.path(&format!("calls/{}", call.id));
            let party = match call.direction {
                Direction::Outbound => &call.to_number,
                Direction::Inbound => &call.from_number,
            };
            vec![
                html! { a.row href=(page) { (time(&call.started_at)) } },
                html! { span.words { (party) } },
                outcome(call),
            ]
        })
        .collect();
    let columns = ["Started", "Other party", "Status"];
    let all = visitor.path(&format!(
        "calls{}",
        query(&[("trunk_id", &trunk.to_string())])
    ));

    Ok(html! {
        (table("Last calls", &columns, &rows, "There was no call yet."))
        @if !rows.is_empty() { p { a href=(all) { "All calls of this trunk" } } }
    })
}

fn row(visitor: &Visitor, call: &CallView, names: &Names) -> Vec<Markup> {
    let page = visitor.path(&format!("calls/{}", call.id));
    let arrow = match call.direction {
        Direction::Outbound => html! { span.way title="outbound" { "↗" } },
        Direction::Inbound => html! { span.way title="inbound" { "↙" } },
    };

    vec![
        html! { a.row href=(page) { (time(&call.started_at)) } },
        html! { (arrow) " " (call.from_number) },
        html! { (call.to_number) },
        names.shown(call.agent_id),
        outcome(call),
        answered(call),
    ]
}

/// Status of a call, with its reason.
pub(super) fn outcome(call: &CallView) -> Markup {
    html! {
        (status(call.status))
        @if call.held { " " (badge(Tone::Warn, "on hold")) }
        @if let Some(reason) = &call.reason { " " span.soft { (super::document::spaced(reason)) } }
    }
}

/// Time that a call was answered for; counted up by the script while it is up.
pub(super) fn answered(call: &CallView) -> Markup {
    match (&call.answered_at, call.answered_s) {
        (None, _) => html! { span.soft { "–" } },
        (Some(_), Some(seconds)) => html! { (duration(seconds)) },
        (Some(at), None) => html! { time.since datetime=(at) { "up" } },
    }
}

/// Card with the newest calls.
pub(super) fn recent(visitor: &Visitor, calls: &Page<CallView>, names: &Names) -> Markup {
    let rows = rows(visitor, &calls.items, names, "There was no call yet.");
    let more = html! {
        (rows)
        @if calls.next.is_some() {
            div.pages { a.button href=(visitor.path("calls")) { "All calls" } }
        }
    };
    card("calls", "Recent calls", &more)
}
