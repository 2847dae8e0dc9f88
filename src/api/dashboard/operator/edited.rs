//! Forms of the operator's pages: the answer to one that was submitted.

use axum::http::Method;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::Value;

use super::super::backend::Refused;
use super::super::fields::{Field, Filled};
use super::super::forms::{Forms as _, token};
use super::super::page::ErrorPage;
use super::super::resource::{form_of, shown_status};
use super::frame::{Section, heading, page};
use super::visitor::OperatorVisitor;

/// Form with a button.
pub(super) fn form(
    visitor: &OperatorVisitor,
    below: &str,
    (fields, filled): (&[Field], Filled<'_>),
    label: &str,
) -> Markup {
    html! {
        form method="post" action=(visitor.path(below)) {
            (token(visitor))
            (form_of(fields, filled, None))
            div.go { button type="submit" { (label) } }
        }
    }
}

/// Sends a change, and shows the page `back` again, or why nothing was changed.
pub(super) async fn change(
    visitor: &OperatorVisitor,
    (method, path): (Method, &str),
    body: Option<&Value>,
    (section, back): (Section, &str),
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
    refused: &Refused,
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
