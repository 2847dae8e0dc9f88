//! The peer's address, learnt from what it sends (symmetric RTP, RFC 4961): candidates, and the one that is heard.
//!
//! Each offer and answer opens it anew. A source becomes the peer by four packets of one stream in sequence, so that a single
//! forged packet makes nobody the peer.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::Agreed;
use super::rtp::Header;

/// How long the learnt address must be silent before another port of its IP may take its place.
const RELEARN: Duration = Duration::from_secs(2);

/// Packets in sequence that make a source the peer.
const IN_SEQUENCE: u8 = 4;

/// Sources that are followed at once.
const CANDIDATES: usize = 8;

/// The learnt address, and the sources that may become it.
#[derive(Debug, Default)]
pub(super) struct Learning {
    source: Option<SocketAddr>,
    window: Window,
    /// The one heard last is at the back.
    candidates: VecDeque<Candidate>,
}

/// Sources that may become the peer while the learnt address is alive.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Window {
    /// All that the agreement admits.
    #[default]
    Open,
    /// The expected addresses alone: another one has been learnt meanwhile.
    Expected,
    /// None.
    Closed,
}

/// Standing of a source in an agreement.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// One of [`Agreed::sources`].
    Expected,
    /// Any other, where the trunk allows it.
    Allowed,
}

impl Learning {
    /// Begins anew after an offer and its answer. The learnt address is heard meanwhile, unless the peer moves.
    pub(super) fn restart(&mut self, agreed: &Agreed, moves: bool) {
        self.source = self
            .source
            .filter(|source| !moves && agreed.standing(*source).is_some());
        self.window = Window::Open;
        self.candidates.clear();
    }

    /// The learnt address.
    pub(super) const fn source(&self) -> Option<SocketAddr> {
        self.source
    }

    /// Whether a packet is the peer's. One that completes a sequence makes its source the peer. `silence` is the time since the
    /// peer was heard; `is_ours` tells whether an address is an RTP port of this node.
    pub(super) fn hears(
        &mut self,
        agreed: &Agreed,
        source: SocketAddr,
        header: &Header,
        silence: Duration,
        is_ours: impl Fn(SocketAddr) -> bool,
    ) -> bool {
        let is_learnt = self.source == Some(source);
        let Some(standing) = self.learnable(agreed, source, silence) else {
            return is_learnt;
        };

        if !self.follow(source, standing, header) {
            return is_learnt;
        }

        if self.yields(source, standing) {
            return is_learnt;
        }

        // Two calls would play each other's echo for ever.
        if !same(source, agreed.remote) && is_ours(source) {
            self.forget(source);
            return false;
        }

        self.candidates.clear();
        self.window = match standing {
            Standing::Expected => Window::Closed,
            Standing::Allowed => Window::Expected,
        };
        self.source = Some(source);

        true
    }

    /// The source's standing, if it may become the peer now.
    fn learnable(
        &self,
        agreed: &Agreed,
        source: SocketAddr,
        silence: Duration,
    ) -> Option<Standing> {
        let standing = agreed.standing(source)?;
        let in_window = match self.window {
            Window::Open => true,
            Window::Expected => standing == Standing::Expected,
            Window::Closed => false,
        };
        let has_moved = self.source.is_some_and(|learnt| {
            learnt != source && learnt.ip() == source.ip() && silence >= RELEARN
        });
        (in_window || has_moved).then_some(standing)
    }

    /// Whether an expected source is on its way, which goes before one that is merely allowed.
    fn yields(&self, source: SocketAddr, standing: Standing) -> bool {
        standing == Standing::Allowed
            && self
                .candidates
                .iter()
                .any(|other| other.source != source && other.standing == Standing::Expected)
    }

    /// Counts a packet, and returns whether it completes a sequence. With all places taken, the source that has been quiet the
    /// longest gives way.
    fn follow(&mut self, source: SocketAddr, standing: Standing, header: &Header) -> bool {
        let known = self.forget(source);
        let count = known.map_or(1, |known| known.count_with(header));
        if self.candidates.len() == CANDIDATES {
            self.candidates.pop_front();
        }
        self.candidates.push_back(Candidate {
            source,
            standing,
            ssrc: header.ssrc,
            sequence: header.sequence,
            count,
        });
        count >= IN_SEQUENCE
    }

