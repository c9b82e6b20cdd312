//! Sends messages through providers and records the result.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use breaker::Breaker;
use platform::{Core, Environment, clock::Clock, database};
use sqlx::PgPool;
use texts::Catalogue;
use time::OffsetDateTime;
use url::Url;
use web::paging::Paging;

pub use super::store::{LogEntry, LogFilter};
use super::{
    provider::{CallbackError, Delivery, Outgoing, Provider, ReportRequest, SendError, StatusReport},
    registry::{self, Registration, Setup},
    settings::Settings,
    store::{self, Entry},
    templates::{
        AppHash, AppName, Language, LastLine, Purpose, WebDomain, render, render_keys_notice, render_move_notice,
    },
};
use crate::identity::{
    codes::{Code, CodeId},
    phone::Phone,
};

/// Sends text messages and keeps their log.
#[derive(Clone)]
pub struct Sms {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    clock: Arc<dyn Clock>,
    providers: Vec<Carrier>,
    texts: Texts,
    /// Whether the log may contain codes in plain text.
    keeps_codes: bool,
    log_for: Duration,
}

/// A provider with its circuit breaker.
struct Carrier {
    provider: Box<dyn Provider>,
    breaker: Breaker,
}

struct Draft<'a> {
    /// Zero for a message without a code.
    code_id: CodeId,
    code: Option<&'a str>,
    text: &'a str,
    /// Text of a message without a code, for the log.
    notice: Option<&'a str>,
    created_at: OffsetDateTime,
    expires_at: OffsetDateTime,
}

/// Configured parts of every message.
struct Texts {
    catalogue: Arc<Catalogue>,
    app_name: AppName,
    app_hash: Option<AppHash>,
    web_domain: Option<WebDomain>,
}

