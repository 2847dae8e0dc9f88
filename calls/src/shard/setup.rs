//! Start of a call: checks of an admitted INVITE, routing, permits, the record, and the data of its set-up. `runtime_invite` calls the runtime.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_model::invite_facts::Proof;
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started};
use trunkline_model::view::OrgView;
use trunkline_routing::{Decision, Facts, Outcome, decide, facts};
use trunkline_sip::dialog;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::{SessionTimer, Unacceptable};
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::header::uri::Scheme;
use trunkline_sip::header::{privacy, text};
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::HeaderName;
use trunkline_sip::wire::print::Head;
use uuid::Uuid;

use crate::call::Call;
use crate::core::context::{Config, Core, Cx, MIN_SE};
use crate::core::effect::Effect;
use crate::core::traced::{DialogIdentity, TracedLeg};
use crate::features::hold::Hold;
use crate::features::join::Joining;
use crate::features::transfer::LastTransfer;
use crate::inbound::admission::CallerInvite;
use crate::inbound::dialog_proof::{DialogProof, ProofWay};
use crate::inbound::generation::LAST_GENERATION;
use crate::inbound::lifetime::Lifetime;
use crate::inbound::{admission, generation, invite_facts};
use crate::leg::bot_state::Bot;
use crate::leg::bridge::Bridge;
use crate::leg::dial::Dialing;
use crate::leg::media_rules::MediaRules;
use crate::leg::runtime_chain::{First, NewChain};
use crate::leg::runtime_invite::InvitedCall;
use crate::leg::uas_invite::{ContactState, NewDialog, UasInvite, patience};
use crate::leg::{
    Abilities, LegPeer, LegState, Legs, LocalAgent, LocalMedia, Session, SipPeer, keep_alive,
    runtime_invite,
};
use crate::limits::{Claim, LimitReached, Limits, Permit};
use crate::parts::crossing::{lacking_options, own_headers};
use crate::parts::dial_failure::refusal_lines;
use crate::parts::ids::{CallKey, CallRef, CallTimer, LegId, owner_of};
use crate::parts::privacy::{ANONYMOUS_USER, CallerIdentity};
use crate::parts::refusal::Reason;
use crate::parts::request_origin::RequestOrigin;
use crate::parts::role::LegRole;
use crate::parts::{sips, target};

/// User part that requests a report on the trunk.
pub const DOCTOR: &str = "doctor";
/// Longest wait for the contact lookup: a new caller's contact is written first, which may take long on a slow disk. Then the call goes on
/// without a contact.
const CONTACT_PATIENCE: Duration = Duration::from_millis(500);

/// Octets of a peer's text that a record has: numbers as sent, and the Call-ID. Longer text is cut.
const RECORDED: usize = 255;

/// Vias of ours allowed in an INVITE that has come back with another Request-URI (a spiral). With more it is refused as a loop.
const MOST_RETURNS: usize = 3;

/// Starts a call, or refuses it with a record.
pub(crate) fn start(cx: &mut Cx<'_>, key: CallKey, admitted: CallerInvite<'_, '_>) -> Option<Call> {
    let newcomer = NewInvite::new(cx, key, admitted);
    if newcomer.caller.difference.is_some() {
        newcomer.refuse(cx, None, Reason::BadRequest);
        return None;
    }

    if is_for_the_doctor(&newcomer.caller.facts) {
        newcomer.refuse(cx, None, Reason::Examined);
        return None;
    }

    match newcomer.judge(cx) {
        Ok(chosen) => newcomer.begin(cx, chosen),
        Err(SetupRefusal { decision, reason }) => {
            newcomer.refuse(cx, decision.map(|decision| *decision), reason);
            None
        }
    }
}

/// Refuses an INVITE with a record.
pub(crate) fn turn_down(
    cx: &mut Cx<'_>,
    key: CallKey,
    admitted: CallerInvite<'_, '_>,
    reason: Reason,
) {
    NewInvite::new(cx, key, admitted).refuse(cx, None, reason);
}

/// Refusal of an INVITE.
struct SetupRefusal {
    decision: Option<Box<Decision>>,
    reason: Reason,
}

impl SetupRefusal {
    fn refused(decision: Decision, reason: Reason) -> Self {
        Self {
            decision: Some(Box::new(decision)),
            reason,
        }
    }
}

