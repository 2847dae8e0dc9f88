//! Cold transfer: the PBX is asked by REFER on the caller's dialog to take the caller to one of the agent's destinations
//! (RFC 3515), and what its NOTIFYs say becomes the outcome.
//!
//! One transfer at a time. Until its outcome is known the caller stays connected to the agent; a failure changes nothing
//! about that. The outcome is what was said, not a guess: a PBX that hangs up first or says nothing leaves it `unknown`; where it
//! says 200 before anybody can have answered, that is told. A PBX that refuses REFER leaves it to us to call the destination (`bridge`), and
//! a trunk may want that in the first place (`plan`).

mod bridge;
mod digit;
mod failed;
mod notify;
mod outcome;
mod own;
mod plan;
mod refer;
mod runtime;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_model::destinations::Destination;
use trunkline_model::handoff::Report;
use trunkline_model::record::{Ended, Fact};
use trunkline_model::transfer::{self as record, State, Way};
use trunkline_model::view::{OrgView, View};
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::{Message, Method};
use uuid::Uuid;

use super::Calls;
use super::call::{Call, CallStatus};
use super::context::Cx;
use super::ids::CallKey;
use super::ids::CallTimer;
use super::limits::Permit;
use super::proofs::Proofs;
use super::refusal::Reason;
use plan::Plan;
pub use plan::{WayReason, way_in_force};

/// Request for a transfer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransferRequest {
    /// The destination.
    pub chosen: Chosen,
    /// Report that the agent gives with it.
    pub report: Report,
}

/// Reference to a destination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chosen {
    /// By its name, ignoring case.
    Name(Box<str>),
    /// By its id.
    Id(Uuid),
}

/// Requester of a transfer, which is told the outcome.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Asker {
    /// Nobody but whoever reads the record.
    Api,
    /// The runtime, in the dialog of this number, under this subscription.
    Runtime { fork: u8, id: Option<u32> },
}

/// Why there is no transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unable {
    /// The call is over, or was never here.
    #[error("the call is not up")]
    NotUp,
    /// Nobody has answered it yet.
    #[error("the call has not been answered yet")]
    NotAnswered,
    /// Another transfer has no outcome yet.
    #[error("another transfer of the call is under way")]
    UnderWay,
    /// The agent has no such destination.
    #[error("no such destination is assigned to the call's agent")]
    NotAssigned,
    /// The operator allows no calls to its number.
    #[error("calls to this number are not allowed here (phone.outbound_prefixes)")]
    NotAllowed,
}

/// Event that a transfer waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Wait {
    /// The caller's ACK, before which nothing else may be asked.
    Ack,
    /// The answer to the REFER.
    Answer,
    /// The moment to send it again.
    Again,
    /// A NOTIFY.
    Notify,
    /// The answer to a probe, after the PBX said that the destination can't be reached through it.
    Probe,
    /// The BYE of a PBX that said 2xx.
    Bye,
    /// A sign that the PBX, which may have lost the caller, still has it.
    Caller,
    /// The destination, whom we are calling.
    Destination,
    /// The caller to leave, for the outcome is unknown.
    Leaving,
    /// The caller has left; a NOTIFY or the answer to the REFER may still come.
    Parting,
    /// Nothing.
    Nothing,
}

/// A transfer of a call, under way or settled.
#[derive(Debug)]
pub(crate) struct Transfer {
    record: record::Transfer,
    asker: Asker,
    /// REFERs of the runtime so far.
    referred: u8,
    wait: Wait,
    timer: Option<TimerId>,
    /// The value of Refer-To.
    refer_to: Box<str>,
    /// Which ways it may take.
    plan: Plan,
    /// The trunk of the PBX that is asked.
    trunk: Option<record::Trunk>,
    /// The SDP that a destination was offered which is being called.
    offered: Box<[u8]>,
    /// Limits that the leg of a destination is counted against, from when it is called to the end of the call.
    permit: Option<Permit>,
    /// Status that the PBX reported last for the destination.
    heard: u16,
    /// Status of the bridge after which the PBX is asked by REFER.
    bridge_failure: Option<u16>,
    /// REFERs sent.
    sent: u8,
    /// CSeq of the last one: the id of its subscription.
    cseq: u32,
    /// Answers to its challenges.
    proofs: Proofs,
    /// It has failed after the PBX had accepted the REFER.
    has_failed_after_refer: bool,
    /// The agent has hung up; the caller waits for the outcome alone.
    agent_gone: bool,
    /// The end of the call, kept back until the outcome is known.
    ended: Option<Box<Ended>>,
}

