//! Import of a capture: detects the format, passes each call on as soon as it is over, and reports what was left out.

use std::collections::BTreeMap;
use std::io::BufRead;

use super::anonymise::Anonymiser;
use super::calls::Collector;
use super::decode::{self, Carried};
use super::flow::{self, Call};
use super::message::is_sip;
use super::read::{self, Format, Packet, Packets};
use super::reassemble::{Fragments, Streams};
use super::text::Messages;
use super::{CaptureFault, Captured, Transport, hep};

/// Numbers of found and omitted items.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Calls and other exchanges.
    pub calls: u64,
    /// Messages in them.
    pub messages: u64,
    /// Retransmissions, which are left out.
    pub retransmissions: u64,
    /// Packets of the file.
    pub packets: u64,
    /// Notes for people, in sentences.
    pub notes: Vec<String>,
}

/// Receiver of each call.
pub type Sink<'a> = &'a mut dyn FnMut(Call) -> Result<(), CaptureFault>;

/// Reads a capture to its end.
///
/// # Errors
/// The capture can't be used, or the sink fails.
pub fn import(
    mut input: impl BufRead,
    mut anonymiser: Option<Anonymiser>,
    sink: Sink<'_>,
) -> Result<Summary, CaptureFault> {
    let mut found = 0;
    let mut counted = |mut call: Call| {
        if let Some(anonymiser) = &mut anonymiser {
            anonymiser.call(&mut call);
        }
        found += 1;
        sink(call)
    };

    let mut summary = match read::format(&mut input)? {
        Format::Flow => flow_again(input, &mut counted)?,
        Format::Text => text(input, &mut counted)?,
        Format::Hex => {
            let mut sieve = Sieve::default();
            sieve.packet(&read::hex(input)?)?;
            sieve.finish(&mut counted)?
        }
        Format::Packets => packets(input, &mut counted)?,
    };

    summary.calls = found;
    Ok(summary)
}

fn flow_again(input: impl BufRead, sink: Sink<'_>) -> Result<Summary, CaptureFault> {
    let mut calls = flow::Calls::new(input);
    let mut summary = Summary::default();
    while let Some(call) = calls.next_call()? {
        summary.messages += call.entries.len() as u64;
        sink(call)?;
    }
    if summary.messages == 0 {
        return Err(CaptureFault::NoSip("the flow is empty".to_owned()));
    }
    Ok(summary)
}

fn text(input: impl BufRead, sink: Sink<'_>) -> Result<Summary, CaptureFault> {
    let mut messages = Messages::new(input);
    let mut collector = Collector::default();
    while let Some(message) = messages.next_message()? {
        collector.push(message);
        drain(&mut collector, sink)?;
    }

    collector.finish();
    drain(&mut collector, sink)?;

    if collector.messages == 0 {
        // Every file without NULs was tried as text, so one without a message is of no known format.
        return Err(CaptureFault::UnknownFormat);
    }

    let mut summary = summary_of(&collector);
    if messages.strange > 0 {
        summary.notes.push(format!(
            "{} texts between the messages are no SIP",
            messages.strange
        ));
    }

    Ok(summary)
}

fn summary_of(collector: &Collector) -> Summary {
    let mut notes = Vec::new();
    if collector.cut_short > 0 {
        notes.push(format!(
            "{} calls were written in parts, for want of memory",
            collector.cut_short
        ));
    }

    if collector.left_out > 0 {
        notes.push(format!(
            "{} OPTIONS outside calls were left out: peers monitor each other with them",
            collector.left_out
        ));
    }

    Summary {
        messages: collector.messages,
        retransmissions: collector.retransmissions,
        notes,
        ..Summary::default()
    }
}

fn drain(collector: &mut Collector, sink: Sink<'_>) -> Result<(), CaptureFault> {
    while let Some(call) = collector.pop() {
        sink(call)?;
    }
    Ok(())
}

fn packets(input: impl BufRead, sink: Sink<'_>) -> Result<Summary, CaptureFault> {
    let mut packets = Packets::open(input)?;
    let mut sieve = Sieve::default();
    let damage = loop {
        match packets.next_packet() {
            Ok(Some(packet)) => sieve.packet(&packet)?,
            Ok(None) => break None,
            Err(CaptureFault::Damaged(what)) => break Some(what),
            Err(fault) => return Err(fault),
        }
        drain(&mut sieve.collector, sink)?;
    };

    match sieve.finish(sink) {
        Ok(mut summary) => {
            let note = damage
                .map(|what| format!("the file is damaged, what comes before is used: {what}"));
            summary.notes.extend(note);
            Ok(summary)
        }
        // Nothing was found before the damage, so the damage is the reason.
        Err(CaptureFault::NoSip(_)) if damage.is_some() => {
            Err(CaptureFault::Damaged(damage.unwrap_or_default()))
        }
        Err(fault) => Err(fault),
    }
}

