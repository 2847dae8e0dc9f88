//! `POST /operator/orgs/{orgId}/login-links`: a link for the operator, or for somebody else, to the org's dashboard.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use trunkline_store::{Acting, Error, Kind, Wrong, logins, orgs};

use crate::api::body::Body;
use crate::api::operator::Operator;
use crate::api::partner::{LinkView, described_login, issue_login_link};
use crate::api::path::Named;
use crate::api::{Api, ApiError};

/// `POST /operator/orgs/{orgId}/login-links {email, name, role_ids, confirm}`: 201, as the partner's of the same name. A
/// new member without roles gets one that may change everything.
pub(super) async fn create(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    body: Body,
) -> Result<(StatusCode, Json<LinkView>), ApiError> {
    let org = named.id("orgId", Kind::Org)?;
    match api.read_inline(move |tx| orgs::by_id(tx, org)).await {
        Ok(_) => Acting::of_org(org),
        Err(Error::Wrong(Wrong::Absent(_))) => return Err(ApiError::absent(Kind::Org)),
        Err(error) => return Err(error.into()),
    }

    let (mut login, confirm) = described_login(body.fields()?)?;
    if login.roles.is_empty() {
        let writes = [Some("write".to_owned()), None];
        let roles = api.read(move |tx| logins::roles(tx, org, &writes, None, 1));
        login.roles = roles.await?.items.iter().map(|role| role.id).collect();
    }

    let shown = issue_login_link(&api, org, login, confirm).await?;
    Ok((StatusCode::CREATED, Json(shown)))
}
