//! Reads one section key by key.
//!
//! A wrong value is noted and reading continues, so that the operator sees every fault at once. Keys that no code asks
//! for are reported with the nearest known name.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use figment::value::{Dict, Tag, Value};

use super::fault::{ConfigFault, Origin};
use super::secret::Secret;
use super::sources::Merged;

/// Values of one section that haven't been read yet.
#[derive(Debug)]
pub(super) struct Section<'a> {
    name: &'static str,
    values: Dict,
    merged: &'a Merged,
    known: Vec<&'static str>,
    /// Origins of the values that have been read.
    origins: Vec<(&'static str, Origin)>,
    /// Faults found so far.
    pub(super) faults: Vec<ConfigFault>,
}

/// Value with its key and origin, for the parser of an element.
#[derive(Clone, Debug)]
pub(super) struct ConfigEntry {
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

impl ConfigEntry {
    /// Returns the value as text. A number or boolean has to be in quotes.
    pub(super) fn text(&self) -> Result<String, String> {
        match &self.value {
            Value::String(_, text) => Ok(text.clone()),
            Value::Char(_, char) => Ok(char.to_string()),
            Value::Num(..) | Value::Bool(..) => Err("expected text in quotes".to_owned()),
            Value::Empty(..) | Value::Dict(..) | Value::Array(..) => {
                Err("expected text".to_owned())
            }
        }
    }
}

impl<'a> Section<'a> {
    /// Takes the section `name` out of `root`.
    pub(super) fn take(name: &'static str, root: &mut Dict, merged: &'a Merged) -> Self {
        let mut faults = Vec::new();
        let values = match root.remove(name) {
            None => Dict::new(),
            Some(Value::Dict(_, dict)) => dict,
            Some(other) => {
                let origin = merged.origin(other.tag(), name);
                faults.push(ConfigFault {
                    origin,
                    key: name.to_owned(),
                    message: format!("is a section: write [{name}] and its keys"),
                });
                Dict::new()
            }
        };

        Self {
            name,
            values,
            merged,
            known: Vec::new(),
            origins: Vec::new(),
            faults,
        }
    }

    /// Takes the section `key` out of this one; `name` is its full name.
    pub(super) fn inner(&mut self, key: &'static str, name: &'static str) -> Self {
        // A section that is absent is known as well: a misspelt one is compared with its name.
        self.known.push(key);
        let mut root = Dict::new();
        if let Some(value) = self.values.remove(key) {
            root.insert(name.to_owned(), value);
        }
        Self::take(name, &mut root, self.merged)
    }

    /// Takes the keys outside every section.
    pub(super) fn top(root: Dict, merged: &'a Merged) -> Self {
        Self {
            name: "",
            values: root,
            merged,
            known: Vec::new(),
            origins: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Full name of a key, such as `sip.udp`.
    fn path(&self, key: &str) -> String {
        if self.name.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.name)
        }
    }

    /// Takes a value out of the section, and notes that its key is known.
    fn entry(&mut self, key: &'static str) -> Option<ConfigEntry> {
        self.known.push(key);
        let value = self.values.remove(key)?;
        let path = self.path(key);
        let origin = self.merged.origin(value.tag(), &path);
        self.origins.push((key, origin.clone()));
        Some(ConfigEntry {
            key: path,
            value,
            origin,
        })
    }

    /// Notes a fault of a value that was read.
    pub(super) fn refuse(&mut self, entry: &ConfigEntry, message: impl Into<String>) {
        self.faults.push(ConfigFault {
            origin: entry.origin.clone(),
            key: entry.key.clone(),
            message: message.into(),
        });
    }

    /// Notes a fault of a key, with or without a value.
    pub(super) fn refuse_key(&mut self, key: &str, message: impl Into<String>) {
        // The value has been taken out, so its origin is in the list of those that were read.
        let read = self.origins.iter().find(|(name, _)| *name == key);
        self.faults.push(ConfigFault {
            origin: read.map_or(Origin::Default, |(_, origin)| origin.clone()),
            key: self.path(key),
            message: message.into(),
        });
    }

    /// Notes the fault of a value that can't be read.
    fn noted<T>(&mut self, entry: &ConfigEntry, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.refuse(entry, message)).ok()
    }

