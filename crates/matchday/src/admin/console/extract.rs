//! Extractors of the console. They check the operator's role and the CSRF token of forms, so a handler cannot forget
//! either check.

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
    catalogue::fixtures::service::{CorrectError, ImportError},
    chat::{
        filters::held::HeldError, moderation::service::ModerationError, removals::service::RemovalError,
        reports::service::ReportError, rooms::service::RoomError,
    },
    delivery::webhooks::service::WebhookError,
    game::questions::decisions::DecisionError,
    identity::{avatars::service::AvatarError, operators::Operator, server_keys::service::KeyError},
};

/// Maximum time a request waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of a form.
const FORM_BYTES: usize = 16 * 1024;

/// Roles as types, for the signatures of handlers.
pub(super) mod authority {
    use super::Role;

    /// Minimum role of a handler.
    pub(in crate::admin::console) trait Authority: Send {
        const LEAST: Role;
    }

    macro_rules! authorities {
        ($($name:ident),*) => {$(
            pub(in crate::admin::console) enum $name {}
            impl Authority for $name {
                const LEAST: Role = Role::$name;
            }
        )*};
    }
    authorities!(Viewer, Moderator, Operator);
}
use authority::Authority;

/// The verified operator of a request. Only [`Acting`] and [`Posted`] create one.
pub(super) struct Identity {
    name: String,
    role: Role,
    mark: String,
    /// Released after the response is rendered.
    permit: OwnedSemaphorePermit,
}

impl Identity {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Whether the operator has at least this role.
    pub(super) fn may(&self, role: Role) -> bool {
        self.role >= role
    }

    /// The CSRF token for the operator's forms.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    async fn admit(parts: &Parts, state: &ConsoleState, least: Role) -> Result<Self, PageError> {
        let now = state.clock.now();
        let Verified { name, role } = state.console.verifier.verify(&parts.headers, now).await?;
        if role < least {
            return Err(PageError::Forbidden(role, least));
        }
        let permit = tokio::time::timeout(PERMIT_TIMEOUT, state.console.permits.clone().acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or(PageError::Busy)?;
        let mark = state.console.key.mark(&name, now);
        Ok(Self { name, role, mark, permit })
    }
}

/// A request of an operator with at least the role `A`.
pub(super) struct Acting<A>(Identity, PhantomData<A>);

impl<A> Deref for Acting<A> {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.0
    }
}

/// A form sent by an operator with at least the role `A`.
pub(super) struct Posted<A> {
    name: String,
    fields: Fields,
    /// Released after the action.
    _permit: OwnedSemaphorePermit,
    authority: PhantomData<A>,
}

/// Fields of the query string.
pub(super) struct Query(pub(super) Fields);

/// The id in the path.
pub(super) struct PathId<T>(pub(super) T);

/// Form or query fields. If a name occurs twice, the last value counts.
#[derive(Default)]
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    fn read(text: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(text).into_owned().collect())
    }

    /// Returns the trimmed value, or `None` if it is absent or blank.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Whether the field is present, even if it is blank.
    pub(super) fn is_present(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the parsed value, or `None` if it is absent or invalid.
    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }
}

impl<A> Posted<A> {
    pub(super) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Returns the operator, for actions that need no reason.
    pub(super) fn operator_without_reason(&self) -> Operator {
        Operator::new(&self.name, "")
    }

    /// Returns the operator with the reason from the form.
    pub(super) fn operator(&self) -> Result<Operator, PageError> {
        let reason = self.fields.get("reason").and_then(rules::reason);
        let reason =
            reason.ok_or_else(|| PageError::Invalid("Enter a reason on one line of at most 500 characters.".into()))?;
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
        let Identity { name, permit, .. } = Identity::admit(&parts, state, A::LEAST).await?;
        // Browsers state the origin of a form in this header. Either this check or the CSRF token alone would be
        // sufficient.
        let site = parts.headers.get("sec-fetch-site");
        if site.is_some_and(|site| site != "same-origin") {
            return Err(PageError::InvalidForm);
        }
        let bytes = axum::body::to_bytes(body, FORM_BYTES).await;
        let bytes = bytes.map_err(|_| PageError::Invalid("The form is too large or incomplete.".into()))?;
        let fields = Fields::read(&bytes);
        if !state.console.key.accepts(fields.get("mark").unwrap_or_default(), &name, state.clock.now()) {
            return Err(PageError::InvalidForm);
        }
        Ok(Self { name, fields, _permit: permit, authority: PhantomData })
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(Fields::read(parts.uri.query().unwrap_or_default().as_bytes())))
    }
}

