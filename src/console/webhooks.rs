//! Pages of webhooks, with the deliveries of each.

use axum::http::Method;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::{Value, json};
use trunkline_store::DeliveryState;
use uuid::Uuid;

use super::backend::{BackendRefusal, Client};
use super::document::{Tone, badge, card, spaced, table, time, time_or};
use super::fields::{Field, Input};
use super::form_page::revealed;
use super::forms::{danger, token};
use super::frame::{Section, headed};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::resource::{Created, Kind, Resource, not_done};
use super::visitor::{SubmittedForm, Visitor};
use crate::api::page::Page;
use crate::api::phone::EVENT_TYPES;
use crate::api::webhooks::{DeliveryAttemptView, DeliveryView, SecretView, WebhookView, WholeView};

impl Resource for WebhookView {
    const KIND: Kind = Kind {
        at: "webhooks",
        api: "/webhooks",
        parameter: "webhook_id",
        section: Section::Webhooks,
        title: "Webhooks",
        noun: "webhook",
        about: "Each event of your calls is sent to your own service, signed, until it is taken.",
        empty: "There is no webhook yet.",
        columns: &["Address", "State", "Events", "Description"],
        delete: "Its address gets no further events.",
        actions: &[],
    };

    fn id(&self) -> Uuid {
        self.id
    }

    fn title(&self) -> String {
        self.url.clone()
    }

    fn version(&self) -> &str {
        &self.updated_at
    }

    fn cells(&self, _: &Names) -> Vec<Markup> {
        let types = self.types.len();
        vec![
            html! { code { (self.url) } },
            state(self),
            html! { @if types == 0 || types == EVENT_TYPES.len() { "all" } @else { (types) } },
            html! { (self.description.as_deref().unwrap_or_default()) },
        ]
    }

    async fn fields(webhook: Option<&Self>, _: &Client) -> Result<Vec<Field>, BackendRefusal> {
        Ok(fields(webhook))
    }

    async fn create(client: &Client, body: &Value) -> Result<Created, BackendRefusal> {
        let made: SecretView = client.post(Self::KIND.api, body).await?;
        Ok(Created {
            id: made.webhook.id,
            secret: Some((made.secret, "This is the secret that signs the events.")),
        })
    }

    async fn beside(&self, visitor: &Visitor) -> Result<Markup, BackendRefusal> {
        let path = format!("/webhooks/{}/deliveries?limit=50", self.id);
        let deliveries: Page<DeliveryView> = visitor.client.get(&path).await?;
        let columns = ["Event", "State", "Last answer", "Created"];
        let rows: Vec<_> = deliveries
            .items
            .iter()
            .map(|delivery| row(visitor, self, delivery))
            .collect();
        let rotate = format!("webhooks/{}/rotate-secret", self.id);

        Ok(html! {
            (card("deliveries", "Deliveries", &table("Deliveries", &columns, &rows, "Nothing was sent yet.")))
            @if visitor.writes() {
                (danger(visitor, &rotate, "Rotate the secret", "A new secret is shown once. The old one still signs as well for a while, so that your service can change over."))
            }
        })
    }
}

fn state(webhook: &WebhookView) -> Markup {
    html! {
        @if webhook.enabled { (badge(Tone::Good, "enabled")) } @else { (badge(Tone::Quiet, "disabled")) }
        @if let Some(reason) = &webhook.disabled_reason { " " span.soft { (reason) } }
    }
}

fn fields(webhook: Option<&WebhookView>) -> Vec<Field> {
    let words = EVENT_TYPES
        .iter()
        .map(|(word, _)| ((*word).to_owned(), (*word).to_owned()));
    let types = webhook.map_or(&[][..], |webhook| &webhook.types);
    let types: Vec<&str> = types.iter().map(|of| of.as_str()).collect();

    vec![
        Field::new("url", "Address", Input::Text)
            .holds(webhook.map(|webhook| &*webhook.url))
            .help("An https address of your service."),
        Field::new("enabled", "Enabled", Input::Check)
            .holds(webhook.is_none_or(|webhook| webhook.enabled)),
        Field::new("types", "Events", Input::Checks(words.collect()))
            .holds(&*types)
            .help("None ticked: all of them."),
        Field::new("description", "Description", Input::Text)
            .holds(webhook.and_then(|webhook| webhook.description.as_deref())),
    ]
}

