//! Options beyond those of the document: shorter forms of JSON fields, and switches.

use std::io::{self, Read as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Arg, ArgAction, ArgMatches, Args as _, FromArgMatches as _};
use serde_json::{Map, Value, json};
use trunkline_model::builtin::Flow;
use trunkline_model::settings::{is_builtin, is_web_socket};
use trunkline_net::media::wav;

use super::secret::secret;
use crate::api::LONGEST_PROMPT as LONGEST;
use crate::cli::Failure;

/// Options of a verb beside those of its operation.
#[derive(Copy, Clone, Debug)]
pub(super) struct Adaptation {
    /// Adds the options.
    pub(super) arguments: fn(clap::Command) -> clap::Command,
    /// Writes their meaning into the body.
    pub(super) fill: fn(&ArgMatches, &mut Map<String, Value>) -> Result<(), Failure>,
    /// Object of the body that is completed with the API's current one.
    pub(super) merges: Option<&'static str>,
}

/// Options for the software that answers for an agent.
pub(super) const AGENT: Adaptation = Adaptation {
    arguments: |command| {
        Runtime::augment_args(command).arg(
            switch(
                "disabled",
                "The agent takes no new calls; calls in progress continue.",
            )
            .conflicts_with("field.enabled"),
        )
    },
    fill: |given, body| {
        if given.get_flag("disabled") {
            body.insert("enabled".to_owned(), json!(false));
        }
        let runtime = Runtime::from_arg_matches(given)
            .map_err(|fault| Failure::Startup(fault.to_string()))?;
        if let Some(runtime) = runtime.read()? {
            body.insert("runtime".to_owned(), runtime);
        }
        Ok(())
    },
    merges: Some("runtime"),
};

/// `--file` of a prompt: it is converted here, so that only what telephones play is sent.
pub(super) const PROMPT: Adaptation = Adaptation {
    arguments: |command| {
        command.arg(
            Arg::new("file")
                .long("file")
                .value_name("FILE")
                .required(true)
                .help("A WAV file of at most 60 s; `-` for standard input."),
        )
    },
    fill: |given, body| {
        let file = given.get_one::<String>("file").map_or("", String::as_str);
        let read = recording(file)
            .map_err(|fault| Failure::Command(format!("{file} can't be read: {fault}")))?;
        let clip = wav::read(&read, LONGEST)
            .map_err(|fault| Failure::Command(format!("{file} {fault}")))?;
        let audio = STANDARD.encode(wav::write(clip.samples()));
        body.insert("audio".to_owned(), json!(audio));
        Ok(())
    },
    merges: None,
};

/// Reads a file or standard input.
///
/// # Errors
/// It can't be read, or is longer than a prompt can be.
fn recording(file: &str) -> io::Result<Vec<u8>> {
    /// A minute of two channels of 32 bits at 48 kHz, and its head.
    const LONGEST: u64 = 24 << 20;
    let mut octets = Vec::new();

    let read = match file {
        // One octet more than allowed shows that there are more.
        "-" => io::stdin().take(LONGEST + 1).read_to_end(&mut octets),
        file => std::fs::File::open(file)?
            .take(LONGEST + 1)
            .read_to_end(&mut octets),
    };

    match read? as u64 > LONGEST {
        true => Err(io::Error::other("it is longer than 24 MiB")),
        false => Ok(octets),
    }
}

/// `--allow-none` of the inbound trunk.
pub(super) const TRUNK: Adaptation = Adaptation {
    arguments: |command| {
        command.arg(
            switch("allow-none", "Require credentials for every call.")
                .conflicts_with("field.allowed_addresses"),
        )
    },
    fill: |given, body| {
        if given.get_flag("allow-none") {
            body.insert("allowed_addresses".to_owned(), json!([]));
        }
        Ok(())
    },
    merges: None,
};

/// `--no` of `partner let-verify`.
pub(super) const LET_VERIFY: Adaptation = Adaptation {
    arguments: |command| command.arg(switch("no", "Take the permission away.")),
    fill: |given, body| {
        body.insert("verifies_numbers".to_owned(), json!(!given.get_flag("no")));
        Ok(())
    },
    merges: None,
};

/// `--anywhere` of `partner allow`.
pub(super) const ALLOW: Adaptation = Adaptation {
    arguments: |command| {
        let networks = "field.allowed_networks";
        let anywhere = switch("anywhere", "Allow every address.").conflicts_with(networks);
        let help = "A network or an address; may be given more than once. They replace those allowed before.";
        command
            .arg(anywhere)
            .mut_arg(networks, |argument| argument.help(help))
    },
    fill: |given, body| {
        if given.get_flag("anywhere") {
            body.insert("allowed_networks".to_owned(), Value::Null);
        }
        match body.contains_key("allowed_networks") {
            true => Ok(()),
            false => Err(Failure::Startup(
                "name a network, or allow every address with --anywhere".to_owned(),
            )),
        }
    },
    merges: None,
};

