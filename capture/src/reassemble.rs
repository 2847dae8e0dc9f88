//! Reassembly: IP packets from fragments, and messages from TCP streams. Bounded in number and size: a packet or message that isn't complete
//! within the bounds is dropped and counted.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;

use super::decode::{Fragment, FragmentKey};
use super::message::{header_end, is_sip, length_on_stream, without_empty_lines};

/// Most incomplete packets; beyond it, the oldest is dropped.
const MAX_PARTIAL: usize = 256;
/// Largest IP packet in octets.
const MAX_IP: usize = 65_535;
/// Most fragments of one packet; with more, the packet is dropped.
const MAX_PARTS: usize = 128;
/// Most octets held of one packet; with more, it is dropped. Fragments that overlap may hold more than the packet has, but not much more.
const MAX_HELD: usize = 2 * MAX_IP;
/// Most streams followed at once. Beyond it, a quarter of them is dropped, which isn't counted: those that were silent longest.
const MAX_STREAMS: usize = 4_096;
/// Most octets buffered for one direction of a stream: of one message in order, or out of order behind a gap. A longer message is dropped,
/// and a gap before more octets is skipped.
const MAX_STREAM: usize = 256 * 1024;
/// Most segments buffered out of order for one direction of a stream; with more, the gap before them is skipped.
const MAX_EARLY: usize = 4_096;
/// Longest start line in octets.
const LONGEST_LINE: usize = 16 * 1024;
/// Octets without a message after which a stream counts as another protocol.
const MAX_GARBAGE: usize = 128 * 1024;

#[derive(Debug, Default)]
struct Partial {
    parts: BTreeMap<usize, Vec<u8>>,
    /// Octets of all parts.
    held: usize,
    total: Option<usize>,
}

/// Fragments of incomplete packets.
#[derive(Debug, Default)]
pub struct Fragments {
    partial: HashMap<FragmentKey, Partial>,
    /// Their keys, the oldest at the front.
    order: VecDeque<FragmentKey>,
    /// Packets that were dropped.
    pub lost: u64,
}

impl Fragments {
    /// Adds a fragment; returns the packet's octets once complete.
    pub fn push(&mut self, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        if !self.partial.contains_key(&fragment.key) {
            self.make_room();
            self.order.push_back(fragment.key);
        }

        let partial = self.partial.entry(fragment.key).or_default();
        let end = fragment.offset + fragment.octets.len();
        let held = partial.held + fragment.octets.len();
        if end > MAX_IP || partial.parts.len() >= MAX_PARTS || held > MAX_HELD {
            self.partial.remove(&fragment.key);
            self.order.retain(|key| *key != fragment.key);
            self.lost += 1;
            return None;
        }

        if let Entry::Vacant(place) = partial.parts.entry(fragment.offset) {
            place.insert(fragment.octets.to_vec());
            partial.held = held;
        }

        if fragment.is_last {
            partial.total = Some(end);
        }

        let whole = partial.whole()?;
        self.partial.remove(&fragment.key);
        self.order.retain(|key| *key != fragment.key);

        Some(whole)
    }

    fn make_room(&mut self) {
        while self.order.len() >= MAX_PARTIAL {
            if let Some(oldest) = self.order.pop_front() {
                self.partial.remove(&oldest);
                self.lost += 1;
            }
        }
    }

    /// Returns the number of incomplete packets.
    pub fn waiting(&self) -> usize {
        self.partial.len()
    }
}

impl Partial {
    /// Returns the whole packet, if complete. Where fragments overlap, the first one counts.
    fn whole(&self) -> Option<Vec<u8>> {
        let total = self.total?;
        let mut whole = Vec::with_capacity(total);
        for (offset, part) in &self.parts {
            if *offset > whole.len() {
                return None;
            }
            whole.extend_from_slice(part.get(whole.len() - offset..).unwrap_or_default());
        }
        whole.truncate(total);
        (whole.len() == total).then_some(whole)
    }
}

/// Beginning of a status line.
const VERSION: &[u8] = b"SIP/2.0 ";

