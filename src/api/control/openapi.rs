//! Operations of the control socket, in the form of the OpenAPI document. They aren't part of the published one: only
//! the command line reads them.

use serde_json::json;

use super::listed::Listed;
use super::{
    installation, limits, media_addresses, networks, orgs, partner_keys, partners, retention,
    tied_peers,
};
use crate::api::audit as audit_log;
use crate::api::openapi::{OpenApiBuilder, Operation, read_by};
use crate::api::page::Page;
use crate::api::partner::{LinkView, changed_limits, described_login};
use crate::api::phone::{NumberView, lists_numbers};
use crate::api::query::text_schema;

/// Adds the operations.
pub(in crate::api) fn describe(builder: &mut OpenApiBuilder) {
    let mut add = |method: &str, path: &str, id: &str, summary: &str, describe: Describe| {
        builder.add(method, path, id, summary, |op| describe(op.tag("Operator")));
    };

    add(
        "get",
        "/operator/orgs",
        "listOperatorsOrgs",
        "Every org, newest first",
        |op| {
            op.query("name", text_schema(), "Only orgs of this name.")
                .query("search", text_schema(), "Only orgs with this text in their name or external id, in any case, or with this id.")
                .paged()
                .gives::<Page<orgs::OrgView>>(200)
        },
    );
    add(
        "post",
        "/operator/orgs",
        "createOperatorsOrg",
        "Creates an org",
        |op| op.body(read_by(orgs::new_org)).gives::<orgs::OrgView>(201),
    );

    add(
        "get",
        "/operator/orgs/{orgId}",
        "showOperatorsOrg",
        "Shows one org",
        |op| op.gives_versioned::<orgs::OrgView>(),
    );
    add(
        "patch",
        "/operator/orgs/{orgId}",
        "updateOperatorsOrg",
        "Renames an org, or limits its concurrent calls",
        |op| {
            op.of_version()
                .body(read_by(orgs::changed_org))
                .gives_versioned::<orgs::OrgView>()
        },
    );
    add(
        "delete",
        "/operator/orgs/{orgId}",
        "deleteOperatorsOrg",
        "Deletes an org: it behaves as absent, its numbers and external id are free, its keys end, and calls that are up finish",
        |op| {
            op.query("now", json!({"type": "boolean"}), "Ends its calls and deletes everything at once: it can't be restored. Without it the org can be restored for 30 days.").gives::<orgs::DeletionView>(200)
        },
    );

    add(
        "post",
        "/operator/orgs/{orgId}/suspend",
        "suspendOperatorsOrg",
        "Suspends an org: its keys, INVITEs and REGISTERs are refused, it begins no calls, and calls that are up continue",
        |op| op.gives::<orgs::OrgView>(200),
    );
    add(
        "post",
        "/operator/orgs/{orgId}/resume",
        "resumeOperatorsOrg",
        "Ends the operator's suspension; one by the org's partner stays",
        |op| op.gives::<orgs::OrgView>(200),
    );
    add(
        "post",
        "/operator/orgs/{orgId}/restore",
        "restoreOperatorsOrg",
        "Restores a deleted org, with its numbers that no other org has verified since",
        |op| op.gives::<orgs::OrgView>(200),
    );
    add(
        "post",
        "/operator/orgs/{orgId}/rotate-widget-token",
        "rotateOperatorsWidgetToken",
        "Gives the org another `widget_token`; the old one is good for 24 hours more",
        |op| op.gives::<orgs::OrgView>(200),
    );
    add(
        "get",
        "/operator/deleted-orgs",
        "listDeletedOrgs",
        "Deleted orgs that can be restored, the last deleted first",
        |op| op.gives::<Listed<orgs::DeletedView>>(200),
    );

    add(
        "get",
        "/operator/orgs/{orgId}/limits",
        "showOperatorsOrgLimits",
        "Limits of an org",
        |op| op.gives::<Listed<limits::LimitRow>>(200),
    );
    add(
        "patch",
        "/operator/orgs/{orgId}/limits",
        "updateOperatorsOrgLimits",
        "Shows an org's limits, and sets those that are given",
        |op| {
            op.body(read_by(changed_limits))
                .gives::<Listed<limits::LimitRow>>(200)
        },
    );

    add(
        "get",
        "/operator/orgs/{orgId}/retention",
        "showOrgRetention",
        "Days for which an org's data is kept",
        |op| op.gives::<Listed<retention::RetentionRow>>(200),
    );
    add(
        "patch",
        "/operator/orgs/{orgId}/retention",
        "updateOrgRetention",
        "Shows for how many days an org's data is kept, and sets those that are given",
        |op| {
            op.of_version()
                .body(read_by(retention::changed_days))
                .gives::<Listed<retention::RetentionRow>>(200)
        },
    );

    add(
        "get",
        "/operator/orgs/{orgId}/tied-peers",
        "listTiedPeers",
        "Peers tied to the org",
        |op| op.gives::<Listed<tied_peers::TiedView>>(200),
    );
    add(
        "post",
        "/operator/orgs/{orgId}/tied-peers",
        "tiePeer",
        "Lets the org name a reserved or private peer as runtime, outbound trunk or destination",
        |op| {
            op.body(read_by(tied_peers::new_peer))
                .gives::<Listed<tied_peers::TiedView>>(200)
        },
    );
    add(
        "delete",
        "/operator/orgs/{orgId}/tied-peers/{peer}",
        "untiePeer",
        "Ends a tie: calls to the peer are refused from then on, and those that are up go on",
        |op| op.gives::<Listed<tied_peers::TiedView>>(200),
    );

    add(
        "get",
        "/operator/orgs/{orgId}/networks",
        "listDedicatedNetworks",
        "Networks dedicated to the org",
        |op| op.gives::<Listed<networks::NetworkView>>(200),
    );
    add(
        "post",
        "/operator/orgs/{orgId}/networks",
        "dedicateNetwork",
        "Takes every call from a network as the org's, without credentials",
        |op| {
            op.body(read_by(networks::new_network))
                .gives::<networks::NetworkView>(201)
        },
    );
    add(
        "delete",
        "/operator/orgs/{orgId}/networks/{network}",
        "undedicateNetwork",
        "Ends a dedication",
        |op| op.deletes(),
    );

    add(
        "get",
        "/operator/orgs/{orgId}/media-addresses",
        "listMediaAddresses",
        "Networks in which the org's PBX or carrier has its media",
        |op| op.gives::<Listed<media_addresses::MediaAddressView>>(200),
    );
    add(
        "post",
        "/operator/orgs/{orgId}/media-addresses",
        "addMediaAddress",
        "Lists a network in which the org's PBX or carrier has its media: audio goes there before any has come from there",
        |op| {
            op.body(read_by(media_addresses::new_network))
                .gives::<Listed<media_addresses::MediaAddressView>>(200)
        },
    );
    add(
        "delete",
        "/operator/orgs/{orgId}/media-addresses/{network}",
        "removeMediaAddress",
        "Takes a network of media off the org's list",
        |op| op.gives::<Listed<media_addresses::MediaAddressView>>(200),
    );

    add(
        "get",
        "/operator/orgs/{orgId}/phone-numbers",
        "listOperatorsNumbers",
        "The org's numbers, newest first",
        lists_numbers,
    );
    add(
        "post",
        "/operator/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify",
        "verifyOperatorsNumber",
        "Marks a number as verified, on the operator's word; no call is placed",
        |op| op.gives::<NumberView>(200),
    );
    add(
        "post",
        "/operator/orgs/{orgId}/phone-numbers/{phoneNumberId}/unverify",
        "unverifyNumber",
        "Ends the verification, and the number's assignment",
        |op| op.gives::<NumberView>(200),
    );

    add(
        "post",
        "/operator/orgs/{orgId}/login-links",
        "createOperatorsLoginLink",
        "Creates a link that logs a person into the dashboard, once and within 15 minutes",
        |op| op.body(read_by(described_login)).gives::<LinkView>(201),
    );

    add(
        "get",
        "/operator/partners",
        "listPartners",
        "Every partner, newest first",
        |op| op.gives::<Listed<partners::PartnerView>>(200),
    );
    add(
        "post",
        "/operator/partners",
        "createPartner",
        "Creates a partner",
        |op| {
            op.body(read_by(partners::new_partner))
                .gives::<partners::PartnerView>(201)
        },
    );
    add(
        "get",
        "/operator/partners/{partnerId}",
        "showPartner",
        "Shows one partner",
        |op| op.gives_versioned::<partners::PartnerView>(),
    );
    add(
        "patch",
        "/operator/partners/{partnerId}",
        "updatePartner",
        "Renames a partner, or changes whether its keys work, whether it verifies numbers, and the networks that its requests may come from",
        |op| {
            op.of_version()
                .body(read_by(partners::changed_partner))
                .gives_versioned::<partners::PartnerView>()
        },
    );

    add(
        "get",
        "/operator/partners/{partnerId}/limits",
        "showLimitsOfPartner",
        "Limits of a partner, and the greatest that it may set for its orgs",
        |op| op.gives::<Listed<limits::PartnerLimitRow>>(200),
    );
    add(
        "patch",
        "/operator/partners/{partnerId}/limits",
        "updateLimitsOfPartner",
        "Shows the partner's limits and the greatest that it may set for its orgs, and sets those that are given",
        |op| {
            op.body(read_by(limits::changed_partner_limits))
                .gives::<Listed<limits::PartnerLimitRow>>(200)
        },
    );

    add(
        "get",
        "/operator/partners/{partnerId}/keys",
        "listPartnerKeys",
        "The partner's keys, newest first",
        |op| op.gives::<Listed<partner_keys::KeyView>>(200),
    );
    add(
        "post",
        "/operator/partners/{partnerId}/keys",
        "createPartnerKey",
        "Creates a key of the partner, shown once",
        |op| {
            op.body(read_by(partner_keys::new_key))
                .gives::<partner_keys::NewKeyView>(201)
        },
    );
    add(
        "delete",
        "/operator/partners/{partnerId}/keys/{keyId}",
        "revokePartnerKey",
        "Revokes a key of the partner for good",
        |op| op.deletes(),
    );

    add(
        "get",
        "/operator/audit",
        "listWholeAudit",
        "Every change, newest first",
        audit_log::describe,
    );
    add(
        "get",
        "/operator/nodes",
        "listNodes",
        "Nodes that share the database, and which of them serve",
        |op| op.gives::<Listed<installation::NodeView>>(200),
    );
    add(
        "get",
        "/operator/health",
        "showNodeHealth",
        "Health of the node that answers: journal, database, clock, certificates",
        |op| op.gives::<installation::HealthView>(200),
    );
    add(
        "get",
        "/operator/sources",
        "listFailingSources",
        "Addresses from which log-ins failed in the last 24 hours, the most frequent first",
        |op| op.gives::<Listed<installation::SourceView>>(200),
    );
}

type Describe = fn(Operation<'_>) -> Operation<'_>;
