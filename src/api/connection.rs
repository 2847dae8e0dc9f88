//! One HTTP connection: TLS if the listener has it, HTTP/1.1 or HTTP/2, and the timeouts.
//!
//! A client that sends nothing useful, doesn't read, or sends a body too slowly is disconnected. Progress means that a
//! request moved: its head, a part of its body, or a part of the answer.
//!
//! This is our own loop because hyper's server has no timeout for a reader that doesn't read, and no way to evict a
//! connection.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::ConnectInfo;
use axum::http::header::{CONNECTION, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use super::caller::Operator;
use super::connection_limiter::{ConnectionPermit, RequestInProgress};
use super::parted_body::PartedBody;
use super::progress::{Chatter, Progress};
use super::timeouts::Timeouts;
use super::tracked_body::TrackedBody;

/// ALPN protocols of HTTPS, preferred first.
pub(super) const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Checks without progress after which the connection is asked to close. All of them together take `Timeouts::idle`.
const CHECKS: u32 = 12;
/// Further checks without progress after which it is cut off.
const LAST_CHECKS: u32 = 1;
/// Maximum size of a request's head, in octets.
const MAX_HEAD_OCTETS: usize = 32 * 1024;
/// Maximum number of header fields in a request.
const MAX_HEADERS: usize = 100;
/// Maximum number of concurrent requests on an HTTP/2 connection. Few of them run before one has authenticated (see [`RequestInProgress::turn`]); the
/// others wait with their heads.
const MAX_STREAMS: u32 = 100;
/// Maximum size of a request's head in HTTP/2, in octets: less than in HTTP/1.1, since a connection holds many.
const MAX_HTTP2_HEAD_OCTETS: u32 = 16 * 1024;
/// Octets of a request's body that may be sent before the handler reads them.
const MAX_UNREAD_OF_BODY: u32 = 64 * 1024;
/// Octets of all bodies on an HTTP/2 connection that may be sent before the handlers read them.
const MAX_UNREAD_OF_ALL: u32 = 256 * 1024;

/// Octets of an HTTP/2 connection that may come without progress of a request: all bodies that may be sent unread, a head, and frames of the
/// protocol itself. An idle client's PINGs are far from it; a flood of PING, SETTINGS or PRIORITY frames ends its connection.
const MAX_CHATTER: usize = MAX_UNREAD_OF_ALL as usize + 64 * 1024;

/// Marks a request on a reserve connection, where only health checks are answered.
#[derive(Copy, Clone, Debug)]
pub(super) struct HealthOnly;

/// Marks a request that came over TLS.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Encrypted;

/// Marks a request whose `Host` doesn't say which host it is for (RFC 9112 §3.2).
#[derive(Copy, Clone, Debug)]
pub(super) struct UnclearHost;

/// Routes of a listener, and the timeouts of its clients.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    pub(super) router: Router,
    pub(super) timeouts: Timeouts,
}

/// Serves one connection until either side closes it or it is evicted. Closes it gracefully once `ended` resolves.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
    tls: Option<TlsAcceptor>,
    mut answers: Answers,
    ended: watch::Receiver<bool>,
) {
    // Otherwise answers wait for the peer's delayed ACK. A socket that refuses the option still works.
    let _ = stream.set_nodelay(true);
    let permit = Arc::new(permit);
    if permit.is_reserve() {
        answers.timeouts = answers.timeouts.in_reserve();
    }

    let peer = match tls {
        Some(_) => Peer::Encrypted(peer),
        None => Peer::Plain(peer),
    };
    let service = PeerService::new(peer, &permit, answers);
    tokio::select! {
        () = answer(stream, tls, service, ended) => {}
        // No authenticated request was in progress when this connection was chosen: see `ConnectionLimiter::enter`.
        () = permit.evicted() => {}
    }
}

