//! The phone: a page from which a person calls an agent of the org, with the ladder of that call beside it. The call itself is
//! `phone_call`.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response, sse};
use futures_util::stream::unfold;
use maud::{Markup, html};
use trunkline_store::names::NamedKind;

use super::assets::{PHONE_AUDIO, PHONE_SAMPLE, PHONE_SCRIPT, PHONE_STYLE};
use super::board::{Boards, Part, Place};
use super::choice::{self, Choice};
use super::document::card;
use super::frame::{Section, headed};
use super::ladder::drawn;
use super::page::ErrorPage;
use super::policy;
use super::stream;
use super::visitor::Visitor;
use crate::api::page::Page;
use crate::api::phone::{AgentView, CallView, TraceView};
use crate::api::{Api, dashboard_session};
use crate::explain::ladder::Ladder;

/// Interval at which a call and its messages are read: each time costs the org two requests to the API.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Reads between two checks of the session.
const LOOKS_BETWEEN_CHECKS: u32 = 8;

const KEYS: [&str; 12] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "*", "0", "#"];

/// `GET /dashboard/{org_id}/phone`
pub(super) async fn show(State(api): State<Api>, visitor: Visitor) -> Result<Response, ErrorPage> {
    visitor.must_write()?;
    let path = "/phone?enabled=true&limit=1";
    let enabled: Page<AgentView> = visitor.client.get(path).await?;
    let agents = Choice::of(&visitor, NamedKind::Agent).await?;
    let first = enabled.items.first().map(|agent| agent.id);
    let first = choice::text_of(&visitor.client, NamedKind::Agent, first).await?;
    let heading = html! {
        div { h1 { "Phone" } p.under { "Call an agent from this page. The call is routed, counted and recorded as one from a phone system." } }
    };
    let content = html! {
        link rel="stylesheet" href=(PHONE_STYLE.path(&visitor.base));
        div.phone {
            (handset(&visitor, &agents, &first))
            (card("passed", "What passes", &messages(None)))
        }
        script defer src=(PHONE_SCRIPT.path(&visitor.base)) {}
    };

    let page = headed(&visitor, Section::Phone, "Phone", &heading, &content);
    let mut response = page.into_response();
    let headers = response.headers_mut();
    // `guard` sets only the headers that a page hasn't set.
    headers.insert(policy::PERMISSIONS, policy::MICROPHONE);
    if let Some(policy) = policy::with_web_socket(api.dashboard_url()) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    Ok(response)
}

/// The handset, with the text of the agent that it calls at first; empty if none is enabled.
fn handset(visitor: &Visitor, agents: &Choice, first: &str) -> Markup {
    let base = &visitor.base;

    html! {
        form.card #phone data-socket=(visitor.path("phone/call")) data-ladder=(visitor.path("phone/calls")) data-calls=(visitor.path("calls"))
            data-audio=(PHONE_AUDIO.path(base)) data-sample=(PHONE_SAMPLE.path(base)) {
            fieldset data-part="callee" {
                legend.unseen { "Whom to call" }
                div.field {
                    label for="agent" { "Agent" }
                    @if first.is_empty() { p { "No agent is enabled: " a href=(visitor.path("agents")) { "create or enable one" } "." } }
                    input #agent type="text" list="agent-options" data-part="agent" data-choices=(agents.url) value=(first) autocomplete="off";
                    datalist #agent-options { (agents.options()) }
                }
                div.field {
                    label for="number" { "Or a number" }
                    input #number type="text" inputmode="tel" autocomplete="off" maxlength="40" data-part="number" aria-describedby="number-help";
                    div.help #number-help { p { "If you give one, it is routed as a caller's would be, and the agent above doesn't matter." } }
                }
                div.field { label.check { input type="checkbox" data-part="sample"; "Play a sample instead of my microphone" } }
            }

            output data-part="status" { "Ready" }
            div.go {
                button type="submit" data-part="call" disabled { "Call" }
                button.danger type="button" data-part="hang-up" hidden { "Hang up" }
            }

            fieldset.keypad data-part="keypad" disabled {
                legend.unseen { "Keypad" }
                @for key in KEYS { button type="button" data-key=(key) { (key) } }
            }
            p.pressed data-part="pressed" aria-live="polite" {}

            dl.levels {
                dt #spoken { "You" } dd { meter data-part="spoken" aria-labelledby="spoken" min="0" max="0.4" value="0" {} }
                dt #heard { "Agent" } dd { meter data-part="heard" aria-labelledby="heard" min="0" max="0.4" value="0" {} }
            }

            div.notes {
                p data-part="source" {}
                p data-part="insecure" hidden {
                    strong { "No microphone here. " }
                    "Browsers give it only to pages from this machine (localhost) and to pages over HTTPS. Until then the agent hears a sample."
                }
                noscript { p { "The phone needs a script. Call the number of an agent from your phone system instead." } }
                p { a data-part="record" hidden href=(visitor.path("calls")) { "The record of this call" } }
            }
        }
    }
}

