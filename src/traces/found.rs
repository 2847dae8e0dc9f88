//! Messages found for a trace: the first of them in order of time, up to a bound.

use std::collections::BTreeMap;

use trunkline_calls::LegRole;
use trunkline_capture::Captured;

use super::record::Record;

/// Octets shown of one call.
const SHOWN: usize = 1 << 20;

/// Messages found for a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FoundMessages {
    /// Messages in order of time.
    pub messages: Vec<FoundMessage>,
    /// True if messages are missing: later ones for lack of room, or those of a file that can't be read.
    pub is_cut: bool,
}

/// Message of a call's leg.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundMessage {
    /// Role of the leg's peer.
    pub role: LegRole,
    /// True if we sent it.
    pub is_sent: bool,
    /// The message.
    pub captured: Captured,
}

/// Time and direction of a message, and its place among the messages with the same time and direction.
type Position = (u64, bool, usize);

/// Collects messages that come in no order, and drops the latest beyond [`SHOWN`] as they come: a peer can fill the
/// disk with messages of one call, and all of them must never be in memory.
#[derive(Debug, Default)]
pub(super) struct MessageCollector {
    held: BTreeMap<Position, FoundMessage>,
    octets: usize,
    /// Position of the earliest dropped message. Nothing from there on is taken.
    end: Option<Position>,
    taken: usize,
}

impl MessageCollector {
    pub(super) fn take(&mut self, record: &Record<'_>, role: LegRole) {
        let position = (record.at, record.is_sent, self.taken);
        if self.end.is_some_and(|end| position >= end) {
            return;
        }

        let found = FoundMessage {
            role,
            is_sent: record.is_sent,
            captured: record.captured(),
        };
        self.taken += 1;
        self.octets += found.captured.octets.len();
        self.held.insert(position, found);
        while self.octets > SHOWN
            && let Some((position, latest)) = self.held.pop_last()
        {
            self.octets -= latest.captured.octets.len();
            self.end = Some(position);
        }
    }

    pub(super) fn finish(self) -> FoundMessages {
        FoundMessages {
            messages: self.held.into_values().collect(),
            is_cut: self.end.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record;
    use super::*;
    use trunkline_sip::flow::{Flow, Transport};
    use trunkline_sip::moment::Moment;

    #[test]
    fn no_more_than_is_shown_is_ever_held() {
        let flow = Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: "127.0.0.1:5060".parse().unwrap(),
            peer: "127.0.0.1:5070".parse().unwrap(),
        };
        let mut block = Vec::new();
        // In no order: 7 and 1,000 have no common divisor.
        for at in (0..1_000).map(|at| at * 7 % 1_000) {
            let octets = vec![b'x'; 8_000];
            let at = Moment::from_secs(at);
            record::Record::new(at, &flow, true, None, &octets).push(&mut block);
        }

        let mut collector = MessageCollector::default();
        for record in record::records(&block) {
            collector.take(&record, LegRole::Trunk);
            assert!(collector.octets <= SHOWN && collector.held.len() <= SHOWN / 8_000);
        }

        let found = collector.finish();
        let times = found.messages.iter().map(|found| found.captured.at);
        let first = (0..SHOWN as u64 / 8_000).map(|at| at * 1_000_000);
        assert!(times.eq(first), "the first are held, without a gap");
        assert!(found.is_cut);
    }
}
