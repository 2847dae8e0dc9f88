//! Flow of the next request inside a dialog (RFC 3261 §12.2.1.1, §8.1.2): the dialog's own connection, its first route, or its remote target.

use trunkline_sip::dialog::Dialog;
use trunkline_sip::flow::{Flow, is_private};
use trunkline_sip::header::uri::{Host, Uri};

use crate::core::context::{Core, Cx};
use crate::parts::target;
use crate::parts::target::{DialTarget, Target, UnresolvedTarget, has_ip_literal};

/// Routes of one dialog that are looked up, the next hop first: a message has room for thousands.
const ROUTES: usize = 16;

impl Cx<'_> {
    /// Resolves the names in Contact and Record-Route, before a request comes from there.
    pub(crate) fn look_up(&mut self, dialog: &Dialog, heard: Flow) {
        for uri in ways_of(dialog).filter(|uri| !has_ip_literal(uri)) {
            let is_name = Uri::parse(uri).is_ok_and(|uri| matches!(uri.host, Host::Name(_)));
            let uri = std::str::from_utf8(uri).ok().filter(|_| is_name);
            let place = uri.and_then(target::dial_target);
            if let Some(DialTarget::Unresolved(wanted)) =
                place.and_then(|place| place.beside(&heard))
            {
                let Core {
                    resolver_cache,
                    effects,
                    ..
                } = &mut *self.core;
                resolver_cache.find(wanted, heard.peer, effects, self.now);
            }
        }
    }

    /// Returns the flow of the next request inside a dialog, the first of these that applies: on a live connection, if there is no route and
    /// the Contact leads nowhere else; to the first route; to the observed source, if the Contact's host is private and the source isn't; to
    /// the Contact. It is `leg` while the address of the route or Contact isn't known.
    pub(crate) fn next_flow(&mut self, dialog: &Dialog, mut leg: Flow) -> Flow {
        // A closed connection gives way to the name that was proved on it, or to 0: the peer of a new connection has to prove that name
        // again.
        let lost = self.core.lost.get(&leg.connection);
        if let Some(proved) = lost {
            leg.connection = *proved;
        }

        let is_connected = lost.is_none() && leg.connection != 0;

        // What was proved on a connection by TLS isn't given up.
        let stays = is_connected && !dialog.has_route();
        if stays && leg.transport.is_secure() {
            return leg;
        }

        let target = match next_place(dialog, &leg) {
            Some(DialTarget::Resolved(target)) => target,
            Some(DialTarget::Unresolved(wanted)) => {
                let Core {
                    resolver_cache,
                    effects,
                    ..
                } = &mut *self.core;
                match resolver_cache.find(wanted, leg.peer, effects, self.now) {
                    Some(target) => target,
                    // The name isn't resolved yet, or resolves to nothing: the peer's last source is used.
                    None => return leg,
                }
            }
            None => return leg,
        };
        if target.transport == leg.transport && target.address == leg.peer {
            return leg;
        }

        // RFC 3261 §12.2.1.1: the remote target is where requests go. A live connection leads to the peer even where its Contact doesn't: behind
        // NAT, or behind a firewall that admits no connection.
        if stays && leg.transport.is_reliable() {
            return self.beside_connection(leg, target);
        }

        // The connection leads to the first proxy of the route, and a new one wouldn't be more secure.
        if leg.transport.is_secure() && is_connected && target.address.ip() == leg.peer.ip() {
            return leg;
        }

        let behind_nat = is_private(target.address.ip()) && !is_private(leg.peer.ip());
        if behind_nat && !dialog.has_route() {
            return leg;
        }

        match self.way_to(&target) {
            // No certificate names a bare address, so the peer has to prove the name that was proved on the connection.
            Ok(way) if leg.is_named() && has_ip_literal(target.uri.as_bytes()) => Flow {
                connection: leg.connection,
                ..way
            },
            Ok(way) => way,
            Err(_) => leg,
        }
    }

    /// Returns the flow to a Contact in a dialog on a live connection: that connection, if the Contact is the peer's own address, is private, or
    /// can't be reached.
    fn beside_connection(&self, leg: Flow, target: Target) -> Flow {
        // A Contact that names no transport is reached by the dialog's.
        let names_transport =
            Uri::parse(target.uri.as_bytes()).is_ok_and(|uri| uri.transport().is_some());
        let transport = if names_transport {
            target.transport
        } else {
            leg.transport
        };
        let target = Target {
            transport,
            ..target
        };

        let ip = target.address.ip();
        let is_own = ip.to_canonical() == leg.peer.ip().to_canonical();
        let is_lost = || {
            self.core
                .uncertain_acks
                .is_unreachable(target.address, self.now)
        };
        if is_own || is_private(ip) || is_lost() {
            return leg;
        }
        self.way_to(&target).unwrap_or(leg)
    }

    /// Returns whether a flow leads to the remote target beside the live connection `leg` of a dialog (`beside_connection`): if no connection can be
    /// opened there, the next request goes by `leg`.
    pub(crate) fn is_beside(&self, dialog: &Dialog, flow: &Flow, leg: &Flow) -> bool {
        let is_connected = leg.is_connection() && !self.core.lost.contains_key(&leg.connection);
        let is_new = flow.transport.is_reliable() && !flow.is_connection();
        is_connected && is_new && !dialog.has_route()
    }

    /// Returns the name that the next request in a dialog goes to, while its first lookup may still come back.
    pub(crate) fn awaited_hop(&self, dialog: &Dialog, leg: Flow) -> Option<UnresolvedTarget> {
        // What was proved on a connection by TLS isn't given up (`next_flow`).
        let is_connected = leg.connection != 0 && !self.core.lost.contains_key(&leg.connection);
        if is_connected && leg.transport.is_secure() && !dialog.has_route() {
            return None;
        }
        match next_place(dialog, &leg)? {
            DialTarget::Resolved(_) => None,
            DialTarget::Unresolved(wanted) => {
                let cache = &self.core.resolver_cache;
                cache.is_awaited(&wanted, self.now).then_some(wanted)
            }
        }
    }
}

/// Returns the URIs that lead to the peer of a dialog: its recorded route, and its Contact.
pub(crate) fn ways_of(dialog: &Dialog) -> impl Iterator<Item = &[u8]> {
    let routes = dialog.routes().take(ROUTES);
    routes.chain([dialog.remote_target()])
}

/// Next hop of a dialog: its first route, or its remote target.
fn next_place(dialog: &Dialog, leg: &Flow) -> Option<DialTarget> {
    let hop = std::str::from_utf8(dialog.next_hop()).ok();
    // An attacker who breaks the connection of a dialog on TLS must not read its next request.
    hop.and_then(target::dial_target)?.beside(leg)
}
