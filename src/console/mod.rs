//! Console: HTML pages for the people of an org, readable without a script. A login link opens a session, which `api::dashboard_session` keeps.
//! [`router`] has the API beside the pages.
//!
//! Most pages read and change data through the API (`backend`), and read its answers as its own views. Members, live calls, figures, handoffs of a
//! call and failed log-ins use the store itself.

mod agents;
mod assets;
mod attention;
mod audit_log;
mod backend;
mod board;
mod bot_token;
mod call;
mod calls;
mod cause;
mod chart;
mod choice;
mod difference;
mod document;
mod fields;
mod figures;
mod form_page;
mod forms;
mod frame;
mod invisible;
mod keys;
mod ladder;
mod live;
mod login;
mod media;
mod members;
mod names;
mod numbers;
mod operator;
mod outbound;
mod overview;
mod page;
mod phone;
mod phone_call;
mod plain_http;
mod policy;
mod resource;
mod route_test;
mod stream;
mod trunk;
mod usage;
mod visitor;
mod webhooks;

use std::convert::Infallible;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};

use crate::api::path::Named;
use crate::api::phone::{AgentView, DestinationView, NumberView, OutboundTrunkView};
use crate::api::routes::Routes;
use crate::api::webhooks::WebhookView;
use crate::api::{self, Api, Operator, gzip};
use crate::config::Config;
use backend::Backend;
use board::Boards;
use page::ErrorPage;
use phone_call::Phones;
use plain_http::is_permitted;

/// Every path of the API and the console, its parameters in braces.
pub fn paths(config: &Config) -> Vec<String> {
    api::routes(config).merge(routes()).into_paths()
}

/// Makes the API and the console as a service.
pub fn router(api: Api) -> Router {
    with_api(api::routes(api.config()), api)
}

/// Makes the same for the operator, who has routes beside the others. Requests need an `Operator` among their extensions, or a key.
pub(crate) fn operator_router(api: Api) -> Router {
    with_api(operators(api.config()), api)
}

/// Makes a service that takes every request for one of the operator with this uid.
pub fn router_of_operator(api: Api, uid: u32) -> Router {
    operator_router(api).layer(Extension(Operator::new(uid)))
}

fn operators(config: &Config) -> Routes {
    api::routes(config).merge(api::operators_routes(config))
}

/// Adds the console to routes of the API. Its pages use routes of their own, none of which is a page.
fn with_api(of_api: Routes, api: Api) -> Router {
    let served = |routes| api::served(routes, api.clone(), |_| None);
    let org = served(api::routes(api.config()));
    let operator = served(operators(api.config()));
    let backend = Backend::new(org, operator, api.config());
    let prefix = from_fn_with_state(api.clone(), page::with_prefix);

    api::served(of_api.merge(routes()), api, unknown)
        .layer(Extension(backend))
        .layer(prefix)
        .layer(gzip::layer())
        .layer(map_response(gzip::tag))
}

/// Routes of the console.
fn routes() -> Routes {
    let routes = Routes::new()
        .route(
            "/partner-login",
            get(login::consume)
                .head(login::look)
                .post(login::confirm)
                .layer::<_, Infallible>(DefaultBodyLimit::max(login::LONGEST_FORM)),
        )
        .route("/", get(login::root))
        .route("/dashboard", get(login::home))
        .route("/dashboard/logout", post(login::log_out))
        .route("/dashboard/assets/{asset}", get(asset))
        .nest(operator::AT, operator::routes())
        .nest("/dashboard/{org_id}", of_org());

    let routes = routes
        .merge(resource::routes::<AgentView>())
        .merge(resource::routes::<NumberView>())
        .merge(resource::routes::<OutboundTrunkView>())
        .merge(resource::routes::<DestinationView>())
        .merge(resource::routes::<WebhookView>());
    let (boards, phones) = (Boards::default(), Phones::default());

    routes.wrapped(|methods| {
        methods
            .layer::<_, Infallible>(Extension(boards.clone()))
            .layer::<_, Infallible>(Extension(phones.clone()))
            .layer(from_fn(guarded))
    })
}

