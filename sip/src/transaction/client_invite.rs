//! The client transaction of an INVITE (RFC 3261 §17.1.1, Accepted of RFC 6026 §7.2), its CANCEL (RFC 3261 §9.1) and the ACKs
//! of its 2xx (RFC 3261 §13.2.2.4). The user agent owns those ACKs; the transaction only repeats them.

use crate::flow::Flow;
use crate::wire::Message;

use super::client_other::{ClientTimeout, ResponseEffect};
use super::io::Io;
use super::sketch::InviteSketch;
use super::timer::Timer;

/// Most forks whose ACK is kept. A repeated 2xx of a further fork reaches the user again.
const MAX_ACKS: usize = 8;

#[derive(Debug)]
pub(crate) struct ClientInvite(State);

/// A state without a final response also ends when its flow is lost (`Endpoint::fail_clients`).
#[derive(Debug)]
enum State {
    /// Ends with a response, or by Timer B. `cancel` holds further header lines for the CANCEL that waits for a 1xx.
    Calling {
        request: Box<[u8]>,
        sent: u8,
        cancel: Option<Box<[u8]>>,
    },
    /// Ends with a final response, or by Timer F once a CANCEL was sent. Before that it has no timer: see `proceed`.
    Proceeding {
        sketch: InviteSketch,
        cancel: Cancel,
        /// Further header lines of the CANCEL that was sent.
        canceled: Box<[u8]>,
        /// A response other than 100 has come.
        has_progress: bool,
    },
    /// Refused, over UDP. Ends by Timer D.
    Completed { ack: Box<[u8]> },
    /// Answered with a 2xx. Ends by Timer M.
    Accepted {
        acks: Vec<Ack>,
        /// The INVITE carried an offer.
        offered: bool,
        /// Further header lines of the CANCEL that the 2xx has crossed.
        canceled: Box<[u8]>,
    },
}

#[derive(Debug)]
enum Cancel {
    NotAsked,
    Sent { request: Box<[u8]>, sent: u8 },
    Proceeding { request: Box<[u8]> },
    Answered,
}

/// The ACK of one fork's 2xx.
#[derive(Debug)]
struct Ack {
    to_tag: Box<[u8]>,
    flow: Flow,
    request: Box<[u8]>,
}

impl ClientInvite {
    /// Keeps the request on every transport, since CANCEL and ACK are made from it.
    pub(crate) fn new(request: Box<[u8]>) -> Self {
        Self(State::Calling {
            request,
            sent: 1,
            cancel: None,
        })
    }

    /// Starts the timers, after the request was first sent.
    pub(crate) fn start(&mut self, io: &mut Io<'_>) {
        io.limit(Timer::B);
        if !io.is_reliable() {
            io.retransmit_later(Timer::A, 1);
        }
    }

    /// Returns true once a final response came.
    pub(crate) fn is_answered(&self) -> bool {
        match self.0 {
            State::Calling { .. } | State::Proceeding { .. } => false,
            State::Completed { .. } | State::Accepted { .. } => true,
        }
    }

    /// Returns whether the peer has the INVITE and has begun to serve it. If its connection closes, its answer comes over a new one
    /// (RFC 3261 §18.2.2).
    pub(crate) const fn has_progress(&self) -> bool {
        match self.0 {
            State::Proceeding { has_progress, .. } => has_progress,
            State::Calling { .. } | State::Completed { .. } | State::Accepted { .. } => false,
        }
    }

    /// Returns whether the INVITE offered a session, once a 2xx has come.
    pub(crate) const fn offered(&self) -> Option<bool> {
        match self.0 {
            State::Accepted { offered, .. } => Some(offered),
            State::Calling { .. } | State::Proceeding { .. } | State::Completed { .. } => None,
        }
    }

    /// Returns the further header lines of the CANCEL that a 2xx has crossed or preceded.
    pub(crate) const fn canceled_with(&self) -> &[u8] {
        match &self.0 {
            State::Accepted { canceled, .. } => canceled,
            State::Calling { .. } | State::Proceeding { .. } | State::Completed { .. } => b"",
        }
    }

