//! Keys that `quickstart` makes. They are kept, sealed by the installation's key, so that another start shows the same
//! ones instead of making more.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trunkline_store::{Store, org_keys, partners, private, whole_file};
use uuid::Uuid;

use crate::cli::{Failure, now};
use crate::config::Config;

/// File in the data directory.
const FILE: &str = "quickstart-keys";
/// Context under which the file is sealed.
const CONTEXT: &[u8] = b"quickstart keys";

/// Keys of an earlier start, as far as they still work.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct KeptKeys {
    pub(super) partner_key: Option<String>,
    pub(super) api_key: Option<String>,
}

impl KeptKeys {
    /// Reads the file. One that is absent or of another installation holds no keys.
    pub(super) fn read(config: &Config, store: &Store) -> Self {
        let sealed = std::fs::read(file(config)).unwrap_or_default();
        let opened = store.keyring().open(CONTEXT, &sealed).unwrap_or_default();
        serde_json::from_slice(&opened).unwrap_or_default()
    }

    /// Forgets the partner's key if it was revoked.
    pub(super) async fn check_partner(
        &mut self,
        store: &Store,
        partner: Uuid,
    ) -> Result<(), Failure> {
        if let Some(key) = &self.partner_key {
            let hash = Sha256::digest(key).into();
            let found = store.read(move |tx| partners::by_key(tx, hash)).await?;
            if found.is_none_or(|(key, _)| key.partner_id != partner) {
                self.partner_key = None;
            }
        }
        Ok(())
    }

    /// Forgets the org's key if it was revoked or has expired.
    pub(super) async fn check_org(&mut self, store: &Store, org: Uuid) -> Result<(), Failure> {
        if let Some(token) = &self.api_key {
            let hash: [u8; 32] = Sha256::digest(token).into();
            let keys = store.read(move |tx| org_keys::list(tx, org)).await?;
            let is_it = |key: &trunkline_store::OrgKey| {
                key.token_hash == hash && key.expires_at.is_none_or(|ends| ends > now())
            };
            if !keys.iter().any(is_it) {
                self.api_key = None;
            }
        }
        Ok(())
    }

    /// Writes the file, unless it holds these keys.
    pub(super) fn keep(&self, config: &Config, store: &Store) -> Result<(), Failure> {
        if *self == Self::read(config, store) {
            return Ok(());
        }

        let keys = serde_json::to_vec(self).expect("strings have a JSON form");
        let sealed = store.keyring().seal(CONTEXT, &keys);
        let file = file(config);

        // With PostgreSQL, nothing else has created the directory.
        private::directory(&config.data_dir)
            .and_then(|()| whole_file::write(&file, private::FILE, &sealed))
            .map_err(|error| {
                Failure::Command(format!("{} can't be written: {error}", file.display()))
            })
    }
}

fn file(config: &Config) -> PathBuf {
    config.data_dir.join(FILE)
}
