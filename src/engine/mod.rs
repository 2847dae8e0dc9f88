//! The shell around the core: shards, their clocks and inboxes, and the way from a message to its shard.
//!
//! Here the core meets sockets, time and the store; what a message means is decided in `calls` and in the
//! endpoint.

mod bound;
mod challenges;
pub mod clock;
mod contacts;
mod deletion;
mod deps;
mod handle;
mod inbox;
mod kept_registrations;
mod lanes;
mod lease;
pub(crate) mod local;
mod log_ins;
mod media_addresses;
mod named_peers;
mod observe;
mod outside;
mod pace;
mod peers;
mod recording;
mod registrations;
pub mod rehearsal;
mod resolve;
mod sending;
mod settings;
mod shard;
pub mod skew;
mod spans;
mod strays;
mod stream_opener;
mod told;
mod unsynced;
mod upkeep;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use trunkline_calls::ProvenSources;
use trunkline_calls::caps::Caps;
use trunkline_calls::limits::Limits;
use trunkline_calls::live::LiveCalls;
use trunkline_calls::registrar::bindings::Bindings;
use trunkline_calls::registrar::{self, Registrar};
use trunkline_calls::{Calls, Core, Reason};
use trunkline_sip::auth::{NonceWindow, Nonces};
use trunkline_sip::endpoint::{self, Endpoint};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::slot::{Minter, Node};
use trunkline_store::Store;

pub use bound::{Bound, Listening};
pub use deletion::Deletion;
pub use deps::Deps;
pub use handle::Handle;
pub use recording::{Recording, RecordingFault};

use trunkline_net::listener::Lost;
use trunkline_net::listener::connections::Connections;
use trunkline_net::listener::tcp;
use trunkline_net::listener::udp::{Batch, UdpSocket};
use trunkline_net::media::{self, EchoMedia};

use crate::config::Config;
use crate::traces::{Tap, Traces};

use bound::Sorted;
use contacts::Contacts;
use inbox::{Arrived, Inbox, Input, Outlet, Switch};
use kept_registrations::Keeper;
use lanes::Lanes;
pub(crate) use media_addresses::MediaAddresses;
pub(crate) use named_peers::refused as refused_peers;
use observe::Observer;
use outside::Outside;
use pace::Pace;
use peers::Watched;
pub(crate) use resolve::Resolver;
use settings::{
    bounds, calls_config, collector, disk, minter, nonce_keys, registrar_config, sent_by,
};
pub(crate) use settings::{configured_policy, session_tokens};
use shard::Shard;
use spans::Spans;
use stream_opener::StreamOpener;
use told::Told;
use unsynced::Unsynced;

/// Nonces that are remembered as used; beyond, the oldest go first.
const NONCES: usize = 1_000_000;
/// How often is looked whether all registrations are taken back.
const LEAVING_LOOK: Duration = Duration::from_millis(20);
/// How long the echo agent hears nothing before it hangs up.
const SILENCE: Duration = Duration::from_secs(60);
/// The running shards.
#[derive(Debug)]
pub struct Engine {
    handle: Handle,
    threads: Vec<std::thread::JoinHandle<()>>,
    _streams: tcp::TcpListeners,
}

