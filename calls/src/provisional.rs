//! Provisional answers of the runtime, and PRACK (RFC 3262): each early dialog of the runtime is an early
//! dialog of ours towards the caller; one reliable answer at a time is out, others wait their turn.

use std::time::Duration;

use smallvec::SmallVec;
use trunkline_model::record::Fact;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::header::rack::RAck;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Framing, HeaderName, Message, Method, lex};

use super::allow::own_lines;
use super::call::{Call, ForkDialog, Held, Provisional, Purpose, Side, Speaker, Unacknowledged};
use super::context::{CallTimer, Cx, TagOwner};
use super::crossing::Place;
use super::has_sdp;
use super::refusal::Reason;

/// T1 of RFC 3262 §3; the interval doubles.
const T1_MS: u32 = 500;
/// 64*T1: how long a PRACK is waited for.
const PATIENCE: Duration = Duration::from_secs(32);
/// Early dialogs of one call, over all forks and attempts.
const MAX_FORKS: u8 = 16;
/// Reliable answers that may wait behind an unacknowledged one.
const MAX_QUEUED: usize = 8;

impl Call {
    /// A 1xx of the runtime to the INVITE that is being tried.
    pub(crate) fn on_runtime_provisional(&mut self, cx: &mut Cx<'_>, message: &Message<'_>) {
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        // The next hop has it, and nothing is known of who comes after: a proxy before a dead runtime says no more. The timer runs on.
        if message.status() == 100 {
            return;
        }
        let offered = setup.caller_offered;
        let mut timer = setup.attempt_timer.take();
        cx.cancel_timer(&mut timer);
        // The callee of an outbound call has answered: what the runtime says meanwhile is for nobody.
        if self.outbound.is_some() {
            return;
        }
        let Some(fork) = self.fork_for(cx, message) else {
            return;
        };
        let runtime_rseq = message
            .number(HeaderName::RSeq)
            .filter(|_| message.has_token(HeaderName::Require, "100rel"));
        if runtime_rseq.is_some_and(|rseq| !self.is_next_rseq(fork, rseq)) {
            return;
        }
        self.note_ringing(cx);
        let (caller, runtime) = (self.caller.abilities, runtime_rseq.is_some());
        let is_reliable = caller.requires_reliable || (runtime && caller.reliable);
        // What the runtime doesn't say reliably is no offer, and would be one from us: its 2xx makes it.
        let is_bare = is_reliable && !runtime && !offered && has_sdp(message);
        let answer = self.provisional(cx, fork, runtime_rseq, message, is_bare);
        if is_reliable {
            return self.queue_reliable(cx, answer);
        }
        if let Some(rseq) = runtime_rseq {
            self.send_prack(cx, fork, rseq, Purpose::Own, None);
        }
        self.send_provisional(cx, &answer, None);
    }

    fn provisional(
        &self,
        cx: &Cx<'_>,
        fork: u8,
        runtime_rseq: Option<u32>,
        message: &Message<'_>,
        is_bare: bool,
    ) -> Provisional {
        let mut head = Vec::new();
        let prefix = &cx.core.config.header_prefix;
        let body = if is_bare { b"" } else { message.body() };
        let crossing = self.crossing(Side::Agent, Place::Response, prefix);
        crossing.copy_but(&mut Head::new(&mut head), message, body, &[]);
        Provisional {
            status: message.status(),
            fork,
            runtime_rseq,
            has_sdp: !is_bare && has_sdp(message),
            head: head.into(),
            body: body.into(),
        }
    }

    fn note_ringing(&mut self, cx: &mut Cx<'_>) {
        let Some(setup) = self.setup.as_deref_mut().filter(|setup| !setup.rang) else {
            return;
        };
        setup.rang = true;
        cx.core.fact(Fact::Ringing {
            call: self.id,
            org: self.org,
            at: cx.now,
        });
    }

    /// The number of the early dialog that the answer belongs to; a new one gets a To-tag of ours towards
    /// the caller. `None` beyond what one call may have, or for an answer that makes no dialog.
    pub(crate) fn fork_for(&mut self, cx: &mut Cx<'_>, message: &Message<'_>) -> Option<u8> {
        let Speaker::Runtime(leg) = &mut self.speaker else {
            return None;
        };
        let tag = message.to_tag().unwrap_or_default();
        if let Some(fork) = leg.fork_of(tag) {
            leg.dialog(fork)?.refresh_target(message);
            return Some(fork);
        }
        let setup = self.setup.as_deref_mut()?;
        if setup.forks == MAX_FORKS {
            return None;
        }
        let uri = setup.current.as_ref()?.uri.as_bytes();
        let dialog = Dialog::uac(uri, message)?;
        let fork = setup.forks;
        setup.forks += 1;
        leg.dialogs.push(ForkDialog { fork, dialog });
        let tag = cx.mint_tag(
            self.slot,
            TagOwner {
                key: self.key,
                side: Side::Caller,
                fork,
            },
        );
        self.tags.push(tag.bits());
        let dialog = Dialog::uas(setup.invite(), tag.as_bytes())?;
        self.caller.dialogs.push(ForkDialog { fork, dialog });
        Some(fork)
    }

