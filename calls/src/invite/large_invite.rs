//! INVITEs that exceed a datagram (RFC 3261 §18.1.1): they go by a connection if the URI leaves the transport to us. A connection is tried first, so
//! that the same attempt goes on by UDP if the peer refuses it, or accepts it and doesn't answer the INVITE.

use std::time::Duration;

use trunkline_sip::endpoint::{ClientTx, Request};
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::header::uri::{Scheme, Uri};

use crate::core::context::Cx;
use crate::core::effect::Effect;
use crate::parts::ids::{CallKey, owner_of};
use crate::parts::target::Target;

/// Longest time that a peer may leave an INVITE unanswered which went to it by a connection of our choice. Over TCP a 100 takes one round trip and
/// 200 ms at most (RFC 3261 §17.2.1).
pub(crate) const STREAM_PATIENCE: Duration = Duration::from_secs(2);

/// Path by datagram to a target whose INVITE goes by a connection of our choice.
#[derive(Default, Debug)]
pub(crate) enum UdpFallback {
    /// The transport wasn't ours to choose.
    #[default]
    Excluded,
    /// The peer has not answered on the connection.
    InReserve(Target),
    /// The peer has answered on the connection; the timer of [`STREAM_PATIENCE`] goes on.
    Unneeded,
}

impl UdpFallback {
    /// A connection to `target` is being opened; `flow` is the path by datagram.
    pub(crate) fn of(target: &Target, flow: Flow) -> Self {
        Self::InReserve(target.clone().reached_by(flow))
    }

    /// Drops the path by datagram as an attempt at `target` begins, unless it goes by the connection that was opened for the same target.
    pub(crate) fn begin(&mut self, target: &Target) {
        let is_meant = |held: &Target| {
            held.uri == target.uri && held.address == target.address && target.by.is_some()
        };
        // Another target, or this one by datagram because no connection came about: nothing is left in reserve.
        if !matches!(self, Self::InReserve(held) if target.transport.is_reliable() && is_meant(held))
        {
            *self = Self::Excluded;
        }
    }

    pub(crate) const fn is_in_reserve(&self) -> bool {
        matches!(self, Self::InReserve(_))
    }

    /// Notes an answer of the peer.
    pub(crate) fn hear(&mut self) {
        if self.is_in_reserve() {
            *self = Self::Unneeded;
        }
    }

    /// Returns the path by datagram, if the peer has not answered. For a while no connection to it is tried.
    pub(crate) fn take(&mut self, cx: &mut Cx<'_>) -> Option<Target> {
        match std::mem::take(self) {
            Self::InReserve(target) => {
                // Its next large INVITE needn't wait for a connection that leads nowhere.
                cx.core.effects.push_back(Effect::StreamSilent {
                    peer: target.address,
                });
                Some(target)
            }
            Self::Excluded | Self::Unneeded => None,
        }
    }
}

/// Result of sending an INVITE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum InviteSent {
    /// It is on its way.
    Invite(ClientTx),
    /// A connection to the target is being opened; the target comes back as resolved, with the flow to send by.
    Connecting,
    /// There is no room for its transaction.
    Nothing,
}

/// Sends the INVITE of `call` to a target whose transport is ours to choose, or opens a connection first.
pub(crate) fn send_invite(
    cx: &mut Cx<'_>,
    call: CallKey,
    target: &Target,
    flow: Flow,
    request: &Request<'_>,
) -> InviteSent {
    if cx.endpoint.is_too_large(&flow, request)
        && leaves_choice(target)
        && let Some(stream) = stream_to(cx, target)
    {
        cx.core.effects.push_back(Effect::Connect {
            call,
            target: target.clone(),
            stream,
            datagram: flow,
        });
        return InviteSent::Connecting;
    }
    send_by(cx, call, flow, request)
}

/// Sends the INVITE of `call` by that flow, in any size.
pub(crate) fn send_by(
    cx: &mut Cx<'_>,
    call: CallKey,
    flow: Flow,
    request: &Request<'_>,
) -> InviteSent {
    let sent = cx
        .endpoint
        .request(flow, request, owner_of(Some(call)), cx.now);
    sent.map_or(InviteSent::Nothing, InviteSent::Invite)
}

/// Returns whether the transport is ours to choose: the URI names none, and no flow is given.
fn leaves_choice(target: &Target) -> bool {
    let is_open = |uri: Uri<'_>| uri.scheme == Scheme::Sip && uri.transport().is_none();
    target.transport == Transport::Udp
        && target.by.is_none()
        && Uri::parse(target.uri.as_bytes()).is_ok_and(is_open)
}

/// The flow of a connection to the same address and port.
fn stream_to(cx: &Cx<'_>, target: &Target) -> Option<Flow> {
    let stream = Target {
        transport: Transport::Tcp,
        ..target.clone()
    };
    cx.flow_to(&stream).ok()
}

#[cfg(test)]
mod tests {
    use trunkline_model::address::NamedBy;

    use super::*;

    #[test]
    fn the_datagram_is_kept_for_the_connection_of_its_own_target() {
        let at = |port| std::net::SocketAddr::from(([192, 0, 2, 1], port));
        let flow = |transport, port| Flow {
            transport,
            listener: 0,
            connection: 0,
            local: at(5060),
            peer: at(port),
        };

        let bare = |port| Target {
            uri: "sip:a@192.0.2.1".into(),
            transport: Transport::Udp,
            address: at(port),
            by: None,
            route: None,
            named: NamedBy::Tenant,
        };

        let (stream, datagram) = (flow(Transport::Tcp, 5070), flow(Transport::Udp, 5070));
        for (case, target, is_synced) in [
            ("by the connection", bare(5070).reached_by(stream), true),
            ("none came about", bare(5070).reached_by(datagram), false),
            ("another target", bare(5080), false),
            (
                "another target's connection",
                bare(5080).reached_by(flow(Transport::Tcp, 5080)),
                false,
            ),
        ] {
            let mut held = UdpFallback::of(&bare(5070), datagram);
            held.begin(&target);
            assert_eq!(held.is_in_reserve(), is_synced, "{case}");
            held.hear();
            assert!(!held.is_in_reserve(), "{case}: it was heard");
            assert_eq!(matches!(held, UdpFallback::Unneeded), is_synced, "{case}");
        }
    }

    #[test]
    fn the_transport_is_chosen_where_nothing_names_it() {
        for (case, uri, transport, is_ours) in [
            ("a bare URI", "sip:a@192.0.2.1", Transport::Udp, true),
            (
                "a transport of the URI's",
                "sip:a@192.0.2.1;transport=UDP",
                Transport::Udp,
                false,
            ),
            ("SRV leads to TCP", "sip:a@h.example", Transport::Tcp, false),
            ("a secure URI", "sips:a@h.example", Transport::Tls, false),
        ] {
            let target = Target {
                uri: uri.into(),
                transport,
                address: std::net::SocketAddr::from(([192, 0, 2, 1], 5060)),
                by: None,
                route: None,
                named: NamedBy::Tenant,
            };
            assert_eq!(leaves_choice(&target), is_ours, "{case}");
        }
    }
}
