//! Work that was given up, and work that nobody is left to do.

use std::fmt;

use async_nats::jetstream::{
    message::{PublishMessage, StreamMessage},
    stream::{DirectGetErrorKind, Stream as Source},
};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use time::OffsetDateTime;

use super::{Stream, Streams, TransportError};

/// A piece of work that was given up.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Its place among the dead letters, by which it is asked for.
    pub sequence: u64,
    /// Where it waited, without prefix.
    pub subject: String,
    /// The body.
    pub payload: Bytes,
    /// Why it was given up.
    pub reason: String,
    /// When.
    pub given_up_at: OffsetDateTime,
}

impl Streams {
    /// The work on these subjects that was given up, oldest first.
    pub async fn dead(&self, subject: &str) -> Result<Vec<DeadLetter>, TransportError> {
        self.dead_from(subject, 1, usize::MAX).await
    }

    /// The same from a place on, and no more than so many.
    pub async fn dead_from(&self, subject: &str, from: u64, most: usize) -> Result<Vec<DeadLetter>, TransportError> {
        let source = self.source(Stream::Dead).await?;
        let filter = self.subject(&format!("dead.{subject}"));
        let (mut letters, mut next) = (Vec::new(), from.max(1));
        while letters.len() < most {
            match source.direct_get_next_for_subject(filter.as_str(), Some(next)).await {
                Ok(message) => {
                    next = message.sequence + 1;
                    letters.push(self.letter(message));
                }
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => break,
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(letters)
    }

    /// One of them.
    pub async fn dead_letter(&self, sequence: u64) -> Result<Option<DeadLetter>, TransportError> {
        match self.source(Stream::Dead).await?.direct_get(sequence).await {
            Ok(message) => Ok(Some(self.letter(message))),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Puts work that was given up back to where it waited, and then takes the dead letter away. Who dies in between
    /// leaves both; a second try within minutes finds the work there.
    pub async fn revive(&self, letter: &DeadLetter) -> Result<(), TransportError> {
        // Not the id that it had: whoever revives work soon after it was first sent would be taken for a repetition.
        let id = format!("revived-{}-{}", letter.sequence, letter.given_up_at.unix_timestamp_nanos());
        let message = PublishMessage::build().message_id(id).payload(letter.payload.clone());
        self.send(&letter.subject, message).await?.await?;
        let deleted = self.source(Stream::Dead).await?.delete_message(letter.sequence).await;
        deleted.map_err(|error| failed(&error)).map(|_| ())
    }

    /// The subjects, without prefix, on which something waits.
    pub async fn waiting(&self, stream: Stream, subject: &str) -> Result<Vec<String>, TransportError> {
        let source = self.source(stream).await?;
        let subjects = source.info_with_subjects(self.subject(subject)).await.map_err(|error| failed(&error))?;
        let subjects: Vec<(String, usize)> = subjects.try_collect().await.map_err(|error| failed(&error))?;
        Ok(subjects.into_iter().map(|(subject, _)| self.bare(&subject)).collect())
    }

    /// The consumers of a stream.
    pub async fn consumers(&self, stream: Stream) -> Result<Vec<String>, TransportError> {
        self.source(stream).await?.consumer_names().try_collect().await.map_err(|error| failed(&error))
    }

    /// Drops what waits on a subject.
    pub async fn discard(&self, stream: Stream, subject: &str) -> Result<(), TransportError> {
        let purged = self.source(stream).await?.purge().filter(self.subject(subject)).await;
        purged.map_err(|error| failed(&error)).map(|_| ())
    }

    /// Ends a consumer for good.
    pub async fn end_consumer(&self, stream: Stream, name: &str) -> Result<(), TransportError> {
        let deleted = self.source(stream).await?.delete_consumer(name).await;
        deleted.map_err(|error| failed(&error)).map(|_| ())
    }

    pub(super) async fn source(&self, stream: Stream) -> Result<Source, TransportError> {
        self.context.get_stream(self.stream_name(stream)).await.map_err(|error| failed(&error))
    }

    fn letter(&self, message: StreamMessage) -> DeadLetter {
        let subject = self.bare(&message.subject);
        let subject = subject.strip_prefix("dead.").unwrap_or(&subject).to_owned();
        let reason = message.headers.get("Matchday-Reason").map(ToString::to_string).unwrap_or_default();
        let (sequence, given_up_at) = (message.sequence, message.time);
        DeadLetter { sequence, subject, payload: message.payload, reason, given_up_at }
    }
}

fn failed(error: &dyn fmt::Display) -> TransportError {
    TransportError::Consumer(error.to_string())
}
