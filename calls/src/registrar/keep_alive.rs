//! Bindings behind NAT are kept alive: such a PBX is asked by OPTIONS every now and then, so that its answer keeps the way through the NAT
//! open, and its silence is seen (RFC 5626 §4.4 has it the other way round). Who asks, and when the clock says so, is decided outside.

use std::time::Duration;

use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::bindings::{Binding, Bindings};
use super::home::Home;

pub use super::liveness::Liveness;

/// Questions without an answer until the PBX is taken for unreachable.
const ENOUGH: u8 = 2;
/// Questions that one look brings; the rest is due at the next.
const MOST: usize = 1_000;

/// A binding whose PBX is to be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// The inbound trunk.
    pub trunk: Uuid,
    /// The Contact URI.
    pub contact: Box<str>,
    /// The way through the NAT.
    pub flow: Flow,
}

impl Bindings {
    /// Those behind NAT that are due, each of which is due again after what `interval` says.
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
                // The REGISTER has just opened the way.
                None => {
                    binding.liveness.due_at = Some(next);
                    return;
                }
                Some(_) => binding.liveness.due_at = Some(next),
            }
            due.push(KeepAlive {
                trunk,
                contact: binding.contact.clone(),
                flow: binding.flow,
            });
        });
        due
    }

    /// Notes what became of a question; true where that is news.
    pub fn note_keep_alive(&self, asked: &KeepAlive, is_answered: bool) -> bool {
        self.change_one(asked.trunk, |binding| {
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

    /// An INVITE that went by this flow has had no answer at all.
    pub fn note_unanswered(&self, flow: &Flow) {
        self.each(|_, binding| binding.liveness.is_unreachable |= binding.flow == *flow);
    }
}

impl Binding {
    /// A connection keeps itself; what isn't behind NAT needs nothing, and the way to a PBX of another node is that node's to keep.
    fn needs_keeping(&self) -> bool {
        let is_ours = self.home == Home::Here;
        is_ours && self.is_behind_nat && !self.flow.transport.is_reliable()
    }
}
