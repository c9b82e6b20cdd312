//! Worker that carries out planned removals.

use std::time::Duration;

use platform::stream::{Delivery, Failure, Stream, WorkSpec};

use super::service::{RemovalError, Removals};
use crate::chat::planned_removals::{PLANNED, PlannedRemoval};

impl Removals {
    /// Consumer settings for the `work.removal.>` subjects.
    pub fn work() -> WorkSpec {
        WorkSpec {
            longest_pause: Duration::from_secs(30),
            at_once: 8,
            ..WorkSpec::new("removals", Stream::Work, "work.removal.>")
        }
    }

    /// Handles one message. Idempotent.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        if delivery.subject != PLANNED {
            return Err(Failure::GiveUp(anyhow::anyhow!("unknown subject {}", delivery.subject)));
        }
        let planned: PlannedRemoval =
            serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        match self.carry_out(planned.room_id, &planned.event_id).await {
            Ok(()) => Ok(()),
            Err(error @ RemovalError::NoSuchMessage) => Err(Failure::GiveUp(error.into())),
            Err(error) => Err(Failure::retry(error)),
        }
    }
}