#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// The number cannot receive texts.
    #[error("the number cannot receive text messages")]
    Number,
    /// No provider accepted the message.
    #[error("no SMS provider accepted the message")]
    NotSent,
    /// No provider confirmed the message, but one may have sent it.
    #[error("no SMS provider confirmed the message, but one may have sent it")]
    MaybeSent,
}

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No configured provider with this name sends reports.
    #[error("no configured SMS provider with this name sends reports")]
    NotExpected,
    /// The report could not be verified.
    #[error(transparent)]
    Unverified(#[from] CallbackError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Sms {
    /// Sets up the configured providers.
    pub fn new(
        core: &Core,
        sms: &Settings,
        public_url: Option<&Url>,
        catalogue: Arc<Catalogue>,
    ) -> anyhow::Result<Self> {
        let Core { db, clock, .. } = core.clone();
        let carrier = |registered: &&'static Registration| -> anyhow::Result<Carrier> {
            let report_url = public_url.and_then(|base| base.join(&registered.report_path()).ok());
            let account = sms.accounts.of(registered).context("the provider has no settings")?;
            let provider = account.open(Setup { timeout: sms.timeout, report_url })?;
            // Skip a failing provider for a while; otherwise every message would wait for it before the next one is
            // tried.
            Ok(Carrier { provider, breaker: Breaker::new(3, Duration::from_secs(15)) })
        };
        let providers = sms.providers_in_order().iter().map(carrier);
        let inner = Inner {
            providers: providers.collect::<anyhow::Result<_>>().context("sms.providers")?,
            texts: Texts {
                catalogue,
                app_name: AppName::parse(&sms.app_name).context("sms.app_name")?,
                app_hash: sms.app_hash.as_deref().map(AppHash::parse).transpose().context("sms.app_hash")?,
                web_domain: sms.web_domain.as_deref().map(WebDomain::parse).transpose().context("sms.web_domain")?,
            },
            keeps_codes: core.env != Environment::Production,
            log_for: sms.log_for,
            db,
            clock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether the message log may be read through the API.
    pub fn log_is_open(&self) -> bool {
        self.inner.keeps_codes
    }

    /// Sends a code through the first provider that accepts it. All providers send the same code: an attempt that timed
    /// out may still arrive, and every code that arrives must be valid.
    #[expect(clippy::too_many_arguments, reason = "each is a property of the code")]
    pub async fn send_code(
        &self,
        id: CodeId,
        phone: &Phone,
        code: &Code,
        purpose: Purpose,
        language: Language,
        made_at: OffsetDateTime,
        valid_for: time::Duration,
    ) -> Result<(), DispatchError> {
        let text = self.inner.texts.render(purpose, language, code, valid_for);
        let draft = Draft {
            code_id: id,
            code: Some(code.expose()),
            text: &text,
            notice: None,
            created_at: made_at,
            expires_at: made_at + valid_for,
        };
        self.dispatch(phone, &draft).await
    }

    /// Notifies the old phone of an account that has moved. `undo` is the code or link that undoes the move.
    pub async fn send_move_notice(
        &self,
        phone: &Phone,
        language: Language,
        undo: &str,
        hours: u64,
        expires_at: OffsetDateTime,
    ) -> Result<(), DispatchError> {
        let text = render_move_notice(language, &self.inner.texts.app_name, undo, hours);
        let created_at = self.inner.clock.now();
        let (code_id, notice) = (CodeId(0), Some(text.as_str()));
        let draft = Draft { code_id, code: None, text: &text, notice, created_at, expires_at };
        self.dispatch(phone, &draft).await
    }

    /// Notifies a user that the keys of their chat account were replaced.
    pub async fn send_keys_notice(&self, phone: &Phone, language: Language) -> Result<(), DispatchError> {
        let text = render_keys_notice(language, &self.inner.texts.app_name);
        let now = self.inner.clock.now();
        let (code_id, notice) = (CodeId(0), Some(text.as_str()));
        let draft = Draft { code_id, code: None, text: &text, notice, created_at: now, expires_at: now };
        self.dispatch(phone, &draft).await
    }

    /// Sends a message through the first provider that accepts it.
    async fn dispatch(&self, phone: &Phone, draft: &Draft<'_>) -> Result<(), DispatchError> {
        let inner = &*self.inner;
        let reference = draft.code_id.0.to_string();
        let message = Outgoing { to: phone.as_str(), text: draft.text, reference: &reference };
        let mut perhaps_sent = false;
        for Carrier { provider, breaker } in &inner.providers {
            let name = provider.name();
            if breaker.admit().is_err() {
                count(name, "resting");
                continue;
            }
            let outcome = provider.send(&message).await;
            let is_provider_failure = outcome.as_ref().is_err_and(|error| !concerns_the_number(error));
            breaker.record(!is_provider_failure);
            count(name, label(&outcome));
            let error = outcome.as_ref().err().map(ToString::to_string);
            let entry = Entry {
                code_id: draft.code_id,
                phone,
                code: draft.code.filter(|_| inner.keeps_codes),
                notice: draft.notice.map(|text| if inner.keeps_codes { text } else { "" }),
                provider: name,
                message_id: outcome.as_ref().ok().map(|accepted| accepted.message_id.as_str()),
                error: error.as_deref(),
                created_at: draft.created_at,
                expires_at: draft.expires_at,
            };
            // Continue without the log entry, because the provider may already have sent the message.
            if let Err(error) = store::insert(&inner.db, entry).await {
                tracing::error!(%error, provider = name, "SMS log entry was not written");
            }
            match outcome {
                Ok(_) => return Ok(()),
                Err(error) => {
                    tracing::warn!(provider = name, %phone, %error, "SMS provider did not accept the message");
                    match error {
                        // If an earlier provider may have sent the message, its code must stay valid, so the result is
                        // `MaybeSent`.
                        SendError::Number { .. } if !perhaps_sent => return Err(DispatchError::Number),
                        SendError::Number { .. } => break,
                        SendError::TimedOut | SendError::Unreadable { .. } => perhaps_sent = true,
                        _ => {}
                    }
                }
            }
        }
        Err(if perhaps_sent { DispatchError::MaybeSent } else { DispatchError::NotSent })
    }

    /// A page of the log, newest first, and the number of entries.
    pub async fn log(&self, filter: &LogFilter, paging: Paging) -> sqlx::Result<(Vec<LogEntry>, i64)> {
        let entries = store::list(&self.inner.db, filter, paging).await?;
        Ok((entries, store::count(&self.inner.db, filter).await?))
    }

    /// Whether a provider with this name has a report path, even if the provider is not configured.
    pub fn has_report_path(&self, provider: &str) -> bool {
        registry::find(provider).map_or_else(|| self.carrier(provider).is_some(), |known| known.reaches_phones)
    }

    fn carrier(&self, provider: &str) -> Option<&Carrier> {
        self.inner.providers.iter().find(|carrier| carrier.provider.name() == provider)
    }

    /// Records a delivery report if the provider signed it.
    pub async fn take_report(&self, provider: &str, request: &ReportRequest<'_>) -> Result<(), ReportError> {
        let Carrier { provider, .. } = self.carrier(provider).ok_or(ReportError::NotExpected)?;
        let report = provider.verify_report(request, self.inner.clock.now())?;
        self.note(provider.name(), report).await
    }

    async fn note(&self, provider: &'static str, report: StatusReport) -> Result<(), ReportError> {
        let code = report.reference.as_deref().and_then(|reference| reference.parse().ok()).map(CodeId);
        let (db, now) = (&self.inner.db, self.inner.clock.now());
        let label = match (&report.delivery, code) {
            (Delivery::Underway, _) => "underway",
            // Not sent by this service, or sent before references existed.
            (_, None) => "unknown",
            (Delivery::Delivered, Some(code)) => {
                store::note_delivery(db, provider, code, &report.message_id, now).await?;
                "delivered"
            }
            (Delivery::Failed { code: reason }, Some(code)) => {
                let error = format!("not delivered ({reason})");
                store::note_failure(db, provider, code, &report.message_id, &error).await?;
                "failed"
            }
        };
        let labels = [("provider", provider), ("delivery", label)];
        metrics::counter!("matchday_sms_reports_total", &labels).increment(1);
        Ok(())
    }

    /// Deletes old log entries. Returns their number.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let before = self.inner.clock.now() - self.inner.log_for;
        database::sweep(|most| store::sweep(&self.inner.db, before, most)).await
    }
}

