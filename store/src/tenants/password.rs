//! Passwords of trunks: sealed in the database, and absent from logs.

use std::fmt;

use zeroize::Zeroizing;

use crate::driver::error::Broke;
use crate::driver::keyring::Keyring;

/// A password in clear text.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Wraps a password.
    pub fn new(password: impl Into<String>) -> Self {
        Self(Zeroizing::new(password.into()))
    }

    /// Returns the clear text.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Seals the password under its owner.
    pub(crate) fn seal(&self, keyring: &Keyring, owner: &[u8]) -> Vec<u8> {
        keyring.seal(owner, self.0.as_bytes())
    }

    /// Opens a password that was sealed under the same owner.
    pub(crate) fn open(keyring: &Keyring, owner: &[u8], sealed: &[u8]) -> Result<Self, Broke> {
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
