//! The peer's RTP address, learnt from the packets that it sends (symmetric RTP, RFC 4961).
//!
//! Each offer and answer starts learning again. A source becomes the peer after four packets of one stream in sequence, so that a single
//! forged packet can't redirect the media.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::NegotiatedMedia;
use super::rtp::Header;

/// Silence of the learnt address after which another port of its IP may replace it.
const RELEARN: Duration = Duration::from_secs(2);

/// Silence of an expected source after which it no longer takes precedence over one that is merely allowed: ten packets of 20 ms.
const YIELD: Duration = Duration::from_millis(200);

/// Packets in sequence after which a source becomes the peer.
const IN_SEQUENCE: u8 = 4;

/// Most sources followed at once.
const CANDIDATES: usize = 8;

/// The learnt address, and the sources that may become it.
#[derive(Debug, Default)]
pub(super) struct Learning {
    source: Option<SocketAddr>,
    window: Window,
    /// Sources in the order in which they were last heard, the latest at the back.
    candidates: VecDeque<Candidate>,
}

/// Sources that may become the peer while the learnt address is sending.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Window {
    /// Every source that the negotiated media admit.
    #[default]
    Open,
    /// The expected addresses only: another one has been learnt, and is merely allowed.
    Expected,
    /// No source.
    Closed,
}

/// Rank of a source under the negotiated media.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum SourceRank {
    /// One of [`NegotiatedMedia::sources`].
    Expected,
    /// Any other source, if the trunk allows it.
    Allowed,
}

impl Learning {
    /// Starts learning again after an offer and its answer. The learnt address stays in use meanwhile, unless the peer `moves`.
    pub(super) fn restart(&mut self, agreed: &NegotiatedMedia, moves: bool) {
        self.source = self
            .source
            .filter(|source| !moves && agreed.rank(*source).is_some());
        self.window = Window::Open;
        self.candidates.clear();
    }

    /// Returns the learnt address.
    pub(super) const fn source(&self) -> Option<SocketAddr> {
        self.source
    }

    /// Returns whether a packet is the peer's. A packet that completes a sequence makes its source the peer. `silence` is the time since
    /// the peer was heard; `is_ours` returns whether an address is an RTP port of this node.
    pub(super) fn hears(
        &mut self,
        agreed: &NegotiatedMedia,
        source: SocketAddr,
        header: &Header,
        silence: Duration,
        is_ours: impl Fn(SocketAddr) -> bool,
        now: Moment,
    ) -> bool {
        let is_learnt = self.source == Some(source);
        // The usual case: the peer is learnt, and its packets need no counting.
        let Some(rank) = self.learnable(agreed, source, silence) else {
            return is_learnt;
        };

        if !self.follow(source, rank, header, now) {
            return is_learnt;
        }

        // It stays a candidate, and its next packet in sequence makes it the peer once the expected source is silent.
        if self.yields(source, rank, now) {
            return is_learnt;
        }

        // Two calls of this node would play each other's echo for ever.
        if !same(source, agreed.remote) && is_ours(source) {
            self.forget(source);
            return false;
        }

        self.candidates.clear();
        self.window = match rank {
            SourceRank::Expected => Window::Closed,
            SourceRank::Allowed => Window::Expected,
        };
        self.source = Some(source);

        true
    }

    /// Returns the source's rank, if it may become the peer now.
    fn learnable(
        &self,
        agreed: &NegotiatedMedia,
        source: SocketAddr,
        silence: Duration,
    ) -> Option<SourceRank> {
        let rank = agreed.rank(source)?;
        let in_window = match self.window {
            Window::Open => true,
            Window::Expected => rank == SourceRank::Expected,
            Window::Closed => false,
        };
        // A NAT that loses its binding gives the same peer another port. A new IP address needs a new offer and answer.
        let has_moved = self.source.is_some_and(|learnt| {
            learnt != source && learnt.ip() == source.ip() && silence >= RELEARN
        });
        (in_window || has_moved).then_some(rank)
    }

    /// Returns whether a source that is merely allowed has to wait, because an expected source is being followed.
    fn yields(&self, source: SocketAddr, rank: SourceRank, now: Moment) -> bool {
        // Some phone systems send a packet or two from their signalling address, and their audio from another one.
        rank == SourceRank::Allowed
            && self
                .candidates
                .iter()
                .filter(|other| other.source != source && other.rank == SourceRank::Expected)
                .any(|other| now.since(other.heard_at) < YIELD)
    }

