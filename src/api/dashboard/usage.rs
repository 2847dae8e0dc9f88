//! Page of the org's usage: calls and answered time of the last 30 days, by day or by another part, and its CSV.

use axum::extract::RawQuery;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::backend::{items, parameter, query, text};
use super::chart::{Bar, bars};
use super::document::{duration, table};

use super::frame::{Section, headed};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;

/// Parts by which usage is shown, as the API names them, and their titles.
const PARTS: [(&str, &str); 4] = [
    ("day", "Day"),
    ("agent", "Agent"),
    ("trunk", "Trunk"),
    ("direction", "Direction"),
];

/// `GET /dashboard/{org_id}/usage?group_by`
pub(super) async fn show(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Html, ErrorPage> {
    let (part, title) = part(raw.as_deref());
    let asked = query(&[("group_by", part)]);
    let usage = visitor.client.get(&format!("/phone/usage{asked}")).await?;
    let names = Names::mentioned(&visitor.client, items(&usage), &["agent_id", "trunk_id"]).await?;
    let inbound_trunk = super::trunk::found(&visitor).await?;

    let heading = html! {
        div { h1 { "Usage" } p.under { "Calls that began in the last 30 days. A day is one of UTC." } }
        div.actions { a.button href=(visitor.path(&format!("usage.csv{asked}"))) download { "Download CSV" } }
    };

    let name = |item: &Value| match part {
        "agent" => names.shown(text(item, "agent_id")),
        "trunk" => trunk_name(&names, inbound_trunk.as_ref(), text(item, "trunk_id")),
        _ => html! { (text(item, part)) },
    };

    let columns = [title, "Calls", "Answered", "Answered for"];
    let rows: Vec<_> = items(&usage).iter().map(|item| row(item, &name)).collect();
    let content = html! {
        section.card aria-label="Usage" {
            div.tabs role="group" aria-label="Usage by" {
                @for (other, title) in PARTS {
                    a href=(visitor.path(&format!("usage{}", query(&[("group_by", other)])))) aria-current=[(other == part).then_some("page")] { (title) }
                }
            }
            @if part == "day" && rows.len() > 1 { (chart(items(&usage))) }
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
    let (part, _) = part(raw.as_deref());
    let path = format!("/phone/usage{}", query(&[("group_by", part)]));
    let file = "attachment; filename=\"usage.csv\"";
    Ok(visitor.client.csv(&path, file).await)
}

/// The part that the query names, or the first.
fn part(raw: Option<&str>) -> (&'static str, &'static str) {
    let named = parameter(raw, "group_by");
    let found = PARTS.into_iter().find(|(part, _)| *part == named);
    found.unwrap_or(PARTS[0])
}

fn count(item: &Value, field: &str) -> u64 {
    item[field].as_u64().unwrap_or_default()
}

fn row(item: &Value, name: &impl Fn(&Value) -> Markup) -> Vec<Markup> {
    vec![
        name(item),
        html! { (count(item, "calls")) },
        html! { (count(item, "answered_calls")) },
        html! { (duration(count(item, "answered_s"))) },
    ]
}

/// Bars of the days that had calls.
fn chart(days: &[Value]) -> Markup {
    let of_day = |day: &Value| {
        let (calls, answered) = (count(day, "calls"), count(day, "answered_calls"));
        Bar {
            answered,
            missed: calls.saturating_sub(answered),
            refused: 0,
            title: format!("{}: {answered} of {calls} calls answered", text(day, "day")),
        }
    };
    let end = |day: Option<&Value>| html! { (day.map_or("", |day| text(day, "day"))) };
    let all: Vec<_> = days.iter().map(of_day).collect();
    bars("Calls by day", &all, [end(days.first()), end(days.last())])
}

/// Name of a trunk of the org. The inbound trunk has none.
fn trunk_name(names: &Names, inbound: Option<&Value>, id: &str) -> Markup {
    let is_inbound = inbound.is_some_and(|trunk| text(trunk, "id") == id);
    match is_inbound && !id.is_empty() {
        true => html! { "Inbound trunk" },
        false => names.shown(id),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_trunk_that_is_gone_is_not_taken_for_the_inbound_one() {
        let inbound = json!({"id": "i"});
        for (id, inbound, shown) in [
            ("i", Some(&inbound), "Inbound trunk"),
            ("gone", Some(&inbound), "deleted"),
            ("i", None, "deleted"),
            ("", Some(&inbound), "none"),
        ] {
            let name = trunk_name(&Names::default(), inbound, id).into_string();
            assert!(name.contains(shown), "{id}: {name}");
        }
    }
}
