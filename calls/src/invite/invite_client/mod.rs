//! An INVITE of ours, tried at one target after another until there is an answer (RFC 3261 §13.2, RFC 3263 §4.3): the runtime of a call, the
//! callee of an outbound one, the destination of a transfer.
//!
//! The client answers challenges, raises the session interval where a peer demands it, and follows redirections within the peer's own hosts. A target
//! that is silent, or refuses as the [`PeerPlan`] lists, leads to the next one. The client returns events ([`InviteEvent`]) and answers no peer; it doesn't
//! know the purpose of the INVITE.

mod attempt;
mod event;
mod plan;
mod print;
mod refused;
mod silent;
#[cfg(test)]
mod tests;
mod text;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_model::address::Refusal;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::slot::Slot;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::attempts::{AttemptOwner, AttemptResult, AttemptTarget, Attempts, Resolution};
use super::large_invite::{InviteSent, STREAM_PATIENCE, UdpFallback};
use super::late_answer::refuse_late_answer;
use crate::core::context::Cx;
use crate::core::effect::Effect;
use crate::core::traced::DialogIdentity;
use crate::has_sdp;
use crate::parts::dial_failure::{DialFailure, FORBIDDEN, UNREACHABLE};
use crate::parts::ids::{CallKey, CallTimer, LegId, TagOwner};
use crate::parts::target::{DialTarget, Target, UnresolvedTarget};
use crate::trust::credentials::PeerAddresses;
use crate::trust::digest_answers::DigestAnswers;
use attempt::{Attempt, ProvisionalOutcome, Reconnects};

pub(crate) use event::{
    Accepted, AnswerSdp, EarlyDialog, Failed, InviteEvent, OurOffer, ProvisionalResponse, Sent,
};
pub(crate) use plan::{CallIds, FailoverRule, Patience, PeerPlan, RedirectRule, TransportChoice};
pub(crate) use text::{ClientParts, InviteText};

/// Time that a target may be silent while another one waits. Then its INVITE is cancelled, and the next one is tried.
const ATTEMPT_PATIENCE: Duration = Duration::from_secs(4);

/// The leg that an INVITE is for.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DialledLeg {
    pub(crate) key: CallKey,
    pub(crate) slot: Slot,
    pub(crate) id: LegId,
    pub(crate) owner: AttemptOwner,
}

/// An INVITE of ours, under way.
#[derive(Debug)]
pub(crate) struct InviteClient {
    leg: DialledLeg,
    plan: PeerPlan,
    attempts: Attempts,
    /// Places that are addresses, to be tried before the plan's.
    targets: VecDeque<Target>,
    /// Addresses of the peer: what its host resolved to, and where answers came from.
    addresses: PeerAddresses,
    /// The path by datagram to the current target.
    datagram: UdpFallback,
    /// Smallest session interval that the peer accepts.
    min_se: Option<u32>,
    redirects: u8,
    /// Number of the next early dialog.
    forks: u8,
    /// A target has rung.
    rang: bool,
    /// Failure of the last target.
    last: Option<DialFailure>,
    /// Lines of the last refusal about its cause and a retry.
    said: Box<[u8]>,
    /// Keys into the tag index that the call has not taken over.
    tags: SmallVec<[u64; 1]>,
    timer: Option<TimerId>,
    state: State,
}

/// State of the INVITE.
#[derive(Debug)]
enum State {
    /// Nothing is under way: not begun, or between two targets.
    Idle,
    /// The first host is being looked up, before the INVITE may be sent. The resolver always answers, within seconds.
    LookingAhead(Box<str>),
    /// The host of this URI is being looked up. The resolver always answers, within seconds.
    Resolving(Box<str>),
    /// A connection is being opened for an INVITE that no datagram carries. The target comes back as resolved.
    Connecting(Box<Attempt>),
    /// The INVITE is out. `timer`, the ringing time or the set-up deadline ends the silence of its target.
    Inviting(ClientTx, Box<Attempt>),
    /// The INVITE was taken back, or has failed.
    Over,
}

/// The next thing to try.
enum Next {
    Target(Target),
    Name(UnresolvedTarget),
    Nothing,
}

