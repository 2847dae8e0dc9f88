//! Calling somebody: an INVITE of our own, tried at one place after another until there is an answer (RFC 3261 §13.2, RFC 3263
//! §4.3). It serves outbound calls, and whoever is brought into a call that is up.
//!
//! The next place is tried only after a broken way, silence, or a 408, 500, 502, 503 or 504 before anything rang; whoever has declined isn't
//! asked again. Challenges are answered, a redirection is followed within the peer's own hosts. What the answer means for the
//! call is not known here.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_model::address::Refusal;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::{ClientTx, Request};
use trunkline_sip::flow::Flow;
use trunkline_sip::slot::{CallId, Slot};
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::allow::to_callee;
use super::attempts::{Attempts, Came, Found, Tried, Whose};
use super::call::{CallKey, ForkDialog, Leg, Side};
use super::callee::{Callee, Choice};
use super::context::{CallTimer, Cx, TagOwner, allows, lacks_refer};
use super::credentials::PeerAddresses;
use super::effect::Effect;
use super::has_sdp;
use super::large::{self, Datagram, InviteSent, STREAM_PATIENCE};
use super::pbx::Pbx;
use super::proofs::Proofs;
use super::refusal::Reason;
use super::secure::is_sips;
use super::target::{Place, Target, Unresolved};
use super::unanswered::{FORBIDDEN, Failure, UNREACHABLE, reason_line};

mod refused;
mod silent;

/// How long a place may be silent while another waits.
const ATTEMPT_PATIENCE: Duration = Duration::from_secs(4);
/// Redirections that are followed.
const MAX_REDIRECTS: u8 = 3;
/// Requests of one attempt: the first, and those with credentials or a longer session.
const MAX_REQUESTS: u32 = 8;

/// What a call in progress is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    /// The call begins with it: an outbound call.
    Begin,
    /// Whoever the caller is handed to takes the agent's place.
    Bridge,
}

/// An SDP and the To-tag that it came under.
type Early = (Box<[u8]>, Box<[u8]>);

/// A call to somebody, under way.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) errand: Errand,
    whose: Whose,
    attempts: Attempts,
    pub(crate) callee: Callee,
    /// Its Max-Forwards.
    hops: u8,
    /// The SDP that is offered.
    offer: Box<[u8]>,
    /// The leg that it will be.
    side: Side,
    key: CallKey,
    slot: Slot,
    call_id: CallId,
    targets: VecDeque<Target>,
    current: Option<Target>,
    /// The URI whose host is being looked up.
    resolving: Option<Box<str>>,
    client: Option<ClientTx>,
    /// The other way to the place that is being tried.
    datagram: Datagram,
    local_tag: Box<[u8]>,
    cseq: u32,
    proofs: Proofs,
    /// Where the peer is: what its host resolved to, and where answers came from.
    addresses: PeerAddresses,
    min_se: Option<u32>,
    redirects: u8,
    /// Something came from the place that is being tried.
    heard: bool,
    /// It rang somewhere.
    rang: bool,
    /// The last SDP of a provisional answer, and the To-tag that it came under.
    early: Option<Early>,
    /// Why the last place failed.
    last: Option<Failure>,
    /// Keys into the tag index.
    tags: SmallVec<[u64; 1]>,
    attempt_timer: Option<TimerId>,
    ringing_timer: Option<TimerId>,
    /// Where all places stay silent, something else is tried: the last one isn't waited for any longer than the others.
    is_tentative: bool,
}

/// How a call to somebody has come on.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Nothing that anybody needs to know.
    Waits,
    /// It rings for the first time.
    Rings,
    /// Somebody has answered; the ACK is out.
    Answered(Box<Answered>),
    /// It is over without an answer.
    Failed(Failure),
}

/// Who has answered.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The leg, with the one dialog that stands, whose number is 0.
    pub(crate) leg: Leg,
    /// The SDP answer; empty if none came.
    pub(crate) sdp: Box<[u8]>,
    /// Keys into the tag index, the call's from now on.
    pub(crate) tags: SmallVec<[u64; 1]>,
}

