//! `trunkline quickstart`: creates an org, a key, a number, an agent and a trunk, prints them ready to paste, and
//! serves.
//!
//! Each object is looked up before it is created, so that a second run, or one after a crash, finds the objects of the
//! first. Keys are kept, sealed, to be shown again.

mod instructions;
mod keys;
mod qr;
mod result;

use std::io::{ErrorKind, IsTerminal as _, stdout};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use toml_edit::DocumentMut;
use trunkline_model::builtin::Flow;
use trunkline_model::settings::{Runtime, TransferWay};
use trunkline_routing::E164;
use trunkline_store::{
    InboundTrunk, InboundTrunkChange, NewAgent, NewOrg, NewOrgKey, NewPartner, OPERATOR_EMAIL, Org,
    Store, agents, events, inbound_trunks, numbers, orgs, partners, whole_file,
};
use uuid::Uuid;

use super::audited_command::AuditedCommand;
use super::call_rows::CallRows;
use super::event_stream::EventSelection;
use super::follow::{Within, follow};
use super::serve::{self, PublicAddresses};
use super::session::{Session, running_sip};
use super::{Failure, now, output, startup};
use crate::api::{self, SCOPES, create_partner_key, operators_login_link, token};
use crate::config::{Config, QUICKSTART_FILE, Sip};
use crate::directory::Directory;
use crate::engine::local;
use keys::KeptKeys;
use result::{QuickstartResult, QuickstartTrunk};

/// Name of the partner, the org and the keys.
const NAME: &str = "Quickstart";
/// Name of the agent.
const AGENT: &str = "Echo";
/// Number, from the range that the North American plan reserves for fiction.
const NUMBER: &str = "+12025550123";

/// Interval between checks of the directory, and the time after which they end.
const DIRECTORY_CHECK_INTERVAL: Duration = Duration::from_millis(5);
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes everything that a first call needs, prints how to place it, serves, and prints each step of every call. If a
/// daemon serves the data directory already, it takes the calls.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline quickstart\n  trunkline quickstart --json --no-serve\n  trunkline quickstart --data-dir /tmp/try --set sip.udp=127.0.0.1:5070 --set sip.tcp=127.0.0.1:5070\n\nRun again on the same data directory it shows the same org, trunk and keys."
)]
pub(super) struct Command {
    /// Print one JSON object on one line instead.
    #[arg(long)]
    json: bool,
    /// Only print; don't serve.
    #[arg(long)]
    no_serve: bool,
}

impl Command {
    pub(super) fn run(self, config: &Config, given: AuditedCommand) -> Result<(), Failure> {
        let json = self.json;
        let near = near_peers(config);
        let trusts_loopback = config.sip.trusted_runtimes.is_none();
        let mut config = config.clone();
        if near.is_some() {
            config.sip.allow_private_peers.clone_from(&near);
        }

        if trusts_loopback {
            let loopback = LOOPBACK.iter().flat_map(|range| range.parse());
            config.sip.trusted_runtimes = Some(loopback.collect());
        }

        let write = |config: &Config| write_peers(config, near.as_deref(), trusts_loopback);
        let config = &config;
        // A runtime of its own, since `serve::run` starts another.
        let running = startup::block_on(async { Ok(running_sip(config).await) })?;

        // A second daemon couldn't have the ports and the journal: the one that runs follows the change feed and takes
        // the calls.
        if self.no_serve || running.is_some() {
            startup::print_removed(config);
            return startup::block_on(async {
                let store = startup::open_store(config).await?;
                let config = &startup::with_kept_realm(config, &store).await?;
                write(config)?;

                let mut reachable = PublicAddresses::configured(config);
                if let Some(sip) = running {
                    reachable.sip = vec![sip];
                }
                let made = make(config, &store, &reachable, &given).await?;
                let selection = later_events(&store, made.org_id).await?;
                print(config, &made, json)?;
                store.close().await;
                if self.no_serve || json {
                    return Ok(());
                }

                // The daemon that runs already takes the calls.
                let session = Session::over_socket(config.data_dir.join(api::SOCKET));
                print_calls(session, made.org_id, selection, Within::Command).await
            });
        }

        serve::run(config, async |store, directory, api, reachable| {
            // For later commands and starts: this run already has these settings in memory.
            write(config)?;
            let config = &startup::with_known_realm(config, store).await?;
            let made = make(config, store, reachable, &given).await?;
            admitted(directory, &made.trunk.auth_username).await;
            let selection = later_events(store, made.org_id).await?;
            print(config, &made, json)?;
            if !json {
                let session = Session::of_daemon(api.clone());
                // It ends with the daemon, or when nobody reads the output any more.
                tokio::spawn(print_calls(session, made.org_id, selection, Within::Daemon));
            }
            Ok(())
        })
    }
}

/// Events of calls from now on. They are chosen before the text is printed, since its reader may call as soon as it is there.
async fn later_events(store: &Store, org: Uuid) -> Result<EventSelection, Failure> {
    let newest = store.read(move |tx| events::newest(tx, org)).await?;
    // An org without events yet: all.
    let since = newest.map_or_else(|| "0".to_owned(), |id| id.to_string());
    Ok(EventSelection::of_calls(Some(since)))
}

