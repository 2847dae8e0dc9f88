//! `trunkline replay`: plays captured calls against a running daemon, or against the core in this process.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use trunkline_capture::Transport;
use trunkline_capture::flow::{Call, Role, write_call, write_head};
use trunkline_capture::import::import;
use trunkline_capture::replay::report::Run;
use trunkline_capture::replay::{Options, Played, announce, captured_on, ladder, play, play_over};
use trunkline_sip::moment::Moment;

use super::in_process::{self, InProcess};
use super::output::{json, print};
use super::{Failure, key_value, startup};
use crate::config::Config;
use crate::engine::clock::wall_time as now;
use crate::engine::offline_core::OfflineCore;

/// Start time of a run with a seed. Timers follow the clock's ticks, so another start would give other times.
const SEEDED_START: Moment = Moment::from_secs(1_790_000_000);
/// Most calls of one run; further ones are only counted.
const MAX_CALLS: usize = 100_000;
/// Calls after which a ladder is kept only if its call went differently, so that a long run fits into memory.
const MAX_LADDERS: usize = 10_000;

/// Plays captured calls against a daemon, and reports where it answers differently.
///
/// Reads what `capture import` reads. Call-IDs, tags, branches, addresses and lengths are replaced; so are digest
/// answers, with --user and --password; without them they are left out, as for an address on the IP allow list. Exit
/// code 0: every call went as captured; 1: at least one didn't.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline replay call.pcap --to 127.0.0.1:5060 --user acme --password secret\n  trunkline replay fixtures/flows/answered.flow --to 127.0.0.1:5060 --runtime 127.0.0.1:5080 --speed max --junit report.xml"
)]
pub(super) struct Command {
    /// A pcap, pcapng, sngrep, Homer or flow file.
    capture: PathBuf,
    /// Address of the daemon.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "in_process")]
    to: Option<String>,
    /// Play through the core in this process instead of a daemon, with the orgs, agents and trunks of the configured
    /// database, on a virtual clock. Also plays the runtime and other callees where they were captured. Stores nothing.
    #[arg(long, conflicts_with_all = ["to", "runtime", "other"])]
    in_process: bool,
    /// Also play the runtime, at this address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    runtime: Option<SocketAddr>,
    /// Also play other callees, such as the destination of a transfer, at this address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    other: Option<SocketAddr>,
    /// `udp` or `tcp`, whatever was captured.
    #[arg(long, value_parser = transport)]
    transport: Option<Transport>,
    /// Digest user name.
    #[arg(long, requires = "password")]
    user: Option<String>,
    /// Digest password.
    #[arg(
        long,
        requires = "user",
        env = "TRUNKLINE_REPLAY_PASSWORD",
        hide_env_values = true
    )]
    password: Option<String>,
    /// Speed relative to the capture, or `max` for no waiting at all.
    #[arg(long, default_value = "1", value_parser = speed)]
    speed: Speed,
    /// Seconds by which an answer may be earlier or later than captured.
    #[arg(long, default_value = "1", value_parser = seconds)]
    tolerance: Duration,
    /// Seconds to wait for an answer beyond its time.
    #[arg(long, default_value = "5", value_parser = seconds)]
    patience: Duration,
    /// Text of the capture and its replacement, such as a number or an agent's id; may be given more than once.
    #[arg(long, value_name = "OLD=NEW", value_parser = key_value)]
    replace: Vec<(String, String)>,
    /// Play only this call, counted from 1; may be given more than once.
    #[arg(long, value_name = "NUMBER")]
    call: Vec<usize>,
    /// Answer with JSON on one line.
    #[arg(long)]
    json: bool,
    /// Also write a JUnit XML report to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the sent and received messages to this flow file.
    #[arg(long, value_name = "FILE")]
    messages: Option<PathBuf>,
    /// Start at a fixed time, and draw the same random times and ids as any other run with this number.
    #[arg(long, hide = true, requires = "in_process")]
    seed: Option<u64>,
}

/// Expands a number into a seed for the core.
fn seed(number: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_be_bytes());
    seed
}

#[derive(Copy, Clone, Debug)]
struct Speed(Option<f64>);

fn speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed(None));
    }
    match text.parse::<f64>() {
        Ok(speed) if (0.01..=1_000.0).contains(&speed) => Ok(Speed(Some(speed))),
        Ok(_) | Err(_) => Err("expected a number from 0.01 to 1000, or max".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3_600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) | Err(_) => Err("expected seconds, up to an hour".to_owned()),
    }
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let found = text
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next());
    found.ok_or_else(|| {
        Failure::Startup(format!(
            "{text:?} is not a host and port such as 127.0.0.1:5060"
        ))
    })
}

fn transport(text: &str) -> Result<Transport, String> {
    Transport::parse(text)
        .filter(|transport| *transport != Transport::Tls)
        .ok_or_else(|| "expected udp or tcp".to_owned())
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("capture", &self.capture)
            .finish_non_exhaustive()
    }
}

impl Command {
    pub(super) fn run(self, config: &Config) -> Result<(), Failure> {
        let target = self.to.as_deref().map(address).transpose()?;
        let options = Options {
            // Without `--to` the calls are played in this process, where `InProcess` has a target of its own.
            target: target.unwrap_or(in_process::RUNTIME),
            transport: self.transport,
            credentials: self.user.clone().zip(self.password.clone()),
            runtime: self.runtime,
            other: self.other,
            speed: self.speed.0,
            tolerance: self.tolerance,
            patience: self.patience,
            replace: self.replace.clone(),
            now,
        };

        let played = if self.in_process {
            self.play_in_process(&options, config)?
        } else {
            announce(&options);
            self.each(|call| Ok(play(call, &options)))?
        };

        let name = self
            .capture
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();

        self.report(&Run::new(name.into_owned(), played))
    }

