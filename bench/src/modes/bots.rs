//! Calls of bots over TLS: CPU and memory per call, the added delay on the way to a bot, lateness of ticks, and silence after a clear.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::mpsc;

use tempfile::TempDir;

use super::bench::{Fault, Setting};
use crate::clock::seconds;
use crate::daemon::{Daemon, Launch};
use crate::dial::Dialler;
use crate::histogram::Histogram;
use crate::http;
use crate::kernel::{pin_to, widen};
use crate::process::{cpu_seconds, memory, own_cpu_seconds};
use crate::report::Report;
use crate::voice::{Heard, PREFIX, VoiceLoad, Voices};
use crate::web_socket::Identity;

/// First of the daemon's RTP ports; it needs two for each call.
const FIRST_PORT: u16 = 22_000;
/// Most calls, so that their ports end below the kernel's ephemeral ports.
pub const MOST_CALLS: u16 = 4_000;

/// Size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// Calls at once.
    pub calls: u16,
    /// Seconds measured.
    pub seconds: u64,
    /// Milliseconds of audio in a bot's message.
    pub message_ms: u64,
}

/// Holds calls in which caller and bot speak all the time.
///
/// # Errors
/// There is no daemon to load, or it answers no call.
pub fn bots(setting: &Setting, talk: Talk) -> Result<Report, Fault> {
    let voices = Voices {
        message_ms: talk.message_ms,
        hostile: None,
    };
    let Stage {
        daemon,
        mut load,
        media,
        tell,
        ..
    } = Stage::new(setting, talk.calls, voices)?;

    let mut report = Report::new(format!(
        "bots over TLS: {} calls, {} s, messages of {} ms",
        talk.calls, talk.seconds, talk.message_ms
    ));
    let before = memory(daemon.pid())?.anonymous;
    let dialler = dialler(&daemon, media)?;
    set_up(&mut load, dialler, talk.calls, tell)?;
    load.run(seconds(setting.warm_up.max(1)))?;

    load.heard = Heard::default();
    let ticks = Ticks::read(&daemon)?;
    let (cpu, own) = (cpu_seconds(daemon.pid())?, own_cpu_seconds()?);
    load.run(seconds(talk.seconds))?;
    let (cpu, own) = (cpu_seconds(daemon.pid())? - cpu, own_cpu_seconds()? - own);
    let after = memory(daemon.pid())?.anonymous;
    let ticks = Ticks::read(&daemon)?.since(&ticks);

    // Counted before hanging up, which ends the WebSockets of all.
    let (up, early) = (load.up(), load.heard.ended);
    load.hang_up();
    // The daemon counts a call's underruns once its bot has gone.
    load.run(seconds(1))?;
    let counts = daemon.metrics()?;

    let (calls, span) = (f64::from(talk.calls), talk.seconds as f64);
    report.count("calls_up", up as u64);
    report.measure("cpu_percent_of_a_core_per_call", cpu / span / calls * 100.0);
    report.measure("daemon_cores_busy", cpu / span);
    report.measure(
        "kilobytes_per_call",
        (after as f64 - before as f64) / calls / 1e3,
    );

    describe(&mut report, &load.heard);
    ticks.describe(&mut report);
    report.measure("underruns_per_call", counted(&counts, UNDERRUNS) / calls);
    report.measure("frames_filled_per_call", counted(&counts, FILLED) / calls);
    report.measure("generator_cores_busy", own / span);
    report.measure("cpu_of_daemon_to_generator", cpu / own);

    judge(&mut report, &load.heard, talk, up);
    if early > 0 {
        report.fault(format!(
            "the daemon closed the WebSockets of {early} bots early"
        ));
    }
    if counted(&counts, DISCARDED) + counted(&counts, JUNK) > 0.0 {
        report.fault("the daemon discarded what bots sent");
    }

    Ok(report)
}

/// A daemon whose agent is a bot of the load, and the load.
pub(super) struct Stage {
    pub(super) daemon: Daemon,
    pub(super) load: VoiceLoad,
    /// Address of the callers' audio.
    pub(super) media: SocketAddrV4,
    /// Tells the load of a call that is up: its place, and the daemon's media.
    pub(super) tell: mpsc::Sender<(usize, SocketAddrV4)>,
    /// Removed once the daemon has ended.
    _data: TempDir,
}

