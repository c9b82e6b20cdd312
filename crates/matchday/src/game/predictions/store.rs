//! SQL queries for predictions.

use std::collections::{HashMap, HashSet};

use platform::shards::Ranges;
use scoring::{Confidence, Forecast, Pick, Score, Side, Terms};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgExecutor, Postgres, Transaction};
use time::OffsetDateTime;
use uuid::Uuid;
use web::{
    ids::{MatchId, PredictionId, RuleSetId, TournamentId, UserId},
    paging::Cursor,
};

use super::{
    receipts::Receipt,
    rules::Conditions,
    service::{EventTerms, Listed, Own, PredictedEvent, Prediction, RoomView, Saved, Summary},
};
use crate::{
    catalogue::{
        matches::{
            columns::read_side,
            gates,
            rules::{Status, UnknownStatus},
        },
        rule_sets::columns::{read_multiplier, read_rules},
    },
    identity::{accounts::Person, avatars::AvatarKey, idempotency::KeyedRequest},
};

/// A prediction that a batch writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) user: UserId,
    pub(super) event: MatchId,
    pub(super) forecast: Forecast,
    /// Makes the hash of the receipt unguessable. A second attempt to write the entry recognises it.
    pub(super) salt: Uuid,
    /// Request that made the prediction, if it had an idempotency key.
    pub(super) request: Option<KeyedRequest>,
}

impl Entry {
    pub(super) fn key(&self) -> (UserId, MatchId) {
        (self.user, self.event)
    }

    pub(super) fn receipt(&self, pseudonym: Uuid, revision: i32, accepted_at: OffsetDateTime) -> Receipt {
        let Self { event, forecast, salt, .. } = *self;
        Receipt { event, pseudonym, salt, forecast, revision, accepted_at }
    }
}

/// A stored prediction that is about to be replaced.
pub(super) struct Earlier {
    pub(super) user: UserId,
    pub(super) event: MatchId,
    pub(super) id: PredictionId,
    pub(super) created_at: OffsetDateTime,
    pub(super) forecast: Forecast,
    pub(super) salt: Option<Uuid>,
    pub(super) revision: i32,
    pub(super) updated_at: OffsetDateTime,
}

impl Earlier {
    pub(super) fn key(&self) -> (UserId, MatchId) {
        (self.user, self.event)
    }
}

/// Change to the tally of a match.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    home: i64,
    draw: i64,
    away: i64,
    confidence: i64,
}

impl Tally {
    pub(super) fn add(&mut self, forecast: Forecast) {
        self.change(forecast, 1);
    }

    pub(super) fn remove(&mut self, forecast: Forecast) {
        self.change(forecast, -1);
    }

    fn change(&mut self, forecast: Forecast, by: i64) {
        match forecast.pick() {
            Pick::Home => self.home += by,
            Pick::Draw => self.draw += by,
            Pick::Away => self.away += by,
        }
        self.confidence += by * i64::from(forecast.confidence().percent());
    }
}

/// Selects receipts of predictions `p`: of the revision `l` if the statement joins one, else of the latest revision.
/// `s` has the pseudonym. Takes additional columns, the rest of the statement, and its parameters.
macro_rules! receipts {
    ($columns:tt, $rest:tt, $($value:expr),+ $(,)?) => {
        sqlx::query!(
            r#"select p.user_id as "user_id!: UserId", p.event_id as "event_id!: MatchId", p.id as "id!: PredictionId",
                      p.created_at as "created_at!", s.pseudonym as "pseudonym?",
                      case when l.revision is null then p.revision else l.revision end as "revision!",
                      case when l.revision is null then p.salt else l.salt end as salt,
                      case when l.revision is null then p.prediction else l.prediction end as "prediction!",
                      case when l.revision is null then p.home_goals else l.home_goals end as home_goals,
                      case when l.revision is null then p.away_goals else l.away_goals end as away_goals,
                      case when l.revision is null then p.confidence else l.confidence end as "confidence!",
                      case when l.revision is null then p.advances else l.advances end as advances,
                      case when l.revision is null then p.joker else l.joker end as "joker!",
                      case when l.revision is null then p.updated_at else l.made_at end as "accepted_at!" "#
                + $columns + $rest,
            $($value),+
        )
    };
}

/// Reads a row of a `receipts!` query: `None` if the revision has no receipt.
macro_rules! receipt {
    ($row:ident) => {
        match ($row.pseudonym, $row.salt) {
            (Some(pseudonym), Some(salt)) => {
                let goals = $row.home_goals.zip($row.away_goals);
                let forecast = read_forecast(&$row.prediction, goals, $row.confidence)?;
                let forecast = forecast.with_advances(read_side($row.advances.as_deref())?).with_joker($row.joker);
                let (revision, accepted_at) = ($row.revision, $row.accepted_at);
                Some(Receipt { event: $row.event_id, pseudonym, salt, forecast, revision, accepted_at })
            }
            _ => None,
        }
    };
}

/// Begins a transaction that holds the gates of these matches open: a transaction that records a start or a new start
/// time waits until this one ends (see [`gates::close`]). Both statements are sent in one message, because each round
/// trip delays a lone prediction.
pub(super) async fn begin_at_gates<'c>(
    connection: &'c mut PgConnection,
    events: &[MatchId],
) -> sqlx::Result<Transaction<'c, Postgres>> {
    connection.begin_with(AssertSqlSafe(format!("begin; {}", gates::hold_open(events)))).await
}

