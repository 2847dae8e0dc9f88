//! Starts the engine: makes what all shards share, then each shard with its part and its thread.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use trunkline_bounds::Shares;
use trunkline_calls as calls;
use trunkline_calls::limits::Limits;
use trunkline_calls::limits::outbound_limits::OutboundLimits;
use trunkline_calls::registrar::Registrar;
use trunkline_calls::registrar::bindings::Bindings;
use trunkline_calls::{CallKey, Calls, Core, ProvenSources, registrar};
use trunkline_net::listener::connections::Connections;
use trunkline_net::listener::udp::{Batch, UdpSocket};
use trunkline_net::listener::{Lost, tcp};
use trunkline_net::media;
use trunkline_net::media::Media;
use trunkline_sip::auth::{NonceWindow, Nonces};
use trunkline_sip::endpoint;
use trunkline_sip::endpoint::{Endpoint, SentBy};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::slot::{Minter, Node};

use super::bots::BotDialler;
use super::browser::{BrowserLine, Wires};
use super::contacts::Contacts;
use super::effect_runner::EffectRunner;
use super::event_sink::EventSink;
use super::inbox::{ForwardedMessage, Inbox, InboxReceiver, Input, ShardRouter};
use super::invite_queue::InviteQueue;
use super::listener_sockets::{BoundListener, SortedSockets};
use super::member_invite::AwaitedRecord;
use super::observe::Observer;
use super::pace::Pace;
use super::peers::PeerWatch;
use super::prompts::Prompts;
use super::resolve::{QueryOrigin, Resolver};
use super::settings::{
    T2, T4, address_policy, advertised, bounds, calls_config, collector, disk, minter, nonce_keys,
    registrar_config, sent_by,
};
use super::shard::Shard;
use super::spans::Spans;
use super::stored_registrations::RegistrationKeeper;
use super::stream_opener::StreamOpener;
use super::unsynced::Unsynced;
use super::{
    Engine, EngineDeps, Handle, bots, challenges, clock, effect_runner, failed_log_ins, local,
    refused_peers, registrations, upkeep,
};
use crate::config::source_towards;
use crate::jobs;
use crate::traces::{Surroundings, Tap, Traces};

/// Used nonces that are remembered; beyond, the oldest are forgotten.
const MAX_NONCES: usize = 1_000_000;

impl Engine {
    /// Starts the shards on sockets that are already bound.
    ///
    /// # Errors
    /// The machine refuses sockets, media ports or threads.
    pub fn start(deps: EngineDeps, bound: Vec<BoundListener>) -> io::Result<Self> {
        let bound = SortedSockets::new(bound, deps.config.sip.shards);
        // Beside the start: the first call would wait for it.
        std::thread::Builder::new()
            .name("numbering plans".into())
            .spawn(trunkline_routing::country::load)?;
        let minter = minter(&deps.store, deps.node);
        let shards = bound.udp.len();
        let (inboxes, outlets): (Vec<Inbox>, Vec<InboxReceiver>) =
            (0..shards).map(|_| Inbox::new()).unzip();
        let router = ShardRouter::new(minter.clone(), inboxes);

        let listeners = bound.addresses.iter().copied().chain([deps.http]).collect();
        let media = start_media(&deps, listeners, &router)?;
        // From here on streams may bring messages, which wait in the inboxes until the shards run.
        let (streams, connections) = start_streams(&deps, &router, bound.streams)?;

        let (disk, collector) = (disk(&deps.config), collector(&deps.config));
        let traces = Traces::new(
            shards,
            disk,
            collector,
            Surroundings {
                now: clock::wall_time,
                wall: clock::wall(),
                source_towards,
            },
        )?;

        let resolver = Resolver::new(&deps.config.sip.nameservers);
        let calls = configure_calls(&deps, &bound.addresses, &resolver);
        let bots = BotDialler::new(
            resolver,
            Arc::clone(&calls.addresses),
            Arc::clone(&deps.security),
            Arc::clone(&deps.directory),
            Arc::clone(&deps.descriptors),
        );
        let streams_for_shards = StreamOpener::new(connections.clone());
        let effect_runner = effect_runner(&deps, &router, media, streams_for_shards, bots);

        let sip = &deps.config.sip;
        // One for all shards: a nonce that was used on one of them must not pass on another.
        let window = Arc::new(NonceWindow::new(sip.nonce_lifetime, MAX_NONCES));
        let nonces = Nonces::new(nonce_keys(&deps.store), sip.nonce_lifetime);
        let nonces = Arc::new(nonces);
        start_upkeep(&deps, &window);

        let bindings = keep_registrations(&deps, &router, &effect_runner.event_sink);
        // The first shard sends all probes and all registrations with carriers.
        let probing = effect_runner.resolver.on_behalf_of(QueryOrigin::Probes);
        let hosts = advertised(&deps.config, &bound.addresses);
        let watched = PeerWatch::start(
            &deps,
            &calls,
            &nonces,
            hosts,
            probing,
            router.shards()[0].clone(),
        );

        let (limits, outbound_limits) = limits(&deps);
        let shared = Shared {
            watched,
            traces,
            bindings,
            registrar: Arc::new(registrar_config(&deps.config)),
            calls: Arc::new(calls),
            nonces,
            window,
            sent_by: sent_by(&deps.config, &bound.addresses),
            minter,
            router,
            limits,
            outbound_limits,
            proven: Arc::default(),
            connections,
            effect_runner,
            deps,
        };

        let parts = bound.udp.into_iter().zip(outlets).enumerate();
        let threads = parts.map(|(index, (sockets, outlet))| shared.spawn(index, sockets, outlet));
        Ok(Self {
            threads: threads.collect::<io::Result<_>>()?,
            handle: shared.handle(),
            handover: shared.watched.handover.clone(),
            _streams: streams,
        })
    }
}

