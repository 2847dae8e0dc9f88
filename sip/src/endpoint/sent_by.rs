//! Our `host:port` in Via and Contact (RFC 3261 §18.1.1, §8.1.1.8), one for each listener.

use std::borrow::Cow;
use std::net::SocketAddr;

use crate::flow::Flow;

/// Our `host:port` on one listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SentBy {
    /// This one, for every peer.
    Fixed(String),
    /// The address that the peer called, on a listener that takes messages for every address of the machine. It certainly leads back here;
    /// the machine's other addresses may not.
    Called {
        /// The listener's port. That of a flow may be the port of a connection that we have opened.
        port: u16,
        /// Host and port where nothing has come by the flow so far.
        otherwise: String,
    },
}

impl SentBy {
    /// Returns `host:port` for messages on a flow.
    fn on(&self, flow: &Flow) -> Cow<'_, str> {
        match self {
            Self::Fixed(host) => Cow::Borrowed(host),
            Self::Called { otherwise, .. } if flow.local.ip().is_unspecified() => {
                Cow::Borrowed(otherwise)
            }
            Self::Called { port, .. } => {
                let ip = flow.local.ip().to_canonical();
                Cow::Owned(SocketAddr::new(ip, *port).to_string())
            }
        }
    }

    /// Returns the greatest number of octets of any such `host:port`.
    pub(super) const fn longest(&self) -> usize {
        /// An IPv6 address in brackets, a colon and a port.
        const ADDRESS: usize = 2 + 39 + 6;
        match self {
            Self::Fixed(host) => host.len(),
            Self::Called { otherwise, .. } if otherwise.len() > ADDRESS => otherwise.len(),
            Self::Called { .. } => ADDRESS,
        }
    }
}

/// Returns our `host:port` for messages on a flow; empty for an unknown listener.
pub(super) fn on<'s>(listeners: &'s [SentBy], flow: &Flow) -> Cow<'s, str> {
    let own = listeners.get(usize::from(flow.listener));
    own.map_or(Cow::Borrowed(""), |own| own.on(flow))
}

impl From<&str> for SentBy {
    fn from(host: &str) -> Self {
        Self::Fixed(host.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Transport;

    #[test]
    fn a_listener_on_every_address_is_known_by_the_one_that_was_called() {
        let called = SentBy::Called {
            port: 5060,
            otherwise: "192.0.2.1:5060".to_owned(),
        };
        let fixed = SentBy::from("sip.example.com:5060");
        for (name, sent_by, local, expected) in [
            ("nothing came", &called, "0.0.0.0:5060", "192.0.2.1:5060"),
            ("nothing came, IPv6", &called, "[::]:5060", "192.0.2.1:5060"),
            ("called", &called, "198.51.100.7:5060", "198.51.100.7:5060"),
            ("IPv6", &called, "[2001:db8::7]:5060", "[2001:db8::7]:5060"),
            (
                "mapped",
                &called,
                "[::ffff:192.0.2.9]:5060",
                "192.0.2.9:5060",
            ),
            ("opened by us", &called, "192.0.2.1:40112", "192.0.2.1:5060"),
            ("fixed", &fixed, "198.51.100.7:5060", "sip.example.com:5060"),
        ] {
            let flow = Flow {
                transport: Transport::Udp,
                listener: 0,
                connection: 0,
                local: local.parse().expect("an address"),
                peer: "198.51.100.1:5060".parse().expect("an address"),
            };
            assert_eq!(sent_by.on(&flow), expected, "{name}");
            assert!(sent_by.longest() >= expected.len(), "{name}");
        }
    }
}
