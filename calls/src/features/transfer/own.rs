//! A runtime hands its caller to the far end of another call of ours: it refers to its own dialog with us (RFC 3891). No other host knows
//! that dialog, so the daemon replaces it, by an INVITE with Replaces to itself: the other call may be on any shard. The runtime's call
//! sees a destination like any other, and the other call a new leg like any other.
//!
//! Only a node with our key can make such an INVITE, and only for calls of one org.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use smallvec::SmallVec;
use trunkline_model::address::NamedBy;
use trunkline_sip::flow::Transport;
use trunkline_sip::header::replaces::Replaces;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message};
use uuid::Uuid;

use crate::core::context::{Config, Cx};
use crate::features::transfer::destination_route::{DestinationRoute, RouteKind};
use crate::invite::invite_client::TransportChoice;
use crate::leg::callee::Callee;
use crate::parts::target::{DialTarget, Target};

/// Name, after the prefix, of the header with the proof in such an INVITE.
const PROOF: &str = "JOIN";

/// Returns the org if the INVITE with Replaces comes from this installation, which its proof shows.
pub(crate) fn asked_by_ourselves(config: &Config, message: &Message<'_>) -> Option<Uuid> {
    let dialog = message.first(HeaderName::Replaces)?;
    let proof = message.other(&format!("{}-{PROOF}", &*config.header_prefix))?;
    let proof = std::str::from_utf8(proof.trim_ascii()).ok()?;
    config.session_tokens.joins(proof, dialog.trim_ascii())
}

/// Returns the route, through ourselves, to the far end of the call in which the runtime has this dialog; `None` if no listener leads back to us.
pub(super) fn route_to_own(
    cx: &Cx<'_>,
    org: Uuid,
    replaces: &Replaces<'_>,
) -> Option<DestinationRoute> {
    let config = &cx.core.config;
    let of = |wanted| {
        let mut listeners = config.listeners.iter();
        listeners.find(|(transport, _)| *transport == wanted)
    };
    let (transport, bound) = of(Transport::Udp).or_else(|| of(Transport::Tcp))?;
    // A listener on the unspecified address is reached by loopback.
    let near = match bound.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };

    let address = SocketAddr::new(near, bound.port());
    let uri: Box<str> = match transport {
        Transport::Udp => format!("sip:trunkline@{address}"),
        Transport::Tcp | Transport::Tls => format!("sip:trunkline@{address};transport=tcp"),
    }
    .into();

    let dialog = replaces.to_string();
    let mut lines = Vec::new();
    let mut head = Head::new(&mut lines);

    head.line("Require", b"replaces");
    head.line("Replaces", dialog.as_bytes());

    let proof = config.session_tokens.join(org, dialog.as_bytes());
    head.line(
        &format!("{}-{PROOF}", &*config.header_prefix),
        proof.as_bytes(),
    );

    let callee = Callee {
        dial_targets: VecDeque::from([DialTarget::Resolved(Target {
            uri: uri.clone(),
            transport: *transport,
            address,
            by: None,
            route: None,
            // The rule for tenants' addresses refuses our own listeners; this one is chosen here, not by a tenant.
            named: NamedBy::Operator,
        })]),
        hosts: SmallVec::new(),
        to: uri,
        from_name: Box::default(),
        from_user: "trunkline".into(),
        from_host: None,
        user_phone: false,
        asserts: false,
        credentials: SmallVec::new(),
        challenger: None,
        lines: lines.into(),
        leads_back: true,
        transport: TransportChoice::Given,
    };
    Some(DestinationRoute::new(callee, RouteKind::OwnCall))
}
