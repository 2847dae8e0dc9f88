//! The credential in a request's headers, before it is known whose it is.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use uuid::Uuid;

use crate::api::{Api, ApiError};

/// Credential that authenticates a request. Equal `Idempotency-Key`s of two credentials are two keys.
pub(crate) trait Credential: FromRequestParts<Api, Rejection = ApiError> + Clone {
    /// Id of the credential: of the API key, not of the `Idempotency-Key`.
    fn key_id(&self) -> Uuid;

    /// Org that its requests are about; `None` if they are about orgs that their paths name.
    fn org(&self) -> Option<Uuid>;
}

/// Prefix of partner keys.
pub(crate) const PARTNER_KEY: &str = "tlp_";

/// Returns the credential that came with the request; `required` is the message if it is missing.
pub(crate) fn credential<'r>(
    parts: &'r Parts,
    required: &'static str,
) -> Result<&'r str, ApiError> {
    let value = parts.headers.get(AUTHORIZATION);
    let value = value.ok_or(ApiError::Unauthorized(required))?;
    let credential = value.to_str().ok().and_then(bearer);
    credential.ok_or(ApiError::Unauthorized(
        "The Authorization header is not a Bearer credential",
    ))
}

/// Credential in `Bearer <credential>`; the scheme ignores case (RFC 9110 §11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, credential) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| credential.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_credential_is_found() {
        for (value, credential) in [
            ("Bearer a.b.c", Some("a.b.c")),
            ("bearer  x ", Some("x")),
            ("Basic eDp5", None),
            ("Bearer", None),
        ] {
            assert_eq!(bearer(value), credential, "{value}");
        }
    }
}
