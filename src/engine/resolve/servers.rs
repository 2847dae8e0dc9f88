//! Name servers that are queried: the configured ones, or the system's, whose files are re-read when they change.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Resolver as Hickory, TokioResolver};
use trunkline_sip::moment::Moment;

use crate::engine::clock;

/// File that lists the system's name servers (`man 5 resolv.conf`).
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// File of names that need no name server. The resolver reads it when it is built.
const HOSTS: &str = "/etc/hosts";
/// Interval between checks of the two files.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of one try at one server; the system's own setting applies where it is shorter.
const TRY_TIMEOUT: Duration = Duration::from_secs(1);

/// Name servers, and the resolver that asks them.
pub(super) enum Servers {
    /// Servers of the configuration.
    Given(Option<Arc<TokioResolver>>),
    /// Servers of the system.
    Followed(Mutex<Followed>),
}

/// The system's files as last read.
pub(super) struct Followed {
    resolv_conf: PathBuf,
    looked: Moment,
    seen: FileStamps,
    resolver: Option<Arc<TokioResolver>>,
}

/// Version of a file: its time of modification and its length.
type Stamp = Option<(SystemTime, u64)>;
type FileStamps = [Stamp; 2];

impl Servers {
    /// Uses the configured servers, or the system's if none are configured.
    pub(super) fn new(given: &[SocketAddr]) -> Self {
        if given.is_empty() {
            let followed = Followed::new(RESOLV_CONF.into(), clock::now());
            return Self::Followed(Mutex::new(followed));
        }

        let servers = given.iter().map(name_server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let built = build(config, ResolverOpts::default());
        if let Err(error) = &built {
            tracing::warn!(%error, "the name servers of sip.nameservers cannot be used");
        }
        Self::Given(built.ok())
    }

    /// Returns the resolver that queries them. Without any, only IP addresses can be reached.
    pub(super) fn resolver(&self) -> Option<Arc<TokioResolver>> {
        match self {
            Self::Given(resolver) => resolver.clone(),
            Self::Followed(followed) => followed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .resolver(clock::now()),
        }
    }
}

impl Followed {
    fn new(resolv_conf: PathBuf, now: Moment) -> Self {
        Self {
            looked: now,
            seen: look(&resolv_conf),
            resolver: system(&resolv_conf),
            resolv_conf,
        }
    }

    fn resolver(&mut self, now: Moment) -> Option<Arc<TokioResolver>> {
        if now.since(self.looked) >= CHECK_INTERVAL {
            self.looked = now;
            self.follow();
        }
        self.resolver.clone()
    }

    fn follow(&mut self) {
        let seen = look(&self.resolv_conf);
        if seen == self.seen {
            return;
        }
        // Noted also if the file can't be used: it is read again when it changes again.
        self.seen = seen;

        // A file that is being rewritten may be empty for a moment; keep the known servers then.
        if let Some(resolver) = system(&self.resolv_conf) {
            tracing::info!("{RESOLV_CONF} or {HOSTS} has changed and was read again");
            self.resolver = Some(resolver);
        }
    }
}

fn look(resolv_conf: &Path) -> FileStamps {
    [resolv_conf, Path::new(HOSTS)].map(stamp)
}

fn stamp(path: &Path) -> Stamp {
    let file = fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

/// Builds a resolver of the system's servers; logs a warning and returns `None` if there are none.
fn system(resolv_conf: &Path) -> Option<Arc<TokioResolver>> {
    let read = fs::read(resolv_conf).map_err(Into::into);
    let built = read
        .and_then(parse_resolv_conf)
        .and_then(|(config, options)| build(config, options));
    match built {
        Ok(resolver) => Some(resolver),
        Err(error) => {
            tracing::warn!(
                %error,
                "{RESOLV_CONF} names no usable server: host names cannot be resolved until it does, or sip.nameservers names one"
            );
            None
        }
    }
}

fn build(
    config: ResolverConfig,
    mut options: ResolverOpts,
) -> Result<Arc<TokioResolver>, hickory_resolver::net::NetError> {
    options.timeout = options.timeout.min(TRY_TIMEOUT);
    options.use_hosts_file = ResolveHosts::Always;

    let mut builder = Hickory::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build().map(Arc::new)
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    let on_port = |connection: &mut ConnectionConfig| connection.port = address.port();
    server.connections.iter_mut().for_each(on_port);
    server
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_changed_file_is_read_again_and_an_emptied_one_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("resolv.conf");
        let write = |text: &str| fs::write(&file, text).expect("a file");
        let mut now = Moment::from_secs(1_000);
        let mut later = || {
            now = now + CHECK_INTERVAL;
            now
        };

        write("");
        let mut followed = Followed::new(file.clone(), later());
        assert!(followed.resolver(later()).is_none());

        write("nameserver 192.0.2.53\n");
        let first = followed.resolver(later()).expect("a resolver");
        let again = followed.resolver(later()).expect("a resolver");
        assert!(Arc::ptr_eq(&first, &again), "nothing has changed");

        write("nameserver 192.0.2.153\n");
        let second = followed.resolver(later()).expect("a resolver");
        assert!(!Arc::ptr_eq(&first, &second));

        write("");
        let still = followed.resolver(later()).expect("a resolver");
        assert!(Arc::ptr_eq(&second, &still));
    }
}
