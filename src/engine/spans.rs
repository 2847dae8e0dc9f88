//! Exports calls as OpenTelemetry traces, by OTLP over HTTP with JSON. The trace id is the session's id; set-up and
//! talk are child spans of the call's.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use trunkline_net::tls;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use trunkline_model::record::{Direction, Ended, Fact, Started, Status};

/// Facts waiting to be read.
const QUEUE: usize = 8_192;
/// Calls in progress that are traced. Beyond, the one that began first is dropped.
const MAX_UP: usize = 100_000;
/// Ended calls that wait for the collector, further ones being lost; and calls in one request.
const MAX_OWED: usize = 8_192;
const MAX_PER_REQUEST: usize = 512;
/// Interval between requests, timeout of the collector, and pause after it failed.
const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Queue of facts. Shards never wait; facts beyond the bound aren't traced.
#[derive(Clone, Debug)]
pub(crate) struct Spans(mpsc::Sender<Fact>);

impl Spans {
    /// Starts the exporter to the collector at this base URL; it ends when the last sender is dropped.
    pub(crate) fn start(collector: &str, runtime: &tokio::runtime::Handle) -> Self {
        let (sender, facts) = mpsc::channel(QUEUE);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client(tls::system_roots(
                "no OTLP collector can be reached over https",
            )))
            .https_or_http()
            .enable_http1()
            .build();

        // Two tasks, so that facts are read while the collector is silent: a call whose end is lost would stay in `up`.
        let (owe, owed) = mpsc::channel(MAX_OWED);
        let ended = Arc::new(Notify::new());
        let exporter = Exporter {
            address: format!("{collector}/v1/traces"),
            client: Client::builder(TokioExecutor::new()).build(connector),
            owed,
            batch: Vec::new(),
            ended: Arc::clone(&ended),
        };
        runtime.spawn(exporter.run());

        let tracker = Tracker {
            up: HashMap::new(),
            begun: VecDeque::new(),
            owe,
            ended,
        };
        runtime.spawn(tracker.run(facts));

        Self(sender)
    }

    pub(crate) fn push(&self, fact: &Fact) {
        match fact {
            Fact::Started(_)
            | Fact::Ringing { .. }
            | Fact::Answered { .. }
            | Fact::Transfer(_)
            | Fact::Attempt(_)
            | Fact::Ended(_) => {
                if self.0.try_send(fact.clone()).is_err() {
                    metrics::counter!("trunkline_spans_lost_total").increment(1);
                }
            }
            Fact::Contact { .. } | Fact::Joined { .. } | Fact::Held { .. } | Fact::Media(_) => {}
        }
    }
}

/// Call in progress.
struct TracedCall {
    started: Arc<Started>,
    answered: Option<Moment>,
    /// Names and times of events.
    events: Vec<(String, Moment)>,
}

/// Makes spans of the facts of calls.
struct Tracker {
    up: HashMap<Uuid, TracedCall>,
    /// Calls in the order in which they began, including some that have ended.
    begun: VecDeque<Uuid>,
    owe: mpsc::Sender<Vec<Value>>,
    ended: Arc<Notify>,
}

impl Tracker {
    async fn run(mut self, mut facts: mpsc::Receiver<Fact>) {
        while let Some(fact) = facts.recv().await {
            self.take_down(fact);
        }
        let ended = Arc::clone(&self.ended);
        // Closes `owed` before the notification, so that the exporter, once awake, finds it closed.
        drop(self);
        ended.notify_one();
    }

