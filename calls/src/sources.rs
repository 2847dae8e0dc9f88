//! Sources that a trunk allows, over UDP, where a source can be forged: an address is believed once it has answered an OPTIONS of ours.
//!
//! The INVITE of one that hasn't yet waits while it is asked. The question is sent once, without a transaction, so that a forged INVITE
//! makes this node send no more than it received.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use trunkline_model::view::View;
use trunkline_sip::endpoint::{Endpoint, Request};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Slot, Tag};
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Framing, Message, Method, lex};
use uuid::Uuid;

use super::context::Core;
use super::{Calls, admission};

/// Time for which a source is believed after its last answer, and when it is asked again meanwhile.
const GOOD: Duration = Duration::from_secs(3_600);
const ASKED_AGAIN: Duration = Duration::from_secs(600);
/// Longest wait of an INVITE for the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause before a source that didn't answer is asked again.
const SILENT: Duration = Duration::from_secs(5);
/// Sources that are believed; INVITEs of a shard that wait; questions that are remembered.
const MOST_PROVEN: usize = 65_536;
const MOST_WAITING: usize = 64;
const MOST_ASKED: usize = 256;
/// INVITEs that wait for one org: forged ones that name its addresses keep no other org's from being asked.
const WAITING_FOR_ORG: usize = 16;
/// An INVITE that waits: to a smaller one the question and the challenge that may follow would be more than twice what it brought.
const OCTETS: std::ops::RangeInclusive<usize> = 400..=8_192;

/// Sources that have answered an OPTIONS of ours, and when. Shared by all shards.
#[derive(Debug, Default)]
pub struct ProvenSources(DashMap<IpAddr, Moment>);

impl ProvenSources {
    fn age(&self, source: IpAddr, now: Moment) -> Option<Duration> {
        let age = now.since(*self.0.get(&source)?);
        (age < GOOD).then_some(age)
    }

    fn answered(&self, source: IpAddr, now: Moment) {
        if self.0.len() >= MOST_PROVEN && !self.0.contains_key(&source) {
            self.0.retain(|_, at| now.since(*at) < GOOD);
            if self.0.len() >= MOST_PROVEN {
                return;
            }
        }
        self.0.insert(source, now);
    }
}

/// An INVITE that waits until its source has answered.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) flow: Flow,
    pub(crate) octets: Box<[u8]>,
    org: Uuid,
    call_id: Box<[u8]>,
    cseq: u32,
    until: Moment,
}

/// An OPTIONS that was sent: to whom, the random part of its From-tag, and when.
#[derive(Debug)]
struct Asked {
    source: IpAddr,
    tag: u64,
    at: Moment,
}

/// Questions of a shard to sources.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: VecDeque<Waiting>,
    asked: VecDeque<Asked>,
    proven: Arc<ProvenSources>,
}

/// Decision on an INVITE from an allowed address over UDP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Belief {
    /// Its source has answered.
    Proven,
    /// Its source is being asked; the INVITE is kept.
    Waits,
    /// Its source didn't answer.
    Unproven,
}

impl Questions {
    pub(crate) fn of(proven: Arc<ProvenSources>) -> Self {
        Self {
            proven,
            ..Self::default()
        }
    }

    /// Whether one more INVITE of that org may wait.
    fn has_room_for(&self, org: Uuid) -> bool {
        let of_org = self.waiting.iter().filter(|held| held.org == org);
        self.waiting.len() < MOST_WAITING && of_org.count() < WAITING_FOR_ORG
    }

    /// When an INVITE has waited long enough.
    pub(crate) fn next_timeout(&self) -> Option<Moment> {
        self.waiting.front().map(|waiting| waiting.until)
    }

    /// An INVITE whose source didn't answer in time.
    pub(crate) fn pop_late(&mut self, now: Moment) -> Option<Waiting> {
        self.next_timeout().filter(|due| *due <= now)?;
        self.waiting.pop_front()
    }

    /// Works on an answer to OPTIONS: the INVITEs that waited for it.
    pub(crate) fn answered(
        &mut self,
        (source, tag): (IpAddr, u64),
        now: Moment,
    ) -> VecDeque<Waiting> {
        let is_it = |asked: &Asked| asked.source == source && asked.tag == tag;
        let Some(at) = self.asked.iter().position(is_it) else {
            return VecDeque::new();
        };
        self.asked.remove(at);
        self.proven.answered(source, now);
        let of_source = |waiting: &Waiting| waiting.flow.peer.ip().to_canonical() == source;
        let (released, waiting) = self.waiting.drain(..).partition(of_source);
        self.waiting = waiting;
        released
    }
}

