//! The caller to transfer (RFC 5589: the transferee), by its leg and the call's ids: the Refer-To for its PBX (RFC 3515 §2.1), and the address of
//! that PBX.

use std::fmt::Write as _;

use trunkline_model::settings::{ReferFormat, TransferTarget};
use trunkline_model::transfer::Trunk;
use trunkline_model::view::{OrgView, OutboundRoute};
use trunkline_sip::dialog::Dialog;
use trunkline_sip::header::uri::{Escaped, Uri};
use trunkline_sip::wire::print::Head;
use uuid::Uuid;

use crate::core::context::Cx;
use crate::features::transfer::destination_route::RouteKind;
use crate::leg::SipPeer;
use crate::parts::ids::CallRef;
use crate::parts::privacy::CallerIdentity;
use crate::registrar::bindings::Binding;

/// The caller to transfer; in an outbound call the callee.
pub(crate) struct Transferee<'c> {
    /// Its leg, on the trunk.
    pub(crate) trunk: Option<&'c SipPeer>,
    pub(crate) identity: &'c CallerIdentity,
    pub(crate) is_outbound: bool,
    pub(crate) ids: &'c CallRef,
    pub(crate) contact: Option<Uuid>,
}

impl Transferee<'_> {
    /// Returns the value of Refer-To: a phone number in the trunk's format, a SIP URI as given, with the dialog to replace there, and with the
    /// context inside.
    pub(super) fn refer_to(
        &self,
        target: &TransferTarget,
        replaces: Option<&str>,
        org: &OrgView,
        prefix: &str,
    ) -> String {
        let trunk = org.trunk.as_ref();
        let format = trunk.map(|trunk| trunk.refer_to).unwrap_or_default();
        let mut value = match (target, format) {
            (TransferTarget::Sip(uri), _) => format!("<{uri}"),
            // A tel URI has no headers: the context goes on the REFER alone.
            (TransferTarget::Phone(number), ReferFormat::Tel) => return format!("<tel:{number}>"),
            (TransferTarget::Phone(number), ReferFormat::Sip) => {
                let set = trunk.and_then(|trunk| trunk.refer_host.as_deref());
                let host = set.map_or_else(|| self.peer_host(org), str::to_owned);
                format!("<sip:{number}@{host}")
            }
        };
        let mut separator = if has_headers(&value[1..]) { '&' } else { '?' };

        if let Some(replaces) = replaces {
            let _ = write!(
                value,
                "{separator}Replaces={}",
                Escaped(replaces.as_bytes())
            );
            separator = '&';
        }

        // FreeSWITCH carries none of the REFER's own headers on, but shows its dialplan the whole Refer-To.
        if trunk.is_none_or(|trunk| trunk.refer_headers_in_uri) {
            for (name, id) in context(self.ids, self.contact) {
                let name = Escaped(name.as_bytes());
                let _ = write!(value, "{separator}{prefix}-{name}={id}");
                separator = '&';
            }
        }

        value.push('>');
        value
    }

    /// Host and port of the peer's Contact, or of the trunk that the call went out by.
    pub(super) fn peer_host(&self, org: &OrgView) -> String {
        let peer = self.outbound_route(org).and_then(|way| way.peer.as_ref());
        if let Some((host, port)) = peer {
            return format!("{host}:{port}");
        }

        let Some(trunk) = self.trunk else {
            return String::new();
        };

        let contact = trunk.first_dialog().map(Dialog::remote_target);
        let uri = contact.and_then(|contact| Uri::parse(contact).ok());

        uri.map_or_else(
            || trunk.flow.peer.to_string(),
            |uri| match uri.port {
                Some(port) => format!("{}:{port}", uri.host),
                None => uri.host.to_string(),
            },
        )
    }

    /// Trunk by which the call went out.
    pub(super) fn outbound_route<'o>(&self, org: &'o OrgView) -> Option<&'o OutboundRoute> {
        self.is_outbound.then_some(())?;
        org.outbound_routes.get(&self.ids.agent).map(|way| &**way)
    }

    /// Trunk whose PBX gets REFER.
    pub(super) fn trunk_asked(&self, org: &OrgView) -> Option<Trunk> {
        if self.is_outbound {
            return self.outbound_route(org).map(|way| Trunk::Outbound(way.id));
        }
        let trunk = org.trunk.as_ref();
        trunk.map(|trunk| Trunk::Inbound(trunk.id))
    }

    /// Kind of route back to where the call came from.
    pub(super) fn back_to_caller(&self, cx: &Cx<'_>) -> RouteKind {
        let addresses = &cx.core.config.addresses;
        let source = self.trunk.map(|trunk| trunk.flow.peer.ip());
        match source.is_some_and(|source| addresses.is_reserved(source)) {
            true => RouteKind::ReservedPeer,
            false => RouteKind::Pbx,
        }
    }

    /// Returns whether the PBX is registered by a flow that only another node has, and isn't the one that called. The call stays on this node and
    /// can't use that flow, so the transfer is done by REFER.
    pub(super) fn is_with_another_node(&self, cx: &Cx<'_>, org: &OrgView) -> bool {
        let (Some(trunk), Some(caller)) = (&org.trunk, self.trunk) else {
            return false;
        };
        let (core, source) = (&cx.core, caller.flow.peer.ip().to_canonical());
        let registered = core.bindings.of(trunk.id, cx.now);
        let is_caller = |binding: &Binding| binding.flow.peer.ip().to_canonical() == source;
        let reach = core
            .bindings
            .reach(trunk.id, &core.config.addresses, cx.now);
        // A PBX that is calling right now is reached by the flow of its call, whatever its registration says.
        reach.is_empty() && !registered.is_empty() && !registered.iter().any(is_caller)
    }
}

/// Context that a transfer carries to its destination.
fn context(ids: &CallRef, contact: Option<Uuid>) -> impl Iterator<Item = (&'static str, Uuid)> {
    let contact = contact.map(|contact| ("CONTACT-ID", contact));
    [("SESSION-ID", ids.session), ("AGENT-ID", ids.agent)]
        .into_iter()
        .chain(contact)
}

/// Writes that context as header lines.
pub(super) fn write_context(
    head: &mut Head<'_>,
    ids: &CallRef,
    contact: Option<Uuid>,
    prefix: &str,
) {
    for (name, id) in context(ids, contact) {
        head.fmt(&format!("{prefix}-{name}"), format_args!("{id}"));
    }
}

/// Returns whether a URI has headers. A user part may contain a question mark.
fn has_headers(uri: &str) -> bool {
    Uri::parse(uri.as_bytes()).is_ok_and(|uri| !uri.headers.is_empty())
}
