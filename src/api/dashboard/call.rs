//! Page of one call: its record, the ladder diagram of its messages, and the explanation of its routing, in the same
//! sentences as in the API and the CLI.

use axum::extract::{Request, State};
use maud::{Markup, PreEscaped, html};
use trunkline_store::{Call, Kind};

use super::org::org_of_session;
use super::page::{ErrorPage, Html, base};
use super::view::{document, lasted, time};
use crate::api::Api;
use crate::api::dashboard_session;
use crate::api::path::Named;
use crate::api::phone::{explained, found, picture};

/// `GET /dashboard/{org_id}/calls/{call_id}`
pub(super) async fn show(
    state: State<Api>,
    named: Named,
    request: Request,
) -> Result<Html, ErrorPage> {
    let (parts, _) = request.into_parts();
    let session = dashboard_session::of(&parts, &state)
        .await?
        .ok_or_else(ErrorPage::logged_out)?;
    let org = org_of_session(&named, &session)?;
    let id = named.id("call_id", Kind::Call)?;
    let call = found(&state, org, id).await?;
    let explained = explained(&state, &call).await?;
    let ladder = picture(&state, call.clone()).await?;
    let base = base(&state);
    let page = page(base, &call, &explained.explanation, &ladder);

    Ok(Html(document(
        "Call",
        &format!("{base}/dashboard/style.css"),
        &page,
    )))
}

fn page(base: &str, call: &Call, explanation: &[String], ladder: &str) -> Markup {
    let status = call.status.as_str().replace('_', " ");
    html! {
        header {
            div.who {
                h1 { "Call from " (call.from_number) " to " (call.to_number) }
                p { (time(call.started_at)) }
            }
            nav aria-label="Sections" {
                ul { li { a href={ (base) "/dashboard/" (call.org_id) "#calls" } { "All calls" } } }
            }
        }

        main {
            section aria-labelledby="record-title" {
                h2 id="record-title" { "What happened" }
                dl {
                    dt { "Status" } dd { (status) }
                    @if let Some(reason) = &call.reason { dt { "Reason" } dd { code { (reason) } } }
                    @if let Some(code) = call.sip_code { dt { "SIP status" } dd { (code) } }
                    dt { "Lasted" } dd { (lasted(call)) }
                    dt { "Call-ID" } dd { code { (call.caller_call_id) } }
                }
            }
            section aria-labelledby="ladder-title" {
                h2 id="ladder-title" { "What passed" }
                @if !ladder.contains("marker-end") {
                    p.empty { "No message of this call is with this node: they are kept for a while, where the call was." }
                } @else {
                    // The SVG was made from escaped text.
                    div.ladder tabindex="0" role="region" aria-label="Ladder of the call" { (PreEscaped(ladder)) }
                }
            }
            section aria-labelledby="why-title" {
                h2 id="why-title" { "Why it went there" }
                @if explanation.is_empty() {
                    p.empty { "The call was begun by us: there was nothing to decide." }
                } @else {
                    ol.why { @for sentence in explanation { li { (sentence) } } }
                }
            }
        }
    }
}
