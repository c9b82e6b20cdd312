//! Responses that last for as long as the client listens, such as the live stream.
//!
//! hyper keeps two buffers and a parser for a connection, which is far more than a listener needs. hyper therefore
//! writes only the headers of such a response. Then the connection is taken from it, and the body is written here.

use std::{
    io::{self, IoSlice, Write as _},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::AsyncWrite as _;

use super::watch::{CLOSE_NOW, Watch, Watched};

/// Marks a response whose body does not end soon. Its connection needs less memory, and closes after it.
#[derive(Clone, Copy, Debug)]
pub struct Endless;

/// The body of an endless response, until the connection is taken over.
#[derive(Default)]
pub(super) struct Handover {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    #[default]
    None,
    /// The headers are not written yet.
    Announced(Body),
    /// hyper wrote the headers, at least to its buffer, and wants the body.
    Wanted(Body),
}

impl Handover {
    fn announce(&self, body: Body) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Announced(body);
    }

    fn want(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match std::mem::take(&mut *state) {
            State::Announced(body) => State::Wanted(body),
            other => other,
        };
    }

    /// Drops a body that was not taken over, because the request allowed none.
    fn clear(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::None;
    }

    /// Returns the body, once hyper wants it.
    pub(super) fn take(&self) -> Option<Body> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *state) {
            State::Wanted(body) => Some(body),
            other => {
                *state = other;
                None
            }
        }
    }
}

/// State that a connection shares with the body of its response.
pub(super) trait Sends: Send + Sync + 'static {
    fn watch(&self) -> &Watch;

    fn handover(&self) -> &Handover;
}

/// A response body as hyper sees it: the body itself, or a placeholder for an endless one.
pub(super) struct Sending<S: Sends> {
    /// `None` for an endless body.
    body: Option<Body>,
    connection: Arc<S>,
}

impl<S: Sends> Sending<S> {
    pub(super) fn of(body: Body, connection: Arc<S>) -> Self {
        Self { body: Some(body), connection }
    }

    pub(super) fn endless(body: Body, connection: Arc<S>) -> Self {
        connection.handover().announce(body);
        Self { body: None, connection }
    }
}

impl<S: Sends> Drop for Sending<S> {
    fn drop(&mut self) {
        self.connection.watch().sends(false);
        if self.body.is_none() {
            self.connection.handover().clear();
        }
    }
}

impl<S: Sends> HttpBody for Sending<S> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(body) = &mut self.body {
            return Pin::new(body).poll_frame(context);
        }
        // The connection's task takes the body over right after it polled hyper, so nothing has to wake it.
        self.connection.handover().want();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

/// Writes a body in chunks until it ends, the client disconnects, or the connection must close.
pub(super) async fn send(mut stream: Watched, mut body: Body, watch: &Watch) -> io::Result<()> {
    watch.sends(true);
    let (mut chunk, mut reads, mut is_last) = (Chunk::default(), true, false);
    std::future::poll_fn(|context| {
        if watch.poll_order(context) == CLOSE_NOW {
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(chunk.poll_write(&mut stream, context))?;
            if is_last {
                return Pin::new(&mut stream).poll_shutdown(context);
            }
            if reads {
                match stream.poll_discard(context)? {
                    Poll::Ready(0) => return Poll::Ready(Ok(())),
                    // The connection closes after this response, so further requests are not read.
                    Poll::Ready(_) => reads = false,
                    Poll::Pending => {}
                }
            }
            match ready!(Pin::new(&mut body).poll_frame(context)) {
                // Without the last chunk, the client sees that the body is incomplete.
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                Some(Ok(frame)) => chunk = frame.into_data().map_or_else(|_| Chunk::default(), Chunk::of),
                None => (chunk, is_last) = (Chunk::last(), true),
            }
        }
    })
    .await
}

const LINE_END: &[u8] = b"\r\n";

/// A chunk of a body (RFC 9112, section 7.1): its size, its bytes and a line end.
#[derive(Default)]
struct Chunk {
    /// Size as a line, in hexadecimal digits.
    size: [u8; 18],
    size_length: usize,
    data: Bytes,
    /// Length of the line end; 0 if the chunk is empty.
    end_length: usize,
    written: usize,
}

impl Chunk {
    /// An empty chunk would end the body, so no bytes are no chunk.
    fn of(data: Bytes) -> Self {
        if data.is_empty() { Self::default() } else { Self::new(data) }
    }

    fn last() -> Self {
        Self::new(Bytes::new())
    }

    fn new(data: Bytes) -> Self {
        let mut size = [0; 18];
        let mut rest = &mut size[..];
        // 16 digits and the line end always fit.
        let _ = write!(rest, "{:x}\r\n", data.len());
        let size_length = 18 - rest.len();
        Self { size, size_length, data, end_length: LINE_END.len(), written: 0 }
    }

    fn poll_write(&mut self, stream: &mut Watched, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let length = self.size_length + self.data.len() + self.end_length;
        while self.written < length {
            let written = ready!(Pin::new(&mut *stream).poll_write_vectored(context, &self.rest()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        if length > 0 {
            // Releases the bytes, which many listeners share, while this one waits.
            *self = Self::default();
        }
        Poll::Ready(Ok(()))
    }

    fn rest(&self) -> [IoSlice<'_>; 3] {
        let mut skip = self.written;
        [&self.size[..self.size_length], &self.data, &LINE_END[..self.end_length]].map(|part| {
            let rest = &part[skip.min(part.len())..];
            skip = skip.saturating_sub(part.len());
            IoSlice::new(rest)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chunk_is_complete_however_it_is_split(data in prop::collection::vec(any::<u8>(), 1..300), steps in prop::collection::vec(1..50_usize, 1..200)) {
            let expected = [format!("{:x}\r\n", data.len()).as_bytes(), &data, b"\r\n"].concat();
            let mut chunk = Chunk::of(data.into());
            let (mut sent, mut steps) = (Vec::new(), steps.into_iter().cycle());
            while sent.len() < expected.len() {
                let rest = chunk.rest().iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>();
                let written = steps.next().unwrap_or(1).min(rest.len());
                sent.extend_from_slice(&rest[..written]);
                chunk.written += written;
            }
            prop_assert_eq!(sent, expected);
        }
    }

    #[test]
    fn only_the_last_chunk_is_empty() {
        let text = |chunk: &Chunk| chunk.rest().iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>();
        assert_eq!(text(&Chunk::of(Bytes::new())), b"");
        assert_eq!(text(&Chunk::last()), b"0\r\n\r\n");
    }
}
