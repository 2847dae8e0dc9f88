//! `[secrets]`: the master key, which seals stored secrets. With SQLite it may be absent: the data directory has one.

use super::secret::Secret;
use super::section::Section;

/// Minimum length of a master key in characters: 128 bits in hexadecimal.
const SHORTEST_MASTER_KEY: usize = 32;

/// Keys that the operator supplies.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Key that seals all other keys; at least 32 characters, the same on all nodes.
    pub master_key: Option<Secret>,
}

impl Secrets {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let master_key = section.secret("master_key");
        if master_key
            .as_ref()
            .is_some_and(|key| key.expose().chars().count() < SHORTEST_MASTER_KEY)
        {
            section.refuse_key("master_key", format!("needs at least {SHORTEST_MASTER_KEY} characters; `openssl rand -hex 32` makes a good one"));
        }
        Self { master_key }
    }
}
