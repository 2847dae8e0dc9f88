//! An empty database of one kind for a story, stores opened on it, and a frozen clock.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use trunkline_model::record::{Direction, Fact, Started};
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use trunkline_store::journal::{Origin, Project, ReadPosition, Retry};
use trunkline_store::{
    Agent, Error, NewAgent, NewOrg, NewPartner, OpenErasure, OpenFault, Options, Org, Store, Tx,
    agents, erasures, orgs, partners,
};
use uuid::Uuid;

use trunkline_testkit::database::Database;

pub(crate) const NOW: Moment = Moment::from_secs(1_800_000_000);

/// Returns the fact of a call that begins and has no other details.
pub(crate) fn started(call: Uuid, org: Uuid, at: Moment) -> Started {
    Started {
        call,
        org,
        session: Uuid::from_u128(call.as_u128() + 1_000_000),
        agent: None,
        trunk: None,
        direction: Direction::Inbound,
        from: "100".into(),
        to: "200".into(),
        from_e164: None,
        to_e164: None,
        caller_call_id: "a@b".into(),
        at,
        decision: None,
        headers: Vec::new(),
        metadata: None,
        invite_facts: None,
        clock_offset: 0,
    }
}

pub(crate) fn later(seconds: u64) -> Moment {
    NOW + Duration::from_secs(seconds)
}

/// An empty database.
pub(crate) struct TestDb {
    pub(crate) options: Options,
    directory: TempDir,
}

/// Future of a story, which borrows its database.
type Told<'b> = Pin<Box<dyn Future<Output = ()> + 'b>>;

pub(crate) fn on_sqlite(story: impl FnOnce(&TestDb) -> Told<'_>) {
    run(async {
        let db = TestDb::new(None);
        story(&db).await;
    });
}

pub(crate) fn on_postgres(story: impl FnOnce(&TestDb) -> Told<'_>) {
    // Dropped last, and also if the story fails.
    let Some(database) = Database::new() else {
        return;
    };
    run(async {
        let db = TestDb::new(Some(database.url()));
        story(&db).await;
    });
}

fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(story);
}

impl TestDb {
    pub(crate) fn new(url: Option<String>) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let options = Options {
            data_dir: directory.path().join("data"),
            url,
            master_key: Some("the tests' own master key, long enough".to_owned().into()),
            // Four connections listen. A test may hold two transactions, one waiting for the other, and read meanwhile.
            max_connections: 8,
        };
        Self { options, directory }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.options.url.is_some()
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) async fn open(&self) -> Store {
        self.try_open().await.expect("the store opens")
    }

    /// Opens the stores of several nodes that write at the same time. On SQLite, a node has its file to itself, so they are one store:
    /// SQLite serves writers of several stores in no order, and on a slow disk one of them would give up.
    pub(crate) async fn open_nodes(&self, nodes: usize) -> Vec<Store> {
        let mut stores = vec![self.open().await];
        while stores.len() < nodes {
            let store = match self.is_postgres() {
                true => self.open().await,
                false => stores[0].clone(),
            };
            stores.push(store);
        }
        stores
    }

    pub(crate) async fn try_open(&self) -> Result<Store, OpenFault> {
        Store::open(&self.options, NOW).await
    }

    /// Opens the database's file past the store.
    pub(crate) fn sqlite(&self) -> rusqlite::Connection {
        let file = self.options.data_dir.join("trunkline.db");
        rusqlite::Connection::open(file).expect("the database opens")
    }

    /// Runs a statement past the store, in SQL that both databases share.
    pub(crate) async fn execute(&self, sql: &'static str) {
        match &self.options.url {
            Some(url) => {
                let mut connection = PgConnection::connect(url)
                    .await
                    .expect("the database answers");
                sqlx::raw_sql(sql)
                    .execute(&mut connection)
                    .await
                    .expect(sql);
            }
            None => {
                self.sqlite().execute_batch(sql).expect(sql);
            }
        }
    }
}

pub(crate) fn number(text: &str) -> E164 {
    E164::parse(text).expect("E.164")
}

pub(crate) async fn org(store: &Store, name: &str) -> Org {
    let new = NewOrg::named(name);
    done(store, move |tx| orgs::create(tx, None, &new, NOW)).await
}

/// Makes a partner.
pub(crate) async fn partner(store: &Store) -> Uuid {
    let new = NewPartner {
        name: "Reseller".to_owned(),
        ..NewPartner::default()
    };
    done(store, move |tx| partners::create(tx, &new, NOW))
        .await
        .id
}

/// Makes an org of the partner with this external id.
pub(crate) async fn of_partner(store: &Store, partner: Uuid, external_id: &str) -> Org {
    let new = NewOrg {
        external_id: Some(external_id.to_owned()),
        ..NewOrg::named("Acme")
    };
    done(store, move |tx| orgs::create(tx, Some(partner), &new, NOW)).await
}

/// Runs a write transaction that succeeds.
pub(crate) async fn done<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
) -> T {
    store.write(work).await.expect("a change")
}

/// Runs a read transaction.
pub(crate) async fn found<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
) -> T {
    store.read_inline(work).await.expect("what is there")
}

/// Returns the erasures that wait for a node.
pub(crate) async fn open_erasures(store: &Store, node: u8) -> Vec<OpenErasure> {
    let waiting = found(store, move |tx| erasures::waiting(tx, node, 100)).await;
    let mut open = Vec::new();
    for erasure in waiting {
        open.extend(found(store, move |tx| erasures::open(tx, erasure.id)).await);
    }
    open
}

pub(crate) async fn agent(store: &Store, org: Uuid, name: &str) -> Agent {
    let new = new_agent(name);
    done(store, move |tx| agents::create(tx, org, &new, NOW)).await
}

pub(crate) fn new_agent(name: &str) -> NewAgent {
    NewAgent {
        first_message: "Hello".to_owned(),
        use_org_knowledgebase: true,
        action_ids: vec!["look-up".to_owned()],
        ..NewAgent::named(name)
    }
}

/// Projects facts of calls into their rows, as the journal does.
pub(crate) async fn project(store: &Store, run: Origin, facts: &[Fact]) -> Result<(), Retry> {
    let end = ReadPosition::default();
    Project::project(store, run, facts.into(), end).await
}
