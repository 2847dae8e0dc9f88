//! Subscription-State (RFC 6665 §4.1.3): says whether more NOTIFYs will come, and for how long.

use super::params;
use super::text;

/// State of a subscription.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SubscriptionState {
    /// Pending, active or an extension state: more NOTIFYs will come, for `expires` seconds if it is given.
    Open {
        /// The seconds that are left.
        expires: Option<u32>,
    },
    /// Nothing more will come.
    Terminated,
}

impl SubscriptionState {
    /// Reads the header's value.
    pub fn parse(value: &[u8]) -> Self {
        let (word, params) = value.split_at(memchr::memchr(b';', value).unwrap_or(value.len()));
        if word.trim_ascii().eq_ignore_ascii_case(b"terminated") {
            return Self::Terminated;
        }
        let expires = params::find(params, "expires").flatten();
        Self::Open {
            expires: expires.and_then(text::delta_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_says_how_long_it_lasts() {
        let open = |expires| SubscriptionState::Open { expires };
        for (value, state) in [
            ("active;expires=60", open(Some(60))),
            ("Active ; Expires=5", open(Some(5))),
            ("pending", open(None)),
            ("active;expires=soon", open(None)),
            ("active;expires=99999999999", open(Some(u32::MAX))),
            (
                "terminated;reason=noresource",
                SubscriptionState::Terminated,
            ),
            ("TERMINATED", SubscriptionState::Terminated),
            ("", open(None)),
        ] {
            assert_eq!(SubscriptionState::parse(value.as_bytes()), state, "{value}");
        }
    }
}