    fn take_down(&mut self, fact: Fact) {
        let call = fact.call();

        match fact {
            Fact::Started(started) => {
                if self.up.len() >= MAX_UP {
                    self.drop_oldest();
                }
                let up = TracedCall {
                    started,
                    answered: None,
                    events: Vec::new(),
                };
                self.up.insert(call, up);
                self.begun.push_back(call);
                if self.begun.len() > 2 * MAX_UP {
                    // Leaves half at most, so a pass is due once in `MAX_UP` calls.
                    self.begun.retain(|call| self.up.contains_key(call));
                }
            }

            Fact::Ringing { at, .. } => self.note(call, "ringing".to_owned(), at),
            Fact::Answered { at, .. } => {
                self.note(call, "answered".to_owned(), at);
                if let Some(up) = self.up.get_mut(&call) {
                    up.answered.get_or_insert(at);
                }
            }

            Fact::Transfer(transfer) => {
                let name = format!("transfer {}", transfer.state.as_str());
                let latest = transfer
                    .ended_at
                    .or(transfer.ringing_at)
                    .or(transfer.accepted_at);
                self.note(call, name, latest.unwrap_or(transfer.requested_at));
            }
            Fact::Attempt(attempt) => {
                let name = format!("attempt {}", attempt.outcome.as_str());
                self.note(call, name, attempt.ended_at);
            }

            Fact::Ended(ended) => {
                if let Some(up) = self.up.remove(&call)
                    && self.owe.try_send(spans(&up, &ended)).is_err()
                {
                    metrics::counter!("trunkline_spans_lost_total").increment(1);
                }
            }
            Fact::Contact { .. } | Fact::Joined { .. } | Fact::Held { .. } | Fact::Media(_) => {}
        }
    }

    /// Drops the call that began first. The end of such a call may have been lost to a full queue, and calls without an end would
    /// otherwise take the places of all later ones.
    fn drop_oldest(&mut self) {
        while let Some(oldest) = self.begun.pop_front() {
            if self.up.remove(&oldest).is_some() {
                metrics::counter!("trunkline_spans_lost_total").increment(1);
                return;
            }
        }
    }

    fn note(&mut self, call: Uuid, name: String, at: Moment) {
        const MOST: usize = 64;
        if let Some(up) = self.up.get_mut(&call)
            && up.events.len() < MOST
        {
            up.events.push((name, at));
        }
    }
}

/// Sends spans to the collector.
struct Exporter {
    address: String,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Spans of ended calls.
    owed: mpsc::Receiver<Vec<Value>>,
    /// Spans of the next request, kept until the collector has taken them.
    batch: Vec<Vec<Value>>,
    /// Notified when the tracker has ended, which cuts a pause short.
    ended: Arc<Notify>,
}

impl Exporter {
    /// Sends until the tracker has ended and all is sent, or until the collector fails after that.
    async fn run(mut self) {
        loop {
            let batch = &mut self.batch;
            // What the collector hasn't taken goes first, and nothing is added to it, so no request outgrows its
            // bound.
            if batch.is_empty() && self.owed.recv_many(batch, MAX_PER_REQUEST).await == 0 {
                return;
            }

            let is_sent = self.send().await;
            // The tracker has ended, and so does the process: no pause any more, and a failure gives up the rest.
            if self.owed.is_closed() {
                if is_sent {
                    continue;
                }
                return;
            }

            let pause = match is_sent {
                true if self.owed.is_empty() => INTERVAL,
                true => continue,
                false => RETRY_PAUSE,
            };
            // The end of the tracker cuts the pause short, and the next turn sends what is left.
            let _ = tokio::time::timeout(pause, self.ended.notified()).await;
        }
    }

    /// Sends the batch. Returns false if the collector refuses it.
    async fn send(&mut self) -> bool {
        let spans: Vec<&Value> = self.batch.iter().flatten().collect();
        if let Err(fault) = self.post(&envelope(&spans)).await {
            let calls = self.batch.len() + self.owed.len();
            tracing::warn!(%fault, calls, "sending spans to the OTLP collector failed; retrying");
            return false;
        }
        self.batch.clear();
        true
    }

    async fn post(&self, body: &Value) -> Result<(), String> {
        let request = Request::post(&self.address)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()))
            .map_err(|fault| fault.to_string())?;
        let answered = tokio::time::timeout(TIMEOUT, self.client.request(request)).await;
        let answer = answered
            .map_err(|_| "no answer in time".to_owned())?
            .map_err(|fault| fault.to_string())?;

        match answer.status() {
            status if status.is_success() => Ok(()),
            // A request that the collector can't parse won't parse later either.
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
                tracing::warn!(status = %answer.status(), "the OTLP collector rejects these spans; they are dropped");
                Ok(())
            }
            status => Err(status.to_string()),
        }
    }
}

