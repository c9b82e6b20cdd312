//! SQL queries of the demo.

use std::collections::HashMap;

use sqlx::{PgExecutor, PgPool};
use time::{Duration, OffsetDateTime};
use web::ids::{MatchId, UserId};

use crate::catalogue::matches::rules::{Status, UnknownStatus};

/// A match of the demo as stored in the database.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) id: MatchId,
    pub(super) key: String,
    pub(super) start_time: OffsetDateTime,
    pub(super) status: Status,
    pub(super) scores: Option<(i32, i32)>,
    /// Matrix id of its chat room.
    pub(super) room: Option<String>,
}

pub(super) async fn has_users(executor: impl PgExecutor<'_>) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"select exists (select 1 from users) as "has_users!""#).fetch_one(executor).await
}

/// Matches of a tournament, ordered by key.
pub(super) async fn matches(executor: impl PgExecutor<'_>, tournament: &str) -> sqlx::Result<Vec<Stored>> {
    let rows = sqlx::query!(
        r#"select e.id as "id: MatchId", e.key, e.start_time, e.status, e.home_score, e.away_score,
                  r.matrix_id as "room?"
           from events e join tournaments t on t.id = e.tournament_id
           left join rooms r on r.event_id = e.id and r.stand = 1 and r.opened_at is not null
           where t.slug = $1 order by e.key"#,
        tournament,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter()
        .map(|row| {
            let status = row.status.parse().map_err(|error: UnknownStatus| sqlx::Error::Decode(error.into()))?;
            let scores = row.home_score.zip(row.away_score);
            Ok(Stored { id: row.id, key: row.key, start_time: row.start_time, status, scores, room: row.room })
        })
        .collect()
}

/// User ids by username.
pub(super) async fn fans(executor: impl PgExecutor<'_>, usernames: &[&str]) -> sqlx::Result<HashMap<String, UserId>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id: UserId", username from users where username = any($1)"#,
        usernames as &[&str],
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.username, row.user_id)).collect())
}

/// Moves the predictions of a match before its start, as if they had been made in time. Only the demo can do this.
pub(super) async fn backdate(db: &PgPool, event: MatchId, to: OffsetDateTime) -> sqlx::Result<()> {
    let users = sqlx::query_scalar!("select user_id from predictions where event_id = $1 order by user_id", event.0)
        .fetch_all(db)
        .await?;
    // The predictions are one minute apart.
    let times: Vec<OffsetDateTime> = (1..).zip(&users).map(|(place, _)| to - Duration::minutes(place)).collect();
    sqlx::query!(
        "update predictions p set created_at = o.moment, updated_at = o.moment
         from unnest($2::bigint[], $3::timestamptz[]) as o (user_id, moment)
         where p.event_id = $1 and p.user_id = o.user_id and p.user_id = any($2)",
        event.0,
        &users,
        &times,
    )
    .execute(db)
    .await?;
    // A seal counts until the match opens again.
    sqlx::query!("update events set opened_at = $2 where id = $1", event.0, to - Duration::DAY).execute(db).await?;
    Ok(())
}
