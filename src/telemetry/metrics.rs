//! Counts and sets the daemon's metrics, through handles that cost one atomic operation.
//!
//! A shard holds its `ShardMetrics`; nothing on the path of a message looks a metric up by name.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use trunkline_model::record::{Direction, Status};

use super::catalogue::{
    AUTH_FAILURES, CALLS_ACTIVE, CALLS_ENDED, CALLS_STARTED, CARRIER_ATTEMPTS, CERTIFICATE_EXPIRY,
    CLOCK_SKEW, DATABASE_UP, DIALOGS, DURATION_SECONDS, FAIL_OVERS, FEED_LAG, HTTP_REFUSED,
    HTTP_REQUESTS, HTTP_SECONDS, LOG_DROPPED, OUTBOUND_REGISTRATIONS, OUTBOUND_TRUNKS, PEERS,
    POST_DIAL_DELAY, QUEUE_DEPTH, READY, REFUSALS, REGISTRATION_CHANGES, REGISTRATIONS, RUNTIMES,
    SETUP_SECONDS, SHARE_REFUSALS, SIP_DROPPED, SIP_FOREIGN, SIP_LARGE, SIP_MALFORMED, SIP_PROOFS,
    SIP_RECEIVED, SIP_REQUESTS, SIP_RETRANSMISSIONS, SIP_SENT, SIP_SKIPPED_LINES, SIP_WITHHELD,
    TRANSACTIONS, WEBHOOK_ATTEMPTS, WEBHOOK_GIVEN_UP, WEBHOOK_OLDEST, WEBHOOK_PENDING,
    WEBHOOK_SECONDS, describe,
};

/// Upper bounds of each histogram's buckets, in the unit of its name.
const BUCKETS: [(&str, &[f64]); 13] = [
    (
        SETUP_SECONDS,
        &[
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0,
        ],
    ),
    (
        POST_DIAL_DELAY,
        &[
            0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 11.0, 20.0, 60.0,
        ],
    ),
    (
        DURATION_SECONDS,
        &[
            5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0,
        ],
    ),
    (
        HTTP_SECONDS,
        &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0],
    ),
    (
        WEBHOOK_SECONDS,
        &[0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0],
    ),
    (
        "trunkline_media_first_word_seconds",
        &[
            0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0,
        ],
    ),
    (
        "trunkline_media_clear_seconds",
        &[0.005, 0.01, 0.02, 0.025, 0.03, 0.05, 0.1],
    ),
    (
        "trunkline_media_tick_late_seconds",
        &[0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.02, 0.1],
    ),
    (
        "trunkline_media_mos",
        &[1.5, 2.0, 2.5, 3.0, 3.3, 3.6, 3.8, 4.0, 4.2, 4.3, 4.4],
    ),
    (
        "trunkline_media_loss_ratio",
        &[0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5],
    ),
    (
        "trunkline_media_jitter_seconds",
        &[0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2],
    ),
    (
        "trunkline_media_round_trip_seconds",
        &[0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0],
    ),
    (
        "trunkline_database_transaction_seconds",
        &[
            0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
        ],
    ),
];

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
    let builder = BUCKETS
        .iter()
        .try_fold(PrometheusBuilder::new(), |builder, (name, bounds)| {
            builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), bounds)
        });
    builder
        .expect("no list of buckets is empty")
        .build_recorder()
}

/// Gauge of one queue; its owner sets it.
pub fn queue_depth(queue: impl Into<String>) -> Gauge {
    gauge!(QUEUE_DEPTH, "queue" => queue.into())
}

/// Counts messages inside calls from an address that their dialog doesn't know.
pub fn foreign(what: &'static str, count: u64) {
    counter!(SIP_FOREIGN, "what" => what).increment(count);
}

/// Counts what became of the proof of its source that a call over UDP owed.
pub fn source_proofs(outcome: &'static str, count: u64) {
    counter!(SIP_PROOFS, "outcome" => outcome).increment(count);
}

/// Sets whether new calls are taken.
pub fn ready(ready: bool) {
    gauge!(READY).set(u8::from(ready));
}

/// Sets whether the database answers and can be written.
pub fn database_up(up: bool) {
    gauge!(DATABASE_UP).set(u8::from(up));
}

/// Sets the seconds by which this machine's clock is ahead of the database's.
pub fn clock_skew(seconds: f64) {
    gauge!(CLOCK_SKEW).set(seconds);
}

/// Counts the log lines dropped so far.
pub fn log_lines_dropped() {
    let dropped = u64::try_from(super::log::dropped_lines()).unwrap_or(u64::MAX);
    counter!(LOG_DROPPED).absolute(dropped);
}

/// Sets the number of runtimes and carriers that are up, down and unknown.
pub fn peers(counts: [usize; 3]) {
    by_state(PEERS, counts);
}

/// Sets the number of addresses of runtimes that are up, down and unknown.
pub fn runtimes(counts: [usize; 3]) {
    by_state(RUNTIMES, counts);
}

/// Sets the number of outbound trunks that are up, down and unknown.
pub fn outbound_trunks(counts: [usize; 3]) {
    by_state(OUTBOUND_TRUNKS, counts);
}

