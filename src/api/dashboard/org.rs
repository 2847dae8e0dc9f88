//! Page of an org, with forms that create and revoke its API keys.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts as _, Request, State};
use axum::http::StatusCode;
use axum::response::Redirect;
use maud::Markup;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Acting, Call, CallFilter, Error, HandoffFilter, Kind, Narrow, NewOrgKey, Wrong, agents,
    handoffs, inbound_trunks, numbers, org_keys,
};
use uuid::Uuid;

use super::page::{ErrorPage, Html, base};
use super::view::{self, OrgPage};
use crate::api::credentials::DashboardSession;
use crate::api::dashboard_session;
use crate::api::path::Named;
use crate::api::phone::from_memory;
use crate::api::{Api, SCOPES, end_of, token};

/// Rows of each list.
const LIST_ROWS: u32 = 50;
/// Rows of calls and handoffs.
const RECENT_ROWS: u32 = 20;
/// Maximum length of a key's name, in characters.
const MAX_NAME: usize = 200;

/// Form of a logged-in session, checked to come from its own page.
#[derive(Debug)]
pub(super) struct SubmittedForm {
    pub(super) session: Arc<DashboardSession>,
    named: Named,
    fields: HashMap<String, String>,
}

impl FromRequest<Api> for SubmittedForm {
    type Rejection = ErrorPage;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ErrorPage> {
        let (mut parts, body) = request.into_parts();
        let session = dashboard_session::of(&parts, api)
            .await?
            .ok_or_else(ErrorPage::logged_out)?;
        let Ok(named) = Named::from_request_parts(&mut parts, api).await;
        let own = dashboard_session::is_own(&parts.headers, api);
        let octets = Bytes::from_request(Request::from_parts(parts, body), api).await;
        let octets = octets.map_err(|_| wrong("The form did not arrive whole."))?;
        let fields: HashMap<String, String> = serde_urlencoded::from_bytes(&octets)
            .map_err(|_| wrong("That is not a form of the dashboard."))?;

        let proof = fields.get("form_token").map_or("", String::as_str);
        if !own || !session.made_form(proof, api) {
            return Err(ErrorPage::new(
                StatusCode::FORBIDDEN,
                "Nothing was changed",
                "The form did not come from this session's own page. Go back to the dashboard and try again.",
            ));
        }

        let names = fields.keys().map(String::as_str);
        Acting::fields(names.filter(|name| *name != "form_token"));
        Ok(Self {
            session,
            named,
            fields,
        })
    }
}

impl SubmittedForm {
    /// Returns the org, if the session may change it.
    fn changes(&self) -> Result<Uuid, ErrorPage> {
        let org = org_of_session(&self.named, &self.session)?;
        if self.session.record.writes {
            return Ok(org);
        }
        Err(ErrorPage::new(
            StatusCode::FORBIDDEN,
            "You may look, but not change anything",
            "Ask an administrator of your organization.",
        ))
    }
}

fn wrong(text: &str) -> ErrorPage {
    ErrorPage::new(StatusCode::BAD_REQUEST, "That did not work", text)
}

/// Returns the org of the path, which must be the session's.
pub(super) fn org_of_session(named: &Named, session: &DashboardSession) -> Result<Uuid, ErrorPage> {
    let org = named.id("org_id", Kind::Org)?;
    if org != session.record.org_id {
        return Err(ErrorPage::not_found());
    }
    if session.record.suspended {
        return Err(ErrorPage::new(
            StatusCode::FORBIDDEN,
            "This organization is suspended",
            "Calls that are up go on. Ask whoever gave you the login link.",
        ));
    }
    Ok(org)
}

/// `GET /dashboard/{org_id}`
pub(super) async fn show(
    state: State<Api>,
    named: Named,
    request: Request,
) -> Result<Html, ErrorPage> {
    let (parts, _) = request.into_parts();
    let session = dashboard_session::of(&parts, &state)
        .await?
        .ok_or_else(ErrorPage::logged_out)?;
    org_of_session(&named, &session)?;
    Ok(Html(page(&state, &session, None).await?))
}

