//! `trunkline health`: asks the daemon of this machine whether it takes calls. For container health checks, which have no curl.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::sockets::near;
use super::{Failure, output};
use crate::config::Config;

/// Time that the daemon may take: it asks its database for two seconds at most.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Octets of the answer that are read.
const LONGEST: u64 = 16 * 1024;

/// Asks the daemon of this machine whether it takes calls: exit code 0 if it does, 1 if it doesn't or drains.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline health\n  trunkline --config /etc/trunkline/trunkline.toml health"
)]
pub(super) struct Command {}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let http = &config.http;
        let address = match (http.health_listen, &http.tls) {
            (Some(address), _) => near(address),
            (None, None) => near(http.listen),
            (None, Some(_)) => {
                return Err(Failure::Startup(
                    "the API is served over TLS, whose certificate doesn't name this machine's own address: set http.health_listen \
                     to 127.0.0.1:9090, for example"
                        .to_owned(),
                ));
            }
        };

        let asked = tokio::time::timeout(TIMEOUT, readiness(address)).await;
        let answer = asked
            .map_err(|_| failed(address, &format!("no answer in {} s", TIMEOUT.as_secs())))?
            .map_err(|error| failed(address, &error.to_string()))?;

        match answer {
            Readiness { status: 200, body } => {
                output::print(&body);
                Ok(())
            }
            Readiness { body, .. } => Err(failed(address, &body)),
        }
    }
}

fn failed(address: SocketAddr, reason: &str) -> Failure {
    Failure::Command(format!("{address} is not ready: {reason}"))
}

/// Answer to `GET /readyz`.
pub(super) struct Readiness {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Asks `/readyz` over plain HTTP.
///
/// # Errors
/// Nothing answers there.
pub(super) async fn readiness(address: SocketAddr) -> std::io::Result<Readiness> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // `Connection: close` has the daemon end the answer. The bound is for another program that listens there instead.
    stream.take(LONGEST).read_to_end(&mut answer).await?;

    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok(Readiness {
        // 0: what answered doesn't speak HTTP, so it is another program.
        status: status.unwrap_or(0),
        body: body.to_owned(),
    })
}
