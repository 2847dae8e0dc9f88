//! Metrics of the daemon: names, descriptions, and handles that cost one atomic operation.
//!
//! Names are part of the interface. A shard holds its `ShardMetrics`; nothing on the path of a message looks a metric
//! up by name.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

/// Calls that began, by `direction`.
const CALLS_STARTED: &str = "trunkline_calls_started_total";
/// Calls that ended, by `direction` and `status`.
const CALLS_ENDED: &str = "trunkline_calls_ended_total";
/// Calls now up, by `shard`.
const CALLS_ACTIVE: &str = "trunkline_calls_active";
/// From INVITE to its 2xx.
const SETUP_SECONDS: &str = "trunkline_call_setup_seconds";
/// INVITEs refused by us, by `reason`.
const REFUSALS: &str = "trunkline_refusals_total";
/// Targets that were tried since the one before had failed, by `cause`.
const FAIL_OVERS: &str = "trunkline_fail_overs_total";
/// Responses sent, by `class`.
const SIP_SENT: &str = "trunkline_sip_responses_sent_total";
/// Responses received, by `class`.
const SIP_RECEIVED: &str = "trunkline_sip_responses_received_total";
/// Requests received, by `method`.
const SIP_REQUESTS: &str = "trunkline_sip_requests_received_total";
/// Messages that were no SIP.
const SIP_MALFORMED: &str = "trunkline_sip_malformed_total";
/// Messages dropped for lack of room, by `cause`.
const SIP_DROPPED: &str = "trunkline_sip_dropped_total";
/// Messages inside calls from a place that their dialog doesn't know, by `what` became of them.
const SIP_FOREIGN: &str = "trunkline_sip_foreign_total";
/// Answers by UDP that weren't sent: to requests that prove nothing and are small, or flood.
const SIP_WITHHELD: &str = "trunkline_sip_answers_withheld_total";
/// Requests sent by UDP that may be cut on their way.
const SIP_LARGE: &str = "trunkline_sip_large_requests_total";
/// Retransmissions, by `way` (`in`, `out`).
const SIP_RETRANSMISSIONS: &str = "trunkline_sip_retransmissions_total";
/// Transactions alive, by `shard` and `kind`.
const TRANSACTIONS: &str = "trunkline_sip_transactions";
/// Dialogs alive, by `shard`.
const DIALOGS: &str = "trunkline_sip_dialogs";
/// Depth of a queue, by `queue`.
const QUEUE_DEPTH: &str = "trunkline_queue_depth";
/// HTTP connections without room.
const HTTP_REFUSED: &str = "trunkline_http_connections_refused_total";
/// HTTP requests, by `method`, `route` and `status`.
const HTTP_REQUESTS: &str = "trunkline_http_requests_total";
/// From an HTTP request to its answer, by `route`.
const HTTP_SECONDS: &str = "trunkline_http_request_seconds";
/// 1, with the `version`.
const BUILD_INFO: &str = "trunkline_build_info";
/// 1 while new calls are taken, 0 while draining or not ready.
const READY: &str = "trunkline_ready";

/// Runtimes and carriers that are watched, by `state` (`up`, `down`, `unknown`).
const PEERS: &str = "trunkline_peers";
/// Outbound trunks that want to be registered, by `state`.
const OUTBOUND_REGISTRATIONS: &str = "trunkline_outbound_registrations";
/// REGISTERs of ours that came to an end, by `outcome`.
const OUTBOUND_REGISTRATIONS_TRIED: &str = "trunkline_outbound_registration_attempts_total";
/// Contacts that PBXs have registered.
const REGISTRATIONS: &str = "trunkline_registrations";
/// Trunks that came or went, by `what`.
const REGISTRATION_CHANGES: &str = "trunkline_registration_changes_total";
/// 1 while the database answers.
const DATABASE_UP: &str = "trunkline_database_up";

/// Seconds by which this machine's clock is ahead of the database's.
const CLOCK_SKEW: &str = "trunkline_clock_skew_seconds";

/// Upper bounds of set-up times, in seconds.
const SETUP_BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0,
];
/// Upper bounds of HTTP request times, in seconds.
const HTTP_BUCKETS: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0];

/// Installs the registry for the whole process (once) and returns the handle that renders it.
pub fn install() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = recorder();
            let handle = recorder.handle();
            if metrics::set_global_recorder(recorder).is_ok() {
                describe();
            }
            handle
        })
        .clone()
}

