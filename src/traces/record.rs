//! Encoding of one message in a block: `at u64, flags u8, local, peer, length u32, octets`, all little-endian; an
//! address is 4 or 16 octets and a port.

use std::net::{IpAddr, SocketAddr};

use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;

use trunkline_capture::{self as capture, Captured};

const SENT: u8 = 1;
const LOCAL_V6: u8 = 1 << 1;
const PEER_V6: u8 = 1 << 2;
const TRANSPORT_SHIFT: u8 = 3;

/// Makes the record of a message that is about to be appended.
pub(super) const fn record<'a>(
    at: Moment,
    flow: &Flow,
    is_sent: bool,
    octets: &'a [u8],
) -> Record<'a> {
    Record {
        at: at.as_micros(),
        is_sent,
        octets,
        whole: b"",
        transport: transport(flow.transport),
        local: flow.local,
        peer: flow.peer,
    }
}

const fn transport(transport: Transport) -> capture::Transport {
    match transport {
        Transport::Udp => capture::Transport::Udp,
        Transport::Tcp => capture::Transport::Tcp,
        Transport::Tls => capture::Transport::Tls,
    }
}

/// Appends a message.
pub(super) fn push(block: &mut Vec<u8>, at: Moment, flow: &Flow, is_sent: bool, octets: &[u8]) {
    let transport: u8 = match flow.transport {
        Transport::Udp => 0,
        Transport::Tcp => 1,
        Transport::Tls => 2,
    };

    let mut flags = transport << TRANSPORT_SHIFT;
    flags |= if is_sent { SENT } else { 0 };
    flags |= if flow.local.is_ipv6() { LOCAL_V6 } else { 0 };
    flags |= if flow.peer.is_ipv6() { PEER_V6 } else { 0 };
    block.extend_from_slice(&at.as_micros().to_le_bytes());
    block.push(flags);

    for address in [flow.local, flow.peer] {
        match address.ip() {
            IpAddr::V4(v4) => block.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => block.extend_from_slice(&v6.octets()),
        }
        block.extend_from_slice(&address.port().to_le_bytes());
    }

    let length = u32::try_from(octets.len()).unwrap_or(u32::MAX);
    block.extend_from_slice(&length.to_le_bytes());
    block.extend_from_slice(octets);
}

/// Message in a block.
#[derive(Copy, Clone, Debug)]
pub(super) struct Record<'a> {
    pub(super) at: u64,
    pub(super) is_sent: bool,
    pub(super) octets: &'a [u8],
    /// Encoded message, header included.
    pub(super) whole: &'a [u8],
    transport: capture::Transport,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Record<'_> {
    /// Converts it, with its direction.
    pub(super) fn captured(&self) -> Captured {
        let (source, target) = if self.is_sent {
            (self.local, self.peer)
        } else {
            (self.peer, self.local)
        };
        Captured {
            at: self.at,
            source,
            target,
            transport: self.transport,
            octets: self.octets.to_vec(),
        }
    }
}

/// Iterates over the messages of a block; stops at damage.
pub(super) fn records(mut block: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let start = block;
        let at = u64::from_le_bytes(*take(&mut block)?);
        let [flags] = *take(&mut block)?;
        let local = address(&mut block, flags & LOCAL_V6 != 0)?;
        let peer = address(&mut block, flags & PEER_V6 != 0)?;
        let length = u32::from_le_bytes(*take(&mut block)?);
        let (octets, rest) = block.split_at_checked(usize::try_from(length).ok()?)?;
        block = rest;

        let transport = match flags >> TRANSPORT_SHIFT {
            0 => capture::Transport::Udp,
            1 => capture::Transport::Tcp,
            _ => capture::Transport::Tls,
        };

        Some(Record {
            at,
            is_sent: flags & SENT != 0,
            octets,
            whole: &start[..start.len() - rest.len()],
            transport,
            local,
            peer,
        })
    })
}

fn take<'a, const N: usize>(block: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = block.split_first_chunk()?;
    *block = rest;
    Some(taken)
}

fn address(block: &mut &[u8], is_v6: bool) -> Option<SocketAddr> {
    let ip = if is_v6 {
        IpAddr::from(*take::<16>(block)?)
    } else {
        IpAddr::from(*take::<4>(block)?)
    };
    Some(SocketAddr::new(ip, u16::from_le_bytes(*take(block)?)))
}