    /// RFC 3262 §4: answers are acknowledged in their order, each once.
    fn is_next_rseq(&mut self, fork: u8, rseq: u32) -> bool {
        let Some(setup) = self.setup.as_deref_mut() else {
            return false;
        };
        match setup
            .runtime_rseqs
            .iter_mut()
            .find(|(held, _)| *held == fork)
        {
            Some((_, last)) if last.checked_add(1) == Some(rseq) => {
                *last = rseq;
                true
            }
            Some(_) => false,
            None => {
                setup.runtime_rseqs.push((fork, rseq));
                true
            }
        }
    }

    fn queue_reliable(&mut self, cx: &mut Cx<'_>, answer: Provisional) {
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        let mut out = setup.unacknowledged.iter();
        if out.all(|sent| sent.answer.fork != answer.fork) {
            return self.send_reliable(cx, answer);
        }
        if setup.queued.len() < MAX_QUEUED {
            setup.queued.push_back(answer);
        }
    }

    fn send_reliable(&mut self, cx: &mut Cx<'_>, answer: Provisional) {
        let timer = cx.schedule(
            self.key,
            Duration::from_millis(u64::from(T1_MS)),
            CallTimer::Reliable(answer.fork),
        );
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        let rseq = next_rseq(&mut setup.rseqs, answer.fork);
        self.send_provisional(cx, &answer, Some(rseq));
        let sent = Unacknowledged {
            answer,
            rseq,
            sent: cx.now,
            interval_ms: T1_MS,
            timer,
        };
        if let Some(setup) = self.setup.as_deref_mut() {
            setup.unacknowledged.push(sent);
        }
    }