/// `POST /dashboard/{org_id}/keys`: creates a key with the ticked scopes, and shows it in this answer only.
pub(super) async fn create_key(state: State<Api>, form: SubmittedForm) -> Result<Html, ErrorPage> {
    let org = form.changes()?;
    let name = form.fields.get("name").map_or("", String::as_str).trim();
    let name = if name.is_empty() { "Default" } else { name };
    if name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(wrong(
            "The name of a key is one line of at most 200 characters.",
        ));
    }

    let ticked = |scope: &&str| form.fields.contains_key(*scope);
    let scopes: Vec<&str> = SCOPES.into_iter().filter(ticked).collect();
    if scopes.is_empty() {
        return Err(wrong("A key needs at least one scope."));
    }

    let State(api) = &state;
    let new = NewOrgKey {
        expires_at: last_day(&form, api.now())?,
        ..NewOrgKey::lasting(name, &scopes)
    };
    let (_, secret) = token::issue(api.store(), org, new, api.now()).await?;
    Ok(Html(page(&state, &form.session, Some(&secret)).await?))
}

/// Returns the end of the last day in the form; `None` if it names none.
fn last_day(form: &SubmittedForm, now: Moment) -> Result<Option<Moment>, ErrorPage> {
    let day = form.fields.get("last_day").map_or("", String::as_str);
    if day.is_empty() {
        return Ok(None);
    }
    let end = end_of(day).map_err(|_| wrong("The last day of a key is a date."))?;
    if end <= now {
        return Err(wrong("The last day of a key lies in the past."));
    }
    Ok(Some(end))
}

/// `POST /dashboard/{org_id}/keys/{api_key_id}/revoke`; revoking a revoked key is no error.
pub(super) async fn revoke_key(
    state: State<Api>,
    form: SubmittedForm,
) -> Result<Redirect, ErrorPage> {
    let org = form.changes()?;
    let key = form.named.id("api_key_id", Kind::OrgKey)?;
    match state.revoke_key(org, key).await {
        Ok(()) | Err(crate::api::ApiError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let to = format!("{}/dashboard/{org}#keys", base(&state));
    Ok(Redirect::to(&to))
}

/// Newest calls; those that are up come from memory.
async fn recent(api: &Api, org: Uuid) -> Result<Vec<Call>, Error> {
    // Memory first: a call that ends in between is then found in the store.
    let live = api.live().of_org(org);
    let any = CallFilter::default();
    let stored = api.store().calls(org, any, None, RECENT_ROWS).await?;
    let mut calls = stored.items;
    let is_over = |calls: &[Call], id| {
        calls
            .iter()
            .any(|call| call.id == id && call.ended_at.is_some())
    };

    for live in live.into_iter().map(from_memory) {
        if !is_over(&calls, live.id) {
            calls.retain(|call| call.id != live.id);
            calls.push(live);
        }
    }

    calls.sort_unstable_by_key(|call| std::cmp::Reverse((call.started_at, call.id)));
    calls.truncate(RECENT_ROWS as usize);
    Ok(calls)
}

async fn page(
    state: &State<Api>,
    session: &DashboardSession,
    secret: Option<&str>,
) -> Result<Markup, ErrorPage> {
    let State(api) = state;
    let (store, org) = (api.store(), session.record.org_id);
    let trunk = match store.read(move |tx| inbound_trunks::of_org(tx, org)).await {
        Ok(trunk) => Some(trunk),
        Err(Error::Wrong(Wrong::Absent(_))) => None,
        Err(error) => return Err(error.into()),
    };

    let any = HandoffFilter {
        reason: None,
        from: Moment::from_secs(0),
        to: api.now(),
    };

    Ok(view::org(&OrgPage {
        base: base(state),
        session,
        form_token: session.form_token(api),
        agents: store
            .read(move |tx| agents::page(tx, org, &Narrow::default(), None, LIST_ROWS))
            .await?,
        numbers: store
            .read(move |tx| numbers::page(tx, org, &Narrow::default(), None, LIST_ROWS))
            .await?,
        trunk,
        sip_endpoint: api.config().sip.endpoint(),
        keys: store
            .read(move |tx| org_keys::page(tx, org, &Narrow::default(), None, LIST_ROWS))
            .await?,
        secret,
        calls: recent(api, org).await?,
        handoffs: store
            .read(move |tx| handoffs::list(tx, org, any, None, RECENT_ROWS))
            .await?,
    }))
}
