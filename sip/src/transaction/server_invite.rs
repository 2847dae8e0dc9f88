//! The server transaction of an INVITE (RFC 3261 §17.2.1, Accepted of RFC 6026 §7.1), and the retransmission of its 2xx
//! (RFC 3261 §13.3.1.4), which is the user agent's duty.

use super::Response;
use super::io::Io;
use super::server_other::ServerFate;
use super::sketch::RequestSketch;
use super::timer::Timer;
use super::tombstone::TombstoneLifetime;

/// Transmissions of a refusal to a source that may be forged.
const UNPROVEN_REFUSALS: u8 = 4;

#[derive(Debug)]
pub(crate) struct ServerInvite {
    state: State,
    /// Its source may be forged: what it gets is bounded.
    is_unproven: bool,
}

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
    /// A 2xx was not acknowledged in time, and its INVITE isn't sent again any more.
    NoAck,
    /// The same of an INVITE whose source may be forged, which may still be sent again.
    UnprovenNoAck,
}

impl ServerInvite {
    pub(crate) fn new(sketch: RequestSketch) -> Self {
        Self {
            state: State::Proceeding {
                sketch,
                last: Box::default(),
                cancelled: false,
            },
            is_unproven: false,
        }
    }

    /// Notes that the source of the INVITE may be forged.
    pub(crate) fn doubt(&mut self) {
        self.is_unproven = true;
    }

    /// Notes that the source of the INVITE isn't forged. A 2xx is sent again, and waits for its ACK, as long as any other from now on.
    pub(crate) fn trust(&mut self, io: &mut Io<'_>) {
        if !std::mem::take(&mut self.is_unproven) {
            return;
        }
        if let State::Accepted { sent, .. } = &self.state {
            io.limit(Timer::L);
            io.retransmit_later(Timer::Answer, *sent);
        }
    }

    /// Sends the last provisional response above 100 once more, if there is one.
    pub(crate) fn repeat_provisional(&self, io: &mut Io<'_>) {
        if let State::Proceeding { last, .. } = &self.state
            && !last.is_empty()
        {
            io.resend(last);
        }
    }

    /// Sends 100 at once, since the user may take longer than 200 ms (RFC 3261 §17.2.1).
    pub(crate) fn start(&mut self, server: &str, io: &mut Io<'_>) {
        if let State::Proceeding { sketch, .. } = &self.state {
            io.send(|out| sketch.print(out, &Response::bare(100), None, server));
        }
    }

    /// Returns true if the next response needs a tag of ours.
    pub(crate) fn wants_tag(&self) -> bool {
        match &self.state {
            State::Proceeding { sketch, .. } => !sketch.is_tagged(),
            State::Completed { .. } | State::Accepted { .. } => false,
        }
    }

    pub(crate) fn handle_retransmission(&mut self, server: &str, io: &mut Io<'_>) {
        match &self.state {
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
        match &mut self.state {
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
        let State::Proceeding { sketch, last, .. } = &mut self.state else {
            return;
        };

        let reliable = io.is_reliable();
        let is_unproven = self.is_unproven;
        let printed = io.send(|out| sketch.print(out, response, tag, server));

        match response.status {
            ..=100 => {}
            101..200 if reliable => {}
            101..200 => *last = printed.into(),

            // Kept and repeated on a stream too, since a hop behind it may be UDP: "the response is retransmitted
            // periodically even if the transport at the UAS is reliable" (RFC 3261 §13.3.1.4).
            200..300 => {
                self.state = State::Accepted {
                    answer: printed.into(),
                    sent: 1,
                };
                let (limit, again) = match is_unproven {
                    true => (Timer::UnprovenLimit, Timer::Unproven),
                    false => (Timer::L, Timer::Answer),
                };
                io.limit(limit);
                io.retransmit_later(again, 1);
            }

            300.. => {
                // A stream loses nothing, so Timer G stays off and nothing is kept for it.
                let answer = if reliable {
                    Box::default()
                } else {
                    printed.into()
                };
                self.state = State::Completed { answer, sent: 1 };
                io.limit(Timer::H);
                if !reliable {
                    let again = if is_unproven {
                        Timer::Unproven
                    } else {
                        Timer::G
                    };
                    io.retransmit_later(again, 1);
                }
            }
        }
    }

    pub(crate) fn handle_ack(&mut self, io: &Io<'_>) -> AckEffect {
        match self.state {
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
        match self.state {
            State::Accepted { .. } => true,
            State::Proceeding { .. } | State::Completed { .. } => false,
        }
    }

    /// Handles the move to a new connection: sends a 2xx again at once, since it may have been lost with the old connection.
    pub(crate) fn handle_moved(&mut self, io: &mut Io<'_>) {
        if let State::Accepted { answer, .. } = &self.state {
            io.resend(answer);
        }
    }

    pub(crate) fn handle_timeout(&mut self, timer: Timer, io: &mut Io<'_>) -> InviteTimeout {
        match &mut self.state {
            State::Completed { answer, sent } if timer.retransmits() => {
                repeat(answer, sent, timer, io);
                // A victim gets few copies of a refusal. A caller that has lost them all learns by its next INVITE.
                if timer == Timer::Unproven && *sent >= UNPROVEN_REFUSALS {
                    io.stop_retransmitting();
                }
                InviteTimeout::Waits
            }
            State::Accepted { answer, sent } if timer.retransmits() => {
                repeat(answer, sent, timer, io);
                InviteTimeout::Waits
            }
            State::Proceeding { .. } => InviteTimeout::Waits,
            State::Completed { .. } => InviteTimeout::Ended,
            // RFC 3261 §13.3.1.4: without an ACK for 64*T1 the session "SHOULD" be ended with a BYE, which is the
            // user's part.
            State::Accepted { .. } if self.is_unproven => InviteTimeout::UnprovenNoAck,
            State::Accepted { .. } => InviteTimeout::NoAck,
        }
    }
}

fn repeat(answer: &[u8], sent: &mut u8, timer: Timer, io: &mut Io<'_>) {
    *sent = sent.saturating_add(1);
    io.resend(answer);
    if timer.is_last(*sent) {
        io.stop_retransmitting();
    } else {
        io.retransmit_later(timer, *sent);
    }
}
