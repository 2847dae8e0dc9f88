//! Messages out of streams cut at any place.

use proptest::prelude::*;

use super::*;
use crate::wire::{Framing, lex};

const MESSAGE: &[u8] = b"OPTIONS sip:a SIP/2.0\r\nContent-Length : 4\r\n\r\nbody";

fn frames(chunks: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let mut framer = Framer::new();
    let mut found = Vec::new();
    for chunk in chunks {
        framer.push(chunk);
        while let Some(frame) = framer.next_frame().expect("a readable stream") {
            found.push(match frame {
                Frame::Message(octets) => Some(octets.to_vec()),
                Frame::Ping => None,
            });
        }
    }
    assert_eq!(framer.len(), 0, "nothing is left over");
    found
}

#[test]
fn messages_come_out_however_they_are_cut() {
    let stream = [
        b"\r\n\r\n",
        MESSAGE,
        b"\r\n",
        MESSAGE,
        b"\r\n\r\n\r\n",
        MESSAGE,
    ]
    .concat();

    let message = || Some(MESSAGE.to_vec());
    let expected = [None, message(), message(), None, message()];
    for size in 1..=stream.len() {
        let chunks: Vec<&[u8]> = stream.chunks(size).collect();
        assert_eq!(frames(&chunks), expected, "in chunks of {size}");
    }
}

#[test]
fn a_length_is_found_however_it_is_written() {
    for (case, header) in [
        ("full", "Content-Length: 4"),
        ("compact", "l:4"),
        ("upper case", "CONTENT-LENGTH:4"),
        ("zeros", "l: 0004"),
        ("folded", "Content-Length:\r\n\t 4"),
        ("folded behind", "Content-Length: 4\r\n "),
        ("twice the same", "l: 4\r\nContent-Length: 4"),
        (
            "beside a fold that looks like one",
            "Subject: x\r\n l: 9\r\nl: 4",
        ),
    ] {
        let message = format!("OPTIONS sip:a SIP/2.0\r\n{header}\r\n\r\nbody");
        let found = frames(&[message.as_bytes(), b"\r\n\r\n"]);
        assert_eq!(found, [Some(message.into_bytes()), None], "{case}");
    }
}

#[test]
fn a_stream_that_cannot_be_cut_is_refused() {
    for (case, octets, fault) in [
        (
            "no length",
            "A sip:a SIP/2.0\r\n\r\n".to_owned(),
            FrameFault::NoLength,
        ),
        (
            "a negative one",
            "A sip:a SIP/2.0\r\nl: -1\r\n\r\n".to_owned(),
            FrameFault::NoLength,
        ),
        (
            "two numbers",
            "A sip:a SIP/2.0\r\nl: 1\r\n 2\r\n\r\n".to_owned(),
            FrameFault::NoLength,
        ),
        (
            "two that differ",
            "A sip:a SIP/2.0\r\nl: 1\r\nl: 2\r\n\r\n".to_owned(),
            FrameFault::NoLength,
        ),
        (
            "a body past the bound",
            "A sip:a SIP/2.0\r\nl: 65535\r\n\r\n".to_owned(),
            FrameFault::TooLarge,
        ),
        (
            "a number past 32 bits",
            "A sip:a SIP/2.0\r\nl: 4294967300\r\n\r\n".to_owned(),
            FrameFault::NoLength,
        ),
        (
            "an endless header",
            "a".repeat(MAX_MESSAGE + 1),
            FrameFault::TooLarge,
        ),
        ("TLS", "\u{16}\u{3}\u{1}".to_owned(), FrameFault::NotSip),
        ("a blank", " A".to_owned(), FrameFault::NotSip),
    ] {
        let mut framer = Framer::new();
        framer.push(octets.as_bytes());
        assert_eq!(framer.next_frame(), Err(fault), "{case}");
    }
}

/// The refusal can be made from the header, though not from octets that may be its body.
#[test]
fn the_header_without_a_length_is_there_for_the_refusal() {
    let mut framer = Framer::new();
    framer.push(MESSAGE);
    framer.push(b"A sip:a SIP/2.0\r\nl: 1\r\nl: 2\r\n\r\nbody");
    assert_eq!(framer.next_frame(), Ok(Some(Frame::Message(MESSAGE))));
    assert_eq!(framer.next_frame(), Err(FrameFault::NoLength));
    assert_eq!(
        framer.unfinished(),
        b"A sip:a SIP/2.0\r\nl: 1\r\nl: 2\r\n\r\n"
    );
}

#[test]
fn the_largest_message_passes_and_its_buffer_is_given_back() {
    let head = "A sip:a SIP/2.0\r\nl: 65500\r\n\r\n";
    let message = head.to_owned() + &"x".repeat(65_500);
    let mut framer = Framer::new();
    for chunk in message.as_bytes().chunks(1_000) {
        assert_eq!(framer.next_frame(), Ok(None));
        framer.push(chunk);
    }
    assert_eq!(
        framer.next_frame(),
        Ok(Some(Frame::Message(message.as_bytes())))
    );
    assert_eq!(framer.next_frame(), Ok(None));
    assert_eq!(framer.octets.capacity(), 0);
}

#[test]
fn a_promise_of_octets_reserves_nothing() {
    let mut framer = Framer::new();
    framer.push(b"A sip:a SIP/2.0\r\nl: 65000\r\n\r\n");
    assert_eq!(framer.next_frame(), Ok(None));
    assert!(framer.octets.capacity() < 1_000);
}

#[test]
fn a_begun_message_is_owed() {
    let mut framer = Framer::new();
    framer.push(b"\r\n");
    assert!(!framer.is_within_message());
    framer.push(b"OPT");
    assert!(framer.is_within_message());
}

proptest! {
    #[test]
    fn no_stream_panics(chunks in proptest::collection::vec("(\r\n|\r|\n|l: [0-9]{1,3}|[ -~]{0,8}|\u{0})*", 0..8)) {
        let mut framer = Framer::new();
        for chunk in &chunks {
            framer.push(chunk.as_bytes());
            while let Ok(Some(_)) = framer.next_frame() {}
            prop_assert!(framer.len() <= chunks.iter().map(String::len).sum());
        }
    }

    /// If framer and lexer saw different ends, a message could hide in the body of another.
    #[test]
    fn framer_and_lexer_see_the_same_end(
        lines in "((l|Content-Length|X)( |\t)?:( |\r\n )?[0-9]{0,2}( |\r\n )?[0-9]?\r\n){0,4}",
        body in "[a-z\r\n]{0,40}",
    ) {
        let head = "OPTIONS sip:a SIP/2.0\r\nVia: SIP/2.0/TCP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
            To: <sip:c@d>\r\nCall-ID: x\r\nCSeq: 1 OPTIONS\r\n";
        let stream = format!("{head}{lines}\r\n{body}");
        let lexed = lex(stream.as_bytes(), Framing::Stream);
        let mut framer = Framer::new();
        framer.push(stream.as_bytes());

        match framer.next_frame() {
            Ok(Some(Frame::Message(octets))) => {
                prop_assert_eq!(octets, lexed.expect("what can be cut can be read").raw());
            }
            Ok(Some(Frame::Ping)) => prop_assert!(false, "no keep-alive stands before a message"),
            Ok(None) | Err(_) => prop_assert!(lexed.is_err()),
        }
    }
}
