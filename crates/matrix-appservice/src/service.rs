//! Calls about the bot, the homeserver itself, or users outside rooms.

use std::time::Duration;

use breaker::Breaker;
use http::{HeaderValue, Method, header};
use ruma::{
    OwnedRoomId, OwnedTransactionId, OwnedUserId, UserId,
    api::{
        EndpointError, OutgoingRequestExt,
        auth_scheme::SendAccessToken,
        client::{
            appservice::request_ping,
            config::{get_global_account_data, set_global_account_data},
            discovery::get_supported_versions,
        },
        error::{Error as MatrixError, ErrorBody, ErrorKind, StandardErrorBody},
    },
    events::GlobalAccountDataEventType,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use crate::{
    Error, Homeserver,
    homeserver::{Acting, Failures, RESPONSE_BYTES, RawResponse},
    rooms::raw,
};

/// Number of characters kept from a homeserver's reason for a failed redaction.
const REASON_LENGTH: usize = 300;

/// State of a redaction that the homeserver runs in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// Scheduled or in progress.
    Running,
    /// All messages are redacted.
    Done,
    /// At least one message is not redacted, for this reason.
    Failed(String),
}

impl Homeserver {
    /// Returns the user id of the bot, which creates and manages the rooms.
    pub fn bot(&self) -> Result<OwnedUserId, Error> {
        self.user_id(&self.inner.settings.bot)
    }

    /// Registers the bot if the homeserver does not have it yet. Synapse lets it act unregistered, but then it has no
    /// profile and does not appear in user queries.
    pub async fn ensure_bot(&self) -> Result<(), Error> {
        self.register(&self.inner.settings.bot).await.map(|_| ())
    }

