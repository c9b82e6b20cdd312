//! Operators and the audit log of their actions, and of the actions of backends through the server API. Every function
//! that changes something for an operator takes an [`Operator`]. It writes the log entry in the same transaction where
//! possible.

pub mod service;
mod store;
#[cfg(test)]
mod tests;

use web::ids::ServerKeyId;

/// The operator who performs an action, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    pub name: String,
    pub reason: String,
    /// Set if a backend acts through the server API.
    pub key: Option<KeyUse>,
}

/// The server key of an action, and the scope that allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    pub id: ServerKeyId,
    pub scope: &'static str,
}

impl Operator {
    pub fn new(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), reason: reason.into(), key: None }
    }

    /// A backend that acts with a server key.
    pub fn with_key(key: KeyUse, reason: impl Into<String>) -> Self {
        Self { key: Some(key), ..Self::new(format!("key:{}", key.id), reason) }
    }
}