    /// Counts a packet, and returns whether it completes a sequence. With all places taken, the source that has been silent longest is
    /// dropped.
    fn follow(
        &mut self,
        source: SocketAddr,
        rank: SourceRank,
        header: &Header,
        now: Moment,
    ) -> bool {
        let known = self.forget(source);
        let count = known.map_or(1, |known| known.count_with(header));
        if self.candidates.len() == CANDIDATES {
            self.candidates.pop_front();
        }

        self.candidates.push_back(Candidate {
            source,
            rank,
            ssrc: header.ssrc,
            sequence: header.sequence,
            count,
            heard_at: now,
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

impl NegotiatedMedia {
    /// Returns the source's rank; `None` if it can't be the peer.
    fn rank(&self, source: SocketAddr) -> Option<SourceRank> {
        if self.expects(source.ip()) {
            return Some(SourceRank::Expected);
        }
        self.from_any.then_some(SourceRank::Allowed)
    }
}

/// A source, and the number of packets of one stream that it has sent in sequence.
#[derive(Copy, Clone, Debug)]
struct Candidate {
    source: SocketAddr,
    rank: SourceRank,
    ssrc: u32,
    sequence: u16,
    count: u8,
    heard_at: Moment,
}

impl Candidate {
    /// Returns the count including one more packet; a duplicate doesn't count.
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
    use trunkline_sip::dialog::sdp::{AudioPayload, Direction, PacketTime, PayloadTypes};

    use super::super::negotiated::MediaPeer;
    use super::*;

    const SIGNALLED: &str = "192.0.2.1:4000";
    const SIGNALLING: &str = "198.51.100.9:61000";
    const OTHER: &str = "203.0.113.66:9000";
    const START: Moment = Moment::from_secs(1_000);
    const MOVED: &str = "192.0.2.1:4002";

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn agreed(sources: [&str; 2], from_any: bool) -> NegotiatedMedia {
        NegotiatedMedia {
            remote: address(SIGNALLED),
            payload: AudioPayload::PCMA,
            telephone_event: None,
            received: PayloadTypes::of(AudioPayload::PCMA, None),
            direction: Direction::SendRecv,
            packet_time: PacketTime::default(),
            rtcp: None,
            sources: sources.map(|source| address(source).ip()),
            from_any,
            peer: MediaPeer::default(),
        }
    }

    /// Returns which of the packets (source, sequence, milliseconds since the peer was heard) are heard.
    fn heard(agreed: &NegotiatedMedia, packets: &[(&str, u16, u64)]) -> String {
        let mut learning = Learning::default();
        learning.restart(agreed, true);

        packets
            .iter()
            .enumerate()
            .map(|(at, (source, sequence, silence))| {
                let header = Header {
                    marker: false,
                    payload_type: 8,
                    sequence: *sequence,
                    timestamp: 0,
                    ssrc: u32::from(address(source).port()),
                };
                let silence = Duration::from_millis(*silence);
                let is_ours = |of: SocketAddr| of.port() == 9_000;
                let now = START + Duration::from_millis(20) * at as u32;
                match learning.hears(agreed, address(source), &header, silence, is_ours, now) {
                    true => '+',
                    false => '-',
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

        let cases: [(&str, NegotiatedMedia, Packets, &str); 9] = [
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
            // Addresses and ports that the SDP didn't name.
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
    fn an_expected_source_that_falls_silent_gives_way() {
        let mut packets = vec![(SIGNALLING, 1, 0), (SIGNALLING, 2, 0)];
        packets.extend((1..=12).map(|sequence| (MOVED, sequence, 0)));
        assert_eq!(
            heard(&agreed([SIGNALLING, SIGNALLING], true), &packets),
            "-----------+++",
            "200 ms behind the second packet"
        );
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
                SourceRank::Expected,
                &Header {
                    marker: false,
                    payload_type: 8,
                    sequence: 1,
                    timestamp: 0,
                    ssrc: 1,
                },
                START,
            );
        }

        assert_eq!(learning.candidates.len(), CANDIDATES);
    }
}
