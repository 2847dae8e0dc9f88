//! Routes the inputs of a shard to their calls: messages and events of the endpoint, timers, results of effects.

use std::net::SocketAddr;
use std::sync::Arc;

use trunkline_model::view::{OrgView, Source, View};
use trunkline_sip::endpoint::{ClientTx, Endpoint, Event, Owner, Received};
use trunkline_sip::fault::Fault;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Framing, HeaderName, Message, Method, lex};
use uuid::Uuid;

use super::table::asked_by;
use super::{Calls, setup};
use crate::core::context::Cx;
use crate::core::effect::ProvenBy;
use crate::dial::calling;
use crate::dialog::successor;
use crate::features::transfer;
use crate::inbound::admission::{CallerInvite, InviteLane};
use crate::inbound::{admission, provisional, source_probe};
use crate::invite::attempts;
use crate::invite::invite_client::InviteEvent;
use crate::invite::late_answer::{refuse_late_answer, refuse_stray_answer};
use crate::limits::attempt_counter::AttemptCounter;
use crate::media::bot;
use crate::parts::ids::{CallKey, CallTimer, DialogPlace, key_of};
use crate::parts::refusal::{Reason, uri_refusal};
use crate::parts::target;
use crate::session;

impl Calls {
    /// Refuses a new INVITE that has waited too long.
    pub fn shed(&mut self, endpoint: &mut Endpoint, flow: Flow, invite: &Message<'_>) {
        admission::turn_away(&mut self.core, endpoint, flow, invite, Reason::Overload);
    }

    /// Returns the lane in which a new INVITE waits under overload.
    pub fn lane_of(
        &self,
        view: &View,
        flow: &Flow,
        invite: &Message<'_>,
        now: Moment,
    ) -> InviteLane {
        admission::lane_of(&self.core, view, flow, invite, now)
    }

    /// Answers the CANCEL of an INVITE that waits for the proof of its source, and the INVITE; false if none waits.
    pub fn cancel_waiting(
        &mut self,
        endpoint: &mut Endpoint,
        flow: Flow,
        cancel: &Message<'_>,
    ) -> bool {
        source_probe::cancel_waiting(&mut self.core, endpoint, flow, cancel)
    }

    /// Handles the endpoint's result for a message.
    pub fn handle(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        flow: Flow,
        received: Received<'_>,
        now: Moment,
    ) {
        self.core.sees(view);

        match received {
            Received::Handled => {}
            Received::Request(message) => self.request(endpoint, view, flow, &message, now),

            // An ACK is never answered. If this one is dropped, our 2xx is retransmitted until another one comes.
            Received::Ack(message) => {
                if let Some(found) = self.table.dialog_of(&self.core, &message)
                    && self.accepts_ack_source(view, found, &flow, &message, now)
                {
                    let (key, id) = (found.call, found.place.leg);
                    if self.table.has_proof(key) {
                        self.with_proof(key, endpoint, now, |proof, cx| {
                            proof.prove(cx, id, ProvenBy::Ack)
                        });
                    }
                    self.with(key, endpoint, now, |call, cx| {
                        call.on_ack(cx, id, &flow, &message);
                    });
                }
            }

            Received::Cancel {
                invite,
                owner,
                message,
            } => {
                // An INVITE with a final answer has no call, so its CANCEL has no effect (RFC 3261 §9.2).
                self.with_owner(owner, endpoint, now, |call, cx| {
                    call.on_cancel(cx, invite, &message)
                });
            }

            Received::ForeignResponse { owner, tx, message } => {
                self.unknown_source_response(endpoint, view, flow, (tx, owner), message, now);
            }

            // Probes of sources, keep-alives and what a proof asks are sent without a transaction, so their answers are strays.
            Received::StrayResponse(message) if message.method() == Method::Options => {
                match asked_by(&self.core, &message) {
                    Some(key) => {
                        self.with_proof(key, endpoint, now, |proof, cx| {
                            proof.on_question_answered(cx, &flow, &message)
                        });
                    }
                    None => self.source_answered(endpoint, view, flow, &message, now),
                }
            }

            // A late 2xx of a call that is up: it was acknowledged for as long as it may be retransmitted.
            Received::StrayResponse(message) if self.table.is_agreed(&self.core, &message) => {}
            Received::StrayResponse(message) => {
                let mut cx = Cx {
                    core: &mut self.core,
                    endpoint,
                    attempt_counter: &mut AttemptCounter::default(),
                    now,
                };
                refuse_stray_answer(&mut cx, flow, &message);
            }
            Received::Response { tx, owner, message } => {
                self.response(endpoint, flow, tx, owner, &message, now)
            }
        }
    }

