//! Plays calls through the core in this process, on a virtual clock: thousands a second, and nothing is stored.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use trunkline_capture::Transport;
use trunkline_capture::flow::Role;
use trunkline_capture::replay::{Incoming, Wire, WireClosed};
use trunkline_sip::flow::{self, Flow};
use trunkline_sip::moment::Moment;

use crate::config::Config;
use crate::engine::offline_core::OfflineCore;

/// Addresses of the peers, as the core sees them.
const CALLER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), 5060);
pub(super) const RUNTIME: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)), 5060);
const OTHER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4)), 5060);
/// Number of the caller's connection, if it has one.
const CONNECTION: u32 = 1;
/// Time after a call within which everything of it must be gone: longer than the longest SIP timer.
const MAX_REST: Duration = Duration::from_secs(90);

/// Core, with the peers of one call.
#[derive(Debug)]
pub(super) struct InProcess {
    core: OfflineCore,
    caller: Flow,
    /// Flow on which each peer was called last; a peer that wasn't called can't send.
    called: HashMap<Role, Flow>,
    /// Peers by the address that was called.
    known: HashMap<SocketAddr, Role>,
    /// Peers to play: the runtime, and other callees.
    plays: [bool; 2],
    arrived: VecDeque<Incoming>,
}

impl InProcess {
    /// Makes a player; [`Self::begin`] prepares it for each call.
    ///
    /// # Errors
    /// The configuration has no listener.
    pub(super) fn new(core: OfflineCore, config: &Config) -> Result<Self, String> {
        let caller = caller(config, Transport::Udp).or_else(|_| caller(config, Transport::Tcp))?;
        Ok(Self {
            caller,
            core,
            called: HashMap::new(),
            known: HashMap::new(),
            plays: [false; 2],
            arrived: VecDeque::new(),
        })
    }

    /// Prepares for a call; `plays` says whether the runtime and other callees are played.
    ///
    /// # Errors
    /// The configuration has no listener for the call's transport.
    pub(super) fn begin(
        &mut self,
        config: &Config,
        transport: Transport,
        plays: [bool; 2],
    ) -> Result<(), String> {
        self.caller = caller(config, transport)?;
        self.called.clear();
        self.known = HashMap::from([
            (self.caller.peer, Role::Caller),
            (RUNTIME, Role::Runtime),
            (OTHER, Role::Other),
        ]);
        self.plays = plays;
        Ok(())
    }

    /// Hangs up, and lets time pass until nothing of the call is left. Returns false if something of it is still alive then.
    pub(super) fn end(&mut self) -> bool {
        let is_at_rest = self.core.end(MAX_REST);
        self.arrived.clear();
        is_at_rest
    }

    fn collect(&mut self) {
        for (flow, octets) in self.core.take_sent() {
            let party = self.party(&flow);
            if party != Role::Caller {
                // Noted even if the peer isn't played: `party` tells later callees from the runtime by it.
                self.called.insert(party, flow);
            }
            if party == Role::Caller || self.plays(party) {
                self.arrived.push_back(Incoming { party, octets });
            }
        }
    }

    /// Returns the peer at an address. The first address called is the agent's runtime.
    fn party(&mut self, flow: &Flow) -> Role {
        if let Some(known) = self.known.get(&flow.peer) {
            return *known;
        }
        let [plays_runtime, plays_other] = self.plays;
        let is_other = plays_other && (!plays_runtime || self.called.contains_key(&Role::Runtime));
        let party = if is_other { Role::Other } else { Role::Runtime };
        self.known.insert(flow.peer, party);
        party
    }

    const fn plays(&self, party: Role) -> bool {
        match party {
            Role::Caller => true,
            Role::Runtime => self.plays[0],
            Role::Other => self.plays[1],
            Role::Us => false,
        }
    }
}

fn caller(config: &Config, transport: Transport) -> Result<Flow, String> {
    let transport = match transport {
        Transport::Udp => flow::Transport::Udp,
        Transport::Tcp | Transport::Tls => flow::Transport::Tcp,
    };

    let found = config
        .sip
        .listeners
        .iter()
        .enumerate()
        .find(|(_, listener)| listener.transport == transport);
    let (index, listener) = found.ok_or("no listener is configured for the call's transport")?;

    let mut local = listener.address;
    // The flow needs a real address: it is the target that the replayed messages name.
    if local.ip().is_unspecified() {
        local.set_ip(Ipv4Addr::LOCALHOST.into());
    }

    Ok(Flow {
        transport,
        listener: u16::try_from(index).map_err(|_| "there are too many listeners")?,
        connection: match transport {
            flow::Transport::Udp => 0,
            flow::Transport::Tcp | flow::Transport::Tls => CONNECTION,
        },
        local,
        peer: CALLER,
    })
}

const fn transport(flow: &Flow) -> Transport {
    match flow.transport {
        flow::Transport::Udp => Transport::Udp,
        flow::Transport::Tcp => Transport::Tcp,
        flow::Transport::Tls => Transport::Tls,
    }
}

impl Wire for InProcess {
    fn now(&self) -> Moment {
        self.core.now()
    }

    fn target(&self) -> SocketAddr {
        self.caller.local
    }

    fn local(&self, party: Role) -> Option<SocketAddr> {
        let address = match party {
            Role::Caller => CALLER,
            Role::Runtime => RUNTIME,
            Role::Other => OTHER,
            Role::Us => return None,
        };
        self.plays(party).then_some(address)
    }

    fn transport(&self, party: Role) -> Transport {
        match party {
            Role::Runtime | Role::Other => {
                self.called.get(&party).map_or(Transport::Udp, transport)
            }
            Role::Caller | Role::Us => transport(&self.caller),
        }
    }

    fn send(&mut self, party: Role, octets: &[u8]) -> io::Result<()> {
        let flow = match party {
            Role::Runtime | Role::Other => *self.called.get(&party).ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotConnected, "this peer was not called")
            })?,
            Role::Caller | Role::Us => self.caller,
        };
        self.core.receive(flow, octets);
        Ok(())
    }

    fn receive(&mut self, until: Moment) -> Result<Option<Incoming>, WireClosed> {
        loop {
            self.collect();
            if let Some(incoming) = self.arrived.pop_front() {
                return Ok(Some(incoming));
            }

            match self.core.next_timeout().filter(|next| *next <= until) {
                Some(next) => self.core.advance(next),
                None => {
                    // The waiting takes its time on the virtual clock too, or the next message would be sent early.
                    self.core.advance(until);
                    self.collect();
                    return Ok(self.arrived.pop_front());
                }
            }
        }
    }
}
