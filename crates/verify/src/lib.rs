//! Verifies receipts, seals and bundles of predictions, without access to the service, its database or a network.
//!
//! It assumes that the operator cheats: everything that a file says is compared with the seals, or flagged if it cannot be.
//!
//! This is a second implementation on purpose. It shares only the rules of points with the service (crate `scoring`), so
//! a mistake in the service's encodings or trees cannot hide in both. `docs/seals.md` defines the formats.

pub mod bundle;
pub mod chain;
mod fields;
pub mod input;
pub mod proof;
pub mod report;
mod tree;

pub use self::{
    fields::Malformed,
    report::{Check, Failure, Flag, Flagged, Report},
};
