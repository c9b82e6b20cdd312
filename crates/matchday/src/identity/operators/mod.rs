//! Operators: who runs the service, and a record of what they did to it. Whatever changes something for an operator takes
//! an [`Operator`], and writes the record in its own transaction where it has one.

pub mod service;
mod store;
#[cfg(test)]
mod tests;

/// Who does something, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// What they are called.
    pub name: String,
    /// In their own words.
    pub reason: String,
}

impl Operator {
    /// An operator with a reason.
    pub fn new(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), reason: reason.into() }
    }
}
