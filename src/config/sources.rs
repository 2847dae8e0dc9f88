//! Sources of values: quickstart's file, the operator's TOML file, the environment and flags. Each overrides the ones before it.
//!
//! This file knows which line, variable or flag gave a value. Of the keys it knows `data_dir` alone.

use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Profile, Provider};
use toml_edit::{ImDocument, Item};

use super::fault::{ConfigFault, Origin};

/// Prefix of environment variables; `__` separates section and key.
const PREFIX: &str = "TRUNKLINE__";

/// File that is read by default, if it exists.
pub const DEFAULT_FILE: &str = "trunkline.toml";
/// Configuration of the service that the Debian package installs.
const SERVICE_FILE: &str = "/etc/trunkline/trunkline.toml";
/// Variable that names the data directory.
const DATA_DIR_VARIABLE: &str = "TRUNKLINE__DATA_DIR";

/// File that quickstart writes into the data directory, and that every command reads.
pub const QUICKSTART_FILE: &str = "quickstart.toml";

/// Everything that a configuration is read from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Name and text of the TOML file.
    pub file: Option<(PathBuf, String)>,
    /// Name and text of quickstart's file; every other source overrides it. `None` while the data directory isn't known.
    pub base: Option<(PathBuf, String)>,
    /// Environment variables; those without the prefix `TRUNKLINE__` are ignored.
    pub variables: Vec<(String, String)>,
    /// Values from flags.
    pub flags: Vec<Override>,
}

/// One value from a flag.
#[derive(Clone, Debug)]
pub struct Override {
    /// Dotted key, such as `sip.udp`.
    pub key: String,
    /// Value as text.
    pub value: String,
    /// Flag as it was given, such as `--data-dir`.
    pub flag: String,
}

impl Sources {
    /// Reads the named file, or else `trunkline.toml` in the working directory, or else that of the installed service,
    /// and the environment of this process. The service's file isn't read where a data directory is named.
    ///
    /// # Errors
    /// The named file can't be read.
    pub fn of_process(file: Option<&Path>, flags: Vec<Override>) -> Result<Self, ConfigFault> {
        // Not `vars`, which panics at a variable of any program that isn't UTF-8.
        let variables: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let is_named = flags.iter().any(|flag| flag.key == "data_dir")
            || variables.iter().any(|(name, _)| name == DATA_DIR_VARIABLE);

        let file = match file {
            Some(path) => Some(read(path)?),
            None if Path::new(DEFAULT_FILE).exists() => {
                Some(read_unnamed(Path::new(DEFAULT_FILE))?)
            }
            // Only root and the service's user can read it. Any other user goes on without it, with an installation of their own.
            None if !is_named => read(Path::new(SERVICE_FILE)).ok(),
            None => None,
        };
        Ok(Self {
            file,
            base: None,
            variables,
            flags,
        })
    }

    /// Adds quickstart's file, which lies in the data directory that the other sources name. A user who can't read it goes on without it.
    ///
    /// # Errors
    /// The file isn't one that this user should trust.
    pub fn add_base(&mut self, path: &Path) -> Result<(), ConfigFault> {
        if std::fs::File::open(path).is_ok() {
            self.base = Some(read_unnamed(path)?);
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<(PathBuf, String), ConfigFault> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((path.to_owned(), text)),
        Err(error) => Err(unread(path, format!("can't be read: {error}"))),
    }
}

/// Reads a file that lies where the command was started, and that nobody has named. Root reads none that another user can write: it would run that
/// user's commands (`speech.command`).
fn read_unnamed(path: &Path) -> Result<(PathBuf, String), ConfigFault> {
    let failed = |error: std::io::Error| unread(path, format!("can't be read: {error}"));
    let mut file = std::fs::File::open(path).map_err(failed)?;
    if rustix::process::geteuid().is_root() {
        // Of the open file, so that it can't be exchanged in between; and of a link to it, which its owner can turn.
        let found = [
            file.metadata().map_err(failed)?,
            path.symlink_metadata().map_err(failed)?,
        ];
        let is_theirs = |found: &Metadata| {
            found.uid() != 0 || (!found.is_symlink() && found.mode() & WRITABLE_BY_OTHERS != 0)
        };
        if found.iter().any(is_theirs) {
            let name = path.display();
            return Err(unread(
                path,
                format!(
                    "isn't read by root, since another user can write it: run this as its owner, or make it root's alone (chown root {name}; \
                     chmod 644 {name}), or name it with --config"
                ),
            ));
        }
    }

    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok((path.to_owned(), text))
}

/// Permissions of a file that lets its group or everybody write it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

fn unread(path: &Path, message: String) -> ConfigFault {
    ConfigFault {
        origin: Origin::File {
            path: path.to_owned(),
            line: None,
        },
        key: String::new(),
        message,
    }
}

/// Merged values, with their origins.
#[derive(Debug)]
pub(super) struct Merged {
    figment: Figment,
    files: Vec<File>,
    /// Name of quickstart's file.
    base: Option<PathBuf>,
}

impl Merged {
    /// Merges the sources. A file that isn't TOML gives one fault and counts as empty.
    pub(super) fn new(sources: &Sources) -> (Self, Vec<ConfigFault>) {
        let mut figment = Figment::new();
        let mut files = Vec::new();
        let mut faults = Vec::new();
        for (path, text) in sources.base.iter().chain(&sources.file) {
            match ImDocument::parse(text.clone()) {
                Ok(document) => {
                    figment = figment.merge(TomlText { path, text });
                    let path = path.clone();
                    files.push(File { path, document });
                }
                Err(error) => faults.push(syntax_fault(path, text, &error)),
            }
        }

        for (name, value) in &sources.variables {
            if let Some(key) = name.strip_prefix(PREFIX) {
                let key = key.to_ascii_lowercase().replace("__", ".");
                figment = figment.merge(Pair {
                    key,
                    value,
                    name,
                    kind: VARIABLE,
                });
            }
        }

        for Override { key, value, flag } in &sources.flags {
            figment = figment.merge(Pair {
                key: key.clone(),
                value,
                name: flag,
                kind: FLAG,
            });
        }

        let base = sources.base.as_ref().map(|(path, _)| path.clone());
        let merged = Self {
            figment,
            files,
            base,
        };
        (merged, faults)
    }

