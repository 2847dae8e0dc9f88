//! Checks of the daemon and its ports: it runs, is ready, and answers on every configured address.

use std::time::Duration;

use tokio::net::TcpStream;
use trunkline_sip::flow::Transport;

use super::super::health::{Readiness, readiness};
use super::super::session::running_sip;
use super::super::sockets::near;
use super::ping::{PingAnswer, ping};
use crate::config::{Config, Listener};
use crate::explain::finding::Finding;

/// Time for the answer to `/readyz`: longer than a daemon takes to report that its database doesn't answer.
const TIMEOUT: Duration = Duration::from_secs(5);
const START: &str = "Start it: trunkline serve.";

pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    let (daemon, seen) = daemon(config).await;
    let mut findings = vec![daemon];
    for listener in &config.sip.listeners {
        match seen {
            Seen::Up => findings.push(answering(listener).await),
            Seen::Down => findings.push(free(listener)),
            Seen::OtherAddresses => {}
        }
    }
    findings
}

/// Daemon at the configured address.
#[derive(Copy, Clone)]
enum Seen {
    Up,
    Down,
    /// A daemon serves the data directory, but at other addresses.
    OtherAddresses,
}

/// Asks the daemon for its readiness; also returns what the checks of the listeners can expect.
async fn daemon(config: &Config) -> (Finding, Seen) {
    const CHECK: &str = "daemon";

    let http = &config.http;
    let address = near(http.health_listen.unwrap_or(http.listen));
    let over_tls = http.tls.is_some() && http.health_listen.is_none();
    let asked = tokio::time::timeout(TIMEOUT, async {
        if over_tls {
            // The certificate names no address of this machine, so a connection counts as an answer.
            return TcpStream::connect(address).await.map(|_| None);
        }
        readiness(address).await.map(Some)
    })
    .await;

    let nothing = || {
        let text = format!("Nothing answers at {address} (http.listen).");
        (Finding::error(CHECK, text, START), Seen::Down)
    };

    match asked {
        Ok(Ok(None)) => (
            Finding::ok(CHECK, format!("The daemon listens on https at {address}.")),
            Seen::Up,
        ),
        Ok(Ok(Some(Readiness { status: 200, body }))) if body.contains("degraded") => {
            (degraded(CHECK, &body), Seen::Up)
        }
        Ok(Ok(Some(Readiness { status: 200, .. }))) => (
            Finding::ok(CHECK, format!("The daemon at {address} is ready.")),
            Seen::Up,
        ),
        Ok(Ok(Some(Readiness { status: 503, .. }))) => (
            Finding::hint(
                CHECK,
                format!("The daemon at {address} is shutting down and takes no new calls."),
            ),
            Seen::Up,
        ),

        Ok(Ok(Some(_))) => (
            Finding::error(
                CHECK,
                format!("Another program than this daemon answers at {address}."),
                "End the program that holds http.listen, or set http.listen to another address.",
            ),
            Seen::Down,
        ),

        // The control socket is in the data directory, so it finds a daemon that listens at other addresses.
        Ok(Err(_)) => match running_sip(config).await {
            Some(sip) => (serves_other_addresses(config, &sip), Seen::OtherAddresses),
            None => nothing(),
        },
        Err(_) => nothing(),
    }
}

/// Finding for a daemon of this data directory that was started with other addresses.
fn serves_other_addresses(config: &Config, sip: &str) -> Finding {
    let address = near(config.http.health_listen.unwrap_or(config.http.listen));
    Finding::warning(
        "daemon",
        format!(
            "A daemon serves {} with SIP at {sip}, and doesn't answer at {address} (http.listen): it was started with other settings.",
            config.data_dir.display()
        ),
        "Give this command the daemon's --config and --set options, and its variables.",
    )
}

/// Finding for a daemon that works without its database or journal.
fn degraded(check: &'static str, body: &str) -> Finding {
    let (text, fix) = if body.contains(r#""database":"unavailable""#) {
        (
            "The daemon runs, but its database is away: calls go on from memory.",
            "Check whether the database runs and can be reached from here.",
        )
    } else if body.contains(r#""database":"failing""#) {
        (
            "The daemon runs, but its database can't be written: calls go on, their records wait in the journal, and the API refuses changes.",
            "Look for the reason in the daemon's log: its disk is full, read-only or failing, or its pages are damaged.",
        )
    } else if body.contains(r#""journal":"failing""#) {
        (
            "The daemon runs, but can't write its journal: records of calls are in memory only.",
            "Check whether the disk of data_dir is full or read-only.",
        )
    } else {
        (
            "The daemon runs, but its database takes no records of calls: they wait in the journal.",
            "Look for the reason in the daemon's log: a full disk, or another program that holds the database.",
        )
    };
    Finding::error(check, text, fix)
}

async fn answering(listener: &Listener) -> Finding {
    const CHECK: &str = "port";
    let Listener {
        transport, address, ..
    } = listener;

    match ping(*transport, near(*address)).await {
        PingAnswer::Status(_) | PingAnswer::Connected => {
            Finding::ok(CHECK, format!("SIP answers on {transport} {address}."))
        }
        PingAnswer::Silence | PingAnswer::Refused(_) => Finding::error(
            CHECK,
            format!("Nothing SIP answers on {transport} {address}, though the daemon runs."),
            "Restart the daemon with this configuration, and look for a firewall on this machine.",
        ),
    }
}

/// Checks whether a daemon that doesn't run could bind the port.
fn free(listener: &Listener) -> Finding {
    const CHECK: &str = "port";
    let Listener {
        transport, address, ..
    } = listener;
    let bound = match transport {
        Transport::Udp => std::net::UdpSocket::bind(address).map(drop),
        Transport::Tcp | Transport::Tls => std::net::TcpListener::bind(address).map(drop),
    };

    match bound {
        Ok(()) => Finding::hint(
            CHECK,
            format!("{transport} {address} is free for the daemon."),
        ),
        Err(error) => Finding::error(
            CHECK,
            format!("{transport} {address} can't be listened on: {error}."),
            format!("End the program that holds it, or set sip.{transport} to another address."),
        ),
    }
}
