//! Checks of the host that peers are configured to dial: it leads here, by address and by DNS, and peers do dial it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use trunkline_calls::is_private;
use trunkline_calls::parts::target::UnresolvedTarget;
use trunkline_sip::flow::Transport;

use super::Deployment;
use crate::config::Config;
use crate::explain::finding::Finding;

pub(super) async fn examine(deployment: &Deployment<'_>) -> Vec<Finding> {
    let config = deployment.config;
    let endpoint = config.sip.endpoint();
    let host = host_of(&endpoint).to_owned();
    let mut findings = Vec::from_iter(dialled(deployment, &host));

    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => findings.push(address(deployment, ip, &endpoint)),
        Err(_) => {
            for transport in transports(config) {
                findings.push(name(deployment, &host, transport).await);
            }
        }
    }
    findings
}

/// Host in `host:port`.
fn host_of(endpoint: &str) -> &str {
    match endpoint.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|digit| digit.is_ascii_digit()) && !host.ends_with(':') =>
        {
            host
        }
        Some(_) | None => endpoint,
    }
}

fn transports(config: &Config) -> BTreeSet<&'static str> {
    let listeners = config.sip.listeners.iter();
    listeners
        .map(|listener| listener.transport.uri_name())
        .collect()
}

fn address(deployment: &Deployment<'_>, ip: IpAddr, endpoint: &str) -> Finding {
    const CHECK: &str = "advertised";
    match deployment.source_outside() {
        Some(source) if is_private(ip) => Finding::error(
            CHECK,
            format!(
                "The advertised address is {endpoint}, a private one, but calls come from outside, from {source}."
            ),
            "Set sip.public_host to the address or name that peers reach this daemon by.",
        ),
        Some(_) | None if ip.is_loopback() => Finding::hint(
            CHECK,
            format!("The advertised address is {endpoint}, which only this machine reaches."),
        ),
        Some(_) | None => Finding::ok(CHECK, format!("The advertised address is {endpoint}.")),
    }
}

/// Compares the host that peers on other machines dial with the advertised one.
fn dialled(deployment: &Deployment<'_>, host: &str) -> Option<Finding> {
    let listeners = deployment.config.sip.listeners.iter();
    let mut advertised: Vec<String> = listeners
        .filter_map(|listener| Some(listener.advertise.as_ref()?.host().to_owned()))
        .collect();
    advertised.push(host.to_owned());
    let asked = deployment.asked_from_outside();
    let hosts: Vec<&str> = asked.map(|asked| host_of(&asked.host)).collect();
    compared(&advertised, &hosts)
}

/// Finding about dialled hosts that aren't advertised; the last of `advertised` is the host in the settings of every trunk.
fn compared(advertised: &[String], hosts: &[&str]) -> Option<Finding> {
    const CHECK: &str = "dialled_host";

    let host = advertised.last()?;
    let is_other = |host: &&&str| !advertised.iter().any(|own| own.eq_ignore_ascii_case(host));
    let others: Vec<&&str> = hosts.iter().filter(is_other).collect();
    let (first, count) = (others.first()?, others.len());
    let all = hosts.len();

    Some(if count * 2 >= all {
        Finding::warning(
            CHECK,
            format!(
                "{count} of the last {all} calls were sent to {first}, but {host} is advertised."
            ),
            format!(
                "Set sip.public_host to {first} if that leads here for every peer, or point the phone systems at {host}."
            ),
        )
    } else {
        Finding::hint(
            CHECK,
            format!("{count} of the last {all} calls were sent to {first} instead of {host}."),
        )
    })
}

/// Checks the DNS records of a name for a transport.
async fn name(deployment: &Deployment<'_>, host: &str, transport: &'static str) -> Finding {
    const CHECK: &str = "dns";
    let config = deployment.config;
    let listeners = config.sip.listeners.iter();
    let ports: BTreeSet<u16> = listeners
        .filter(|listener| listener.transport.uri_name() == transport)
        .map(|listener| listener.address.port())
        .collect();
    let wanted = UnresolvedTarget {
        uri: format!("sip:{host}").into(),
        host: host.into(),
        // A port in the advertised host rules SRV records out (RFC 3263 §4.2).
        port: config.sip.public_host.as_ref().and_then(|host| host.port),
        transport: Some(match transport {
            "tcp" => Transport::Tcp,
            "tls" => Transport::Tls,
            _ => Transport::Udp,
        }),
        route: None,
        named: trunkline_model::address::NamedBy::Operator,
    };

    let targets = deployment.resolver.resolve(&wanted).await;
    let Some(first) = targets.first() else {
        return Finding::error(
            CHECK,
            format!("{host} has no address, by SRV or by itself, for {transport}."),
            format!(
                "Add an A or AAAA record for {host}, or set sip.public_host to a name that has one."
            ),
        );
    };

    let address = first.address;
    if targets
        .iter()
        .all(|target| target.address.ip().is_loopback())
    {
        return Finding::hint(
            CHECK,
            format!("{host} leads to {address}, which only this machine reaches."),
        );
    }

    if !targets
        .iter()
        .any(|target| ports.contains(&target.address.port()))
    {
        return Finding::error(
            CHECK,
            format!(
                "{host} leads to {address} for {transport}, but no {transport} listener has that port."
            ),
            format!(
                "Let the SRV record _sip of {host} name a port of sip.{transport}, or name the port in sip.public_host."
            ),
        );
    }

    Finding::ok(CHECK, format!("{host} leads to {address} for {transport}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dialled_is_compared_with_what_is_told() {
        use crate::explain::finding::Level;

        let advertised = ["10.0.0.5", "sip.example.com"].map(str::to_owned);
        for (hosts, level) in [
            (&["SIP.example.com", "10.0.0.5"][..], None),
            (&["sip.example.com", "192.0.2.9"], Some(Level::Warning)),
            (
                &["sip.example.com", "sip.example.com", "192.0.2.9"],
                Some(Level::Hint),
            ),
            (&[], None),
        ] {
            let found = compared(&advertised, hosts);
            assert_eq!(found.as_ref().map(|found| found.level), level, "{hosts:?}");
            if let Some(found) = found {
                assert!(
                    found.text.contains("sent to 192.0.2.9")
                        && found.text.contains("sip.example.com"),
                    "{found}"
                );
            }
        }
    }

    #[test]
    fn a_host_is_told_from_its_port() {
        for (endpoint, host) in [
            ("sip.example.com", "sip.example.com"),
            ("sip.example.com:5070", "sip.example.com"),
            ("[2001:db8::1]:5060", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("192.0.2.1:5060", "192.0.2.1"),
        ] {
            assert_eq!(host_of(endpoint), host);
        }
    }
}