/// Routing decision and permit of an accepted call, and the dialog of its INVITE.
struct Chosen {
    decision: Decision,
    permit: Permit,
    new: NewDialog,
}

/// An INVITE before it becomes a call.
struct NewInvite<'a, 'm> {
    key: CallKey,
    caller: CallerInvite<'a, 'm>,
    slot: Slot,
    call: Uuid,
    session: Uuid,
    /// Number of times that the call has come back.
    generation: u8,
}

impl<'a, 'm> NewInvite<'a, 'm> {
    fn new(cx: &mut Cx<'_>, key: CallKey, caller: CallerInvite<'a, 'm>) -> Self {
        let message = caller.message;
        let slot = cx.core.minter.dispatch(message);
        let generation = generation::generation(cx, message);
        let session = generation::mint_session(cx, slot, generation.min(LAST_GENERATION - 1));
        let call = cx.mint_id(slot);

        Self {
            key,
            caller,
            slot,
            call,
            session,
            generation,
        }
    }

    /// Accepts the INVITE in a server transaction. Returns `None` if there was no room for one, and the INVITE was refused.
    fn accept(&self, cx: &mut Cx<'_>) -> Option<ServerTx> {
        let (flow, message) = (self.caller.flow, self.caller.message);
        let owner = owner_of(Some(self.key));
        let accepted = match self.caller.owes_proof {
            true => cx.endpoint.accept_unproven(message, flow, owner, cx.now),
            false => cx.endpoint.accept(message, flow, owner, cx.now),
        };
        if accepted.is_err() {
            admission::turn_away(cx.core, cx.endpoint, flow, message, Reason::Overload);
        }
        accepted.ok()
    }

    /// Routes the call and takes its permits, or refuses it.
    fn judge(&self, cx: &mut Cx<'_>) -> Result<Chosen, SetupRefusal> {
        let (org, facts) = (&*self.caller.org, &self.caller.facts);
        let request_uri = self.caller.request_uri.as_ref();
        let accepted = sips::came_securely(request_uri, &self.caller.flow)
            .and_then(|()| acceptable(cx.core, &self.caller));
        let new = accepted.map_err(|reason| SetupRefusal {
            decision: None,
            reason,
        })?;

        let stands_against = match (org.suspended, self.generation) {
            (true, _) => Some(Reason::OrgSuspended),
            (false, LAST_GENERATION..) => Some(Reason::LoopDetected),
            (false, _) => None,
        };
        if let Some(reason) = stands_against {
            return Err(SetupRefusal {
                decision: None,
                reason,
            });
        }

        let mut full: SmallVec<[Uuid; 4]> = SmallVec::new();
        loop {
            let busy = |agent: Uuid| full.contains(&agent) || at_limit(cx.core, org, agent);
            let decision = decide(facts, &org.routing, &busy);
            let agent = match decision.outcome {
                Outcome::Agent { id, .. } => id,
                Outcome::AgentBusy { .. } => {
                    return Err(SetupRefusal::refused(decision, Reason::AgentBusy));
                }
                Outcome::NoAgent => return Err(SetupRefusal::refused(decision, Reason::NoAgent)),
            };

            match cx.core.limits.acquire(
                org.holder(),
                org_claim(org),
                self.trunk_claim(),
                agent_claim(org, agent),
                self.setup_claim(&cx.core.limits, &decision),
                cx.now,
            ) {
                Ok(permit) => {
                    return Ok(Chosen {
                        decision,
                        permit,
                        new,
                    });
                }

                // Another shard has taken the agent's last place: decide again without that agent.
                Err(LimitReached::Agent) => full.push(agent),
                Err(limit) => return Err(SetupRefusal::refused(decision, limit.reason())),
            }
        }
    }

