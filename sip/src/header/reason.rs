//! Reason of a request (RFC 3326), such as the Q.850 cause of a BYE.

use std::borrow::Cow;
use std::fmt;

use super::params::Params;
use super::text;

/// `Reason: Q.850;cause=16;text="Terminated"`; one element of the list.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Reason<'a> {
    /// `SIP`, `Q.850`, or any other protocol, as sent.
    pub protocol: &'a [u8],
    /// The protocol's own cause code.
    pub cause: Option<u16>,
    /// The text as sent, quotes included.
    pub text: Option<&'a [u8]>,
}

impl<'a> Reason<'a> {
    /// Reads one element; `None` if it doesn't begin with a protocol. A cause that is no number counts as absent.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (protocol, params) = value.split_at(memchr::memchr(b';', value).unwrap_or(value.len()));
        let protocol = text::trim(protocol);
        let value = |name| {
            Params::new(params)
                .named(name)
                .and_then(|param| param.value)
        };

        text::is_token(protocol).then(|| Self {
            protocol,
            cause: value("cause")
                .and_then(text::number)
                .and_then(|cause| u16::try_from(cause).ok()),
            text: value("text"),
        })
    }

    /// Returns true if it is of that protocol, ignoring case.
    pub const fn is(&self, protocol: &str) -> bool {
        self.protocol.eq_ignore_ascii_case(protocol.as_bytes())
    }

    /// The text without its quotes.
    pub fn plain_text(&self) -> Option<Cow<'a, [u8]>> {
        self.text.map(text::unquote)
    }
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", text::Octets(self.protocol))?;
        if let Some(cause) = self.cause {
            write!(f, ";cause={cause}")?;
        }
        match self.plain_text() {
            Some(text) => write!(f, ";text={}", text::Quoted(&text)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_protocol_a_cause_and_a_text() {
        for (value, printed) in [
            (
                "Q.850;cause=16;text=\"Terminated\"",
                Some("Q.850;cause=16;text=\"Terminated\""),
            ),
            (
                " SIP ; cause = 600 ; text=\"Busy, \\\"all\\\"; gone\"",
                Some("SIP;cause=600;text=\"Busy, \\\"all\\\"; gone\""),
            ),
            ("SIP;text=gone", Some("SIP;text=\"gone\"")),
            ("preemption", Some("preemption")),
            ("SIP;cause=x", Some("SIP")),
            ("SIP;cause=65536", Some("SIP")),
            ("", None),
            (";cause=16", None),
            ("Q 850;cause=16", None),
        ] {
            let read = Reason::parse(value.as_bytes()).map(|reason| reason.to_string());
            assert_eq!(read.as_deref(), printed, "{value}");
        }

        assert!(
            Reason::parse(b"q.850").is_some_and(|reason| reason.is("Q.850") && !reason.is("SIP"))
        );
    }

    proptest! {
        #[test]
        fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Reason::parse(&octets).map(|reason| reason.to_string());
        }
    }
}
