//! Names and descriptions of the daemon's metrics, and the series that exist before anything was counted.
//!
//! Names are part of the interface: they are never renamed, and they follow Prometheus' rules
//! (<https://prometheus.io/docs/practices/naming/>). Media, SIP connections and the journal describe theirs in their own crates.

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

/// Calls that began, by `direction`.
pub(super) const CALLS_STARTED: &str = "trunkline_calls_started_total";
/// Calls that ended, by `direction` and `status`.
pub(super) const CALLS_ENDED: &str = "trunkline_calls_ended_total";
/// Calls now up, by `shard`.
pub(super) const CALLS_ACTIVE: &str = "trunkline_calls_active";
/// From INVITE to its 2xx.
pub(super) const SETUP_SECONDS: &str = "trunkline_call_setup_seconds";
/// INVITEs refused by us, by `reason`.
pub(super) const REFUSALS: &str = "trunkline_refusals_total";
/// Times that a share of an org or a partner has bound, by the `resource`.
pub(super) const SHARE_REFUSALS: &str = "trunkline_share_refusals_total";
/// Targets tried after a failed one, by `cause`.
pub(super) const FAIL_OVERS: &str = "trunkline_fail_overs_total";
/// Responses sent, by `class`.
pub(super) const SIP_SENT: &str = "trunkline_sip_responses_sent_total";
/// Responses received, by `class`.
pub(super) const SIP_RECEIVED: &str = "trunkline_sip_responses_received_total";
/// Requests received, by `method`.
pub(super) const SIP_REQUESTS: &str = "trunkline_sip_requests_received_total";
/// Messages that weren't SIP.
pub(super) const SIP_MALFORMED: &str = "trunkline_sip_malformed_total";
/// Lines of messages that are no headers and were ignored.
pub(super) const SIP_SKIPPED_LINES: &str = "trunkline_sip_ignored_lines_total";
/// Messages dropped for lack of room, by `cause`.
pub(super) const SIP_DROPPED: &str = "trunkline_sip_dropped_total";
/// Messages inside calls from an address that their dialog doesn't know, by `what` was done with them.
pub(super) const SIP_FOREIGN: &str = "trunkline_sip_foreign_total";
/// Calls over UDP that owed a proof of their source, by `outcome`.
pub(super) const SIP_PROOFS: &str = "trunkline_sip_proofs_total";
/// Answers by UDP that weren't sent: to requests that prove nothing and are small, or flood.
pub(super) const SIP_WITHHELD: &str = "trunkline_sip_answers_withheld_total";
/// Requests sent by UDP that are too large for a datagram, and may be lost.
pub(super) const SIP_LARGE: &str = "trunkline_sip_large_requests_total";
/// Retransmissions, by `way` (`in`, `out`).
pub(super) const SIP_RETRANSMISSIONS: &str = "trunkline_sip_retransmissions_total";
/// Transactions alive, by `shard` and `kind`.
pub(super) const TRANSACTIONS: &str = "trunkline_sip_transactions";
/// Dialogs alive, by `shard`.
pub(super) const DIALOGS: &str = "trunkline_sip_dialogs";
/// Depth of a queue, by `queue`.
pub(super) const QUEUE_DEPTH: &str = "trunkline_queue_depth";
/// HTTP connections that were refused for lack of room.
pub(super) const HTTP_REFUSED: &str = "trunkline_http_connections_refused_total";
/// HTTP requests, by `method`, `route` and `status`.
pub(super) const HTTP_REQUESTS: &str = "trunkline_http_requests_total";
/// From an HTTP request to its answer, by `route`.
pub(super) const HTTP_SECONDS: &str = "trunkline_http_request_seconds";
/// 1, with the `version`.
pub(super) const BUILD_INFO: &str = "trunkline_build_info";
/// 1 while new calls are taken, 0 while draining or not ready.
pub(super) const READY: &str = "trunkline_ready";

/// Log lines that standard error didn't take.
pub(super) const LOG_DROPPED: &str = "trunkline_log_lines_dropped_total";