    fn forget(&mut self, source: SocketAddr) -> Option<Candidate> {
        let at = self
            .candidates
            .iter()
            .position(|candidate| candidate.source == source)?;
        self.candidates.remove(at)
    }
}

impl Agreed {
    /// Whether the peer is on hold.
    pub(super) fn is_held(&self) -> bool {
        self.remote.port() == 0 || self.remote.ip().is_unspecified()
    }

    /// Whether packets of this payload type were negotiated.
    pub(super) fn accepts(&self, payload_type: u8) -> bool {
        payload_type == self.payload || Some(payload_type) == self.telephone_event
    }

    /// The source's standing; `None` if it can't be the peer.
    fn standing(&self, source: SocketAddr) -> Option<Standing> {
        let ip = source.ip().to_canonical();
        if self.sources.iter().any(|of| of.to_canonical() == ip) {
            return Some(Standing::Expected);
        }
        self.from_any.then_some(Standing::Allowed)
    }
}

/// A source, and how many packets of one stream have come from it in sequence.
#[derive(Copy, Clone, Debug)]
struct Candidate {
    source: SocketAddr,
    standing: Standing,
    ssrc: u32,
    sequence: u16,
    count: u8,
}

impl Candidate {
    /// The count with one more packet; a packet that came twice changes nothing.
    const fn count_with(&self, header: &Header) -> u8 {
        let is_same_stream = header.ssrc == self.ssrc;
        match header.sequence.wrapping_sub(self.sequence) {
            0 if is_same_stream => self.count,
            1 if is_same_stream => self.count.saturating_add(1),
            _ => 1,
        }
    }
}

