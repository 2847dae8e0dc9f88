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
    /// The newest key signs, all of them are published. Keys may be added or removed while the daemon runs.
    signing: Arc<ArcSwap<Vec<SigningPair>>>,
    /// Keys whose tokens are recognised, but refused.
    retired: Arc<ArcSwap<Vec<RetiredKey>>>,
    mac: Zeroizing<[u8; 32]>,
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
    pub(crate) signing: Vec<String>,
    /// Public halves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) retired: Vec<String>,
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
        let retired = keys(&written.retired)?.to_vec();
        (!sealing.is_empty() && !signing.is_empty()).then_some(())?;

        Some(Self {
            sealing: Arc::new(ArcSwap::from_pointee(
                sealing.iter().map(SealingKey::new).collect(),
            )),
            signing: Arc::new(ArcSwap::from_pointee(
                signing.iter().map(SigningPair::new).collect(),
            )),
            retired: Arc::new(ArcSwap::from_pointee(
                retired.into_iter().map(RetiredKey::new).collect(),
            )),
            mac: Zeroizing::new(from_hex(&written.mac)?),
        })
    }

    /// Returns retired signing keys: their signatures alone prove nothing any more.
    pub fn retired_keys(&self) -> Arc<Vec<RetiredKey>> {
        self.retired.load_full()
    }

    /// Returns the key that signs new tokens.
    pub fn signing_key(&self) -> SigningPair {
        self.signing.load()[0].clone()
    }

    /// Returns every key whose tokens are valid, the signing one first.
    pub fn signing_keys(&self) -> Arc<Vec<SigningPair>> {
        self.signing.load_full()
    }

    /// Adopts the keys of `read`, which are this installation's as stored now; returns whether they differ. Keys of another installation
    /// are ignored.
    pub(crate) fn follow(&self, read: &Self) -> bool {
        let (now, kept) = (self.signing_keys(), read.signing_keys());
        let ids = |pairs: &[SigningPair]| -> Vec<String> {
            pairs.iter().map(|pair| pair.id.clone()).collect()
        };
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

        if ids(&now) == ids(&kept) {
            return false;
        }

        // The retired keys are stored before the signing keys. A reader looks among the signing keys first: one that no longer
        // finds a key there must find it among the retired ones.
        self.retired.store(read.retired_keys());
        self.signing.store(kept);

        true
    }

    /// Derives 32 octets for one purpose (tags, …), constant for the installation's lifetime.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        // A hash is sufficient: the key is 32 random octets of fixed length ahead of the purpose, and the result is used as a key, not as a
        // MAC that an attacker could extend.
        Sha256::new()
            .chain_update(b"trunkline derived key\0")
            .chain_update(*self.mac)
            .chain_update(purpose)
            .finalize()
            .into()
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
            mac: key(),
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

    /// Retires a signing key by its `kid`. Retiring it again changes nothing.
    pub(crate) fn retire(&mut self, kid: &str) -> Result<(), RetireFault> {
        let is_retired = |public: &String| {
            from_hex(public).is_some_and(|public| RetiredKey::new(public).id == kid)
        };
        if self.retired.iter().any(is_retired) {
            return Ok(());
        }

        let pairs = self.signing.iter().map(|seed| from_hex(seed));
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

        self.signing.remove(place).zeroize();
        self.retired.push(to_hex(&pairs[place].public()));

        Ok(())
    }
}

/// Reason why a signing key isn't retired.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum RetireFault {
    /// No key has this id.
    Unknown,
    /// The key is the one that signs.
    Signs,
}

impl Drop for KeyringText {
    fn drop(&mut self) {
        self.sealing.zeroize();
        self.signing.zeroize();
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