    /// Reads a text that isn't empty.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let entry = self.entry(key)?;
        let text = entry.text().and_then(|text| {
            if text.is_empty() {
                Err("must not be empty".to_owned())
            } else {
                Ok(text)
            }
        });
        self.noted(&entry, text)
    }

    /// Reads a value by its `FromStr`, whose error says what is wrong.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<T> {
        let entry = self.entry(key)?;
        let value = entry.text().and_then(|text| parse(&text));
        self.noted(&entry, value)
    }

    /// Reads one of a few words.
    pub(super) fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let entry = self.entry(key)?;
        let found =
            entry
                .text()
                .and_then(|text| match words.iter().find(|(word, _)| *word == text) {
                    Some((_, value)) => Ok(*value),
                    None => {
                        let known: Vec<_> = words
                            .iter()
                            .map(|(word, _)| format!("\"{word}\""))
                            .collect();
                        Err(format!("{text:?} is none of {}", known.join(", ")))
                    }
                });

        self.noted(&entry, found)
    }

    /// Reads an integer in `range`.
    pub(super) fn number<T>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i128> + PartialOrd + Display,
    {
        let entry = self.entry(key)?;
        // The environment and flags give every value as text.
        let number = match &entry.value {
            Value::Num(_, number) => number.to_i128().or_else(|| {
                number
                    .to_u128()
                    .and_then(|value| i128::try_from(value).ok())
            }),
            Value::String(_, text) => text.trim().parse().ok(),
            Value::Char(_, char) => char.to_string().parse().ok(),
            Value::Bool(..) | Value::Empty(..) | Value::Dict(..) | Value::Array(..) => None,
        };

        match number
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| range.contains(number))
        {
            Some(number) => Some(number),
            None => {
                self.refuse(
                    &entry,
                    format!(
                        "expected a whole number from {} to {}",
                        range.start(),
                        range.end()
                    ),
                );
                None
            }
        }
    }

    /// Reads a whole number of days, as a duration.
    pub(super) fn days(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Duration {
        const DAY_S: u64 = 24 * 3_600;
        Duration::from_secs(self.number(key, range).unwrap_or(default) * DAY_S)
    }

    /// Reads `tls_certificate` and `tls_key`, the files of a certificate chain and its key: both or neither.
    pub(super) fn certificate(&mut self) -> Option<(PathBuf, PathBuf)> {
        let (chain, key) = (self.text("tls_certificate"), self.text("tls_key"));
        let (missing, given) = match (chain, key) {
            (Some(chain), Some(key)) => return Some((chain.into(), key.into())),
            (Some(_), None) => ("tls_key", "tls_certificate"),
            (None, Some(_)) => ("tls_certificate", "tls_key"),
            (None, None) => return None,
        };
        let message = format!("is needed beside {}", self.path(given));
        self.refuse_key(missing, message);
        None
    }

    /// Reads `true` or `false`.
    pub(super) fn switch(&mut self, key: &'static str) -> Option<bool> {
        let entry = self.entry(key)?;
        let switch = match &entry.value {
            Value::Bool(_, switch) => Some(*switch),
            Value::String(_, text) => text.trim().parse().ok(),
            Value::Char(..)
            | Value::Num(..)
            | Value::Empty(..)
            | Value::Dict(..)
            | Value::Array(..) => None,
        };

        if switch.is_none() {
            self.refuse(&entry, "expected true or false");
        }
        switch
    }

    /// Reads a secret, or a `file:` reference to one.
    pub(super) fn secret(&mut self, key: &'static str) -> Option<Secret> {
        let entry = self.entry(key)?;
        let secret = entry.text().and_then(|text| Secret::read(&text));
        self.noted(&entry, secret)
    }

    /// Reads a list: an array in the file, comma-separated text in the environment and flags. Each element is checked separately.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&ConfigEntry) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let entry = self.entry(key)?;
        let Some(elements) = elements(&entry) else {
            self.refuse(&entry, "expected a list");
            return None;
        };

        let mut list = Vec::with_capacity(elements.len());
        for (index, (tag, value)) in elements.into_iter().enumerate() {
            let key = format!("{}[{index}]", entry.key);
            let origin = self.merged.origin(tag, &key);
            let element = ConfigEntry { key, value, origin };
            list.extend(self.noted(&element, parse(&element)));
        }
        Some(list)
    }

    /// Reports unknown keys, and returns all faults.
    pub(super) fn finish(mut self) -> Vec<ConfigFault> {
        for (key, value) in std::mem::take(&mut self.values) {
            let path = self.path(&key);
            let origin = self.merged.origin(tag_within(&value), &path);
            self.faults.push(ConfigFault {
                origin,
                message: unknown(&key, &self.known),
                key: path,
            });
        }
        self.faults
    }

    /// Adds `names` to those that an unknown key is compared with.
    pub(super) fn know(&mut self, names: &[&'static str]) {
        self.known.extend_from_slice(names);
    }
}

/// Tag of a dictionary: one merged from several sources has none of its own, so the first value inside decides.
pub(super) fn tag_within(value: &Value) -> Tag {
    match value {
        Value::Dict(tag, dict) => dict.values().next().map_or(*tag, tag_within),
        Value::Array(..)
        | Value::String(..)
        | Value::Char(..)
        | Value::Bool(..)
        | Value::Num(..)
        | Value::Empty(..) => value.tag(),
    }
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.trim()
        .parse()
        .map_err(|error: T::Err| format!("{text:?} {error}"))
}

/// Elements of a list, each with the tag of its source; `None` for a value that is no list.
fn elements(entry: &ConfigEntry) -> Option<Vec<(Tag, Value)>> {
    match &entry.value {
        Value::Array(_, values) => Some(
            values
                .iter()
                .map(|value| (value.tag(), value.clone()))
                .collect(),
        ),
        Value::String(tag, text) => Some(
            text.split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(|part| (*tag, Value::String(*tag, part.to_owned())))
                .collect(),
        ),
        Value::Char(..) | Value::Bool(..) | Value::Num(..) | Value::Empty(..) | Value::Dict(..) => {
            None
        }
    }
}

/// Message about an unknown key, with the nearest known one.
fn unknown(key: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(name, key), name))
        .min()
        // In a short key a few other letters make another word, so at most a third may differ.
        .filter(|(distance, _)| *distance <= 3 && 3 * *distance <= key.len());
    match nearest {
        Some((_, name)) => format!("is not a key of Trunkline; did you mean {name:?}?"),
        None => "is not a key of Trunkline".to_owned(),
    }
}