impl<T: FromStr + Send, S: Send + Sync> FromRequestParts<S> for PathId<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PageError> {
        let segments = RawPathParams::from_request_parts(parts, state).await;
        let parsed = segments.ok().and_then(|segments| segments.iter().next().and_then(|(_, text)| text.parse().ok()));
        parsed.map(Self).ok_or(PageError::NotFound("page"))
    }
}

/// Reason why a page was not shown or an action was refused.
#[derive(Debug)]
pub(super) enum PageError {
    /// The request contains no valid proof of the operator's identity.
    Unproven,
    /// The operator with this name has no role.
    NoRole(String),
    /// The operator's role, and the higher role that is required.
    Forbidden(Role, Role),
    /// Tokens cannot be verified, because the identity provider's keys cannot be read.
    KeysUnavailable,
    /// The path exists, but not for this method.
    WrongMethod,
    /// The form has no valid CSRF token, or comes from another site.
    InvalidForm,
    NotFound(&'static str),
    /// The form contains an invalid value.
    Invalid(String),
    /// The state changed in the meantime, or is already as requested.
    Conflict(String),
    /// Too many pages are being rendered.
    Busy,
    /// A dependency is unavailable.
    Unavailable(&'static str, String),
    Internal(anyhow::Error),
}

impl From<Refusal> for PageError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unproven(reason) => {
                // Only the log contains the reason. On the page it would help an attacker who tries tokens and secrets.
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
        if database::is_transient(&error) {
            Self::Unavailable("The database", error.to_string())
        } else {
            Self::Internal(error.into())
        }
    }
}

impl From<ModerationError> for PageError {
    fn from(error: ModerationError) -> Self {
        match error {
            ModerationError::NoSuchUser => Self::NotFound("user"),
            ModerationError::InvalidLength => {
                Self::Invalid("A ban or mute must last from one minute to ten years.".into())
            }
            ModerationError::Unchanged => Self::Conflict("The user's status is already as requested.".into()),
            ModerationError::Database(error) => error.into(),
            other => Self::Internal(other.into()),
        }
    }
}

impl From<AvatarError> for PageError {
    fn from(error: AvatarError) -> Self {
        match error {
            AvatarError::NoSuchAccount => Self::NotFound("user"),
            AvatarError::NoAvatar => Self::Conflict("The user has no avatar.".into()),
            AvatarError::Storage(error) => Self::Unavailable("The object store", error.to_string()),
            AvatarError::Database(error) => error.into(),
            other => Self::Internal(other.into()),
        }
    }
}

impl From<KeyError> for PageError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::NoSuchKey(_) => Self::NotFound("key"),
            KeyError::Revoked(_) => Self::Conflict("The key is revoked. Create another one.".into()),
            KeyError::NoScope => Self::Invalid("Choose at least one scope.".into()),
            KeyError::GraceTooLong => Self::Invalid("The previous text can stay valid for at most 7 days.".into()),
            KeyError::Database(error) => error.into(),
        }
    }
}

impl From<ReportError> for PageError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::NoSuchReport => Self::NotFound("report"),
            ReportError::Closed => Self::Conflict("The report is already closed.".into()),
            ReportError::Claimed(claim) => {
                Self::Conflict(format!("{} handles this report. Take it over on its page first.", claim.by))
            }
            ReportError::NotClaimed => {
                Self::Conflict("You have not claimed this report, or your claim expired.".into())
            }
            ReportError::ChatUnavailable => Self::Unavailable("The homeserver", error.to_string()),
            ReportError::Database(error) => error.into(),
            ReportError::NoSuchMessage => Self::NotFound("message"),
        }
    }
}

impl From<RemovalError> for PageError {
    fn from(error: RemovalError) -> Self {
        match error {
            RemovalError::NoSuchMessage => Self::NotFound("message"),
            RemovalError::NoSuchUser => Self::NotFound("user"),
            RemovalError::Room(RoomError::NotFound) => Self::NotFound("room"),
            RemovalError::Room(error @ (RoomError::Chat(_) | RoomError::Slow)) => {
                Self::Unavailable("The homeserver", error.to_string())
            }
            RemovalError::Database(error) => error.into(),
            other => Self::Internal(other.into()),
        }
    }
}

impl From<HeldError> for PageError {
    fn from(error: HeldError) -> Self {
        match error {
            HeldError::NotHeld(_) => Self::Conflict("The message was decided on already.".into()),
            HeldError::Homeserver(error) => Self::Unavailable("The homeserver", error.to_string()),
            HeldError::Database(error) => error.into(),
            other => Self::Conflict(format!("The message was not sent: {other}.")),
        }
    }
}

