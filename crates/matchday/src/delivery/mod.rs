//! Delivery of facts to apps, fans and chat rooms: live stream, webhooks, log of facts, notifications and
//! announcements.

pub mod announcements;
pub mod facts;
pub mod live;
pub mod mentions;
pub mod notifications;
pub mod webhooks;
