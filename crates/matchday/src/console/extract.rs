//! Arguments of handlers. The operator's authority is one of them, and so is that a form is ours: a handler cannot forget to
//! check either.

use std::{collections::BTreeMap, convert::Infallible, marker::PhantomData, ops::Deref, str::FromStr, time::Duration};

use axum::{
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};
use platform::{database, telemetry::CURRENT_REQUEST};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    identity::{Refusal, Verified},
    pages,
    rules::{self, Role},
    state::ConsoleState,
};
use crate::{
    fixtures::service::{CorrectError, ImportError},
    operators::Operator,
    safety::service::SafetyError,
    webhooks::service::WebhookError,
};

/// How long a request waits for one of the places for pages.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest form.
const FORM_BYTES: usize = 16 * 1024;

/// Roles as types, for arguments of handlers.
pub(super) mod authority {
    use super::Role;

    /// A least role.
    pub(in crate::console) trait Authority: Send {
        const LEAST: Role;
    }

    macro_rules! authorities {
        ($($name:ident),*) => {$(
            pub(in crate::console) enum $name {}
            impl Authority for $name {
                const LEAST: Role = Role::$name;
            }
        )*};
    }
    authorities!(Viewer, Moderator, Operator);
}
use authority::Authority;

/// The verified operator behind a request. Only [`Acting`] and [`Posted`] make one.
pub(super) struct Identity {
    name: String,
    role: Role,
    mark: String,
    /// Given back when the response is written.
    place: OwnedSemaphorePermit,
}

impl Identity {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Whether pages show what needs this role.
    pub(super) fn may(&self, role: Role) -> bool {
        self.role >= role
    }

    /// The mark of the operator's forms.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    async fn admit(parts: &Parts, state: &ConsoleState, least: Role) -> Result<Self, PageError> {
        let now = state.clock.now();
        let Verified { name, role } = state.console.verifier.verify(&parts.headers, now).await?;
        if role < least {
            return Err(PageError::Forbidden(role, least));
        }
        let place = tokio::time::timeout(PATIENCE, state.console.places.clone().acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or(PageError::Busy)?;
        let mark = state.console.key.mark(&name, now);
        Ok(Self { name, role, mark, place })
    }
}

/// A request of an operator who has at least the role `A`.
pub(super) struct Acting<A>(Identity, PhantomData<A>);

impl<A> Deref for Acting<A> {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.0
    }
}

/// A form that an operator sent who has at least the role `A`.
pub(super) struct Posted<A> {
    name: String,
    fields: Fields,
    /// Given back when the work is done.
    _place: OwnedSemaphorePermit,
    authority: PhantomData<A>,
}

/// What is in a query.
pub(super) struct Asked(pub(super) Fields);

/// The id in the path.
pub(super) struct Named<T>(pub(super) T);

/// Names and values; of those that are given twice, the last.
#[derive(Default)]
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    fn read(text: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(text).into_owned().collect())
    }

    /// What was filled in; nothing where only spaces were.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Whether there was such a field at all, filled in or not.
    pub(super) fn was_given(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The same, as something else; nothing where it is none.
    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }
}

impl<A> Posted<A> {
    /// What was filled in.
    pub(super) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The operator, with the reason that the form has.
    pub(super) fn operator(&self) -> Result<Operator, PageError> {
        let reason = self.fields.get("reason").and_then(rules::reason);
        let reason =
            reason.ok_or_else(|| PageError::Invalid("Say why, on one line of at most 500 characters.".into()))?;
        Ok(Operator::new(&self.name, reason))
    }
}

impl<A: Authority> FromRequestParts<ConsoleState> for Acting<A> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &ConsoleState) -> Result<Self, PageError> {
        Ok(Self(Identity::admit(parts, state, A::LEAST).await?, PhantomData))
    }
}

impl<A: Authority> FromRequest<ConsoleState> for Posted<A> {
    type Rejection = PageError;

    async fn from_request(request: Request, state: &ConsoleState) -> Result<Self, PageError> {
        let (parts, body) = request.into_parts();
        let Identity { name, place, .. } = Identity::admit(&parts, state, A::LEAST).await?;
        // Browsers say whose page a form was on. The mark alone would do; so would this.
        let site = parts.headers.get("sec-fetch-site");
        if site.is_some_and(|site| site != "same-origin") {
            return Err(PageError::Strange);
        }
        let bytes = axum::body::to_bytes(body, FORM_BYTES).await;
        let bytes = bytes.map_err(|_| PageError::Invalid("The form is too large or broke off.".into()))?;
        let fields = Fields::read(&bytes);
        if !state.console.key.knows(fields.get("mark").unwrap_or_default(), &name, state.clock.now()) {
            return Err(PageError::Strange);
        }
        Ok(Self { name, fields, _place: place, authority: PhantomData })
    }
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(Fields::read(parts.uri.query().unwrap_or_default().as_bytes())))
    }
}

impl<T: FromStr + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PageError> {
        let segments = RawPathParams::from_request_parts(parts, state).await;
        let parsed = segments.ok().and_then(|segments| segments.iter().next().and_then(|(_, text)| text.parse().ok()));
        parsed.map(Self).ok_or(PageError::NotFound("page"))
    }
}

