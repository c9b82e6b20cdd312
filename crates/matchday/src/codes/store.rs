//! The SQL of codes.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use super::rules::{OTHER_GUESSES, OWN_GUESSES, Stored};
use crate::phone::Phone;

/// A code that is about to be sent.
pub(super) struct New<'a> {
    pub(super) subject: &'a str,
    pub(super) phone: &'a Phone,
    pub(super) country: &'a str,
    pub(super) stored: Stored,
    pub(super) network: &'a str,
    pub(super) created_at: OffsetDateTime,
    pub(super) expires_at: OffsetDateTime,
}

/// Which code a guess is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeId(pub(crate) i64);

pub(super) async fn insert(executor: impl PgExecutor<'_>, code: New<'_>) -> sqlx::Result<CodeId> {
    sqlx::query_scalar!(
        "insert into codes (subject, phone, block, country, mac, nonce, key_version, network, created_at, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         returning id",
        code.subject,
        code.phone.as_str(),
        code.phone.block(),
        code.country,
        &code.stored.mac[..],
        &code.stored.nonce[..],
        code.stored.key_version,
        code.network,
        code.created_at,
        code.expires_at,
    )
    .fetch_one(executor)
    .await
    .map(CodeId)
}

/// Takes back a code that could not be sent; the one before it counts again. One that was used was sent after all.
pub(super) async fn delete(executor: impl PgExecutor<'_>, id: CodeId) -> sqlx::Result<()> {
    sqlx::query!("delete from codes where id = $1 and consumed_at is null", id.0).execute(executor).await?;
    Ok(())
}

/// The phone of the subject's code, if one is out.
pub(super) async fn pending(
    executor: impl PgExecutor<'_>,
    subject: &str,
    now: OffsetDateTime,
) -> sqlx::Result<Option<Phone>> {
    sqlx::query_scalar!(
        r#"select phone as "phone: Phone" from codes
           where id = (select max(id) from codes where subject = $1) and consumed_at is null and expires_at > $2"#,
        subject,
        now,
    )
    .fetch_optional(executor)
    .await
}

/// The wrong guesses in a row that stand against another one at the subject's code from this network, and when the
/// last of them was.
pub(super) async fn failures(
    executor: impl PgExecutor<'_>,
    subject: &str,
    network: &str,
) -> sqlx::Result<Option<(i32, OffsetDateTime)>> {
    let row = sqlx::query!(
        "select f.failures, f.last_failed_at
         from codes c join code_failures f on f.subject = c.subject and f.own = (c.network = $2)
         where c.id = (select max(id) from codes where subject = $1)",
        subject,
        network,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| (row.failures, row.last_failed_at)))
}

/// A guess that was counted and may be compared.
pub(super) struct Guess {
    pub(super) id: CodeId,
    pub(super) stored: Stored,
    pub(super) own: bool,
}

/// Counts a guess at the subject's code, before anybody looks whether it is right: however many guesses arrive at once,
/// no more than the allowed number get past this statement.
pub(super) async fn count_guess(
    executor: impl PgExecutor<'_>,
    subject: &str,
    network: &str,
    now: OffsetDateTime,
) -> sqlx::Result<Option<Guess>> {
    let row = sqlx::query!(
        r#"update codes
           set own_guesses = own_guesses + (network = $2)::int, other_guesses = other_guesses + (network <> $2)::int
           where id = (select max(id) from codes where subject = $1)
             and consumed_at is null and expires_at > $3
             and case when network = $2 then own_guesses < $4 else other_guesses < $5 end
           returning id, mac, nonce, key_version, network = $2 as "own!""#,
        subject,
        network,
        now,
        OWN_GUESSES,
        OTHER_GUESSES,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.and_then(|row| {
        let stored =
            Stored { mac: row.mac.try_into().ok()?, nonce: row.nonce.try_into().ok()?, key_version: row.key_version };
        Some(Guess { id: CodeId(row.id), stored, own: row.own })
    }))
}

/// Gives a guess back, after the right code could not be used for a reason that the person can mend.
pub(super) async fn give_back(executor: impl PgExecutor<'_>, id: CodeId, own: bool) -> sqlx::Result<()> {
    sqlx::query!(
        "update codes set own_guesses = own_guesses - $2::bool::int, other_guesses = other_guesses - (not $2)::int
         where id = $1 and consumed_at is null and case when $2 then own_guesses else other_guesses end > 0",
        id.0,
        own,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Uses a code up; returns whether this was the one use.
pub(super) async fn consume(connection: &mut PgConnection, id: CodeId, now: OffsetDateTime) -> sqlx::Result<bool> {
    let consumed = sqlx::query!("update codes set consumed_at = $2 where id = $1 and consumed_at is null", id.0, now)
        .execute(connection)
        .await?;
    Ok(consumed.rows_affected() == 1)
}

pub(super) async fn add_failure(
    executor: impl PgExecutor<'_>,
    subject: &str,
    own: bool,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into code_failures (subject, own, failures, last_failed_at) values ($1, $2, 1, $3)
         on conflict (subject, own) do update
         set failures = code_failures.failures + 1, last_failed_at = excluded.last_failed_at",
        subject,
        own,
        now,
    )
    .execute(executor)
    .await?;
    Ok(())
}

pub(super) async fn forget_failures(connection: &mut PgConnection, subject: &str) -> sqlx::Result<()> {
    sqlx::query!("delete from code_failures where subject = $1", subject).execute(connection).await?;
    Ok(())
}

/// Some old codes, with how often each was tried.
pub(super) async fn old(
    connection: &mut PgConnection,
    made_before: OffsetDateTime,
    most: i64,
) -> sqlx::Result<(Vec<i64>, Vec<i32>)> {
    let rows = sqlx::query!(
        r#"select id, (own_guesses + other_guesses)::integer as "attempts!" from codes
           where created_at < $1 order by created_at limit $2"#,
        made_before,
        most,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.attempts)).unzip())
}