/// Returns which of these matches are open and what they allow, and the database time that decided it, read after the
/// gates were passed; `None` if none is open. This time alone decides whether a prediction was made before the start,
/// regardless of the clocks of the processes. On Citus it is the time of the coordinator, because the function runs
/// there.
pub(super) async fn open_matches(
    connection: &mut PgConnection,
    events: &[MatchId],
) -> sqlx::Result<Option<(OffsetDateTime, HashMap<MatchId, Conditions>)>> {
    let ids: Vec<i64> = events.iter().map(|event| event.0).collect();
    let rows = sqlx::query!(
        r#"select id as "id!: MatchId", moment as "moment!", tournament_id as "tournament!: TournamentId",
                  draws_allowed as "draws_allowed!", max_score as "max_score!", is_knockout as "is_knockout!",
                  jokers as "jokers!"
           from open_matches($1)"#,
        &ids,
    )
    .fetch_all(connection)
    .await?;
    let moment = rows.first().map(|row| row.moment);
    let open = rows.into_iter().map(|row| {
        let conditions = Conditions {
            tournament: row.tournament,
            draws_allowed: row.draws_allowed,
            max_score: row.max_score,
            is_knockout: row.is_knockout,
            jokers: row.jokers,
        };
        (row.id, conditions)
    });
    let open = open.collect();
    Ok(moment.map(|moment| (moment, open)))
}

/// Prevents other transactions from playing a joker of these users in these tournaments, until this one ends. The pairs
/// are sorted, so that transactions lock them in the same order.
pub(super) async fn lock_jokers(connection: &mut PgConnection, pairs: &[(UserId, TournamentId)]) -> sqlx::Result<()> {
    let names: Vec<String> = pairs.iter().map(|(user, tournament)| format!("{user} {tournament}")).collect();
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('matchday jokers ' || name, 0)) from unnest($1::text[]) as n (name)",
        &names,
    )
    .fetch_all(connection)
    .await?;
    Ok(())
}

/// A match in which a user plays a joker.
pub(super) struct PlayedJoker {
    pub(super) user: UserId,
    pub(super) event: MatchId,
    pub(super) tournament: TournamentId,
}

/// Returns the matches of these tournaments in which these users play a joker, without those that are void.
pub(super) async fn played_jokers(
    connection: &mut PgConnection,
    shards: &Ranges,
    users: &[i64],
    tournaments: &[i64],
) -> sqlx::Result<Vec<PlayedJoker>> {
    sqlx::query_as!(
        PlayedJoker,
        r#"select p.user_id as "user: UserId", p.event_id as "event: MatchId", e.tournament_id as "tournament: TournamentId"
           from predictions p join events e on e.id = p.event_id
           where p.joker and p.user_id = any($1) and ($3::bigint[] is null or p.user_id = any($3))
             and e.tournament_id = any($2) and e.status not in ('abandoned', 'cancelled', 'awarded')"#,
        users,
        tournaments,
        shards.only(users),
    )
    .fetch_all(connection)
    .await
}

/// Inserts predictions of users who have none yet, for open matches, and returns the inserted ones.
pub(super) async fn insert(
    connection: &mut PgConnection,
    entries: &[Entry],
    now: OffsetDateTime,
) -> sqlx::Result<HashMap<(UserId, MatchId), (PredictionId, OffsetDateTime)>> {
    let columns = Columns::of(entries);
    let rows = sqlx::query!(
        r#"insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, advances, joker,
                                    salt, revision, created_at, updated_at)
           select n.user_id, n.event_id, n.prediction, n.home_goals, n.away_goals, n.confidence, n.advances, n.joker, n.salt,
                  1, $7, $7
           from unnest($1::bigint[], $2::bigint[], $3::text[], $4::smallint[], $5::smallint[], $6::smallint[], $8::text[],
                       $9::boolean[], $10::uuid[])
             as n (user_id, event_id, prediction, home_goals, away_goals, confidence, advances, joker, salt)
           order by n.user_id, n.event_id
           on conflict (user_id, event_id) do nothing
           returning user_id as "user_id: UserId", event_id as "event_id: MatchId", id as "id: PredictionId", created_at"#,
        &columns.users,
        &columns.events,
        &columns.picks as &[&str],
        &columns.home_goals as &[Option<i16>],
        &columns.away_goals as &[Option<i16>],
        &columns.confidences,
        now,
        &columns.advances as &[Option<&str>],
        &columns.jokers,
        &columns.salts,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| ((row.user_id, row.event_id), (row.id, row.created_at))).collect())
}

/// Inserts, counts and commits the first prediction of a user for a match, with the idempotency key of the request, in
/// one round trip. Returns `None` if the user already has a prediction, the match is not open, or the key was used
/// before.
pub(super) async fn insert_alone(
    connection: &mut PgConnection,
    slot: i16,
    entry: &Entry,
    new_pseudonym: Uuid,
    now: OffsetDateTime,
) -> sqlx::Result<Option<Saved>> {
    let forecast = entry.forecast;
    let row = sqlx::query!(
        r#"select id as "id!: PredictionId", created_at as "created_at!", pseudonym as "pseudonym!"
           from insert_first_prediction($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"#,
        gates::CLASS,
        gates::gate(entry.event),
        slot,
        entry.user.0,
        entry.event.0,
        forecast.pick().name(),
        forecast.score().map(Score::home),
        forecast.score().map(Score::away),
        forecast.confidence().percent(),
        forecast.advances().map(Side::name),
        entry.salt,
        new_pseudonym,
        entry.request.as_ref().map(|request| &request.key.0[..]),
        entry.request.as_ref().map(|request| &request.digest[..]),
        now,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| {
        let receipt = entry.receipt(row.pseudonym, 1, row.created_at);
        Saved { id: row.id, created_at: row.created_at, is_new: true, receipt: Some(receipt) }
    }))
}

