//! Numbers of an agent, on its page. The form carries the numbers that it was made with, and each one whose box was changed is added or removed on
//! its own: two people who change different numbers of one agent don't undo each other's changes.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::backend::{BackendRefusal, items, text};
use super::fields::{Field, Filled, Input, inputs};
use super::forms::token;
use super::frame::{Section, headed};
use super::page::ErrorPage;
use super::resource::{refusal, shown_status};
use super::visitor::{SubmittedForm, Visitor};
use crate::api::id_of;

/// Card with a checkbox for each verified number that is assigned to this agent or to none. Those of other agents are only counted.
pub(super) fn card(visitor: &Visitor, agent: &Value, numbers: &Value) -> Markup {
    let verified = items(numbers)
        .iter()
        .filter(|number| number["verified"] == true);
    let is_free = |number: &&Value| number["agent_id"].is_null();
    let is_own = |number: &&Value| number["agent_id"] == agent["id"];
    let choosable = verified
        .clone()
        .filter(|number| is_free(number) || is_own(number));

    let pairs = choosable.map(|number| {
        let id = text(number, "id").to_owned();
        (id, text(number, "phone_number").to_owned())
    });

    let own: Vec<&str> = verified
        .clone()
        .filter(is_own)
        .map(|number| text(number, "id"))
        .collect();
    let pairs: Vec<_> = pairs.collect();
    let others = verified.count() - pairs.len();
    let is_choice = !pairs.is_empty();

    let fields = [Field::new(
        "number",
        "Verified numbers",
        Input::Checks(pairs),
    )];
    let shown = json!({"number": own});
    let at = format!("agents/{}/inbound-numbers", text(agent, "id"));

    html! {
        form method="post" action=(visitor.path(&at)) {
            (token(visitor))
            @for id in &own { input type="hidden" name="was" value=(id); }
            fieldset.all disabled[!visitor.writes()] {
                (inputs(&fields, Filled::With(&shown), &[]))
                @if visitor.writes() && is_choice { div.go { button type="submit" { "Assign" } } }
            }
        }
        @if others > 0 {
            p.soft {
                "Numbers of other agents: " (others) ". To move one, remove it on the other agent's page first. "
                a href=(visitor.path("numbers")) { "All numbers" }
            }
        }
        @if !text(numbers, "next").is_empty() { p.soft { "Of the org's numbers, the newest " (items(numbers).len()) " are shown." } }
    }
}

/// `POST /dashboard/{org_id}/agents/{agent_id}/inbound-numbers`: adds and removes the numbers whose boxes were changed. It stops at the first one
/// that the API refuses.
pub(super) async fn assign(form: SubmittedForm) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let agent = visitor.id("agent_id")?;
    let path = format!("/phone/sip/agents/{agent}/inbound-numbers");
    let (was, now): (Vec<&str>, Vec<&str>) = (
        form.values("was").collect(),
        form.values("number").collect(),
    );

    for number in was.iter().filter(|number| !now.contains(number)) {
        // The text is the form's, and becomes a part of a path.
        let number = id_of(number).map_err(|_| ErrorPage::not_found())?;
        let one = format!("{path}/{number}");
        match visitor.client.send(Method::DELETE, &one, None).await {
            Ok(_) => {}
            // It was taken from the agent meanwhile.
            Err(refused) if refused.status == StatusCode::NOT_FOUND => {}
            Err(refused) => return not_done(visitor, &refused),
        }
    }
    for number in now.iter().filter(|number| !was.contains(number)) {
        let body = json!({"phone_number_id": number});
        if let Err(refused) = visitor.client.send(Method::POST, &path, Some(&body)).await {
            return not_done(visitor, &refused);
        }
    }

    let page = visitor.path(&format!("agents/{agent}?done=done"));
    Ok(Redirect::to(&page).into_response())
}

fn not_done(visitor: &Visitor, refused: &BackendRefusal) -> Result<Response, ErrorPage> {
    let status = shown_status(refused)?;
    let content = html! {
        (refusal(refused))
        p { a.button href=(visitor.path("agents")) { "Back to Agents" } }
    };
    let heading = html! { h1 { "That did not work" } };
    let page = headed(visitor, Section::Agents, "Agents", &heading, &content);
    Ok((status, page).into_response())
}