fn recorder() -> PrometheusRecorder {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(SETUP_SECONDS.to_owned()), &SETUP_BUCKETS)
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Full(HTTP_SECONDS.to_owned()), &HTTP_BUCKETS)
        })
        .expect("neither list of buckets is empty")
        .build_recorder()
}

/// Counters of rare events. They are registered at start-up, so that the first event shows as a change.
const RARE: [&str; 11] = [
    "trunkline_auth_failures_unrecorded_total",
    "trunkline_changes_late_total",
    "trunkline_events_unrecorded_total",
    "trunkline_journal_errors_total",
    "trunkline_journal_full_total",
    "trunkline_journal_project_errors_total",
    "trunkline_journal_refused_facts_total",
    "trunkline_panics_total",
    "trunkline_sip_connections_refused_total",
    "trunkline_spans_lost_total",
    "trunkline_traces_left_out_total",
];

fn describe() {
    for (name, text) in [
        (CALLS_STARTED, "Calls that began"),
        (CALLS_ENDED, "Calls that ended, by their final status"),
        (REFUSALS, "INVITEs refused by this node, by reason"),
        (
            FAIL_OVERS,
            "Targets tried since the one before had failed, by cause",
        ),
        (SIP_SENT, "SIP responses sent, by class"),
        (SIP_RECEIVED, "SIP responses received, by class"),
        (SIP_REQUESTS, "SIP requests received, by method"),
        (SIP_MALFORMED, "Messages received that are no SIP"),
        (SIP_DROPPED, "Messages dropped for lack of room, by cause"),
        (
            SIP_FOREIGN,
            "Messages inside calls from a place that their dialog doesn't know",
        ),
        (
            SIP_WITHHELD,
            "Answers by UDP not sent, as unproven requests would have brought more than they sent",
        ),
        (
            SIP_LARGE,
            "Requests sent by UDP that are larger than 1,300 octets",
        ),
        (SIP_RETRANSMISSIONS, "SIP retransmissions seen and sent"),
        (HTTP_REQUESTS, "HTTP requests answered"),
        (HTTP_REFUSED, "HTTP connections for which there was no room"),
        (
            OUTBOUND_REGISTRATIONS_TRIED,
            "Attempts to register with carriers, by outcome",
        ),
        (REGISTRATION_CHANGES, "Trunks whose PBX registered or went"),
    ] {
        metrics::describe_counter!(name, text);
    }

    for (name, text) in [
        (CALLS_ACTIVE, "Calls now up"),
        (TRANSACTIONS, "SIP transactions alive"),
        (DIALOGS, "SIP dialogs alive"),
        (QUEUE_DEPTH, "What waits in a queue"),
        (BUILD_INFO, "The running version"),
        (READY, "1 while new calls are taken"),
        (PEERS, "Runtimes and carriers that are watched, by state"),
        (
            OUTBOUND_REGISTRATIONS,
            "Outbound trunks that this node registers, by state",
        ),
        (REGISTRATIONS, "Contacts that PBXs have registered"),
        (DATABASE_UP, "1 while the database answers"),
        (
            CLOCK_SKEW,
            "Seconds by which this machine's clock is ahead of the database's",
        ),
    ] {
        metrics::describe_gauge!(name, text);
    }

    metrics::describe_histogram!(SETUP_SECONDS, Unit::Seconds, "From INVITE to its 2xx");
    metrics::describe_histogram!(
        HTTP_SECONDS,
        Unit::Seconds,
        "From an HTTP request to its answer"
    );

    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1);
    for name in RARE {
        counter!(name).increment(0);
    }
}

/// Gauge of one queue; its owner sets it.
pub fn queue_depth(queue: impl Into<String>) -> Gauge {
    gauge!(QUEUE_DEPTH, "queue" => queue.into())
}

/// Counts messages inside calls from a place that their dialog doesn't know.
pub fn foreign(what: &'static str, count: u64) {
    counter!(SIP_FOREIGN, "what" => what).increment(count);
}

/// Sets whether new calls are taken.
pub fn ready(ready: bool) {
    gauge!(READY).set(u8::from(ready));
}

/// Sets whether the database answers.
pub fn database_up(up: bool) {
    gauge!(DATABASE_UP).set(u8::from(up));
}

/// Sets the seconds by which this machine's clock is ahead of the database's.
pub fn clock_skew(seconds: f64) {
    gauge!(CLOCK_SKEW).set(seconds);
}

