//! `GET /.well-known/jwks.json`: the public keys of the tokens that we sign (RFC 7517, RFC 8037), so that others can
//! verify them.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::{SigningPair, TokenKind};

use super::operations::{Audience, Operations};
use super::query::Query;
use super::{Api, ApiError};

/// Time that clients may cache the answer.
const KEPT: &str = "public, max-age=300";

/// A JWK set.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct KeySet {
    /// Keys of API keys, then those of widget tokens; of each kind the one that signs new tokens first.
    keys: Vec<Jwk>,
}

/// Tokens that a key signs.
#[derive(Copy, Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SignedTokens {
    /// API keys of orgs.
    ApiKey,
    /// Tokens of the widget's visitors.
    WidgetContact,
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
    /// Tokens that the key signs. A verifier of widget tokens must take no key of API keys.
    tokens: SignedTokens,
}

impl Jwk {
    fn new(tokens: SignedTokens, pair: &SigningPair) -> Self {
        Self {
            kty: "OKP",
            crv: "Ed25519",
            alg: "EdDSA",
            purpose: "sig",
            kid: pair.id().to_owned(),
            x: URL_SAFE_NO_PAD.encode(pair.public()),
            tokens,
        }
    }
}

/// `GET /.well-known/jwks.json`
pub(super) async fn show(
    State(api): State<Api>,
    query: Query,
) -> Result<([(HeaderName, &'static str); 1], Json<KeySet>), ApiError> {
    query.finish()?;
    let keyring = api.store().keyring();
    let published = [
        (TokenKind::ApiKey, SignedTokens::ApiKey),
        (TokenKind::Widget, SignedTokens::WidgetContact),
    ];
    let mut keys = Vec::new();
    for (kind, tokens) in published {
        let pairs = keyring.signing_keys_of(kind);
        keys.extend(pairs.iter().map(|pair| Jwk::new(tokens, pair)));
    }
    let set = KeySet { keys };
    Ok(([(header::CACHE_CONTROL, KEPT)], Json(set)))
}

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Service", Audience::Public);
    of.get(
        "/.well-known/jwks.json",
        show,
        "showKeySet",
        "The public keys of our tokens, as a JWK set",
        |op| op.gives::<KeySet>(200),
    );
}