/// Makes the effect runner that each shard gets a copy of.
fn effect_runner(
    deps: &EngineDeps,
    router: &ShardRouter,
    media: Media,
    streams: StreamOpener,
    bots: BotDialler,
) -> EffectRunner {
    let (config, runtime) = (&deps.config, &deps.runtime);
    let spans = config.traces.otlp.as_deref();

    EffectRunner {
        tap: Tap::closed(),
        spans: spans.map(|collector| Spans::start(collector, runtime)),
        // A placeholder, as `shard` below is: each shard puts its own in.
        inbox: router.shards()[0].clone(),
        journal: deps.journal.clone(),
        contacts: Contacts::start(deps.store.clone(), runtime),
        resolver: bots.resolver().clone(),
        bots,
        streams,
        prompts: Prompts::new(
            media.clone(),
            deps.store.clone(),
            deps.speech.clone(),
            runtime.clone(),
        ),
        media,
        auth_failures: failed_log_ins::start(
            deps.store.clone(),
            Arc::clone(&deps.directory),
            runtime,
        ),
        challenges: challenges::start(deps.store.clone(), runtime),
        event_sink: EventSink::start(deps.store.clone(), runtime),
        runtime: runtime.clone(),
        media_addresses: Arc::clone(&deps.media_addresses),

        // `share` makes the queues anew for each shard, and copies the rest.
        facts: Vec::new(),
        promised: Vec::new(),
        unsynced: Unsynced::default(),
        ended: Vec::new(),
        unprojected: VecDeque::new(),
        projected: deps.journal.projected(),
        live: Arc::clone(&deps.live),
        shard: 0,
        awaited: AwaitedRecord::default(),
    }
}

/// Starts the tasks that follow the wall clock and return memory after a load.
fn start_upkeep(deps: &EngineDeps, window: &Arc<NonceWindow>) {
    jobs::WALL_CLOCK.spawn(&deps.runtime, upkeep::follow_wall_clock());
    let (window, live) = (Arc::downgrade(window), Arc::downgrade(&deps.live));
    jobs::MEMORY.spawn(
        &deps.runtime,
        upkeep::sweep(window, live, deps.store.clone()),
    );
}

