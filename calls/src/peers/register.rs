//! Our REGISTERs: sent, answered with credentials, refreshed in time, retried after failures, and removed at the end.

use std::collections::HashMap;
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Method;
use uuid::Uuid;

use super::carrier_registration::{
    CarrierRegistrar, CarrierRegistration, MovedTrunks, RegisterStep, RegisterVerdict,
    RegisteringTrunk, RegistrationGrant, TrunkAssignment, share,
};
use super::registrations::{
    RegisterOutcome, RegistrationChange, RegistrationChangeKind, RegistrationStatus, State,
};
use super::{PeerReply, Peers, PeersEffect, PendingRequest, SLOT};
use crate::parts::flow_choice;
use crate::parts::target::{DialTarget, Target};
use crate::trust::digest_answers::DigestAnswers;

/// Value of `User-Agent`.
const USER_AGENT: &str = concat!("Trunkline/", env!("CARGO_PKG_VERSION"));
/// Time per trunk over which first attempts are spread, so that a start with thousands causes no burst.
const SPREAD: Duration = Duration::from_millis(4);
/// Time within which we register again after a connection has closed.
const REOPEN: Duration = Duration::from_secs(2);

impl Peers {
    /// Sets the trunks to register. `None`: other nodes may have registered our trunks, so this node has none until trunks are set again.
    pub fn register_trunks(
        &mut self,
        endpoint: &mut Endpoint,
        assigned: Option<TrunkAssignment>,
        now: Moment,
    ) {
        if self.leaving {
            return;
        }

        let Some(TrunkAssignment { ours, moved }) = assigned else {
            return self.disown();
        };

        let mut listed: HashMap<Uuid, RegisteringTrunk> = ours
            .into_iter()
            .map(|registering| (registering.way.id, registering))
            .collect();
        let known: Vec<Uuid> = self.carriers.keys().copied().collect();
        for trunk in known {
            let Some(registration) = self.carriers.get_mut(&trunk) else {
                continue;
            };
            let next = listed.remove(&trunk);
            if let Some(end) = &mut registration.end {
                *end = next;
            } else if let (None, Some(hosts)) = (&next, moved.get(&trunk)) {
                self.leave_to(endpoint, trunk, hosts, now);
            } else if next.as_ref() != Some(&registration.registering) {
                match next {
                    Some(next) if next.is_as(&registration.registering) => {
                        registration.registering = next
                    }
                    next => self.leave_one(endpoint, trunk, next, now),
                }
            }
        }

        let spread = SPREAD * u32::try_from(listed.len()).unwrap_or(u32::MAX);
        for registering in listed.into_values() {
            self.begin(endpoint, registering, spread, now);
        }
    }

    /// Forgets granted and pending registrations without removing them: another node may have registered the same trunks meanwhile. Removals under
    /// way go on, but no registration follows them.
    fn disown(&mut self) {
        let mut ours = Vec::new();
        for (trunk, registration) in &mut self.carriers {
            match &mut registration.end {
                Some(next) => *next = None,
                None => ours.push(*trunk),
            }
        }
        for trunk in ours {
            self.forget(trunk);
        }
    }

    /// Forgets a registration without removing it. An answer that is still to come is ignored.
    fn forget(&mut self, trunk: Uuid) {
        let registration = self.carriers.remove(&trunk);
        if let Some(timer) = registration.and_then(|registration| registration.timer) {
            self.timers.cancel(timer);
        }
        self.registrations.forget(trunk);
    }

    /// Removes all registrations; none is made from now on. Those in `moved` are other nodes' by now.
    pub fn leave(&mut self, endpoint: &mut Endpoint, moved: &MovedTrunks, now: Moment) {
        self.leaving = true;
        let known: Vec<Uuid> = self.carriers.keys().copied().collect();
        for trunk in known {
            let is_ending = |registration: &CarrierRegistration| registration.end.is_some();
            let taker = moved.get(&trunk);
            match taker.filter(|_| !self.carriers.get(&trunk).is_some_and(is_ending)) {
                Some(hosts) => self.leave_to(endpoint, trunk, hosts, now),
                None => self.leave_one(endpoint, trunk, None, now),
            }
        }
    }

