//! TCP, plain and under TLS: listeners that accept, connections that are opened, one task for each (RFC 3261 §18).
//!
//! Runs on the general tokio runtime. Messages go to a [`Sink`], which delays reading until it has room; shards send through
//! [`Connections`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;

use super::Lost;
use super::connection::{Awaited, Connection, Ended};
use super::connections::Connections;
use super::handshake;
use super::outbox::Outbox;
use super::tls::Security;
use crate::shortage;

pub use super::stream::{Received, Sink, StreamSettings};

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 1_024;

/// Pause after a failed accept, since the process may have no file descriptors left.
const REST: Duration = Duration::from_millis(100);

/// Opens and binds a listening socket without an executor, so that an error shows at startup. An IPv6 wildcard accepts no IPv4: the two are
/// separate listeners.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The accepting tasks. Dropping this value ends them; open connections continue.
#[derive(Debug)]
pub struct TcpListeners {
    _accepting: JoinSet<()>,
}

impl TcpListeners {
    /// Starts accepting on sockets from [`bind`], each with the index of its listener and TCP or TLS, and returns the handle for sending.
    /// Must be called within the runtime that runs the connections.
    ///
    /// # Errors
    /// The runtime can't watch a socket.
    pub fn start<S: Sink>(
        listeners: impl IntoIterator<Item = (u16, Transport, std::net::TcpListener)>,
        settings: StreamSettings,
        security: Arc<Security>,
        sink: S,
        clock: impl Fn() -> Moment + Copy + Send + Sync + 'static,
    ) -> io::Result<(Self, Connections)> {
        describe();
        let runtime = Handle::current();
        let shared = Shared {
            security,
            sink,
            clock,
        };

        let opening = shared.clone();
        let connections =
            Connections::new(settings, move |connections, flow, required_name, outbox| {
                let task = opening.task(connections, flow, required_name, outbox);
                runtime.spawn(task.open());
            });

        let mut accepting = JoinSet::new();
        for (listener, transport, socket) in listeners {
            let listener = Listener {
                index: listener,
                transport,
                socket: TcpListener::from_std(socket)?,
            };
            accepting.spawn(accept(listener, connections.clone(), shared.clone()));
        }

        Ok((
            Self {
                _accepting: accepting,
            },
            connections,
        ))
    }
}

fn describe() {
    use metrics::describe_counter;
    describe_counter!(
        "trunkline_sip_connections_refused_total",
        "Connections not accepted: too many"
    );
    describe_counter!(
        "trunkline_sip_connections_ended_total",
        "SIP connections that ended, by cause"
    );
}

/// A socket that accepts connections.
struct Listener {
    index: u16,
    transport: Transport,
    socket: TcpListener,
}

/// Parts that the tasks of all connections share.
#[derive(Clone)]
struct Shared<S, C> {
    security: Arc<Security>,
    sink: S,
    clock: C,
}

impl<S: Sink, C: Fn() -> Moment + Copy + Send + Sync> Shared<S, C> {
    /// Returns the task of one connection.
    fn task(
        &self,
        connections: &Connections,
        flow: Flow,
        required_name: u32,
        outbox: Arc<Outbox>,
    ) -> Task<S, C> {
        Task {
            connections: connections.clone(),
            security: Arc::clone(&self.security),
            flow,
            required_name,
            outbox,
            sink: self.sink.clone(),
            clock: self.clock,
            is_closing: AtomicBool::default(),
        }
    }
}

