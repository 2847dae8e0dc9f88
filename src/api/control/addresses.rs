//! `GET /operator/addresses`: the addresses at which peers reach this daemon.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::api::caller::Operator;
use crate::api::query::Query;
use crate::api::{Api, ApiError};

#[derive(Debug, Serialize)]
pub(super) struct Addresses {
    /// Host and port of each SIP listener, in the order of the configuration.
    sip: Vec<String>,
}

/// `GET /operator/addresses`. Commands ask the daemon because it may run with another configuration, or on ports that the system chose.
pub(super) async fn show(
    State(api): State<Api>,
    _: Operator,
    query: Query,
) -> Result<Json<Addresses>, ApiError> {
    query.finish()?;
    Ok(Json(Addresses {
        sip: api.sip_addresses().to_vec(),
    }))
}
