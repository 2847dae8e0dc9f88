//! INVITE of a member's user agent, and the requester who waits for the id of the call's record.

use tokio::sync::oneshot;
use trunkline_calls::member::MemberCaller;
use trunkline_model::record::Started;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// INVITE of a member.
#[derive(Debug)]
pub(crate) struct MemberInvite {
    pub(crate) caller: MemberCaller,
    pub(crate) octets: Box<[u8]>,
    pub(crate) received_at: Moment,
    /// Gets the id of the call's record.
    pub(crate) begun: oneshot::Sender<Uuid>,
}

/// Requester of the call that is being set up, who waits for the id of its record.
#[derive(Debug, Default)]
pub(crate) struct AwaitedRecord(Option<(Box<[u8]>, oneshot::Sender<Uuid>)>);

impl AwaitedRecord {
    /// Waits for the record of the call with this Call-ID.
    pub(crate) fn of(call_id: &[u8], begun: oneshot::Sender<Uuid>) -> Self {
        Self(Some((call_id.into(), begun)))
    }

    /// Notifies the requester, if the record is of the call that it waits for.
    pub(crate) fn note(&mut self, started: &Started) {
        let is_own =
            |(call_id, _): &(Box<[u8]>, _)| **call_id == *started.caller_call_id.as_bytes();
        if let Some((_, begun)) = self.0.take_if(|waiting| is_own(waiting)) {
            // A requester that has gone needs no id.
            let _ = begun.send(started.call);
        }
    }
}
