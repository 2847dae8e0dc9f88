//! Transfer where the PBX knows no REFER: the destination is called from here, with the caller's SDP, and
//! takes the agent's place once it has answered. Until then, and if it doesn't answer, the caller stays with the agent.
//!
//! A number is called at the PBX that the caller came from, as the REFER would have had it, and through the agent's outbound trunk where the
//! destination says so or that PBX can't be called; a SIP destination at its own host. What goes anywhere but back to that PBX counts
//! among the org's outbound calls.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_model::address::NamedBy;
use trunkline_model::destinations::Destination;
use trunkline_model::settings::{TransferTarget, Via};
use trunkline_model::transfer::{State, Way};
use trunkline_model::view::{OrgView, OutboundRoute};
use trunkline_routing::E164;
use trunkline_sip::dialog::direction::{self, rewritten};
use trunkline_sip::dialog::sdp::Direction;
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::uri::{Host, Uri};
use trunkline_sip::wire::Method;
use trunkline_sip::wire::print::Head;
use uuid::Uuid;

use super::{Transfer, Wait};
use crate::bye::ByeContent;
use crate::call::{Call, CallStatus};
use crate::callee::Callee;
use crate::context::Cx;
use crate::credentials::LegCredentials;
use crate::effect::{Challenger, Effect};
use crate::families;
use crate::ids::LegId;
use crate::invite_client::Choice;
use crate::invite_client::{Accepted, Patience};
use crate::join::Join;
use crate::late_answer::bye_alone;
use crate::leg::{LegState, SipPeer};
use crate::limits::{Claim, Full, Permit};
use crate::own_request::Round;
use crate::own_request::{Purpose, QueuedRequest};
use crate::privacy::{NOBODY_HOST, NOBODY_USER};
use crate::refusal::Reason;
use crate::target::{self, Place, Target};
use crate::unanswered::{Failure, UNREACHABLE};

/// Longest ringing of a destination.
const RINGING: Duration = Duration::from_secs(45);

/// Route by which a destination is called from here.
#[derive(Debug)]
pub(super) struct Fallback {
    callee: Callee,
    leaves_by: Leaves,
    /// The destination names this way itself.
    is_named: bool,
}

impl Fallback {
    pub(super) const fn new(callee: Callee, leaves_by: Leaves) -> Self {
        Self {
            callee,
            leaves_by,
            is_named: false,
        }
    }

    /// Whether it leads to the PBX on the caller's side, or to a call of ours: bounds on outbound calls don't hold for it.
    pub(super) const fn leads_back(&self) -> bool {
        match &self.leaves_by {
            Leaves::Pbx | Leaves::Ours => true,
            Leaves::Trunk(trunk) => trunk.leads_back,
            Leaves::Elsewhere | Leaves::ReservedPeer => false,
        }
    }

    /// Whether the destination sees who calls, rather than the number of a trunk of ours.
    const fn calls_as_caller(&self) -> bool {
        !matches!(self.leaves_by, Leaves::Trunk(_) | Leaves::Ours)
    }

    /// Whether the destination may be called though the PBX has declined to.
    pub(super) const fn suits_after_decline(&self) -> bool {
        self.leads_back() || self.is_named
    }
}

/// By which way, and what the leg is counted against.
#[derive(Debug)]
pub(super) enum Leaves {
    /// An outbound trunk, within its own bounds and those of what the org may begin.
    Trunk(TrunkBounds),
    /// A host that isn't the PBX which called: within the bounds of what the org may begin.
    Elsewhere,
    /// The PBX on the caller's side, by the way that it has proven.
    Pbx,
    /// The same way to a reserved peer, which takes calls at the operator's cost: within the bounds of what the org may begin.
    ReservedPeer,
    /// Another call of ours, which is counted already.
    Ours,
}

/// Limits of an outbound trunk.
#[derive(Debug)]
pub(super) struct TrunkBounds {
    id: Uuid,
    max_concurrent_calls: Option<u32>,
    calls_per_second: Option<u32>,
    /// It leads to the registration of the PBX that called.
    leads_back: bool,
}

impl TrunkBounds {
    fn of(way: &OutboundRoute, is_inbound: bool) -> Self {
        Self {
            id: way.id,
            max_concurrent_calls: way.max_concurrent_calls,
            calls_per_second: way.calls_per_second,
            leads_back: is_inbound && way.peer.is_none(),
        }
    }
}

