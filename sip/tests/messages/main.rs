//! The torture tests of the wire: valid messages that are hard to read, invalid messages, octets that are no
//! messages. Ours are in `fixtures/messages` and `testkit/src/rfc_messages`; those of RFC 4475 and RFC 5118 are optional.

mod mutations;
mod reading;
mod rfcs;

use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::wire::frame::{Frame, Framer};
use trunkline_sip::wire::{Framing, Message, invite, lex, print};

use trunkline_testkit::corpus::{Case, Lexed, cases};

/// The lexer's outcome, in the words of the tables.
fn lexed(octets: &[u8]) -> Lexed {
    match lex(octets, Framing::Datagram) {
        Ok(_) => Lexed::Valid,
        Err(refused) => match refused.answer {
            Some(_) => Lexed::Answered(refused.status),
            None => Lexed::Dropped,
        },
    }
}

/// The cell of the column `rsip`.
fn read_by_rsip(octets: &[u8]) -> &'static str {
    match lex(octets, Framing::Datagram) {
        Ok(message) if message.method_token() == b"INVITE" && message.is_request() => {
            match invite::read(&message) {
                Ok(read) if read.built_from_parts() => "parts",
                Ok(_) => "read",
                Err(_) => "differs",
            }
        }
        Ok(_) | Err(_) => "-",
    }
}

/// The answer that goes to the sender of a request.
fn answer(request: &Message<'_>, status: u16) -> Vec<u8> {
    let flow = Flow {
        transport: Transport::Udp,
        listener: 0,
        connection: 0,
        local: "192.0.2.1:5060".parse().expect("an address"),
        peer: "198.51.100.9:49152".parse().expect("an address"),
    };

    let mut out = Vec::new();
    print::response(
        &mut out,
        request,
        &flow,
        status,
        None,
        Some(b"ours"),
        "Trunkline",
        b"",
        b"",
    );
    out
}

fn count(octets: &[u8], wanted: &[u8]) -> usize {
    octets
        .windows(wanted.len())
        .filter(|window| *window == wanted)
        .count()
}

#[test]
fn each_message_becomes_what_its_row_says() {
    let mut wrong = Vec::new();
    for case in cases() {
        let found = (lexed(&case.octets), read_by_rsip(&case.octets));
        if found != (case.lexer, &*case.rsip) {
            wrong.push(format!("{}/{}: {found:?}", case.set, case.name));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A message that the lexer answers or drops has the same outcome at the endpoint.
#[test]
fn the_tables_agree_with_themselves() {
    for Case {
        name, lexer, udp, ..
    } in cases()
    {
        match lexer {
            Lexed::Valid => {}
            Lexed::Answered(status) => assert_eq!(udp, [status], "{name}"),
            Lexed::Dropped => assert!(udp.is_empty(), "{name}"),
        }
    }
}

#[test]
fn an_answer_is_a_message_that_its_sender_knows_again() {
    for Case { name, octets, .. } in cases() {
        let Ok(request) = lex(&octets, Framing::Datagram) else {
            continue;
        };
        if !request.is_request() {
            continue;
        }

        let answer = answer(&request, 400);
        let answer = lex(&answer, Framing::Stream)
            .unwrap_or_else(|refused| panic!("{name}: {}", refused.fault));
        assert_eq!(answer.call_id(), request.call_id(), "{name}");
        assert_eq!(answer.cseq(), request.cseq(), "{name}");
        assert_eq!(answer.from_tag(), request.from_tag(), "{name}");
        assert_eq!(answer.top_via().branch, request.top_via().branch, "{name}");
        assert_eq!(
            answer.top_via().received,
            Some(&b"198.51.100.9"[..]),
            "{name}"
        );
    }
}

/// A refused request may lack any header: its answer still ends where it says, with one blank line.
#[test]
fn an_answer_to_what_is_refused_is_one_message() {
    for Case { name, octets, .. } in cases() {
        let Err(refused) = lex(&octets, Framing::Datagram) else {
            continue;
        };
        let Some(request) = refused.answer else {
            continue;
        };

        let answer = answer(&request, refused.status);
        assert!(
            answer.starts_with(format!("SIP/2.0 {} ", refused.status).as_bytes()),
            "{name}"
        );
        assert!(answer.ends_with(b"Content-Length: 0\r\n\r\n"), "{name}");
        assert_eq!(count(&answer, b"\r\n\r\n"), 1, "{name}");
        assert_eq!(count(&answer, b"\n"), count(&answer, b"\r\n"), "{name}");
    }
}

#[test]
fn a_stream_is_cut_where_the_lexer_ends() {
    for Case { name, octets, .. } in cases() {
        let mut framer = Framer::new();
        framer.push(&octets);
        while let Ok(Some(frame)) = framer.next_frame() {
            let Frame::Message(frame) = frame else {
                continue;
            };
            match lex(frame, Framing::Stream) {
                Ok(message) => assert_eq!(message.raw(), frame, "{name}"),
                Err(_) => assert_ne!(lexed(&octets), Lexed::Valid, "{name}"),
            }
        }
    }
}

/// A message cut anywhere before the blank line is refused.
#[test]
fn no_part_of_a_header_is_a_message() {
    for Case {
        name,
        octets,
        lexer,
        ..
    } in cases()
    {
        let Some(end) = octets.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let start = if octets.starts_with(b"\r\n") { 4 } else { 0 };
        if lexer != Lexed::Valid || start == 4 {
            continue;
        }

        // For long messages, trying each place would take quadratic time.
        for cut in (start..end + 4).step_by(1 + octets.len() / 2_000) {
            assert!(
                lex(&octets[..cut], Framing::Datagram).is_err(),
                "{name} cut at {cut}"
            );
        }
    }
}
