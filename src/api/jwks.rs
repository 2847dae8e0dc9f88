//! `GET /.well-known/jwks.json`: the public keys of the tokens that we sign (RFC 7517, RFC 8037), so that others can
//! verify them.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::SigningPair;

use super::operations::{Audience, Operations};
use super::query::Query;
use super::{Api, ApiError};

/// Time that clients may cache the answer.
const KEPT: &str = "public, max-age=300";

/// A JWK set.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct KeySet {
    /// Keys; the one that signs new tokens first.
    keys: Vec<Jwk>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Jwk {
    kty: &'static str,
    crv: &'static str,
    alg: &'static str,
    #[serde(rename = "use")]
    purpose: &'static str,
    kid: String,
    x: String,
}

impl From<&SigningPair> for Jwk {
    fn from(pair: &SigningPair) -> Self {
        Self {
            kty: "OKP",
            crv: "Ed25519",
            alg: "EdDSA",
            purpose: "sig",
            kid: pair.id().to_owned(),
            x: URL_SAFE_NO_PAD.encode(pair.public()),
        }
    }
}

/// `GET /.well-known/jwks.json`
pub(super) async fn show(
    State(api): State<Api>,
    query: Query,
) -> Result<([(HeaderName, &'static str); 1], Json<KeySet>), ApiError> {
    query.finish()?;
    let keys = api.store().keyring().signing_keys();
    let set = KeySet {
        keys: keys.iter().map(Jwk::from).collect(),
    };
    Ok(([(header::CACHE_CONTROL, KEPT)], Json(set)))
}

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Service", Audience::Public);
    of.get(
        "/.well-known/jwks.json",
        show,
        ("showKeySet", "The public keys of our tokens, as a JWK set"),
        |op| op.gives::<KeySet>(200),
    );
}
