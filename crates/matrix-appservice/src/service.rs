//! What concerns the bot, the homeserver as a whole, or a user outside of rooms.

use std::time::Duration;

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
    homeserver::{ANSWER_BYTES, Acting, Failures, WholeAnswer},
    rooms::raw,
};

/// How much of a homeserver's reason for a failed redaction is kept.
const REASON_LENGTH: usize = 300;

/// The state of a redaction that the homeserver runs in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// Scheduled, or under way.
    Running,
    /// Every message is redacted.
    Done,
    /// At least one message is not redacted, for this reason.
    Failed(String),
}

impl Homeserver {
    /// The id of the bot: the user that makes and keeps the rooms.
    pub fn bot(&self) -> Result<OwnedUserId, Error> {
        self.user_id(&self.inner.settings.bot)
    }

    /// Registers the bot if the homeserver does not know it yet. Synapse lets it act unregistered, but then it has no
    /// profile and is unknown to everything that asks for its users.
    pub async fn ensure_bot(&self) -> Result<(), Error> {
        self.register(&self.inner.settings.bot).await.map(|_| ())
    }

    /// Puts a user on another's list of those whose messages and invitations they do not want to see, or takes them
    /// off it; acting as the owner of the list. Nothing is sent when it is so already. The list is read and written
    /// back whole: a client that changes it at the same moment may undo this, or this undoes that.
    pub async fn set_ignored(&self, localpart: &str, ignored: &UserId, is_ignored: bool) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let kind = GlobalAccountDataEventType::IgnoredUserList;
        let request = get_global_account_data::v3::Request::new(user_id.clone(), kind.clone());
        let mut list = match self.call(request, &user_id, Acting::AsTheUser).await {
            Ok(answer) => answer.account_data.deserialize_as_unchecked::<Map<String, Value>>().map_err(|_| {
                Error::Unreadable { status: 200, reason: "the list of ignored users is not an object".to_owned() }
            })?,
            Err(Error::Refused { status: 404, .. }) => Map::new(),
            Err(error) => return Err(error),
        };
        // A client wrote it, and may have written anything.
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

