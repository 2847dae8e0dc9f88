//! Partner API `/partner/v1`, with which resellers manage the orgs of their customers.

mod api_keys;
mod audit;
mod caller;
mod integrations;
mod limits;
mod login_links;
mod numbers;
mod org;
mod orgs;
mod roles;
mod sessions;
mod usage;

use axum::routing::{delete, get, post};
use serde_json::json;

use super::Success;
use super::api_keys::KeyView;
use super::body::Fields;
use super::error::ApiError;
use super::idempotency::{Idempotent, once_for};
use super::openapi::{OpenApiBuilder, read_by};
use super::page::Page;
use super::phone::{NumberView, lists_numbers};
use super::query::text_schema;
use super::routes::Routes;
use crate::config::Config;
use caller::PartnerCaller;

pub(super) use limits::{changed as changed_limits, read as read_limits};
pub(super) use login_links::{
    LinkView, described as described_login, issue as issue_login_link, must_be_a_persons,
    store_link,
};
pub(super) use numbers::page_of as page_of_numbers;
pub(super) use org::{at_once, retention};

pub(super) fn router() -> Routes {
    Routes::new()
        .route("/orgs", get(orgs::list).post(once(orgs::create)))
        .route(
            "/orgs/by-external-id/{externalId}",
            get(orgs::by_external_id),
        )
        .route(
            "/orgs/{orgId}",
            get(org::show).patch(org::update).delete(org::delete),
        )
        .route("/limits", get(limits::own))
        .route("/usage", get(usage::show))
        .route("/audit", get(audit::list))
        .route(
            "/orgs/{orgId}/limits",
            get(limits::show).patch(limits::update),
        )
        .route("/orgs/{orgId}/suspend", post(org::suspend))
        .route("/orgs/{orgId}/resume", post(org::resume))
        .route("/orgs/{orgId}/restore", post(org::restore))
        .route(
            "/orgs/{orgId}/rotate-widget-token",
            post(once(org::rotate_widget_token)),
        )
        .route("/orgs/{orgId}/phone-numbers", get(numbers::list))
        .route(
            "/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify",
            post(numbers::verify),
        )
        .route(
            "/orgs/{orgId}/api-keys",
            get(api_keys::list).post(once(api_keys::create)),
        )
        .route(
            "/orgs/{orgId}/api-keys/{apiKeyId}",
            delete(api_keys::revoke),
        )
        .route("/orgs/{orgId}/login-links", post(once(login_links::create)))
        .route("/orgs/{orgId}/roles", get(roles::list))
        .route(
            "/orgs/{orgId}/sessions",
            get(sessions::list).delete(sessions::end_all),
        )
        .route(
            "/orgs/{orgId}/sessions/{sessionId}",
            delete(sessions::end_one),
        )
}

/// Wraps a handler that takes `Idempotency-Key`.
const fn once<H>(handler: H) -> Idempotent<PartnerCaller, H> {
    once_for(handler)
}

/// Reader of an empty body.
fn nothing(fields: Fields) -> Result<(), ApiError> {
    fields.done(|| Some(()))
}

const TAG: &str = "Partner provisioning";

fn describe_limits(builder: &mut OpenApiBuilder) {
    builder.add(
        "get",
        "/partner/v1/limits",
        "showPartnerLimits",
        "Limits of the partner, and the greatest limits that it may set for its orgs",
        |op| {
            op.tag(TAG)
                .partner()
                .gives::<limits::PartnerLimitsView>(200)
        },
    );

    let path = "/partner/v1/orgs/{orgId}/limits";
    builder.add("get", path, "showOrgLimits", "Limits of the org", |op| {
        op.tag(TAG).partner().gives::<limits::OrgLimitsView>(200)
    });

    builder.add(
        "patch",
        path,
        "updateOrgLimits",
        "Sets limits, up to what the operator allows; `null` restores the default, absent limits are unchanged",
        |op| {
            op.tag(TAG)
                .partner()
                .body(read_by(limits::changed))
                .gives::<limits::OrgLimitsView>(200)
        },
    );
}

