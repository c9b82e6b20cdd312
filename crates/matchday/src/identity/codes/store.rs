//! SQL for login codes.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use super::{
    limits::Known,
    rules::{Cap, CodeId, OTHER_GUESSES, OWN_GUESSES, Sample, Scope, Stored},
};
use crate::identity::phone::Phone;

/// A code to insert before it is sent.
pub(super) struct New<'a> {
    pub(super) subject: &'a str,
    pub(super) phone: &'a Phone,
    pub(super) country: &'a str,
    pub(super) stored: Stored,
    pub(super) network: &'a str,
    /// Unit by which abuse is judged, see `ClientNetwork::origin`.
    pub(super) origin: &'a str,
    pub(super) place: &'a [u8],
    /// Whether the code is charged to the reserve of returning phones, because a shared limit is used up.
    pub(super) is_limited: bool,
    pub(super) created_at: OffsetDateTime,
    pub(super) expires_at: OffsetDateTime,
}

pub(super) async fn insert(executor: impl PgExecutor<'_>, code: New<'_>) -> sqlx::Result<CodeId> {
    sqlx::query_scalar!(
        "insert into codes (subject, phone, block, country, mac, nonce, key_version, network, created_at, expires_at,
                            origin, place, is_limited)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
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
        code.origin,
        code.place,
        code.is_limited,
    )
    .fetch_one(executor)
    .await
    .map(CodeId)
}

/// Deletes a code that could not be sent, which makes the previous code valid again. A consumed code was evidently
/// received and is kept.
pub(super) async fn delete(executor: impl PgExecutor<'_>, id: CodeId) -> sqlx::Result<()> {
    sqlx::query!("delete from codes where id = $1 and consumed_at is null", id.0).execute(executor).await?;
    Ok(())
}

/// Phone of the subject's pending code.
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

/// Phone of the subject's pending code, if the code may be resent. Codes sent from the reserve may not: a pending one
/// would reveal that the phone has verified before.
pub(super) async fn resendable(
    executor: impl PgExecutor<'_>,
    subject: &str,
    now: OffsetDateTime,
) -> sqlx::Result<Option<Phone>> {
    sqlx::query_scalar!(
        r#"select phone as "phone: Phone" from codes
           where id = (select max(id) from codes where subject = $1 and not is_limited)
             and consumed_at is null and expires_at > $2"#,
        subject,
        now,
    )
    .fetch_optional(executor)
    .await
}

/// Verification history of a phone, overall and at any of these places.
pub(super) async fn known(
    executor: impl PgExecutor<'_>,
    phone: &Phone,
    places: &[Vec<u8>],
    home_since: OffsetDateTime,
) -> sqlx::Result<Known> {
    sqlx::query_as!(
        Known,
        r#"select count(*) > 0 as "is_returning!",
                  count(*) filter (where place = any($2) and verified_at >= $3) > 0 as "is_home!"
           from phone_verifications where phone = $1"#,
        phone.as_str(),
        places,
        home_since,
    )
    .fetch_one(executor)
    .await
}

pub(super) async fn note_verification(
    connection: &mut PgConnection,
    phone: &Phone,
    place: &[u8],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into phone_verifications (phone, place, verified_at) values ($1, $2, $3)
         on conflict (phone, place) do update set verified_at = excluded.verified_at",
        phone.as_str(),
        place,
        now,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn forget_verifications(connection: &mut PgConnection, phone: &Phone) -> sqlx::Result<()> {
    sqlx::query!("delete from phone_verifications where phone = $1", phone.as_str()).execute(connection).await?;
    Ok(())
}

pub(super) async fn sweep_verifications(
    executor: impl PgExecutor<'_>,
    verified_before: OffsetDateTime,
    most: i64,
) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from phone_verifications where verified_at < $1 and (phone, place) in
           (select phone, place from phone_verifications where verified_at < $1 order by verified_at limit $2)",
        verified_before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}

