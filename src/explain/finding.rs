//! Result of one check: what was found, and how to fix it.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Severity.
#[derive(
    Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "FindingLevel")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing has to be done.
    Hint,
    /// Something to fix that harms some calls, or will.
    Warning,
    /// Something to fix that keeps calls from being answered.
    Error,
}

/// Result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TrunkFinding")]
pub struct Finding {
    /// Name of the check, a stable word.
    pub check: Cow<'static, str>,
    /// Severity.
    pub level: Level,
    /// Result as a sentence.
    pub text: String,
    /// The fix as a sentence; `null` if there is nothing to do.
    pub fix: Option<String>,
}

impl Finding {
    /// Makes a finding without a problem.
    pub fn ok(check: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            level: Level::Ok,
            text: text.into(),
            fix: None,
        }
    }

    /// Makes a hint.
    pub fn hint(check: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        Self {
            level: Level::Hint,
            ..Self::ok(check, text)
        }
    }

    /// Makes a warning with its fix.
    pub fn warning(
        check: impl Into<Cow<'static, str>>,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Warning,
            fix: Some(fix.into()),
            ..Self::ok(check, text)
        }
    }

    /// Makes an error with its fix.
    pub fn error(
        check: impl Into<Cow<'static, str>>,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Error,
            ..Self::warning(check, text, fix)
        }
    }

    /// Returns true if there is something to fix.
    pub fn is_problem(&self) -> bool {
        self.level >= Level::Warning
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Hint => "hint",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        f.write_str(&line(level, &self.check, &self.text, self.fix.as_deref()))
    }
}

/// Writes a finding for people. `level` is its word in the API.
pub fn line(level: &str, check: &str, text: &str, fix: Option<&str>) -> String {
    let mark = match level {
        "error" => "ERROR",
        level => level,
    };
    // The fix starts below the text.
    let fix = fix.map_or_else(String::new, |fix| format!("\n{:27}{fix}", ""));
    format!("{mark:<7}  {check:<16}  {text}{fix}")
}
