//! `/partner/v1/orgs/{orgId}/limits`: limits of an org, which the operator sets, and the org's partner within the operator's bounds.
//! `/partner/v1/limits`: those bounds, and the limits of the partner itself.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_store::{
    Change, DefaultLimits, OrgLimit, StoredLimit, StoredLimits, Tx, Versioned, org_limits,
};

use crate::api::body::{Body, Fields};
use crate::api::caller::{PartnerCaller, Provisioner};
use crate::api::field_type::Count;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::version::{IfMatch, Tagged};
use crate::api::{Api, ApiError, default_limits};
use uuid::Uuid;

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let mut of = api.provisioning(by);
    if by == Audience::Partner {
        of.get(
            "/limits",
            own,
            "showPartnerLimits",
            "Limits of the partner, and the greatest limits that it may set for its orgs",
            |op| op.gives::<PartnerLimitsView>(200),
        );
    }

    of.get(
        "/orgs/{orgId}/limits",
        show,
        "showOrgLimits",
        "Limits of the org",
        |op| op.gives_versioned::<OrgLimitsView>(),
    );

    let summary = if by == Audience::Operator {
        "Shows an org's limits, and sets those that are given; `null` restores the default"
    } else {
        "Sets limits, up to what the operator allows; `null` restores the default, absent limits are unchanged"
    };
    of.patch(
        "/orgs/{orgId}/limits",
        update,
        "updateOrgLimits",
        summary,
        |op| {
            op.of_version()
                .body(read_by(changed))
                .gives_versioned::<OrgLimitsView>()
        },
    );
}

/// One limit.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OrgLimit")]
pub(crate) struct LimitView {
    /// The value in force.
    pub(crate) limit: u32,
    /// The greatest value that the org's partner may set.
    max: u32,
    /// The org's present number; `null` for calls at once and limits per minute, which each node counts for itself.
    pub(crate) used: Option<u64>,
}

/// Limits of an org.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OrgLimits")]
pub(crate) struct OrgLimitsView {
    /// Calls at once, in both directions. The default doesn't limit them.
    concurrent_calls: LimitView,
    outbound_trunks: LimitView,
    agents: LimitView,
    destinations: LimitView,
    api_keys: LimitView,
    /// Outbound trunks that register with their carriers.
    registrations: LimitView,
    webhooks: LimitView,
    contacts: LimitView,
    /// Numbers, verified or not.
    numbers: LimitView,
    /// Handoffs that are stored. Those of transfers are stored beyond the limit too.
    handoffs: LimitView,
    requests_per_minute: LimitView,
    /// Event streams opened in a minute.
    streaming_requests_per_minute: LimitView,
}

impl OrgLimitsView {
    /// Returns one of them.
    pub(crate) const fn of(&self, limit: OrgLimit) -> &LimitView {
        match limit {
            OrgLimit::Calls => &self.concurrent_calls,
            OrgLimit::OutboundTrunks => &self.outbound_trunks,
            OrgLimit::Agents => &self.agents,
            OrgLimit::Destinations => &self.destinations,
            OrgLimit::ApiKeys => &self.api_keys,
            OrgLimit::Registrations => &self.registrations,
            OrgLimit::Webhooks => &self.webhooks,
            OrgLimit::Contacts => &self.contacts,
            OrgLimit::Numbers => &self.numbers,
            OrgLimit::Handoffs => &self.handoffs,
            OrgLimit::Requests => &self.requests_per_minute,
            OrgLimit::Streams => &self.streaming_requests_per_minute,
        }
    }
}

/// The greatest values that the partner may set for an org.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GreatestOrgLimits")]
struct GreatestView {
    /// Calls at once.
    concurrent_calls: u32,
    /// Outbound trunks.
    outbound_trunks: u32,
    /// Agents.
    agents: u32,
    /// Transfer destinations.
    destinations: u32,
    /// API keys that the org or its partner makes.
    api_keys: u32,
    /// Outbound trunks that register with their carriers.
    registrations: u32,
    /// Webhooks.
    webhooks: u32,
    /// Contacts.
    contacts: u32,
    /// Numbers, verified or not.
    numbers: u32,
    /// Handoffs that are stored.
    handoffs: u32,
    /// Requests of the org's keys together in a minute.
    requests_per_minute: u32,
    /// Event streams opened in a minute.
    streaming_requests_per_minute: u32,
}

/// Limits of a partner, and of what it may set for its orgs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PartnerLimits")]
pub(super) struct PartnerLimitsView {
    /// Requests of the partner's keys together in a minute.
    requests_per_minute: u32,
    /// Login links in a minute.
    login_links_per_minute: u32,
    /// The greatest values that the partner may set for any of its orgs. The operator can allow one org more or less.
    orgs: GreatestView,
}

