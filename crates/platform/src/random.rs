//! Injected randomness: the system's source in production, a seeded one in tests.

use std::fmt;

use rand::{TryRng as _, rngs::SysRng};
use uuid::Uuid;

use super::clock::Clock;

/// A source of unpredictable bytes.
pub trait Random: Send + Sync + fmt::Debug {
    fn fill(&self, buffer: &mut [u8]);
}

/// The operating system's random source, suitable for secrets.
#[derive(Debug)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buffer: &mut [u8]) {
        // Without randomness no token can be issued safely, so panic instead of continuing.
        SysRng.try_fill_bytes(buffer).expect("the system's random source is available");
    }
}

pub fn bytes<const N: usize>(random: &dyn Random) -> [u8; N] {
    let mut buffer = [0; N];
    random.fill(&mut buffer);
    buffer
}

/// Generates a time-ordered identifier (UUID version 7).
pub fn uuid_v7(random: &dyn Random, clock: &dyn Clock) -> Uuid {
    let milliseconds = u64::try_from(clock.now().unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    uuid::Builder::from_unix_timestamp_millis(milliseconds, &bytes(random)).into_uuid()
}
