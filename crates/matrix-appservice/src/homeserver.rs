//! The HTTP client: calls for users and devices, and the interpretation of responses.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use breaker::Breaker;
use http::{HeaderValue, StatusCode, header};
use reqwest::Client;
use ruma::{
    OwnedDeviceId, OwnedServerName, OwnedUserId, UserId,
    api::{
        AppserviceUserIdentity, EndpointError, IncomingResponseExt, MatrixVersion, OutgoingRequest,
        OutgoingRequestAppserviceExt, SupportedVersions,
        auth_scheme::{AuthScheme, SendAccessToken},
        client::{
            account::{deactivate, register},
            device::{delete_device, get_devices},
            profile::set_profile_field,
            session::login,
            uiaa::{MatrixUserIdentifier, UserIdentifier},
        },
        error::{
            DeserializationError, Error as MatrixError, ErrorBody, ErrorKind, FromHttpResponseError, IntoHttpError,
            LimitExceededErrorData, RetryAfter, StandardErrorBody,
        },
        path_builder::PathBuilder,
    },
    profile::ProfileFieldValue,
};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::{Error, ids};

/// Limit for a device name in Synapse, in characters.
const DEVICE_NAME_LENGTH: usize = 100;

/// Limit for most responses, far above their real size. A longer response does not come from a homeserver.
pub(crate) const RESPONSE_BYTES: usize = 1024 * 1024;

/// Limit for responses that grow with the members of a room. A member takes about 500 bytes, so this allows 30,000
/// members.
pub(crate) const LONG_RESPONSE_BYTES: usize = 16 * RESPONSE_BYTES;

/// Number of characters kept from a homeserver's message.
const MESSAGE_LENGTH: usize = 300;

/// Address, credentials and limits for calls to the homeserver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Base URL of the client API, without `/_matrix`.
    pub url: Url,
    /// Part of a user id after the colon.
    pub server_name: OwnedServerName,
    /// The `as_token` of our registration with the homeserver.
    pub as_token: SecretString,
    /// The `sender_localpart` of that registration: the user that creates and manages the rooms.
    pub bot: String,
    /// Access token of a server admin. Suspending users, redacting all their messages and deleting their media need it.
    pub admin_token: Option<SecretString>,
    /// Time limit for one call, including the complete response.
    pub deadline: Duration,
    /// Number of failures in a row that opens the circuit breaker.
    pub tolerated_failures: u32,
    /// Time for which the circuit breaker stays open. Afterwards one caller is admitted.
    pub pause: Duration,
}

impl Settings {
    /// Defaults: the bot is `matchday`, no admin token, a deadline of 10 s, and a pause of 2 s after 3 failures.
    pub fn new(url: Url, server_name: OwnedServerName, as_token: SecretString) -> Self {
        Self {
            url,
            server_name,
            as_token,
            bot: "matchday".to_owned(),
            admin_token: None,
            deadline: Duration::from_secs(10),
            tolerated_failures: 3,
            pause: Duration::from_secs(2),
        }
    }
}

/// Result of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// This call created the user.
    New,
    /// The name was taken, by an earlier call of ours or by another party that may register users. Deactivated users
    /// keep their names.
    AlreadyExists,
}

/// Id of the device from which the bot sends messages.
pub(crate) const BOT_DEVICE: &str = "MATCHDAYBOT";

/// Credentials with which a chat client acts as a user.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub user_id: OwnedUserId,
    /// Valid until the device is deleted.
    pub access_token: SecretString,
    pub device_id: OwnedDeviceId,
}

/// A homeserver with which we are registered as an application service.
#[derive(Clone)]
pub struct Homeserver {
    pub(crate) inner: Arc<Inner>,
    purpose: Purpose,
    /// Deadline of calls, if it is another one than in the settings.
    deadline: Option<Duration>,
}

/// Purpose of calls. Each has its own circuit breaker, so slow joins do not stop logins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Chat accounts and devices of users who log in.
    Login,
    /// Requests of users about rooms: joining, leaving, sending messages.
    Rooms,
    /// Keys that users upload. Some keys make Synapse fail, so a user could open this breaker on purpose.
    Keys,
    /// Work that no user waits for.
    Background,
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    http: Client,
    versions: SupportedVersions,
    /// One for each purpose.
    breakers: [Breaker; 4],
}