/// As [`serve`], for a connection to the control socket.
pub(super) async fn serve_operator(
    stream: UnixStream,
    operator: Operator,
    permit: ConnectionPermit,
    answers: Answers,
    ended: watch::Receiver<bool>,
) {
    let permit = Arc::new(permit);
    let service = PeerService::new(Peer::Operator(operator), &permit, answers);
    let (progress, idle) = (service.progress.clone(), service.answers.timeouts.idle);
    tokio::select! {
        () = drive(http1(stream, service), progress, idle, ended) => {}
        () = permit.evicted() => {}
    }
}

async fn answer(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    service: PeerService,
    ended: watch::Receiver<bool>,
) {
    let (progress, timeouts) = (service.progress.clone(), service.answers.timeouts);
    let Some(acceptor) = tls else {
        return drive(http1(stream, service), progress, timeouts.idle, ended).await;
    };
    // A peer that leaves, or speaks no TLS, needs no log line.
    let Ok(Ok(stream)) = timeout(timeouts.head, acceptor.accept(stream)).await else {
        return;
    };
    if stream.get_ref().1.alpn_protocol() == Some(PROTOCOLS[0]) {
        drive(http2(stream, service), progress, timeouts.idle, ended).await;
    } else {
        drive(http1(stream, service), progress, timeouts.idle, ended).await;
    }
}

type Io<S> = TokioIo<TimedStream<S>>;
type Answering = TowerToHyperService<PeerService>;

fn http1<S>(stream: S, service: PeerService) -> http1::UpgradeableConnection<Io<S>, Answering>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    http1::Builder::new()
        .timer(TokioTimer::new())
        // Hyper's timeout would also close connections that are idle between two requests; see `Head`.
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD_OCTETS)
        .max_headers(MAX_HEADERS)
        .serve_connection(
            io(
                stream,
                service.answers.timeouts.idle,
                Reading::Http1(Head::of(&service)),
            ),
            TowerToHyperService::new(service),
        )
        .with_upgrades()
}

fn http2<S>(stream: S, service: PeerService) -> http2::Connection<Io<S>, Answering, TokioExecutor>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let chatter = Chatter::new(service.progress.clone(), MAX_CHATTER);
    http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HTTP2_HEAD_OCTETS)
        .initial_stream_window_size(MAX_UNREAD_OF_BODY)
        .initial_connection_window_size(MAX_UNREAD_OF_ALL)
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(64 * 1024)
        .serve_connection(
            // No `Head`: octets of an HTTP/2 connection may be of any request. `drive` ends one on which no head is
            // completed.
            io(
                stream,
                service.answers.timeouts.idle,
                Reading::Http2(chatter),
            ),
            TowerToHyperService::new(service),
        )
}

fn io<S>(stream: S, idle: Duration, reading: Reading) -> Io<S> {
    TokioIo::new(TimedStream {
        stream,
        reading,
        has_yielded: false,
        write_deadline: None,
        idle,
    })
}

/// Connection that can be asked to close once the requests in progress are answered.
trait Closing: Future {
    fn close(self: Pin<&mut Self>);
}