/// Messages of the call, if it has any.
fn messages(ladder: Option<&Ladder>) -> Markup {
    html! {
        div #messages {
            @match ladder {
                Some(ladder) if !ladder.rungs.is_empty() => (drawn(ladder)),
                Some(_) => p.empty { "No message of this call is with this node yet." },
                None => p.empty { "The messages of your call appear here as they pass." },
            }
        }
    }
}

/// Watcher of one call's messages.
struct Watcher {
    api: Api,
    visitor: Visitor,
    path: String,
    looks: u32,
    /// Hash of the part that was sent last; 0 before the first.
    shown: u64,
    stage: Stage,
    _place: Place,
}

/// State of the call that is watched.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Stage {
    Up,
    /// Its end was seen; its last messages are shown at the next look.
    Over,
    /// The page has got the last messages.
    Shown,
    /// The page has got the end of the stream.
    Done,
}

/// `GET /dashboard/{org_id}/phone/calls/{call_id}/events`: the ladder of a call, sent whenever it has grown, until the call is over.
pub(super) async fn events(
    State(api): State<Api>,
    visitor: Visitor,
    Extension(boards): Extension<Boards>,
) -> Result<Response, ErrorPage> {
    visitor.must_write()?;
    let path = format!("/phone/calls/{}", visitor.id("call_id")?);
    let place = stream::place(&boards, &visitor)?;
    let watcher = Watcher {
        api,
        visitor,
        path,
        looks: 0,
        shown: 0,
        stage: Stage::Up,
        _place: place,
    };
    let events = unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok::<_, Infallible>(event), watcher))
    });

    Ok(stream::answer(events))
}

impl Watcher {
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            if self.stage == Stage::Done {
                // The page closes its side; a stream that ends by itself would be opened again.
                tokio::time::sleep(LOOK_INTERVAL).await;
                return None;
            }
            if self.stage == Stage::Shown {
                self.stage = Stage::Done;
                return Some(sse::Event::default().event("last").data("over"));
            }

            if self.looks > 0 {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
            self.looks += 1;
            let is_due = self.looks.is_multiple_of(LOOKS_BETWEEN_CHECKS);
            if is_due && !dashboard_session::is_open(&self.visitor.session, &self.api).await {
                return None;
            }

            // One look more after the end: the answer to our BYE passes after it.
            if self.stage == Stage::Over {
                self.stage = Stage::Shown;
            } else if self.is_over().await {
                self.stage = Stage::Over;
            }

            let part = self.look().await;
            if let Some(part) = part.filter(|part| part.hash != self.shown) {
                self.shown = part.hash;
                // An event can't hold a carriage return; in HTML a line feed alone means the same.
                let html = part.html.replace('\r', "");
                return Some(sse::Event::default().event("parts").data(html));
            }
        }
    }

    /// Reads the messages; `None` if that fails, and the next look tries again.
    async fn look(&self) -> Option<Part> {
        let path = format!("{}/trace", self.path);
        let trace: TraceView = self.visitor.client.get(&path).await.ok()?;
        Some(Part::new(messages(Some(&trace.into_ladder()))))
    }

    async fn is_over(&self) -> bool {
        let call = self.visitor.client.get::<CallView>(&self.path).await;
        call.is_ok_and(|call| call.ended_at.is_some())
    }
}