/// One direction of a connection: source and destination.
type Direction = (SocketAddr, SocketAddr);

#[derive(Debug)]
struct Stream {
    /// Sequence number of the next octet.
    next: u32,
    /// Position of the next octet, counted from the first. Sequence numbers wrap, positions don't.
    position: u64,
    /// Octets in order that belong to no complete message yet.
    held: Vec<u8>,
    progress: Progress,
    /// Segments out of order, by their position.
    early: BTreeMap<u64, Vec<u8>>,
    early_octets: usize,
    /// Octets since the last message that belong to none.
    garbage: usize,
    /// The stream carries another protocol.
    is_foreign: bool,
    /// Number of the last segment, counted over all streams.
    heard: u64,
}

/// Progress with the message at the start of a stream, so that no segment has its octets read again.
#[derive(Debug, Default)]
struct Progress {
    /// Its first line is that of a message.
    is_message: bool,
    /// Octets in which its header doesn't end.
    searched: usize,
    /// Its length, once its header is complete.
    length: Option<usize>,
}

/// The streams of a capture.
#[derive(Debug, Default)]
pub struct Streams {
    streams: HashMap<Direction, Stream>,
    segments: u64,
    /// Gaps: missing octets that were skipped.
    pub gaps: u64,
    /// Messages that exceed the buffer of a stream.
    pub oversized: u64,
}

impl Streams {
    /// Adds a segment; returns the messages that are now complete.
    pub fn push(
        &mut self,
        direction: Direction,
        sequence: u32,
        [is_first, is_last]: [bool; 2],
        octets: &[u8],
    ) -> Vec<Vec<u8>> {
        self.segments += 1;

        if is_first {
            self.streams.remove(&direction);
        }

        if !self.streams.contains_key(&direction) {
            if octets.is_empty() && !is_first {
                return Vec::new();
            }
            self.make_room();
        }

        let segments = self.segments;
        let stream = self.streams.entry(direction).or_insert_with(|| Stream {
            next: sequence.wrapping_add(u32::from(is_first)),
            position: 0,
            held: Vec::new(),
            progress: Progress::default(),
            early: BTreeMap::new(),
            early_octets: 0,
            garbage: 0,
            is_foreign: false,
            heard: segments,
        });

        stream.heard = segments;
        let start = sequence.wrapping_add(u32::from(is_first));
        if !stream.is_foreign {
            stream.take(start, octets);
        }

        let mut messages = Vec::new();
        stream.messages(&mut messages, &mut self.oversized);

        while stream.is_too_early() || (is_last && !stream.early.is_empty()) {
            self.gaps += 1;
            stream.skip_gap();
            stream.messages(&mut messages, &mut self.oversized);
        }

        if is_last {
            self.streams.remove(&direction);
        }

        messages
    }

    /// Returns messages that wait behind a gap at the end of the capture.
    pub fn finish(&mut self) -> Vec<(Direction, Vec<u8>)> {
        let mut found = Vec::new();
        let mut directions: Vec<_> = self.streams.keys().copied().collect();
        directions.sort_unstable();

        for direction in directions {
            let Some(mut stream) = self.streams.remove(&direction) else {
                continue;
            };
            while !stream.early.is_empty() {
                self.gaps += 1;
                stream.skip_gap();
                let mut messages = Vec::new();
                stream.messages(&mut messages, &mut self.oversized);
                found.extend(messages.into_iter().map(|message| (direction, message)));
            }
        }

        found
    }

    /// Drops the quarter of the streams that was silent longest.
    fn make_room(&mut self) {
        if self.streams.len() < MAX_STREAMS {
            return;
        }
        let mut heard: Vec<_> = self.streams.values().map(|stream| stream.heard).collect();
        heard.sort_unstable();
        let limit = heard[heard.len() / 4];
        self.streams.retain(|_, stream| stream.heard > limit);
    }
}

