//! Logging a failure once: when it begins and when it ends, however often it is met in between.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something fails at present.
#[derive(Debug, Default)]
pub struct Outage(AtomicBool);

impl Outage {
    /// Notes a failure; returns whether it is the first one.
    pub fn begins(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Notes a success; returns whether it is the first one after a failure.
    pub fn ends(&self) -> bool {
        // Successes are frequent, and reading is cheaper than writing.
        self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_reports_changes_only() {
        let outage = Outage::default();
        assert!(!outage.ends(), "nothing failed yet");
        assert_eq!([outage.begins(), outage.begins(), outage.begins()], [true, false, false]);
        assert_eq!([outage.ends(), outage.ends()], [true, false]);
        assert!(outage.begins());
    }
}