    pub(crate) fn handle_response(
        &mut self,
        response: &Message<'_>,
        io: &mut Io<'_>,
    ) -> ResponseEffect {
        match (&mut self.0, response.status()) {
            (
                State::Calling {
                    request, cancel, ..
                },
                // From here on only a CANCEL and the ACK of a refusal can be due: what they need replaces the whole
                // INVITE.
                ..200,
            ) => {
                let (sketch, wanted) = (InviteSketch::of(request), cancel.take());
                self.proceed(sketch, wanted, response.status() > 100, io)
            }
            (State::Proceeding { has_progress, .. }, ..200) => {
                *has_progress |= response.status() > 100;
                ResponseEffect::New
            }

            // A CANCEL that waits for a 1xx is dropped: only a BYE can end a call that was accepted (RFC 3261 §9.1).
            (
                State::Calling {
                    request, cancel, ..
                },
                200..300,
            ) => {
                let offered = InviteSketch::of(request).offers();
                let canceled = cancel.take().unwrap_or_default();
                self.accept(offered, canceled, io)
            }
            (
                State::Proceeding {
                    sketch, canceled, ..
                },
                200..300,
            ) => {
                let (offered, canceled) = (sketch.offers(), std::mem::take(canceled));
                self.accept(offered, canceled, io)
            }

            (State::Calling { request, .. }, _) => {
                let sketch = InviteSketch::of(request);
                self.complete(&sketch, response, io)
            }
            (State::Proceeding { sketch, .. }, _) => {
                let sketch = std::mem::take(sketch);
                self.complete(&sketch, response, io)
            }

            (State::Accepted { acks, .. }, 200..300) => acknowledge_again(acks, response, io),
            // RFC 3261 §16.7, step 5: a forking proxy forwards a 2xx even after it has forwarded a final response.
            (State::Completed { .. }, 200..300) => ResponseEffect::Stray,
            // RFC 3261 §17.1.1.2: the peer repeats its refusal until an ACK arrives, so the last one was lost or is late.
            (State::Completed { ack }, 300..) => {
                io.resend(ack);
                ResponseEffect::Absorbed
            }
            // A 1xx that was overtaken, or the refusal of one fork after the 2xx of another: neither changes the
            // outcome.
            (State::Completed { .. } | State::Accepted { .. }, _) => ResponseEffect::Absorbed,
        }
    }

    fn proceed(
        &mut self,
        sketch: InviteSketch,
        cancel: Option<Box<[u8]>>,
        has_progress: bool,
        io: &mut Io<'_>,
    ) -> ResponseEffect {
        // Proceeding has no timer of its own (RFC 3261 §17.1.1.2). The user's deadline ends the wait for a peer that only
        // ever rings, with a CANCEL.
        io.stop();
        let (cancel, canceled) = match cancel {
            Some(head) => (send_cancel(&sketch, &head, io), head),
            None => (Cancel::NotAsked, Box::default()),
        };
        self.0 = State::Proceeding {
            sketch,
            cancel,
            canceled,
            has_progress,
        };
        ResponseEffect::New
    }

    fn accept(&mut self, offered: bool, canceled: Box<[u8]>, io: &mut Io<'_>) -> ResponseEffect {
        io.stop();
        io.limit(Timer::M);
        self.0 = State::Accepted {
            acks: Vec::new(),
            offered,
            canceled,
        };
        ResponseEffect::New
    }

    fn complete(
        &mut self,
        sketch: &InviteSketch,
        response: &Message<'_>,
        io: &mut Io<'_>,
    ) -> ResponseEffect {
        io.stop();
        let reliable = io.is_reliable();
        // RFC 3261 §17.1.1.3: the To of this ACK "MUST equal the To header field in the response", tag included.
        let ack = io.send(|out| sketch.print_ack(out, response.to()));
        // Timer D, which waits for repeated refusals, is zero on a stream.
        if reliable {
            return ResponseEffect::Last;
        }
        self.0 = State::Completed { ack: ack.into() };
        io.limit(Timer::D);
        ResponseEffect::New
    }

    /// Cancels an unanswered INVITE; does nothing if it was answered or cancelled before.
    pub(crate) fn cancel(&mut self, head: &[u8], io: &mut Io<'_>) {
        match &mut self.0 {
            // RFC 3261 §9.1: "If no provisional response has been received, the CANCEL request MUST NOT be sent". Timer
            // B runs on, so a peer that stays silent ends the INVITE all the same.
            State::Calling { cancel, .. } => {
                cancel.get_or_insert_with(|| head.into());
            }
            State::Proceeding {
                sketch,
                cancel: cancel @ Cancel::NotAsked,
                canceled,
                ..
            } => {
                *cancel = send_cancel(sketch, head, io);
                *canceled = head.into();
            }
            State::Proceeding { .. } | State::Completed { .. } | State::Accepted { .. } => {}
        }
    }

