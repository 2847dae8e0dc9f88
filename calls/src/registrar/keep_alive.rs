//! Keep-alives of bindings behind NAT: such a PBX gets OPTIONS at intervals. Its answers keep the NAT's mapping, and its silence is noticed
//! (in RFC 5626 §4.4 the client does this). The engine decides when, and which shard sends.

use std::time::Duration;

use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::bindings::{Binding, Bindings};
use super::flow_owner::FlowOwner;

pub use super::liveness::Liveness;

/// Unanswered OPTIONS in a row after which a PBX that has answered one before counts as unreachable.
const ENOUGH: u8 = 2;
/// OPTIONS of one round; the rest is due in the next.
const MOST: usize = 1_000;

/// A binding whose PBX gets OPTIONS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// The inbound trunk.
    pub trunk: Uuid,
    /// The Contact URI.
    pub contact: Box<str>,
    /// Its Route header, if it has one.
    pub route: Option<Box<str>>,
    /// Flow through the NAT.
    pub flow: Flow,
}

impl Bindings {
    /// Returns bindings behind NAT that are due, and schedules each again after `interval`.
    pub fn due_keep_alives(
        &self,
        mut interval: impl FnMut() -> Duration,
        now: Moment,
    ) -> Vec<KeepAlive> {
        let mut due = Vec::new();
        self.each(|trunk, binding| {
            if !binding.needs_keeping() || due.len() >= MOST {
                return;
            }

            let next = now + interval();
            match binding.liveness.due_at {
                Some(at) if at > now => return,
                // The REGISTER has just opened the mapping.
                None => {
                    binding.liveness.due_at = Some(next);
                    return;
                }
                Some(_) => binding.liveness.due_at = Some(next),
            }

            due.push(KeepAlive {
                trunk,
                contact: binding.contact.clone(),
                route: binding.path.clone(),
                flow: binding.flow,
            });
        });

        due
    }

    /// Notes the result of an OPTIONS; true if the state has changed.
    pub fn note_keep_alive(&self, asked: &KeepAlive, is_answered: bool) -> bool {
        self.change_one(asked.trunk, |binding| {
            // The PBX has registered anew meanwhile: the result is about a mapping that isn't used any more.
            if binding.flow != asked.flow || binding.contact != asked.contact {
                return false;
            }
            let liveness = &mut binding.liveness;
            let was_unreachable = liveness.is_unreachable;
            if is_answered {
                liveness.has_answered = true;
                liveness.hear();
            } else {
                liveness.silent = liveness.silent.saturating_add(1);
                liveness.is_unreachable |= liveness.has_answered && liveness.silent >= ENOUGH;
            }
            was_unreachable != liveness.is_unreachable
        })
    }

    /// Notes that an INVITE on this flow had no answer at all.
    pub fn note_unanswered(&self, flow: &Flow) {
        self.each(|_, binding| binding.liveness.is_unreachable |= binding.is_called_by(flow));
    }
}

impl Binding {
    /// Returns whether requests to it take this flow: to the source of its REGISTER, or to its Contact.
    fn is_called_by(&self, flow: &Flow) -> bool {
        let at = |peer| Flow { peer, ..self.flow } == *flow;
        at(self.flow.peer) || self.address().is_some_and(at)
    }

    /// Returns whether this node has to keep it alive: not on a connection or without NAT, and not for another node's PBX.
    fn needs_keeping(&self) -> bool {
        let is_ours = self.flow_owner == FlowOwner::ThisProcess;
        is_ours && self.is_behind_nat && !self.flow.transport.is_reliable()
    }
}
