//! Sources that a trunk allows, over UDP, where a source can be forged: an address is trusted once it has answered an OPTIONS of ours.
//!
//! The INVITE of an unproven source waits for the answer. OPTIONS is sent once, without a transaction, so that a forged INVITE makes this node send
//! no more than it received.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Time for which a source is trusted after its last answer.
const GOOD: Duration = Duration::from_secs(3_600);
/// Bound on trusted sources, and on a shard's waiting INVITEs. An INVITE that may not wait is challenged.
const MOST_PROVEN: usize = 65_536;
const MOST_WAITING: usize = 64;
/// Bound on waiting INVITEs for one org: forged ones with its addresses don't affect other orgs.
const WAITING_FOR_ORG: usize = 16;

/// Sources that have answered an OPTIONS of ours, with the time. Shared by all shards.
#[derive(Debug, Default)]
pub struct ProvenSources(DashMap<IpAddr, Moment>);

impl ProvenSources {
    pub(crate) fn age(&self, source: IpAddr, now: Moment) -> Option<Duration> {
        let age = now.since(*self.0.get(&source)?);
        (age < GOOD).then_some(age)
    }

    /// Notes that a source has answered an OPTIONS of ours, or has proven a call of its own.
    pub(crate) fn answered(&self, source: IpAddr, now: Moment) {
        if self.0.len() >= MOST_PROVEN && !self.0.contains_key(&source) {
            self.0.retain(|_, at| now.since(*at) < GOOD);
            // A full table keeps the good entries that it has; this source is probed again with its next INVITE.
            if self.0.len() >= MOST_PROVEN {
                return;
            }
        }
        self.0.insert(source, now);
    }
}

/// An INVITE that waits until its source has answered.
#[derive(Debug)]
pub(crate) struct WaitingInvite {
    pub(crate) flow: Flow,
    pub(crate) octets: Box<[u8]>,
    pub(crate) org: Uuid,
    pub(crate) call_id: Box<[u8]>,
    pub(crate) cseq: u32,
    /// Time at which the INVITE is challenged if its source hasn't answered.
    pub(crate) until: Moment,
}

/// An OPTIONS that was sent: its target, the random part of its From-tag, and the time.
#[derive(Debug)]
pub(crate) struct SourceProbe {
    pub(crate) source: IpAddr,
    pub(crate) tag: u64,
    pub(crate) at: Moment,
}

/// Probes of a shard to sources.
#[derive(Debug, Default)]
pub(crate) struct SourceProbes {
    pub(crate) waiting: VecDeque<WaitingInvite>,
    pub(crate) asked: VecDeque<SourceProbe>,
    pub(crate) proven: Arc<ProvenSources>,
}

/// Decision on an INVITE from an allowed address over UDP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SourceProof {
    /// Its source has answered.
    Proven,
    /// Its source is being probed; the INVITE is kept.
    Waits,
    /// Its source didn't answer, or the INVITE may not wait for an answer.
    Unproven,
}

impl SourceProbes {
    pub(crate) fn of(proven: Arc<ProvenSources>) -> Self {
        Self {
            proven,
            ..Self::default()
        }
    }

    /// Returns whether one more INVITE of that org may wait.
    pub(crate) fn has_room_for(&self, org: Uuid) -> bool {
        let of_org = self.waiting.iter().filter(|held| held.org == org);
        self.waiting.len() < MOST_WAITING && of_org.count() < WAITING_FOR_ORG
    }

    /// Returns when the next INVITE has waited long enough.
    pub(crate) fn next_timeout(&self) -> Option<Moment> {
        self.waiting.front().map(|waiting| waiting.until)
    }

    /// Takes an INVITE whose source didn't answer in time.
    pub(crate) fn pop_late(&mut self, now: Moment) -> Option<WaitingInvite> {
        // All wait equally long, so the first in the queue is the first that is due.
        self.next_timeout().filter(|due| *due <= now)?;
        self.waiting.pop_front()
    }

    /// Handles an answer to OPTIONS; returns the INVITEs that waited for it.
    pub(crate) fn answered(
        &mut self,
        source: IpAddr,
        tag: u64,
        now: Moment,
    ) -> VecDeque<WaitingInvite> {
        // Only a host that received the OPTIONS knows the random bits of its tag, so a forged answer proves nothing.
        let is_it = |asked: &SourceProbe| asked.source == source && asked.tag == tag;
        let Some(at) = self.asked.iter().position(is_it) else {
            return VecDeque::new();
        };
        self.asked.remove(at);
        self.proven.answered(source, now);
        let of_source = |waiting: &WaitingInvite| waiting.flow.peer.ip().to_canonical() == source;
        let (released, waiting) = self.waiting.drain(..).partition(of_source);
        self.waiting = waiting;
        released
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::flow::Transport;

    use super::*;

    #[test]
    fn an_org_leaves_the_others_room_to_wait() {
        let mut source_probes = SourceProbes::default();
        let [greedy, other] = [1, 2].map(Uuid::from_u128);
        let address = "192.0.2.1:5060".parse().expect("an address");
        let waiting = |org: Uuid| WaitingInvite {
            flow: Flow {
                transport: Transport::Udp,
                listener: 0,
                connection: 0,
                local: address,
                peer: address,
            },
            octets: Box::default(),
            org,
            call_id: Box::default(),
            cseq: 1,
            until: Moment::from_secs(1),
        };
        while source_probes.has_room_for(greedy) {
            source_probes.waiting.push_back(waiting(greedy));
        }

        assert_eq!(source_probes.waiting.len(), WAITING_FOR_ORG);
        assert!(source_probes.has_room_for(other));

        for org in 2..100 {
            if source_probes.has_room_for(Uuid::from_u128(org)) {
                source_probes
                    .waiting
                    .push_back(waiting(Uuid::from_u128(org)));
            }
        }

        assert_eq!(source_probes.waiting.len(), MOST_WAITING);
    }
}
