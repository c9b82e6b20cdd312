//! Delivery of facts to apps, fans and rooms: live stream, webhooks, notifications, announcements.

pub mod announcements;
pub mod live;
pub mod notifications;
pub mod webhooks;
