//! `/partner/v1/orgs/{orgId}`: one org with everything that its managers may see and change.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Change, Error, Org, OrgChange, Purge, RetentionChange, RetentionDays, SuspendedBy, Tx,
    Versioned, Wrong, aged, deleted_orgs, orgs, partners,
};
use uuid::Uuid;

use super::integrations::{self as connections, BookingsField};
use super::orgs::{OrgView, WEBSITE};
use crate::api::body::{Body, Fields};
use crate::api::caller::Provisioner;
use crate::api::field_type::{Count, Text};
use crate::api::idempotency::once_for;
use crate::api::integrations::{self, Disclosure, IntegrationsView};
use crate::api::language::LANGUAGE;
use crate::api::object::Object;
use crate::api::openapi::{Operation, no_fields, read_by};
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::version::{HasVersion, IfMatch, Tagged};
use crate::api::{Api, ApiError, default_retention};
use crate::config::{Config, Retention};

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let config = api.config();
    let mut of = api.provisioning(by);
    of.get(
        "/orgs/{orgId}",
        show,
        "showOrg",
        "An org with all its data",
        |op| op.gives_versioned::<WholeOrgView>(),
    );

    of.patch("/orgs/{orgId}", update, "updateOrg", "Updates the org: `null` clears a field, absent fields are unchanged; `integrations` replaces all connections", |op| {
            let body = read_by(|fields| changed(config, fields));
            op
                .of_version()
                .may_refuse(&[502])
                .body(body)
                .gives_versioned::<WholeOrgView>()
        });
    of.delete(
        "/orgs/{orgId}",
        delete,
        "deleteOrg",
        "Deletes an org; it can be restored for 30 days",
        |op| {
            op.query(
                "now",
                json!({"type": "boolean", "default": false}),
                "`true` ends the org's calls and deletes everything at once: it can't be restored.",
            )
            .of_version()
            .gives::<OrgDeletionView>(200)
        },
    );

    of.post(
        "/orgs/{orgId}/restore",
        restore,
        "restoreOrg",
        "Restores a deleted org, with its numbers that no other org has verified since",
        |op| {
            op.may_refuse(&[409])
                .body(no_fields())
                .gives_versioned::<WholeOrgView>()
        },
    );

    of.post_once(
        "/orgs/{orgId}/rotate-widget-token",
        once_for::<Provisioner, _>(rotate_widget_token),
        "rotateWidgetToken",
        "Gives the org another `widget_token`; the old one is good for 24 hours more",
        |op| {
            op.of_version()
                .body(no_fields())
                .gives_versioned::<OrgView>()
        },
    );

    of.post(
        "/orgs/{orgId}/suspend",
        suspend,
        "suspendOrg",
        "Suspends an org: its keys, INVITEs and REGISTERs are refused, calls that are up continue",
        suspension,
    );

    of.post(
        "/orgs/{orgId}/resume",
        resume,
        "resumeOrg",
        if by == Audience::Operator {
            "Ends the operator's suspension; one by the org's partner stays"
        } else {
            "Ends the partner's suspension of an org; one by the operator stays"
        },
        suspension,
    );
}

