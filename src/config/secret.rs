//! Text that must not be shown: a master key, a database's URL. `file:/path` is replaced by the file's content.

use std::fmt;

/// A secret of the configuration. `Debug` shows nothing of it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Takes `text`, or the content of the file that `file:PATH` names, without its last line break.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let secret = match text.strip_prefix("file:") {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| format!("the file {path:?} can't be read: {error}"))?
                .trim_end_matches(['\r', '\n'])
                .to_owned(),
            None => text.to_owned(),
        };
        if secret.is_empty() {
            Err("must not be empty".to_owned())
        } else {
            Ok(Self(secret))
        }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