    /// Handles an event of the endpoint.
    pub fn handle_event(&mut self, endpoint: &mut Endpoint, event: Event, now: Moment) {
        match event {
            Event::Timeout { owner, .. } | Event::TransportError { owner, .. }
                // The BYE after a late 2xx: it gives its place among `MAX_LATE_BYES` back.
                if key_of(owner).is_none() =>
            {
                self.core.late_byes = self.core.late_byes.saturating_sub(1);
            }

            Event::Timeout { tx, owner } => {
                self.with_owner(owner, endpoint, now, |call, cx| {
                    call.on_no_answer(cx, tx, attempts::NoAnswer::Silence)
                });
            }

            Event::TransportError { tx, owner, fault } => {
                self.with_owner(owner, endpoint, now, |call, cx| {
                    call.on_no_answer(cx, tx, attempts::NoAnswer::Broken(fault))
                });
            }

            Event::Unreadable {
                tx,
                owner,
                response,
            } => {
                self.with_owner(owner, endpoint, now, |call, _| {
                    if call.bridge.dials_by(tx)
                        && let Some(dialing) = call.bridge.dialing_mut()
                    {
                        dialing.client.note_unreadable(response);
                    }
                });
            }

            Event::NoAck { tx, owner } => {
                if let Some(key) = key_of(owner) {
                    self.with_proof(key, endpoint, now, |proof, cx| proof.on_no_ack(cx, tx));
                }
            }
        }
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, endpoint: &mut Endpoint, now: Moment) {
        self.challenge_silent_sources(endpoint, now);

        while let Some((key, timer)) = self.core.pop_timer(now) {
            if timer == CallTimer::Proof {
                self.with_proof(key, endpoint, now, |proof, cx| proof.on_timer(cx));
                continue;
            }
            self.with(key, endpoint, now, |call, cx| match timer {
                CallTimer::Deadline => call.on_deadline(cx),
                // The call goes on without a contact.
                CallTimer::Contact => call.on_contact(cx, None),
                CallTimer::Attempt => {
                    call.with_dialing(cx, |client, cx, text| client.handle_silence(cx, text))
                }
                CallTimer::Ringing => {
                    call.with_dialing(cx, |client, cx, _| InviteEvent::Failed(client.give_up(cx)));
                }
                CallTimer::Turn => call.bridge.requests.on_turn(),

                CallTimer::Reliable(fork) => {
                    if provisional::on_reliable_timer(&mut call.bridge, cx, fork) {
                        call.refuse(cx, Reason::NoAck);
                    }
                }

                CallTimer::Exchange => {
                    call.bridge.requests.on_exchange_late(cx);
                    successor::give_up_successor(&mut call.bridge, cx, 408);
                }

                CallTimer::Session(id) => {
                    let leg = call.bridge.at(id);
                    let lost = leg.and_then(|mut leg| session::on_session_timer(&mut leg, cx));
                    call.end_if_lost(cx, id, lost);
                }

                CallTimer::KeepAlive(id) => {
                    let slot = call.ids.slot;
                    if let Some(mut leg) = call.bridge.at(id) {
                        leg.on_keep_alive(cx, slot);
                    }
                }

                CallTimer::Transfer => call.on_transfer(cx, transfer::TransferEvent::TimedOut),
                CallTimer::Builtin => call.with_bot(cx, bot::on_builtin_timer),
                // Above.
                CallTimer::Proof => {}
            });
        }
    }

    /// Handles the result of [`Effect::Resolve`](crate::Effect::Resolve) and [`Effect::Connect`](crate::Effect::Connect).
    pub fn handle_resolved(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        found: attempts::Resolution,
        now: Moment,
    ) {
        self.with(key, endpoint, now, |call, cx| {
            call.with_dialing(cx, |client, cx, text| {
                client.handle_resolved(cx, text, found)
            });
            calling::on_callee_found(&call.bridge, cx);
        });
    }