/// Returns the pseudonyms of users in tournaments that have one.
pub(super) async fn pseudonyms(
    connection: &mut PgConnection,
    shards: &Ranges,
    pairs: &[(UserId, TournamentId)],
) -> sqlx::Result<HashMap<(UserId, TournamentId), Uuid>> {
    let (users, tournaments) = pair_columns(pairs);
    let rows = sqlx::query!(
        r#"select p.user_id as "user: UserId", p.tournament_id as "tournament: TournamentId", p.pseudonym
           from unnest($1::bigint[], $2::bigint[]) as n (user_id, tournament_id)
           join pseudonyms p on p.user_id = n.user_id and p.tournament_id = n.tournament_id
           where ($3::bigint[] is null or p.user_id = any($3))"#,
        &users,
        &tournaments,
        shards.only(&users),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| ((row.user, row.tournament), row.pseudonym)).collect())
}

/// Stores new pseudonyms, and returns those that another transaction has not stored in the meantime. The pairs are
/// sorted, so that transactions insert them in the same order.
pub(super) async fn insert_pseudonyms(
    connection: &mut PgConnection,
    pairs: &[(UserId, TournamentId)],
    new: &[Uuid],
) -> sqlx::Result<HashMap<(UserId, TournamentId), Uuid>> {
    let (users, tournaments) = pair_columns(pairs);
    let rows = sqlx::query!(
        r#"insert into pseudonyms (user_id, tournament_id, pseudonym)
           select user_id, tournament_id, pseudonym
           from unnest($1::bigint[], $2::bigint[], $3::uuid[]) as n (user_id, tournament_id, pseudonym)
           order by user_id, tournament_id
           on conflict (user_id, tournament_id) do nothing
           returning user_id as "user: UserId", tournament_id as "tournament: TournamentId", pseudonym"#,
        &users,
        &tournaments,
        new,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| ((row.user, row.tournament), row.pseudonym)).collect())
}

/// Deletes the pseudonyms of these users in a tournament.
pub(super) async fn delete_pseudonyms(
    connection: &mut PgConnection,
    shards: &Ranges,
    tournament: TournamentId,
    users: &[i64],
) -> sqlx::Result<()> {
    sqlx::query!(
        "delete from pseudonyms
         where tournament_id = $1 and user_id = any($2) and ($3::bigint[] is null or user_id = any($3))",
        tournament.0,
        users,
        shards.only(users),
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn pair_columns(pairs: &[(UserId, TournamentId)]) -> (Vec<i64>, Vec<i64>) {
    pairs.iter().map(|(user, tournament)| (user.0, tournament.0)).unzip()
}

/// Returns the stored predictions with these users and matches, with the receipts of the given revisions. Without a
/// revision, the latest one is meant.
pub(super) async fn find_saved(
    connection: &mut PgConnection,
    shards: &Ranges,
    wanted: &[(UserId, MatchId, Option<i32>)],
) -> sqlx::Result<HashMap<(UserId, MatchId), Saved>> {
    let users: Vec<i64> = wanted.iter().map(|(user, ..)| user.0).collect();
    let events: Vec<i64> = wanted.iter().map(|(_, event, _)| event.0).collect();
    let revisions: Vec<Option<i32>> = wanted.iter().map(|&(.., revision)| revision).collect();
    let rows = receipts!(
        "",
        "from unnest($1::bigint[], $2::bigint[], $3::integer[]) as n (user_id, event_id, revision)
         join predictions p on p.user_id = n.user_id and p.event_id = n.event_id
         join events e on e.id = p.event_id
         left join prediction_revisions l
           on l.user_id = p.user_id and l.event_id = p.event_id and l.revision = n.revision
         left join pseudonyms s on s.user_id = p.user_id and s.tournament_id = e.tournament_id
         where ($4::bigint[] is null or p.user_id = any($4))",
        &users,
        &events,
        &revisions as &[Option<i32>],
        shards.only(&users),
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let receipt = receipt!(row);
            let saved = Saved { id: row.id, created_at: row.created_at, is_new: false, receipt };
            Ok(((row.user_id, row.event_id), saved))
        })
        .collect()
}

/// Returns the receipt of the latest revision of a user's prediction, if the prediction exists and has one.
pub(super) async fn receipt(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: PredictionId,
) -> sqlx::Result<Option<Option<Receipt>>> {
    let row = receipts!(
        "",
        "from predictions p
         join events e on e.id = p.event_id
         left join prediction_revisions l on l.user_id = p.user_id and l.event_id = p.event_id and false
         left join pseudonyms s on s.user_id = p.user_id and s.tournament_id = e.tournament_id
         where p.user_id = $1 and p.id = $2",
        user.0,
        id.0,
    )
    .fetch_optional(executor)
    .await?;
    row.map(|row| Ok(receipt!(row))).transpose()
}

/// Returns the last user of the next `size` predictions of a match after a user; `None` if fewer are left.
pub(super) async fn chunk_end(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    after: i64,
    size: i64,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "select user_id from predictions where event_id = $1 and user_id > $2 order by user_id offset $3::bigint - 1 limit 1",
        event.0,
        after,
        size,
    )
    .fetch_optional(executor)
    .await
}

