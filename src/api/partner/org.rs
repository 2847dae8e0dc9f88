//! `/partner/v1/orgs/{orgId}`: one org with everything that its partner may see and change of it.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::caller::PartnerCaller;
use super::integrations::{self as connections, Integrations};
use super::orgs::{OrgView, WEBSITE};
use crate::api::body::{Body, Fields};
use crate::api::integrations::{self, IntegrationsView, Shown};
use crate::api::language::LANGUAGE;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::shape::Text;
use crate::api::{Api, ApiError};
use crate::config::Config;
use crate::store::{Org, OrgChange};

/// An org with everything that is kept of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OrgDetails")]
pub(super) struct WholeOrgView {
    #[serde(flatten)]
    org: OrgView,
    website: Option<String>,
    /// The default language of the org's contacts and agents.
    language: String,
    /// The org's own system prompt; `null` where the partner's counts.
    ai_instructions: Option<String>,
    /// The system prompt that sessions carry: the org's, or else the partner's.
    ai_instructions_in_force: Option<String>,
    /// Accounts with third parties, under the key of each platform, without their credentials.
    integrations: IntegrationsView,
}

/// `GET /partner/v1/orgs/{orgId}`
pub(super) async fn show(
    State(api): State<Api>,
    caller: PartnerCaller,
    named: Named,
    query: Query,
) -> Result<Json<WholeOrgView>, ApiError> {
    let org = caller.owned(&api, &named).await?;
    query.finish()?;
    whole(&api, &caller, org).await
}

/// `PATCH /partner/v1/orgs/{orgId} {name, website, language, ai_instructions, integrations}`: what is absent stays, `null` clears
/// what may be empty. `integrations` replaces all connections, and is tried before anything is changed, as at creation.
pub(super) async fn update(
    State(api): State<Api>,
    caller: PartnerCaller,
    named: Named,
    body: Body,
) -> Result<Json<WholeOrgView>, ApiError> {
    let org = caller.owned(&api, &named).await?.id;
    let change = changed(api.config(), body.fields()?)?;
    let bookings = change.bookings.as_deref().unwrap_or_default();
    connections::check(&api, bookings, "Nothing was changed").await?;
    let orgs = api.store().orgs();
    let org = orgs.update(org, &change, api.now()).await?;
    whole(&api, &caller, org).await
}

async fn whole(
    api: &Api,
    caller: &PartnerCaller,
    org: Org,
) -> Result<Json<WholeOrgView>, ApiError> {
    let own = org.ai_instructions.clone();
    let in_force = own.or_else(|| caller.ai_instructions().map(str::to_owned));
    Ok(Json(WholeOrgView {
        website: org.website.clone(),
        language: org.language.clone(),
        ai_instructions: org.ai_instructions.clone(),
        ai_instructions_in_force: in_force,
        integrations: integrations::of_org(api, org.id, Shown::Handle).await?,
        org: org.into(),
    }))
}

pub(super) fn changed(config: &Config, mut fields: Fields) -> Result<OrgChange, ApiError> {
    let booking = config.integrations.booking.as_ref();
    let key = booking.map(|booking| &*booking.key);
    let language = fields.change("language", LANGUAGE);
    let bookings = fields.clearable("integrations", Integrations { key });
    let change = OrgChange {
        name: fields.change("name", Text::line(1..=255)),
        website: fields.clearable("website", WEBSITE),
        language: language.map(str::to_owned),
        ai_instructions: fields.clearable("ai_instructions", Text::lines(0..=65_536)),
        bookings: bookings.map(Option::unwrap_or_default),
    };
    fields.done(|| Some(change))
}
