//! Stream of an org's events as a client reads it (HTML Living Standard §9.2), in bounded memory.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::timeout;

use super::Failure;
use super::session::{Refusal, Session, encoded};

/// Maximum length of an event that is read, in octets.
const MAX_EVENT: usize = 1 << 20;
/// Time without a single octet after which the stream counts as lost: the API writes a comment line every 15 seconds.
const MAX_SILENCE: Duration = Duration::from_secs(45);

/// An open stream.
#[derive(Debug)]
pub(super) struct EventStream {
    body: Body,
    /// Octets of an event whose end hasn't arrived.
    buffer: Vec<u8>,
}

impl EventStream {
    /// Opens a stream of these types, separated by commas; `since` is the id of the last event that was read. If the
    /// API refuses for its rate limits, this waits and tries again, as [`Session::send`] does.
    ///
    /// # Errors
    /// The API can't be reached, or refuses.
    pub(super) async fn open(
        session: &Session,
        types: Option<&str>,
        since: Option<&str>,
    ) -> Result<Self, Failure> {
        let path = path(types, since)?;
        let answer = session
            .send(&Method::GET, &path, "text/event-stream", None)
            .await?;
        Ok(Self::of(answer))
    }

    /// Opens a stream as [`Self::open`] does, but returns a refusal instead of trying again later.
    ///
    /// # Errors
    /// The API can't be reached, or refuses.
    pub(super) async fn try_open(
        session: &Session,
        types: Option<&str>,
        since: Option<&str>,
    ) -> Result<Self, Refusal> {
        let path = path(types, since)?;
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
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Failure> {
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

    /// Returns the next event.
    ///
    /// # Errors
    /// As [`EventStream::next`], and for a stream that has ended.
    pub(super) async fn expect_next(&mut self) -> Result<Value, Failure> {
        self.next().await?.ok_or_else(|| {
            Failure::Command(
                "the stream has ended: the daemon is stopping, or the key was revoked".to_owned(),
            )
        })
    }
}

fn path(types: Option<&str>, since: Option<&str>) -> Result<String, Failure> {
    let given = [("types", types), ("last_event_id", since)];
    let query: Vec<(&str, &str)> = given
        .iter()
        .filter_map(|(name, value)| Some((*name, (*value)?)))
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
}