/// Starts the tasks that expire and persist registrations of PBXs.
fn keep_registrations(
    deps: &EngineDeps,
    router: &ShardRouter,
    event_sink: &EventSink,
) -> Arc<Bindings> {
    let sip = &deps.config.sip;
    let bindings = Bindings::new();
    let sweep = registrations::sweep(
        Arc::downgrade(&bindings),
        event_sink.clone(),
        router.shards()[0].clone(),
        sip.keep_alive,
    );
    jobs::REGISTRATIONS.spawn(&deps.runtime, sweep);

    let keeper = RegistrationKeeper::new(
        &bindings,
        &deps.directory,
        deps.store.clone(),
        deps.node,
        sip.node_lease,
        deps.lapses.clone(),
    );
    jobs::STORED_REGISTRATIONS.spawn(&deps.runtime, keeper.run());

    bindings
}

/// Makes the settings of calls; starts to follow reserved names and to report refused peers.
fn configure_calls(
    deps: &EngineDeps,
    addresses: &[SocketAddr],
    resolver: &Resolver,
) -> calls::Config {
    let reserved = &deps.reserved_names;
    let policy = address_policy(
        &deps.config,
        addresses.to_vec(),
        deps.http,
        reserved.peers(),
    );
    let calls = calls_config(
        &deps.config,
        deps.store.keyring(),
        deps.node,
        addresses,
        policy,
    );

    jobs::RESERVED_NAMES.spawn(&deps.runtime, reserved.clone().follow(resolver.clone()));
    deps.runtime.spawn(refused_peers::report(
        deps.store.clone(),
        resolver.on_behalf_of(QueryOrigin::Probes),
        Arc::clone(&calls.addresses),
    ));

    calls
}

/// Limits of all calls, and limits of outbound calls with what orgs have already begun.
fn limits(deps: &EngineDeps) -> (Arc<Limits>, Arc<OutboundLimits>) {
    let limits = &deps.config.limits;
    let outbound_limits = OutboundLimits::new(bounds(&deps.config));
    // A restart doesn't renew what an org may call in a day.
    outbound_limits.seed(deps.begun.iter().copied());
    let limits = Limits::with_setups(limits.max_calls, limits.setups_per_caller);
    (limits, outbound_limits)
}

/// Parts that all shards share.
struct Shared {
    traces: Arc<Traces>,
    deps: EngineDeps,
    calls: Arc<calls::Config>,
    registrar: Arc<registrar::Config>,
    bindings: Arc<Bindings>,
    watched: PeerWatch,
    nonces: Arc<Nonces>,
    window: Arc<NonceWindow>,
    sent_by: Vec<SentBy>,
    minter: Minter,
    router: ShardRouter,
    limits: Arc<Limits>,
    outbound_limits: Arc<OutboundLimits>,
    proven: Arc<ProvenSources>,
    connections: Connections,
    effect_runner: EffectRunner,
}

impl Shared {
    /// Access for the API and other parts of the daemon.
    fn handle(&self) -> Handle {
        Handle {
            router: self.router.clone(),
            live: Arc::clone(&self.deps.live),
            limits: Arc::clone(&self.limits),
            bindings: Arc::clone(&self.bindings),
            outbound_limits: Arc::clone(&self.outbound_limits),
            health: Arc::clone(&self.watched.health),
            registrations: Arc::clone(&self.watched.registrations),
            addresses: Arc::clone(&self.calls.addresses),
            node: Node(self.deps.node),
            traces: Arc::clone(&self.traces),
            journal: self.effect_runner.journal.condition(),
            browsers: self.browsers(),
            media: self.effect_runner.media.clone(),
        }
    }

    /// Parts that calls of browsers need. Their user agent has the addresses of the first listener.
    fn browsers(&self) -> BrowserLine {
        let sip = &self.deps.config.sip;

        let port = sip
            .listeners
            .first()
            .map_or(0, |first| first.address.port());
        BrowserLine {
            wires: Wires {
                router: self.router.clone(),
                media: self.effect_runner.media.clone(),
                media_addresses: Arc::clone(&self.deps.media_addresses),
                addresses: Arc::clone(&self.calls.addresses),
            },
            connections: self.connections.clone(),
            runtime: self.deps.runtime.clone(),
            listener: (0, port),
            agent_header: self.calls.header_prefix.agent_id().into(),
            keys: Arc::default(),
        }
    }

