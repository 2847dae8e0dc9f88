//! Costs of the store on SQLite, and on the PostgreSQL server that `TRUNKLINE_TEST_POSTGRES` names: point reads, sequential and concurrent,
//! updates, and the projection of calls. Run it with `cargo bench --bench store`; compare two versions by alternating runs.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;
use trunkline_bench::clock::Clock;
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{AgentChange, NewAgent, NewOrg, Options, Store, agents, orgs, project};
use uuid::Uuid;

const NOW: Moment = Moment::from_secs(1_800_000_000);
const RUN: Origin = Origin { node: 0, boot: 1 };
/// Facts of one batch, as the journal hands them over under load.
const BATCH: usize = 500;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        measure("sqlite", None, 20_000).await;
        if let Ok(server) = std::env::var("TRUNKLINE_TEST_POSTGRES") {
            let name = format!("trunkline_bench_{}", Uuid::new_v4().simple());
            administer(&server, format!("CREATE DATABASE {name}")).await;

            let (host, _) = server.rsplit_once('/').expect("a URL with a database");
            measure("postgres", Some(format!("{host}/{name}")), 4_000).await;
            administer(&server, format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
    });
}

async fn administer(server: &str, sql: String) {
    let mut connection = PgConnection::connect(server)
        .await
        .expect("the server answers");
    let done = sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut connection)
        .await;
    done.expect("the statement runs");
}

async fn measure(name: &str, url: Option<String>, times: u64) {
    let folder = TempDir::new().expect("a directory");
    let options = Options {
        data_dir: folder.path().join("data"),
        url,
        master_key: Some("the bench's own master key, long enough".to_owned().into()),
        max_connections: 10,
    };
    let store = Store::open(&options, NOW).await.expect("the store opens");

    let org = store
        .write(move |tx| orgs::create(tx, None, &NewOrg::named("Bench"), NOW))
        .await;
    let org = org.expect("an org").id;
    let agent = create(&store, org).await;

    let clock = Clock::start();
    for _ in 0..times {
        read(&store, org, agent).await;
    }
    report(name, "read_inline_us", clock.now(), times);

    let clock = Clock::start();
    for _ in 0..times {
        let read = store.read(move |tx| agents::by_id(tx, org, agent)).await;
        read.expect("an agent");
    }
    report(name, "read_on_thread_us", clock.now(), times);

    let clock = Clock::start();
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..times / 16 {
                    read(&store, org, agent).await;
                }
            })
        })
        .collect();

    for task in tasks {
        task.await.expect("no panic");
    }
    report(name, "read_inline_of_16_us", clock.now(), times);

    let clock = Clock::start();
    for _ in 0..times / 40 {
        update(&store, org, agent).await;
    }
    report(name, "update_us", clock.now(), times / 40);

    let facts: Vec<Fact> = (0..2_000)
        .flat_map(|number| facts_of_call(org, number))
        .collect();
    let clock = Clock::start();
    for batch in facts.chunks(BATCH) {
        project_batch(&store, batch).await;
    }
    report(name, "project_fact_us", clock.now(), facts.len() as u64);
    store.close().await;
}

fn report(name: &str, what: &str, micros: u64, times: u64) {
    println!("{name} {what} {:.2}", micros as f64 / times as f64);
}

async fn create(store: &Store, org: Uuid) -> Uuid {
    let new = NewAgent {
        first_message: "Hello, how can I help?".to_owned(),
        use_org_knowledgebase: true,
        action_ids: vec!["look-up".to_owned()],
        ..NewAgent::named("Anna")
    };
    let made = store
        .write(move |tx| agents::create(tx, org, &new, NOW))
        .await;
    made.expect("an agent").id
}

async fn read(store: &Store, org: Uuid, agent: Uuid) {
    let read = store
        .read_inline(move |tx| agents::by_id(tx, org, agent))
        .await;
    read.expect("an agent");
}

async fn update(store: &Store, org: Uuid, agent: Uuid) {
    let change = AgentChange {
        enabled: Some(false),
        ..AgentChange::default()
    };
    let changed = store
        .write(move |tx| agents::update(tx, org, agent, &change, NOW))
        .await;
    changed.expect("changed");
}

async fn project_batch(store: &Store, facts: &[Fact]) {
    let facts = facts.to_vec();
    let projected = store.write(move |tx| project(tx, RUN, &facts)).await;
    projected.expect("projected");
}

/// Returns the facts of the complete call with this number.
fn facts_of_call(org: Uuid, number: u128) -> [Fact; 4] {
    let call = Uuid::from_u128(number + 1);
    let at = |seconds| NOW + Duration::from_secs(seconds);
    let started = Started {
        call,
        org,
        session: Uuid::from_u128(1_000_000 + number),
        agent: None,
        trunk: None,
        direction: Direction::Inbound,
        from: "+442071838750".into(),
        to: "+4930000001".into(),
        from_e164: None,
        to_e164: None,
        caller_call_id: "a84b4c76e66710@pc33.example.com".into(),
        at: NOW,
        decision: None,
        headers: Vec::new(),
        metadata: None,
        invite_facts: None,
        clock_offset: 0,
    };

    let ended = Ended {
        call,
        org,
        at: at(3),
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };

    [
        Fact::Started(started.into()),
        Fact::Ringing {
            call,
            org,
            at: at(1),
        },
        Fact::Answered {
            call,
            org,
            at: at(2),
            runtime_call_id: "r".into(),
        },
        Fact::Ended(ended.into()),
    ]
}