    /// Adds a user to another user's ignore list or removes them from it, acting as the owner of the list. Messages and
    /// invitations from ignored users are hidden. Sends nothing if the list is already correct.
    ///
    /// The list is read and written back as a whole: this call and a client that changes the list at the same time may
    /// undo each other's change.
    pub async fn set_ignored(&self, localpart: &str, ignored: &UserId, is_ignored: bool) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let kind = GlobalAccountDataEventType::IgnoredUserList;
        let request = get_global_account_data::v3::Request::new(user_id.clone(), kind.clone());
        let mut list = match self.call(request, &user_id, Acting::AsTheUser).await {
            Ok(response) => response.account_data.deserialize_as_unchecked::<Map<String, Value>>().map_err(|_| {
                Error::Unreadable { status: 200, reason: "the list of ignored users is not an object".to_owned() }
            })?,
            Err(Error::Refused { status: 404, .. }) => Map::new(),
            Err(error) => return Err(error),
        };
        // Clients write this list, so it may contain anything.
        let mut users = match list.remove("ignored_users") {
            Some(Value::Object(users)) => users,
            _ => Map::new(),
        };
        if users.contains_key(ignored.as_str()) == is_ignored {
            return Ok(());
        }
        if is_ignored {
            users.insert(ignored.to_string(), json!({}));
        } else {
            users.remove(ignored.as_str());
        }
        list.insert("ignored_users".to_owned(), users.into());
        let list = raw(&list.into())?;
        let request = set_global_account_data::v3::Request::new_raw(user_id.clone(), kind, list);
        self.call(request, &user_id, Acting::AsTheUser).await.map(|_| ())
    }

    /// Makes the homeserver call us now, and returns how long that took. Synapse then also retries pushes that failed
    /// before. The id and the token belong to one registration, which may differ from the registration of all other
    /// calls. The homeserver's call carries the transaction id.
    ///
    /// If we accept the call without responding, Synapse waits for a minute; our deadline ends earlier.
    pub async fn ping(
        &self,
        appservice_id: &str,
        token: &SecretString,
        transaction_id: &str,
    ) -> Result<Duration, Error> {
        let (bot, acting) = (self.bot()?, Acting::With(token));
        let mut request = request_ping::v1::Request::new(appservice_id.to_owned());
        request.transaction_id = Some(OwnedTransactionId::from(transaction_id));
        let request = self.prepare(request, &bot, acting)?;
        self.admit()?;
        let response = match self.attempt(request, RESPONSE_BYTES, Failures::AreRead).await {
            Ok(response) => self.parse_ping(&response, &bot, acting),
            Err(error) => Err(error),
        };
        // A timeout does not count for the breaker: either the homeserver or our own endpoint may have been silent.
        if !matches!(response, Err(Error::TooSlow(_))) {
            self.breaker().record(!response.as_ref().is_err_and(Error::means_server_unavailable));
        }
        response
    }

    /// Interprets the response to a ping. Synapse uses 502 and 504 for failures on our side of the connection.
    fn parse_ping(&self, response: &RawResponse, bot: &UserId, acting: Acting<'_>) -> Result<Duration, Error> {
        let (parts, body) = response;
        let status = parts.status;
        if status.as_u16() >= 400 {
            let refusal = MatrixError::from_http_response(http::Response::from_parts(parts.clone(), body.as_slice()));
            if let ErrorBody::Standard(StandardErrorBody { kind, message, .. }) = refusal.body
                && let ErrorKind::UrlNotSet
                | ErrorKind::ConnectionFailed
                | ErrorKind::ConnectionTimeout
                | ErrorKind::BadStatus(_) = kind
            {
                let reason = self.without_token(&format!("{}: {message}", kind.errcode()), acting);
                return Err(Error::CannotReachUs { reason });
            }
        }
        if status.is_server_error() {
            return Err(Error::Failing { status: status.as_u16() });
        }
        self.parse::<request_ping::v1::Request>(response, bot, acting).map(|response| response.duration).map_err(
            // The token is valid, but belongs to another registration or to a user.
            |error| match error {
                Error::NotAllowed { message, .. } => Error::WrongToken(message),
                error => error,
            },
        )
    }

    /// Suspends a user or lifts the suspension. A suspended user can read and leave, but neither write nor join.
    /// Synapse 1.163 lacks the endpoint of the specification, so this uses Synapse's admin endpoint.
    pub async fn set_suspended(&self, localpart: &str, suspended: bool) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let path = ["v1", "suspend", user_id.as_str()];
        let response = self.administer(Method::PUT, &path, Some(&json!({"suspend": suspended})), &user_id).await?;
        if response[format!("user_{user_id}_suspended")] == Value::Bool(suspended) {
            return Ok(());
        }
        Err(unexpected())
    }

    /// Starts to redact all messages of a user in these rooms, and returns the id to pass to [`Self::redaction`].
    /// Messages that are redacted already are skipped.
    ///
    /// The rooms are named explicitly so that this also works after [`Self::deactivate`]: an empty list would mean the
    /// rooms that the user is in now.
    pub async fn redact_all(&self, localpart: &str, rooms: &[OwnedRoomId]) -> Result<String, Error> {
        let user_id = self.user_id(localpart)?;
        let path = ["v1", "user", user_id.as_str(), "redact"];
        let response = self.administer(Method::POST, &path, Some(&json!({"rooms": rooms})), &user_id).await?;
        response["redact_id"].as_str().map(str::to_owned).ok_or_else(unexpected)
    }

    /// Returns the state of a redaction started by [`Self::redact_all`].
    pub async fn redaction(&self, redaction: &str) -> Result<Redaction, Error> {
        let bot = self.bot()?;
        let response = self.administer(Method::GET, &["v1", "user", "redact_status", redaction], None, &bot).await?;
        // Synapse reports "complete" even if some redactions failed, and lists the failed ones.
        let failed = response["failed_redactions"].as_object().map_or(0, Map::len);
        match response["status"].as_str() {
            Some("complete") if failed == 0 => Ok(Redaction::Done),
            Some("complete") => Ok(Redaction::Failed(format!("{failed} messages were not redacted"))),
            Some("failed") => {
                let reason = response["error"].as_str().unwrap_or("no reason given");
                Ok(Redaction::Failed(reason.chars().take(REASON_LENGTH).collect()))
            }
            Some(_) => Ok(Redaction::Running),
            None => Err(unexpected()),
        }
    }

    /// Deletes some of a user's uploads and returns how many this call deleted. Repeat the call until it returns 0.
    pub async fn delete_media(&self, localpart: &str) -> Result<u64, Error> {
        let user_id = self.user_id(localpart)?;
        let path = ["v1", "users", user_id.as_str(), "media"];
        let response = self.administer(Method::DELETE, &path, None, &user_id).await?;
        response["deleted_media"].as_array().map(|deleted| deleted.len() as u64).ok_or_else(unexpected)
    }

    /// Calls Synapse's admin API, which is not part of the specification.
    pub(crate) async fn administer(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&Value>,
        user_id: &UserId,
    ) -> Result<Value, Error> {
        let admin_token = self.inner.settings.admin_token.as_ref().ok_or(Error::NoAdmin)?;
        let mut url = self.inner.settings.url.clone();
        url.path_segments_mut()
            .map_err(|()| Error::Unsendable("the URL cannot have a path".to_owned()))?
            .pop_if_empty()
            .extend(["_synapse", "admin"].iter().chain(path));
        let mut token = HeaderValue::try_from(format!("Bearer {}", admin_token.expose_secret())).map_err(|_| {
            Error::NotAdmin("it contains characters not allowed in a header, such as a line break".to_owned())
        })?;
        token.set_sensitive(true);
        let mut request = reqwest::Request::new(method, url);
        request.headers_mut().insert(header::AUTHORIZATION, token);
        if let Some(body) = body {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.to_string().into());
        }
        let response = self.exchange(request, RESPONSE_BYTES).await?;
        self.expect_no_refusal(&response, user_id, Acting::With(admin_token)).map_err(|error| match error {
            Error::WrongToken(message) | Error::NotAllowed { message, .. } => Error::NotAdmin(message),
            Error::Refused { status: 404, .. } => Error::NoSuchUser(user_id.to_owned()),
            error => error,
        })?;
        serde_json::from_slice(&response.1).map_err(|_| unexpected())
    }

    /// Whether the homeserver responds. This bypasses the open circuit breaker. A success closes the breakers of all
    /// purposes, and a failed connection counts for all. A slow response counts only for this purpose, because an
    /// overloaded homeserver may still serve the others.
    pub async fn is_available(&self) -> bool {
        let request = get_supported_versions::Request::new();
        let Ok(request) =
            request.try_into_http_request::<Vec<u8>>(self.inner.settings.url.as_str(), SendAccessToken::None, ())
        else {
            return false;
        };
        let Ok(request) = reqwest::Request::try_from(request) else { return false };
        let response = self.attempt(request, RESPONSE_BYTES, Failures::AreAllAlike).await;
        match &response {
            Err(Error::Unreachable(_)) => self.breakers().iter().for_each(|breaker| breaker.record(false)),
            Err(error) if error.means_server_unavailable() => self.breaker().record(false),
            // This call needs no database, so it says nothing about calls that are waiting.
            _ => self.breakers().iter().for_each(Breaker::close),
        }
        // A page from a proxy does not count as a response from the homeserver.
        let Ok((parts, body)) = response else { return false };
        parts.status.is_success()
            && serde_json::from_slice::<Value>(&body).is_ok_and(|body| body["versions"].is_array())
    }
}

fn unexpected() -> Error {
    Error::Unreadable { status: 200, reason: "it lacks the requested information".to_owned() }
}
