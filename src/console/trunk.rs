//! Page of the inbound trunk: its credentials, the settings for each phone system, registrations, failed log-ins, and what the last
//! examination of the phone system found.

use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::{Value, json};
use trunkline_store::{AuthFailure, Narrow, auth_failures};
use uuid::Uuid;

use super::backend::BackendRefusal;
use super::board::{Boards, Part};
use super::calls::last_of_trunk;
use super::document::{Tone, badge, card, copied, findings, lines, moment, table, time};
use super::fields::{Field, Input, changes, choices, conflicts};
use super::form_page::{done, form_of, refusal, shown_status};
use super::forms::{button, danger, token};
use super::frame::{Section, headed};
use super::page::{ErrorPage, Html};
use super::stream::{self, Looked, Shown};
use super::visitor::{FormFields, SubmittedForm, Visitor};
use crate::api::Api;
use crate::api::page::Page;
use crate::api::phone::{InboundTrunkView, OldPairView};
use crate::explain::log_in;
use crate::explain::pbx::Pbx;
use crate::explain::pbx_settings::{PASSWORD, Trunk, settings};
use crate::explain::report::Report;

/// The API's path of the trunk.
const TRUNK: &str = "/phone/sip/inbound-trunk";
/// The API's path of the credentials from before a rotation.
const OLD_CREDENTIALS: &str = "/phone/sip/inbound-trunk/old-credentials";

/// Failed log-ins that are shown, and the interval of looks at them.
const FAILURES: u32 = 10;
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Phone systems with settings to paste.
const SYSTEMS: [Pbx; 7] = [
    Pbx::Asterisk,
    Pbx::FreeSwitch,
    Pbx::FreePbx,
    Pbx::ThreeCx,
    Pbx::Yeastar,
    Pbx::Grandstream,
    Pbx::Cisco,
];

/// `GET /dashboard/{org_id}/trunk`
pub(super) async fn show(
    State(api): State<Api>,
    visitor: Visitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let content = match found(&visitor).await? {
        None => absent(&visitor),
        Some(trunk) => {
            let parts = parts(&api, &visitor, &trunk).await?;
            let form = edit_form(&visitor, &trunk, None, None);
            html! { (done(raw.as_deref())) div.edit { div { (parts) } div { (form) (more(&visitor)) } } }
        }
    };
    Ok(shown(&visitor, &content))
}

fn shown(visitor: &Visitor, content: &Markup) -> Html {
    let heading = html! { div { h1 { "Inbound trunk" } p.under { "Your phone system sends its calls here." } } };
    headed(visitor, Section::Trunk, "Inbound trunk", &heading, content)
}

/// Returns the org's trunk, if it has one.
pub(super) async fn found(visitor: &Visitor) -> Result<Option<InboundTrunkView>, ErrorPage> {
    match visitor.client.get(TRUNK).await {
        Ok(trunk) => Ok(Some(trunk)),
        Err(refused) if refused.status == StatusCode::NOT_FOUND => Ok(None),
        Err(refused) => Err(refused.into()),
    }
}

fn absent(visitor: &Visitor) -> Markup {
    let content = html! {
        p { "There is no inbound trunk yet. It gives your phone system an address, a user name and a password to send calls with." }
        @if visitor.writes() { (button(visitor, "trunk/create", "Create the trunk")) }
    };
    card("trunk", "No trunk", &content)
}