impl Transfer {
    const fn is_open(&self) -> bool {
        self.record.state.is_open()
    }
}

impl Calls {
    /// Transfers the call of this id.
    ///
    /// # Errors
    /// Nothing was done.
    pub fn transfer(
        &mut self,
        endpoint: &mut Endpoint,
        view: &View,
        id: Uuid,
        ask: TransferRequest,
        now: Moment,
    ) -> Result<record::Transfer, Unable> {
        let (key, org) = self.place_of_call(id).ok_or(Unable::NotUp)?;
        let org = view.org(org).ok_or(Unable::NotUp)?;
        let mut outcome = Err(Unable::NotUp);
        self.with(key, endpoint, now, |call, cx| {
            outcome = call.transfer(cx, org, ask);
        });
        outcome
    }

    /// The org of a call, where a request inside it may ask for a transfer.
    pub(super) fn org_for<'v>(
        &self,
        view: &'v View,
        key: CallKey,
        message: &Message<'_>,
    ) -> Option<&'v OrgView> {
        if !matches!(message.method(), Method::Refer | Method::Info) {
            return None;
        }
        let slot = self.slab.get(key.index as usize)?;
        view.org(slot.call.org).map(|org| &**org)
    }

    /// It looks at every call, which a rare request may.
    pub(crate) fn place_of_call(&self, id: Uuid) -> Option<(CallKey, Uuid)> {
        let mut calls = self.slab.iter().map(|(_, slot)| &slot.call);
        let call = calls.find(|call| call.id == id && call.status() != CallStatus::Over)?;
        Some((call.key, call.org))
    }
}

impl Call {
    /// Begins a transfer.
    pub(crate) fn transfer(
        &mut self,
        cx: &mut Cx<'_>,
        org: &OrgView,
        ask: TransferRequest,
    ) -> Result<record::Transfer, Unable> {
        self.may_transfer()?;
        let own = org.destinations.get(&self.agent);
        let own = own.map(|own| &**own).unwrap_or_default();
        let destination = match &ask.chosen {
            Chosen::Name(name) => Destination::named(own, name),
            Chosen::Id(id) => Destination::of_id(own, *id),
        };
        let destination = destination.ok_or(Unable::NotAssigned)?;
        let plan = self.plan(cx, org, destination, None)?;
        let meant = (destination, None);
        let begun = self.begin_transfer(cx, org, meant, ask.report, Asker::Api, plan);
        self.transfer_now(cx);
        Ok(begun)
    }

    fn may_transfer(&self) -> Result<(), Unable> {
        match self.status() {
            CallStatus::SettingUp => return Err(Unable::NotAnswered),
            CallStatus::Over => return Err(Unable::NotUp),
            CallStatus::Answered | CallStatus::Up => {}
        }
        if self.is_with_destination() {
            return Err(Unable::NotUp);
        }
        let is_busy = |transfer: &Transfer| transfer.is_open() || transfer.wait == Wait::Bye;
        // Once a new leg has taken the place of one of the two, nobody hears what the old one makes of a REFER (RFC 3891 §3).
        if self.transfer.as_deref().is_some_and(is_busy) || self.is_replacing() {
            return Err(Unable::UnderWay);
        }
        Ok(())
    }

