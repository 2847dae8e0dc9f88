//! INVITEs that no datagram carries whole (RFC 3261 §18.1.1): they leave by a connection where the URI leaves the transport to us. Whether the
//! peer takes one is found out first, so that the same attempt goes on by UDP where it doesn't.

use trunkline_sip::endpoint::{ClientTx, Request};
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::header::uri::{Scheme, Uri};

use super::context::Cx;
use super::effect::Effect;
use super::target::Target;
use super::{CallKey, owner_of};

/// What became of an INVITE that was to be sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum InviteSent {
    /// It is on its way.
    Invite(ClientTx),
    /// A connection to the target is being opened; the target comes back as resolved, with the flow to send by.
    Connecting,
    /// There is no room for its transaction.
    Nothing,
}

/// Sends the INVITE of `call` to a target whose transport may be chosen, or asks for a connection first.
pub(crate) fn send_invite(
    cx: &mut Cx<'_>,
    call: CallKey,
    (target, flow): (&Target, Flow),
    request: &Request<'_>,
) -> InviteSent {
    if leaves_choice(target)
        && cx.endpoint.is_too_large(&flow, request)
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

/// Sends the INVITE of `call` by that flow, whatever its size.
pub(crate) fn send_by(
    cx: &mut Cx<'_>,
    call: CallKey,
    flow: Flow,
    request: &Request<'_>,
) -> InviteSent {
    let sent = cx.endpoint.request(flow, request, owner_of(call), cx.now);
    sent.map_or(InviteSent::Nothing, InviteSent::Invite)
}

/// Whether the transport is ours to choose: the URI names none, and no flow leads there.
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
    use super::*;
    use crate::address::NamedBy;

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
                named: NamedBy::Tenant,
            };
            assert_eq!(leaves_choice(&target), is_ours, "{case}");
        }
    }
}