impl From<DecisionError> for PageError {
    fn from(error: DecisionError) -> Self {
        match error {
            DecisionError::NoSuchQuestion => Self::NotFound("question"),
            DecisionError::Changed => {
                Self::Conflict("The question has changed since it was shown. Reload its page and decide again.".into())
            }
            DecisionError::Same => Self::Conflict("The question already has this resolution.".into()),
            DecisionError::NotAllowed => Self::Invalid("Choose at least one right answer.".into()),
            DecisionError::Invalid(faults) => {
                let problems: Vec<String> = faults.iter().map(ToString::to_string).collect();
                Self::Invalid(format!("Invalid question: {}.", problems.join("; ")))
            }
            DecisionError::Database(error) => error.into(),
            error @ DecisionError::Other(_) => Self::Internal(error.into()),
        }
    }
}

impl From<CorrectError> for PageError {
    fn from(error: CorrectError) -> Self {
        match error {
            CorrectError::NoSuchMatch => Self::NotFound("match"),
            CorrectError::Changed => {
                Self::Conflict("The match changed after you opened the page. Reload the page and try again.".into())
            }
            CorrectError::Same => Self::Conflict("The match already has this status and result.".into()),
            CorrectError::NotKnockout => {
                Self::Invalid("No team advances, because this is not a knockout match.".into())
            }
            CorrectError::Database(error) | CorrectError::Import(ImportError::Database(error)) => error.into(),
            // The rules of the sport refuse the correction.
            CorrectError::Import(ImportError::Conflict(faults)) => {
                let problems: Vec<&str> = faults.iter().map(|fault| fault.problem.as_str()).collect();
                Self::Invalid(format!("Invalid correction: {}.", problems.join("; ")))
            }
            CorrectError::Import(error) => Self::Internal(error.into()),
        }
    }
}

impl From<WebhookError> for PageError {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::NoSuchEndpoint(_) => Self::NotFound("endpoint"),
            WebhookError::NoSuchLetter(_) => Self::Conflict("This dead letter no longer exists.".into()),
            WebhookError::Database(error) => error.into(),
            WebhookError::Transport(error) => Self::Unavailable("NATS", error.to_string()),
            other => Self::Internal(other.into()),
        }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let request = CURRENT_REQUEST.try_with(|current| current.id.as_str().to_owned()).unwrap_or_default();
        let (status, title, text) = match self {
            Self::Unproven => (StatusCode::FORBIDDEN, "Sign in required", pages::unproven(&request)),
            Self::NoRole(name) => (StatusCode::FORBIDDEN, "No access", pages::no_role(&name)),
            Self::Forbidden(role, least) => (
                StatusCode::FORBIDDEN,
                "Not allowed",
                pages::paragraph(&format!(
                    "This requires the role {}. Your role is {}. Nothing was changed.",
                    least.name(),
                    role.name()
                )),
            ),
            Self::KeysUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Not available",
                pages::paragraph(
                    "The console cannot read the signing keys of the identity provider, so it cannot verify your identity. \
                     Try again in a minute. The log contains the cause.",
                ),
            ),
            Self::WrongMethod => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Method not allowed",
                pages::paragraph("This page does not accept this kind of request. Go back and use its form."),
            ),
            Self::InvalidForm => (
                StatusCode::FORBIDDEN,
                "Form refused",
                pages::paragraph(
                    "This form has expired, belongs to another operator, or came from another site. Go back, reload the page and send it again.",
                ),
            ),
            Self::NotFound(what) => (StatusCode::NOT_FOUND, "Not found", pages::not_found(what)),
            Self::Invalid(text) => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", pages::paragraph(&text)),
            Self::Conflict(text) => (StatusCode::CONFLICT, "Nothing was changed", pages::paragraph(&text)),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Busy",
                pages::paragraph("Too many console pages are loading at the same time. Try again shortly."),
            ),
            Self::Unavailable(dependency, error) => {
                tracing::warn!(error, "console page could not be shown");
                let text = format!(
                    "{dependency} is unavailable or too slow. Try again shortly. /readyz shows the state of each dependency."
                );
                (StatusCode::SERVICE_UNAVAILABLE, "Not available", pages::paragraph(&text))
            }
            Self::Internal(error) => {
                tracing::error!(error = %format_args!("{error:#}"), "console page failed");
                let text = format!("An internal error occurred. The log contains the details under request {request}.");
                (StatusCode::INTERNAL_SERVER_ERROR, "Internal error", pages::paragraph(&text))
            }
        };
        pages::response(status, pages::message_page(title, &text))
    }
}