/// Returns receipts of a match: for each user in `after..=until` (excluding `after`), that of the last revision before the
/// start, in the order of users. A revision that has none yet, or whose account was deleted, is `None`. Each table has the
/// bounds, because the planner does not derive them for outer joins, and would read all earlier users again.
pub(super) async fn counted(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    start_time: OffsetDateTime,
    (after, until): (i64, i64),
) -> sqlx::Result<Vec<(UserId, Option<Receipt>)>> {
    let rows = receipts!(
        "",
        "from events e
         join predictions p on p.event_id = e.id
         left join prediction_revisions l
           on l.user_id = p.user_id
          and l.event_id = case when p.updated_at >= $2 then p.event_id end
          and l.made_at < $2 and l.replaced_at >= $2 and l.event_id = $1 and l.user_id > $3 and l.user_id <= $4
         left join pseudonyms s
           on s.user_id = p.user_id and s.tournament_id = e.tournament_id and s.user_id > $3 and s.user_id <= $4
         where e.id = $1 and p.user_id > $3 and p.user_id <= $4 and (p.updated_at < $2 or l.revision is not null)
         order by p.user_id",
        event.0,
        start_time,
        after,
        until,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(|row| Ok((row.user_id, receipt!(row)))).collect()
}

/// Returns the last revision of a user's prediction that was accepted before a time: `None` if the user has no such
/// prediction, `Some((match, None))` if every revision is later or has no receipt.
pub(super) async fn counted_of(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: PredictionId,
    before: OffsetDateTime,
) -> sqlx::Result<Option<Option<Receipt>>> {
    let row = receipts!(
        r#", p.updated_at < $3 or l.revision is not null as "is_in_time!" "#,
        "from predictions p
         join events e on e.id = p.event_id
         left join prediction_revisions l
           on l.user_id = p.user_id and l.event_id = e.id
          and l.event_id = case when p.updated_at >= $3 then p.event_id end
          and l.made_at < $3 and l.replaced_at >= $3
         left join pseudonyms s on s.user_id = p.user_id and s.tournament_id = e.tournament_id
         where p.user_id = $1 and p.id = $2",
        user.0,
        id.0,
        before,
    )
    .fetch_optional(executor)
    .await?;
    row.map(|row| Ok(if row.is_in_time { receipt!(row) } else { None })).transpose()
}

/// Returns the match of a user's own prediction.
pub(super) async fn match_of(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: PredictionId,
) -> sqlx::Result<Option<MatchId>> {
    sqlx::query_scalar!(
        r#"select event_id as "event: MatchId" from predictions where user_id = $1 and id = $2"#,
        user.0,
        id.0,
    )
    .fetch_optional(executor)
    .await
}

/// Returns users with a prediction of a match that has no salt, in the order of users. Deleted accounts never get one.
pub(super) async fn without_salt(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    after: i64,
    limit: i64,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "select p.user_id from predictions p join users u on u.user_id = p.user_id
         where p.event_id = $1 and p.salt is null and p.user_id > $2 and u.deleted_at is null
         order by p.user_id limit $3",
        event.0,
        after,
        limit,
    )
    .fetch_all(executor)
    .await
}

/// Returns the users among these whose accounts exist, and locks their predictions of a match in the order of users.
pub(super) async fn lock_for_salts(
    connection: &mut PgConnection,
    event: MatchId,
    users: &[i64],
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "select p.user_id from predictions p join users u on u.user_id = p.user_id
         where p.user_id = any($1) and p.event_id = $2 and u.deleted_at is null
         order by p.user_id
         for update of p",
        users,
        event.0,
    )
    .fetch_all(connection)
    .await
}

/// Gives the latest revisions of these users' predictions of a match salts, where they have none.
pub(super) async fn add_salts(
    connection: &mut PgConnection,
    shards: &Ranges,
    event: MatchId,
    users: &[i64],
    salts: &[Uuid],
) -> sqlx::Result<()> {
    sqlx::query!(
        "update predictions p set salt = n.salt
         from unnest($1::bigint[], $2::uuid[]) as n (user_id, salt)
         where p.user_id = n.user_id and p.event_id = $3 and p.salt is null and ($4::bigint[] is null or p.user_id = any($4))",
        users,
        salts,
        event.0,
        shards.only(users),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the earlier revisions of these users' predictions of a match that have no salt.
pub(super) async fn revisions_without_salt(
    connection: &mut PgConnection,
    event: MatchId,
    users: &[i64],
) -> sqlx::Result<Vec<(i64, i32)>> {
    let rows = sqlx::query!(
        "select user_id, revision from prediction_revisions where user_id = any($1) and event_id = $2 and salt is null",
        users,
        event.0,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.revision)).collect())
}

