//! Storage of the installation's keys: with SQLite in a file of the data directory (mode 0600), with PostgreSQL in the database, sealed
//! under `secrets.master_key`, so that all nodes accept the same tokens. The change feed announces changes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use trunkline_sip::moment::Moment;
use zeroize::Zeroizing;

use super::pool::Pool;
use crate::driver::column::to_json;
use crate::driver::error::Broke;
use crate::driver::keyring::{Keyring, KeyringText, RetireFault, SealingId, SealingKey, TokenKind};
use crate::driver::open_fault::OpenFault;
use crate::driver::tx::Tx;
use crate::files::private;
use crate::files::whole_file::WholeFile;

const FILE: &str = "keys.json";
/// Lock that serialises the creation of keys on PostgreSQL.
const LOCK: i64 = 0x7472_756e_6b00_0003;
const KEYRING: &str = "SELECT value FROM secrets WHERE id = 'keyring'";
const REPLACE: &str = "UPDATE secrets SET value = $1 WHERE id = 'keyring'";
/// Known text that marks a database with its keys. Also the context under which a master key seals the keys.
pub(crate) const CHECK: &[u8] = b"these keys belong to this database";

/// Key under which PostgreSQL's keys are sealed.
#[derive(Clone)]
pub(crate) struct MasterKey(SealingKey);

impl MasterKey {
    /// Derives the key from the configured text, which has to be random: it is hashed, not stretched.
    pub(crate) fn new(text: Option<&str>) -> Result<Self, OpenFault> {
        let text = text.ok_or(OpenFault::NoMasterKey)?;
        // Counted as the configuration does: a key that it refuses at the next start would lock everybody out.
        if text.chars().count() < 32 {
            return Err(OpenFault::WeakMasterKey);
        }
        let key = Sha256::new()
            .chain_update(b"trunkline master key\0")
            .chain_update(text)
            .finalize();
        Ok(Self(SealingKey::new(&key.into())))
    }
}

/// A change of the stored keys.
#[derive(Clone, Debug)]
pub(crate) enum KeyEdit {
    /// Add a key that signs tokens of this kind from now on.
    AddSigning(TokenKind),
    /// Retire the signing key of this id.
    RetireSigning(String),
    /// Add a sealing key, which opens and doesn't seal yet.
    StageSealing,
    /// Seal with the staged key of this id from now on.
    UseStagedSealing(SealingId),
    /// Drop all sealing keys but the one that seals, which has this id.
    RetireSealing(SealingId),
}

impl KeyEdit {
    fn apply(self, written: &mut KeyringText) -> Result<(), OpenFault> {
        match self {
            Self::AddSigning(kind) => {
                written.add_signing(kind);
                Ok(())
            }
            Self::RetireSigning(kid) => written.retire(&kid).map_err(|fault| match fault {
                RetireFault::Unknown => OpenFault::NoSigningKey(kid),
                RetireFault::Signs => OpenFault::Signs(kid),
                RetireFault::SignsWidget => OpenFault::SignsWidget(kid),
            }),
            Self::StageSealing => {
                written.stage_sealing();
                Ok(())
            }
            Self::UseStagedSealing(id) => match written.use_staged_sealing(id) {
                true => Ok(()),
                false => Err(OpenFault::NoStagedKey),
            },
            Self::RetireSealing(newest) => match written.retire_sealing(newest) {
                true => Ok(()),
                false => Err(OpenFault::AnotherSeals),
            },
        }
    }
}

/// Storage of the keys of an open store.
pub(crate) enum Vault {
    /// In a file of this data directory.
    File(PathBuf),
    /// In the database.
    Database(MasterKey),
}

impl Vault {
    /// Returns the stored keys.
    pub(crate) async fn read(&self, pool: &Pool) -> Result<Keyring, OpenFault> {
        match self {
            Self::File(data_dir) => from_file(data_dir, false),
            Self::Database(master) => {
                let (sealed,): (Vec<u8>,) =
                    pool.run_read(|tx| tx.exactly_one(KEYRING, &[])).await?;
                read_sealed(master, &sealed).and_then(|text| keyring_of(&text))
            }
        }
    }

    /// Changes the keys within the transaction; a key file is changed at once.
    pub(crate) fn edit(&self, tx: &mut Tx, edit: KeyEdit) -> Result<Keyring, OpenFault> {
        match self {
            Self::File(data_dir) => edit_file(data_dir, edit),
            Self::Database(master) => edit_in_database(tx, master, edit),
        }
    }

