//! Outgoing datagrams: one arena that is written into and sent from, so that a message costs no allocation.

use std::net::SocketAddrV4;

/// Messages waiting for one `sendmmsg`.
#[derive(Debug)]
pub struct Outbox {
    arena: Vec<u8>,
    ends: Vec<(usize, SocketAddrV4)>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            arena: Vec::with_capacity(1 << 20),
            ends: Vec::with_capacity(1024),
        }
    }
}

impl Outbox {
    /// Appends to the message being written.
    pub fn put(&mut self, octets: &[u8]) {
        self.arena.extend_from_slice(octets);
    }

    /// Appends `number` in decimal.
    pub fn put_decimal(&mut self, number: u32) {
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.put(&digits[at..]);
    }

    /// Appends `number` in `DIGITS` hex digits.
    pub fn put_hex<const DIGITS: usize>(&mut self, number: u64) {
        self.put(&hex::<DIGITS>(number));
    }

    /// Appends `octets` and returns them, for patching in place.
    pub fn put_and_patch(&mut self, octets: &[u8]) -> &mut [u8] {
        let start = self.arena.len();
        self.arena.extend_from_slice(octets);
        &mut self.arena[start..]
    }

    /// Ends the message.
    pub fn end(&mut self, to: SocketAddrV4) {
        self.ends.push((self.arena.len(), to));
    }

    /// Number of complete messages waiting.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if no message waits.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The messages in order.
    pub fn messages(&self) -> impl Iterator<Item = (&[u8], SocketAddrV4)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts
            .zip(&self.ends)
            .map(|(start, (end, to))| (&self.arena[start..*end], *to))
    }

    /// Removes all messages; the memory stays allocated.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.ends.clear();
    }
}

/// The low `4 * DIGITS` bits in lower-case hex.
pub fn hex<const DIGITS: usize>(number: u64) -> [u8; DIGITS] {
    std::array::from_fn(|at| b"0123456789abcdef"[(number >> (4 * (DIGITS - 1 - at))) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn numbers_and_messages_come_out_as_written() {
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5060);
        let mut outbox = Outbox::default();
        outbox.put_decimal(0);
        outbox.put(b" ");
        outbox.put_decimal(4_294_967_295);
        outbox.end(to);
        outbox.put_hex::<8>(0x1f);
        outbox.end(to);
        let messages: Vec<_> = outbox
            .messages()
            .map(|(octets, _)| octets.to_vec())
            .collect();
        assert_eq!(messages, [b"0 4294967295".to_vec(), b"0000001f".to_vec()]);
        outbox.clear();
        assert!(outbox.is_empty() && outbox.messages().next().is_none());
    }
}