/// Gives earlier revisions of predictions of a match salts.
pub(super) async fn add_salts_to_revisions(
    connection: &mut PgConnection,
    shards: &Ranges,
    event: MatchId,
    revisions: &[(i64, i32)],
    salts: &[Uuid],
) -> sqlx::Result<()> {
    if revisions.is_empty() {
        return Ok(());
    }
    let (users, revisions): (Vec<i64>, Vec<i32>) = revisions.iter().copied().unzip();
    sqlx::query!(
        "update prediction_revisions l set salt = n.salt
         from unnest($1::bigint[], $2::integer[], $3::uuid[]) as n (user_id, revision, salt)
         where l.user_id = n.user_id and l.event_id = $4 and l.revision = n.revision and l.salt is null
           and ($5::bigint[] is null or l.user_id = any($5))",
        &users,
        &revisions,
        salts,
        event.0,
        shards.only(&users),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the tournament of a match.
pub(super) async fn tournament_of(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<Option<TournamentId>> {
    sqlx::query_scalar!(r#"select tournament_id as "id: TournamentId" from events where id = $1"#, event.0)
        .fetch_optional(executor)
        .await
}

/// Returns the receipts of all revisions of a user.
pub(super) async fn receipts_of(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<Receipt>> {
    let rows = receipts!(
        "",
        "from predictions p
         join events e on e.id = p.event_id
         cross join generate_series(1, p.revision) as r (revision)
         left join prediction_revisions l
           on l.user_id = p.user_id and l.event_id = p.event_id and l.revision = r.revision
         left join pseudonyms s on s.user_id = p.user_id and s.tournament_id = e.tournament_id
         where p.user_id = $1 and (l.revision is not null or r.revision = p.revision)
         order by p.event_id, r.revision",
        user.0,
    )
    .fetch_all(executor)
    .await?;
    let receipts: sqlx::Result<Vec<Option<Receipt>>> = rows.into_iter().map(|row| Ok(receipt!(row))).collect();
    Ok(receipts?.into_iter().flatten().collect())
}

/// Returns and locks the predictions that these entries would replace.
pub(super) async fn lock_earlier(
    connection: &mut PgConnection,
    shards: &Ranges,
    entries: &[Entry],
) -> sqlx::Result<Vec<Earlier>> {
    let columns = Columns::of(entries);
    let rows = sqlx::query!(
        r#"select p.user_id as "user_id: UserId", p.event_id as "event_id: MatchId", p.id as "id: PredictionId",
                  p.prediction, p.home_goals, p.away_goals, p.confidence, p.advances, p.joker, p.created_at, p.salt,
                  p.revision, p.updated_at
           from unnest($1::bigint[], $2::bigint[]) as n (user_id, event_id)
           join predictions p on p.user_id = n.user_id and p.event_id = n.event_id
           where ($3::bigint[] is null or p.user_id = any($3))
           order by p.user_id, p.event_id
           for update of p"#,
        &columns.users,
        &columns.events,
        shards.only(&columns.users),
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let forecast = read_forecast(&row.prediction, row.home_goals.zip(row.away_goals), row.confidence)?;
            let forecast = forecast.with_advances(read_side(row.advances.as_deref())?).with_joker(row.joker);
            Ok(Earlier {
                user: row.user_id,
                event: row.event_id,
                id: row.id,
                created_at: row.created_at,
                forecast,
                salt: row.salt,
                revision: row.revision,
                updated_at: row.updated_at,
            })
        })
        .collect()
}

/// Copies predictions that are about to be replaced to `prediction_revisions`.
pub(super) async fn keep_earlier(
    connection: &mut PgConnection,
    shards: &Ranges,
    earlier: &[Earlier],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    if earlier.is_empty() {
        return Ok(());
    }
    let users: Vec<i64> = earlier.iter().map(|earlier| earlier.user.0).collect();
    let events: Vec<i64> = earlier.iter().map(|earlier| earlier.event.0).collect();
    sqlx::query!(
        "insert into prediction_revisions
             (user_id, event_id, revision, prediction, home_goals, away_goals, confidence, advances, joker, salt, made_at,
              replaced_at)
         select p.user_id, p.event_id, p.revision, p.prediction, p.home_goals, p.away_goals, p.confidence, p.advances, p.joker,
                p.salt, p.updated_at, $3
         from unnest($1::bigint[], $2::bigint[]) as n (user_id, event_id)
         join predictions p on p.user_id = n.user_id and p.event_id = n.event_id
         where ($4::bigint[] is null or p.user_id = any($4))",
        &users,
        &events,
        now,
        shards.only(&users),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Replaces the earlier predictions with the new ones.
pub(super) async fn replace(
    connection: &mut PgConnection,
    shards: &Ranges,
    entries: &[Entry],
    earlier: &[Earlier],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    if earlier.is_empty() {
        return Ok(());
    }
    let found: HashSet<_> = earlier.iter().map(Earlier::key).collect();
    let entries: Vec<Entry> = entries.iter().filter(|entry| found.contains(&entry.key())).copied().collect();
    let columns = Columns::of(&entries);
    sqlx::query!(
        "update predictions p
         set prediction = n.prediction, home_goals = n.home_goals, away_goals = n.away_goals, confidence = n.confidence,
             advances = n.advances, joker = n.joker, salt = n.salt, revision = p.revision + 1, updated_at = $7
         from unnest($1::bigint[], $2::bigint[], $3::text[], $4::smallint[], $5::smallint[], $6::smallint[], $9::text[],
                     $10::boolean[], $11::uuid[])
           as n (user_id, event_id, prediction, home_goals, away_goals, confidence, advances, joker, salt)
         where p.user_id = n.user_id and p.event_id = n.event_id and ($8::bigint[] is null or p.user_id = any($8))",
        &columns.users,
        &columns.events,
        &columns.picks as &[&str],
        &columns.home_goals as &[Option<i16>],
        &columns.away_goals as &[Option<i16>],
        &columns.confidences,
        now,
        shards.only(&columns.users),
        &columns.advances as &[Option<&str>],
        &columns.jokers,
        &columns.salts,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the statuses of these matches; unknown matches are missing.
pub(super) async fn statuses(
    connection: &mut PgConnection,
    events: &[MatchId],
) -> sqlx::Result<HashMap<MatchId, Status>> {
    let ids: Vec<i64> = events.iter().map(|event| event.0).collect();
    let found = sqlx::query!(r#"select id as "id: MatchId", status from events where id = any($1)"#, &ids)
        .fetch_all(connection)
        .await?;
    found.into_iter().map(|row| Ok((row.id, read_status(&row.status)?))).collect()
}

/// Adds the changes of a batch to the tallies, in the writer's slot.
pub(super) async fn add_to_tallies(
    connection: &mut PgConnection,
    slot: i16,
    tallies: &HashMap<MatchId, Tally>,
) -> sqlx::Result<()> {
    if tallies.is_empty() {
        return Ok(());
    }
    let mut tallies: Vec<(MatchId, Tally)> = tallies.iter().map(|(&event, &tally)| (event, tally)).collect();
    // Writers that share a slot lock its rows in the same order.
    tallies.sort_unstable_by_key(|&(event, _)| event);
    let column = |read: &dyn Fn(&(MatchId, Tally)) -> i64| tallies.iter().map(read).collect::<Vec<_>>();
    sqlx::query!(
        "insert into event_tallies (event_id, slot, home, draw, away, confidence)
         select event_id, $1, home, draw, away, confidence
         from unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
           as t (event_id, home, draw, away, confidence)
         on conflict (event_id, slot) do update
           set home = event_tallies.home + excluded.home, draw = event_tallies.draw + excluded.draw,
               away = event_tallies.away + excluded.away, confidence = event_tallies.confidence + excluded.confidence",
        slot,
        &column(&|(event, _)| event.0),
        &column(&|(_, tally)| tally.home),
        &column(&|(_, tally)| tally.draw),
        &column(&|(_, tally)| tally.away),
        &column(&|(_, tally)| tally.confidence),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Entries as column arrays for `unnest`.
struct Columns {
    users: Vec<i64>,
    events: Vec<i64>,
    picks: Vec<&'static str>,
    home_goals: Vec<Option<i16>>,
    away_goals: Vec<Option<i16>>,
    confidences: Vec<i16>,
    advances: Vec<Option<&'static str>>,
    jokers: Vec<bool>,
    salts: Vec<Uuid>,
}

impl Columns {
    fn of(entries: &[Entry]) -> Self {
        Self {
            users: entries.iter().map(|entry| entry.user.0).collect(),
            events: entries.iter().map(|entry| entry.event.0).collect(),
            picks: entries.iter().map(|entry| entry.forecast.pick().name()).collect(),
            home_goals: entries.iter().map(|entry| entry.forecast.score().map(Score::home)).collect(),
            away_goals: entries.iter().map(|entry| entry.forecast.score().map(Score::away)).collect(),
            confidences: entries.iter().map(|entry| entry.forecast.confidence().percent()).collect(),
            advances: entries.iter().map(|entry| entry.forecast.advances().map(Side::name)).collect(),
            jokers: entries.iter().map(|entry| entry.forecast.joker()).collect(),
            salts: entries.iter().map(|entry| entry.salt).collect(),
        }
    }
}

/// Parses a stored forecast.
fn read_forecast(pick: &str, goals: Option<(i16, i16)>, confidence: i16) -> sqlx::Result<Forecast> {
    let pick = pick.parse::<Pick>().map_err(|error| sqlx::Error::Decode(error.into()))?;
    let score = goals.and_then(|(home, away)| Score::new(home.into(), away.into()));
    Confidence::new(confidence.into())
        .and_then(|confidence| Forecast::new(pick, score, confidence))
        .ok_or_else(|| sqlx::Error::Decode("a stored prediction is invalid".into()))
}

/// Selects predictions with the content that counts at the start of the match, or, if a prediction was made later, with
/// its latest content and `is_in_time` false. The view `result_points` explains the join. Takes additional columns, the
/// rest of the statement, which can add conditions of the outer join, and its parameters; `stored!` turns each row into a
/// [`Stored`]. This is a macro because checked queries accept only literals.
macro_rules! predictions {
    ($columns:tt, $rest:tt, $($value:expr),+ $(,)?) => {
        sqlx::query!(
            r#"select p.id as "id!: PredictionId", p.user_id as "user_id!: UserId", e.id as "event_id!: MatchId",
                      case when l.revision is null then p.prediction else l.prediction end as "prediction!",
                      case when l.revision is null then p.home_goals else l.home_goals end as home_goals,
                      case when l.revision is null then p.away_goals else l.away_goals end as away_goals,
                      case when l.revision is null then p.confidence else l.confidence end as "confidence!",
                      case when l.revision is null then p.advances else l.advances end as advances,
                      case when l.revision is null then p.joker else l.joker end as "joker!",
                      p.created_at as "created_at!",
                      case when l.revision is null then p.updated_at else l.made_at end as "updated_at!",
                      p.updated_at < e.start_time or l.revision is not null as "is_in_time!",
                      e.status as "status!", e.home_score, e.away_score, e.advanced,
                      e.rule_set_id as "rule_set_id!: RuleSetId", e.multiplier as "multiplier!",
                      e.is_knockout as "is_knockout!", s.outcome as "outcome!", s.difference as "difference!",
                      s.exact as "exact!", s.margin_within, s.margin_points, s.stake as "stake!",
                      s.advances as "advances_points!""#
                + $columns
                + " from events e join rule_sets s on s.id = e.rule_set_id join predictions p on p.event_id = e.id
                    left join prediction_revisions l
                      on l.user_id = p.user_id and l.event_id = e.id
                     and l.event_id = case when p.updated_at >= e.start_time then p.event_id end
                     and l.made_at < e.start_time and l.replaced_at >= e.start_time "
                + $rest,
            $($value),+
        )
    };
}

/// Collects the columns that every `predictions!` query returns.
macro_rules! stored {
    ($row:ident) => {
        Stored {
            id: $row.id,
            user_id: $row.user_id,
            event_id: $row.event_id,
            prediction: $row.prediction,
            goals: $row.home_goals.zip($row.away_goals),
            confidence: $row.confidence,
            advances: $row.advances,
            joker: $row.joker,
            created_at: $row.created_at,
            updated_at: $row.updated_at,
            is_in_time: $row.is_in_time,
            status: $row.status,
            scores: $row.home_score.zip($row.away_score),
            advanced: $row.advanced,
            rule_set_id: $row.rule_set_id,
            rules: [$row.outcome, $row.difference, $row.exact, $row.stake, $row.advances_points],
            margin: $row.margin_within.zip($row.margin_points),
            multiplier: $row.multiplier,
            is_knockout: $row.is_knockout,
        }
    };
}

/// A prediction row with unparsed values.
struct Stored {
    id: PredictionId,
    user_id: UserId,
    event_id: MatchId,
    prediction: String,
    goals: Option<(i16, i16)>,
    confidence: i16,
    advances: Option<String>,
    joker: bool,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    is_in_time: bool,
    status: String,
    scores: Option<(i32, i32)>,
    advanced: Option<String>,
    rule_set_id: RuleSetId,
    /// See [`read_rules`].
    rules: [i32; 5],
    margin: Option<(i32, i32)>,
    multiplier: i16,
    is_knockout: bool,
}

impl TryFrom<Stored> for Prediction {
    type Error = sqlx::Error;

    fn try_from(stored: Stored) -> Result<Self, sqlx::Error> {
        let status = read_status(&stored.status)?;
        let forecast = read_forecast(&stored.prediction, stored.goals, stored.confidence)?;
        Ok(Self {
            id: stored.id,
            user_id: stored.user_id,
            event_id: stored.event_id,
            forecast: forecast.with_advances(read_side(stored.advances.as_deref())?).with_joker(stored.joker),
            created_at: stored.created_at,
            updated_at: stored.updated_at,
            is_in_time: stored.is_in_time,
            rule_set_id: stored.rule_set_id,
            terms: Terms {
                rules: read_rules(stored.rules, stored.margin)?,
                multiplier: read_multiplier(stored.multiplier)?,
                is_knockout: stored.is_knockout,
            },
            outcome: status.outcome(stored.scores, read_side(stored.advanced.as_deref())?),
        })
    }
}

fn read_status(name: &str) -> sqlx::Result<Status> {
    name.parse().map_err(|error: UnknownStatus| sqlx::Error::Decode(error.into()))
}

/// Returns the users whom this user has blocked.
pub(super) async fn blocked(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!("select blocked_id from blocks where user_id = $1", user.0).fetch_all(executor).await
}

/// Whether predictions for a match can still be copied: it accepts predictions, or it is postponed.
pub(super) async fn can_be_copied(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let can_be_copied = sqlx::query_scalar!(
        r#"select e.status = 'postponed' or accepts_predictions(e.status, e.start_time, $2) as "can_be_copied!"
           from events e where e.id = $1"#,
        event.0,
        now,
    )
    .fetch_optional(executor)
    .await?;
    Ok(can_be_copied.unwrap_or_default())
}

/// Takes the user of a prediction from a row.
macro_rules! person {
    ($row:ident) => {
        Person {
            id: $row.user_id,
            username: $row.username.clone(),
            name: $row.name.clone(),
            shows_name: $row.shows_name,
            avatar: $row.avatar.clone(),
        }
    };
}

/// Returns predictions of a match by users in `after..=until` (excluding `after`), sorted by user. Excludes `blocked` users.
/// Each table has the bounds, as in [`counted`]. Without an upper bound, some plans would read all later predictions. The
/// blocked users are a subquery, which is hashed: a list would be searched for each prediction.
pub(super) async fn list(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    blocked: &[i64],
    pick: Option<Pick>,
    (after, until): (i64, i64),
    limit: i64,
) -> sqlx::Result<Vec<Listed>> {
    let rows = predictions!(
        r#", u.username as "username!", u.name, u.shows_name as "shows_name!", u.avatar_key as "avatar?: AvatarKey""#,
        "and l.user_id > $2 and l.user_id <= $6
         join users u on u.user_id = p.user_id and u.user_id > $2 and u.user_id <= $6
         where e.id = $1
           and p.user_id > $2 and p.user_id <= $6
           and ($3::text is null or case when l.revision is null then p.prediction else l.prediction end = $3)
           and p.user_id not in (select b.blocked from unnest($4::bigint[]) as b (blocked))
         order by p.user_id
         limit $5",
        event.0,
        after,
        pick.map(Pick::name),
        blocked,
        limit,
        until,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter()
        .map(|row| {
            let person = person!(row);
            Ok(Listed { prediction: stored!(row).try_into()?, person })
        })
        .collect()
}

/// Like [`list`], for some users.
pub(super) async fn list_of_users(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    users: &[i64],
    blocked: &[i64],
    pick: Option<Pick>,
    limit: i64,
) -> sqlx::Result<Vec<Listed>> {
    let rows = predictions!(
        r#", u.username as "username!", u.name, u.shows_name as "shows_name!", u.avatar_key as "avatar?: AvatarKey""#,
        "join users u on u.user_id = p.user_id
         where e.id = $1
           and p.user_id = any($2)
           and ($3::text is null or case when l.revision is null then p.prediction else l.prediction end = $3)
           and p.user_id not in (select b.blocked from unnest($4::bigint[]) as b (blocked))
         order by p.user_id
         limit $5",
        event.0,
        users,
        pick.map(Pick::name),
        blocked,
        limit,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter()
        .map(|row| {
            let person = person!(row);
            Ok(Listed { prediction: stored!(row).try_into()?, person })
        })
        .collect()
}

/// Returns at most `most` users with a prediction for the match, sorted by id, that follow `after`.
pub(super) async fn predictors_after(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    after: i64,
    most: i64,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "select user_id from predictions where event_id = $1 and user_id > $2 order by user_id limit $3",
        event.0,
        after,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Returns one user's prediction for a match, if it passes the filter. This is separate from [`list`], because
/// PostgreSQL reads the row directly only if the query always names a user.
pub(super) async fn list_of_user(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    user: UserId,
    room: Option<RoomView>,
    pick: Option<Pick>,
) -> sqlx::Result<Option<Listed>> {
    let row = predictions!(
        r#", u.username as "username!", u.name, u.shows_name as "shows_name!", u.avatar_key as "avatar?: AvatarKey""#,
        "join users u on u.user_id = p.user_id
         where p.user_id = $1 and e.id = $2
           and ($3::text is null or case when l.revision is null then p.prediction else l.prediction end = $3)
           and ($4::bigint is null or exists (
             select 1 from room_members m join rooms r on r.id = m.room_id
             where m.user_id = p.user_id and m.membership = 'join'
               and (r.id = $4 or ($5 and r.event_id = $2 and r.stand is not null))))",
        user.0,
        event.0,
        pick.map(Pick::name),
        room.map(|room| room.id.0),
        room.is_some_and(|room| room.with_all_stands),
    )
    .fetch_optional(executor)
    .await?;
    row.map(|row| {
        let person = person!(row);
        Ok(Listed { prediction: stored!(row).try_into()?, person })
    })
    .transpose()
}

/// Returns the summary of a match's predictions from its tallies.
pub(super) async fn summary(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<Option<Summary>> {
    sqlx::query_as!(
        Summary,
        r#"select coalesce(sum(t.home), 0)::bigint as "home!",
                  coalesce(sum(t.draw), 0)::bigint as "draw!",
                  coalesce(sum(t.away), 0)::bigint as "away!",
                  coalesce(sum(t.confidence) / nullif(sum(t.home + t.draw + t.away), 0), 0)::double precision
                    as "average_confidence!"
           from events e left join event_tallies t on t.event_id = e.id
           where e.id = $1
           group by e.id"#,
        event.0,
    )
    .fetch_optional(executor)
    .await
}

/// Returns the rules of a match for predictions; `None` if the match does not exist.
pub(super) async fn terms_of(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<Option<EventTerms>> {
    let row = sqlx::query!(
        r#"select e.tournament_id as "tournament: TournamentId", e.rule_set_id as "rule_set_id: RuleSetId", e.multiplier,
                  e.is_knockout, s.draws_allowed, s.max_score, r.outcome, r.difference, r.exact, r.margin_within,
                  r.margin_points, r.stake, r.advances, r.jokers
           from events e
           join tournaments t on t.id = e.tournament_id
           join sports s on s.id = t.sport_id
           join rule_sets r on r.id = e.rule_set_id
           where e.id = $1"#,
        event.0,
    )
    .fetch_optional(executor)
    .await?;
    row.map(|row| {
        let values = [row.outcome, row.difference, row.exact, row.stake, row.advances];
        Ok(EventTerms {
            rule_set_id: row.rule_set_id,
            terms: Terms {
                rules: read_rules(values, row.margin_within.zip(row.margin_points))?,
                multiplier: read_multiplier(row.multiplier)?,
                is_knockout: row.is_knockout,
            },
            conditions: Conditions {
                tournament: row.tournament,
                draws_allowed: row.draws_allowed,
                max_score: row.max_score,
                is_knockout: row.is_knockout,
                jokers: row.jokers,
            },
        })
    })
    .transpose()
}

/// Returns a user's own predictions after the cursor, newest first: all, those of matches that are open at a time, or
/// those of finished matches. A user has few rows, stored close together, so they are sorted on read. They are sorted by
/// time: connections allocate ids in advance, so a later prediction can have a lower id.
pub(super) async fn own(
    executor: impl PgExecutor<'_>,
    user: UserId,
    open_at: Option<OffsetDateTime>,
    is_settled: bool,
    after: Option<Cursor>,
    limit: i64,
) -> sqlx::Result<Vec<Own>> {
    let rows = predictions!(
        r#", e.start_time as "start_time!", h.name as "home_team!", a.name as "away_team!""#,
        "join teams h on h.id = e.home_team_id
         join teams a on a.id = e.away_team_id
         where p.user_id = $1
           and ($2::bigint is null or (p.created_at, p.id) <
                (select c.created_at, c.id from predictions c where c.user_id = $1 and c.id = $2))
           and ($3::timestamptz is null or accepts_predictions(e.status, e.start_time, $3))
           and (not $4 or e.status = 'finished')
         order by p.created_at desc, p.id desc
         limit $5",
        user.0,
        after.map(Cursor::id),
        open_at,
        is_settled,
        limit,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter()
        .map(|row| {
            let event = PredictedEvent {
                home_team: row.home_team,
                away_team: row.away_team,
                start_time: row.start_time,
                status: read_status(&row.status)?,
                home_score: row.home_score,
                away_score: row.away_score,
            };
            Ok(Own { prediction: stored!(row).try_into()?, event })
        })
        .collect()
}

/// Returns one of a user's own predictions.
pub(super) async fn find_own(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: PredictionId,
) -> sqlx::Result<Option<Prediction>> {
    let row = predictions!("", "where p.user_id = $1 and p.id = $2", user.0, id.0).fetch_optional(executor).await?;
    row.map(|row| stored!(row).try_into()).transpose()
}

/// Returns the predictions of these users for a match.
pub(super) async fn of_users(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    users: &[UserId],
) -> sqlx::Result<Vec<Prediction>> {
    let users: Vec<i64> = users.iter().map(|user| user.0).collect();
    let rows = predictions!("", "where p.user_id = any($1) and e.id = $2", &users, event.0).fetch_all(executor).await?;
    rows.into_iter().map(|row| stored!(row).try_into()).collect()
}

/// Returns a user's predictions for matches with a result.
pub(super) async fn settled(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<Prediction>> {
    let rows = predictions!("", "where p.user_id = $1 and e.status = 'finished'", user.0).fetch_all(executor).await?;
    rows.into_iter().map(|row| stored!(row).try_into()).collect()
}

pub(super) async fn count(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from predictions where user_id = $1"#, user.0)
        .fetch_one(executor)
        .await
}
