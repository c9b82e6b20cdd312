//! SQL queries of the report pages.

use std::collections::HashMap;

use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::UserId;

use super::{COUNTED, SHOWN};

#[derive(Clone, Debug)]
pub struct ReportRow {
    pub id: i64,
    pub reporter_id: UserId,
    /// Username of the reporter.
    pub reporter: String,
    /// Name of the room.
    pub room: String,
    /// Matrix id of the room.
    pub room_id: Option<String>,
    /// The homeserver's id of the message.
    pub event_id: String,
    pub reason: String,
    /// Matrix id of the sender.
    pub sender: Option<String>,
    /// Content of the message as JSON.
    pub content: Option<String>,
    /// Time of the message.
    pub sent_at: Option<OffsetDateTime>,
    /// Time of the report.
    pub created_at: OffsetDateTime,
    pub claimed_by: Option<String>,
    pub claimed_until: Option<OffsetDateTime>,
    pub closed_at: Option<OffsetDateTime>,
    pub closed_by: Option<String>,
    pub resolution: Option<String>,
    /// Reason of the operator who closed the report.
    pub note: Option<String>,
    /// Text of the operator to the reporter.
    pub answer: Option<String>,
}

impl ReportRow {
    /// Operator who has claimed the report, and the end of the claim.
    pub fn claim(&self, now: OffsetDateTime) -> Option<(&str, OffsetDateTime)> {
        let until = self.claimed_until.filter(|until| now < *until)?;
        Some((self.claimed_by.as_deref()?, until))
    }
}

/// Account of a message's sender.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub id: UserId,
    pub banned_at: Option<OffsetDateTime>,
    pub banned_until: Option<OffsetDateTime>,
    pub muted_at: Option<OffsetDateTime>,
    pub muted_until: Option<OffsetDateTime>,
}

/// Selects reports. An absent field matches all.
#[derive(Clone, Copy, Debug)]
pub(in crate::admin::console) struct ReportQuery<'a> {
    /// Lower-case text in the message, the reason, the note, the answer, the room, or the name of sender or reporter;
    /// or `#` and an id. The message is searched in its JSON form, in which quotation marks are escaped.
    pub text: Option<&'a str>,
    /// Operator who has claimed the reports.
    pub claimed_by: Option<&'a str>,
    /// Earliest time of the report, inclusive.
    pub from: Option<OffsetDateTime>,
    /// Latest time of the report, exclusive.
    pub until: Option<OffsetDateTime>,
    pub now: OffsetDateTime,
    pub most: i64,
    pub offset: i64,
}

/// Selects the columns of [`ReportRow`], with the given conditions and order.
macro_rules! reports {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            ReportRow,
            r#"select p.id, p.user_id as "reporter_id: UserId", u.username as reporter, r.name as room,
                      r.matrix_id as room_id, p.event_id, p.reason, p.sender, p.content, p.sent_at, p.created_at,
                      p.claimed_by, p.claimed_until, p.closed_at, p.closed_by, p.resolution, p.note, p.answer
               from reports p join users u on u.user_id = p.user_id join rooms r on r.id = p.room_id "# + $rest,
            $($argument),*
        )
    };
}

pub(in crate::admin::console) async fn count_open(connection: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from (select 1 from reports where closed_at is null limit $1::bigint + 1) r"#,
        COUNTED,
    )
    .fetch_one(connection)
    .await
}

/// Lists open reports, oldest first.
pub(in crate::admin::console) async fn open(
    connection: &mut PgConnection,
    query: &ReportQuery<'_>,
) -> sqlx::Result<Vec<ReportRow>> {
    reports!(
        r#"where p.closed_at is null
             and ($3::text is null or '#' || p.id = $3 or position($3 in lower(concat_ws(' ',
                   coalesce(substring(p.content from '"body": ?"((?:[^"\\]|\\.)*)"'), p.content),
                   p.reason, p.sender, u.username, r.name, r.matrix_id))) > 0)
             and ($4::timestamptz is null or p.created_at >= $4) and ($5::timestamptz is null or p.created_at < $5)
             and ($6::text is null or p.claimed_by = $6 and p.claimed_until > $7)
           order by p.created_at, p.id limit $1 offset $2"#,
        query.most,
        query.offset,
        query.text,
        query.from,
        query.until,
        query.claimed_by,
        query.now,
    )
    .fetch_all(connection)
    .await
}