/// Cards with the trunk's state, each read from the API or the store.
async fn parts(
    api: &Api,
    visitor: &Visitor,
    trunk: &InboundTrunkView,
) -> Result<Markup, ErrorPage> {
    let failures = latest_failures(api, visitor.org).await?;
    let old: Page<OldPairView> = visitor.client.get(OLD_CREDENTIALS).await?;
    let report: Report = visitor.client.get(&format!("{TRUNK}/doctor")).await?;

    let realm = api.config().sip.realm();
    let calls = last_of_trunk(visitor, trunk.id).await?;

    Ok(html! {
        (card("credentials", "Credentials", &credentials(visitor, trunk, &old.items)))
        (card("paste", "Settings for your phone system", &paste(trunk, &realm)))
        (card("registrations", "Registrations", &registrations(trunk)))
        div data-stream=(visitor.path("trunk/events")) { (failed(&failures)) }
        (card("last-calls", "Last calls", &calls))
        (card("report", "How your phone system speaks SIP", &examined(&report)))
    })
}

fn credentials(visitor: &Visitor, trunk: &InboundTrunkView, old: &[OldPairView]) -> Markup {
    html! {
        dl {
            dt { "Address" } dd { (copied("sip-endpoint", &trunk.sip_endpoint)) }
            dt { "User name" } dd { (copied("sip-username", &trunk.auth_username)) }
            @if let Some(password) = &trunk.auth_password {
                dt { "Password" }
                dd { details { summary { "Show the password" } (copied("sip-password", password)) } }
            }
        }
        @if visitor.writes() {
            (danger(visitor, "trunk/rotate-credentials", "Rotate the credentials",
                "A new user name and password take effect at once. The old ones stay good for a day, so that you can change the phone system."))
        }
        @if !old.is_empty() { (old_credentials(visitor, old)) }
    }
}

/// User names from before a rotation that still work.
fn old_credentials(visitor: &Visitor, old: &[OldPairView]) -> Markup {
    html! {
        h3 { "Still good" }
        ul.plain {
            @for pair in old {
                li { code { (pair.auth_username) } " until " (time(&pair.expires_at)) }
            }
        }
        @if visitor.writes() {
            (danger(visitor, "trunk/end-old-credentials", "End the old credentials",
                "A phone system that still uses them can't call any more."))
        }
    }
}

fn paste(trunk: &InboundTrunkView, realm: &str) -> Markup {
    let values = Trunk {
        endpoint: &trunk.sip_endpoint,
        username: &trunk.auth_username,
        // A session that only reads doesn't get the password: its settings have a placeholder.
        password: trunk.auth_password.as_deref().unwrap_or(PASSWORD),
        realm,
    };

    html! {
        @for system in SYSTEMS {
            details.paste {
                summary { (system.name()) }
                (lines(&format!("paste-{}", system.name().to_lowercase().replace(' ', "-")), &settings(system, values)))
            }
        }
    }
}

fn registrations(trunk: &InboundTrunkView) -> Markup {
    let columns = ["Contact", "From", "Phone system", "State", "Until"];

    let rows: Vec<_> = trunk
        .registrations
        .iter()
        .map(|registration| {
            vec![
                html! { code { (registration.contact) } },
                html! { (registration.source) " by " (registration.transport) },
                html! { (registration.user_agent.as_deref().unwrap_or_default()) },
                match registration.reachable {
                    true => badge(Tone::Good, "reachable"),
                    false => badge(Tone::Bad, "doesn't answer"),
                },
                time(&registration.expires_at),
            ]
        })
        .collect();
    table(
        "Registrations",
        &columns,
        &rows,
        "No phone system is registered. One that only sends calls needn't be.",
    )
}

/// Returns the newest failed log-ins at the org's trunk.
async fn latest_failures(api: &Api, org: Uuid) -> Result<Vec<AuthFailure>, ErrorPage> {
    let any = Narrow::default();
    let page = api.read(move |tx| auth_failures::list(tx, org, &any, None, FAILURES));
    Ok(page.await?.items)
}

