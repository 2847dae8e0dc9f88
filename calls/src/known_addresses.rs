//! Known addresses of a dialog: the IPs that its requests and answers may come from, and the transport that it began on.
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
        self.began_by = Some(flow.transport);
        self.learn(flow.peer.ip());
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

    #[test]
    fn a_dialog_that_began_on_tls_stays_there() {
        let flow = |transport| Flow {
            transport,
            listener: 0,
            connection: 0,
            local: "192.0.2.9:5061".parse().unwrap(),
            peer: "192.0.2.1:5061".parse().unwrap(),
        };
        let mut known = KnownAddresses::of(&flow(Transport::Tls));
        assert!(known.admits(Transport::Tls) && !known.admits(Transport::Udp));
        // The next attempt goes to another target.
        known.begin(&flow(Transport::Udp));
        assert!(known.admits(Transport::Udp) && known.admits(Transport::Tls));
    }
}
