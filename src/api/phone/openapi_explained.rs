//! OpenAPI description of the operations that explain calls.

use super::explain::{self, ExplainedInviteView};
use super::{READ, calls, route_replay};
use crate::api::openapi::{OpenApiBuilder, read_by};
use crate::explain::call::Explanation;
use crate::explain::replay::ReplayView;
use crate::explain::report::Report;

pub(super) fn describe(builder: &mut OpenApiBuilder) {
    builder.add(
        "get",
        "/phone/calls/{call_id}/routing",
        "showRouting",
        "Explains the routing of a call: the authentication, the decision with its trail and near misses, and all of it in sentences",
        |op| {
            op.tag("Calls")
                .org(calls::SCOPE)
                .note("For a call that was refused before routing, `outcome`, `dialled` and `caller` are `null`.")
                .gives::<Explanation>(200)
        },
    );

    builder.add(
        "get",
        "/phone/sip/inbound-trunk/doctor",
        "showTrunkReport",
        "Findings of the last call to `sip:doctor@` on the org's trunk, with settings for that phone system",
        |op| {
            op.tag("Inbound trunk")
                .org(READ)
                .may_refuse(&[404])
                .gives::<Report>(200)
        },
    );

    builder.add(
        "post",
        "/phone/sip/explain",
        "explainInvite",
        "Explains an INVITE as a capture holds it: by the call's record if there is one, otherwise by today's directory; changes nothing",
        |op| {
            op.tag("Inbound trunk")
                .org_with(&[READ, calls::SCOPE])
                .body(read_by(explain::read_request))
                .gives::<ExplainedInviteView>(200)
        },
    );

    builder.add(
        "post",
        "/phone/sip/route-replay",
        "replayRoutes",
        "Routes the inbound calls of a period again, by today's directory or a changed one; changes nothing",
        |op| {
            op.tag("Inbound trunk")
                .org_with(&[READ, calls::SCOPE])
                .note(
                    "Without `start_date` the 24 hours before `end_date` are replayed, at most 92 days; \
                     without `limit` the newest 1,000 calls. `changes` says how the directory differs from today's: what it names \
                     is changed, all else stays.",
                )
                .body(read_by(route_replay::read_request))
                .gives::<ReplayView>(200)
        },
    );
}
