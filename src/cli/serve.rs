//! `trunkline serve`: the daemon. Binds its addresses, opens the store, starts the engine and the API, and drains on
//! SIGTERM.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use trunkline_calls::core::live::LiveCalls;
use trunkline_net::listener::tls::Security;
use trunkline_net::tls::Certificate;
use trunkline_store::priority::{API_AND_TRACES, give_way};
use trunkline_store::{Store, private};

use super::descriptors::DescriptorShares;
use super::output::or_dash;
use super::sockets::Sockets;
use super::upkeep::Upkeep;
use super::{Failure, descriptors, now, open_settings, startup, supervisor};
use crate::api::{Api, ControlServer, HealthServer, Server};
use crate::config::Config;
use crate::directory::Directory;
use crate::engine::{
    Deletion, Engine, EngineDeps, ErasureTask, MediaAddresses, Recording, ReservedNames, Resolver,
    clock,
};
use crate::telemetry::metrics;
use crate::webhooks::WebhookSender;
use crate::{api, console, jobs, memory, telemetry};

/// Interval between checks of a draining node whether its calls are over.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time for the last calls to end after they were hung up.
const BYE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for other nodes to register our trunks: longer than the engine waits for them.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for carriers to confirm that our registrations are withdrawn.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves SIP and HTTP until SIGTERM or SIGINT.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline serve\n  trunkline --config /etc/trunkline.toml serve\n  TRUNKLINE__SIP__UDP=127.0.0.1:5070 trunkline serve"
)]
pub(super) struct Command {}

impl Command {
    pub(super) fn run(self, config: &Config) -> Result<(), Failure> {
        run(config, async |_, _, _, _| Ok(()))
    }
}

/// Public addresses, known once the sockets are bound.
#[derive(Clone, Debug)]
pub(super) struct PublicAddresses {
    /// Base URL of the API.
    pub(super) http: String,
    /// Base URL of the dashboard.
    pub(super) dashboard: String,
    /// Host and port of each SIP listener, in order.
    pub(super) sip: Vec<String>,
}

/// Runs the daemon to its end. `ready` is called once everything answers; if it fails, the daemon ends without draining.
pub(super) fn run(
    config: &Config,
    ready: impl AsyncFnOnce(&Store, &Directory, &Api, &PublicAddresses) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let _log = telemetry::start_logging(&config.log);
    for removed in &config.removed {
        tracing::warn!("{removed}");
    }
    // Before the store is opened: its keys must not get into a core dump, and new files must be private.
    private::process();
    let descriptors = descriptors::raise(config);

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_start(|| give_way(API_AND_TRACES))
        // Idle threads return their empty pages. They keep no buffers of their own that could be dropped as well.
        .on_thread_park(|| memory::follow(|| ()))
        .build()
        .map_err(|error| {
            Failure::Startup(format!(
                "can't start threads ({error}): raise the system's limits"
            ))
        })?;
    runtime.block_on(serve(config, descriptors, ready))
}

