//! Pages of numbers: added, verified by a call that speaks a code, and deleted.

use axum::http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::backend::text;
use super::document::{Tone, badge, card, time_or};
use super::fields::{Field, Filled, Input, inputs};
use super::forms::{button, token};
use super::frame::Section;
use super::names::Names;
use super::resource::{Action, Beside, Resource};
use super::visitor::Visitor;

pub(super) const NUMBERS: Resource =
    Resource {
        at: "numbers",
        api: "/phone/numbers",
        parameter: "number_id",
        section: Section::Numbers,
        title: "Numbers",
        noun: "number",
        about: "A call to a verified number goes to the agent that it is assigned to.",
        empty: "There is no number yet. Add the number that your phone system sends here.",
        columns: &["Number", "State", "Agent"],
        cells,
        name: |number| text(number, "phone_number").to_owned(),
        mentions: &["agent_id"],
        needs: &[],
        needs_of_one: &[],
        choices: &[],
        fields: |_| {
            vec![Field::new("phone_number", "Number", Input::Text).help(
                "E.164: a plus sign, the country code and the number, such as +442071838750.",
            )]
        },
        changeable: |_| Vec::new(),
        tidy: |_| {},
        beside,
        secret: None,
        delete: "Calls to it reach no agent any more.",
        actions: &[
            Action {
                at: "verify",
                method: Method::POST,
                api: "/phone/numbers/{id}/verify",
                named: None,
                choice: None,
                body: |_, _| json!({}),
                secret: None,
            },
            Action {
                at: "confirm",
                method: Method::POST,
                api: "/phone/numbers/{id}/verify/confirm",
                named: None,
                choice: None,
                body: |form, _| json!({"code": form.text("code").trim()}),
                secret: None,
            },
        ],
    };

fn state(number: &Value) -> Markup {
    match number["verified"] == true {
        true => badge(Tone::Good, "verified"),
        false => badge(Tone::Warn, "not verified"),
    }
}

fn cells(_: &Visitor, number: &Value, names: &Names) -> Vec<Markup> {
    vec![
        html! { (text(number, "phone_number")) },
        state(number),
        names.shown(text(number, "agent_id")),
    ]
}

fn beside(visitor: &Visitor, number: &Value, beside: &Beside) -> Markup {
    let at = format!("numbers/{}", text(number, "id"));
    let agent = text(number, "agent_id");

    let facts = html! {
        dl {
            dt { "State" } dd { (state(number)) }
            dt { "Verified" } dd { (time_or(number["verified_at"].as_str(), "not yet")) }
            dt { "Agent" }
            dd {
                @if agent.is_empty() { "none: assign it on an " a href=(visitor.path("agents")) { "agent's page" } }
                @else { a href=(visitor.path(&format!("agents/{agent}"))) { (beside.names.shown(agent)) } }
            }
        }
    };

    let code = [Field::new("code", "Code", Input::Text).help("Six digits.")];
    let verify = html! {
        p { "We call the number and speak a code. Enter it here to prove that the number is yours." }
        (button(visitor, &format!("{at}/verify"), "Call the number"))
        form method="post" action=(visitor.path(&format!("{at}/confirm"))) {
            (token(visitor))
            (inputs(&code, Filled::Empty, &[]))
            div.go { button type="submit" { "Confirm" } }
        }
    };

    html! {
        (card("number", "This number", &facts))
        @if number["verified"] != true && visitor.writes() { (card("verify", "Verify it", &verify)) }
    }
}
