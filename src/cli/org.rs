//! `trunkline org`: orgs, which are the tenants.

use serde::Serialize;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Acting, DeletedOrg, NewOrg, Org, Purge, Store, SuspendedBy, Suspender, deleted_orgs, orgs,
};
use uuid::Uuid;

use super::limits::OrgLimits;
use super::output::{Output, Tabular, or_dash, time};
use super::retention::RetentionSettings;
use super::{Failure, now, startup, tied_peers};
use crate::api;
use crate::config::Config;

/// Orgs: the tenants.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Makes an org.
    #[command(
        after_help = "Examples:\n  trunkline org create --name \"Acme Ltd\"\n  trunkline org create --name Acme --max-concurrent-calls 50 --json"
    )]
    Create {
        /// Its display name.
        #[arg(long, value_parser = api::name)]
        name: String,
        /// Calls at once; without it there is no limit.
        #[arg(long, value_name = "COUNT")]
        max_concurrent_calls: Option<u32>,
        #[command(flatten)]
        output: Output,
    },
    /// Lists all orgs, newest first.
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Shows one org.
    Show {
        /// Its id or name.
        org: String,
        #[command(flatten)]
        output: Output,
    },
    /// Suspends an org: its keys, INVITEs and REGISTERs are refused, it begins no calls, and calls that are up
    /// continue.
    #[command(after_help = "Example:\n  trunkline org suspend Acme")]
    Suspend {
        /// Its id or name.
        org: String,
        #[command(flatten)]
        output: Output,
    },
    /// Ends the operator's suspension; one by the org's partner stays.
    Resume {
        /// Its id or name.
        org: String,
        #[command(flatten)]
        output: Output,
    },
    /// Deletes an org: it behaves as absent, its numbers and external id are free, its keys end, and calls that are up
    /// finish.
    #[command(
        after_help = "Examples:\n  trunkline org delete Acme\n  trunkline org delete Acme --now\n\nWithout --now it can be restored for 30 days (trunkline org restore ID)."
    )]
    Delete {
        /// Its id or name.
        org: String,
        /// Ends its calls and deletes everything at once: it can't be restored.
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Restores a deleted org, with its numbers that no other org has verified since.
    #[command(
        after_help = "Example:\n  trunkline org restore 019a0000-0000-7000-8000-000000000000"
    )]
    Restore {
        /// Its id or name.
        org: String,
        #[command(flatten)]
        output: Output,
    },
    /// Lists deleted orgs that can be restored, the last deleted first.
    Deleted {
        #[command(flatten)]
        output: Output,
    },
    /// Shows the org's limits, and sets those that are given.
    #[command(
        after_help = "Examples:\n  trunkline org limits Acme\n  trunkline org limits Acme --agents 5000 --requests-per-minute 600\n  trunkline org limits Acme --agents default"
    )]
    Limits {
        /// Its id or name.
        org: String,
        #[command(flatten)]
        limits: OrgLimits,
        #[command(flatten)]
        output: Output,
    },
    /// Shows for how many days the org's data is kept, and sets what is given.
    #[command(
        after_help = "Examples:\n  trunkline org retention Acme\n  trunkline org retention Acme --calls-days 90 --sessions-days 30\n  trunkline org retention Acme --calls-days default"
    )]
    Retention {
        /// Its id or name.
        org: String,
        #[command(flatten)]
        settings: RetentionSettings,
        #[command(flatten)]
        output: Output,
    },
    /// Limits the org's calls at once.
    #[command(after_help = "Examples:\n  trunkline org limit Acme 50\n  trunkline org limit Acme")]
    Limit {
        /// Its id or name.
        org: String,
        /// Calls at once; without it there is no limit.
        max_calls: Option<u32>,
        #[command(flatten)]
        output: Output,
    },
    /// Lets the org name a reserved or private peer as runtime, outbound trunk or destination.
    #[command(
        after_help = "Examples:\n  trunkline org tie Acme carrier.example.com\n  trunkline org tie Acme 10.20.0.0/16"
    )]
    Tie {
        /// Its id or name.
        org: String,
        #[command(flatten)]
        peer: tied_peers::Peer,
        #[command(flatten)]
        output: Output,
    },
    /// Ends a tie: calls to the peer are refused from then on, and those that are up go on.
    Untie {
        /// Its id or name.
        org: String,
        #[command(flatten)]
        peer: tied_peers::Peer,
        #[command(flatten)]
        output: Output,
    },
    /// Lists the peers tied to the org.
    Tied {
        /// Its id or name.
        org: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Serialize)]
