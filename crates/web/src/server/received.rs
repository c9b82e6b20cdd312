//! Receives the body of a request.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming};

use super::watch::Watch;

/// Receives the body before the request takes a slot, unless the body is too large. A slow body therefore does not
/// occupy a slot, and a refused request leaves no unread data, which would reset its connection. Returns the request,
/// and whether its body is complete.
pub(super) async fn receive(request: Request<Incoming>, limit: usize, watch: &Watch) -> (Request<Body>, bool) {
    if request.body().is_end_stream() {
        return (request.map(|_| Body::empty()), true);
    }
    watch.receiving_body();
    let (parts, mut body) = request.into_parts();
    let mut received = ReceivedBody { chunks: VecDeque::new(), fault: None, rest: None };
    let mut length = 0;
    // With `Expect: 100-continue`, the client sends the body only once a handler reads it.
    let is_deferred = body.size_hint().exact().is_some_and(|length| length > limit as u64)
        || parts.headers.contains_key(header::EXPECT);
    while !is_deferred && length <= limit {
        match body.frame().await {
            Some(Ok(frame)) => {
                // Trailers are ignored, because no handler reads them.
                if let Ok(chunk) = frame.into_data() {
                    length += chunk.len();
                    received.chunks.push_back(chunk);
                }
            }
            Some(Err(fault)) => {
                received.fault = Some(fault);
                return (Request::from_parts(parts, Body::new(received)), false);
            }
            None => {
                let one = received.chunks.pop_front().unwrap_or_default();
                let body = if received.chunks.is_empty() { Body::from(one) } else { Body::new(received.after(one)) };
                return (Request::from_parts(parts, body), true);
            }
        }
    }
    // A handler can still read the remaining body.
    received.rest = Some(body);
    (Request::from_parts(parts, Body::new(received)), false)
}

/// A body that was received completely or in part.
struct ReceivedBody {
    chunks: VecDeque<Bytes>,
    fault: Option<hyper::Error>,
    rest: Option<Incoming>,
}

impl ReceivedBody {
    fn after(mut self, first: Bytes) -> Self {
        self.chunks.push_front(first);
        self
    }
}

impl HttpBody for ReceivedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(chunk) = self.chunks.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if let Some(fault) = self.fault.take() {
            return Poll::Ready(Some(Err(fault)));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty() && self.fault.is_none() && self.rest.as_ref().is_none_or(HttpBody::is_end_stream)
    }
}
