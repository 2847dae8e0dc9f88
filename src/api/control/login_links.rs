//! `POST /operator/orgs/{orgId}/login-links`: a link to the org's dashboard, for the operator or for another person.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use trunkline_sip::moment::Moment;
use trunkline_store::{Acting, Error, Kind, NewLogin, Store, Wrong, logins, orgs};
use uuid::Uuid;

use crate::api::body::Body;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::operator::Operator;
use crate::api::partner::{LinkView, described_login, issue_login_link, store_link};
use crate::api::path::Named;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.post(
        "/operator/orgs/{orgId}/login-links",
        create,
        "createOperatorsLoginLink",
        "Creates a link that logs a person into the dashboard, once and within 15 minutes",
        |op| op.body(read_by(described_login)).gives::<LinkView>(201),
    );
}

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
        login.roles = writing_role(api.store(), org).await?;
    }

    let shown = issue_login_link(&api, org, login, confirm).await?;
    Ok((StatusCode::CREATED, Json(shown)))
}

/// Makes a link to the org's dashboard for the operator, for a command that has the store itself.
///
/// # Errors
/// [`Broke`](trunkline_store::Broke): the database fails.
pub(crate) async fn operators_login_link(
    (store, dashboard): (&Store, &str),
    org: Uuid,
    email: &str,
    now: Moment,
) -> Result<String, Error> {
    let login = NewLogin {
        email: email.to_owned(),
        name: Some("Operator".to_owned()),
        roles: writing_role(store, org).await?,
    };
    let link = store_link((store, dashboard), org, &login, false, now).await?;
    Ok(link.url().to_owned())
}

/// Returns the role of the org that may change everything.
async fn writing_role(store: &Store, org: Uuid) -> Result<Vec<Uuid>, Error> {
    let writes = [Some("write".to_owned()), None];
    let roles = store.read(move |tx| logins::roles(tx, org, &writes, None, 1));
    Ok(roles.await?.items.iter().map(|role| role.id).collect())
}