    fn begin_transfer(
        &mut self,
        cx: &mut Cx<'_>,
        org: &OrgView,
        (destination, replaces): (&Destination, Option<&str>),
        report: Report,
        asker: Asker,
        plan: Plan,
    ) -> record::Transfer {
        let record = record::Transfer {
            id: cx.mint_id(self.slot),
            call: self.id,
            org: self.org,
            session: self.session,
            destination: destination.id,
            name: destination.name.clone(),
            target: destination.target.clone(),
            way: plan.first,
            state: State::Requested,
            sip_code: None,
            report,
            requested_at: cx.now,
            accepted_at: None,
            ringing_at: None,
            ended_at: None,
            handed_over: false,
            answer_confirmed: None,
            caller_may_be_gone: false,
            counted_at: None,
            kept_by: None,
            step: 0,
        };

        let prefix = &cx.core.config.header_prefix;
        let refer_to = self.refer_to(&destination.target, replaces, org, prefix);
        let referred = self.transfer.as_deref().map_or(0, |before| before.referred);

        self.drop_transfer(cx);
        self.transfer = Some(Box::new(Transfer {
            record: record.clone(),
            asker,
            referred,
            wait: Wait::Ack,
            timer: None,
            refer_to: refer_to.into(),
            plan,
            trunk: self.trunk_asked(org),
            offered: Box::default(),
            permit: None,
            heard: 100,
            bridge_failure: None,
            sent: 0,
            cseq: 0,
            proofs: Proofs::default(),
            has_failed_after_refer: false,
            agent_gone: false,
            ended: None,
        }));

        self.tell_transfer(cx);
        record
    }

    /// Asks the PBX, if it may be asked by now.
    fn transfer_now(&mut self, cx: &mut Cx<'_>) {
        if self.status() == CallStatus::Up {
            self.transfer_may_begin(cx);
        }
    }

    /// The caller's ACK is in.
    pub(crate) fn transfer_may_begin(&mut self, cx: &mut Cx<'_>) {
        let waits = |transfer: &Transfer| transfer.wait == Wait::Ack;
        if !self.transfer.as_deref().is_some_and(waits) {
            return;
        }

        let plan = self
            .transfer
            .as_deref()
            .map(|transfer| (transfer.plan.first, transfer.plan.refers));
        let Some((first, refers)) = plan else { return };

        if first == Way::Bridge && self.begin_bridge(cx) {
            return;
        }
        match refers {
            // Where it can't be bridged, the PBX is asked all the same.
            true => self.send_refer(cx),
            false => self.settle(cx, State::Failed, Some(Reason::NoCommonMedia.status())),
        }
    }

    /// The transfer's timer has run out.
    pub(crate) fn on_transfer_timer(&mut self, cx: &mut Cx<'_>) {
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        transfer.timer = None;
        match transfer.wait {
            Wait::Again => self.send_refer(cx),
            Wait::Notify => self.settle(cx, State::Unknown, None),
            Wait::Leaving => self.caller_stayed(cx),
            Wait::Parting => self.part_unheard(cx),
            Wait::Probe => self.refer_failed(cx),
            Wait::Bye => self.leave_handed_over(cx),
            Wait::Caller => self.hang_up(cx, Reason::CallerLost),
            Wait::Ack | Wait::Answer | Wait::Destination | Wait::Nothing => {}
        }
    }

    /// The timer that is to be cancelled with the call.
    pub(crate) fn transfer_timer(&self) -> Option<TimerId> {
        self.transfer.as_deref()?.timer
    }

    /// Forgets a transfer that is settled.
    fn drop_transfer(&mut self, cx: &mut Cx<'_>) {
        if let Some(mut settled) = self.transfer.take() {
            cx.cancel_timer(&mut settled.timer);
        }
    }

    /// Waits for something, at most so long.
    fn wait_for(&mut self, cx: &mut Cx<'_>, wait: Wait, at_most: Option<Duration>) {
        let key = self.key;
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        cx.cancel_timer(&mut transfer.timer);
        transfer.wait = wait;
        transfer.timer = at_most.map(|time| cx.schedule(key, time, CallTimer::Transfer));
    }

    /// Keeps the transfer as it is now.
    fn tell_transfer(&mut self, cx: &mut Cx<'_>) {
        if let Some(transfer) = self.transfer.as_deref_mut() {
            transfer.record.step = transfer.record.step.saturating_add(1);
            let fact = Fact::Transfer(Box::new(transfer.record.clone()));
            cx.core.fact(fact);
        }
    }
}