impl Engine {
    /// Starts the shards on sockets that are bound already.
    ///
    /// # Errors
    /// The machine refuses sockets, ports for media, or threads.
    pub fn start(deps: Deps, bound: Vec<Bound>) -> io::Result<Self> {
        let bound = Sorted::new(bound, deps.config.sip.shards);
        let config = &deps.config;
        let node = Node(deps.node);
        let minter = minter(&deps.store, deps.node);
        let shards = bound.udp.len();
        let (inboxes, outlets): (Vec<Inbox>, Vec<Outlet>) =
            (0..shards).map(|_| Inbox::new()).unzip();
        let switch = Switch::new(minter.clone(), inboxes);
        let limits = Limits::with_setups(config.limits.max_calls, config.limits.setups_per_caller);
        let caps = Caps::new(bounds(config));
        caps.seed(deps.begun.iter().copied());
        let listeners = bound.addresses.iter().copied().chain([deps.http]).collect();
        let media = start_media(config, &deps.media_addresses, listeners, &switch)?;
        let (streams, connections) = start_streams(&deps, &switch, bound.streams)?;
        let told = Told::start(deps.store.clone(), &deps.runtime);
        let traces = Traces::new(shards, disk(config), collector(config), clock::wall_time)?;
        let outside = Outside {
            beginnings: traces.beginnings().cloned(),
            spans: config
                .traces
                .otlp
                .as_deref()
                .map(|collector| Spans::start(collector, &deps.runtime)),
            inbox: switch.shards()[0].clone(),
            journal: deps.journal.clone(),
            contacts: Contacts::start(deps.store.clone(), &deps.runtime),
            resolver: Resolver::new(&config.sip.nameservers),
            streams: StreamOpener::new(connections.clone()),
            media,
            auth_failures: log_ins::start(
                deps.store.clone(),
                Arc::clone(&deps.directory),
                &deps.runtime,
            ),
            challenges: challenges::start(deps.store.clone(), &deps.runtime),
            told: told.clone(),
            runtime: deps.runtime.clone(),
            media_addresses: Arc::clone(&deps.media_addresses),
            facts: Vec::new(),
            promised: Vec::new(),
            unsynced: Unsynced::default(),
            ended: Vec::new(),
            unprojected: VecDeque::new(),
            projected: deps.journal.projected(),
            live: Arc::clone(&deps.live),
            shard: 0,
        };
        let window = Arc::new(NonceWindow::new(config.sip.nonce_lifetime, NONCES));
        deps.runtime.spawn(upkeep::follow_the_wall());
        deps.runtime.spawn(upkeep::sweep(
            Arc::downgrade(&window),
            Arc::downgrade(&deps.live),
            deps.store.clone(),
        ));
        let bindings = Bindings::new();
        deps.runtime.spawn(registrations::sweep(
            Arc::downgrade(&bindings),
            told,
            (switch.shards()[0].clone(), config.sip.keep_alive),
        ));
        let keeper = Keeper::new(
            &bindings,
            &deps.directory,
            deps.store.clone(),
            (deps.node, config.sip.node_lease),
            deps.lapses.clone(),
        );
        deps.runtime.spawn(keeper.run());
        let calls = calls_config(
            config,
            deps.store.keyring(),
            deps.node,
            &bound.addresses,
            deps.http,
        );
        let addresses = Arc::clone(&calls.addresses);
        deps.runtime.spawn(named_peers::report(
            deps.store.clone(),
            outside.resolver.clone(),
            Arc::clone(&addresses),
        ));
        let nonces = Arc::new(Nonces::new(
            nonce_keys(&deps.store),
            config.sip.nonce_lifetime,
        ));
        let watched = Watched::start(
            &deps,
            &calls,
            &nonces,
            (outside.resolver.clone(), switch.shards()[0].clone()),
        );
        let shared = Shared {
            watched: watched.clone(),
            traces: Arc::clone(&traces),
            bindings: Arc::clone(&bindings),
            registrar: Arc::new(registrar_config(config)),
            calls: Arc::new(calls),
            nonces,
            window,
            sent_by: sent_by(config, &bound.addresses),
            minter,
            switch: switch.clone(),
            limits: Arc::clone(&limits),
            caps: Arc::clone(&caps),
            proven: Arc::default(),
            connections,
            outside,
            deps,
        };
        let journal = shared.outside.journal.condition();
        let mut threads = Vec::with_capacity(shards);
        for (index, (sockets, outlet)) in bound.udp.into_iter().zip(outlets).enumerate() {
            threads.push(shared.spawn(index, sockets, outlet)?);
        }
        Ok(Self {
            handle: Handle {
                switch,
                limits,
                bindings,
                caps,
                health: watched.health,
                standings: watched.standings,
                addresses,
                node,
                traces,
                journal,
            },
            threads,
            _streams: streams,
        })
    }

