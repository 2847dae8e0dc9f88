//! `trunkline agent`: phone agents and the runtimes that speak for them.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use trunkline_model::settings::{FailoverOn, Runtime, RuntimeLogin};
use trunkline_store::{Agent, AgentChange, AgentKind, NewAgent, agents};
use uuid::Uuid;

use super::org::OfOrg;
use super::output::{Output, Tabular, or_dash, time};
use super::{Failure, now, startup};
use crate::api;
use crate::config::{Config, DefaultRuntime};

/// Maximum size of a file with a password, in octets.
const MAX_SECRET: u64 = 2_048;

/// Phone agents of an org.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Makes an agent.
    #[command(
        after_help = "Examples:\n  trunkline agent create --org Acme --name Sales --runtime echo\n  trunkline agent create --org Acme --name Sales --runtime 'sip:{agent_id}@runtime.example.com' --fallback sip:b.example.com --json"
    )]
    Create {
        #[command(flatten)]
        org: OfOrg,
        /// Its name.
        #[arg(long, value_parser = api::name)]
        name: String,
        /// Calls that it is for.
        #[arg(long = "type", value_enum, default_value_t = Type::Inbound)]
        kind: Type,
        #[command(flatten)]
        runtime: RuntimeArgs,
        #[command(flatten)]
        limit: Limit,
        /// The language it speaks: a code, or a tag such as en-GB.
        #[arg(long, default_value = "en", value_parser = api::language_tag)]
        language: String,
        /// First message of the agent.
        #[arg(long, default_value = "")]
        first_message: String,
        /// It takes no calls yet.
        #[arg(long)]
        disabled: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Lists the org's agents, newest first.
    List {
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Shows one agent.
    Show {
        /// The agent's id.
        #[arg(value_parser = api::id_of)]
        agent: Uuid,
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
    /// Changes what is named; everything else stays.
    #[command(
        after_help = "Examples:\n  trunkline agent update ID --org Acme --disabled\n  trunkline agent update ID --org Acme --max-concurrent-calls none\n  trunkline agent update ID --org Acme --runtime sip:a.example.com --fallback sip:b.example.com\n  trunkline agent update ID --org Acme --runtime-username acme --runtime-password-file /etc/trunkline/runtime.secret"
    )]
    Update {
        /// The agent's id.
        #[arg(value_parser = api::id_of)]
        agent: Uuid,
        #[command(flatten)]
        org: OfOrg,
        /// Its name.
        #[arg(long, value_parser = api::name)]
        name: Option<String>,
        #[command(flatten)]
        runtime: RuntimeArgs,
        #[command(flatten)]
        limit: Limit,
        /// It takes calls.
        #[arg(long)]
        enabled: bool,
        /// It takes no calls; those under way go on.
        #[arg(long, conflicts_with = "enabled")]
        disabled: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Deletes an agent and frees its numbers.
    Delete {
        /// The agent's id.
        #[arg(value_parser = api::id_of)]
        agent: Uuid,
        #[command(flatten)]
        org: OfOrg,
        #[command(flatten)]
        output: Output,
    },
}

/// Type of an agent.
#[derive(Copy, Clone, Debug, clap::ValueEnum)]
pub(super) enum Type {
    /// It answers calls, and may dial.
    Inbound,
    /// It dials only.
    Outbound,
}

/// Arguments that set the software that answers for the agent.
#[derive(Debug, clap::Args)]
pub(super) struct RuntimeArgs {
    /// `echo`, a SIP URI (may hold {agent_id} and {org_id}), or `default` for phone.default_runtime.
    #[arg(long, value_parser = runtime)]
    runtime: Option<GivenRuntime>,
    /// A SIP URI to try if the runtime can't be reached; may be given more than once.
    #[arg(long, value_name = "URI", requires = "runtime", value_parser = sip_uri)]
    fallback: Vec<Box<str>>,
    /// A further answer after which the next URI is tried: 404, 480, or 3xx to another host; may be given more than once.
    #[arg(long, value_name = "STATUS", requires = "runtime", value_parser = failover_on)]
    failover_on: Vec<GivenFailover>,
    /// User name for the runtime's digest challenges; `none` for none.
    #[arg(long, value_name = "NAME")]
    runtime_username: Option<String>,
    /// A file with the password; `-` for standard input.
    #[arg(long, value_name = "FILE", requires = "runtime_username")]
    runtime_password_file: Option<PathBuf>,
}

/// Value of `--failover-on`.
#[derive(Copy, Clone, Debug)]
struct GivenFailover(FailoverOn);

fn failover_on(text: &str) -> Result<GivenFailover, String> {
    let known = FailoverOn::ALL.into_iter().find(|(name, _)| *name == text);
    known
        .map(|(_, answer)| GivenFailover(answer))
        .ok_or_else(|| format!("{text:?} is none of 404, 480, 3xx"))
}

/// Value of `--runtime`.
#[derive(Clone, Debug)]
enum GivenRuntime {
    Default,
    Named(DefaultRuntime),
}

/// Limit on concurrent calls.
#[derive(Debug, clap::Args)]
pub(super) struct Limit {
    /// Calls at once, or `none` for no limit.
    #[arg(long, value_name = "COUNT", value_parser = limit)]
    max_concurrent_calls: Option<Max>,
}

#[derive(Copy, Clone, Debug)]
struct Max(Option<u32>);

fn runtime(text: &str) -> Result<GivenRuntime, String> {
    if text == "default" {
        return Ok(GivenRuntime::Default);
    }
    text.parse()
        .map(GivenRuntime::Named)
        .map_err(|error| format!("{text:?} {error}"))
}

fn sip_uri(text: &str) -> Result<Box<str>, String> {
    match text.parse::<DefaultRuntime>() {
        Ok(DefaultRuntime::Sip(uri)) => Ok(uri),
        Ok(DefaultRuntime::Echo) | Err(_) => Err(format!("{text:?} is no SIP URI")),
    }
}

fn limit(text: &str) -> Result<Max, String> {
    match text {
        "none" => Ok(Max(None)),
        count => count
            .parse()
            .ok()
            .filter(|count| *count > 0)
            .map(|count| Max(Some(count)))
            .ok_or_else(|| "expected a number above 0, or none".to_owned()),
    }
}

impl Limit {
    /// `None`: not given; `Some(None)`: no limit.
    pub(super) fn setting(&self) -> Option<Option<u32>> {
        self.max_concurrent_calls.map(|max| max.0)
    }
}

impl RuntimeArgs {
    /// `None`: not given; `Some(None)`: the configured default. `before` is the present runtime.
    fn setting(self, before: Option<Runtime>) -> Result<Option<Option<Runtime>>, Failure> {
        let Some(login) = self.login()? else {
            return self.without_login();
        };
        let mut runtime = self.without_login()?.unwrap_or(before);
        match runtime.as_mut() {
            Some(Runtime::Sip { login: held, .. }) => *held = login,
            // No credentials from now on: so it is.
            Some(Runtime::Echo) | None if login.is_none() => {}
            Some(Runtime::Echo) | None => {
                return Err(Failure::Command(
                    "only a SIP runtime has a user name: name it with --runtime".to_owned(),
                ));
            }
        }
        Ok(Some(runtime))
    }

    /// `None`: not given; `Some(None)`: no credentials from now on.
    fn login(&self) -> Result<Option<Option<RuntimeLogin>>, Failure> {
        let (user, file) = match (&self.runtime_username, &self.runtime_password_file) {
            (None, _) => return Ok(None),
            (Some(name), None) if name == "none" => return Ok(Some(None)),
            (Some(user), Some(file)) => (user, file),
            (Some(_), None) => {
                return Err(Failure::Command(
                    "a user name needs a password: name its file with --runtime-password-file"
                        .to_owned(),
                ));
            }
        };

        let password = secret_in(file)?;
        let is_text = |text: &str| {
            let length = text.chars().count();
            (1..=255).contains(&length) && !text.chars().any(char::is_control)
        };
        if !is_text(user) || !is_text(&password) {
            return Err(Failure::Command(
                "user name and password have 1 to 255 characters in one line".to_owned(),
            ));
        }

        Ok(Some(Some(RuntimeLogin {
            user: user.as_str().into(),
            password: password.into(),
        })))
    }

    fn without_login(self) -> Result<Option<Option<Runtime>>, Failure> {
        let fallbacks = self.fallback;
        match self.runtime {
            None => Ok(None),
            Some(GivenRuntime::Named(DefaultRuntime::Sip(uri))) => Ok(Some(Some(Runtime::Sip {
                uri,
                fallbacks,
                failover_on: self.failover_on.into_iter().map(|given| given.0).collect(),
                headers: Default::default(),
                session_token: false,
                login: None,
            }))),
            Some(GivenRuntime::Default | GivenRuntime::Named(DefaultRuntime::Echo))
                if !fallbacks.is_empty() || !self.failover_on.is_empty() =>
            {
                Err(Failure::Command(
                    "only a SIP runtime has fallbacks: leave --fallback and --failover-on out"
                        .to_owned(),
                ))
            }
            Some(GivenRuntime::Default) => Ok(Some(None)),
            Some(GivenRuntime::Named(DefaultRuntime::Echo)) => Ok(Some(Some(Runtime::Echo))),
        }
    }
}

/// Reads the only line of a file, or of standard input.
fn secret_in(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().take(MAX_SECRET).read_to_string(&mut text),
        false => File::open(file).and_then(|file| file.take(MAX_SECRET).read_to_string(&mut text)),
    };
    read.map_err(|error| Failure::Command(format!("{} can't be read: {error}", file.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[derive(Debug, Serialize)]
struct AgentView {
    id: Uuid,
    org_id: Uuid,
    name: String,
    r#type: &'static str,
    language: String,
    first_message: String,
    enabled: bool,
    max_concurrent_calls: Option<u32>,
    runtime: Option<Runtime>,
    created_at: String,
}

impl From<Agent> for AgentView {
    fn from(agent: Agent) -> Self {
        Self {
            id: agent.id,
            org_id: agent.org_id,
            name: agent.name,
            r#type: agent.kind.as_str(),
            language: agent.language,
            first_message: agent.first_message,
            enabled: agent.enabled,
            max_concurrent_calls: agent.max_concurrent_calls,
            runtime: agent.runtime,
            created_at: time(agent.created_at),
        }
    }
}

impl Tabular for AgentView {
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "name",
        "type",
        "enabled",
        "max calls",
        "runtime",
        "created",
    ];

    fn cells(&self) -> Vec<String> {
        let runtime = match &self.runtime {
            None => "default".to_owned(),
            Some(Runtime::Echo) => "echo".to_owned(),
            Some(Runtime::Sip { uri, fallbacks, .. }) => std::iter::once(uri)
                .chain(fallbacks)
                .map(|uri| &**uri)
                .collect::<Vec<_>>()
                .join(", else "),
        };

        let enabled = if self.enabled { "yes" } else { "no" };
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.r#type.to_owned(),
            enabled.to_owned(),
            or_dash(self.max_concurrent_calls),
            runtime,
            self.created_at.clone(),
        ]
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = startup::open_store(config).await?;
        match self {
            Self::Create {
                org,
                name,
                kind,
                runtime,
                limit,
                language,
                first_message,
                disabled,
                output,
            } => {
                let kind = match kind {
                    Type::Inbound => AgentKind::Inbound,
                    Type::Outbound => AgentKind::Outbound,
                };

                let new = NewAgent {
                    kind,
                    language,
                    first_message,
                    enabled: !disabled,
                    max_concurrent_calls: limit.setting().flatten(),
                    runtime: runtime.setting(None)?.flatten(),
                    ..NewAgent::named(name)
                };

                let org = org.id(&store).await?;
                let made = store.write(move |tx| {
                    let made = agents::create(tx, org, &new, now())?;
                    if made.runtime.is_some() {
                        agents::trust_runtime(tx, org, made.id, now())?;
                    }
                    Ok(made)
                });

                output.one(&AgentView::from(made.await?));
            }
            Self::List { org, output } => {
                let org = org.id(&store).await?;
                let listed = store.read(move |tx| agents::list(tx, org)).await?;
                output.list(&listed.into_iter().map(AgentView::from).collect::<Vec<_>>());
            }
            Self::Show { agent, org, output } => {
                let org = org.id(&store).await?;
                let agent = store.read(move |tx| agents::by_id(tx, org, agent)).await?;
                output.one(&AgentView::from(agent));
            }
            Self::Update {
                agent,
                org,
                name,
                runtime,
                limit,
                enabled,
                disabled,
                output,
            } => {
                let org = org.id(&store).await?;
                let before = store.read(move |tx| agents::by_id(tx, org, agent)).await?;
                let change = AgentChange {
                    name,
                    enabled: (enabled || disabled).then_some(enabled),
                    max_concurrent_calls: limit.setting(),
                    runtime: runtime.setting(before.runtime)?,
                    ..AgentChange::default()
                };

                if change == AgentChange::default() {
                    return Err(Failure::Startup(
                        "nothing to change: name a setting (trunkline agent update --help)"
                            .to_owned(),
                    ));
                }

                let changed = store.write(move |tx| {
                    let changed = agents::update(tx, org, agent, &change, now())?;
                    if matches!(change.runtime, Some(Some(_))) {
                        agents::trust_runtime(tx, org, agent, now())?;
                    }
                    Ok(changed)
                });

                output.one(&AgentView::from(changed.await?));
            }
            Self::Delete { agent, org, output } => {
                let org = org.id(&store).await?;
                let deleted = store.write(move |tx| agents::delete(tx, org, agent, now()));
                deleted.await?;
                output.done("The agent is deleted and its numbers are free.");
            }
        }

        Ok(())
    }
}
