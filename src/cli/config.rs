//! `trunkline config check`: reads the configuration and prints the result. Opens nothing, changes nothing.

use serde::Serialize;

use super::Failure;
use super::output::{Output, Tabular};
use super::startup;
use crate::config::{Config, MediaHost, Sip};

/// Checks the configuration.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Reports every fault with its line, or the settings that will be used.
    #[command(
        after_help = "Examples:\n  trunkline config check\n  trunkline --config /etc/trunkline.toml config check --json"
    )]
    Check {
        #[command(flatten)]
        output: Output,
    },
}

/// Settings that operators ask about first.
#[derive(Debug, Serialize)]
struct Summary {
    data_dir: String,
    database: String,
    http_listen: String,
    sip_listeners: Vec<String>,
    sip_endpoint: String,
    media: String,
    shards: usize,
}

impl Tabular for Summary {
    const COLUMNS: &'static [&'static str] = &[
        "data_dir",
        "database",
        "http_listen",
        "sip_listeners",
        "sip_endpoint",
        "media",
        "shards",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.data_dir.clone(),
            self.database.clone(),
            self.http_listen.clone(),
            self.sip_listeners.join(", "),
            self.sip_endpoint.clone(),
            self.media.clone(),
            self.shards.to_string(),
        ]
    }
}

impl Command {
    /// Prints the settings. The configuration has been parsed before, so it has no faults here.
    pub(super) fn run(self, config: &Config) -> Result<(), Failure> {
        let Self::Check { output } = self;
        startup::certificate(config)?;
        startup::security(config)?;
        startup::traces(config)?;
        output.one(&Summary::of(config));
        Ok(())
    }
}

/// Address for SDP of each listener, without repetitions. Names are resolved at start-up only.
fn media_hosts(config: &Config) -> String {
    let sip = &config.sip;
    let hosts = sip
        .listeners
        .iter()
        .map(|listener| match config.media.host_for(sip, listener) {
            MediaHost::Address(ip) => ip.to_string(),
            MediaHost::Name { host, .. } => host.to_owned(),
            MediaHost::Own => match listener.address.ip() {
                ip if ip.is_unspecified() => Sip::own_address(ip.is_ipv6()).to_string(),
                ip => ip.to_string(),
            },
        });

    let mut hosts: Vec<String> = hosts.collect();
    hosts.sort();
    hosts.dedup();
    hosts.join(", ")
}

impl Summary {
    fn of(config: &Config) -> Self {
        let listener = |listener: &crate::config::Listener| {
            let advertised = config.sip.advertised(listener, listener.address);
            format!(
                "{} {} (advertised as {advertised})",
                listener.transport, listener.address
            )
        };

        let ports = &config.media.rtp_ports;
        Self {
            data_dir: config.data_dir.display().to_string(),
            database: format!("{:?}", config.database.url),
            http_listen: config.http.listen.to_string(),
            sip_listeners: config.sip.listeners.iter().map(listener).collect(),
            sip_endpoint: config.sip.endpoint(),
            media: format!(
                "{} ports {}-{}",
                media_hosts(config),
                ports.start(),
                ports.end()
            ),
            shards: config.sip.shards,
        }
    }
}
