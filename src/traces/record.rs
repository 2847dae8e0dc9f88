//! Encoding of one message in a block: `at u64, flags u8, [org, call, leg u8, role u8], local, peer, length u32, octets`, all little-endian. Org
//! and call are 16 octets each; an address is 4 or 16 octets and a port. Messages that no shard has assigned to a call have no leg.

use std::net::{IpAddr, SocketAddr};

use trunkline_calls::{LegRole, TracedLeg};
use trunkline_capture::{self as capture, Captured};
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

const SENT: u8 = 1;
const LOCAL_V6: u8 = 1 << 1;
const PEER_V6: u8 = 1 << 2;
const TRANSPORT_SHIFT: u8 = 3;
const TRANSPORT: u8 = 0b11;
const HAS_LEG: u8 = 1 << 5;

/// Message in a block, or about to be appended to one.
#[derive(Copy, Clone, Debug)]
pub(super) struct Record<'a> {
    pub(super) at: u64,
    pub(super) is_sent: bool,
    /// Leg that its shard has assigned it to; `None` if it belongs to no call as far as that is proven.
    pub(super) leg: Option<TracedLeg>,
    pub(super) octets: &'a [u8],
    /// Encoded message, header included; empty before it is appended.
    pub(super) whole: &'a [u8],
    transport: capture::Transport,
    local: SocketAddr,
    pub(super) peer: SocketAddr,
}

impl<'a> Record<'a> {
    /// Makes the record of a message that is about to be appended.
    pub(super) const fn new(
        at: Moment,
        flow: &Flow,
        is_sent: bool,
        leg: Option<TracedLeg>,
        octets: &'a [u8],
    ) -> Self {
        Self {
            at: at.as_micros(),
            is_sent,
            leg,
            octets,
            whole: b"",
            transport: match flow.transport {
                Transport::Udp => capture::Transport::Udp,
                Transport::Tcp => capture::Transport::Tcp,
                Transport::Tls => capture::Transport::Tls,
            },
            local: flow.local,
            peer: flow.peer,
        }
    }

    /// The same message as one of that leg.
    pub(super) const fn of_leg(self, leg: TracedLeg) -> Self {
        Self {
            leg: Some(leg),
            ..self
        }
    }

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

    /// Appends it to a block.
    pub(super) fn push(&self, block: &mut Vec<u8>) {
        let transport: u8 = match self.transport {
            capture::Transport::Udp => 0,
            capture::Transport::Tcp => 1,
            capture::Transport::Tls => 2,
        };

        let mut flags = transport << TRANSPORT_SHIFT;
        flags |= if self.is_sent { SENT } else { 0 };
        flags |= if self.local.is_ipv6() { LOCAL_V6 } else { 0 };
        flags |= if self.peer.is_ipv6() { PEER_V6 } else { 0 };
        flags |= if self.leg.is_some() { HAS_LEG } else { 0 };
        block.extend_from_slice(&self.at.to_le_bytes());
        block.push(flags);

        if let Some(leg) = &self.leg {
            block.extend_from_slice(leg.org.as_bytes());
            block.extend_from_slice(leg.call.as_bytes());
            block.extend_from_slice(&[leg.leg, number_of(leg.role)]);
        }

        for address in [self.local, self.peer] {
            match address.ip() {
                IpAddr::V4(v4) => block.extend_from_slice(&v4.octets()),
                IpAddr::V6(v6) => block.extend_from_slice(&v6.octets()),
            }
            block.extend_from_slice(&address.port().to_le_bytes());
        }

        let length = u32::try_from(self.octets.len()).unwrap_or(u32::MAX);
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(self.octets);
    }
}

const fn number_of(role: LegRole) -> u8 {
    match role {
        LegRole::Trunk => 0,
        LegRole::Agent => 1,
        LegRole::Destination => 2,
    }
}

/// Iterates over the messages of a block; stops at damage.
pub(super) fn records(mut block: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let start = block;
        let at = u64::from_le_bytes(*take(&mut block)?);
        let [flags] = *take(&mut block)?;
        let leg = match flags & HAS_LEG != 0 {
            true => Some(leg(&mut block)?),
            false => None,
        };
        let local = address(&mut block, flags & LOCAL_V6 != 0)?;
        let peer = address(&mut block, flags & PEER_V6 != 0)?;
        let length = u32::from_le_bytes(*take(&mut block)?);
        let (octets, rest) = block.split_at_checked(usize::try_from(length).ok()?)?;
        block = rest;

        let transport = match flags >> TRANSPORT_SHIFT & TRANSPORT {
            0 => capture::Transport::Udp,
            1 => capture::Transport::Tcp,
            _ => capture::Transport::Tls,
        };

        Some(Record {
            at,
            is_sent: flags & SENT != 0,
            leg,
            octets,
            whole: &start[..start.len() - rest.len()],
            transport,
            local,
            peer,
        })
    })
}

fn leg(block: &mut &[u8]) -> Option<TracedLeg> {
    let org = Uuid::from_bytes(*take(block)?);
    let call = Uuid::from_bytes(*take(block)?);
    let [leg, role] = *take(block)?;
    Some(TracedLeg {
        org,
        call,
        leg,
        role: match role {
            0 => LegRole::Trunk,
            1 => LegRole::Agent,
            _ => LegRole::Destination,
        },
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