/// Failed log-ins, newest first.
fn failed(failures: &[AuthFailure]) -> Markup {
    let columns = ["When", "From", "User name", "What is wrong"];
    let rows: Vec<_> = failures
        .iter()
        .map(|failure| {
            vec![
                moment(failure.at),
                html! { (failure.source) },
                html! { code { (failure.username) } },
                html! { (log_in::sentence(&failure.part)) },
            ]
        })
        .collect();

    let table = table("Failed log-ins", &columns, &rows, "No log-in has failed.");
    card(
        "failures",
        "Failed log-ins",
        &html! {
            p.soft { "Shown as they happen, while a password is typed into a phone system." }
            (table)
        },
    )
}

/// `GET /dashboard/{org_id}/trunk/events`: failed log-ins as they happen.
pub(super) async fn events(
    State(api): State<Api>,
    visitor: Visitor,
    Extension(boards): Extension<Boards>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Result<Response, ErrorPage> {
    let place = stream::place(&boards, &visitor)?;
    let shown = Shown::of(&headers, raw.as_deref());
    let (of, org) = (api.clone(), visitor.org);
    let look = move || {
        let api = of.clone();
        async move {
            let failures = latest_failures(&api, org).await;
            // A read that fails gives no part, and the next look tries again.
            Looked::Parts(
                failures
                    .iter()
                    .map(|failures| Part::new(failed(failures)))
                    .collect(),
            )
        }
    };

    Ok(stream::repeated(
        api,
        visitor,
        shown,
        place,
        LOOK_INTERVAL,
        look,
    ))
}

fn examined(report: &Report) -> Markup {
    html! {
        p.soft { (report.how) }
        @if let Some(system) = report.pbx.as_deref().or(report.user_agent.as_deref()) {
            p { "Last examined: " strong { (system) } @if let Some(at) = &report.at { ", " (time(at)) } }
        }
        (findings(&report.findings))
    }
}

fn fields(trunk: &InboundTrunkView) -> Vec<Field> {
    let ways = choices(&[
        ("refer", "Ask the phone system (REFER)"),
        ("bridge", "Call the destination from here"),
        ("auto", "The way that is safe for the caller"),
    ]);

    vec![
        Field::new("name", "Name", Input::Text).holds(&*trunk.name),
        Field::new("phone_numbers", "Numbers", Input::Lines)
            .holds(&*trunk.phone_numbers)
            .help("Verified numbers, one a line, in the order in which routing tries them."),
        Field::new("default_country", "Country", Input::Text)
            .holds(trunk.default_country.as_deref())
            .help("ISO code, such as GB: how numbers in national form are read."),
        Field::new("allowed_addresses", "Allowed addresses", Input::Lines)
            .holds(&*trunk.allowed_addresses)
            .help("Addresses or networks, one a line, that may call the numbers above without credentials."),
        Field::new("max_concurrent_calls", "Most calls at once", Input::Number)
            .holds(trunk.max_concurrent_calls)
            .help("Empty: no limit of its own."),
        Field::new("transfer_way", "Transfers", Input::Select(ways)).holds(trunk.transfer_way.as_str()),
        Field::new("bridge_when_refer_fails", "Call the destination from here if REFER fails", Input::Check)
            .holds(trunk.bridge_when_refer_fails),
        Field::new("krisp_enabled", "Noise suppression", Input::Check)
            .holds(trunk.krisp_enabled),
        Field::new("rtp_from_any_address", "Take audio from any address", Input::Check)
            .holds(trunk.rtp_from_any_address)
            .help("For a phone system behind NAT whose audio comes from another address than its SDP names."),
    ]
}

fn edit_form(
    visitor: &Visitor,
    trunk: &InboundTrunkView,
    submitted: Option<&FormFields>,
    refused: Option<&BackendRefusal>,
) -> Markup {
    html! {
        form.card method="post" action=(visitor.path("trunk")) {
            h2 { "Settings" }
            (token(visitor))
            input type="hidden" name="version" value=(trunk.updated_at);
            fieldset.all disabled[!visitor.writes()] {
                (form_of(&fields(trunk), submitted, refused))
                @if visitor.writes() { div.go { button type="submit" { "Save" } } }
            }
        }
    }
}

fn more(visitor: &Visitor) -> Markup {
    html! {
        @if visitor.writes() {
            div.commands {
                (button(visitor, "trunk/sync", "List every verified number"))
                (danger(visitor, "trunk/delete", "Delete", "Your phone system can't send calls any more. Calls that are up continue."))
            }
        }
    }
}

/// `POST /dashboard/{org_id}/trunk`: changes the settings.
pub(super) async fn update(
    State(api): State<Api>,
    form: SubmittedForm,
) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let mut trunk = found(visitor).await?.ok_or_else(ErrorPage::not_found)?;

    let version = form.text("version");
    let mut is_current = version == trunk.updated_at;
    let (mut status, mut refused) = (StatusCode::CONFLICT, None);
    // An old form isn't compared with a newer trunk: what was left alone in it would count as a change back.
    if is_current {
        let body = changes(&fields(&trunk), &form.fields, &Value::Null);
        if body.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(saved(visitor));
        }

        match visitor.client.change(TRUNK, version, &body).await {
            Ok(_) => return Ok(saved(visitor)),
            Err(outdated) if outdated.status == StatusCode::PRECONDITION_FAILED => {
                // Another form was saved between the look at the trunk and the change.
                trunk = found(visitor).await?.ok_or_else(ErrorPage::not_found)?;
                is_current = false;
            }
            Err(other) => {
                status = shown_status(&other)?;
                refused = Some(other);
            }
        }
    }

    let differing = conflicts(&fields(&trunk), &form.fields);
    let edit = edit_form(visitor, &trunk, Some(&form.fields), refused.as_ref());
    let content = html! {
        @if !is_current { (super::form_page::conflict(&differing)) }
        div.edit { div { (parts(&api, visitor, &trunk).await?) } div { (edit) } }
    };
    Ok((status, shown(visitor, &content)).into_response())
}

