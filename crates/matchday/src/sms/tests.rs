//! Sending, failing over and being told what became of it.

mod providers;
