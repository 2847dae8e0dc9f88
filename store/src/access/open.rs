//! Opening the database: finds its location, checks that it is Trunkline's and of a known version, loads the keys, and migrates the schema.
//!
//! All checks come before the first write, so that a failed start leaves the disk as it was.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::time::sleep;
use trunkline_sip::moment::Moment;
use zeroize::Zeroizing;

use super::migrate::{self, SchemaState};
use super::pool::Pool;
use super::secrets::{self, Vault};
use crate::driver::error::{Broke, Error};
use crate::driver::keyring::Keyring;
use crate::driver::open_fault::{OpenFault, reason};
use crate::driver::server;
use crate::driver::server::Remote;
use crate::driver::sqlite::{Connections, OpenMode};
use crate::driver::threads::PATIENCE;
use crate::driver::tx::{Mode, Tx};
use crate::journal;

/// Location of the database and its keys.
#[derive(Clone)]
pub struct Options {
    /// Directory of the SQLite database and its keys; created if absent.
    pub data_dir: PathBuf,
    /// `sqlite:PATH` or `postgres://…`; `None`: `trunkline.db` in the data directory.
    pub url: Option<String>,
    /// Key that seals the keys which a PostgreSQL database holds.
    pub master_key: Option<Zeroizing<String>>,
    /// Most connections (on SQLite: for reading).
    pub max_connections: u32,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("data_dir", &self.data_dir)
            .finish_non_exhaustive()
    }
}

/// Target of the URL.
enum DatabaseTarget {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

/// Result of opening: the database, the keys, and where these are stored.
type Opened = (Pool, Keyring, Vault);

pub(crate) async fn open(options: &Options, now: Moment) -> Result<Opened, OpenFault> {
    match place(options)? {
        DatabaseTarget::Sqlite(file) => open_sqlite(options, &file, now).await,
        DatabaseTarget::Postgres(connect) => open_postgres(options, *connect, now).await,
    }
}

/// Content of the location before it is opened.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DatabaseAtStartup {
    /// No database: opening would create one.
    Absent,
    /// A database of an older version: opening would migrate it.
    Older,
    /// A database of this version.
    Current,
}

/// Examines the location without changing anything.
pub(crate) async fn look(options: &Options) -> Result<DatabaseAtStartup, OpenFault> {
    let found = match place(options)? {
        DatabaseTarget::Sqlite(file) if holds_something(&file)? => match look_at(&file).await {
            Ok((SchemaState::Foreign, _)) => return Err(OpenFault::Foreign { path: file }),
            Ok((found, _)) => found,
            Err(error) => return Err(unopened(&file, &error)),
        },
        DatabaseTarget::Sqlite(_) => SchemaState::Empty,
        DatabaseTarget::Postgres(connect) => {
            let pool = postgres_pool(*connect, 1).await?;
            let found = pool.run_read(migrate::look).await?;
            pool.close().await;
            found
        }
    };

    check(&found, &options.data_dir)?;
    match found {
        SchemaState::Empty | SchemaState::Foreign => Ok(DatabaseAtStartup::Absent),
        SchemaState::Version(version) if version == migrate::newest() => {
            Ok(DatabaseAtStartup::Current)
        }
        SchemaState::Version(_) | SchemaState::Unmarked(_) | SchemaState::Differs(_) => {
            Ok(DatabaseAtStartup::Older)
        }
    }
}

/// Returns the reason why the database can't be opened yet, if waiting may help.
pub(crate) async fn away(options: &Options) -> Result<Option<String>, OpenFault> {
    match place(options)? {
        DatabaseTarget::Sqlite(_) => Ok(None),
        DatabaseTarget::Postgres(connect) => server::away(&connect).await,
    }
}

