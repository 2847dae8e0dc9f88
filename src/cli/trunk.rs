//! `trunkline trunk`: the org's inbound trunk, its credentials, and networks that need none.

use ipnet::IpNet;
use serde::Serialize;
use trunkline_model::settings::TransferWay;
use trunkline_routing::{Country, E164};
use trunkline_store::{InboundTrunk, InboundTrunkChange, inbound_trunks};
use uuid::Uuid;

use super::agent::Limit;
use super::org::OfOrg;
use super::output::{Output, Tabular, json, or_dash, print, time};
use super::paste::{PastedTrunk, Program};
use super::serve::PublicAddresses;
use super::session::running_sip;
use super::{Failure, dedicated_networks, e164, network, now, startup};
use crate::config::{Config, Sip};
use crate::engine;
use crate::explain::finding::Finding;
use crate::explain::pbx_settings::Trunk as PbxTrunk;
use crate::explain::report::{self, Report};
use crate::telemetry::redact;

/// The org's inbound trunk, which its PBX calls through.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Makes the org's trunk and shows its credentials.
    #[command(
        after_help = "Examples:\n  trunkline trunk create --org Acme\n  trunkline trunk create --org Acme --number +442071838750 --country GB --allow 198.51.100.7 --json"
    )]
    Create {
        #[command(flatten)]
        org: OfOrg,
        /// A verified number to list; may be given more than once. Without it all verified numbers are listed.
        #[arg(long, value_name = "NUMBER", value_parser = e164)]
        number: Vec<E164>,
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        output: Output,
    },
    /// Shows the trunk with its credentials.
    Show {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Changes the given settings; everything else stays.
    #[command(
        after_help = "Example:\n  trunkline trunk update --org Acme --allow 198.51.100.0/24 --allow 203.0.113.9"
    )]
    Update {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        output: Output,
    },
    /// Puts a verified number at the end of the trunk's list.
    AddNumber {
        /// The number as E.164.
        #[arg(value_parser = e164)]
        number: E164,
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Takes a number off the trunk's list.
    RemoveNumber {
        /// The number as E.164.
        #[arg(value_parser = e164)]
        number: E164,
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Lists every verified number, and no other.
    Sync {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Gives the trunk new credentials; the old ones work for another 24 hours.
    Rotate {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Deletes the trunk; its credentials stop working.
    Delete {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Prints what to paste into a phone system or a test program, with the trunk's own values, and the address of the
    /// daemon that runs, or else of the configuration.
    #[command(
        after_help = "Examples:\n  trunkline trunk paste asterisk\n  trunkline trunk paste sipp --org Acme | sh"
    )]
    Paste {
        /// The phone system or program.
        program: Program,
        #[command(flatten)]
        org: OfOrg,
    },
    /// Shows what the last call to sip:doctor@ found, and what to set in that phone system.
    Doctor {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    #[command(flatten)]
    Sources(dedicated_networks::Command),
}

/// Settings of a trunk.
#[derive(Debug, clap::Args)]
pub(super) struct Settings {
    /// Name of the trunk.
    #[arg(long)]
    name: Option<String>,
    /// A network whose calls to the listed numbers need no credentials; may be given more than once.
    #[arg(long, value_name = "CIDR", value_parser = network)]
    allow: Vec<IpNet>,
    /// Require credentials for every call.
    #[arg(long, conflicts_with = "allow")]
    allow_none: bool,
    /// The country (ISO 3166) in whose national form numbers may come.
    #[arg(long, value_parser = country)]
    country: Option<Country>,
    /// Whether the runtime should suppress noise.
    #[arg(long, value_name = "BOOL")]
    krisp_enabled: Option<bool>,
    /// Whether RTP may come from another address than that of SDP or signalling, where SDP names a private one.
    #[arg(long, value_name = "BOOL")]
    rtp_from_any_address: Option<bool>,
    /// Method of transfers: `refer`, `bridge`, or `auto`, which bridges until the PBX is known to keep its caller.
    #[arg(long, value_name = "WAY", value_parser = transfer_way)]
    transfer_way: Option<TransferWay>,
    /// Bridge a transfer where the PBX's own fails.
    #[arg(long, value_name = "BOOL")]
    bridge_when_refer_fails: Option<bool>,
    /// Put headers for the destination into the URI of Refer-To.
    #[arg(long, value_name = "BOOL")]
    refer_headers_in_uri: Option<bool>,
    #[command(flatten)]
    limit: Limit,
}

fn transfer_way(text: &str) -> Result<TransferWay, String> {
    [TransferWay::Refer, TransferWay::Bridge, TransferWay::Auto]
        .into_iter()
        .find(|way| way.as_str() == text)
        .ok_or_else(|| format!("{text:?} is none of refer, bridge, auto"))
}

fn country(text: &str) -> Result<Country, String> {
    Country::parse(text).map_err(|error| error.to_string())
}

impl Settings {
    /// Makes the change. Networks given by the operator may be of any size.
    fn change(self, config: &Config) -> Result<InboundTrunkChange, Failure> {
        let policy = engine::configured_policy(config);
        let allow: Vec<IpNet> = self.allow.iter().map(IpNet::trunc).collect();
        for network in &allow {
            policy
                .enforce_source(*network, policy.examine_source(*network))
                .map_err(|refusal| Failure::Command(format!("--allow: {network} {refusal}")))?;
        }

        let allowed = (self.allow_none || !allow.is_empty()).then_some(allow);
        Ok(InboundTrunkChange {
            name: self.name,
            krisp_enabled: self.krisp_enabled,
            rtp_from_any_address: self.rtp_from_any_address,
            operator_addresses: allowed.clone(),
            allowed_addresses: allowed,
            default_country: self.country.map(Some),
            max_concurrent_calls: self.limit.setting(),
            transfer_way: self.transfer_way,
            bridge_when_refer_fails: self.bridge_when_refer_fails,
            refer_headers_in_uri: self.refer_headers_in_uri,
            ..InboundTrunkChange::default()
        })
    }
}

/// Trunk as the API shows it.
#[derive(Debug, Serialize)]
struct InboundTrunkRow {
    id: Uuid,
    name: String,
    sip_endpoint: String,
    auth_username: String,
    auth_password: String,
    phone_numbers: Vec<E164>,
    krisp_enabled: bool,
    rtp_from_any_address: bool,
    agent_id_header: String,
    allowed_addresses: Vec<IpNet>,
    default_country: Option<String>,
    max_concurrent_calls: Option<u32>,
    created_at: String,
}

impl InboundTrunkRow {
    fn new(trunk: InboundTrunk, sip: &Sip) -> Self {
        Self {
            id: trunk.id,
            name: trunk.name,
            sip_endpoint: sip.endpoint(),
            auth_username: trunk.username,
            auth_password: trunk.password.reveal().to_owned(),
            phone_numbers: trunk.numbers,
            krisp_enabled: trunk.krisp_enabled,
            rtp_from_any_address: trunk.rtp_from_any_address,
            agent_id_header: format!("{}-AGENT-ID", sip.header_prefix),
            allowed_addresses: trunk.allowed_addresses,
            default_country: trunk
                .default_country
                .map(|country| country.as_str().to_owned()),
            max_concurrent_calls: trunk.max_concurrent_calls,
            created_at: time(trunk.created_at),
        }
    }
}

impl Tabular for InboundTrunkRow {
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "name",
        "sip_endpoint",
        "auth_username",
        "auth_password",
        "phone_numbers",
        "allowed_addresses",
        "default_country",
        "max calls",
        "created",
    ];

    fn cells(&self) -> Vec<String> {
        let numbers: Vec<_> = self.phone_numbers.iter().map(E164::as_str).collect();
        let allowed: Vec<_> = self
            .allowed_addresses
            .iter()
            .map(IpNet::to_string)
            .collect();

        vec![
            self.id.to_string(),
            self.name.clone(),
            self.sip_endpoint.clone(),
            self.auth_username.clone(),
            self.auth_password.clone(),
            numbers.join(","),
            allowed.join(","),
            or_dash(self.default_country.as_ref()),
            or_dash(self.max_concurrent_calls),
            self.created_at.clone(),
        ]
    }
}

fn show(output: Output, report: &Report) {
    if output.is_json() {
        return print(&json(report));
    }

    let mut lines = Vec::new();
    match &report.user_agent {
        Some(user_agent) if report.call_id.is_some() => {
            let pbx = report.pbx.unwrap_or("no phone system that is known");
            lines.push(format!("{} ({pbx})", redact::escape(user_agent)));
        }
        _ if report.call_id.is_none() => lines.push(report.how.clone()),
        _ => {}
    }

    let findings = report.findings.iter().map(Finding::to_string);
    lines.extend(findings);
    if let Some(settings) = &report.settings {
        lines.push(format!("\n{settings}"));
    }

    print(&lines.join("\n"));
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = startup::open_store(config).await?;
        let (trunk, output) = match self {
            Self::Create {
                org,
                number,
                settings,
                output,
            } => {
                let settings = InboundTrunkChange {
                    numbers: (!number.is_empty()).then_some(number),
                    ..settings.change(config)?
                };
                let org = org.id(&store).await?;
                let made = store.write(move |tx| inbound_trunks::create(tx, org, &settings, now()));
                (made.await?, output)
            }
            Self::Show { org, output } => {
                let org = org.id(&store).await?;
                let shown = store.read(move |tx| inbound_trunks::of_org(tx, org));
                (shown.await?, output)
            }
            Self::Update {
                org,
                settings,
                output,
            } => {
                let (change, org) = (settings.change(config)?, org.id(&store).await?);
                if change == InboundTrunkChange::default() {
                    return Err(Failure::Startup(
                        "nothing to change: name a setting (trunkline trunk update --help)"
                            .to_owned(),
                    ));
                }
                let updated =
                    store.write(move |tx| inbound_trunks::update(tx, org, &change, now()));
                (updated.await?, output)
            }
            Self::AddNumber {
                number,
                org,
                output,
            } => {
                let org = org.id(&store).await?;
                let changed =
                    store.write(move |tx| inbound_trunks::add_numbers(tx, org, &[number], now()));
                (changed.await?, output)
            }
            Self::RemoveNumber {
                number,
                org,
                output,
            } => {
                let org = org.id(&store).await?;
                let changed =
                    store.write(move |tx| inbound_trunks::remove_number(tx, org, &number, now()));
                (changed.await?, output)
            }
            Self::Sync { org, output } => {
                let org = org.id(&store).await?;
                let synced = store.write(move |tx| inbound_trunks::sync(tx, org, now()));
                (synced.await?.trunk, output)
            }
            Self::Rotate { org, output } => {
                let org = org.id(&store).await?;
                let changed =
                    store.write(move |tx| inbound_trunks::rotate_credentials(tx, org, now()));
                (changed.await?, output)
            }
            Self::Delete { org, output } => {
                let org = org.id(&store).await?;
                store
                    .write(move |tx| inbound_trunks::delete(tx, org, now()))
                    .await?;
                output.done("The trunk is deleted; its credentials no longer work.");
                return Ok(());
            }
            Self::Doctor { org, output } => {
                let endpoint = config.sip.endpoint();
                let realm = startup::with_known_realm(config, &store).await?.sip.realm();
                let place = (endpoint.as_str(), &*realm);
                let org = org.id(&store).await?;
                show(output, &report::of_trunk(&store, org, place, now()).await?);
                return Ok(());
            }
            Self::Paste { program, org } => {
                let realm = startup::with_known_realm(config, &store).await?.sip.realm();
                let org = org.id(&store).await?;
                let trunk = store
                    .read(move |tx| inbound_trunks::of_org(tx, org))
                    .await?;
                let number = trunk.numbers.first().map_or("NUMBER", E164::as_str);
                let sip = match running_sip(config).await {
                    Some(sip) => sip,
                    None => PublicAddresses::configured(config).first_sip(),
                };
                let pasted = PastedTrunk {
                    trunk: PbxTrunk {
                        endpoint: &sip,
                        username: &trunk.username,
                        password: trunk.password.reveal(),
                        realm: &realm,
                    },
                    number,
                };
                print(&program.lines(pasted, config)?);
                return Ok(());
            }
            Self::Sources(command) => return command.run(&store).await,
        };

        output.one(&InboundTrunkRow::new(trunk, &config.sip));
        Ok(())
    }
}