async fn accept<S: Sink>(
    listener: Listener,
    connections: Connections,
    shared: Shared<S, impl Fn() -> Moment + Copy + Send + Sync + 'static>,
) {
    loop {
        let (stream, peer) = match listener.socket.accept().await {
            Ok(accepted) => accepted,
            // Either the peer has already gone, or no descriptor is left, which passes as connections end.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                tracing::warn!(%error, "SIP connection not accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let Ok(local) = stream.local_addr() else {
            continue;
        };

        let flow = Flow {
            transport: listener.transport,
            listener: listener.index,
            connection: 0,
            local,
            peer,
        };
        match connections.accept(flow) {
            Some((flow, outbox)) => {
                let task = shared.task(&connections, flow, 0, outbox);
                tokio::spawn(task.accepted(stream));
            }
            None => {
                // It may be the limit of connections that was reached, which is no shortage.
                if connections.settings().descriptors.is_used_up() {
                    shortage::report(&connections.settings().descriptors);
                }
                metrics::counter!("trunkline_sip_connections_refused_total").increment(1);
                tracing::debug!(%peer, "too many connections");
            }
        }
    }
}

/// The task of one connection.
struct Task<S, C> {
    connections: Connections,
    security: Arc<Security>,
    flow: Flow,
    /// Number of the name that the peer of an opened connection has to prove; 0: none.
    required_name: u32,
    outbox: Arc<Outbox>,
    sink: S,
    clock: C,
    /// The sink knows that the peer sends no more.
    is_closing: AtomicBool,
}

impl<S: Sink, C: Fn() -> Moment + Copy + Send + Sync> Task<S, C> {
    async fn accepted(self, stream: TcpStream) {
        let began = (self.clock)();
        let served = async {
            match self.accept_tls(stream).await {
                Ok(Secured::Bare(stream)) => {
                    let first = (Awaited::FirstOctet, began);
                    self.serve(self.flow, stream, first).await
                }
                Ok(Secured::Tls(stream)) => {
                    let first = (Awaited::FirstMessage, began);
                    self.serve(self.flow, stream, first).await
                }
                Err(ended) => ended,
            }
        };

        // At once, also during a handshake: the place of the connection is another's already.
        let ended = tokio::select! {
            ended = served => ended,
            () = self.outbox.gave_way() => Ended::GaveWay,
        };
        self.end(self.flow, &ended).await;
    }

    /// Waits for the peer's TLS handshake, on a TLS listener.
    async fn accept_tls(
        &self,
        stream: TcpStream,
    ) -> Result<Secured<tokio_rustls::server::TlsStream<TcpStream>>, Ended> {
        let settings = self.connections.settings();
        prepare(&stream, settings.message)?;

        if self.flow.transport != Transport::Tls {
            return Ok(Secured::Bare(stream));
        }

        // A connection that is closed without an octet, as checks of the port leave it, has failed no handshake.
        match timeout(settings.first_octet, stream.peek(&mut [0])).await {
            Ok(Ok(0)) => return Err(Ended::ByPeer),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(Ended::SlowToSend),
        }

        match timeout(settings.first_message, self.security.accept(stream)).await {
            Ok(Ok(stream)) => Ok(Secured::Tls(Box::new(stream))),
            Ok(Err(error)) => {
                tracing::info!(peer = %self.flow.peer, %error, "TLS handshake with a client failed");
                Err(Ended::NotSecured("the handshake failed".into()))
            }
            Err(_) => Err(Ended::NotSecured("the handshake took too long".into())),
        }
    }

    async fn open(self) {
        match self.connect().await {
            Ok((stream, local)) => {
                self.outbox.set_opened();
                let flow = Flow { local, ..self.flow };
                let first = (Awaited::FirstMessage, (self.clock)());
                let ended = match self.connect_tls(stream).await {
                    Ok(Secured::Bare(stream)) => self.serve(flow, stream, first).await,
                    Ok(Secured::Tls(stream)) => self.serve(flow, stream, first).await,
                    Err(ended) => ended,
                };
                self.end(flow, &ended).await;
            }
            Err(ended) => self.end(self.flow, &ended).await,
        }
    }

