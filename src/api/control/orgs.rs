//! `/operator/orgs`: every org of the installation.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Change, DeletedOrg, Kind, Narrow, NewOrg, Org, OrgChange, Purge, SuspendedBy, Suspender, Tx,
    Versioned, deleted_orgs,
};
use uuid::Uuid;

use super::listed::Listed;
use super::named_org::org_in;
use crate::api::body::{Body, Fields};
use crate::api::field_type::NAME;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::operator::Operator;
use crate::api::page::{Page, Paging};
use crate::api::partner::at_once;
use crate::api::path::Named;
use crate::api::phone::CALLS_AT_ONCE;
use crate::api::query::{Query, text_schema};
use crate::api::time::written;
use crate::api::version::{HasVersion, IfMatch, Tagged};
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get("/operator/orgs", list, "listOperatorsOrgs", "Every org, newest first", |op| {
            op.query("name", text_schema(), "Only orgs of this name.")
                .query("search", text_schema(), "Only orgs with this text in their name or external id, in any case, or with this id.")
                .paged()
                .gives::<Page<OrgView>>(200)
        });
    of.post(
        "/operator/orgs",
        create,
        "createOperatorsOrg",
        "Creates an org",
        |op| op.body(read_by(new_org)).versioned().gives::<OrgView>(201),
    );

    of.get(
        "/operator/orgs/{orgId}",
        show,
        "showOperatorsOrg",
        "Shows one org",
        |op| op.gives_versioned::<OrgView>(),
    );

    of.patch(
        "/operator/orgs/{orgId}",
        update,
        "updateOperatorsOrg",
        "Renames an org, or limits its concurrent calls",
        |op| {
            op.of_version()
                .body(read_by(changed_org))
                .gives_versioned::<OrgView>()
        },
    );

    of.delete("/operator/orgs/{orgId}", delete, "deleteOperatorsOrg", "Deletes an org: it behaves as absent, its numbers and external id are free, its keys end, and calls that are up finish", |op| {
            op.query("now", json!({"type": "boolean"}), "Ends its calls and deletes everything at once: it can't be restored. Without it the org can be restored for 30 days.")
                .of_version()
                .gives::<DeletionView>(200)
        });
    of.post("/operator/orgs/{orgId}/suspend", suspend, "suspendOperatorsOrg", "Suspends an org: its keys, INVITEs and REGISTERs are refused, it begins no calls, and calls that are up continue", |op| op.of_version().gives_versioned::<OrgView>());
    of.post(
        "/operator/orgs/{orgId}/resume",
        resume,
        "resumeOperatorsOrg",
        "Ends the operator's suspension; one by the org's partner stays",
        |op| op.of_version().gives_versioned::<OrgView>(),
    );

    of.post(
        "/operator/orgs/{orgId}/restore",
        restore,
        "restoreOperatorsOrg",
        "Restores a deleted org, with its numbers that no other org has verified since",
        |op| op.gives_versioned::<OrgView>(),
    );

    of.post(
        "/operator/orgs/{orgId}/rotate-widget-token",
        rotate_widget_token,
        "rotateOperatorsWidgetToken",
        "Gives the org another `widget_token`; the old one is good for 24 hours more",
        |op| op.of_version().gives_versioned::<OrgView>(),
    );

    of.get(
        "/operator/deleted-orgs",
        deleted,
        "listDeletedOrgs",
        "Deleted orgs that can be restored, the last deleted first",
        |op| op.gives::<Listed<DeletedView>>(200),
    );
}

/// An org.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OperatorsOrg")]
pub(super) struct OrgView {
    id: Uuid,
    name: String,
    partner_id: Option<Uuid>,
    external_id: Option<String>,
    widget_token: String,
    max_concurrent_calls: Option<u32>,
    suspended_by: Vec<SuspendedBy>,
    created_at: String,
    /// Time of the last change, which is the version for `If-Match`.
    updated_at: String,
}

impl HasVersion for OrgView {
    fn version(&self) -> &str {
        &self.updated_at
    }
}

