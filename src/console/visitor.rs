//! Logged-in person behind a request for a page: the session, its org and its rights. Also the forms that the person submits.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use trunkline_store::{Acting, Kind};
use uuid::Uuid;

use super::backend::Client;
use super::forms::Forms;
use super::page::{ErrorPage, base_of};
use crate::api::credentials::DashboardSession;
use crate::api::field_type::id;
use crate::api::path::Named;
use crate::api::quota::{CONSOLE_REQUESTS_PER_MINUTE, Policy, Tally};
use crate::api::{Api, dashboard_session};

/// Field that proves the origin of a form.
pub(super) const FORM_TOKEN: &str = "form_token";

/// A person on a page of their org.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    pub(super) session: Arc<DashboardSession>,
    pub(super) org: Uuid,
    /// Path prefix of the console behind a proxy; empty without one.
    pub(super) base: String,
    pub(super) client: Client,
    /// Token that the session's forms carry.
    pub(super) form_token: String,
    named: Arc<Named>,
}

impl FromRequestParts<Api> for Visitor {
    type Rejection = ErrorPage;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ErrorPage> {
        let visitor = Self::read(parts, api).await?;
        // A member may know that the org is suspended, so this is no 404.
        if visitor.session.record.suspended {
            return Err(ErrorPage::new(
                StatusCode::FORBIDDEN,
                "This organization is suspended",
                "Calls that are up go on. Ask the person who gave you the login link.",
            ));
        }

        Ok(visitor)
    }
}

impl Visitor {
    /// Reads the session of a request, also one of a suspended org.
    async fn read(parts: &mut Parts, api: &Api) -> Result<Self, ErrorPage> {
        let session = dashboard_session::of(parts, api)
            .await?
            .ok_or_else(ErrorPage::logged_out)?;
        let Ok(named) = Named::from_request_parts(parts, api).await;
        // `/dashboard/logout` names no org.
        let org = match named.text("org_id") {
            Some(_) => named.id("org_id", Kind::Org)?,
            None => session.record.org_id,
        };
        if org != session.record.org_id {
            // Another org's page is as absent as one that doesn't exist.
            return Err(ErrorPage::not_found());
        }
        // A page that reads the store itself counts like one that uses the API.
        let limit = CONSOLE_REQUESTS_PER_MINUTE;
        let taken = api
            .quotas()
            .take(Policy::Console, org, limit, api.monotonic());
        Tally::of(parts).note(taken)?;

        Ok(Self {
            org,
            base: base_of(api).to_owned(),
            client: Client::of(parts).ok_or_else(ErrorPage::not_found)?,
            form_token: session.form_token(api),
            session,
            named: Arc::new(named),
        })
    }

    /// Returns true if the person may change things.
    pub(super) fn writes(&self) -> bool {
        self.session.record.writes
    }

    /// Path of a page of the org.
    pub(super) fn path(&self, below: &str) -> String {
        let slash = if below.is_empty() { "" } else { "/" };
        format!("{}/dashboard/{}{slash}{below}", self.base, self.org)
    }

    /// Returns the id in the page's path.
    ///
    /// # Errors
    /// 404 for a text that is no id.
    pub(super) fn id(&self, parameter: &str) -> Result<Uuid, ErrorPage> {
        let text = self.named.text(parameter);
        text.and_then(id).ok_or_else(ErrorPage::not_found)
    }

    /// Returns a word in the page's path; empty without one.
    pub(super) fn word(&self, parameter: &str) -> &str {
        self.named.text(parameter).unwrap_or_default()
    }

    /// Checks that the person may change things.
    ///
    /// # Errors
    /// 403 for a role that only reads.
    pub(super) fn must_write(&self) -> Result<(), ErrorPage> {
        if self.writes() {
            return Ok(());
        }
        Err(ErrorPage::new(
            StatusCode::FORBIDDEN,
            "You may look, but not change anything",
            "Ask an administrator of your organization.",
        ))
    }
}

/// Form of a logged-in session, checked to come from its own page.
#[derive(Debug)]
pub(super) struct SubmittedForm {
    pub(super) visitor: Visitor,
    pub(super) fields: FormFields,
}

/// The form that logs out. A suspended org's people can send it too.
#[derive(Debug)]
pub(super) struct LogOutForm(pub(super) SubmittedForm);

/// Fields of a form as they were submitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Reads the body of a form, `None` for one that didn't arrive whole.
    ///
    /// # Errors
    /// 400 for a body that is no form.
    pub(super) fn read(octets: Option<&[u8]>) -> Result<Self, ErrorPage> {
        let octets = octets.ok_or_else(|| wrong("The form did not arrive whole."))?;
        let fields = serde_urlencoded::from_bytes(octets);
        Ok(Self(fields.map_err(|_| {
            wrong("That is not a form of the console.")
        })?))
    }

    /// First value of a field; empty without one.
    pub(super) fn text<'f>(&'f self, name: &'f str) -> &'f str {
        self.values(name).next().unwrap_or_default()
    }

    /// All values of a field. Reading a submitted field writes its name into the request's audit entry. A field that no page reads is left out, so
    /// that a client can't fill the log with names of its own.
    pub(super) fn values<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        if name != FORM_TOKEN && self.0.iter().any(|(key, _)| key == name) {
            Acting::field(name);
        }

        let pairs = self.0.iter().filter(move |(key, _)| key == name);
        pairs.map(|(_, value)| value.as_str())
    }

    /// Names of the fields that a person has filled in.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.0.iter().map(|(name, _)| name.as_str());
        names.filter(|name| *name != FORM_TOKEN)
    }
}

impl FromRequest<Api> for SubmittedForm {
    type Rejection = ErrorPage;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ErrorPage> {
        let (mut parts, body) = request.into_parts();
        // Before the body is read: a client without a session can't make us take in a form.
        let visitor = Visitor::from_request_parts(&mut parts, api).await?;
        Self::read(visitor, Request::from_parts(parts, body), api).await
    }
}

impl FromRequest<Api> for LogOutForm {
    type Rejection = ErrorPage;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ErrorPage> {
        let (mut parts, body) = request.into_parts();
        let visitor = Visitor::read(&mut parts, api).await?;
        let request = Request::from_parts(parts, body);
        Ok(Self(SubmittedForm::read(visitor, request, api).await?))
    }
}

impl SubmittedForm {
    /// Reads a visitor's form, and checks that a page of the session made it.
    async fn read(visitor: Visitor, request: Request, api: &Api) -> Result<Self, ErrorPage> {
        let (parts, body) = request.into_parts();
        // Judged twice: by what the browser reports, and by the token, which a browser that reports nothing sends too.
        let own = dashboard_session::is_own(&parts, api);
        let octets = Bytes::from_request(Request::from_parts(parts, body), api).await;
        let fields = FormFields::read(octets.ok().as_deref())?;

        let form = Self { visitor, fields };
        if !own || !form.visitor.session.made_form(form.text(FORM_TOKEN), api) {
            return Err(ErrorPage::foreign_form());
        }

        Ok(form)
    }

    /// First value of a field; empty without one.
    pub(super) fn text<'f>(&'f self, name: &'f str) -> &'f str {
        self.fields.text(name)
    }
}

impl Forms for Visitor {
    fn path(&self, below: &str) -> String {
        Self::path(self, below)
    }

    fn form_token(&self) -> &str {
        &self.form_token
    }
}

fn wrong(text: &str) -> ErrorPage {
    ErrorPage::new(StatusCode::BAD_REQUEST, "That did not work", text)
}
