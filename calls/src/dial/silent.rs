//! Places that leave an INVITE without an answer: the next one is tried, or the call has rung for long enough (RFC 3261 §17.1.1, RFC 3263 §4.3).

use super::{ATTEMPT_PATIENCE, Dial, Progress};
use crate::attempts::{Came, NoAnswer};
use crate::context::{CallTimer, Cx};
use crate::large::{Datagram, STREAM_PATIENCE};
use crate::refusal::Reason;
use crate::unanswered::{Failure, UNREACHABLE};

impl Dial {
    /// The transaction has ended in silence, or its flow broke.
    pub(crate) fn on_no_answer(&mut self, cx: &mut Cx<'_>, why: &NoAnswer) -> Progress {
        self.client = None;
        self.note_unanswered(cx);
        self.take_datagram(cx);
        cx.cancel_timer(&mut self.attempt_timer);
        self.note(cx, &why.into());
        self.last = Some(Failure {
            sip_code: why.status(),
            ..UNREACHABLE
        });
        self.advance(cx)
    }

    /// A registered PBX that says nothing at all to an INVITE is taken for unreachable until it is heard again.
    fn note_unanswered(&self, cx: &Cx<'_>) {
        let by = self.current.as_ref().and_then(|target| target.by);
        if let Some(flow) = by.filter(|_| !self.heard) {
            cx.core.bindings.note_unanswered(&flow);
        }
    }

    /// The place that is being tried has said nothing while another waits, or another way to it.
    pub(crate) fn on_silent(&mut self, cx: &mut Cx<'_>) -> Progress {
        self.attempt_timer = None;
        if matches!(self.datagram, Datagram::Unneeded) {
            self.datagram = Datagram::Excluded;
            let rest = ATTEMPT_PATIENCE - STREAM_PATIENCE;
            if self.has_another() {
                self.attempt_timer = Some(cx.schedule(self.key, rest, CallTimer::Attempt));
            }
            return Progress::Waits;
        }
        self.take_datagram(cx);
        if let Some(client) = self.client.take() {
            cx.endpoint.cancel(client, b"", cx.now);
        }
        self.note(cx, &Came::Silence);
        self.last = Some(Failure {
            sip_code: 408,
            ..UNREACHABLE
        });
        self.advance(cx)
    }

    /// It has rung for long enough.
    pub(crate) fn on_ringing_timeout(&mut self, cx: &mut Cx<'_>) -> Progress {
        self.ringing_timer = None;
        // Nobody has heard of it: then it isn't the callee who doesn't answer.
        let reason = if self.heard {
            Reason::RingingTimeout
        } else {
            self.note_unanswered(cx);
            Reason::TrunkUnreachable
        };
        self.note(cx, &Came::Silence);
        self.cancel(cx, reason);
        Progress::Failed(Failure {
            sip_code: 408,
            reason,
            status: reason.unanswered(),
            cause: None,
        })
    }

    /// A peer that took a connection and said nothing is tried by datagram next.
    fn take_datagram(&mut self, cx: &mut Cx<'_>) {
        if let Some(target) = self.datagram.take(cx) {
            self.targets.push_front(target);
        }
    }
}