pub(super) fn openapi(builder: &mut OpenApiBuilder, config: &Config) {
    const ORGS: &str = "/partner/v1/orgs";
    let of_org = |rest: &str| format!("{ORGS}/{{orgId}}/{rest}");

    builder.add(
        "get",
        ORGS,
        "listOrgs",
        "The partner's orgs, newest first",
        |op| {
            let limit = json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 50});
            let offset =
                json!({"type": "integer", "minimum": 0, "maximum": u32::MAX, "default": 0});
            let op = op
                .tag(TAG)
                .partner()
                .query("limit", limit, "Orgs on a page.");
            op.query("offset", offset, "Orgs to skip.")
                .query(
                    "external_id",
                    text_schema(),
                    "Only the org of this external id.",
                )
                .query("name", text_schema(), "Only orgs of this name.")
                .gives::<orgs::OrgsView>(200)
        },
    );

    builder.add(
        "post",
        ORGS,
        "createOrg",
        "Creates an org, at most one for each `external_id`",
        |op| {
            let body = read_by(|fields| orgs::described(config, fields));
            op.tag(TAG)
                .partner()
                .once()
                .may_refuse(&[502])
                .body(body)
                .gives::<orgs::NewOrgView>(201)
        },
    );

    builder.add(
        "get",
        "/partner/v1/orgs/by-external-id/{externalId}",
        "findOrg",
        "The partner's org with this external id",
        |op| {
            op.tag(TAG)
                .partner()
                .may_refuse(&[404])
                .gives::<orgs::OrgView>(200)
        },
    );

    builder.add(
        "get",
        &format!("{ORGS}/{{orgId}}"),
        "showOrg",
        "An org with all its data",
        |op| op.tag(TAG).partner().gives_versioned::<org::WholeOrgView>(),
    );

    builder.add(
        "patch",
        &format!("{ORGS}/{{orgId}}"),
        "updateOrg",
        "Updates the org: `null` clears a field, absent fields are unchanged; `integrations` replaces all connections",
        |op| {
            let body = read_by(|fields| org::changed(config, fields));
            op.tag(TAG)
                .partner()
                .of_version()
                .may_refuse(&[502])
                .body(body)
                .gives_versioned::<org::WholeOrgView>()
        },
    );

    builder.add(
        "delete",
        &format!("{ORGS}/{{orgId}}"),
        "deleteOrg",
        "Deletes an org; it can be restored for 30 days",
        |op| {
            op.tag(TAG)
                .partner()
                .query(
                    "now",
                    json!({"type": "boolean", "default": false}),
                    "`true` ends the org's calls and deletes everything at once: it can't be restored.",
                )
                .deletes()
        },
    );

    builder.add(
        "post",
        &of_org("restore"),
        "restoreOrg",
        "Restores a deleted org, with its numbers that no other org has verified since",
        |op| {
            op.tag(TAG)
                .partner()
                .may_refuse(&[409])
                .body(read_by(nothing))
                .gives_versioned::<org::WholeOrgView>()
        },
    );

    describe_limits(builder);
    builder.add(
        "get",
        "/partner/v1/usage",
        "showPartnerUsage",
        "Calls and answered seconds of the partner's orgs; as JSON, or by `Accept` as CSV",
        |op| super::usage::describe(op.tag(TAG).partner()),
    );

    builder.add(
        "get",
        "/partner/v1/audit",
        "listPartnerAudit",
        "Changes to the partner and its orgs, newest first; by `Accept` as CSV or JSON lines",
        |op| {
            let org = serde_json::json!({"type": "string", "format": "uuid"});
            let op = op
                .tag(TAG)
                .partner()
                .query("org_id", org, "Only changes to this org.");
            super::audit::describe(op)
        },
    );

    for (word, id, summary) in [
        (
            "suspend",
            "suspendOrg",
            "Suspends an org: its keys, INVITEs and REGISTERs are refused, calls that are up continue",
        ),
        (
            "resume",
            "resumeOrg",
            "Ends the partner's suspension of an org; one by the operator stays",
        ),
    ] {
        builder.add("post", &of_org(word), id, summary, |op| {
            op.tag(TAG)
                .partner()
                .body(read_by(nothing))
                .gives_versioned::<org::WholeOrgView>()
        });
    }

    builder.add(
        "post",
        &of_org("rotate-widget-token"),
        "rotateWidgetToken",
        "Gives the org another `widget_token`; the old one is good for 24 hours more",
        |op| {
            op.tag(TAG)
                .partner()
                .once()
                .body(read_by(nothing))
                .gives::<orgs::OrgView>(200)
        },
    );

    builder.add(
        "get",
        &of_org("phone-numbers"),
        "listOrgNumbers",
        "The org's phone numbers, newest first",
        |op| lists_numbers(op.tag(TAG).partner()),
    );

    builder.add(
        "post",
        &of_org("phone-numbers/{phoneNumberId}/verify"),
        "verifyOrgNumber",
        "Verifies a number, if the operator allows the partner to",
        |op| {
            op.tag(TAG)
                .partner()
                .may_refuse(&[404, 409])
                .body(read_by(nothing))
                .gives::<NumberView>(200)
        },
    );

    builder.add(
        "get",
        &of_org("api-keys"),
        "listOrgKeys",
        "All keys of the org, newest first",
        |op| {
            op.tag(TAG)
                .partner()
                .query("name", text_schema(), "Only keys of this name.")
                .lists::<KeyView>()
        },
    );

    builder.add(
        "post",
        &of_org("api-keys"),
        "createOrgKey",
        "Creates a key of the org, shown once; without `scopes` it has every scope",
        |op| {
            let body = read_by(api_keys::new_key);
            op.tag(TAG)
                .partner()
                .once()
                .body(body)
                .gives::<api_keys::NewKeyView>(201)
        },
    );

    builder.add(
        "delete",
        &of_org("api-keys/{apiKeyId}"),
        "revokeOrgKey",
        "Revokes a key of the org for good, no matter who created it",
        |op| {
            op.tag(TAG)
                .partner()
                .may_refuse(&[404])
                .gives::<Success>(200)
        },
    );

    builder.add(
        "post",
        &of_org("login-links"),
        "createLoginLink",
        "Creates a link that logs a person into the dashboard, once and within 15 minutes",
        |op| {
            let body = read_by(login_links::described);
            op.tag(TAG)
                .partner()
                .once()
                .body(body)
                .gives::<login_links::LinkView>(201)
        },
    );

    builder.add(
        "get",
        &of_org("sessions"),
        "listDashboardSessions",
        "Sessions of the org's dashboard, newest first",
        |op| {
            op.tag(TAG)
                .partner()
                .query("email", text_schema(), "Only sessions of this address.")
                .lists::<sessions::DashboardSessionView>()
        },
    );

    builder.add(
        "delete",
        &of_org("sessions"),
        "endDashboardSessions",
        "Ends all sessions of the org's dashboard",
        |op| op.tag(TAG).partner().deletes(),
    );

    builder.add(
        "delete",
        &of_org("sessions/{sessionId}"),
        "endDashboardSession",
        "Ends one session of the org's dashboard",
        |op| op.tag(TAG).partner().may_refuse(&[404]).deletes(),
    );

    builder.add(
        "get",
        &of_org("roles"),
        "listRoles",
        "Roles for members of the org",
        |op| {
            op.tag(TAG)
                .partner()
                .query(
                    "access",
                    json!({"type": "string", "enum": ["write", "read"]}),
                    "Only roles of this access.",
                )
                .query("name", text_schema(), "Only roles of this name.")
                .paged()
                .gives::<Page<roles::RoleView>>(200)
        },
    );
}
