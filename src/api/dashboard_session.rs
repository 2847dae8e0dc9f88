//! Session of the dashboard: its cookie, its user and its permissions.
//!
//! The cookie is a credential of the API too, for requests without `Authorization`. A session that may write has every
//! scope, another one the reading scopes. Browsers send the cookie with any request, so a request that changes
//! something must come from the dashboard's own pages. `SameSite` is `Lax`, so that a link to a call opens from a message of a colleague;
//! forms are held to their origin and a token instead.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderMap, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use trunkline_store::{Acting, OrgLimit, Session, TokenHash, org_limits, sessions};
use uuid::Uuid;

use super::connection::Encrypted;
use super::connection_limiter::Proof;
use super::credentials::{CallerKey, DashboardSession, KnownOrg, presented};
use super::error::ApiError;
use super::{Api, SCOPES, default_limits};

/// Lifetime of a session.
pub(crate) const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Name of the cookie over plain HTTP.
const NAME: &str = "trunkline_session";
/// Name of the cookie over HTTPS. Browsers accept a cookie with the prefix `__Host-` only from the host itself (RFC 6265bis §4.1.3.2).
const SECURE_NAME: &str = "__Host-trunkline_session";
/// Scopes of a session that may only read.
const READING: [&str; 3] = ["handoff:read", "phone:read", "calls:read"];

/// Makes a new token and its hash.
pub(crate) fn new_token() -> (String, TokenHash) {
    let token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
    let hash = presented(&token);
    (token, hash)
}

/// Returns true if the session cookie is the credential of the request.
pub(super) fn is_presented(headers: &HeaderMap, api: &Api) -> bool {
    !headers.contains_key(AUTHORIZATION) && cookie_value(headers, name(api)).is_some()
}

/// Returns the session of the request's cookie; `None` without a cookie, or with another credential beside it.
///
/// # Errors
/// 401 if the session has ended.
pub(crate) async fn of(
    parts: &Parts,
    api: &Api,
) -> Result<Option<Arc<DashboardSession>>, ApiError> {
    if !is_presented(&parts.headers, api) {
        return Ok(None);
    }
    let Some(hash) = cookie_value(&parts.headers, name(api)).map(presented) else {
        return Ok(None);
    };

    let now = api.now();
    let look_up = async || {
        let found = Box::pin(api.read_inline(move |tx| sessions::by_token(tx, hash, now))).await?;
        let Some(session) = found else {
            return Ok(None);
        };

        let limits = api
            .read_inline(move |tx| org_limits::of_org(tx, session.org_id))
            .await?;
        let defaults = default_limits(api.config());
        Ok(Some(DashboardSession {
            record: session,
            hash,
            requests_per_minute: limits.in_force(OrgLimit::Requests, defaults),
            streams_per_minute: limits.in_force(OrgLimit::Streams, defaults),
        }))
    };

    let sessions = &api.credentials().sessions;
    let session = sessions.or_look_up(hash, api.monotonic(), look_up).await?;
    let session = session
        // A cached look-up may outlive its session.
        .filter(|session| now < session.record.expires_at)
        .ok_or(ApiError::Unauthorized(
            "The session has ended: log in again",
        ))?;
    Proof::note(parts);
    let actor = session.record.actor();
    Acting::by(actor, Some(session.record.org_id), None);
    Ok(Some(session))
}

/// Returns the session of the request's cookie as it is stored. The request doesn't act by it.
pub(crate) async fn stored(parts: &Parts, api: &Api) -> Option<Session> {
    let hash = cookie_value(&parts.headers, name(api)).map(presented)?;
    let now = api.now();
    let found = api.read_inline(move |tx| sessions::by_token(tx, hash, now));
    // Without the database the link can't be consumed either.
    found.await.ok().flatten()
}

/// Returns true if the session is still open. While the database is away, it counts as open.
pub(crate) async fn is_open(session: &DashboardSession, api: &Api) -> bool {
    let (hash, now) = (session.hash, api.now());
    // From the store: a cached look-up may be a minute old.
    let found = api.read_inline(move |tx| sessions::by_token(tx, hash, now));
    match found.await {
        Ok(found) => found.is_some_and(|session| !session.suspended),
        Err(_) => true,
    }
}

fn name(api: &Api) -> &'static str {
    match api.dashboard_url().starts_with("https://") {
        true => SECURE_NAME,
        false => NAME,
    }
}

/// Value of the request's cookie of this name.
pub(crate) fn cookie_value<'h>(headers: &'h HeaderMap, wanted: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).iter();
    let mut pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    pairs.find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == wanted).then_some(value)
    })
}

/// Value of `Set-Cookie` that sets a token, or deletes it.
pub(crate) fn cookie(token: Option<&str>, api: &Api) -> String {
    let (value, age) = token.map_or(("", 0), |token| (token, LIFETIME.as_secs()));
    let name = name(api);
    let secure = if name == SECURE_NAME { "; Secure" } else { "" };
    // `__Host-` demands `Secure`, the path `/` and no `Domain` (RFC 6265bis §4.1.3.2).
    format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}")
}

