//! Log-ins that were refused, so that a retransmission isn't counted as another guess: wrong credentials get a stateless challenge, so no
//! transaction knows their copies.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;

use trunkline_sip::wire::Message;

/// Refused requests of a shard, the newest.
#[derive(Debug, Default)]
pub(crate) struct RefusedLogIns {
    /// Hashed with a secret, so that no guess can be made to look like another one.
    hasher: RandomState,
    recent: VecDeque<u64>,
}

impl RefusedLogIns {
    /// Requests that are kept; the oldest is forgotten.
    const KEPT: usize = 256;

    /// Notes a refused request. Returns false for a copy of a recent one of the same source: a retransmission has the same octets (RFC 3261
    /// §17.1.1.2). One octet more or less is another guess.
    pub(crate) fn is_new(&mut self, source: SocketAddr, message: &Message<'_>) -> bool {
        let request = self.hasher.hash_one((source, message.raw()));
        if self.recent.contains(&request) {
            return false;
        }

        self.recent.push_back(request);
        if self.recent.len() > Self::KEPT {
            self.recent.pop_front();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    #[test]
    fn a_guess_counts_once() {
        let mut refused = RefusedLogIns::default();
        let mut is_new = |port: u16, branch: &str, response: &str| {
            let octets = format!(
                "INVITE sip:b SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK{branch}\r\nFrom: <sip:a>;tag=1\r\nTo: <sip:b>\r\n\
                 Call-ID: x\r\nCSeq: 2 INVITE\r\nAuthorization: Digest username=\"u\", response=\"{response}\"\r\n\r\n"
            );
            let message = lex(octets.as_bytes(), Framing::Datagram).expect("an INVITE");
            refused.is_new(SocketAddr::from(([192, 0, 2, 1], port)), &message)
        };

        assert!(is_new(5060, "1", "0"));
        assert!(!is_new(5060, "1", "0"), "a retransmission");
        for (case, port, branch, response) in [
            ("another password", 5060, "1", "1"),
            ("another transaction", 5060, "2", "0"),
            ("another source", 5061, "1", "0"),
        ] {
            assert!(is_new(port, branch, response), "{case}");
        }

        for guess in 0..RefusedLogIns::KEPT {
            assert!(is_new(5060, "3", &guess.to_string()));
        }
        assert_eq!(refused.recent.len(), RefusedLogIns::KEPT);
    }
}
