//! `/operator/partners`: resellers that create orgs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_store::{Acting, Change, Kind, NewPartner, Partner, versions};
use uuid::Uuid;

use super::listed::{self, Listed};
use crate::api::body::{Body, Fields};
use crate::api::caller::Operator;
use crate::api::field_type::{Bool, ListOf, NAME, NETWORK, Parsed, Text};
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::version::{HasVersion, IfMatch, Tagged};
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/partners",
        list,
        "listPartners",
        "Every partner, newest first",
        |op| op.gives::<Listed<PartnerView>>(200),
    );

    of.post(
        "/partners",
        create,
        "createPartner",
        "Creates a partner",
        |op| op.body(read_by(new_partner)).gives::<PartnerView>(201),
    );

    of.get(
        "/partners/{partnerId}",
        show,
        "showPartner",
        "Shows one partner",
        |op| op.gives_versioned::<PartnerView>(),
    );

    of.patch("/partners/{partnerId}", update, "updatePartner", "Renames a partner, or changes whether its keys work, whether it verifies numbers, and the networks that its requests may come from", |op| {
            op.of_version()
                .body(read_by(changed_partner))
                .gives_versioned::<PartnerView>()
        });
}

/// A partner.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Partner")]
pub(crate) struct PartnerView {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// True if the partner's keys work.
    pub(crate) active: bool,
    /// Networks that its requests may come from; `null`: any.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) allowed_networks: Option<Vec<IpNet>>,
    /// True if it may verify numbers of its orgs.
    pub(crate) verifies_numbers: bool,
    pub(crate) created_at: String,
    /// Time of the last change, which is the version for `If-Match`.
    pub(crate) updated_at: String,
}

impl HasVersion for PartnerView {
    fn version(&self) -> &str {
        &self.updated_at
    }
}

impl From<Partner> for PartnerView {
    fn from(partner: Partner) -> Self {
        Self {
            id: partner.id,
            name: partner.name,
            active: partner.active,
            allowed_networks: partner.allowed_networks,
            verifies_numbers: partner.verifies_numbers,
            created_at: written(partner.created_at),
            updated_at: written(partner.updated_at),
        }
    }
}

/// Returns the partner in the path.
///
/// # Errors
/// 404.
pub(super) async fn partner_in(api: &Api, named: &Named) -> Result<Partner, ApiError> {
    let id = named.id("partnerId", Kind::Partner)?;
    let partner = api.read_inline(move |tx| trunkline_store::partners::by_id(tx, id));
    let partner = partner.await?;
    Acting::of_partner(partner.id);
    Ok(partner)
}

/// `GET /operator/partners`: newest first.
pub(super) async fn list(
    State(api): State<Api>,
    _: Operator,
    query: Query,
) -> Result<Json<Listed<PartnerView>>, ApiError> {
    query.finish()?;
    let all = api.read(trunkline_store::partners::list).await?;
    let items = all.into_iter().map(PartnerView::from).collect();
    Ok(Json(Listed { items }))
}

const NETWORKS: ListOf<Parsed<IpNet>> = ListOf::new(NETWORK, 0..=1_000);

/// `POST /operator/partners {name, allowed_networks, ai_instructions}`: 201; 409 for the name of another partner.
pub(super) async fn create(
    State(api): State<Api>,
    _: Operator,
    body: Body,
) -> Result<(StatusCode, Json<PartnerView>), ApiError> {
    let new = new_partner(body.fields()?)?;
    listed::create(&api, move |tx, now| {
        trunkline_store::partners::must_be_only(tx, &new.name, None)?;
        trunkline_store::partners::create(tx, &new, now)
    })
    .await
}

pub(super) fn new_partner(mut fields: Fields) -> Result<NewPartner, ApiError> {
    let name = fields.required("name", NAME);
    let allowed_networks = fields.optional("allowed_networks", NETWORKS);
    let ai_instructions = fields.optional("ai_instructions", Text::lines(0..=65_536));
    fields.done(|| {
        Some(NewPartner {
            name: name?,
            ai_instructions,
            allowed_networks,
            ..NewPartner::default()
        })
    })
}

/// `GET /operator/partners/{partnerId}`
pub(super) async fn show(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Tagged<PartnerView>, ApiError> {
    let partner = partner_in(&api, &named).await?;
    query.finish()?;
    Ok(Tagged::new(partner.into()))
}

/// Change of a partner; `None` leaves a field as it is.
#[derive(Debug)]
pub(super) struct PartnerChange {
    name: Option<String>,
    active: Option<bool>,
    verifies_numbers: Option<bool>,
    allowed_networks: Option<Option<Vec<IpNet>>>,
}

/// `PATCH /operator/partners/{partnerId} {name, active, verifies_numbers, allowed_networks}`: the keys of an inactive
/// partner don't work, and its orgs are suspended; 409 for the name of another partner.
pub(super) async fn update(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<PartnerView>, ApiError> {
    let id = partner_in(&api, &named).await?.id;
    let version = version.versions()?;
    let change = changed_partner(body.fields()?)?;

    let changed = api.write(move |tx, now| {
        use trunkline_store::partners;
        // The version is a time: `now` is later than the one replaced, even within a millisecond.
        let now = versions::partner_must_be(tx, id, version.as_deref(), now)?;

        if let Some(name) = change.name {
            partners::rename(tx, id, &name, now)?;
        }
        if let Some(active) = change.active {
            partners::set_active(tx, id, active, now)?;
        }
        if let Some(verifies) = change.verifies_numbers {
            partners::let_verify(tx, id, verifies, now)?;
        }
        if let Some(networks) = change.allowed_networks {
            partners::allow(tx, id, networks.as_deref(), now)?;
        }

        partners::by_id(tx, id)
    });

    let changed = changed.await?;
    api.forget_credentials(Change::Partner(id));
    // The orgs of an inactive partner are suspended: cached keys and sessions of theirs say otherwise.
    api.forget_credentials(Change::PartnerState(id));
    Ok(Tagged::new(changed.into()))
}

pub(super) fn changed_partner(mut fields: Fields) -> Result<PartnerChange, ApiError> {
    let change = PartnerChange {
        name: fields.change("name", NAME),
        active: fields.change("active", Bool),
        verifies_numbers: fields.change("verifies_numbers", Bool),
        allowed_networks: fields.clearable("allowed_networks", NETWORKS),
    };
    fields.done(|| Some(change))
}
