//! `/operator/partners/{partnerId}/limits`: limits of a partner, and the greatest that it may set for its orgs.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_bounds::PartnerShare;
use trunkline_store::{Change, OrgLimit, org_limits};
use uuid::Uuid;

use super::listed::Listed;
use super::partners::partner_in;
use crate::api::body::{Body, Fields};
use crate::api::caller::Operator;
use crate::api::field_type::Count;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::tenants::read_limits;
use crate::api::{Api, ApiError, default_limits};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/partners/{partnerId}/limits",
        of_partner,
        "showLimitsOfPartner",
        "Limits of a partner, and the greatest that it may set for its orgs",
        |op| op.gives::<Listed<PartnerLimitRow>>(200),
    );

    of.patch("/partners/{partnerId}/limits", limit_partner, "updateLimitsOfPartner", "Shows the partner's limits and the greatest that it may set for its orgs, and sets those that are given", |op| {
            op.body(read_by(changed_partner_limits))
                .gives::<Listed<PartnerLimitRow>>(200)
        });
}

/// Limit of a partner, or the greatest value that it may set for an org.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PartnerLimitRow")]
pub(crate) struct PartnerLimitRow {
    /// Name of the limit.
    pub(crate) limit: Cow<'static, str>,
    /// The value in force.
    pub(crate) value: u32,
    /// `partner`: the partner's own; `org`: for each of its orgs.
    pub(crate) of: Cow<'static, str>,
}

/// `GET /operator/partners/{partnerId}/limits`
pub(super) async fn of_partner(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Listed<PartnerLimitRow>>, ApiError> {
    let partner = partner_in(&api, &named).await?.id;
    query.finish()?;
    view_of_partner(&api, partner).await
}

/// Limits of a partner's own keys, and the greatest values for its orgs, that a request changes.
#[derive(Debug)]
pub(super) struct PartnerLimits {
    requests: Option<Option<u32>>,
    login_links: Option<Option<u32>>,
    node_share: Option<Option<u32>>,
    /// Number of its orgs.
    most_orgs: Option<Option<u32>>,
    orgs: Vec<(OrgLimit, Option<u32>)>,
}

/// `PATCH /operator/partners/{partnerId}/limits {partner_requests_per_minute, login_links_per_minute, node_share_percent, orgs, agents, …}`: the fields from `agents` on are
/// the greatest values that the partner may set for one of its orgs.
pub(super) async fn limit_partner(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    body: Body,
) -> Result<Json<Listed<PartnerLimitRow>>, ApiError> {
    let partner = partner_in(&api, &named).await?.id;
    let given = changed_partner_limits(body.fields()?)?;

    api.write(move |tx, now| {
        let (requests, links) = (given.requests, given.login_links);
        trunkline_store::partners::limit(tx, partner, requests, links, now)?;
        if let Some(percent) = given.node_share {
            trunkline_store::partners::set_node_share(tx, partner, percent, now)?;
        }
        if let Some(most) = given.most_orgs {
            trunkline_store::partners::limit_orgs(tx, partner, most)?;
        }
        org_limits::limit_partner(tx, partner, &given.orgs, now)
    })
    .await?;
    api.forget_credentials(Change::Partner(partner));
    // Its orgs' cached keys carry limits that may be bounded by the new ones.
    api.forget_credentials(Change::PartnerState(partner));
    view_of_partner(&api, partner).await
}

pub(super) fn changed_partner_limits(mut fields: Fields) -> Result<PartnerLimits, ApiError> {
    const RATE: Count = Count::new(1..=OrgLimit::GREATEST);
    let limits = PartnerLimits {
        requests: fields.clearable("partner_requests_per_minute", RATE),
        login_links: fields.clearable("login_links_per_minute", RATE),
        node_share: fields.clearable("node_share_percent", Count::new(1..=100)),
        most_orgs: fields.clearable("orgs", RATE),
        orgs: read_limits(&mut fields),
    };
    fields.done(|| Some(limits))
}

async fn view_of_partner(
    api: &Api,
    partner: Uuid,
) -> Result<Json<Listed<PartnerLimitRow>>, ApiError> {
    let read = api.read_inline(move |tx| {
        let known = trunkline_store::partners::by_id(tx, partner)?;
        let most_orgs = trunkline_store::partners::most_orgs(tx, partner)?;
        Ok((known, most_orgs, org_limits::of_partner(tx, partner)?))
    });
    let (known, most_orgs, set) = read.await?;

    let (usual, defaults) = (&api.config().limits, default_limits(api.config()));
    let row = |limit: &'static str, value, of: &'static str| PartnerLimitRow {
        limit: limit.into(),
        value,
        of: of.into(),
    };
    let requests = known.requests_per_minute;
    let links = known.login_links_per_minute;
    let share = known.node_share_percent;

    let mut items = vec![
        row(
            "partner_requests_per_minute",
            requests.unwrap_or(usual.partner_requests_per_minute),
            "partner",
        ),
        row(
            "login_links_per_minute",
            links.unwrap_or(usual.login_links_per_minute),
            "partner",
        ),
        row(
            "node_share_percent",
            share.unwrap_or(PartnerShare::DEFAULT.into()),
            "partner",
        ),
        row("orgs", most_orgs, "partner"),
    ];

    items.extend(OrgLimit::ALL.map(|limit| {
        let own = set.iter().find(|(known, _)| *known == limit);
        let most = own.map_or(limit.default_of(defaults), |(_, most)| *most);
        row(limit.as_str(), most, "org")
    }));

    Ok(Json(Listed { items }))
}
