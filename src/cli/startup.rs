//! Preparation of commands: a runtime, the store, certificates and the directory.

use std::future::Future;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use trunkline_calls::limits::outbound_limits::DAY;
use trunkline_net::listener::tls::{self, Security};
use trunkline_net::tls::{Certificate, Files};
use trunkline_sip::moment::Moment;
use trunkline_store::{Options, Store, agents, calls, journal, realm};
use uuid::Uuid;

use super::{Failure, now};
use crate::config::{Config, DatabaseUrl};
use crate::directory::{Defaults, Directory};
use crate::engine;
use crate::speech::SpeechMaker;
use crate::webhooks;

/// Runs a command that only waits for the store.
pub(super) fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::Startup(format!(
                "can't create an event queue ({error}): raise the limit of open files"
            ))
        })?;
    runtime.block_on(command)
}

/// Prints the keys that are set although they exist no more.
pub(super) fn print_removed(config: &Config) {
    for removed in &config.removed {
        eprintln!("trunkline: {removed}");
    }
}

/// Opens the configured store.
///
/// # Errors
/// It can't be opened, or root would leave files in another user's data directory.
pub(super) async fn open_store(config: &Config) -> Result<Store, Failure> {
    must_be_owner(&config.data_dir)?;
    Store::open(&options(config), now())
        .await
        .map_err(|fault| Failure::Startup(fault.to_string()))
}

/// Time that a start gives to the check of a database file's pages.
const PAGES_CHECK: Duration = Duration::from_secs(2);

/// Refuses a database file whose pages are damaged, as far as they can be checked in [`PAGES_CHECK`]: writing to it would spread the damage.
pub(super) async fn check_pages(config: &Config) -> Result<(), Failure> {
    // The check leaves files beside the database, as every reader does.
    must_be_owner(&config.data_dir)?;
    match Store::damage(&options(config), PAGES_CHECK).await {
        Ok(None) => Ok(()),
        Ok(Some(fault)) | Err(fault) => Err(Failure::Startup(fault.to_string())),
    }
}

