//! `/phone/sip/inbound-trunk/auth-failures`: failed log-ins at the org's trunk.

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use std::net::IpAddr;
use trunkline_store::{AuthFailure, auth_failures};
use uuid::Uuid;

use super::{OF_ORG, inbound_trunk};
use crate::api::caller::Caller;
use crate::api::field_type::shown;
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::query::{Query, text_schema};
use crate::api::time::written;
use crate::api::{Api, ApiError};
use crate::explain::log_in;

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Inbound trunk", OF_ORG);
    of.get(
        "/phone/sip/inbound-trunk/auth-failures",
        list,
        "listAuthFailures",
        "Failed log-ins at the org's trunk, newest first",
        |op| {
            op.may_refuse(&[404])
                .query(
                    "username",
                    text_schema(),
                    "Only log-ins under this user name.",
                )
                .query(
                    "source",
                    json!({"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}),
                    "Only log-ins from this IP address.",
                )
                .lists::<AuthFailureView>()
        },
    );
}

/// A failed log-in as the API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuthFailure")]
pub(crate) struct AuthFailureView {
    id: Uuid,
    at: String,
    /// The address that it came from.
    source: IpAddr,
    /// The user name that was sent; empty without credentials.
    username: String,
    /// Wrong part of the credentials: `password`, `user`, `expired`, `nonce`, `realm`, `uri`, `algorithm` or `malformed`.
    /// Without credentials, `address` or `number`: the one of the two that isn't the trunk's.
    part: String,
    /// Explanation, with the fix.
    explanation: &'static str,
    /// Call-ID of the request.
    sip_call_id: Option<String>,
    /// The number that was called; `null` for a registration.
    dialled: Option<String>,
}

impl From<AuthFailure> for AuthFailureView {
    fn from(failure: AuthFailure) -> Self {
        Self {
            id: failure.id,
            at: written(failure.at),
            source: failure.source,
            username: failure.username,
            explanation: log_in::sentence(&failure.part),
            part: failure.part,
            sip_call_id: failure.sip_call_id,
            dialled: failure.dialled,
        }
    }
}

/// `GET /phone/sip/inbound-trunk/auth-failures?limit&cursor`: newest first; the newest thousand are kept.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<AuthFailureView>, ApiError> {
    inbound_trunk::find(&api, &caller).await?;
    let source = query.read("source", |text| match text.parse::<IpAddr>() {
        Ok(ip) => Ok(ip.to_canonical().to_string()),
        Err(_) => Err(format!("{} is not an IP address", shown(text))),
    });
    let narrow = [query.text("username"), source];
    let paging = Paging::read(&mut query, "auth-failures", narrow);
    query.finish()?;

    paging
        .find(
            api.store(),
            caller.org,
            auth_failures::list,
            AuthFailureView::from,
        )
        .await
}
