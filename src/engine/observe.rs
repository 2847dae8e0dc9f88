//! Metrics and log lines of one shard: facts and messages as they pass, and gauges twice a second.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::field::display;
use trunkline_bounds::{IdTable, Shares};
use trunkline_calls::{Calls, ProofOutcome, Reason, UnknownSource};
use trunkline_model::attempt::{Attempt, AttemptOutcome};
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started};
use trunkline_net::listener::udp::Sent;
use trunkline_routing::{Outcome, Step};
use trunkline_sip::endpoint::{Counts, Endpoint, LargeRequest, Stats};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;
use uuid::Uuid;

use super::failed_log_ins;
use super::inbox::ShardRouter;
use crate::telemetry::metrics::{self, ShardMetrics, TransactionKind};
use crate::telemetry::redact::Printable;

/// Interval at which gauges are set.
const GAUGE_INTERVAL: Duration = Duration::from_millis(500);

/// Least time between two returns of memory to the system while calls are up: each return takes milliseconds.
const MIN_REST_INTERVAL: Duration = Duration::from_secs(10);

/// Counters of one shard.
#[derive(Debug)]
pub(crate) struct Observer {
    metrics: ShardMetrics,
    seen: Stats,
    next_look: Moment,
    /// True if something was alive or arrived since memory was last returned.
    is_stirred: bool,
    rested_at: Option<Moment>,
    calls: IdTable<Uuid, ObservedCall>,
    /// Shares of the node, by name, in the shard that shows them.
    shares: Vec<(&'static str, Arc<Shares>)>,
}

/// Call that is up, as it is counted.
#[derive(Debug)]
struct ObservedCall {
    /// Facts of its INVITE; the list of live calls holds them as well.
    started: Arc<Started>,
    has_rung: bool,
    answered: Option<Moment>,
}

impl Observer {
    pub(crate) fn new(shard: usize, shares: Vec<(&'static str, Arc<Shares>)>, now: Moment) -> Self {
        start_at_zero();
        Self {
            metrics: ShardMetrics::new(shard),
            seen: Stats::default(),
            next_look: now + GAUGE_INTERVAL,
            is_stirred: false,
            rested_at: None,
            calls: IdTable::default(),
            shares,
        }
    }

    pub(crate) const fn next_look(&self) -> Option<Moment> {
        Some(self.next_look)
    }

    pub(crate) fn received(&self, message: &Message<'_>) {
        if message.is_request() {
            let method = message.method().as_str();
            self.metrics
                .request_received(if method.is_empty() { "OTHER" } else { method });
        } else {
            self.metrics.responses_received(message.status(), 1);
        }
    }

    pub(crate) fn fact(&mut self, fact: &Fact) {
        match fact {
            Fact::Started(started) => {
                tracing::debug!(
                    call.id = %started.call,
                    org.id = %started.org,
                    sip.call_id = %Printable(started.caller_call_id.as_bytes()),
                    agent.id = started.agent.map(display),
                    "call started"
                );

                self.metrics.call_started(started.direction);
                let call = ObservedCall {
                    started: Arc::clone(started),
                    has_rung: false,
                    answered: None,
                };
                self.calls.insert(started.call, call);
            }

            Fact::Ringing { call, at, .. } => {
                if let Some(call) = self.calls.get_mut(call) {
                    call.rang(&self.metrics, *at);
                }
            }

            Fact::Answered { call, at, .. } => {
                if let Some(call) = self.calls.get_mut(call)
                    && call.answered.is_none()
                {
                    call.rang(&self.metrics, *at);
                    call.answered = Some(*at);
                    self.metrics.answered(at.since(call.started.at));
                }
            }

            Fact::Ended(ended) => self.ended(ended),
            Fact::Transfer(transfer) => tracing::debug!(
                call.id = %transfer.call,
                org.id = %transfer.org,
                transfer.id = %transfer.id,
                state = transfer.state.as_str(),
                way = transfer.way.as_str(),
                sip_code = transfer.sip_code,
                "transfer"
            ),
            Fact::Attempt(attempt) => log_attempt(attempt),
            Fact::Contact { .. } | Fact::Joined { .. } | Fact::Held { .. } | Fact::Media(_) => {}
        }
    }

    fn ended(&mut self, ended: &Ended) {
        let call = self.calls.remove(&ended.call);
        log_end(ended, call.as_ref());
        // A call whose beginning wasn't observed counts as inbound.
        let direction = call
            .as_ref()
            .map_or(Direction::Inbound, |call| call.started.direction);
        self.metrics.call_ended(direction, ended.status);

        match call.and_then(|call| call.answered) {
            Some(answered) => self.metrics.talked(direction, ended.at.since(answered)),
            None if ended.hangup_by == HangupBy::Platform => {
                let reason = ended.reason.as_deref().and_then(Reason::from_code);
                if let Some(reason) = reason {
                    metrics::refused(reason.code(), 1);
                }
            }
            None => {}
        }
    }

    /// Counts an INVITE that was refused before it became a call.
    pub(crate) fn turned(&self, reason: &'static str) {
        metrics::refused(reason, 1);
    }

    /// Counts a message from a source that its dialog doesn't know.
    pub(crate) fn foreign(&self, what: UnknownSource) {
        metrics::foreign(what.as_str(), 1);
    }

    /// Counts what became of the proof of its source that a call owed.
    pub(crate) fn proof(&self, outcome: ProofOutcome) {
        metrics::source_proofs(outcome.as_str(), 1);
    }

    /// Counts a call that continues with its next target.
    pub(crate) fn failed_over(&self, cause: AttemptOutcome) {
        metrics::failed_over(cause.as_str(), 1);
    }

    pub(crate) fn sent(&self, sent: Sent) {
        if sent.dropped > 0 {
            self.dropped(sent.dropped);
        }
    }

    pub(crate) fn dropped(&self, count: usize) {
        self.metrics.dropped(count as u64);
    }

    pub(crate) fn panicked(&self) {
        ::metrics::counter!("trunkline_panics_total").increment(1);
        tracing::error!("a panic ended one call");
    }

    /// Sets the gauges and adds the endpoint's counters, twice a second. A shard that has just become quiet first frees
    /// its memory, so that the gauges show it as empty.
    pub(crate) fn look(
        &mut self,
        endpoint: &mut Endpoint,
        calls: &Calls,
        router: &ShardRouter,
        shard: usize,
        now: Moment,
        free_memory: impl FnOnce(),
    ) {
        if now < self.next_look {
            return;
        }

        self.next_look = now + GAUGE_INTERVAL;
        let counts = endpoint.counts();
        let stats = endpoint.stats();
        let is_quiet = counts == Counts::default() && stats == self.seen;
        if self.may_rest(is_quiet, calls, now) {
            endpoint.rest();
            free_memory();
        }

        let (dialogs, _) = calls.left_over();
        self.metrics
            .alive(calls.len(), dialogs, router.shards()[shard].depth());
        for (kind, count) in [
            (TransactionKind::ServerInvite, counts.server_invite),
            (TransactionKind::ServerOther, counts.server_other),
            (TransactionKind::ClientInvite, counts.client_invite),
            (TransactionKind::ClientOther, counts.client_other),
            (TransactionKind::Tombstone, counts.tombstones),
        ] {
            self.metrics.transactions(kind, count);
        }

        for (resource, shares) in &self.shares {
            metrics::share_refusals(resource, shares.refused());
        }
        self.add(stats);
        while let Some(LargeRequest { peer, octets }) = endpoint.poll_large_request() {
            if should_warn(peer, now) {
                tracing::warn!(%peer, octets, "requests to this peer are too large for UDP and may be lost: reach it by TCP or TLS (transport=tcp in its URI, or the trunk's transport)");
            }
        }
    }

    /// Returns whether memory is to be returned now: the shard is quiet, and wasn't at some time since memory was last returned. Calls may be up:
    /// the transactions of a burst of set-ups end long before its calls.
    fn may_rest(&mut self, is_quiet: bool, calls: &Calls, now: Moment) -> bool {
        self.is_stirred |= !is_quiet;
        let is_early = self
            .rested_at
            .is_some_and(|at| now.since(at) < MIN_REST_INTERVAL);
        if !self.is_stirred || !is_quiet || (is_early && !calls.is_empty()) {
            return false;
        }

        self.is_stirred = false;
        self.rested_at = Some(now);
        true
    }

    fn add(&mut self, stats: Stats) {
        let seen = std::mem::replace(&mut self.seen, stats);
        self.metrics.malformed(stats.malformed - seen.malformed);
        self.metrics
            .skipped_lines(stats.skipped_lines - seen.skipped_lines);
        self.metrics.dropped(stats.dropped - seen.dropped);
        if stats.less_secure > seen.less_secure {
            metrics::foreign("response", stats.less_secure - seen.less_secure);
        }

        self.metrics.withheld(stats.withheld - seen.withheld);
        self.metrics.retransmissions(
            stats.retransmissions_received - seen.retransmissions_received,
            stats.retransmissions_sent - seen.retransmissions_sent,
        );

        self.metrics
            .large_requests(stats.large_requests - seen.large_requests);

        for (class, (now, before)) in stats
            .responses_sent
            .iter()
            .zip(seen.responses_sent)
            .enumerate()
            .skip(1)
        {
            self.metrics.responses_sent(
                u16::try_from(class * 100).expect("six classes"),
                now - before,
            );
        }
    }
}

impl ObservedCall {
    /// Records the post-dial delay at the first sign of the callee (RFC 6076 §4.3.1 measures it up to the same responses).
    fn rang(&mut self, metrics: &ShardMetrics, at: Moment) {
        if !std::mem::replace(&mut self.has_rung, true) {
            metrics.rang(self.started.direction, at.since(self.started.at));
        }
    }
}

/// Registers the counters whose labels the engine knows.
fn start_at_zero() {
    for reason in Reason::ALL {
        metrics::refused(reason.code(), 0);
    }
    for cause in AttemptOutcome::ALL {
        metrics::failed_over(cause.as_str(), 0);
    }
    for cause in failed_log_ins::CAUSES {
        metrics::auth_failures(cause, 0);
    }
}

/// Logs an attempt at a target: at `info` if the route to the target failed, else at `debug`.
fn log_attempt(attempt: &Attempt) {
    let Attempt {
        call,
        org,
        target,
        sip_code,
        ..
    } = attempt;
    let (leg, outcome) = (attempt.leg.as_str(), attempt.outcome.as_str());
    let peer = attempt.address.map(display);
    let (transport, detail) = (attempt.transport.as_deref(), attempt.detail.as_deref());
    let took_ms = u64::try_from(attempt.ended_at.since(attempt.began_at).as_millis());
    let took_ms = took_ms.unwrap_or(u64::MAX);
    let target = Printable(target.as_bytes());

    if attempt.outcome.is_of_the_way() {
        tracing::info!(call.id = %call, org.id = %org, leg, %target, peer, transport, outcome, detail, took_ms, "a target can't be reached");
    } else {
        tracing::debug!(call.id = %call, org.id = %org, leg, %target, peer, transport, outcome, sip_code, detail, took_ms, "tried a target");
    }
}

/// Logs the end of a call: who called whom, which agent and how it was chosen, for how long, and who ended it.
fn log_end(ended: &Ended, call: Option<&ObservedCall>) {
    let started = call.map(|call| &*call.started);
    let talked = call.and_then(|call| Some(ended.at.since(call.answered?)));
    let decision = started.and_then(|started| started.decision.as_deref());
    let chosen_by = decision.and_then(|decision| match decision.outcome {
        Outcome::Agent { step, .. } => Some(step_name(step)),
        Outcome::AgentBusy { .. } | Outcome::NoAgent => None,
    });

    tracing::info!(
        call.id = %ended.call,
        org.id = %ended.org,
        direction = started.map(|started| started.direction.as_str()),
        from = started.map(|started| display(LoggedNumber {
            number: &started.from,
            is_withheld: started.withholds_caller(),
        })),
        to = started.map(|started| display(LoggedNumber {
            number: &started.to,
            is_withheld: false,
        })),
        agent.id = started.and_then(|started| started.agent).map(display),
        chosen_by,
        status = ended.status.as_str(),
        sip_code = ended.sip_code,
        reason = ended.reason.as_deref(),
        talked_ms = talked.map(|talked| u64::try_from(talked.as_millis()).unwrap_or(u64::MAX)),
        hangup_by = ended.hangup_by.as_str(),
        "call ended"
    );
}

/// Name of the routing step that found the agent, as the API has it.
const fn step_name(step: Step) -> &'static str {
    match step {
        Step::Header => "header",
        Step::AssignedNumber => "assigned_number",
        Step::TrunkNumbers => "trunk_numbers",
        Step::FirstAvailable => "first_available",
    }
}

/// A number as the log has it: its last three digits, which are enough to find a call by, and too few to need erasing from the log.
struct LoggedNumber<'a> {
    number: &'a str,
    is_withheld: bool,
}