    /// All values, each tagged with its source.
    pub(super) fn values(&self) -> Dict {
        let profiles = self.figment.data().unwrap_or_default();
        profiles
            .into_iter()
            .find(|(profile, _)| *profile == Profile::Default)
            .map(|(_, dict)| dict)
            .unwrap_or_default()
    }

    /// Keys of a section whose value quickstart's file gives, and no other source overrides.
    pub(super) fn set_by_base(&self, section: &str) -> Vec<String> {
        let mut values = self.values();
        let (Some(base), Some(Value::Dict(_, values))) = (&self.base, values.remove(section))
        else {
            return Vec::new();
        };
        let keys = values.iter().map(|(name, value)| {
            let key = format!("{section}.{name}");
            (self.origin(value.tag(), &key), key)
        });
        let set =
            keys.filter(|(origin, _)| matches!(origin, Origin::File { path, .. } if path == base));
        set.map(|(_, key)| key).collect()
    }

    /// Origin of the value with `tag` under `key`.
    pub(super) fn origin(&self, tag: Tag, key: &str) -> Origin {
        let Some(metadata) = self.figment.get_metadata(tag) else {
            return Origin::Default;
        };
        let name = metadata
            .source
            .as_ref()
            .and_then(figment::Source::custom)
            .unwrap_or_default()
            .to_owned();

        match metadata.name.as_ref() {
            VARIABLE => Origin::Variable(name),
            FLAG => Origin::Flag(name),
            _ => {
                let path = PathBuf::from(name);
                let file = self.files.iter().find(|file| file.path == path);
                let line = file.and_then(|file| file.line_of(key));
                Origin::File { path, line }
            }
        }
    }
}

fn syntax_fault(path: &Path, text: &str, error: &toml_edit::TomlError) -> ConfigFault {
    let line = error.span().map(|span| line_at(text, span.start));
    ConfigFault {
        origin: Origin::File {
            path: path.to_owned(),
            line,
        },
        key: String::new(),
        message: format!("is not valid TOML: {}", error.message().replace('\n', "; ")),
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(offset)
        .filter(|octet| **octet == b'\n')
        .count()
        + 1
}

/// Parsed file with its spans, to find the line of a key.
#[derive(Debug)]
struct File {
    path: PathBuf,
    document: ImDocument<String>,
}

impl File {
    /// Line of `sip.udp[1]`: of the element if it can be found, else of the nearest key above.
    fn line_of(&self, key: &str) -> Option<usize> {
        let mut item = self.document.as_item();
        let mut span = None;
        for part in key.split('.') {
            let (name, index) = split_index(part);
            let (found, inner) = item.as_table_like()?.get_key_value(name)?;
            span = found.span().or_else(|| inner.span()).or(span);
            item = inner;
            if let Some(element) = index.and_then(|index| element_span(item, index)) {
                return Some(line_at(self.document.raw(), element.start));
            }
        }
        span.map(|span| line_at(self.document.raw(), span.start))
    }
}

fn element_span(item: &Item, index: usize) -> Option<std::ops::Range<usize>> {
    match item {
        Item::Value(toml_edit::Value::Array(array)) => array.get(index)?.span(),
        Item::ArrayOfTables(tables) => tables.get(index)?.span(),
        Item::None | Item::Table(_) | Item::Value(_) => None,
    }
}

fn split_index(part: &str) -> (&str, Option<usize>) {
    match part.split_once('[') {
        Some((name, index)) => (name, index.trim_end_matches(']').parse().ok()),
        None => (part, None),
    }
}

struct TomlText<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Provider for TomlText<'_> {
    fn metadata(&self) -> figment::Metadata {
        let path = self.path.to_string_lossy().into_owned();
        figment::Metadata::named("file").source(figment::Source::Custom(path))
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Toml::string(self.text).data()
    }
}

const VARIABLE: &str = "environment variable";
const FLAG: &str = "flag";

/// Value from the environment or a flag. It stays text, because only the reader of the key knows its type.
struct Pair<'a> {
    key: String,
    value: &'a str,
    name: &'a str,
    kind: &'static str,
}

impl Provider for Pair<'_> {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named(self.kind).source(figment::Source::Custom(self.name.to_owned()))
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut parts = self.key.rsplit('.');
        let mut dict = Dict::new();
        let last = parts.next().unwrap_or_default();
        dict.insert(last.to_owned(), Value::from(self.value));
        for part in parts {
            dict = Dict::from([(part.to_owned(), Value::from(dict))]);
        }
        Ok(Profile::Default.collect(dict))
    }
}
