//! `POST /partner/v1/orgs/{orgId}/login-links`: creates a link that logs a person into the dashboard of the org, once
//! and within 15 minutes.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use trunkline_store::{Error, LoginLink, NewLogin, Store, Wrong, is_operators_address, logins};
use uuid::Uuid;

use crate::api::body::{Body, Fields};
use crate::api::caller::Provisioner;
use crate::api::email::EMAIL;
use crate::api::field_type::{Bool, ID, ListOf, Text};
use crate::api::idempotency::once_for;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::time::written;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let mut of = api.provisioning(by);
    of.post_once(
        "/orgs/{orgId}/login-links",
        once_for::<Provisioner, _>(create),
        "createLoginLink",
        "Creates a link that logs a person into the dashboard, once and within 15 minutes",
        |op| {
            let body = read_by(described);
            op.body(body).gives::<LinkView>(201)
        },
    );
}

/// Time that a link is valid.
const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// A login link, the one time that it is shown.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LoginLink")]
pub(crate) struct LinkView {
    url: String,
    expires_at: String,
}

impl LinkView {
    /// The link.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// `POST /partner/v1/orgs/{orgId}/login-links {email, name, role_ids, confirm}`: 201. If the address has no account,
/// one is created, named `name` or the part before the at sign. A member keeps its roles; a new one gets `role_ids`, or
/// else the default role, and from the operator one that may change everything.
pub(super) async fn create(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    body: Body,
) -> Result<(StatusCode, Json<LinkView>), ApiError> {
    // Before the org is looked up: requests for foreign orgs count as well.
    if let Some(partner) = caller.partner() {
        partner.takes_login_link(&api)?;
    }
    let org = caller.org(&api, &named).await?.id;

    let (mut login, confirm) = described(body.fields()?)?;
    match caller {
        Provisioner::Partner(_) => must_be_a_persons(&login)?,
        Provisioner::Operator(_) if login.roles.is_empty() => {
            login.roles = writing_role(api.store(), org).await?;
        }
        Provisioner::Operator(_) => {}
    }
    let shown = issue(&api, org, login, confirm).await?;
    Ok((StatusCode::CREATED, Json(shown)))
}

/// Refuses the address of the operator's account to everybody else, who could act in the operator's name with it.
///
/// # Errors
/// 400.
pub(crate) fn must_be_a_persons(login: &NewLogin) -> Result<(), ApiError> {
    match is_operators_address(&login.email) {
        true => Err(ApiError::bad(
            "email: is the address of the operator's own account",
        )),
        false => Ok(()),
    }
}

/// Makes a new link to the org's dashboard.
///
/// # Errors
/// 400 for a role that isn't the org's.
pub(crate) async fn issue(
    api: &Api,
    org: Uuid,
    login: NewLogin,
    confirm: bool,
) -> Result<LinkView, ApiError> {
    let dashboard = api.dashboard_url();
    let stored = store_link(api.store(), dashboard, org, &login, confirm, api.now());
    stored.await.map_err(|error| refused(&login, error))
}

/// Stores a new link to the org's dashboard at this address, and returns it.
///
/// # Errors
/// [`Wrong::Unknown`] for a role that isn't the org's.
async fn store_link(
    store: &Store,
    dashboard: &str,
    org: Uuid,
    login: &NewLogin,
    confirm: bool,
    now: Moment,
) -> Result<LinkView, Error> {
    let token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
    // Only the hash is stored: who reads the database, or a backup of it, can't log in.
    let link = LoginLink {
        token_hash: Sha256::digest(&token).into(),
        expires_at: now + LIFETIME,
        confirm,
    };

    let (new, expires_at) = (login.clone(), written(link.expires_at));
    store
        .write(move |tx| logins::create_link(tx, org, &new, &link, now))
        .await?;
    Ok(LinkView {
        url: format!("{dashboard}/partner-login?token={token}"),
        expires_at,
    })
}

/// Makes a link to the org's dashboard for the operator, for a command that has the store itself.
///
/// # Errors
/// [`Broke`](trunkline_store::Broke): the database fails.
pub(crate) async fn operators_login_link(
    store: &Store,
    dashboard: &str,
    org: Uuid,
    email: &str,
    now: Moment,
) -> Result<String, Error> {
    let login = NewLogin {
        email: email.to_owned(),
        name: Some("Operator".to_owned()),
        roles: writing_role(store, org).await?,
    };
    let link = store_link(store, dashboard, org, &login, false, now).await?;
    Ok(link.url().to_owned())
}

/// Returns the role of the org that may change everything.
async fn writing_role(store: &Store, org: Uuid) -> Result<Vec<Uuid>, Error> {
    let writes = [Some("write".to_owned()), None];
    let roles = store.read(move |tx| logins::roles(tx, org, &writes, None, 1));
    Ok(roles.await?.items.iter().map(|role| role.id).collect())
}

/// Names the foreign role by its position in the list.
fn refused(login: &NewLogin, error: Error) -> ApiError {
    let place = match &error {
        Error::Wrong(Wrong::Unknown { id, .. }) => login.roles.iter().position(|role| role == id),
        Error::Wrong(_) | Error::Conflict(_) | Error::Broke(_) => None,
    };
    match place {
        Some(at) => ApiError::bad(format!("role_ids[{at}]: {error}")),
        None => error.into(),
    }
}

/// Reads the person to log in, and whether a confirmation page comes first.
fn described(mut fields: Fields) -> Result<(NewLogin, bool), ApiError> {
    let email = fields.required("email", EMAIL);
    let name = fields.optional("name", Text::line(1..=255));
    let roles = fields.optional("role_ids", ListOf::new(ID, 0..=100));
    let confirm = fields.optional("confirm", Bool);
    fields.done(|| {
        let login = NewLogin {
            email: email?,
            name,
            roles: roles.unwrap_or_default(),
        };
        Some((login, confirm.unwrap_or(false)))
    })
}