fn envelope(spans: &[&Value]) -> Value {
    json!({"resourceSpans": [{
        "resource": {"attributes": [
            text("service.name", "trunkline"),
            text("service.version", env!("CARGO_PKG_VERSION")),
        ]},
        "scopeSpans": [{"scope": {"name": "trunkline.calls"}, "spans": spans}],
    }]})
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: u64) -> Value {
    // OTLP's JSON writes a 64-bit number as a string.
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

fn nanos(at: Moment) -> String {
    (u128::from(at.as_micros()) * 1_000).to_string()
}

/// Makes the spans of a call: the call, its set-up and its talk.
fn spans(up: &TracedCall, ended: &Ended) -> Vec<Value> {
    const SERVER: u8 = 2;
    const CLIENT: u8 = 3;
    const INTERNAL: u8 = 1;
    let started = &up.started;
    let trace = format!("{:032x}", started.session.as_u128());
    let id = |step: u64| format!("{:016x}", started.call.as_u64_pair().1.wrapping_add(step));
    let mut attributes = vec![
        text("trunkline.call.id", &started.call.to_string()),
        text("trunkline.org.id", &started.org.to_string()),
        text("trunkline.direction", started.direction.as_str()),
        text("trunkline.status", ended.status.as_str()),
        text("sip.call_id", &started.caller_call_id),
        number("sip.status_code", u64::from(ended.sip_code)),
    ];

    if let Some(agent) = started.agent {
        attributes.push(text("trunkline.agent.id", &agent.to_string()));
    }

    if let Some(reason) = &ended.reason {
        attributes.push(text("trunkline.reason", reason));
    }

    let events: Vec<Value> = up
        .events
        .iter()
        .map(|(name, at)| json!({"name": name, "timeUnixNano": nanos(*at)}))
        .collect();

    // https://opentelemetry.io/docs/specs/otel/trace/api/#set-status: 0 unset, 1 ok, 2 error.
    let code = match ended.status {
        Status::Completed | Status::Transferred => 1,
        Status::Failed | Status::Refused | Status::Lost => 2,
        Status::Queued
        | Status::Ringing
        | Status::InProgress
        | Status::Busy
        | Status::NoAnswer
        | Status::Canceled => 0,
    };

    let kind = match started.direction {
        Direction::Inbound => SERVER,
        Direction::Outbound => CLIENT,
    };

    let mut spans = vec![json!({
        "traceId": trace, "spanId": id(0), "name": "call", "kind": kind,
        "startTimeUnixNano": nanos(started.at), "endTimeUnixNano": nanos(ended.at),
        "attributes": attributes, "events": events, "status": {"code": code},
    })];
    let mut within = |step, name, from, until| {
        spans.push(json!({
            "traceId": trace, "spanId": id(step), "parentSpanId": id(0), "name": name, "kind": INTERNAL,
            "startTimeUnixNano": nanos(from), "endTimeUnixNano": nanos(until),
        }));
    };

    within(1, "set-up", started.at, up.answered.unwrap_or(ended.at));
    if let Some(answered) = up.answered {
        within(2, "talk", answered, ended.at);
    }

    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(call: u128) -> Fact {
        let call = Uuid::from_u128(call);
        let started = Started {
            call,
            org: Uuid::nil(),
            session: call,
            agent: None,
            trunk: None,
            direction: Direction::Inbound,
            from: "100".into(),
            to: "200".into(),
            from_e164: None,
            to_e164: None,
            caller_call_id: "a@b".into(),
            at: Moment::from_secs(1),
            decision: None,
            headers: Vec::new(),
            metadata: None,
            invite_facts: None,
            clock_offset: 0,
        };
        Fact::Started(started.into())
    }

    /// The end of a call is lost when the queue is full. Such calls must not keep later ones from being traced.
    #[test]
    fn calls_whose_end_was_lost_give_way_to_later_ones() {
        let (owe, _owed) = mpsc::channel(1);
        let mut tracker = Tracker {
            up: HashMap::new(),
            begun: VecDeque::new(),
            owe,
            ended: Arc::default(),
        };
        let last = 3 * MAX_UP as u128;
        for call in 0..=last {
            tracker.take_down(started(call));
            assert!(tracker.begun.len() <= 2 * MAX_UP);
        }
        assert_eq!(tracker.up.len(), MAX_UP);
        assert!(tracker.up.contains_key(&Uuid::from_u128(last)));
        assert!(!tracker.up.contains_key(&Uuid::nil()));
    }
}