    /// Removes a registration that another node, with these hosts in its Contacts, has made anew.
    fn leave_to(&mut self, endpoint: &mut Endpoint, trunk: Uuid, hosts: &[String], now: Moment) {
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };
        registration.has_moved = true;
        match registration.has_contact_of(hosts) {
            // Removing our binding would remove that of the other node.
            true => self.forget(trunk),
            false => self.leave_one(endpoint, trunk, None, now),
        }
    }

    /// Takes the addresses of a trunk's registrar, which were looked up; empty if there are none. The resolver answers within seconds.
    pub fn handle_resolved(
        &mut self,
        endpoint: &mut Endpoint,
        trunk: Uuid,
        targets: Vec<Target>,
        now: Moment,
    ) {
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };
        if registration.step == RegisterStep::Resolving {
            registration.step = RegisterStep::Nothing;
            registration.targets = targets.into();
            self.next_target(endpoint, trunk, None, now);
        }
    }

    /// Handles a closed connection by which a carrier would call us: registers again over another one.
    pub fn handle_flow_lost(&mut self, endpoint: &mut Endpoint, lost: &Flow, now: Moment) {
        if !lost.transport.is_reliable() || self.carriers.is_empty() {
            return;
        }

        let by_it = |registration: &CarrierRegistration| {
            let flow = registration.current.as_ref().map(|current| current.flow);
            // The flow was chosen before its connection existed, so only transport and address can be compared.
            flow.is_some_and(|flow| flow.transport == lost.transport && flow.peer == lost.peer)
                && registration.granted.is_some()
                && registration.end.is_none()
        };

        let lost: Vec<Uuid> = self
            .carriers
            .iter()
            .filter(|(_, registration)| by_it(registration))
            .map(|(trunk, _)| *trunk)
            .collect();
        for trunk in lost {
            let soon = now + share(REOPEN, endpoint.chance().bits64());
            if let Some(registration) = self.carriers.get_mut(&trunk) {
                registration.next_at = registration.next_at.map(|next| next.min(soon));
            }
            self.wait(trunk);
        }
    }

    fn begin(
        &mut self,
        endpoint: &mut Endpoint,
        registering: RegisteringTrunk,
        spread: Duration,
        now: Moment,
    ) {
        let trunk = registering.way.id;
        let minter = endpoint.minter().clone();
        let call_id = minter.call_id(SLOT, endpoint.entropy());
        let tag = minter.tag(SLOT, endpoint.entropy());
        let mut registration =
            CarrierRegistration::new(registering, call_id, tag, self.config.expires);
        registration.next_at = Some(now + share(spread, endpoint.chance().bits64()));
        self.carriers.insert(trunk, registration);
        self.registrations
            .set(trunk, RegistrationStatus::bare(State::Registering));
        self.wait(trunk);
    }

    /// Sets the trunk's timer to its next step.
    fn wait(&mut self, trunk: Uuid) {
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };
        if let Some(timer) = registration.timer.take() {
            self.timers.cancel(timer);
        }
        let due = registration.due_at().filter(|_| registration.end.is_none());
        registration.timer = due.map(|at| self.timers.schedule(at, trunk));
    }

    /// Handles a trunk's timer.
    pub(super) fn due(&mut self, endpoint: &mut Endpoint, trunk: Uuid, now: Moment) {
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };

        registration.timer = None;
        let granted = registration.granted.as_ref();
        if granted.is_some_and(|granted| granted.until <= now) {
            registration.granted = None;
            if registration.failures == 0 {
                // The refresh is still without an answer.
                registration.failures = 1;
                registration.sip_code = None;
            }
            self.changed(trunk, RegistrationChangeKind::Expired);
        }

        let Some(registration) = self.carriers.get(&trunk) else {
            return;
        };
        self.registrations.set(trunk, registration.status());

        let asks = registration.next_at.is_some_and(|next| next <= now);
        if asks && registration.step == RegisterStep::Nothing {
            self.attempt(endpoint, trunk, now);
        }

        self.wait(trunk);
    }

    /// Starts an attempt with the lookup of the registrar.
    fn attempt(&mut self, endpoint: &mut Endpoint, trunk: Uuid, now: Moment) {
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };
        registration.targets.clear();
        match registration.dial_target() {
            Some(DialTarget::Resolved(target)) => registration.targets.push_back(target),
            Some(DialTarget::Unresolved(registrar)) => {
                registration.step = RegisterStep::Resolving;
                let org = registration.registering.org;
                return self.effects.push(PeersEffect::Resolve {
                    trunk,
                    org,
                    registrar,
                });
            }
            None => {}
        }
        self.next_target(endpoint, trunk, None, now);
    }

    /// Tries the next address; if none is left, the attempt has failed with the last address's code.
    fn next_target(
        &mut self,
        endpoint: &mut Endpoint,
        trunk: Uuid,
        last: Option<u16>,
        now: Moment,
    ) {
        while let Some(registration) = self.carriers.get_mut(&trunk) {
            let Some(target) = registration.targets.pop_front() else {
                return self.failed(endpoint, trunk, last, None, now);
            };

            registration.requests = 0;
            registration.digest_answers = DigestAnswers::default();
            let Some(flow) = self.way_to(&target) else {
                continue;
            };

            let contact = flow_choice::contact_uri(endpoint, &flow);
            if let Some(registration) = self.carriers.get_mut(&trunk) {
                registration.current = Some(CarrierRegistrar {
                    target,
                    flow,
                    contact,
                });
            }

            if self.register(endpoint, trunk, now) {
                return;
            }
        }
    }

    /// Sends a REGISTER to the current address; false if there is no room.
    fn register(&mut self, endpoint: &mut Endpoint, trunk: Uuid, now: Moment) -> bool {
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return false;
        };
        let current = registration.current.clone();
        let address = registration.address_of_record();
        let (Some(registrar), Some(address)) = (current, address) else {
            return false;
        };

        registration.cseq += 1;
        registration.requests += 1;

        let leaving = registration.end.is_some();
        let expires = if leaving { 0 } else { registration.expires };

        let (cseq, tag, call_id) = (registration.cseq, registration.tag, registration.call_id);
        let digest_answers = registration.digest_answers.clone();
        let CarrierRegistrar {
            target,
            flow,
            contact,
        } = registrar;

        let request = (flow, Method::Register, &*target.uri);
        let sent = self.send(
            endpoint,
            request,
            PendingRequest::Register(trunk),
            |head| {
                head.number("Max-Forwards", 70);
                head.fmt("From", format_args!("<{address}>;tag={}", tag.as_str()));
                head.fmt("To", format_args!("<{address}>"));
                head.line("Call-ID", call_id.as_bytes());
                head.cseq(cseq, "REGISTER");
                head.fmt("Contact", format_args!("<{contact}>"));
                head.number("Expires", expires.into());
                digest_answers.lines(head);
                head.line("User-Agent", USER_AGENT.as_bytes());
            },
            now,
        );
        if let (Some(number), Some(registration)) = (sent, self.carriers.get_mut(&trunk)) {
            registration.step = RegisterStep::Asking { number, leaving };
        }

        sent.is_some()
    }

    /// Handles the result of a REGISTER.
    pub(super) fn register_replied(
        &mut self,
        endpoint: &mut Endpoint,
        trunk: Uuid,
        number: u32,
        reply: PeerReply<'_>,
        now: Moment,
    ) {
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };
        let RegisterStep::Asking {
            number: waiting,
            leaving,
        } = registration.step
        else {
            return;
        };

        if waiting != number {
            return;
        }

        registration.step = RegisterStep::Nothing;
        let asked = if leaving { 0 } else { registration.expires };

        let listeners = self.config.listeners.iter();
        let transports: SmallVec<[Transport; 4]> =
            listeners.map(|(transport, _)| *transport).collect();
        let verdict = registration.judge(reply, asked, &transports);
        if matches!(verdict, RegisterVerdict::Challenged(_))
            && self.answers(endpoint, trunk, reply, now)
        {
            if !self.register(endpoint, trunk, now) {
                let verdict = RegisterVerdict::TryNext(None);
                self.settle(endpoint, trunk, leaving, verdict, now);
            }
            return;
        }

        self.settle(endpoint, trunk, leaving, verdict, now);
    }

    /// Handles the final result of a REGISTER that removes (`leaving`) or renews.
    fn settle(
        &mut self,
        endpoint: &mut Endpoint,
        trunk: Uuid,
        leaving: bool,
        verdict: RegisterVerdict,
        now: Moment,
    ) {
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };

        if leaving {
            return self.finish(endpoint, trunk, now);
        }
        if registration.end.is_some() {
            // It was removed while its answer was under way.
            let is_registered =
                matches!(verdict, RegisterVerdict::Granted(_)) || registration.granted.is_some();
            return if is_registered {
                self.take_back(endpoint, trunk, now)
            } else {
                self.finish(endpoint, trunk, now)
            };
        }

        match verdict {
            RegisterVerdict::Granted(grant) => self.granted(endpoint, trunk, grant, now),
            RegisterVerdict::TooBrief(seconds) if registration.may_ask_again() => {
                registration.expires = seconds;
                // The nonce has been used: a new challenge follows.
                registration.digest_answers = DigestAnswers::default();
                if !self.register(endpoint, trunk, now) {
                    self.failed(endpoint, trunk, Some(423), None, now);
                }
            }
            RegisterVerdict::TooBrief(_) => self.failed(endpoint, trunk, Some(423), None, now),
            RegisterVerdict::TryNext(code) => self.next_target(endpoint, trunk, code, now),
            RegisterVerdict::Challenged(code) => {
                self.failed(endpoint, trunk, Some(code), None, now)
            }
            RegisterVerdict::Refused(code, retry) => {
                self.failed(endpoint, trunk, Some(code), retry, now);
            }
        }
    }

    fn granted(
        &mut self,
        endpoint: &mut Endpoint,
        trunk: Uuid,
        grant: RegistrationGrant,
        now: Moment,
    ) {
        let random = endpoint.chance().bits64();
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };

        let is_new = registration.granted.is_none();
        registration.grant(grant, random, now);
        self.registrations.set(trunk, registration.status());
        self.effects
            .push(PeersEffect::RegisterFinished(RegisterOutcome::Accepted));
        if let (true, Some(current), Some(granted)) =
            (is_new, &registration.current, &registration.granted)
        {
            let what = RegistrationChangeKind::Registered {
                contact: current.contact.clone(),
                registrar: current.flow.peer,
                transport: current.flow.transport,
                registered_at: granted.since,
                expires_at: granted.until,
            };
            self.changed(trunk, what);
        }

        self.wait(trunk);
    }

    fn failed(
        &mut self,
        endpoint: &mut Endpoint,
        trunk: Uuid,
        sip_code: Option<u16>,
        retry_after: Option<Duration>,
        now: Moment,
    ) {
        let random = endpoint.chance().bits64();
        let retry = self.config.retry;
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };

        registration.fail(sip_code, retry_after, retry, random, now);
        self.registrations.set(trunk, registration.status());

        let org = registration.registering.org;
        if registration.failures == 1 {
            tracing::warn!(org.id = %org, trunk.id = %trunk, sip_code, "a carrier doesn't register us; we go on asking");
        }

        let tried = match sip_code {
            Some(_) => RegisterOutcome::Refused,
            None => RegisterOutcome::Unanswered,
        };
        self.effects.push(PeersEffect::RegisterFinished(tried));
        self.wait(trunk);
    }

    fn changed(&mut self, trunk: Uuid, what: RegistrationChangeKind) {
        if let Some(registration) = self.carriers.get(&trunk) {
            let org = registration.registering.org;
            let change = RegistrationChange { org, trunk, what };
            self.effects.push(PeersEffect::Changed(change));
        }
    }

    /// Removes one registration; then `next` replaces it.
    fn leave_one(
        &mut self,
        endpoint: &mut Endpoint,
        trunk: Uuid,
        next: Option<RegisteringTrunk>,
        now: Moment,
    ) {
        let Some(registration) = self.carriers.get_mut(&trunk) else {
            return;
        };

        let was_leaving = registration.end.replace(next).is_some();
        if let Some(timer) = registration.timer.take() {
            self.timers.cancel(timer);
        }

        match registration.step {
            // Its answer will show whether there is a registration to remove.
            RegisterStep::Asking { .. } => {}
            RegisterStep::Nothing | RegisterStep::Resolving if was_leaving => {}
            RegisterStep::Nothing | RegisterStep::Resolving if registration.granted.is_some() => {
                self.take_back(endpoint, trunk, now);
            }
            RegisterStep::Nothing | RegisterStep::Resolving => self.finish(endpoint, trunk, now),
        }
    }

    fn take_back(&mut self, endpoint: &mut Endpoint, trunk: Uuid, now: Moment) {
        if let Some(registration) = self.carriers.get_mut(&trunk) {
            registration.requests = 0;
            registration.digest_answers = DigestAnswers::default();
        }
        if !self.register(endpoint, trunk, now) {
            self.finish(endpoint, trunk, now);
        }
    }

    /// Finishes a removal, whatever the carrier answered.
    fn finish(&mut self, endpoint: &mut Endpoint, trunk: Uuid, now: Moment) {
        let registration = self.carriers.get(&trunk);
        let is_lost = registration
            .is_some_and(|registration| registration.granted.is_some() && !registration.has_moved);
        if is_lost {
            self.changed(trunk, RegistrationChangeKind::Removed);
        }
        self.registrations.forget(trunk);
        let ended = self.carriers.remove(&trunk);
        if let Some(next) = ended.and_then(|registration| registration.end.flatten())
            && !self.leaving
        {
            self.begin(endpoint, next, Duration::ZERO, now);
        }
    }
}
