//! Backlog of the consumers.

use std::fmt;

use futures_util::TryStreamExt as _;

use super::{Stream, Streams, TransportError};

/// Backlog of one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub stream: Stream,
    pub consumer: String,
    /// Messages not delivered yet.
    pub pending: u64,
    /// Messages delivered but not acknowledged.
    pub under_way: u64,
    /// Unacknowledged messages that were delivered more than once.
    pub again: u64,
}

impl Streams {
    /// Backlog of every durable consumer of facts and work.
    pub async fn queues(&self) -> Result<Vec<Queue>, TransportError> {
        let mut queues = Vec::new();
        for stream in [Stream::Work, Stream::Facts] {
            let mut consumers = self.source(stream).await?.consumers();
            while let Some(info) = consumers.try_next().await.map_err(|error| failed(&error))? {
                // Ephemeral consumers follow facts for the live stream of one process.
                if info.config.durable_name.is_some() {
                    queues.push(Queue {
                        stream,
                        consumer: info.name,
                        pending: info.num_pending,
                        under_way: info.num_ack_pending as u64,
                        again: info.num_redelivered as u64,
                    });
                }
            }
        }
        queues.sort_by(|one, other| one.consumer.cmp(&other.consumer));
        Ok(queues)
    }

    /// Whether a consumer of work has neither waiting nor unacknowledged messages. False if the consumer does not
    /// exist.
    pub async fn is_idle(&self, consumer: &str) -> Result<bool, TransportError> {
        let queues = self.queues().await?;
        Ok(queues.iter().any(|queue| queue.consumer == consumer && queue.pending + queue.under_way == 0))
    }

    /// Number of messages in a stream.
    pub async fn held(&self, stream: Stream) -> Result<u64, TransportError> {
        Ok(self.source(stream).await?.cached_info().state.messages)
    }
}

fn failed(error: &dyn fmt::Display) -> TransportError {
    TransportError::Consumer(error.to_string())
}
