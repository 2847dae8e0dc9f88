//! Session-Expires and Min-SE (RFC 4028 §4, §5). `dialog::session_timer` acts on them.

use std::fmt;

use super::params;
use super::text;

/// Role of the side that sends the refreshes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Refresher {
    /// The side that sent the request.
    Uac,
    /// The side that answered it.
    Uas,
}

impl Refresher {
    /// The parameter's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uac => "uac",
            Self::Uas => "uas",
        }
    }
}

/// `Session-Expires: 1800;refresher=uac`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SessionExpires {
    /// The interval in seconds.
    pub seconds: u32,
    /// Refresher, if one is named.
    pub refresher: Option<Refresher>,
}

impl SessionExpires {
    /// Reads the header's value; `None` without a number. A refresher that is neither `uac` nor `uas` counts as absent.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (seconds, params) = cut(value);
        let refresher = params::find(params, "refresher")
            .flatten()
            .and_then(|named| {
                [Refresher::Uac, Refresher::Uas]
                    .into_iter()
                    .find(|side| named.eq_ignore_ascii_case(side.as_str().as_bytes()))
            });
        Some(Self {
            seconds: text::delta_seconds(seconds)?,
            refresher,
        })
    }
}

/// The seconds of a Min-SE header; its parameters are ignored.
pub fn min_se(value: &[u8]) -> Option<u32> {
    text::delta_seconds(cut(value).0)
}

fn cut(value: &[u8]) -> (&[u8], &[u8]) {
    let (seconds, params) = value.split_at(memchr::memchr(b';', value).unwrap_or(value.len()));
    (text::trim(seconds), params)
}

impl fmt::Display for SessionExpires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seconds)?;
        match self.refresher {
            Some(refresher) => write!(f, ";refresher={}", refresher.as_str()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn seconds_and_a_side() {
        for (value, printed) in [
            ("1800", Some("1800")),
            ("1800;refresher=uac", Some("1800;refresher=uac")),
            (" 90 ; Refresher = UAS ;x=y", Some("90;refresher=uas")),
            ("90;refresher=both", Some("90")),
            ("90;refresher", Some("90")),
            ("99999999999", Some("4294967295")),
            ("", None),
            (";refresher=uac", None),
            ("soon", None),
        ] {
            let read = SessionExpires::parse(value.as_bytes()).map(|expires| expires.to_string());
            assert_eq!(read.as_deref(), printed, "{value}");
        }
        assert_eq!(min_se(b" 120 ;x=y"), Some(120));
        assert_eq!(min_se(b"x"), None);
    }

    proptest! {
        #[test]
        fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = (SessionExpires::parse(&octets), min_se(&octets));
        }
    }
}
