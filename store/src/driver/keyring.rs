//! The installation's keys in memory: for sealing, signing and MACs. `secrets` stores them.
//!
//! Sealing is XChaCha20-Poly1305 (random nonces of 24 octets, so no counter is kept); signing is Ed25519 (RFC 8032, RFC 8037).

use std::sync::Arc;

use arc_swap::ArcSwap;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::EncodePrivateKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

use super::error::Broke;

const NONCE: usize = 24;
const KEY_ID: usize = 8;

/// Id of a sealing key: the first octets of every value that it sealed.
pub(crate) type SealingId = [u8; KEY_ID];

/// All keys of the installation. Clones share changes of the keys.
#[derive(Clone)]
pub struct Keyring {
    /// The newest key seals, all of them open. Keys may be added or removed while the daemon runs.
    sealing: Arc<ArcSwap<Vec<SealingKey>>>,
    /// Keys of API keys.
    api_keys: Signers,
    /// Keys of widget tokens, which are never taken for API keys.
    widget: Signers,
    mac: Zeroizing<[u8; 32]>,
}

/// Signing keys of one kind of tokens. Keys may be added or removed while the daemon runs.
#[derive(Clone)]
struct Signers {
    /// The newest key signs, all of them are published.
    pairs: Arc<ArcSwap<Vec<SigningPair>>>,
    /// Keys whose tokens are recognised, but refused.
    retired: Arc<ArcSwap<Vec<RetiredKey>>>,
}

/// Kind of tokens that a signing key signs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// API keys of orgs.
    ApiKey,
    /// Tokens of widget contacts.
    Widget,
}

/// One signing key.
#[derive(Clone)]
pub struct SigningPair {
    id: String,
    key: SigningKey,
}

/// The public half of a retired signing key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetiredKey {
    id: String,
    public: [u8; 32],
}

/// One sealing key.
#[derive(Clone)]
pub(crate) struct SealingKey {
    id: [u8; KEY_ID],
    cipher: XChaCha20Poly1305,
}

/// Text form of a keyring: 32 octets for each key, oldest first, in hexadecimal.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyringText {
    pub(crate) sealing: Vec<String>,
    /// Of API keys.
    pub(crate) signing: Vec<String>,
    /// Public halves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) retired: Vec<String>,
    /// Of widget tokens. Empty in an installation from before these had keys of their own: then [`first_widget_seed`] is the only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) widget: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) retired_widget: Vec<String>,
    pub(crate) mac: String,
}

impl Keyring {
    /// Parses the text form; `None` if a key is malformed, or one is missing.
    pub(crate) fn read(written: &KeyringText) -> Option<Self> {
        // Stored with the oldest first; in memory the newest is first, since it seals or signs.
        let keys = |texts: &[String]| {
            texts
                .iter()
                .rev()
                .map(|text| from_hex(text))
                .collect::<Option<Vec<_>>>()
                .map(Zeroizing::new)
        };

        let (sealing, signing) = (keys(&written.sealing)?, keys(&written.signing)?);
        let (retired, retired_widget) = (keys(&written.retired)?, keys(&written.retired_widget)?);
        (!sealing.is_empty() && !signing.is_empty()).then_some(())?;

        let mac = Zeroizing::new(from_hex(&written.mac)?);
        let widget = match written.widget.is_empty() {
            true => Zeroizing::new(vec![first_widget_seed(&mac)]),
            false => keys(&written.widget)?,
        };

        Some(Self {
            sealing: Arc::new(ArcSwap::from_pointee(
                sealing.iter().map(SealingKey::new).collect(),
            )),
            api_keys: Signers::new(&signing, &retired),
            widget: Signers::new(&widget, &retired_widget),
            mac,
        })
    }

    /// Returns the key that signs new API keys.
    pub fn signing_key(&self) -> SigningPair {
        self.signing_key_of(TokenKind::ApiKey)
    }

    /// Returns the keys of API keys that aren't retired, the signing one first.
    pub fn signing_keys(&self) -> Arc<Vec<SigningPair>> {
        self.signing_keys_of(TokenKind::ApiKey)
    }

    /// Returns the key that signs new tokens of this kind.
    pub fn signing_key_of(&self, kind: TokenKind) -> SigningPair {
        self.signers(kind).pairs.load()[0].clone()
    }

    /// Returns every key whose tokens of this kind are valid, the signing one first.
    pub fn signing_keys_of(&self, kind: TokenKind) -> Arc<Vec<SigningPair>> {
        self.signers(kind).pairs.load_full()
    }

    /// Returns retired signing keys: their signatures alone prove nothing any more.
    pub fn retired_keys(&self, kind: TokenKind) -> Arc<Vec<RetiredKey>> {
        self.signers(kind).retired.load_full()
    }