    /// The way in for whoever asks from outside.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// How many calls are up.
    pub fn calls(&self) -> usize {
        self.handle.limits.calls()
    }

    /// From now on new calls and OPTIONS get 503.
    pub async fn drain(&self) {
        for inbox in self.handle.switch.shards() {
            inbox.send(Input::Drain).await;
        }
    }

    /// Ends every call.
    pub async fn hang_up_all(&self) {
        for inbox in self.handle.switch.shards() {
            inbox.send(Input::HangUpAll(Reason::Draining)).await;
        }
    }

    /// Waits until no carrier has us registered any more; after [`Self::drain`].
    pub async fn left(&self) {
        while self.handle.standings.held() > 0 {
            tokio::time::sleep(LEAVING_LOOK).await;
        }
    }

    /// Stops the shards and waits for their threads.
    pub async fn stop(self) {
        for inbox in self.handle.switch.shards() {
            inbox.send(Input::Stop).await;
        }
        let traces = self.handle.traces;
        let joined = tokio::task::spawn_blocking(move || {
            for thread in self.threads {
                if thread.join().is_err() {
                    tracing::error!("a shard's thread had panicked");
                }
            }
            traces.finish();
        });
        if joined.await.is_err() {
            tracing::error!("the shards could not be waited for");
        }
    }
}

/// What each shard gets a share of.
struct Shared {
    traces: Arc<Traces>,
    deps: Deps,
    calls: Arc<trunkline_calls::Config>,
    registrar: Arc<registrar::Config>,
    bindings: Arc<Bindings>,
    watched: Watched,
    nonces: Arc<Nonces>,
    window: Arc<NonceWindow>,
    sent_by: Vec<String>,
    minter: Minter,
    switch: Switch,
    limits: Arc<Limits>,
    caps: Arc<Caps>,
    proven: Arc<ProvenSources>,
    connections: Connections,
    outside: Outside,
}

impl Shared {
    fn spawn(
        &self,
        index: usize,
        sockets: Vec<(u16, std::net::UdpSocket)>,
        outlet: Outlet,
    ) -> io::Result<std::thread::JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let sockets = {
            let _inside = runtime.enter();
            let adopt = |(listener, socket)| UdpSocket::new(socket, listener);
            sockets
                .into_iter()
                .map(adopt)
                .collect::<io::Result<Vec<_>>>()?
        };
        let shard = self.shard(index, sockets);
        std::thread::Builder::new()
            .name(format!("shard-{index}"))
            .spawn(move || runtime.block_on(shard.run(outlet)))
    }

    fn shard(&self, index: usize, sockets: Vec<UdpSocket>) -> Shard {
        let now = clock::now();
        let sip = &self.deps.config.sip;
        let endpoint = Endpoint::new(
            endpoint::Config {
                minter: self.minter.clone(),
                t1: sip.t1,
                t2: sip.t2,
                t4: sip.t4,
                server: concat!("Trunkline/", env!("CARGO_PKG_VERSION")).into(),
                sent_by: self.sent_by.clone(),
                max_transactions: (self.deps.config.limits.max_transactions / sip.shards).max(1),
            },
            Entropy::from_seed(rand::random()),
        );
        let core = Core::new(
            Arc::clone(&self.calls),
            self.minter.clone(),
            (Arc::clone(&self.nonces), Arc::clone(&self.window)),
            (Arc::clone(&self.limits), Arc::clone(&self.caps)),
            Arc::clone(&self.deps.live),
            now,
        )
        .reaching(
            Arc::clone(self.deps.security.names()),
            Arc::clone(&self.bindings),
        )
        .watched_by(Arc::clone(&self.watched.health))
        .believing(Arc::clone(&self.proven));
        let mut outside = self.outside.share();
        outside.inbox = self.switch.shards()[index].clone();
        outside.shard = index;
        let (mut syncs, inbox) = (outside.journal.syncs(), outside.inbox.clone());
        self.deps.runtime.spawn(async move {
            while let Some(position) = syncs.next().await {
                if !inbox.send(Input::Synced(position)).await {
                    return;
                }
            }
        });
        Shard {
            index,
            tap: if self.deps.config.traces.enabled {
                self.traces.tap(index)
            } else {
                Tap::closed()
            },
            sockets,
            connections: self.connections.clone(),
            endpoint,
            calls: Calls::new(core),
            registrar: Registrar::new(
                Arc::clone(&self.registrar),
                (Arc::clone(&self.nonces), Arc::clone(&self.window)),
                Arc::clone(&self.bindings),
            ),
            peers: self.watched.peers(
                Arc::clone(self.deps.security.names()),
                Arc::clone(&self.bindings),
                now,
            ),
            directory: Arc::clone(&self.deps.directory),
            switch: self.switch.clone(),
            outside,
            observer: Observer::new(index, now),
            lanes: Lanes::default(),
            pace: Pace::new(clock::now()),
            pressed: false,
            sheds_left: 0,
            batch: Batch::new(),
            lost: Vec::new(),
            foreign: self.switch.shards().iter().map(|_| Vec::new()).collect(),
        }
    }
}

