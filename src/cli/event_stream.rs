//! Stream of an org's events as a client reads it (HTML Living Standard §9.2), in bounded memory, and the feed that goes on when one
//! breaks: it opens another where that one ended, and not before the API's `Retry-After`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Failure;
use super::session::{Refusal, Session, encoded};

/// Types of events about calls.
const OF_CALLS: &str =
    "call.started,call.ringing,call.answered,call.ended,call.refused,transfer.updated";
/// Pause before a broken stream is opened again, and the longest `Retry-After` that is followed.
const PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(3_600);
/// Events that wait for the reader; beyond, the connection isn't read.
const WAITING: usize = 256;

/// Maximum length of an event that is read, in octets.
const MAX_EVENT: usize = 1 << 20;
/// Time without a single octet after which the stream counts as lost: the API writes a comment line every 15 seconds.
const MAX_SILENCE: Duration = Duration::from_secs(45);

/// Events that a stream brings.
#[derive(Clone, Debug, Default)]
pub(super) struct EventSelection {
    /// Types, separated by commas; all, if there are none.
    pub(super) types: Option<String>,
    /// Id of the event after which the stream begins; `0` begins with the oldest that is kept.
    pub(super) since: Option<String>,
}

impl EventSelection {
    /// Events about calls, after the event of this id.
    pub(super) fn of_calls(since: Option<String>) -> Self {
        Self {
            types: Some(OF_CALLS.to_owned()),
            since,
        }
    }
}

/// Change of the stream, or an event of it.
#[derive(Debug)]
pub(super) enum News {
    /// The stream is open. Without `is_resumed`, earlier events may have been missed.
    Open {
        is_resumed: bool,
    },
    Event(Box<Value>),
    /// The stream broke, and is opened again after the pause.
    Lost {
        fault: String,
        pause: Duration,
    },
    /// The stream can't be opened, and isn't tried again.
    Refused(Failure),
}

/// Events for as long as somebody reads them. The stream ends when this is dropped.
#[derive(Debug)]
pub(super) struct Feed {
    news: mpsc::Receiver<News>,
    task: tokio::task::JoinHandle<()>,
}

impl Feed {
    pub(super) fn start(session: Arc<Session>, selection: EventSelection) -> Self {
        let (sender, news) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            // A closed channel means that nobody reads any more.
            follow(&session, selection, &sender, PAUSE).await;
        });
        Self { news, task }
    }

    pub(super) async fn next(&mut self) -> News {
        let news = self.news.recv().await;
        news.unwrap_or_else(|| News::Refused(Failure::Command("the stream has ended".to_owned())))
    }

    /// Ends the stream, so that nothing holds the session any more.
    pub(super) async fn stop(mut self) {
        self.task.abort();
        // The result only says that the task was aborted.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends what streams bring, and opens another after `least_pause` at the earliest; `None` once the receiver is gone.
async fn follow(
    session: &Session,
    mut selection: EventSelection,
    news: &mpsc::Sender<News>,
    least_pause: Duration,
) -> Option<()> {
    let mut was_open = false;

    loop {
        let (fault, pause) = match EventStream::open(session, &selection).await {
            Ok(mut stream) => {
                was_open = true;
                let is_resumed = selection.since.is_some();
                news.send(News::Open { is_resumed }).await.ok()?;
                let fault = read(&mut stream, news, &mut selection.since).await?;
                (fault, least_pause)
            }
            Err(refusal) if is_final(&refusal, was_open) => {
                return news.send(News::Refused(refusal.failure)).await.ok();
            }
            Err(refusal) => {
                let pause = refusal.retry_after.unwrap_or(least_pause);
                let pause = pause.clamp(least_pause, MAX_PAUSE);
                (refusal.failure.to_string(), pause)
            }
        };
        news.send(News::Lost { fault, pause }).await.ok()?;
        tokio::time::sleep(pause).await;
    }
}

/// Reads events to the end of the stream, and returns why it ended; `None` if the receiver is gone.
async fn read(
    stream: &mut EventStream,
    news: &mpsc::Sender<News>,
    last: &mut Option<String>,
) -> Option<String> {
    loop {
        match stream.next().await {
            Ok(Some(event)) => {
                *last = event["id"].as_str().map(str::to_owned);
                news.send(News::Event(Box::new(event))).await.ok()?;
            }
            Ok(None) => return Some("the stream has ended".to_owned()),
            Err(failure) => return Some(failure.to_string()),
        }
    }
}

/// Returns true if no retry follows: the request is refused, or the daemon couldn't be reached even the first time.
fn is_final(refusal: &Refusal, was_open: bool) -> bool {
    match refusal.status {
        Some(StatusCode::TOO_MANY_REQUESTS) => false,
        Some(status) => status.is_client_error(),
        None => !was_open,
    }
}

/// An open stream.
#[derive(Debug)]
struct EventStream {
    body: Body,
    /// Octets of an event whose end hasn't arrived.
    buffer: Vec<u8>,
}

impl EventStream {
    async fn open(session: &Session, selection: &EventSelection) -> Result<Self, Refusal> {
        let path = path(selection)?;
        let answer = session
            .send_once(&Method::GET, &path, "text/event-stream", None)
            .await?;
        Ok(Self::of(answer))
    }

    fn of(answer: Response<Body>) -> Self {
        Self {
            body: answer.into_body(),
            buffer: Vec::new(),
        }
    }

    /// Returns the next event; `None` once the stream has ended.
    ///
    /// # Errors
    /// The connection breaks, nothing arrives for [`MAX_SILENCE`], or an event is too long.
    async fn next(&mut self) -> Result<Option<Value>, Failure> {
        self.next_within(MAX_SILENCE).await
    }

    async fn next_within(&mut self, max_silence: Duration) -> Result<Option<Value>, Failure> {
        loop {
            if let Some(event) = next_event(&mut self.buffer) {
                return Ok(Some(event));
            }

            let Ok(frame) = timeout(max_silence, self.body.frame()).await else {
                let seconds = max_silence.as_secs();
                return Err(Failure::Command(format!(
                    "the stream is lost: nothing arrived for {seconds} s"
                )));
            };
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|fault| Failure::Command(fault.to_string()))?;
            let data = frame.into_data().unwrap_or_else(|_| Bytes::new());
            self.buffer.extend_from_slice(&data);
            if self.buffer.len() > MAX_EVENT {
                return Err(Failure::Command("an event is too long".to_owned()));
            }
        }
    }
}