    /// Asks the homeserver to call us now, and says how long that took. Synapse also tries again at once what it could
    /// not push before. The id and the token are those of one registration, which need not be the one that all other
    /// calls use. The transaction id comes along with the homeserver's call. If we take the call but do not answer it,
    /// Synapse waits for a minute, and the deadline ends this first.
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
        let answer = match self.attempt(request, ANSWER_BYTES, Failures::AreRead).await {
            Ok(answer) => self.pinged(&answer, &bot, acting),
            Err(error) => Err(error),
        };
        // Whose silence it was that outlasted the deadline, the homeserver's or ours, nobody knows.
        if !matches!(answer, Err(Error::TooSlow(_))) {
            self.inner.breaker.record(!answer.as_ref().is_err_and(Error::speaks_of_an_absent_server));
        }
        answer
    }

    /// What the answer to a ping means. Synapse says 502 and 504 for what is wrong on our side of the line.
    fn pinged(&self, answer: &WholeAnswer, bot: &UserId, acting: Acting<'_>) -> Result<Duration, Error> {
        let (parts, body) = answer;
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
        self.understand::<request_ping::v1::Request>(answer, bot, acting).map(|answer| answer.duration).map_err(
            // The token is good, but that of another registration, or of a user.
            |error| match error {
                Error::NotAllowed { message, .. } => Error::WrongToken(message),
                error => error,
            },
        )
    }

    /// Suspends a user, who then reads and leaves but neither writes nor joins, or ends that. Synapse 1.163 does not
    /// have the endpoint of the specification yet; this is its own, for server admins.
    pub async fn set_suspended(&self, localpart: &str, suspended: bool) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let path = ["v1", "suspend", user_id.as_str()];
        let said = self.administer(Method::PUT, &path, Some(&json!({"suspend": suspended})), &user_id).await?;
        if said[format!("user_{user_id}_suspended")] == Value::Bool(suspended) {
            return Ok(());
        }
        Err(unexpected())
    }

    /// Starts to redact everything that a user has sent in these rooms, and returns the id to ask [`Self::redaction`] with.
    /// Also works after [`Self::deactivate`], because the rooms are named: an empty list would mean the rooms that the user
    /// is in now. Messages that are redacted already are skipped.
    pub async fn redact_all(&self, localpart: &str, rooms: &[OwnedRoomId]) -> Result<String, Error> {
        let user_id = self.user_id(localpart)?;
        let path = ["v1", "user", user_id.as_str(), "redact"];
        let said = self.administer(Method::POST, &path, Some(&json!({"rooms": rooms})), &user_id).await?;
        said["redact_id"].as_str().map(str::to_owned).ok_or_else(unexpected)
    }

    /// The state of what [`Self::redact_all`] started.
    pub async fn redaction(&self, redaction: &str) -> Result<Redaction, Error> {
        let nobody = self.bot()?;
        let said = self.administer(Method::GET, &["v1", "user", "redact_status", redaction], None, &nobody).await?;
        // Synapse reports "complete" although some redactions failed, and lists those.
        let failed = said["failed_redactions"].as_object().map_or(0, Map::len);
        match said["status"].as_str() {
            Some("complete") if failed == 0 => Ok(Redaction::Done),
            Some("complete") => Ok(Redaction::Failed(format!("{failed} messages were not redacted"))),
            Some("failed") => {
                let reason = said["error"].as_str().unwrap_or("no reason given");
                Ok(Redaction::Failed(reason.chars().take(REASON_LENGTH).collect()))
            }
            Some(_) => Ok(Redaction::Running),
            None => Err(unexpected()),
        }
    }

    /// Deletes some of what a user has uploaded; returns how much is deleted now. At 0 there is nothing left.
    pub async fn delete_media(&self, localpart: &str) -> Result<u64, Error> {
        let user_id = self.user_id(localpart)?;
        let path = ["v1", "users", user_id.as_str(), "media"];
        let said = self.administer(Method::DELETE, &path, None, &user_id).await?;
        said["deleted_media"].as_array().map(|deleted| deleted.len() as u64).ok_or_else(unexpected)
    }

    /// Does what only server admins can, by Synapse's own interface, which is not of the specification.
    async fn administer(
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
            Error::NotAdmin("it has characters that no header can carry, such as a line break".to_owned())
        })?;
        token.set_sensitive(true);
        let mut request = reqwest::Request::new(method, url);
        request.headers_mut().insert(header::AUTHORIZATION, token);
        if let Some(body) = body {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.to_string().into());
        }
        let answer = self.exchange(request, ANSWER_BYTES).await?;
        self.expect_no_refusal(&answer, user_id, Acting::With(admin_token)).map_err(|error| match error {
            Error::WrongToken(message) | Error::NotAllowed { message, .. } => Error::NotAdmin(message),
            Error::Refused { status: 404, .. } => Error::NoSuchUser(user_id.to_owned()),
            error => error,
        })?;
        serde_json::from_slice(&answer.1).map_err(|_| unexpected())
    }

    /// Whether the homeserver answers at all. It is asked even while everybody else rests, and what comes of that
    /// counts for everybody: a good answer ends the rest.
    pub async fn is_there(&self) -> bool {
        let request = get_supported_versions::Request::new();
        let Ok(request) =
            request.try_into_http_request::<Vec<u8>>(self.inner.settings.url.as_str(), SendAccessToken::None, ())
        else {
            return false;
        };
        let Ok(request) = reqwest::Request::try_from(request) else { return false };
        let answer = self.attempt(request, ANSWER_BYTES, Failures::AreAllAlike).await;
        self.inner.breaker.record(!answer.as_ref().is_err_and(Error::speaks_of_an_absent_server));
        // A proxy's page is an answer too, but not the homeserver's.
        let Ok((parts, body)) = answer else { return false };
        parts.status.is_success()
            && serde_json::from_slice::<Value>(&body).is_ok_and(|body| body["versions"].is_array())
    }
}

fn unexpected() -> Error {
    Error::Unreadable { status: 200, reason: "it does not say what was asked".to_owned() }
}
