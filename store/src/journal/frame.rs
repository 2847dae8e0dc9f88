//! Format of a fact in a segment: a line with its own length and checksum.
//!
//! `length crc position json\n`: length of the JSON in octets, and CRC-32 of all that follows it, as eight hexadecimal digits each, and the
//! position as sixteen. People and grep can read the lines, and a truncated or damaged line is recognised.

use super::position::FactPosition;

/// Octets in front of the JSON.
const HEAD: usize = 8 + 1 + 8 + 1 + 16 + 1;

/// Longest fact in octets. A fact has some hundred octets, with a routing decision a few thousand. A longer one isn't written, and an
/// error is logged.
pub(super) const LONGEST: usize = 1 << 20;

/// Lines of facts whose positions aren't known yet: serialised before the queue is locked.
#[derive(Debug, Default)]
pub(super) struct Draft {
    octets: Vec<u8>,
    /// Start of each line, and the number of its fact within the batch.
    lines: Vec<(usize, u64)>,
}

impl Draft {
    /// Adds the line of the fact with this number; `write` appends its JSON.
    ///
    /// # Errors
    /// The error of `write`, or the fact is too long; the draft is unchanged then.
    pub(super) fn add(
        &mut self,
        number: u64,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
    ) -> Result<(), Unwritable> {
        let start = self.octets.len();
        self.octets.resize(start + HEAD, b' ');
        let written = write(&mut self.octets).map_err(Unwritable::Json);
        let length = self.octets.len() - start - HEAD;

        let fits = if length > LONGEST {
            Err(Unwritable::TooLong(length))
        } else {
            Ok(())
        };

        let written = written.and(fits);
        if written.is_err() {
            self.octets.truncate(start);
            return written;
        }

        hex(&mut self.octets[start..start + 8], length as u64);
        self.octets.push(b'\n');
        self.lines.push((start, number));

        Ok(())
    }

    /// Returns the lines; the fact with number 0 gets the position `first`.
    pub(super) fn placed(&mut self, first: FactPosition) -> &[u8] {
        for (at, &(start, number)) in self.lines.iter().enumerate() {
            let next = self.lines.get(at + 1);
            let end = next.map_or(self.octets.len(), |&(start, _)| start) - 1;
            let line = &mut self.octets[start..end];
            // In the head, the CRC begins at octet 9 and the position at 18.
            hex(&mut line[18..34], first.0 + number);
            let sum = crc32fast::hash(&line[18..]);
            hex(&mut line[9..17], u64::from(sum));
        }
        &self.octets
    }

    /// Returns the length of the lines in octets.
    pub(super) const fn len(&self) -> usize {
        self.octets.len()
    }

    /// Clears the draft, and keeps at most `room` octets of capacity.
    pub(super) fn clear(&mut self, room: usize) {
        self.octets.clear();
        self.octets.shrink_to(room);
        self.lines.clear();
    }
}

/// Appends the line of a fact whose position is known.
#[cfg(test)]
pub(super) fn append(
    octets: &mut Vec<u8>,
    position: FactPosition,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<(), Unwritable> {
    let mut draft = Draft::default();
    draft.add(0, write)?;
    octets.extend_from_slice(draft.placed(position));
    Ok(())
}

/// Fills `digits` with the number's last hexadecimal digits.
fn hex(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number % 16) as usize];
        number /= 16;
    }
}

/// Reason why a fact can't be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unwritable {
    #[error("it is no JSON")]
    Json(#[source] serde_json::Error),
    #[error("it is {0} octets long")]
    TooLong(usize),
}

/// A piece of a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece<'s> {
    /// A whole line.
    Fact {
        position: FactPosition,
        json: &'s [u8],
    },
    /// Damaged octets, with whole lines behind them.
    Damage { octets: &'s [u8] },
    /// Octets up to the end that are no line: an interrupted write.
    Torn { from: usize },
}

/// Iterator over the pieces of a segment.
#[derive(Debug)]
pub(super) struct Pieces<'s> {
    octets: &'s [u8],
    at: usize,
}

impl<'s> Pieces<'s> {
    pub(super) const fn new(octets: &'s [u8]) -> Self {
        Self { octets, at: 0 }
    }

    /// Returns the start of the next whole line: behind a line feed, or at the end that the length in this line gives, in case the line
    /// feed itself is damaged. No other place counts, since text from a caller could look like a line within a fact.
    fn whole_line_behind(&self) -> Option<usize> {
        let rest = &self.octets[self.at..];
        let by_length = claimed_length(rest).map(|length| HEAD + length + 1);
        let is_whole = |&start: &usize| rest.get(start..).and_then(line).is_some();
        let line_feeds = rest
            .iter()
            .enumerate()
            .filter(|&(_, &octet)| octet == b'\n');
        let by_line_feed = line_feeds.map(|(end, _)| end + 1).find(is_whole);
        let behind = by_length
            .filter(is_whole)
            .into_iter()
            .chain(by_line_feed)
            .min();
        behind.map(|start| self.at + start)
    }
}

impl<'s> Iterator for Pieces<'s> {
    type Item = Piece<'s>;