fn start_media(
    config: &Config,
    addresses: &MediaAddresses,
    listeners: Vec<std::net::SocketAddr>,
    switch: &Switch,
) -> io::Result<EchoMedia> {
    let settings = media::Settings {
        ports: config.media.rtp_ports.clone(),
        ips: addresses.to_try(),
        own: local::addresses(),
        listeners,
        silence: SILENCE,
        workers: 1,
    };
    let switch = switch.clone();
    EchoMedia::new(
        &settings,
        Entropy::from_seed(rand::random()),
        clock::now,
        move |key, news| {
            let (shard, call) = outside::call_of_media(key);
            if let Some(inbox) = switch.shards().get(shard) {
                inbox.offer(match news {
                    media::News::Silent => Input::EchoSilent(call),
                    media::News::Digit(digit) => Input::EchoDigit(call, digit),
                    media::News::Spoken => Input::Spoken(call),
                });
            }
        },
    )
}

fn start_streams(
    deps: &Deps,
    switch: &Switch,
    listeners: Vec<(u16, Transport, std::net::TcpListener)>,
) -> io::Result<(tcp::TcpListeners, Connections)> {
    let settings = tcp::Settings {
        accepted: deps.config.limits.max_connections,
        accepted_per_source: deps.config.limits.max_connections_per_source,
        ..tcp::Settings::default()
    };
    let _inside = deps.runtime.enter();
    let settings = (settings, Arc::clone(&deps.security));
    tcp::TcpListeners::start(listeners, settings, Streams(switch.clone()), clock::now)
}

/// What the streams bring goes to the shard of its slot.
#[derive(Clone, Debug)]
struct Streams(Switch);

impl tcp::Sink for Streams {
    async fn deliver(&self, received: tcp::Received) {
        let tcp::Received {
            flow,
            octets,
            received_at,
        } = received;
        let inbox = self.0.inbox_for(&octets);
        inbox
            .send(Input::Messages(vec![Arrived {
                flow,
                octets: Vec::from(octets).into(),
                received_at,
            }]))
            .await;
    }

    async fn closing(&self, flow: Flow) {
        for inbox in self.0.shards() {
            inbox.send(Input::Closing(flow)).await;
        }
    }

    async fn lost(&self, lost: Lost) {
        for inbox in self.0.shards() {
            inbox.send(Input::Lost(lost.clone())).await;
        }
    }
}
