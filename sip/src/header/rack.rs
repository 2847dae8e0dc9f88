//! RAck: names the reliable provisional answer that a PRACK acknowledges (RFC 3262 §7.2).

use std::fmt;

use super::text;

/// `RAck: 776656 1 INVITE`.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct RAck<'a> {
    /// The RSeq of the provisional answer.
    pub rseq: u32,
    /// The number in the CSeq of the request that was answered.
    pub cseq: u32,
    /// The method in that CSeq.
    pub method_token: &'a [u8],
}

impl<'a> RAck<'a> {
    /// Reads the header's value; `None` unless it is two numbers and a method.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut words = value
            .split(|octet| text::is_blank(*octet))
            .filter(|word| !word.is_empty());
        let rseq = text::number(words.next()?)?;
        let cseq = text::number(words.next()?)?;
        let method_token = words.next().filter(|method| text::is_token(method))?;
        words.next().is_none().then_some(Self {
            rseq,
            cseq,
            method_token,
        })
    }
}

impl RAck<'_> {
    /// Returns true if the acknowledged answer was to an INVITE; methods are case-sensitive (RFC 3261 §7.1).
    pub fn is_invite(&self) -> bool {
        self.method_token == b"INVITE"
    }
}

impl fmt::Display for RAck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}",
            self.rseq,
            self.cseq,
            text::Octets(self.method_token)
        )
    }
}

impl fmt::Debug for RAck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_numbers_and_a_method() {
        for (value, printed) in [
            ("776656 1 INVITE", Some("776656 1 INVITE")),
            (" 1\t2\r\n INVITE ", Some("1 2 INVITE")),
            ("", None),
            ("1 2", None),
            ("1 INVITE", None),
            ("1 2 INVITE 3", None),
            ("1 2 IN;VITE", None),
            ("4294967296 1 INVITE", None),
            ("-1 1 INVITE", None),
        ] {
            let read = RAck::parse(value.as_bytes()).map(|rack| rack.to_string());
            assert_eq!(read.as_deref(), printed, "{value}");
        }
    }

    #[test]
    fn methods_are_case_sensitive() {
        assert!(RAck::parse(b"1 1 INVITE").is_some_and(|rack| rack.is_invite()));
        assert!(RAck::parse(b"1 1 invite").is_some_and(|rack| !rack.is_invite()));
    }

    proptest! {
        #[test]
        fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = RAck::parse(&octets);
        }
    }
}
