//! Serves HTTP/1.1 on one address: bounded connections, slow clients cut, a graceful end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

use super::{Api, credentials, router, streams};

/// Connections at once; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a client may leave unread what was sent to it.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How long requests under way may take once the server ends.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// Pause after a failed accept (out of descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes the address, so that a taken port is known before anything else starts.
///
/// # Errors
/// The address can't be listened on.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    end: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
    api: Api,
    /// What is done for credentials and streams while they are asked for.
    followers: [tokio::task::JoinHandle<()>; 3],
}

impl Server {
    /// Serves `api` on `listener` until `stop`.
    pub fn start(api: Api, listener: TcpListener) -> Self {
        let (end, ended) = watch::channel(false);
        let followers = [
            tokio::spawn(credentials::follow(api.clone())),
            tokio::spawn(credentials::write_uses(api.clone())),
            tokio::spawn(streams::follow(api.clone())),
        ];
        let serving = tokio::spawn(serve(router(api.clone()), listener, ended));
        Self {
            end,
            serving,
            api,
            followers,
        }
    }

    /// Stops accepting, lets requests under way finish for a few seconds, and returns.
    pub async fn stop(self) {
        let _ = self.end.send(true);
        self.api.streams().end();
        let _ = self.serving.await;
        for task in self.followers {
            task.abort();
            let _ = task.await;
        }
        self.api.write_uses().await;
    }
}

async fn serve(router: Router, listener: TcpListener, mut ended: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = Arc::clone(&room)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.changed() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "HTTP connection not accepted"
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = graceful.watch(connection(stream, peer, router.clone()));
        tokio::spawn(async move {
            // A peer that goes away or sends no HTTP is its own affair.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(LAST_REQUESTS, graceful.shutdown()).await;
}

type Connection =
    hyper::server::conn::http1::Connection<TokioIo<TcpStream>, TowerToHyperService<FromPeer>>;

fn connection(stream: TcpStream, peer: SocketAddr, router: Router) -> Connection {
    // Without it answers wait for the peer's delayed ACK; a socket that can't set it still works.
    let _ = stream.set_nodelay(true);
    // Whoever reads nothing of a stream must not hold his connection for good.
    let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(READ_TIMEOUT));
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(
            TokioIo::new(stream),
            TowerToHyperService::new(FromPeer { peer, router }),
        )
}

/// Tells the router who sits at the other end of the connection.
#[derive(Clone, Debug)]
struct FromPeer {
    peer: SocketAddr,
    router: Router,
}

impl Service<Request<Incoming>> for FromPeer {
    type Response = <Router as Service<Request<Incoming>>>::Response;
    type Error = <Router as Service<Request<Incoming>>>::Error;
    type Future = <Router as Service<Request<Incoming>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(ConnectInfo(self.peer));
        self.router.call(request)
    }
}
