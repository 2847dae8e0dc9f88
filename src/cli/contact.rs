//! `trunkline contact`: contacts of an org: found, and exported for a person who asks what is kept.

use std::io::{self, Write as _};

use serde::Serialize;
use trunkline_store::{Contact, ContactSearch, Error};
use uuid::Uuid;

use super::org::OfOrg;
use super::output::{Output, Shown, or_dash, time};
use super::{Failure, outset};
use crate::api;
use crate::config::Config;

/// Contacts of an org.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Finds contacts by all that is given, oldest first, 100 at most.
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
}

/// What contacts are found by.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(super) struct By {
    /// Phone, however it is written.
    #[arg(long)]
    phone: Option<String>,
    /// E-mail address, whatever its case.
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

impl Shown for ContactView {
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
        let store = outset::open_store(config).await?;
        match self {
            Self::Find { org, by, output } => {
                let org = org.id(&store).await?;
                let search = ContactSearch {
                    external_id: by.external_id,
                    email: by.email,
                    phone: by.phone,
                };
                let found = store.contacts().find(org, &search).await?;
                let found: Vec<_> = found.into_iter().map(ContactView::from).collect();
                output.list(&found);
            }
            Self::Export { contact, org } => {
                let org = org.id(&store).await?;
                let contact = store.contacts().by_id(org, contact).await?;
                export(&store, contact).await?;
            }
        }
        Ok(())
    }
}

/// Why an export ended early.
enum Cut {
    Store(Error),
    Output(io::Error),
}

impl From<Error> for Cut {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

async fn export(store: &trunkline_store::Store, contact: Contact) -> Result<(), Failure> {
    let mut out = io::stdout();
    let written = api::export(store, contact, |text| {
        out.write_all(text.as_bytes()).map_err(Cut::Output)
    });
    match written.await {
        Ok(()) => writeln!(out),
        Err(Cut::Store(error)) => return Err(error.into()),
        Err(Cut::Output(error)) => Err(error),
    }
    .map_err(|error| Failure::Command(format!("the export can't be written: {error}")))
}
