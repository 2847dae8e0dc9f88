//! Known addresses of a dialog: the IPs that its requests and answers may come from, the transport that it began on, and whether the IP that it
//! began at takes part in it.
//!
//! By UDP a source can be forged. Our tag goes only to the IP that a dialog begins at, so a message with that tag from there is the peer's own:
//! an ACK, a PRACK, any other request of the dialog, or the answer to our INVITE.
//!
//! A request counts if it comes from an IP that this leg has sent to or heard from. The port may change, as it does behind NAT. A less secure
//! transport than the dialog's first one never counts. `source_trust` has the other ways in which an IP becomes known.

use std::net::IpAddr;

use smallvec::SmallVec;
use trunkline_sip::flow::{Flow, Transport};

/// Known IPs per leg; the oldest is removed, and is looked up again when it comes back.
const MOST: usize = 16;

/// Known IPs of one leg.
#[derive(Clone, Default, Debug)]
pub(crate) struct KnownAddresses {
    ips: SmallVec<[IpAddr; 2]>,
    /// The transport that the dialog began on.
    began_by: Option<Transport>,
    /// The IP that the dialog began at.
    began_at: Option<IpAddr>,
    /// That IP has shown that it takes part in the dialog.
    is_proven: bool,
}

impl KnownAddresses {
    /// Those of a leg that begins on this flow.
    pub(crate) fn of(flow: &Flow) -> Self {
        let mut known = Self::default();
        known.begin(flow);
        known
    }

    /// Notes that the dialog begins on this flow; known IPs stay.
    pub(crate) fn begin(&mut self, flow: &Flow) {
        let ip = flow.peer.ip().to_canonical();
        self.began_by = Some(flow.transport);
        self.began_at = Some(ip);
        // Nobody but the peer at that IP can have opened the connection.
        self.is_proven = flow.transport.is_reliable();
        self.learn(ip);
    }

    /// Notes a message with our tag. Returns whether the IP that the dialog began at is proven by it, and wasn't before.
    pub(crate) fn prove(&mut self, flow: &Flow) -> bool {
        let is_news = !self.is_proven && self.began_at == Some(flow.peer.ip().to_canonical());
        self.is_proven |= is_news;
        is_news
    }

    /// Returns the IP that the dialog began at.
    pub(crate) const fn began_at(&self) -> Option<IpAddr> {
        self.began_at
    }

    /// Returns whether that IP has shown that it takes part in the dialog.
    pub(crate) const fn is_proven(&self) -> bool {
        self.is_proven
    }

    pub(crate) fn learn(&mut self, ip: IpAddr) {
        if self.knows(ip) {
            return;
        }
        if self.ips.len() >= MOST {
            // Without a bound, a peer that alternates its source addresses would grow the leg.
            self.ips.remove(0);
        }
        self.ips.push(ip.to_canonical());
    }

    pub(crate) fn knows(&self, ip: IpAddr) -> bool {
        self.ips.contains(&ip) || self.ips.contains(&ip.to_canonical())
    }

    /// Returns whether the transport is as secure as the one that the dialog began on.
    pub(crate) fn admits(&self, transport: Transport) -> bool {
        self.began_by.is_none_or(|began| began.admits(transport))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn so_many_ips_of_a_leg_are_kept() {
        let mut known = KnownAddresses::default();
        for last in 0..MOST {
            known.learn(ip(&format!("192.0.2.{last}")));
            known.learn(ip(&format!("::ffff:192.0.2.{last}")));
        }
        assert!(known.knows(ip("192.0.2.0")) && known.knows(ip("::ffff:192.0.2.15")));
        known.learn(ip("2001:db8::1"));
        assert_eq!(known.ips.len(), MOST);
        assert!(!known.knows(ip("192.0.2.0")));
        assert!(known.knows(ip("192.0.2.1")) && known.knows(ip("2001:db8::1")));
        assert!(!known.knows(ip("2001:db8::2")));
    }

    fn flow(transport: Transport) -> Flow {
        Flow {
            transport,
            listener: 0,
            connection: 0,
            local: "192.0.2.9:5061".parse().unwrap(),
            peer: "192.0.2.1:5061".parse().unwrap(),
        }
    }

    #[test]
    fn a_dialog_is_proven_by_our_tag_from_where_it_began() {
        let first = flow(Transport::Udp);
        let at = |peer: &str| Flow {
            peer: peer.parse().unwrap(),
            ..first
        };
        for (case, by, is_proven) in [
            ("the same address", first, true),
            ("another port, as behind NAT", at("192.0.2.1:61000"), true),
            (
                "the same, mapped to IPv6",
                at("[::ffff:192.0.2.1]:5060"),
                true,
            ),
            ("another address", at("192.0.2.2:5061"), false),
        ] {
            let mut known = KnownAddresses::of(&first);
            assert!(!known.is_proven(), "by UDP a source can be forged");
            assert_eq!(known.prove(&by), is_proven, "{case}");
            assert_eq!(known.is_proven(), is_proven, "{case}");
            assert!(!known.prove(&by), "{case}: once");
        }

        for transport in [Transport::Tcp, Transport::Tls] {
            assert!(KnownAddresses::of(&flow(transport)).is_proven());
        }
        let mut known = KnownAddresses::of(&flow(Transport::Tcp));
        known.begin(&at("192.0.2.7:5060"));
        assert!(!known.is_proven(), "the next target of our INVITE");
        assert_eq!(known.began_at(), Some(ip("192.0.2.7")));
    }

    #[test]
    fn a_dialog_that_began_on_tls_stays_there() {
        let mut known = KnownAddresses::of(&flow(Transport::Tls));
        assert!(known.admits(Transport::Tls) && !known.admits(Transport::Udp));
        // The next attempt goes to another target.
        known.begin(&flow(Transport::Udp));
        assert!(known.admits(Transport::Udp) && known.admits(Transport::Tls));
    }
}
