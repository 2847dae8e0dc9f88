//! Server of the control socket: a Unix socket in the data directory for the user who runs the daemon, and for root.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use crate::api::caller::Operator;
use crate::api::connection;
use crate::api::connection::Answers;
use crate::api::connection_limiter::{ConnectionBounds, ConnectionLimiter};
use crate::api::timeouts::TIMEOUTS;

/// Name of the socket in the data directory.
pub const SOCKET: &str = "control.sock";

/// Maximum number of connections: a few terminals.
const CONNECTIONS: usize = 64;
/// Time that requests in progress have to finish when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running server of the control socket.
#[derive(Debug)]
pub struct ControlServer {
    end: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
    path: PathBuf,
}

impl ControlServer {
    /// Serves `router` on the socket in `data_dir`, replacing what an earlier run left there. The data directory must be
    /// locked by this process.
    ///
    /// # Errors
    /// The socket can't be created, for example because the path is longer than the system allows.
    pub fn start(router: Router, data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }

        // Until its mode is set, the directory's mode keeps other users out. `admitted` refuses their uid in any case.
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;

        let (end, ended) = watch::channel(false);
        let serving = tokio::spawn(serve(router, listener, ended));
        Ok(Self { end, serving, path })
    }

    /// Stops accepting, lets requests in progress finish for a moment, and removes the socket.
    pub async fn stop(self) {
        // Failures are ignored: the process ends next, and the next run replaces a socket that is left.
        let _ = self.end.send(true);
        let _ = self.serving.await;
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve(router: Router, listener: UnixListener, mut ended: watch::Receiver<bool>) {
    let limiter = ConnectionLimiter::new(ConnectionBounds {
        total: CONNECTIONS,
        per_source: CONNECTIONS,
        trusted_proxies: Vec::new(),
    });
    let answers = Answers {
        router,
        timeouts: TIMEOUTS,
    };

    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.changed() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "connection to the control socket not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };

        // Before the limiter: another user of the machine must not take up the operator's connections.
        let Some(operator) = admitted(&stream) else {
            continue;
        };

        // All peers of the socket share one place in the limiter's table of sources.
        let Some(permit) = limiter.enter(IpAddr::V4(Ipv4Addr::LOCALHOST)) else {
            continue;
        };

        tokio::spawn(connection::serve_operator(
            stream,
            operator,
            permit,
            answers.clone(),
            ended.clone(),
        ));
    }

    drop(listener);
    // Requests that take longer are cut off.
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, limiter.emptied()).await;
}

/// Returns the peer, if it is root or the user of this process (unix(7), SO_PEERCRED).
fn admitted(stream: &UnixStream) -> Option<Operator> {
    let uid = match stream.peer_cred() {
        Ok(peer) => peer.uid(),
        Err(error) => {
            tracing::warn!(%error, "the peer of the control socket is unknown: refused");
            return None;
        }
    };

    if is_operators(uid, rustix::process::geteuid().as_raw()) {
        return Some(Operator::new(uid));
    }

    tracing::warn!(uid, "another user on the control socket: refused");
    None
}

const fn is_operators(uid: u32, own: u32) -> bool {
    uid == 0 || uid == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_daemons_user_are_admitted() {
        for (name, uid, own, admitted) in [
            ("root", 0, 1000, true),
            ("the daemon's user", 1000, 1000, true),
            ("another user", 1001, 1000, false),
            ("another user beside root's daemon", 1000, 0, false),
        ] {
            assert_eq!(is_operators(uid, own), admitted, "{name}");
        }
    }
}
