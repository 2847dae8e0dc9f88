//! Packets of a peer that the echo hasn't returned. The echo never sends more to an address than it received from there, so that a forged
//! source can't make it amplify traffic. Its RTCP reports are charged to the packets counted here.

/// Packets, and their octets.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Surplus {
    packets: u32,
    octets: u32,
}

impl Surplus {
    /// Adds a packet that isn't returned.
    pub(super) fn add(&mut self, octets: usize) {
        self.packets = self.packets.saturating_add(1);
        let octets = u32::try_from(octets).unwrap_or(u32::MAX);
        self.octets = self.octets.saturating_add(octets);
    }

    /// Returns whether a packet of this many octets may be sent.
    pub(super) fn covers(&self, octets: usize) -> bool {
        self.packets > 0 && u32::try_from(octets).is_ok_and(|octets| octets <= self.octets)
    }

    /// Charges a report that is sent.
    pub(super) fn take(&mut self, octets: usize) {
        self.packets = self.packets.saturating_sub(1);
        let octets = u32::try_from(octets).unwrap_or(u32::MAX);
        self.octets = self.octets.saturating_sub(octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_covered_than_came() {
        let mut surplus = Surplus::default();
        assert!(!surplus.covers(0), "no packet");
        surplus.add(60);
        assert!(!surplus.covers(72), "too few octets");
        surplus.add(60);
        assert!(surplus.covers(72));
        surplus.take(72);
        assert!(surplus.covers(48) && !surplus.covers(49));
        surplus.take(48);
        assert!(!surplus.covers(0));
    }
}
