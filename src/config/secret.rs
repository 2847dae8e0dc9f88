//! Text that must not be shown, such as a master key or a database URL. `file:/path` is replaced by the content of the
//! file.

use std::fmt;
use std::path::Path;

use zeroize::Zeroizing;

/// Secret in the configuration. `Debug` shows nothing of it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Returns the text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Reads `text`, or the content of the file in `file:PATH`, without its last line break.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let secret = match text.strip_prefix("file:") {
            Some(path) => return Self::of_file(Path::new(path)),
            None => text,
        };
        Self::filled(secret)
    }

    /// Reads the content of a file without its last line break.
    ///
    /// # Errors
    /// The file can't be read, or is empty.
    pub fn of_file(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        let text = text.map_err(|error| format!("the file {path:?} can't be read: {error}"))?;
        Self::filled(text.trim_end_matches(['\r', '\n']))
    }

    fn filled(text: &str) -> Result<Self, String> {
        match text.is_empty() {
            true => Err("must not be empty".to_owned()),
            false => Ok(Self(Zeroizing::new(text.to_owned()))),
        }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