impl fmt::Debug for Homeserver {
    // Not derived: the client prints its default headers, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Homeserver").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

impl Homeserver {
    /// Creates the client without sending anything. Pass an HTTP client that follows no redirects: a homeserver sends
    /// none, and a followed redirect may perform a different call.
    pub fn new(settings: Settings, http: Client) -> Self {
        // All paths used here have been stable since 1.1, so the server's versions need not be queried. Only the ping
        // is newer, and its unstable path no longer exists.
        let features = ["fi.mau.msc2659.stable".into()].into();
        let versions = SupportedVersions { versions: [MatrixVersion::V1_1].into(), features };
        let breakers = std::array::from_fn(|_| Breaker::new(settings.tolerated_failures, settings.pause));
        Self {
            inner: Arc::new(Inner { settings, http, versions, breakers }),
            purpose: Purpose::Background,
            deadline: None,
        }
    }

    /// Returns a handle whose calls have another purpose. A new client is for background work.
    #[must_use]
    pub fn for_purpose(&self, purpose: Purpose) -> Self {
        Self { purpose, ..self.clone() }
    }

    /// Returns a handle whose calls have another deadline. For calls that the homeserver queues: it still performs a call
    /// that we no longer wait for.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }

    /// Whether calls of this purpose currently fail immediately, because the circuit breaker is open.
    pub fn is_breaker_open(&self) -> bool {
        self.breaker().is_open()
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        let [login, rooms, keys, background] = &self.inner.breakers;
        match self.purpose {
            Purpose::Login => login,
            Purpose::Rooms => rooms,
            Purpose::Keys => keys,
            Purpose::Background => background,
        }
    }

    /// The circuit breakers of all purposes.
    pub(crate) fn breakers(&self) -> &[Breaker] {
        &self.inner.breakers
    }

    /// Returns the user id for this localpart. The user need not exist.
    pub fn user_id(&self, localpart: &str) -> Result<OwnedUserId, Error> {
        ids::user_id(localpart, &self.inner.settings.server_name)
    }

    /// Registers a user without a device. [`Self::log_in`] creates devices.
    pub async fn register(&self, localpart: &str) -> Result<Registered, Error> {
        let user_id = self.user_id(localpart)?;
        let mut request = register::v3::Request::new();
        request.username = Some(localpart.to_owned());
        request.login_type = Some(register::LoginType::ApplicationService);
        request.inhibit_login = true;
        match self.call(request, &user_id, Acting::AsTheService).await {
            Ok(response) => self.expect_user(&user_id, &response.user_id).map(|()| Registered::New),
            Err(Error::Refused { errcode, .. }) if errcode == "M_USER_IN_USE" => Ok(Registered::AlreadyExists),
            Err(error) => Err(error),
        }
    }

    /// Creates a device for a user, with an access token. The device id must be new: for an existing device, Synapse
    /// adds a token and keeps the old one valid. The user sees the device name; a name that is too long is truncated.
    pub async fn log_in(&self, localpart: &str, device_id: &str, device_name: &str) -> Result<Credentials, Error> {
        let user_id = self.user_id(localpart)?;
        let device_id = ids::device_id(device_id)?;
        // Sends the full id instead of the localpart, so that the homeserver refuses a wrong server name.
        let user = UserIdentifier::Matrix(MatrixUserIdentifier::from(&user_id));
        let login_info = login::v3::LoginInfo::ApplicationService(login::v3::ApplicationService::new(user));
        let mut request = login::v3::Request::new(login_info);
        request.device_id = Some(device_id.clone());
        request.initial_device_display_name = Some(device_name.chars().take(DEVICE_NAME_LENGTH).collect());
        let response = self.call(request, &user_id, Acting::AsTheService).await.map_err(|error| match error {
            // Synapse reports a missing row, with M_UNKNOWN.
            Error::Refused { status: 404, .. } => Error::NoSuchUser(user_id.clone()),
            error => error,
        })?;
        self.expect_user(&user_id, &response.user_id)?;
        if response.device_id != device_id {
            return Err(Error::Unreadable { status: 200, reason: "it names another device".to_owned() });
        }
        Ok(Credentials { user_id, access_token: response.access_token.into(), device_id })
    }

