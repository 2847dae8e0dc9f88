//! A message that outlives the packet that it came in.
//!
//! It borrows from octets that stand beside it, which `self_cell` sees to.

use super::message::Message;

self_cell::self_cell! {
    struct Read {
        owner: Box<[u8]>,
        #[covariant]
        dependent: Message,
    }

    impl {Debug}
}

/// A message together with its octets: it is read once, however often it is looked at.
#[derive(Debug)]
pub struct Kept(Read);

impl From<&Message<'_>> for Kept {
    fn from(message: &Message<'_>) -> Self {
        Self(Read::new(message.raw().into(), |octets| {
            message.over(octets)
        }))
    }
}

impl Kept {
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
    fn what_is_kept_reads_as_what_came() {
        let octets = b"OPTIONS sip:a@h SIP/2.0\r\nVia: SIP/2.0/TCP h;branch=z9hG4bKx\r\nFrom: <sip:b@h>;tag=t\r\n\
            To: <sip:a@h>\r\nCall-ID: i\r\nCSeq: 1 OPTIONS\r\nContent-Length: 2\r\n\r\nabGET".to_vec();
        let came = lex(&octets, Framing::Stream).expect("a message");
        let kept = Kept::from(&came);
        let shown = format!("{came:?}");
        drop(octets);
        assert_eq!(format!("{:?}", kept.message()), shown);
        assert_eq!(kept.message().body(), b"ab");
    }
}