fn row(visitor: &Visitor, webhook: &WebhookView, delivery: &DeliveryView) -> Vec<Markup> {
    let page = format!("webhooks/{}/deliveries/{}", webhook.id, delivery.id);
    vec![
        html! { a.words href=(visitor.path(&page)) { (delivery.event_type.as_str()) } },
        delivery_state(delivery.status),
        html! { @if let Some(last) = delivery.log.last() { (answer(last)) } @else { span.soft { "none" } } },
        time(&delivery.created_at),
    ]
}

fn delivery_state(state: DeliveryState) -> Markup {
    let tone = match state {
        DeliveryState::Delivered => Tone::Good,
        DeliveryState::Failed => Tone::Bad,
        DeliveryState::Pending => Tone::Busy,
    };
    badge(tone, state.as_str())
}

fn answer(attempt: &DeliveryAttemptView) -> Markup {
    html! {
        @if let Some(status) = attempt.http_status { (status) }
        @if let Some(fault) = &attempt.fault { " " span.words { (spaced(fault)) } }
        " " span.soft.words { (attempt.took_ms) "\u{a0}ms" }
    }
}

/// `POST /dashboard/{org_id}/webhooks/{webhook_id}/rotate-secret`: the new secret is in this answer only.
pub(super) async fn rotate_secret(form: SubmittedForm) -> Result<Response, ErrorPage> {
    const SENTENCE: &str =
        "This is the new secret. Events are signed with the old one as well for a while.";
    let (visitor, kind) = (&form.visitor, WebhookView::KIND);
    visitor.must_write()?;

    let id = visitor.id(kind.parameter)?;
    let path = format!("/webhooks/{id}/rotate-secret");
    match visitor.client.post(&path, &json!({})).await {
        Ok(SecretView { secret, .. }) => {
            let page = visitor.path(&format!("webhooks/{id}"));
            let shown = revealed(visitor, kind.section, kind.title, &secret, SENTENCE, &page);
            Ok(shown.into_response())
        }
        Err(refused) => not_done(visitor, &kind, &refused),
    }
}

/// `GET /dashboard/{org_id}/webhooks/{webhook_id}/deliveries/{delivery_id}`
pub(super) async fn delivery(visitor: Visitor) -> Result<Html, ErrorPage> {
    let (webhook, id) = (visitor.id("webhook_id")?, visitor.id("delivery_id")?);
    let path = format!("/webhooks/{webhook}/deliveries/{id}");
    let WholeView { delivery, event } = visitor.client.get(&path).await?;
    let columns = ["Sent", "Answer"];
    let log: Vec<_> = delivery
        .log
        .iter()
        .map(|attempt| vec![time(&attempt.at), answer(attempt)])
        .collect();

    let heading = html! {
        div {
            p.crumbs { a href=(visitor.path(&format!("webhooks/{webhook}"))) { "Webhook" } }
            h1 { (delivery.event_type.as_str()) }
            p.under { (delivery_state(delivery.status)) }
        }
        @if visitor.writes() {
            form method="post" action=(visitor.path(&format!("webhooks/{webhook}/deliveries/{id}/redeliver"))) {
                (token(&visitor))
                button type="submit" { "Send again" }
            }
        }
    };

    let event: Value = serde_json::from_str(event.get()).unwrap_or_default();
    let event = serde_json::to_string_pretty(&event).unwrap_or_default();
    let content = html! {
        (card("log", "Attempts", &html! {
            (table("Attempts", &columns, &log, "It was not sent yet."))
            dl { dt { "Next" } dd { (time_or(delivery.next_attempt_at.as_deref(), "none")) } }
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
