//! The console: the cost of open live pages beside calls, and the time that a page of a long list takes.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;

use super::bench::{Fault, Setting, drain, report_failures, run, window};
use crate::clock::{Clock, seconds};
use crate::daemon::{Announcement, Daemon, Launch};
use crate::engine::{Engine, Sockets};
use crate::exchange::{Parties, Plan, Span};
use crate::http;
use crate::kernel::pin_to;
use crate::pace::Pace;
use crate::process::cpu_seconds;
use crate::report::Report;
use crate::seed;

/// Most live pages that a session may have open.
const OF_SESSION: usize = 8;
/// Most live pages that an org may have open.
const OF_ORG: usize = 64;
/// Most CPU that the pages may cost, in cores; more is a fault.
const MOST_CORES: f64 = 0.1;
/// Most CPU that a page of a list may cost the daemon, in milliseconds; more is a fault.
const MOST_MS: f64 = 200.0;
/// Milliseconds of a call, so that some are up at any time.
const TALK_MS: u64 = 2_000;
/// Number of requests for each page.
const REQUESTS: usize = 50;

/// Load of the live pages.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    /// Pages that are open: 64 in the org with the calls, which is its maximum, the others in further orgs.
    pub pages: usize,
    /// Calls a second.
    pub rate: f64,
    /// Seconds measured in each run.
    pub seconds: u64,
    /// Runs with pages, and as many without, alternating.
    pub turns: u32,
}

#[derive(Deserialize)]
struct Org {
    id: String,
}

#[derive(Deserialize)]
struct Link {
    url: String,
}

/// Measures the CPU that open live pages add to calls at a rate.
///
/// # Errors
/// There is no daemon to load, or it refuses the log-in.
pub fn live_pages(setting: &Setting, load: Pages) -> Result<Report, Fault> {
    let Pages {
        pages,
        rate,
        seconds: span,
        turns,
    } = load;
    let title = format!(
        "console: {pages} live pages at {rate} calls/s, {span} s, {turns} turns with and without"
    );
    let mut report = Report::new(title);

    let mut setting = setting.clone();
    setting.environment.push(unlimited_links());
    let plan = Plan {
        talk: Span::For(TALK_MS * 1_000),
        ..Plan::default()
    };
    let mut bench = Bench::start(&setting, plan)?;
    let (at, own) = (bench.daemon.http, bench.daemon.announcement.clone());

    let mut orgs = vec![own.org_id.clone()];
    for number in 1..pages.div_ceil(OF_ORG) {
        let body = format!("{{\"name\": \"Org {number}\"}}");
        let org: Org = made(at, "/partner/v1/orgs", &own, &body)?;
        orgs.push(org.id);
    }

    let (mut with, mut without, mut octets) = (Vec::new(), Vec::new(), 0);
    for _ in 0..turns {
        without.push(cores(&mut bench, load, &mut report)?);
        let open = open_pages(at, &own, &orgs, pages)?;
        with.push(cores(&mut bench, load, &mut report)?);
        octets += open.into_iter().map(Page::close).sum::<usize>();
    }

    let (with, without) = (mean(&with), mean(&without));
    report.measure("daemon_cores_busy_without_pages", without);
    report.measure("daemon_cores_busy_with_pages", with);
    report.measure("cores_of_the_pages", with - without);
    report.count("octets_to_pages", octets as u64);

    if octets == 0 {
        report.fault("no page received anything");
    }
    if with - without > MOST_CORES {
        report.fault(format!(
            "{pages} pages cost {:.3} cores, more than {MOST_CORES}",
            with - without
        ));
    }

    Ok(report)
}

/// CPU of the daemon in cores, at the rate.
fn cores(bench: &mut Bench, load: Pages, report: &mut Report) -> io::Result<f64> {
    let mut pace = Pace::rate(load.rate, bench.engine.now());
    let cores = bench.measure(&mut pace, load.seconds)?;
    report_failures(report, &bench.engine.exchange.tally);
    Ok(cores)
}

/// A daemon under load.
struct Bench {
    daemon: Daemon,
    engine: Engine,
    warm_up: u64,
    _data: TempDir,
}

