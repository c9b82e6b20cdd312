//! SQL queries for seals.

use futures_util::{TryStreamExt as _, stream::BoxStream};
use platform::database;
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::{MatchId, RuleSetId, TournamentId};

use super::{
    bundle::{BundledMatch, ResultLine, Row as TableRow},
    rules::{Seal, Tile, Token},
    service::ChainHead,
};
use crate::{
    catalogue::{
        matches::{
            columns::read_side,
            rules::{Status, UnknownStatus},
        },
        rule_sets::columns::read_multiplier,
    },
    game::predictions::receipts::Hash,
};

/// A match that is closed and must be sealed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) event: MatchId,
    /// Number of predictions, including late ones.
    pub(super) predictions: i64,
}

/// Returns the matches that are closed at a time and not sealed, those with the fewest predictions first.
pub(super) async fn due(executor: impl PgExecutor<'_>, now: OffsetDateTime) -> sqlx::Result<Vec<Due>> {
    sqlx::query_as!(
        Due,
        r#"select e.id as "event: MatchId", coalesce(sum(t.home + t.draw + t.away), 0)::bigint as "predictions!"
           from events e left join event_tallies t on t.event_id = e.id
           where e.seal_due and (e.status in ('live', 'suspended', 'finished', 'abandoned', 'awarded')
                                 or (e.status = 'scheduled' and e.start_time <= $1))
           group by e.id
           order by 2, 1"#,
        now,
    )
    .fetch_all(executor)
    .await
}

