//! Command line of the load generator.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use trunkline_bench::awake::Awake;
use trunkline_bench::modes::{
    self, Attack, Counted, Fault, Fleet, Pages, Phase, Setting, Shape, Size, Talk,
};
use trunkline_bench::report::Report;

/// Loads a Trunkline daemon with calls and reports what they cost. Starts the daemon on the first core, and runs on the second.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    run: Run,
}

#[derive(Args)]
struct Common {
    /// The daemon's program.
    #[arg(long, global = true, default_value = "target/dist/trunkline")]
    daemon: PathBuf,
    /// Print one JSON object per run instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// Number of different callers.
    #[arg(long, global = true, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    callers: u32,
    /// The most calls at once.
    #[arg(long, global = true, default_value_t = 100_000)]
    room: usize,
    /// Wait after a `line` until the daemon has forgotten everything, and compare its memory.
    #[arg(long, global = true)]
    leftover: bool,
    /// Pin neither the daemon nor the generator to a core.
    #[arg(long, global = true)]
    no_pin: bool,
    /// Keep the daemon's core awake with a thread that yields to all others. The host of a virtual machine lends an idle core to others
    /// or slows it down, so that the next work on it takes longer.
    #[arg(long, global = true, conflicts_with = "no_pin")]
    awake: bool,
    /// Folder with the configuration of a Kamailio that `line` loads in the daemon's place.
    #[arg(long, global = true)]
    kamailio: Option<PathBuf>,
    /// Folder for the servers' data; the system's for temporary files when absent.
    #[arg(long, global = true)]
    scratch: Option<PathBuf>,
    /// Seconds of load before measuring starts.
    #[arg(long, global = true, default_value_t = 2)]
    warm_up: u64,
}

#[derive(Subcommand)]
enum Run {
    /// PBXs that register and refresh: CPU of a refresh, and memory of a binding.
    Registrations {
        /// Trunks, each of an org of its own.
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        trunks: u32,
        /// Contacts of each trunk.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10))]
        contacts: u32,
        /// Refreshes a second.
        #[arg(long, default_value = "500", value_parser = positive)]
        rate: f64,
        /// Seconds of refreshes.
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
    /// Calls of bots over TLS: CPU and memory of a call, and the delay of its audio.
    Bots {
        /// Calls at once, one size after the other.
        #[arg(long, value_delimiter = ',', default_value = "500,1000", value_parser = clap::value_parser!(u16).range(1..=i64::from(modes::MOST_CALLS)))]
        calls: Vec<u16>,
        /// Seconds that count.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
        seconds: u64,
        /// Milliseconds of audio in a bot's message.
        #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(20..=1_000))]
        message_ms: u64,
    },
    /// A bot that floods its call beside bots that speak: lateness of the others' ticks, and the calls that end.
    HostileBot {
        /// Calls of bots that speak.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=2_000))]
        calls: u16,
        /// Seconds measured without the hostile bot, and as many with it.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
        seconds: u64,
        /// Messages without a meaning that it sends a second.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(50..=1_000_000))]
        junk: u64,
    },
    /// A large directory: time to ready, and the lag and the CPU of a change.
    Directory {
        /// Orgs, one size after the other.
        #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000", value_parser = clap::value_parser!(u32).range(1..=200_000))]
        orgs: Vec<u32>,
        /// Numbers of each org.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100))]
        numbers: u32,
        /// Agents of the org that is changed.
        #[arg(long, default_value_t = 0)]
        agents: u32,
        /// Changes of each size.
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
        changes: u32,
    },
    /// CPU that open live pages of the console add to calls.
    LivePages {
        /// Pages that are open.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=256))]
        pages: u32,
        /// Calls a second.
        #[arg(long, default_value = "200", value_parser = positive)]
        rate: f64,
        /// Seconds that count, of each run.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Runs with pages, and as many without, in turn.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
        turns: u32,
    },
    /// Pages of the console over many calls.
    CallList {
        /// Calls of the org.
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..))]
        calls: u32,
    },
    /// One line of a comparison, against a server with its default configuration: what bench/against runs.
    Line {
        /// `closed:60`, `rate:2500`, `overload:12000` (calls a second), `options:100`, `ringing:20000`, `held:20000` or `list:100000`.
        #[arg(value_parser = shape)]
        shape: LineShape,
        /// Seconds that count.
        #[arg(long, default_value_t = 8)]
        seconds: u64,
        /// Milliseconds between ACK and BYE.
        #[arg(long, default_value_t = 0)]
        talk_ms: u64,
    },
    /// User instructions of a call over all threads, counted by callgrind; needs valgrind.
    Instructions {
        /// Another daemon's program, to compare with.
        #[arg(long)]
        against: Option<PathBuf>,
        /// Calls that count.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        calls: u64,
        /// Calls a second.
        #[arg(long, default_value = "50", value_parser = positive)]
        rate: f64,
        /// Folder to keep the profiles in, for callgrind_annotate.
        #[arg(long)]
        profile: Option<PathBuf>,
    },
    /// The generator against itself: the most load that it can make.
    Loopback {
        /// Calls a second; a closed loop when absent.
        #[arg(long, value_parser = positive)]
        rate: Option<f64>,
        /// Calls at once in the closed loop.
        #[arg(long, default_value_t = 100)]
        concurrency: usize,
        /// Seconds that count.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
}

/// Shape of a line.
#[derive(Clone, Copy, Debug)]
enum LineShape {
    Load(Shape),
    List(u32),
}

