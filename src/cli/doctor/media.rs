//! Check of the addresses that each listener advertises, for signalling and for audio.

use std::net::SocketAddr;

use trunkline_calls::is_private;

use super::Deployment;
use crate::engine::MediaAddresses;
use crate::explain::finding::Finding;

const CHECK: &str = "media_address";

pub(super) async fn examine(deployment: &Deployment<'_>) -> Vec<Finding> {
    let config = deployment.config;
    let addresses = match MediaAddresses::find(config).await {
        Ok(addresses) => addresses,
        Err(fault) => {
            return vec![Finding::error(
                CHECK,
                format!("The daemon doesn't start: {fault}."),
                "Set it, and start the daemon.",
            )];
        }
    };

    let outside = deployment.source_outside();
    let mut findings = Vec::new();
    for (at, listener) in config.sip.listeners.iter().enumerate() {
        let Some(media) = addresses.advertised(at) else {
            continue;
        };
        let signalling = config.sip.advertised(listener, listener.address);
        let advertised = format!(
            "Callers on {} {} get {signalling} for signalling and {media} for audio",
            listener.transport, listener.address
        );

        if let Some(unused) = config.sip.unused_host(listener) {
            let own = match listener.address {
                SocketAddr::V4(_) => "192.0.2.7",
                SocketAddr::V6(_) => "[2001:db8::7]",
            };
            findings.push(Finding::warning(
                CHECK,
                format!(
                    "{} is {}, an address of the other IP version: it isn't used for {} {}.",
                    unused.key, unused.host, listener.transport, listener.address
                ),
                format!(
                    "Give the listener one of its own, as in \"{}={own}\", or set {} to a name with A and AAAA records.",
                    listener.address, unused.key
                ),
            ));
        }

        // A listener with an advertised address of its own serves a network of its own, where a private address is no fault.
        let is_for_all = listener.advertise.is_none();
        findings.push(match outside {
            Some(source) if is_private(media) && is_for_all && !listener.address.ip().is_loopback() => Finding::error(
                CHECK,
                format!("{advertised}, a private address, but calls come from outside, from {source}."),
                "Set sip.public_host to the address that callers reach, or media.ip if audio has another.",
            ),
            Some(_) | None if media.is_loopback() => {
                Finding::hint(CHECK, format!("{advertised}, which only this machine reaches."))
            }
            Some(_) | None => Finding::ok(CHECK, format!("{advertised}.")),
        });
    }

    findings
}
