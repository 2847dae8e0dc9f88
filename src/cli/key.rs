//! `trunkline key`: API keys of an org. A key is shown once, when it is made.

use serde::Serialize;
use uuid::Uuid;

use super::org::OfOrg;
use super::output::{Output, Shown, time};
use super::{Failure, now, outset};
use crate::api::{self, SCOPES, token};
use crate::config::Config;
use crate::store::{OrgKey, Store};

/// API keys of an org.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Makes a key and shows it, this once.
    #[command(
        after_help = "Examples:\n  trunkline key create --org Acme\n  trunkline key create --org Acme --scopes calls:read,phone:read --json"
    )]
    Create {
        #[command(flatten)]
        org: OfOrg,
        /// What the key is called.
        #[arg(long, default_value = "Default", value_parser = api::name)]
        name: String,
        /// What it may do, comma-separated; without it everything.
        #[arg(long, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(SCOPES))]
        scopes: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Lists the org's keys, newest first.
    List {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Makes another key that signs tokens. Running daemons sign with it within a second; older tokens stay good.
    RotateSigning {
        #[command(flatten)]
        output: Output,
    },
    /// Revokes a key for good.
    Revoke {
        /// The key's id.
        #[arg(value_parser = api::id_of)]
        api_key_id: Uuid,
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
}

/// The key that signs now, and how many are good.
#[derive(Debug, Serialize)]
struct SigningView {
    kid: String,
    published: usize,
}

impl Shown for SigningView {
    const COLUMNS: &'static [&'static str] = &["kid", "published"];

    fn cells(&self) -> Vec<String> {
        vec![self.kid.clone(), self.published.to_string()]
    }
}

#[derive(Debug, Serialize)]
struct KeyView {
    api_key_id: Uuid,
    org_id: Uuid,
    name: String,
    scopes: Vec<String>,
    created_at: String,
}

/// A key on the one occasion that it is shown.
#[derive(Debug, Serialize)]
struct NewKeyView {
    #[serde(flatten)]
    key: KeyView,
    api_key: String,
}

impl From<OrgKey> for KeyView {
    fn from(key: OrgKey) -> Self {
        Self {
            api_key_id: key.id,
            org_id: key.org_id,
            name: key.name,
            scopes: key.scopes,
            created_at: time(key.created_at),
        }
    }
}

impl Shown for KeyView {
    const COLUMNS: &'static [&'static str] = &["api_key_id", "name", "scopes", "created"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.api_key_id.to_string(),
            self.name.clone(),
            self.scopes.join(","),
            self.created_at.clone(),
        ]
    }
}

impl Shown for NewKeyView {
    const COLUMNS: &'static [&'static str] =
        &["api_key_id", "name", "scopes", "created", "api_key"];

    fn cells(&self) -> Vec<String> {
        let mut cells = self.key.cells();
        cells.push(self.api_key.clone());
        cells
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = outset::open_store(config).await?;
        match self {
            Self::Create {
                org,
                name,
                scopes,
                output,
            } => {
                let org = org.id(&store).await?;
                let (key, api_key) = create(&store, org, &name, &scopes).await?;
                output.one(&NewKeyView {
                    key: key.into(),
                    api_key,
                });
            }
            Self::List { org, output } => {
                let org = org.id(&store).await?;
                let keys = store.org_keys().list(org).await?;
                output.list(&keys.into_iter().map(KeyView::from).collect::<Vec<_>>());
            }
            Self::RotateSigning { output } => {
                let rotated = store.rotate_signing_key(now()).await;
                rotated.map_err(|fault| Failure::Command(fault.to_string()))?;
                let keys = store.keyring().signing_keys();
                output.one(&SigningView {
                    kid: keys[0].id().to_owned(),
                    published: keys.len(),
                });
            }
            Self::Revoke {
                api_key_id,
                org,
                output,
            } => {
                let org = org.id(&store).await?;
                store.org_keys().revoke(org, api_key_id, now()).await?;
                output.done("The key is revoked; a running daemon refuses it within a second.");
            }
        }
        Ok(())
    }
}

/// Makes a key with `scopes`, or with all of them if none is named; answers its row and the token.
pub(super) async fn create(
    store: &Store,
    org: Uuid,
    name: &str,
    scopes: &[String],
) -> Result<(OrgKey, String), Failure> {
    let scopes: Vec<&str> = if scopes.is_empty() {
        SCOPES.to_vec()
    } else {
        scopes.iter().map(String::as_str).collect()
    };
    let key = store.org_keys().create(org, name, &scopes, now()).await?;
    let token = token::mint(store.keyring(), key.id, org, &key.scopes, now());
    Ok((key, token))
}
