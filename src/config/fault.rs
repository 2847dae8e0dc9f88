//! Faults of a configuration, with the place of the faulty value, and keys that are set although they exist no more.

use std::fmt;
use std::path::PathBuf;

/// Source of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A line (from 1) of the TOML file.
    File {
        /// File as it was named.
        path: PathBuf,
        /// Line, if it is known.
        line: Option<usize>,
    },
    /// An environment variable.
    Variable(String),
    /// A command-line flag.
    Flag(String),
    /// A default, or a value derived from others.
    Default,
}

/// Fault: a sentence for the operator, with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigFault {
    /// Source of the value.
    pub origin: Origin,
    /// Key, such as `sip.udp[1]`; empty if the whole file is meant.
    pub key: String,
    /// Description of the fault and of a right value. Never contains a secret.
    pub message: String,
}

/// A key that is still set although it exists no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemovedKey {
    /// Source of the value.
    pub origin: Origin,
    /// Key, such as `sip.t2_ms`.
    pub key: &'static str,
    /// Sentence that tells the constant in force.
    pub in_force: &'static str,
}

/// All faults of a configuration, in the order of the sections.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct ConfigFaults {
    /// Faults; at least one.
    pub faults: Vec<ConfigFault>,
    /// Keys that are set beside them although they exist no more.
    pub removed: Vec<RemovedKey>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File {
                path,
                line: Some(line),
            } => write!(f, "{}:{line}: ", path.display()),
            Self::File { path, line: None } => write!(f, "{}: ", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}: "),
            Self::Flag(flag) => write!(f, "{flag}: "),
            Self::Default => Ok(()),
        }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.origin)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Display for RemovedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            origin,
            key,
            in_force,
        } = self;
        write!(f, "{origin}{key} is no key any more: {in_force}")
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}
