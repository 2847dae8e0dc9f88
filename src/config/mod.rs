//! Configuration: one TOML file, the environment and flags, read into one value, with every fault reported at once.
//!
//! There is one file per section. Nothing here opens a socket or a database, or changes anything on disk.

mod audit;
mod database;
mod events;
mod fault;
mod host;
mod http;
mod integrations;
mod limits;
pub(crate) mod local;
mod log;
mod media;
mod phone;
mod removed;
mod retention;
mod secret;
mod secrets;
mod section;
mod sip;
mod sources;
mod speech;
#[cfg(test)]
mod tests;
mod traces;
mod verification;
mod webhooks;

use std::path::{Path, PathBuf};

pub use audit::Audit;
pub use database::{Database, DatabaseUrl};
pub use events::Events;
pub use fault::{ConfigFault, ConfigFaults, Origin, RemovedKey};
pub(crate) use host::source_towards;
pub use host::{HostPort, NotAHost};
pub use http::Http;
pub use integrations::{BookingConfig, IntegrationsConfig};
pub use limits::Limits;
pub use log::{Log, LogFormat};
pub use media::{Media, MediaHost};
pub use phone::{DefaultRuntime, Phone, Voice, is_url_template};
pub use retention::Retention;
pub use secret::Secret;
pub use secrets::Secrets;
pub use sip::{KnownBy, Listener, Sip, peer};
pub use sources::{DEFAULT_FILE, Override, QUICKSTART_FILE, Sources};
pub use speech::{Speech, SpeechEndpoint, Synthesiser};
pub use traces::TracesConfig;
pub use verification::VerificationTrunk;
pub use webhooks::Webhooks;

use section::Section;
use sources::Merged;

/// Names of the sections.
const SECTIONS: [&str; 15] = [
    "database",
    "secrets",
    "http",
    "sip",
    "media",
    "speech",
    "phone",
    "audit",
    "events",
    "webhooks",
    "integrations",
    "limits",
    "retention",
    "traces",
    "log",
];

/// All settings, with defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the database, keys and journal, unless other settings move them.
    pub data_dir: PathBuf,
    /// `[database]`
    pub database: Database,
    /// `[secrets]`
    pub secrets: Secrets,
    /// `[http]`
    pub http: Http,
    /// `[sip]`
    pub sip: Sip,
    /// `[media]`
    pub media: Media,
    /// `[phone]`
    pub phone: Phone,
    /// `[audit]`
    pub audit: Audit,
    /// `[events]`
    pub events: Events,
    /// `[speech]`
    pub speech: Speech,
    /// `[webhooks]`
    pub webhooks: Webhooks,
    /// `[integrations.…]`
    pub integrations: IntegrationsConfig,
    /// `[limits]`
    pub limits: Limits,
    /// `[retention]`
    pub retention: Retention,
    /// `[traces]`
    pub traces: TracesConfig,
    /// `[log]`
    pub log: Log,
    /// Keys that are set although they exist no more.
    pub removed: Vec<RemovedKey>,
    /// Keys in force that the file of quickstart sets.
    pub quickstart_keys: Vec<String>,
}

impl Config {
    /// Certificates that are configured: the key, the file, and the name by which peers know the host.
    pub fn certificates(&self) -> impl Iterator<Item = (&'static str, &Path, Option<&str>)> {
        let sip = self.sip.public_host.as_ref();
        let sip = sip.filter(|host| host.ip().is_none());
        let http = self.http.public_url.as_deref().and_then(named_host);

        let files = [
            (
                "sip.tls_certificate",
                &self.sip.tls_certificate,
                sip.map(|host| host.host()),
            ),
            ("http.tls_certificate", &self.http.tls, http),
        ];
        let files = files.into_iter();
        files.filter_map(|(key, files, host)| Some((key, &*files.as_ref()?.0, host)))
    }

    /// Reads the sources; later ones override earlier ones key by key.
    ///
    /// # Errors
    /// All faults of all sections.
    pub fn load(sources: &Sources) -> Result<Self, ConfigFaults> {
        let (merged, mut faults) = Merged::new(sources);
        let config = Self::read(&merged, &mut faults);
        if faults.is_empty() {
            Ok(config)
        } else {
            Err(ConfigFaults {
                faults,
                removed: config.removed,
            })
        }
    }

    fn read(merged: &Merged, faults: &mut Vec<ConfigFault>) -> Self {
        let mut root = merged.values();
        let removed = removed::take(&mut root, merged);
        let mut sections = SECTIONS.map(|name| Section::take(name, &mut root, merged));
        let mut top = Section::top(root, merged);
        top.know(&SECTIONS);

        let data_dir = PathBuf::from(
            top.text("data_dir")
                .unwrap_or_else(|| "trunkline-data".to_owned()),
        );

        let [
            database,
            secrets,
            http,
            sip,
            media,
            speech,
            phone,
            audit,
            events,
            webhooks,
            integrations,
            limits,
            retention,
            traces,
            log,
        ] = &mut sections;

        let sip = Sip::read(sip);
        let config = Self {
            database: Database::read(database, &data_dir),
            secrets: Secrets::read(secrets),
            http: Http::read(http),
            media: Media::read(media),
            speech: Speech::read(speech),
            phone: Phone::read(phone),
            audit: Audit::read(audit),
            events: Events::read(events),
            webhooks: Webhooks::read(webhooks),
            integrations: IntegrationsConfig::read(integrations),
            limits: Limits::read(limits),
            retention: Retention::read(retention),
            traces: TracesConfig::read(traces, &data_dir),
            log: Log::read(log),
            sip,
            data_dir,
            removed,
            quickstart_keys: merged.set_by_base("sip"),
        };

        // A key that was given and refused has its fault already.
        if matches!(config.database.url, DatabaseUrl::Postgres(_))
            && config.secrets.master_key.is_none()
            && secrets.faults.is_empty()
        {
            secrets.refuse_key("master_key", "PostgreSQL needs one, so that all nodes accept the same tokens; `openssl rand -hex 32` makes a good one");
        }

        faults.extend(
            std::iter::once(top)
                .chain(sections)
                .flat_map(Section::finish),
        );
        config
    }
}

/// Host in a URL, unless it is an address.
fn named_host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    // An IPv6 address is in brackets.
    let host = authority.split(':').next()?;
    let is_address = host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    (!is_address).then_some(host)
}