/// Lists closed reports, last closed first.
pub(in crate::admin::console) async fn closed(
    connection: &mut PgConnection,
    query: &ReportQuery<'_>,
) -> sqlx::Result<Vec<ReportRow>> {
    reports!(
        r#"where p.closed_at is not null
             and ($3::text is null or '#' || p.id = $3 or position($3 in lower(concat_ws(' ',
                   coalesce(substring(p.content from '"body": ?"((?:[^"\\]|\\.)*)"'), p.content),
                   p.reason, p.note, p.answer, p.sender, u.username, r.name, r.matrix_id))) > 0)
             and ($4::timestamptz is null or p.created_at >= $4) and ($5::timestamptz is null or p.created_at < $5)
           order by p.closed_at desc, p.id desc limit $1 offset $2"#,
        query.most,
        query.offset,
        query.text,
        query.from,
        query.until,
    )
    .fetch_all(connection)
    .await
}

pub(in crate::admin::console) async fn find(connection: &mut PgConnection, id: i64) -> sqlx::Result<Option<ReportRow>> {
    reports!("where p.id = $1", id).fetch_optional(connection).await
}

/// Lists the reports about a sender, newest first.
pub(in crate::admin::console) async fn about(
    connection: &mut PgConnection,
    sender: &str,
) -> sqlx::Result<Vec<ReportRow>> {
    reports!("where p.sender = $1 order by p.id desc limit $2", sender, SHOWN).fetch_all(connection).await
}

/// Lists the reports by a user, newest first.
pub(in crate::admin::console) async fn by(connection: &mut PgConnection, user: UserId) -> sqlx::Result<Vec<ReportRow>> {
    reports!("where p.user_id = $1 order by p.id desc limit $2", user.0, SHOWN).fetch_all(connection).await
}

/// Counts the open reports of a message.
pub(in crate::admin::console) async fn count_open_of_message(
    connection: &mut PgConnection,
    event_id: &str,
) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from reports where event_id = $1 and closed_at is null"#,
        event_id,
    )
    .fetch_one(connection)
    .await
}

/// Whether a message of a room was removed.
pub(in crate::admin::console) async fn is_removed(
    connection: &mut PgConnection,
    room: Option<&str>,
    event: &str,
) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from removals m join rooms r on r.id = m.room_id
                          where r.matrix_id = $1 and m.event_id = $2) as "is_removed!""#,
        room,
        event,
    )
    .fetch_one(connection)
    .await
}

/// Returns the accounts of the senders who have one on this server, by Matrix id. Separate queries, because a name and
/// the account that it belongs to may be on different nodes.
pub(in crate::admin::console) async fn senders(
    connection: &mut PgConnection,
    server: &str,
    reports: &[ReportRow],
) -> sqlx::Result<HashMap<String, Sender>> {
    let name = |sender: &str| {
        let (name, at) = sender.strip_prefix('@')?.split_once(':')?;
        (at == server).then(|| name.to_owned())
    };
    let senders: Vec<&str> = reports.iter().filter_map(|report| report.sender.as_deref()).collect();
    let names: Vec<String> = senders.iter().filter_map(|sender| name(sender)).collect();
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let owners = sqlx::query!("select username, user_id from username_claims where username = any($1)", &names)
        .fetch_all(&mut *connection)
        .await?;
    let owners: HashMap<String, i64> = owners.into_iter().map(|row| (row.username, row.user_id)).collect();
    let ids: Vec<i64> = owners.values().copied().collect();
    let users = sqlx::query_as!(
        Sender,
        r#"select user_id as "id: UserId", banned_at, banned_until, muted_at, muted_until
           from users where user_id = any($1)"#,
        &ids,
    )
    .fetch_all(connection)
    .await?;
    let users: HashMap<i64, Sender> = users.into_iter().map(|user| (user.id.0, user)).collect();
    let account = |sender: &str| users.get(owners.get(&name(sender)?)?).copied();
    Ok(senders.into_iter().filter_map(|sender| Some((sender.to_owned(), account(sender)?))).collect())
}
