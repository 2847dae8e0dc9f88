//! The tokens that we sign with Ed25519 (RFC 8037): an org's key, whose `sub` is the key's row, and a widget contact's, which ends
//! by itself and says so in its claim `typ`.
//!
//! The signature says that we made it; whether the key or contact still exists is a question to the store.

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use trunkline_store::{Error, Issued, IssuedBy, Keyring, NewOrgKey, OrgKey, Store, org_keys};

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
    /// Makes the token one that can't be made again, by a holder of the signing key either. Keys of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<Uuid>,
}

impl Claims {
    /// How long after a key's row its token was signed at most.
    const SIGNED_WITHIN_S: u64 = 60;

    /// Whether this is what the tokens of earlier versions say, whose hash isn't kept, for a key with these scopes that was made then.
    pub(super) fn are_of_unkept(&self, scopes: &[String], created_at: Moment) -> bool {
        let late = self.iat.checked_sub(created_at.as_secs());
        self.jti.is_none()
            && self.scopes == scopes
            && late.is_some_and(|late| late <= Self::SIGNED_WITHIN_S)
    }
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

/// Makes a key of the org; gives its row, and the token, to be shown once.
///
/// # Errors
/// [`Wrong::Absent`](trunkline_store::Wrong::Absent) if there is no such org, [`Refused::AtLimit`](trunkline_store::Refused::AtLimit).
pub async fn issue(
    store: &Store,
    org: Uuid,
    new: NewOrgKey,
    now: Moment,
) -> Result<(OrgKey, String), Error> {
    issue_by(IssuedBy::Tenant, store, org, new, now).await
}

/// The same for the operator, whom the org's limit doesn't hold.
///
/// # Errors
/// [`Wrong::Absent`](trunkline_store::Wrong::Absent) if there is no such org.
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
            token = mint(&keyring, id, org, &new.scopes, now);
            issued(&token)
        };
        let key = org_keys::create(tx, org, &new, issue, by, now)?;
        Ok((key, token))
    });
    made.await
}

/// A key's token as its row keeps it.
pub(super) fn issued(token: &str) -> Issued {
    Issued {
        token_hash: Sha256::digest(token).into(),
        kid: key_of(token).unwrap_or_default(),
    }
}

/// The token of an org key.
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

/// Whether the key that signed a token is still good.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Signer {
    /// It is published.
    Good,
    /// It is retired: its signature proves nothing by itself.
    Retired,
}

/// The claims of an org's key that we signed, with a key that may be retired since.
pub(super) fn read_key(keyring: &Keyring, token: &str) -> Option<(Claims, Signer)> {
    if let Some(claims) = verified(keyring, token) {
        return Some((claims, Signer::Good));
    }
    let kid = key_of(token)?;
    let keys = keyring.retired_keys();
    let retired = keys.iter().find(|key| key.id() == kid)?;
    let claims = verified_with(retired.public(), token)?;
    Some((claims, Signer::Retired))
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
    let is_known = |kid: String| {
        keyring.signing_keys().iter().any(|pair| pair.id() == kid)
            || keyring.retired_keys().iter().any(|key| key.id() == kid)
    };
    key_of(token).is_some_and(|kid| !is_known(kid))
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
    verified_with(&pair.public(), token)
}

fn verified_with<C: DeserializeOwned + Clone>(public: &[u8; 32], token: &str) -> Option<C> {
    let mut validation = Validation::new(Algorithm::EdDSA);
    // A key has no expiry, it is good as long as its row exists; that of a contact is held against our own clock.
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let key = DecodingKey::from_ed_der(public);
    let data = jsonwebtoken::decode::<C>(token, &key, &validation).ok()?;
    Some(data.claims)
}