fn shape(text: &str) -> Result<LineShape, String> {
    let (kind, size) = text.split_once(':').ok_or("no colon and size")?;
    let whole = || size.parse().map_err(|_| "not a number".to_owned());
    Ok(LineShape::Load(match kind {
        "closed" => Shape::Closed(whole()?),
        "options" => Shape::Options(whole()?),
        "rate" => Shape::Rate(positive(size)?),
        "overload" => Shape::Overload(positive(size)?),
        "ringing" => Shape::Held(Phase::Ringing, whole()? as u64),
        "held" => Shape::Held(Phase::Established, whole()? as u64),
        "list" => return Ok(LineShape::List(whole()? as u32)),
        _ => return Err("not a kind of load".to_owned()),
    }))
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err("not a number above 0".to_owned()),
    }
}

fn main() -> ExitCode {
    let command = Command::parse();
    let json = command.common.json;
    match run(command, &|report| print(report, json)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("trunkline-bench: {fault}");
            ExitCode::from(2)
        }
    }
}

fn print(report: &Report, json: bool) {
    if json {
        println!("{}", report.json());
    } else {
        println!("{report}");
    }
}

/// Runs the command; returns true if no run had a fault.
fn run(command: Command, show: &dyn Fn(&Report)) -> Result<bool, Fault> {
    let is_awake = command.common.awake;
    let setting = setting(command.common);
    let awake = match setting.cores {
        Some((daemon, _)) if is_awake => Some(Awake::keep(daemon)?),
        None if is_awake => return Err(io::Error::other("--awake needs two cores").into()),
        _ => None,
    };

    let tell = |mut report: Report| {
        if awake.is_some() {
            report.title.push_str("; the daemon's core is kept awake");
        }
        show(&report);
        report.faults.is_empty()
    };

    Ok(match command.run {
        Run::Registrations {
            trunks,
            contacts,
            rate,
            seconds,
        } => {
            let fleet = Fleet {
                trunks: trunks as usize,
                contacts: contacts as usize,
                rate,
                seconds,
            };
            tell(modes::registrations(&setting, fleet)?)
        }

        Run::Bots {
            calls,
            seconds,
            message_ms,
        } => {
            let sizes = calls.into_iter().map(|calls| Talk {
                calls,
                seconds,
                message_ms,
            });
            let reports = sizes.map(|talk| modes::bots(&setting, talk));
            tell_each(reports.collect::<Result<_, _>>()?, &tell)
        }

        Run::HostileBot {
            calls,
            seconds,
            junk,
        } => tell(modes::hostile(
            &setting,
            Attack {
                calls,
                seconds,
                junk,
            },
        )?),

        Run::Directory {
            orgs,
            numbers,
            agents,
            changes,
        } => {
            let sizes = orgs.into_iter().map(|orgs| Size {
                orgs,
                numbers,
                agents,
                changes,
            });
            let reports = sizes.map(|size| modes::directory(&setting, size));
            tell_each(reports.collect::<Result<_, _>>()?, &tell)
        }

        Run::LivePages {
            pages,
            rate,
            seconds,
            turns,
        } => {
            let load = Pages {
                pages: pages as usize,
                rate,
                seconds,
                turns,
            };
            tell(modes::live_pages(&setting, load)?)
        }

        Run::Line {
            shape,
            seconds,
            talk_ms,
        } => tell(match shape {
            LineShape::Load(shape) => modes::line(&setting, shape, seconds, talk_ms)?,
            LineShape::List(calls) => modes::list(&setting, calls)?,
        }),

        Run::Instructions {
            against,
            calls,
            rate,
            profile,
        } => {
            let counted = Counted {
                calls,
                rate,
                profile,
            };
            count(&setting, &counted, against, &tell)?
        }

        Run::CallList { calls } => tell(modes::call_list(&setting, calls)?),

        Run::Loopback {
            rate,
            concurrency,
            seconds,
        } => tell(modes::loopback(
            setting.cores.map(|(_, own)| own),
            rate,
            concurrency,
            seconds,
        )?),
    })
}

/// Counts the instructions of the other daemon, if there is one, and of this one.
fn count(
    setting: &Setting,
    counted: &Counted,
    against: Option<PathBuf>,
    tell: &dyn Fn(Report) -> bool,
) -> Result<bool, Fault> {
    let mut new = modes::instructions(setting, counted)?;
    let Some(daemon) = against else {
        return Ok(tell(new));
    };

    let setting = Setting {
        daemon,
        ..setting.clone()
    };
    let old = modes::instructions(&setting, counted)?;
    let figure = |report: &Report| report.value("instructions_a_call");
    if let (Some(old), Some(new_count)) = (figure(&old), figure(&new)) {
        new.measure("ratio_to_the_other", new_count / old);
    }
    // `&` and not `&&`: a fault in one run doesn't hide the other.
    Ok(tell(old) & tell(new))
}

/// Prints each report; returns true if none has a fault.
fn tell_each(reports: Vec<Report>, tell: &dyn Fn(Report) -> bool) -> bool {
    // Not `all`, which would stop at the first fault and print no further report.
    reports.into_iter().map(tell).filter(|well| !well).count() == 0
}

fn setting(common: Common) -> Setting {
    let several = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    Setting {
        daemon: common.daemon,
        cores: (several && !common.no_pin).then_some((0, 1)),
        callers: common.callers,
        room: common.room,
        leftover: common.leftover,
        warm_up: common.warm_up,
        kamailio: common.kamailio,
        scratch: common.scratch.unwrap_or_else(std::env::temp_dir),
        environment: Vec::new(),
    }
}
