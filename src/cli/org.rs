//! Option `--org` of the commands that work on the store of this machine.

use trunkline_store::{Acting, Org, Store, orgs};
use uuid::Uuid;

use super::Failure;
use crate::api;

/// Option `--org` of the commands for objects of an org.
#[derive(Debug, clap::Args)]
pub(super) struct OfOrg {
    /// The org's id or name; without it the only one that there is.
    #[arg(long, env = "TRUNKLINE_ORG")]
    org: Option<String>,
}

impl OfOrg {
    /// Text as given on the command line.
    pub(super) fn as_given(&self) -> Option<&str> {
        self.org.as_deref()
    }

    pub(super) async fn id(&self, store: &Store) -> Result<Uuid, Failure> {
        match &self.org {
            Some(org) => Ok(find(store, org).await?.id),
            None => only(store).await,
        }
    }
}

/// Returns the only org.
async fn only(store: &Store) -> Result<Uuid, Failure> {
    let orgs = store.read(orgs::list).await?;
    match orgs.as_slice() {
        [only] => {
            Acting::of_org(only.id);
            Ok(only.id)
        }
        [] => Err(Failure::Command(
            "there is no org yet: trunkline org create --name NAME makes one".to_owned(),
        )),
        several => Err(Failure::Command(format!(
            "there are {} orgs: name one by --org or TRUNKLINE_ORG (trunkline org list)",
            several.len()
        ))),
    }
}

/// Finds an org by id, or by a name that only one org has.
async fn find(store: &Store, org: &str) -> Result<Org, Failure> {
    let found = look_up(store, org).await?;
    Acting::of_org(found.id);
    Ok(found)
}

async fn look_up(store: &Store, org: &str) -> Result<Org, Failure> {
    if let Ok(id) = api::id_of(org) {
        return Ok(store.read(move |tx| orgs::by_id(tx, id)).await?);
    }

    let mut named = store
        .read(orgs::list)
        .await?
        .into_iter()
        .filter(|known| known.name == org);
    match (named.next(), named.next()) {
        (Some(found), None) => Ok(found),
        (Some(_), Some(_)) => Err(Failure::Command(format!(
            "more than one org is called {org:?}: name it by its id (trunkline org list)"
        ))),
        (None, _) => Err(Failure::Command(format!(
            "there is no org {org:?}: trunkline org list shows all"
        ))),
    }
}
