//! Check that runtimes of agents and carriers are reachable: each address once, by OPTIONS.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use trunkline_calls::target::{self, Place, Target, Unresolved};
use trunkline_model::settings::Runtime;
use trunkline_sip::flow::Transport;

use super::orgs::CheckedOrgs;
use super::ping::{PingAnswer, ping};
use super::{Deployment, RUNTIME};
use crate::config::DefaultRuntime;
use crate::explain::finding::Finding;

/// Addresses that are probed.
const MAX_PROBED: usize = 64;

pub(super) async fn examine(deployment: &Deployment<'_>, orgs: &CheckedOrgs) -> Vec<Finding> {
    let mut places: BTreeMap<(&'static str, String), String> = BTreeMap::new();
    if let DefaultRuntime::Sip(uri) = &deployment.config.phone.default_runtime {
        places.insert((RUNTIME, uri.to_string()), "the default runtime".to_owned());
    }

    for rows in &orgs.rows {
        for agent in &rows.agents {
            let Some(Runtime::Sip { uri, fallbacks, .. }) = &agent.runtime else {
                continue;
            };
            for template in std::iter::once(uri).chain(fallbacks) {
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

/// URI without its user part, which doesn't affect where it leads.
fn place_alone(uri: &str) -> Option<String> {
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
    let targets = match target::place(&uri) {
        Some(Place::Known(target)) => vec![target],
        Some(Place::Name(wanted)) => resolved(deployment, &wanted).await,
        None => Vec::new(),
    };

    if targets.is_empty() {
        return Finding::error(
            check,
            format!("{uri} ({whose}) leads nowhere: its host has no address."),
            "Correct the host, or add its DNS records.",
        );
    }

    let mut silent = Vec::new();
    for target in &targets {
        let answer = ping(target.transport, target.address).await;
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
        "Look at whether it runs and listens there, and at firewalls between.",
    )
}

async fn resolved(deployment: &Deployment<'_>, wanted: &Unresolved) -> Vec<Target> {
    deployment.resolver.resolve(wanted).await
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