impl Stage {
    /// Starts a daemon with room for so many calls.
    pub(super) fn new(setting: &Setting, calls: u16, voices: Voices) -> Result<Self, Fault> {
        let data = TempDir::new()?;
        let identity = Identity::new()?;
        let authority = data.path().join("bots.pem");
        std::fs::write(&authority, &identity.pem)?;
        let daemon = start(setting, &data, &authority, calls)?;
        if let Some((_, own)) = setting.cores {
            pin_to(own)?;
        }

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        use_bot(&daemon, listener.local_addr()?)?;

        let rtp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        widen(&rtp, 8 << 20);
        let media = v4(rtp.local_addr()?)?;
        let (tell, new) = mpsc::channel();
        Ok(Self {
            daemon,
            load: VoiceLoad::new(voices, listener, identity, rtp, new)?,
            media,
            tell,
            _data: data,
        })
    }
}

fn start(
    setting: &Setting,
    data: &TempDir,
    authority: &std::path::Path,
    calls: u16,
) -> Result<Daemon, Fault> {
    // All calls are one org's, which may have nine tenths of the ports.
    let last = FIRST_PORT + 2 * calls.max(32) / 5 * 6 + 63;
    let mut environment = setting.environment.clone();

    for (name, value) in [
        ("TRUNKLINE__SIP__TLS_CA", authority.display().to_string()),
        (
            "TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS",
            "127.0.0.0/8".to_owned(),
        ),
        (
            "TRUNKLINE__MEDIA__RTP_PORTS",
            format!("{FIRST_PORT}-{last}"),
        ),
    ] {
        environment.push((name.to_owned(), value));
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

fn v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Sets the agent's runtime to the bots at this address.
fn use_bot(daemon: &Daemon, at: SocketAddr) -> io::Result<()> {
    let (agent, key) = (&daemon.announcement.agent_id, &daemon.announcement.api_key);
    let body = format!(r#"{{"runtime": {{"type": "websocket", "uri": "wss://{at}/ws"}}}}"#);
    let (status, answer) = http::patch(daemon.http, &format!("/phone/{agent}"), key, &body)?;
    match status {
        200 => Ok(()),
        _ => Err(io::Error::other(format!("{status}: {answer}"))),
    }
}

pub(super) fn dialler(daemon: &Daemon, media: SocketAddrV4) -> io::Result<Dialler> {
    let trunk = &daemon.announcement.trunk;
    Dialler::new(
        daemon.sip,
        &daemon.announcement.phone_number,
        &trunk.auth_username,
        &trunk.auth_password,
        media,
    )
}

/// Makes the calls while the load runs, since the bots have to answer meanwhile.
pub(super) fn set_up(
    load: &mut VoiceLoad,
    dialler: Dialler,
    calls: u16,
    tell: mpsc::Sender<(usize, SocketAddrV4)>,
) -> io::Result<()> {
    let dialling = std::thread::spawn(move || -> io::Result<()> {
        for place in 0..usize::from(calls) {
            let to = dialler.call(&format!("{PREFIX}{place:07}"))?;
            // The load ends before the last call only if it has failed.
            let _ = tell.send((place, to));
        }
        Ok(())
    });
    while !dialling.is_finished() {
        load.run(100_000)?;
    }
    let dialled = dialling.join();
    dialled.map_err(|_| io::Error::other("the phone panicked"))?
}

fn describe(report: &mut Report, heard: &Heard) {
    let mut times = |names: [&'static str; 3], of: &Histogram| {
        for (name, share) in names.into_iter().zip([0.5, 0.99, 1.0]) {
            report.measure(name, of.quantile(share) as f64 / 1e3);
        }
    };

    times(
        ["to_bot_p50_ms", "to_bot_p99_ms", "to_bot_max_ms"],
        &heard.to_bot,
    );
    times(
        [
            "clear_to_silence_p50_ms",
            "clear_to_silence_p99_ms",
            "clear_to_silence_max_ms",
        ],
        &heard.cleared,
    );
    times(
        [
            "generator_late_p50_ms",
            "generator_late_p99_ms",
            "generator_late_max_ms",
        ],
        &heard.own_late,
    );

    report.count("clears", heard.cleared.total());
    report.count("frames_to_bots", heard.frames);
    report.count("packets_to_callers", heard.packets);
    report.count("packets_not_taken", heard.untaken);
}

/// Reports faults that count on any machine: the load was incomplete.
fn judge(report: &mut Report, heard: &Heard, talk: Talk, up: usize) {
    let expected = u64::from(talk.calls) * talk.seconds * 50;
    if up != usize::from(talk.calls) {
        report.fault(format!("{up} of {} calls are up", talk.calls));
    }

    for (what, count) in [
        ("frames to bots", heard.frames),
        ("packets to callers", heard.packets),
    ] {
        if count < expected * 9 / 10 {
            report.fault(format!("{count} {what}, and {expected} were expected"));
        }
    }
    if heard.to_bot.total() < expected / 2 {
        report.fault("most of the callers' audio never reached a bot");
    }
}

/// Metrics of whole calls, which the daemon updates when their bots disconnect.
const UNDERRUNS: &str = "trunkline_media_underruns_total";
const FILLED: &str = "trunkline_media_concealed_frames_total";
const DISCARDED: &str = "trunkline_media_bot_octets_discarded_total";
const JUNK: &str = "trunkline_media_bot_junk_total";

/// Value of a metric without labels; 0 if the page doesn't have it.
fn counted(page: &str, name: &str) -> f64 {
    let found = page.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(' ')?;
        value.parse().ok()
    });
    found.unwrap_or(0.0)
}

/// The daemon's own histogram of late ticks, by the bounds of its buckets.
#[derive(Debug, Default)]
pub(super) struct Ticks(Vec<(f64, f64)>);

impl Ticks {
    pub(super) fn read(daemon: &Daemon) -> io::Result<Self> {
        Ok(Self::of(&daemon.metrics()?))
    }

    fn of(page: &str) -> Self {
        const BUCKET: &str = "trunkline_media_tick_late_seconds_bucket{le=\"";
        let buckets = page.lines().filter_map(|line| {
            let (bound, count) = line.strip_prefix(BUCKET)?.split_once("\"} ")?;
            let bound = match bound {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().ok()?,
            };
            Some((bound, count.parse().ok()?))
        });
        Self(buckets.collect())
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let earlier = |bound: f64| {
            let found = before.0.iter().find(|(of, _)| *of == bound);
            found.map_or(0.0, |(_, count)| *count)
        };
        let grown = self
            .0
            .iter()
            .map(|(bound, count)| (*bound, count - earlier(*bound)));
        Self(grown.collect())
    }

    /// Lowest bound that this share of the ticks doesn't exceed.
    pub(super) fn bound(&self, share: f64) -> Option<f64> {
        let (_, all) = self.0.last()?;
        let kept = self.0.iter().find(|(_, count)| *count >= all * share);
        kept.map(|(bound, _)| *bound)
    }

    fn describe(&self, report: &mut Report) {
        report.count("ticks", self.0.last().map_or(0, |(_, all)| *all as u64));
        for (name, share) in [
            ("ticks_late_p99_ms_at_most", 0.99),
            ("ticks_late_max_ms_at_most", 1.0),
        ] {
            match self.bound(share) {
                Some(bound) if bound.is_finite() => report.measure(name, bound * 1e3),
                Some(_) => report.beyond(name),
                None => report.fault("the daemon counts no ticks"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_ticks_are_counted_between_two_pages() {
        const OF: &str = "trunkline_media_tick_late_seconds_bucket{le=";
        let page = |one: u64, two: u64, all: u64| {
            format!(
                "# TYPE x\n{OF}\"0.001\"}} {one}\n{OF}\"0.002\"}} {two}\n{OF}\"+Inf\"}} {all}\n"
            )
        };
        let ticks = Ticks::of(&page(110, 1_100, 1_100)).since(&Ticks::of(&page(100, 100, 100)));
        assert_eq!(ticks.bound(0.01), Some(0.001));
        assert_eq!(
            (ticks.bound(0.99), ticks.bound(1.0)),
            (Some(0.002), Some(0.002))
        );
        assert_eq!(Ticks::of("").bound(0.5), None);
    }

    #[test]
    fn a_count_is_read_by_its_whole_name() {
        let page = "# HELP trunkline_media_underruns_total x\ntrunkline_media_underruns_total_y 3\n\
            trunkline_media_underruns_total 7\n";
        assert_eq!(counted(page, UNDERRUNS), 7.0);
        assert_eq!(counted(page, JUNK), 0.0);
    }
}