    /// Returns whether widget tokens may be signed by a key of API keys, as they were before they had keys of their own: while the first of
    /// these isn't retired, in an installation from before.
    pub fn takes_old_widget_tokens(&self) -> bool {
        let first = SigningPair::new(&first_widget_seed(&self.mac));
        let pairs = self.widget.pairs.load();
        pairs.iter().any(|pair| pair.id == first.id)
    }

    fn signers(&self, kind: TokenKind) -> &Signers {
        match kind {
            TokenKind::ApiKey => &self.api_keys,
            TokenKind::Widget => &self.widget,
        }
    }

    /// Adopts the keys of `read`, which are this installation's as stored now; returns whether they differ. Keys of another installation
    /// are ignored.
    pub(crate) fn follow(&self, read: &Self) -> bool {
        let seals = |keyring: &Self| -> Vec<SealingId> {
            keyring.sealing.load().iter().map(|key| key.id).collect()
        };

        // This key never changes, so another one means another installation, whose keys would open nothing here.
        if read.mac != self.mac {
            return false;
        }

        // A change of the sealing keys isn't part of the result: tokens don't depend on them.
        if seals(self) != seals(read) {
            self.sealing.store(read.sealing.load_full());
        }

        let api_keys = self.api_keys.follow(&read.api_keys);
        let widget = self.widget.follow(&read.widget);
        api_keys || widget
    }

    /// Derives 32 octets for one purpose (tags, …), constant for the installation's lifetime.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        derive(&self.mac, purpose)
    }

    /// Seals `plain`. The sealed value opens only under the same `context` (kind and owner of the value), so that sealed values can't be
    /// swapped.
    pub fn seal(&self, context: &[u8], plain: &[u8]) -> Vec<u8> {
        self.sealing.load()[0].seal(context, plain)
    }

    /// Returns the id of the key that seals, with which every value begins that it sealed.
    pub(crate) fn sealing_id(&self) -> SealingId {
        self.sealing.load()[0].id
    }

    /// Returns the id of the oldest sealing key, which is the one just staged.
    pub(crate) fn staged_id(&self) -> SealingId {
        let keys = self.sealing.load();
        keys.last().expect("a keyring has a key that seals").id
    }

    /// Opens a value of [`seal`](Self::seal).
    ///
    /// # Errors
    /// [`Broke::Seal`] if the value was altered, or sealed under another context or by another installation.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Broke> {
        let id = sealed.get(..KEY_ID).ok_or(Broke::Seal)?;
        let keys = self.sealing.load();
        let key = keys.iter().find(|key| key.id == id).ok_or(Broke::Seal)?;
        key.open(context, sealed)
    }

    /// Opens a sealed text.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_text(&self, context: &[u8], sealed: &[u8]) -> Result<String, Broke> {
        String::from_utf8(self.open(context, sealed)?).map_err(|_| Broke::Seal)
    }
}

impl SealingKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let digest = Sha256::new()
            .chain_update(b"trunkline sealing key id\0")
            .chain_update(key)
            .finalize();
        let mut id = [0; KEY_ID];
        id.copy_from_slice(&digest[..KEY_ID]);
        Self {
            id,
            cipher: XChaCha20Poly1305::new(&(*key).into()),
        }
    }

    /// Returns key id, nonce, and ciphertext with its tag.
    pub(crate) fn seal(&self, context: &[u8], plain: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE] = rand::random();
        let sealed = self
            .cipher
            .encrypt(
                &XNonce::from(nonce),
                Payload {
                    msg: plain,
                    aad: context,
                },
            )
            .expect("a value is shorter than the 256 GiB that the cipher takes");
        [&self.id, &nonce[..], &sealed].concat()
    }

    pub(crate) fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Broke> {
        let rest = sealed.get(KEY_ID..).ok_or(Broke::Seal)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>().ok_or(Broke::Seal)?;
        self.cipher
            .decrypt(
                &XNonce::from(*nonce),
                Payload {
                    msg: sealed,
                    aad: context,
                },
            )
            .map_err(|_| Broke::Seal)
    }
}

impl Signers {
    fn new(seeds: &[[u8; 32]], retired: &[[u8; 32]]) -> Self {
        Self {
            pairs: Arc::new(ArcSwap::from_pointee(
                seeds.iter().map(SigningPair::new).collect(),
            )),
            retired: Arc::new(ArcSwap::from_pointee(
                retired.iter().copied().map(RetiredKey::new).collect(),
            )),
        }
    }

