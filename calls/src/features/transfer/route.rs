//! Route by which the daemon calls a destination. A number is called at the PBX that the caller came from, as with REFER, or through the agent's
//! outbound trunk if the destination says so or that PBX can't be called. A SIP destination is called at its own host. Every leg that doesn't go back
//! to that PBX counts among the org's outbound calls.

use std::collections::VecDeque;
use std::net::IpAddr;

use smallvec::SmallVec;
use trunkline_model::address::NamedBy;
use trunkline_model::destinations::Destination;
use trunkline_model::settings::{TransferTarget, Via};
use trunkline_model::view::{OrgView, OutboundRoute};
use trunkline_routing::E164;
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::uri::{Host, Uri};
use trunkline_sip::wire::print::Head;

use super::destination_route::{DestinationRoute, RouteKind, TrunkBounds};
use super::transferee::{Transferee, write_context};
use crate::core::context::Cx;
use crate::invite::invite_client::TransportChoice;
use crate::leg::SipPeer;
use crate::leg::callee::Callee;
use crate::parts::privacy::{ANONYMOUS_HOST, ANONYMOUS_USER};
use crate::parts::target;
use crate::parts::target::{DialTarget, Target};
use crate::trust::challenge_report::Challenger;
use crate::trust::credentials::LegCredentials;