/// Checks the pages of an SQLite file for so long at most.
pub(crate) async fn damage(
    options: &Options,
    limit: Duration,
) -> Result<Option<OpenFault>, OpenFault> {
    let file = match place(options)? {
        DatabaseTarget::Sqlite(file) if holds_something(&file)? => file,
        DatabaseTarget::Sqlite(_) | DatabaseTarget::Postgres(_) => return Ok(None),
    };
    // What can't be read at all, or is another program's, is refused when it is opened.
    match look_at(&file).await {
        Ok((SchemaState::Foreign, _)) | Err(_) => return Ok(None),
        Ok(_) => {}
    }
    let connections = Connections::new(file.clone(), OpenMode::Looking(PATIENCE), 1);
    let checked = off_executor(move || Ok(connections.damage(limit)?)).await;
    let damage = checked.map_err(|error| unopened(&file, &error))?;
    Ok(damage.map(|reason| OpenFault::Damaged { path: file, reason }))
}

fn place(options: &Options) -> Result<DatabaseTarget, OpenFault> {
    let Some(url) = &options.url else {
        return Ok(DatabaseTarget::Sqlite(
            options.data_dir.join("trunkline.db"),
        ));
    };

    if let Some(path) = url.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return if path.is_empty() {
            Err(OpenFault::Url)
        } else {
            Ok(DatabaseTarget::Sqlite(path.into()))
        };
    }

    if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        return url
            .parse()
            .map(|options| DatabaseTarget::Postgres(Box::new(options)))
            .map_err(|_| OpenFault::Url);
    }

    Err(OpenFault::Url)
}

async fn open_sqlite(options: &Options, file: &Path, now: Moment) -> Result<Opened, OpenFault> {
    let unreadable = |error: Error| unopened(file, &error);
    let (found, mark) = match holds_something(file)? {
        true => look_at(file).await.map_err(unreadable)?,
        false => (SchemaState::Empty, None),
    };
    if found == SchemaState::Foreign {
        return Err(OpenFault::Foreign { path: file.into() });
    }
    check(&found, &options.data_dir)?;

    if matches!(found, SchemaState::Empty | SchemaState::Version(0)) {
        refuse_gone(file, &options.data_dir)?;
    }

    for directory in [Some(options.data_dir.as_path()), file.parent()]
        .into_iter()
        .flatten()
    {
        ready(directory).map_err(|source| OpenFault::Directory {
            path: directory.into(),
            source,
        })?;
    }

    // The keys come before the database: a start that dies in between is repeated, and finds its keys.
    let keyring = secrets::from_file(&options.data_dir, found == SchemaState::Empty)?;
    secrets::check(&keyring, mark.as_deref(), &options.data_dir)?;
    secrets::restrict(&options.data_dir)?;
    make_file(file).map_err(|source| OpenFault::Directory {
        path: options.data_dir.clone(),
        source,
    })?;
    let pool = sqlite_pool(file, options.max_connections)
        .await
        .map_err(unreadable)?;
    update(&pool, now).await?;
    secrets::mark(&pool, &keyring, now).await?;

    Ok((pool, keyring, Vault::File(options.data_dir.clone())))
}

async fn open_postgres(
    options: &Options,
    connect: PgConnectOptions,
    now: Moment,
) -> Result<Opened, OpenFault> {
    let master = secrets::MasterKey::new(options.master_key.as_ref().map(|key| key.as_str()))?;
    // The operator's number covers the connections that listen as well.
    let working = options.max_connections.saturating_sub(server::LISTENERS);
    let pool = postgres_pool(connect, working.max(2)).await?;

    let found = pool.run_read(migrate::look).await?;
    // No version: another node may be migrating just now, which this look, without the lock, sees half of. The update looks again.
    if found != SchemaState::Unmarked(0) {
        check(&found, &options.data_dir)?;
    }
    update(&pool, now).await?;
    let keyring = secrets::from_database(&pool, &master, now).await?;
    Ok((pool, keyring, Vault::Database(master)))
}

/// Connects to the server, which must accept now.
async fn postgres_pool(connect: PgConnectOptions, max_connections: u32) -> Result<Pool, OpenFault> {
    let connect = connect.application_name("trunkline");
    let connected = tokio::time::timeout(PATIENCE, PgConnection::connect_with(&connect)).await;
    let connection = connected
        .map_err(|_| OpenFault::Unreachable("it doesn't answer in time".to_owned()))?
        .map_err(|error| OpenFault::Unreachable(reason(&error)))?;
    // The server has accepted: an error in closing this connection is of no interest.
    let _ = connection.close().await;
    Ok(Pool::postgres(Remote::new(connect), max_connections))
}