fn of_org() -> Routes {
    let routes = Routes::new()
        .route("/", get(overview::show))
        .route("/live", get(live::show))
        .route("/live/events", get(live::events))
        .route("/calls", get(calls::list))
        .route("/calls.csv", get(calls::csv))
        .route("/usage", get(usage::show))
        .route("/usage.csv", get(usage::csv))
        .route("/calls/{call_id}", get(call::show))
        .route("/calls/{call_id}/trace.pcap", get(call::pcap))
        .route("/calls/{call_id}/trace.flow", get(call::flow))
        .route("/calls/{call_id}/events", get(call::events))
        .route("/calls/{call_id}/hangup", post(live::hang_up))
        .route("/calls/{call_id}/hold", post(live::hold))
        .route("/calls/{call_id}/resume", post(live::resume))
        .route("/calls/{call_id}/transfer", post(live::transfer))
        .route("/phone", get(phone::show))
        .route("/phone/call", get(phone_call::open))
        .route("/phone/calls/{call_id}/events", get(phone::events))
        .route("/choices/{kind}", get(choice::show))
        .route("/route-test", get(route_test::show));

    let routes = routes
        .route("/trunk", get(trunk::show).post(trunk::update))
        .route("/trunk/events", get(trunk::events))
        .route("/trunk/create", post(trunk::create))
        .route("/trunk/delete", post(trunk::delete))
        .route("/trunk/sync", post(trunk::sync))
        .route("/trunk/rotate-credentials", post(trunk::rotate))
        .route(
            "/trunk/end-old-credentials",
            post(trunk::end_old_credentials),
        )
        .route(
            "/webhooks/{webhook_id}/rotate-secret",
            post(webhooks::rotate_secret),
        )
        .route(
            "/webhooks/{webhook_id}/deliveries/{delivery_id}",
            get(webhooks::delivery),
        )
        .route(
            "/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver",
            post(webhooks::redeliver),
        );

    routes
        .route("/keys", get(keys::show).post(keys::create))
        .route("/keys/{api_key_id}/revoke", post(keys::revoke))
        .route("/keys/bot-token", post(bot_token::create))
        .route("/keys/bot-token/promote", post(bot_token::promote))
        .route("/keys/bot-token/delete", post(bot_token::delete))
        .route("/members", get(members::show))
        .route("/members/login-links", post(members::invite_person))
        .route("/members/{member_id}/role", post(members::set_role))
        .route("/members/{member_id}/remove", post(members::remove))
        .route(
            "/members/sessions/{sessionId}/end",
            post(members::end_session),
        )
        .route("/audit", get(audit_log::show))
        .route("/audit.csv", get(audit_log::csv))
}

/// `GET /dashboard/assets/{asset}`
async fn asset(named: Named) -> Result<Response, ErrorPage> {
    let found = named.text("asset").and_then(assets::found);
    found.ok_or_else(ErrorPage::not_found)
}

/// Headers of every page: nothing is loaded from other sites, framed, cached or sent to other sites as a referrer.
const GUARDS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, policy::CONTENT),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (policy::PERMISSIONS, policy::NO_DEVICES),
    // Under `no-referrer` browsers send forms with the `Origin` `null`.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

async fn guarded(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let backend = parts.extensions.get::<Backend>();
    // A router without a backend serves no data.
    let is_permitted = backend.is_none_or(|backend| is_permitted(&parts, &backend.http));
    // Assets are served even so: the page that refuses needs its style sheet.
    if !is_permitted && !parts.uri.path().starts_with("/dashboard/assets/") {
        return guard(plain_http::refused().into_response());
    }
    guard(next.run(Request::from_parts(parts, body)).await)
}

fn guard(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let is_public = |value: &HeaderValue| value.as_bytes().starts_with(b"public");
    // Streams have `no-cache`, which would still allow storing them.
    if !headers.get(header::CACHE_CONTROL).is_some_and(is_public) {
        headers.remove(header::CACHE_CONTROL);
    }

    for (name, value) in GUARDS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Page for a path of the console that doesn't exist; `None` for a path of the API.
fn unknown(path: &str) -> Option<Response> {
    let is_ours = path.starts_with("/dashboard/") || path.starts_with(operator::AT);
    is_ours.then(|| guard(ErrorPage::not_found().into_response()))
}