/// Runtimes and carriers that are watched, by `state` (`up`, `down`, `unknown`).
pub(super) const PEERS: &str = "trunkline_peers";
/// Outbound trunks that want to be registered, by `state`.
pub(super) const OUTBOUND_REGISTRATIONS: &str = "trunkline_outbound_registrations";
/// REGISTERs of ours that came to an end, by `outcome`.
pub(super) const CARRIER_ATTEMPTS: &str = "trunkline_outbound_registration_attempts_total";
/// Contacts that PBXs have registered.
pub(super) const REGISTRATIONS: &str = "trunkline_registrations";
/// Trunks that were registered or lost, by `what`.
pub(super) const REGISTRATION_CHANGES: &str = "trunkline_registration_changes_total";
/// 1 while the database answers.
pub(super) const DATABASE_UP: &str = "trunkline_database_up";

/// Seconds by which this machine's clock is ahead of the database's.
pub(super) const CLOCK_SKEW: &str = "trunkline_clock_skew_seconds";

/// Outbound trunks whose peers are watched, by `state`.
pub(super) const OUTBOUND_TRUNKS: &str = "trunkline_outbound_trunks";
/// Addresses of runtimes, by `state`.
pub(super) const RUNTIMES: &str = "trunkline_runtimes";
/// From the answer to the end of a call, by `direction`.
pub(super) const DURATION_SECONDS: &str = "trunkline_call_duration_seconds";
/// From INVITE to ringing, or to the answer of a call that didn't ring, by `direction`.
pub(super) const POST_DIAL_DELAY: &str = "trunkline_call_post_dial_delay_seconds";
/// Failed SIP log-ins, by `cause`.
pub(super) const AUTH_FAILURES: &str = "trunkline_auth_failures_total";
/// Attempts to deliver an event to a webhook, by `result`.
pub(super) const WEBHOOK_ATTEMPTS: &str = "trunkline_webhook_attempts_total";
/// Duration of an attempt to deliver an event to a webhook.
pub(super) const WEBHOOK_SECONDS: &str = "trunkline_webhook_attempt_seconds";
/// Deliveries that failed for good.
pub(super) const WEBHOOK_GIVEN_UP: &str = "trunkline_webhook_deliveries_given_up_total";
/// Deliveries that wait for an attempt.
pub(super) const WEBHOOK_PENDING: &str = "trunkline_webhook_deliveries_pending";
/// Age of the oldest delivery that waits.
pub(super) const WEBHOOK_OLDEST: &str = "trunkline_webhook_oldest_pending_seconds";
/// Age of the oldest change that isn't in force on this node.
pub(super) const FEED_LAG: &str = "trunkline_change_feed_lag_seconds";
/// End of the certificate's validity, by `use`.
pub(super) const CERTIFICATE_EXPIRY: &str = "trunkline_certificate_expiry_timestamp_seconds";

