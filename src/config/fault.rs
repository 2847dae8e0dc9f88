//! What is wrong with a configuration, and where it was written.

use std::fmt;
use std::path::PathBuf;

/// Where a value was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A line (from 1) of the TOML file.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// The line, where it is known.
        line: Option<usize>,
    },
    /// An environment variable.
    Variable(String),
    /// A command-line flag.
    Flag(String),
    /// Nowhere: a default, or what follows from other values.
    Default,
}

/// One fault: a sentence for the operator, with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigFault {
    /// Where the value was given.
    pub origin: Origin,
    /// The key, as `sip.udp[1]`; empty when the whole file is meant.
    pub key: String,
    /// What is wrong and what would be right. Never holds a secret.
    pub message: String,
}

/// All faults of a configuration, in the order of the sections.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct ConfigFaults(pub Vec<ConfigFault>);

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

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}