fn suspension(op: Operation<'_>) -> Operation<'_> {
    op.of_version()
        .body(no_fields())
        .gives_versioned::<WholeOrgView>()
}

/// An org with everything that is kept of it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OrgDetails")]
pub(crate) struct WholeOrgView {
    #[serde(flatten)]
    pub(crate) org: OrgView,
    /// The partner that made the org; `null` if the operator did.
    pub(crate) partner_id: Option<Uuid>,
    pub(crate) website: Option<String>,
    /// The default language of the org's contacts and agents.
    pub(crate) language: String,
    /// The org's own system prompt; `null` where the partner's counts.
    pub(crate) ai_instructions: Option<String>,
    /// The system prompt that sessions carry: the org's, or else the partner's.
    ai_instructions_in_force: Option<String>,
    /// Everything that the org is suspended by; empty if it isn't.
    pub(crate) suspended_by: Vec<SuspendedBy>,
    /// Accounts with third parties, under the key of each platform, without their credentials.
    integrations: IntegrationsView,
    /// The org's own days after which data is deleted; `null` where the operator's count.
    pub(crate) retention: RetentionView,
    /// The days in force; `null` where data stays until it is deleted otherwise.
    retention_in_force: RetentionView,
    /// Time of the last change, which is the version for `If-Match`.
    pub(crate) updated_at: String,
}

impl HasVersion for WholeOrgView {
    fn version(&self) -> &str {
        &self.updated_at
    }
}

/// Days for which data of an org is kept.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Retention")]
pub(crate) struct RetentionView {
    /// Days for which calls are kept, with their transfers and events.
    pub(crate) calls_days: Option<u32>,
    /// Days for which headers, metadata and the facts of a call's INVITE are kept.
    pub(crate) sessions_days: Option<u32>,
    /// Days for which contacts are kept that no call names any more.
    pub(crate) contacts_days: Option<u32>,
    /// Days for which handoffs are kept.
    pub(crate) handoffs_days: Option<u32>,
}

impl From<RetentionDays> for RetentionView {
    fn from(days: RetentionDays) -> Self {
        Self {
            calls_days: days.calls,
            sessions_days: days.sessions,
            contacts_days: days.contacts,
            handoffs_days: days.handoffs,
        }
    }
}

/// An org that was deleted just now.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OrgDeletion")]
pub(super) struct OrgDeletionView {
    /// Always true.
    success: bool,
    /// True if it can be restored; shown to the operator alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    restorable: Option<bool>,
}

/// `GET /partner/v1/orgs/{orgId}`
pub(super) async fn show(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    query: Query,
) -> Result<Tagged<WholeOrgView>, ApiError> {
    let org = caller.org(&api, &named).await?;
    query.finish()?;
    whole(&api, org).await
}

/// `PATCH /partner/v1/orgs/{orgId} {name, website, language, ai_instructions, integrations, retention}`: an absent
/// field is unchanged, `null` clears a field that may be empty. `integrations` replaces all connections, and is checked
/// before anything changes, as at creation. 409 for the operator who gives the name of another org.
pub(super) async fn update(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<WholeOrgView>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    let version = version.versions()?;
    let change = changed(api.config(), body.fields()?)?;
    let bookings = change.bookings.as_deref().unwrap_or_default();
    // Before the transaction, which judges the version: the third party may take seconds to answer.
    connections::check(&api, bookings, "Nothing was changed").await?;

    let is_operators = caller.partner().is_none();
    let update = move |tx: &mut Tx, now| {
        if let Some(name) = change.name.as_deref().filter(|_| is_operators) {
            orgs::must_be_only(tx, name, Some(org))?;
        }
        orgs::update(tx, org, &change, now)
    };
    let org = api.change(org, Versioned::Org, version, update).await?;
    whole(&api, org).await
}

/// `POST /partner/v1/orgs/{orgId}/suspend`: refuses the org's keys, INVITEs and REGISTERs from now on; calls that are
/// up continue.
pub(super) async fn suspend(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<WholeOrgView>, ApiError> {
    let now = api.now();
    set_suspended(&api, &caller, &named, version, body, Some(now)).await
}

/// `POST /partner/v1/orgs/{orgId}/resume`: ends the partner's suspension; one by the operator stays.
pub(super) async fn resume(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<WholeOrgView>, ApiError> {
    set_suspended(&api, &caller, &named, version, body, None).await
}

/// `DELETE /partner/v1/orgs/{orgId}?now`: the org behaves as absent from now on. Calls that are up finish. With
/// `now=true` they end, and the org can't be restored.
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    version: IfMatch,
    mut query: Query,
) -> Result<Json<OrgDeletionView>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    let purge = query.read("now", at_once);
    let version = version.versions()?;
    query.finish()?;

    let purge = purge.unwrap_or(Purge::Later);
    // The time of the request and not that of another version: what is purged is gone at once.
    let now = api.now();
    let delete = move |tx: &mut Tx, _| deleted_orgs::delete(tx, org, purge, now);
    match api.change(org, Versioned::Org, version, delete).await {
        Ok(()) => {}
        // Another request deleted it first.
        Err(Error::Wrong(Wrong::Absent(_))) => return Err(caller.absent_org()),
        Err(error) => return Err(error.into()),
    }

    // Keys and sessions end at once on this node, even if the follower of the change feed lags.
    api.forget_credentials(Change::Org(org));
    let is_partners = caller.partner().is_some();
    Ok(Json(OrgDeletionView {
        success: true,
        restorable: (!is_partners).then_some(purge == Purge::Later),
    }))
}

fn at_once(text: &str) -> Result<Purge, String> {
    match text {
        "true" => Ok(Purge::Now),
        "false" => Ok(Purge::Later),
        _ => Err("expected true or false".to_owned()),
    }
}

/// `POST /partner/v1/orgs/{orgId}/restore`: 409 if another org has taken its external id. Restoring an org that isn't
/// deleted changes nothing.
pub(super) async fn restore(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    body: Body,
) -> Result<Tagged<WholeOrgView>, ApiError> {
    let org = caller.org_or_deleted(&api, &named).await?;
    body.empty()?;
    match deleted_orgs::restore(api.store(), org, api.now()).await {
        Ok(restored) => whole(&api, restored).await,
        // The time to restore ended meanwhile.
        Err(Error::Wrong(Wrong::Absent(_))) => Err(caller.absent_org()),
        Err(error) => Err(error.into()),
    }
}

/// `POST /partner/v1/orgs/{orgId}/rotate-widget-token`: the old token is good for 24 hours more, and the one before it ends.
pub(super) async fn rotate_widget_token(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<OrgView>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    let version = version.versions()?;
    body.empty()?;
    let rotate = move |tx: &mut Tx, now| orgs::rotate_widget_token(tx, org, now);
    let changed = api.change(org, Versioned::Org, version, rotate).await?;
    let changed_at = changed.updated_at;
    Ok(Tagged::at(changed.into(), changed_at))
}

async fn set_suspended(
    api: &Api,
    caller: &Provisioner,
    named: &Named,
    version: IfMatch,
    body: Body,
    since: Option<Moment>,
) -> Result<Tagged<WholeOrgView>, ApiError> {
    let org = caller.org(api, named).await?.id;
    let version = version.versions()?;
    body.empty()?;
    let suspender = caller.suspender();
    let suspend = move |tx: &mut Tx, now| orgs::suspend(tx, org, suspender, since, now);
    let changed = api.change(org, Versioned::Org, version, suspend).await?;
    // Cached keys and sessions of the org have the state from before.
    api.forget_credentials(Change::Org(org));
    whole(api, changed).await
}

async fn whole(api: &Api, org: Org) -> Result<Tagged<WholeOrgView>, ApiError> {
    let partner = match org.partner_id {
        Some(partner) => Some(
            api.read_inline(move |tx| partners::by_id(tx, partner))
                .await?,
        ),
        None => None,
    };
    let of_partner = partner.and_then(|partner| partner.ai_instructions);
    let in_force = org.ai_instructions.clone().or(of_partner);
    let retention = api.read_inline(move |tx| aged::days_of(tx, org.id)).await?;

    Ok(Tagged::new(WholeOrgView {
        partner_id: org.partner_id,
        website: org.website.clone(),
        language: org.language.clone(),
        ai_instructions: org.ai_instructions.clone(),
        ai_instructions_in_force: in_force,
        suspended_by: org.suspended_by(),
        integrations: integrations::of_org(api, org.id, Disclosure::Handle).await?,
        retention: retention.into(),
        retention_in_force: retention.or(default_retention(api.config())).into(),
        updated_at: written(org.updated_at),
        org: org.into(),
    }))
}

pub(super) fn changed(config: &Config, mut fields: Fields) -> Result<OrgChange, ApiError> {
    let booking = config.integrations.booking.as_ref();
    let key = booking.map(|booking| &*booking.key);

    let language = fields.change("language", LANGUAGE);
    let bookings = fields.clearable("integrations", BookingsField { key });
    let retention = fields.change("retention", Object(retention));

    let change = OrgChange {
        name: fields.change("name", Text::line(1..=255)),
        website: fields.clearable("website", WEBSITE),
        language: language.map(str::to_owned),
        ai_instructions: fields.clearable("ai_instructions", Text::lines(0..=65_536)),
        bookings: bookings.map(Option::unwrap_or_default),
        retention: retention.unwrap_or_default(),
    };
    fields.done(|| Some(change))
}

fn retention(fields: &mut Fields) -> Option<RetentionChange> {
    let mut days = |name| fields.clearable(name, DAYS);
    Some(RetentionChange {
        calls: days("calls_days"),
        sessions: days("sessions_days"),
        contacts: days("contacts_days"),
        handoffs: days("handoffs_days"),
    })
}

const DAYS: Count = Count::new(1..=Retention::LONGEST);
