//! Transport of a session: sockets towards a daemon, or an engine in the same process with a clock of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::link::Link;
use super::{Incoming, Options};
use crate::Transport;
use crate::flow::Role;

/// The wire is closed: nothing can be received any more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WireClosed;

/// Transport of the messages of one call, for all sides.
pub trait Wire {
    /// Returns the present time, on the clock that stamps messages.
    fn now(&self) -> Moment;
    /// Returns the address of the daemon.
    fn target(&self) -> SocketAddr;
    /// Returns the address of a side, if it is played.
    fn local(&self, party: Role) -> Option<SocketAddr>;
    /// Returns the present transport of a side.
    fn transport(&self, party: Role) -> Transport;
    /// Sends a message.
    ///
    /// # Errors
    /// The message can't be sent, or no peer has called that side yet.
    fn send(&mut self, party: Role, octets: &[u8]) -> io::Result<()>;
    /// Receives the next message; `None` if none comes until that moment.
    ///
    /// # Errors
    /// The wire is closed: nothing can be received any more.
    fn receive(&mut self, until: Moment) -> Result<Option<Incoming>, WireClosed>;
}

/// Sockets towards a running daemon.
#[derive(Debug)]
pub(super) struct Sockets {
    target: SocketAddr,
    transport: Transport,
    caller: Link,
    runtime: Option<Link>,
    other: Option<Link>,
    incoming: Receiver<Incoming>,
    clock: fn() -> Moment,
}

impl Sockets {
    /// Opens the sockets; `captured` is the transport of the captured call.
    pub(super) fn open(options: &Options, captured: Transport) -> io::Result<Self> {
        let (sender, incoming) = channel();
        let transport = options.transport_for(captured);
        let caller = Link::towards(options.target, transport, Role::Caller, &sender)?;

        let listening = |address: Option<SocketAddr>, role: Role| {
            let link = address.map(|address| Link::listening(address, role, &sender));
            link.transpose().map_err(|error| {
                let whose = role.as_str();
                io::Error::new(
                    error.kind(),
                    format!("the {whose}'s side can't listen: {error}"),
                )
            })
        };

        let runtime = listening(options.runtime, Role::Runtime)?;
        let other = listening(options.other, Role::Other)?;

        Ok(Self {
            target: options.target,
            transport,
            caller,
            runtime,
            other,
            incoming,
            clock: options.now,
        })
    }

    fn link(&self, party: Role) -> Option<&Link> {
        match party {
            Role::Caller => Some(&self.caller),
            Role::Runtime => self.runtime.as_ref(),
            Role::Other => self.other.as_ref(),
            Role::Us => None,
        }
    }
}

impl Wire for Sockets {
    fn now(&self) -> Moment {
        (self.clock)()
    }

    fn target(&self) -> SocketAddr {
        self.target
    }

    fn local(&self, party: Role) -> Option<SocketAddr> {
        self.link(party).map(|link| link.local)
    }

    fn transport(&self, party: Role) -> Transport {
        match party {
            Role::Runtime | Role::Other => self.link(party).map_or(Transport::Udp, Link::transport),
            Role::Caller | Role::Us => self.transport,
        }
    }

    fn send(&mut self, party: Role, octets: &[u8]) -> io::Result<()> {
        self.link(party).unwrap_or(&self.caller).send(octets)
    }

    fn receive(&mut self, until: Moment) -> Result<Option<Incoming>, WireClosed> {
        // At least a little, so that a caller that polls at its deadline doesn't spin.
        let wait = until.since(self.now()).max(Duration::from_millis(1));
        match self.incoming.recv_timeout(wait) {
            Ok(incoming) => Ok(Some(incoming)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(WireClosed),
        }
    }
}
