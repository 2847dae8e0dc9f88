//! PBXs that register and refresh: the cost of a refresh, and the memory of a binding.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use trunkline_sip::wire::Message;

use super::bench::{Fault, Setting};
use crate::clock::{Clock, seconds};
use crate::daemon::{Daemon, Launch};
use crate::digest::{Account, challenge};
use crate::due::{GIVE_UP, T1};
use crate::histogram::Histogram;
use crate::http;
use crate::kernel::{pin_to, widen};
use crate::message::read;
use crate::process::{cpu_seconds, memory};
use crate::report::Report;

/// Most registrations in progress during the first round; the others wait for an answer to one of them.
const AT_ONCE: usize = 100;
/// Seconds after which finished transactions are gone.
const SETTLING: u64 = 36;

/// Number of PBXs that register, and the rate of their refreshes.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// Trunks, each of an org of its own.
    pub trunks: usize,
    /// Contacts of each trunk, at most ten.
    pub contacts: usize,
    /// Refreshes per second.
    pub rate: f64,
    /// Seconds of refreshes.
    pub seconds: u64,
}

/// Registers all PBXs, then refreshes them one after the other.
///
/// # Errors
/// There is no daemon to load, or it refuses the orgs.
pub fn registrations(setting: &Setting, fleet: Fleet) -> Result<Report, Fault> {
    let data = TempDir::new()?;
    let daemon = launch(setting, &data)?;
    if let Some((_, own)) = setting.cores {
        pin_to(own)?;
    }

    let accounts = accounts(&daemon, fleet.trunks)?;
    let mut phones = Phones::new(&daemon, accounts, fleet.contacts)?;
    let bindings = phones.all.len();
    let mut report = Report::new(format!(
        "registrations: {bindings} contacts of {} trunks, {} refreshes/s for {} s",
        fleet.trunks, fleet.rate, fleet.seconds
    ));
    std::thread::sleep(Duration::from_secs(2));

    let before = memory(daemon.pid())?.anonymous;
    let began = phones.clock.now();
    phones.register_all()?;
    report.measure(
        "registered_per_second",
        bindings as f64 / ((phones.clock.now() - began) as f64 / 1e6),
    );
    phones.idle(seconds(SETTLING))?;

    let after = memory(daemon.pid())?.anonymous;
    report.measure(
        "bytes_per_binding",
        (after as f64 - before as f64) / bindings as f64,
    );
    phones.times = Histogram::default();

    let (cpu, begin) = (cpu_seconds(daemon.pid())?, phones.clock.now());
    let refreshed = phones.refresh(fleet.rate, seconds(fleet.seconds))?;
    let cpu = cpu_seconds(daemon.pid())? - cpu;
    let took = (phones.clock.now() - begin) as f64 / 1e6;

    report.count("refreshes", refreshed);
    report.measure("refreshes_per_second", refreshed as f64 / took);
    report.measure(
        "cpu_seconds_per_1000_refreshes",
        cpu * 1e3 / refreshed.max(1) as f64,
    );
    report.measure("daemon_cores_busy", cpu / took);
    for (name, share) in [("refresh_p50_ms", 0.5), ("refresh_p99_ms", 0.99)] {
        report.measure(name, phones.times.quantile(share) as f64 / 1e3);
    }

    report.count("our_retransmissions", phones.repeated);
    if phones.failed > 0 {
        report.fault(format!("{} registrations failed", phones.failed));
    }

    let shown = bindings_shown(&daemon)?;
    report.count("bindings_at_the_end", shown);
    if shown != bindings as u64 {
        report.fault(format!("{shown} of {bindings} bindings exist at the end"));
    }

    Ok(report)
}

fn launch(setting: &Setting, data: &TempDir) -> Result<Daemon, Fault> {
    let mut environment = setting.environment.clone();
    for (name, value) in [
        ("TRUNKLINE__LIMITS__PARTNER_REQUESTS_PER_MINUTE", "1000000"),
        ("TRUNKLINE__PHONE__AUTO_VERIFY_NUMBERS", "true"),
    ] {
        environment.push((name.to_owned(), value.to_owned()));
    }

    let launch = Launch {
        binary: setting.daemon.clone(),
        data_dir: data.path().join("trunkline"),
        runtime: None,
        is_raised: true,
        core: setting.cores.map(|(daemon, _)| daemon),
        environment,
    };
    Ok(launch.start()?)
}

