//! Dead letters, and removal of work that has no consumer.

use std::fmt;

use async_nats::jetstream::{
    message::{PublishMessage, StreamMessage},
    stream::{DirectGetErrorKind, Stream as Source},
};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use time::OffsetDateTime;

use super::{Stream, Streams, TransportError};

/// A work item that was given up.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Sequence number in the stream of dead letters.
    pub sequence: u64,
    /// Original subject without the prefix.
    pub subject: String,
    pub payload: Bytes,
    /// Error of the last attempt.
    pub reason: String,
    pub given_up_at: OffsetDateTime,
}

impl Streams {
    /// Dead letters on these subjects, oldest first.
    pub async fn dead(&self, subject: &str) -> Result<Vec<DeadLetter>, TransportError> {
        self.dead_from(subject, 1, usize::MAX).await
    }

    /// At most `most` dead letters, starting at a sequence number.
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

    pub async fn dead_letter(&self, sequence: u64) -> Result<Option<DeadLetter>, TransportError> {
        match self.source(Stream::Dead).await?.direct_get(sequence).await {
            Ok(message) => Ok(Some(self.letter(message))),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Publishes a dead letter to its original subject, then deletes it. A crash in between leaves both; a second call
    /// within minutes is deduplicated.
    pub async fn revive(&self, letter: &DeadLetter) -> Result<(), TransportError> {
        // Not the original id: shortly after the first publication, JetStream would drop the message as a duplicate.
        let id = format!("revived-{}-{}", letter.sequence, letter.given_up_at.unix_timestamp_nanos());
        let message = PublishMessage::build().message_id(id).payload(letter.payload.clone());
        self.send(&letter.subject, message).await?.await?;
        let deleted = self.source(Stream::Dead).await?.delete_message(letter.sequence).await;
        deleted.map_err(|error| failed(&error)).map(|_| ())
    }

    /// Subjects, without the prefix, that have waiting messages.
    pub async fn waiting(&self, stream: Stream, subject: &str) -> Result<Vec<String>, TransportError> {
        let source = self.source(stream).await?;
        let subjects = source.info_with_subjects(self.subject(subject)).await.map_err(|error| failed(&error))?;
        let subjects: Vec<(String, usize)> = subjects.try_collect().await.map_err(|error| failed(&error))?;
        Ok(subjects.into_iter().map(|(subject, _)| self.bare(&subject)).collect())
    }

    /// Names of a stream's consumers.
    pub async fn consumers(&self, stream: Stream) -> Result<Vec<String>, TransportError> {
        self.source(stream).await?.consumer_names().try_collect().await.map_err(|error| failed(&error))
    }

    /// Deletes all messages on a subject.
    pub async fn discard(&self, stream: Stream, subject: &str) -> Result<(), TransportError> {
        let purged = self.source(stream).await?.purge().filter(self.subject(subject)).await;
        purged.map_err(|error| failed(&error)).map(|_| ())
    }

    /// Deletes a durable consumer.
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