impl Call {
    /// Returns the route to a destination that is called from here; `None` if there is none.
    pub(super) fn fallback(
        &self,
        cx: &Cx<'_>,
        destination: &Destination,
        replaces: Option<&str>,
        org: &OrgView,
    ) -> Option<Fallback> {
        let way = org.outbound_routes.get(&self.agent).map(|way| &**way);
        let mut fallback = match &destination.target {
            TransferTarget::Sip(uri) => {
                let (callee, leaves_by) = self.to_uri(cx, uri, way)?;
                Fallback::new(callee.of_org(&org.tied), leaves_by)
            }
            TransferTarget::Phone(number) => self.to_number(cx, *number, destination.via, org)?,
        };
        let mut lines = Vec::new();
        let mut head = Head::new(&mut lines);
        if fallback.calls_as_caller() {
            head.raw(self.identity.lines());
        }
        for (name, id) in self.context() {
            let prefix = &cx.core.config.header_prefix;
            head.fmt(&format!("{prefix}-{name}"), format_args!("{id}"));
        }
        if let Some(replaces) = replaces {
            head.line("Require", b"replaces");
            head.line("Replaces", replaces.as_bytes());
        }
        fallback.callee.lines = lines.into();
        fallback.callee.leads_back = fallback.leads_back();
        Some(fallback)
    }

    /// A number: at the PBX that called, or through the agent's outbound trunk where the destination says so, that PBX can't be called, or
    /// the call itself went out by it.
    fn to_number(&self, cx: &Cx<'_>, number: E164, via: Via, org: &OrgView) -> Option<Fallback> {
        let is_outbound = self.outbound.is_some();
        let by_trunk = is_outbound || via == Via::Trunk || !self.can_call_pbx(cx, org);
        let way = org.outbound_routes.get(&self.agent).filter(|_| by_trunk);
        if way.is_some_and(|way| way.peer.is_none()) && self.is_with_another_node(cx, org) {
            return None;
        }
        let through = way.and_then(|way| {
            let callee = match (&way.peer, &org.trunk) {
                (Some(_), _) => Callee::through(way, number),
                (None, Some(trunk)) => {
                    let addresses = &cx.core.config.addresses;
                    let reach = cx.core.bindings.reach(trunk.id, addresses, cx.now);
                    Callee::registered(way, number, reach)
                }
                (None, None) => None,
            };
            let leaves_by = Leaves::Trunk(TrunkBounds::of(way, !is_outbound));
            Some(Fallback {
                is_named: via == Via::Trunk || is_outbound,
                ..Fallback::new(callee?, leaves_by)
            })
        });
        through.or_else(|| {
            let callee = self.by_pbx(number, org)?;
            Some(Fallback::new(callee, self.back_to_caller(cx)))
        })
    }

    /// Whether the PBX that called takes calls where it called from: it has registered, there is a connection, or no NAT between.
    fn can_call_pbx(&self, cx: &Cx<'_>, org: &OrgView) -> bool {
        let Some(trunk) = self.trunk().filter(|trunk| trunk.takes_calls) else {
            return false;
        };
        let flow = trunk.flow;
        // With another node counts as well: it is called on the call's own flow.
        let is_registered = || {
            let trunk = org.trunk.as_ref();
            trunk.is_some_and(|trunk| !cx.core.bindings.of(trunk.id, cx.now).is_empty())
        };
        let contact = trunk.first_dialog();
        let contact = contact.and_then(|dialog| Uri::parse(dialog.remote_target()).ok());
        let is_behind_nat = contact.is_some_and(|contact| match contact.host {
            Host::V4(ip) => flow.peer.ip().to_canonical() != IpAddr::from(ip),
            Host::V6(ip) => flow.peer.ip().to_canonical() != IpAddr::from(ip).to_canonical(),
            Host::Name(_) => false,
        });
        flow.transport.is_reliable() || !is_behind_nat || is_registered()
    }

