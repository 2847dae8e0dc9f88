//! The command to hold a call or to resume it.

use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Calls;
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
            let is_transferring = call.transfer.is_under_way();
            let hindrance = is_transferring.then_some(HoldError::Transferring);
            let bridge = &mut call.bridge;
            outcome = call.holding.request(bridge, cx, wanted, hindrance);
        });
        outcome
    }
}