/// Org that was deleted just now.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OrgDeletion")]
pub(super) struct DeletionView {
    id: Uuid,
    name: String,
    /// True if it can be restored.
    restorable: bool,
}

/// Deleted org that can be restored.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeletedOrg")]
pub(super) struct DeletedView {
    id: Uuid,
    name: String,
    partner_id: Option<Uuid>,
    external_id: Option<String>,
    deleted_at: Option<String>,
    purge_at: Option<String>,
}

impl From<Org> for OrgView {
    fn from(org: Org) -> Self {
        Self {
            suspended_by: org.suspended_by(),
            id: org.id,
            name: org.name,
            partner_id: org.partner_id,
            external_id: org.external_id,
            widget_token: org.widget_token,
            max_concurrent_calls: org.max_concurrent_calls,
            created_at: written(org.created_at),
            updated_at: written(org.updated_at),
        }
    }
}

impl From<DeletedOrg> for DeletedView {
    fn from(org: DeletedOrg) -> Self {
        Self {
            id: org.id,
            name: org.name,
            partner_id: org.partner_id,
            external_id: org.deleted_external_id,
            deleted_at: org.deleted_at.map(written),
            purge_at: org.purge_at.map(written),
        }
    }
}

/// `GET /operator/orgs?name&search&limit&cursor`: newest first.
pub(super) async fn list(
    State(api): State<Api>,
    _: Operator,
    mut query: Query,
) -> Result<Page<OrgView>, ApiError> {
    let given: Narrow = [query.text("name"), query.text("search")];
    let paging = Paging::read(&mut query, "operators_orgs", given);
    query.finish()?;

    let (narrow, after, limit) = (paging.filters.clone(), paging.after, paging.limit);
    let found = api.read(move |tx| trunkline_store::orgs::page(tx, &narrow, after, limit));
    Ok(paging.page(found.await?, OrgView::from))
}

/// `POST /operator/orgs {name, max_concurrent_calls}`: 201; 409 for the name of another org.
pub(super) async fn create(
    State(api): State<Api>,
    _: Operator,
    body: Body,
) -> Result<(StatusCode, Tagged<OrgView>), ApiError> {
    let (name, calls) = new_org(body.fields()?)?;
    let made = api.write(move |tx, now| {
        // No second org of this name, since the operator's commands find an org by its name.
        trunkline_store::orgs::must_be_only(tx, &name, None)?;
        let org = trunkline_store::orgs::create(tx, None, &NewOrg::named(name), now)?;
        if calls.is_some() {
            trunkline_store::orgs::limit_calls(tx, org.id, calls, now)?;
        }
        trunkline_store::orgs::by_id(tx, org.id)
    });
    Ok((StatusCode::CREATED, Tagged::new(made.await?.into())))
}

pub(super) fn new_org(mut fields: Fields) -> Result<(String, Option<u32>), ApiError> {
    let name = fields.required("name", NAME);
    let calls = fields.optional("max_concurrent_calls", CALLS_AT_ONCE);
    fields.done(|| Some((name?, calls)))
}