fn saved(visitor: &Visitor) -> Response {
    Redirect::to(&visitor.path("trunk?done=saved")).into_response()
}

/// Sends a command about the trunk, and shows the trunk again.
async fn command(
    form: &SubmittedForm,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;

    match visitor.client.send(method, path, body.as_ref()).await {
        Ok(_) => Ok(Redirect::to(&visitor.path("trunk?done=done")).into_response()),
        Err(refused) => {
            let status = shown_status(&refused)?;
            let content = html! {
                (refusal(&refused))
                p { a.button href=(visitor.path("trunk")) { "Back to the trunk" } }
            };
            Ok((status, shown(visitor, &content)).into_response())
        }
    }
}

/// `POST /dashboard/{org_id}/trunk/create`
pub(super) async fn create(form: SubmittedForm) -> Result<Response, ErrorPage> {
    command(&form, Method::POST, TRUNK, Some(json!({}))).await
}

/// `POST /dashboard/{org_id}/trunk/delete`
pub(super) async fn delete(form: SubmittedForm) -> Result<Response, ErrorPage> {
    command(&form, Method::DELETE, TRUNK, None).await
}

/// `POST /dashboard/{org_id}/trunk/sync`
pub(super) async fn sync(form: SubmittedForm) -> Result<Response, ErrorPage> {
    command(
        &form,
        Method::POST,
        &format!("{TRUNK}/sync"),
        Some(json!({})),
    )
    .await
}

/// `POST /dashboard/{org_id}/trunk/rotate-credentials`
pub(super) async fn rotate(form: SubmittedForm) -> Result<Response, ErrorPage> {
    let path = format!("{TRUNK}/rotate-credentials");
    command(&form, Method::POST, &path, Some(json!({}))).await
}

/// `POST /dashboard/{org_id}/trunk/end-old-credentials`
pub(super) async fn end_old_credentials(form: SubmittedForm) -> Result<Response, ErrorPage> {
    command(&form, Method::DELETE, OLD_CREDENTIALS, None).await
}
