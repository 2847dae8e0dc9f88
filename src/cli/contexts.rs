//! `trunkline context`: installations that commands can be sent to, each with the address of its API and a key, as kubectl's contexts.
//!
//! The file is `trunkline/contexts.json` in `$XDG_CONFIG_HOME`, readable to its owner alone.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use axum::http::Uri;
use serde::{Deserialize, Serialize};
use trunkline_store::whole_file;

use super::Failure;
use super::output::{Output, Tabular};

/// Maximum length of a key on standard input, in octets.
const MAX_KEY: u64 = 8 * 1024;

/// Installations that commands can be sent to.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Adds an installation, or changes one. The key is read from TRUNKLINE_API_KEY, or from standard input.
    #[command(
        after_help = "Examples:\n  trunkline context set prod --url https://voice.example.com < key.txt\n  trunkline context use prod"
    )]
    Set {
        /// Name for the installation.
        name: String,
        /// Address of the installation's API.
        #[arg(long, value_name = "URL")]
        url: String,
        /// The API key. Without it, standard input is read.
        #[arg(long, env = "TRUNKLINE_API_KEY", hide_env_values = true, hide = true)]
        key: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Sends commands to this installation from now on.
    Use {
        /// Its name, or `local` for this machine's.
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Lists the installations. Keys aren't shown.
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Forgets an installation with its key.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        output: Output,
    },
}

/// Name for the installation of this machine.
const LOCAL: &str = "local";

/// Contents of the file.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Contexts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Context>,
}

/// One installation.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Context {
    pub(super) url: String,
    pub(super) key: String,
}

#[derive(Serialize)]
struct ContextView<'c> {
    name: &'c str,
    url: &'c str,
    current: bool,
}

impl Tabular for ContextView<'_> {
    const COLUMNS: &'static [&'static str] = &["name", "url", "current"];

    fn cells(&self) -> Vec<String> {
        let mark = if self.current { "*" } else { "" };
        vec![self.name.to_owned(), self.url.to_owned(), mark.to_owned()]
    }
}

impl Contexts {
    /// Reads the file; without a file there are no contexts.
    ///
    /// # Errors
    /// The file can't be read or parsed, or other users can read it.
    pub(super) fn load() -> Result<Self, Failure> {
        let Some(path) = path() else {
            return Ok(Self::default());
        };

        let said = |fault: String| Failure::Startup(format!("{}: {fault}", path.display()));
        match std::fs::metadata(&path) {
            // As ssh does with private keys: a key that others may have read is reported instead of used.
            Ok(file) if file.permissions().mode() & 0o077 != 0 => {
                return Err(said(
                    "other users can read the keys in it: chmod 600 it".to_owned(),
                ));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(said(error.to_string())),
            Ok(_) => {}
        }

        let text = std::fs::read(&path).map_err(|error| said(error.to_string()))?;
        serde_json::from_slice(&text)
            .map_err(|fault| said(format!("not a file of contexts: {fault}")))
    }

    /// Returns the named context, or the current one, with its name; `None` for this machine's installation.
    ///
    /// # Errors
    /// No context has this name.
    pub(super) fn chosen(self, named: Option<&str>) -> Result<Option<(String, Context)>, Failure> {
        let Some(name) = named.or(self.current.as_deref()) else {
            return Ok(None);
        };
        if name == LOCAL {
            return Ok(None);
        }
        let found = self.contexts.get(name).cloned();
        found
            .map(|context| Some((name.to_owned(), context)))
            .ok_or_else(|| absent(name))
    }

    fn store(&self) -> Result<(), Failure> {
        let path = path().ok_or_else(|| {
            Failure::Startup(
                "neither XDG_CONFIG_HOME nor HOME is set: there is no place for contexts"
                    .to_owned(),
            )
        })?;
        write(&path, self).map_err(|error| Failure::Command(format!("{}: {error}", path.display())))
    }
}

fn write(path: &Path, contexts: &Contexts) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;