impl Dial {
    /// A call to `callee` as the leg on `side` of the call at `key`. Nothing is sent before [`Self::begin`].
    pub(crate) fn new(
        cx: &mut Cx<'_>,
        (key, slot, side): (CallKey, Slot, Side),
        (errand, whose, attempts): (Errand, Whose, Attempts),
        callee: Callee,
        hops: u8,
    ) -> Self {
        Self {
            hops,
            errand,
            whose,
            attempts,
            callee,
            offer: Box::default(),
            side,
            key,
            slot,
            call_id: cx.core.minter.call_id(slot, cx.endpoint.entropy()),
            targets: VecDeque::new(),
            current: None,
            resolving: None,
            client: None,
            datagram: Datagram::default(),
            local_tag: Box::default(),
            cseq: 0,
            proofs: Proofs::default(),
            addresses: PeerAddresses::default(),
            min_se: None,
            redirects: 0,
            heard: false,
            rang: false,
            early: None,
            last: None,
            tags: SmallVec::new(),
            attempt_timer: None,
            ringing_timer: None,
            is_tentative: false,
        }
    }

    /// Something else is tried where nobody can be reached.
    pub(crate) const fn tentatively(mut self, is_tentative: bool) -> Self {
        self.is_tentative = is_tentative;
        self
    }

    /// The Call-ID of every INVITE of this call.
    pub(crate) const fn call_id(&self) -> &CallId {
        &self.call_id
    }

    /// Looks up the first place, if it is a name, so that the offer can have an address of its family. False: nothing is looked up.
    pub(crate) fn look_ahead(&mut self, cx: &mut Cx<'_>) -> bool {
        let first = self.callee.places.front();
        if !matches!(first, Some(Place::Name(_)))
            || first.is_some_and(|place| place.is_reserved(&cx.core.config.addresses))
        {
            return false;
        }
        if let Some(Place::Name(wanted)) = self.callee.places.pop_front() {
            self.look_up(cx, wanted);
        }
        true
    }

    fn look_up(&mut self, cx: &mut Cx<'_>, wanted: Unresolved) {
        self.attempts.begin(cx);
        self.current = None;
        self.resolving = Some(wanted.uri.clone());
        let (call, org) = (self.key, self.whose.org);
        let resolve = Effect::Resolve { call, org, wanted };
        cx.core.effects.push_back(resolve);
    }

    /// The way to the first place that can be reached, as far as that is known.
    pub(crate) fn first_flow(&self, cx: &Cx<'_>) -> Option<Flow> {
        let places = self.callee.places.iter().map_while(|place| match place {
            Place::Known(target) => Some(target),
            Place::Name(_) => None,
        });
        let mut targets = self.targets.iter().chain(places);
        targets.find_map(|target| cx.flow_to(target).ok())
    }

    /// Whether it has been told what to offer.
    pub(crate) const fn has_begun(&self) -> bool {
        self.ringing_timer.is_some()
    }

