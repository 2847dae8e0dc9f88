//! Bodies of requests and answers, whose parts count as progress of their connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use super::connection_limiter::RequestInProgress;
use super::progress::Progress;

/// Body whose parts count as progress, with an optional deadline for the whole.
pub(super) struct TrackedBody<B> {
    pub(super) body: B,
    pub(super) progress: Progress,
    pub(super) deadline: Option<Pin<Box<Sleep>>>,
    /// Request that ends with the last part of this answer.
    #[expect(dead_code, reason = "dropped with the body")]
    pub(super) in_progress: Option<RequestInProgress>,
    /// Set once the body has been read to its end.
    pub(super) is_read: Arc<AtomicBool>,
}

impl<B> HttpBody for TrackedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            // The comments of a quiet event stream count too: they keep `drive` from closing it as idle.
            self.progress.note();
            if frame.is_none() || self.body.is_end_stream() {
                self.is_read.store(true, Ordering::Relaxed);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }

        // Only a request's body has a deadline; an answer takes as long as its reader makes progress.
        match &mut self.deadline {
            Some(deadline) => {
                ready!(deadline.as_mut().poll(context));
                let timed_out = io::Error::from(io::ErrorKind::TimedOut);
                Poll::Ready(Some(Err(axum::Error::new(timed_out))))
            }
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
