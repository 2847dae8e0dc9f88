//! Lists without pages, whose items the operator adds and deletes: an org's networks and tied peers, a partner's keys.

use axum::Json;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use trunkline_store::{Error, Tx};
use uuid::Uuid;

use crate::api::query::Query;
use crate::api::{Api, ApiError, Success};

/// Whole list, without pages.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<T>,
}

/// Lists what an org or a partner has.
///
/// # Errors
/// Those of `find`.
pub(super) async fn all_of<Row, View>(
    api: &Api,
    owner: Uuid,
    find: fn(&mut Tx, Uuid) -> Result<Vec<Row>, Error>,
) -> Result<Json<Listed<View>>, ApiError>
where
    Row: Send + 'static,
    View: From<Row>,
{
    let found = api.read(move |tx| find(tx, owner)).await?;
    let items = found.into_iter().map(View::from).collect();
    Ok(Json(Listed { items }))
}

/// Creates an object: 201 with it.
///
/// # Errors
/// Those of `work`.
pub(super) async fn create<Row, View>(
    api: &Api,
    work: impl FnOnce(&mut Tx, Moment) -> Result<Row, Error> + Send + 'static,
) -> Result<(StatusCode, Json<View>), ApiError>
where
    Row: Send + 'static,
    View: From<Row>,
{
    let made = api.write(work).await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// Deletes an object. The request must not have a query.
///
/// # Errors
/// 400 for a query; those of `work`.
pub(super) async fn delete(
    api: &Api,
    query: Query,
    work: impl FnOnce(&mut Tx, Moment) -> Result<(), Error> + Send + 'static,
) -> Result<Json<Success>, ApiError> {
    query.finish()?;
    api.write(work).await?;
    Ok(Json(Success::DONE))
}