    /// Adopts the keys of `read`; returns whether they differ.
    fn follow(&self, read: &Self) -> bool {
        let kept = read.pairs.load_full();
        let ids = |pairs: &[SigningPair]| -> Vec<String> {
            pairs.iter().map(|pair| pair.id.clone()).collect()
        };
        if ids(&self.pairs.load()) == ids(&kept) {
            return false;
        }

        // The retired keys are stored before the signing keys. A reader looks among the signing keys first: one that no longer
        // finds a key there must find it among the retired ones.
        self.retired.store(read.retired.load_full());
        self.pairs.store(kept);
        true
    }
}

fn derive(mac: &[u8; 32], purpose: &str) -> [u8; 32] {
    // A hash is sufficient: the key is 32 random octets of fixed length ahead of the purpose, and the result is used as a key, not as a
    // MAC that an attacker could extend.
    Sha256::new()
        .chain_update(b"trunkline derived key\0")
        .chain_update(mac)
        .chain_update(purpose)
        .finalize()
        .into()
}

/// Returns the first key of widget tokens of an installation from before these had keys of their own. Derived, so that all its nodes have the
/// same one and none has to write at its start.
fn first_widget_seed(mac: &[u8; 32]) -> [u8; 32] {
    derive(mac, "widget signing key")
}

/// Returns the `kid` of the key with this public half.
fn kid(public: &[u8; 32]) -> String {
    to_hex(&Sha256::digest(public)[..KEY_ID])
}

impl RetiredKey {
    fn new(public: [u8; 32]) -> Self {
        Self {
            id: kid(&public),
            public,
        }
    }

    /// Returns the `kid` of its tokens.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the public key.
    pub const fn public(&self) -> &[u8; 32] {
        &self.public
    }
}

impl SigningPair {
    fn new(seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        Self {
            id: kid(key.verifying_key().as_bytes()),
            key,
        }
    }

    /// Returns the `kid` of its tokens and of the published key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the private key as PKCS #8 DER.
    pub fn pkcs8(&self) -> Zeroizing<Vec<u8>> {
        let document = self
            .key
            .to_pkcs8_der()
            .expect("an Ed25519 key has a PKCS #8 form");
        Zeroizing::new(document.as_bytes().to_vec())
    }

    /// Returns the public key: the `x` of its JWK (RFC 8037 §2) before base64url.
    pub fn public(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }
}

impl KeyringText {
    /// Generates a complete set of keys.
    pub(crate) fn generate() -> Self {
        let key = || to_hex(&rand::random::<[u8; 32]>());
        Self {
            sealing: vec![key()],
            signing: vec![key()],
            retired: Vec::new(),
            widget: vec![key()],
            retired_widget: Vec::new(),
            mac: key(),
        }
    }

    /// Adds a key that signs tokens of this kind from now on.
    pub(crate) fn add_signing(&mut self, kind: TokenKind) {
        self.write_widget();
        let new = Zeroizing::new(rand::random::<[u8; 32]>());
        let seeds = match kind {
            TokenKind::ApiKey => &mut self.signing,
            TokenKind::Widget => &mut self.widget,
        };
        seeds.push(to_hex(&*new));
    }

    /// Writes the derived key of widget tokens where there is no other.
    fn write_widget(&mut self) {
        let mac = from_hex(&self.mac).map(Zeroizing::new);
        if let Some(mac) = mac.filter(|_| self.widget.is_empty()) {
            self.widget.push(to_hex(&first_widget_seed(&mac)));
        }
    }

    /// Adds a sealing key as the oldest: every process that has read it can open values of it, and none seals with it yet.
    pub(crate) fn stage_sealing(&mut self) {
        let new = Zeroizing::new(rand::random::<[u8; 32]>());
        self.sealing.insert(0, to_hex(&*new));
    }

    /// Makes a staged key the newest, which seals; returns whether it exists.
    pub(crate) fn use_staged_sealing(&mut self, id: SealingId) -> bool {
        let is_staged = |text: &String| {
            let key = from_hex(text).map(Zeroizing::new);
            key.is_some_and(|key| SealingKey::new(&key).id == id)
        };
        let Some(place) = self.sealing.iter().position(is_staged) else {
            return false;
        };
        let staged = self.sealing.remove(place);
        self.sealing.push(staged);
        true
    }

    /// Drops every sealing key but the newest, if that has this id; returns whether it has.
    pub(crate) fn retire_sealing(&mut self, newest: SealingId) -> bool {
        let seed = self.sealing.last().and_then(|text| from_hex(text));
        let Some(seed) = seed.map(Zeroizing::new) else {
            return false;
        };
        if SealingKey::new(&seed).id != newest {
            return false;
        }
        let old = self.sealing.len() - 1;
        self.sealing.drain(..old).for_each(|mut key| key.zeroize());
        true
    }

