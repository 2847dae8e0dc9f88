//! A REFER that the PBX has accepted and that then fails: the caller may be lost with it.
//!
//! Asterisk and FreeSWITCH have taken the caller into their dialplan by then. They are asked whether they still know the call, and hung up on
//! unless they show that they have the caller. Where the destination couldn't be reached through the PBX at all (404, 484, 604), it is
//! called from here, if the dialog still answers. So it is where Asterisk says that it never began (400, 403, 404, 500): then it has its
//! caller, and isn't hung up on.

use std::time::Duration;

use trunkline_model::transfer::State;
use trunkline_sip::wire::{Message, Method};

use super::{Transfer, Wait};
use crate::call::{Call, CallStatus};
use crate::context::Cx;
use crate::own_request::{Pending, Purpose};
use crate::refusal::Reason;
use crate::request_origin::RequestOrigin;

/// Longest wait for the answer to a probe.
const PROBED: Duration = Duration::from_secs(5);
/// Time that a PBX which may have lost the caller has to show that it hasn't.
const SHOWN: Duration = Duration::from_secs(5);

impl Call {
    /// NOTIFY says that the destination wasn't reached.
    pub(super) fn on_refer_failed(&mut self, cx: &mut Cx<'_>, status: u16) {
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        transfer.heard = status;
        let parting = transfer.wait == Wait::Parting;
        let may_bridge = !parting && transfer.plan.bridges_after(status);
        let is_unknown_there = matches!(status, 404 | 484 | 604);
        let bridges = may_bridge && (is_unknown_there || self.never_began(status));
        if bridges && self.probe(cx) {
            return self.wait_for(cx, Wait::Probe, Some(PROBED));
        }
        self.refer_failed(cx);
    }

    /// The transfer has failed with what was heard last.
    pub(super) fn refer_failed(&mut self, cx: &mut Cx<'_>) {
        let Some(status) = self.transfer.as_deref().map(|transfer| transfer.heard) else {
            return;
        };
        let loses = self.loses_caller() && !self.never_began(status);
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        let parting = transfer.wait == Wait::Parting;
        transfer.record.caller_may_be_gone = loses && !parting;
        transfer.has_failed_after_refer = !parting && has_surely_begun(status);

        self.settle(cx, State::Failed, Some(status));
        if loses && !parting && self.status() == CallStatus::Up {
            self.probe(cx);
            self.wait_for(cx, Wait::Caller, Some(SHOWN));
        }
    }

    /// Returns whether the PBX says by this status that it never began the transfer.
    fn never_began(&self, status: u16) -> bool {
        let pbx = self.trunk().and_then(|trunk| trunk.abilities.pbx);
        pbx.is_some_and(|pbx| pbx.never_began(status))
    }

    /// Asks the PBX whether it still knows the call; once is enough.
    fn probe(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_probe = |pending: &Pending| pending.purpose == Purpose::Probe;
        if self.pending.iter().any(is_probe) {
            return true;
        }
        let (Some(fork), Some(trunk)) = (self.fork(), self.trunk()) else {
            return false;
        };
        let method = match trunk.abilities.update {
            true => (Method::Update, "UPDATE"),
            false => (Method::Options, "OPTIONS"),
        };
        let purpose = (Purpose::Probe, false, RequestOrigin::Ours);
        self.send_on_leg(cx, self.trunk_id(), fork, method, purpose, b"", |_| {})
    }

    /// The PBX's answer to a probe: any but 408 and 481 shows that it knows the call, not that it has the caller.
    pub(crate) fn on_probe_answer(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        let is_gone = matches!(message.status(), 408 | 481);
        if message.status() < 300 {
            self.note_refresh(cx, pending, message);
        }
        let asked = |transfer: &Transfer| transfer.wait == Wait::Probe;
        let was_asked = self.transfer.as_deref().is_some_and(asked);
        if is_gone {
            if was_asked {
                self.fail_as_heard(cx);
            }
            return self.hang_up(cx, Reason::DialogGone);
        }
        if was_asked && !self.begin_bridge(cx) {
            self.fail_as_heard(cx);
        }
    }

    fn fail_as_heard(&mut self, cx: &mut Cx<'_>) {
        let heard = self.transfer.as_deref().map(|transfer| transfer.heard);
        self.settle(cx, State::Failed, heard);
    }

    /// A request of the PBX in its dialog: after an accepted REFER has failed it shows that the caller is still there.
    pub(crate) fn hear_of_caller(&mut self, cx: &mut Cx<'_>, method: Method) {
        // What ends the call, and what tells of the transfer, is said without a caller as well.
        if !matches!(method, Method::Bye | Method::Notify) {
            self.caller_is_there(cx);
        }
    }

    /// The PBX has the caller: learnt of its trunk where an accepted REFER has failed before.
    pub(crate) fn caller_is_there(&mut self, cx: &mut Cx<'_>) {
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        let record = &mut transfer.record;
        let is_news = transfer.has_failed_after_refer && record.kept_by.is_none();
        if !is_news || transfer.trunk.is_none() {
            return;
        }
        record.kept_by = transfer.trunk;
        record.caller_may_be_gone = false;
        if transfer.wait == Wait::Caller {
            self.wait_for(cx, Wait::Nothing, None);
        }
        self.tell_transfer(cx);
    }
}

/// Returns whether a transfer that ended with this status had begun. Only then does a PBX that still has its caller show that it keeps
/// callers: where the transfer never began, one that loses them has the caller as well.
const fn has_surely_begun(status: u16) -> bool {
    !matches!(status, 400 | 403 | 404 | 484 | 500 | 604)
}
