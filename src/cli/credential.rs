//! API key that requests are sent with, in place of the operator's rights: its origin, its holder, and its org.

use std::fmt;

use axum::http::header::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use uuid::Uuid;

use super::Failure;
use crate::api;

/// Variable that holds a key.
const VARIABLE: &str = "TRUNKLINE_API_KEY";

/// Key of an org or a partner.
#[derive(Debug)]
pub(super) struct Credential {
    pub(super) authorization: HeaderValue,
    pub(super) holder: Holder,
    origin: Origin,
}

/// Holder of a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// The org that the key names; `None` if it names none, which the API refuses.
    Org(Option<Uuid>),
    Partner,
}

/// Place where a key was given.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// `TRUNKLINE_API_KEY`.
    Variable,
    /// `--key`.
    Option,
    /// Beside an address, in `--url` or `TRUNKLINE_URL`.
    Url,
}

impl Origin {
    /// Returns the origin of a key; `has_url` says that an address was given with it.
    pub(super) fn of(key: &str, has_url: bool) -> Self {
        match has_url {
            true => Self::Url,
            false if std::env::var(VARIABLE).is_ok_and(|held| held == key) => Self::Variable,
            false => Self::Option,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable => write!(
                out,
                "{VARIABLE} is set, so this runs as that key: unset it to act as the operator"
            ),
            Self::Option => out.write_str(
                "--key is given, so this runs as that key: leave it out to act as the operator",
            ),
            Self::Url => write!(
                out,
                "--url (or TRUNKLINE_URL) is given, so this runs as a key: leave it out, and unset {VARIABLE}, to act as the operator"
            ),
        }
    }
}

impl Credential {
    /// Reads a key.
    ///
    /// # Errors
    /// The key has the wrong form.
    pub(super) fn new(key: &str, origin: Origin) -> Result<Self, Failure> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {key}"))
            .map_err(|_| Failure::Startup("--key: this is not an API key".to_owned()))?;
        // Debug output shows a sensitive value as a word in its place.
        authorization.set_sensitive(true);
        Ok(Self {
            authorization,
            holder: match key.starts_with(api::PARTNER_KEY) {
                true => Holder::Partner,
                false => Holder::Org(org_of(key)),
            },
            origin,
        })
    }

    /// Makes the refusal of a command for which the holder of this key has no right.
    pub(super) fn is_no_operator(&self) -> Failure {
        let who = match self.holder {
            Holder::Org(_) => "only the operator, or a partner with its key (tlp_…), can do this",
            Holder::Partner => "only the operator can do this",
        };
        Failure::Startup(format!("{who}; {}", self.origin))
    }
}

/// Returns the org that the key names. The signature is the API's concern.
fn org_of(key: &str) -> Option<Uuid> {
    let claims = key.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims["org"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_org() {
        let org = "0198c0de-0000-7000-8000-00000000000a";
        let claims = URL_SAFE_NO_PAD.encode(format!("{{\"org\":\"{org}\"}}"));
        assert_eq!(org_of(&format!("e30.{claims}.sig")), org.parse().ok());
        for other in ["", "nobody's", "a.b.c", "e30.e30.sig"] {
            assert_eq!(org_of(other), None, "{other}");
        }
    }
}
