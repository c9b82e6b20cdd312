//! The calls, and what the answers mean.

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

/// The longest device name that Synapse takes, in characters.
const DEVICE_NAME_LENGTH: usize = 100;

/// No answer to most calls comes near it; whatever is longer comes from something else than a homeserver.
pub(crate) const ANSWER_BYTES: usize = 1024 * 1024;

/// For answers that grow with the members of a room. Each is about 500 bytes, so that there is room for 30,000.
pub(crate) const LONG_ANSWER_BYTES: usize = 16 * ANSWER_BYTES;

/// How much of a homeserver's own words is kept.
const MESSAGE_LENGTH: usize = 300;

/// Where the homeserver is and how to speak to it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of its client API, without `/_matrix`.
    pub url: Url,
    /// What stands after the colon of its users' ids.
    pub server_name: OwnedServerName,
    /// The `as_token` of the registration that the homeserver has of us.
    pub as_token: SecretString,
    /// The `sender_localpart` of that registration: the user that makes and keeps the rooms.
    pub bot: String,
    /// The access token of a server admin. Only [`Homeserver::set_suspended`] needs it.
    pub admin_token: Option<SecretString>,
    /// How long one call may take, with its whole answer.
    pub deadline: Duration,
    /// After how many failures in a row it is left alone for a while.
    pub tolerated_failures: u32,
    /// For how long. Then one caller tries.
    pub pause: Duration,
}

impl Settings {
    /// With `matchday` for a bot, no admin, a deadline of 10 s and a pause of 2 s after 3 failures.
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

/// Whether a user was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It was made just now.
    New,
    /// The name was taken: by an earlier call of ours, or by whoever else may register users. Deactivated users keep
    /// their names too.
    AlreadyThere,
}

/// The device that the bot speaks from.
pub(crate) const BOT_DEVICE: &str = "MATCHDAYBOT";

/// What a chat client needs to act as a user.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The user.
    pub user_id: OwnedUserId,
    /// Good until the device is deleted.
    pub access_token: SecretString,
    /// The device that was asked for.
    pub device_id: OwnedDeviceId,
}

/// A homeserver that knows us as an application service.
#[derive(Clone)]
pub struct Homeserver {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    http: Client,
    versions: SupportedVersions,
    pub(crate) breaker: Breaker,
}

impl fmt::Debug for Homeserver {
    // By hand: the client shows its default headers, and nobody knows what is in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Homeserver").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

impl Homeserver {
    /// The homeserver of these settings. Nothing is sent yet. The client had better follow no redirections: a
    /// homeserver sends none, and what follows one may not be the call that was meant.
    pub fn new(settings: Settings, http: Client) -> Self {
        // All paths used here are the same since 1.1, so there is no need to ask which versions the server knows. Only
        // the ping is younger, and its path of before that is gone.
        let features = ["fi.mau.msc2659.stable".into()].into();
        let versions = SupportedVersions { versions: [MatrixVersion::V1_1].into(), features };
        let breaker = Breaker::new(settings.tolerated_failures, settings.pause);
        Self { inner: Arc::new(Inner { settings, http, versions, breaker }) }
    }

    /// Whether calls are refused at once, because the server was away just now.
    pub fn is_resting(&self) -> bool {
        self.inner.breaker.is_open()
    }

    /// The id that the user with this localpart has, or would have.
    pub fn user_id(&self, localpart: &str) -> Result<OwnedUserId, Error> {
        ids::user_id(localpart, &self.inner.settings.server_name)
    }

    /// Makes a user. Without a device: those come with [`Self::log_in`].
    pub async fn register(&self, localpart: &str) -> Result<Registered, Error> {
        let user_id = self.user_id(localpart)?;
        let mut request = register::v3::Request::new();
        request.username = Some(localpart.to_owned());
        request.login_type = Some(register::LoginType::ApplicationService);
        request.inhibit_login = true;
        match self.call(request, &user_id, Acting::AsTheService).await {
            Ok(answer) => self.expect_user(&user_id, &answer.user_id).map(|()| Registered::New),
            Err(Error::Refused { errcode, .. }) if errcode == "M_USER_IN_USE" => Ok(Registered::AlreadyThere),
            Err(error) => Err(error),
        }
    }

