//! Equality of two URIs (RFC 3261 §19.1.4), by which a registrar tells bindings apart.

use super::uri::{Host, Scheme, Uri, unescape};

/// Parameters that make two URIs differ where only one of them has the parameter.
const SIGNIFICANT: [&str; 5] = ["user", "ttl", "method", "maddr", "transport"];

impl Uri<'_> {
    /// Returns true if both URIs name the same resource. The order of parameters doesn't matter, nor do unknown ones that only one URI has.
    /// An explicit default port or transport differs from none. URIs other than `sip:` and `sips:` are compared as text.
    pub fn is_same(&self, other: &Uri<'_>) -> bool {
        if self.scheme != other.scheme {
            return false;
        }
        match self.scheme {
            Scheme::Sip | Scheme::Sips => {}
            Scheme::Tel | Scheme::Other => return self.raw == other.raw,
        }

        self.user_unescaped() == other.user_unescaped()
            && unescape(self.password.unwrap_or_default())
                == unescape(other.password.unwrap_or_default())
            && self.host.is_same(&other.host)
            && self.port == other.port
            // Both ways, since either side may have parameters or headers that the other lacks.
            && self.params_agree(other)
            && other.params_agree(self)
            && self.headers_agree(other)
            && other.headers_agree(self)
    }

    /// Returns true if `other` contradicts none of this URI's parameters.
    fn params_agree(&self, other: &Uri<'_>) -> bool {
        self.params().all(|ours| {
            let name = std::str::from_utf8(ours.name).unwrap_or_default();
            match other.param(name) {
                Some(theirs) => unescape(ours.value.unwrap_or_default())
                    .eq_ignore_ascii_case(&unescape(theirs.unwrap_or_default())),
                None => !SIGNIFICANT.iter().any(|name| ours.is(name)),
            }
        })
    }

    /// Returns true if `other` has all of this URI's headers.
    fn headers_agree(&self, other: &Uri<'_>) -> bool {
        self.header_fields().all(|(name, value)| {
            other
                .header_fields()
                .any(|(theirs, text)| theirs.eq_ignore_ascii_case(&name) && text == value)
        })
    }
}

impl Host<'_> {
    fn is_same(&self, other: &Host<'_>) -> bool {
        match (self, other) {
            (Host::Name(one), Host::Name(two)) => one.eq_ignore_ascii_case(two),
            (Host::V4(one), Host::V4(two)) => one == two,
            (Host::V6(one), Host::V6(two)) => one == two,
            (Host::Name(_) | Host::V4(_) | Host::V6(_), _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_compared_as_the_rfc_says() {
        // The pairs of §19.1.4, and what registrations bring besides.
        let cases = [
            (
                "escapes and case",
                "sip:%61lice@atlanta.com;transport=TCP",
                "sip:alice@AtLanTa.CoM;Transport=tcp",
                true,
            ),
            (
                "an unknown parameter in one",
                "sip:carol@chicago.com",
                "sip:carol@chicago.com;newparam=5",
                true,
            ),
            (
                "two unknown ones",
                "sip:carol@chicago.com;newparam=5",
                "sip:carol@chicago.com;security=on",
                true,
            ),
            (
                "parameters in another order",
                "sip:biloxi.com;transport=tcp;method=REGISTER",
                "sip:biloxi.com;method=REGISTER;transport=tcp",
                true,
            ),
            (
                "the user's case",
                "SIP:ALICE@AtLanTa.CoM;Transport=udp",
                "sip:alice@AtLanTa.CoM;Transport=UDP",
                false,
            ),
            // A default that is written differs from one that isn't.
            (
                "a default port",
                "sip:bob@biloxi.com",
                "sip:bob@biloxi.com:5060",
                false,
            ),
            (
                "a default transport",
                "sip:bob@biloxi.com",
                "sip:bob@biloxi.com;transport=udp",
                false,
            ),
            (
                "another port",
                "sip:bob@192.0.2.1:5061",
                "sip:bob@192.0.2.1:5062",
                false,
            ),
            (
                "headers in one",
                "sip:carol@chicago.com",
                "sip:carol@chicago.com?Subject=next%20meeting",
                false,
            ),
            (
                "the same headers",
                "sip:a@b?x=1&y=2",
                "sip:a@b?Y=2&x=1",
                true,
            ),
            (
                "a name and its address",
                "sip:bob@phone21.boxesbybob.com",
                "sip:bob@192.0.2.4",
                false,
            ),
            (
                "other instances",
                "sip:a@192.0.2.1;rinstance=1",
                "sip:a@192.0.2.1;rinstance=2",
                false,
            ),
            ("schemes", "sip:a@192.0.2.1", "sips:a@192.0.2.1", false),
            ("tel", "tel:+1", "tel:+1", true),
        ];
        for (name, one, two, same) in cases {
            let [one, two] = [one, two].map(|uri| Uri::parse(uri.as_bytes()).expect("a URI"));
            assert_eq!(one.is_same(&two), same, "{name}");
            assert_eq!(two.is_same(&one), same, "{name}, the other way");
        }
    }
}