/// Sets the number of runtimes and carriers that are up, down and unknown.
pub fn peers(counts: [usize; 3]) {
    for (state, count) in ["up", "down", "unknown"].into_iter().zip(counts) {
        gauge!(PEERS, "state" => state).set(count as f64);
    }
}

/// Sets the number of outbound trunks in each state of registration.
pub fn outbound_registrations(counts: impl IntoIterator<Item = (&'static str, usize)>) {
    for (state, count) in counts {
        gauge!(OUTBOUND_REGISTRATIONS, "state" => state).set(count as f64);
    }
}

/// Counts an attempt to register with a carrier.
pub fn outbound_registration(outcome: &'static str) {
    counter!(OUTBOUND_REGISTRATIONS_TRIED, "outcome" => outcome).increment(1);
}

/// Sets the number of registered contacts.
pub fn registrations(count: usize) {
    gauge!(REGISTRATIONS).set(count as f64);
}

/// Counts a trunk whose registration came or went.
pub fn registration_change(what: &'static str) {
    counter!(REGISTRATION_CHANGES, "what" => what).increment(1);
}

/// Counts one HTTP request. `route` is the router's pattern, never the path as sent.
pub fn http_request(method: &'static str, route: &str, status: u16, took: Duration) {
    counter!(HTTP_REQUESTS, "method" => method, "route" => route.to_owned(), "status" => status.to_string()).increment(1);
    histogram!(HTTP_SECONDS, "route" => route.to_owned()).record(took);
}

/// Counts an HTTP connection that was refused for lack of room.
pub fn http_connection_refused() {
    counter!(HTTP_REFUSED).increment(1);
}

/// Kinds of transactions that are counted separately.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TransactionKind {
    /// INVITEs received.
    ServerInvite,
    /// Other requests received.
    ServerOther,
    /// INVITEs sent.
    ClientInvite,
    /// Other requests sent.
    ClientOther,
    /// Finished ones that still answer retransmissions.
    Tombstone,
}

impl TransactionKind {
    const ALL: [Self; 5] = [
        Self::ServerInvite,
        Self::ServerOther,
        Self::ClientInvite,
        Self::ClientOther,
        Self::Tombstone,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::ServerInvite => "server_invite",
            Self::ServerOther => "server_other",
            Self::ClientInvite => "client_invite",
            Self::ClientOther => "client_other",
            Self::Tombstone => "tombstone",
        }
    }
}

/// Metrics of one shard. Methods take `&self` and are cheap.
#[derive(Debug)]
pub struct ShardMetrics {
    started: [Counter; 2],
    setup: Histogram,
    sent: Classes,
    received: Classes,
    requests: Requests,
    malformed: Counter,
    dropped: Counter,
    withheld: Counter,
    large_requests: Counter,
    retransmissions_in: Counter,
    retransmissions_out: Counter,
    active: Gauge,
    dialogs: Gauge,
    transactions: [Gauge; 5],
    queue: Gauge,
}

/// One counter per class of status codes, 1xx first.
#[derive(Debug)]
struct Classes([Counter; 6]);

impl Classes {
    fn new(name: &'static str) -> Self {
        Self(
            ["1xx", "2xx", "3xx", "4xx", "5xx", "6xx"]
                .map(|class| counter!(name, "class" => class)),
        )
    }

    fn add(&self, status: u16, count: u64) {
        if let Some(class) = usize::from(status / 100)
            .checked_sub(1)
            .and_then(|index| self.0.get(index))
        {
            class.increment(count);
        }
    }
}