struct OrgView {
    id: Uuid,
    name: String,
    partner_id: Option<Uuid>,
    external_id: Option<String>,
    max_concurrent_calls: Option<u32>,
    suspended_by: Vec<SuspendedBy>,
    created_at: String,
}

impl From<Org> for OrgView {
    fn from(org: Org) -> Self {
        Self {
            suspended_by: org.suspended_by(),
            id: org.id,
            name: org.name,
            partner_id: org.partner_id,
            external_id: org.external_id,
            max_concurrent_calls: org.max_concurrent_calls,
            created_at: time(org.created_at),
        }
    }
}

impl Tabular for OrgView {
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "name",
        "partner",
        "max calls",
        "suspended by",
        "created",
    ];

    fn cells(&self) -> Vec<String> {
        let by = self.suspended_by.iter().map(|by| by.as_str());
        let by = by.collect::<Vec<_>>().join(",");
        let (partner, max) = (or_dash(self.partner_id), or_dash(self.max_concurrent_calls));
        vec![
            self.id.to_string(),
            self.name.clone(),
            partner,
            max,
            or_dash((!by.is_empty()).then_some(by)),
            self.created_at.clone(),
        ]
    }
}

/// Deleted org, as the command prints it.
#[derive(Debug, Serialize)]
struct Deletion {
    id: Uuid,
    name: String,
    restorable: bool,
}

impl Tabular for Deletion {
    const COLUMNS: &'static [&'static str] = &["id", "name", "restorable"];

    fn cells(&self) -> Vec<String> {
        let restorable = if self.restorable { "yes" } else { "no" };
        vec![
            self.id.to_string(),
            self.name.clone(),
            restorable.to_owned(),
        ]
    }
}

#[derive(Debug, Serialize)]
struct DeletedView {
    id: Uuid,
    name: String,
    partner_id: Option<Uuid>,
    external_id: Option<String>,
    deleted_at: Option<String>,
    purge_at: Option<String>,
}

impl From<DeletedOrg> for DeletedView {
    fn from(org: DeletedOrg) -> Self {
        Self {
            id: org.id,
            name: org.name,
            partner_id: org.partner_id,
            external_id: org.deleted_external_id,
            deleted_at: org.deleted_at.map(time),
            purge_at: org.purge_at.map(time),
        }
    }
}

