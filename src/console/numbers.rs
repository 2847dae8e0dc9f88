//! Pages of numbers: added, verified by a call that speaks a code, and deleted.

use axum::http::Method;
use maud::{Markup, html};
use serde_json::json;
use uuid::Uuid;

use super::backend::{BackendRefusal, Client};
use super::document::{Tone, badge, card, time_or};
use super::fields::{Field, Input, inputs};
use super::forms::{button, token};
use super::frame::Section;
use super::names::Names;
use super::resource::{Action, Kind, Resource};
use super::visitor::Visitor;
use crate::api::phone::NumberView;

impl Resource for NumberView {
    const KIND: Kind = Kind {
        at: "numbers",
        api: "/phone/numbers",
        parameter: "number_id",
        section: Section::Numbers,
        title: "Numbers",
        noun: "number",
        about: "A call to a verified number goes to the agent that it is assigned to.",
        empty: "There is no number yet. Add the number that your phone system sends here.",
        columns: &["Number", "State", "Agent"],
        delete: "Calls to it reach no agent any more.",
        actions: &[
            Action {
                at: "verify",
                method: Method::POST,
                api: "/phone/numbers/{id}/verify",
                named: None,
                choice: None,
                body: |_, _| json!({}),
            },
            Action {
                at: "confirm",
                method: Method::POST,
                api: "/phone/numbers/{id}/verify/confirm",
                named: None,
                choice: None,
                body: |form, _| json!({"code": form.text("code").trim()}),
            },
        ],
    };

    fn id(&self) -> Uuid {
        self.id
    }

    fn title(&self) -> String {
        self.phone_number.to_string()
    }

    fn mentioned(&self) -> Option<Uuid> {
        self.agent_id
    }

    fn cells(&self, names: &Names) -> Vec<Markup> {
        vec![
            html! { (self.phone_number) },
            state(self),
            names.shown(self.agent_id),
        ]
    }

    async fn fields(number: Option<&Self>, _: &Client) -> Result<Vec<Field>, BackendRefusal> {
        // A number stays as it is: another one is added.
        Ok(match number {
            Some(_) => Vec::new(),
            None => vec![Field::new("phone_number", "Number", Input::Text).help(
                "E.164: a plus sign, the country code and the number, such as +442071838750.",
            )],
        })
    }

    async fn beside(&self, visitor: &Visitor) -> Result<Markup, BackendRefusal> {
        let names = Names::of(&visitor.client, self.agent_id.into_iter().collect()).await?;
        Ok(html! {
            (card("number", "This number", &facts(visitor, self, &names)))
            @if !self.verified && visitor.writes() { (card("verify", "Verify it", &verify(visitor, self))) }
        })
    }
}

fn state(number: &NumberView) -> Markup {
    match number.verified {
        true => badge(Tone::Good, "verified"),
        false => badge(Tone::Warn, "not verified"),
    }
}

fn facts(visitor: &Visitor, number: &NumberView, names: &Names) -> Markup {
    html! {
        dl {
            dt { "State" } dd { (state(number)) }
            dt { "Verified" } dd { (time_or(number.verified_at.as_deref(), "not yet")) }
            dt { "Agent" }
            dd {
                @match number.agent_id {
                    None => { "none: assign it on an " a href=(visitor.path("agents")) { "agent's page" } }
                    Some(agent) => a href=(visitor.path(&format!("agents/{agent}"))) { (names.shown(Some(agent))) },
                }
            }
        }
    }
}

fn verify(visitor: &Visitor, number: &NumberView) -> Markup {
    let at = format!("numbers/{}", number.id);
    let code = [Field::new("code", "Code", Input::Text).help("Six digits.")];
    html! {
        p { "We call the number and speak a code. Enter it here to prove that the number is yours." }
        (button(visitor, &format!("{at}/verify"), "Call the number"))
        form method="post" action=(visitor.path(&format!("{at}/confirm"))) {
            (token(visitor))
            (inputs(&code, None, &[]))
            div.go { button type="submit" { "Confirm" } }
        }
    }
}