async fn serve(
    config: &Config,
    descriptors: DescriptorShares,
    ready: impl AsyncFnOnce(&Store, &Directory, &Api, &PublicAddresses) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let broken = |error: std::io::Error| {
        Failure::Startup(format!(
            "can't use signals or sockets ({error}): raise the system's limits"
        ))
    };
    // Listening replaces the default actions, which would end the process halfway through its start. A signal that
    // comes meanwhile is kept until `next`, or for SIGHUP until `reload`.
    let mut ends = EndSignals::listen().map_err(broken)?;
    let hangups = signal(SignalKind::hangup()).map_err(broken)?;

    // Before anything is opened: a start that fails for one of these files leaves the disk as it was.
    let certificate = startup::certificate(config)?;
    let security = startup::security(config)?;
    let receivers = startup::receivers(config)?;
    startup::traces(config)?;
    startup::journal(config)?;

    // Before the ports are bound: while the database is away, peers and load balancers find this node closed instead of
    // silent.
    if !startup::reach_database(config, ends.next()).await? {
        return Ok(());
    }

    // Before the store is opened: a start that fails for a taken port must not have migrated the database.
    let sockets = Sockets::bind(config)?;
    let media_addresses = MediaAddresses::find(config).await;
    let media_addresses =
        Arc::new(media_addresses.map_err(|fault| Failure::Startup(fault.to_string()))?);
    let resolver = Resolver::new(&config.sip.nameservers);
    let reserved_names = ReservedNames::find(config, &resolver).await;
    let reachable = PublicAddresses::new(config, &sockets).map_err(broken)?;

    startup::check_pages(config).await?;
    let store = startup::open_store(config).await?;
    let config = &startup::with_kept_realm(config, &store).await?;
    startup::seal_headers(&store).await?;
    let handle = metrics::install();
    store.measure(clock::now);
    let live = LiveCalls::on(clock::wall());
    let sip = &config.sip;
    let recording = Recording::begin(
        &store,
        &config.data_dir,
        live.clone(),
        sip.node,
        sip.node_lease,
    );
    let recording = recording
        .await
        .map_err(|fault| Failure::Startup(fault.to_string()))?;
    let directory = startup::open_directory(config, &store).await?;
    let begun = startup::begun(&store).await?;

    let config = Arc::new(config.clone());
    let speech = startup::speech(&config, &receivers)?;
    let deps = EngineDeps {
        config: Arc::clone(&config),
        reserved_names,
        media_addresses: Arc::clone(&media_addresses),
        http: sockets.http.local_addr().map_err(broken)?,
        store: store.clone(),
        directory: Arc::clone(&directory),
        journal: recording.journal.clone(),
        live: live.clone(),
        speech,
        security: Arc::clone(&security),
        descriptors: descriptors.of_calls,
        node: recording.run.node,
        lapses: recording.lapses(),
        begun,
        runtime: tokio::runtime::Handle::current(),
    };

    let engine = Engine::start(deps, sockets.sip).map_err(no_ports)?;
    let api = Api::new(api::ApiDeps {
        config: Arc::clone(&config),
        store: store.clone(),
        directory: Arc::clone(&directory),
        live: live.clone(),
        engine: Some(engine.handle()),
        metrics: handle.clone(),
        base_url: reachable.http.clone(),
        dashboard_url: reachable.dashboard.clone(),
        sip_addresses: reachable.sip.clone(),
        clock: now,
        monotonic: clock::now,
    });

    // Before the servers that answer /readyz: once they do, commands on this machine look for the control socket.
    let control = control_server(&api, &config);
    let http = tokio::net::TcpListener::from_std(sockets.http).map_err(broken)?;
    let router = console::router(api.clone());
    let server = Server::start(
        api.clone(),
        router,
        http,
        certificate.as_ref(),
        descriptors.http,
    );
    let health = sockets.health.map(tokio::net::TcpListener::from_std);
    let health = health.transpose().map_err(broken)?;
    let health = health.map(|listener| HealthServer::start(api.clone(), listener));

    let upkeep = Upkeep {
        handle,
        store: store.clone(),
        directory: Arc::clone(&directory),
        certificate: certificate.clone(),
        security: Arc::clone(&security),
    };
    let upkeep = jobs::GAUGES.spawn(&tokio::runtime::Handle::current(), upkeep.run());
    let reloading = tokio::spawn(reload(certificate, security, hangups));

    let (sending, node) = (&config.webhooks, recording.run.node);
    let sender = WebhookSender::new(store.clone(), sending, receivers, node, now).start();
    let retention = api::default_retention(&config);
    let deletion = Deletion::start(store.clone(), live.clone(), engine.handle(), retention);
    let erasing = ErasureTask::start(store.clone(), engine.handle(), recording.journal.clone());

    let watched = tokio::spawn(supervisor::watch(engine.handle()));
    metrics::ready(true);
    announce(&config, &reachable, &media_addresses);
    warn(&config, &directory);

    let outcome = match ready(&store, &directory, &api, &reachable).await {
        Ok(()) => {
            supervisor::ready();
            ends.next().await;
            supervisor::stopping();
            api.drain();
            leave(&engine, &recording, config.limits.drain_timeout, &mut ends).await;
            Ok(())
        }
        Err(failure) => Err(failure),
    };

    upkeep.abort();
    // `Recording::end` waits until nothing else can write to the journal: the erasure and the shards have their own
    // handles.
    drop((deletion, erasing));
    reloading.abort();
    watched.abort();
    // The servers end before the shards that their requests ask.
    server.stop().await;
    if let Some(control) = control {
        control.stop().await;
    }
    if let Some(health) = health {
        health.stop().await;
    }
    engine.stop().await;
    // The last calls' ends become rows, and the rows events of webhooks. So the sender and the store end after the recording.
    recording.end(ends.next()).await;
    sender.stop().await;
    store.close().await;
    tracing::info!("ended");

    outcome
}

/// Opens the control socket. Calls matter more than commands: the daemon serves without it too.
fn control_server(api: &Api, config: &Config) -> Option<ControlServer> {
    match ControlServer::start(console::operator_router(api.clone()), &config.data_dir) {
        Ok(server) => Some(server),
        Err(error) => {
            tracing::warn!(%error, "the control socket can't be opened: commands on this machine work on the database, without this daemon");
            None
        }
    }
}

fn no_ports(error: impl std::fmt::Display) -> Failure {
    Failure::Startup(format!(
        "can't open media ports or start threads ({error}): set media.rtp_ports to a free range, or raise the system's limits"
    ))
}

