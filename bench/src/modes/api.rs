//! The API over a database of realistic size, compared with a bare axum server on the same core in the same run. Reads go
//! through thousands of agents and pages in turn, so that no cache of recent answers helps.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;

use tempfile::TempDir;

use super::bench::{Fault, Setting};
use crate::daemon::{Daemon, Launch};
use crate::http;
use crate::kernel::pin_to;
use crate::report::Report;
use crate::seed::{self, Rows};
use crate::wrk::{self, Answered, RepeatedRequests};

/// Size of the database, and time for each request.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Rows of the database.
    pub rows: Rows,
    /// Seconds for which each request is repeated.
    pub seconds: u64,
}

/// Small database, on which the list is measured for comparison.
const SMALL: Rows = Rows {
    orgs: 1,
    contacts: 100,
    handoffs: 1_000,
    agents: 0,
    numbers: 0,
};
/// Smallest passing rate of point reads, as a share of bare axum's answers per second.
const READ_SHARE: f64 = 0.4;
/// Smallest passing rate of a list of 50, in the same unit.
const LIST_SHARE: f64 = 0.1;
/// Largest passing ratio of the list's p99 over the large database to its p99 over the small one.
const LIST_GROWTH: f64 = 3.0;

const LIST: &str = "/handoff-analytics/events?limit=50";
/// Maximum number of pages of the list that are requested in turn.
const PAGES: usize = 1_000;
const HANDOFF: &str =
    r#"{"session_id":"bench","summary":"The caller asked for a person.","sentiment":"neutral"}"#;

/// Measures each kind of request.
///
/// # Errors
/// There is no daemon, no wrk, or the database can't be filled.
pub fn api(setting: &Setting, scale: Scale) -> Result<Report, Fault> {
    let Rows {
        orgs,
        contacts,
        handoffs,
        agents,
        ..
    } = scale.rows;

    let mut report = Report::new(format!(
        "API: {orgs} orgs, {contacts} contacts, {handoffs} handoffs, {agents} agents; {} s each",
        scale.seconds
    ));

    let small = Served::start(setting, SMALL)?;
    let pages = small.pages()?;
    let list_of_few = small.ask(&get(&pages), scale.seconds)?;
    // Both daemons have the same core, so the small one ends before the large one is measured.
    drop(small);

    let served = Served::start(setting, scale.rows)?;
    let (agents, pages) = (served.agents()?, served.pages()?);

    let bare = bare_axum(setting, scale.seconds)?;
    // Voices come from the configuration: what this costs beyond bare axum is the check of the key.
    let checked = served.ask(&get(&["/phone/voices".to_owned()]), scale.seconds)?;
    let read = served.ask(&get(&agents), scale.seconds)?;
    let list = served.ask(&get(&pages), scale.seconds)?;
    let created = served.ask(
        &RepeatedRequests {
            paths: &["/handoff-analytics/events".to_owned()],
            bearer: None,
            post: Some(HANDOFF),
        },
        scale.seconds,
    )?;

    let rows = [
        (["axum_per_second", "axum_p50_ms", "axum_p99_ms"], bare),
        (
            [
                "key_check_per_second",
                "key_check_p50_ms",
                "key_check_p99_ms",
            ],
            checked,
        ),
        (["read_per_second", "read_p50_ms", "read_p99_ms"], read),
        (["list_per_second", "list_p50_ms", "list_p99_ms"], list),
        (
            ["create_per_second", "create_p50_ms", "create_p99_ms"],
            created,
        ),
    ];

    for ([rate, p50, p99], answered) in rows {
        report.measure(rate, answered.rate);
        report.measure(p50, answered.p50_ms);
        report.measure(p99, answered.p99_ms);
        if answered.failed > 0 {
            report.fault(format!("{rate}: {} answers are errors", answered.failed));
        }
    }

    report.measure("list_of_a_thousand_p99_ms", list_of_few.p99_ms);

    let mut share = |name, answered: Answered, least: f64| {
        let share = answered.rate / bare.rate;
        report.measure(name, share);
        if share < least {
            report.fault(format!("{name} is {share:.2}, below {least}"));
        }
    };
    share("key_check_share_of_axum", checked, READ_SHARE);
    share("read_share_of_axum", read, READ_SHARE);
    share("list_share_of_axum", list, LIST_SHARE);

    let growth = list.p99_ms / list_of_few.p99_ms;
    report.measure("list_p99_growth", growth);
    if growth > LIST_GROWTH {
        report.fault(format!(
            "the list's p99 grows {growth:.1} times with the database"
        ));
    }

    Ok(report)
}