    /// Seals the keys in the database under another master key; running processes continue with the keys that they have.
    pub(crate) fn rotate_master(&self, tx: &mut Tx, new: &MasterKey) -> Result<(), OpenFault> {
        let Self::Database(master) = self else {
            return Err(OpenFault::NoMasterKeyHere);
        };
        let text = take_sealed(tx, master)?;
        tx.run(REPLACE, &[&new.0.seal(CHECK, &text)])?;
        Ok(())
    }
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Database(_) => "Database",
        })
    }
}

/// Returns whether the data directory has keys.
pub(crate) fn are_kept(data_dir: &Path) -> bool {
    data_dir.join(FILE).exists()
}

/// Returns the keys of the data directory, creating them if the database is new.
pub(crate) fn from_file(data_dir: &Path, new: bool) -> Result<Keyring, OpenFault> {
    let path = data_dir.join(FILE);
    // Keys without a database are those of a first start that was interrupted: they are used.
    if new && !path.exists() {
        make_file(&path).map_err(|source| OpenFault::Directory {
            path: data_dir.into(),
            source,
        })?;
    }

    let text = match std::fs::read_to_string(&path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenFault::NoKeys { path });
        }
        Err(error) => {
            return Err(OpenFault::UnreadableKeys {
                path,
                reason: error.to_string(),
            });
        }
    };

    // The error is dropped: serde's message would show a part of the keys.
    let written: Option<KeyringText> = serde_json::from_str(&text).ok();
    let keyring = written.as_ref().and_then(Keyring::read);
    keyring.ok_or(OpenFault::UnreadableKeys {
        path,
        reason: "its contents are no keys".to_owned(),
    })
}

/// Creates the key file under a temporary name and links it into place: another process that starts now finds complete keys, and the first
/// to link wins.
fn make_file(path: &Path) -> io::Result<()> {
    let beside = beside(path, &to_json(&KeyringText::generate()))?;
    // Unlike a rename, a link doesn't replace keys that another process has made meanwhile.
    let linked = std::fs::hard_link(&beside, path);
    std::fs::remove_file(&beside)?;

    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => sync_directory(path),
    }
}

/// Writes a temporary file beside this one.
fn beside(path: &Path, text: &str) -> io::Result<PathBuf> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = owner_only().truncate(true).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(beside)
}

/// Returns options for a file that its owner alone reads and writes.
fn owner_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// The changed keys, as text and as keyring; `None` if the text holds no keys.
type Edited = Option<(Zeroizing<String>, Keyring)>;

fn edited(text: &[u8], edit: KeyEdit) -> Result<Edited, OpenFault> {
    let Ok(mut written) = serde_json::from_slice::<KeyringText>(text) else {
        return Ok(None);
    };
    edit.apply(&mut written)?;
    let keyring = Keyring::read(&written);
    Ok(keyring.map(|keyring| (Zeroizing::new(to_json(&written)), keyring)))
}

/// Changes the keys in the file.
fn edit_file(data_dir: &Path, edit: KeyEdit) -> Result<Keyring, OpenFault> {
    let path = data_dir.join(FILE);
    let broken = |source| OpenFault::Directory {
        path: data_dir.into(),
        source,
    };

    // Locked, since of two changes at once each would lose the other's key.
    let lock = owner_only()
        .open(data_dir.join("keys.lock"))
        .map_err(broken)?;
    lock.lock().map_err(broken)?;
    let text = Zeroizing::new(std::fs::read(&path).map_err(broken)?);
    let owner = std::fs::metadata(&path).map_err(broken)?;

    // A command that root runs must leave the file with the daemon's owner. Any other user can't change it, and needn't.
    let (uid, gid) = (Some(owner.uid()), Some(owner.gid()));
    let _ = std::os::unix::fs::fchown(&lock, uid, gid);
    let (text, keyring) = edited(&text, edit)?.ok_or_else(|| OpenFault::UnreadableKeys {
        path: path.clone(),
        reason: "its contents are no keys".to_owned(),
    })?;

    // A process that reads the keys meanwhile finds the old or the new ones, never a part.
    let written = WholeFile::create(&path, private::FILE).and_then(|mut file| {
        let _ = std::os::unix::fs::fchown(file.file(), uid, gid);
        file.write_all(text.as_bytes())?;
        file.finish()
    });
    written.map_err(broken)?;

    Ok(keyring)
}

