//! Tokens of a worker's sockets: the place of the call, and the kind of socket.

use mio::Token;

/// Token of the waker.
pub(super) const WAKER: Token = Token(usize::MAX);

const KINDS: usize = 3;

/// Owner of a token.
pub(super) enum Socket {
    Rtp(usize),
    Rtcp(usize),
    Bot(usize),
}

impl Socket {
    pub(super) const fn of(token: Token) -> Self {
        let call = token.0 / KINDS;
        match token.0 % KINDS {
            0 => Self::Rtp(call),
            1 => Self::Rtcp(call),
            _ => Self::Bot(call),
        }
    }

    /// Returns the place of the call.
    pub(super) const fn place(self) -> usize {
        match self {
            Self::Rtp(call) | Self::Rtcp(call) | Self::Bot(call) => call,
        }
    }

    pub(super) const fn token(self) -> Token {
        Token(match self {
            Self::Rtp(call) => call * KINDS,
            Self::Rtcp(call) => call * KINDS + 1,
            Self::Bot(call) => call * KINDS + 2,
        })
    }
}