/// One counter per method, from its first request on.
#[derive(Debug, Default)]
struct Requests(RefCell<Vec<(&'static str, Counter)>>);

impl Requests {
    fn add(&self, method: &'static str) {
        let mut known = self.0.borrow_mut();
        let place = known.iter().position(|(name, _)| *name == method);
        let place = place.unwrap_or_else(|| {
            known.push((method, counter!(SIP_REQUESTS, "method" => method)));
            known.len() - 1
        });
        known[place].1.increment(1);
    }
}

impl ShardMetrics {
    /// Makes the handles of shard number `shard`.
    pub fn new(shard: usize) -> Self {
        let shard = shard.to_string();
        Self {
            started: ["inbound", "outbound"]
                .map(|direction| counter!(CALLS_STARTED, "direction" => direction)),
            setup: histogram!(SETUP_SECONDS),
            sent: Classes::new(SIP_SENT),
            received: Classes::new(SIP_RECEIVED),
            requests: Requests::default(),
            malformed: counter!(SIP_MALFORMED),
            dropped: counter!(SIP_DROPPED, "cause" => "overload"),
            withheld: counter!(SIP_WITHHELD),
            large_requests: counter!(SIP_LARGE),
            retransmissions_in: counter!(SIP_RETRANSMISSIONS, "way" => "in"),
            retransmissions_out: counter!(SIP_RETRANSMISSIONS, "way" => "out"),
            active: gauge!(CALLS_ACTIVE, "shard" => shard.clone()),
            dialogs: gauge!(DIALOGS, "shard" => shard.clone()),
            transactions: TransactionKind::ALL.map(
                |kind| gauge!(TRANSACTIONS, "shard" => shard.clone(), "kind" => kind.as_str()),
            ),
            queue: queue_depth(format!("shard_{shard}")),
        }
    }

    /// Counts a call that began, inbound or outbound.
    pub fn call_started(&self, inbound: bool) {
        self.started[usize::from(!inbound)].increment(1);
    }

    /// Counts a call that ended. `direction` and `status` are names of the API.
    pub fn call_ended(&self, direction: &'static str, status: &'static str) {
        counter!(CALLS_ENDED, "direction" => direction, "status" => status).increment(1);
    }

    /// Counts a call that continues with another target because one failed for `cause`.
    pub fn failed_over(&self, cause: &'static str) {
        counter!(FAIL_OVERS, "cause" => cause).increment(1);
    }

    /// Counts an INVITE that we refused for `reason`, a stable code.
    pub fn refused(&self, reason: &'static str) {
        counter!(REFUSALS, "reason" => reason).increment(1);
    }

    /// Records an INVITE that was answered 2xx after `took`.
    pub fn answered(&self, took: Duration) {
        self.setup.record(took);
    }

    /// Counts a received request. `method` is one of the known names, or `OTHER`.
    pub fn request_received(&self, method: &'static str) {
        self.requests.add(method);
    }

    /// Counts sent responses with `status`, or any of its class.
    pub fn responses_sent(&self, status: u16, count: u64) {
        self.sent.add(status, count);
    }

    /// Counts received responses with `status`, or any of its class.
    pub fn responses_received(&self, status: u16, count: u64) {
        self.received.add(status, count);
    }

    /// Counts received messages that aren't SIP.
    pub fn malformed(&self, count: u64) {
        self.malformed.increment(count);
    }

    /// Counts messages dropped for lack of room.
    pub fn dropped(&self, count: u64) {
        self.dropped.increment(count);
    }

    /// Counts answers that were withheld because they would amplify a flood.
    pub fn withheld(&self, count: u64) {
        self.withheld.increment(count);
    }

    /// Counts requests sent by UDP that were too large for it.
    pub fn large_requests(&self, count: u64) {
        self.large_requests.increment(count);
    }

    /// Counts retransmissions, received and sent.
    pub fn retransmissions(&self, received: u64, sent: u64) {
        self.retransmissions_in.increment(received);
        self.retransmissions_out.increment(sent);
    }

    /// Sets the number of calls and dialogs, and the depth of the inbox.
    pub fn alive(&self, calls: usize, dialogs: usize, queued: usize) {
        self.active.set(calls as f64);
        self.dialogs.set(dialogs as f64);
        self.queue.set(queued as f64);
    }

    /// Sets the number of transactions.
    pub fn transactions(&self, kind: TransactionKind, count: usize) {
        self.transactions[kind as usize].set(count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_a_shard_counts_is_rendered() {
        let recorder = recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            describe();
            let shard = ShardMetrics::new(0);
            shard.call_started(true);
            shard.call_ended("inbound", "completed");
            shard.refused("agent_busy");
            shard.answered(Duration::from_millis(3));
            shard.request_received("INVITE");
            shard.responses_sent(183, 1);
            shard.responses_received(486, 2);
            shard.responses_sent(777, 9);
            shard.malformed(1);
            shard.dropped(1);
            shard.retransmissions(1, 2);
            shard.alive(1, 2, 3);
            shard.transactions(TransactionKind::ClientInvite, 5);
            http_request(
                "GET",
                "/phone/calls/{call_id}",
                200,
                Duration::from_millis(2),
            );
            ready(true);
            database_up(false);
        });
        let rendered = handle.render();
        let mut lines: Vec<_> = rendered
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty() && !line.ends_with(" 0"))
            .collect();
        lines.sort_unstable();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