/// Number of consecutive wrong guesses that delay the next guess at the subject's code from this network, and the time
/// of the last one.
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

/// A guess that was counted and may now be compared.
pub(super) struct Guess {
    pub(super) id: CodeId,
    pub(super) stored: Stored,
    pub(super) own: bool,
}

/// Counts a guess at the subject's code before it is compared. However many guesses arrive concurrently, this statement
/// lets no more than the allowed number through. Without `others_too`, only codes requested by the same network may be
/// guessed.
pub(super) async fn count_guess(
    executor: impl PgExecutor<'_>,
    subject: &str,
    network: &str,
    now: OffsetDateTime,
    others_too: bool,
) -> sqlx::Result<Option<Guess>> {
    let row = sqlx::query!(
        r#"update codes
           set own_guesses = own_guesses + (network = $2)::int, other_guesses = other_guesses + (network <> $2)::int
           where id = (select max(id) from codes where subject = $1)
             and consumed_at is null and expires_at > $3 and ($6 or network = $2)
             and case when network = $2 then own_guesses < $4 else other_guesses < $5 end
           returning id, mac, nonce, key_version, network = $2 as "own!""#,
        subject,
        network,
        now,
        OWN_GUESSES,
        OTHER_GUESSES,
        others_too,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.and_then(|row| {
        let stored =
            Stored { mac: row.mac.try_into().ok()?, nonce: row.nonce.try_into().ok()?, key_version: row.key_version };
        Some(Guess { id: CodeId(row.id), stored, own: row.own })
    }))
}

/// Refunds a guess after a correct code could not be used for a reason that the user can fix.
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

/// Details of a code that was just consumed.
pub(super) struct Used {
    pub(super) phone: Phone,
    pub(super) place: Vec<u8>,
}

/// Consumes a code. Returns `None` if it was consumed before.
pub(super) async fn consume(
    connection: &mut PgConnection,
    id: CodeId,
    now: OffsetDateTime,
) -> sqlx::Result<Option<Used>> {
    sqlx::query_as!(
        Used,
        r#"update codes set consumed_at = $2 where id = $1 and consumed_at is null
           returning phone as "phone: Phone", place"#,
        id.0,
        now,
    )
    .fetch_optional(connection)
    .await
}

/// Makes a consumed code valid again until it expires, and refunds its guess.
pub(super) async fn restore(executor: impl PgExecutor<'_>, id: CodeId, own: bool) -> sqlx::Result<()> {
    sqlx::query!(
        "update codes set consumed_at = null, own_guesses = greatest(own_guesses - $2::bool::int, 0),
                          other_guesses = greatest(other_guesses - (not $2)::int, 0)
         where id = $1",
        id.0,
        own,
    )
    .execute(executor)
    .await?;
    Ok(())
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

/// Ids of codes created before `made_before`, with the number of guesses for each.
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

/// Cap on codes for a network, block or country, imposed because too few of its codes were verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closure {
    /// A network like `203.0.113.7` or `2001:db8:1::/48`, a block like `+44207946`, or a country like `GB`.
    pub prefix: String,
    pub closed_until: OffsetDateTime,
    /// Position in a run of consecutive closures. Each level is longer and stricter than the previous one.
    pub level: i16,
    /// Codes per hour for phones that have not verified before.
    pub hourly: i32,
    /// Phones that received codes in the judged hour.
    pub phones: i64,
    /// Phones that verified a code in the judged hour.
    pub verified: i64,
}

/// Caps of the given prefixes that are closed at `now`.
pub(super) async fn caps(
    executor: impl PgExecutor<'_>,
    prefixes: &[String],
    now: OffsetDateTime,
) -> sqlx::Result<Vec<Cap>> {
    let rows = sqlx::query!(
        "select prefix, hourly from sms_closures where prefix = any($1) and closed_until > $2",
        prefixes,
        now,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| Cap { prefix: row.prefix, hourly: row.hourly.unsigned_abs() }).collect())
}

