//! A message that outlives its packet.
//!
//! It borrows from its own copy of the octets; `self_cell` makes that safe.

use super::message::Message;

self_cell::self_cell! {
    struct Read {
        owner: Box<[u8]>,
        #[covariant]
        dependent: Message,
    }

    impl {Debug}
}

/// A message together with its octets, so that it is parsed only once.
#[derive(Debug)]
pub struct OwnedMessage(Read);

impl From<&Message<'_>> for OwnedMessage {
    fn from(message: &Message<'_>) -> Self {
        Self(Read::new(message.raw().into(), |octets| {
            message.over(octets)
        }))
    }
}

impl OwnedMessage {
    /// The message.
    pub fn message(&self) -> &Message<'_> {
        self.0.borrow_dependent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Framing, lex};

    #[test]
    fn an_owned_message_reads_as_the_one_that_came() {
        let cases = [
            (
                "a body and what is behind it",
                "OPTIONS sip:a@h SIP/2.0\r\nVia: SIP/2.0/TCP h;branch=z9hG4bKx\r\nFrom: <sip:b@h>;tag=t\r\nTo: <sip:a@h>\r\n\
                 Call-ID: i\r\nCSeq: 1 OPTIONS\r\nContent-Length: 2\r\n\r\nabGET",
            ),
            (
                "lines before it, folds, a list of Vias, no branch, parts that are empty",
                "\r\n\r\nINVITE sip:[::1]:5070 SIP/2.0\r\nv: SIP/2.0/UDP [::1]:5070;rport;received=;x,\r\n SIP/2.0/TCP a\r\n\
                 f: \"A;\r\n B\" <sip:b@h>;tag=\r\nt: sip:a@h;tag=y\r\ni: x@y\r\nCSeq: 7\r\n  INVITE\r\nl: 0\r\n\r\n",
            ),
            (
                "a response without a reason",
                "SIP/2.0 200\r\nVia: SIP/2.0/UDP h:1;branch=z9hG4bKx;rport=5;received=192.0.2.1\r\nFrom: <sip:b@h>;tag=t\r\n\
                 To: <sip:a@h>;tag=u\r\nCall-ID: i\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n",
            ),
        ];

        for (case, octets) in cases {
            let octets = octets.as_bytes().to_vec();
            let came = lex(&octets, Framing::Stream).expect(case);
            let owned = OwnedMessage::from(&came);
            let (shown, body) = (format!("{came:?}"), came.body().to_vec());
            drop(octets);
            assert_eq!(format!("{:?}", owned.message()), shown, "{case}");
            assert_eq!(owned.message().body(), body, "{case}");
            let read_again = lex(owned.message().raw(), Framing::Datagram).expect(case);
            assert_eq!(format!("{read_again:?}"), shown, "{case}");
        }
    }
}
