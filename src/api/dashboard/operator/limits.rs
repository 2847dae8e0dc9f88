//! Limits of an org or of a partner, as a form. It carries the values that it was made with, and sends those that were changed.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use trunkline_store::OrgLimit;

use super::super::backend::{items, text};
use super::super::document::spaced;
use super::super::form_page::conflict;
use super::super::forms::{Forms as _, token};
use super::super::page::ErrorPage;
use super::super::visitor::FormFields;
use super::edited::change;
use super::frame::{Section, heading, page};
use super::visitor::{OperatorForm, OperatorVisitor};

/// Form with a field for each limit: of the values in force, or of those that were submitted.
pub(super) fn form(
    visitor: &OperatorVisitor,
    below: &str,
    limits: &Value,
    submitted: Option<&FormFields>,
) -> Markup {
    html! {
        form method="post" action=(visitor.path(below)) {
            (token(visitor))
            @for row in rows(limits) {
                @let name = row.name;
                @let id = format!("limit-{name}");
                @let value = submitted.map_or_else(|| row.in_force(), |fields| fields.text(name).to_owned());
                div.field {
                    label for=(id) { (title(name)) }
                    input id=(id) type="text" inputmode="numeric" name=(name) value=(value) autocomplete="off" aria-describedby={ (id) "-help" };
                    input type="hidden" name={ "was_" (name) } value=(row.in_force());
                    div.help id={ (id) "-help" } {
                        p {
                            @if let Some(used) = row.used { (used) " in use. " }
                            @if row.is_greatest { "The most that the partner may allow one org. " }
                            "Empty: the default."
                        }
                    }
                }
            }

            div.go { button type="submit" { "Set the limits" } }
        }
    }
}

/// A limit of an org or a partner.
#[derive(Copy, Clone, Debug)]
struct Row<'l> {
    name: &'l str,
    value: Option<u64>,
    used: Option<u64>,
    /// True for the greatest value that a partner may set for an org.
    is_greatest: bool,
}

impl Row<'_> {
    fn in_force(self) -> String {
        self.value
            .map(|value| value.to_string())
            .unwrap_or_default()
    }
}

/// Reads the API's answer: an object with each limit of an org, or a list of a partner's.
fn rows(limits: &Value) -> Vec<Row<'_>> {
    match limits["items"].is_array() {
        true => items(limits).iter().map(of_partner).collect(),
        false => OrgLimit::ALL.map(|limit| of_org(limits, limit)).into(),
    }
}

fn of_partner(row: &Value) -> Row<'_> {
    Row {
        name: text(row, "limit"),
        value: row["value"].as_u64(),
        used: None,
        is_greatest: row["of"] == "org",
    }
}

fn of_org(limits: &Value, limit: OrgLimit) -> Row<'_> {
    let row = &limits[limit.as_str()];
    Row {
        name: limit.as_str(),
        value: row["limit"].as_u64(),
        used: row["used"].as_u64(),
        is_greatest: false,
    }
}

fn title(name: &str) -> String {
    let mut words = spaced(name);
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    words
        .replace("api keys", "API keys")
        .replace("Api keys", "API keys")
}

/// Saves the form. If a limit that it changes was changed by another person since, nothing is saved, and both values are shown.
pub(super) async fn save(
    form: &OperatorForm,
    path: &str,
    (section, back): (Section, &str),
) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    let current = visitor.client.get(path).await?;
    // Limits have no version for `If-Match`, so the form's own old values are compared.
    let differing = conflicts(&form.fields, &current);
    if differing.is_empty() {
        let body = changes(&form.fields);
        return change(visitor, (Method::PATCH, path), Some(&body), (section, back)).await;
    }

    let again = self::form(
        visitor,
        &format!("{back}/limits"),
        &current,
        Some(&form.fields),
    );
    let content = html! {
        (conflict(&differing))
        section.card { (again) }
        p { a.button href=(visitor.path(back)) { "Back" } }
    };
    let heading = heading("Limits", "Of these, some were changed meanwhile.");
    let page = page(visitor, section, "Limits", &heading, &content);
    Ok((StatusCode::CONFLICT, page).into_response())
}

/// Limits that the form changes and that aren't as it has shown them: title, submitted, current.
fn conflicts(fields: &FormFields, limits: &Value) -> Vec<(String, String, String)> {
    let lost = rows(limits).into_iter().filter_map(|row| {
        let name = row.name;
        let (given, now) = (fields.values(name).next()?.trim(), row.in_force());
        let shown = format!("was_{name}");
        let was = fields.text(&shown);
        let is_lost = given != was && now != was && now != given;
        is_lost.then(|| (title(name), given.to_owned(), now))
    });
    lost.collect()
}

/// Body that sets the limits whose text differs from the one shown; an empty text restores the default.
pub(super) fn changes(fields: &FormFields) -> Value {
    let mut body = Map::new();
    for name in fields.names().filter(|name| !name.starts_with("was_")) {
        let given = fields.text(name).trim();
        let was = format!("was_{name}");
        if given == fields.text(&was) {
            continue;
        }
        let value = match (given, given.parse::<u64>()) {
            ("", _) => Value::Null,
            (_, Ok(number)) => json!(number),
            // The API reports the fault.
            (_, Err(_)) => json!(given),
        };
        body.insert(name.to_owned(), value);
    }

    Value::Object(body)
}
