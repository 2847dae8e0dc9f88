//! Signed tokens (Ed25519, RFC 8037): org API keys, whose `sub` is the key's row, and tokens of widget contacts, which
//! expire and have the claims `typ`, `iss` and `aud`. Each kind has signing keys of its own, so that neither is ever taken for the other.
//!
//! The signature proves that we issued a token. The store says if the key or contact still exists.

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use trunkline_store::{
    Error, Issued, IssuedBy, Keyring, NewOrgKey, OrgKey, SigningPair, Store, TokenKind, org_keys,
};

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
    /// Base URL of the API that issued the token. Not compared when we read it: the signature proves the issuer, and the operator may
    /// change the URL.
    iss: String,
    /// Id of the org, as `org`: a server that checks the audience takes no other org's visitor for its own.
    aud: Uuid,
    /// Id of the contact.
    pub sub: Uuid,
    /// Id of the org.
    pub org: Uuid,
    /// Time of creation, in seconds since the epoch.
    pub iat: u64,
    /// Time of expiry, in seconds since the epoch.
    pub exp: u64,
}

/// Claims of a widget contact's token from before these had signing keys of their own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OldContactClaims {
    typ: ContactType,
    sub: Uuid,
    org: Uuid,
    iat: u64,
    exp: u64,
}

/// Visitor that a token of the widget names.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct VisitorId {
    /// Id of the contact.
    pub(super) contact: Uuid,
    /// Id of the org.
    pub(super) org: Uuid,
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
    sign(&keyring.signing_key_of(TokenKind::ApiKey), &claims)
}

/// Time that the token of a visitor is good.
const CONTACT_LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// Signs the token of a widget contact. `issuer` is the base URL of the API.
pub(super) fn mint_contact(
    keyring: &Keyring,
    issuer: &str,
    contact: Uuid,
    org: Uuid,
    now: Moment,
) -> String {
    let claims = ContactClaims {
        typ: ContactType::WidgetContact,
        iss: issuer.to_owned(),
        aud: org,
        sub: contact,
        org,
        iat: now.as_secs(),
        exp: (now + CONTACT_LIFETIME).as_secs(),
    };
    sign(&keyring.signing_key_of(TokenKind::Widget), &claims)
}

/// Returns the claims of an org key that we signed, possibly with a key that is retired now, whose signature proves nothing by itself: the
/// caller compares the token with the hash in the row.
pub(super) fn read_key(keyring: &Keyring, token: &str) -> Option<Claims> {
    if let Some(claims) = read(keyring, token) {
        return Some(claims);
    }

    let kid = key_of(token)?;
    let keys = keyring.retired_keys(TokenKind::ApiKey);
    let retired = keys.iter().find(|key| key.id() == kid)?;
    verified_with(retired.public(), token)
}

/// Returns the claims of an org key that we signed; `None` for anything else, including other algorithms and kinds of
/// tokens.
pub fn read(keyring: &Keyring, token: &str) -> Option<Claims> {
    verified(&keyring.signing_keys_of(TokenKind::ApiKey), token)
}

/// Returns the visitor of a valid token of a widget contact.
pub(super) fn read_contact(keyring: &Keyring, token: &str, now: Moment) -> Option<VisitorId> {
    let claims = verified(&keyring.signing_keys_of(TokenKind::Widget), token);
    let Some(claims): Option<ContactClaims> = claims else {
        return read_old_contact(keyring, token, now);
    };

    let is_good = claims.aud == claims.org && now.as_secs() < claims.exp;
    is_good.then_some(VisitorId {
        contact: claims.sub,
        org: claims.org,
    })
}

/// Returns the visitor of a token from before widget tokens had signing keys of their own, which is good until it ends.
fn read_old_contact(keyring: &Keyring, token: &str, now: Moment) -> Option<VisitorId> {
    if !keyring.takes_old_widget_tokens() {
        return None;
    }

    let claims: OldContactClaims = verified(&keyring.signing_keys_of(TokenKind::ApiKey), token)?;
    let lifetime = claims.exp.checked_sub(claims.iat)?;
    let is_good = lifetime <= CONTACT_LIFETIME.as_secs() && now.as_secs() < claims.exp;
    is_good.then_some(VisitorId {
        contact: claims.sub,
        org: claims.org,
    })
}

fn sign(pair: &SigningPair, claims: &impl Serialize) -> String {
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = Some(pair.id().to_owned());
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_ed_der(&pair.pkcs8()))
        .expect("an Ed25519 key signs any claims")
}

/// Returns true if the token names an unknown signing key: another process may have just created it.
pub(super) fn is_of_another_key(keyring: &Keyring, token: &str) -> bool {
    let is_known = |kid: &str| {
        [TokenKind::ApiKey, TokenKind::Widget]
            .into_iter()
            .any(|kind| {
                keyring
                    .signing_keys_of(kind)
                    .iter()
                    .any(|key| key.id() == kid)
                    || keyring.retired_keys(kind).iter().any(|key| key.id() == kid)
            })
    };
    key_of(token).is_some_and(|kid| !is_known(&kid))
}

/// Id of the signing key that the token names.
fn key_of(token: &str) -> Option<String> {
    // Checked before anything is decoded. The `kid` isn't proved yet: it only picks one of our own keys.
    let is_short = token.len() <= LONGEST;
    let header = is_short.then(|| jsonwebtoken::decode_header(token).ok())?;
    header?.kid
}

fn verified<C: DeserializeOwned + Clone>(keys: &[SigningPair], token: &str) -> Option<C> {
    let kid = key_of(token)?;
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
    // `deny_unknown_fields` tells the kinds apart besides their keys: a contact's token has claims that an org key's must not have.
    let data = jsonwebtoken::decode::<C>(token, &key, &validation).ok()?;
    Some(data.claims)
}