/// All state between packets and messages.
#[derive(Debug, Default)]
struct Sieve {
    fragments: Fragments,
    streams: Streams,
    collector: Collector,
    packets: u64,
    udp: u64,
    tcp: u64,
    other: u64,
    snapped: u64,
    foreign_links: BTreeMap<u32, u64>,
}

impl Sieve {
    fn packet(&mut self, packet: &Packet) -> Result<(), CaptureFault> {
        self.packets += 1;

        let Some(carried) = decode::packet(packet.link, &packet.octets) else {
            *self.foreign_links.entry(packet.link).or_default() += 1;
            return Ok(());
        };

        if let Carried::Fragment(fragment) = &carried {
            let key = fragment.key;
            if let Some(octets) = self.fragments.push(fragment)
                && let Some(carried) =
                    decode::transport(key.source, key.target, key.protocol, &octets)
            {
                self.carried(packet.at, carried);
            }
            return Ok(());
        }

        self.carried(packet.at, carried);
        Ok(())
    }

    fn carried(&mut self, at: u64, carried: Carried<'_>) {
        match carried {
            Carried::Udp {
                source,
                target,
                octets,
                is_cut,
            } => {
                self.udp += 1;

                if is_sip(octets) {
                    self.snapped += u64::from(is_cut);
                    self.collector.push(Captured {
                        at,
                        source,
                        target,
                        transport: Transport::Udp,
                        octets: octets.to_vec(),
                    });
                } else if let Some(inner) = hep::open(octets).filter(|inner| is_sip(&inner.octets))
                {
                    // Addresses and time are those that the probe saw, not those of its packet to the collector.
                    self.collector.push(inner);
                }
            }

            Carried::Tcp {
                source,
                target,
                sequence,
                is_first,
                is_last,
                octets,
            } => {
                self.tcp += 1;
                let direction = (source, target);
                for octets in self
                    .streams
                    .push(direction, sequence, [is_first, is_last], octets)
                {
                    self.stream_message(at, direction, octets);
                }
            }

            Carried::Fragment(_) | Carried::Other => self.other += 1,
        }
    }

    fn stream_message(
        &mut self,
        at: u64,
        (source, target): (std::net::SocketAddr, std::net::SocketAddr),
        octets: Vec<u8>,
    ) {
        self.collector.push(Captured {
            at,
            source,
            target,
            transport: Transport::Tcp,
            octets,
        });
    }

    fn finish(&mut self, sink: Sink<'_>) -> Result<Summary, CaptureFault> {
        // The ends of streams are found only now, and have no packet whose time they could take.
        let last = self.collector.latest();
        for (direction, octets) in self.streams.finish() {
            self.stream_message(last, direction, octets);
        }

        self.collector.finish();
        drain(&mut self.collector, sink)?;

        if self.collector.messages == 0 {
            return Err(self.why_nothing());
        }

        let mut summary = summary_of(&self.collector);
        summary.packets = self.packets;

        for (count, what) in [
            (
                self.snapped,
                "messages were cut by the capture's snap length",
            ),
            (
                self.streams.gaps,
                "gaps in TCP streams: the messages around them are lost",
            ),
            (
                self.streams.oversized,
                "messages on TCP are over 256 KiB and were left out",
            ),
            (
                self.fragments.lost + self.fragments.waiting() as u64,
                "packets in fragments are incomplete",
            ),
        ] {
            if count > 0 {
                summary.notes.push(format!("{count} {what}"));
            }
        }

        for (link, count) in &self.foreign_links {
            summary.notes.push(format!(
                "{count} packets have link type {link}, which isn't known here"
            ));
        }

        Ok(summary)
    }

    fn why_nothing(&self) -> CaptureFault {
        if let Some((link, count)) = self.foreign_links.iter().next()
            && *count == self.packets
        {
            return CaptureFault::LinkType(*link);
        }
        let mut counts = format!(
            "{} packets were read, {} of them UDP, {} TCP, {} something else",
            self.packets, self.udp, self.tcp, self.other
        );
        if self.streams.oversized > 0 {
            counts.push_str("; a message on TCP is over 256 KiB");
        }
        CaptureFault::NoSip(counts)
    }
}
