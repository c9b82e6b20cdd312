//! The SQL of predictions.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use super::{
    rules::{Confidence, Forecast, Pick, Score},
    service::{Filter, Listed, RoomView, Saved, Summary},
};
use crate::{
    events::rules::Status,
    http::paging::Cursor,
    ids::{EventId, PredictionId, UserId},
};

/// Whether a match is open for predictions. If it is, its row stays as it is until the transaction ends: whoever wants
/// to write that it started waits, and whoever is writing it already is waited for. The time is the database's, because
/// there is only one of it; only an open match is held, so a rush of late predictions keeps nobody from writing scores.
pub(super) async fn hold_open(connection: &mut PgConnection, event: EventId) -> sqlx::Result<bool> {
    let open = sqlx::query_scalar!(
        "select id from events where id = $1 and status = 'scheduled' and start_time > now() for share",
        event.0,
    )
    .fetch_optional(connection)
    .await?;
    Ok(open.is_some())
}

pub(super) async fn event_exists(executor: impl PgExecutor<'_>, event: EventId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"select exists (select from events where id = $1) as "exists!""#, event.0)
        .fetch_one(executor)
        .await
}

/// Writes a user's prediction, over the one before if there is one.
pub(super) async fn save(
    connection: &mut PgConnection,
    user: UserId,
    event: EventId,
    forecast: Forecast,
) -> sqlx::Result<Saved> {
    // A row that was there carries the lock that replacing it took; a new one has xmax 0. Its times are those by which
    // the match was open.
    sqlx::query_as!(
        Saved,
        r#"insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, created_at, updated_at)
           values ($1, $2, $3, $4, $5, $6, now(), now())
           on conflict (user_id, event_id) do update
             set prediction = excluded.prediction, home_goals = excluded.home_goals, away_goals = excluded.away_goals,
                 confidence = excluded.confidence, updated_at = excluded.updated_at
           returning id as "id: PredictionId", created_at, (xmax = 0) as "is_new!""#,
        user.0,
        event.0,
        forecast.pick().name(),
        forecast.score().map(Score::home),
        forecast.score().map(Score::away),
        forecast.confidence().percent(),
    )
    .fetch_one(connection)
    .await
}

/// Counts a new prediction.
pub(super) async fn add_to_tally(connection: &mut PgConnection, event: EventId, slot: i16) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into event_tallies (event_id, slot, predictions) values ($1, $2, 1)
         on conflict (event_id, slot) do update set predictions = event_tallies.predictions + excluded.predictions",
        event.0,
        slot,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A prediction as it is read; what has rules is still plain.
struct Row {
    id: PredictionId,
    user_id: UserId,
    username: String,
    name: Option<String>,
    prediction: String,
    home_goals: Option<i16>,
    away_goals: Option<i16>,
    confidence: i16,
    created_at: OffsetDateTime,
    status: String,
    home_score: Option<i32>,
    away_score: Option<i32>,
}

impl TryFrom<Row> for Listed {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        let pick = row.prediction.parse::<Pick>().map_err(|error| sqlx::Error::Decode(error.into()))?;
        let status = row.status.parse::<Status>().map_err(|error| sqlx::Error::Decode(error.into()))?;
        let goals = row.home_goals.zip(row.away_goals);
        let score = goals.and_then(|(home, away)| Score::new(home.into(), away.into()));
        let forecast = Confidence::new(row.confidence.into())
            .and_then(|confidence| Forecast::new(pick, score, confidence))
            .ok_or_else(|| sqlx::Error::Decode(format!("prediction {} contradicts itself", row.id).into()))?;
        Ok(Self {
            id: row.id,
            user_id: row.user_id,
            username: row.username,
            name: row.name,
            forecast,
            created_at: row.created_at,
            outcome: status.outcome(row.home_score.zip(row.away_score)),
        })
    }
}

/// Whom a user does not want to meet.
pub(super) async fn blocked(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!("select blocked_id from blocks where user_id = $1", user.0).fetch_all(executor).await
}

/// The first predictions of a match after the cursor, by id; but for those of the unseen.
pub(super) async fn list(
    executor: impl PgExecutor<'_>,
    event: EventId,
    room: Option<RoomView>,
    unseen: &[i64],
    filter: Filter,
    after: Option<Cursor>,
    limit: i64,
) -> sqlx::Result<Vec<Listed>> {
    let rows = sqlx::query_as!(
        Row,
        r#"select p.id as "id: PredictionId", p.user_id as "user_id: UserId", u.username, u.name,
                  p.prediction, p.home_goals, p.away_goals, p.confidence, p.created_at,
                  e.status, e.home_score, e.away_score
           from predictions p
           join users u on u.user_id = p.user_id
           join events e on e.id = p.event_id
           where p.event_id = $1
             and p.id > $2
             and ($3::bigint is null or p.user_id = $3)
             and ($4::text is null or p.prediction = $4)
             and ($6::bigint is null or exists (
               select from room_members m join rooms r on r.id = m.room_id
               where m.user_id = p.user_id and m.membership = 'join'
                 and (r.id = $6 or ($7 and r.event_id = $1 and r.stand is not null))))
             and p.user_id <> all($8::bigint[])
           order by p.id
           limit $5"#,
        event.0,
        after.map_or(0, Cursor::id),
        filter.user_id.map(|id| id.0),
        filter.prediction.map(Pick::name),
        limit,
        room.map(|room| room.id.0),
        room.is_some_and(|room| room.with_all_stands),
        unseen,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(Listed::try_from).collect()
}

/// All predictions of a match, or of a room's members on it.
pub(super) async fn summary(
    executor: impl PgExecutor<'_>,
    event: EventId,
    room: Option<RoomView>,
) -> sqlx::Result<Option<Summary>> {
    sqlx::query_as!(
        Summary,
        r#"select count(*) filter (where p.prediction = 'home') as "home!",
                  count(*) filter (where p.prediction = 'draw') as "draw!",
                  count(*) filter (where p.prediction = 'away') as "away!",
                  coalesce(avg(p.confidence), 0)::double precision as "average_confidence!"
           from events e left join predictions p on p.event_id = e.id
             and ($2::bigint is null or exists (
               select from room_members m join rooms r on r.id = m.room_id
               where m.user_id = p.user_id and m.membership = 'join'
                 and (r.id = $2 or ($3 and r.event_id = $1 and r.stand is not null))))
           where e.id = $1
           group by e.id"#,
        event.0,
        room.map(|room| room.id.0),
        room.is_some_and(|room| room.with_all_stands),
    )
    .fetch_optional(executor)
    .await
}
