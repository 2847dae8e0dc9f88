//! Messages with random changes: nothing panics, and every printed message has one possible end.

use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_sip::wire::frame::Framer;
use trunkline_sip::wire::{Framing, Message, invite, lex};

use crate::answer;
use trunkline_testkit::change::{change, changed};
use trunkline_testkit::corpus::cases;

/// A message that can be read where a test fails.
#[derive(Clone)]
struct Octets(Vec<u8>);

impl std::fmt::Debug for Octets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Messages short enough for a random change to matter.
fn mutated() -> impl Strategy<Value = Octets> {
    let short: Vec<Vec<u8>> = cases()
        .into_iter()
        .map(|case| case.octets)
        .filter(|octets| octets.len() < 4_000)
        .collect();
    (prop::sample::select(short), vec(change(), 1..6))
        .prop_map(|(octets, changes)| Octets(changed(octets, &changes)))
}

fn check_answer(request: &Message<'_>) -> Result<(), TestCaseError> {
    if !request.is_request() {
        return Ok(());
    }

    let printed = answer(request, 400);
    let answer = lex(&printed, Framing::Stream);
    let answer = answer.map_err(|refused| {
        TestCaseError::fail(format!(
            "{}: {:?}",
            refused.fault,
            String::from_utf8_lossy(&printed)
        ))
    })?;

    prop_assert_eq!(answer.raw().len(), printed.len());
    prop_assert_eq!(answer.call_id(), request.call_id());
    prop_assert_eq!(answer.from_tag(), request.from_tag());
    prop_assert_eq!(answer.top_via().branch, request.top_via().branch);
    prop_assert_eq!(
        answer
            .headers()
            .filter(|header| header.raw_name == b"Server")
            .count(),
        1
    );
    Ok(())
}

proptest! {
    #[test]
    fn what_is_accepted_can_be_answered(Octets(octets) in mutated()) {
        match lex(&octets, Framing::Datagram) {
            Ok(message) => {
                check_answer(&message)?;
                let _ = invite::read(&message);
            }
            Err(refused) => {
                if let Some(request) = &refused.answer {
                    let printed = answer(request, refused.status);
                    prop_assert!(printed.ends_with(b"\r\nContent-Length: 0\r\n\r\n"));
                    prop_assert_eq!(crate::count(&printed, b"\r\n\r\n"), 1);
                }
            }
        }
    }

    #[test]
    fn a_stream_and_the_lexer_agree(Octets(octets) in mutated()) {
        let mut framer = Framer::new();
        framer.push(&octets);
        while let Ok(Some(frame)) = framer.next_frame() {
            if let trunkline_sip::wire::frame::Frame::Message(frame) = frame
                && let Ok(message) = lex(frame, Framing::Stream)
            {
                prop_assert_eq!(message.raw(), frame);
            }
        }
    }
}
