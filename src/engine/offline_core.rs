//! Core of the daemon without sockets, threads or waiting. Messages are passed in, sent messages are taken out, and the
//! caller moves the clock. Nothing is stored or published.
//!
//! `trunkline replay` uses it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use trunkline_calls::core::live::LiveCalls;
use trunkline_calls::limits::Limits;
use trunkline_calls::limits::outbound_limits::OutboundLimits;
use trunkline_calls::media::bot::{BotFailure, BotFault};
use trunkline_calls::parts::target::{Target, UnresolvedTarget};
use trunkline_calls::registrar::Registrar;
use trunkline_calls::registrar::bindings::Bindings;
use trunkline_calls::{Calls, Core, Effect, Reason};
use trunkline_model::address::AddressPolicy;
use trunkline_model::record::Fact;
use trunkline_model::view::View;
use trunkline_sip::auth::{NonceKeys, NonceWindow, Nonces};
use trunkline_sip::dialog::sdp::IpVersion;
use trunkline_sip::endpoint::{self, Counts, Endpoint, Received};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Node};
use trunkline_sip::verified::VerifiedNames;
use trunkline_sip::wire::{Method, lex};
use trunkline_store::Keyring;
use uuid::Uuid;

use super::settings::{T2, T4, bounds, calls_config, configured_policy, registrar_config, sent_by};
use super::shard::framing;
use crate::config::Config;

/// Used nonces that are remembered.
const NONCES: usize = 65_536;
/// Transactions at the same time; a single call has few.
const TRANSACTIONS: usize = 10_000;
/// Port on which media would be received.
const MEDIA_PORT: u16 = 20_000;

/// Core with a clock and a network of its own.
#[derive(Debug)]
pub struct OfflineCore {
    endpoint: Endpoint,
    calls: Calls,
    registrar: Registrar,
    live: Arc<LiveCalls>,
    view: Arc<View>,
    /// Address that every host name resolves to.
    any_host: SocketAddr,
    now: Moment,
}

/// Configuration with every address allowed, and believed: nothing leaves this process, and recorded peers answer nothing that is new.
fn allowing_every_address(config: trunkline_calls::Config) -> trunkline_calls::Config {
    let every = ["0.0.0.0/0", "::/0"].map(str::parse).into_iter().flatten();
    let addresses = AddressPolicy::new(every.collect(), Vec::new(), Vec::new());
    trunkline_calls::Config {
        addresses: Arc::new(addresses),
        asks_for_proof: false,
        ..config
    }
}

impl OfflineCore {
    /// Makes a core that decides calls by `view` and is configured like the daemon. Every host name resolves to
    /// `any_host`. Randomness follows from `seed`, except the keys of nonces, tags and branches.
    pub fn new(
        config: &Config,
        keyring: &Keyring,
        view: Arc<View>,
        any_host: SocketAddr,
        seed: [u8; 32],
        now: Moment,
    ) -> Self {
        let sip = &config.sip;
        let addresses: Vec<SocketAddr> = sip
            .listeners
            .iter()
            .map(|listener| listener.address)
            .collect();
        let minter = Minter::new(Node(0), rand::random());
        let nonces = Arc::new(Nonces::new(
            NonceKeys {
                node: rand::random(),
                deployment: rand::random(),
            },
            sip.nonce_lifetime,
        ));

        let window = Arc::new(NonceWindow::new(sip.nonce_lifetime, NONCES));
        let bindings = Bindings::new();
        let live = LiveCalls::new();
        let endpoint = Endpoint::new(
            endpoint::Config {
                minter: minter.clone(),
                t1: sip.t1,
                t2: T2,
                t4: T4,
                server: concat!("Trunkline/", env!("CARGO_PKG_VERSION")).into(),
                sent_by: sent_by(config, &addresses),
                max_transactions: TRANSACTIONS,
            },
            Entropy::from_seed(seed),
        );

        let core = Core::new(
            Arc::new(allowing_every_address(calls_config(
                config,
                keyring,
                0,
                &addresses,
                configured_policy(config),
            ))),
            minter,
            (Arc::clone(&nonces), Arc::clone(&window)),
            (
                Limits::new(config.limits.max_calls),
                OutboundLimits::new(bounds(config)),
            ),
            Arc::clone(&live),
            now,
        )
        .with_names_and_bindings(Arc::new(VerifiedNames::default()), Arc::clone(&bindings));

        Self {
            endpoint,
            calls: Calls::new(core),
            registrar: Registrar::new(Arc::new(registrar_config(config)), nonces, window, bindings),
            live,
            view,
            any_host,
            now,
        }
    }

    /// Current time of this core.
    pub const fn now(&self) -> Moment {
        self.now
    }

    /// Passes a message in.
    pub fn receive(&mut self, flow: Flow, octets: &[u8]) {
        let now = self.now;
        let view = Arc::clone(&self.view);
        match lex(octets, framing(flow)) {
            Ok(message) => {
                let received = self.endpoint.receive_message(message, flow, now);
                if let Received::Request(request) = &received
                    && request.method() == Method::Register
                {
                    self.registrar
                        .handle(&mut self.endpoint, &view, flow, request, now);
                } else {
                    self.calls
                        .handle(&mut self.endpoint, &view, flow, received, now);
                }
            }
            Err(malformed) => self.endpoint.receive_malformed(&malformed, &flow),
        }

        self.settle();
    }

