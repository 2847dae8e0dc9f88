//! Outbound calls on request: each is acknowledged once its first fact is on disk. A call that can't be acknowledged in
//! time is withdrawn before it begins, or ended, so that a client which gets an error may try again
//! (under another Idempotency-Key: after a 500 the API doesn't know what became of a command).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use trunkline_calls::Reason;
use trunkline_calls::dial::outbound::{NewOutboundCall, PlacedCall};
use trunkline_calls::limits::outbound_limits::OutboundRefusal;
use trunkline_sip::slot::Slot;

/// Answer to the requester of a call.
type Answer = Result<PlacedCall, OutboundRefusal>;

/// Request to a shard for a call.
#[derive(Debug)]
pub(crate) struct PlacingRequest {
    slot: Slot,
    order: Box<NewOutboundCall>,
    /// Set by the shard as it begins the call, or by the requester as it gives up waiting: the second of them does nothing.
    begun: Arc<AtomicBool>,
    done: oneshot::Sender<Answer>,
}

/// A call that has begun, and whose requester waits.
#[derive(Debug)]
pub(crate) struct PlacingPromise {
    placed: PlacedCall,
    done: oneshot::Sender<Answer>,
}

/// Requester of a call.
#[derive(Debug)]
pub(super) struct PlacingRequester {
    begun: Arc<AtomicBool>,
    answer: oneshot::Receiver<Answer>,
}

impl PlacingRequester {
    /// Sends the request by `sending`, and waits for the answer for at most `timeout`. `None`: the shard has ended, or has begun the call
    /// and ends it again.
    pub(super) async fn wait(
        mut self,
        sending: impl Future<Output = ()>,
        timeout: Duration,
    ) -> Option<Answer> {
        let answered = async {
            sending.await;
            (&mut self.answer).await.ok()
        };
        match tokio::time::timeout(timeout, answered).await {
            Ok(answer) => answer,
            // The shard hasn't begun the call, and will find it withdrawn: the client may try again.
            Err(_) if !self.begun.swap(true, Ordering::AcqRel) => {
                Some(Err(Reason::Overload.into()))
            }
            Err(_) => {
                // Unless the answer came just now, this has the shard end the call.
                self.answer.close();
                self.answer.try_recv().ok()
            }
        }
    }
}

impl PlacingRequest {
    /// Makes the request for a call in this slot.
    pub(super) fn new(slot: Slot, order: NewOutboundCall) -> (Self, PlacingRequester) {
        let (done, answer) = oneshot::channel();
        let begun = Arc::new(AtomicBool::new(false));
        let request = Self {
            slot,
            order: Box::new(order),
            begun: Arc::clone(&begun),
            done,
        };
        (request, PlacingRequester { begun, answer })
    }

    /// Begins the call, unless the requester has given up.
    pub(crate) fn begin(
        self,
        place: impl FnOnce(Slot, &NewOutboundCall) -> Answer,
    ) -> Option<PlacingPromise> {
        let Self { order, done, .. } = self;
        if self.begun.swap(true, Ordering::AcqRel) {
            return None;
        }

        match place(self.slot, &order) {
            Ok(placed) => Some(PlacingPromise { placed, done }),
            Err(refusal) => {
                // The requester may have gone.
                let _ = done.send(Err(refusal));
                None
            }
        }
    }
}

impl PlacingPromise {
    /// The call, if its requester no longer waits: it has to end.
    pub(crate) fn given_up(&self) -> Option<PlacedCall> {
        self.done.is_closed().then_some(self.placed)
    }

    /// Acknowledges the call once it is on disk. Returns the call if it isn't acknowledged, and so has to end: the
    /// journal has closed, or the requester no longer waits.
    pub(crate) async fn keep<E>(
        self,
        synced: impl Future<Output = Result<(), E>>,
    ) -> Option<PlacedCall> {
        let Self { placed, mut done } = self;
        let is_synced = tokio::select! {
            synced = synced => synced.is_ok(),
            () = done.closed() => false,
        };

        // The send fails if the requester has just given up. Either it has the call, or the call ends: never both,
        // never neither.
        let is_acknowledged = is_synced && done.send(Ok(placed)).is_ok();
        (!is_acknowledged).then_some(placed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn order() -> NewOutboundCall {
        NewOutboundCall {
            org: Uuid::nil(),
            agent: Uuid::nil(),
            number: "+442071838750".parse().unwrap(),
            ringing_timeout: Duration::ZERO,
            max_duration: Duration::ZERO,
            metadata: None,
        }
    }

    const PLACED: PlacedCall = PlacedCall {
        call: Uuid::from_u128(1),
        session: Uuid::from_u128(2),
    };

    fn request() -> (PlacingRequest, PlacingRequester) {
        PlacingRequest::new(Slot::new(0).unwrap(), order())
    }

    fn promise() -> (PlacingPromise, oneshot::Receiver<Answer>) {
        let (request, requester) = request();
        let promise = request.begin(|_, _| Ok(PLACED));
        (promise.expect("it begins"), requester.answer)
    }

    #[test]
    fn a_call_that_nobody_waits_for_is_given_up() {
        let (promise, requester) = promise();
        assert_eq!(promise.given_up(), None);
        drop(requester);
        assert_eq!(promise.given_up(), Some(PLACED));
    }

    #[tokio::test]
    async fn a_request_that_was_given_up_begins_no_call() {
        let (request, requester) = request();
        let sending = std::future::ready(());
        let answer = requester.wait(sending, Duration::ZERO).await;
        assert_eq!(answer, Some(Err(Reason::Overload.into())));

        let promise = request.begin(|_, _| panic!("a call begins"));
        assert!(promise.is_none());
    }

    #[tokio::test]
    async fn a_call_that_is_not_on_disk_in_time_is_no_success() {
        let (request, requester) = request();
        let promise = request.begin(|_, _| Ok(PLACED)).expect("it begins");
        let sending = std::future::ready(());
        assert_eq!(requester.wait(sending, Duration::ZERO).await, None);

        let synced = std::future::ready(Ok::<_, ()>(()));
        assert_eq!(promise.keep(synced).await, Some(PLACED), "it ends");
    }

    #[tokio::test]
    async fn a_call_on_disk_is_acknowledged() {
        let (promise, answer) = promise();
        let synced = std::future::ready(Ok::<_, ()>(()));
        assert_eq!(promise.keep(synced).await, None);
        assert_eq!(answer.await.unwrap().unwrap(), PLACED);
    }

    #[tokio::test]
    async fn a_call_that_cannot_be_acknowledged_ends() {
        let (promise, answer) = promise();
        let failed = std::future::ready(Err(()));
        assert_eq!(promise.keep(failed).await, Some(PLACED));
        assert!(answer.await.is_err());

        // The disk hangs until the requester has given up.
        let (promise, answer) = self::promise();
        drop(answer);
        let hangs = std::future::pending::<Result<(), ()>>();
        assert_eq!(promise.keep(hangs).await, Some(PLACED));
    }
}
