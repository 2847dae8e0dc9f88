//! Blocks of messages, some sixty kilobytes each: filled in the open, then compressed and never changed.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::record::{Record, records};
use super::scan;
use super::shares::OrgOctets;

/// Octets of messages that fill a block of calls. LZ4 looks back no further, and what a shard, this and the compressed block take together stays in the
/// cache of a processor.
pub(super) const FULL: usize = 60 << 10;
/// Octets of messages in a block, at most, and the largest size that a header may claim. A block is closed once it has [`FULL`] octets, and the
/// message that fills it is in it as a whole. Files of earlier builds have blocks of up to a quarter of a megabyte and a message.
const MAX_RAW: usize = (256 << 10) + (1 << 20);

/// Block being filled.
#[derive(Debug, Default)]
pub(super) struct Open {
    octets: Vec<u8>,
    places: Vec<Place>,
    span: Option<(Moment, Moment)>,
    orgs: OrgOctets,
}

/// Message in an open block.
#[derive(Copy, Clone, Debug)]
struct Place {
    key: u64,
    start: usize,
    /// It was moved to another block.
    is_gone: bool,
}

/// Returns the key under which a message is found.
fn key_of(record: &Record<'_>) -> u64 {
    match record.leg {
        Some(leg) => scan::key(leg.call.as_bytes()),
        None => scan::key(scan::Seen::of(record.octets).call_id),
    }
}

impl Open {
    /// Appends a message, whose key is known if it has no leg. Drops one for which the block has no room.
    pub(super) fn push(&mut self, record: &Record<'_>, key: u64) {
        let start = self.octets.len();
        record.push(&mut self.octets);
        self.note(start, record, key);
    }

    /// Notes the message that was appended at `start`, or takes it back.
    fn note(&mut self, start: usize, record: &Record<'_>, key: u64) {
        // A reader refuses a larger block, and with it the rest of the segment.
        if self.octets.len() > MAX_RAW {
            self.octets.truncate(start);
            return;
        }
        self.places.push(Place {
            key,
            start,
            is_gone: false,
        });
        if let Some(leg) = record.leg {
            self.orgs.add(leg.org, self.octets.len() - start);
        }
        let at = Moment::from_micros(record.at);
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
    }

    /// Returns true if it has so many octets.
    pub(super) fn has(&self, octets: usize) -> bool {
        self.octets.len() >= octets
    }

    /// Time of its first message.
    pub(super) fn began(&self) -> Option<Moment> {
        self.span.map(|(first, _)| first)
    }

    /// Returns the block's messages, if some of them may be wanted.
    pub(super) fn records(&self, wanted: &BlockQuery<'_>) -> impl Iterator<Item = Record<'_>> {
        let holds = |key| self.places.iter().any(|place| place.key == key);
        let touches = self
            .span
            .is_some_and(|(first, last)| wanted.touches(first, last, holds));
        let places = if touches { &self.places[..] } else { &[] };
        let places = places.iter().filter(|place| !place.is_gone);
        places.filter_map(|place| records(&self.octets[place.start..]).next())
    }

    /// Passes the messages with these keys to `take`, and drops those for which it returns true. Passes `left` messages at most, and counts
    /// them off. Returns whether any was taken.
    pub(super) fn move_out(
        &mut self,
        keys: &HashSet<u64>,
        left: &mut usize,
        mut take: impl FnMut(&Record<'_>) -> bool,
    ) -> bool {
        let mut any = false;
        let places = self.places.iter_mut();
        for place in places.filter(|place| !place.is_gone && keys.contains(&place.key)) {
            if *left == 0 {
                break;
            }
            *left -= 1;

            let Some(record) = records(&self.octets[place.start..]).next() else {
                continue;
            };
            place.is_gone = take(&record);
            any |= place.is_gone;
        }
        any
    }

    /// Appends a message that was in another block.
    pub(super) fn keep(&mut self, record: &Record<'_>) {
        let start = self.octets.len();
        self.octets.extend_from_slice(record.whole);
        self.note(start, record, key_of(record));
    }

    /// Drops the messages for which `goes` is true; returns their number.
    pub(super) fn drop_if(&mut self, goes: impl Fn(&Record<'_>) -> bool) -> u64 {
        let mut left = Self::default();
        let mut gone = 0;
        for record in self.records(&BlockQuery::ALL) {
            match goes(&record) {
                true => gone += 1,
                false => left.keep(&record),
            }
        }
        if gone > 0 {
            *self = left;
        }
        gone
    }

    /// Drops all messages. The buffers are reused.
    pub(super) fn clear(&mut self) {
        self.octets.clear();
        self.places.clear();
        self.span = None;
        self.orgs = OrgOctets::default();
    }

    /// Frees the buffers if the block is empty.
    pub(super) fn rest(&mut self) {
        if self.octets.is_empty() {
            *self = Self::default();
        }
    }

    /// Compresses the block, using `scratch`, and empties it. The buffers are reused.
    pub(super) fn close(&mut self, scratch: &mut Vec<u8>) -> Option<Block> {
        let span = self.span.take().filter(|_| !self.places.is_empty())?;
        let mut keys: Vec<u64> = self.places.drain(..).map(|place| place.key).collect();
        // `touches` searches them by halves.
        keys.sort_unstable();
        keys.dedup();
        let block = Block {
            span,
            raw: self.octets.len(),
            keys: keys.into(),
            packed: pack(&self.octets, scratch).into(),
            orgs: std::mem::take(&mut self.orgs),
            whole: None,
        };
        self.octets.clear();
        Some(block)
    }
}

/// Compresses into `scratch`, which is reused instead of being zeroed for each block.
fn pack<'s>(octets: &[u8], scratch: &'s mut Vec<u8>) -> &'s [u8] {
    let most = lz4_flex::block::get_maximum_output_size(octets.len());
    if scratch.len() < most {
        scratch.resize(most, 0);
    }
    let packed = lz4_flex::block::compress_into(octets, scratch)
        .expect("there is room for the most that it can be");
    &scratch[..packed]
}

/// Search for messages with one of these keys, or any, within a time.
#[derive(Copy, Clone, Debug)]
pub(super) struct BlockQuery<'a> {
    pub(super) keys: Option<&'a [u64]>,
    pub(super) from: Moment,
    pub(super) until: Moment,
}