/// Refuses what this build can't bring up to date. A database of version 49 needs an empty journal: only the build that wrote the facts can
/// store them, and only in that version.
fn check(found: &SchemaState, data_dir: &Path) -> Result<(), OpenFault> {
    found.check()?;
    if let SchemaState::Unmarked(_) = found {
        journal::check_format(&data_dir.join("journal"))?;
    }
    Ok(())
}

/// Refuses to create a database where the keys and the journal of an old one remain: the old one is lost, and a new one in its place would
/// hide that. A first start that was interrupted has left no journal.
fn refuse_gone(file: &Path, data_dir: &Path) -> Result<(), OpenFault> {
    let journal = std::fs::read_dir(data_dir.join("journal"));
    let was_used = journal.is_ok_and(|mut segments| segments.next().is_some());
    if !was_used || !secrets::are_kept(data_dir) {
        return Ok(());
    }
    Err(OpenFault::Gone {
        path: file.into(),
        found: if file.exists() { "empty" } else { "not there" },
        data_dir: data_dir.into(),
    })
}

async fn update(pool: &Pool, now: Moment) -> Result<(), OpenFault> {
    // Another process may be migrating the same file: each try waits a second for its lock.
    let mut tries = PATIENCE.as_secs();
    let found = loop {
        let update = move |tx: &mut Tx| {
            tx.mark_internal();
            migrate::migrate(tx, now)
        };
        match pool.run_write(update).await {
            Err(Error::Broke(held)) if held.is_away() && tries > 1 => tries -= 1,
            migrated => break migrated?.0,
        }
    };
    // Checked again: a newer node may have migrated between the first look and this transaction.
    found.check()
}

/// Returns whether a database exists; an empty file is none.
fn holds_something(file: &Path) -> Result<bool, OpenFault> {
    match std::fs::metadata(file) {
        Ok(metadata) => Ok(!metadata.is_file() || metadata.len() > 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(OpenFault::Unreadable {
            path: file.into(),
            reason: error.to_string(),
        }),
    }
}

/// Returns the content of the file, and the mark of its keys. Sets no journal mode, so that another program's file isn't converted to a WAL
/// database.
async fn look_at(file: &Path) -> Result<(SchemaState, Option<Vec<u8>>), Error> {
    let connections = Connections::new(file.into(), OpenMode::Looking(PATIENCE), 1);
    let look = move || {
        let mut tx = Tx::on_sqlite(Arc::new(connections), Arc::default());
        tx.begin(Mode::Read)?;
        let found = migrate::look(&mut tx)?;
        let mark = match found {
            SchemaState::Version(_) | SchemaState::Unmarked(_) | SchemaState::Differs(_) => {
                tx.one(secrets::MARK, &[])?
            }
            SchemaState::Empty | SchemaState::Foreign => None,
        };
        Ok((found, mark.map(|(mark,)| mark)))
    };
    off_executor(look).await
}

/// Runs work that may wait for the disk on a blocking thread.
async fn off_executor<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|fault| Broke::Thread(std::io::Error::other(fault)))?
}

/// Creates the directory if absent, readable to its owner alone, and checks that it can be written.
fn ready(directory: &Path) -> std::io::Result<()> {
    // A file named without a directory: it is in the current one.
    if directory.as_os_str().is_empty() {
        return Ok(());
    }
    std::os::unix::fs::DirBuilderExt::mode(std::fs::DirBuilder::new().recursive(true), 0o700)
        .create(directory)?;
    let probe = directory.join(format!(".trunkline-probe-{}", std::process::id()));
    std::fs::write(&probe, [])?;
    std::fs::remove_file(&probe)
}

