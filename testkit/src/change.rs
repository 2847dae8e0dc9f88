//! Random changes of messages, at places and with octets that matter to a parser.

use proptest::collection::vec;
use proptest::prelude::*;

/// One change of a message.
#[derive(Clone, Debug)]
pub enum Change {
    /// Overwrites octets.
    Put(prop::sample::Index, Vec<u8>),
    Insert(prop::sample::Index, Vec<u8>),
    Cut(prop::sample::Index, usize),
    /// Copies the piece at one place to another.
    Copy(prop::sample::Index, usize, prop::sample::Index),
}

/// Octets that matter to some parser.
fn significant() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = vec![
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"\r\n ",
        b"\r\n\r\n",
        // Delimiters, plain and escaped.
        b"\"",
        b"\\",
        b"<",
        b">",
        b";",
        b",",
        b":",
        b"@",
        b"%00",
        b"%0d%0a",
        b"[",
        b"]",
        b"=",
        b"/",
        b" ",
        b"\t",
        // Words that parsers look for, and numbers past their range.
        b"SIP/2.0",
        b"tag=",
        b";branch=",
        b"l: 0\r\n",
        b"99999999999",
        b"-1",
    ];

    prop_oneof![
        prop::sample::select(words).prop_map(<[u8]>::to_vec),
        vec(any::<u8>(), 1..4),
    ]
}

/// A random change at a random place.
pub fn change() -> impl Strategy<Value = Change> {
    use prop::sample::Index;
    prop_oneof![
        (any::<Index>(), significant()).prop_map(|(at, octets)| Change::Put(at, octets)),
        (any::<Index>(), significant()).prop_map(|(at, octets)| Change::Insert(at, octets)),
        (any::<Index>(), 1..40_usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (any::<Index>(), 1..120_usize, any::<Index>())
            .prop_map(|(at, length, to)| Change::Copy(at, length, to)),
    ]
}

/// Returns the octets after these changes, in their order. Places are fractions of the length.
pub fn changed(mut octets: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let size = octets.len() + 1;

        match change {
            Change::Put(at, put) => {
                let at = at.index(size);
                let end = (at + put.len()).min(octets.len());
                octets.splice(at..end, put.iter().copied());
            }

            Change::Insert(at, put) => {
                let at = at.index(size);
                octets.splice(at..at, put.iter().copied());
            }

            Change::Cut(at, length) => {
                let at = at.index(size);
                let end = (at + length).min(octets.len());
                octets.drain(at..end);
            }

            Change::Copy(at, length, to) => {
                let at = at.index(size);
                let piece = octets[at..(at + length).min(octets.len())].to_vec();
                let to = to.index(size);
                octets.splice(to..to, piece);
            }
        }
    }

    octets
}