/// Marks open matches that must be sealed when they close. Imports do this; those of processes of the previous version do
/// not.
pub(super) async fn mark_open(executor: impl PgExecutor<'_>, now: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!(
        "update events set opened_at = $1, seal_due = true
         where not seal_due and start_time > $1 and accepts_predictions(status, start_time, $1)",
        now,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Returns the matches that may still be predicted.
pub(super) async fn open(executor: impl PgExecutor<'_>, now: OffsetDateTime) -> sqlx::Result<Vec<MatchId>> {
    sqlx::query_scalar!(
        r#"select id as "id: MatchId" from events
           where seal_due and status in ('scheduled', 'postponed') and (status = 'postponed' or start_time > $1)"#,
        now,
    )
    .fetch_all(executor)
    .await
}

/// State of a match that a seal depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) tournament: TournamentId,
    pub(super) status: Status,
    pub(super) start_time: OffsetDateTime,
    /// Time at which the match last began to accept predictions.
    pub(super) opened_at: OffsetDateTime,
    /// Last seal of the match.
    pub(super) last: Option<LastSeal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastSeal {
    pub(super) event_sequence: i32,
    pub(super) count: i64,
    pub(super) root: Hash,
    pub(super) sealed_at: OffsetDateTime,
}

/// Returns a match that must be sealed once it is closed.
pub(super) async fn target(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<Option<Target>> {
    let row = sqlx::query!(
        r#"select e.tournament_id as "tournament: TournamentId", e.status, e.start_time, e.opened_at as "opened_at!"
           from events e where e.id = $1 and e.seal_due and e.opened_at is not null"#,
        event.0,
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let last = sqlx::query!(
        "select event_sequence, count, root, sealed_at from seals
         where event_id = $1 order by event_sequence desc limit 1",
        event.0,
    )
    .fetch_optional(connection)
    .await?;
    let last = last.map(|last| {
        let root = Hash::read(&last.root)?;
        Ok::<_, sqlx::Error>(LastSeal {
            event_sequence: last.event_sequence,
            count: last.count,
            root,
            sealed_at: last.sealed_at,
        })
    });
    Ok(Some(Target {
        tournament: row.tournament,
        status: row.status.parse().map_err(|error: UnknownStatus| sqlx::Error::Decode(error.into()))?,
        start_time: row.start_time,
        opened_at: row.opened_at,
        last: last.transpose()?,
    }))
}

/// Notes that a match is sealed, unless it changed since it was read. Returns whether it did so. The row stays locked, so
/// the match cannot open again before the transaction ends.
pub(super) async fn set_sealed(connection: &mut PgConnection, event: MatchId, target: &Target) -> sqlx::Result<bool> {
    let now = database::now(&mut *connection).await?;
    let done = sqlx::query!(
        "update events set seal_due = false
         where id = $1 and seal_due and start_time = $2 and opened_at = $3
           and (status in ('live', 'suspended', 'finished', 'abandoned', 'awarded')
                or (status = 'scheduled' and start_time <= $4))",
        event.0,
        target.start_time,
        target.opened_at,
        now,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Locks the end of the chain. Returns the sequence and hash of the newest seal, and the time after the lock was taken.
pub(super) async fn lock_chain(connection: &mut PgConnection) -> sqlx::Result<((i64, Hash), OffsetDateTime)> {
    let row = sqlx::query!("select sequence, hash from seal_chain for update").fetch_one(&mut *connection).await?;
    Ok(((row.sequence, Hash::read(&row.hash)?), database::now(connection).await?))
}

/// Appends a seal to the chain, whose end is locked.
pub(super) async fn insert(connection: &mut PgConnection, seal: &Seal) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into seals (sequence, version, event_id, event_sequence, count, root, start_time, sealed_at, previous, hash)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        seal.sequence,
        i16::from(seal.version),
        seal.event_id.0,
        seal.event_sequence,
        seal.count,
        &seal.root.0[..],
        seal.start_time,
        seal.sealed_at,
        &seal.previous.0[..],
        &seal.hash.0[..],
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!("update seal_chain set sequence = $1, hash = $2", seal.sequence, &seal.hash.0[..])
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn insert_tiles(
    connection: &mut PgConnection,
    event: MatchId,
    event_sequence: i32,
    tiles: &[Tile],
) -> sqlx::Result<()> {
    if tiles.is_empty() {
        return Ok(());
    }
    let levels: Vec<i16> = tiles.iter().map(|tile| tile.level).collect();
    let numbers: Vec<i32> = tiles.iter().map(|tile| tile.number).collect();
    let firsts: Vec<Vec<u8>> =
        tiles.iter().map(|tile| tile.hashes.first().map(|hash| hash.0.to_vec()).unwrap_or_default()).collect();
    let hashes: Vec<Vec<u8>> = tiles.iter().map(|tile| tile.hashes.iter().flat_map(|hash| hash.0).collect()).collect();
    sqlx::query!(
        "insert into seal_tiles (event_id, event_sequence, level, tile, first, hashes)
         select $1, $2, level, tile, first, hashes
         from unnest($3::smallint[], $4::integer[], $5::bytea[], $6::bytea[]) as t (level, tile, first, hashes)",
        event.0,
        event_sequence,
        &levels,
        &numbers,
        &firsts,
        &hashes,
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn read_hashes(bytes: &[u8]) -> sqlx::Result<Vec<Hash>> {
    bytes.chunks(32).map(Hash::read).collect()
}

/// Returns the tile of level 0 that would contain a leaf, and its number.
pub(super) async fn leaf_tile(
    executor: impl PgExecutor<'_>,
    seal: &Seal,
    leaf: Hash,
) -> sqlx::Result<Option<(i32, Vec<Hash>)>> {
    let row = sqlx::query!(
        "select tile, hashes from seal_tiles
         where event_id = $1 and event_sequence = $2 and level = 0 and first <= $3
         order by first desc limit 1",
        seal.event_id.0,
        seal.event_sequence,
        &leaf.0[..],
    )
    .fetch_optional(executor)
    .await?;
    row.map(|row| Ok((row.tile, read_hashes(&row.hashes)?))).transpose()
}

/// Returns tiles above level 0, given as (level, number), in the order of levels.
pub(super) async fn upper_tiles(
    executor: impl PgExecutor<'_>,
    seal: &Seal,
    levels: &[i16],
    numbers: &[i32],
) -> sqlx::Result<Vec<Vec<Hash>>> {
    let rows = sqlx::query_scalar!(
        "select t.hashes from unnest($3::smallint[], $4::integer[]) as n (level, tile)
         join seal_tiles t on t.level = n.level and t.tile = n.tile
         where t.event_id = $1 and t.event_sequence = $2
         order by t.level",
        seal.event_id.0,
        seal.event_sequence,
        levels,
        numbers,
    )
    .fetch_all(executor)
    .await?;
    rows.iter().map(|bytes| read_hashes(bytes)).collect()
}

/// Returns a tile of level 0.
pub(super) async fn tile(executor: impl PgExecutor<'_>, seal: &Seal, number: i32) -> sqlx::Result<Option<Vec<Hash>>> {
    let row = sqlx::query_scalar!(
        "select hashes from seal_tiles where event_id = $1 and event_sequence = $2 and level = 0 and tile = $3",
        seal.event_id.0,
        seal.event_sequence,
        number,
    )
    .fetch_optional(executor)
    .await?;
    row.map(|bytes| read_hashes(&bytes)).transpose()
}

/// A row of `seals`, with its token.
struct Row {
    sequence: i64,
    version: i16,
    event_id: MatchId,
    event_sequence: i32,
    count: i64,
    root: Vec<u8>,
    start_time: OffsetDateTime,
    sealed_at: OffsetDateTime,
    previous: Vec<u8>,
    hash: Vec<u8>,
    token: Option<Vec<u8>>,
}

impl TryFrom<Row> for Seal {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            sequence: row.sequence,
            version: u8::try_from(row.version).map_err(|error| sqlx::Error::Decode(error.into()))?,
            event_id: row.event_id,
            event_sequence: row.event_sequence,
            count: row.count,
            root: Hash::read(&row.root)?,
            start_time: row.start_time,
            sealed_at: row.sealed_at,
            previous: Hash::read(&row.previous)?,
            hash: Hash::read(&row.hash)?,
            timestamp_token: row.token.as_deref().map(Token::of),
        })
    }
}

/// Selects seals; a macro because checked queries accept only literals.
macro_rules! seals {
    ($rest:tt, $($value:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"select s.sequence, s.version, s.event_id as "event_id: MatchId", s.event_sequence, s.count, s.root,
                      s.start_time, s.sealed_at, s.previous, s.hash, t.token as "token?"
               from seals s left join seal_timestamps t on t.sequence = s.sequence "# + $rest,
            $($value),*
        )
    };
}

/// Returns at most `limit` seals after a sequence, of one match or of all.
pub(super) async fn list(
    executor: impl PgExecutor<'_>,
    event: Option<MatchId>,
    after: i64,
    limit: i64,
) -> sqlx::Result<Vec<Seal>> {
    let rows = match event {
        Some(event) => {
            seals!(
                "where s.event_id = $1 and s.sequence > $2 order by s.event_sequence limit $3",
                event.0,
                after,
                limit
            )
            .fetch_all(executor)
            .await?
        }
        None => seals!("where s.sequence > $1 order by s.sequence limit $2", after, limit).fetch_all(executor).await?,
    };
    rows.into_iter().map(Seal::try_from).collect()
}

pub(super) async fn find(executor: impl PgExecutor<'_>, sequence: i64) -> sqlx::Result<Option<Seal>> {
    seals!("where s.sequence = $1", sequence).fetch_optional(executor).await?.map(Seal::try_from).transpose()
}

/// Returns the seal of a match that counts.
pub(super) async fn latest(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<Option<Seal>> {
    let row = seals!("where s.event_id = $1 order by s.event_sequence desc limit 1", event.0);
    row.fetch_optional(executor).await?.map(Seal::try_from).transpose()
}

/// Returns the newest seal; `None` without seals.
pub(super) async fn head(executor: impl PgExecutor<'_>) -> sqlx::Result<Option<ChainHead>> {
    let row = sqlx::query!("select sequence, hash from seals order by sequence desc limit 1");
    let head = row.fetch_optional(executor).await?;
    head.map(|row| Ok(ChainHead { sequence: row.sequence, hash: Hash::read(&row.hash)? })).transpose()
}

/// Returns seals without a time-stamp token, the newest first: its token also covers the earlier ones.
pub(super) async fn without_token(executor: impl PgExecutor<'_>, limit: i64) -> sqlx::Result<Vec<(i64, Hash)>> {
    let rows = sqlx::query!(
        "select s.sequence, s.hash from seals s
         where not exists (select 1 from seal_timestamps t where t.sequence = s.sequence)
         order by s.sequence desc limit $1",
        limit,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(|row| Ok((row.sequence, Hash::read(&row.hash)?))).collect()
}

/// Stores a time-stamp token, unless the seal has one.
pub(super) async fn insert_token(
    executor: impl PgExecutor<'_>,
    sequence: i64,
    token: &[u8],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into seal_timestamps (sequence, token, created_at) values ($1, $2, $3) on conflict (sequence) do nothing",
        sequence,
        token,
        now,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Allows a transaction to pause between its statements, while the next part of a very large match is read. It has only
/// inserted rows that no other transaction waits for.
pub(super) async fn allow_pauses(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!("set local idle_in_transaction_session_timeout = '15min'").execute(connection).await?;
    Ok(())
}

/// Allows statements of any duration, because no request waits for this transaction.
pub(super) async fn lift_statement_timeout(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!("set local statement_timeout = 0").execute(connection).await?;
    Ok(())
}

/// Returns the id and slug of a tournament, given by either.
pub(super) async fn tournament(
    connection: &mut PgConnection,
    slug_or_id: &str,
) -> sqlx::Result<Option<(TournamentId, String)>> {
    let row = sqlx::query!(
        r#"select id as "id: TournamentId", slug from tournaments where slug = $1 or id::text = $1
           order by slug = $1 desc limit 1"#,
        slug_or_id,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| (row.id, row.slug)))
}

/// Returns the sealed matches of a tournament that do not accept predictions, with all their results. Matches that
/// reopened and closed, and that have not been sealed again yet, are left out.
pub(super) async fn bundled_matches(
    connection: &mut PgConnection,
    tournament: TournamentId,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<BundledMatch>> {
    let rows = sqlx::query!(
        r#"select e.id as "event_id: MatchId", e.rule_set_id as "rule_set_id: RuleSetId", e.multiplier, e.is_knockout,
                  e.start_time
           from events e
           where e.tournament_id = $1 and not accepts_predictions(e.status, e.start_time, $2) and e.status <> 'postponed'
             and not e.seal_due and exists (select 1 from seals s where s.event_id = e.id)
           order by e.id"#,
        tournament.0,
        now,
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut matches = Vec::with_capacity(rows.len());
    for row in rows {
        matches.push(BundledMatch {
            event_id: row.event_id,
            rule_set_id: row.rule_set_id,
            multiplier: read_multiplier(row.multiplier)?,
            is_knockout: row.is_knockout,
            start_time: row.start_time,
            results: results(connection, row.event_id).await?,
        });
    }
    Ok(matches)
}

async fn results(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<Vec<ResultLine>> {
    // Results that were recorded before their status was stored: with a score the match was finished.
    let rows = sqlx::query!(
        r#"select revision, coalesce(status, case when home_score is null then 'cancelled' else 'finished' end) as "status!",
                  home_score, away_score, advanced, recorded_at
           from event_results where event_id = $1 order by revision"#,
        event.0,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(ResultLine {
                revision: row.revision,
                status: row.status.parse().map_err(|error: UnknownStatus| sqlx::Error::Decode(error.into()))?,
                home_score: row.home_score,
                away_score: row.away_score,
                advanced: read_side(row.advanced.as_deref())?,
                recorded_at: row.recorded_at,
            })
        })
        .collect()
}

/// Returns all seals of these matches, in the order of the chain.
pub(super) async fn of_matches(connection: &mut PgConnection, events: &[i64]) -> sqlx::Result<Vec<Seal>> {
    let rows = seals!("where s.event_id = any($1) order by s.sequence", events).fetch_all(connection).await?;
    rows.into_iter().map(Seal::try_from).collect()
}

/// Returns the table of a tournament for these matches: points of the last result of each, best first.
pub(super) fn rows<'c>(
    connection: &'c mut PgConnection,
    tournament: TournamentId,
    matches: &[BundledMatch],
) -> BoxStream<'c, sqlx::Result<TableRow>> {
    let events: Vec<i64> = matches.iter().map(|one| one.event_id.0).collect();
    let rows = sqlx::query!(
        r#"select s.pseudonym, sum(r.points)::bigint as "points!", sum(r.correct)::bigint as "correct!",
                  sum(r.exact)::bigint as "exact!"
           from events e
           join result_points r on r.event_id = e.id and r.revision = e.result_revision
           join pseudonyms s on s.user_id = r.user_id and s.tournament_id = $1
           where e.id = any($2)
           group by r.user_id, s.pseudonym
           order by 2 desc, 1"#,
        tournament.0,
        &events as &[i64],
    )
    .fetch(connection);
    Box::pin(rows.map_ok(|row| TableRow {
        pseudonym: hex::encode(row.pseudonym.as_bytes()),
        points: row.points,
        correct: row.correct,
        exact: row.exact,
    }))
}
