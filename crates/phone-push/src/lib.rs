//! Clients of Firebase Cloud Messaging (FCM, HTTP v1) and of the Apple Push Notification service (APNs).
//!
//! [`Fcm::send`] and [`Apns::send`] make one attempt to deliver one notification to one device, and report an [`Outcome`]. The
//! caller stores devices and decides when to try again. Within an attempt, a request is repeated only if the provider certainly
//! did not process it: with new credentials after it refused the old ones, or on another connection after it refused the stream.

mod apns;
mod attempts;
mod connection;
mod credentials;
mod fcm;
mod notification;
mod plain;
mod provider;
#[cfg(feature = "stand-in")]
pub mod stand_in;

use std::sync::Arc;

use time::OffsetDateTime;

pub use self::{
    apns::{Apns, ApnsSettings},
    credentials::ServiceAccount,
    fcm::{Fcm, FcmSettings},
    notification::{Notification, Outcome, SubjectId},
};

/// Source of the wall-clock time, for the lifetimes of credentials and notifications.
pub type Now = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

const AGENT: &str = concat!("matchday/", env!("CARGO_PKG_VERSION"));

/// Settings from which no client can be built.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("the service account file must be JSON with project_id, client_email, private_key and token_uri")]
    ServiceAccount,
    #[error("the private key is not a valid RSA key in PEM format")]
    RsaKey,
    #[error("the key file is not a valid P-256 key in PEM format (.p8)")]
    EcKey,
    #[error("the URL must be like https://push.example.org")]
    Url,
    #[error("{0} is not allowed in an HTTP header")]
    Header(&'static str),
    #[error("TLS is not available: {0}")]
    Tls(String),
}