    fn send_provisional(&mut self, cx: &mut Cx<'_>, answer: &Provisional, rseq: Option<u32>) {
        let body = self.with_origin(Side::Caller, &answer.body);
        let Some(dialog) = self.caller.dialog_ref(answer.fork) else {
            return;
        };
        let contact = cx.contact(&self.caller.flow, self.caller.is_sips);
        let methods = self.methods(Side::Caller);
        let write = |head: &mut Head<'_>| {
            own_lines(head, &contact, methods);
            if let Some(rseq) = rseq {
                head.line("Require", b"100rel");
                head.number("RSeq", u64::from(rseq));
            }
            head.raw(&answer.head);
        };
        let Some(invite) = self.invite else {
            return;
        };
        cx.respond(
            invite,
            answer.status,
            Some(dialog.local_tag()),
            write,
            &body,
        );
    }

    /// A reliable provisional has not been acknowledged: again, with twice the interval, until 64·T1.
    pub(crate) fn on_reliable_timer(&mut self, cx: &mut Cx<'_>, fork: u8) {
        let Some(mut sent) = self.take_sent(|sent| sent.answer.fork == fork) else {
            return;
        };
        let waited = cx.now.since(sent.sent);
        if waited >= PATIENCE {
            return self.on_unacknowledged(cx, fork);
        }
        self.send_provisional(cx, &sent.answer, Some(sent.rseq));
        sent.interval_ms *= 2;
        let interval = Duration::from_millis(u64::from(sent.interval_ms));
        let left = PATIENCE - waited;
        sent.timer = cx.schedule(self.key, interval.min(left), CallTimer::Reliable(fork));
        if let Some(setup) = self.setup.as_deref_mut() {
            setup.unacknowledged.push(sent);
        }
    }

    /// RFC 3262 §3: who is never acknowledged ends its own part of the call, and the last one the call.
    fn on_unacknowledged(&mut self, cx: &mut Cx<'_>, fork: u8) {
        let (Some(setup), Speaker::Runtime(leg)) = (self.setup.as_deref_mut(), &self.speaker)
        else {
            return;
        };
        setup.queued.retain(|answer| answer.fork != fork);
        let others = leg.dialogs.iter().any(|held| held.fork != fork);
        let goes_on = match &setup.held {
            Some(held) => held.won.fork != fork,
            // The dialogs are those of the attempt that runs: without it, it is of one that has failed.
            None => others || leg.dialog_ref(fork).is_none(),
        };
        if !goes_on {
            self.refuse(cx, Reason::NoAck);
        }
    }

    fn take_sent(&mut self, is_it: impl Fn(&Unacknowledged) -> bool) -> Option<Unacknowledged> {
        let sent = &mut self.setup.as_deref_mut()?.unacknowledged;
        let at = sent.iter().position(is_it)?;
        Some(sent.swap_remove(at))
    }

    /// The caller's PRACK.
    pub(crate) fn on_prack(
        &mut self,
        cx: &mut Cx<'_>,
        fork: u8,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        let Some(sent) = self.take_acknowledged(fork, message) else {
            let status = if self.takes_late(fork, message) {
                200
            } else {
                481
            };
            return cx.respond(server, status, None, |_| {}, b"");
        };
        cx.core.timers.cancel(sent.timer);
        if let Some(setup) = self.setup.as_deref_mut() {
            let agrees = sent.answer.has_sdp && (setup.caller_offered || has_sdp(message));
            setup.agreed.extend(agrees.then_some(fork));
        }
        self.hear(Side::Caller, message);
        match sent.answer.runtime_rseq {
            // An attempt that has failed since wants no PRACK any more.
            Some(rseq) => {
                if !self.send_prack(cx, fork, rseq, Purpose::Relay(server), Some(message)) {
                    cx.respond(server, 200, None, |_| {}, b"");
                }
            }
            None => cx.respond(server, 200, None, |_| {}, b""),
        }
        self.after_prack(cx, fork);
    }

    fn take_acknowledged(&mut self, fork: u8, message: &Message<'_>) -> Option<Unacknowledged> {
        let rack = RAck::parse(message.first(HeaderName::RAck)?)?;
        if rack.cseq != self.setup.as_deref()?.invite().cseq().number {
            return None;
        }
        self.take_sent(|sent| names(&rack, (sent.answer.fork, sent.rseq), fork))
    }

    /// Whether this is the PRACK that was missing when the call was answered; one that offers something then comes too late.
    fn takes_late(&mut self, fork: u8, message: &Message<'_>) -> bool {
        let rack = message.first(HeaderName::RAck).and_then(RAck::parse);
        let is_late = |late: &mut (u8, u32)| rack.is_some_and(|rack| names(&rack, *late, fork));
        !has_sdp(message) && self.late_prack.take_if(is_late).is_some()
    }

    /// What has waited goes on: the 2xx that won, else the next answer of this fork.
    fn after_prack(&mut self, cx: &mut Cx<'_>, fork: u8) {
        let Some(setup) = self.setup.as_deref_mut() else {
            return;
        };
        let won = setup.held.as_ref().map(|held| held.won.fork);
        if won.is_some_and(|won| !setup.owes_answer(won)) {
            return self.let_go(cx);
        }
        let mut queued = setup.queued.iter();
        let next = queued.position(|answer| answer.fork == fork);
        // Once a fork has won, nothing more is told of the others.
        if won.is_none_or(|won| won == fork)
            && let Some(next) = next.and_then(|at| setup.queued.remove(at))
        {
            self.send_reliable(cx, next);
        }
    }

    /// The 2xx that was held back.
    fn let_go(&mut self, cx: &mut Cx<'_>) {
        let setup = self.setup.as_deref_mut();
        let Some(Held { won, answer }) = setup.and_then(|setup| setup.held.take()) else {
            return;
        };
        let message =
            lex(&answer, Framing::Datagram).expect("these octets were lexed when they came");
        self.take_answer(cx, won, &message);
    }

    fn send_prack(
        &mut self,
        cx: &mut Cx<'_>,
        fork: u8,
        rseq: u32,
        purpose: Purpose,
        content: Option<&Message<'_>>,
    ) -> bool {
        let cseq = u32::from(self.runtime_cseq);
        let extra = |head: &mut Head<'_>| head.fmt("RAck", format_args!("{rseq} {cseq} INVITE"));
        self.send_in_dialog(
            cx,
            Side::Agent,
            fork,
            (Method::Prack, "PRACK"),
            purpose,
            content,
            extra,
        )
    }
}

/// Whether a PRACK in `fork` names the provisional of that fork and RSeq.
fn names(rack: &RAck<'_>, (of, rseq): (u8, u32), fork: u8) -> bool {
    of == fork && rack.rseq == rseq && rack.method_token == b"INVITE"
}

/// The next RSeq of ours in a fork.
fn next_rseq(sent: &mut SmallVec<[(u8, u32); 1]>, fork: u8) -> u32 {
    match sent.iter_mut().find(|(of, _)| *of == fork) {
        Some((_, last)) => {
            *last += 1;
            *last
        }
        None => {
            sent.push((fork, 1));
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fork_counts_by_itself() {
        let mut sent = SmallVec::new();
        let counted: Vec<u32> = [0, 1, 0, 0, 2, 1]
            .into_iter()
            .map(|fork| next_rseq(&mut sent, fork))
            .collect();
        assert_eq!(counted, [1, 1, 2, 3, 1, 2]);
    }
}