    pub async fn devices(&self, localpart: &str) -> Result<Vec<OwnedDeviceId>, Error> {
        let user_id = self.user_id(localpart)?;
        let response = self.call(get_devices::v3::Request::new(), &user_id, Acting::AsTheUser).await?;
        Ok(response.devices.into_iter().map(|device| device.device_id).collect())
    }

    /// Deletes a device, which revokes its tokens. Succeeds if the device or the user does not exist.
    pub async fn delete_device(&self, localpart: &str, device_id: &str) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let request = delete_device::v3::Request::new(ids::device_id(device_id)?);
        match self.call(request, &user_id, Acting::AsTheUser).await {
            // Synapse returns 200 for an unknown device; other homeservers may return 404.
            Ok(_) | Err(Error::NoSuchUser(_) | Error::Deactivated(_) | Error::Refused { status: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Permanently deactivates a user: all devices and tokens are revoked, and the name is never available again. With
    /// `erase`, the profile is deleted, and users who join a room later do not see this user's messages.
    ///
    /// Succeeds if the user is deactivated already or never existed. A later call with `erase` still erases.
    pub async fn deactivate(&self, localpart: &str, erase: bool) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let mut request = deactivate::v3::Request::new();
        request.erase = erase;
        match self.call(request, &user_id, Acting::AsTheUser).await {
            Ok(_) | Err(Error::NoSuchUser(_) | Error::Deactivated(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sets the display name; Synapse accepts 256 characters. Synapse does this for deactivated users too, which
    /// restores their profile: do not call it after [`Self::deactivate`].
    pub async fn set_display_name(&self, localpart: &str, name: &str) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let name = ProfileFieldValue::DisplayName(name.to_owned());
        let request = set_profile_field::v3::Request::new(user_id.clone(), name);
        self.call(request, &user_id, Acting::AsTheUser).await.map(|_| ())
    }

    /// Fails if the response names another user than requested, which indicates a wrong server name.
    fn expect_user(&self, requested: &UserId, returned: &UserId) -> Result<(), Error> {
        if requested == returned {
            return Ok(());
        }
        let configured = &self.inner.settings.server_name;
        Err(Error::Unreadable {
            status: 200,
            reason: format!("it names another user; is {configured} the homeserver's server name?"),
        })
    }

    pub(crate) async fn call<R>(
        &self,
        request: R,
        user_id: &UserId,
        acting: Acting<'_>,
    ) -> Result<R::IncomingResponse, Error>
    where
        R: OutgoingRequest,
        for<'a> R::Authentication: AuthScheme<Input<'a> = SendAccessToken<'a>>,
        for<'a> R::PathBuilder: PathBuilder<Input<'a> = Cow<'a, SupportedVersions>>,
    {
        self.call_up_to(RESPONSE_BYTES, request, user_id, acting).await
    }

    /// Sends a call whose response may have up to `bytes` bytes.
    pub(crate) async fn call_up_to<R>(
        &self,
        bytes: usize,
        request: R,
        user_id: &UserId,
        acting: Acting<'_>,
    ) -> Result<R::IncomingResponse, Error>
    where
        R: OutgoingRequest,
        for<'a> R::Authentication: AuthScheme<Input<'a> = SendAccessToken<'a>>,
        for<'a> R::PathBuilder: PathBuilder<Input<'a> = Cow<'a, SupportedVersions>>,
    {
        let request = self.prepare(request, user_id, acting)?;
        let response = self.exchange(request, bytes).await?;
        self.parse::<R>(&response, user_id, acting)
    }

    /// Parses a response other than 5xx.
    pub(crate) fn parse<R: OutgoingRequest>(
        &self,
        response: &RawResponse,
        user_id: &UserId,
        acting: Acting<'_>,
    ) -> Result<R::IncomingResponse, Error> {
        self.expect_no_refusal(response, user_id, acting)?;
        let (parts, body) = response;
        let status = parts.status.as_u16();
        let response = http::Response::from_parts(parts.clone(), body.as_slice());
        <R::IncomingResponse as IncomingResponseExt>::try_from_http_response(response)
            .map_err(|error| Error::Unreadable { status, reason: describe(&error) })
    }

    /// Turns a 4xx response into an error.
    pub(crate) fn expect_no_refusal(
        &self,
        (parts, body): &RawResponse,
        user_id: &UserId,
        acting: Acting<'_>,
    ) -> Result<(), Error> {
        if parts.status.as_u16() < 400 {
            return Ok(());
        }
        Err(self.refusal(http::Response::from_parts(parts.clone(), body.as_slice()), user_id, acting))
    }

    pub(crate) fn prepare<R>(&self, request: R, user_id: &UserId, acting: Acting<'_>) -> Result<reqwest::Request, Error>
    where
        R: OutgoingRequest,
        for<'a> R::Authentication: AuthScheme<Input<'a> = SendAccessToken<'a>>,
        for<'a> R::PathBuilder: PathBuilder<Input<'a> = Cow<'a, SupportedVersions>>,
    {
        let Inner { settings, versions, .. } = &*self.inner;
        let identity = match acting {
            Acting::AsTheService | Acting::With(_) => AppserviceUserIdentity::default(),
            Acting::AsTheUser => AppserviceUserIdentity::new(user_id),
            Acting::FromTheBotsDevice => {
                let mut identity = AppserviceUserIdentity::new(user_id);
                identity.device_id = Some(BOT_DEVICE.into());
                identity
            }
        };
        let token = SendAccessToken::Appservice(self.token(acting).expose_secret());
        let request = request
            .try_into_http_request_with_identity::<Vec<u8>>(
                settings.url.as_str(),
                token,
                identity,
                Cow::Borrowed(versions),
            )
            .map_err(|error| match error {
                IntoHttpError::Authentication(_) => {
                    Error::WrongToken("it contains characters not allowed in a header, such as a line break".to_owned())
                }
                error => Error::Unsendable(error.to_string()),
            })?;
        let mut request =
            reqwest::Request::try_from(request).map_err(|error| Error::Unsendable(error.without_url().to_string()))?;
        // Hides the token from code that logs headers.
        if let Some(value) = request.headers_mut().get_mut(header::AUTHORIZATION) {
            value.set_sensitive(true);
        }
        Ok(request)
    }

    fn token<'a>(&'a self, acting: Acting<'a>) -> &'a SecretString {
        match acting {
            Acting::AsTheService | Acting::AsTheUser | Acting::FromTheBotsDevice => &self.inner.settings.as_token,
            Acting::With(token) => token,
        }
    }

    /// Sends the request, if the circuit breaker admits it, and reads the complete response.
    pub(crate) async fn exchange(&self, request: reqwest::Request, bytes: usize) -> Result<RawResponse, Error> {
        self.admit()?;
        let exchanged = self.attempt(request, bytes, Failures::AreAllAlike).await;
        match &exchanged {
            // A call of the same purpose may have succeeded meanwhile. The homeserver is then slow, but not down.
            Err(Error::TooSlow(deadline)) => self.breaker().record_timeout(*deadline),
            outcome => self.breaker().record(!outcome.as_ref().is_err_and(Error::means_server_unavailable)),
        }
        exchanged
    }

    pub(crate) fn admit(&self) -> Result<(), Error> {
        self.breaker().admit().map_err(|remaining| Error::BreakerOpen { remaining })
    }

    /// Sends the request within the deadline, bypassing the circuit breaker.
    pub(crate) async fn attempt(
        &self,
        mut request: reqwest::Request,
        bytes: usize,
        failures: Failures,
    ) -> Result<RawResponse, Error> {
        let Inner { settings, http, .. } = &*self.inner;
        let deadline = self.deadline.unwrap_or(settings.deadline);
        // Replaces the timeout of the HTTP client, which may be shorter and would look like a broken connection.
        *request.timeout_mut() = Some(deadline * 2);
        tokio::time::timeout(deadline, send(http, request, bytes, failures))
            .await
            .unwrap_or(Err(Error::TooSlow(deadline)))
    }

    /// Converts a 4xx response to an error.
    fn refusal(&self, response: http::Response<&[u8]>, user_id: &UserId, acting: Acting<'_>) -> Error {
        let status = response.status();
        let retry_after_header = response.headers().get(header::RETRY_AFTER).and_then(delay_from_header);
        let body = MatrixError::from_http_response(response).body;
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Error::Busy { retry_after: retry_after_header.or_else(|| delay_from_body(&body)) };
        }
        let unreadable = |reason: &str| Error::Unreadable { status: status.as_u16(), reason: reason.to_owned() };
        let StandardErrorBody { kind, message, .. } = match body {
            ErrorBody::Standard(body) => body,
            ErrorBody::Json(_) => return unreadable("it is JSON without an errcode"),
            ErrorBody::NotJson { .. } => return unreadable("it is not JSON"),
        };
        let message = self.without_token(&message, acting);
        match kind {
            ErrorKind::UnknownToken(_) | ErrorKind::MissingToken => Error::WrongToken(message),
            ErrorKind::UserDeactivated => Error::Deactivated(user_id.to_owned()),
            ErrorKind::UserSuspended => Error::Suspended(user_id.to_owned()),
            ErrorKind::Unrecognized => unreadable("the server does not have this endpoint; is the URL correct?"),
            // Only the message text distinguishes an unknown user from a user outside our namespace. If Synapse changes
            // the text, this becomes NotAllowed, which no caller treats as success.
            ErrorKind::Forbidden if message.contains("has not registered this user") => {
                Error::NoSuchUser(user_id.to_owned())
            }
            ErrorKind::Exclusive => Error::NotAllowed { user_id: user_id.to_owned(), message },
            ErrorKind::Forbidden if status == StatusCode::FORBIDDEN => {
                Error::NotAllowed { user_id: user_id.to_owned(), message }
            }
            kind => Error::Refused {
                status: status.as_u16(),
                errcode: self.without_token(kind.errcode().as_str(), acting),
                message,
            },
        }
    }

    /// Makes a server's message safe to log: short, on one line, and without our tokens in case the server echoes them.
    pub(crate) fn without_token(&self, text: &str, acting: Acting<'_>) -> String {
        let mut text = text.to_owned();
        for token in [&self.inner.settings.as_token, self.token(acting)].map(ExposeSecret::expose_secret) {
            if !token.is_empty() {
                text = text.replace(token, "…");
            }
        }
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_LENGTH).collect()
    }
}

/// Identity and token that a call uses.
#[derive(Clone, Copy)]
pub(crate) enum Acting<'a> {
    /// As the bot, or as no particular user.
    AsTheService,
    AsTheUser,
    /// As the bot, from its device.
    FromTheBotsDevice,
    /// As the owner of another token than our `as_token`.
    With(&'a SecretString),
}

/// A response with its complete body.
pub(crate) type RawResponse = (http::response::Parts, Vec<u8>);

/// Handling of a 5xx response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failures {
    /// Always an error; its body usually comes from a proxy and is not read.
    AreAllAlike,
    /// Read like any other response.
    AreRead,
}

async fn send(
    http: &Client,
    request: reqwest::Request,
    bytes: usize,
    failures: Failures,
) -> Result<RawResponse, Error> {
    let unreachable = |error: reqwest::Error| Error::Unreachable(error.without_url());
    let mut response = http.execute(request).await.map_err(unreachable)?;
    let status = response.status();
    if status.is_server_error() && failures == Failures::AreAllAlike {
        return Err(Error::Failing { status: status.as_u16() });
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > bytes {
            return Err(Error::Unreadable { status: status.as_u16(), reason: "it is too long".to_owned() });
        }
        body.extend_from_slice(&chunk);
    }
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts.headers = std::mem::take(response.headers_mut());
    Ok((parts, body))
}

/// Never quotes the response, because it may contain a user's token.
fn describe<E>(error: &FromHttpResponseError<E>) -> String {
    match error {
        FromHttpResponseError::Deserialization(DeserializationError::Json(error)) => {
            let (line, column) = (error.line(), error.column());
            format!("its JSON does not match the specification, at line {line}, column {column}")
        }
        _ => "it does not match the specification".to_owned(),
    }
}

fn delay_from_header(value: &HeaderValue) -> Option<Duration> {
    RetryAfter::try_from(value).ok().and_then(wait)
}

fn delay_from_body(body: &ErrorBody) -> Option<Duration> {
    match body {
        ErrorBody::Standard(StandardErrorBody {
            kind: ErrorKind::LimitExceeded(LimitExceededErrorData { retry_after, .. }),
            ..
        }) => retry_after.and_then(wait),
        _ => None,
    }
}

/// Ignores a date: it would require two synchronised clocks, and no homeserver sends one.
fn wait(retry_after: RetryAfter) -> Option<Duration> {
    match retry_after {
        RetryAfter::Delay(delay) => Some(delay),
        RetryAfter::DateTime(_) => None,
    }
}
