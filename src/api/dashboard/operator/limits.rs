//! Limits of an org or of a partner, as a form. It carries the values that it was made with, and sends those that were changed.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::super::backend::{items, text};
use super::super::document::spaced;
use super::super::forms::{Forms as _, token};
use super::super::page::ErrorPage;
use super::super::resource::conflict;
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
            @for row in items(limits) {
                @let name = text(row, "limit");
                @let id = format!("limit-{name}");
                @let value = submitted.map_or_else(|| in_force(row), |fields| fields.text(name).to_owned());
                div.field {
                    label for=(id) { (title(name)) }
                    input id=(id) type="text" inputmode="numeric" name=(name) value=(value) autocomplete="off" aria-describedby={ (id) "-help" };
                    input type="hidden" name={ "was_" (name) } value=(in_force(row));
                    div.help id={ (id) "-help" } {
                        p {
                            @if let Some(used) = row["used"].as_u64() { (used) " in use. " }
                            @if row["of"] == "org" { "The most that the partner may allow one org. " }
                            "Empty: the default."
                        }
                    }
                }
            }

            div.go { button type="submit" { "Set the limits" } }
        }
    }
}

fn in_force(row: &Value) -> String {
    let value = row["value"].as_u64();
    value.map(|value| value.to_string()).unwrap_or_default()
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
    let rows = items(limits).iter().filter_map(|row| {
        let name = text(row, "limit");
        let (given, now) = (fields.values(name).next()?.trim(), in_force(row));
        let shown = format!("was_{name}");
        let was = fields.text(&shown);
        let is_lost = given != was && now != was && now != given;
        is_lost.then(|| (title(name), given.to_owned(), now))
    });
    rows.collect()
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
