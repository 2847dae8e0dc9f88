//! Header names: canonical spelling, compact forms (RFC 3261 §7.3.3), recognition without case.

macro_rules! header_names {
    ($($(#[$doc:meta])* $variant:ident = $canonical:literal $(| $compact:literal)?),+ $(,)?) => {
        /// The headers that Trunkline distinguishes; any other is [`HeaderName::Other`].
        #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
        pub enum HeaderName {
            $(#[doc = $canonical] $variant,)+
            /// Any other header; its name stays in the message.
            Other,
        }

        impl HeaderName {
            /// The canonical spelling; empty for [`HeaderName::Other`].
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $canonical,)+
                    Self::Other => "",
                }
            }

            /// The compact form, if there is one.
            pub fn letter(self) -> Option<u8> {
                let letters: &[u8] = match self {
                    $(Self::$variant => &[$($compact)?],)+
                    Self::Other => &[],
                };
                letters.first().copied()
            }

            const fn of_letter(letter: u8) -> Self {
                match letter {
                    $($($compact => Self::$variant,)?)+
                    _ => Self::Other,
                }
            }

            /// All names except [`HeaderName::Other`], in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

header_names! {
    Via = "Via" | b'v',
    From = "From" | b'f',
    To = "To" | b't',
    CallId = "Call-ID" | b'i',
    CSeq = "CSeq",
    Contact = "Contact" | b'm',
    MaxForwards = "Max-Forwards",
    ContentLength = "Content-Length" | b'l',
    ContentType = "Content-Type" | b'c',
    Route = "Route",
    RecordRoute = "Record-Route",
    Allow = "Allow",
    Supported = "Supported" | b'k',
    UserAgent = "User-Agent",
    Server = "Server",
    Timestamp = "Timestamp",
    Authorization = "Authorization",
    ProxyAuthorization = "Proxy-Authorization",
    WwwAuthenticate = "WWW-Authenticate",
    ProxyAuthenticate = "Proxy-Authenticate",
    Require = "Require",
    ProxyRequire = "Proxy-Require",
    Unsupported = "Unsupported",
    SessionExpires = "Session-Expires" | b'x',
    MinSe = "Min-SE",
    RSeq = "RSeq",
    RAck = "RAck",
    Expires = "Expires",
    MinExpires = "Min-Expires",
    Accept = "Accept",
    ContentDisposition = "Content-Disposition",
    ContentEncoding = "Content-Encoding" | b'e',
    ContentLanguage = "Content-Language",
    Replaces = "Replaces",
    ReferTo = "Refer-To" | b'r',
    ReferredBy = "Referred-By" | b'b',
    ReferSub = "Refer-Sub",
    Event = "Event" | b'o',
    AllowEvents = "Allow-Events" | b'u',
    SubscriptionState = "Subscription-State",
    Reason = "Reason",
    RetryAfter = "Retry-After",
    Warning = "Warning",
    PAssertedIdentity = "P-Asserted-Identity",
    PPreferredIdentity = "P-Preferred-Identity",
    Privacy = "Privacy",
    Identity = "Identity" | b'y',
    Date = "Date",
    Subject = "Subject" | b's',
    Diversion = "Diversion",
    Path = "Path",
    ServiceRoute = "Service-Route",
}

impl HeaderName {
    /// Recognises a name in any case and in its compact form.
    pub fn from_bytes(name: &[u8]) -> Self {
        match name {
            [] => Self::Other,
            [letter] => Self::of_letter(letter.to_ascii_lowercase()),
            [first, .., last] => {
                let candidate = BY_SHAPE[shape(name.len(), *first, *last)];
                let known = candidate.as_str().as_bytes();
                // Most names are spelt canonically, and the test for equality is faster.
                if name == known || name.eq_ignore_ascii_case(known) {
                    candidate
                } else {
                    Self::Other
                }
            }
        }
    }
}

/// Length, first and last letter distinguish all known names, so that one comparison decides.
const BY_SHAPE: [HeaderName; 256] = {
    let mut table = [HeaderName::Other; 256];
    let mut at = 0;
    while at < HeaderName::ALL.len() {
        let name = HeaderName::ALL[at].as_str().as_bytes();
        let place = shape(name.len(), name[0], name[name.len() - 1]);
        assert!(
            matches!(table[place], HeaderName::Other),
            "two names have one shape: choose other factors"
        );
        table[place] = HeaderName::ALL[at];
        at += 1;
    }
    table
};

const fn shape(length: usize, first: u8, last: u8) -> usize {
    let (first, last) = (first | 0x20, last | 0x20);
    length.wrapping_add(9 * first as usize + 14 * last as usize) & 0xff
}

/// A set of names.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct HeaderNames(u64);

const _: () = assert!(HeaderName::ALL.len() < 64);

impl HeaderNames {
    /// Adds a name; returns whether it was present before.
    pub(super) const fn insert(&mut self, name: HeaderName) -> bool {
        let was_there = self.contains(name);
        self.0 |= 1 << name as u8;
        was_there
    }

    pub(super) const fn contains(self, name: HeaderName) -> bool {
        self.0 & (1 << name as u8) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised_in_any_case() {
        for name in HeaderName::ALL {
            assert_eq!(HeaderName::from_bytes(name.as_str().as_bytes()), *name);
            assert_eq!(
                HeaderName::from_bytes(name.as_str().to_uppercase().as_bytes()),
                *name
            );
        }
        assert_eq!(HeaderName::from_bytes(b"X-Ticket"), HeaderName::Other);
        assert_eq!(HeaderName::from_bytes(b""), HeaderName::Other);
    }

    #[test]
    fn compact_forms_are_those_of_the_registry() {
        let forms = [
            (b'v', HeaderName::Via),
            (b'F', HeaderName::From),
            (b't', HeaderName::To),
            (b'i', HeaderName::CallId),
            (b'm', HeaderName::Contact),
            (b'l', HeaderName::ContentLength),
            (b'c', HeaderName::ContentType),
            (b'e', HeaderName::ContentEncoding),
            (b'k', HeaderName::Supported),
            (b's', HeaderName::Subject),
            (b'x', HeaderName::SessionExpires),
            (b'r', HeaderName::ReferTo),
            (b'b', HeaderName::ReferredBy),
            (b'o', HeaderName::Event),
            (b'u', HeaderName::AllowEvents),
            (b'y', HeaderName::Identity),
            (b'q', HeaderName::Other),
        ];

        for (letter, name) in forms {
            assert_eq!(
                HeaderName::from_bytes(&[letter]),
                name,
                "{}",
                letter as char
            );
        }
    }
}
