//! Forms of the operator's pages: one that carries the version of the object that it changes, and the answer to one that was submitted.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::backend::BackendRefusal;
use super::super::fields::{Field, changes, conflicts};
use super::super::form_page::{conflict, form_of, shown_status};
use super::super::forms::{Forms as _, token};
use super::super::page::ErrorPage;
use super::super::visitor::FormFields;
use super::fields;
use super::frame::{Section, below, heading, page};
use super::visitor::{OperatorForm, OperatorVisitor};
use crate::api::control::PartnerView;
use crate::api::tenants::WholeOrgView;

/// Object that a form changes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Edited {
    /// Settings of an org.
    Org(Uuid),
    /// Days for which an org's data is kept. They have the org's version.
    Retention(Uuid),
    /// Settings of a partner.
    Partner(Uuid),
}

impl Edited {
    /// Path of the API.
    fn path(self) -> String {
        match self {
            Self::Org(id) | Self::Retention(id) => format!("/operator/orgs/{id}"),
            Self::Partner(id) => format!("/operator/partners/{id}"),
        }
    }

    /// Page with the form.
    fn page(self) -> String {
        match self {
            Self::Org(id) | Self::Retention(id) => format!("orgs/{id}"),
            Self::Partner(id) => format!("partners/{id}"),
        }
    }

    /// Page that takes the form.
    fn action(self) -> String {
        match self {
            Self::Org(_) | Self::Partner(_) => self.page(),
            Self::Retention(id) => format!("orgs/{id}/retention"),
        }
    }

    /// Place in the navigation, with the path and the title of the list.
    const fn list(self) -> (Section, &'static str, &'static str) {
        match self {
            Self::Org(_) | Self::Retention(_) => (Section::Orgs, "", "Organizations"),
            Self::Partner(_) => (Section::Partners, "partners", "Partners"),
        }
    }

    /// Reads the object.
    async fn current(self, visitor: &OperatorVisitor) -> Result<Current, ErrorPage> {
        let (client, path) = (&visitor.client, self.path());
        Ok(match self {
            Self::Org(_) => Current::of_org(&client.get(&path).await?),
            Self::Retention(_) => Current::of_retention(&client.get(&path).await?),
            Self::Partner(_) => Current::of_partner(&client.get(&path).await?),
        })
    }
}

/// Object as it is now: what a form has of it.
#[derive(Debug)]
pub(super) struct Current {
    name: String,
    version: String,
    fields: Vec<Field>,
}

impl Current {
    pub(super) fn of_org(org: &WholeOrgView) -> Self {
        Self {
            name: org.org.org.name.clone(),
            version: org.updated_at.clone(),
            fields: fields::of_org(Some(org)),
        }
    }

    pub(super) fn of_retention(org: &WholeOrgView) -> Self {
        Self {
            fields: fields::of_retention(&org.retention),
            ..Self::of_org(org)
        }
    }

    pub(super) fn of_partner(partner: &PartnerView) -> Self {
        Self {
            name: partner.name.clone(),
            version: partner.updated_at.clone(),
            fields: fields::of_partner(partner),
        }
    }
}

/// Form with a button.
pub(super) fn form(
    visitor: &OperatorVisitor,
    below: &str,
    fields: &[Field],
    label: &str,
) -> Markup {
    html! {
        form method="post" action=(visitor.path(below)) {
            (token(visitor))
            (form_of(fields, None, None))
            div.go { button type="submit" { (label) } }
        }
    }
}

/// Form that changes an object, with the version that it was made for.
pub(super) fn edit_form(
    visitor: &OperatorVisitor,
    edited: Edited,
    current: &Current,
    submitted: Option<&FormFields>,
    refused: Option<&BackendRefusal>,
) -> Markup {
    html! {
        form method="post" action=(visitor.path(&edited.action())) {
            (token(visitor))
            input type="hidden" name="version" value=(current.version);
            (form_of(&current.fields, submitted, refused))
            div.go { button type="submit" { "Save" } }
        }
    }
}

