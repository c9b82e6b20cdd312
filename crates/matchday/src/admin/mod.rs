//! The operator console.

pub mod console;
