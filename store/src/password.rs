//! Passwords of trunks: sealed where they are kept, shown by no log.

use std::fmt;

use zeroize::Zeroizing;

use super::error::Broke;
use super::keyring::Keyring;

/// A password in the clear.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// A password as it was given or made up.
    pub fn new(password: impl Into<String>) -> Self {
        Self(Zeroizing::new(password.into()))
    }

    /// The password.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Seals it under what it belongs to.
    pub(super) fn seal(&self, keyring: &Keyring, owner: &[u8]) -> Vec<u8> {
        keyring.seal(owner, self.0.as_bytes())
    }

    /// Opens what was sealed under the same owner.
    pub(super) fn open(keyring: &Keyring, owner: &[u8], sealed: &[u8]) -> Result<Self, Broke> {
        keyring
            .open_text(owner, sealed)
            .map(|text| Self(Zeroizing::new(text)))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}