/// Statistics of the codes sent in an interval, by network, block or country, for groups large enough to be judged.
/// Phones are counted instead of codes, because a user who retries while a carrier is slow leaves several unused codes.
/// Codes sent before the end of a closure of their network, block or country are excluded, because that closure has
/// already judged them or capped them.
pub(super) async fn samples(
    executor: impl PgExecutor<'_>,
    scope: Scope,
    (from, to): (OffsetDateTime, OffsetDateTime),
) -> sqlx::Result<Vec<(String, Sample)>> {
    let rows = sqlx::query!(
        r#"select prefix as "prefix!", count(distinct phone) as "phones!",
                  count(distinct phone) filter (where consumed_at is not null) as "verified!",
                  count(distinct origin) as "origins!", count(distinct block) as "blocks!"
           from (select case $3 when 'network' then origin when 'block' then block else country end as prefix,
                        phone, origin, block, consumed_at
                 from codes
                 where created_at > $1 and created_at <= $2
                   and not exists (
                     select 1 from sms_closures c
                     where c.closed_until >= codes.created_at
                       and c.prefix = any(case $3 when 'network' then array[origin]
                                                  when 'block' then array[origin, block]
                                                  else array[origin, block, country] end))) sent
           group by prefix having count(distinct phone) >= $4"#,
        from,
        to,
        scope.name(),
        scope.least_phones(),
    )
    .fetch_all(executor)
    .await?;
    let sample = |phones, verified, origins, blocks| Sample { phones, verified, origins, blocks };
    Ok(rows.into_iter().map(|row| (row.prefix, sample(row.phones, row.verified, row.origins, row.blocks))).collect())
}

/// Level of a prefix's last closure, and the time it ended or will end.
pub(super) async fn last_closure(
    executor: impl PgExecutor<'_>,
    prefix: &str,
) -> sqlx::Result<Option<(i16, OffsetDateTime)>> {
    let row = sqlx::query!("select level, closed_until from sms_closures where prefix = $1", prefix)
        .fetch_optional(executor)
        .await?;
    Ok(row.map(|row| (row.level, row.closed_until)))
}

/// Closes a prefix. Returns whether it was open.
pub(super) async fn close(executor: impl PgExecutor<'_>, closure: &Closure, now: OffsetDateTime) -> sqlx::Result<bool> {
    let closed = sqlx::query!(
        "insert into sms_closures (prefix, closed_at, closed_until, phones, verified, level, hourly)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (prefix) do update
         set closed_at = excluded.closed_at, closed_until = excluded.closed_until, phones = excluded.phones,
             verified = excluded.verified, level = excluded.level, hourly = excluded.hourly
         where sms_closures.closed_until <= excluded.closed_at",
        closure.prefix,
        now,
        closure.closed_until,
        closure.phones,
        closure.verified,
        closure.level,
        closure.hourly,
    )
    .execute(executor)
    .await?;
    Ok(closed.rows_affected() == 1)
}

/// Closures in effect at `now`.
pub(super) async fn closures(executor: impl PgExecutor<'_>, now: OffsetDateTime) -> sqlx::Result<Vec<Closure>> {
    sqlx::query_as!(
        Closure,
        "select prefix, closed_until, level, hourly, phones, verified from sms_closures
         where closed_until > $1 order by prefix",
        now,
    )
    .fetch_all(executor)
    .await
}

/// Opens a prefix as of `now`. Returns whether it was closed.
pub(super) async fn open(executor: impl PgExecutor<'_>, prefix: &str, now: OffsetDateTime) -> sqlx::Result<bool> {
    let opened =
        sqlx::query!("update sms_closures set closed_until = $2 where prefix = $1 and closed_until > $2", prefix, now)
            .execute(executor)
            .await?;
    Ok(opened.rows_affected() == 1)
}
