//! Randomness, handed in: the system's source in a running service, a seeded one in tests.

use std::fmt;

use rand::{TryRng as _, rngs::SysRng};
use uuid::Uuid;

use super::clock::Clock;

/// A source of unpredictable bytes.
pub trait Random: Send + Sync + fmt::Debug {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);
}

/// The operating system's source, fit for secrets.
#[derive(Debug)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buffer: &mut [u8]) {
        // A system without randomness cannot issue a single token: stop rather than weaken it.
        SysRng.try_fill_bytes(buffer).expect("the system's random source answers");
    }
}

/// `N` random bytes.
pub fn bytes<const N: usize>(random: &dyn Random) -> [u8; N] {
    let mut buffer = [0; N];
    random.fill(&mut buffer);
    buffer
}

/// A time-ordered identifier (UUID version 7).
pub fn uuid_v7(random: &dyn Random, clock: &dyn Clock) -> Uuid {
    let milliseconds = u64::try_from(clock.now().unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    uuid::Builder::from_unix_timestamp_millis(milliseconds, &bytes(random)).into_uuid()
}
