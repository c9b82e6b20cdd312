//! Logs an outage once when it starts and once when it ends, however many requests fail in between.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an operation fails at present.
#[derive(Debug, Default)]
pub struct Outage(AtomicBool);

impl Outage {
    /// Records a failure; returns whether it is the first one.
    pub fn begins(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Records a success; returns whether it is the first one after a failure.
    pub fn ends(&self) -> bool {
        // Successes are frequent, and a load is cheaper than a swap.
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
