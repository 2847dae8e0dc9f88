//! The operator on a page, by the session that a link from the control socket has opened. Its cookie is sent to these pages alone, and is a
//! credential of nothing else.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use trunkline_store::TokenHash;
use uuid::Uuid;

use super::super::backend::Client;
use super::super::forms::Forms;
use super::super::page::{ErrorPage, base_of};
use super::super::visitor::{FORM_TOKEN, FormFields};
use crate::api::credentials::presented;
use crate::api::field_type::id;
use crate::api::operator_sessions::{OperatorSession, SESSION_LIFETIME};
use crate::api::path::Named;
use crate::api::{Api, dashboard_session};

/// Path of the pages.
pub(in crate::console) const AT: &str = "/operator-console";

/// Name of the cookie over plain HTTP, and over HTTPS. The prefix `__Host-` would need the path `/`, and so send the cookie to other pages.
const NAME: &str = "trunkline_operator";
const SECURE_NAME: &str = "__Secure-trunkline_operator";

/// The operator on a page.
#[derive(Debug)]
pub(super) struct OperatorVisitor {
    pub(super) session: OperatorSession,
    pub(super) client: Client,
    /// Prefix of every path, of pages and files alike.
    pub(super) base: String,
    form_token: String,
    named: Named,
}

impl FromRequestParts<Api> for OperatorVisitor {
    type Rejection = ErrorPage;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ErrorPage> {
        let name = if is_secure(api) { SECURE_NAME } else { NAME };
        let hash = dashboard_session::cookie_value(&parts.headers, name).map(presented);
        let sessions = api.operator_sessions();
        let session = hash.and_then(|hash| sessions.of(hash, api.monotonic()));
        let session = session.ok_or_else(logged_out)?;

        let Ok(named) = Named::from_request_parts(parts, api).await;
        let client = Client::of_operator(parts, &session).ok_or_else(ErrorPage::not_found)?;

        Ok(Self {
            base: base_of(api).to_owned(),
            form_token: URL_SAFE_NO_PAD.encode(form_mac(session.hash, api).finalize().into_bytes()),
            client,
            session,
            named,
        })
    }
}

impl OperatorVisitor {
    /// Returns the id in the page's path.
    ///
    /// # Errors
    /// 404 for a text that is no id.
    pub(super) fn id(&self, parameter: &str) -> Result<Uuid, ErrorPage> {
        let text = self.named.text(parameter);
        text.and_then(id).ok_or_else(ErrorPage::not_found)
    }
}

impl Forms for OperatorVisitor {
    fn path(&self, below: &str) -> String {
        let slash = if below.is_empty() { "" } else { "/" };
        format!("{}{AT}{slash}{below}", self.base)
    }

    fn form_token(&self) -> &str {
        &self.form_token
    }
}

/// Form of the operator's pages, checked to be submitted from one of them.
#[derive(Debug)]
pub(super) struct OperatorForm {
    pub(super) visitor: OperatorVisitor,
    pub(super) fields: FormFields,
}

impl FromRequest<Api> for OperatorForm {
    type Rejection = ErrorPage;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ErrorPage> {
        let (mut parts, body) = request.into_parts();
        let visitor = OperatorVisitor::from_request_parts(&mut parts, api).await?;
        // Two checks, as for an org's forms: what the browser reports, and the form's token below.
        let own = dashboard_session::is_own(&parts, api);
        let octets = Bytes::from_request(Request::from_parts(parts, body), api).await;
        let fields = FormFields::read(octets.ok().as_deref())?;

        let given = URL_SAFE_NO_PAD.decode(fields.text(FORM_TOKEN));
        let mac = form_mac(visitor.session.hash, api);
        if !own || !given.is_ok_and(|given| mac.verify_slice(&given).is_ok()) {
            return Err(ErrorPage::foreign_form());
        }

        Ok(Self { visitor, fields })
    }
}

fn form_mac(hash: TokenHash, api: &Api) -> Hmac<Sha256> {
    let key = api.store().keyring().derive("operator forms");
    Hmac::<Sha256>::new_from_slice(&key)
        .expect("HMAC takes a key of any length")
        .chain_update(hash)
}

fn is_secure(api: &Api) -> bool {
    api.dashboard_url().starts_with("https://")
}

/// Value of `Set-Cookie` that sets a token, or deletes it.
pub(super) fn cookie(token: Option<&str>, api: &Api) -> String {
    let (value, age) = token.map_or(("", 0), |token| (token, SESSION_LIFETIME.as_secs()));
    let (name, secure) = match is_secure(api) {
        true => (SECURE_NAME, "; Secure"),
        false => (NAME, ""),
    };
    let path = format!("{}{AT}", base_of(api));
    // `Strict`, not `Lax` as for an org's pages: the only link from outside leads to the log-in, which needs no cookie.
    format!("{name}={value}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
}

fn logged_out() -> ErrorPage {
    ErrorPage::new(
        StatusCode::UNAUTHORIZED,
        "These pages are the operator's",
        "Run trunkline console --operator on the machine of this daemon, as its user or as root, and open the link that it prints.",
    )
}