/// Prints the org's calls, a row for each step.
async fn print_calls(
    mut session: Session,
    org: Uuid,
    selection: EventSelection,
    within: Within,
) -> Result<(), Failure> {
    session.choose(org);
    let session = Arc::new(session);
    let mut rows = CallRows::new(Arc::clone(&session));
    follow(&session, selection, None, &mut rows, within).await
}

/// Networks of PBXs on this machine and its LAN; `None` if the operator lists some.
fn near_peers(config: &Config) -> Option<Vec<IpNet>> {
    if config.sip.allow_private_peers.is_some() {
        return None;
    }
    let mut near = local::near(Sip::own_address(false));
    near.extend(local::near(Sip::own_address(true)));
    near.sort();
    near.dedup();
    Some(near)
}

/// Addresses of runtimes on this machine, which get the session token.
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1"];

/// First lines of the file that quickstart writes.
const QUICKSTART_HEAD: &str = "# Written by trunkline quickstart. A key in trunkline.toml, the environment or a flag overrides it.\n[sip]\n";

/// Writes settings that the operator hasn't made into the data directory, where every command reads them. It runs after
/// the store is open, so that a failed start leaves the disk untouched.
fn write_peers(
    config: &Config,
    peers: Option<&[IpNet]>,
    trusts_loopback: bool,
) -> Result<(), Failure> {
    let mut lists: Vec<(&str, Vec<String>)> = Vec::new();
    if let Some(peers) = peers {
        let peers = peers.iter().map(IpNet::to_string);
        lists.push(("allow_private_peers", peers.collect()));
    }

    if trusts_loopback {
        lists.push(("trusted_runtimes", LOOPBACK.map(str::to_owned).to_vec()));
    }

    if lists.is_empty() {
        return Ok(());
    }

    let path = config.data_dir.join(QUICKSTART_FILE);
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Command(format!("{} can't be written: {error}", path.display()))
    };

    // Keep what an earlier run has written.
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => QUICKSTART_HEAD.to_owned(),
        Err(error) => return Err(failed(&error)),
    };
    let mut document: DocumentMut = text.parse().map_err(|error| failed(&error))?;
    for (key, values) in lists {
        document["sip"][key] = toml_edit::value(toml_edit::Array::from_iter(values));
    }

    // With PostgreSQL, nothing else has created the directory.
    let mut directory = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(directory.recursive(true), 0o700)
        .create(&config.data_dir)
        .and_then(|()| whole_file::write(&path, 0o644, document.to_string().as_bytes()))
        .map_err(|error| failed(&error))
}

/// Waits until calls with this user name are accepted, so that a reader of the output may call at once.
async fn admitted(directory: &Directory, username: &str) {
    let seen = async {
        while directory.load().login(username.as_bytes()).is_none() {
            tokio::time::sleep(DIRECTORY_CHECK_INTERVAL).await;
        }
    };
    if tokio::time::timeout(DIRECTORY_TIMEOUT, seen).await.is_err() {
        tracing::warn!("the directory hasn't seen the trunk yet: the first calls may be refused");
    }
}

fn print(config: &Config, made: &QuickstartResult, json: bool) -> Result<(), Failure> {
    if json {
        output::print(&output::json(made));
    } else {
        let size = ratatui::crossterm::terminal::size();
        let width = size.ok().filter(|_| stdout().is_terminal());
        let width = width.map(|(columns, _)| usize::from(columns));
        output::print(&instructions::text(made, config, width)?);
    }
    Ok(())
}

/// Creates missing objects, each with an entry of its own in the audit log.
async fn make(
    config: &Config,
    store: &Store,
    reachable: &PublicAddresses,
    given: &AuditedCommand,
) -> Result<QuickstartResult, Failure> {
    let partner = given.part("partner");
    let partner_id = partner.scope(find_or_make_partner(store)).await?;
    let mut kept = KeptKeys::read(config, store);
    kept.check_partner(store, partner_id).await?;
    let partner_key = match &kept.partner_key {
        Some(key) => key.clone(),
        None => {
            let key = given.part("api_key").of_partner(partner_id);
            let made = create_partner_key(store, partner_id, NAME, now());
            key.scope(made).await?.1
        }
    };
    let org = given.part("org").of_partner(partner_id);
    let org = org.scope(find_or_make_org(store, partner_id)).await?.id;

    let part = |resource| given.part(resource).of_org(org);
    kept.check_org(store, org).await?;
    let api_key = match &kept.api_key {
        Some(key) => key.clone(),
        None => {
            let made =
                token::issue_for_operator(store, org, NewOrgKey::lasting(NAME, &SCOPES), now());
            part("api_key").scope(made).await?.1
        }
    };
    let kept = KeptKeys {
        partner_key: Some(partner_key.clone()),
        api_key: Some(api_key.clone()),
    };
    // Before the rest is made: if that fails, the next run shows these keys instead of making more.
    kept.keep(config, store)?;

    let agent = find_or_make_agent(store, org, runtime(config));
    let agent_id = part("agent").scope(agent).await?;
    let number = find_or_make_number(store, org, agent_id);
    let phone_number = part("number").scope(number).await?;
    let trunk = find_or_make_trunk(store, org);
    let trunk = part("trunk").scope(trunk).await?;
    let trunk = QuickstartTrunk {
        sip_endpoint: config.sip.endpoint(),
        auth_username: trunk.username,
        auth_password: trunk.password.reveal().to_owned(),
    };

    // Each run makes a new link, since a link works once.
    let link = operators_login_link(store, &reachable.dashboard, org, OPERATOR_EMAIL, now());
    let login_link = part("login_link").scope(link).await?;

    let (http, sip) = (reachable.http.clone(), reachable.first_sip());
    Ok(QuickstartResult {
        org_id: org,
        api_key,
        partner_id,
        partner_key,
        agent_id,
        phone_number,
        trunk,
        http,
        login_link,
        sip,
    })
}