    /// Handles the result of [`Effect::ResolveHop`](crate::Effect::ResolveHop).
    pub fn handle_hop(
        &mut self,
        endpoint: &mut Endpoint,
        wanted: &target::UnresolvedTarget,
        targets: Vec<target::Target>,
        now: Moment,
    ) {
        self.core.resolver_cache.learn(wanted, targets, now);
        let mut cx = Cx {
            core: &mut self.core,
            endpoint,
            attempt_counter: &mut AttemptCounter::default(),
            now,
        };
        cx.release_acks_to(wanted);
    }

    /// Handles a flow that could not be opened, or broke.
    pub fn handle_unreachable(
        &mut self,
        endpoint: &mut Endpoint,
        flow: &Flow,
        fault: &Fault,
        now: Moment,
    ) {
        let is_refused = match fault {
            Fault::Refused | Fault::NotOpened | Fault::Unreachable(_) => true,
            Fault::Closed | Fault::NotSecured(_) | Fault::TooMany => false,
        };
        // One that couldn't be opened has a number all the same.
        if is_refused && flow.transport.is_reliable() {
            let mut cx = Cx {
                core: &mut self.core,
                endpoint,
                attempt_counter: &mut AttemptCounter::default(),
                now,
            };
            cx.note_unreachable(flow.peer);
        }
    }

    /// Handles the result of [`Effect::FindContact`](crate::Effect::FindContact).
    pub fn handle_contact(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        contact: Option<Uuid>,
        now: Moment,
    ) {
        self.with(key, endpoint, now, |call, cx| call.on_contact(cx, contact));
    }

    /// Handles a peer that no longer answers OPTIONS outside of calls: it is probed in each of its calls soon (`session::suspect`).
    pub fn suspect(&mut self, transport: Transport, address: SocketAddr, now: Moment) {
        for call in self.table.iter_mut() {
            session::suspect(&mut call.bridge, &mut self.core, transport, address, now);
        }
    }

    /// Routes a request: to its call by the To-tag, or by its method if it has none.
    fn request(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        flow: Flow,
        message: &Message<'_>,
        now: Moment,
    ) {
        if message.to_tag().is_some() {
            // Nothing counts before the source is judged: tags cross the network in the clear and prove nothing.
            return match self.table.dialog_of(&self.core, message) {
                Some(found) if !self.accepts_source(endpoint, view, found, flow, message, now) => {}
                Some(found) => {
                    let (key, DialogPlace { leg, fork }) = (found.call, found.place);
                    let org = self.org_for(view, key, message);
                    let is_prack = message.method() == Method::Prack;
                    let by = if is_prack {
                        ProvenBy::Prack
                    } else {
                        ProvenBy::Request
                    };
                    self.with(key, endpoint, now, |call, cx| {
                        call.on_request(cx, leg, fork, flow, message, org);
                    });
                    // Afterwards, so that a PRACK has its answer before the agent is called.
                    if self.table.has_proof(key) {
                        self.with_proof(key, endpoint, now, |proof, cx| proof.prove(cx, leg, by));
                    }
                }
                None if self.answer_early(endpoint, flow, message, now) => {}
                // Dropped: when it is retransmitted, the answer that it has overtaken has arrived.
                None if !flow.transport.is_reliable()
                    && self.table.is_ahead(&self.core, message) => {}
                // RFC 3261 §12.2.2: a UAS that doesn't recreate the dialog "MUST respond to the request with a 481".
                None => self.core.stateless(endpoint, message, flow, 481, |_| {}),
            };
        }

        // Checked for an INVITE after admission, so that the refusal is recorded.
        if message.method() != Method::Invite
            && let Some(status) = uri_refusal(message)
        {
            return self.core.stateless(endpoint, message, flow, status, |_| {});
        }

        match message.method() {
            Method::Invite => self.invite(endpoint, view, flow, message, now),
            Method::Options => {
                if view.by_source(flow.peer.ip()) != Source::Unknown {
                    endpoint.expect_probes(&flow);
                }
                self.core.answer_options(endpoint, message, flow);
            }
            Method::Bye
            | Method::Prack
            | Method::Update
            | Method::Info
            | Method::Notify
            | Method::Cancel => {
                self.core.stateless(endpoint, message, flow, 481, |_| {});
            }

            // REFER is served inside a call only, so Allow doesn't name it here (RFC 3261 §8.2.1).
            Method::Register
            | Method::Subscribe
            | Method::Message
            | Method::Publish
            | Method::Refer => self.core.method_not_allowed(endpoint, message, flow, 405),
            Method::Other => self.core.method_not_allowed(endpoint, message, flow, 501),
            Method::Ack => {}
        }
    }

