//! The server transaction of an INVITE (RFC 3261 §17.2.1, Accepted of RFC 6026 §7.1), and the retransmission of its 2xx
//! (RFC 3261 §13.3.1.4), which is the user agent's duty.

use super::Response;
use super::io::Io;
use super::server_other::ServerFate;
use super::sketch::RequestSketch;
use super::timer::Timer;
use super::tombstone::TombstoneLifetime;

#[derive(Debug)]
pub(crate) struct ServerInvite(State);

#[derive(Debug)]
enum State {
    /// Has no timer: only the user's final response ends it. `last` is the last provisional response above 100, if the transport may
    /// have lost it.
    Proceeding {
        sketch: RequestSketch,
        last: Box<[u8]>,
        cancelled: bool,
    },
    /// Refused. Ends with the ACK, or by Timer H. `answer` is empty on a stream.
    Completed { answer: Box<[u8]>, sent: u8 },
    /// Answered with a 2xx. Ends once the user reports the ACK, or by Timer L.
    Accepted { answer: Box<[u8]>, sent: u8 },
}

/// Effect of an ACK on a server INVITE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AckEffect {
    /// The ACK was for a refusal, or is out of place.
    Absorbed(ServerFate),
    /// The ACK is for a 2xx: the user handles it.
    Passed,
}

/// Effect of a timer on a server INVITE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum InviteTimeout {
    Waits,
    Ended,
    /// A 2xx was not acknowledged in time.
    NoAck,
}

impl ServerInvite {
    pub(crate) fn new(sketch: RequestSketch) -> Self {
        Self(State::Proceeding {
            sketch,
            last: Box::default(),
            cancelled: false,
        })
    }

    /// Sends 100 at once, since the user may take longer than 200 ms (RFC 3261 §17.2.1).
    pub(crate) fn start(&mut self, server: &str, io: &mut Io<'_>) {
        if let State::Proceeding { sketch, .. } = &self.0 {
            io.send(|out| sketch.print(out, &Response::bare(100), None, server));
        }
    }

    /// Returns true if the next response needs a tag of ours.
    pub(crate) fn wants_tag(&self) -> bool {
        match &self.0 {
            State::Proceeding { sketch, .. } => !sketch.is_tagged(),
            State::Completed { .. } | State::Accepted { .. } => false,
        }
    }

    pub(crate) fn handle_retransmission(&mut self, server: &str, io: &mut Io<'_>) {
        match &self.0 {
            State::Proceeding { sketch, last, .. } if last.is_empty() => {
                io.send(|out| sketch.print(out, &Response::bare(100), None, server));
            }
            State::Proceeding { last: kept, .. } | State::Completed { answer: kept, .. } => {
                // Empty on a stream: the transport repeats what was lost, so nothing was kept.
                if !kept.is_empty() {
                    io.resend(kept);
                }
            }
            // RFC 6026 §7.1: the 2xx is repeated by its own timer alone.
            State::Accepted { .. } => {}
        }
    }

    /// Returns true if this CANCEL is the first and precedes the answer (RFC 3261 §9.2).
    pub(crate) fn cancel(&mut self) -> bool {
        match &mut self.0 {
            // A CANCEL has no transaction of its own, so its retransmissions arrive here too.
            State::Proceeding { cancelled, .. } => !std::mem::replace(cancelled, true),
            State::Completed { .. } | State::Accepted { .. } => false,
        }
    }

    /// Sends a response; does nothing after the final one.
    pub(crate) fn respond(
        &mut self,
        response: &Response<'_>,
        tag: Option<&[u8]>,
        server: &str,
        io: &mut Io<'_>,
    ) {
        let State::Proceeding { sketch, last, .. } = &mut self.0 else {
            return;
        };

        let reliable = io.is_reliable();
        let printed = io.send(|out| sketch.print(out, response, tag, server));

        match response.status {
            ..=100 => {}
            101..200 if reliable => {}
            101..200 => *last = printed.into(),

            // Kept and repeated on a stream too, since a hop behind it may be UDP: "the response is retransmitted
            // periodically even if the transport at the UAS is reliable" (RFC 3261 §13.3.1.4).
            200..300 => {
                self.0 = State::Accepted {
                    answer: printed.into(),
                    sent: 1,
                };
                io.limit(Timer::L);
                io.retransmit_later(Timer::Answer, 1);
            }

            300.. => {
                // A stream loses nothing, so Timer G stays off and nothing is kept for it.
                let answer = if reliable {
                    Box::default()
                } else {
                    printed.into()
                };
                self.0 = State::Completed { answer, sent: 1 };
                io.limit(Timer::H);
                if !reliable {
                    io.retransmit_later(Timer::G, 1);
                }
            }
        }
    }

    pub(crate) fn handle_ack(&mut self, io: &Io<'_>) -> AckEffect {
        match self.0 {
            // An ACK ahead of any final response acknowledges nothing.
            State::Proceeding { .. } => AckEffect::Absorbed(ServerFate::Alive),
            // Timer I is zero on a reliable transport.
            State::Completed { .. } if io.is_reliable() => AckEffect::Absorbed(ServerFate::Ended),
            State::Completed { .. } => {
                AckEffect::Absorbed(ServerFate::Buried(TombstoneLifetime::T4))
            }
            // RFC 3261 §17.1.1.3 gives only the ACK of a refusal the branch of its INVITE; RFC 2543 did so for that of
            // a 2xx too.
            State::Accepted { .. } => AckEffect::Passed,
        }
    }

    /// Returns true if a 2xx was sent. After its ACK nothing is left to do but to absorb repeated INVITEs, which a tombstone does for as
    /// long as Timer L runs, counted from the ACK.
    pub(crate) fn acknowledged(&self) -> bool {
        match self.0 {
            State::Accepted { .. } => true,
            State::Proceeding { .. } | State::Completed { .. } => false,
        }
    }

    /// Handles the move to a new connection: sends a 2xx again at once, since it may have been lost with the old connection.
    pub(crate) fn handle_moved(&mut self, io: &mut Io<'_>) {
        if let State::Accepted { answer, .. } = &self.0 {
            io.resend(answer);
        }
    }

    pub(crate) fn handle_timeout(&mut self, timer: Timer, io: &mut Io<'_>) -> InviteTimeout {
        match &mut self.0 {
            State::Completed { answer, sent } if timer.retransmits() => {
                repeat(answer, sent, Timer::G, io);
                InviteTimeout::Waits
            }
            State::Accepted { answer, sent } if timer.retransmits() => {
                repeat(answer, sent, Timer::Answer, io);
                InviteTimeout::Waits
            }
            State::Proceeding { .. } => InviteTimeout::Waits,
            State::Completed { .. } => InviteTimeout::Ended,
            // RFC 3261 §13.3.1.4: without an ACK for 64*T1 the session "SHOULD" be ended with a BYE, which is the
            // user's part.
            State::Accepted { .. } => InviteTimeout::NoAck,
        }
    }
}

fn repeat(answer: &[u8], sent: &mut u8, timer: Timer, io: &mut Io<'_>) {
    *sent = sent.saturating_add(1);
    io.resend(answer);
    io.retransmit_later(timer, *sent);
}
