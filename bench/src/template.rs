//! Messages printed once and patched in place: every field has a fixed width, so that a message costs one copy and a few stores.

use crate::calls::CallRef;
use crate::outbox::{Outbox, hex};

const CALL: &str = "{call}";
const CSEQ: &str = "{n}";
const CALLER: &str = "{caller}";

#[derive(Clone, Copy, Debug)]
enum Field {
    Call,
    CSeq,
    Caller,
}

impl Field {
    const fn placeholder(self) -> &'static [u8] {
        match self {
            Self::Call => b"0000000000000000",
            Self::CSeq => b"0",
            Self::Caller => b"0000000",
        }
    }
}

/// Octets with places for `{call}` (16 hex digits), `{n}` (the CSeq, one digit) and `{caller}` (7 digits).
#[derive(Debug)]
pub struct Template {
    octets: Vec<u8>,
    fields: Vec<(usize, Field)>,
}

impl Template {
    /// Finds the places in `text`.
    pub fn new(text: &str) -> Self {
        let mut template = Self {
            octets: Vec::with_capacity(text.len() + 64),
            fields: Vec::new(),
        };
        let mut rest = text;
        while let Some((before, field, after)) = next_field(rest) {
            template.octets.extend_from_slice(before.as_bytes());
            template.fields.push((template.octets.len(), field));
            template.octets.extend_from_slice(field.placeholder());
            rest = after;
        }
        template.octets.extend_from_slice(rest.as_bytes());
        template
    }

    /// Prints the message for one call. `cseq` is below 10, since its place has one digit.
    pub fn put(&self, out: &mut Outbox, call: CallRef, cseq: u8, caller: u32) {
        let octets = out.put_and_patch(&self.octets);
        for &(at, field) in &self.fields {
            match field {
                Field::Call => octets[at..at + 16].copy_from_slice(&hex::<16>(call.bits())),
                Field::CSeq => octets[at] = b'0' + cseq,
                Field::Caller => decimal(&mut octets[at..at + 7], caller),
            }
        }
    }
}

fn next_field(text: &str) -> Option<(&str, Field, &str)> {
    let (at, name, field) = [
        (CALL, Field::Call),
        (CSEQ, Field::CSeq),
        (CALLER, Field::Caller),
    ]
    .into_iter()
    .filter_map(|(name, field)| Some((text.find(name)?, name, field)))
    .min_by_key(|(at, _, _)| *at)?;
    Some((&text[..at], field, &text[at + name.len()..]))
}

fn decimal(places: &mut [u8], number: u32) {
    let mut rest = number;
    for place in places.iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    #[test]
    fn fields_are_patched_where_they_stand() {
        let template = Template::new("CSeq: {n} INVITE tag={call} {call}{n} <{caller}>");
        let mut out = Outbox::default();
        template.put(&mut out, CallRef::from_bits(0x1_0000_00ff), 3, 42);
        out.end(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
        let written = out.messages().next().expect("one message").0;
        assert_eq!(
            std::str::from_utf8(written),
            Ok("CSeq: 3 INVITE tag=00000001000000ff 00000001000000ff3 <0000042>")
        );
    }
}