/// Whether the source of an INVITE is who it says; asks it where that isn't known.
pub(crate) fn believe(
    core: &mut Core,
    endpoint: &mut Endpoint,
    flow: Flow,
    (invite, org): (&Message<'_>, Uuid),
    now: Moment,
) -> Belief {
    let source = flow.peer.ip().to_canonical();
    let age = core.questions.proven.age(source, now);
    let of_source = |asked: &&Asked| asked.source == source;
    let last = core.questions.asked.iter().rfind(of_source);
    let last = last.map(|asked| now.since(asked.at));
    match age {
        Some(age) if age < ASKED_AGAIN || last.is_some_and(|last| last < SILENT) => {
            return Belief::Proven;
        }
        Some(_) => {
            ask(core, endpoint, flow, invite, now);
            return Belief::Proven;
        }
        None => {}
    }

    let (call_id, cseq) = (invite.call_id(), invite.cseq().number);
    let is_same = |held: &Waiting| *held.call_id == *call_id && held.cseq == cseq;
    if core.questions.waiting.iter().any(is_same) {
        return Belief::Waits;
    }
    let fits = OCTETS.contains(&invite.raw().len());
    if !fits || !core.questions.has_room_for(org) {
        return Belief::Unproven;
    }
    match last {
        Some(last) if last < PATIENCE => {}
        Some(last) if last < SILENT => return Belief::Unproven,
        Some(_) | None => ask(core, endpoint, flow, invite, now),
    }
    core.questions.waiting.push_back(Waiting {
        flow,
        octets: invite.raw().into(),
        org,
        call_id: call_id.into(),
        cseq,
        until: now + PATIENCE,
    });
    Belief::Waits
}

/// Sends one OPTIONS to where an INVITE came from.
fn ask(core: &mut Core, endpoint: &mut Endpoint, flow: Flow, invite: &Message<'_>, now: Moment) {
    let slot = core.minter.dispatch(invite);
    let tag = send_options(core, endpoint, flow, slot);
    if core.questions.asked.len() >= MOST_ASKED {
        core.questions.asked.pop_front();
    }
    core.questions.asked.push_back(Asked {
        source: flow.peer.ip().to_canonical(),
        tag: tag.bits(),
        at: now,
    });
}

/// Sends one OPTIONS that nothing is kept of; the From-tag that its answer brings back.
pub(super) fn send_options(core: &Core, endpoint: &mut Endpoint, flow: Flow, slot: Slot) -> Tag {
    let tag = core.minter.tag(slot, endpoint.entropy());
    let call_id = core.minter.call_id(slot, endpoint.entropy());
    let host = endpoint.sent_by(&flow).to_owned();
    let uri = format!("sip:{}", flow.peer);
    let mut lines = Vec::new();
    let mut head = Head::new(&mut lines);
    head.number("Max-Forwards", 70);
    head.fmt("From", format_args!("<sip:{host}>;tag={tag}"));
    head.fmt("To", format_args!("<{uri}>"));
    head.line("Call-ID", call_id.as_bytes());
    head.line("CSeq", b"1 OPTIONS");

    let request = Request {
        method: Method::Options,
        token: "OPTIONS",
        uri: uri.as_bytes(),
        head: &lines,
        body: b"",
    };
    endpoint.request_once(flow, &request);
    tag
}

impl Calls {
    /// An allowed source that was asked has answered: its INVITEs go on.
    pub(super) fn source_answered(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        flow: Flow,
        answer: &Message<'_>,
        now: Moment,
    ) {
        let tag = answer.from_tag();
        let Some(tag) = tag.and_then(|tag| self.core.minter.read_tag(tag)) else {
            return;
        };
        let asked = (flow.peer.ip().to_canonical(), tag.bits);
        for waiting in self.core.questions.answered(asked, now) {
            if let Ok(invite) = lex(&waiting.octets, Framing::Datagram) {
                self.invite(endpoint, view, waiting.flow, &invite, now);
            }
        }
    }

    /// Challenges the INVITEs whose source didn't answer in time.
    pub(super) fn distrust_silent(&mut self, endpoint: &mut Endpoint, now: Moment) {
        while let Some(waiting) = self.core.questions.pop_late(now) {
            if let Ok(invite) = lex(&waiting.octets, Framing::Datagram) {
                admission::distrust(&mut self.core, endpoint, waiting.flow, &invite, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::flow::Transport;

    use super::*;

    #[test]
    fn an_org_leaves_the_others_room_to_wait() {
        let mut questions = Questions::default();
        let [greedy, other] = [1, 2].map(Uuid::from_u128);
        let address = "192.0.2.1:5060".parse().expect("an address");
        let waiting = |org: Uuid| Waiting {
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
        while questions.has_room_for(greedy) {
            questions.waiting.push_back(waiting(greedy));
        }

        assert_eq!(questions.waiting.len(), WAITING_FOR_ORG);
        assert!(questions.has_room_for(other));

        for org in 2..100 {
            if questions.has_room_for(Uuid::from_u128(org)) {
                questions.waiting.push_back(waiting(Uuid::from_u128(org)));
            }
        }

        assert_eq!(questions.waiting.len(), MOST_WAITING);
    }
}