impl fmt::Display for LoggedNumber<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        if self.is_withheld {
            return f.write_str("anonymous");
        }

        f.write_char('…')?;
        let is_digit = |(_, octet): &(usize, u8)| octet.is_ascii_digit();
        // From the third digit from the end on, or from the first of fewer.
        let last = self.number.bytes().enumerate().rev().filter(is_digit);
        let from = last.take(SHOWN).last();
        let from = from.map_or(self.number.len(), |(at, _)| at);
        let mut digits = self.number[from..].chars().filter(char::is_ascii_digit);
        digits.try_for_each(|digit| f.write_char(digit))
    }
}

/// Returns true if no shard has warned about this peer in the last ten minutes; without the common table, each would warn. False too while
/// as many other peers are remembered as may be.
fn should_warn(peer: SocketAddr, now: Moment) -> bool {
    const LATELY: Duration = Duration::from_secs(600);
    const MAX_WARNED: usize = 1_024;
    static WARNED: Mutex<BTreeMap<SocketAddr, Moment>> = Mutex::new(BTreeMap::new());

    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    warned.retain(|_, at| now.since(*at) < LATELY);
    if warned.contains_key(&peer) || warned.len() >= MAX_WARNED {
        return false;
    }
    warned.insert(peer, now);
    true
}