impl DashboardSession {
    /// Treats the session as a key of the org, for a request to the API.
    ///
    /// # Errors
    /// 403 for a change that another site may have caused.
    pub(super) fn as_key(&self, parts: &Parts, api: &Api) -> Result<Arc<KnownOrg>, ApiError> {
        if !parts.method.is_safe() && !is_own(parts, api) {
            return Err(ApiError::Forbidden(
                "A session changes things only from the dashboard's own pages".to_owned(),
            ));
        }

        let scopes: &[&str] = if self.record.writes {
            &SCOPES
        } else {
            &READING
        };

        // In place of a key's id: each session has `Idempotency-Key`s of its own, and others once its person may only read, so that
        // answers with secrets end with the right to make them.
        let mut id = *self.hash.first_chunk().expect("a hash has 32 octets");
        if !self.record.writes {
            id = id.map(|octet| !octet);
        }
        Ok(Arc::new(KnownOrg {
            key: CallerKey {
                id: Uuid::from_bytes(id),
                org_id: self.record.org_id,
                name: "dashboard".to_owned(),
                scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
                expires_at: None,
            },
            suspended: self.record.suspended,
            requests_per_minute: self.requests_per_minute,
            streams_per_minute: self.streams_per_minute,
        }))
    }

    /// Token in the session's forms that proves their origin (CSRF).
    pub(crate) fn form_token(&self, api: &Api) -> String {
        let mac = self.form_mac(api).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode(mac)
    }

    /// Returns true if the form came from a page of this session.
    pub(crate) fn made_form(&self, given: &str, api: &Api) -> bool {
        let given = URL_SAFE_NO_PAD.decode(given);
        given.is_ok_and(|given| self.form_mac(api).verify_slice(&given).is_ok())
    }

    fn form_mac(&self, api: &Api) -> Hmac<Sha256> {
        let key = api.store().keyring().derive("dashboard forms");
        Hmac::<Sha256>::new_from_slice(&key)
            .expect("HMAC takes a key of any length")
            .chain_update(self.hash)
    }
}

/// Returns true unless the browser reports another site as the origin of the request. Browsers always report it for
/// requests that change something. An origin is a scheme, a host and a port (RFC 6454 §4): a page of `https://a` isn't one of `http://a`.
pub(crate) fn is_own(parts: &Parts, api: &Api) -> bool {
    let headers = &parts.headers;
    // An unreadable value becomes a text that equals no allowed one, so the request is refused.
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or(""));

    if text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return false;
    }

    let Some(origin) = text(ORIGIN.as_str()) else {
        return true;
    };
    let Some((scheme, authority)) = origin.parse::<Uri>().ok().and_then(scheme_and_authority)
    else {
        return false;
    };

    let dashboard = api.dashboard_url().parse::<Uri>().ok();
    let dashboard = dashboard.and_then(scheme_and_authority);
    let is_dashboards = dashboard.is_some_and(|known| known == (scheme.clone(), authority.clone()));
    let is_asked = Some(authority.as_str()) == text(HOST.as_str());
    // The page may have been loaded under another name than `dashboard_url` has: then `Origin` and `Host` agree.
    is_dashboards || (is_asked && scheme == browsers_scheme(parts))
}

fn scheme_and_authority(uri: Uri) -> Option<(Scheme, Authority)> {
    let parts = uri.into_parts();
    parts.scheme.zip(parts.authority)
}

/// Scheme by which the browser sent the request. A page of another site can't make the browser send `X-Forwarded-Proto`, so the header counts from
/// any peer. Of several schemes, the first is the one nearest to the browser.
fn browsers_scheme(parts: &Parts) -> Scheme {
    let forwarded = parts.headers.get("x-forwarded-proto");
    let forwarded = forwarded.and_then(|schemes| schemes.to_str().ok()?.split(',').next());
    let is_encrypted = match forwarded {
        Some(scheme) => scheme.trim().eq_ignore_ascii_case("https"),
        None => parts.extensions.get::<Encrypted>().is_some(),
    };

    match is_encrypted {
        true => Scheme::HTTPS,
        false => Scheme::HTTP,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_scheme_is_the_one_nearest_to_the_browser() {
        for (case, forwarded, encrypted, scheme) in [
            ("plain", None, None, Scheme::HTTP),
            ("over TLS", None, Some(Encrypted), Scheme::HTTPS),
            ("a proxy with TLS", Some("https"), None, Scheme::HTTPS),
            ("two proxies", Some("https, http"), None, Scheme::HTTPS),
            (
                "a proxy without",
                Some("http"),
                Some(Encrypted),
                Scheme::HTTP,
            ),
        ] {
            let mut request = axum::http::Request::get("/");
            if let Some(forwarded) = forwarded {
                request = request.header("X-Forwarded-Proto", forwarded);
            }
            if let Some(encrypted) = encrypted {
                request = request.extension(encrypted);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(browsers_scheme(&parts), scheme, "{case}");
        }
    }

    #[test]
    fn the_token_is_found_among_cookies() {
        for (name, lines, found) in [
            ("none", &[][..], None),
            ("alone", &["trunkline_session=abc"], Some("abc")),
            (
                "among others",
                &["a=b; trunkline_session=abc; c=d"],
                Some("abc"),
            ),
            (
                "on a second line",
                &["a=b", "trunkline_session=x"],
                Some("x"),
            ),
            (
                "another name",
                &["xtrunkline_session=abc; trunkline_sessions=d"],
                None,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(COOKIE, HeaderValue::from_static(line));
            }
            assert_eq!(cookie_value(&headers, NAME), found, "{name}");
        }
    }
}