impl InviteClient {
    /// A client for that leg of a call. Nothing is sent before [`Self::begin`].
    pub(crate) fn new(leg: DialledLeg, plan: PeerPlan) -> Self {
        Self {
            leg,
            plan,
            attempts: Attempts::default(),
            targets: VecDeque::new(),
            addresses: PeerAddresses::default(),
            datagram: UdpFallback::default(),
            min_se: None,
            redirects: 0,
            forks: 0,
            rang: false,
            last: None,
            said: Box::default(),
            tags: SmallVec::new(),
            timer: None,
            state: State::Idle,
        }
    }

    /// Notes that other targets of its leg were tried before.
    pub(crate) fn follow(&mut self) {
        self.attempts = Attempts::following();
    }

    /// Numbers early dialogs from `first` on: those before are another party's.
    pub(crate) const fn number_forks_from(&mut self, first: u8) {
        self.forks = first;
    }

    /// Notes that something else is tried if all targets fail, so that the last one may not be silent for longer than the others.
    pub(crate) const fn lead_on(&mut self) {
        self.plan.patience = Patience::WithNone;
    }

    /// Reports the last failure as a fail-over: another kind of target follows.
    pub(crate) fn pass_on(&mut self, cx: &mut Cx<'_>) {
        self.attempts.pass_on(cx);
    }

    /// Looks up the first target, if it is a name, so that the offer can have an address of the same family.
    pub(crate) fn look_ahead(&mut self, cx: &mut Cx<'_>) {
        let wanted = match self.plan.dial_targets.front() {
            Some(dial_target) if dial_target.is_reserved(&cx.core.config.addresses) => return,
            Some(DialTarget::Unresolved(wanted)) => wanted.clone(),
            Some(DialTarget::Resolved(_)) | None => return,
        };
        self.plan.dial_targets.pop_front();
        self.state = State::LookingAhead(wanted.uri.clone());
        self.look_up(cx, wanted);
    }

    /// Returns the flow to the first reachable target, as far as known.
    pub(crate) fn first_flow(&self, cx: &Cx<'_>) -> Option<Flow> {
        let dial_targets =
            self.plan
                .dial_targets
                .iter()
                .map_while(|dial_target| match dial_target {
                    DialTarget::Resolved(target) => Some(target),
                    DialTarget::Unresolved(_) => None,
                });
        let mut targets = self.targets.iter().chain(dial_targets);
        targets.find_map(|target| cx.flow_to(target).ok())
    }

    /// Sends the INVITE to the first target.
    pub(crate) fn begin(&mut self, cx: &mut Cx<'_>, text: &dyn InviteText) -> InviteEvent<'static> {
        self.advance(cx, text)
    }

    /// The leg that it is for.
    pub(crate) const fn leg(&self) -> LegId {
        self.leg.id
    }

    /// The transaction whose early dialogs exist, if one runs.
    pub(crate) fn transaction(&self) -> Option<ClientTx> {
        self.inviting().map(|(client, _)| client)
    }

    /// The INVITE that is out.
    pub(crate) fn sent(&self) -> Option<Sent<'_>> {
        self.inviting().map(|(_, attempt)| Sent {
            cseq: attempt.requests,
            flow: attempt.flow,
            uri: &attempt.target.uri,
        })
    }

    /// Returns whether the INVITE that is out has a From-tag with this random part.
    pub(crate) fn invites_as(&self, bits: u64) -> bool {
        self.inviting()
            .is_some_and(|(_, attempt)| attempt.tag.bits() == bits)
    }

    /// Returns the state of our offer in the early dialog that a peer's request belongs to; `None` if there is no such dialog.
    pub(crate) fn early_offer(&self, request: &Message<'_>) -> Option<OurOffer> {
        self.inviting()
            .and_then(|(_, attempt)| attempt.early_offer(request))
    }

    fn inviting(&self) -> Option<(ClientTx, &Attempt)> {
        match &self.state {
            State::Inviting(client, attempt) => Some((*client, attempt)),
            State::Idle
            | State::LookingAhead(_)
            | State::Resolving(_)
            | State::Connecting(_)
            | State::Over => None,
        }
    }