    /// Returns the org of a call if a request inside it may ask for a transfer.
    fn org_for<'v>(
        &self,
        view: &'v View,
        key: CallKey,
        message: &Message<'_>,
    ) -> Option<&'v OrgView> {
        // INFO may carry a key that hands the caller to a destination.
        if !matches!(message.method(), Method::Refer | Method::Info) {
            return None;
        }
        let call = self.table.get(key)?;
        view.org(call.ids.org).map(|org| &**org)
    }

    /// Admits a new INVITE. It begins a call, or replaces a leg of one (RFC 3891).
    fn invite(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        flow: Flow,
        message: &Message<'_>,
        now: Moment,
    ) {
        let replaces = message.first(HeaderName::Replaces).is_some();
        // Before admission: this deployment has sent it, with a token over its Replaces in place of a digest.
        if replaces && let Some(org) = transfer::asked_by_ourselves(&self.core.config, message) {
            return self.join_own(endpoint, flow, message, org, now);
        }

        let Some(admitted) = admission::admit(&mut self.core, endpoint, view, flow, message, now)
        else {
            return;
        };

        if replaces {
            return self.replace(endpoint, admitted, now);
        }

        self.set_up(endpoint, admitted, now);
    }

    /// Begins the call of an admitted INVITE.
    pub(super) fn set_up(
        &mut self,
        endpoint: &mut Endpoint,
        admitted: CallerInvite<'_, '_>,
        now: Moment,
    ) {
        let key = self.table.reserve();
        let mut cx = Cx {
            core: &mut self.core,
            endpoint,
            attempt_counter: &mut AttemptCounter::default(),
            now,
        };
        let Some(call) = setup::start(&mut cx, key, admitted) else {
            return;
        };

        self.table.insert(call);
        self.with_proof(key, endpoint, now, |proof, cx| proof.begin(cx));
    }

    /// Passes a response to its call. A 2xx for a call that is gone gets ACK and BYE.
    fn response(
        &mut self,
        endpoint: &mut Endpoint,
        flow: Flow,
        tx: ClientTx,
        owner: Owner,
        message: &Message<'_>,
        now: Moment,
    ) {
        let key = key_of(owner);
        // The BYE after a late 2xx has its answer.
        if key.is_none() && message.status() >= 200 {
            self.core.late_byes = self.core.late_byes.saturating_sub(1);
        }

        let known = key.is_some_and(|key| {
            self.with(key, endpoint, now, |call, cx| {
                call.on_response(cx, flow, tx, message)
            })
        });

        // RFC 3261 §13.2.2.4: "The UAC core MUST generate an ACK request for each 2xx", also once the call has ended.
        if !known && message.method() == Method::Invite && (200..300).contains(&message.status()) {
            let mut cx = Cx {
                core: &mut self.core,
                endpoint,
                attempt_counter: &mut AttemptCounter::default(),
                now,
            };
            refuse_late_answer(&mut cx, flow, tx, message);
        }
    }

    /// Continues the INVITEs of an allowed source that has answered its probe.
    fn source_answered(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        flow: Flow,
        answer: &Message<'_>,
        now: Moment,
    ) {
        let tag = answer.from_tag();
        // The From-tag is random: only a source that has received our OPTIONS can repeat it.
        let Some(tag) = tag.and_then(|tag| self.core.minter.read_tag(tag)) else {
            return;
        };
        let source = flow.peer.ip().to_canonical();
        for waiting in self.core.source_probes.answered(source, tag.bits, now) {
            if let Ok(invite) = lex(&waiting.octets, Framing::Datagram) {
                // Admitted from the start, by the directory of now and with its source proven.
                self.invite(endpoint, view, waiting.flow, &invite, now);
            }
        }
    }

    /// Challenges the INVITEs whose source didn't answer in time.
    fn challenge_silent_sources(&mut self, endpoint: &mut Endpoint, now: Moment) {
        while let Some(waiting) = self.core.source_probes.pop_late(now) {
            if let Ok(invite) = lex(&waiting.octets, Framing::Datagram) {
                admission::challenge_unproven(&mut self.core, endpoint, waiting.flow, &invite, now);
            }
        }
    }
}