/// A page that could not be shown, or something that was not done.
#[derive(Debug)]
pub(super) enum PageError {
    /// The request does not prove who the operator is.
    Unproven,
    /// The operator, by this name, has no role.
    NoRole(String),
    /// The operator's role is not enough: theirs, and the one that is needed.
    Forbidden(Role, Role),
    /// Tokens cannot be verified, because the identity provider's keys cannot be read.
    KeysUnavailable,
    /// The path exists, but not for this method.
    WrongMethod,
    /// A form that is not ours, or an old one.
    Strange,
    /// There is no such thing.
    NotFound(&'static str),
    /// Something was filled in wrongly.
    Invalid(String),
    /// It is not so any more, or was so already.
    Conflict(String),
    /// Others are looking.
    Busy,
    /// A part does not answer.
    Away(&'static str, String),
    /// Our fault.
    Internal(anyhow::Error),
}

impl From<Refusal> for PageError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unproven(reason) => {
                // Only the log has the reason: on the page it would help an attacker who tries tokens and secrets.
                tracing::info!(reason, "console request refused");
                Self::Unproven
            }
            Refusal::NoRole(operator) => {
                tracing::info!(operator, reason = "no role", "console request refused");
                Self::NoRole(operator)
            }
            Refusal::KeysUnavailable => Self::KeysUnavailable,
        }
    }
}

impl From<sqlx::Error> for PageError {
    fn from(error: sqlx::Error) -> Self {
        if database::is_passing(&error) {
            Self::Away("The database", error.to_string())
        } else {
            Self::Internal(error.into())
        }
    }
}

impl From<SafetyError> for PageError {
    fn from(error: SafetyError) -> Self {
        match error {
            SafetyError::NoSuchUser => Self::NotFound("user"),
            SafetyError::InvalidLength => Self::Invalid("A ban or mute lasts from one minute to ten years.".into()),
            SafetyError::AlreadySo => Self::Conflict("It is so already: somebody else was faster.".into()),
            SafetyError::Database(error) => error.into(),
            other => Self::Internal(other.into()),
        }
    }
}

impl From<CorrectError> for PageError {
    fn from(error: CorrectError) -> Self {
        match error {
            CorrectError::NoSuchMatch => Self::NotFound("match"),
            CorrectError::Changed => {
                Self::Conflict("The match changed since you looked at it. Nothing was done; look again.".into())
            }
            CorrectError::Same => Self::Conflict("The match is so already. Nothing was done.".into()),
            CorrectError::Database(error) | CorrectError::Import(ImportError::Database(error)) => error.into(),
            CorrectError::Import(error) => Self::Internal(error.into()),
        }
    }
}

impl From<WebhookError> for PageError {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::NoSuchEndpoint(_) => Self::NotFound("endpoint"),
            WebhookError::NoSuchLetter(_) => Self::Conflict("This letter is not there any more.".into()),
            WebhookError::Database(error) => error.into(),
            WebhookError::Transport(error) => Self::Away("NATS", error.to_string()),
            other => Self::Internal(other.into()),
        }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let request = CURRENT_REQUEST.try_with(|current| current.id.as_str().to_owned()).unwrap_or_default();
        let (status, title, text) = match self {
            Self::Unproven => (StatusCode::FORBIDDEN, "Sign in first", pages::unproven(&request)),
            Self::NoRole(name) => (StatusCode::FORBIDDEN, "No access", pages::no_role(&name)),
            Self::Forbidden(role, least) => (
                StatusCode::FORBIDDEN,
                "Not allowed",
                pages::words(&format!(
                    "This needs the role {}. You are signed in with the role {}. Nothing was changed.",
                    least.name(),
                    role.name()
                )),
            ),
            Self::KeysUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Not available",
                pages::words(
                    "The console cannot read the signing keys of the identity provider, so it cannot verify who you are. \
                     Try again in a minute; the log has the cause.",
                ),
            ),
            Self::WrongMethod => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Not possible here",
                pages::words("This page does not take this kind of request. Go back and use its form."),
            ),
            Self::Strange => (
                StatusCode::FORBIDDEN,
                "Nothing was done",
                pages::words(
                    "This form is too old, was made for somebody else, or came from another site. Go back, load the page again and send it once more.",
                ),
            ),
            Self::NotFound(what) => (StatusCode::NOT_FOUND, "Not found", pages::not_found(what)),
            Self::Invalid(text) => (StatusCode::UNPROCESSABLE_ENTITY, "Nothing was done", pages::words(&text)),
            Self::Conflict(text) => (StatusCode::CONFLICT, "Nothing was done", pages::words(&text)),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Busy",
                pages::words(
                    "Others are looking at the console, and it must not take more of the database. Try again shortly.",
                ),
            ),
            Self::Away(part, error) => {
                tracing::warn!(error, "a page of the console was not shown");
                let text = format!(
                    "{part} does not answer, or not in time. Try again shortly; /readyz says which parts are up."
                );
                (StatusCode::SERVICE_UNAVAILABLE, "Not available", pages::words(&text))
            }
            Self::Internal(error) => {
                tracing::error!(error = %format_args!("{error:#}"), "a page of the console failed");
                let text = format!("Something went wrong on our side. The log has more under the request {request}.");
                (StatusCode::INTERNAL_SERVER_ERROR, "Failed", pages::words(&text))
            }
        };
        pages::answer(status, pages::bare(title, &text))
    }
}