/// Changes the keys that the database holds.
fn edit_in_database(tx: &mut Tx, master: &MasterKey, edit: KeyEdit) -> Result<Keyring, OpenFault> {
    let text = take_sealed(tx, master)?;
    let (text, keyring) = edited(&text, edit)?.ok_or_else(no_keys)?;
    tx.run(REPLACE, &[&master.0.seal(CHECK, text.as_bytes())])?;
    Ok(keyring)
}

/// Returns the keys that the database holds, locked until the commit.
fn take_sealed(tx: &mut Tx, master: &MasterKey) -> Result<Zeroizing<Vec<u8>>, OpenFault> {
    tx.run("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    let (sealed,): (Vec<u8>,) = tx.exactly_one(KEYRING, &[])?;
    read_sealed(master, &sealed)
}

fn read_sealed(master: &MasterKey, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenFault> {
    let text = master.0.open(CHECK, sealed);
    text.map(Zeroizing::new)
        .map_err(|_| OpenFault::WrongMasterKey)
}

fn keyring_of(text: &[u8]) -> Result<Keyring, OpenFault> {
    let written: Option<KeyringText> = serde_json::from_slice(text).ok();
    let keyring = written.as_ref().and_then(Keyring::read);
    keyring.ok_or_else(no_keys)
}

fn no_keys() -> OpenFault {
    let column = "secrets.value";
    OpenFault::Broke(Broke::Stored { column }.into())
}

/// Restricts the key file to its owner.
pub(crate) fn restrict(data_dir: &Path) -> Result<(), OpenFault> {
    let path = data_dir.join(FILE);
    private::restrict(&path, private::FILE).map_err(|source| OpenFault::Directory { path, source })
}

/// Reads the known text that the database's keys have sealed.
pub(crate) const MARK: &str = "SELECT value FROM secrets WHERE id = 'check'";

/// Refuses keys other than those with which the database is marked.
pub(crate) fn check(
    keyring: &Keyring,
    mark: Option<&[u8]>,
    data_dir: &Path,
) -> Result<(), OpenFault> {
    match mark.map(|mark| keyring.open(CHECK, mark)) {
        None | Some(Ok(_)) => Ok(()),
        Some(Err(_)) => Err(OpenFault::WrongKeys {
            path: data_dir.join(FILE),
        }),
    }
}

/// Marks a new database with its keys.
pub(crate) async fn mark(pool: &Pool, keyring: &Keyring, now: Moment) -> Result<(), OpenFault> {
    // Most starts find the mark, and have nothing to write.
    let marked = pool.run_read(|tx| tx.one::<(Vec<u8>,)>(MARK, &[])).await?;
    if marked.is_none() {
        let sealed = keyring.seal(CHECK, CHECK);
        let marked = pool.run_write(move |tx| {
            tx.mark_internal();
            tx.run(INSERT, &[&"check", &sealed, &now])
        });
        marked.await?;
    }
    Ok(())
}

const INSERT: &str =
    "INSERT INTO secrets (id, value, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

/// Returns the keys that the database holds, creating them if it has none.
pub(crate) async fn from_database(
    pool: &Pool,
    master: &MasterKey,
    now: Moment,
) -> Result<Keyring, OpenFault> {
    let master = master.clone();
    let kept = pool.run_write(move |tx| {
        tx.mark_internal();
        Ok(kept_or_made(tx, &master, now))
    });
    let (text, _) = kept.await?;
    keyring_of(&text?)
}

fn kept_or_made(
    tx: &mut Tx,
    master: &MasterKey,
    now: Moment,
) -> Result<Zeroizing<Vec<u8>>, OpenFault> {
    tx.run("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    let row: Option<(Vec<u8>,)> = tx.one(KEYRING, &[])?;
    if let Some((sealed,)) = row {
        return read_sealed(master, &sealed);
    }

    // New keys would open none of the secrets of these orgs, and hide that the old ones are lost.
    let used: Option<(i64,)> = tx.one("SELECT 1 FROM orgs LIMIT 1", &[])?;
    if used.is_some() {
        return Err(OpenFault::NoKeysInDatabase);
    }

    let text = Zeroizing::new(to_json(&KeyringText::generate()).into_bytes());
    tx.run(INSERT, &[&"keyring", &master.0.seal(CHECK, &text), &now])?;
    Ok(text)
}
