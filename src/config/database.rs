//! `[database]`: the database that stores rows.

use std::fmt;
use std::path::{Path, PathBuf};

use super::secret::Secret;
use super::section::Section;

/// The database to open.
#[derive(Clone, Debug)]
pub struct Database {
    /// URL of the database.
    pub url: DatabaseUrl,
}

/// A database by its URL.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// An embedded file.
    Sqlite(PathBuf),
    /// A PostgreSQL server; the URL may hold a password.
    Postgres(Secret),
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(_) => f.write_str("postgres:[secret]"),
        }
    }
}

impl Database {
    pub(super) fn read(section: &mut Section<'_>, data_dir: &Path) -> Self {
        let default = || DatabaseUrl::Sqlite(data_dir.join("trunkline.db"));
        let url = section
            .secret("url")
            .map(|url| parse(&url))
            .unwrap_or_else(|| Ok(default()));
        // With the default in place of a faulty value the other sections are still checked; `Config::load` fails at the
        // end.
        let url = url.unwrap_or_else(|message| {
            section.refuse_key("url", message);
            default()
        });

        Self { url }
    }
}

/// Parses `sqlite:PATH` (also `sqlite://PATH`) or `postgres://…` (also `postgresql://…`).
fn parse(url: &Secret) -> Result<DatabaseUrl, String> {
    // No message repeats the URL, because it may hold a password.
    let text = url.expose();
    if let Some(path) = text.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        let path = path.split('?').next().unwrap_or(path);
        return if path.is_empty() {
            Err("sqlite: must be followed by a path".to_owned())
        } else {
            Ok(DatabaseUrl::Sqlite(path.into()))
        };
    }

    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(DatabaseUrl::Postgres(url.clone()));
    }
    Err("expected sqlite:PATH or postgres://USER:PASSWORD@HOST/NAME".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_their_database() {
        for (text, expected) in [
            ("sqlite:/var/lib/t.db", Ok("sqlite:/var/lib/t.db")),
            ("sqlite:///var/lib/t.db", Ok("sqlite:/var/lib/t.db")),
            ("sqlite:t.db?mode=rwc", Ok("sqlite:t.db")),
            ("postgres://u:secret@h/db", Ok("postgres:[secret]")),
            ("postgresql://h/db", Ok("postgres:[secret]")),
            ("sqlite:", Err(())),
            ("mysql://h/db", Err(())),
        ] {
            let parsed = parse(&Secret::from(text.to_owned()))
                .map(|url| format!("{url:?}"))
                .map_err(|_| ());
            assert_eq!(parsed, expected.map(str::to_owned), "{text}");
        }
    }
}