/// Series of a metric that exist from the start.
enum Series {
    /// One without labels.
    Bare,
    /// One for each of the label's values.
    Of(&'static str, &'static [&'static str]),
    /// Registered by the owner, since only it knows the label values.
    OfOwner,
}

use Series::{Bare, Of, OfOwner};

const DIRECTION: Series = Of("direction", &["inbound", "outbound"]);
const CLASS: Series = Of("class", &["1xx", "2xx", "3xx", "4xx", "5xx", "6xx"]);
const PEER_STATE: Series = Of("state", &["up", "down", "unknown"]);
/// Methods of the IANA registry; requests of others count as `OTHER`.
const METHOD: Series = Of(
    "method",
    &[
        "ACK",
        "BYE",
        "CANCEL",
        "INFO",
        "INVITE",
        "MESSAGE",
        "NOTIFY",
        "OPTIONS",
        "OTHER",
        "PRACK",
        "PUBLISH",
        "REFER",
        "REGISTER",
        "SUBSCRIBE",
        "UPDATE",
    ],
);

const COUNTERS: &[(&str, &str, Series)] = &[
    (CALLS_STARTED, "Calls that began", DIRECTION),
    (
        CALLS_ENDED,
        "Calls that ended, by their final status",
        OfOwner,
    ),
    (REFUSALS, "INVITEs refused by this node, by reason", OfOwner),
    (
        SHARE_REFUSALS,
        "Refusals because an org or its partner had its share of this node, by what it is a share of",
        Of(
            "resource",
            &[
                "calls",
                "setups",
                "media_ports",
                "verification_calls",
                "traces",
            ],
        ),
    ),
    (
        FAIL_OVERS,
        "Targets tried because the one before had failed, by cause",
        OfOwner,
    ),
    (AUTH_FAILURES, "SIP log-ins that failed, by cause", OfOwner),
    (SIP_SENT, "SIP responses sent, by class", CLASS),
    (SIP_RECEIVED, "SIP responses received, by class", CLASS),
    (SIP_REQUESTS, "SIP requests received, by method", METHOD),
    (SIP_MALFORMED, "Messages received that are not SIP", Bare),
    (
        SIP_SKIPPED_LINES,
        "Lines of messages that are no headers and were ignored",
        Bare,
    ),
    (
        SIP_DROPPED,
        "Messages dropped for lack of room, by cause",
        Of("cause", &["overload"]),
    ),
    (
        SIP_FOREIGN,
        "Messages inside calls from an address that their dialog doesn't know",
        Of("what", &["challenged", "refused", "ack", "response"]),
    ),
    (
        SIP_PROOFS,
        "Calls over UDP that owed a proof of their source",
        Of(
            "outcome",
            &[
                "ack", "prack", "request", "held", "denied", "silent", "crowded",
            ],
        ),
    ),
    (
        SIP_WITHHELD,
        "Answers by UDP not sent, because they would have amplified unproven requests",
        Bare,
    ),
    (
        SIP_LARGE,
        "Requests sent by UDP that are larger than 1,300 octets",
        Bare,
    ),
    (
        SIP_RETRANSMISSIONS,
        "SIP retransmissions seen and sent",
        Of("way", &["in", "out"]),
    ),
    (
        "trunkline_sip_connections_refused_total",
        "SIP connections not accepted, as there were too many",
        Bare,
    ),
    (
        "trunkline_sip_connections_ended_total",
        "SIP connections that ended, by cause",
        Of(
            "why",
            &[
                "by_peer",
                "gave_way",
                "idle",
                "slow_to_send",
                "slow_to_read",
                "framing",
                "not_opened",
                "not_secured",
                "io",
            ],
        ),
    ),
    // The scrape that shows these is counted after it was answered.
    (HTTP_REQUESTS, "HTTP requests answered", OfOwner),
    (
        HTTP_REFUSED,
        "HTTP connections for which there was no room",
        Bare,
    ),
    (
        CARRIER_ATTEMPTS,
        "Attempts to register with carriers, by outcome",
        Of("outcome", &["accepted", "refused", "unanswered"]),
    ),
    (
        REGISTRATION_CHANGES,
        "Trunks whose PBX registered or was lost",
        Of(
            "what",
            &[
                "registered",
                "removed",
                "expired",
                "disconnected",
                "node_lost",
            ],
        ),
    ),
    (
        WEBHOOK_ATTEMPTS,
        "Attempts to deliver an event to a webhook, by result",
        OfOwner,
    ),
    (
        WEBHOOK_GIVEN_UP,
        "Deliveries to webhooks that failed for good",
        Bare,
    ),
    (
        "trunkline_auth_failures_unrecorded_total",
        "Failed log-ins not stored, because too many came at once or the database failed",
        Bare,
    ),
    (
        LOG_DROPPED,
        "Log lines dropped because too many waited for standard error",
        Bare,
    ),
    (
        "trunkline_changes_late_total",
        "Changes answered before they were in force on this node",
        Bare,
    ),
    (
        "trunkline_events_unrecorded_total",
        "Events outside calls that were dropped because the database was slow",
        Bare,
    ),
    (
        "trunkline_journal_errors_total",
        "Writes to the journal that the disk refused",
        Bare,
    ),
    (
        "trunkline_journal_full_total",
        "Turns of a shard in which the journal had no room",
        Bare,
    ),
    (
        "trunkline_journal_late_facts_total",
        "Times that calls were answered before their facts were written",
        Bare,
    ),
    (
        "trunkline_journal_project_errors_total",
        "Times that the database refused facts, or that they could not be read back",
        Bare,
    ),
    (
        "trunkline_journal_refused_facts_total",
        "Facts that could not be stored",
        Bare,
    ),
    (
        "trunkline_media_bot_ends_total",
        "Bots that disconnected before the end of their call, by cause",
        Of("cause", &["closed", "protocol", "too_slow", "lost"]),
    ),
    (
        "trunkline_media_bot_junk_total",
        "Messages of bots that were not understood",
        Bare,
    ),
    (
        "trunkline_media_bot_octets_discarded_total",
        "Octets of bots' audio beyond the ten minutes that are queued",
        Bare,
    ),
    (
        "trunkline_media_concealed_frames_total",
        "Frames of 20 ms to bots that were concealed or filled",
        Bare,
    ),
    (
        "trunkline_media_packets_too_late_total",
        "RTP packets that came too late for their audio to be passed on to a bot",
        Bare,
    ),
    (
        "trunkline_media_underruns_total",
        "Times that a bot's audio ran out inside a talk spurt",
        Bare,
    ),
    (
        "trunkline_media_packets_total",
        "RTP packets received, by fate",
        Of("fate", &["echoed", "bot", "discarded"]),
    ),
    (
        "trunkline_panics_total",
        "Panics, each of which ended one call at most",
        Bare,
    ),
    (
        "trunkline_rows_deleted_total",
        "Rows deleted, by reason",
        Of("why", &["purge", "retention"]),
    ),
    (
        "trunkline_spans_lost_total",
        "Calls, or events of calls, that the OTLP collector didn't get for lack of room",
        Bare,
    ),
    (
        "trunkline_traces_left_out_total",
        "Messages missing in traces, because more passed at once than can be copied",
        Bare,
    ),
];

const GAUGES: &[(&str, &str, Series)] = &[
    (CALLS_ACTIVE, "Calls now up", OfOwner),
    (TRANSACTIONS, "SIP transactions alive", OfOwner),
    (DIALOGS, "SIP dialogs alive", OfOwner),
    (
        QUEUE_DEPTH,
        "Items that wait in a queue",
        Of("queue", &["journal"]),
    ),
    (BUILD_INFO, "The running version", OfOwner),
    (READY, "1 while new calls are taken", Bare),
    (
        PEERS,
        "Runtimes and carriers that are watched, by state",
        PEER_STATE,
    ),
    (
        OUTBOUND_TRUNKS,
        "Outbound trunks that are watched, by state",
        PEER_STATE,
    ),
    (
        RUNTIMES,
        "Addresses of runtimes that are watched, by state",
        PEER_STATE,
    ),
    (
        OUTBOUND_REGISTRATIONS,
        "Outbound trunks that this node registers, by state",
        Of("state", &["registering", "registered", "failed"]),
    ),
    (REGISTRATIONS, "Contacts that PBXs have registered", Bare),
    (
        DATABASE_UP,
        "1 while the database answers and can be written",
        Bare,
    ),
    (
        CLOCK_SKEW,
        "Seconds by which this machine's clock is ahead of the database's",
        Bare,
    ),
    (
        FEED_LAG,
        "Age of the oldest change of the configuration that is not in force on this node, 0 if all are",
        Bare,
    ),
    (
        CERTIFICATE_EXPIRY,
        "End of the validity of the certificate in use, as Unix time; NaN without a certificate",
        Of("use", &["http", "sip"]),
    ),
    (
        WEBHOOK_PENDING,
        "Deliveries to webhooks that wait for an attempt, of all nodes; 100,000 stands for more",
        Bare,
    ),
    (
        WEBHOOK_OLDEST,
        "Age of the oldest delivery to a webhook that waits, of all nodes",
        Bare,
    ),
    ("trunkline_media_bots", "Bots attached to calls", Bare),
    ("trunkline_media_calls", "Calls that hold an RTP port", Bare),
    (
        "trunkline_media_sockets",
        "RTP sockets bound, in use or kept for the next calls",
        Bare,
    ),
    (
        "trunkline_journal_octets",
        "Size of the journal on disk",
        Bare,
    ),
    (
        "trunkline_journal_unprojected_facts",
        "Facts on disk that are not in the database yet",
        Bare,
    ),
];

const HISTOGRAMS: &[(&str, &str, Series)] = &[
    (SETUP_SECONDS, "From INVITE to its 2xx", Bare),
    (
        DURATION_SECONDS,
        "From the answer to the end of a call",
        DIRECTION,
    ),
    (
        POST_DIAL_DELAY,
        "From INVITE to ringing, or to the answer of a call that did not ring",
        DIRECTION,
    ),
    (
        WEBHOOK_SECONDS,
        "Duration of an attempt to deliver an event to a webhook",
        Bare,
    ),
    (
        "trunkline_database_transaction_seconds",
        "Duration of a transaction, the wait for a connection included",
        Of("kind", &["read", "write"]),
    ),
    (
        "trunkline_media_first_word_seconds",
        "From the answer of a call to its bot's first audio",
        Bare,
    ),
    (
        "trunkline_media_clear_seconds",
        "From a bot's clear to the last audible packet",
        Bare,
    ),
    (
        "trunkline_media_tick_late_seconds",
        "Delay of the ticks of 20 ms in media threads",
        Bare,
    ),
    (
        "trunkline_media_mos",
        "Mean opinion score of a call, by direction",
        Of("direction", &["received", "sent"]),
    ),
    (
        "trunkline_media_loss_ratio",
        "Share of a call's packets that were lost, by direction",
        Of("direction", &["received", "sent"]),
    ),
    (
        "trunkline_media_jitter_seconds",
        "Interarrival jitter at the end of a call, by direction",
        Of("direction", &["received", "sent"]),
    ),
    (
        "trunkline_media_round_trip_seconds",
        "Time to the peer and back at the end of a call",
        Bare,
    ),
    // All routes would be some 2,000 lines: the others come with their first request.
    (
        HTTP_SECONDS,
        "From an HTTP request to its answer",
        Of("route", &["/metrics"]),
    ),
];

/// Describes all metrics, and registers the series with known labels. A series that appears with its first event would hide that event: a rate needs
/// a value before it.
pub(super) fn describe() {
    for &(name, help, ref series) in COUNTERS {
        describe_counter!(name, help);
        match series {
            Bare => counter!(name).increment(0),
            Of(label, values) => {
                for value in *values {
                    counter!(name, *label => *value).increment(0);
                }
            }
            OfOwner => {}
        }
    }

    for &(name, help, ref series) in GAUGES {
        describe_gauge!(name, help);
        match series {
            Bare => gauge!(name).set(0),
            Of(label, values) => {
                for value in *values {
                    gauge!(name, *label => *value).set(0);
                }
            }
            OfOwner => {}
        }
    }

    for &(name, help, ref series) in HISTOGRAMS {
        let unit = if name.ends_with("_seconds") {
            Unit::Seconds
        } else {
            Unit::Count
        };
        describe_histogram!(name, unit, help);
        match series {
            Bare => drop(histogram!(name)),
            Of(label, values) => {
                for value in *values {
                    drop(histogram!(name, *label => *value));
                }
            }
            OfOwner => {}
        }
    }

    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1);
    counter!(HTTP_REQUESTS, "method" => "GET", "route" => "/metrics", "status" => "200")
        .increment(0);
}