    /// Records the call as refused, and answers its INVITE. An org's refusals beyond a rate are neither recorded nor kept in transactions.
    fn refuse(self, cx: &mut Cx<'_>, decision: Option<Decision>, reason: Reason) {
        if !cx
            .core
            .limits
            .records_refusal(self.caller.org.routing.id, cx.now)
        {
            return self.refuse_stateless(cx, reason);
        }
        let Some(server) = self.accept(cx) else {
            return;
        };

        let agent = decision
            .as_ref()
            .and_then(|decision| match decision.outcome {
                Outcome::AgentBusy { id } => Some(id),
                Outcome::Agent { .. } | Outcome::NoAgent => None,
            });
        let started = self.started(cx, decision, agent);
        cx.core.fact(Fact::Started(started));
        self.trace(cx);
        cx.core.effects.push_back(Effect::Untraced(self.call));
        cx.core.fact(Fact::Ended(Box::new(Ended {
            call: self.call,
            org: self.caller.org.routing.id,
            at: cx.now,
            status: reason.unanswered(),
            sip_code: reason.status(),
            reason: Some(reason.code().into()),
            reason_detail: None,
            hangup_by: HangupBy::Platform,
            cause: None,
        })));

        cx.endpoint.set_owner(server, owner_of(None));
        let tag = cx.core.minter.tag(self.slot, cx.endpoint.entropy());
        let config = Arc::clone(&cx.core.config);
        let lines = |head: &mut Head<'_>| self.refusal_lines(&config, reason, head);
        cx.respond(server, reason.status(), Some(tag.as_bytes()), lines, b"");
    }

    /// Gives the INVITE to the call's trace.
    fn trace(&self, cx: &mut Cx<'_>) {
        let leg = TracedLeg {
            org: self.caller.org.routing.id,
            call: self.call,
            leg: LegId::FIRST.number(),
            role: LegRole::Trunk,
        };
        let partner = self.caller.org.holder().partner;
        let identity = DialogIdentity::of_invite(self.caller.message, self.caller.flow);
        cx.core
            .effects
            .push_back(Effect::Traced(leg, partner, Box::new(identity)));
    }

    /// Answers the INVITE as refused, without a transaction or a record: only the refusal is counted.
    fn refuse_stateless(&self, cx: &mut Cx<'_>, reason: Reason) {
        let (flow, message) = (self.caller.flow, self.caller.message);
        let config = Arc::clone(&cx.core.config);
        cx.core.effects.push_back(Effect::TurnedAway {
            reason: reason.code(),
        });
        let lines = |head: &mut Head<'_>| self.refusal_lines(&config, reason, head);
        cx.core
            .stateless(cx.endpoint, message, flow, reason.status(), lines);
    }

    /// Writes the further lines of a refusal.
    fn refusal_lines(&self, config: &Config, reason: Reason, head: &mut Head<'_>) {
        refusal_lines(head, reason);
        match reason.status() {
            420 => {
                let lacking = lacking_options(self.caller.message).unwrap_or_default();
                head.line("Unsupported", &lacking);
            }
            400 if Dialog::uas(self.caller.message, b"").is_none() => {
                let why = dialog::unusable_because(self.caller.message);
                head.fmt("Warning", format_args!("399 trunkline \"{why}\""));
            }
            422 => head.number("Min-SE", MIN_SE.into()),
            503 => head.number("Retry-After", config.retry_after.into()),
            _ => {}
        }
    }

    /// Facts of the call's start, for its record.
    fn started(
        &self,
        cx: &Cx<'_>,
        mut decision: Option<Decision>,
        agent: Option<Uuid>,
    ) -> Arc<Started> {
        let CallerInvite {
            message,
            flow,
            org,
            facts,
            ..
        } = &self.caller;

        if let Some(decision) = &mut decision {
            cut(&mut decision.dialled.raw);
            cut(&mut decision.caller.raw);
        }

        let (mut dialled, mut caller) = match &decision {
            Some(decision) => (decision.dialled.clone(), decision.caller.clone()),
            None => (
                facts::dialled(facts, &org.routing),
                facts::caller(facts, &org.routing),
            ),
        };
        cut(&mut dialled.raw);
        cut(&mut caller.raw);
        let mut call_id = text::lossy(message.call_id()).into();
        cut(&mut call_id);

        Arc::new(Started {
            call: self.call,
            org: org.routing.id,
            session: self.session,
            agent,
            trunk: self.trunk_claim().map(|trunk| trunk.id),
            direction: Direction::Inbound,
            from: caller.raw,
            to: dialled.raw,
            from_e164: caller.e164,
            to_e164: dialled.e164,
            caller_call_id: call_id,
            at: cx.now,
            decision: decision.map(Box::new),
            headers: own_headers(message, &cx.core.config.header_prefix),
            metadata: None,
            invite_facts: Some(Box::new(invite_facts::read(
                message,
                self.caller.request_uri.as_ref(),
                flow,
                facts,
                self.caller.proof,
                cx.now,
            ))),
            clock_offset: 0,
        })
    }

