//! Command line, one file per command. Output is a table for people, or JSON with `--json`.
//!
//! Exit codes: 0 done; 1 the command failed; 2 nothing was begun, because the command line, the configuration, a port
//! or the database prevents it. With 2 nothing on disk has changed.

mod arguments;
mod audit;
mod audited_command;
mod call;
mod call_rows;
mod capture;
mod config;
mod confirm;
mod console;
mod contact;
mod credential;
mod descriptors;
mod doctor;
mod event;
mod event_stream;
mod explain;
mod failure;
mod follow;
mod health;
mod in_process;
mod key;
mod manual;
mod names;
mod number;
mod open_settings;
mod output;
mod paste;
mod quickstart;
mod replay;
mod resource;
mod route;
mod route_replay;
mod route_test;
mod serve;
mod session;
mod sockets;
mod startup;
mod supervisor;
mod target;
mod trace;
mod trunk;
mod upkeep;
mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::{Config, Override, QUICKSTART_FILE, Sources};
use crate::engine::clock::wall_time as now;
use arguments::{e164, key_value};

pub(crate) use failure::Failure;

/// A SIP-aware telephony control plane: one daemon between a phone system and its AI agents.
#[derive(Debug, Parser)]
#[command(
    name = "trunkline",
    version,
    propagate_version = true,
    max_term_width = 100
)]
struct Cli {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Command,
}

/// Options that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
struct Settings {
    /// TOML file; without it `trunkline.toml`, or else, unless a data directory is named,
    /// `/etc/trunkline/trunkline.toml`.
    #[arg(long, global = true, value_name = "FILE", env = "TRUNKLINE_CONFIG")]
    config: Option<PathBuf>,
    /// Directory of the database and keys: the same as `--set data_dir=DIR`.
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<String>,
    /// One setting, such as `sip.udp=127.0.0.1:5070`; overrides file and environment.
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Command),
    Quickstart(quickstart::Command),
    /// Routing of inbound calls, tried without a call.
    #[command(subcommand)]
    Route(route::Command),
    #[command(hide = true)]
    RouteTest(route_test::Command),
    #[command(hide = true)]
    RouteReplay(route_replay::Command),
    Explain(explain::Command),
    Doctor(doctor::Command),
    /// Checks the configuration.
    #[command(subcommand)]
    Config(config::Command),
    Replay(Box<replay::Command>),
    Trace(trace::Command),
    Audit(audit::Command),
    /// Captures of SIP traffic.
    #[command(subcommand)]
    Capture(capture::Command),
    /// Calls of an org.
    #[command(subcommand)]
    Call(call::Command),
    /// Receivers of an org's events.
    #[command(subcommand)]
    Webhook(webhook::Command),
    /// API keys of an org, and the keys that sign and seal.
    #[command(subcommand)]
    Key(key::Command),
    /// Contacts of an org.
    #[command(subcommand)]
    Contact(contact::Command),
    /// Phone numbers of an org.
    #[command(subcommand)]
    Number(number::Command),
    /// The org's inbound trunk, which its PBX calls through.
    #[command(subcommand)]
    Trunk(trunk::Command),
    Console(console::Command),
    /// Events of an org.
    #[command(subcommand)]
    Event(event::Command),
    Health(health::Command),
    Completion(manual::Completion),
    Man(manual::Man),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    match begin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("trunkline: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn begin() -> Result<(), Failure> {
    // Commands of the OpenAPI document come second: it takes time to build, and most command lines don't need it.
    let command = Cli::command();
    if let Ok(matches) = command.clone().try_get_matches() {
        let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let given = audited_command::AuditedCommand::read(&command, &matches);
        return run(cli, given);
    }

    // The error is dropped: either the command is one of the OpenAPI document, or the whole definition finds the fault again.
    let resources = resource::Resources::new()?;
    let matches = resources.augment(command).get_matches();
    let settings = Settings::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let config = settings.load()?;
    startup::print_removed(&config);
    startup::block_on(resources.run(&config, &matches))
}

