//! The attempts at the runtime: the contact is looked up while the runtime's host is resolved; then the
//! targets are tried in their order, the next one only after a transport failure, 408, 500, 502, 503, 504, what the agent's runtime lists
//! besides, or four seconds without more than a 100: that is the next hop's word and proves nobody behind it.

use std::sync::Arc;
use std::time::Duration;

use trunkline_model::address::Refusal;
use trunkline_model::attempt::AttemptLeg;
use trunkline_model::peer_pattern::PeerPattern;
use trunkline_model::record::Fact;
use trunkline_sip::endpoint::Request;
use trunkline_sip::flow::Flow;
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::wire::Method;
use trunkline_sip::wire::print::Head;
use uuid::Uuid;

use super::attempts::{Came, Found, Tried, Whose};
use super::call::{Call, ContactState, Phase, Setup, Side, Speaker};
use super::context::{CallTimer, Config, Cx, TagOwner};
use super::crossing;
use super::dial::Dial;
use super::effect::Effect;
use super::large::{self, Datagram, InviteSent, STREAM_PATIENCE};
use super::provisional_relay::{ProvisionalRelay, Reliability};
use super::refusal::Reason;
use super::request_origin::RequestOrigin;
use super::runtime_digest::RuntimeDigest;
use super::secure::is_sips;
use super::target::{self, Place, Target, Unresolved};

/// How long a target may be silent while another waits.
pub(super) const ATTEMPT_PATIENCE: Duration = Duration::from_secs(4);

impl Call {
    /// Goes on with the set-up as far as it can now.
    pub(crate) fn advance(&mut self, cx: &mut Cx<'_>) {
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        let waits = setup.client.is_some()
            || setup.resolving.is_some()
            || setup.contact == ContactState::Pending;
        if waits || matches!(self.speaker, Speaker::Echo(_)) {
            return;
        }
        if setup.targets.is_empty() {
            match setup.names.pop_front() {
                Some(Place::Known(target)) => setup.targets.push_back(target),
                Some(place) if place.is_reserved(&cx.core.config.addresses) => {
                    let came = Came::NotAllowed(Refusal::Reserved);
                    let whose = self.runtime_attempt();
                    self.attempts.failed(cx, whose, (&place).into(), &came);
                    return self.advance(cx);
                }
                Some(Place::Name(wanted)) => return self.look_up(cx, wanted),
                None if self.attempts.are_forbidden() => {
                    return self.refuse(cx, Reason::PeerNotAllowed);
                }
                None => return self.refuse(cx, Reason::RuntimeUnreachable),
            }
        }
        self.attempt(cx);
    }

    fn look_up(&mut self, cx: &mut Cx<'_>, wanted: Unresolved) {
        self.attempts.begin(cx);
        if let Some(setup) = self.setup.as_deref_mut() {
            setup.resolving = Some(wanted.uri.clone());
        }
        let (call, org) = (self.key, self.org);
        let resolve = Effect::Resolve { call, org, wanted };
        cx.core.effects.push_back(resolve);
    }

    /// The resolver has answered.
    pub(crate) fn on_resolved(&mut self, cx: &mut Cx<'_>, found: Found) {
        if self.dial.as_deref().is_some_and(Dial::is_resolving) {
            self.with_dial(cx, |dial, cx| dial.on_resolved(cx, found));
            return self.on_callee_found(cx);
        }
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        let Some(uri) = setup.resolving.take() else {
            return;
        };
        match found {
            Ok(targets) => {
                if let Speaker::Runtime(leg) = &mut self.speaker {
                    for target in &targets {
                        leg.places.learn(target.address.ip());
                    }
                }
                // Others may wait, where a connection to the first was tried.
                for target in targets.into_iter().rev() {
                    setup.targets.push_front(target);
                }
            }
            Err(fault) => {
                let (whose, came) = (self.runtime_attempt(), Came::Unresolved(fault));
                self.attempts.failed(cx, whose, Tried::named(&uri), &came);
            }
        }
        self.advance(cx);
    }

    pub(super) const fn runtime_attempt(&self) -> Whose {
        Whose {
            call: self.id,
            org: self.org,
            leg: AttemptLeg::Runtime,
        }
    }

    /// Something has come of the attempt at the runtime that is under way.
    pub(super) fn note_attempt(&mut self, cx: &mut Cx<'_>, came: &Came) {
        let whose = self.runtime_attempt();
        let setup = self.setup.as_deref();
        if let Some(target) = setup.and_then(|setup| setup.current.as_ref()) {
            self.attempts.failed(cx, whose, target.into(), came);
        }
    }

    /// The call ends before the runtime has answered.
    pub(super) fn note_canceled(&mut self, cx: &mut Cx<'_>) {
        let whose = self.runtime_attempt();
        let setup = self.setup.as_deref();
        if let Some(target) = setup.and_then(|setup| setup.current.as_ref()) {
            self.attempts.canceled(cx, whose, target);
        }
    }