    /// Offers `offer`, and rings for as long as `patience` says.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        offer: Vec<u8>,
        patience: Duration,
    ) -> Progress {
        self.offer = offer.into();
        self.ringing_timer = Some(cx.schedule(self.key, patience, CallTimer::Ringing));
        self.advance(cx)
    }

    /// Whether an answer of this transaction is meant for it.
    pub(crate) fn owns(&self, client: ClientTx) -> bool {
        self.client == Some(client)
    }

    /// Whether the peer is known to be at that address, by its host or by its answers.
    pub(crate) fn knows(&self, ip: IpAddr) -> bool {
        self.addresses.as_slice().contains(&ip.to_canonical())
    }

    pub(crate) const fn is_resolving(&self) -> bool {
        self.resolving.is_some()
    }

    pub(crate) const fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// The timers and tags that it holds.
    pub(crate) fn held(&self) -> (impl Iterator<Item = TimerId>, &[u64]) {
        let timers = [self.attempt_timer, self.ringing_timer];
        (timers.into_iter().flatten(), &self.tags)
    }

    /// The resolver has answered.
    pub(crate) fn on_resolved(&mut self, cx: &mut Cx<'_>, found: Found) -> Progress {
        let uri = self.resolving.take().unwrap_or_default();
        match found {
            Ok(targets) => {
                for target in &targets {
                    self.addresses.add(target.address.ip());
                }
                // Others may wait, where a connection to the first was tried.
                for target in targets.into_iter().rev() {
                    self.targets.push_front(target);
                }
            }
            Err(fault) => self.passed_over(cx, Tried::named(&uri), &Came::Unresolved(fault)),
        }
        match self.has_begun() {
            true => self.advance(cx),
            false => Progress::Waits,
        }
    }

    /// Goes on as far as it can.
    fn advance(&mut self, cx: &mut Cx<'_>) -> Progress {
        while self.client.is_none() && self.resolving.is_none() {
            let target = match self.targets.pop_front() {
                Some(target) => target,
                None => match self.callee.places.pop_front() {
                    Some(Place::Known(target)) => target,
                    Some(place) if place.is_reserved(&cx.core.config.addresses) => {
                        let came = Came::NotAllowed(Refusal::Reserved);
                        self.passed_over(cx, (&place).into(), &came);
                        continue;
                    }
                    Some(Place::Name(wanted)) => {
                        self.look_up(cx, wanted);
                        return Progress::Waits;
                    }
                    None => return self.fail(cx, self.last.unwrap_or_else(|| self.unreachable())),
                },
            };
            self.attempt(cx, target);
        }
        Progress::Waits
    }

    /// Tries the next place: a dialog of its own would come of it, so it gets a From-tag of its own.
    fn attempt(&mut self, cx: &mut Cx<'_>, target: Target) {
        let owner = TagOwner {
            key: self.key,
            side: self.side,
            fork: 0,
        };
        let tag = cx.mint_tag(self.slot, owner);
        self.tags.push(tag.bits());
        self.local_tag = tag.as_bytes().into();
        self.cseq = 0;
        self.proofs = Proofs::default();
        self.heard = false;
        self.attempts.begin(cx);
        self.addresses.add(target.address.ip());
        self.datagram.begin(&target);
        self.current = Some(target);
        self.send(cx);
        let patience = match self.datagram.is_in_reserve() {
            true => Some(STREAM_PATIENCE),
            false => self.has_another().then_some(ATTEMPT_PATIENCE),
        };
        if let Some(patience) = patience.filter(|_| self.client.is_some()) {
            self.attempt_timer = Some(cx.schedule(self.key, patience, CallTimer::Attempt));
        }
    }

    /// Whether something else is tried where the place that is being tried stays silent.
    fn has_another(&self) -> bool {
        !self.targets.is_empty() || !self.callee.places.is_empty() || self.is_tentative
    }

    /// Nobody was called: no place is left, or none may be contacted.
    const fn unreachable(&self) -> Failure {
        if self.attempts.are_forbidden() {
            FORBIDDEN
        } else {
            UNREACHABLE
        }
    }

    fn passed_over(&mut self, cx: &mut Cx<'_>, tried: Tried<'_>, came: &Came) {
        self.attempts.failed(cx, self.whose, tried, came);
    }

    /// Something has come of the attempt that is under way.
    fn note(&mut self, cx: &mut Cx<'_>, came: &Came) {
        if let Some(target) = &self.current {
            self.attempts.failed(cx, self.whose, target.into(), came);
        }
    }

    /// Sends the INVITE to the place that is being tried; again, if something has to be said better.
    fn send(&mut self, cx: &mut Cx<'_>) {
        let way = self.current.as_ref().map(|target| cx.flow_to(target));
        let came = match way {
            Some(Ok(flow)) => match self.send_by(cx, flow) {
                InviteSent::Invite(client) => {
                    self.client = Some(client);
                    None
                }
                InviteSent::Connecting => {
                    if let Some(target) = &self.current {
                        self.datagram = Datagram::of(target, flow);
                        self.resolving = Some(target.uri.clone());
                    }
                    None
                }
                InviteSent::Nothing => Some(Came::Overloaded),
            },
            Some(Err(came)) => Some(came),
            None => None,
        };
        if let Some(came) = came {
            self.note(cx, &came);
        }
    }

    fn send_by(&mut self, cx: &mut Cx<'_>, flow: Flow) -> InviteSent {
        let Some(target) = &self.current else {
            return InviteSent::Nothing;
        };
        self.cseq += 1;
        let config = Arc::clone(&cx.core.config);
        let contact = cx.contact(&flow, is_sips(target.uri.as_bytes()));
        let own_host = host_part(cx.endpoint.sent_by(&flow)).to_owned();
        let host = self.callee.from_host.as_deref().unwrap_or(&own_host);
        let from = format!("<sip:{}@{host}>", self.callee.from_user);
        let min_se = self.min_se.unwrap_or(config.min_se);
        let tag = String::from_utf8_lossy(&self.local_tag).into_owned();
        let write = |head: &mut Head<'_>| {
            head.number("Max-Forwards", self.hops.into());
            head.fmt("From", format_args!("{from};tag={tag}"));
            head.fmt("To", format_args!("<{}>", self.callee.to));
            head.line("Call-ID", self.call_id.as_bytes());
            head.fmt("CSeq", format_args!("{} INVITE", self.cseq));
            head.line("Contact", contact.as_bytes());
            head.line("Allow", to_callee(self.side));
            head.line("Supported", b"timer");
            head.number("Session-Expires", config.session_expires.max(min_se).into());
            head.number("Min-SE", min_se.into());
            if self.callee.asserts {
                head.line("P-Asserted-Identity", from.as_bytes());
            }
            head.raw(&self.callee.lines);
            self.proofs.lines(head);
            head.line("Content-Type", b"application/sdp");
        };
        cx.with_head(write, |cx, head| {
            let request = Request {
                method: Method::Invite,
                token: "INVITE",
                uri: target.uri.as_bytes(),
                head,
                body: &self.offer,
            };
            match self.callee.transport {
                Choice::Ours => large::send_invite(cx, self.key, (target, flow), &request),
                Choice::Given => large::send_by(cx, self.key, flow, &request),
            }
        })
    }

    /// An answer to the INVITE.
    pub(crate) fn on_response(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        message: &Message<'_>,
    ) -> Progress {
        self.addresses.add(flow.peer.ip());
        let heard = std::mem::replace(&mut self.heard, true);
        self.datagram.hear();
        if message.status() < 200 {
            self.attempts.hear(message.status());
        }
        // The next hop has it, and nothing is known of who comes after. The timer runs on.
        if message.status() == 100 {
            return Progress::Waits;
        }
        cx.cancel_timer(&mut self.attempt_timer);
        match message.status() {
            ..=199 => self.on_provisional(cx, flow, message),
            200..=299 => self.on_accepted(cx, flow, message),
            status => {
                let client = self.client.take();
                debug_assert!(client.is_some(), "it is the one that was answered");
                self.heard = heard;
                self.on_refused(cx, status, message)
            }
        }
    }

    fn on_provisional(&mut self, cx: &mut Cx<'_>, flow: Flow, message: &Message<'_>) -> Progress {
        // A next hop that is a name is asked for now, so that it is known once the ACK is to go there.
        if let Some(dialog) = self.early_dialog(message) {
            cx.next_flow(&dialog, flow);
        }
        if has_sdp(message) {
            let tag = message.to_tag().unwrap_or_default();
            self.early = Some((tag.into(), message.body().into()));
        }
        if std::mem::replace(&mut self.rang, true) {
            Progress::Waits
        } else {
            Progress::Rings
        }
    }

    /// The dialog of the first provisional answer.
    fn early_dialog(&self, message: &Message<'_>) -> Option<Dialog> {
        let uri = self.current.as_ref().filter(|_| !self.rang)?.uri.as_bytes();
        Dialog::uac(uri, message)
    }

    /// The 2xx is acknowledged at once: its SDP is the answer to our offer.
    fn on_accepted(&mut self, cx: &mut Cx<'_>, flow: Flow, message: &Message<'_>) -> Progress {
        if let Some(target) = &self.current {
            cx.core.health.heard(target);
            let status = message.status();
            self.attempts.answered(cx, self.whose, target, status);
        }
        let uri = self
            .current
            .as_ref()
            .map(|target| target.uri.clone())
            .unwrap_or_default();
        let (Some(client), Some(dialog)) = (self.client, Dialog::uac(uri.as_bytes(), message))
        else {
            return Progress::Waits;
        };
        cx.look_up(&dialog, flow);
        let target = cx.next_flow(&dialog, flow);
        let request_uri = dialog.request_uri().to_vec();
        let credentials = self.callee.credentials_at(flow.peer.ip());
        let credentials =
            credentials.map(|held| held.answered_at(&self.callee.hosts, self.addresses.as_slice()));
        let proves = credentials
            .as_ref()
            .is_some_and(|held| held.lead_home(&dialog, target.peer.ip()));
        let write = |head: &mut Head<'_>| {
            dialog.ack_head(self.cseq, head);
            // The same as the INVITE's (RFC 3261 §13.2.2.4), where they may go.
            if proves {
                self.proofs.lines(head);
            }
        };
        cx.with_head(write, |cx, head| {
            let request = Request {
                method: Method::Ack,
                token: "ACK",
                uri: &request_uri,
                head,
                body: b"",
            };
            let tag = message.to_tag().unwrap_or_default();
            cx.endpoint.ack(client, tag, target, &request, cx.now);
        });
        self.client = None;
        self.release(cx);
        let mut leg = Leg::begun(flow);
        for ip in self.addresses.as_slice() {
            leg.places.learn(*ip);
        }
        leg.is_sips = is_sips(uri.as_bytes());
        leg.abilities.update = allows(message, "UPDATE");
        leg.abilities.no_refer = lacks_refer(message);
        leg.abilities.pbx = Pbx::of_message(message);
        leg.session = SessionTimer::for_uac(message, Some(cx.core.config.session_expires));
        leg.credentials = credentials.map(Box::new);
        leg.sdp = Some(self.offer.clone());
        leg.dialogs.push(ForkDialog { fork: 0, dialog });
        let sdp = if has_sdp(message) {
            message.body().into()
        } else {
            self.early_of(message.to_tag().unwrap_or_default())
        };
        Progress::Answered(Box::new(Answered {
            leg,
            sdp,
            tags: std::mem::take(&mut self.tags),
        }))
    }

    /// Some carriers say the answer in the 183 alone.
    fn early_of(&mut self, tag: &[u8]) -> Box<[u8]> {
        match self.early.take() {
            Some((of, sdp)) if *of == *tag => sdp,
            Some(_) | None => Box::default(),
        }
    }

    /// Takes the INVITE back; whatever is answered to it from now on is nobody's.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, reason: Reason) {
        if let Some(client) = self.client.take() {
            let mut lines = Vec::new();
            reason_line(&mut Head::new(&mut lines), reason);
            cx.endpoint.cancel(client, &lines, cx.now);
        }
        if let Some(target) = &self.current {
            self.attempts.canceled(cx, self.whose, target);
        }
        self.release(cx);
    }

    fn fail(&mut self, cx: &mut Cx<'_>, failure: Failure) -> Progress {
        self.release(cx);
        Progress::Failed(failure)
    }

    fn release(&mut self, cx: &mut Cx<'_>) {
        cx.cancel_timer(&mut self.attempt_timer);
        cx.cancel_timer(&mut self.ringing_timer);
    }
}

/// A host without its port.
fn host_part(host_port: &str) -> &str {
    match host_port.strip_prefix('[') {
        Some(_) => host_port
            .find(']')
            .map_or(host_port, |end| &host_port[..=end]),
        None => host_port.split(':').next().unwrap_or(host_port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_lose_their_port() {
        for (given, host) in [
            ("h:5060", "h"),
            ("[::1]:5060", "[::1]"),
            ("h", "h"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(host_part(given), host);
        }
    }
}