    /// Time of the next timer.
    pub fn next_timeout(&self) -> Option<Moment> {
        let moments = [self.endpoint.next_timeout(), self.calls.next_timeout()];
        moments.into_iter().flatten().min()
    }

    /// Moves the clock to `until`, unless that is in the past, and fires the timers that are due by then.
    pub fn advance(&mut self, until: Moment) {
        self.now = self.now.max(until);
        self.endpoint.handle_timeout(self.now);
        self.settle();
        self.calls.handle_timeout(&mut self.endpoint, self.now);
        self.settle();
    }

    /// Takes the messages sent since the last call.
    pub fn take_sent(&mut self) -> Vec<(Flow, Vec<u8>)> {
        let sent = self
            .endpoint
            .transmits()
            .map(|(flow, octets)| (flow, octets.to_vec()))
            .collect();
        self.endpoint.clear_transmits();
        sent
    }

    /// Hangs up all calls and moves the clock until nothing is alive. Returns false if something lives longer than
    /// `limit`.
    pub fn end(&mut self, limit: Duration) -> bool {
        self.calls
            .hang_up_all(&mut self.endpoint, Reason::Operator, self.now);
        self.settle();
        let until = self.now + limit;
        while !self.is_at_rest() {
            let Some(next) = self.next_timeout().filter(|next| *next <= until) else {
                break;
            };
            self.advance(next);
            // No peer answers any more, so what is sent is dropped.
            self.endpoint.clear_transmits();
        }
        self.is_at_rest()
    }

    fn is_at_rest(&self) -> bool {
        self.calls.is_empty() && self.endpoint.counts() == Counts::default()
    }

    fn settle(&mut self) {
        let now = self.now;
        while let Some(event) = self.endpoint.poll_event() {
            self.calls.handle_event(&mut self.endpoint, event, now);
        }
        // Taken and dropped: nothing is stored or published.
        self.registrar.effects();
        while let Some(effect) = self.calls.poll_effect() {
            self.carry_out(effect);
        }
    }

    fn found(&self, wanted: &UnresolvedTarget) -> Vec<Target> {
        vec![Target {
            uri: wanted.uri.clone(),
            transport: wanted.transport.unwrap_or(Transport::Udp),
            address: self.any_host,
            by: None,
            route: None,
            named: wanted.named,
        }]
    }

    fn carry_out(&mut self, effect: Effect) {
        let now = self.now;

        match effect {
            Effect::Resolve { call, wanted, .. } => {
                let targets = self.found(&wanted);
                self.calls
                    .handle_resolved(&mut self.endpoint, call, Ok(targets), now);
            }

            // There is no network, so a datagram may have any size.
            Effect::Connect {
                call,
                target,
                datagram,
                ..
            } => {
                let targets = vec![target.reached_by(datagram)];
                self.calls
                    .handle_resolved(&mut self.endpoint, call, Ok(targets), now);
            }

            Effect::StreamSilent { .. } => {}

            Effect::ResolveHop { wanted } => {
                let targets = self.found(&wanted);
                self.calls
                    .handle_hop(&mut self.endpoint, &wanted, targets, now);
            }

            Effect::FindContact { call, .. } => {
                // Each caller gets a contact, which is stored nowhere.
                let contact = Some(Uuid::now_v7());
                self.calls
                    .handle_contact(&mut self.endpoint, call, contact, now);
            }

            Effect::OpenMedia {
                call,
                near,
                version,
                ..
            } => {
                let is_met = version.is_none_or(|version| version == IpVersion::of(near));
                let ip = version
                    .filter(|_| !is_met)
                    .map_or(near, IpVersion::loopback);
                let local = SocketAddr::new(ip, MEDIA_PORT);
                self.calls
                    .handle_media_open(&mut self.endpoint, call, Ok(local), now);
            }

            Effect::DialBot { call, .. } => {
                // There is no network, so every bot is unreachable.
                let failure = BotFailure {
                    address: None,
                    fault: BotFault::Silence,
                };
                self.calls
                    .handle_bot(&mut self.endpoint, call, Err(failure), now);
            }

            // In the daemon an ended call is forgotten once it is a row; here nothing is stored.
            Effect::Fact(Fact::Ended(ended)) => self.live.forget(ended.call),
            Effect::Fact(_)
            | Effect::UpdateMedia { .. }
            | Effect::ProveMedia { .. }
            | Effect::SpeakCode { .. }
            | Effect::CloseMedia { .. }
            | Effect::StartBot { .. }
            | Effect::PressKey { .. }
            | Effect::PlaySound { .. }
            | Effect::HandOff { .. }
            | Effect::AuthFailure(_)
            | Effect::UnknownUser(_)
            | Effect::UnansweredChallenge(_)
            | Effect::UnknownSource(_)
            | Effect::Proof(_)
            | Effect::FailedOver { .. }
            | Effect::Challenged(_)
            | Effect::Traced(..)
            | Effect::Untraced(_)
            | Effect::TurnedAway { .. } => {}
        }
    }
}