    /// Retires a signing key of either kind by its `kid`. Retiring it again changes nothing.
    pub(crate) fn retire(&mut self, kid: &str) -> Result<(), RetireFault> {
        self.write_widget();
        match retire_among(&mut self.signing, &mut self.retired, kid) {
            Err(RetireFault::Unknown) => {}
            retired => return retired,
        }
        match retire_among(&mut self.widget, &mut self.retired_widget, kid) {
            Err(RetireFault::Signs) => Err(RetireFault::SignsWidget),
            retired => retired,
        }
    }
}

fn retire_among(
    seeds: &mut Vec<String>,
    retired: &mut Vec<String>,
    kid: &str,
) -> Result<(), RetireFault> {
    let is_retired =
        |public: &String| from_hex(public).is_some_and(|public| RetiredKey::new(public).id == kid);
    if retired.iter().any(is_retired) {
        return Ok(());
    }

    let pairs = seeds.iter().map(|seed| from_hex(seed));
    let pairs: Option<Vec<_>> = pairs
        .map(|seed| seed.map(|seed| SigningPair::new(&seed)))
        .collect();
    let pairs = pairs.ok_or(RetireFault::Unknown)?;
    let place = pairs.iter().position(|pair| pair.id == kid);
    let place = place.ok_or(RetireFault::Unknown)?;

    // The last one signs: without it no new token could be made.
    if place + 1 == pairs.len() {
        return Err(RetireFault::Signs);
    }

    seeds.remove(place).zeroize();
    retired.push(to_hex(&pairs[place].public()));

    Ok(())
}

/// Reason why a signing key isn't retired.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum RetireFault {
    /// No key has this id.
    Unknown,
    /// The key is the one that signs API keys.
    Signs,
    /// The key is the one that signs widget tokens.
    SignsWidget,
}

impl Drop for KeyringText {
    fn drop(&mut self) {
        self.sealing.zeroize();
        self.signing.zeroize();
        self.widget.zeroize();
        self.mac.zeroize();
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.signing_keys().iter()).finish()
    }
}

impl std::fmt::Debug for SigningPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SigningPair").field(&self.id).finish()
    }
}

pub(crate) fn to_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut key = [0; 32];
    (digits.len() == 64).then_some(())?;
    for (octet, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *octet = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(keyring: &Keyring, kind: TokenKind) -> Vec<String> {
        let pairs = keyring.signing_keys_of(kind);
        pairs.iter().map(|pair| pair.id.clone()).collect()
    }

    /// Keys as an installation has them from before widget tokens had keys of their own.
    fn keys_of_before() -> KeyringText {
        let mut text = KeyringText::generate();
        text.widget.clear();
        let written = serde_json::to_string(&text).unwrap();
        assert!(!written.contains("widget"), "{written}");
        serde_json::from_str(&written).unwrap()
    }

    #[test]
    fn keys_of_before_get_a_key_of_widget_tokens_that_stays() {
        let mut text = keys_of_before();
        let first = Keyring::read(&text).unwrap();
        assert!(first.takes_old_widget_tokens());
        let derived = ids(&first, TokenKind::Widget);
        assert_eq!(derived.len(), 1);
        assert_ne!(derived, ids(&first, TokenKind::ApiKey));
        assert_eq!(
            derived,
            ids(&Keyring::read(&text).unwrap(), TokenKind::Widget)
        );

        // Any change of the keys writes it.
        text.add_signing(TokenKind::ApiKey);
        let second = Keyring::read(&text).unwrap();
        assert_eq!(ids(&second, TokenKind::Widget), derived);
        assert_eq!(ids(&second, TokenKind::ApiKey).len(), 2);
        assert!(first.follow(&second) && !first.follow(&second));

        text.add_signing(TokenKind::Widget);
        let third = Keyring::read(&text).unwrap();
        assert_eq!(ids(&third, TokenKind::Widget)[1..], derived);
        assert!(first.follow(&third) && first.takes_old_widget_tokens());
        assert_eq!(text.retire(&derived[0]), Ok(()));
        assert_eq!(text.retire(&derived[0]), Ok(()));
        let fourth = Keyring::read(&text).unwrap();
        assert!(first.follow(&fourth) && !first.takes_old_widget_tokens());
        assert_eq!(first.retired_keys(TokenKind::Widget)[0].id(), derived[0]);
        assert!(first.retired_keys(TokenKind::ApiKey).is_empty());

        let signs = first.signing_key_of(TokenKind::Widget);
        assert_eq!(text.retire(signs.id()), Err(RetireFault::SignsWidget));
        assert_eq!(text.retire("00"), Err(RetireFault::Unknown));
    }

    #[test]
    fn new_keys_take_no_old_widget_tokens() {
        let keyring = Keyring::read(&KeyringText::generate()).unwrap();
        assert!(!keyring.takes_old_widget_tokens());
    }
}