impl Bench {
    /// Starts a daemon whose agent is our callee.
    fn start(setting: &Setting, plan: Plan) -> Result<Self, Fault> {
        let data = TempDir::new()?;
        let sockets = Sockets::bind()?;
        let daemon = Launch {
            binary: setting.daemon.clone(),
            data_dir: data.path().join("trunkline"),
            runtime: Some(sockets.callee()?),
            core: setting.cores.map(|(daemon, _)| daemon),
            is_raised: true,
            environment: setting.environment.clone(),
        }
        .start()?;
        // Starting the daemon has left this thread on the daemon's core.
        if let Some((_, own)) = setting.cores {
            pin_to(own)?;
        }

        let parties = Parties {
            server: daemon.sip,
            caller: sockets.caller()?,
            callee: sockets.callee()?,
            user: daemon.announcement.trunk.auth_username.clone(),
            password: daemon.announcement.trunk.auth_password.clone(),
            number: daemon.announcement.phone_number.clone(),
        };

        let plan = Plan {
            callers: setting.callers,
            ..plan
        };

        let engine = Engine::new(sockets, &parties, plan, None, setting.room);
        Ok(Self {
            daemon,
            engine,
            warm_up: setting.warm_up,
            _data: data,
        })
    }

    /// Warms up, then measures for `span` seconds; returns the daemon's CPU, in cores.
    fn measure(&mut self, pace: &mut Pace, span: u64) -> io::Result<f64> {
        self.engine.exchange.measuring = false;
        run(&mut self.engine, pace, seconds(self.warm_up));
        let cpu = cpu_seconds(self.daemon.pid())?;
        let measured = window(&mut self.engine, pace, span)?;
        let cpu = cpu_seconds(self.daemon.pid())? - cpu;
        // Calls that began in the window may still fail, which the tally counts. The CPU that they take now isn't the
        // window's.
        drain(&mut self.engine);
        Ok(cpu / measured.seconds)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// An open page: its stream, and the thread that reads it.
struct Page {
    stream: TcpStream,
    reader: thread::JoinHandle<usize>,
}

impl Page {
    /// Closes the stream; returns the number of octets received.
    fn close(self) -> usize {
        // Fails only if the daemon has closed the stream.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        self.reader.join().unwrap_or_default()
    }
}

fn open_pages(
    at: SocketAddr,
    own: &Announcement,
    orgs: &[String],
    pages: usize,
) -> Result<Vec<Page>, Fault> {
    let (mut open, mut cookie) = (Vec::with_capacity(pages), String::new());
    for page in 0..pages {
        let org = &orgs[page / OF_ORG];
        // The first page of an org needs a session there, and a session has a bound of its own.
        if (page % OF_ORG).is_multiple_of(OF_SESSION) {
            cookie = log_in(at, own, org)?;
        }

        let mut stream = TcpStream::connect(at)?;
        write!(
            stream,
            "GET /dashboard/{org}/live/events?window=hour HTTP/1.1\r\nHost: {at}\r\nCookie: {cookie}\r\n\r\n"
        )?;

        // A clone, so that `close` can end the stream under the thread that reads it.
        let mut reading = BufReader::new(stream.try_clone()?);
        let mut status = String::new();
        reading.read_line(&mut status)?;
        if !status.contains(" 200 ") {
            return Err(io::Error::other(format!("page {page}: {status}")).into());
        }

        let read = move || {
            let (mut octets, mut buffer) = (0, [0; 16_384]);
            while let Ok(more @ 1..) = reading.read(&mut buffer) {
                octets += more;
            }
            octets
        };
        let reader = thread::Builder::new().stack_size(128 * 1024).spawn(read)?;
        open.push(Page { stream, reader });
    }
    Ok(open)
}

/// Opens a session in an org, and returns its cookie.
fn log_in(at: SocketAddr, own: &Announcement, org: &str) -> io::Result<String> {
    let links = format!("/partner/v1/orgs/{org}/login-links");
    let link: Link = made(at, &links, own, "{\"email\": \"ada@example.org\"}")?;
    let (_, token) = link.url.split_once('?').unwrap_or_default();
    let head = response_of(at, &format!("/partner-login?{token}"), "")?;
    let cookie = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_cookie = name.eq_ignore_ascii_case("set-cookie");
        is_cookie.then(|| value.split(';').next().unwrap_or_default().to_owned())
    });
    cookie.ok_or_else(|| io::Error::other(format!("no session: {head}")))
}

