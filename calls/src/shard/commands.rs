//! Commands for a call that is up, which is found by its id: hang up, hold, resume, transfer.

use trunkline_model::transfer as record;
use trunkline_model::view::View;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Calls;
use crate::features::hold::HoldError;
use crate::features::transfer::{TransferError, TransferRequest};
use crate::leg::call_status::CallStatus;
use crate::parts::refusal::Reason;

/// Requester of a hang-up at this node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HangUpRequester {
    /// The org, or the operator.
    Operator,
    /// The call's agent.
    Agent,
}

impl Calls {
    /// Ends the call with this id; false if it isn't up.
    pub fn hang_up_by_id(
        &mut self,
        endpoint: &mut Endpoint,
        id: Uuid,
        by: HangUpRequester,
        now: Moment,
    ) -> bool {
        let Some((key, _)) = self.table.place_of(id) else {
            return false;
        };
        match by {
            HangUpRequester::Operator => self.hang_up(endpoint, key, Reason::Operator, now),
            HangUpRequester::Agent => {
                self.with(key, endpoint, now, |call, cx| match call.bridge.status() {
                    CallStatus::SettingUp => call.refuse(cx, Reason::RuntimeRefused),
                    CallStatus::Answered | CallStatus::Up => call.agent_hangs_up(cx),
                    CallStatus::Over => {}
                });
            }
        }
        true
    }

    /// Holds a call, or resumes it. Returns the number of the change that leads there, which may have begun before; `None` if none is
    /// needed.
    ///
    /// # Errors
    /// Nothing was done.
    pub fn hold(
        &mut self,
        endpoint: &mut Endpoint,
        id: Uuid,
        wanted: bool,
        now: Moment,
    ) -> Result<Option<u32>, HoldError> {
        let (key, _) = self.table.place_of(id).ok_or(HoldError::NotUp)?;
        let mut outcome = Err(HoldError::NotUp);
        self.with(key, endpoint, now, |call, cx| {
            let is_transferring = call.transfer.is_under_way();
            let hindrance = is_transferring.then_some(HoldError::Transferring);
            let bridge = &mut call.bridge;
            outcome = call.hold.request(bridge, cx, wanted, hindrance);
        });
        outcome
    }

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
    ) -> Result<record::Transfer, TransferError> {
        let (key, org) = self.table.place_of(id).ok_or(TransferError::NotUp)?;
        let org = view.org(org).ok_or(TransferError::NotUp)?;
        let mut outcome = Err(TransferError::NotUp);
        self.with(key, endpoint, now, |call, cx| {
            outcome = call.transfer(cx, org, ask);
        });
        outcome
    }
}
