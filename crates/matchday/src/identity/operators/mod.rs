//! Operators and the audit log of their actions. Every function that changes something for an operator takes an
//! [`Operator`]. It writes the log entry in the same transaction where possible.

pub mod service;
mod store;
#[cfg(test)]
mod tests;

/// The operator who performs an action, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    pub name: String,
    pub reason: String,
}

impl Operator {
    pub fn new(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), reason: reason.into() }
    }
}
