//! The virtual network. The weather decides which datagrams are lost, duplicated, delayed and overtaken. A message over a connection
//! arrives once and in order, until the connection breaks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::wire::{Framing, lex};

use crate::dice::Dice;

/// A message in transit.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// Number of its connection, 0 for any that is open; `None` over UDP.
    pub(crate) connection: Option<u32>,
    pub(crate) octets: Vec<u8>,
}

/// A message that was sent, and its fate.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Time since the start of the run.
    pub(crate) after: Duration,
    /// Number of copies that arrive: none if it is lost.
    pub(crate) copies: usize,
    pub(crate) datagram: Datagram,
}

/// Fates of datagrams, in percent.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    /// Share that is delayed by up to a second, and may so be overtaken.
    pub(crate) reordering: u64,
}

impl Weather {
    /// No loss and no duplication; datagrams arrive in the order in which they were sent.
    pub(crate) const CLEAR: Self = Self {
        loss: 0,
        duplication: 0,
        reordering: 0,
    };

    pub(crate) fn is_clear(&self) -> bool {
        self.loss + self.duplication + self.reordering == 0
    }

    pub(crate) fn draw(dice: &mut Dice) -> Self {
        match dice.below(3) {
            0 => Self::CLEAR,
            1 => Self {
                loss: dice.below(6),
                duplication: dice.below(6),
                reordering: dice.below(11),
            },
            _ => Self {
                loss: dice.below(31),
                duplication: dice.below(21),
                reordering: dice.below(41),
            },
        }
    }

    /// Delays after which the copies of a datagram arrive; empty if it is lost.
    pub(crate) fn fates(&self, dice: &mut Dice) -> Vec<Duration> {
        if self.is_clear() {
            return vec![Duration::from_millis(10)];
        }

        let copies = if dice.percent(self.duplication) { 2 } else { 1 };
        (0..copies)
            .filter_map(|_| {
                let lost = dice.percent(self.loss);
                let delay = self.delay(dice);
                (!lost).then_some(delay)
            })
            .collect()
    }

    fn delay(&self, dice: &mut Dice) -> Duration {
        let usual = dice.millis(5, 40);
        if dice.percent(self.reordering) {
            usual + dice.millis(0, 1000)
        } else {
            usual
        }
    }
}

/// The connections between the node and its peers. A peer has one at a time.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    last: u32,
    open: BTreeMap<u32, SocketAddr>,
}

impl Connections {
    /// Returns the number of the connection to a peer, which is opened if there is none.
    pub(crate) fn to(&mut self, peer: SocketAddr) -> u32 {
        if let Some((number, _)) = self.open.iter().find(|(_, of)| **of == peer) {
            return *number;
        }
        self.last += 1;
        self.open.insert(self.last, peer);
        self.last
    }

    pub(crate) fn is_open(&self, number: u32) -> bool {
        self.open.contains_key(&number)
    }

    /// Breaks every connection; returns their numbers and peers.
    pub(crate) fn cut(&mut self) -> Vec<(u32, SocketAddr)> {
        std::mem::take(&mut self.open).into_iter().collect()
    }
}

/// Returns the start line of a message.
pub(crate) fn first_line(octets: &[u8]) -> String {
    let end = octets
        .iter()
        .position(|octet| *octet == b'\r')
        .unwrap_or(octets.len());
    String::from_utf8_lossy(&octets[..end]).into_owned()
}

/// Describes a message in one line: start line, CSeq, beginnings of both tags, and label of its SDP.
pub(crate) fn describe(datagram: &Datagram) -> String {
    let (from, to) = (datagram.from, datagram.to);
    let message = match lex(&datagram.octets, Framing::Datagram) {
        Ok(message) => {
            let tag = |tag: Option<&[u8]>| {
                let tag = tag.unwrap_or(b"-");
                String::from_utf8_lossy(&tag[..tag.len().min(18)]).into_owned()
            };

            format!(
                "{} [{} {}] {}>{} {}",
                first_line(&datagram.octets),
                message.cseq().number,
                message.cseq().method.as_str(),
                tag(message.from_tag()),
                tag(message.to_tag()),
                crate::session::label_of(message.body()),
            )
        }
        Err(_) => "not a message".into(),
    };

    format!("{from:>19} > {to:<19} {message}")
}
