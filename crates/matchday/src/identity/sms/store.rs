//! SQL for the log of text messages.

use sqlx::{PgConnection, PgExecutor};
use time::{Date, OffsetDateTime};
use web::paging::Paging;

use crate::identity::{codes::CodeId, phone::Phone};

/// Log entry for an attempt to send a message.
pub(super) struct Entry<'a> {
    pub(super) code_id: CodeId,
    pub(super) phone: &'a Phone,
    pub(super) code: Option<&'a str>,
    /// Text of a message without a code; empty in production.
    pub(super) notice: Option<&'a str>,
    pub(super) provider: &'static str,
    pub(super) message_id: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    pub(super) created_at: OffsetDateTime,
    pub(super) expires_at: OffsetDateTime,
}

#[derive(Clone, Debug)]
pub struct LogEntry {
    pub id: i64,
    pub phone: Phone,
    /// Not stored in production.
    pub code: Option<String>,
    /// Text of a message without a code; not stored in production.
    pub notice: Option<String>,
    /// Either `sent` or `failed`.
    pub status: String,
    pub provider: String,
    /// Reason for the failure.
    pub error: Option<String>,
    pub created_at: OffsetDateTime,
    /// Expiry of the code.
    pub expires_at: OffsetDateTime,
    /// Time at which the provider reported delivery.
    pub delivered_at: Option<OffsetDateTime>,
    /// Number of guesses at the code.
    pub attempts: i32,
}

/// Selects messages of the log.
#[derive(Clone, Debug)]
pub struct LogFilter {
    pub phone: Option<Phone>,
    /// Day of the log, in UTC.
    pub date: Option<Date>,
    /// Either `sent` or `failed`.
    pub status: Option<&'static str>,
    /// Selects messages without a code instead of messages with a code.
    pub notices: bool,
}

impl LogFilter {
    fn day(&self) -> (Option<OffsetDateTime>, Option<OffsetDateTime>) {
        let midnight = |day: Date| day.midnight().assume_utc();
        (self.date.map(midnight), self.date.and_then(Date::next_day).map(midnight))
    }
}

pub(super) async fn insert(executor: impl PgExecutor<'_>, entry: Entry<'_>) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into sms_log (code_id, phone, code, status, provider, message_id, error, created_at, expires_at, notice)
         values ($1, $2, $3, case when $6::text is null then 'sent' else 'failed' end, $4, $5, $6, $7, $8, $9)",
        entry.code_id.0,
        entry.phone.as_str(),
        entry.code,
        entry.provider,
        entry.message_id,
        entry.error,
        entry.created_at,
        entry.expires_at,
        entry.notice,
    )
    .execute(executor)
    .await?;
    Ok(())
}

pub(super) async fn list(
    executor: impl PgExecutor<'_>,
    filter: &LogFilter,
    paging: Paging,
) -> sqlx::Result<Vec<LogEntry>> {
    let (from, to) = filter.day();
    sqlx::query_as!(
        LogEntry,
        r#"select l.id, l.phone as "phone: Phone", l.code, l.notice, l.status, l.provider, l.error, l.created_at, l.expires_at,
                  l.delivered_at, coalesce(l.attempts, c.own_guesses + c.other_guesses, 0) as "attempts!"
           from sms_log l left join codes c on c.id = l.code_id
           where ($1::text is null or l.phone = $1)
             and ($2::timestamptz is null or l.created_at >= $2)
             and ($3::timestamptz is null or l.created_at < $3)
             and ($4::text is null or l.status = $4)
             and (l.notice is not null) = $7
           order by l.id desc
           limit $5 offset $6"#,
        filter.phone.as_ref().map(Phone::as_str),
        from,
        to,
        filter.status,
        paging.limit(),
        paging.offset(),
        filter.notices,
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn count(executor: impl PgExecutor<'_>, filter: &LogFilter) -> sqlx::Result<i64> {
    let (from, to) = filter.day();
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from sms_log
           where ($1::text is null or phone = $1)
             and ($2::timestamptz is null or created_at >= $2)
             and ($3::timestamptz is null or created_at < $3)
             and ($4::text is null or status = $4)
             and (notice is not null) = $5"#,
        filter.phone.as_ref().map(Phone::as_str),
        from,
        to,
        filter.status,
        filter.notices,
    )
    .fetch_one(executor)
    .await
}

/// Records a delivery, also of a message that was logged as failed.
pub(super) async fn note_delivery(
    executor: impl PgExecutor<'_>,
    provider: &str,
    code: CodeId,
    message_id: &str,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update sms_log set status = 'sent', error = null, message_id = $3, delivered_at = coalesce(delivered_at, $4)
         where code_id = $1 and code_id > 0 and provider = $2",
        code.0,
        provider,
        message_id,
        now,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Records a failed delivery. Reports can arrive out of order, so a delivered message stays delivered.
pub(super) async fn note_failure(
    executor: impl PgExecutor<'_>,
    provider: &str,
    code: CodeId,
    message_id: &str,
    error: &str,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update sms_log set status = 'failed', error = $4, message_id = $3
         where code_id = $1 and code_id > 0 and provider = $2 and delivered_at is null",
        code.0,
        provider,
        message_id,
        error,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Copies the number of guesses from codes that are about to be deleted, because the log outlives them.
pub(crate) async fn keep_attempts(connection: &mut PgConnection, codes: &[i64], attempts: &[i32]) -> sqlx::Result<()> {
    sqlx::query!(
        "update sms_log l set attempts = c.attempts
         from unnest($1::bigint[], $2::integer[]) as c (id, attempts) where l.code_id = c.id",
        codes,
        attempts,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn sweep(executor: impl PgExecutor<'_>, before: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from sms_log where id in (select id from sms_log where created_at < $1 order by created_at limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}