    /// The contact is known, or its look-up took too long.
    pub(crate) fn on_contact(&mut self, cx: &mut Cx<'_>, contact: Option<Uuid>) {
        if self.note_callee(cx, contact) {
            return;
        }
        let Some(setup) = self
            .setup
            .as_deref_mut()
            .filter(|setup| setup.contact == ContactState::Pending)
        else {
            // The call was answered first.
            return self.note_contact(cx, contact);
        };
        setup.contact = ContactState::Known(contact);
        let mut timer = setup.contact_timer.take();
        cx.cancel_timer(&mut timer);
        self.note_contact(cx, contact);
        self.advance(cx);
    }

    fn note_contact(&mut self, cx: &mut Cx<'_>, contact: Option<Uuid>) {
        let (Some(contact), None) = (contact, self.contact) else {
            return;
        };
        if self.phase == Phase::Over {
            return;
        }
        self.contact = Some(contact);
        cx.core.fact(Fact::Contact {
            call: self.id,
            org: self.org,
            contact,
        });
    }

    /// Sends the INVITE to the next target.
    fn attempt(&mut self, cx: &mut Cx<'_>) {
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        let Some(target) = setup.targets.pop_front() else {
            return;
        };
        let flow = match cx.flow_to(&target) {
            Ok(flow) => flow,
            Err(came) => {
                let whose = self.runtime_attempt();
                self.attempts.failed(cx, whose, (&target).into(), &came);
                return self.advance(cx);
            }
        };
        self.attempts.begin(cx);
        setup.datagram.begin(&target);
        let tag = cx.mint_tag(
            self.slot,
            TagOwner {
                key: self.key,
                side: Side::Agent,
                fork: 0,
            },
        );
        self.tags.push(tag.bits());
        setup.local_tag = tag.as_bytes().into();
        if let Some(digest) = &mut setup.digest {
            let call_id = cx.core.minter.call_id(self.slot, cx.endpoint.entropy());
            digest.begin(call_id, [&target].into_iter().chain(&setup.targets));
        }
        self.runtime_cseq = 1;
        if let Speaker::Runtime(leg) = &mut self.speaker {
            leg.flow = flow;
            leg.places.begin(&flow);
            leg.is_sips = is_sips(target.uri.as_bytes());
        }
        let sent = self.send_invite(cx, flow, &target);
        let more = self.more_targets();
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        match sent {
            InviteSent::Invite(client) => setup.client = Some(client),
            InviteSent::Connecting => {
                setup.datagram = Datagram::of(&target, flow);
                setup.resolving = Some(target.uri);
                return;
            }
            InviteSent::Nothing => {
                setup.current = Some(target);
                self.note_attempt(cx, &Came::Overloaded);
                return self.advance(cx);
            }
        }
        setup.current = Some(target);
        let patience = match setup.datagram.is_in_reserve() {
            true => Some(STREAM_PATIENCE),
            false => more.then_some(ATTEMPT_PATIENCE),
        };
        setup.attempt_timer =
            patience.map(|patience| cx.schedule(self.key, patience, CallTimer::Attempt));
    }

    pub(crate) fn more_targets(&self) -> bool {
        self.setup
            .as_deref()
            .is_some_and(|setup| !setup.targets.is_empty() || !setup.names.is_empty())
    }