fn same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNALLED: &str = "192.0.2.1:4000";
    const SIGNALLING: &str = "198.51.100.9:61000";
    const OTHER: &str = "203.0.113.66:9000";
    const MOVED: &str = "192.0.2.1:4002";

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn agreed(sources: [&str; 2], from_any: bool) -> Agreed {
        Agreed {
            remote: address(SIGNALLED),
            payload: 8,
            telephone_event: None,
            sources: sources.map(|source| address(source).ip()),
            from_any,
        }
    }

    /// Which of the packets (source, sequence, milliseconds since the peer was heard) are heard.
    fn heard(agreed: &Agreed, packets: &[(&str, u16, u64)]) -> String {
        let mut learning = Learning::default();
        learning.restart(agreed, true);
        packets
            .iter()
            .map(|(source, sequence, silence)| {
                let header = Header {
                    marker: false,
                    payload_type: 8,
                    sequence: *sequence,
                    timestamp: 0,
                    ssrc: u32::from(address(source).port()),
                };
                let silence = Duration::from_millis(*silence);
                let is_ours = |of: SocketAddr| of.port() == 9_000;
                if learning.hears(agreed, address(source), &header, silence, is_ours) {
                    '+'
                } else {
                    '-'
                }
            })
            .collect()
    }

    #[test]
    fn four_packets_in_sequence_make_the_peer() {
        /// Source, sequence number, milliseconds of silence before it.
        type Packets = &'static [(&'static str, u16, u64)];
        let public = [SIGNALLED, SIGNALLED];
        let natted = [SIGNALLING, SIGNALLING];
        let cases: [(&str, Agreed, Packets, &str); 9] = [
            (
                "over the wrap",
                agreed(public, false),
                &[
                    (SIGNALLED, 65_534, 0),
                    (SIGNALLED, 65_535, 0),
                    (SIGNALLED, 0, 0),
                    (SIGNALLED, 1, 0),
                ],
                "---+",
            ),
            (
                "one lost, one twice",
                agreed(public, false),
                &[
                    (SIGNALLED, 1, 0),
                    (SIGNALLED, 3, 0),
                    (SIGNALLED, 4, 0),
                    (SIGNALLED, 4, 0),
                    (SIGNALLED, 5, 0),
                    (SIGNALLED, 6, 0),
                ],
                "-----+",
            ),
            (
                "another address never",
                agreed(public, false),
                &[
                    (OTHER, 1, 0),
                    (OTHER, 2, 0),
                    (OTHER, 3, 0),
                    (OTHER, 4, 0),
                    (OTHER, 5, 0),
                ],
                "-----",
            ),
            (
                "behind a NAT: where the signalling comes from",
                agreed(natted, false),
                &[
                    (SIGNALLING, 1, 0),
                    (SIGNALLED, 1, 0),
                    (SIGNALLING, 2, 0),
                    (SIGNALLED, 2, 0),
                    (SIGNALLING, 3, 0),
                    (SIGNALLED, 3, 0),
                    (SIGNALLING, 4, 0),
                    (SIGNALLED, 4, 0),
                ],
                "------+-",
            ),
            (
                "another port of the IP while the first is alive",
                agreed(public, false),
                &[
                    (SIGNALLED, 1, 0),
                    (SIGNALLED, 2, 0),
                    (SIGNALLED, 3, 0),
                    (SIGNALLED, 4, 0),
                    (MOVED, 1, 1_990),
                    (MOVED, 2, 1_991),
                    (MOVED, 3, 1_992),
                    (MOVED, 4, 1_993),
                    (MOVED, 5, 1_994),
                    (SIGNALLED, 5, 1_999),
                ],
                "---+-----+",
            ),
            (
                "another port after two seconds of silence",
                agreed(public, false),
                &[
                    (SIGNALLED, 1, 0),
                    (SIGNALLED, 2, 0),
                    (SIGNALLED, 3, 0),
                    (SIGNALLED, 4, 0),
                    (MOVED, 1, 2_000),
                    (MOVED, 2, 2_020),
                    (MOVED, 3, 2_040),
                    (MOVED, 4, 2_060),
                    (SIGNALLED, 5, 1),
                ],
                "---+---+-",
            ),
            (
                "any address where the trunk allows it, but no port of ours",
                agreed(natted, true),
                &[
                    (OTHER, 1, 0),
                    (OTHER, 2, 0),
                    (OTHER, 3, 0),
                    (OTHER, 4, 0),
                    (MOVED, 1, 0),
                    (MOVED, 2, 0),
                    (MOVED, 3, 0),
                    (MOVED, 4, 0),
                ],
                "-------+",
            ),
            (
                "the expected one goes before one that is allowed",
                agreed(natted, true),
                &[
                    (MOVED, 1, 0),
                    (MOVED, 2, 0),
                    (MOVED, 3, 0),
                    (SIGNALLING, 1, 0),
                    (MOVED, 4, 0),
                    (SIGNALLING, 2, 0),
                    (SIGNALLING, 3, 0),
                    (SIGNALLING, 4, 0),
                    (MOVED, 5, 0),
                ],
                "-------+-",
            ),
            (
                "and after it",
                agreed(natted, true),
                &[
                    (MOVED, 1, 0),
                    (MOVED, 2, 0),
                    (MOVED, 3, 0),
                    (MOVED, 4, 0),
                    (SIGNALLING, 1, 0),
                    (SIGNALLING, 2, 0),
                    (SIGNALLING, 3, 0),
                    (SIGNALLING, 4, 0),
                    (MOVED, 5, 0),
                ],
                "---+---+-",
            ),
        ];
        for (name, agreed, packets, expected) in cases {
            assert_eq!(heard(&agreed, packets), expected, "{name}");
        }
    }

    #[test]
    fn a_port_of_this_node_is_the_peer_only_if_it_was_named() {
        let packets = [
            (OTHER, 1, 0),
            (OTHER, 2, 0),
            (OTHER, 3, 0),
            (OTHER, 4, 0),
            (OTHER, 5, 0),
        ];
        let mut agreed = agreed([OTHER, OTHER], false);
        assert_eq!(heard(&agreed, &packets), "-----");
        agreed.remote = address(OTHER);
        assert_eq!(heard(&agreed, &packets), "---++");
    }

    #[test]
    fn a_flood_of_sources_keeps_no_more_than_eight() {
        let agreed = agreed([SIGNALLED, SIGNALLED], false);
        let mut learning = Learning::default();
        for port in 1_000..2_000 {
            let source = SocketAddr::new(agreed.remote.ip(), port);
            learning.follow(
                source,
                Standing::Expected,
                &Header {
                    marker: false,
                    payload_type: 8,
                    sequence: 1,
                    timestamp: 0,
                    ssrc: 1,
                },
            );
        }
        assert_eq!(learning.candidates.len(), CANDIDATES);
    }
}