impl<S> Closing for http1::UpgradeableConnection<Io<S>, Answering>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    fn close(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<S> Closing for http2::Connection<Io<S>, Answering, TokioExecutor>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    fn close(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs a connection to its end, and closes it when there is no progress for the time `idle`.
async fn drive<C: Closing>(
    connection: C,
    progress: Progress,
    idle: Duration,
    mut ended: watch::Receiver<bool>,
) {
    // `Progress` counts heads and parts of bodies, not octets: PINGs, or the trickle of a head, don't keep a connection open.
    let mut connection = pin!(connection);
    let check_interval = idle / CHECKS;
    let mut is_closing = false;
    let (mut last_progress, mut idle_checks) = (progress.made(), 0);

    loop {
        let should_close = tokio::select! {
            _ = connection.as_mut() => return,
            _ = ended.changed(), if !is_closing => true,
            () = sleep(check_interval) => {
                let made = progress.made();
                idle_checks = if made == last_progress { idle_checks + 1 } else { 0 };
                last_progress = made;
                idle_checks >= CHECKS
            }
        };

        if should_close && !is_closing {
            is_closing = true;
            connection.as_mut().close();
        }

        // The graceful close doesn't end while the peer doesn't read, so the connection is dropped.
        if idle_checks >= CHECKS + LAST_CHECKS {
            return;
        }
    }
}

/// Other end of a connection.
#[derive(Copy, Clone, Debug)]
enum Peer {
    Plain(SocketAddr),
    Encrypted(SocketAddr),
    Operator(Operator),
}

/// Passes the peer of a connection to the router.
#[derive(Clone, Debug)]
struct PeerService {
    peer: Peer,
    answers: Answers,
    progress: Progress,
    /// Request heads read so far.
    heads: Arc<AtomicU64>,
    /// Request that upgraded the connection (RFC 9110 §7.8): it is in progress as long as the connection.
    upgrade: Arc<OnceLock<RequestInProgress>>,
    permit: Arc<ConnectionPermit>,
}

impl PeerService {
    fn new(peer: Peer, permit: &Arc<ConnectionPermit>, answers: Answers) -> Self {
        Self {
            peer,
            answers,
            progress: Progress::default(),
            heads: Arc::default(),
            upgrade: Arc::default(),
            permit: Arc::clone(permit),
        }
    }
}

/// Returns true if `Host` is as RFC 9112 §3.2 requires: exactly one in HTTP/1.1, at most one in other versions, and nothing but a host with an
/// optional port. An empty value is allowed.
fn names_one_host<B>(request: &Request<B>) -> bool {
    let mut lines = request.headers().get_all(HOST).iter();
    let Some(host) = lines.next() else {
        return request.version() != Version::HTTP_11;
    };

    // `Authority` takes a user name too, which RFC 9112 §3.2 doesn't allow in `Host`.
    let is_host = |host: &str| {
        let authority = host.parse::<Authority>();
        host.is_empty() || authority.is_ok_and(|authority| !authority.as_str().contains('@'))
    };
    lines.next().is_none() && host.to_str().is_ok_and(is_host)
}

impl Service<Request<Incoming>> for PeerService {
    type Response = Response<TrackedBody<Body>>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Body>>::poll_ready(&mut self.answers.router, context)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let progress = self.progress.clone();
        progress.note();
        self.heads.fetch_add(1, Ordering::Relaxed);

        let is_clear = names_one_host(&request);
        let is_http2 = request.version() == Version::HTTP_2;
        let is_read = Arc::new(AtomicBool::new(request.body().is_end_stream()));
        let mut incoming = request.map(|body| {
            Body::new(TrackedBody {
                body,
                progress: progress.clone(),
                deadline: Some(Box::pin(sleep(self.answers.timeouts.body))),
                in_progress: None,
                is_read: Arc::clone(&is_read),
            })
        });

        let extensions = incoming.extensions_mut();
        match self.peer {
            Peer::Plain(address) => {
                extensions.insert(ConnectInfo(address));
            }
            Peer::Encrypted(address) => {
                extensions.insert(ConnectInfo(address));
                extensions.insert(Encrypted);
            }
            Peer::Operator(operator) => {
                extensions.insert(operator);
            }
        }
        if !is_clear {
            extensions.insert(UnclearHost);
        }

        extensions.insert(self.permit.proof());
        if self.permit.is_reserve() {
            extensions.insert(HealthOnly);
        }

        let mut in_progress = self.permit.begin();
        let (upgrade, permit) = (Arc::clone(&self.upgrade), Arc::clone(&self.permit));
        let mut router = self.answers.router.clone();
        Box::pin(async move {
            // Before the handler: `turn` bounds the answers that we build for an unauthenticated client that never reads them.
            in_progress.turn().await;
            let mut response = router.call(incoming).await?;
            progress.note();
            if !is_http2 && !is_read.load(Ordering::Relaxed) {
                // What is left of the body isn't read: the next request on this connection couldn't be found behind it (RFC 9112 §9.6).
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                // The 101 has no body that would keep the request in progress: `Head` keeps this mark with the
                // connection.
                upgrade.get_or_init(|| permit.begin());
            }
            Ok(response.map(|body| TrackedBody {
                body: match is_http2 {
                    true => Body::new(PartedBody::new(body)),
                    false => body,
                },
                progress,
                deadline: None,
                in_progress: Some(in_progress),
                is_read: Arc::default(),
            }))
        })
    }
}

/// Deadline of a request's head in HTTP/1.1. It starts with the connection, and again with the first octet after all
/// requests have been answered, because a connection may be idle for longer between two requests.
struct Head {
    limit: Duration,
    heads: Arc<AtomicU64>,
    /// Keeps the request that upgraded the connection in progress.
    #[expect(dead_code, reason = "dropped with the connection")]
    upgrade: Arc<OnceLock<RequestInProgress>>,
    permit: Arc<ConnectionPermit>,
    /// `None` while no head is awaited.
    awaited: Option<AwaitedHead>,
}

/// A head that is awaited.
struct AwaitedHead {
    /// Number of heads before it.
    before: u64,
    deadline: Pin<Box<Sleep>>,
}

impl AwaitedHead {
    /// Awaits the next head for the time `limit`.
    fn after(before: u64, limit: Duration) -> Self {
        let deadline = Box::pin(sleep(limit));
        Self { before, deadline }
    }
}

impl Head {
    fn of(service: &PeerService) -> Self {
        let limit = service.answers.timeouts.head;
        Self {
            limit,
            heads: Arc::clone(&service.heads),
            upgrade: Arc::clone(&service.upgrade),
            permit: Arc::clone(&service.permit),
            awaited: Some(AwaitedHead::after(0, limit)),
        }
    }

    /// Passes on the result of a read, unless the head is late.
    fn or_timeout(
        &mut self,
        read: Poll<io::Result<()>>,
        has_data: bool,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let before = self.heads.load(Ordering::Relaxed);
        // The head that was awaited has been read: its deadline is over.
        self.awaited = (self.awaited.take()).filter(|awaited| awaited.before == before);

        if read.is_ready() {
            // While a request is in progress, octets may be of its body, or of a pipelined head that hyper reads
            // afterwards.
            if has_data && self.awaited.is_none() && !self.permit.is_busy() {
                self.awaited = Some(AwaitedHead::after(before, self.limit));
            }
            return read;
        }

        let Some(awaited) = &mut self.awaited else {
            return Poll::Pending;
        };
        ready!(awaited.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Bound on what a client may send.
enum Reading {
    Http1(Head),
    Http2(Chatter),
}

/// Stream that lets other tasks run before it writes, and fails if the peer doesn't read or a request's head is late.
struct TimedStream<S> {
    stream: S,
    reading: Reading,
    /// True if other tasks have run since there was something to write.
    has_yielded: bool,
    /// Deadline that begins with the first write that finds the send buffer full, and ends with a write that succeeds.
    write_deadline: Option<Pin<Box<Sleep>>>,
    /// Time that a full send buffer is tolerated.
    idle: Duration,
}

impl<S> TimedStream<S> {
    /// Lets ready tasks run first, so that the writes of many connections follow each other: waking a reader costs more
    /// than writing to one that is awake.
    fn yield_once(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.has_yielded {
            return Poll::Ready(());
        }
        self.has_yielded = true;
        // The runtime wakes this task once the others have run.
        pin!(yield_now()).poll(context)
    }

    /// Passes on the result of a write, unless the send buffer was full for too long.
    fn or_timeout<T>(
        &mut self,
        wrote: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.write_deadline = None;
            return wrote;
        }
        let idle = self.idle;
        let write_deadline = self
            .write_deadline
            .get_or_insert_with(|| Box::pin(sleep(idle)));
        ready!(write_deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let octets = buffer.filled().len() - before;
        match &mut self.reading {
            Reading::Http1(head) => head.or_timeout(read, octets > 0, context),
            Reading::Http2(chatter) => {
                ready!(read)?;
                Poll::Ready(chatter.take(octets))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.yield_once(context));
        let wrote = Pin::new(&mut self.stream).poll_write(context, octets);
        self.or_timeout(wrote, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.yield_once(context));
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, octets);
        self.or_timeout(wrote, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_yielded = false;
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.or_timeout(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.or_timeout(shut, context)
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::api::ApiError;
    use crate::api::connection_limiter::{ConnectionBounds, ConnectionLimiter};

    const BRIEF: Timeouts = Timeouts {
        head: Duration::from_millis(200),
        body: Duration::from_millis(400),
        idle: Duration::from_secs(1),
    };
    const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// Serves one connection under these timeouts, and returns the client's end of it.
    async fn served(timeouts: Timeouts) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (stream, peer) = accepted.unwrap();

        let limiter = ConnectionLimiter::new(ConnectionBounds {
            total: 1,
            per_source: 1,
            trusted_proxies: Vec::new(),
        });
        let permit = limiter.enter(peer.ip()).unwrap();
        let take = async |body: crate::api::body::Body| -> Result<&'static str, ApiError> {
            body.fields().map(|_| "taken")
        };
        let router = Router::new().route("/", get(async || "x".repeat(10_000)).post(take));

        tokio::spawn(async move {
            // The server would stop if this half were gone.
            let (_end, ended) = watch::channel(false);
            let answers = Answers { router, timeouts };
            serve(stream, peer, permit, None, answers, ended).await;
        });
        client.unwrap()
    }

    /// Serves one HTTP/2 connection, as behind TLS.
    fn served_http2(router: Router) -> tokio::io::DuplexStream {
        let (client, server) = tokio::io::duplex(1 << 20);
        let limiter = ConnectionLimiter::new(ConnectionBounds {
            total: 1,
            per_source: 1,
            trusted_proxies: Vec::new(),
        });
        let peer: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let permit = Arc::new(limiter.enter(peer.ip()).unwrap());
        let answers = Answers {
            router,
            timeouts: BRIEF,
        };
        let service = PeerService::new(Peer::Plain(peer), &permit, answers);
        let progress = service.progress.clone();
        tokio::spawn(async move {
            let (_end, ended) = watch::channel(false);
            drive(http2(server, service), progress, BRIEF.idle, ended).await;
        });
        client
    }

    /// Sends rounds of a frame, with a request before each round; returns the octets that were taken before the connection ended.
    async fn flood(frame: &[u8], round: usize, rounds: usize) -> usize {
        let client = served_http2(Router::new().route("/", get(async || "x")));
        let (mut reading, mut writing) = tokio::io::split(client);
        let answers = tokio::spawn(async move {
            let mut octets = [0; 4_096];
            while reading.read(&mut octets).await.is_ok_and(|count| count > 0) {}
        });

        let mut opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        opening.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        writing.write_all(&opening).await.unwrap();

        let mut taken = 0;
        for number in 0..rounds {
            // HEADERS of GET http://x/ that end the stream (RFC 9113 §6.2, RFC 7541 Appendix A).
            let stream = u32::try_from(2 * number + 1).unwrap().to_be_bytes();
            let mut request = vec![0, 0, 6, 1, 5];
            request.extend_from_slice(&stream);
            request.extend_from_slice(&[0x82, 0x84, 0x86, 0x41, 1, b'x']);
            request.extend(
                frame
                    .iter()
                    .copied()
                    .cycle()
                    .take(round / frame.len() * frame.len()),
            );
            for part in request.chunks(16 * 1024) {
                if writing.write_all(part).await.is_err() {
                    return taken;
                }
                taken += part.len();
                // The server reads and answers meanwhile.
                tokio::task::yield_now().await;
            }
        }
        answers.abort();
        taken
    }

    #[tokio::test]
    async fn a_flood_of_frames_without_requests_ends_its_connection() {
        let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let priority = [0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];
        for (name, frame) in [
            ("PING", &ping[..]),
            ("SETTINGS", &settings),
            ("PRIORITY", &priority),
        ] {
            let taken = flood(frame, 8 << 20, 1).await;
            // The pipe between the two holds a megabyte.
            assert!(taken < 2 << 20, "{name}: {taken}");
        }

        let whole = flood(&ping, 100 << 10, 8).await;
        assert!(whole > 8 * (100 << 10) - 1_000, "beside requests: {whole}");
    }

    /// Returns what the client reads until the server closes the connection, which it must.
    async fn rest(client: &mut TcpStream) -> String {
        let mut octets = Vec::new();
        match client.read_to_end(&mut octets).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the connection stays up: {error}"),
        }
        String::from_utf8_lossy(&octets).into_owned()
    }

    #[tokio::test]
    async fn slow_clients_are_cut_off() {
        for (name, sent, answer) in [
            ("nothing", "", ""),
            ("half a head", "GET / HTTP/1.1\r\nHo", ""),
            (
                "half a body",
                "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{",
                "HTTP/1.1 408 Request Timeout",
            ),
            ("nothing after an answer", GET, "HTTP/1.1 200 OK"),
        ] {
            let mut client = served(BRIEF).await;
            client.write_all(sent.as_bytes()).await.unwrap();
            let rest = rest(&mut client).await;
            assert!(rest.starts_with(answer), "{name}: {rest}");
            assert_eq!(rest.is_empty(), answer.is_empty(), "{name}: {rest}");
        }
    }

    /// A request that comes when a connection has been idle for longer than a head may take, as from a client's pool.
    #[tokio::test]
    async fn a_connection_may_rest_between_two_requests() {
        let mut client = served(Timeouts {
            idle: Duration::from_secs(60),
            ..BRIEF
        })
        .await;
        for _ in 0..3 {
            client.write_all(GET.as_bytes()).await.unwrap();
            let mut octets = vec![0; 10_000];
            client.read_exact(&mut octets).await.expect("it is up");
            sleep(2 * BRIEF.head).await;
        }
        // The next head has its full time.
        client.write_all(b"GET /").await.unwrap();
        let rest = rest(&mut client).await;
        assert!(!rest.contains("HTTP/1.1 4"), "{rest}");
    }

    /// Pieces that are each in time don't keep a request alive.
    #[tokio::test]
    async fn a_body_that_comes_drop_by_drop_is_cut_off() {
        let mut client = served(BRIEF).await;
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{";
        client.write_all(head.as_bytes()).await.unwrap();

        let mut drops = 0;
        while client.write_all(b" ").await.is_ok() {
            drops += 1;
            assert!(drops < 500, "the body is waited for");
            sleep(Duration::from_millis(50)).await;
        }
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_cut_off() {
        let mut client = served(BRIEF).await;
        // Until the buffers of both sides are full, and beyond.
        while client.write_all(GET.repeat(100).as_bytes()).await.is_ok() {}
    }

    #[test]
    fn a_request_names_one_host() {
        for (case, version, hosts, is_clear) in [
            ("one", Version::HTTP_11, &["a.example:8080"][..], true),
            ("an address", Version::HTTP_11, &["[::1]:80"], true),
            ("empty", Version::HTTP_11, &[""], true),
            ("none", Version::HTTP_11, &[], false),
            ("two", Version::HTTP_11, &["a", "b"], false),
            ("two equal ones", Version::HTTP_11, &["a", "a"], false),
            ("a list", Version::HTTP_11, &["a, b"], false),
            ("a user", Version::HTTP_11, &["a@b"], false),
            ("none in HTTP/1.0", Version::HTTP_10, &[], true),
            ("two in HTTP/1.0", Version::HTTP_10, &["a", "b"], false),
            ("HTTP/2 has :authority", Version::HTTP_2, &[], true),
        ] {
            let mut request = Request::get("/").version(version);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            let request = request.body(()).unwrap();
            assert_eq!(names_one_host(&request), is_clear, "{case}");
        }
    }
}
