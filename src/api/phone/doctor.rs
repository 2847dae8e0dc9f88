//! `/phone/sip/inbound-trunk/doctor`: the report of the last call to `sip:doctor@` on the org's trunk.

use axum::Json;
use axum::extract::State;

use super::READ;
use crate::api::caller::Caller;
use crate::api::query::Query;
use crate::api::{Api, ApiError};
use crate::explain::report::{self, Report};

/// `GET /phone/sip/inbound-trunk/doctor`
pub(crate) async fn show(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
) -> Result<Json<Report>, ApiError> {
    caller.needs(READ)?;
    let sip = &api.config().sip;
    let endpoint = sip.endpoint();
    let realm = sip.realm();
    let place = (endpoint.as_str(), &*realm);
    let report = report::of_trunk(api.store(), caller.org, place, api.now()).await?;
    query.finish()?;
    Ok(Json(report))
}
