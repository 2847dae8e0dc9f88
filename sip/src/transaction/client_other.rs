//! The client transaction of every request but INVITE and ACK (RFC 3261 §17.1.2).

use crate::wire::Method;

use super::io::Io;
use super::timer::Timer;

/// Effect of a response on a client transaction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ResponseEffect {
    /// A repetition, or a response that the user needn't know of.
    Absorbed,
    /// For the user; the transaction continues.
    New,
    /// For the user; the transaction has ended.
    Last,
    /// A 2xx of a fork whose INVITE has already failed: the user must end that call.
    Stray,
}

/// Effect of a timer on a client transaction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ClientTimeout {
    /// The transaction continues.
    Waits,
    /// The transaction has ended, and its user knows the outcome.
    Ended,
    /// The transaction has ended without an answer.
    TimedOut,
}

#[derive(Debug)]
pub(crate) struct ClientOther {
    method: Method,
    state: State,
}

/// A state without a final response also ends when its flow is lost (`Endpoint::fail_clients`).
#[derive(Debug)]
enum State {
    /// Ends with a response, or by Timer F.
    Trying { request: Box<[u8]>, sent: u8 },
    /// Ends with a final response, or by Timer F.
    Proceeding { request: Box<[u8]> },
    /// Answered, over UDP. Ends by Timer K.
    Completed,
}

impl ClientOther {
    pub(crate) fn new(method: Method, request: Box<[u8]>) -> Self {
        Self {
            method,
            state: State::Trying { request, sent: 1 },
        }
    }

    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// Starts the timers, after the request was first sent.
    pub(crate) fn start(&mut self, io: &mut Io<'_>) {
        io.limit(Timer::F);
        if !io.is_reliable() {
            io.retransmit_later(Timer::E, 1);
        }
    }

    pub(crate) fn is_answered(&self) -> bool {
        match self.state {
            State::Trying { .. } | State::Proceeding { .. } => false,
            State::Completed => true,
        }
    }

    pub(crate) fn handle_response(&mut self, status: u16, io: &mut Io<'_>) -> ResponseEffect {
        match (&mut self.state, status) {
            (State::Completed, _) => ResponseEffect::Absorbed,
            // RFC 3261 §17.1.2.2: E and F go on after a 1xx. It slows the retransmissions, but the wait stays 64*T1.
            (State::Trying { request, .. }, ..200) => {
                self.state = State::Proceeding {
                    request: std::mem::take(request),
                };
                ResponseEffect::New
            }
            (State::Proceeding { .. }, ..200) => ResponseEffect::New,
            (State::Trying { .. } | State::Proceeding { .. }, _) => self.complete(io),
        }
    }

    fn complete(&mut self, io: &mut Io<'_>) -> ResponseEffect {
        io.stop();
        self.state = State::Completed;
        // Timer K, which waits for repeated responses, is zero on a stream.
        if io.is_reliable() {
            return ResponseEffect::Last;
        }
        io.limit(Timer::K);
        ResponseEffect::New
    }

    pub(crate) fn handle_timeout(&mut self, timer: Timer, io: &mut Io<'_>) -> ClientTimeout {
        if timer.retransmits() {
            self.retransmit(io);
            return ClientTimeout::Waits;
        }
        match self.state {
            State::Trying { .. } | State::Proceeding { .. } => ClientTimeout::TimedOut,
            State::Completed => ClientTimeout::Ended,
        }
    }

    /// Sends the request again. In Proceeding the interval is T2 (RFC 3261 §17.1.2.2).
    fn retransmit(&mut self, io: &mut Io<'_>) {
        match &mut self.state {
            State::Trying { request, sent } => {
                *sent = sent.saturating_add(1);
                io.resend(request);
                io.retransmit_later(Timer::E, *sent);
            }
            State::Proceeding { request } => {
                io.resend(request);
                // As after so many transmissions that the interval has grown to its longest, T2.
                io.retransmit_later(Timer::E, u8::MAX);
            }
            State::Completed => {}
        }
    }
}