    /// Ends the CANCEL's retransmission after a final response. Timer F goes on, since the INVITE's own answer is still due.
    pub(crate) fn handle_cancel_response(&mut self, status: u16, io: &mut Io<'_>) {
        // The INVITE's final response came first and has stopped the CANCEL's timers.
        let State::Proceeding { cancel, .. } = &mut self.0 else {
            return;
        };

        match (&mut *cancel, status) {
            (Cancel::Sent { request, .. }, ..200) => {
                *cancel = Cancel::Proceeding {
                    request: std::mem::take(request),
                };
            }
            (Cancel::Sent { .. } | Cancel::Proceeding { .. }, 200..) => {
                io.stop_retransmitting();
                *cancel = Cancel::Answered;
            }
            (Cancel::NotAsked | Cancel::Proceeding { .. } | Cancel::Answered, _) => {}
        }
    }

    /// Keeps the ACK just sent for a 2xx, to answer repetitions of that 2xx.
    pub(crate) fn keep_ack(&mut self, to_tag: &[u8], flow: Flow, request: &[u8]) {
        // Only a 2xx is acknowledged by the user. The ACK of a refusal is the transaction's own.
        let State::Accepted { acks, .. } = &mut self.0 else {
            return;
        };

        let ack = Ack {
            to_tag: to_tag.into(),
            flow,
            request: request.into(),
        };

        match acks.iter().position(|kept| *kept.to_tag == *to_tag) {
            Some(at) => acks[at] = ack,
            None if acks.len() < MAX_ACKS => {
                // Nearly every INVITE has one fork; a plain push would make room for four ACKs, kept for 64*T1.
                acks.reserve_exact(1);
                acks.push(ack);
            }
            None => {}
        }
    }

    pub(crate) fn handle_timeout(&mut self, timer: Timer, io: &mut Io<'_>) -> ClientTimeout {
        if timer.retransmits() {
            self.retransmit(io);
            return ClientTimeout::Waits;
        }
        match self.0 {
            // In Proceeding the only timer is that of a CANCEL, which was sent 64*T1 ago.
            State::Calling { .. } | State::Proceeding { .. } => ClientTimeout::TimedOut,
            State::Completed { .. } | State::Accepted { .. } => ClientTimeout::Ended,
        }
    }

    fn retransmit(&mut self, io: &mut Io<'_>) {
        match &mut self.0 {
            State::Calling { request, sent, .. } => {
                *sent = sent.saturating_add(1);
                io.resend(request);
                io.retransmit_later(Timer::A, *sent);
            }

            State::Proceeding {
                cancel: Cancel::Sent { request, sent },
                ..
            } => {
                *sent = sent.saturating_add(1);
                io.resend(request);
                io.retransmit_later(Timer::E, *sent);
            }
            State::Proceeding {
                cancel: Cancel::Proceeding { request },
                ..
            } => {
                io.resend(request);
                // As after so many transmissions that the interval has grown to its longest, T2.
                io.retransmit_later(Timer::E, u8::MAX);
            }

            State::Proceeding {
                cancel: Cancel::NotAsked | Cancel::Answered,
                ..
            }
            | State::Completed { .. }
            | State::Accepted { .. } => {}
        }
    }
}

/// Sends the CANCEL. Timer F limits how long the INVITE may still take (RFC 3261 §9.1).
fn send_cancel(sketch: &InviteSketch, head: &[u8], io: &mut Io<'_>) -> Cancel {
    let mut request = Box::default();
    let reliable = io.is_reliable();
    let printed = io.send(|out| sketch.print_cancel(out, head));
    if !reliable {
        request = printed.into();
        io.retransmit_later(Timer::E, 1);
    }
    // RFC 3261 §9.1: without a final response within 64*T1, the client "SHOULD then consider the original transaction
    // cancelled". A server of RFC 2543 sends no 487.
    io.limit(Timer::F);
    Cancel::Sent { request, sent: 1 }
}

fn acknowledge_again(acks: &[Ack], response: &Message<'_>, io: &mut Io<'_>) -> ResponseEffect {
    match acks
        .iter()
        .find(|ack| Some(&*ack.to_tag) == response.to_tag())
    {
        Some(ack) => {
            // The ACK goes where the dialog's route set leads, which needn't be where the INVITE went.
            io.shared.outbox.repeat(ack.flow, &ack.request);
            ResponseEffect::Absorbed
        }
        // A further fork, or a 2xx that the user hasn't acknowledged yet, for instance because its ACK waits for an
        // answer.
        None => ResponseEffect::New,
    }
}
