//! Pages of webhooks, with the deliveries of each.

use axum::http::Method;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::backend::{items, text};
use super::document::{Tone, badge, card, spaced, table, time, time_or};
use super::fields::{Field, Input};
use super::forms::{danger, token};
use super::frame::{Section, headed};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::resource::{Action, Beside, Resource};
use super::visitor::{SubmittedForm, Visitor};
use crate::api::phone::EVENT_TYPES;

pub(super) const WEBHOOKS: Resource = Resource {
    at: "webhooks",
    api: "/webhooks",
    parameter: "webhook_id",
    section: Section::Webhooks,
    title: "Webhooks",
    noun: "webhook",
    about: "Each event of your calls is sent to your own service, signed, until it is taken.",
    empty: "There is no webhook yet.",
    columns: &["Address", "State", "Events", "Description"],
    cells,
    name: |webhook| text(webhook, "url").to_owned(),
    mentions: &[],
    needs: &[],
    needs_of_one: &["/webhooks/{id}/deliveries?limit=50"],
    choices: &[],
    fields,
    changeable: fields,
    tidy: |_| {},
    beside,
    secret: Some(("secret", "This is the secret that signs the events.")),
    delete: "Its address gets no further events.",
    actions: &[Action {
        at: "rotate-secret",
        method: Method::POST,
        api: "/webhooks/{id}/rotate-secret",
        named: None,
        choice: None,
        body: |_, _| json!({}),
        secret: Some((
            "secret",
            "This is the new secret. Events are signed with the old one as well for a while.",
        )),
    }],
};

fn cells(_: &Visitor, webhook: &Value, _: &Names) -> Vec<Markup> {
    let types = webhook["types"].as_array().map_or(0, Vec::len);
    vec![
        html! { code { (text(webhook, "url")) } },
        state(webhook),
        html! { @if types == 0 || types == EVENT_TYPES.len() { "all" } @else { (types) } },
        html! { (text(webhook, "description")) },
    ]
}

fn state(webhook: &Value) -> Markup {
    html! {
        @if webhook["enabled"] == true { (badge(Tone::Good, "enabled")) } @else { (badge(Tone::Quiet, "disabled")) }
        @if let Some(reason) = webhook["disabled_reason"].as_str() { " " span.soft { (reason) } }
    }
}

fn fields(_: &[Value]) -> Vec<Field> {
    let types = EVENT_TYPES
        .iter()
        .map(|(word, _)| ((*word).to_owned(), (*word).to_owned()));
    vec![
        Field::new("url", "Address", Input::Text).help("An https address of your service."),
        Field::new("enabled", "Enabled", Input::Check).initially("on"),
        Field::new("types", "Events", Input::Checks(types.collect()))
            .help("None ticked: all of them."),
        Field::new("description", "Description", Input::Text),
    ]
}

fn beside(visitor: &Visitor, webhook: &Value, beside: &Beside) -> Markup {
    let none = Value::Null;
    let deliveries = beside.needs.first().unwrap_or(&none);
    let columns = ["Event", "State", "Last answer", "Created"];
    let rows: Vec<_> = items(deliveries)
        .iter()
        .map(|delivery| row(visitor, webhook, delivery))
        .collect();
    let rotate = format!("webhooks/{}/rotate-secret", text(webhook, "id"));

    html! {
        (card("deliveries", "Deliveries", &table("Deliveries", &columns, &rows, "Nothing was sent yet.")))
        @if visitor.writes() {
            (danger(visitor, &rotate, "Rotate the secret", "A new secret is shown once. The old one still signs as well for a while, so that your service can change over."))
        }
    }
}

fn row(visitor: &Visitor, webhook: &Value, delivery: &Value) -> Vec<Markup> {
    let page = format!(
        "webhooks/{}/deliveries/{}",
        text(webhook, "id"),
        text(delivery, "id")
    );
    let log = delivery["log"].as_array().map_or(&[][..], Vec::as_slice);
    vec![
        html! { a.words href=(visitor.path(&page)) { (text(delivery, "event_type")) } },
        delivery_state(delivery),
        html! { @if let Some(last) = log.last() { (answer(last)) } @else { span.soft { "none" } } },
        time(text(delivery, "created_at")),
    ]
}

fn delivery_state(delivery: &Value) -> Markup {
    match text(delivery, "status") {
        "delivered" => badge(Tone::Good, "delivered"),
        "failed" => badge(Tone::Bad, "failed"),
        _ => badge(Tone::Busy, "pending"),
    }
}

fn answer(attempt: &Value) -> Markup {
    html! {
        @if let Some(status) = attempt["http_status"].as_u64() { (status) }
        @if let Some(fault) = attempt["fault"].as_str() { " " span.words { (spaced(fault)) } }
        " " span.soft.words { (attempt["took_ms"].as_u64().unwrap_or_default()) "\u{a0}ms" }
    }
}

/// `GET /dashboard/{org_id}/webhooks/{webhook_id}/deliveries/{delivery_id}`
pub(super) async fn delivery(visitor: Visitor) -> Result<Html, ErrorPage> {
    let (webhook, id) = (visitor.id("webhook_id")?, visitor.id("delivery_id")?);
    let path = format!("/webhooks/{webhook}/deliveries/{id}");
    let delivery: Value = visitor.client.get(&path).await?;
    let columns = ["Sent", "Answer"];
    let log = delivery["log"].as_array().map_or(&[][..], Vec::as_slice);
    let log: Vec<_> = log
        .iter()
        .map(|attempt| vec![time(text(attempt, "at")), answer(attempt)])
        .collect();

    let heading = html! {
        div {
            p.crumbs { a href=(visitor.path(&format!("webhooks/{webhook}"))) { "Webhook" } }
            h1 { (text(&delivery, "event_type")) }
            p.under { (delivery_state(&delivery)) }
        }
        @if visitor.writes() {
            form method="post" action=(visitor.path(&format!("webhooks/{webhook}/deliveries/{id}/redeliver"))) {
                (token(&visitor))
                button type="submit" { "Send again" }
            }
        }
    };

    let event = serde_json::to_string_pretty(&delivery["event"]).unwrap_or_default();
    let content = html! {
        (card("log", "Attempts", &html! {
            (table("Attempts", &columns, &log, "It was not sent yet."))
            dl { dt { "Next" } dd { (time_or(delivery["next_attempt_at"].as_str(), "none")) } }
        }))
        (card("event", "Event", &super::document::lines("event-text", &event)))
    };

    Ok(headed(
        &visitor,
        Section::Webhooks,
        "Delivery",
        &heading,
        &content,
    ))
}

/// `POST /dashboard/{org_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver`
pub(super) async fn redeliver(form: SubmittedForm) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let (webhook, id) = (visitor.id("webhook_id")?, visitor.id("delivery_id")?);
    let path = format!("/webhooks/{webhook}/deliveries/{id}");
    let again = format!("{path}/redeliver");
    visitor
        .client
        .send(Method::POST, &again, Some(&json!({})))
        .await?;
    // Below the org's page the path is the API's, without its first slash.
    Ok(Redirect::to(&visitor.path(&path[1..])).into_response())
}