    /// Returns the known addresses of the peer.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.as_slice().iter().copied()
    }

    /// Returns whether an answer of this transaction is meant for it.
    pub(crate) fn owns(&self, client: ClientTx) -> bool {
        self.transaction() == Some(client)
    }

    /// Returns whether the peer is known to be at that address, by its host name or its responses.
    pub(crate) fn knows(&self, ip: IpAddr) -> bool {
        self.addresses.as_slice().contains(&ip.to_canonical())
    }

    pub(crate) const fn is_resolving(&self) -> bool {
        match &self.state {
            State::LookingAhead(_) | State::Resolving(_) | State::Connecting(_) => true,
            State::Idle | State::Inviting(..) | State::Over => false,
        }
    }

    /// Takes the keys into the tag index, which the call owns from now on.
    pub(crate) fn take_tags(&mut self) -> SmallVec<[u64; 1]> {
        std::mem::take(&mut self.tags)
    }

    /// The timer that runs for it.
    pub(crate) const fn timer(&self) -> Option<TimerId> {
        self.timer
    }

    /// Handles a result of the resolver, or of opening a connection.
    pub(crate) fn handle_resolved(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        found: Resolution,
    ) -> InviteEvent<'static> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::LookingAhead(uri) => {
                self.take_found(cx, &uri, found);
                InviteEvent::Waits
            }
            State::Resolving(uri) => {
                self.take_found(cx, &uri, found);
                self.advance(cx, text)
            }
            State::Connecting(attempt) => {
                self.take_found(cx, &attempt.target.uri, found);
                self.advance(cx, text)
            }
            // The INVITE was taken back meanwhile.
            state @ (State::Idle | State::Inviting(..) | State::Over) => {
                self.state = state;
                InviteEvent::Waits
            }
        }
    }

    fn take_found(&mut self, cx: &mut Cx<'_>, uri: &str, found: Resolution) {
        match found {
            Ok(targets) => {
                for target in &targets {
                    self.addresses.add(target.address.ip());
                }
                // Other targets may wait if a connection to the first one was tried.
                for target in targets.into_iter().rev() {
                    self.targets.push_front(target);
                }
            }
            Err(fault) => self.pass(
                cx,
                AttemptTarget::named(uri),
                &AttemptResult::Unresolved(fault),
            ),
        }
    }

    /// Handles a response to the INVITE.
    pub(crate) fn handle_response<'m>(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        flow: Flow,
        message: &'m Message<'m>,
    ) -> InviteEvent<'m> {
        let Some((client, attempt)) = self.take_inviting() else {
            return InviteEvent::Waits;
        };

        self.addresses.add(flow.peer.ip());
        self.datagram.hear();
        match message.status() {
            ..=199 => self.handle_provisional(cx, (client, attempt), flow, message),
            200..=299 => {
                cx.cancel_timer(&mut self.timer);
                self.handle_accepted(cx, text, (client, attempt), flow, message)
            }
            status => {
                cx.cancel_timer(&mut self.timer);
                self.handle_refused(cx, text, attempt, status, message)
            }
        }
    }

    fn handle_provisional<'m>(
        &mut self,
        cx: &mut Cx<'_>,
        (client, mut attempt): (ClientTx, Box<Attempt>),
        flow: Flow,
        message: &'m Message<'m>,
    ) -> InviteEvent<'m> {
        self.attempts.hear(message.status());
        attempt.heard = true;

        // The next hop has the INVITE, but what is behind it is unknown: a proxy in front of a dead peer sends 100 too. The timer goes on.
        if message.status() == 100 {
            self.state = State::Inviting(client, attempt);
            return InviteEvent::Waits;
        }
        cx.cancel_timer(&mut self.timer);

        let is_first = !std::mem::replace(&mut self.rang, true);
        let early = attempt.hear(&mut self.forks, message);
        self.state = State::Inviting(client, attempt);
        match early {
            ProvisionalOutcome::Dialog(early) => {
                // A next hop that is a name is looked up now, so that it is known when the ACK is sent.
                if let Some(dialog) = &early.begins {
                    cx.next_flow(dialog, flow);
                }
                InviteEvent::Provisional(ProvisionalResponse {
                    is_first,
                    early: Some(early),
                    message,
                })
            }
            ProvisionalOutcome::NoDialog => InviteEvent::Provisional(ProvisionalResponse {
                is_first,
                early: None,
                message,
            }),
            ProvisionalOutcome::Repetition => InviteEvent::Waits,
        }
    }

    fn handle_accepted<'m>(
        &mut self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        (client, attempt): (ClientTx, Box<Attempt>),
        flow: Flow,
        message: &'m Message<'m>,
    ) -> InviteEvent<'m> {
        cx.core.health.heard(&attempt.target);
        let Some(dialog) = Dialog::uac(attempt.target.uri.as_bytes(), message) else {
            // By an unreadable route, no request of ours would arrive.
            refuse_late_answer(cx, flow, client, message);
            self.pass_unusable(cx, &attempt.target, message);
            self.last = Some(UNREACHABLE);
            return self.advance(cx, text);
        };

        let (owner, status) = (self.leg.owner, message.status());
        self.attempts.answered(cx, owner, &attempt.target, status);
        cx.look_up(&dialog, flow);
        let credentials = self.plan.credentials_at(flow.peer.ip());
        let credentials =
            credentials.map(|held| held.answered_at(&self.plan.hosts, self.addresses.as_slice()));
        let mut ack_lines = Vec::new();
        // RFC 3261 §13.2.2.4: it "MUST contain the same credentials as the INVITE", yet only where they belong.
        if let Some(held) = &credentials {
            let destination = cx.next_flow(&dialog, flow).peer.ip();
            if held.may_answer_in(&dialog, destination) {
                attempt.digest_answers.lines(&mut Head::new(&mut ack_lines));
            }
        }

        let tag = message.to_tag().unwrap_or_default();
        let fork = attempt.forks.iter().find(|fork| *fork.tag == *tag);
        let accepted = Accepted {
            client,
            fork: fork.map_or(self.forks, |fork| fork.number),
            cseq: attempt.requests,
            flow,
            is_from_target: attempt.flow.peer.ip() == flow.peer.ip(),
            uri: attempt.target.uri.clone(),
            dialog,
            sdp: match fork.and_then(|fork| fork.sdp.clone()) {
                _ if has_sdp(message) => AnswerSdp::InBody,
                Some(sdp) => AnswerSdp::Early(sdp),
                None => AnswerSdp::Missing,
            },
            ack_lines,
            credentials: credentials.map(Box::new),
            addresses: self.addresses.clone(),
            message,
        };
        // Kept, since the next target is tried if this answer can't be used (`pass_over`).
        self.state = State::Inviting(client, attempt);
        InviteEvent::Accepted(Box::new(accepted))
    }

    /// Continues as far as possible.
    fn advance(&mut self, cx: &mut Cx<'_>, text: &dyn InviteText) -> InviteEvent<'static> {
        loop {
            match self.next(cx) {
                Next::Target(target) => self.attempt(cx, text, target),
                Next::Name(wanted) => {
                    self.state = State::Resolving(wanted.uri.clone());
                    self.look_up(cx, wanted);
                }
                Next::Nothing => {
                    let failure = self.last.unwrap_or_else(|| self.unreachable());
                    return self.fail(failure, None);
                }
            }
            if !matches!(self.state, State::Idle) {
                return InviteEvent::Waits;
            }
        }
    }

    fn next(&mut self, cx: &mut Cx<'_>) -> Next {
        if let Some(target) = self.targets.pop_front() {
            return Next::Target(target);
        }
        while let Some(dial_target) = self.plan.dial_targets.pop_front() {
            match dial_target {
                dial_target if dial_target.is_reserved(&cx.core.config.addresses) => {
                    let came = AttemptResult::NotAllowed(Refusal::Reserved);
                    self.pass(cx, (&dial_target).into(), &came);
                }
                DialTarget::Resolved(target) => return Next::Target(target),
                DialTarget::Unresolved(wanted) => return Next::Name(wanted),
            }
        }
        Next::Nothing
    }

    fn look_up(&mut self, cx: &mut Cx<'_>, wanted: UnresolvedTarget) {
        self.attempts.begin(cx);
        let (call, org) = (self.leg.key, self.leg.owner.org);
        let resolve = Effect::Resolve { call, org, wanted };
        cx.core.effects.push_back(resolve);
    }

    /// Tries a target.
    fn attempt(&mut self, cx: &mut Cx<'_>, text: &dyn InviteText, target: Target) {
        let flow = match cx.flow_to(&target) {
            Ok(flow) => flow,
            Err(why) => return self.pass(cx, (&target).into(), &why.into()),
        };
        self.attempts.begin(cx);
        let owner = TagOwner {
            key: self.leg.key,
            leg: self.leg.id,
        };
        let tag = cx.mint_tag(self.leg.slot, owner);
        self.tags.push(tag.bits());

        let call_id = match &self.plan.call_ids {
            CallIds::One(call_id) => *call_id,
            CallIds::PerTarget => {
                let entropy = cx.endpoint.entropy();
                cx.core.minter.call_id(self.leg.slot, entropy)
            }
        };
        let dialog = DialogIdentity::without_peer(tag, call_id, text.secrets());
        cx.trace(owner, dialog);
        self.addresses.add(target.address.ip());
        self.datagram.begin(&target);

        let attempt = Attempt {
            target,
            flow,
            tag,
            call_id,
            requests: 0,
            digest_answers: DigestAnswers::default(),
            heard: false,
            reconnects: Reconnects::Once,
            forks: SmallVec::new(),
        };
        self.send(cx, text, Box::new(attempt));
    }

    /// Sends the INVITE of an attempt, first or repeated.
    fn send(&mut self, cx: &mut Cx<'_>, text: &dyn InviteText, mut attempt: Box<Attempt>) {
        attempt.requests += 1;
        // Early dialogs have ended with the transaction of the last request (RFC 3261 §12.3).
        attempt.forks.clear();

        match self.print(cx, text, &attempt) {
            InviteSent::Invite(client) => {
                // The last target has no timer here: ringing time or set-up deadline ends its silence.
                let patience = match self.datagram.is_in_reserve() {
                    true => Some(STREAM_PATIENCE),
                    false => self.has_another().then_some(ATTEMPT_PATIENCE),
                };
                self.timer = patience
                    .map(|patience| cx.schedule(self.leg.key, patience, CallTimer::Attempt));
                self.state = State::Inviting(client, attempt);
            }
            InviteSent::Connecting => {
                self.datagram = UdpFallback::of(&attempt.target, attempt.flow);
                self.state = State::Connecting(attempt);
            }
            InviteSent::Nothing => {
                self.pass(cx, (&attempt.target).into(), &AttemptResult::Overloaded)
            }
        }
    }

    /// Returns whether another target is left.
    pub(crate) fn has_more(&self) -> bool {
        !self.targets.is_empty() || !self.plan.dial_targets.is_empty()
    }

    /// Returns whether something else is tried where the target fails.
    pub(crate) fn has_another(&self) -> bool {
        self.has_more() || self.plan.patience == Patience::WithNone
    }

    /// Failure without an answer: no target is left, or none may be contacted.
    const fn unreachable(&self) -> DialFailure {
        if self.attempts.are_forbidden() {
            FORBIDDEN
        } else {
            UNREACHABLE
        }
    }

    /// Records a target that was skipped, or has failed.
    fn pass(&mut self, cx: &mut Cx<'_>, tried: AttemptTarget<'_>, came: &AttemptResult) {
        self.attempts.failed(cx, self.leg.owner, tried, came);
    }

    /// Cancels the INVITE, with these lines in the CANCEL; later responses are ignored.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, lines: &[u8]) {
        let attempt = match std::mem::replace(&mut self.state, State::Over) {
            State::Inviting(client, attempt) => {
                cx.endpoint.cancel(client, lines, cx.now);
                Some(attempt)
            }
            State::Connecting(attempt) => Some(attempt),
            State::Idle | State::LookingAhead(_) | State::Resolving(_) | State::Over => None,
        };
        if let Some(attempt) = attempt {
            self.attempts.canceled(cx, self.leg.owner, &attempt.target);
        }
        cx.cancel_timer(&mut self.timer);
    }

    fn fail<'m>(
        &mut self,
        failure: DialFailure,
        message: Option<&'m Message<'m>>,
    ) -> InviteEvent<'m> {
        self.state = State::Over;
        InviteEvent::Failed(Failed {
            failure,
            said: std::mem::take(&mut self.said),
            message,
        })
    }
}