    /// Limit of the call's trunk; a member's session has none.
    fn trunk_claim(&self) -> Option<Claim> {
        let trunk = self.caller.org.routing.trunk.as_ref();
        trunk
            .filter(|_| self.caller.proof != Proof::Session)
            .map(|trunk| Claim {
                id: trunk.id,
                max: trunk.max_concurrent_calls,
            })
    }

    /// Claim of the caller's set-up to the called number. Callers that withhold their number aren't one caller.
    fn setup_claim(&self, limits: &Limits, decision: &Decision) -> Option<Claim> {
        let (caller, called) = (&decision.caller, &decision.dialled);
        if self.caller.facts.anonymous || caller.raw.is_empty() {
            return None;
        }
        let org = &self.caller.org.routing;
        let trunk = org.trunk.as_ref().map_or(org.id, |trunk| trunk.id);
        let caller = target::written(caller.e164.as_ref(), &caller.raw);
        let called = target::written(called.e164.as_ref(), &called.raw);
        limits.setup_claim(caller, called, trunk)
    }

    /// Records the start of an accepted call and makes its legs. The agent is called later, by `call::proving`.
    fn begin(self, cx: &mut Cx<'_>, chosen: Chosen) -> Option<Call> {
        let Chosen {
            decision,
            permit,
            new,
        } = chosen;
        let Outcome::Agent { id: agent, .. } = decision.outcome else {
            return None;
        };
        let server = self.accept(cx)?;

        let is_anonymous = self.caller.facts.anonymous;
        let number = decision.caller.e164.filter(|_| !is_anonymous);
        let Decision {
            dialled, caller, ..
        } = &decision;
        let called = target::written(dialled.e164.as_ref(), &dialled.raw).to_owned();
        let caller_number = match is_anonymous {
            true => ANONYMOUS_USER.to_owned(),
            false => target::written(caller.e164.as_ref(), &caller.raw).to_owned(),
        };
        let started = self.started(cx, Some(decision), Some(agent));
        cx.core.fact(Fact::Started(started));
        self.trace(cx);

        let CallerInvite {
            message,
            flow,
            org,
            verified,
            proof,
            owes_proof,
            ..
        } = self.caller;

        let contact = match number {
            Some(number) => {
                cx.core.effects.push_back(Effect::FindContact {
                    call: self.key,
                    org: org.routing.id,
                    number,
                });
                ContactState::Pending
            }
            None => ContactState::Known(None),
        };

        let runtime = org
            .runtimes
            .get(&agent)
            .unwrap_or(&cx.core.config.default_runtime)
            .clone();

        let identity = CallerIdentity::of(message, &cx.core.config.header_prefix);
        let mut caller = SipPeer::begun(flow);
        caller.abilities = Abilities::of(message);
        caller.is_sips = sips::wants_sips(message.request_uri(), &new.dialog);
        caller.credentials = verified.map(Box::new);
        caller.takes_calls = proof != Proof::Session;
        if keep_alive::sent_through_nat(&flow, message) {
            caller.keep_alive = Some(keep_alive::schedule(cx, self.key, LegId::FIRST));
        }

        let trunk = org.trunk.as_ref().filter(|_| proof != Proof::Session);
        let media = MediaRules::of_trunk(&org, trunk, agent, &cx.core.config);
        let krisp = trunk.is_some_and(|trunk| trunk.krisp_enabled);
        let of = NewChain {
            runtime,
            namer: org.namer(agent),
            called: &called,
            caller: &caller_number,
            krisp,
            media: media.clone(),
        };
        let (agent_peer, over_sip) = match First::of(of, agent, org.routing.id, &cx.core.config) {
            First::Echo => (Some(LocalAgent::Echo), None),
            First::Bot(chain) => (Some(LocalAgent::Bot(Box::new(Bot::new(chain)))), None),
            First::Sip(runtime, chain) => (None, Some((runtime, chain))),
        };

        let agent_peer = agent_peer.map_or(LegPeer::Unknown, |agent_peer| {
            LegPeer::Media(LocalMedia::of(self.call, agent_peer, media))
        });

        let ids = CallRef {
            call: self.call,
            session: self.session,
            org: org.routing.id,
            partner: org.partner,
            agent,
            slot: self.slot,
        };
        let to = InvitedCall::new(self.key, &ids, [&called, &caller_number], krisp);

        let namer = org.namer(agent);
        let dialing = over_sip.and_then(|(runtime, chain)| {
            let invite = runtime_invite::invite(&runtime, &namer, &cx.core.config, &to);
            invite.map(|(client, says)| Dialing::runtime(client, says).leading_to(chain))
        });
        let contact_timer = (contact == ContactState::Pending)
            .then(|| cx.schedule(self.key, CONTACT_PATIENCE, CallTimer::Contact));
        let incoming = UasInvite::new(server, message, new, contact, contact_timer);
        let (patience, _) = patience(message, cx.core.config.setup_timeout);
        let mut lifetime = Lifetime::default();
        lifetime.await_answer(cx, self.key, patience);
        let mut legs =
            Legs::beginning_with(LegPeer::Sip(caller), LegState::Incoming(Box::new(incoming)));
        let ready = LegState::Ready(Session::default());
        let state = dialing.map_or(ready, LegState::Dialing);

        legs.add(LegRole::Agent, agent_peer, state);
        Some(Call {
            bridge: Bridge::new(self.key, legs),
            ids,
            hops: RequestOrigin::of(message).hops(),
            outbound: None,
            joining: Joining::default(),
            permit: Some(permit),
            lifetime,
            contact: None,
            identity,
            transfer: LastTransfer::default(),
            hold: Hold::default(),
            proof: owes_proof.then(|| {
                let way = ProofWay::of(message);
                Box::new(DialogProof::new(way, flow, server))
            }),
        })
    }
}