async fn find_or_make_partner(store: &Store) -> Result<Uuid, Failure> {
    let known = store
        .read(partners::list)
        .await?
        .into_iter()
        // The list is newest first, and the first run's partner is the oldest.
        .rfind(|partner| partner.name == NAME);
    match known {
        Some(partner) => Ok(partner.id),
        None => {
            let new = NewPartner {
                name: NAME.to_owned(),
                ..NewPartner::default()
            };
            // For a trial, one person is operator and partner, so the partner may verify numbers. One transaction, since the next run finds
            // the partner by name and grants it no right.
            let made = store.write(move |tx| {
                let partner = partners::create(tx, &new, now())?;
                partners::let_verify(tx, partner.id, true, now())
            });
            Ok(made.await?.id)
        }
    }
}

/// Finds or creates the org. The external id makes it one org, even if the command runs twice at the same time.
async fn find_or_make_org(store: &Store, partner: Uuid) -> Result<Org, Failure> {
    let new = NewOrg {
        external_id: Some(NAME.to_owned()),
        ..NewOrg::named(NAME)
    };

    match store
        .write(move |tx| orgs::create(tx, Some(partner), &new, now()))
        .await
    {
        Ok(org) => Ok(org),
        Err(trunkline_store::Error::Conflict(_)) => Ok(store
            .read(move |tx| orgs::by_external_id(tx, partner, NAME))
            .await?),
        Err(error) => Err(error.into()),
    }
}

/// Runtime of the agent: the built-in one, unless the operator has named another for agents without one of their own.
fn runtime(config: &Config) -> Option<Runtime> {
    let built_in = || Runtime::Builtin {
        flow: Box::new(Flow::demo()),
        fallbacks: Vec::new(),
    };
    (!config.phone.names_default_runtime).then(built_in)
}

async fn find_or_make_agent(
    store: &Store,
    org: Uuid,
    runtime: Option<Runtime>,
) -> Result<Uuid, Failure> {
    let known = store
        .read(move |tx| agents::list(tx, org))
        .await?
        .into_iter()
        // The oldest of that name, as with the partner.
        .rfind(|agent| agent.name == AGENT);
    match known {
        Some(agent) => Ok(agent.id),
        None => {
            let new = NewAgent {
                runtime,
                ..NewAgent::named(AGENT)
            };
            Ok(store
                .write(move |tx| agents::create(tx, org, &new, now()))
                .await?
                .id)
        }
    }
}

async fn find_or_make_number(store: &Store, org: Uuid, agent: Uuid) -> Result<E164, Failure> {
    let number = E164::parse(NUMBER).expect("the number is E.164");
    let numbers = store.read(move |tx| numbers::list(tx, org)).await?;
    let known = numbers.into_iter().find(|known| known.number == number);

    // Keep changes that the operator has made since.
    if known.as_ref().is_some_and(|known| known.agent_id.is_some()) {
        return Ok(number);
    }

    let made = store.write(move |tx| {
        let number = match known {
            Some(known) => numbers::verify(tx, org, known.id, now())?,
            None => numbers::create(tx, org, number, true, now())?,
        };
        numbers::assign_one(tx, org, agent, number.id, now())
    });
    made.await?;
    Ok(number)
}

async fn find_or_make_trunk(store: &Store, org: Uuid) -> Result<InboundTrunk, Failure> {
    // The phone system isn't known yet, and some lose a caller whom they have been asked to transfer.
    let new = InboundTrunkChange {
        transfer_way: Some(TransferWay::Auto),
        ..InboundTrunkChange::default()
    };
    match store
        .write(move |tx| inbound_trunks::create(tx, org, &new, now()))
        .await
    {
        Ok(trunk) => Ok(trunk),
        // An org has one inbound trunk, so this one is the first run's, or one that the operator has made since.
        Err(trunkline_store::Error::Conflict(_)) => Ok(store
            .read(move |tx| inbound_trunks::of_org(tx, org))
            .await?),
        Err(error) => Err(error.into()),
    }
}
