//! Reasons why the store can't be opened, each with its remedy.

use std::path::PathBuf;

use super::error::Error;
use crate::journal;

/// Reason why the store can't be opened, with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// `database.url` is of an unknown kind. Its text is not shown: it may hold a password.
    #[error(
        "database.url is neither sqlite:PATH nor postgres://USER@HOST/DATABASE: correct it, or leave it out for SQLite in data_dir"
    )]
    Url,
    /// The data directory can't be used.
    #[error("the data directory {} can't be written ({source}): create it for this user, or name another with data_dir", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The SQLite file can't be read.
    #[error("the database {} can't be read ({reason}): check its permissions, restore a backup, or name another with database.url", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of SQLite.
        reason: String,
    },
    /// Pages of the SQLite file are damaged.
    #[error("the database {} is damaged ({reason}): stop whatever writes it and restore the backup; without one, save what can be read: sqlite3 {} .recover | sqlite3 recovered.db", .path.display(), .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// First damage that SQLite found.
        reason: String,
    },
    /// The SQLite file, or one that SQLite keeps beside it, can't be written.
    #[error("the database {} can't be used ({reason}): check whether its disk is full or failing, and whether this user may write to the file and its directory", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Error of SQLite.
        reason: String,
    },
    /// The database is gone or empty, while its keys and journal exist.
    #[error("the database {} is {found}, and {} has the keys and the journal of one that was used: restore the database from the backup; for a new installation set data_dir to an empty directory", .path.display(), .data_dir.display())]
    Gone {
        /// The file.
        path: PathBuf,
        /// State of the file: `empty` or `not there`.
        found: &'static str,
        /// Directory of its keys and journal.
        data_dir: PathBuf,
    },
    /// PostgreSQL has orgs, but not the keys that sealed their secrets.
    #[error(
        "the database has orgs, and its keys are gone from the table secrets: restore the database from the backup"
    )]
    NoKeysInDatabase,
    /// The SQLite file is another program's.
    #[error("{} is the database of another program: name another file with database.url", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// PostgreSQL does not answer.
    #[error("PostgreSQL accepts no connection ({0}): check that it runs, and check database.url")]
    Unreachable(String),
    /// A newer version has migrated the database.
    #[error(
        "the database was migrated by a newer version (to {found}; this one knows {known}): run that version, or restore the backup from before it"
    )]
    Future {
        /// Version of the database.
        found: i64,
        /// Version of this build.
        known: i64,
    },
    /// The database is from before the first release, and no way leads from its version to this one's.
    #[error(
        "the database is of version {found}, from before 0.1.0: start build c486631c once, which brings it to version 49, then this one"
    )]
    TooOld {
        /// Version of the database.
        found: i64,
    },
    /// Another build from before the first release made the database, with another text of the same migration.
    #[error(
        "the database was made by another build from before 0.1.0, whose schema of version {found} differs: run the build that made it, or name an empty database"
    )]
    AnotherSchema {
        /// Version of the migration that differs.
        found: i64,
    },
    /// The database would be migrated, and the journal holds facts for its present version.
    #[error(transparent)]
    Journal(#[from] journal::OpenError),
    /// PostgreSQL without a master key.
    #[error(
        "secrets.master_key is not set: with PostgreSQL every node needs the same one, of at least 32 characters (`openssl rand -base64 32` makes one)"
    )]
    NoMasterKey,
    /// The master key is too short.
    #[error(
        "secrets.master_key is shorter than 32 characters: `openssl rand -base64 32` makes a good one"
    )]
    WeakMasterKey,
    /// The database's keys were sealed under another master key.
    #[error(
        "secrets.master_key is not the one that the keys of this database are sealed under: use the one that it was set up with, or that trunkline key rotate-master was given last"
    )]
    WrongMasterKey,
    /// The key file is gone while its database exists.
    #[error("{} is missing, and the database has values sealed with its keys: restore it from the backup", .path.display())]
    NoKeys {
        /// Expected path.
        path: PathBuf,
    },
    /// The key file can't be read or holds no keys.
    #[error("{} can't be read as keys ({reason}): restore it from the backup", .path.display())]
    UnreadableKeys {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The key file belongs to another database.
    #[error("the keys in {} are not those of this database: restore the ones it was made with", .path.display())]
    WrongKeys {
        /// The file.
        path: PathBuf,
    },
    /// With SQLite the keys are in a file, which no master key seals.
    #[error("there is no master key with SQLite: the keys are in the data directory")]
    NoMasterKeyHere,
    /// The sealing key that a rotation staged is gone.
    #[error(
        "another command dropped the new sealing key meanwhile: nothing is lost, run this again"
    )]
    NoStagedKey,
    /// A concurrent rotation made another key the sealing one.
    #[error(
        "another command made a new sealing key meanwhile: nothing was dropped, run this again"
    )]
    AnotherSeals,
    /// Values remain that only an old sealing key opens.
    #[error(
        "{0} values were sealed with an old key just now, so it was not dropped: wait a second for every node to follow, and run this again"
    )]
    StillSealed(u64),
    /// No signing key has this id.
    #[error("there is no signing key {0}: trunkline key list-signing shows them")]
    NoSigningKey(String),
    /// The key is the one that signs.
    #[error("the key {0} signs new tokens: make another first with trunkline key rotate-signing")]
    Signs(String),
    /// The key is the one that signs widget tokens.
    #[error(
        "the key {0} signs new widget tokens: make another first with trunkline key rotate-signing --widget"
    )]
    SignsWidget(String),
    /// The store failed on the way.
    #[error("the database could not be set up ({0}): check its disk and rights, then start again")]
    Broke(#[from] Error),
}

/// Returns the database's own message if it has one; sqlx adds the names of its layers.
pub(crate) fn reason(error: &sqlx::Error) -> String {
    error
        .as_database_error()
        .map_or_else(|| error.to_string(), |fault| fault.message().to_owned())
}