    fn spawn(
        &self,
        index: usize,
        sockets: Vec<(u16, std::net::UdpSocket)>,
        outlet: InboxReceiver,
    ) -> io::Result<std::thread::JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;

        let sockets = {
            // The sockets register with the reactor of this shard's own runtime, which has to be current.
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
            .spawn(move || {
                wake_on_time();
                runtime.block_on(shard.run(outlet));
            })
    }

    /// Shares of the node whose metrics a shard sets: those of all shards are the same, so that one sets them.
    fn shown_shares(&self, index: usize) -> Vec<(&'static str, Arc<Shares>)> {
        if index > 0 {
            return Vec::new();
        }
        let ports = ("media_ports", self.effect_runner.media.port_shares());
        self.limits.shares().into_iter().chain([ports]).collect()
    }

    fn shard(&self, index: usize, sockets: Vec<UdpSocket>) -> Shard {
        let now = clock::now();
        let sip = &self.deps.config.sip;

        let endpoint = Endpoint::new(
            endpoint::Config {
                minter: self.minter.clone(),
                t1: sip.t1,
                t2: T2,
                t4: T4,
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
            (Arc::clone(&self.limits), Arc::clone(&self.outbound_limits)),
            Arc::clone(&self.deps.live),
            now,
        )
        .with_names_and_bindings(
            Arc::clone(self.deps.security.names()),
            Arc::clone(&self.bindings),
        )
        .with_health(Arc::clone(&self.watched.health))
        .with_registrations(Arc::clone(&self.watched.registrations))
        .with_proven_sources(Arc::clone(&self.proven));

        let mut effect_runner = self.effect_runner.share();
        effect_runner.inbox = self.router.shards()[index].clone();
        effect_runner.shard = index;
        if self.deps.config.traces.enabled {
            effect_runner.tap = self.traces.tap(index);
        }

        // A shard waits for its sockets and its inbox alone, so a task brings the positions. `syncs` doesn't keep the
        // journal open.
        let (mut syncs, inbox) = (effect_runner.journal.syncs(), effect_runner.inbox.clone());
        self.deps.runtime.spawn(async move {
            while let Some(position) = syncs.next().await {
                if !inbox.send(Input::Synced(position)).await {
                    return;
                }
            }
        });

        Shard {
            index,
            sockets,
            connections: self.connections.clone(),
            endpoint,
            calls: Calls::new(core),
            registrar: Registrar::new(
                Arc::clone(&self.registrar),
                Arc::clone(&self.nonces),
                Arc::clone(&self.window),
                Arc::clone(&self.bindings),
            ),
            peers: self.watched.peers(
                Arc::clone(self.deps.security.names()),
                Arc::clone(&self.bindings),
                now,
            ),
            directory: Arc::clone(&self.deps.directory),
            router: self.router.clone(),
            effect_runner,
            observer: Observer::new(index, self.shown_shares(index), now),
            invite_queue: InviteQueue::default(),
            pace: Pace::new(clock::now()),
            pressed: false,
            inbox_pressed: false,
            sheds_left: 0,
            batch: Batch::new(),
            lost: Vec::new(),
            foreign: self.router.shards().iter().map(|_| Vec::new()).collect(),
        }
    }
}

/// Lets the pauses of this thread end when they should: by default the kernel adds up to 50 microseconds to join wake-ups.
fn wake_on_time() {
    /// The shortest that the kernel takes, in nanoseconds.
    const SLACK: NonZeroU64 = NonZeroU64::MIN;
    // If the system refuses, a shard's pauses are a little longer.
    let _ = rustix::thread::set_current_timer_slack(Some(SLACK));
}

/// Returns the number of media threads: half of the processors, since the shards and the runtime need theirs.
fn media_threads() -> usize {
    const MOST: usize = 8;
    std::thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2).min(MOST))
}

