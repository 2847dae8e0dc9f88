//! Page of API keys: created, shown once, and revoked. The token of the org's bots is a card of it.

use axum::extract::RawQuery;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};

use super::backend::{BackendRefusal, parameter, query};
use super::bot_token;
use super::document::{card, copied, table, time, time_or};
use super::fields::{Field, Input, new_body};
use super::form_page::{done, form_of, shown_status};
use super::forms::{danger, token};
use super::frame::{Section, page};
use super::page::{ErrorPage, Html};
use super::visitor::{FormFields, SubmittedForm, Visitor};
use crate::api::SCOPES;
use crate::api::api_keys::{KeyView, NewKeyView};
use crate::api::page::Page;

/// Path of a page of keys.
fn list(cursor: &str) -> String {
    format!("/api-keys{}", query(&[("limit", "50"), ("cursor", cursor)]))
}

/// `GET /dashboard/{org_id}/keys?cursor`
pub(super) async fn show(visitor: Visitor, RawQuery(raw): RawQuery) -> Result<Html, ErrorPage> {
    let cursor = parameter(raw.as_deref(), "cursor");
    let keys = visitor.client.get(&list(&cursor)).await?;
    let form = new_key(&visitor, None, None);
    let bots = bot_token::card(&visitor).await?;
    let content = html! { (done(raw.as_deref())) (listed(&visitor, &keys)) (form) (bots) };
    Ok(page(&visitor, Section::Keys, "API keys", &content))
}

fn fields() -> Vec<Field> {
    let scopes = SCOPES
        .iter()
        .map(|scope| ((*scope).to_owned(), (*scope).to_owned()));
    vec![
        Field::new("name", "Name", Input::Text),
        Field::new("expires_at", "Expires", Input::Text)
            .help("Such as 2036-01-31T12:00:00Z. Empty: it is good until it is revoked."),
        // Every scope is ticked at first.
        Field::new("scopes", "Scopes", Input::Checks(scopes.collect())).holds(&SCOPES[..]),
    ]
}

fn new_key(
    visitor: &Visitor,
    submitted: Option<&FormFields>,
    refused: Option<&BackendRefusal>,
) -> Markup {
    let form = html! {
        form method="post" action=(visitor.path("keys")) {
            (token(visitor))
            (form_of(&fields(), submitted, refused))
            div.go { button type="submit" { "Create the key" } }
        }
    };
    card("new", "New key", &form)
}

fn listed(visitor: &Visitor, keys: &Page<KeyView>) -> Markup {
    let columns = ["Name", "Scopes", "Created", "Last used", "Expires", ""];
    let rows: Vec<_> = keys.items.iter().map(|key| row(visitor, key)).collect();
    let content = html! {
        (table("API keys", &columns, &rows, "There is no API key yet."))
        @if let Some(next) = &keys.next {
            div.pages { a.button href=(visitor.path(&format!("keys{}", query(&[("cursor", next)])))) rel="next" { "Older" } }
        }
    };
    card("keys", "Keys", &content)
}

fn row(visitor: &Visitor, key: &KeyView) -> Vec<Markup> {
    let scopes = match key.scopes.len() == SCOPES.len() {
        true => "all".to_owned(),
        false => key.scopes.join(", "),
    };
    let revoke = format!("keys/{}/revoke", key.api_key_id);

    vec![
        html! { strong { (key.name) } },
        html! { (scopes) },
        time(&key.created_at),
        time_or(key.last_used_at.as_deref(), "never"),
        time_or(key.expires_at.as_deref(), "when it is revoked"),
        danger(
            visitor,
            &revoke,
            "Revoke",
            "Programs that use this key are locked out at once, for good.",
        ),
    ]
}

/// `POST /dashboard/{org_id}/keys`: creates a key with the ticked scopes, and shows it in this answer only.
pub(super) async fn create(form: SubmittedForm) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;

    let body = new_body(&fields(), &form.fields);
    let made = visitor.client.post::<NewKeyView>("/api-keys", &body).await;
    let keys = visitor.client.get(&list("")).await?;

    let (status, content) = match made {
        Ok(made) => {
            let shown = html! {
                div.banner.good role="status" {
                    p { strong { "Your new API key." } " It is shown this once: copy it now." }
                    (copied("new-key", &made.api_key))
                }
                (listed(visitor, &keys))
                (new_key(visitor, None, None))
            };
            (StatusCode::OK, shown)
        }
        Err(refused) => {
            let shown = html! {
                (new_key(visitor, Some(&form.fields), Some(&refused)))
                (listed(visitor, &keys))
            };
            (shown_status(&refused)?, shown)
        }
    };

    Ok((status, page(visitor, Section::Keys, "API keys", &content)).into_response())
}

/// `POST /dashboard/{org_id}/keys/{api_key_id}/revoke`; revoking a revoked key is no error.
pub(super) async fn revoke(form: SubmittedForm) -> Result<Redirect, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let path = format!("/api-keys/{}", visitor.id("api_key_id")?);
    match visitor.client.send(Method::DELETE, &path, None).await {
        Ok(_) => {}
        Err(refused) if refused.status == StatusCode::NOT_FOUND => {}
        Err(refused) => return Err(refused.into()),
    }
    Ok(Redirect::to(&visitor.path("keys")))
}
