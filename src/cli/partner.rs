//! `trunkline partner`: resellers that create orgs, and their keys. A new key is shown once.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipnet::IpNet;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use trunkline_store::{NewPartner, Partner, PartnerKey, Store, partners};
use uuid::Uuid;

use super::limits::PartnerLimits;
use super::output::{Output, Tabular, time};
use super::{Failure, network, now, startup};
use crate::api;
use crate::config::Config;

/// Partners: resellers that make orgs.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Makes a partner.
    #[command(
        after_help = "Examples:\n  trunkline partner create --name Reseller\n  trunkline partner create --name Reseller --allow 198.51.100.0/24 --json"
    )]
    Create {
        /// Its name.
        #[arg(long, value_parser = api::name)]
        name: String,
        /// A network that its requests may come from; may be given more than once. Without it any address may.
        #[arg(long, value_name = "CIDR", value_parser = network)]
        allow: Vec<IpNet>,
        /// The default system prompt of its orgs.
        #[arg(long)]
        ai_instructions: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Lists all partners, newest first.
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Lets the partner's keys work.
    Activate {
        /// Its id.
        #[arg(value_parser = api::id_of)]
        partner: Uuid,
        #[command(flatten)]
        output: Output,
    },
    /// Stops the partner's keys from working, and suspends its orgs.
    Deactivate {
        /// Its id.
        #[arg(value_parser = api::id_of)]
        partner: Uuid,
        #[command(flatten)]
        output: Output,
    },
    /// Lets the partner verify phone numbers of its orgs, or takes that back.
    #[command(
        after_help = "Examples:\n  trunkline partner let-verify ID\n  trunkline partner let-verify ID --no"
    )]
    LetVerify {
        /// Its id.
        #[arg(value_parser = api::id_of)]
        partner: Uuid,
        /// It may not.
        #[arg(long)]
        no: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Sets the networks that the partner's requests may come from: these and no others. Without any, every request is
    /// refused.
    #[command(
        after_help = "Examples:\n  trunkline partner allow ID 198.51.100.0/24 203.0.113.9\n  trunkline partner allow ID --anywhere"
    )]
    Allow {
        /// Its id.
        #[arg(value_parser = api::id_of)]
        partner: Uuid,
        /// A network, or one address.
        #[arg(value_name = "CIDR", value_parser = network)]
        networks: Vec<IpNet>,
        /// Any address may.
        #[arg(long, conflicts_with = "networks")]
        anywhere: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Shows the partner's limits and those it may set for its orgs, and sets the given ones.
    #[command(
        after_help = "Examples:\n  trunkline partner limits ID\n  trunkline partner limits ID --partner-requests-per-minute 600\n  trunkline partner limits ID --agents 5000 --login-links-per-minute default"
    )]
    Limits {
        /// Its id.
        #[arg(value_parser = api::id_of)]
        partner: Uuid,
        #[command(flatten)]
        limits: PartnerLimits,
        #[command(flatten)]
        output: Output,
    },
    /// Keys of a partner.
    #[command(subcommand)]
    Key(KeyCommand),
}

/// Keys of a partner.
#[derive(Debug, clap::Subcommand)]
pub(super) enum KeyCommand {
    /// Makes a key and shows it once.
    #[command(after_help = "Example:\n  trunkline partner key create --partner ID --json")]
    Create {
        /// The partner's id.
        #[arg(long, value_parser = api::id_of)]
        partner: Uuid,
        /// Name of the key.
        #[arg(long, default_value = "Default", value_parser = api::name)]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Lists the partner's keys, newest first.
    List {
        /// The partner's id.
        #[arg(long, value_parser = api::id_of)]
        partner: Uuid,
        #[command(flatten)]
        output: Output,
    },
    /// Revokes a key for good.
    Revoke {
        /// The key's id.
        #[arg(value_parser = api::id_of)]
        key: Uuid,
        /// The partner's id.
        #[arg(long, value_parser = api::id_of)]
        partner: Uuid,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Serialize)]
struct PartnerView {
    id: Uuid,
    name: String,
    active: bool,
    allowed_networks: Option<Vec<IpNet>>,
    verifies_numbers: bool,
    created_at: String,
}

impl From<Partner> for PartnerView {
    fn from(partner: Partner) -> Self {
        Self {
            id: partner.id,
            name: partner.name,
            active: partner.active,
            allowed_networks: partner.allowed_networks,
            verifies_numbers: partner.verifies_numbers,
            created_at: time(partner.created_at),
        }
    }
}

impl Tabular for PartnerView {
    const COLUMNS: &'static [&'static str] = &["id", "name", "active", "allowed from", "created"];

