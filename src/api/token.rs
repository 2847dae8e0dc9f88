//! Signed tokens (Ed25519, RFC 8037): org API keys, whose `sub` is the key's row, and tokens of widget contacts, which
//! expire and have the claim `typ`.
//!
//! The signature proves that we issued a token. The store says if the key or contact still exists.

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use trunkline_store::{Error, Issued, IssuedBy, Keyring, NewOrgKey, OrgKey, Store, org_keys};

/// Claims of an org key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Id of the key.
    pub sub: Uuid,
    /// Id of the org.
    pub org: Uuid,
    /// Scopes of the key.
    pub scopes: Vec<String>,
    /// Time of creation, in seconds since the epoch.
    pub iat: u64,
    /// Random id, so that even a holder of the signing key can't make the token again. Tokens of the first builds have none; the hash of the
    /// whole token is what admits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<Uuid>,
}

/// Claims of a widget contact's token: only its id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContactClaims {
    typ: ContactType,
    /// Id of the contact.
    pub sub: Uuid,
    /// Id of the org.
    pub org: Uuid,
    /// Time of creation, in seconds since the epoch.
    pub iat: u64,
    /// Time of expiry, in seconds since the epoch.
    pub exp: u64,
}

/// Distinguishes a contact's token from all others.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum ContactType {
    #[serde(rename = "widget_contact")]
    WidgetContact,
}

/// Maximum length of a token that is parsed.
const LONGEST: usize = 4096;

/// Creates a key of the org. Returns its row, and the token, which is shown once.
///
/// # Errors
/// [`Wrong::Absent`](trunkline_store::Wrong::Absent) if the org doesn't exist,
/// [`Conflict::AtLimit`](trunkline_store::Conflict::AtLimit).
pub async fn issue(
    store: &Store,
    org: Uuid,
    new: NewOrgKey,
    now: Moment,
) -> Result<(OrgKey, String), Error> {
    issue_by(IssuedBy::Tenant, store, org, new, now).await
}

/// Creates a key for the operator, without the org's limit.
///
/// # Errors
/// [`Wrong::Absent`](trunkline_store::Wrong::Absent) if the org doesn't exist.
pub(crate) async fn issue_for_operator(
    store: &Store,
    org: Uuid,
    new: NewOrgKey,
    now: Moment,
) -> Result<(OrgKey, String), Error> {
    issue_by(IssuedBy::Operator, store, org, new, now).await
}

async fn issue_by(
    by: IssuedBy,
    store: &Store,
    org: Uuid,
    new: NewOrgKey,
    now: Moment,
) -> Result<(OrgKey, String), Error> {
    let keyring = store.keyring().clone();
    let made = store.write(move |tx| {
        let mut token = String::new();
        let issue = |id| {
            // Inside the transaction, because the row holds the hash of the token, and the token the id of the row.
            token = mint(&keyring, id, org, &new.scopes, now);
            issued(&token)
        };
        let key = org_keys::create(tx, org, &new, issue, by, now)?;
        Ok((key, token))
    });
    made.await
}

/// Hash and signing key of a token, for the row of its API key.
fn issued(token: &str) -> Issued {
    Issued {
        token_hash: Sha256::digest(token).into(),
        kid: key_of(token).unwrap_or_default(),
    }
}

/// Signs the token of an org key.
pub fn mint(keyring: &Keyring, key: Uuid, org: Uuid, scopes: &[String], now: Moment) -> String {
    let claims = Claims {
        sub: key,
        org,
        scopes: scopes.to_vec(),
        iat: now.as_secs(),
        jti: Some(Uuid::new_v4()),
    };
    sign(keyring, &claims)
}

/// Signs the token of a widget contact.
pub(super) fn mint_contact(
    keyring: &Keyring,
    contact: Uuid,
    org: Uuid,
    lifetime: Duration,
    now: Moment,
) -> String {
    let claims = ContactClaims {
        typ: ContactType::WidgetContact,
        sub: contact,
        org,
        iat: now.as_secs(),
        exp: (now + lifetime).as_secs(),
    };
    sign(keyring, &claims)
}

/// Returns the claims of an org key that we signed, possibly with a key that is retired now, whose signature proves nothing by itself: the
/// caller compares the token with the hash in the row.
pub(super) fn read_key(keyring: &Keyring, token: &str) -> Option<Claims> {
    if let Some(claims) = verified(keyring, token) {
        return Some(claims);
    }

    let kid = key_of(token)?;
    let keys = keyring.retired_keys();
    let retired = keys.iter().find(|key| key.id() == kid)?;
    verified_with(retired.public(), token)
}

/// Returns the claims of an org key that we signed; `None` for anything else, including other algorithms and kinds of
/// tokens.
pub fn read(keyring: &Keyring, token: &str) -> Option<Claims> {
    verified(keyring, token)
}

/// Returns the claims of a valid token of a widget contact.
pub(super) fn read_contact(keyring: &Keyring, token: &str, now: Moment) -> Option<ContactClaims> {
    verified(keyring, token).filter(|claims: &ContactClaims| now.as_secs() < claims.exp)
}

fn sign(keyring: &Keyring, claims: &impl Serialize) -> String {
    let pair = keyring.signing_key();
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = Some(pair.id().to_owned());
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_ed_der(&pair.pkcs8()))
        .expect("an Ed25519 key signs any claims")
}

/// Returns true if the token names an unknown signing key: another process may have just created it.
pub(super) fn is_of_another_key(keyring: &Keyring, token: &str) -> bool {
    let is_known = |kid: String| {
        keyring.signing_keys().iter().any(|pair| pair.id() == kid)
            || keyring.retired_keys().iter().any(|key| key.id() == kid)
    };
    key_of(token).is_some_and(|kid| !is_known(kid))
}

/// Id of the signing key that the token names.
fn key_of(token: &str) -> Option<String> {
    // Checked before anything is decoded. The `kid` isn't proved yet: it only picks one of our own keys.
    let is_short = token.len() <= LONGEST;
    let header = is_short.then(|| jsonwebtoken::decode_header(token).ok())?;
    header?.kid
}

fn verified<C: DeserializeOwned + Clone>(keyring: &Keyring, token: &str) -> Option<C> {
    let kid = key_of(token)?;
    let keys = keyring.signing_keys();
    let pair = keys.iter().find(|pair| pair.id() == kid)?;
    verified_with(&pair.public(), token)
}

fn verified_with<C: DeserializeOwned + Clone>(public: &[u8; 32], token: &str) -> Option<C> {
    // The algorithm is ours, never the token's `alg`: `none`, or HMAC keyed with our public key, must not verify.
    let mut validation = Validation::new(Algorithm::EdDSA);
    // An org key has no expiry claim, as its row decides. A contact's expiry is compared with our own clock.
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;

    let key = DecodingKey::from_ed_der(public);
    // `deny_unknown_fields` tells the kinds apart: a contact's token has claims that an org key's must not have.
    let data = jsonwebtoken::decode::<C>(token, &key, &validation).ok()?;
    Some(data.claims)
}
