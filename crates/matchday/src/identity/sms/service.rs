//! Handing messages to providers, and writing down what became of them.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use breaker::Breaker;
use platform::{Core, Environment, clock::Clock, database};
use sqlx::PgPool;
use time::OffsetDateTime;
use url::Url;
use web::paging::Paging;

pub use super::store::{LogEntry, LogFilter};
use super::{
    provider::{CallbackError, Delivery, Outgoing, Provider, ReportRequest, SendError, StatusReport},
    registry::{self, Registration, Setup},
    settings::Settings,
    store::{self, Entry},
    templates::{AppHash, AppName, Language, LastLine, WebDomain, render, render_move_notice},
};
use crate::identity::{
    codes::{Code, CodeId},
    phone::Phone,
};

/// Text messages.
#[derive(Clone)]
pub struct Sms {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    clock: Arc<dyn Clock>,
    providers: Vec<Carrier>,
    texts: Texts,
    /// Whether the log may hold codes as they are.
    keeps_codes: bool,
    log_for: Duration,
}

/// A provider, and whether it is doing well.
struct Carrier {
    provider: Box<dyn Provider>,
    breaker: Breaker,
}

/// A message that is about to be sent.
struct Draft<'a> {
    /// Zero for a message without a code.
    code_id: CodeId,
    code: Option<&'a str>,
    text: &'a str,
    /// The text of a message without a code, for the log.
    notice: Option<&'a str>,
    created_at: OffsetDateTime,
    expires_at: OffsetDateTime,
}

/// What stands in every message.
struct Texts {
    app_name: AppName,
    app_hash: Option<AppHash>,
    web_domain: Option<WebDomain>,
}

/// Why a message is not on its way.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// The number cannot be texted.
    #[error("the number cannot be texted")]
    Number,
    /// No provider took it.
    #[error("no provider took the message")]
    NotSent,
    /// No provider said that it took it, but one may have.
    #[error("no provider said that it took the message")]
    PerhapsSent,
}

/// Why a report was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No such provider is set up to report here.
    #[error("no such provider reports here")]
    NotExpected,
    /// It is not to be believed.
    #[error(transparent)]
    NotBelieved(#[from] CallbackError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Sms {
    /// Messages by the providers that the configuration names.
    pub fn new(core: &Core, sms: &Settings, public_url: Option<&Url>) -> anyhow::Result<Self> {
        let Core { db, clock, .. } = core.clone();
        let carrier = |registered: &&'static Registration| -> anyhow::Result<Carrier> {
            let report_url = public_url.and_then(|base| base.join(&registered.report_path()).ok());
            let account = sms.accounts.of(registered).context("a provider without settings")?;
            let provider = account.open(Setup { timeout: sms.timeout, report_url })?;
            // A provider that fails is left alone for a while, or everybody would wait for it before the next one.
            Ok(Carrier { provider, breaker: Breaker::new(3, Duration::from_secs(15)) })
        };
        let providers = sms.providers_in_order().iter().map(carrier);
        let inner = Inner {
            providers: providers.collect::<anyhow::Result<_>>().context("sms.providers")?,
            texts: Texts {
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

    /// Whether the log may be shown.
    pub fn log_is_open(&self) -> bool {
        self.inner.keeps_codes
    }

    /// Sends a code by the first provider that takes it. The next one sends the same code: a message that was given up
    /// may still arrive, and whichever arrives must be right.
    pub async fn send_code(
        &self,
        id: CodeId,
        phone: &Phone,
        code: &Code,
        language: Language,
        made_at: OffsetDateTime,
        valid_for: time::Duration,
    ) -> Result<(), DispatchError> {
        let text = self.inner.texts.render(language, code, valid_for);
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

    /// Tells a phone that an account has left it. `undo` is the code or link that undoes the move.
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

    /// Hands a message to the first provider that takes it.
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
            let its_fault = outcome.as_ref().is_err_and(|error| !speaks_of_the_number(error));
            breaker.record(!its_fault);
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
            // A message is on its way, whether it was written down or not.
            if let Err(error) = store::insert(&inner.db, entry).await {
                tracing::error!(%error, provider = name, "a message was not written to the log");
            }
            match outcome {
                Ok(_) => return Ok(()),
                Err(error) => {
                    tracing::warn!(provider = name, %phone, %error, "a code was not taken");
                    match error {
                        // Unless one before may have taken it all the same.
                        SendError::Number { .. } if !perhaps_sent => return Err(DispatchError::Number),
                        SendError::Number { .. } => break,
                        SendError::TimedOut | SendError::Unreadable { .. } => perhaps_sent = true,
                        _ => {}
                    }
                }
            }
        }
        Err(if perhaps_sent { DispatchError::PerhapsSent } else { DispatchError::NotSent })
    }

    /// A page of the log, newest first, and how long the log is.
    pub async fn log(&self, filter: &LogFilter, paging: Paging) -> sqlx::Result<(Vec<LogEntry>, i64)> {
        let entries = store::list(&self.inner.db, filter, paging).await?;
        Ok((entries, store::count(&self.inner.db, filter).await?))
    }

    /// Whether a provider of that name has a path to report to, whether or not it is in use.
    pub fn has_report_path(&self, provider: &str) -> bool {
        registry::find(provider).map_or_else(|| self.carrier(provider).is_some(), |known| known.reaches_phones)
    }

    fn carrier(&self, provider: &str) -> Option<&Carrier> {
        self.inner.providers.iter().find(|carrier| carrier.provider.name() == provider)
    }

    /// Records what a provider reports of a message, if the provider signed the report.
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
            // Not one of ours, or of a time before references.
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

    /// Deletes old entries of the log; returns how many.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let before = self.inner.clock.now() - self.inner.log_for;
        database::sweep(|most| store::sweep(&self.inner.db, before, most)).await
    }
}

impl Texts {
    fn render(&self, language: Language, code: &Code, valid_for: time::Duration) -> String {
        let last_line = match (&self.app_hash, &self.web_domain) {
            (Some(hash), _) => LastLine::App(hash),
            (None, Some(domain)) => LastLine::Web(domain),
            (None, None) => LastLine::None,
        };
        render(language, &self.app_name, code.expose(), valid_for.whole_minutes().unsigned_abs(), last_line)
    }
}

/// People with odd numbers must not be able to make a provider look broken.
fn speaks_of_the_number(error: &SendError) -> bool {
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
