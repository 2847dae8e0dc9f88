//! Limits of an org or of a partner, as a form. It carries the values that it was made with, and sends those that were changed.

use std::borrow::Cow;

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use trunkline_store::OrgLimit;
use uuid::Uuid;

use super::super::document::spaced;
use super::super::form_page::conflict;
use super::super::forms::{Forms as _, token};
use super::super::page::ErrorPage;
use super::super::visitor::FormFields;
use super::edited::change;
use super::frame::{Section, heading, page};
use super::visitor::{OperatorForm, OperatorVisitor};
use crate::api::control::{Listed, PartnerLimitRow};
use crate::api::tenants::OrgLimitsView;

/// Owner of limits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Limited {
    Org(Uuid),
    Partner(Uuid),
}

impl Limited {
    /// Path of the API.
    fn path(self) -> String {
        format!("/operator/{}/limits", self.page())
    }

    /// Page with the form.
    fn page(self) -> String {
        match self {
            Self::Org(id) => format!("orgs/{id}"),
            Self::Partner(id) => format!("partners/{id}"),
        }
    }

    const fn section(self) -> Section {
        match self {
            Self::Org(_) => Section::Orgs,
            Self::Partner(_) => Section::Partners,
        }
    }

    async fn rows(self, visitor: &OperatorVisitor) -> Result<Vec<Row>, ErrorPage> {
        let (client, path) = (&visitor.client, self.path());
        Ok(match self {
            Self::Org(_) => {
                let limits: OrgLimitsView = client.get(&path).await?;
                OrgLimit::ALL
                    .map(|limit| Row::of_org(&limits, limit))
                    .into()
            }
            Self::Partner(_) => {
                let limits: Listed<PartnerLimitRow> = client.get(&path).await?;
                limits.items.into_iter().map(Row::from).collect()
            }
        })
    }
}

/// A limit of an org or a partner.
#[derive(Debug)]
struct Row {
    name: Cow<'static, str>,
    /// The value in force, as text.
    value: String,
    used: Option<u64>,
    /// True for the greatest value that a partner may set for an org.
    is_greatest: bool,
}

impl From<PartnerLimitRow> for Row {
    fn from(row: PartnerLimitRow) -> Self {
        Self {
            name: row.limit,
            value: row.value.to_string(),
            used: None,
            is_greatest: row.of == "org",
        }
    }
}

impl Row {
    fn of_org(limits: &OrgLimitsView, limit: OrgLimit) -> Self {
        let view = limits.of(limit);
        Self {
            name: limit.as_str().into(),
            value: view.limit.to_string(),
            used: view.used,
            is_greatest: false,
        }
    }
}

/// Form with a field for each limit, with the values in force.
///
/// # Errors
/// The API's refusal.
pub(super) async fn form(visitor: &OperatorVisitor, of: Limited) -> Result<Markup, ErrorPage> {
    Ok(filled(visitor, of, &of.rows(visitor).await?, None))
}

/// Form of the values in force, or of those that were submitted.
fn filled(
    visitor: &OperatorVisitor,
    of: Limited,
    rows: &[Row],
    submitted: Option<&FormFields>,
) -> Markup {
    html! {
        form method="post" action=(visitor.path(&format!("{}/limits", of.page()))) {
            (token(visitor))
            @for Row { name, value: in_force, used, is_greatest } in rows {
                @let id = format!("limit-{name}");
                @let value = submitted.map_or(&**in_force, |fields| fields.text(name));
                div.field {
                    label for=(id) { (title(name)) }
                    input id=(id) type="text" inputmode="numeric" name=(name) value=(value) autocomplete="off" aria-describedby={ (id) "-help" };
                    input type="hidden" name={ "was_" (name) } value=(in_force);
                    div.help id={ (id) "-help" } {
                        p {
                            @if let Some(used) = used { (used) " in use. " }
                            @if *is_greatest { "The most that the partner may allow one org. " }
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

/// Saves the form. If a limit that it changes was changed by another person since, nothing is saved, and both values are shown.
pub(super) async fn save(form: &OperatorForm, of: Limited) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    let current = of.rows(visitor).await?;
    // Limits have no version for `If-Match`, so the form's own old values are compared.
    let differing = conflicts(&form.fields, &current);
    if differing.is_empty() {
        let (path, body) = (of.path(), changes(&form.fields));
        let (section, page) = (of.section(), of.page());
        return change(visitor, Method::PATCH, &path, Some(&body), section, &page).await;
    }

    let again = filled(visitor, of, &current, Some(&form.fields));
    let content = html! {
        (conflict(&differing))
        section.card { (again) }
        p { a.button href=(visitor.path(&of.page())) { "Back" } }
    };
    let heading = heading("Limits", "Of these, some were changed meanwhile.");
    let page = page(visitor, of.section(), "Limits", &heading, &content);
    Ok((StatusCode::CONFLICT, page).into_response())
}

/// Limits that the form changes and that aren't as it has shown them: title, submitted, current.
fn conflicts(fields: &FormFields, limits: &[Row]) -> Vec<(String, String, String)> {
    let lost = limits.iter().filter_map(|row| {
        let (name, now) = (&*row.name, &*row.value);
        let given = fields.values(name).next()?.trim();
        let shown = format!("was_{name}");
        let was = fields.text(&shown);
        let is_lost = given != was && now != was && now != given;
        is_lost.then(|| (title(name), given.to_owned(), now.to_owned()))
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
