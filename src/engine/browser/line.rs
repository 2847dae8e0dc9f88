//! The line by which browsers call this node: each call gets a port for its audio, a connection, and a user agent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};
use trunkline_bounds::NoShare;
use trunkline_calls::member::MemberCaller;
use trunkline_net::listener::InProcess;
use trunkline_net::listener::connections::Connections;
use trunkline_sip::flow::{Flow, Transport};

use super::call::{MediaNegotiation, RunningCall, Wires};
use super::order::{BrowserCall, BrowserCallee, BrowserOrder};
use super::user_agent::{Dial, Identity, UserAgent};
use crate::engine::clock;
use crate::engine::member_invite::MemberInvite;

/// First key of browsers' media. Keys of calls have the shard's number in these bits, which is never this high.
const FIRST_KEY: u64 = 0xff << 56;
/// Events that wait for a page, further ones being lost; and commands of a page that wait.
const WAITING: usize = 64;

/// Parts that calls of browsers need; clones share them.
#[derive(Clone, Debug)]
pub(in crate::engine) struct BrowserLine {
    pub(in crate::engine) wires: Wires,
    pub(in crate::engine) connections: Connections,
    pub(in crate::engine) runtime: tokio::runtime::Handle,
    /// Listener whose addresses the user agent uses: its index and its port.
    pub(in crate::engine) listener: (u16, u16),
    /// Name of the header that names an agent.
    pub(in crate::engine) agent_header: Box<str>,
    pub(in crate::engine) keys: Arc<AtomicU64>,
}

impl BrowserLine {
    /// Begins a call.
    pub(in crate::engine) fn call(&self, order: BrowserOrder) -> Result<BrowserCall, NoShare> {
        let (listener, port) = self.listener;
        let near = self.wires.media_addresses.advertised(usize::from(listener));
        let near = near.ok_or(NoShare::Full)?;
        let at = self
            .wires
            .media_addresses
            .at(Some(usize::from(listener)), near, None);

        let key = FIRST_KEY | self.keys.fetch_add(1, Ordering::Relaxed) & !FIRST_KEY;
        let bound = self.wires.media.open(key, at.bind, order.holder)?;
        let media = SocketAddr::new(at.advertised, bound.port());
        let audio = self.wires.media.attach_browser(key);

        let flow = Flow {
            transport: Transport::Tcp,
            listener,
            // `attach` puts a number of its own in.
            connection: 0,
            local: SocketAddr::new(near, port),
            // The RTP port makes the address unique among peers.
            peer: media,
        };
        let connection = InProcess::attach(&self.connections, flow);
        let (user, agent) = match order.callee {
            BrowserCallee::Agent(agent) => {
                let header = (self.agent_header.clone(), agent.to_string().into());
                ("agent".into(), Some(header))
            }
            BrowserCallee::Number(number) => (number, None),
        };

        let dial = Dial {
            flow: connection.flow(),
            media,
            user,
            agent,
            name: order.name,
            identity: Identity {
                call: rand::random(),
                tag: rand::random(),
                // RFC 3264 §5: the session id "MUST be representable with a 64 bit signed integer".
                session: rand::random::<u64>() >> 2,
            },
        };
        let (agent, invite) = UserAgent::new(dial);

        let (events, heard) = mpsc::channel(WAITING);
        let (commands, pressed) = mpsc::channel(WAITING);
        let (begun, began) = oneshot::channel();
        let first = MemberInvite {
            caller: MemberCaller {
                flow: connection.flow(),
                org: order.holder.org,
            },
            octets: invite.into(),
            received_at: clock::now(),
            begun,
        };
        let running = RunningCall {
            wires: self.wires.clone(),
            key,
            agent,
            connection,
            events,
            negotiation: MediaNegotiation::default(),
        };
        self.runtime.spawn(running.run(first, began, pressed));

        Ok(BrowserCall {
            events: heard,
            audio,
            commands,
        })
    }
}