impl Tabular for DeletedView {
    const COLUMNS: &'static [&'static str] = &["id", "name", "partner", "deleted", "purged on"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            or_dash(self.partner_id),
            or_dash(self.deleted_at.as_deref()),
            or_dash(self.purge_at.as_deref()),
        ]
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = startup::open_store(config).await?;
        match self {
            Self::Create {
                name,
                max_concurrent_calls: max_calls,
                output,
            } => {
                output.one(&create(&store, name, max_calls).await?);
            }
            Self::List { output } => output.list(
                &store
                    .read(orgs::list)
                    .await?
                    .into_iter()
                    .map(OrgView::from)
                    .collect::<Vec<_>>(),
            ),
            Self::Show { org, output } => output.one(&OrgView::from(find(&store, &org).await?)),
            Self::Suspend { org, output } => {
                output.one(&suspend(&store, &org, Some(now())).await?);
            }
            Self::Resume { org, output } => output.one(&suspend(&store, &org, None).await?),
            Self::Delete {
                org,
                now: at_once,
                output,
            } => {
                let purge = if at_once { Purge::Now } else { Purge::Later };
                output.one(&delete(&store, &org, purge).await?);
            }
            Self::Restore { org, output } => {
                let id = find_deleted(&store, &org).await?;
                output.one(&OrgView::from(
                    deleted_orgs::restore(&store, id, now()).await?,
                ));
            }
            Self::Deleted { output } => {
                let deleted = store.read(move |tx| deleted_orgs::deleted(tx, now()));
                let deleted = deleted.await?.into_iter().map(DeletedView::from);
                output.list(&deleted.collect::<Vec<_>>());
            }
            Self::Limits {
                org,
                limits,
                output,
            } => {
                let id = find(&store, &org).await?.id;
                limits.run(&store, config, id, output).await?;
            }
            Self::Retention {
                org,
                settings,
                output,
            } => {
                let id = find(&store, &org).await?.id;
                settings.run(&store, config, id, output).await?;
            }
            Self::Tie { org, peer, output } => {
                let id = find(&store, &org).await?.id;
                peer.tie(&store, id, output).await?;
            }
            Self::Untie { org, peer, output } => {
                let id = find(&store, &org).await?.id;
                peer.untie(&store, id, output).await?;
            }
            Self::Tied { org, output } => {
                let id = find(&store, &org).await?.id;
                tied_peers::list(&store, id, output).await?;
            }
            Self::Limit {
                org,
                max_calls,
                output,
            } => {
                let id = find(&store, &org).await?.id;
                store
                    .write(move |tx| orgs::limit_calls(tx, id, max_calls, now()))
                    .await?;
                output.one(&OrgView::from(
                    store.read(move |tx| orgs::by_id(tx, id)).await?,
                ));
            }
        }

        Ok(())
    }
}

async fn create(store: &Store, name: String, max_calls: Option<u32>) -> Result<OrgView, Failure> {
    let mut org = store
        .write(move |tx| orgs::create(tx, None, &NewOrg::named(name), now()))
        .await?;
    if max_calls.is_some() {
        store
            .write(move |tx| orgs::limit_calls(tx, org.id, max_calls, now()))
            .await?;
        org.max_concurrent_calls = max_calls;
    }
    Ok(org.into())
}

/// Suspends the org since that time, or ends the suspension.
async fn suspend(store: &Store, org: &str, since: Option<Moment>) -> Result<OrgView, Failure> {
    let id = find(store, org).await?.id;
    let done = store.write(move |tx| orgs::suspend(tx, id, Suspender::Operator, since, now()));
    Ok(done.await?.into())
}

async fn delete(store: &Store, org: &str, purge: Purge) -> Result<Deletion, Failure> {
    let found = find(store, org).await?;
    store
        .write(move |tx| deleted_orgs::delete(tx, found.id, purge, now()))
        .await?;
    Ok(Deletion {
        id: found.id,
        name: found.name,
        restorable: purge == Purge::Later,
    })
}

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
pub(super) async fn find(store: &Store, org: &str) -> Result<Org, Failure> {
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

/// Finds a deleted org by id, or by a name that only one deleted org has.
async fn find_deleted(store: &Store, org: &str) -> Result<Uuid, Failure> {
    let found = look_up_deleted(store, org).await?;
    Acting::of_org(found);
    Ok(found)
}

async fn look_up_deleted(store: &Store, org: &str) -> Result<Uuid, Failure> {
    if let Ok(id) = api::id_of(org) {
        return Ok(id);
    }

    let deleted = store
        .read(move |tx| deleted_orgs::deleted(tx, now()))
        .await?;
    let mut named = deleted.into_iter().filter(|known| known.name == org);
    match (named.next(), named.next()) {
        (Some(found), None) => Ok(found.id),
        (Some(_), Some(_)) => Err(Failure::Command(format!(
            "more than one deleted org is called {org:?}: name it by its id (trunkline org deleted)"
        ))),
        (None, _) => Err(Failure::Command(format!(
            "there is no deleted org {org:?}: trunkline org deleted shows those that can be restored"
        ))),
    }
}