/// `GET /operator/orgs/{orgId}`
pub(super) async fn show(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Tagged<OrgView>, ApiError> {
    let org = org_in(&api, &named).await?;
    query.finish()?;
    Ok(Tagged::new(org.into()))
}

/// `PATCH /operator/orgs/{orgId} {name, max_concurrent_calls}`: an absent field is unchanged, `null` lifts the limit; 409
/// for the name of another org.
pub(super) async fn update(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<OrgView>, ApiError> {
    let id = org_in(&api, &named).await?.id;
    let version = version.versions()?;
    let (name, calls) = changed_org(body.fields()?)?;

    let changed = api.change(id, Versioned::Org, version, move |tx, now| {
        if let Some(name) = name {
            trunkline_store::orgs::must_be_only(tx, &name, Some(id))?;
            let change = OrgChange {
                name: Some(name),
                ..OrgChange::default()
            };
            trunkline_store::orgs::update(tx, id, &change, now)?;
        }
        if let Some(calls) = calls {
            trunkline_store::orgs::limit_calls(tx, id, calls, now)?;
        }
        trunkline_store::orgs::by_id(tx, id)
    });

    Ok(Tagged::new(changed.await?.into()))
}

/// Changed name, and changed limit of calls.
type ChangedOrg = (Option<String>, Option<Option<u32>>);

pub(super) fn changed_org(mut fields: Fields) -> Result<ChangedOrg, ApiError> {
    let name = fields.change("name", NAME);
    let calls = fields.clearable("max_concurrent_calls", CALLS_AT_ONCE);
    fields.done(|| Some((name, calls)))
}

/// `POST /operator/orgs/{orgId}/suspend`: as the partner's of the same name.
pub(super) async fn suspend(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<OrgView>, ApiError> {
    let now = api.now();
    set_suspended(&api, &named, version, body, Some(now)).await
}

/// `POST /operator/orgs/{orgId}/resume`: ends the operator's suspension; one by the partner stays.
pub(super) async fn resume(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<OrgView>, ApiError> {
    set_suspended(&api, &named, version, body, None).await
}

/// `POST /operator/orgs/{orgId}/rotate-widget-token`: as the partner's of the same name.
pub(super) async fn rotate_widget_token(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<OrgView>, ApiError> {
    let id = org_in(&api, &named).await?.id;
    let version = version.versions()?;
    body.empty()?;
    let rotate = move |tx: &mut Tx, now| trunkline_store::orgs::rotate_widget_token(tx, id, now);
    let changed = api.change(id, Versioned::Org, version, rotate).await?;
    Ok(Tagged::new(changed.into()))
}

async fn set_suspended(
    api: &Api,
    named: &Named,
    version: IfMatch,
    body: Body,
    since: Option<Moment>,
) -> Result<Tagged<OrgView>, ApiError> {
    let id = org_in(api, named).await?.id;
    let version = version.versions()?;
    body.empty()?;
    let suspend = move |tx: &mut Tx, now| {
        trunkline_store::orgs::suspend(tx, id, Suspender::Operator, since, now)
    };
    let changed = api.change(id, Versioned::Org, version, suspend).await?;
    api.forget_credentials(Change::Org(id));
    Ok(Tagged::new(changed.into()))
}

/// `DELETE /operator/orgs/{orgId}?now`: as the partner's of the same name.
pub(super) async fn delete(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    version: IfMatch,
    mut query: Query,
) -> Result<Json<DeletionView>, ApiError> {
    let org = org_in(&api, &named).await?;
    let purge = query.read("now", at_once).unwrap_or(Purge::Later);
    let version = version.versions()?;
    query.finish()?;

    let id = org.id;
    // The time of the request and not that of another version: what is purged is gone at once.
    let now = api.now();
    let delete = move |tx: &mut Tx, _| deleted_orgs::delete(tx, id, purge, now);
    api.change(id, Versioned::Org, version, delete).await?;
    api.forget_credentials(Change::Org(id));

    Ok(Json(DeletionView {
        id,
        name: org.name,
        restorable: purge == Purge::Later,
    }))
}

/// `POST /operator/orgs/{orgId}/restore`: with its numbers that no other org has verified since.
pub(super) async fn restore(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    body: Body,
) -> Result<Tagged<OrgView>, ApiError> {
    let id = named.id("orgId", Kind::Org)?;
    body.empty()?;
    // Names the org for the audit log's entry as `org_in` does, which doesn't find a deleted org.
    trunkline_store::Acting::of_org(id);
    let restored = deleted_orgs::restore(api.store(), id, api.now()).await?;
    Ok(Tagged::new(restored.into()))
}

/// `GET /operator/deleted-orgs`: those that can be restored, the last deleted first.
pub(super) async fn deleted(
    State(api): State<Api>,
    _: Operator,
    query: Query,
) -> Result<Json<Listed<DeletedView>>, ApiError> {
    query.finish()?;
    let now = api.now();
    let deleted = api.read(move |tx| deleted_orgs::deleted(tx, now)).await?;
    let items = deleted.into_iter().map(DeletedView::from).collect();
    Ok(Json(Listed { items }))
}
