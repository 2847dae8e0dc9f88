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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use super::connection_limiter::{ConnectionPermit, UnderWay};
use crate::config::HttpTimeouts;

/// ALPN protocols of HTTPS, preferred first.
pub(super) const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Checks without progress after which the connection is asked to close.
const CHECKS: u32 = 12;
/// Checks after that before it is closed.
const LAST_CHECKS: u32 = 1;
/// Maximum size of a request's head, in octets.
const MAX_HEAD_OCTETS: usize = 32 * 1024;
/// Maximum number of header fields in a request.
const MAX_HEADERS: usize = 100;
/// Maximum number of concurrent requests on an HTTP/2 connection.
const MAX_STREAMS: u32 = 100;

/// Time that a connection in the reserve has to send a request's head.
const RESERVE_HEAD: Duration = Duration::from_secs(2);
/// Time that such a connection may be idle.
const RESERVE_IDLE: Duration = Duration::from_secs(5);

/// Marks a request on a reserve connection, where only health checks are answered.
#[derive(Copy, Clone, Debug)]
pub(super) struct HealthOnly;

/// Serves one connection until either side closes it, `ended` resolves, or another connection needs its place.
pub(super) async fn serve(
    (stream, peer): (TcpStream, SocketAddr),
    place: ConnectionPermit,
    tls: Option<TlsAcceptor>,
    (router, patience): (Router, HttpTimeouts),
    ended: watch::Receiver<bool>,
) {
    // Otherwise answers wait for the peer's delayed ACK. A socket that refuses the option still works.
    let _ = stream.set_nodelay(true);
    let place = Arc::new(place);
    let patience = if place.is_reserve() {
        in_reserve(patience)
    } else {
        patience
    };

    let service = PeerService {
        peer,
        router,
        patience,
        progress: Progress::default(),
        heads: Arc::default(),
        place: Arc::clone(&place),
    };

    tokio::select! {
        () = answer(stream, tls, service, ended) => {}
        () = place.evicted() => {}
    }
}

/// Timeouts of a reserve connection: health checks send their request at once.
fn in_reserve(patience: HttpTimeouts) -> HttpTimeouts {
    HttpTimeouts {
        head: patience.head.min(RESERVE_HEAD),
        idle: patience.idle.min(RESERVE_IDLE),
        ..patience
    }
}

async fn answer(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    service: PeerService,
    ended: watch::Receiver<bool>,
) {
    let (progress, patience) = (service.progress.clone(), service.patience);
    let Some(acceptor) = tls else {
        return attend(http1(stream, service), (progress, patience), ended).await;
    };
    // A peer that leaves, or speaks no TLS, needs no log line.
    let Ok(Ok(stream)) = timeout(patience.head, acceptor.accept(stream)).await else {
        return;
    };
    if stream.get_ref().1.alpn_protocol() == Some(PROTOCOLS[0]) {
        attend(http2(stream, service), (progress, patience), ended).await;
    } else {
        attend(http1(stream, service), (progress, patience), ended).await;
    }
}

type Io<S> = TokioIo<TimedStream<S>>;
type Answering = TowerToHyperService<PeerService>;

fn http1<S>(stream: S, service: PeerService) -> http1::Connection<Io<S>, Answering>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    http1::Builder::new()
        .timer(TokioTimer::new())
        // Hyper's timeout would also close connections that are idle between two requests; see `Head`.
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD_OCTETS)
        .max_headers(MAX_HEADERS)
        .serve_connection(
            io(stream, service.patience.idle, Some(Head::of(&service))),
            TowerToHyperService::new(service),
        )
}

fn http2<S>(stream: S, service: PeerService) -> http2::Connection<Io<S>, Answering, TokioExecutor>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD_OCTETS as u32)
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(64 * 1024)
        .serve_connection(
            io(stream, service.patience.idle, None),
            TowerToHyperService::new(service),
        )
}

fn io<S>(stream: S, idle: Duration, head: Option<Head>) -> Io<S> {
    TokioIo::new(TimedStream {
        stream,
        head,
        others_went: false,
        unread: None,
        idle,
    })
}

/// Runs a connection to its end, and closes it when nothing moves.
async fn attend<C: GracefulConnection>(
    connection: C,
    (progress, patience): (Progress, HttpTimeouts),
    mut ended: watch::Receiver<bool>,
) {
    let mut connection = pin!(connection);
    let look = patience.idle / CHECKS;
    let mut leaving = false;
    let (mut seen, mut still) = (progress.made(), 0);
    loop {
        let leave = tokio::select! {
            _ = connection.as_mut() => return,
            _ = ended.changed(), if !leaving => true,
            () = sleep(look) => {
                let made = progress.made();
                still = if made == seen { still + 1 } else { 0 };
                seen = made;
                still >= CHECKS
            }
        };

        if leave && !leaving {
            leaving = true;
            connection.as_mut().graceful_shutdown();
        }

        if still >= CHECKS + LAST_CHECKS {
            return;
        }
    }
}

