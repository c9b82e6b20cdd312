//! Delivery of facts to apps, fans and chat rooms: live stream, webhooks, notifications and announcements.

pub mod announcements;
pub mod live;
pub mod notifications;
pub mod webhooks;