/// Returns the number of bindings in the daemon's metrics. They are updated once a second, so that it waits two.
fn bindings_shown(daemon: &Daemon) -> io::Result<u64> {
    std::thread::sleep(Duration::from_secs(2));
    let text = daemon.metrics()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("trunkline_registrations "));
    Ok(line
        .and_then(|count| count.parse::<f64>().ok())
        .map_or(0, |count| count as u64))
}

/// Creates orgs with a trunk each; returns the credentials of their PBXs.
fn accounts(daemon: &Daemon, count: usize) -> io::Result<Vec<Account>> {
    let post = |path: &str, key: &str, body: &Value| -> io::Result<Value> {
        let (status, text) = http::post(daemon.http, path, key, &body.to_string())?;
        if status != 201 {
            return Err(io::Error::other(format!("{path}: {status} {text}")));
        }
        serde_json::from_str(&text).map_err(io::Error::other)
    };

    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let partner = &daemon.announcement.partner_key;
    let mut accounts = Vec::with_capacity(count);

    for at in 0..count {
        let org = post(
            "/partner/v1/orgs",
            partner,
            &json!({"name": format!("Org {at}")}),
        )?;
        let keys = format!("/partner/v1/orgs/{}/api-keys", text(&org["id"]));
        let key = text(&post(&keys, partner, &json!({}))?["api_key"]);

        let number = format!("+4420{:08}", at + 1);
        post("/phone/numbers", &key, &json!({"phone_number": number}))?;
        let numbers = json!({"phone_numbers": [number]});
        let trunk = post("/phone/sip/inbound-trunk", &key, &numbers)?;
        accounts.push(Account {
            user: text(&trunk["auth_username"]),
            password: text(&trunk["auth_password"]),
        });
    }
    Ok(accounts)
}

/// One contact of a PBX.
struct Phone {
    trunk: usize,
    cseq: u32,
    began: u64,
    sent_at: u64,
    is_asking: bool,
    /// Its last request, to send again if it is lost.
    request: String,
}

/// All contacts, on one socket.
struct Phones {
    socket: UdpSocket,
    own: SocketAddr,
    server: SocketAddrV4,
    clock: Clock,
    accounts: Vec<Account>,
    all: Vec<Phone>,
    /// Contacts that wait for an answer, the oldest request first, each with the time of its request.
    waiting: VecDeque<(usize, u64)>,
    asking: usize,
    times: Histogram,
    done: u64,
    failed: u64,
    repeated: u64,
}