    pub(super) fn send_invite(&self, cx: &mut Cx<'_>, flow: Flow, target: &Target) -> InviteSent {
        let Some(setup) = self.setup.as_deref() else {
            return InviteSent::Nothing;
        };
        let invite = setup.invite();
        let config = Arc::clone(&cx.core.config);
        let digest = setup.digest.as_deref();
        let call_id = digest.and_then(RuntimeDigest::call_id);
        let call_id =
            call_id.unwrap_or_else(|| cx.core.minter.call_id(self.slot, cx.endpoint.entropy()));
        let contact = cx.contact(&flow, is_sips(target.uri.as_bytes()));
        let trusts = setup.wants_token || is_trusted(&config, target);
        let write = |head: &mut Head<'_>| {
            head.number("Max-Forwards", u64::from(RequestOrigin::of(invite).hops()));
            let from = self.identity.shown(without_tag(invite.from()));
            head.line("From", &[&from, &b";tag="[..], &setup.local_tag].concat());
            head.line("To", &without_tag(invite.to()));
            head.line("Call-ID", call_id.as_bytes());
            head.fmt("CSeq", format_args!("{} INVITE", self.runtime_cseq));
            Self::own_invite_lines(head, &contact, self.caller.abilities.reliable);
            let interval = setup.min_se.map_or(config.session_expires, |min| {
                min.max(config.session_expires)
            });
            head.number("Session-Expires", u64::from(interval));
            head.number("Min-SE", u64::from(setup.min_se.unwrap_or(config.min_se)));
            self.context_lines(head, setup, &config.header_prefix, trusts);
            if let Some(digest) = digest {
                digest.lines(head);
            }
            for (name, value) in &setup.headers {
                head.line(name, value.as_bytes());
            }
            let crossing =
                self.crossing(Side::Caller, crossing::Place::Invite, &config.header_prefix);
            crossing.copy_but(head, invite, invite.body(), &setup.headers);
        };
        cx.with_head(write, |cx, head| {
            let request = Request {
                method: Method::Invite,
                token: "INVITE",
                uri: target.uri.as_bytes(),
                head,
                body: invite.body(),
            };
            large::send_invite(cx, self.key, (target, flow), &request)
        })
    }

    /// 100rel is offered to the runtime only if the caller has it.
    fn own_invite_lines(head: &mut Head<'_>, contact: &str, caller: Reliability) {
        head.line("Contact", contact.as_bytes());
        head.line("Allow", super::allow::RUNTIME);
        let supported: &[u8] = match caller {
            Reliability::Supported | Reliability::Required => b"timer, 100rel",
            Reliability::Unknown => b"timer",
        };
        head.line("Supported", supported);
    }

    fn context_lines(&self, head: &mut Head<'_>, setup: &Setup, prefix: &str, trusts: bool) {
        let mut line = |name: &str, value: std::fmt::Arguments<'_>| {
            head.fmt(&[prefix, "-", name].concat(), value);
        };
        line("SESSION-ID", format_args!("{}", self.session));
        line("AGENT-ID", format_args!("{}", self.agent));
        if let ContactState::Known(Some(contact)) = setup.contact {
            line("CONTACT-ID", format_args!("{contact}"));
        }
        if trusts {
            line("SESSION-TOKEN", format_args!("{}", setup.session_token));
        }
        if setup.krisp {
            line("KRISP-ENABLED", format_args!("true"));
        }
    }

    /// The target has said nothing while another waits, or another way to it.
    pub(crate) fn on_attempt_silent(&mut self, cx: &mut Cx<'_>) {
        if self.dial.is_some() {
            return self.with_dial(cx, |dial, cx| dial.on_silent(cx));
        }
        let more = self.more_targets();
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        setup.attempt_timer = None;
        if matches!(setup.datagram, Datagram::Unneeded) {
            setup.datagram = Datagram::Excluded;
            let rest = ATTEMPT_PATIENCE - STREAM_PATIENCE;
            setup.attempt_timer = more.then(|| cx.schedule(self.key, rest, CallTimer::Attempt));
            return;
        }
        if let Some(target) = setup.datagram.take(cx) {
            setup.targets.push_front(target);
        }
        if let Some(client) = setup.client.take() {
            cx.endpoint.cancel(client, b"", cx.now);
            self.note_attempt(cx, &Came::Silence);
        }
        self.advance(cx);
    }

    /// The transaction of the attempt has ended without a usable answer.
    pub(crate) fn attempt_failed(&mut self, cx: &mut Cx<'_>) {
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        setup.client = None;
        if let Some(target) = setup.datagram.take(cx) {
            setup.targets.push_front(target);
        }
        setup
            .relay
            .iter_mut()
            .for_each(ProvisionalRelay::drop_queued);
        let mut timer = setup.attempt_timer.take();
        cx.cancel_timer(&mut timer);
        // Its early dialogs are over with it (RFC 3261 §12.3); those towards the caller stay until the call has its answer.
        if let Speaker::Runtime(leg) = &mut self.speaker {
            leg.dialogs.clear();
        }
        self.advance(cx);
    }
}

/// Whether a runtime is one of those that the operator trusts with the session's context.
fn is_trusted(config: &Config, target: &Target) -> bool {
    let is_listed = |host: &str| {
        let mut trusted = config.trusted_runtimes.iter();
        trusted.any(|trusted| trusted.matches(host, target.address.ip()))
    };
    // Most are listed by address: then the URI need not be read.
    let mut patterns = config.trusted_runtimes.iter();
    is_listed("")
        || patterns.any(|pattern| matches!(pattern, PeerPattern::Host(_)))
            && target::host_of(target.uri.as_bytes()).is_some_and(|host| is_listed(&host))
}

/// A From or To value without its parameters: what is left is display name and URI in angle brackets.
fn without_tag(value: &[u8]) -> Vec<u8> {
    let Ok(address) = NameAddr::parse(value) else {
        return b"<sip:unknown@invalid>".to_vec();
    };
    let mut out = Vec::with_capacity(value.len() + 2);
    if let Some(display) = address.display {
        out.extend_from_slice(display);
        out.push(b' ');
    }
    out.push(b'<');
    out.extend_from_slice(address.uri);
    out.push(b'>');
    out
}