    /// Performs the TLS handshake on a TLS flow, and verifies the peer.
    async fn connect_tls(
        &self,
        stream: TcpStream,
    ) -> Result<Secured<tokio_rustls::client::TlsStream<TcpStream>>, Ended> {
        let settings = self.connections.settings();
        prepare(&stream, settings.message)?;

        if self.flow.transport != Transport::Tls {
            return Ok(Secured::Bare(stream));
        }

        let connecting = self.security.connect(stream, self.required_name);
        match timeout(settings.connect, connecting).await {
            Ok(Ok(stream)) => Ok(Secured::Tls(Box::new(stream))),
            Ok(Err(error)) => {
                let peer = self.flow.peer;
                let name = self.security.names().name(self.required_name);
                let name = name.map_or_else(|| peer.ip().to_string(), |name| name.to_string());
                let reason = handshake::reason(&error, &name);

                // OPTIONS to an unverified peer fail again and again: log the same reason once an hour.
                if self
                    .security
                    .unverified()
                    .is_news(peer, &reason, (self.clock)())
                {
                    tracing::warn!(%peer, name, reason = &*reason, "the peer was not verified");
                }

                Err(Ended::NotSecured(reason))
            }
            Err(_) => Err(Ended::NotSecured("the handshake took too long".into())),
        }
    }

    async fn connect(&self) -> Result<(TcpStream, SocketAddr), Ended> {
        let peer = self.flow.peer;
        let socket = if peer.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        if let Some(source) = source(&self.flow) {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        let connecting = timeout(self.connections.settings().connect, socket.connect(peer));
        let connected = connecting.await.map_err(|_| Ended::NotOpened)?;

        // The system has a limit of its own, which may come first.
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        let stream = match connected {
            Err(error) if is_late(&error) => return Err(Ended::NotOpened),
            connected => connected?,
        };
        let local = stream.local_addr()?;
        Ok((stream, local))
    }

    async fn serve(
        &self,
        flow: Flow,
        stream: impl AsyncRead + AsyncWrite + Send,
        (awaited, began): (Awaited, Moment),
    ) -> Ended {
        let connection = Connection {
            flow,
            outbox: Arc::clone(&self.outbox),
            sink: self.sink.clone(),
            clock: self.clock,
            settings: self.connections.settings().clone(),
            began,
            awaited,
        };

        let closing = async {
            self.is_closing.store(true, Ordering::Relaxed);
            self.sink.closing(flow, self.required_name).await;
            if let Some(named) = self.flow_by_name(flow) {
                self.sink.closing(named, 0).await;
            }
        };

        connection.serve(stream, closing).await
    }

    async fn end(&self, flow: Flow, ended: &Ended) {
        metrics::counter!("trunkline_sip_connections_ended_total", "why" => ended.as_str())
            .increment(1);
        tracing::debug!(peer = %flow.peer, connection = flow.connection, why = %ended, "connection ended");
        self.connections.remove(flow.connection);
        let was_closing = self.is_closing.load(Ordering::Relaxed);

        let lost = |flow| Lost {
            flow,
            proved: self.required_name,
            was_closing,
            fault: ended.fault(),
        };

        self.sink.lost(lost(flow)).await;
        if let Some(flow) = self.flow_by_name(flow).filter(|_| !was_closing) {
            self.sink.lost(lost(flow)).await;
        }
    }

    /// Returns the flow of messages that were sent to any connection whose peer has proved the name. The `connection` of this flow is the
    /// number of the name, which no connection has.
    fn flow_by_name(&self, flow: Flow) -> Option<Flow> {
        let connection = self.required_name;
        (connection != 0).then_some(Flow { connection, ..flow })
    }
}

/// A stream that is ready for SIP.
enum Secured<T> {
    Bare(TcpStream),
    Tls(Box<T>),
}

/// Returns the local address to connect from: the flow's own, if it is specified and of the peer's address family.
fn source(flow: &Flow) -> Option<IpAddr> {
    Some(flow.local.ip()).filter(|ip| !ip.is_unspecified() && ip.is_ipv4() == flow.peer.is_ipv4())
}

/// Sets socket options: messages leave at once, and a vanished peer is noticed.
fn prepare(stream: &TcpStream, unread: Duration) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(unread.max(Duration::from_secs(10)) * 3))
}

#[cfg(test)]
mod tests;