impl Phones {
    fn new(daemon: &Daemon, accounts: Vec<Account>, contacts: usize) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(1)))?;
        widen(&socket, 8 << 20);

        let all = (0..accounts.len() * contacts).map(|at| Phone {
            trunk: at / contacts,
            cseq: 0,
            began: 0,
            sent_at: 0,
            is_asking: false,
            request: String::new(),
        });

        Ok(Self {
            own: socket.local_addr()?,
            socket,
            server: daemon.sip,
            clock: Clock::start(),
            all: all.collect(),
            accounts,
            waiting: VecDeque::new(),
            asking: 0,
            times: Histogram::default(),
            done: 0,
            failed: 0,
            repeated: 0,
        })
    }

    /// Registers all contacts once, at most [`AT_ONCE`] at a time.
    fn register_all(&mut self) -> io::Result<()> {
        let mut next = 0;
        while self.done + self.failed < self.all.len() as u64 {
            while next < self.all.len() && self.asking < AT_ONCE {
                self.begin(next)?;
                next += 1;
            }
            self.turn()?;
        }
        Ok(())
    }

    /// Refreshes one contact after the other at this rate for `span`; returns the number of refreshes.
    fn refresh(&mut self, rate: f64, span: u64) -> io::Result<u64> {
        let (begin, before) = (self.clock.now(), self.done);
        let (mut begun, mut next) = (0_u64, 0);
        while self.clock.now() - begin < span {
            let due = ((self.clock.now() - begin) as f64 / 1e6 * rate) as u64;
            while begun < due {
                begun += 1;
                // A phone that still waits for an answer is skipped.
                if !self.all[next].is_asking {
                    self.begin(next)?;
                }
                next = (next + 1) % self.all.len();
            }
            self.turn()?;
        }

        // Refreshes that are under way still count. The wait for their answers ends after 64·T1.
        let end = self.clock.now() + GIVE_UP;
        while self.asking > 0 && self.clock.now() < end {
            self.turn()?;
        }

        Ok(self.done - before)
    }

    fn idle(&mut self, span: u64) -> io::Result<()> {
        let end = self.clock.now() + span;
        while self.clock.now() < end {
            self.turn()?;
        }
        Ok(())
    }

    fn begin(&mut self, at: usize) -> io::Result<()> {
        self.asking += 1;
        self.all[at].is_asking = true;
        self.all[at].began = self.clock.now();
        self.send(at, "")
    }

    fn send(&mut self, at: usize, lines: &str) -> io::Result<()> {
        let (own, server) = (self.own, self.server);
        let phone = &mut self.all[at];
        phone.cseq += 1;
        let cseq = phone.cseq;
        let user = &self.accounts[phone.trunk].user;
        phone.request = format!(
            "REGISTER sip:{server} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{at}x{cseq};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:{user}@{server}>;tag=f{at}\r\nTo: <sip:{user}@{server}>\r\nCall-ID: {at}@bench\r\nCSeq: {cseq} REGISTER\r\n\
             Contact: <sip:phone{at}@{own}>\r\nExpires: 3600\r\n{lines}Content-Length: 0\r\n\r\n"
        );

        phone.sent_at = self.clock.now();
        self.waiting.push_back((at, phone.sent_at));
        self.socket
            .send_to(phone.request.as_bytes(), server)
            .map(drop)
    }

    /// Handles received answers, and repeats lost requests.
    fn turn(&mut self) -> io::Result<()> {
        let mut octets = [0; 16_384];
        match self.socket.recv(&mut octets) {
            Ok(count) => self.answered(&octets[..count])?,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }

        let now = self.clock.now();
        while let Some((at, sent_at)) = self.waiting.front().copied() {
            // The oldest request is first, so the first that isn't due ends the search.
            if now - sent_at < T1 {
                break;
            }
            self.waiting.pop_front();

            let phone = &self.all[at];
            // An answer leaves its entry in the queue: it is passed over here, as is one whose request was replaced.
            if !phone.is_asking || phone.sent_at != sent_at {
                continue;
            }
            if now - phone.began > GIVE_UP {
                self.ended(at, false);
                continue;
            }

            self.repeated += 1;
            self.socket.send_to(phone.request.as_bytes(), self.server)?;
            self.all[at].sent_at = now;
            self.waiting.push_back((at, now));
        }

        Ok(())
    }

    fn answered(&mut self, datagram: &[u8]) -> io::Result<()> {
        let Ok(message) = read(datagram) else {
            return Ok(());
        };
        let at = std::str::from_utf8(message.call_id())
            .ok()
            .and_then(|id| id.strip_suffix("@bench")?.parse::<usize>().ok());
        // A repeated answer to an earlier request must not end the new request.
        let is_meant = |at: &usize| {
            self.all
                .get(*at)
                .is_some_and(|phone| phone.is_asking && phone.cseq == message.cseq().number)
        };
        let Some(at) = at.filter(is_meant) else {
            return Ok(());
        };

        let proved = self.all[at].request.contains("\r\nAuthorization: ");
        match message.status() {
            401 if !proved => match self.proof(at, &message) {
                Some(lines) => return self.send(at, &lines),
                None => self.ended(at, false),
            },
            200 => {
                let took = self.clock.now() - self.all[at].began;
                self.times.record(took);
                self.ended(at, true);
            }
            _ => self.ended(at, false),
        }
        Ok(())
    }

    fn ended(&mut self, at: usize, well: bool) {
        self.all[at].is_asking = false;
        self.asking -= 1;
        if well {
            self.done += 1;
        } else {
            self.failed += 1;
        }
    }

    /// Returns the line that answers a challenge.
    fn proof(&self, at: usize, refused: &Message<'_>) -> Option<String> {
        let account = &self.accounts[self.all[at].trunk];
        let uri = format!("sip:{}", self.server);
        let value =
            account.authorization(&challenge(refused)?, "REGISTER", uri.as_bytes(), "bench")?;
        Some(format!("Authorization: {value}\r\n"))
    }
}