impl Texts {
    fn render(&self, purpose: Purpose, language: Language, code: &Code, valid_for: time::Duration) -> String {
        let last_line = match (&self.app_hash, &self.web_domain) {
            (Some(hash), _) => LastLine::App(hash),
            (None, Some(domain)) => LastLine::Web(domain),
            (None, None) => LastLine::None,
        };
        let minutes = valid_for.whole_minutes().unsigned_abs();
        render(&self.catalogue, purpose, language, &self.app_name, code.expose(), minutes, last_line)
    }
}

/// Whether an error concerns the number and not the provider. Users with unsupported numbers must not be able to open a
/// provider's circuit breaker.
fn concerns_the_number(error: &SendError) -> bool {
    matches!(error, SendError::Number { .. } | SendError::NotServed { .. })
}

fn label<T>(outcome: &Result<T, SendError>) -> &'static str {
    match outcome {
        Ok(_) => "taken",
        Err(SendError::Number { .. }) => "number",
        Err(SendError::NotServed { .. }) => "not_served",
        Err(SendError::Throttled { .. }) => "throttled",
        Err(SendError::Unavailable { .. }) => "unavailable",
        Err(SendError::TimedOut) => "timed_out",
        Err(SendError::Misconfigured { .. }) => "misconfigured",
        Err(SendError::Unreadable { .. }) => "unreadable",
    }
}

fn count(provider: &'static str, outcome: &'static str) {
    metrics::counter!("matchday_sms_messages_total", &[("provider", provider), ("outcome", outcome)]).increment(1);
}
