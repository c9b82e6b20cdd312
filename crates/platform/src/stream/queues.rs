//! How much waits, for operators to see.

use std::fmt;

use futures_util::TryStreamExt as _;

use super::{Stream, Streams, TransportError};

/// How much of a stream waits for a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Which of the three streams.
    pub stream: Stream,
    /// The consumer.
    pub consumer: String,
    /// How many messages it was not given yet.
    pub pending: u64,
    /// How many it was given, and did not say what became of them.
    pub under_way: u64,
    /// How many of those were given to it more than once.
    pub again: u64,
}

impl Streams {
    /// The durable consumers of facts and of work, with how much waits for each.
    pub async fn queues(&self) -> Result<Vec<Queue>, TransportError> {
        let mut queues = Vec::new();
        for stream in [Stream::Work, Stream::Facts] {
            let mut consumers = self.source(stream).await?.consumers();
            while let Some(info) = consumers.try_next().await.map_err(|error| failed(&error))? {
                // What follows facts for the live stream comes and goes with its process.
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

    /// Whether nothing waits for a consumer of work, nor is under way. False as long as it is not there.
    pub async fn is_idle(&self, consumer: &str) -> Result<bool, TransportError> {
        let queues = self.queues().await?;
        Ok(queues.iter().any(|queue| queue.consumer == consumer && queue.pending + queue.under_way == 0))
    }

    /// How many messages a stream holds.
    pub async fn held(&self, stream: Stream) -> Result<u64, TransportError> {
        Ok(self.source(stream).await?.cached_info().state.messages)
    }
}

fn failed(error: &dyn fmt::Display) -> TransportError {
    TransportError::Consumer(error.to_string())
}
