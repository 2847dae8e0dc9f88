//! Parts of pages with forms: the message of a change that was made, refusals of the API, conflicts, and secrets that are shown once.

use axum::http::StatusCode;
use maud::{Markup, html};

use super::backend::{BackendRefusal, parameter};
use super::fields::{Field, inputs, other_faults};
use super::frame::{Section, headed};
use super::page::{ErrorPage, Html};
use super::visitor::{FormFields, Visitor};

/// Message that a change was made, shown after the redirection.
pub(super) fn done(raw: Option<&str>) -> Markup {
    let said = match parameter(raw, "done").as_str() {
        "saved" => "Saved. Calls that begin from now on follow it.",
        "deleted" => "Deleted.",
        "done" => "Done.",
        _ => return Markup::default(),
    };
    html! { div.banner.good role="status" { p { (said) } } }
}

/// Status of a page that shows the refusal.
///
/// # Errors
/// Refusals that aren't about the form (401, 403, 404, 5xx) have a page of their own.
pub(super) fn shown_status(refused: &BackendRefusal) -> Result<StatusCode, ErrorPage> {
    let is_shown = refused.status.is_client_error()
        && ![
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::NOT_FOUND,
        ]
        .contains(&refused.status);
    match is_shown {
        true => Ok(refused.status),
        false => Err(refused.clone().into()),
    }
}

/// The API's sentence for a refusal.
pub(super) fn refusal(refused: &BackendRefusal) -> Markup {
    html! { div.banner.bad role="alert" { p { (refused.message) } } }
}

/// Fields of a form with the values that they hold, or those that were submitted, below the faults that belong to none of them.
pub(super) fn form_of(
    fields: &[Field],
    submitted: Option<&FormFields>,
    refused: Option<&BackendRefusal>,
) -> Markup {
    let faults = refused.map_or(&[][..], |refused| &refused.faults);

    html! {
        @if let Some(refused) = refused {
            @if faults.is_empty() {
                (refusal(refused))
            } @else {
                div.banner.bad role="alert" {
                    p { "Not saved: see what is marked." }
                    @for (path, message) in other_faults(fields, faults) {
                        p { @if let Some(path) = path { strong { (path) } " " } (message) }
                    }
                }
            }
        }
        (inputs(fields, submitted, faults))
    }
}

/// Both values of each field that differs, where the object was changed meanwhile.
pub(super) fn conflict(differing: &[(impl AsRef<str>, String, String)]) -> Markup {
    html! {
        div.banner.bad role="alert" id="conflict" {
            p { strong { "It was changed while you were editing it." } " Nothing was saved. The form below has your values: save it again to replace the others." }
            table aria-label="Both values" {
                thead { tr { th scope="col" { "Field" } th scope="col" { "You entered" } th scope="col" { "It is now" } } }
                tbody {
                    @for (label, submitted, current) in differing {
                        tr { td data-label="Field" { (label.as_ref()) } td data-label="You entered" { (submitted) } td data-label="It is now" { (current) } }
                    }
                }
            }
        }
    }
}

/// Page that shows a secret, this once. The sentence says what the secret is.
pub(super) fn revealed(
    visitor: &Visitor,
    section: Section,
    title: &str,
    secret: &str,
    sentence: &str,
    next: &str,
) -> Html {
    let content = html! {
        div.banner.good role="status" {
            p { strong { (sentence) } " It is shown this once: copy it now." }
            (super::document::copied("secret", secret))
        }
        p { a.button href=(next) { "Continue" } }
    };
    headed(visitor, section, title, &html! { h1 { (title) } }, &content)
}
