//! Headers of the INVITE to an agent's runtime. Runtimes tell their customers by them, so each value may be a credential.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// Text in place of a value that isn't shown.
pub const MASK: &str = "***";

/// Names and values of headers. JSON and `Debug` show the names alone, each with [`MASK`]: what shows the values has to ask for them.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct RuntimeHeaders(BTreeMap<String, String>);

impl RuntimeHeaders {
    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns names and values, for the runtime itself and for clients that may set them.
    pub const fn reveal(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Returns whether some value is still to be put in place of its [`MASK`].
    pub fn are_masked(&self) -> bool {
        self.0.values().any(|value| value == MASK)
    }
}

impl From<BTreeMap<String, String>> for RuntimeHeaders {
    fn from(headers: BTreeMap<String, String>) -> Self {
        Self(headers)
    }
}

impl Serialize for RuntimeHeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.keys().map(|name| (name, MASK)))
    }
}

impl fmt::Debug for RuntimeHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_only_on_demand() {
        let headers: RuntimeHeaders = serde_json::from_str(r#"{"X-Account":"hunter2"}"#).unwrap();
        let shown = serde_json::to_string(&headers).unwrap();
        assert_eq!(shown, r#"{"X-Account":"***"}"#);
        assert_eq!(format!("{headers:?}"), r#"{"X-Account"}"#);
        assert_eq!(headers.reveal()["X-Account"], "hunter2");

        let read: RuntimeHeaders = serde_json::from_str(&shown).unwrap();
        assert!(read.are_masked() && !headers.are_masked());
    }
}