    fn cells(&self) -> Vec<String> {
        let allowed = match &self.allowed_networks {
            None => "anywhere".to_owned(),
            Some(networks) if networks.is_empty() => "nowhere".to_owned(),
            Some(networks) => networks
                .iter()
                .map(IpNet::to_string)
                .collect::<Vec<_>>()
                .join(","),
        };

        let active = if self.active { "yes" } else { "no" };
        vec![
            self.id.to_string(),
            self.name.clone(),
            active.to_owned(),
            allowed,
            self.created_at.clone(),
        ]
    }
}

#[derive(Debug, Serialize)]
struct KeyView {
    id: Uuid,
    partner_id: Uuid,
    name: String,
    created_at: String,
}

/// A new key, the one time that it is shown.
#[derive(Debug, Serialize)]
struct NewKeyView {
    #[serde(flatten)]
    key: KeyView,
    partner_key: String,
}

impl From<PartnerKey> for KeyView {
    fn from(key: PartnerKey) -> Self {
        Self {
            id: key.id,
            partner_id: key.partner_id,
            name: key.name,
            created_at: time(key.created_at),
        }
    }
}

impl Tabular for KeyView {
    const COLUMNS: &'static [&'static str] = &["id", "name", "created"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.created_at.clone(),
        ]
    }
}

impl Tabular for NewKeyView {
    const COLUMNS: &'static [&'static str] = &["id", "name", "created", "partner_key"];

    fn cells(&self) -> Vec<String> {
        let mut cells = self.key.cells();
        cells.push(self.partner_key.clone());
        cells
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = startup::open_store(config).await?;
        match self {
            Self::Create {
                name,
                allow,
                ai_instructions,
                output,
            } => {
                let allowed_networks = (!allow.is_empty()).then_some(allow);
                let new = NewPartner {
                    name,
                    ai_instructions,
                    allowed_networks,
                    ..NewPartner::default()
                };

                output.one(&PartnerView::from(
                    store
                        .write(move |tx| partners::create(tx, &new, now()))
                        .await?,
                ));
            }
            Self::List { output } => {
                let listed = store.read(partners::list).await?;
                output.list(
                    &listed
                        .into_iter()
                        .map(PartnerView::from)
                        .collect::<Vec<_>>(),
                );
            }
            Self::Activate { partner, output } => {
                store
                    .write(move |tx| partners::set_active(tx, partner, true, now()))
                    .await?;
                output.done("The partner's keys work.");
            }
            Self::Deactivate { partner, output } => {
                store
                    .write(move |tx| partners::set_active(tx, partner, false, now()))
                    .await?;
                output.done("The partner's keys no longer work, and its orgs are suspended.");
            }
            Self::LetVerify {
                partner,
                no,
                output,
            } => {
                let changed = store
                    .write(move |tx| partners::let_verify(tx, partner, !no, now()))
                    .await?;
                output.one(&PartnerView::from(changed));
            }
            Self::Allow {
                partner,
                networks,
                anywhere,
                output,
            } => {
                let networks = (!anywhere).then_some(networks);
                let allowed = store
                    .write(move |tx| partners::allow(tx, partner, networks.as_deref(), now()))
                    .await?;
                output.one(&PartnerView::from(allowed));
            }
            Self::Limits {
                partner,
                limits,
                output,
            } => limits.run(&store, config, partner, output).await?,
            Self::Key(command) => command.run(&store).await?,
        }

        Ok(())
    }
}

impl KeyCommand {
    async fn run(self, store: &Store) -> Result<(), Failure> {
        match self {
            Self::Create {
                partner,
                name,
                output,
            } => {
                let (key, partner_key) = create_key(store, partner, &name).await?;
                output.one(&NewKeyView {
                    key: key.into(),
                    partner_key,
                });
            }
            Self::List { partner, output } => {
                store.read(move |tx| partners::by_id(tx, partner)).await?;
                let keys = store.read(move |tx| partners::keys(tx, partner)).await?;
                output.list(&keys.into_iter().map(KeyView::from).collect::<Vec<_>>());
            }
            Self::Revoke {
                key,
                partner,
                output,
            } => {
                store
                    .write(move |tx| partners::revoke_key(tx, partner, key, now()))
                    .await?;
                output.done("The key is revoked.");
            }
        }
        Ok(())
    }
}

/// Makes a key: `tlp_` and 256 random bits. Only its SHA-256 is stored.
pub(super) async fn create_key(
    store: &Store,
    partner: Uuid,
    name: &str,
) -> Result<(PartnerKey, String), Failure> {
    let key = format!("tlp_{}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()));
    let hash = Sha256::digest(&key).into();
    let name = name.to_owned();
    let row = store.write(move |tx| partners::add_key(tx, partner, &name, hash, now()));
    Ok((row.await?, key))
}
