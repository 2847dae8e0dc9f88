//! IP addresses from which peers have sent RTP, by trunk: audio goes there at once in later calls of the trunk. A carrier signals from one
//! address and has its media at others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use trunkline_sip::moment::Moment;

/// Time for which an address is known.
const KNOWN: Duration = Duration::from_secs(24 * 3_600);

/// Most addresses of a trunk; with one more the oldest is forgotten. Most trunks; with one more those that have no fresh address are, or all.
const OF_TRUNK: usize = 64;
const TRUNKS: usize = 10_000;

/// Known IP addresses of all trunks.
#[derive(Debug, Default)]
pub(super) struct KnownIps(Mutex<HashMap<u128, Vec<KnownIp>>>);

#[derive(Copy, Clone, Debug)]
struct KnownIp {
    ip: IpAddr,
    heard_at: Moment,
}

impl KnownIps {
    /// Notes that the peer of a call of the trunk was heard at this IP address.
    pub(super) fn note(&self, trunk: u128, ip: IpAddr, now: Moment) {
        let ip = ip.to_canonical();
        let mut trunks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if trunks.len() >= TRUNKS && !trunks.contains_key(&trunk) {
            let is_fresh = |known: &KnownIp| now.since(known.heard_at) < KNOWN;
            trunks.retain(|_, ips| ips.iter().any(is_fresh));
            // Each is learnt again within a call.
            if trunks.len() >= TRUNKS {
                trunks.clear();
            }
        }

        let ips = trunks.entry(trunk).or_default();
        ips.retain(|known| known.ip != ip);
        if ips.len() == OF_TRUNK {
            ips.remove(0);
        }
        ips.push(KnownIp { ip, heard_at: now });
    }

    /// Returns whether the peer of another call of the trunk was heard at this IP address.
    pub(super) fn knows(&self, trunk: u128, ip: IpAddr, now: Moment) -> bool {
        let ip = ip.to_canonical();
        let trunks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ips = trunks.get(&trunk).map_or(&[][..], Vec::as_slice);
        let is_it = |known: &KnownIp| known.ip == ip && now.since(known.heard_at) < KNOWN;
        ips.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_secs(1_000);

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn an_address_is_known_to_its_trunk_for_a_day() {
        let known = KnownIps::default();
        known.note(1, "::ffff:192.0.2.1".parse().unwrap(), START);
        for (case, trunk, last, after, expected) in [
            ("at once", 1, 1, 0, true),
            ("within the day", 1, 1, 86_399, true),
            ("a day later", 1, 1, 86_400, false),
            ("another trunk", 2, 1, 0, false),
            ("another address", 1, 2, 0, false),
        ] {
            let now = START + Duration::from_secs(after);
            assert_eq!(known.knows(trunk, ip(last), now), expected, "{case}");
        }
    }

    #[test]
    fn addresses_and_trunks_are_bounded() {
        let known = KnownIps::default();
        for last in 0..=OF_TRUNK as u8 {
            known.note(1, ip(last), START);
        }
        assert!(!known.knows(1, ip(0), START), "the oldest");
        assert!(known.knows(1, ip(1), START) && known.knows(1, ip(64), START));

        for trunk in 0..=TRUNKS as u128 {
            known.note(trunk, ip(1), START);
        }
        assert!(known.0.lock().unwrap().len() <= TRUNKS);
    }
}