pub(super) async fn delete_all(connection: &mut PgConnection, ids: &[i64]) -> sqlx::Result<()> {
    sqlx::query!("delete from codes where id = any($1)", ids).execute(connection).await?;
    Ok(())
}

pub(super) async fn sweep_failures(
    executor: impl PgExecutor<'_>,
    failed_before: OffsetDateTime,
    most: i64,
) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from code_failures where last_failed_at < $1 and (subject, own) in
           (select subject, own from code_failures where last_failed_at < $1 order by last_failed_at limit $2)",
        failed_before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}

/// A block or country that no codes are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closure {
    /// The block, like `+44207946`, or the country, like `GB`.
    pub prefix: String,
    /// Until when.
    pub closed_until: OffsetDateTime,
    /// How many phones there had been sent codes in an hour.
    pub phones: i64,
    /// How many of them sent one back.
    pub verified: i64,
}

/// Until when any of the prefixes is closed.
pub(super) async fn closed_until(
    executor: impl PgExecutor<'_>,
    prefixes: &[String],
    now: OffsetDateTime,
) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!(
        "select max(closed_until) from sms_closures where prefix = any($1) and closed_until > $2",
        prefixes,
        now,
    )
    .fetch_one(executor)
    .await
}

/// Blocks and countries with at least `sends` codes sent after `from` and up to `to`, and less than `percent` of the
/// phones that got them verified. By phone, because whoever asks again while
/// a carrier is slow leaves codes behind that nobody could use. What was sent before an earlier closure ended was judged
/// already.
pub(super) async fn poor_conversions(
    executor: impl PgExecutor<'_>,
    from: OffsetDateTime,
    to: OffsetDateTime,
    sends: i64,
    percent: i64,
) -> sqlx::Result<Vec<Closure>> {
    let rows = sqlx::query!(
        r#"select prefix as "prefix!", count(distinct phone) as "phones!",
                  count(distinct phone) filter (where consumed_at is not null) as "verified!"
           from (select block as prefix, phone, created_at, consumed_at
                 from codes where created_at > $1 and created_at <= $2
                 union all
                 select country, phone, created_at, consumed_at
                 from codes where created_at > $1 and created_at <= $2) sent
           where not exists (select from sms_closures c where c.prefix = sent.prefix and c.closed_until >= sent.created_at)
           group by prefix
           having count(*) >= $3
              and count(distinct phone) filter (where consumed_at is not null) * 100 < count(distinct phone) * $4"#,
        from,
        to,
        sends,
        percent,
    )
    .fetch_all(executor)
    .await?;
    let closure = |prefix, phones, verified| Closure { prefix, closed_until: to, phones, verified };
    Ok(rows.into_iter().map(|row| closure(row.prefix, row.phones, row.verified)).collect())
}

/// Closes a prefix; returns whether it was open.
pub(super) async fn close(executor: impl PgExecutor<'_>, closure: &Closure, now: OffsetDateTime) -> sqlx::Result<bool> {
    let closed = sqlx::query!(
        "insert into sms_closures (prefix, closed_at, closed_until, phones, verified) values ($1, $2, $3, $4, $5)
         on conflict (prefix) do update
         set closed_at = excluded.closed_at, closed_until = excluded.closed_until, phones = excluded.phones, verified = excluded.verified
         where sms_closures.closed_until <= excluded.closed_at",
        closure.prefix,
        now,
        closure.closed_until,
        closure.phones,
        closure.verified,
    )
    .execute(executor)
    .await?;
    Ok(closed.rows_affected() == 1)
}

/// What is closed now.
pub(super) async fn closures(executor: impl PgExecutor<'_>, now: OffsetDateTime) -> sqlx::Result<Vec<Closure>> {
    sqlx::query_as!(
        Closure,
        "select prefix, closed_until, phones, verified from sms_closures where closed_until > $1 order by prefix",
        now,
    )
    .fetch_all(executor)
    .await
}

/// Opens a prefix from `now` on; returns whether it was closed.
pub(super) async fn open(executor: impl PgExecutor<'_>, prefix: &str, now: OffsetDateTime) -> sqlx::Result<bool> {
    let opened =
        sqlx::query!("update sms_closures set closed_until = $2 where prefix = $1 and closed_until > $2", prefix, now)
            .execute(executor)
            .await?;
    Ok(opened.rows_affected() == 1)
}