/// Cuts a peer's text for the record.
fn cut(text: &mut Box<str>) {
    if text.len() > RECORDED {
        let end = (0..=RECORDED).rev().find(|end| text.is_char_boundary(*end));
        *text = text[..end.unwrap_or_default()].into();
    }
}

/// Returns whether the call requests a report on the trunk.
fn is_for_the_doctor(facts: &Facts) -> bool {
    let user = facts.request_user.as_deref();
    user.is_some_and(|user| user.eq_ignore_ascii_case(DOCTOR))
}

/// Checks a new INVITE as RFC 3261 §8.2.2, §16.3 and RFC 4028 §9 demand; returns its dialog and session.
pub(crate) fn acceptable(core: &Core, caller: &CallerInvite<'_, '_>) -> Result<NewDialog, Reason> {
    let message = caller.message;
    if message.number(HeaderName::MaxForwards) == Some(0) {
        return Err(Reason::TooManyHops);
    }

    let returned = core.minter.returned(message);
    if returned.is_loop || returned.ours > MOST_RETURNS {
        return Err(Reason::LoopDetected);
    }

    let scheme = caller.request_uri.map(|uri| uri.scheme);
    if scheme == Some(Scheme::Other) {
        return Err(Reason::BadScheme);
    }
    if lacking_options(message).is_some() {
        return Err(Reason::BadExtension);
    }
    if privacy::is_unmet(message.all(HeaderName::Privacy)) {
        return Err(Reason::PrivacyUnavailable);
    }

    // Without a usable Contact, From and Record-Route there is no dialog.
    let dialog = Dialog::uas(message, b"").ok_or(Reason::BadRequest)?;
    let session = SessionTimer::for_uas(message, MIN_SE, core.config.session_expires);
    match session {
        Ok(session) => Ok(NewDialog { dialog, session }),
        Err(Unacceptable::TooBrief { .. }) => Err(Reason::SessionTooBrief),
    }
}

fn at_limit(core: &Core, org: &OrgView, agent: Uuid) -> bool {
    agent_claim(org, agent)
        .max
        .is_some_and(|max| core.limits.live(agent) >= max)
}

fn org_claim(org: &OrgView) -> Claim {
    Claim {
        id: org.routing.id,
        max: org.routing.max_concurrent_calls,
    }
}

fn agent_claim(org: &OrgView, agent: Uuid) -> Claim {
    let max = org
        .routing
        .agents
        .iter()
        .find(|held| held.id == agent)
        .and_then(|held| held.max_concurrent_calls);
    Claim { id: agent, max }
}