impl BlockQuery<'_> {
    /// Search for everything.
    pub(super) const ALL: Self = Self {
        keys: None,
        from: Moment::from_micros(0),
        until: Moment::from_micros(u64::MAX),
    };

    fn touches(&self, first: Moment, last: Moment, holds: impl Fn(u64) -> bool) -> bool {
        first <= self.until
            && last >= self.from
            && self
                .keys
                .is_none_or(|keys| keys.iter().any(|key| holds(*key)))
    }
}

/// Compressed block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) span: (Moment, Moment),
    raw: usize,
    keys: Box<[u64]>,
    packed: Box<[u8]>,
    /// Octets of its orgs before they were compressed. Unknown of one that was read from a file.
    pub(super) orgs: OrgOctets,
    /// Hash of the block that it is a part of, since the messages of some orgs were dropped.
    whole: Option<u64>,
}

/// By their messages: a block in memory is the same as the one in a file.
impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        (self.span, self.raw) == (other.span, other.raw)
            && (&self.keys, &self.packed) == (&other.keys, &other.packed)
    }
}

/// Size of a block's header in a file: lengths of the packed and the raw octets, times of the first and last message,
/// number of keys.
pub(super) const HEAD: usize = 4 + 4 + 8 + 8 + 4;

/// Header of a block in a file.
#[derive(Copy, Clone, Debug)]
pub(super) struct Head {
    pub(super) packed: usize,
    pub(super) keys: usize,
    raw: usize,
    span: (Moment, Moment),
}

impl Block {
    /// Memory that it uses.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.packed.len() + size_of_val(&*self.keys)
    }

    /// Returns true if it may have wanted messages.
    pub(super) fn touches(&self, wanted: &BlockQuery<'_>) -> bool {
        let (first, last) = self.span;
        wanted.touches(first, last, |key| self.keys.binary_search(&key).is_ok())
    }

    /// Returns the block without the messages of these orgs; `None` if it has no others.
    pub(super) fn without(&self, orgs: &HashSet<Uuid>, scratch: &mut Vec<u8>) -> Option<Self> {
        let messages = self.unpack();
        let mut left = Open::default();
        for record in records(&messages) {
            if record.leg.is_none_or(|leg| !orgs.contains(&leg.org)) {
                left.keep(&record);
            }
        }
        let left = left.close(scratch)?;
        let whole = Some(self.whole.unwrap_or_else(|| self.hash()));
        Some(Self { whole, ..left })
    }

    /// Returns whether it is this block, or what is left of it.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        self == other || self.whole.is_some_and(|whole| whole == other.hash())
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.span, self.raw, &self.keys, &self.packed).hash(&mut hasher);
        hasher.finish()
    }

    /// Decompresses its messages; empty if it is damaged.
    pub(super) fn unpack(&self) -> Vec<u8> {
        lz4_flex::block::decompress(&self.packed, self.raw).unwrap_or_default()
    }

    /// Appends it to the content of a file.
    pub(super) fn write(&self, file: &mut Vec<u8>) {
        let (first, last) = self.span;
        // No length is beyond 32 bits. If one were, the reader would refuse its 0.
        for length in [self.packed.len(), self.raw] {
            file.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_le_bytes());
        }
        for moment in [first, last] {
            file.extend_from_slice(&moment.as_micros().to_le_bytes());
        }
        file.extend_from_slice(&u32::try_from(self.keys.len()).unwrap_or(0).to_le_bytes());
        for key in &self.keys {
            file.extend_from_slice(&key.to_le_bytes());
        }
        file.extend_from_slice(&self.packed);
    }
}

impl Head {
    /// Reads a header; `None` if it can't be one.
    pub(super) fn read(head: &[u8; HEAD]) -> Option<Self> {
        let word = |at: usize| {
            let word = head[at..at + 4].first_chunk().copied().unwrap_or_default();
            usize::try_from(u32::from_le_bytes(word)).unwrap_or(usize::MAX)
        };
        let moment = |at: usize| {
            let micros = head[at..at + 8].first_chunk().copied().unwrap_or_default();
            Moment::from_micros(u64::from_le_bytes(micros))
        };

        let read = Self {
            packed: word(0),
            raw: word(4),
            span: (moment(8), moment(16)),
            keys: word(24),
        };
        // A damaged length must not make the reader allocate gigabytes.
        let is_sane = (1..=2 * MAX_RAW).contains(&read.packed)
            && (1..=MAX_RAW).contains(&read.raw)
            && read.keys <= MAX_RAW;

        is_sane.then_some(read)
    }

    /// Time of its last message.
    pub(super) const fn last(&self) -> Moment {
        self.span.1
    }

    /// Makes the block of the keys and the packed octets that follow the header.
    pub(super) fn block(&self, keys: &[u8], packed: Vec<u8>) -> Block {
        Block {
            span: self.span,
            raw: self.raw,
            keys: keys
                .as_chunks()
                .0
                .iter()
                .map(|key| u64::from_le_bytes(*key))
                .collect(),
            packed: packed.into(),
            orgs: OrgOctets::default(),
            whole: None,
        }
    }
}
