//! Page of the org's usage: calls and answered time of the last 30 days, by day or by another part, and its CSV.

use axum::extract::RawQuery;
use axum::response::Response;
use maud::{Markup, html};
use trunkline_model::record::Direction;
use uuid::Uuid;

use super::backend::{parameter, query};
use super::chart::{Bar, bars};
use super::document::{duration, table};
use super::frame::{Section, headed};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;
use crate::api::usage::{UsageItem, UsageView};

/// Part by which usage is shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Part {
    Day,
    Agent,
    Trunk,
    Direction,
}

impl Part {
    const ALL: [Self; 4] = [Self::Day, Self::Agent, Self::Trunk, Self::Direction];

    /// Returns the part that the query names, or the first.
    fn read(raw: Option<&str>) -> Self {
        let named = parameter(raw, "group_by");
        let part = Self::ALL.into_iter().find(|part| part.as_str() == named);
        part.unwrap_or(Self::Day)
    }

    /// Name in the API.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Agent => "agent",
            Self::Trunk => "trunk",
            Self::Direction => "direction",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Day => "Day",
            Self::Agent => "Agent",
            Self::Trunk => "Trunk",
            Self::Direction => "Direction",
        }
    }

    /// Query that asks for usage by the part.
    fn query(self) -> String {
        query(&[("group_by", self.as_str())])
    }
}

/// `GET /dashboard/{org_id}/usage?group_by`
pub(super) async fn show(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Html, ErrorPage> {
    let part = Part::read(raw.as_deref());
    let asked = part.query();
    let path = format!("/phone/usage{asked}");
    let UsageView { items } = visitor.client.get(&path).await?;
    let mentioned = items.iter().flat_map(|item| [item.agent_id, item.trunk_id]);
    let names = Names::of(&visitor.client, mentioned.flatten().collect()).await?;
    let inbound_trunk = super::trunk::found(&visitor).await?.map(|trunk| trunk.id);

    let heading = html! {
        div { h1 { "Usage" } p.under { "Calls that began in the last 30 days. A day is one of UTC." } }
        div.actions { a.button href=(visitor.path(&format!("usage.csv{asked}"))) download { "Download CSV" } }
    };

    let name = |item: &UsageItem| match part {
        Part::Day => html! { (day(item)) },
        Part::Agent => names.shown(item.agent_id),
        Part::Trunk => trunk_name(&names, inbound_trunk, item.trunk_id),
        Part::Direction => html! { (item.direction.map_or("", Direction::as_str)) },
    };

    let columns = [part.title(), "Calls", "Answered", "Answered for"];
    let rows: Vec<_> = items.iter().map(|item| row(item, &name)).collect();
    let content = html! {
        section.card aria-label="Usage" {
            div.tabs role="group" aria-label="Usage by" {
                @for other in Part::ALL {
                    a href=(visitor.path(&format!("usage{}", other.query()))) aria-current=[(other == part).then_some("page")] { (other.title()) }
                }
            }
            @if part == Part::Day && rows.len() > 1 { (chart(&items)) }
            (table("Usage", &columns, &rows, "There was no call in this time."))
        }
    };

    Ok(headed(
        &visitor,
        Section::Usage,
        "Usage",
        &heading,
        &content,
    ))
}

/// `GET /dashboard/{org_id}/usage.csv?group_by`: the same rows, as the API exports them.
pub(super) async fn csv(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Response, ErrorPage> {
    let path = format!("/phone/usage{}", Part::read(raw.as_deref()).query());
    let file = "attachment; filename=\"usage.csv\"";
    Ok(visitor.client.csv(&path, file).await)
}

fn day(item: &UsageItem) -> &str {
    item.day.as_deref().unwrap_or_default()
}

/// Number of calls or seconds, of which there are never fewer than none.
fn count(number: i64) -> u64 {
    number.try_into().unwrap_or_default()
}

fn row(item: &UsageItem, name: &impl Fn(&UsageItem) -> Markup) -> Vec<Markup> {
    vec![
        name(item),
        html! { (item.calls) },
        html! { (item.answered_calls) },
        html! { (duration(count(item.answered_s))) },
    ]
}

/// Bars of the days that had calls.
fn chart(days: &[UsageItem]) -> Markup {
    let of_day = |item: &UsageItem| {
        let (calls, answered) = (count(item.calls), count(item.answered_calls));
        Bar {
            answered,
            missed: calls.saturating_sub(answered),
            refused: 0,
            title: format!("{}: {answered} of {calls} calls answered", day(item)),
        }
    };
    let end = |item: Option<&UsageItem>| html! { (item.map_or("", day)) };
    let all: Vec<_> = days.iter().map(of_day).collect();
    bars("Calls by day", &all, [end(days.first()), end(days.last())])
}

/// Name of a trunk of the org. The inbound trunk has none.
fn trunk_name(names: &Names, inbound: Option<Uuid>, id: Option<Uuid>) -> Markup {
    match id.is_some() && id == inbound {
        true => html! { "Inbound trunk" },
        false => names.shown(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trunk_that_is_gone_is_not_taken_for_the_inbound_one() {
        let [trunk, gone] = [1, 2].map(Uuid::from_u128);
        for (id, inbound, shown) in [
            (Some(trunk), Some(trunk), "Inbound trunk"),
            (Some(gone), Some(trunk), "deleted"),
            (Some(trunk), None, "deleted"),
            (None, Some(trunk), "none"),
            (None, None, "none"),
        ] {
            let name = trunk_name(&Names::default(), inbound, id).into_string();
            assert!(name.contains(shown), "{id:?}: {name}");
        }
    }
}