impl Transferee<'_> {
    /// Returns the route by which the daemon calls a destination; `None` if there is none.
    pub(super) fn route(
        &self,
        cx: &Cx<'_>,
        destination: &Destination,
        replaces: Option<&str>,
        org: &OrgView,
    ) -> Option<DestinationRoute> {
        let way = org.outbound_routes.get(&self.ids.agent).map(|way| &**way);
        let mut route = match &destination.target {
            TransferTarget::Sip(uri) => {
                let (callee, kind) = self.to_uri(cx, uri, way)?;
                let callee = callee.of_org(&org.tied);
                let by_trunk = matches!(kind, RouteKind::Trunk(_));
                let route = way.filter(|_| by_trunk);
                let route = route.and_then(|way| cx.core.registrations.service_route(way.id));
                DestinationRoute::new(callee.along(route.as_deref(), &org.tied), kind)
            }
            TransferTarget::Phone(number) => self.to_number(cx, *number, destination.via, org)?,
        };
        let mut lines = Vec::new();
        let mut head = Head::new(&mut lines);
        // A trunk has its own caller number, and its carrier gets none of the caller's identity.
        if route.calls_as_caller() {
            head.raw(self.identity.lines());
        }

        let prefix = &cx.core.config.header_prefix;
        write_context(&mut head, self.ids, self.contact, prefix);
        // Without Require, a destination that doesn't know Replaces would ring as for a new call.
        if let Some(replaces) = replaces {
            head.line("Require", b"replaces");
            head.line("Replaces", replaces.as_bytes());
        }

        route.callee.lines = lines.into();
        route.callee.leads_back = route.leads_back();
        Some(route)
    }

    /// Routes a number: to the PBX that called, or through the agent's outbound trunk if the destination says so, that PBX can't be called, or the
    /// call itself went out by that trunk.
    fn to_number(
        &self,
        cx: &Cx<'_>,
        number: E164,
        via: Via,
        org: &OrgView,
    ) -> Option<DestinationRoute> {
        let is_outbound = self.is_outbound;
        let by_trunk = is_outbound || via == Via::Trunk || !self.can_call_pbx(cx, org);
        let way = org
            .outbound_routes
            .get(&self.ids.agent)
            .filter(|_| by_trunk);
        // Without a route the plan has no bridge, and the PBX gets REFER.
        if way.is_some_and(|way| way.peer.is_none()) && self.is_with_another_node(cx, org) {
            return None;
        }

        let through = way.and_then(|way| {
            let callee = match (&way.peer, &org.trunk) {
                (Some(_), _) => {
                    let route = cx.core.registrations.service_route(way.id);
                    let callee = Callee::through(way, number);
                    callee.map(|callee| callee.along(route.as_deref(), &org.tied))
                }
                (None, Some(trunk)) => {
                    let addresses = &cx.core.config.addresses;
                    let reach = cx.core.bindings.reach(trunk.id, addresses, cx.now);
                    Callee::registered(way, number, reach)
                }
                (None, None) => None,
            };
            let kind = RouteKind::Trunk(TrunkBounds::of(way, !is_outbound));
            let is_named = via == Via::Trunk || is_outbound;
            Some(match is_named {
                true => DestinationRoute::named(callee?, kind),
                false => DestinationRoute::new(callee?, kind),
            })
        });
        // Without a usable trunk the PBX is called all the same; if that fails before anything rings, REFER may follow.
        through.or_else(|| {
            let callee = self.by_pbx(number, org)?;
            Some(DestinationRoute::new(callee, self.back_to_caller(cx)))
        })
    }

    /// Returns whether the PBX that called accepts calls at its source: it has registered, there is a connection, or no NAT.
    fn can_call_pbx(&self, cx: &Cx<'_>, org: &OrgView) -> bool {
        let Some(trunk) = self.trunk.filter(|trunk| trunk.takes_calls) else {
            return false;
        };

        let flow = trunk.flow;

        // A registration at another node counts as well: the PBX is called on the call's own flow.
        let is_registered = || {
            let trunk = org.trunk.as_ref();
            trunk.is_some_and(|trunk| !cx.core.bindings.of(trunk.id, cx.now).is_empty())
        };
        let contact = trunk.first_dialog();
        let contact = contact.and_then(|dialog| Uri::parse(dialog.remote_target()).ok());
        let is_behind_nat = contact.is_some_and(|contact| match contact.host {
            Host::V4(ip) => flow.peer.ip().to_canonical() != IpAddr::from(ip),
            Host::V6(ip) => flow.peer.ip().to_canonical() != IpAddr::from(ip).to_canonical(),
            // The core resolves no names, so a name counts as the source itself.
            Host::Name(_) => false,
        });

        flow.transport.is_reliable() || !is_behind_nat || is_registered()
    }

    /// Routes a SIP URI: at the PBX as its caller, at the agent's trunk as a call of that trunk, else as the caller without credentials.
    fn to_uri(
        &self,
        cx: &Cx<'_>,
        uri: &str,
        way: Option<&OutboundRoute>,
    ) -> Option<(Callee, RouteKind)> {
        // The URI's headers are for REFER only.
        let parsed = Uri::parse(uri.as_bytes()).ok()?;
        let end = match parsed.headers.len() {
            0 => uri.len(),
            headers => uri.len() - headers - 1,
        };
        let uri = &uri[..end];

        let host = target::host_of(uri.as_bytes())?;
        let place = target::dial_target(uri)?;

        if self.is_at_pbx(&parsed, &place) {
            let flow = self.trunk?.flow;
            let place = DialTarget::Resolved(Target {
                uri: uri.into(),
                transport: flow.transport,
                address: flow.peer,
                by: Some(flow),
                route: None,
                named: NamedBy::Tenant,
            });
            let callee = self.callee_at_pbx(place, uri, host);
            return Some((callee, self.back_to_caller(cx)));
        }

        // The trunk's credentials are for its own host and port, not for any host that a destination names.
        let port = parsed.port_or_default();
        let is_trunks = |way: &&OutboundRoute| {
            way.peer
                .as_ref()
                .is_some_and(|(peer, at)| peer.eq_ignore_ascii_case(&host) && *at == port)
        };

        if let Some(way) = way.filter(is_trunks) {
            let callee = Callee {
                from_name: Box::default(),
                from_user: way.caller_number.as_str().into(),
                from_host: way.from_host.clone(),
                user_phone: way.user_phone,
                asserts: way.p_asserted_identity,
                credentials: LegCredentials::of_trunk(way).into_iter().collect(),
                challenger: Some(Challenger::of_trunk(way)),
                transport: TransportChoice::Given,
                ..self.callee_as_caller(place, uri, host)
            };
            return Some((callee, RouteKind::Trunk(TrunkBounds::of(way, false))));
        }

        let callee = self.callee_as_caller(place, uri, host);
        Some((callee, RouteKind::OtherHost))
    }

    /// Returns whether a URI names the PBX that called, by its source or its Contact. Calls to it go to the source.
    fn is_at_pbx(&self, uri: &Uri<'_>, place: &DialTarget) -> bool {
        let Some(trunk) = self.trunk.filter(|_| !self.is_outbound) else {
            return false;
        };
        let source = trunk.flow.peer;
        if matches!(place, DialTarget::Resolved(target) if target.address == source) {
            return true;
        }
        let contact = trunk.first_dialog();
        let contact = contact.and_then(|dialog| Uri::parse(dialog.remote_target()).ok());
        contact.is_some_and(|contact| {
            let host = |uri: &Uri<'_>| target::host_of(uri.raw);
            host(&contact) == host(uri) && contact.port_or_default() == uri.port_or_default()
        })
    }

    /// Routes a number to the PBX that the caller came from.
    fn by_pbx(&self, number: E164, org: &OrgView) -> Option<Callee> {
        let host = self.peer_host(org);
        let flow = self.trunk.filter(|trunk| trunk.takes_calls)?.flow;
        let parameter = match flow.transport.is_reliable() {
            true => format!(";transport={}", flow.transport.uri_name()),
            false => String::new(),
        };
        let to = format!("sip:{}@{host}", number.as_str());
        let place = DialTarget::Resolved(Target {
            uri: format!("{to}{parameter}").into(),
            transport: flow.transport,
            address: flow.peer,
            by: Some(flow),
            route: None,
            named: NamedBy::Tenant,
        });
        let host = target::host_of(to.as_bytes())?;

        Some(self.callee_at_pbx(place, &to, host))
    }

    /// Makes a callee of the PBX that called; its challenges are answered with the pair that it has proven.
    fn callee_at_pbx(&self, place: DialTarget, to: &str, host: String) -> Callee {
        let trunk = self.trunk;
        let proven = trunk.and_then(|trunk| trunk.credentials.as_deref().cloned());
        Callee {
            credentials: proven.filter(|_| !self.is_outbound).into_iter().collect(),
            challenger: Some(Challenger::pbx(self.ids.org)),
            ..self.callee_as_caller(place, to, host)
        }
    }

    /// Makes a callee that sees the caller's own identity.
    fn callee_as_caller(&self, place: DialTarget, to: &str, host: String) -> Callee {
        let address = self
            .trunk
            .and_then(SipPeer::first_dialog)
            .and_then(|dialog| NameAddr::parse(dialog.remote_address()).ok())
            .filter(|_| !self.identity.is_withheld());
        let user = address
            .and_then(|address| Uri::parse(address.uri).ok())
            .and_then(|uri| std::str::from_utf8(uri.user?).ok());
        let name = address.and_then(|address| self.identity.display_name(address.uri));

        Callee {
            dial_targets: VecDeque::from([place]),
            hosts: SmallVec::from_buf([host]),
            to: to.into(),
            from_name: name.unwrap_or_default().into(),
            from_user: user.unwrap_or(ANONYMOUS_USER).into(),
            from_host: self.identity.is_withheld().then(|| ANONYMOUS_HOST.into()),
            user_phone: false,
            asserts: false,
            credentials: SmallVec::new(),
            challenger: None,
            lines: Box::default(),
            leads_back: false,
            transport: TransportChoice::Ours,
        }
    }
}