    /// Makes a device of a user and a token for it. The device id must be a fresh one: for a device that exists already
    /// Synapse adds a token and leaves the old one good. The name is shown to the user; what is too long is cut.
    pub async fn log_in(&self, localpart: &str, device_id: &str, device_name: &str) -> Result<Credentials, Error> {
        let user_id = self.user_id(localpart)?;
        let device_id = ids::device_id(device_id)?;
        // The whole id instead of the localpart: a wrong server name is then refused instead of answered.
        let user = UserIdentifier::Matrix(MatrixUserIdentifier::from(&user_id));
        let login_info = login::v3::LoginInfo::ApplicationService(login::v3::ApplicationService::new(user));
        let mut request = login::v3::Request::new(login_info);
        request.device_id = Some(device_id.clone());
        request.initial_device_display_name = Some(device_name.chars().take(DEVICE_NAME_LENGTH).collect());
        let answer = self.call(request, &user_id, Acting::AsTheService).await.map_err(|error| match error {
            // Synapse speaks of a missing row, with M_UNKNOWN.
            Error::Refused { status: 404, .. } => Error::NoSuchUser(user_id.clone()),
            error => error,
        })?;
        self.expect_user(&user_id, &answer.user_id)?;
        if answer.device_id != device_id {
            return Err(Error::Unreadable { status: 200, reason: "it is about another device".to_owned() });
        }
        Ok(Credentials { user_id, access_token: answer.access_token.into(), device_id })
    }

    /// The user's devices.
    pub async fn devices(&self, localpart: &str) -> Result<Vec<OwnedDeviceId>, Error> {
        let user_id = self.user_id(localpart)?;
        let answer = self.call(get_devices::v3::Request::new(), &user_id, Acting::AsTheUser).await?;
        Ok(answer.devices.into_iter().map(|device| device.device_id).collect())
    }