    fn play_in_process(&self, options: &Options, config: &Config) -> Result<Vec<Played>, Failure> {
        let core = startup::block_on(async {
            let store = startup::open_store(config).await?;
            let config = &startup::with_known_realm(config, &store).await?;
            let directory = startup::open_directory(config, &store).await?;
            let view = directory.load();
            let (seed, began) = match self.seed {
                Some(number) => (seed(number), SEEDED_START),
                None => (rand::random(), now()),
            };

            Ok(OfflineCore::new(
                config,
                store.keyring(),
                view,
                in_process::RUNTIME,
                seed,
                began,
            ))
        })?;

        let mut stage = InProcess::new(core, config).map_err(Failure::Startup)?;
        self.each(|call| {
            let transport = options.transport_for(captured_on(call));
            let plays = |role| call.peers.iter().any(|(known, _)| *known == role);
            stage.begin(
                config,
                transport,
                [plays(Role::Runtime), plays(Role::Other)],
            )?;
            let mut outcome = play_over(call, options, &mut stage);
            // Every timer of SIP is over by then, so what is left would stay for ever.
            if !stage.end() {
                outcome.passed = false;
                outcome.error =
                    Some("something of the call is still alive 90 s after its end".to_owned());
            }
            Ok(outcome)
        })
    }

    /// Prints the result of a call.
    fn print_call(&self, played: Played) -> Played {
        if !self.json {
            print(ladder::text(&played).trim_end());
        }
        played
    }

    fn open_messages(&self) -> Result<Option<BufWriter<File>>, Failure> {
        let Some(path) = &self.messages else {
            return Ok(None);
        };
        let opened = File::create(path).and_then(|file| {
            let mut output = BufWriter::new(file);
            write_head(&mut output, &self.capture.to_string_lossy())?;
            Ok(output)
        });
        opened
            .map(Some)
            .map_err(|error| Failure::Command(format!("{}: {error}", path.display())))
    }

    /// Plays each call as it is read, so that a capture may be larger than memory.
    fn each(
        &self,
        mut play: impl FnMut(&Call) -> Result<Played, String>,
    ) -> Result<Vec<Played>, Failure> {
        let refused = |why: &dyn std::fmt::Display| {
            Failure::Command(format!("{}: {why}", self.capture.display()))
        };
        let file = File::open(&self.capture).map_err(|error| refused(&error))?;
        let mut messages = self.open_messages()?;
        let mut played: Vec<Played> = Vec::new();
        let (mut number, mut left_out, mut fault) = (0, 0, None);
        import(BufReader::new(file), None, &mut |call| {
            number += 1;
            // A call that isn't played counts too: `--call` numbers the calls of the capture.
            if !(self.call.is_empty() || self.call.contains(&number)) || fault.is_some() {
                return Ok(());
            }
            if played.len() >= MAX_CALLS {
                left_out += 1;
                return Ok(());
            }

            match play(&call) {
                Ok(outcome) => {
                    let mut outcome = self.print_call(outcome);
                    // Written and dropped at once, so that a long run fits into memory.
                    let entries = std::mem::take(&mut outcome.messages);
                    if let Some(output) = &mut messages {
                        let played = Call { entries, ..call };
                        if let Err(error) = write_call(output, number, &played) {
                            fault = Some(format!("the messages can't be written: {error}"));
                        }
                    }
                    if outcome.passed && played.len() >= MAX_LADDERS {
                        outcome.steps = Vec::new();
                    }
                    played.push(outcome);
                }
                Err(why) => fault = Some(why),
            }

            Ok(())
        })
        .map_err(|fault| refused(&fault))?;

        let flushed = messages.as_mut().map_or(Ok(()), Write::flush);
        let flushed = flushed.map_err(|error| format!("the messages can't be written: {error}"));
        if let Some(why) = fault.or(flushed.err()) {
            return Err(match played.is_empty() {
                true => Failure::Startup(why),
                false => Failure::Command(why),
            });
        }

        if played.is_empty() {
            return Err(refused(&format_args!(
                "there is no such call; it holds {number}"
            )));
        }

        if left_out > 0 {
            eprintln!("The first {MAX_CALLS} calls were played; {left_out} more were not.");
        }

        Ok(played)
    }

    fn report(&self, run: &Run) -> Result<(), Failure> {
        if let Some(path) = &self.junit {
            std::fs::write(path, run.junit())
                .map_err(|error| Failure::Command(format!("{}: {error}", path.display())))?;
        }

        if self.json {
            print(&json(run));
        }

        let count = run.calls.len();
        if run.failed > 0 {
            return Err(Failure::Command(format!(
                "{} of {count} calls went differently",
                run.failed
            )));
        }

        if !self.json {
            print(&format!("{count} of {count} calls went as captured"));
            let beyond = run.calls.iter().filter(|call| call.out_of_reach.is_some());
            match beyond.count() {
                0 => {}
                beyond => print(&format!(
                    "{beyond} of them contain a step that the API began, which can't be replayed: they were played up to that step"
                )),
            }
        }

        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use trunkline_calls::Reason;
    use trunkline_capture::replay::ENDED_ON_REQUEST;

    #[test]
    fn a_call_that_the_api_ended_is_known_by_its_reason() {
        assert_eq!(ENDED_ON_REQUEST, Reason::Operator.sentence());
    }
}