/// `GET /partner/v1/limits`
pub(super) async fn own(
    State(api): State<Api>,
    caller: PartnerCaller,
    query: Query,
) -> Result<Json<PartnerLimitsView>, ApiError> {
    query.finish()?;
    let partner = caller.id();
    let set = api.read_inline(move |tx| org_limits::of_partner(tx, partner));
    let set = set.await?;

    let defaults = default_limits(api.config());
    let most = |limit: OrgLimit| {
        let own = set.iter().find(|(known, _)| *known == limit);
        own.map_or(limit.default_of(defaults), |(_, most)| *most)
    };

    Ok(Json(PartnerLimitsView {
        requests_per_minute: caller.requests_per_minute(&api),
        login_links_per_minute: caller.login_links_per_minute(&api),
        orgs: GreatestView {
            concurrent_calls: most(OrgLimit::Calls),
            outbound_trunks: most(OrgLimit::OutboundTrunks),
            agents: most(OrgLimit::Agents),
            destinations: most(OrgLimit::Destinations),
            api_keys: most(OrgLimit::ApiKeys),
            registrations: most(OrgLimit::Registrations),
            webhooks: most(OrgLimit::Webhooks),
            contacts: most(OrgLimit::Contacts),
            numbers: most(OrgLimit::Numbers),
            handoffs: most(OrgLimit::Handoffs),
            requests_per_minute: most(OrgLimit::Requests),
            streaming_requests_per_minute: most(OrgLimit::Streams),
        },
    }))
}

/// `GET /partner/v1/orgs/{orgId}/limits`
pub(super) async fn show(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    query: Query,
) -> Result<Tagged<OrgLimitsView>, ApiError> {
    let org = caller.org(&api, &named).await?;
    query.finish()?;
    let (id, changed_at) = (org.id, org.updated_at);
    let stored = api
        .read_inline(move |tx| org_limits::of_org(tx, id))
        .await?;
    Ok(Tagged::at(view(&api, id, &stored).await?, changed_at))
}

/// `PATCH /partner/v1/orgs/{orgId}/limits {agents, …}`: an absent limit is unchanged, `null` restores the default. 400
/// for a partner's value above the operator's bound. Lowering a limit deletes nothing.
pub(super) async fn update(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<OrgLimitsView>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    let version = version.versions()?;
    let changes = changed(body.fields()?)?;

    let defaults = default_limits(api.config());
    let by = caller.limited_by();
    let limit = move |tx: &mut Tx, now| {
        let stored = org_limits::limit(tx, org, &changes, by, defaults, now)?;
        Ok((stored, now))
    };
    let (stored, changed_at) = api.change(org, Versioned::Org, version, limit).await?;
    // Cached keys of the org carry the limits per minute that were in force.
    api.forget_credentials(Change::Org(org));
    Ok(Tagged::at(view(&api, org, &stored).await?, changed_at))
}

/// Reads the limits in the body with their new values.
fn changed(mut fields: Fields) -> Result<Vec<(OrgLimit, Option<u32>)>, ApiError> {
    let changes = read(&mut fields);
    fields.done(|| Some(changes))
}

/// Takes the limits out of fields that may hold more.
pub(crate) fn read(fields: &mut Fields) -> Vec<(OrgLimit, Option<u32>)> {
    let mut changes = Vec::new();
    for limit in OrgLimit::ALL {
        let value = Count::new(limit.least()..=limit.greatest());
        if let Some(most) = fields.clearable(limit.as_str(), value) {
            changes.push((limit, most));
        }
    }
    changes
}

async fn view(api: &Api, org: Uuid, stored: &StoredLimits) -> Result<OrgLimitsView, ApiError> {
    let now = api.now();
    let counts = api
        .read_inline(move |tx| org_limits::counts(tx, org, now))
        .await?;

    let defaults: DefaultLimits = default_limits(api.config());
    let one = |limit: OrgLimit| {
        let (default, own): (u32, StoredLimit) = (limit.default_of(defaults), stored.of(limit));
        let counted = counts.iter().find(|(known, _)| *known == limit);
        LimitView {
            limit: own.in_force(default),
            max: own.greatest(default),
            used: counted.map(|(_, held)| *held),
        }
    };

    Ok(OrgLimitsView {
        concurrent_calls: one(OrgLimit::Calls),
        outbound_trunks: one(OrgLimit::OutboundTrunks),
        agents: one(OrgLimit::Agents),
        destinations: one(OrgLimit::Destinations),
        api_keys: one(OrgLimit::ApiKeys),
        registrations: one(OrgLimit::Registrations),
        webhooks: one(OrgLimit::Webhooks),
        contacts: one(OrgLimit::Contacts),
        numbers: one(OrgLimit::Numbers),
        handoffs: one(OrgLimit::Handoffs),
        requests_per_minute: one(OrgLimit::Requests),
        streaming_requests_per_minute: one(OrgLimit::Streams),
    })
}