/// Creates the file with mode 0600: the directory and the umask may permit more. SQLite gives its other files the same mode.
fn make_file(file: &Path) -> std::io::Result<()> {
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
    {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Opens the file, and tries again while another process opens it too. When two processes switch a new file to its write-ahead log, SQLite
/// tells one of them at once that it is locked, so that they don't deadlock.
async fn sqlite_pool(file: &Path, readers: u32) -> Result<Pool, Error> {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut patience = pin!(sleep(PATIENCE));

    loop {
        let file = file.to_owned();
        let tried = off_executor(move || Ok(Pool::sqlite(&file, readers)?)).await;
        let is_locked = tried
            .as_ref()
            .is_err_and(|error| sqlite_code(error) == Some(ErrorCode::DatabaseBusy));
        if !is_locked {
            return tried;
        }

        tokio::select! {
            biased;
            () = &mut patience => return tried,
            () = sleep(PAUSE) => {}
        }
    }
}

/// Returns SQLite's code of an error.
fn sqlite_code(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::Broke(Broke::Sqlite(error)) => error.sqlite_error_code(),
        Error::Broke(_) | Error::Wrong(_) | Error::Conflict(_) => None,
    }
}

/// Returns the reason why SQLite doesn't open a file: its surroundings or its content.
fn unopened(file: &Path, error: &Error) -> OpenFault {
    const AROUND: [ErrorCode; 4] = [
        ErrorCode::ReadOnly,
        ErrorCode::SystemIoFailure,
        ErrorCode::DiskFull,
        ErrorCode::CannotOpen,
    ];

    let reason = match error {
        Error::Broke(Broke::Sqlite(error)) => error.to_string(),
        Error::Broke(_) | Error::Wrong(_) | Error::Conflict(_) => error.to_string(),
    };
    let path = file.into();
    if sqlite_code(error).is_some_and(|code| AROUND.contains(&code)) {
        OpenFault::Unusable { path, reason }
    } else {
        OpenFault::Unreadable { path, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes more than a database may hold whose size is bounded as it is by a full disk.
    fn overfill(tx: &mut Tx) -> Result<(), Error> {
        tx.batch("PRAGMA max_page_count = 4; CREATE TABLE sand (grain BLOB)")?;
        for _ in 0..100 {
            tx.run("INSERT INTO sand VALUES (randomblob(3000))", &[])?;
        }
        Ok(())
    }

    /// Fills many pages, then overwrites some in the middle of the file.
    #[tokio::test]
    async fn damaged_pages_are_found_and_a_check_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trunkline.db");
        let options = Options {
            data_dir: folder.path().into(),
            url: None,
            master_key: None,
            max_connections: 1,
        };
        let long = Duration::from_secs(60);
        let damage = |limit| damage(&options, limit);
        assert!(damage(long).await.unwrap().is_none(), "no file");

        make_file(&file).unwrap();
        let pool = sqlite_pool(&file, 1).await.unwrap();
        update(&pool, Moment::from_secs(1)).await.unwrap();
        let fill = |tx: &mut Tx| {
            tx.batch("CREATE TABLE sand (grain BLOB)")?;
            for _ in 0..1_000 {
                tx.run("INSERT INTO sand VALUES (randomblob(3000))", &[])?;
            }
            Ok(())
        };
        pool.run_write(fill).await.unwrap();
        pool.close().await;
        assert!(damage(long).await.unwrap().is_none(), "whole");

        let written = OpenOptions::new().write(true).open(&file).unwrap();
        let length = written.metadata().unwrap().len();
        std::os::unix::fs::FileExt::write_all_at(&written, &[0x5a; 64 << 10], length / 2).unwrap();
        let found = damage(long).await.unwrap().expect("damage");
        let said = found.to_string();
        assert!(said.contains("trunkline.db is damaged"), "{said}");
        assert!(said.contains("restore"), "{said}");
        assert!(damage(Duration::ZERO).await.is_ok(), "no time");
    }

    #[tokio::test]
    async fn after_a_full_disk_it_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("beach.db");
        make_file(&file).unwrap();
        let pool = sqlite_pool(&file, 1).await.unwrap();
        let fault = pool.run_write(overfill).await.unwrap_err().to_string();
        assert!(fault.contains("full"), "{fault}");
        let shells = |tx: &mut Tx| tx.run("CREATE TABLE shells (name TEXT)", &[]);
        pool.run_write(shells).await.unwrap();
        pool.close().await;
    }
}