impl Stream {
    fn take(&mut self, start: u32, octets: &[u8]) {
        if octets.is_empty() {
            return;
        }

        let ahead = start.wrapping_sub(self.next);
        if ahead == 0 {
            self.accept(octets);
        } else if ahead > u32::MAX / 2 {
            // A retransmission, possibly with new octets at its end.
            let known = self.next.wrapping_sub(start) as usize;
            self.accept(octets.get(known..).unwrap_or_default());
        } else {
            let at = self.position + u64::from(ahead);
            if let Entry::Vacant(place) = self.early.entry(at) {
                self.early_octets += octets.len();
                place.insert(octets.to_vec());
            }
        }

        self.accept_due();
    }

    /// Accepts the buffered segments that are now due.
    fn accept_due(&mut self) {
        while let Some(nearest) = self.early.first_entry()
            && *nearest.key() <= self.position
        {
            let (start, octets) = nearest.remove_entry();
            self.early_octets -= octets.len();
            let known = usize::try_from(self.position - start).unwrap_or(usize::MAX);
            self.accept(octets.get(known..).unwrap_or_default());
        }
    }

    fn is_too_early(&self) -> bool {
        self.early_octets > MAX_STREAM || self.early.len() > MAX_EARLY
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "sequence numbers wrap, and a segment is shorter than 4 GiB"
    )]
    fn accept(&mut self, octets: &[u8]) {
        self.next = self.next.wrapping_add(octets.len() as u32);
        self.position += octets.len() as u64;
        self.held.extend_from_slice(octets);
    }

    /// Skips the missing octets; a partial message before them is lost.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "sequence numbers wrap, as the cast does"
    )]
    fn skip_gap(&mut self) {
        self.held.clear();
        self.progress = Progress::default();
        if let Some((start, _)) = self.early.first_key_value() {
            self.next = self.next.wrapping_add((start - self.position) as u32);
            self.position = *start;
            self.accept_due();
        }
    }

    /// Removes octets from the start, so that another message may begin there.
    fn cut(&mut self, octets: usize) -> Vec<u8> {
        if octets > 0 {
            self.progress = Progress::default();
        }
        self.held.drain(..octets).collect()
    }

    /// Returns the length of the message at the start; `None` while its header is incomplete.
    fn length(&mut self) -> Option<usize> {
        let Progress {
            searched, length, ..
        } = &mut self.progress;
        if length.is_none() {
            // The empty line may have begun in the segment before.
            let from = searched.saturating_sub(3);
            *searched = self.held.len();
            header_end(&self.held[from..])?;
            *length = length_on_stream(&self.held);
        }
        *length
    }

    fn messages(&mut self, found: &mut Vec<Vec<u8>>, oversized: &mut u64) {
        loop {
            let skipped = self.held.len() - without_empty_lines(&self.held).len();
            self.cut(skipped);

            if self.held.is_empty() {
                return;
            }

            if !self.progress.is_message {
                let has_line = memchr::memchr(b'\n', &self.held).is_some();
                if (has_line || self.held.len() > LONGEST_LINE) && !is_sip(&self.held) {
                    self.resynchronise();
                    continue;
                }
                self.progress.is_message = has_line;
            }

            let length = self.length();
            if length.unwrap_or(self.held.len()) > MAX_STREAM {
                *oversized += 1;
                self.held = Vec::new();
                self.progress = Progress::default();
                return;
            }

            let Some(length) = length.filter(|length| *length <= self.held.len()) else {
                return;
            };

            self.garbage = 0;
            found.push(self.cut(length));
        }
    }

    /// Finds the next line that begins a message, in a capture that begins within one, or another protocol.
    fn resynchronise(&mut self) {
        let next = next_message(&self.held);
        let skipped = next.unwrap_or(self.held.len());
        self.cut(skipped);
        self.garbage = self.garbage.saturating_add(skipped);

        if self.garbage > MAX_GARBAGE {
            self.is_foreign = true;
            self.held = Vec::new();
            self.early = BTreeMap::new();
            self.early_octets = 0;
        }
    }
}

