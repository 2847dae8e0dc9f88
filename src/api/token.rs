//! The tokens that we sign with Ed25519 (RFC 8037): an org's key, whose `sub` is the key's row, and a widget contact's, which ends
//! by itself and says so in its claim `typ`.
//!
//! The signature says that we made it; whether the key or contact still exists is a question to the store.

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::store::Keyring;

/// What an org's key says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The key.
    pub sub: Uuid,
    /// Its org.
    pub org: Uuid,
    /// What it may do.
    pub scopes: Vec<String>,
    /// When it was made, in seconds since the epoch.
    pub iat: u64,
}

/// What a widget contact's token says: who it is, and nothing about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContactClaims {
    typ: ContactType,
    /// The contact.
    pub sub: Uuid,
    /// Its org.
    pub org: Uuid,
    /// When it was made, in seconds since the epoch.
    pub iat: u64,
    /// When it ends, in seconds since the epoch.
    pub exp: u64,
}

/// Tells a contact's token from every other.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum ContactType {
    #[serde(rename = "widget_contact")]
    WidgetContact,
}

/// The longest token that is looked at.
const LONGEST: usize = 4096;

/// The token of an org key, to be shown once.
pub fn mint(keyring: &Keyring, key: Uuid, org: Uuid, scopes: &[String], now: Moment) -> String {
    let claims = Claims {
        sub: key,
        org,
        scopes: scopes.to_vec(),
        iat: now.as_secs(),
    };
    sign(keyring, &claims)
}

/// The token of a widget contact.
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

/// The claims of an org's key that we signed; `None` for anything else, any other algorithm or kind of token included.
pub fn read(keyring: &Keyring, token: &str) -> Option<Claims> {
    verified(keyring, token)
}

/// The claims of a widget contact's token that we signed and that hasn't ended.
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

/// Whether the token names a signing key that we don't know: another process may have just made it.
pub(super) fn is_of_another_key(keyring: &Keyring, token: &str) -> bool {
    key_of(token).is_some_and(|kid| keyring.signing_keys().iter().all(|pair| pair.id() != kid))
}

/// The key that the token says it was signed with.
fn key_of(token: &str) -> Option<String> {
    let is_short = token.len() <= LONGEST;
    let header = is_short.then(|| jsonwebtoken::decode_header(token).ok())?;
    header?.kid
}

fn verified<C: DeserializeOwned + Clone>(keyring: &Keyring, token: &str) -> Option<C> {
    let kid = key_of(token)?;
    let keys = keyring.signing_keys();
    let pair = keys.iter().find(|pair| pair.id() == kid)?;
    let mut validation = Validation::new(Algorithm::EdDSA);
    // A key has no expiry, it is good as long as its row exists; that of a contact is held against our own clock.
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let key = DecodingKey::from_ed_der(&pair.public());
    let data = jsonwebtoken::decode::<C>(token, &key, &validation).ok()?;
    Some(data.claims)
}
