//! The server transaction of every request but INVITE, ACK and CANCEL (RFC 3261 §17.2.2).

use super::Response;
use super::io::Io;
use super::sketch::RequestSketch;
use super::timer::Timer;
use super::tombstone::TombstoneLifetime;

/// State of a server transaction after a step.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ServerFate {
    /// The transaction continues.
    Alive,
    /// The transaction has ended, but its retransmissions must still be recognised.
    Buried(TombstoneLifetime),
    /// The transaction has ended, and no retransmission is expected.
    Ended,
}

#[derive(Debug)]
pub(crate) struct ServerOther(State);

#[derive(Debug)]
enum State {
    /// Trying until a provisional response is sent, then Proceeding. `last` is that response if the transport may
    /// have lost it. Ends with the final response, or by Timer F.
    Unanswered {
        sketch: RequestSketch,
        last: Box<[u8]>,
    },
    /// Kept only for an answer that can't be printed again from its status alone. Ends by Timer J.
    Completed { answer: Box<[u8]> },
}

impl ServerOther {
    pub(crate) fn new(sketch: RequestSketch) -> Self {
        Self(State::Unanswered {
            sketch,
            last: Box::default(),
        })
    }

    /// Starts the transaction. The peer gives up after its timer F, and an answer is of no use to it then (RFC 4320 §4).
    pub(crate) fn start(&mut self, io: &mut Io<'_>) {
        io.limit(Timer::F);
    }

    /// Returns true if the next response needs a tag of ours.
    pub(crate) fn wants_tag(&self) -> bool {
        match &self.0 {
            State::Unanswered { sketch, .. } => !sketch.is_tagged(),
            State::Completed { .. } => false,
        }
    }

    pub(crate) fn handle_retransmission(&mut self, io: &mut Io<'_>) {
        let (State::Unanswered { last: kept, .. } | State::Completed { answer: kept }) = &self.0;
        // Before any response a retransmission is dropped (RFC 3261 §17.2.2): the user is still at work on the first.
        if !kept.is_empty() {
            io.resend(kept);
        }
    }

    /// Sends a response; does nothing after the final one.
    pub(crate) fn respond(
        &mut self,
        response: &Response<'_>,
        tag: Option<&[u8]>,
        server: &str,
        io: &mut Io<'_>,
    ) -> ServerFate {
        // RFC 3261 §17.2.2: "any other final responses passed by the TU to the server transaction MUST be discarded".
        let State::Unanswered { sketch, last } = &mut self.0 else {
            return ServerFate::Alive;
        };

        let reliable = io.is_reliable();
        let printed = io.send(|out| sketch.print(out, response, tag, server));
        match response.status {
            // Timer J is zero on a stream, where no retransmission comes.
            200.. if reliable => ServerFate::Ended,
            // A tombstone is smaller than the answer, and prints the same answer from the retransmission.
            200.. if response.is_bare() => ServerFate::Buried(TombstoneLifetime::Patience),
            200.. => {
                self.0 = State::Completed {
                    answer: printed.into(),
                };
                io.limit(Timer::J);
                ServerFate::Alive
            }
            ..200 if reliable => ServerFate::Alive,
            ..200 => {
                *last = printed.into();
                ServerFate::Alive
            }
        }
    }
}