/// Saves the form of an object. One that is older than its object changes nothing, and shows both values of what differs.
pub(super) async fn save(form: &OperatorForm, edited: Edited) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    let current = edited.current(visitor).await?;
    let version = form.fields.text("version");

    let mut body = changes(&current.fields, &form.fields, &Value::Null);
    tidy(&mut body);
    // A form that equals the object changes nothing, whatever its version.
    if body.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(saved(visitor, edited));
    }
    if version != current.version {
        return Ok(outdated(form, edited, &current));
    }

    let body = match edited {
        Edited::Retention(_) => json!({"retention": body}),
        Edited::Org(_) | Edited::Partner(_) => body,
    };
    match visitor.client.change(&edited.path(), version, &body).await {
        Ok(_) => Ok(saved(visitor, edited)),
        Err(refused) if refused.status == StatusCode::PRECONDITION_FAILED => {
            // Another form was saved between the look at the object and the change.
            let current = edited.current(visitor).await?;
            Ok(outdated(form, edited, &current))
        }
        Err(mut refused) => {
            // The form's fields are those of the object within the org.
            for path in refused
                .faults
                .iter_mut()
                .filter_map(|(path, _)| path.as_mut())
            {
                if let Some(field) = path.strip_prefix("retention.") {
                    *path = field.to_owned();
                }
            }
            let status = shown_status(&refused)?;
            let submitted = Some(&form.fields);
            let again = edit_form(visitor, edited, &current, submitted, Some(&refused));
            Ok(shown_again(
                visitor,
                edited,
                &current,
                status,
                &html! { section.card { (again) } },
            ))
        }
    }
}

/// No network in the form means every network, which the API writes as `null`.
pub(super) fn tidy(body: &mut Value) {
    // An empty list would let no request in.
    if body["allowed_networks"] == json!([]) {
        body["allowed_networks"] = Value::Null;
    }
}

fn saved(visitor: &OperatorVisitor, edited: Edited) -> Response {
    let page = format!("{}?done=saved", visitor.path(&edited.page()));
    Redirect::to(&page).into_response()
}

fn outdated(form: &OperatorForm, edited: Edited, current: &Current) -> Response {
    let visitor = &form.visitor;
    let differing = conflicts(&current.fields, &form.fields);
    let content = html! {
        (conflict(&differing))
        section.card { (edit_form(visitor, edited, current, Some(&form.fields), None)) }
    };
    shown_again(visitor, edited, current, StatusCode::CONFLICT, &content)
}

fn shown_again(
    visitor: &OperatorVisitor,
    edited: Edited,
    current: &Current,
    status: StatusCode,
    content: &Markup,
) -> Response {
    let (section, at, list) = edited.list();
    let name = &current.name;
    let content = html! {
        (content)
        p { a.button href=(visitor.path(&edited.page())) { "Back" } }
    };
    let heading = below(visitor, at, list, name);
    let page = page(visitor, section, name, &heading, &content);
    (status, page).into_response()
}

/// Sends a command, and shows the page `back` again, or why nothing was changed.
pub(super) async fn change(
    visitor: &OperatorVisitor,
    method: Method,
    path: &str,
    body: Option<&Value>,
    section: Section,
    back: &str,
) -> Result<Response, ErrorPage> {
    let nothing = body
        .and_then(Value::as_object)
        .is_some_and(|body| body.is_empty());
    if nothing && method == Method::PATCH {
        return Ok(Redirect::to(&visitor.path(back)).into_response());
    }

    match visitor.client.send(method, path, body).await {
        Ok(_) => {
            let done = format!("{}?done=done", visitor.path(back));
            Ok(Redirect::to(&done).into_response())
        }
        Err(refused) => not_done(visitor, section, &refused, back),
    }
}

/// Page for a change that the API refused: its sentence, and each fault with its field.
pub(super) fn not_done(
    visitor: &OperatorVisitor,
    section: Section,
    refused: &BackendRefusal,
    back: &str,
) -> Result<Response, ErrorPage> {
    let status = shown_status(refused)?;
    let content = html! {
        div.banner.bad role="alert" {
            @if refused.faults.is_empty() { p { (refused.message) } }
            @for (path, message) in &refused.faults {
                p { @if let Some(path) = path { strong { (path) } " " } (message) }
            }
        }
        p { a.button href=(visitor.path(back)) { "Back" } }
    };
    let heading = heading(
        "Nothing was changed",
        "See what the form says, and try again.",
    );
    let page = page(visitor, section, "Nothing was changed", &heading, &content);

    Ok((status, page).into_response())
}