/// Counter of progress.
#[derive(Clone, Debug, Default)]
struct Progress(Arc<AtomicU64>);

impl Progress {
    fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn made(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Tells the router the peer's address.
#[derive(Clone, Debug)]
struct PeerService {
    peer: SocketAddr,
    router: Router,
    patience: HttpTimeouts,
    progress: Progress,
    /// Request heads read so far.
    heads: Arc<AtomicU64>,
    place: Arc<ConnectionPermit>,
}

impl Service<Request<Incoming>> for PeerService {
    type Response = Response<TrackedBody<Body>>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Body>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let progress = self.progress.clone();
        progress.note();
        self.heads.fetch_add(1, Ordering::Relaxed);
        let mut incoming = request.map(|body| {
            Body::new(TrackedBody {
                body,
                progress: progress.clone(),
                late: Some(Box::pin(sleep(self.patience.body))),
                under_way: None,
            })
        });

        let extensions = incoming.extensions_mut();
        extensions.insert(ConnectInfo(self.peer));
        extensions.insert(self.place.proof());
        if self.place.is_reserve() {
            extensions.insert(HealthOnly);
        }

        let under_way = self.place.begin();
        let answering = self.router.call(incoming);
        Box::pin(async move {
            let response = answering.await?;
            progress.note();
            Ok(response.map(|body| TrackedBody {
                body,
                progress,
                late: None,
                under_way: Some(under_way),
            }))
        })
    }
}

/// Body whose parts count as progress, with an optional deadline for the whole.
struct TrackedBody<B> {
    body: B,
    progress: Progress,
    late: Option<Pin<Box<Sleep>>>,
    /// Request that ends with the last part of this answer.
    #[expect(dead_code, reason = "dropped with the body")]
    under_way: Option<UnderWay>,
}

impl<B> HttpBody for TrackedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.progress.note();
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        match &mut self.late {
            Some(late) => {
                ready!(late.as_mut().poll(context));
                let late = io::Error::from(io::ErrorKind::TimedOut);
                Poll::Ready(Some(Err(axum::Error::new(late))))
            }
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Deadline of a request's head in HTTP/1.1. It starts with the connection, and again with the first octet after all
/// requests have been answered, because a connection may be idle for longer between two requests.
struct Head {
    limit: Duration,
    heads: Arc<AtomicU64>,
    place: Arc<ConnectionPermit>,
    /// Deadline of the awaited head, with the number of heads before it.
    late: Option<(u64, Pin<Box<Sleep>>)>,
}

impl Head {
    fn of(service: &PeerService) -> Self {
        let limit = service.patience.head;
        Self {
            limit,
            heads: Arc::clone(&service.heads),
            place: Arc::clone(&service.place),
            late: Some((0, Box::pin(sleep(limit)))),
        }
    }

    /// Passes on the result of a read, unless the head is late.
    fn judged(
        &mut self,
        read: Poll<io::Result<()>>,
        has_brought: bool,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let before = self.heads.load(Ordering::Relaxed);
        self.late = self.late.take().filter(|(number, _)| *number == before);
        if read.is_ready() {
            if has_brought && self.late.is_none() && !self.place.is_busy() {
                self.late = Some((before, Box::pin(sleep(self.limit))));
            }
            return read;
        }
        let Some((_, late)) = &mut self.late else {
            return Poll::Pending;
        };
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Stream that lets other tasks run before it writes, and fails if the peer doesn't read or a request's head is late.
struct TimedStream<S> {
    stream: S,
    head: Option<Head>,
    /// True if other tasks have run since there was something to write.
    others_went: bool,
    /// Deadline since the last write that found the send buffer full.
    unread: Option<Pin<Box<Sleep>>>,
    /// Time that a full send buffer is tolerated.
    idle: Duration,
}

impl<S> TimedStream<S> {
    /// Lets ready tasks run first, so that the writes of many connections follow each other: waking a reader costs more
    /// than writing to one that is awake.
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.others_went {
            return Poll::Ready(());
        }
        self.others_went = true;
        // The runtime wakes this task once the others have run.
        pin!(yield_now()).poll(context)
    }

    /// Passes on the result of a write, unless the send buffer was full for too long.
    fn judged<T>(
        &mut self,
        wrote: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.unread = None;
            return wrote;
        }
        let idle = self.idle;
        let unread = self.unread.get_or_insert_with(|| Box::pin(sleep(idle)));
        ready!(unread.as_mut().poll(context));
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
        match &mut self.head {
            Some(head) => head.judged(read, buffer.filled().len() > before, context),
            None => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.turn(context));
        let wrote = Pin::new(&mut self.stream).poll_write(context, octets);
        self.judged(wrote, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.turn(context));
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, octets);
        self.judged(wrote, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.others_went = false;
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judged(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judged(shut, context)
    }
}