fn by_state(name: &'static str, counts: [usize; 3]) {
    // By state and never by URI: a tenant could make series without end by naming peers.
    for (state, count) in ["up", "down", "unknown"].into_iter().zip(counts) {
        gauge!(name, "state" => state).set(count as f64);
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
    counter!(CARRIER_ATTEMPTS, "outcome" => outcome).increment(1);
}

/// Sets the number of registered contacts.
pub fn registrations(count: usize) {
    gauge!(REGISTRATIONS).set(count as f64);
}

/// Counts a trunk that was registered or lost.
pub fn registration_change(what: &'static str) {
    counter!(REGISTRATION_CHANGES, "what" => what).increment(1);
}

/// Counts failed SIP log-ins.
pub fn auth_failures(cause: &'static str, count: u64) {
    counter!(AUTH_FAILURES, "cause" => cause).increment(count);
}

/// Counts INVITEs that we refused for `reason`, a stable code.
pub fn refused(reason: &'static str, count: u64) {
    counter!(REFUSALS, "reason" => reason).increment(count);
}

/// Sets how many times a share of `resource` has bound since the start.
pub fn share_refusals(resource: &'static str, count: u64) {
    counter!(SHARE_REFUSALS, "resource" => resource).absolute(count);
}

/// Counts calls that continue with another target because one failed for `cause`.
pub fn failed_over(cause: &'static str, count: u64) {
    counter!(FAIL_OVERS, "cause" => cause).increment(count);
}

/// Counts attempts to deliver an event to a webhook, by `delivered` or the stable word for the failure.
pub fn webhook_attempts(result: &'static str, count: u64) {
    counter!(WEBHOOK_ATTEMPTS, "result" => result).increment(count);
}

/// Records the duration of an attempt to deliver an event to a webhook.
pub fn webhook_attempted(took: Duration) {
    histogram!(WEBHOOK_SECONDS).record(took);
}

/// Counts a delivery to a webhook that failed for good.
pub fn webhook_given_up() {
    counter!(WEBHOOK_GIVEN_UP).increment(1);
}

/// Sets the number of deliveries to webhooks that wait, and the age of the oldest.
pub fn webhook_backlog(count: u64, oldest: Duration) {
    gauge!(WEBHOOK_PENDING).set(count as f64);
    gauge!(WEBHOOK_OLDEST).set(oldest.as_secs_f64());
}

/// Sets the age of the oldest change that isn't in force on this node.
pub fn change_feed_lag(lag: Duration) {
    gauge!(FEED_LAG).set(lag.as_secs_f64());
}

/// Sets the end of validity of a certificate, in seconds of Unix time; `None` without a certificate. `purpose` is `http` or `sip`.
pub fn certificate_expiry(purpose: &'static str, expiry: Option<i64>) {
    gauge!(CERTIFICATE_EXPIRY, "use" => purpose).set(expiry.map_or(f64::NAN, |at| at as f64));
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

/// Both directions, in the order of their discriminants.
const DIRECTIONS: [Direction; 2] = [Direction::Inbound, Direction::Outbound];

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
    /// By direction, and by the place of the status among the final ones.
    ended: [[Counter; Status::FINAL.len()]; 2],
    setup: Histogram,
    post_dial_delay: [Histogram; 2],
    duration: [Histogram; 2],
    sent: Classes,
    received: Classes,
    requests: Requests,
    malformed: Counter,
    skipped_lines: Counter,
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
            started: DIRECTIONS
                .map(|direction| counter!(CALLS_STARTED, "direction" => direction.as_str())),
            ended: DIRECTIONS.map(|direction| {
                Status::FINAL.map(|status| {
                    counter!(CALLS_ENDED, "direction" => direction.as_str(), "status" => status.as_str())
                })
            }),
            setup: histogram!(SETUP_SECONDS),
            post_dial_delay: DIRECTIONS
                .map(|direction| histogram!(POST_DIAL_DELAY, "direction" => direction.as_str())),
            duration: DIRECTIONS
                .map(|direction| histogram!(DURATION_SECONDS, "direction" => direction.as_str())),
            sent: Classes::new(SIP_SENT),
            received: Classes::new(SIP_RECEIVED),
            requests: Requests::default(),
            malformed: counter!(SIP_MALFORMED),
            skipped_lines: counter!(SIP_SKIPPED_LINES),
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

    /// Counts a call that began.
    pub fn call_started(&self, direction: Direction) {
        self.started[direction as usize].increment(1);
    }

    /// Counts a call that ended. A status that isn't final counts nothing.
    pub fn call_ended(&self, direction: Direction, status: Status) {
        let place = Status::FINAL.iter().position(|known| *known == status);
        if let Some(counter) = place.and_then(|at| self.ended[direction as usize].get(at)) {
            counter.increment(1);
        }
    }

    /// Records an INVITE that was answered 2xx after `took`.
    pub fn answered(&self, took: Duration) {
        self.setup.record(took);
    }

    /// Records the time from a call's INVITE to ringing, or to the answer of one that didn't ring.
    pub fn rang(&self, direction: Direction, took: Duration) {
        self.post_dial_delay[direction as usize].record(took);
    }

    /// Records the time from a call's answer to its end.
    pub fn talked(&self, direction: Direction, took: Duration) {
        self.duration[direction as usize].record(took);
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

    /// Counts lines of messages that are no headers.
    pub fn skipped_lines(&self, count: u64) {
        self.skipped_lines.increment(count);
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
            shard.call_started(Direction::Inbound);
            shard.rang(Direction::Outbound, Duration::from_millis(40));
            shard.talked(Direction::Inbound, Duration::from_secs(61));
            shard.call_ended(Direction::Inbound, Status::Completed);
            refused("agent_busy", 1);
            shard.answered(Duration::from_millis(3));
            shard.request_received("INVITE");
            shard.responses_sent(183, 1);
            shard.responses_received(486, 2);
            shard.responses_sent(777, 9);
            shard.malformed(1);
            shard.skipped_lines(1);
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
