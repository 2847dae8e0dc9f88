//! Answer whose octets pass to HTTP/2 in small parts. HTTP/2 buffers each part whole, even if the peer has no window for it: an answer in
//! one part would be taken at once, and its request would end. An answer in small parts is taken only as the client reads it, so a
//! request whose answer nobody reads stays in progress and keeps its place (see `connection_limiter`).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};

/// Maximum octets of a part.
const LARGEST: usize = 16 * 1024;

/// Body that is cut into parts.
#[derive(Debug)]
pub(super) struct PartedBody {
    body: Body,
    /// Octets that were taken from the body and haven't been passed on.
    rest: Bytes,
}

impl PartedBody {
    /// Cuts up a body.
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            rest: Bytes::new(),
        }
    }
}

impl HttpBody for PartedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(octets) => self.rest = octets,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }

        let length = self.rest.len().min(LARGEST);
        let part = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Kept exact, because hyper makes `Content-Length` of it.
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_body_is_cut_up_and_stays_the_same() {
        let octets: Vec<u8> = (0..=255).cycle().take(2 * LARGEST + 7).collect();
        let mut body = PartedBody::new(Body::from(octets.clone()));
        let mut passed = Vec::new();
        let mut lengths = Vec::new();
        while !body.is_end_stream() {
            let left = (octets.len() - passed.len()) as u64;
            assert_eq!(body.size_hint().exact(), Some(left));
            let frame = body.frame().await.expect("a part").expect("octets");
            let part = frame.into_data().expect("octets");
            lengths.push(part.len());
            passed.extend_from_slice(&part);
        }
        assert_eq!(lengths, [LARGEST, LARGEST, 7]);
        assert_eq!(passed, octets);
    }
}