/// Returns the place behind the first octet at which the next message begins: a line, or a status line within one, since a body needs no line end
/// and a response may follow right behind it. Each octet is read a few times at most, whatever the stream repeats.
fn next_message(octets: &[u8]) -> Option<usize> {
    let version = memchr::memmem::Finder::new(VERSION);
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', octets) {
        let line = &octets[start..=end];
        if start > 0 && is_sip(line) {
            return Some(start);
        }

        // Checked before `is_sip` reads the rest of the line: most of what looks like a version isn't followed by a status.
        let has_status = |at: &usize| {
            let status = line.get(at + VERSION.len()..at + VERSION.len() + 3);
            status.is_some_and(|status| status.iter().all(u8::is_ascii_digit))
        };
        let mut answers = version.find_iter(line).filter(has_status);
        if let Some(at) = answers.find(|at| start + at > 0 && is_sip(&line[*at..])) {
            return Some(start + at);
        }

        start = end + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const ONE: &[u8] = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 2\r\n\r\nhi";
    const TWO: &[u8] = b"SIP/2.0 200 OK\r\nl: 0\r\n\r\n";

    fn direction() -> Direction {
        let peer = |port| SocketAddr::from(([127, 0, 0, 1], port));
        (peer(5060), peer(5070))
    }

    fn piece(stream: &[u8], range: std::ops::Range<usize>) -> (u32, Vec<u8>) {
        let start = u32::try_from(range.start).unwrap();
        ((u32::MAX - 9).wrapping_add(start), stream[range].to_vec())
    }

    fn messages_of(pieces: &[(u32, Vec<u8>)]) -> Vec<Vec<u8>> {
        let mut streams = Streams::default();
        streams.push(direction(), u32::MAX - 10, [true, false], b"");
        let mut found = Vec::new();
        for (sequence, octets) in pieces {
            found.extend(streams.push(direction(), *sequence, [false, false], octets));
        }
        found.extend(streams.finish().into_iter().map(|(_, message)| message));
        found
    }

    #[test]
    fn messages_come_out_of_a_stream_in_any_order_of_its_pieces() {
        let stream = [ONE, b"\r\n\r\n", TWO].concat();
        let end = stream.len();
        for (name, pieces) in [
            ("whole", vec![0..end, end..end]),
            ("cut", vec![0..7, 7..30, 30..end]),
            ("swapped", vec![30..end, 0..7, 7..30]),
            (
                "doubled and overlapping",
                vec![0..20, 0..20, 10..40, 35..end, 7..30],
            ),
        ] {
            let pieces: Vec<_> = pieces
                .into_iter()
                .map(|range| piece(&stream, range))
                .collect();
            assert_eq!(messages_of(&pieces), [ONE, TWO], "{name}");
        }
    }

    #[test]
    fn a_message_is_found_octet_by_octet() {
        let stream = [ONE, b"\r\n", TWO, ONE].concat();
        let octets = (0..stream.len()).map(|at| piece(&stream, at..at + 1));
        assert_eq!(messages_of(&octets.collect::<Vec<_>>()), [ONE, TWO, ONE]);
    }

    #[test]
    fn octets_of_a_message_are_searched_once() {
        let mut streams = Streams::default();
        let head = b"OPTIONS sip:a SIP/2.0\r\nX: ";
        streams.push(direction(), 0, [false, false], head);
        streams.push(direction(), 26, [false, false], &[b'x'; 1_000]);
        let progress = |streams: &Streams| {
            let progress = &streams.streams[&direction()].progress;
            (progress.is_message, progress.searched, progress.length)
        };
        assert_eq!(progress(&streams), (true, 1_026, None));

        streams.push(direction(), 1_026, [false, false], b"\r\nl: 9\r\n\r\n");
        assert_eq!(progress(&streams).2, Some(1_036 + 9));
    }

    /// A search that read the rest of the stream at each repetition would not come to an end.
    #[test]
    fn a_stream_of_repetitions_is_searched_once() {
        let repeated = |text: &str| text.repeat((2 << 20) / text.len());
        for text in [
            "SIP/2.0 ",
            "SIP/2.0 2",
            "SIP/2.0 200 ",
            "\n",
            "\r\n",
            "a b SIP/2.0\r",
        ] {
            let mut stream = repeated(text).into_bytes();
            assert_eq!(next_message(&stream), None, "{text:?}");

            stream.extend_from_slice(b"x\r\n");
            let expected = (text == "SIP/2.0 200 ").then_some(text.len());
            assert_eq!(next_message(&stream), expected, "{text:?}, ended");
        }

        for (stream, found) in [
            (&b"xSIP/2.0 200 OK\r\n"[..], Some(1)),
            (b"x\nSIP/2.0 200 OK\r\n", Some(2)),
            (b"x\r\n\r\nOPTIONS sip:a SIP/2.0\r\n", Some(5)),
            (b"SIP/2.0 200 OK\r\n", None),
            (b"x\nSIP/2.0 200 OK", None),
        ] {
            assert_eq!(next_message(stream), found, "{stream:?}");
        }
    }

    #[test]
    fn segments_ahead_of_a_gap_are_bounded() {
        let mut streams = Streams::default();
        streams.push(direction(), u32::MAX, [false, false], b"O");
        for at in 0..100_000 {
            streams.push(direction(), 10 + 2 * at, [false, false], b"x");
            let stream = &streams.streams[&direction()];
            assert!(stream.early.len() <= MAX_EARLY, "{at}");
        }
        assert!(streams.gaps > 0);
    }

    #[test]
    fn a_gap_costs_the_message_that_it_is_in() {
        let stream = [ONE, TWO].concat();
        let pieces = [piece(&stream, 0..10), piece(&stream, 20..stream.len())];
        assert_eq!(messages_of(&pieces), [TWO]);
    }

    #[test]
    fn a_capture_may_begin_within_a_message_and_another_protocol_is_left_alone() {
        let stream = [&ONE[30..], TWO].concat();
        assert_eq!(messages_of(&[piece(&stream, 0..stream.len())]), [TWO]);
        let mut streams = Streams::default();
        for segment in 0..1_000_u32 {
            let found = streams.push(direction(), segment * 1_000, [false, false], &[0x17; 1_000]);
            assert!(found.is_empty());
        }
        assert!(streams.streams[&direction()].held.is_empty());
    }

    #[test]
    fn fragments_that_overlap_hold_little_more_than_their_packet() {
        let address = IpAddr::from([10, 0, 0, 1]);
        let octets = vec![0; 60_000];
        let mut fragments = Fragments::default();
        let mut most_held = 0;
        for number in 0..MAX_PARTS {
            let fragment = Fragment {
                key: FragmentKey {
                    source: address,
                    target: address,
                    identification: 1,
                    protocol: 17,
                },
                offset: 8 * number,
                is_last: false,
                octets: &octets,
            };
            assert_eq!(fragments.push(&fragment), None);
            let held = fragments.partial.values().map(|partial| partial.held);
            most_held = most_held.max(held.sum());
        }

        assert!(most_held <= MAX_HELD, "{most_held}");
        assert!(fragments.lost > 0);
    }

    #[test]
    fn fragments_make_a_packet_and_are_bounded() {
        let octets: Vec<u8> = (0..=255).cycle().take(3_000).collect();
        let address = IpAddr::from([10, 0, 0, 1]);
        let fragment = |identification, range: std::ops::Range<usize>| Fragment {
            key: FragmentKey {
                source: address,
                target: address,
                identification,
                protocol: 17,
            },
            offset: range.start,
            is_last: range.end == 3_000,
            octets: &octets[range],
        };

        let mut fragments = Fragments::default();
        assert_eq!(fragments.push(&fragment(1, 2_000..3_000)), None);
        assert_eq!(fragments.push(&fragment(1, 0..1_200)), None);
        assert_eq!(
            fragments.push(&fragment(1, 1_000..2_000)),
            Some(octets.clone())
        );

        for identification in 0..10_000 {
            assert_eq!(fragments.push(&fragment(identification, 0..8)), None);
        }

        assert_eq!(
            (fragments.waiting(), fragments.lost),
            (MAX_PARTIAL, 10_000 - 256)
        );
    }
}