/// Returns the definition of every command.
fn whole_command() -> Result<clap::Command, Failure> {
    Ok(resource::Resources::new()?.augment(Cli::command()))
}

fn run(cli: Cli, given: audited_command::AuditedCommand) -> Result<(), Failure> {
    let config = cli.settings.load()?;
    // The daemon logs them.
    if !matches!(cli.command, Command::Serve(_) | Command::Quickstart(_)) {
        startup::print_removed(&config);
    }

    if given.needs_installation() {
        session::must_exist(&config)?;
    }

    match cli.command {
        Command::Serve(command) => command.run(&config),
        Command::Quickstart(command) => command.run(&config, given),
        Command::Route(command) => startup::block_on(command.run(&config)),
        Command::RouteTest(command) => startup::block_on(command.run(&config)),
        Command::RouteReplay(command) => startup::block_on(command.run(&config)),
        Command::Explain(command) => startup::block_on(command.run(&config)),
        Command::Doctor(command) => startup::block_on(command.run(&config)),
        Command::Config(command) => command.run(&config),
        Command::Capture(command) => command.run(),
        Command::Trace(command) => command.run(&config),
        Command::Audit(command) => startup::block_on(command.run(&config)),
        Command::Replay(command) => command.run(&config),
        Command::Key(command) => startup::block_on(given.scope(command.run(&config))),
        Command::Contact(command) => startup::block_on(command.run(&config)),
        Command::Number(command) => startup::block_on(command.run(&config)),
        Command::Trunk(command) => startup::block_on(command.run(&config)),
        Command::Console(command) => startup::block_on(command.run(&config)),
        Command::Call(command) => startup::block_on(command.run(&config)),
        Command::Webhook(command) => startup::block_on(command.run(&config)),
        Command::Event(command) => startup::block_on(command.run(&config)),
        Command::Health(command) => startup::block_on(command.run(&config)),
        Command::Completion(command) => command.run(whole_command()?),
        Command::Man(command) => command.run(whole_command()?),
    }
}

impl Settings {
    fn load(self) -> Result<Config, Failure> {
        let mut flags: Vec<Override> = self
            .set
            .into_iter()
            .map(|(key, value)| Override {
                flag: format!("--set {key}"),
                key,
                value,
            })
            .collect();

        flags.extend(self.data_dir.map(|value| Override {
            key: "data_dir".to_owned(),
            value,
            flag: "--data-dir".to_owned(),
        }));

        let mut sources = Sources::of_process(self.config.as_deref(), flags)
            .map_err(|fault| Failure::Startup(fault.to_string()))?;
        let load = |sources: &Sources| {
            Config::load(sources).map_err(|faults| Failure::Startup(correct(&faults)))
        };
        let config = load(&sources)?;

        let path = config.data_dir.join(QUICKSTART_FILE);
        sources
            .add_base(&path)
            .map_err(|fault| Failure::Startup(fault.to_string()))?;
        match sources.base {
            Some(_) => load(&sources),
            None => Ok(config),
        }
    }
}

fn correct(faults: &crate::config::ConfigFaults) -> String {
    let mut text = match faults.faults.as_slice() {
        [fault] => format!("correct the configuration: {fault}"),
        many => format!(
            "correct the configuration, which has {} faults:\n{faults}",
            many.len()
        ),
    };
    for removed in &faults.removed {
        text.push_str(&format!("\n{removed}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_become_settings() {
        let cli = Cli::try_parse_from([
            "trunkline",
            "health",
            "--data-dir",
            "/tmp/x",
            "--set",
            "sip.node=4",
        ])
        .unwrap();
        let config = cli.settings.load().unwrap();
        assert_eq!(
            (config.data_dir, config.sip.node),
            (PathBuf::from("/tmp/x"), 4)
        );
    }

    #[test]
    fn a_faulty_configuration_is_exit_code_2() {
        let cli = Cli::try_parse_from([
            "trunkline",
            "health",
            "--set",
            "sip.node=400",
            "--set",
            "sip.shards=x",
        ])
        .unwrap();
        let failure = cli.settings.load().unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("2 faults"), "{failure}");
    }
}