/// Refuses to run as root in another user's data directory: the daemon couldn't read files created there.
fn must_be_owner(directory: &Path) -> Result<(), Failure> {
    let owner = std::fs::metadata(directory).map(|found| found.uid());
    match owner {
        Ok(owner) if owner != 0 && rustix::process::geteuid().is_root() => {
            let user = user_name(owner).unwrap_or_else(|| format!("#{owner}"));
            Err(Failure::Startup(format!(
                "{} belongs to {user}: run this as {user} (runuser -u {user} -- trunkline …, or sudo -u {user} trunkline …)",
                directory.display()
            )))
        }
        // A directory that doesn't exist yet is created by this process, and so belongs to its user.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns the name of a user of this machine (passwd(5)).
fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Completes the configuration with the realm of this installation, for a command that only reads.
pub(super) async fn with_known_realm(config: &Config, store: &Store) -> Result<Config, Failure> {
    let known = store.read(realm::known).await?;
    Ok(with_realm(config, known))
}

/// Completes the configuration for a daemon: a new realm is stored.
pub(super) async fn with_kept_realm(config: &Config, store: &Store) -> Result<Config, Failure> {
    let (configured, default) = (config.sip.realm.clone(), config.sip.realm());
    let kept = store.write(move |tx| realm::keep(tx, configured.as_deref(), &default));
    let kept = kept.await?;
    Ok(with_realm(config, Some(kept)))
}

fn with_realm(config: &Config, known: Option<String>) -> Config {
    let mut config = config.clone();
    if config.sip.realm.is_none() {
        config.sip.realm = known.map(Into::into);
    }
    config
}

/// Interval between attempts to reach a database that is away, and between log lines about it.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Waits until the configured database can be reached; false if `ended` completes first.
pub(super) async fn reach_database(
    config: &Config,
    ended: impl Future<Output = ()>,
) -> Result<bool, Failure> {
    let options = options(config);
    let mut ended = pin!(ended);
    let mut say = tokio::time::interval(LOG_INTERVAL);

    loop {
        // The store limits this to a second, so `ended` is seen soon enough.
        let away = Store::away(&options).await;
        let Some(reason) = away.map_err(|fault| Failure::Startup(fault.to_string()))? else {
            return Ok(true);
        };

        tokio::select! {
            // A signal goes first, then the log line, whose first tick is due at once.
            biased;
            () = &mut ended => return Ok(false),
            _ = say.tick() => tracing::warn!(reason, "waiting for the database: no port is open until it can be reached"),
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
        }
    }
}

/// Loads the certificate for HTTPS, if one is configured.
pub(super) fn certificate(config: &Config) -> Result<Option<Arc<Certificate>>, Failure> {
    let Some((chain, key)) = config.http.tls.clone() else {
        return Ok(None);
    };
    match Certificate::load(Files { chain, key }) {
        Ok(certificate) => Ok(Some(certificate)),
        Err(error) => Err(Failure::Startup(format!(
            "{error}: set http.tls_certificate and http.tls_key to PEM files of a certificate chain and its key"
        ))),
    }
}

/// Loads certificates and trust anchors for SIP over TLS.
pub(super) fn security(config: &Config) -> Result<Arc<Security>, Failure> {
    let sip = &config.sip;
    let settings = tls::TlsSettings {
        certificate: sip
            .tls_certificate
            .clone()
            .map(|(chain, key)| Files { chain, key }),
        authorities: sip.tls_ca.clone(),
        client_authorities: sip.tls_client_ca.clone(),
    };

    Security::load(settings, Arc::default()).map_err(|error| {
        Failure::Startup(format!(
            "{error}: check sip.tls_certificate, sip.tls_key, sip.tls_ca and sip.tls_client_ca"
        ))
    })
}

/// Checks that the directory for traces can be created.
pub(super) fn traces(config: &Config) -> Result<(), Failure> {
    let traces = &config.traces;
    let mut levels = traces.directory.ancestors();
    // Only the nearest folder that exists is looked at: nothing is created, so that a refused start leaves the disk as
    // it was.
    let first = levels.find(|level| level.exists());
    match first.filter(|first| !first.is_dir()) {
        Some(file) if traces.enabled && traces.max_bytes > 0 => Err(Failure::Startup(format!(
            "traces can't be written to {}: {} is not a directory: remove it, or set traces.max_mb to 0",
            traces.directory.display(),
            file.display()
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Checks that the journal has nothing that only another build can store.
pub(super) fn journal(config: &Config) -> Result<(), Failure> {
    let checked = journal::check_format(&config.data_dir.join("journal"));
    checked.map_err(|fault| Failure::Startup(fault.to_string()))
}

/// Loads the trust anchors for receivers of webhooks.
pub(super) fn receivers(config: &Config) -> Result<RootCertStore, Failure> {
    webhooks::trusted(&config.webhooks)
        .map_err(|error| Failure::Startup(format!("{error}: check webhooks.tls_ca")))
}

/// Sets up the configured speech synthesiser.
pub(super) fn speech(config: &Config, roots: &RootCertStore) -> Result<SpeechMaker, Failure> {
    SpeechMaker::new(&config.speech, || roots.clone()).map_err(|_| {
        Failure::Startup(
            "speech.url must be an https: URL on the public Internet, without user name or fragment: correct it, or set speech.allow_private_addresses for one in your own network"
                .to_owned(),
        )
    })
}

/// Reads the directory and follows it until it is dropped.
pub(super) async fn open_directory(
    config: &Config,
    store: &Store,
) -> Result<Arc<Directory>, Failure> {
    let defaults = Defaults {
        realm: config.sip.realm().into(),
        runtime: config.phone.default_runtime.runtime(),
        addresses: engine::configured_policy(config),
    };

    Ok(Directory::start(store.clone(), defaults, now).await?)
}

/// Most calls that count against the daily limits of all orgs; beyond, the oldest are ignored.
const MAX_BEGUN: u32 = 1_000_000;

/// Outbound calls that orgs began within the last day, for the limits.
pub(super) async fn begun(store: &Store) -> Result<Vec<(Uuid, Moment)>, Failure> {
    Ok(store
        .read(move |tx| calls::begun_since(tx, now() - DAY, MAX_BEGUN))
        .await?)
}

/// Seals the headers of runtimes that an earlier build has stored in clear text.
pub(super) async fn seal_headers(store: &Store) -> Result<(), Failure> {
    let mut after = Uuid::nil();
    while let Some(last) = store
        .write(move |tx| agents::seal_headers(tx, after))
        .await?
    {
        after = last;
    }
    Ok(())
}

/// Connections that the pool of the database holds at most.
const DATABASE_CONNECTIONS: u32 = 10;

pub(super) fn options(config: &Config) -> Options {
    let url = match &config.database.url {
        DatabaseUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
        DatabaseUrl::Postgres(url) => url.expose().to_owned(),
    };

    Options {
        data_dir: config.data_dir.clone(),
        url: Some(url),
        master_key: config
            .secrets
            .master_key
            .as_ref()
            .map(|key| key.expose().to_owned().into()),
        max_connections: DATABASE_CONNECTIONS,
    }
}
