//! Check that runtimes of agents and carriers are reachable: each address once, by OPTIONS, and bots by a connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::time::timeout;
use trunkline_calls::target::{self, DialTarget, Target};
use trunkline_model::settings::{Runtime, is_web_socket};
use trunkline_sip::flow::Transport;

use super::deployment::{Deployment, RUNTIME};
use super::orgs::CheckedOrgs;
use super::ping::{PingAnswer, ping};
use crate::explain::finding::Finding;

/// Most addresses that are probed; further ones are left out.
const MAX_PROBED: usize = 64;
/// Time for a connection to a bot.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn examine(deployment: &Deployment<'_>, orgs: &CheckedOrgs) -> Vec<Finding> {
    let mut places: BTreeMap<(&'static str, String), String> = BTreeMap::new();
    for uri in deployment.config.phone.default_runtime.runtime().uris() {
        places.insert((RUNTIME, uri.to_owned()), "the default runtime".to_owned());
    }

    for rows in &orgs.rows {
        for agent in &rows.agents {
            for template in agent.runtime.iter().flat_map(Runtime::uris) {
                let uri = target::fill(template, agent.id, rows.org.id);
                let place = place_alone(&uri).unwrap_or_else(|| uri.to_string());
                let whose = format!("agent {:?} of {:?}", agent.name, rows.org.name);
                places.entry((RUNTIME, place)).or_insert(whose);
            }
        }

        for trunk in &rows.outbound_trunks {
            let Some((host, port)) = &trunk.settings.peer else {
                continue;
            };
            let transport = trunk.settings.transport.uri_name();
            let uri = format!("sip:{host}:{port};transport={transport}");
            let whose = format!(
                "outbound trunk {:?} of {:?}",
                trunk.settings.name, rows.org.name
            );
            places.entry(("carrier", uri)).or_insert(whose);
        }
    }

    let asked = places.into_iter().take(MAX_PROBED);
    let asked = asked.map(|((check, uri), whose)| one(deployment, check, uri, whose));
    join_all(asked).await
}

/// URI without its user part, which doesn't affect where it leads; a URL without its query, which may hold a secret. `None` for a URL without a
/// query.
fn place_alone(uri: &str) -> Option<String> {
    if is_web_socket(uri) {
        return uri.split_once('?').map(|(url, _)| url.to_owned());
    }
    let (scheme, rest) = uri.split_once(':')?;
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    Some(format!("{scheme}:{host}"))
}

async fn one(
    deployment: &Deployment<'_>,
    check: &'static str,
    uri: String,
    whose: String,
) -> Finding {
    let is_bot = is_web_socket(&uri);
    let place = match is_bot {
        true => target::dial_target_of_url(&uri),
        false => target::dial_target(&uri),
    };
    let targets = match place {
        Some(DialTarget::Resolved(target)) => vec![target],
        Some(DialTarget::Unresolved(wanted)) => deployment.resolver.resolve(&wanted).await,
        None => Vec::new(),
    };

    if targets.is_empty() {
        return Finding::error(
            check,
            format!("{uri} ({whose}) can't be reached: its host has no address."),
            "Correct the host, or add its DNS records.",
        );
    }

    let mut silent = Vec::new();
    for target in &targets {
        let answer = match is_bot {
            // A handshake would begin a conversation.
            true => connects(target.address).await,
            false => ping(target.transport, target.address).await,
        };
        if answer.is_alive() {
            return Finding::ok(
                check,
                format!("{uri} ({whose}) answers at {}.", target.address),
            );
        }
        silent.push(said(target, &answer));
    }

    Finding::error(
        check,
        format!("{uri} ({whose}) can't be reached: {}.", silent.join(", ")),
        "Check that it runs and listens there, and check the firewalls between.",
    )
}

/// Opens a connection, and sends nothing on it.
async fn connects(address: SocketAddr) -> PingAnswer {
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(_)) => PingAnswer::Connected,
        Ok(Err(error)) => PingAnswer::Refused(error.to_string()),
        Err(_) => PingAnswer::Silence,
    }
}

fn said(target: &Target, answer: &PingAnswer) -> String {
    let Target {
        transport, address, ..
    } = target;
    match answer {
        PingAnswer::Refused(why) => format!("{transport} {address}: {why}"),
        PingAnswer::Silence if *transport == Transport::Udp => {
            format!("{transport} {address} answers no OPTIONS")
        }
        PingAnswer::Silence | PingAnswer::Status(_) | PingAnswer::Connected => {
            format!("{transport} {address} is silent")
        }
    }
}