/// The days of `org retention`, which the API takes as one object.
pub(super) const RETENTION: Adaptation = Adaptation {
    arguments: |command| {
        RETAINED.iter().fold(command, |command, (_, option, help)| {
            command.arg(
                Arg::new(*option)
                    .long(*option)
                    .value_name("DAYS")
                    .help(*help),
            )
        })
    },
    fill: |given, body| {
        let mut retention = Map::new();
        for (field, option, _) in RETAINED {
            let Some(days) = given.get_one::<String>(option) else {
                continue;
            };
            let days = match (days.as_str(), days.parse::<u32>()) {
                ("default", _) => Value::Null,
                (_, Ok(days @ 1..)) => json!(days),
                (_, Ok(0) | Err(_)) => {
                    let fault = format!("--{option}: expected a number of days, or default");
                    return Err(Failure::Startup(fault));
                }
            };
            retention.insert((*field).to_owned(), days);
        }
        if !retention.is_empty() {
            body.insert("retention".to_owned(), Value::Object(retention));
        }
        Ok(())
    },
    merges: None,
};

/// Field of the API, option, and help text.
const RETAINED: &[(&str, &str, &str)] = &[
    (
        "calls_days",
        "calls-days",
        "Days for which calls are kept, with their transfers and events; `default`: the operator's.",
    ),
    (
        "sessions_days",
        "sessions-days",
        "Days for which headers, metadata and the facts of a call's INVITE are kept; `default`: the operator's.",
    ),
    (
        "contacts_days",
        "contacts-days",
        "Days for which contacts are kept that no call names any more; `default`: the operator's.",
    ),
    (
        "handoffs_days",
        "handoffs-days",
        "Days for which handoffs are kept; `default`: the operator's.",
    ),
];

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// Software that answers for an agent.
#[derive(Debug, clap::Args)]
struct Runtime {
    /// `echo`, `builtin` for the quickstart's flow, a SIP URI or a bot's wss: URL (both may hold {agent_id} and {org_id}), or `default` for
    /// phone.default_runtime; as JSON, what the API takes.
    #[arg(long)]
    runtime: Option<String>,
    /// A SIP URI or a wss: URL to try if the runtime can't be reached, or `builtin:` for the quickstart's flow; may be given more than once.
    #[arg(long, value_name = "URI", requires = "runtime")]
    fallback: Vec<String>,
    /// A further answer after which the next URI is tried: 404, 480, or 3xx to another host; may be given more than once.
    #[arg(long, value_name = "STATUS", requires = "runtime", value_parser = ["404", "480", "3xx"])]
    failover_on: Vec<String>,
    /// User name for the runtime's digest challenges; `none` for none.
    #[arg(long, value_name = "NAME")]
    runtime_username: Option<String>,
    /// A file with the password; `-` for standard input.
    #[arg(long, value_name = "FILE", requires = "runtime_username")]
    runtime_password_file: Option<String>,
}

impl Runtime {
    /// Returns the runtime as the API takes it, or the login alone; `None` if no option is given.
    fn read(self) -> Result<Option<Value>, Failure> {
        let mut runtime = match self.runtime.as_deref() {
            None => json!({}),
            Some("default" | "echo")
                if !self.fallback.is_empty() || !self.failover_on.is_empty() =>
            {
                return Err(Failure::Command(
                    "the echo agent has no fallbacks: leave --fallback and --failover-on out"
                        .to_owned(),
                ));
            }
            Some("default") if self.runtime_username.is_some() => {
                return Err(Failure::Command(
                    "the default runtime's login is the operator's: leave --runtime-username out"
                        .to_owned(),
                ));
            }

            Some("default") => return Ok(Some(Value::Null)),
            Some("echo") => json!({"type": "echo"}),
            Some("builtin") => json!({"type": "builtin", "flow": Flow::demo()}),
            Some(text) if text.starts_with('{') => serde_json::from_str(text)
                .map_err(|fault| Failure::Startup(format!("--runtime: {fault}")))?,
            Some(uri) if is_web_socket(uri) => json!({"type": "websocket", "uri": uri}),
            Some(uri) => json!({"type": "sip", "uri": uri}),
        };

        let has_builtin = self.fallback.iter().any(|entry| is_builtin(entry));
        if has_builtin && runtime["flow"].is_null() {
            runtime["flow"] = json!(Flow::demo());
        }

        for (name, values) in [
            ("fallbacks", &self.fallback),
            ("failover_on", &self.failover_on),
        ] {
            if !values.is_empty() {
                runtime[name] = json!(values);
            }
        }

        match (&self.runtime_username, &self.runtime_password_file) {
            (None, _) => {}
            (Some(name), None) if name == "none" => runtime["username"] = Value::Null,
            (Some(name), Some(file)) => {
                runtime["username"] = json!(name);
                runtime["password"] = json!(secret("--runtime-password-file", file)?);
            }
            (Some(_), None) => {
                return Err(Failure::Command(
                    "a user name needs a password: name its file with --runtime-password-file"
                        .to_owned(),
                ));
            }
        }

        let is_given = runtime.as_object().is_none_or(|parts| !parts.is_empty());
        Ok(is_given.then_some(runtime))
    }
}
