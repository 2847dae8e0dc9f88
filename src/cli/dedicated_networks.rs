//! `trunkline trunk dedicate`: the operator's IP allow list. Calls from these networks belong to one org and need no
//! credentials.

use ipnet::IpNet;
use serde::Serialize;
use trunkline_store::{Dedication, Store, dedications};
use uuid::Uuid;

use super::org::OfOrg;
use super::output::{Output, Tabular, time};
use super::{Failure, network, now};

/// IP allow list of an org, set by the operator.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Takes every call from a network as the org's, without credentials.
    #[command(after_help = "Example:\n  trunkline trunk dedicate 198.51.100.0/24 --org Acme")]
    Dedicate {
        /// The network, or one address.
        #[arg(value_parser = network)]
        network: IpNet,
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Ends a dedication.
    Undedicate {
        /// The network, or one address.
        #[arg(value_parser = network)]
        network: IpNet,
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Lists the networks dedicated to the org.
    Dedicated {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Serialize)]
struct DedicationView {
    network: IpNet,
    org_id: Uuid,
    created_at: String,
}

impl From<Dedication> for DedicationView {
    fn from(dedication: Dedication) -> Self {
        Self {
            network: dedication.network,
            org_id: dedication.org_id,
            created_at: time(dedication.created_at),
        }
    }
}

impl Tabular for DedicationView {
    const COLUMNS: &'static [&'static str] = &["network", "org", "created"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.network.to_string(),
            self.org_id.to_string(),
            self.created_at.clone(),
        ]
    }
}

impl Command {
    pub(super) async fn run(self, store: &Store) -> Result<(), Failure> {
        match self {
            Self::Dedicate {
                network,
                org,
                output,
            } => {
                let value = org.id(store).await?;
                let dedication = store
                    .write(move |tx| dedications::create(tx, value, network, now()))
                    .await?;
                output.one(&DedicationView::from(dedication));
            }
            Self::Undedicate {
                network,
                org,
                output,
            } => {
                let value = org.id(store).await?;
                store
                    .write(move |tx| dedications::delete(tx, value, network, now()))
                    .await?;
                output.done("The network is nobody's now.");
            }
            Self::Dedicated { org, output } => {
                let value = org.id(store).await?;
                let listed = store.read(move |tx| dedications::list(tx, value)).await?;
                output.list(
                    &listed
                        .into_iter()
                        .map(DedicationView::from)
                        .collect::<Vec<_>>(),
                );
            }
        }
        Ok(())
    }
}
