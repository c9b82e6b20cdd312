//! Issuing and revoking the credentials of users.

use std::{pin::Pin, sync::Arc};

use ruma::OwnedDeviceId;

use crate::{Credentials, Error, Homeserver, Purpose, Registered};

/// Future of a call to an issuer.
pub type Issuing<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Creates the accounts of users and issues their access tokens. [`Homeserver`] does so as an application service; another
/// implementation may call an authentication service in front of the homeserver.
///
/// A user is named by the localpart. One device belongs to one session of the user, and its token is valid until the device
/// is revoked. Except for [`Self::issue`], repeating a call has no further effect.
pub trait CredentialIssuer: Send + Sync {
    /// Returns an issuer whose calls have another purpose, and thus another circuit breaker.
    fn for_purpose(&self, purpose: Purpose) -> Arc<dyn CredentialIssuer>;

    /// Whether calls currently fail immediately, because earlier ones failed.
    fn is_breaker_open(&self) -> bool;

    /// Creates an account without a device.
    fn register<'a>(&'a self, localpart: &'a str) -> Issuing<'a, Registered>;

    /// Creates a device with an access token. The device id must be new. Fails with [`Error::NoSuchUser`] if the account
    /// does not exist, and with [`Error::Deactivated`] if it was deactivated.
    fn issue<'a>(&'a self, localpart: &'a str, device_id: &'a str, device_name: &'a str) -> Issuing<'a, Credentials>;

    /// Returns all devices of the user, also those that this issuer did not create: they show that the account belongs to
    /// another party. Fails like [`Self::issue`].
    fn devices<'a>(&'a self, localpart: &'a str) -> Issuing<'a, Vec<OwnedDeviceId>>;

    /// Deletes a device and revokes its token. Succeeds if there is none.
    fn revoke<'a>(&'a self, localpart: &'a str, device_id: &'a str) -> Issuing<'a, ()>;

    /// Permanently deactivates an account with all devices. Succeeds if there is none. With `erase`, users who join a room
    /// later do not see this user's messages.
    fn deactivate<'a>(&'a self, localpart: &'a str, erase: bool) -> Issuing<'a, ()>;
}

impl CredentialIssuer for Homeserver {
    fn for_purpose(&self, purpose: Purpose) -> Arc<dyn CredentialIssuer> {
        Arc::new(Self::for_purpose(self, purpose))
    }

    fn is_breaker_open(&self) -> bool {
        Self::is_breaker_open(self)
    }

    fn register<'a>(&'a self, localpart: &'a str) -> Issuing<'a, Registered> {
        Box::pin(Self::register(self, localpart))
    }

    fn issue<'a>(&'a self, localpart: &'a str, device_id: &'a str, device_name: &'a str) -> Issuing<'a, Credentials> {
        Box::pin(self.log_in(localpart, device_id, device_name))
    }

    fn devices<'a>(&'a self, localpart: &'a str) -> Issuing<'a, Vec<OwnedDeviceId>> {
        Box::pin(Self::devices(self, localpart))
    }

    fn revoke<'a>(&'a self, localpart: &'a str, device_id: &'a str) -> Issuing<'a, ()> {
        Box::pin(self.delete_device(localpart, device_id))
    }

    fn deactivate<'a>(&'a self, localpart: &'a str, erase: bool) -> Issuing<'a, ()> {
        Box::pin(Self::deactivate(self, localpart, erase))
    }
}

/// A homeserver, and the issuer of its users' credentials.
#[derive(Clone)]
pub struct ChatServer {
    pub homeserver: Homeserver,
    pub issuer: Arc<dyn CredentialIssuer>,
}

impl ChatServer {
    /// Issues credentials with the login of the application service.
    pub fn new(homeserver: Homeserver) -> Self {
        let issuer = Arc::new(homeserver.clone());
        Self { homeserver, issuer }
    }

    /// Returns a handle whose calls have another purpose.
    #[must_use]
    pub fn for_purpose(&self, purpose: Purpose) -> Self {
        Self { homeserver: self.homeserver.for_purpose(purpose), issuer: self.issuer.for_purpose(purpose) }
    }
}