    fn next(&mut self) -> Option<Piece<'s>> {
        if self.at == self.octets.len() {
            return None;
        }
        if let Some((position, json)) = line(&self.octets[self.at..]) {
            self.at += HEAD + json.len() + 1;
            return Some(Piece::Fact { position, json });
        }
        // Damage in the middle costs only the facts in it: reading goes on at the next whole line. Without one, a write
        // was interrupted here.
        let from = self.at;
        let behind = self.whole_line_behind();
        self.at = behind.unwrap_or(self.octets.len());
        Some(behind.map_or(Piece::Torn { from }, |start| Piece::Damage {
            octets: &self.octets[from..start],
        }))
    }
}

/// Parses the whole line at the beginning of `octets`.
fn line(octets: &[u8]) -> Option<(FactPosition, &[u8])> {
    let head: &[u8; HEAD] = octets.first_chunk()?;
    let length = claimed_length(octets)?;
    let sum = hexadecimal(&head[9..17])?;
    let position = FactPosition(hexadecimal(&head[18..34])?);
    let summed = octets.get(18..HEAD + length)?;
    let is_whole = octets.get(HEAD + length) == Some(&b'\n') && head[8] == b' ' && head[17] == b' ';
    (is_whole && u64::from(crc32fast::hash(summed)) == sum)
        .then(|| (position, &octets[HEAD..HEAD + length]))
}

fn claimed_length(octets: &[u8]) -> Option<usize> {
    let length = usize::try_from(hexadecimal(octets.get(..8)?)?).ok()?;
    (length <= LONGEST).then_some(length)
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    // The parser of the standard library also accepts capitals and a sign, which no line of ours has.
    let is_ours = digits
        .iter()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(digits).ok().filter(|_| is_ours)?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(facts: &[&str]) -> (Vec<u8>, Vec<usize>) {
        let (mut octets, mut ends) = (Vec::new(), vec![0]);
        for (at, fact) in facts.iter().enumerate() {
            append(&mut octets, FactPosition(at as u64 + 1), |out| {
                serde_json::to_writer(out, fact)
            })
            .unwrap();
            ends.push(octets.len());
        }
        (octets, ends)
    }

    fn facts(octets: &[u8]) -> Vec<String> {
        let fact = |piece| match piece {
            Piece::Fact { json, .. } => Some(serde_json::from_slice(json).unwrap()),
            Piece::Damage { .. } | Piece::Torn { .. } => None,
        };
        Pieces::new(octets).filter_map(fact).collect()
    }

    #[test]
    fn a_line_can_be_read_by_eye() {
        let (octets, _) = segment(&["one"]);
        assert_eq!(
            String::from_utf8(octets).unwrap(),
            "00000005 e0858e22 0000000000000001 \"one\"\n"
        );
    }

    #[test]
    fn cut_at_any_octet_the_whole_facts_before_it_are_read_and_the_rest_is_torn() {
        let all = ["one", "", "line\nfeed \u{1f4de}", "four"];
        let (octets, ends) = segment(&all);
        for cut in 0..=octets.len() {
            let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
            assert_eq!(facts(&octets[..cut]), all[..whole], "cut at {cut}");
            let torn = (cut > ends[whole]).then_some(Piece::Torn { from: ends[whole] });
            assert_eq!(Pieces::new(&octets[..cut]).nth(whole), torn, "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_octet_costs_one_fact_and_no_other() {
        let all = ["one", "two", "three"];
        let (octets, ends) = segment(&all);
        for at in 0..octets.len() {
            let mut damaged = octets.clone();
            damaged[at] ^= 0x04;
            let hit = ends.iter().filter(|&&end| end <= at).count() - 1;
            let left: Vec<_> = (0..all.len())
                .filter(|&fact| fact != hit)
                .map(|fact| all[fact])
                .collect();
            assert_eq!(facts(&damaged), left, "octet {at}");
        }
    }

    #[test]
    fn what_cannot_be_written_leaves_no_trace() {
        let (mut octets, _) = segment(&["one"]);
        let before = octets.clone();
        let too_long = "x".repeat(LONGEST);
        let refused = append(&mut octets, FactPosition(2), |out| {
            serde_json::to_writer(out, &too_long)
        });
        assert!(matches!(refused, Err(Unwritable::TooLong(length)) if length == LONGEST + 2));

        let no_json = std::collections::HashMap::from([((1, 2), 3)]);
        let refused = append(&mut octets, FactPosition(2), |out| {
            serde_json::to_writer(out, &no_json)
        });
        assert!(matches!(refused, Err(Unwritable::Json(_))));
        assert_eq!(octets, before);

        let mut draft = Draft::default();
        let mut add =
            |number, fact: &str| draft.add(number, |out| serde_json::to_writer(out, fact));
        add(0, "one").unwrap();
        add(1, &too_long).unwrap_err();
        add(2, "three").unwrap();

        let positions: Vec<_> = Pieces::new(draft.placed(FactPosition(7)))
            .map(|piece| match piece {
                Piece::Fact { position, json } => (position.0, json.len()),
                Piece::Damage { .. } | Piece::Torn { .. } => panic!("{piece:?}"),
            })
            .collect();

        assert_eq!(positions, [(7, 5), (9, 7)], "it keeps its position");
    }

    proptest::proptest! {
        #[test]
        fn no_octets_make_it_panic_or_miss_the_end(octets: Vec<u8>) {
            let mut pieces = Pieces::new(&octets);
            while pieces.next().is_some() {}
            assert_eq!(pieces.at, octets.len());
        }
    }
}
