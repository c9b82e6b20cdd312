//! Accounts. So far only that they exist: who they are comes with logging in.

pub(crate) mod store;