/// The whole response to a GET.
fn response_of(at: SocketAddr, path: &str, cookie: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {at}\r\nCookie: {cookie}\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// An object that the partner creates.
fn made<T: for<'de> Deserialize<'de>>(
    at: SocketAddr,
    path: &str,
    own: &Announcement,
    body: &str,
) -> io::Result<T> {
    let (status, text) = http::post(at, path, &own.partner_key, body)?;
    serde_json::from_str(&text).map_err(|_| io::Error::other(format!("{path}: {status} {text}")))
}

fn unlimited_links() -> (String, String) {
    (
        "TRUNKLINE__LIMITS__LOGIN_LINKS_PER_MINUTE".to_owned(),
        "1000000".to_owned(),
    )
}

/// Measures how long pages of the list take over so many calls.
///
/// # Errors
/// There is no daemon, or its database can't be filled.
pub fn call_list(setting: &Setting, calls: u32) -> Result<Report, Fault> {
    let mut report = Report::new(format!(
        "console: pages of a list of {calls} calls, {REQUESTS} requests each"
    ));

    let data = TempDir::new()?;
    let launch = Launch {
        binary: setting.daemon.clone(),
        data_dir: data.path().join("trunkline"),
        runtime: None,
        core: setting.cores.map(|(daemon, _)| daemon),
        is_raised: true,
        environment: vec![unlimited_links()],
    };

    // The first start creates the org.
    drop(launch.start()?);
    seed::calls(&launch.data_dir.join("trunkline.db"), calls)?;
    let daemon = launch.start()?;
    let (at, own) = (daemon.http, daemon.announcement.clone());
    let cookie = log_in(at, &own, &own.org_id)?;
    let clock = Clock::start();

    let home = format!("/dashboard/{}", own.org_id);
    let first = response_of(at, &format!("{home}/calls"), &cookie)?;
    let next = first.split("href=\"").find_map(|part| {
        let path = part.split('"').next()?;
        path.contains("cursor=").then(|| path.replace("&amp;", "&"))
    });
    let next = next.ok_or_else(|| io::Error::other("the list has no second page"))?;

    for ([p50, longest, cpu_each], path) in [
        (
            ["first_p50_ms", "first_max_ms", "first_cpu_ms"],
            format!("{home}/calls"),
        ),
        (["next_p50_ms", "next_max_ms", "next_cpu_ms"], next),
        (
            ["failed_p50_ms", "failed_max_ms", "failed_cpu_ms"],
            format!("{home}/calls?status=failed"),
        ),
        (
            ["number_p50_ms", "number_max_ms", "number_cpu_ms"],
            format!("{home}/calls?phone_number=%2B441632000077"),
        ),
        (
            ["overview_p50_ms", "overview_max_ms", "overview_cpu_ms"],
            home.clone(),
        ),
        (
            ["live_p50_ms", "live_max_ms", "live_cpu_ms"],
            format!("{home}/live?window=month"),
        ),
    ] {
        let cpu = cpu_seconds(daemon.pid())?;
        let mut times = Vec::with_capacity(REQUESTS);

        for _ in 0..REQUESTS {
            let began = clock.now();
            let answer = response_of(at, &path, &cookie)?;
            times.push((clock.now() - began) as f64 / 1e3);
            if !answer.starts_with("HTTP/1.0 200") && !answer.starts_with("HTTP/1.1 200") {
                return Err(io::Error::other(format!(
                    "{path}: {}",
                    answer.lines().next().unwrap_or_default()
                ))
                .into());
            }
        }

        let cpu = (cpu_seconds(daemon.pid())? - cpu) / REQUESTS as f64 * 1e3;
        times.sort_by(f64::total_cmp);
        report.measure(p50, times[REQUESTS / 2]);
        report.measure(longest, times[REQUESTS - 1]);
        report.measure(cpu_each, cpu);
        if cpu > MOST_MS {
            report.fault(format!("{path} costs {cpu:.0} ms, more than {MOST_MS}"));
        }
    }

    Ok(report)
}