/// Logs the addresses of the node.
fn announce(config: &Config, reachable: &PublicAddresses, media_addresses: &MediaAddresses) {
    for (at, (listener, advertised)) in config.sip.listeners.iter().zip(&reachable.sip).enumerate()
    {
        let media = media_addresses.advertised(at);
        let media = media.map(tracing::field::display);
        tracing::info!(transport = %listener.transport, address = %listener.address, advertised, media, "SIP listener");
        if let Some(unused) = config.sip.unused_host(listener) {
            tracing::warn!(
                transport = %listener.transport,
                address = %listener.address,
                key = unused.key,
                host = %unused.host,
                "the host isn't used for this listener, since it is an address of the other IP version: give the listener one of its own, or name both by a host name"
            );
        }
    }
    tracing::info!(http = reachable.http, database = ?config.database.url, version = env!("CARGO_PKG_VERSION"), "ready");
}

/// Logs settings that leave something open, or keep something from working.
fn warn(config: &Config, directory: &Directory) {
    for finding in open_settings::examine(config, directory.load().orgs.len()) {
        tracing::warn!(fix = finding.fix, "{}", finding.text);
    }
}

/// Lets calls end within `timeout`, hangs up the rest, and waits until peers have answered. A silent peer is waited for for
/// [`BYE_TIMEOUT`], other nodes for [`HANDOVER_TIMEOUT`], a silent carrier for [`UNREGISTER_TIMEOUT`].
async fn leave(engine: &Engine, recording: &Recording, timeout: Duration, ends: &mut EndSignals) {
    // First: while calls are waited for, none may begin.
    engine.drain().await;
    // If the database is away, a second signal must still end the wait.
    tokio::join!(recording.drain(), drain(engine, timeout, ends));
    engine.hang_up_all().await;
    tokio::time::timeout(BYE_TIMEOUT, emptied(engine))
        .await
        .ok();
    // Handing the registrations over began with draining.
    tokio::select! {
        _ = tokio::time::timeout(HANDOVER_TIMEOUT, engine.handed_over()) => {}
        () = ends.next() => {}
    }
    tokio::time::timeout(UNREGISTER_TIMEOUT, engine.unregistered())
        .await
        .ok();
}

/// Reads the certificates of SIP and of HTTP again on SIGHUP. In place of one that can't be used, the old one stays.
async fn reload(
    certificate: Option<Arc<Certificate>>,
    security: Arc<Security>,
    mut hangups: Signal,
) {
    while hangups.recv().await.is_some() {
        supervisor::reloading();
        match security.reload() {
            Ok(()) => tracing::info!("SIP's certificates read again"),
            Err(error) => {
                tracing::error!(%error, "SIP's new certificates can't be used: the old ones stay")
            }
        }

        match certificate.as_ref().map(|https| (https, https.reload())) {
            None => tracing::info!("SIGHUP: HTTP has no certificate"),
            Some((https, Ok(()))) => {
                tracing::info!(chain = %https.files().chain.display(), "certificate read again")
            }
            Some((_, Err(error))) => {
                tracing::error!(%error, "the new certificate can't be used: the old one stays")
            }
        }
        supervisor::ready();
    }
}

/// Waits until no call is up, the deadline has passed, or a second signal arrives.
async fn drain(engine: &Engine, deadline: Duration, ends: &mut EndSignals) {
    tracing::info!(
        calls = engine.calls(),
        deadline_s = deadline.as_secs(),
        "draining: new calls are refused; a second signal ends at once"
    );
    tokio::select! {
        () = emptied(engine) => {}
        () = tokio::time::sleep(deadline) => tracing::warn!(calls = engine.calls(), "the drain deadline has passed"),
        () = ends.next() => tracing::warn!(calls = engine.calls(), "ended without waiting for calls"),
    }
}

/// Waits until no call is up.
async fn emptied(engine: &Engine) {
    while engine.calls() > 0 {
        tokio::time::sleep(DRAIN_CHECK_INTERVAL).await;
    }
}

/// Signals that end the daemon.
struct EndSignals {
    term: Signal,
    int: Signal,
}

impl EndSignals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

impl PublicAddresses {
    fn new(config: &Config, sockets: &Sockets) -> std::io::Result<Self> {
        let bound = sockets.http.local_addr()?;
        let http = config.http.base_url(bound);
        let dashboard = config.http.dashboard_url(bound);
        let sip = config
            .sip
            .listeners
            .iter()
            .zip(&sockets.sip)
            .map(|(listener, bound)| config.sip.advertised(listener, bound.address))
            .collect();
        Ok(Self {
            http,
            dashboard,
            sip,
        })
    }

    /// Addresses by the configuration, without sockets.
    pub(super) fn configured(config: &Config) -> Self {
        let sip = config
            .sip
            .listeners
            .iter()
            .map(|listener| config.sip.advertised(listener, listener.address))
            .collect();
        Self {
            http: config.http.base_url(config.http.listen),
            dashboard: config.http.dashboard_url(config.http.listen),
            sip,
        }
    }

    /// Address to which a caller sends its INVITE.
    pub(super) fn first_sip(&self) -> String {
        or_dash(self.sip.first())
    }
}