fn path(selection: &EventSelection) -> Result<String, Failure> {
    let given = [
        ("types", &selection.types),
        ("last_event_id", &selection.since),
    ];
    let query: Vec<(&str, &str)> = given
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .collect();
    Ok(format!("/phone/events?{}", encoded(&query)?))
}

/// Takes the next whole event with data off the buffer (HTML Living Standard §9.2.6).
fn next_event(buffer: &mut Vec<u8>) -> Option<Value> {
    loop {
        let end = buffer.windows(2).position(|pair| pair == b"\n\n")?;
        let block: Vec<u8> = buffer.drain(..end + 2).collect();
        let block = String::from_utf8_lossy(&block);

        let data: Vec<&str> = block
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|data| data.strip_prefix(' ').unwrap_or(data))
            .collect();
        if let Ok(event) = serde_json::from_str(&data.join("\n")) {
            return Some(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::Router;
    use axum::extract::RawQuery;
    use axum::response::IntoResponse as _;
    use axum::routing::get;
    use futures_util::{StreamExt as _, stream};
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_read_as_they_come_whole() {
        let mut buffer = b": open\nretry: 2000\n\nid: 1\nevent: call.ended\ndata: {\"type\":\"call.ended\"}\n\n: alive\n\nid: 2\nda".to_vec();
        assert_eq!(next_event(&mut buffer), Some(json!({"type": "call.ended"})));
        assert_eq!(next_event(&mut buffer), None);
        buffer.extend_from_slice(b"ta: {\"a\":\ndata: 1}\n\n");
        assert_eq!(next_event(&mut buffer), Some(json!({"a": 1})));
        assert_eq!(next_event(&mut buffer), None);
    }

    #[tokio::test]
    async fn a_stream_on_which_nothing_arrives_is_lost() {
        let event = Ok::<_, Infallible>(Bytes::from_static(b"data: {\"a\": 1}\n\n"));
        let sent = stream::iter([event]).chain(stream::pending());
        let mut stream = EventStream::of(Response::new(Body::from_stream(sent)));

        let first = stream.next_within(Duration::from_secs(20)).await;
        assert_eq!(first.ok().flatten(), Some(json!({"a": 1})));
        let lost = stream.next_within(Duration::from_millis(1)).await;
        assert!(lost.is_err_and(|fault| fault.to_string().contains("lost")));
    }

    /// API whose streams bring the event after the one that they begin with, up to the third, and refuse what follows it.
    async fn three_events(RawQuery(query): RawQuery) -> Response<Body> {
        let query = query.unwrap_or_default();
        let last = query
            .rsplit_once("last_event_id=")
            .map_or("0", |(_, id)| id);
        match last.parse::<u8>() {
            Ok(last @ ..3) => format!("data: {{\"id\":\"{}\"}}\n\n", last + 1).into_response(),
            Ok(_) | Err(_) => StatusCode::GONE.into_response(),
        }
    }

    #[tokio::test]
    async fn a_feed_goes_on_after_the_last_event_and_ends_with_a_refusal() {
        let session = Session::on(Router::new().route("/phone/events", get(three_events)));
        let (sender, mut receiver) = mpsc::channel(WAITING);
        let selection = EventSelection::of_calls(None);
        follow(&session, selection, &sender, Duration::ZERO).await;
        drop(sender);

        let mut happened = Vec::new();
        while let Some(news) = receiver.recv().await {
            happened.push(match news {
                News::Open { is_resumed } => format!("open, resumed: {is_resumed}"),
                News::Event(event) => event.to_string(),
                News::Lost { .. } => "lost".to_owned(),
                News::Refused(_) => "refused".to_owned(),
            });
        }

        let expected = [
            "open, resumed: false",
            r#"{"id":"1"}"#,
            "lost",
            "open, resumed: true",
            r#"{"id":"2"}"#,
            "lost",
            "open, resumed: true",
            r#"{"id":"3"}"#,
            "lost",
            "refused",
        ];
        assert_eq!(happened, expected);
    }
}
