//! The command to hold a call or to resume it.

use std::ops::ControlFlow;

use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Calls;
use super::call::Call;
use super::context::Cx;
use super::hold::HoldError;

impl Calls {
    /// Holds a call, or resumes it. Returns the number of the change that has begun; `None` if the call is in that state already.
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
        let (key, _) = self.place_of_call(id).ok_or(HoldError::NotUp)?;
        let mut outcome = Err(HoldError::NotUp);
        self.with(key, endpoint, now, |call, cx| {
            outcome = call.hold(cx, wanted);
        });
        outcome
    }
}

impl Call {
    /// Holds the call or resumes it, unless a transfer is under way.
    pub(crate) fn hold(&mut self, cx: &mut Cx<'_>, wanted: bool) -> Result<Option<u32>, HoldError> {
        match self.holding.request(&mut self.bridge, cx, wanted)? {
            ControlFlow::Break(number) => return Ok(number),
            ControlFlow::Continue(()) => {}
        }
        if self.transfer.is_under_way() {
            return Err(HoldError::Transferring);
        }
        let number = self.holding.begin(&mut self.bridge, cx, wanted)?;
        Ok(Some(number))
    }
}
