//! The timers of RFC 3261 §17 and RFC 6026 by their letters, and how long each runs. A transaction runs at most two of them:
//! one that retransmits, one that ends its state.

use std::time::Duration;

use crate::flow::Transport;
use crate::wheel::TimerId;

use super::handle::{ClientTx, ServerTx};

/// The base values of RFC 3261 §17.1.1.1.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Times {
    /// The round-trip estimate.
    pub(crate) t1: Duration,
    /// The longest interval between retransmissions of a non-INVITE request or of a response to an INVITE.
    pub(crate) t2: Duration,
    /// The longest time that a message stays in the network.
    pub(crate) t4: Duration,
}

impl Times {
    /// `64*T1`: the time that a transaction waits for its peer.
    pub(crate) fn patience(self) -> Duration {
        self.t1 * 64
    }
}

/// Timers of a transaction.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Timer {
    /// INVITE retransmission (RFC 3261 §17.1.1.2).
    A,
    /// INVITE transaction timeout.
    B,
    /// Wait for retransmitted responses to an INVITE.
    D,
    /// Retransmission of a request that isn't an INVITE, a CANCEL among them (RFC 3261 §17.1.2.2).
    E,
    /// Non-INVITE transaction timeout. For a CANCEL, it limits the time left to the INVITE's final response (RFC 3261 §9.1).
    F,
    /// Retransmission of a final response to an INVITE other than 2xx (RFC 3261 §17.2.1).
    G,
    /// Wait for the ACK of a final response other than 2xx.
    H,
    /// Wait for retransmitted INVITEs and ACKs once the ACK that Timer H waits for came.
    I,
    /// Wait for retransmitted non-INVITE requests (RFC 3261 §17.2.2).
    J,
    /// Wait for retransmitted responses to a non-INVITE request (RFC 3261 §17.1.2.2).
    K,
    /// Wait for retransmitted INVITEs after a 2xx (RFC 6026 §7.1), and for its ACK (RFC 3261 §13.3.1.4).
    L,
    /// Wait for retransmitted and forked 2xx (RFC 6026 §7.2).
    M,
    /// Retransmission of a 2xx by its user agent (RFC 3261 §13.3.1.4); the RFC gives this timer no letter.
    Answer,
    /// Retransmission of the final response to an INVITE whose source may be forged ([`UNPROVEN_INTERVALS_MS`]).
    Unproven,
    /// Wait for the ACK of a 2xx to such an INVITE.
    UnprovenLimit,
}

/// Intervals between the transmissions of a final response to an INVITE whose source may be forged, in milliseconds: it is sent again at 0.5, 1,
/// 2, 3, 4, 5 and 6 s. A peer that is there gets as many copies in the first seconds as any other, and a victim gets no more of them.
const UNPROVEN_INTERVALS_MS: [u64; 7] = [500, 500, 1_000, 1_000, 1_000, 1_000, 1_000];
/// Longest wait for the ACK of a 2xx to such an INVITE.
const UNPROVEN_PATIENCE: Duration = Duration::from_secs(8);

impl Timer {
    /// Duration of the timer; for a retransmission, after `sent` transmissions so far.
    pub(crate) fn length(self, sent: u8, times: Times, transport: Transport) -> Duration {
        // The cap of 7 only bounds the shift. Timer B ends an INVITE after its seventh transmission, and all other
        // intervals are cut to T2 below.
        let doubled = times.t1 * (1 << sent.saturating_sub(1).min(7));
        let unless_reliable = |length| {
            if transport.is_reliable() {
                Duration::ZERO
            } else {
                length
            }
        };

        match self {
            Self::A => doubled,
            Self::E | Self::G | Self::Answer => doubled.min(times.t2),
            // A stream shortens none of these: its peer may be as slow, and a 2xx is retransmitted over any transport.
            Self::B | Self::F | Self::H | Self::L | Self::M => times.patience(),
            // D is "at least 32 seconds" on an unreliable transport: 64*T1 with the default T1.
            Self::D | Self::J => unless_reliable(times.patience()),
            Self::I | Self::K => unless_reliable(times.t4),
            Self::Unproven => {
                let last = UNPROVEN_INTERVALS_MS.len() - 1;
                let at = usize::from(sent.saturating_sub(1)).min(last);
                Duration::from_millis(UNPROVEN_INTERVALS_MS[at])
            }
            Self::UnprovenLimit => UNPROVEN_PATIENCE,
        }
    }

    /// Returns true if nothing is sent again after `sent` transmissions.
    pub(crate) fn is_last(self, sent: u8) -> bool {
        self == Self::Unproven && usize::from(sent) > UNPROVEN_INTERVALS_MS.len()
    }

    /// Returns true if the timer retransmits rather than ends a state.
    pub(crate) fn retransmits(self) -> bool {
        match self {
            Self::A | Self::E | Self::G | Self::Answer | Self::Unproven => true,
            Self::B
            | Self::D
            | Self::F
            | Self::H
            | Self::I
            | Self::J
            | Self::K
            | Self::L
            | Self::M
            | Self::UnprovenLimit => false,
        }
    }
}

/// A transaction of either side.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Tx {
    /// A transaction that we started.
    Client(ClientTx),
    /// A transaction that a peer started.
    Server(ServerTx),
}

impl From<ClientTx> for Tx {
    fn from(tx: ClientTx) -> Self {
        Self::Client(tx)
    }
}

impl From<ServerTx> for Tx {
    fn from(tx: ServerTx) -> Self {
        Self::Server(tx)
    }
}

/// A timer that fired, with its transaction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct FiredTimer {
    pub(crate) tx: Tx,
    pub(crate) timer: Timer,
}

/// The timers of one transaction.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct RunningTimers {
    pub(crate) retransmit: Option<TimerId>,
    pub(crate) limit: Option<TimerId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times {
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        t4: Duration::from_secs(5),
    };

    #[test]
    fn lengths_are_those_of_the_table_in_rfc_3261() {
        let cases = [
            (Timer::B, 32_000, 32_000),
            (Timer::D, 32_000, 0),
            (Timer::F, 32_000, 32_000),
            (Timer::H, 32_000, 32_000),
            (Timer::I, 5_000, 0),
            (Timer::J, 32_000, 0),
            (Timer::K, 5_000, 0),
            (Timer::L, 32_000, 32_000),
            (Timer::M, 32_000, 32_000),
        ];

        for (timer, unreliable, reliable) in cases {
            let length = |transport| timer.length(0, TIMES, transport).as_millis();
            assert_eq!(length(Transport::Udp), unreliable, "{timer:?} on UDP");
            assert_eq!(length(Transport::Tcp), reliable, "{timer:?} on TCP");
            assert_eq!(length(Transport::Tls), reliable, "{timer:?} on TLS");
        }
    }

    #[test]
    fn intervals_double_and_all_but_invites_stop_at_t2() {
        let intervals = |timer: Timer| -> Vec<_> {
            (1..=6)
                .map(|sent| timer.length(sent, TIMES, Transport::Udp).as_millis())
                .collect()
        };
        assert_eq!(
            intervals(Timer::A),
            [500, 1_000, 2_000, 4_000, 8_000, 16_000]
        );
        for timer in [Timer::E, Timer::G, Timer::Answer] {
            assert_eq!(
                intervals(timer),
                [500, 1_000, 2_000, 4_000, 4_000, 4_000],
                "{timer:?}"
            );
        }
    }
}
