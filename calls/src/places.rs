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
pub(crate) struct Places {
    ips: SmallVec<[IpAddr; 2]>,
    /// The transport that the dialog began on.
    began_by: Option<Transport>,
}

impl Places {
    /// Those of a leg that begins on this flow.
    pub(crate) fn of(flow: &Flow) -> Self {
        let mut places = Self::default();
        places.begin(flow);
        places
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
        let mut places = Places::default();
        for last in 0..MOST {
            places.learn(ip(&format!("192.0.2.{last}")));
            places.learn(ip(&format!("::ffff:192.0.2.{last}")));
        }
        assert!(places.knows(ip("192.0.2.0")) && places.knows(ip("::ffff:192.0.2.15")));
        places.learn(ip("2001:db8::1"));
        assert_eq!(places.ips.len(), MOST);
        assert!(!places.knows(ip("192.0.2.0")));
        assert!(places.knows(ip("192.0.2.1")) && places.knows(ip("2001:db8::1")));
        assert!(!places.knows(ip("2001:db8::2")));
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
        let mut places = Places::of(&flow(Transport::Tls));
        assert!(places.admits(Transport::Tls) && !places.admits(Transport::Udp));
        // The next attempt goes to another target.
        places.begin(&flow(Transport::Udp));
        assert!(places.admits(Transport::Udp) && places.admits(Transport::Tls));
    }
}