    /// Deletes a device, which ends its tokens. That there is no such device, or no such user, is fine.
    pub async fn delete_device(&self, localpart: &str, device_id: &str) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let request = delete_device::v3::Request::new(ids::device_id(device_id)?);
        match self.call(request, &user_id, Acting::AsTheUser).await {
            // Synapse answers 200 for an unknown device; others may well say that it is not found.
            Ok(_) | Err(Error::NoSuchUser(_) | Error::Deactivated(_) | Error::Refused { status: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deactivates a user for good: all devices and tokens end, the profile goes, and the name is never free again.
    /// With `erase`, messages are hidden from those who join later. That the user is deactivated already, or was never
    /// there, is fine; a later call with `erase` still erases.
    pub async fn deactivate(&self, localpart: &str, erase: bool) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let mut request = deactivate::v3::Request::new();
        request.erase = erase;
        match self.call(request, &user_id, Acting::AsTheUser).await {
            Ok(_) | Err(Error::NoSuchUser(_) | Error::Deactivated(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sets the name that others see; Synapse takes 256 characters. Synapse does this for deactivated users too, whose
    /// profile thereby comes back: nothing may be set after [`Self::deactivate`].
    pub async fn set_display_name(&self, localpart: &str, name: &str) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let name = ProfileFieldValue::DisplayName(name.to_owned());
        let request = set_profile_field::v3::Request::new(user_id.clone(), name);
        self.call(request, &user_id, Acting::AsTheUser).await.map(|_| ())
    }

    /// An answer about another user than the one asked for is the mark of a wrong server name.
    fn expect_user(&self, asked: &UserId, answered: &UserId) -> Result<(), Error> {
        if asked == answered {
            return Ok(());
        }
        let configured = &self.inner.settings.server_name;
        Err(Error::Unreadable {
            status: 200,
            reason: format!("it is about another user; is {configured} the homeserver's name?"),
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
        self.call_up_to(ANSWER_BYTES, request, user_id, acting).await
    }

    /// A call whose answer may have this many bytes.
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
        let answer = self.exchange(request, bytes).await?;
        self.understand::<R>(&answer, user_id, acting)
    }

    /// What an answer other than 5xx says.
    pub(crate) fn understand<R: OutgoingRequest>(
        &self,
        answer: &WholeAnswer,
        user_id: &UserId,
        acting: Acting<'_>,
    ) -> Result<R::IncomingResponse, Error> {
        self.expect_no_refusal(answer, user_id, acting)?;
        let (parts, body) = answer;
        let status = parts.status.as_u16();
        let answer = http::Response::from_parts(parts.clone(), body.as_slice());
        <R::IncomingResponse as IncomingResponseExt>::try_from_http_response(answer)
            .map_err(|error| Error::Unreadable { status, reason: describe(&error) })
    }

    /// Whether an answer is one of 4xx, and then what it means.
    pub(crate) fn expect_no_refusal(
        &self,
        (parts, body): &WholeAnswer,
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
                    Error::WrongToken("it has characters that no header can carry, such as a line break".to_owned())
                }
                error => Error::Unsendable(error.to_string()),
            })?;
        let mut request =
            reqwest::Request::try_from(request).map_err(|error| Error::Unsendable(error.without_url().to_string()))?;
        // Keeps the token out of whatever shows headers on the way.
        if let Some(value) = request.headers_mut().get_mut(header::AUTHORIZATION) {
            value.set_sensitive(true);
        }
        Ok(request)
    }

    /// The token that such a call is made with.
    fn token<'a>(&'a self, acting: Acting<'a>) -> &'a SecretString {
        match acting {
            Acting::AsTheService | Acting::AsTheUser | Acting::FromTheBotsDevice => &self.inner.settings.as_token,
            Acting::With(token) => token,
        }
    }

    /// Sends the request, if the breaker allows, and takes the whole answer.
    pub(crate) async fn exchange(&self, request: reqwest::Request, bytes: usize) -> Result<WholeAnswer, Error> {
        self.admit()?;
        let exchanged = self.attempt(request, bytes, Failures::AreAllAlike).await;
        self.inner.breaker.record(!exchanged.as_ref().is_err_and(Error::speaks_of_an_absent_server));
        exchanged
    }

    /// Whether the breaker lets a caller ask.
    pub(crate) fn admit(&self) -> Result<(), Error> {
        self.inner.breaker.admit().map_err(|remaining| Error::Resting { remaining })
    }

    /// Sends the request within the deadline, past the breaker.
    pub(crate) async fn attempt(
        &self,
        request: reqwest::Request,
        bytes: usize,
        failures: Failures,
    ) -> Result<WholeAnswer, Error> {
        let Inner { settings, http, .. } = &*self.inner;
        tokio::time::timeout(settings.deadline, send(http, request, bytes, failures))
            .await
            .unwrap_or(Err(Error::TooSlow(settings.deadline)))
    }

    /// What an answer of 4xx means.
    fn refusal(&self, answer: http::Response<&[u8]>, user_id: &UserId, acting: Acting<'_>) -> Error {
        let status = answer.status();
        let retry_after_header = answer.headers().get(header::RETRY_AFTER).and_then(wait_of_header);
        let body = MatrixError::from_http_response(answer).body;
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Error::Busy { retry_after: retry_after_header.or_else(|| wait_of_body(&body)) };
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
            ErrorKind::Unrecognized => unreadable("the server does not know this endpoint; is the URL right?"),
            // Synapse tells an unknown user from a user outside our namespace by words alone. Should they change, this
            // becomes NotAllowed, which nobody takes for success.
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

    /// A server's own words, fit to be logged: short, on one line, and without our tokens should they be sent back.
    pub(crate) fn without_token(&self, words: &str, acting: Acting<'_>) -> String {
        let mut words = words.to_owned();
        for token in [&self.inner.settings.as_token, self.token(acting)].map(ExposeSecret::expose_secret) {
            if !token.is_empty() {
                words = words.replace(token, "…");
            }
        }
        words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_LENGTH).collect()
    }
}

/// For whom a call is made.
#[derive(Clone, Copy)]
pub(crate) enum Acting<'a> {
    /// For the bot, or for nobody in particular.
    AsTheService,
    AsTheUser,
    /// For the bot, from the device that it speaks from.
    FromTheBotsDevice,
    /// With another token than ours, for whoever owns it.
    With(&'a SecretString),
}

/// An answer with all its bytes.
pub(crate) type WholeAnswer = (http::response::Parts, Vec<u8>);

/// What to make of an answer of 5xx.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failures {
    /// An error, whatever it says: mostly the words are a proxy's.
    AreAllAlike,
    /// An answer as any other.
    AreRead,
}

async fn send(
    http: &Client,
    request: reqwest::Request,
    bytes: usize,
    failures: Failures,
) -> Result<WholeAnswer, Error> {
    let unreachable = |error: reqwest::Error| Error::Unreachable(error.without_url());
    let mut answer = http.execute(request).await.map_err(unreachable)?;
    let status = answer.status();
    if status.is_server_error() && failures == Failures::AreAllAlike {
        return Err(Error::Failing { status: status.as_u16() });
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > bytes {
            return Err(Error::Unreadable { status: status.as_u16(), reason: "it is too long".to_owned() });
        }
        body.extend_from_slice(&chunk);
    }
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts.headers = std::mem::take(answer.headers_mut());
    Ok((parts, body))
}

/// Only what is sure not to quote the answer, which may hold a user's token.
fn describe<E>(error: &FromHttpResponseError<E>) -> String {
    match error {
        FromHttpResponseError::Deserialization(DeserializationError::Json(error)) => {
            let (line, column) = (error.line(), error.column());
            format!("it is not the JSON of the specification, at line {line}, column {column}")
        }
        _ => "it is not what the specification says".to_owned(),
    }
}

fn wait_of_header(value: &HeaderValue) -> Option<Duration> {
    RetryAfter::try_from(value).ok().and_then(wait)
}

fn wait_of_body(body: &ErrorBody) -> Option<Duration> {
    match body {
        ErrorBody::Standard(StandardErrorBody {
            kind: ErrorKind::LimitExceeded(LimitExceededErrorData { retry_after, .. }),
            ..
        }) => retry_after.and_then(wait),
        _ => None,
    }
}

/// A date is left alone: it would depend on two clocks agreeing, and no homeserver sends one.
fn wait(retry_after: RetryAfter) -> Option<Duration> {
    match retry_after {
        RetryAfter::Delay(delay) => Some(delay),
        RetryAfter::DateTime(_) => None,
    }
}