fn start_media(
    deps: &EngineDeps,
    listeners: Vec<std::net::SocketAddr>,
    router: &ShardRouter,
) -> io::Result<Media> {
    let settings = media::MediaSettings {
        ports: deps.config.media.rtp_ports.clone(),
        ips: deps.media_addresses.to_try(),
        own: local::addresses(),
        listeners,
        workers: media_threads(),
        descriptors: Arc::clone(&deps.descriptors),
    };

    let (router, runtime) = (router.clone(), deps.runtime.clone());
    Media::new(
        &settings,
        Entropy::from_seed(rand::random()),
        clock::now,
        move |key, event| {
            let (shard, call) = effect_runner::call_of_media(key);
            // The key of a browser's media names no shard. No call waits for what becomes of it.
            let Some(inbox) = router.shards().get(shard) else {
                return;
            };

            report_media(inbox, call, event, &runtime);
        },
    )
}

/// Reports an event of a call's media to its shard.
fn report_media(
    inbox: &Inbox,
    call: CallKey,
    event: media::MediaEvent,
    runtime: &tokio::runtime::Handle,
) {
    // Few of these events are repeated if they get lost. Its call could then stay silent until its longest duration.
    let input = match event {
        media::MediaEvent::BotClosed(end) => Input::BotClosed(call, bots::gone(end)),
        media::MediaEvent::Played(serial) => Input::Played(call, serial),
        media::MediaEvent::Silent => Input::MediaSilent(call),
        media::MediaEvent::Heard => Input::MediaHeard(call),
        media::MediaEvent::Spoken => Input::Spoken(call),
        media::MediaEvent::Failed => Input::MediaFailed(call),
        // Under load a key may get lost.
        media::MediaEvent::Digit(digit) => {
            inbox.offer(Input::MediaDigit(call, digit));
            return;
        }
        // The media thread has measured it; no call waits for it.
        media::MediaEvent::BotSpoke { .. } => return,
    };
    inbox.deliver(input, runtime);
}

fn start_streams(
    deps: &EngineDeps,
    router: &ShardRouter,
    listeners: Vec<(u16, Transport, std::net::TcpListener)>,
) -> io::Result<(tcp::TcpListeners, Connections)> {
    // Where few files may be opened, peers that have proved nothing leave descriptors to calls.
    let half = usize::try_from(deps.descriptors.most() / 2).unwrap_or(usize::MAX);
    let settings = tcp::StreamSettings {
        accepted: deps.config.limits.max_connections.min(half),
        accepted_per_source: deps.config.limits.max_connections_per_source,
        descriptors: Arc::clone(&deps.descriptors),
        ..tcp::StreamSettings::default()
    };
    // Streams belong to the common runtime: a connection carries messages for any shard.
    let _inside = deps.runtime.enter();
    let security = Arc::clone(&deps.security);
    let sink = Streams(router.clone());
    tcp::TcpListeners::start(listeners, settings, security, sink, clock::now)
}

/// Delivers messages from streams to the shard of their slot.
#[derive(Clone, Debug)]
struct Streams(ShardRouter);

impl tcp::Sink for Streams {
    async fn deliver(&self, received: tcp::Received) {
        let tcp::Received {
            flow,
            octets,
            received_at,
        } = received;
        // Waits while the shard has no room. The connection isn't read meanwhile, so TCP slows its peer down, and
        // nothing that came by a stream is dropped.
        let inbox = self.0.inbox_for(&octets);
        inbox
            .send(Input::Messages(vec![ForwardedMessage {
                flow,
                octets: Vec::from(octets).into(),
                received_at,
            }]))
            .await;
    }

    async fn closing(&self, flow: Flow, proved: u32) {
        // Calls and transactions of any shard may use the connection.
        for inbox in self.0.shards() {
            inbox.send(Input::Closing(flow, proved)).await;
        }
    }

    async fn lost(&self, lost: Lost) {
        for inbox in self.0.shards() {
            inbox.send(Input::Lost(lost.clone())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn silence_is_reported_although_the_inbox_is_full() {
        let (inbox, mut inputs) = Inbox::new();
        while inbox.offer(Input::Drain) {}

        let call = effect_runner::call_of_media(0).1;
        let runtime = tokio::runtime::Handle::current();
        report_media(&inbox, call, media::MediaEvent::Silent, &runtime);

        let mut silent = 0;
        for _ in 0..=inbox.depth() {
            let input = inputs.recv().await.expect("an input");
            silent += usize::from(matches!(input, Input::MediaSilent(_)));
        }
        assert_eq!(silent, 1);
    }
}