    /// Calls a SIP URI: at the PBX as its caller, at the agent's trunk as a call of that trunk, else as the caller without credentials.
    fn to_uri(
        &self,
        cx: &Cx<'_>,
        uri: &str,
        way: Option<&OutboundRoute>,
    ) -> Option<(Callee, Leaves)> {
        // The URI's headers are for the REFER.
        let parsed = Uri::parse(uri.as_bytes()).ok()?;
        let end = match parsed.headers.len() {
            0 => uri.len(),
            headers => uri.len() - headers - 1,
        };
        let uri = &uri[..end];
        let host = target::host_of(uri.as_bytes())?;
        let place = target::place(uri)?;
        if self.is_at_pbx(&parsed, &place) {
            let flow = self.trunk()?.flow;
            let place = Place::Known(Target {
                uri: uri.into(),
                transport: flow.transport,
                address: flow.peer,
                by: Some(flow),
                named: NamedBy::Tenant,
            });
            let callee = self.callee_at_pbx(place, uri, host);
            return Some((callee, self.back_to_caller(cx)));
        }
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
                asserts: way.p_asserted_identity,
                credentials: LegCredentials::of_trunk(way).into_iter().collect(),
                whose: Some(Challenger::of_trunk(way)),
                transport: Choice::Given,
                ..self.callee_as_caller(place, uri, host)
            };
            return Some((callee, Leaves::Trunk(TrunkBounds::of(way, false))));
        }
        let callee = self.callee_as_caller(place, uri, host);
        Some((callee, Leaves::Elsewhere))
    }

    /// Whether a URI names the PBX that called: by its source, or as its Contact does. What goes there goes to the source.
    fn is_at_pbx(&self, uri: &Uri<'_>, place: &Place) -> bool {
        let Some(trunk) = self.trunk().filter(|_| self.outbound.is_none()) else {
            return false;
        };
        let source = trunk.flow.peer;
        if matches!(place, Place::Known(target) if target.address == source) {
            return true;
        }
        let contact = trunk.first_dialog();
        let contact = contact.and_then(|dialog| Uri::parse(dialog.remote_target()).ok());
        contact.is_some_and(|contact| {
            let host = |uri: &Uri<'_>| target::host_of(uri.raw);
            host(&contact) == host(uri) && contact.port_or_default() == uri.port_or_default()
        })
    }

    /// A number at the PBX that the caller came from.
    fn by_pbx(&self, number: E164, org: &OrgView) -> Option<Callee> {
        let host = self.peer_host(org);
        let flow = self.trunk().filter(|trunk| trunk.takes_calls)?.flow;
        let parameter = match flow.transport.is_reliable() {
            true => format!(";transport={}", flow.transport.uri_name()),
            false => String::new(),
        };
        let to = format!("sip:{}@{host}", number.as_str());
        let place = Place::Known(Target {
            uri: format!("{to}{parameter}").into(),
            transport: flow.transport,
            address: flow.peer,
            by: Some(flow),
            named: NamedBy::Tenant,
        });
        let host = target::host_of(to.as_bytes())?;
        Some(self.callee_at_pbx(place, &to, host))
    }

    /// The PBX that called: it is answered with the pair that it has proven itself by.
    fn callee_at_pbx(&self, place: Place, to: &str, host: String) -> Callee {
        let trunk = self.trunk();
        let proven = trunk.and_then(|trunk| trunk.credentials.as_deref().cloned());
        Callee {
            credentials: proven
                .filter(|_| self.outbound.is_none())
                .into_iter()
                .collect(),
            whose: Some(Challenger::pbx(self.org)),
            ..self.callee_as_caller(place, to, host)
        }
    }

    /// Returns a callee that sees the caller's own identity.
    fn callee_as_caller(&self, place: Place, to: &str, host: String) -> Callee {
        let address = self
            .trunk()
            .and_then(SipPeer::first_dialog)
            .and_then(|dialog| NameAddr::parse(dialog.remote_address()).ok())
            .filter(|_| !self.identity.is_withheld());
        let user = address
            .and_then(|address| Uri::parse(address.uri).ok())
            .and_then(|uri| std::str::from_utf8(uri.user?).ok());
        let name = address.and_then(|address| self.identity.display_name(address.uri));
        Callee {
            places: VecDeque::from([place]),
            hosts: SmallVec::from_buf([host]),
            to: to.into(),
            from_name: name.unwrap_or_default().into(),
            from_user: user.unwrap_or(NOBODY_USER).into(),
            from_host: self.identity.is_withheld().then(|| NOBODY_HOST.into()),
            asserts: false,
            credentials: SmallVec::new(),
            whose: None,
            lines: Box::default(),
            leads_back: false,
            transport: Choice::Ours,
        }
    }

    /// Calls the destination, if it can be called from here: then true, whatever comes of it.
    pub(super) fn begin_bridge(&mut self, cx: &mut Cx<'_>) -> bool {
        let (Some(offer), CallStatus::Up, None) = (self.heard(), self.status(), self.dialing())
        else {
            return false;
        };
        let is_open = |direction| direction == Direction::SendRecv;
        let offer = match direction::of(offer).into_iter().all(is_open) {
            true => offer.to_vec(),
            // The agent has let it wait meanwhile.
            false => rewritten(offer, Direction::SendRecv),
        };
        let Some(fallback) = self.take_fallback() else {
            return false;
        };
        self.set_heard(offer.clone().into());
        let Fallback {
            mut callee,
            leaves_by,
            ..
        } = *fallback;
        let counts = !callee.leads_back;
        self.note_bridge(cx);
        let permit = match self.permit_for(cx, &leaves_by) {
            Ok(permit) => permit,
            Err(Reason::TrunkUnreachable) => {
                self.on_destination_lost(cx, UNREACHABLE);
                return true;
            }
            Err(reason) => {
                self.settle(cx, State::Failed, Some(reason.status()));
                return true;
            }
        };
        let leads_to_caller = matches!(leaves_by, Leaves::Pbx | Leaves::ReservedPeer);
        if let (true, Some(Place::Known(target))) = (leads_to_caller, callee.places.front_mut())
            && let Some(trunk) = self.trunk()
            && let Some(dialog) = trunk.first_dialog()
        {
            // A Contact may name another port of the proven source, never another host.
            let flow = cx.next_flow(dialog, trunk.flow);
            let is_proven = flow.peer.ip() == trunk.flow.peer.ip();
            target.by = Some(if is_proven { flow } else { trunk.flow });
        }
        let refers_after_bridge = |transfer: &Transfer| transfer.plan.refers_after_bridge;
        let patience = match self.transfer.as_deref().is_some_and(refers_after_bridge) {
            true => Patience::WithNone,
            false => Patience::WithLast,
        };
        self.dial_destination(cx, callee, patience);
        if let Some(transfer) = self.transfer.as_deref_mut() {
            transfer.record.counted_at = counts.then_some(cx.now);
            transfer.permit = permit;
            transfer.offered = offer.clone().into();
        }
        self.dial(cx, offer, RINGING);
        true
    }

    fn take_fallback(&mut self) -> Option<Box<Fallback>> {
        let open = self.transfer.as_deref_mut().filter(|open| open.is_open());
        open.and_then(|open| open.plan.fallback.take())
    }

    /// From now on it is ours to call the destination.
    fn note_bridge(&mut self, cx: &mut Cx<'_>) {
        if let Some(transfer) = self.transfer.as_deref_mut() {
            transfer.record.way = Way::Bridge;
            transfer.record.state = State::Accepted;
            transfer.record.accepted_at = Some(cx.now);
            transfer.record.ringing_at = None;
            // Once is enough, whichever way was first.
            transfer.plan.refers_after_bridge &= transfer.sent == 0;
        }
        self.wait_for(cx, Wait::Destination, None);
        self.tell_transfer(cx);
    }

    fn permit_for(&self, cx: &Cx<'_>, leaves_by: &Leaves) -> Result<Option<Permit>, Reason> {
        let caps = &cx.core.caps;
        let (trunk, leads_back) = match leaves_by {
            Leaves::Pbx | Leaves::Ours => return Ok(None),
            Leaves::Elsewhere | Leaves::ReservedPeer => (None, false),
            Leaves::Trunk(trunk) => (Some(trunk), trunk.leads_back),
        };
        if trunk.is_some_and(|trunk| cx.core.health.trunk(trunk.id) == Some(false)) {
            return Err(Reason::TrunkUnreachable);
        }
        let claims = [
            (!leads_back).then(|| caps.claim(self.org)),
            trunk.map(|trunk| Claim {
                id: trunk.id,
                max: trunk.max_concurrent_calls,
            }),
        ];
        let permit = cx
            .core
            .limits
            .acquire_leg(self.org, claims, cx.now)
            .map_err(|full| match full {
                Full::Trunk => Reason::TrunkBusy,
                Full::Outbound => Reason::OutboundBusy,
                Full::Org => Reason::OrgBusy,
                Full::Agent | Full::Node => Reason::Overload,
            })?;
        if !leads_back {
            let rate = trunk.map_or((Uuid::nil(), None), |trunk| {
                (trunk.id, trunk.calls_per_second)
            });
            caps.begin(self.org, rate, cx.now)
                .map_err(|denied| denied.reason)?;
        }
        Ok(Some(permit))
    }

    /// The destination rings.
    pub(crate) fn on_destination_rings(&mut self, cx: &mut Cx<'_>) {
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        transfer.heard = 180;
        transfer.record.state = State::Ringing;
        transfer.record.ringing_at = Some(cx.now);
        self.tell_transfer(cx);
        self.tell_runtime(cx, 180, false);
    }

    /// The destination won't, or can't be reached.
    pub(crate) fn on_destination_lost(&mut self, cx: &mut Cx<'_>, failure: Failure) {
        if !self.refers_instead(cx, &failure) {
            self.settle(cx, State::Failed, Some(failure.sip_code));
        }
    }

    /// The destination has answered: the caller is to get its media.
    pub(crate) fn on_destination_answers(
        &mut self,
        cx: &mut Cx<'_>,
        leg: LegId,
        accepted: Accepted<'_>,
        offer: Box<[u8]>,
    ) {
        accepted.acknowledge(cx);
        let sdp: Box<[u8]> = accepted.sdp().unwrap_or_default().into();
        let session = accepted.session(cx);
        let mut peer = accepted.into_peer(offer);
        let (Some(fork), Some(first)) = (self.fork(), peer.dialogs.first_mut()) else {
            return;
        };
        let offered = self.transfer.as_deref().map(|transfer| &*transfer.offered);
        let is_apart = offered.is_some_and(|offered| families::differ(offered, &sdp));
        if sdp.is_empty() || is_apart {
            let target = cx.next_flow(&first.dialog, peer.flow);
            bye_alone(cx, &mut first.dialog, target);
            self.legs.remove(leg);
            return self.settle(cx, State::Failed, Some(Reason::NoCommonMedia.status()));
        }
        first.fork = fork;
        self.legs.meet(leg, peer);
        self.legs.set_state(leg, LegState::Ready(session));
        self.start_session(cx, leg);
        self.keep_way_open(cx, leg);
        self.keep_origin(self.trunk_id());
        // What the caller has changed since then the destination hears with its answer to the re-INVITE.
        let offered = self.transfer.as_deref_mut();
        let offered = offered.map(|transfer| std::mem::take(&mut transfer.offered));
        let offered = offered.unwrap_or_default();
        self.with_origin(leg, &offered);
        let joining = Join::arriving(offered, leg);
        self.joining = Some(Box::new(joining));
        self.join(cx, &sdp);
    }

    /// The caller has a destination's media: the agent goes (RFC 3725 §4.4).
    pub(crate) fn hand_over(&mut self, cx: &mut Cx<'_>, destination: LegId) {
        self.note_handed_over(cx);
        self.agent_goes(cx);
        let (agent, is_local) = (self.agent_id(), self.is_local());
        self.put_in_place_of(agent, destination);
        match is_local {
            true => {
                self.legs.remove(agent);
                let closed = Effect::CloseMedia { call: self.key };
                cx.core.effects.push_back(closed);
            }
            false => self.send_bye(cx, agent, ByeContent::default()),
        }
        self.forget_left(agent);
        if let Some(permit) = &mut self.permit {
            permit.release(self.agent);
        }
    }

    /// A destination that has answered doesn't take the agent's place: the caller won't have its media, or it has hung up before.
    pub(crate) fn on_destination_refused(&mut self, cx: &mut Cx<'_>, status: u16) {
        self.settle(cx, State::Failed, Some(status));
    }

    /// Gives up what is under way with the agent, as at the end of a call. Requests of ours to the caller alone go on.
    pub(crate) fn agent_goes(&mut self, cx: &mut Cx<'_>) {
        let agent = self.agent_id();
        self.forgive_acks(cx, agent);
        while let Some((_, delayed)) = self.take_delayed() {
            self.reject_offer(cx, agent, &delayed);
        }
        for pending in &mut self.pending {
            let own = matches!(
                pending.purpose,
                Purpose::Refresh | Purpose::Own | Purpose::Join(Round::Join)
            );
            let is_agents = pending.leg == agent;
            if !is_agents && own {
                continue;
            }
            let left = match is_agents {
                true => Purpose::Own,
                false => Purpose::Stale,
            };
            if let Purpose::Relay(server) = std::mem::replace(&mut pending.purpose, left) {
                cx.respond(server, 487, None, |_| {}, b"");
            }
            if pending.method == Method::Invite {
                cx.endpoint.cancel(pending.client, b"", cx.now);
            }
        }
        self.drop_hold(cx);
        for pending in &mut self.pending {
            pending.offers &= pending.leg != agent;
        }
        self.queue.withdraw(QueuedRequest::Refresh(agent));
        self.legs.stop_timers(cx, agent);
    }

    fn note_handed_over(&mut self, cx: &mut Cx<'_>) {
        if let Some(transfer) = self.transfer.as_deref_mut() {
            transfer.record.state = State::Completed;
            transfer.record.ended_at = Some(cx.now);
            transfer.record.handed_over = true;
            transfer.record.answer_confirmed = Some(true);
        }
        self.tell_transfer(cx);
        self.tell_runtime(cx, 200, true);
        self.wait_for(cx, Wait::Nothing, None);
    }
}
