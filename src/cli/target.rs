//! Installation and org that a command works on: by its options, or else the installation of this machine.

use axum::http::Uri;
use tokio::net::UnixStream;
use uuid::Uuid;

use super::Failure;
use super::credential::{Credential, Holder, Origin};
use super::names::{self, List};
use super::session::{Intent, Session};
use super::sockets::near;
use crate::api;
use crate::config::Config;

/// Options that choose the installation and the org.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct Target {
    /// Address of an API; without it, the installation of this machine.
    #[arg(long, value_name = "URL", env = "TRUNKLINE_URL")]
    url: Option<String>,
    /// API key of the org. Prefer the environment variable: `ps` shows arguments.
    #[arg(
        long,
        value_name = "KEY",
        env = "TRUNKLINE_API_KEY",
        hide_env_values = true
    )]
    key: Option<String>,
    /// The org's id or name, or else TRUNKLINE_ORG; not needed if there is only one. An org's key has
    /// its own org, and with it any other is refused.
    #[arg(long)]
    org: Option<String>,
}

/// Variable with the org of commands that don't name one.
const ORG: &str = "TRUNKLINE_ORG";

impl Target {
    /// Connects, and finds the org.
    ///
    /// # Errors
    /// The URL, the key or the org is wrong, or there is no installation.
    pub(super) async fn open(&self, config: &Config, intent: Intent) -> Result<Session, Failure> {
        let mut session = self.open_without_org(config, intent).await?;
        match (session.holder(), &self.org) {
            (Some(Holder::Org(Some(own))), Some(named)) => {
                must_be_of_key(config, named, own).await?;
            }
            // TRUNKLINE_ORG is for this machine's installation: it doesn't concern the org of a key.
            (Some(Holder::Org(_)), _) => {}
            (Some(Holder::Partner) | None, _) => {
                let org = find_org(&session, self.org().as_deref()).await?;
                session.choose(org);
            }
        }
        Ok(session)
    }

    /// Org as given on the command line or by the environment.
    pub(super) fn org(&self) -> Option<String> {
        let of_environment = || std::env::var(ORG).ok().filter(|org| !org.is_empty());
        self.org.clone().or_else(of_environment)
    }

    /// Connects, for a command that concerns no org, or names it otherwise.
    ///
    /// # Errors
    /// The URL or the key is wrong, or there is no installation.
    pub(super) async fn open_without_org(
        &self,
        config: &Config,
        intent: Intent,
    ) -> Result<Session, Failure> {
        if self.url.is_some() || self.key.is_some() {
            let key = self.key.as_deref().ok_or_else(|| {
                Failure::Startup("--url needs a key: set TRUNKLINE_API_KEY".to_owned())
            })?;
            let base = match &self.url {
                Some(url) => base_url(url)?,
                None => own_url(config),
            };
            let origin = Origin::of(key, self.url.is_some());
            return Ok(Session::at(base, Credential::new(key, origin)?));
        }

        let socket = config.data_dir.join(api::SOCKET);
        // Only to see that a daemon listens: every request opens a connection of its own.
        match UnixStream::connect(&socket).await {
            Ok(_) => Ok(Session::over_socket(socket)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(Failure::Startup(format!(
                    "{} belongs to another user: run the command as the user of the daemon (sudo -u trunkline …), or with a key",
                    socket.display()
                )))
            }
            // No file, or one that a killed daemon has left: no daemon runs.
            Err(_) => Session::in_process(config, intent).await,
        }
    }
}

/// Checks the address of an API, and drops a trailing slash.
fn base_url(given: &str) -> Result<String, Failure> {
    let base = given.trim_end_matches('/');
    let is_http = ["http://", "https://"]
        .iter()
        .any(|scheme| base.starts_with(scheme));
    if !is_http || base.parse::<Uri>().is_err() {
        return Err(Failure::Startup(format!(
            "--url: {base:?} is not the address of an API: try http://127.0.0.1:8080"
        )));
    }
    Ok(base.to_owned())
}

/// Returns the address of the daemon with this configuration: its public URL, or the way to it on this machine.
fn own_url(config: &Config) -> String {
    let http = &config.http;
    match (&http.public_url, &http.tls) {
        // The certificate proves the public name, not this machine's address.
        (Some(public), Some(_)) => public.to_string(),
        (_, Some(_)) => format!("https://{}", near(http.listen)),
        (_, None) => format!("http://{}", near(http.listen)),
    }
}

/// Checks that an org which was named beside an org's key is the key's. The API tells no org its name, so a name is known only where the daemon of
/// this machine has that org.
///
/// # Errors
/// The org is another one, or can't be compared with the key's.
async fn must_be_of_key(config: &Config, named: &str, own: Uuid) -> Result<(), Failure> {
    let id = own.to_string();
    if names::is_short_for(named, &id) || named_here(config, named).await == Some(own) {
        return Ok(());
    }
    Err(Failure::Startup(format!(
        "--org {named:?} is not known to be the org of the key, which is {id}: leave --org out, give that id, or use a key of the other org"
    )))
}

/// Returns the org of this name on this machine's daemon, if one runs.
async fn named_here(config: &Config, named: &str) -> Option<Uuid> {
    let socket = config.data_dir.join(api::SOCKET);
    UnixStream::connect(&socket).await.ok()?;
    let session = Session::over_socket(socket);
    let id = names::find(&session, &List::orgs(), named).await;
    api::id_of(&id.ok()?).ok()
}

/// Finds the org by its name or a part of its id, or the only one.
async fn find_org(session: &Session, named: Option<&str>) -> Result<Uuid, Failure> {
    let no_id = || Failure::Command("the API shows an org without an id".to_owned());
    let orgs = List::orgs();
    if let Some(named) = named {
        let id = names::find(session, &orgs, named).await?;
        return api::id_of(&id).map_err(|_| no_id());
    }

    // Two are enough to see that there is more than one.
    let found = names::read(session, &orgs, &[], 2).await?;
    match found.as_slice() {
        [only] => only["id"]
            .as_str()
            .and_then(|id| api::id_of(id).ok())
            .ok_or_else(no_id),
        [] => Err(Failure::Command(
            "there is no org yet: trunkline org create --name NAME creates one".to_owned(),
        )),
        _ => Err(Failure::Command(
            "there are several orgs: name one by --org or TRUNKLINE_ORG (trunkline org list)"
                .to_owned(),
        )),
    }
}
