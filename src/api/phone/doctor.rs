//! `/phone/sip/inbound-trunk/doctor`: the report of the last call to `sip:doctor@` on the org's trunk.

use axum::Json;
use axum::extract::State;

use super::OF_ORG;
use crate::api::caller::Caller;
use crate::api::operations::Operations;
use crate::api::query::Query;
use crate::api::{Api, ApiError};
use crate::explain::report::{self, Report};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Inbound trunk", OF_ORG);
    of.get("/phone/sip/inbound-trunk/doctor", show, "showTrunkReport", "Findings of the last call to `sip:doctor@` on the org's trunk, with settings for that phone system", |op| {
            op
                .may_refuse(&[404])
                .gives::<Report>(200)
        });
}

/// `GET /phone/sip/inbound-trunk/doctor`
pub(crate) async fn show(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
) -> Result<Json<Report>, ApiError> {
    let sip = &api.config().sip;
    let endpoint = sip.endpoint();
    let realm = sip.realm();
    let report = report::of_trunk(api.store(), caller.org, &endpoint, &realm, api.now()).await?;
    query.finish()?;
    Ok(Json(report))
}