    whole_file::write(path, 0o600, &serde_json::to_vec_pretty(contexts)?)
}

/// Returns the user's folder for files of the command line.
///
/// # Errors
/// The environment names none.
pub(super) fn folder() -> Result<PathBuf, Failure> {
    let path = path().and_then(|path| Some(path.parent()?.to_owned()));
    path.ok_or_else(|| {
        Failure::Startup(
            "neither XDG_CONFIG_HOME nor HOME is set: there is no place for files".to_owned(),
        )
    })
}

fn path() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            // XDG Base Directory Specification: a relative path is invalid and must be ignored.
            .filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(base?.join("trunkline").join("contexts.json"))
}

/// Checks the address of an API, and drops a trailing slash.
pub(super) fn base_url(given: &str) -> Result<String, Failure> {
    let base = given.trim_end_matches('/');
    let is_http = ["http://", "https://"]
        .iter()
        .any(|scheme| base.starts_with(scheme));
    if !is_http || base.parse::<Uri>().is_err() {
        return Err(Failure::Startup(format!(
            "--url: {base:?} is not the address of an API: try http://127.0.0.1:8080"
        )));
    }
    Ok(base.to_owned())
}

/// Refuses a command that can't go where the current context points.
///
/// # Errors
/// A context other than `local` is current.
pub(super) fn must_be_local(noun: &str) -> Result<(), Failure> {
    if std::env::var_os("TRUNKLINE_CONFIG").is_some() {
        return Ok(());
    }
    let contexts = Contexts::load()?;
    match contexts.current {
        Some(current) => Err(Failure::Startup(format!(
            "the current context is {current:?}, and trunkline {noun} works on this machine's database: \
             trunkline context use local, or name the installation by --data-dir or --config"
        ))),
        None => Ok(()),
    }
}

fn absent(name: &str) -> Failure {
    Failure::Startup(format!(
        "there is no context {name:?}: trunkline context list shows all"
    ))
}

impl Command {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut all = Contexts::load()?;
        match self {
            Self::Set {
                name,
                url,
                key,
                output,
            } => {
                if name == LOCAL || name.is_empty() {
                    return Err(Failure::Startup(format!(
                        "{name:?} can't be the name of a context"
                    )));
                }

                let url = base_url(&url)?;
                let key = key.map_or_else(key_of_stdin, Ok)?;
                let context = Context { url, key };
                all.contexts.insert(name, context);
                all.store()?;
                output.done("The context is saved.");
            }

            Self::Use { name, output } => {
                if name != LOCAL && !all.contexts.contains_key(&name) {
                    return Err(absent(&name));
                }
                all.current = (name != LOCAL).then_some(name);
                all.store()?;
                output.done("Commands go to this installation from now on.");
            }

            Self::List { output } => {
                let rows: Vec<_> = all
                    .contexts
                    .iter()
                    .map(|(name, context)| ContextView {
                        name,
                        url: &context.url,
                        current: all.current.as_ref() == Some(name),
                    })
                    .collect();
                output.list(&rows);
            }

            Self::Delete { name, output } => {
                all.contexts.remove(&name).ok_or_else(|| absent(&name))?;
                // Without a current context commands go to this machine's installation.
                all.current = all.current.take().filter(|current| *current != name);
                all.store()?;
                output.done("The context is deleted.");
            }
        }

        Ok(())
    }
}

fn key_of_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    // Bounded, since a pipe may bring a whole file by mistake.
    let read = std::io::stdin().take(MAX_KEY + 1).read_to_string(&mut text);
    let read = read.map_err(|error| Failure::Startup(format!("the key can't be read: {error}")))?;
    if read as u64 > MAX_KEY {
        return Err(Failure::Startup(format!(
            "what standard input brings is no API key: it has more than {MAX_KEY} octets"
        )));
    }

    match text.trim() {
        "" => Err(Failure::Startup(
            "an API key is required, on standard input or in TRUNKLINE_API_KEY".to_owned(),
        )),
        key => Ok(key.to_owned()),
    }
}
