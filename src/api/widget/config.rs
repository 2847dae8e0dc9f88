//! `GET /widget/config`: all that an embedded widget needs before anybody is authenticated.
//!
//! The credential is the org's `widget_token`, which the pages of its website show: it names the org and proves nothing. So the answer
//! has nothing that a stranger must not see, and requests are counted by address before the token is looked up.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, header};
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::{Org, orgs};
use uuid::Uuid;

use super::cors;
use crate::api::caller::credential;
use crate::api::client;
use crate::api::operations::{Audience, Operations};
use crate::api::query::Query;
use crate::api::quota::{Policy, Tally};
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Widget contacts", Audience::Site);
    of.add(
        "get",
        "/widget/config",
        cors::open(get(show)),
        "showWidgetConfig",
        "Configuration of the org's widget, for its website",
        |op| op.may_refuse(&[403]).gives::<ConfigView>(200),
    );
}

/// Maximum number of requests from one address in a minute. The visitors of an office share one.
const REQUESTS_PER_ADDRESS: u32 = 300;
/// Maximum number of requests with the token of one org in a minute. Browsers keep the answer for a minute.
const REQUESTS_PER_ORG: u32 = 6_000;
/// Maximum length of a token that is looked up.
const LONGEST_TOKEN: usize = 64;
/// Time that a browser may keep the answer.
const KEPT: &str = "private, max-age=60";

/// Org whose embed token came with the request.
#[derive(Debug)]
pub(super) struct Site(Org);

impl FromRequestParts<Api> for Site {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let (quotas, tally) = (api.quotas(), Tally::of(parts));
        let address = client::address(parts, &api.config().http.trusted_proxies);
        tally.note(quotas.take_address(
            Policy::WidgetAddress,
            REQUESTS_PER_ADDRESS,
            address,
            api.monotonic(),
        ))?;

        let token = credential(
            parts,
            "The org's widget_token is required: Authorization: Bearer <widget_token>",
        )?;
        if token.len() > LONGEST_TOKEN {
            return Err(INVALID);
        }
        let (token, now) = (token.to_owned(), api.now());
        let found = api.read_inline(move |tx| orgs::by_widget_token(tx, &token, now));
        // Noted as no proof for the connection: anybody may have the token.
        let org = found.await?.ok_or(INVALID)?;

        let limit = REQUESTS_PER_ORG;
        tally.note(quotas.take(Policy::Widget, org.id, limit, api.monotonic()))?;
        match org.is_suspended() {
            true => Err(ApiError::suspended()),
            false => Ok(Self(org)),
        }
    }
}

const INVALID: ApiError = ApiError::Unauthorized("The widget_token is invalid");

/// Configuration of an org's widget.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WidgetConfig")]
pub(super) struct ConfigView {
    /// The org's id.
    org_id: Uuid,
    /// The org's display name.
    name: String,
    /// The org's default language.
    language: String,
    /// Visitors need a contact's token, which the org's backend gets for them. Always `true`.
    authentication_required: bool,
    /// The `iss` of contacts' tokens.
    issuer: String,
    /// The `aud` of contacts' tokens: the org's id.
    audience: Uuid,
    /// Public keys of contacts' tokens, as a JWK set.
    jwks_url: String,
}

/// `GET /widget/config`
pub(super) async fn show(
    Site(org): Site,
    query: Query,
    State(api): State<Api>,
) -> Result<([(HeaderName, &'static str); 1], Json<ConfigView>), ApiError> {
    query.finish()?;
    let base = api.base_url();
    let config = ConfigView {
        org_id: org.id,
        name: org.name,
        language: org.language,
        authentication_required: true,
        issuer: base.to_owned(),
        audience: org.id,
        jwks_url: format!("{base}/.well-known/jwks.json"),
    };
    Ok(([(header::CACHE_CONTROL, KEPT)], Json(config)))
}
