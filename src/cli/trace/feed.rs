//! Events of calls, followed for as long as the command runs: a stream that breaks is opened again where it ended, and
//! not before the API's `Retry-After`.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::cli::Failure;
use crate::cli::event_stream::EventStream;
use crate::cli::session::{Refusal, Session};

/// Types of events about calls.
const TYPES: &str =
    "call.started,call.ringing,call.answered,call.ended,call.refused,transfer.updated";
/// Pause before a broken stream is opened again, and the longest `Retry-After` that is followed.
const PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(3_600);
/// Events that wait for the reader; beyond, the connection isn't read.
const WAITING: usize = 256;

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

/// Event stream, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Feed {
    news: mpsc::Receiver<News>,
    task: tokio::task::JoinHandle<()>,
}

impl Feed {
    pub(super) fn start(session: Arc<Session>) -> Self {
        let (sender, news) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            // A closed channel means that nobody reads any more.
            follow(&session, &sender).await;
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

async fn follow(session: &Session, news: &mpsc::Sender<News>) -> Option<()> {
    let (mut last, mut was_open): (Option<String>, bool) = (None, false);

    loop {
        let (fault, pause) =
            match EventStream::try_open(session, Some(TYPES), last.as_deref()).await {
                Ok(mut stream) => {
                    was_open = true;
                    let is_resumed = last.is_some();
                    news.send(News::Open { is_resumed }).await.ok()?;
                    (read(&mut stream, news, &mut last).await?, PAUSE)
                }
                Err(refusal) if is_final(&refusal, was_open) => {
                    return news.send(News::Refused(refusal.failure)).await.ok();
                }
                Err(refusal) => {
                    let pause = refusal.retry_after.unwrap_or(PAUSE);
                    (refusal.failure.to_string(), pause.clamp(PAUSE, MAX_PAUSE))
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
