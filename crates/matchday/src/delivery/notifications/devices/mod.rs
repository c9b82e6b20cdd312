//! Devices that receive notifications: phones with FCM or APNs, and browsers. A device belongs to the session that
//! registered it last and ends with it. A token belongs to one device of one user.

pub(super) mod handlers;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;
mod vault;
