//! Limits of an org or of a partner, as a form.

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::super::backend::{items, text};
use super::super::document::spaced;
use super::super::forms::{Forms as _, token};
use super::super::visitor::FormFields;
use super::visitor::OperatorVisitor;

/// Form with a field for each limit.
pub(super) fn form(visitor: &OperatorVisitor, below: &str, limits: &Value) -> Markup {
    html! {
        form method="post" action=(visitor.path(below)) {
            (token(visitor))
            @for row in items(limits) {
                @let name = text(row, "limit");
                @let id = format!("limit-{name}");
                div.field {
                    label for=(id) { (title(name)) }
                    input id=(id) type="text" inputmode="numeric" name=(name) value=[row["value"].as_u64()] autocomplete="off" aria-describedby={ (id) "-help" };
                    input type="hidden" name={ "was_" (name) } value=[row["value"].as_u64()];
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

fn title(name: &str) -> String {
    let mut words = spaced(name);
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    words
        .replace("api keys", "API keys")
        .replace("Api keys", "API keys")
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