const fn get(paths: &[String]) -> RepeatedRequests<'_> {
    RepeatedRequests {
        paths,
        bearer: None,
        post: None,
    }
}

/// Daemon over a filled database.
struct Served {
    daemon: Daemon,
    own_core: Option<usize>,
    _data: TempDir,
}

impl Served {
    fn start(setting: &Setting, rows: Rows) -> Result<Self, Fault> {
        let data = TempDir::new()?;
        let launch = Launch {
            binary: setting.daemon.clone(),
            data_dir: data.path().join("trunkline"),
            runtime: None,
            core: setting.cores.map(|(daemon, _)| daemon),
            is_raised: true,
            environment: vec![(
                "TRUNKLINE__LIMITS__REQUESTS_PER_MINUTE".into(),
                "100000000".into(),
            )],
        };

        // The first start creates the org.
        drop(launch.start()?);
        seed::fill(&launch.data_dir.join("trunkline.db"), rows)?;
        Ok(Self {
            daemon: launch.start()?,
            own_core: setting.cores.map(|(_, own)| own),
            _data: data,
        })
    }

    /// Returns the path of each agent.
    fn agents(&self) -> Result<Vec<String>, Fault> {
        let mut paths = Vec::new();
        let mut next = Some("/phone?limit=100".to_owned());
        while let Some(path) = next {
            let page = self.page(&path)?;
            let items = page["items"].as_array().into_iter().flatten();
            let ids = items.filter_map(|agent| agent["id"].as_str());
            paths.extend(ids.map(|id| format!("/phone/{id}")));

            let cursor = page["next"].as_str();
            next = cursor.map(|cursor| format!("/phone?limit=100&cursor={cursor}"));
        }
        Ok(paths)
    }

    /// Returns the path of each page of the handoffs, [`PAGES`] at most.
    fn pages(&self) -> Result<Vec<String>, Fault> {
        let mut paths = vec![LIST.to_owned()];
        while let Some(last) = paths.last().filter(|_| paths.len() < PAGES) {
            match self.page(last)?["next"].as_str() {
                Some(cursor) => paths.push(format!("{LIST}&cursor={cursor}")),
                None => break,
            }
        }
        // Not the last page, which may have fewer items.
        if paths.len() > 1 {
            paths.pop();
        }
        Ok(paths)
    }

    fn page(&self, path: &str) -> Result<serde_json::Value, Fault> {
        let key = Some(&*self.daemon.announcement.api_key);
        let (status, body) = http::get(self.daemon.http, path, key)?;
        serde_json::from_str(&body).map_err(|_| {
            let fault = format!("{path} is answered {status}: {body}");
            io::Error::other(fault).into()
        })
    }

    /// Repeats these requests for so many seconds, with the org's key.
    fn ask(&self, requests: &RepeatedRequests<'_>, seconds: u64) -> io::Result<Answered> {
        let requests = RepeatedRequests {
            bearer: Some(&self.daemon.announcement.api_key),
            ..requests.clone()
        };
        // Starting a daemon leaves this thread on the daemon's core, and wrk runs where its parent does.
        if let Some(own) = self.own_core {
            pin_to(own)?;
        }
        wrk::ask(self.daemon.http, &requests, seconds)
    }
}

/// Measures a bare axum server that answers "hello", on the daemon's core.
fn bare_axum(setting: &Setting, seconds: u64) -> io::Result<Answered> {
    let core = setting.cores.map(|(daemon, _)| daemon);
    let (bound, address) = mpsc::channel();
    let server = thread::spawn(move || serve_hello(core, &bound));
    let Ok(address) = address.recv() else {
        return match server.join() {
            Ok(Err(error)) => Err(error),
            _ => Err(io::Error::other("the bare server has ended")),
        };
    };
    wrk::ask(address, &get(&["/".to_owned()]), seconds)
}

/// Serves until the process ends.
fn serve_hello(core: Option<usize>, bound: &mpsc::Sender<SocketAddr>) -> io::Result<()> {
    if let Some(core) = core {
        pin_to(core)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        bound
            .send(listener.local_addr()?)
            .map_err(|_| io::Error::other("the measuring thread has ended"))?;
        let hello = axum::Router::new().route("/", axum::routing::get(|| async { "hello" }));
        axum::serve(listener, hello).await
    })
}
