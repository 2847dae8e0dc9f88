//! `trunkline contact`: finds contacts of an org, exports one for a person who asks for the data, and erases one.

use std::io::{self, Write as _};
use std::time::Duration;

use serde::Serialize;
use trunkline_store::{Contact, ContactSearch, Error, erasures, of_contact};
use uuid::Uuid;

use super::confirm::{WithoutTerminal, confirmed};
use super::org::OfOrg;
use super::output::{Output, Tabular, or_dash, time};
use super::{Failure, now, startup};
use crate::api::{self, ErasureState, ErasureView};
use crate::config::Config;

/// Contacts of an org.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Finds contacts that match everything given, oldest first, 100 at most.
    #[command(
        after_help = "Examples:\n  trunkline contact find --org Acme --phone +442071838750\n  trunkline contact find --org Acme --email ann@example.com --json"
    )]
    Find {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        output: Output,
    },
    /// Prints everything that is kept of a contact as JSON: itself, and its calls with their transfers and handoffs.
    #[command(
        after_help = "Example:\n  trunkline contact export 019a0000-0000-7000-8000-000000000000 --org Acme > contact.json"
    )]
    Export {
        /// The contact's id.
        #[arg(value_parser = api::id_of)]
        contact: Uuid,
        #[command(flatten)]
        org: OfOrg,
    },
    /// Erases a contact and everything kept of it: the contact is gone at once, and running daemons erase what they
    /// hold.
    #[command(
        after_help = "Example:\n  trunkline contact erase 019a0000-0000-7000-8000-000000000000 --org Acme\n\nIt can be repeated: it shows the same erasure. Without a running daemon the erasure goes on when one starts."
    )]
    Erase {
        /// The contact's id.
        #[arg(value_parser = api::id_of)]
        contact: Uuid,
        #[command(flatten)]
        org: OfOrg,
        /// Seconds to wait for the daemons.
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        wait: u64,
        /// Don't ask for confirmation.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Shows the state of an erasure, and its receipt once it is complete.
    #[command(
        after_help = "Example:\n  trunkline contact receipt 019a0000-0000-7000-8000-000000000000 --org Acme --json"
    )]
    Receipt {
        /// The erasure's id.
        #[arg(value_parser = api::id_of)]
        erasure: Uuid,
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
}

/// Interval between checks whether an erasure is complete.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl Tabular for ErasureView {
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "contact",
        "state",
        "requested",
        "completed",
        "calls",
        "trace messages",
    ];

    fn cells(&self) -> Vec<String> {
        let state = match self.state {
            ErasureState::InProgress => "in progress",
            ErasureState::Complete => "complete",
        };
        vec![
            self.id.to_string(),
            self.contact_id.to_string(),
            state.to_owned(),
            self.requested_at.clone(),
            or_dash(self.completed_at.as_deref()),
            self.erased.calls.to_string(),
            self.erased.trace_messages.to_string(),
        ]
    }
}

/// Properties to find contacts by.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(super) struct By {
    /// Phone number, in any notation.
    #[arg(long)]
    phone: Option<String>,
    /// E-mail address, ignoring case.
    #[arg(long)]
    email: Option<String>,
    /// The org's own id for the contact.
    #[arg(long)]
    external_id: Option<String>,
}

#[derive(Debug, Serialize)]
struct ContactView {
    id: Uuid,
    external_id: Option<String>,
    name: Option<String>,
    email: Option<String>,
    phone: Option<String>,
    updated_at: String,
}

impl From<Contact> for ContactView {
    fn from(contact: Contact) -> Self {
        Self {
            id: contact.id,
            external_id: contact.external_id,
            name: contact.name,
            email: contact.email,
            phone: contact.phone,
            updated_at: time(contact.updated_at),
        }
    }
}

impl Tabular for ContactView {
    const COLUMNS: &'static [&'static str] =
        &["id", "external id", "name", "email", "phone", "changed"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            or_dash(self.external_id.as_deref()),
            or_dash(self.name.as_deref()),
            or_dash(self.email.as_deref()),
            or_dash(self.phone.as_deref()),
            self.updated_at.clone(),
        ]
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = startup::open_store(config).await?;
        match self {
            Self::Find { org, by, output } => {
                let org = org.id(&store).await?;
                let search = ContactSearch {
                    external_id: by.external_id,
                    email: by.email,
                    phone: by.phone,
                };
                let found = store
                    .read(move |tx| of_contact::find(tx, org, &search))
                    .await?;
                let found: Vec<_> = found.into_iter().map(ContactView::from).collect();
                output.list(&found);
            }
            Self::Export { contact, org } => {
                let org = org.id(&store).await?;
                let contact = store.contacts().by_id(org, contact).await?;
                export(&store, contact).await?;
            }
            Self::Erase {
                contact,
                org,
                wait,
                yes,
                output,
            } => {
                confirmed(yes, "Erases the contact", WithoutTerminal::Warns)?;
                let org = org.id(&store).await?;
                // A contact that was erased before has no row any more.
                let mut erasure = match store
                    .read(move |tx| erasures::of_contact(tx, org, contact))
                    .await
                {
                    Ok(before) => before,
                    Err(Error::Wrong(_)) => {
                        store
                            .write(move |tx| erasures::request(tx, org, contact, now()))
                            .await?
                    }
                    Err(error) => return Err(error.into()),
                };

                let until = now() + Duration::from_secs(wait);
                while erasure.completed_at.is_none() && now() < until {
                    tokio::time::sleep(CHECK_INTERVAL).await;
                    erasure = store
                        .read(move |tx| erasures::by_id(tx, org, erasure.id))
                        .await?;
                }

                output.one(&ErasureView::from(erasure));
            }
            Self::Receipt {
                erasure,
                org,
                output,
            } => {
                let org = org.id(&store).await?;
                let erasure = store
                    .read(move |tx| erasures::by_id(tx, org, erasure))
                    .await?;
                output.one(&ErasureView::from(erasure));
            }
        }

        Ok(())
    }
}

/// Reason why an export ended early.
enum ExportError {
    Store(Error),
    Output(io::Error),
}

impl From<Error> for ExportError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

async fn export(store: &trunkline_store::Store, contact: Contact) -> Result<(), Failure> {
    let mut out = io::stdout();
    let written = api::export(store, contact, |text| {
        out.write_all(text.as_bytes()).map_err(ExportError::Output)
    });
    match written.await {
        Ok(()) => writeln!(out),
        Err(ExportError::Store(error)) => return Err(error.into()),
        Err(ExportError::Output(error)) => Err(error),
    }
    .map_err(|error| Failure::Command(format!("the export can't be written: {error}")))
}
