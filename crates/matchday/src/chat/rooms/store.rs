use std::collections::{BTreeMap, HashMap, HashSet};

use platform::database;
use sqlx::{PgConnection, PgExecutor, PgPool};
use time::OffsetDateTime;
use web::{
    fields::Search,
    ids::{LeagueId, MatchId, RoomId, TournamentId, UserId},
    paging::Paging,
};

use super::{
    service::{ListedRoom, Room, RoomFilter, RoomSummary},
    statistics::{Predictor, Size},
};
use crate::chat::membership_sync::Membership;

/// A room to insert.
#[derive(Clone, Debug)]
pub(super) struct NewRow<'a> {
    pub(super) alias: &'a str,
    pub(super) name: &'a str,
    pub(super) topic: &'a str,
    pub(super) event_id: Option<MatchId>,
    pub(super) stand: Option<i32>,
    pub(super) creator_id: Option<UserId>,
    pub(super) is_private: bool,
    pub(super) league_id: Option<LeagueId>,
}

/// Inserts rooms; skips rooms whose alias, stand or league has one already. A process must claim a room before it creates the
/// room on the homeserver, unless the room is inserted with a claim until `made_until`.
pub(super) async fn insert(
    connection: &mut PgConnection,
    rooms: &[NewRow<'_>],
    now: OffsetDateTime,
    made_until: OffsetDateTime,
) -> sqlx::Result<Vec<Room>> {
    let aliases: Vec<&str> = rooms.iter().map(|room| room.alias).collect();
    let names: Vec<&str> = rooms.iter().map(|room| room.name).collect();
    let topics: Vec<&str> = rooms.iter().map(|room| room.topic).collect();
    let events: Vec<Option<i64>> = rooms.iter().map(|room| room.event_id.map(|id| id.0)).collect();
    let stands: Vec<Option<i32>> = rooms.iter().map(|room| room.stand).collect();
    let creators: Vec<Option<i64>> = rooms.iter().map(|room| room.creator_id.map(|id| id.0)).collect();
    let private: Vec<bool> = rooms.iter().map(|room| room.is_private).collect();
    let leagues: Vec<Option<i64>> = rooms.iter().map(|room| room.league_id.map(|id| id.0)).collect();
    let made = sqlx::query_as!(
        Room,
        r#"insert into rooms (alias, name, topic, event_id, stand, creator_id, is_private, league_id, created_at, made_until)
           select alias, name, topic, event_id, stand, creator_id, is_private, league_id, $9, $10
           from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::integer[], $6::bigint[], $7::boolean[],
                       $8::bigint[])
             as r (alias, name, topic, event_id, stand, creator_id, is_private, league_id)
           on conflict do nothing
           returning id as "id: RoomId", matrix_id, alias, name, topic, event_id as "event_id: MatchId", stand,
                     creator_id as "creator_id: UserId", is_private, created_at, opened_at, half_made_at,
                  slow_mode_seconds, league_id as "league_id: LeagueId""#,
        &aliases as &[&str],
        &names as &[&str],
        &topics as &[&str],
        &events as &[Option<i64>],
        &stands as &[Option<i32>],
        &creators as &[Option<i64>],
        &private,
        &leagues as &[Option<i64>],
        now,
        made_until,
    )
    .fetch_all(&mut *connection)
    .await?;
    let ids: Vec<i64> = made.iter().map(|room| room.id.0).collect();
    sqlx::query!(
        "insert into room_activity (room_id, last_activity, compared_at) select unnest($1::bigint[]), $2, $2",
        &ids,
        now,
    )
    .execute(connection)
    .await?;
    Ok(made)
}

/// Finds an identical room requested by the same user, if its creation is not finished or it opened since
/// `opened_since`.
pub(super) async fn same_wish(
    connection: &mut PgConnection,
    like: &NewRow<'_>,
    opened_since: OffsetDateTime,
) -> sqlx::Result<Option<RoomId>> {
    sqlx::query_scalar!(
        r#"select id as "id: RoomId" from rooms
           where creator_id = $1 and name = $2 and topic = $3 and event_id is not distinct from $4 and is_private = $5
             and league_id is null and discarded_at is null and (opened_at is null or opened_at > $6)
           order by id desc limit 1"#,
        like.creator_id.map(|id| id.0),
        like.name,
        like.topic,
        like.event_id.map(|id| id.0),
        like.is_private,
        opened_since,
    )
    .fetch_optional(connection)
    .await
}

/// Number of rooms that a user has created as a fan.
pub(super) async fn count_of_creator(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from rooms
           where creator_id = $1 and league_id is null and discarded_at is null"#,
        user.0,
    )
    .fetch_one(executor)
    .await
}

/// Returns the room of a league, also if it is not open.
pub(super) async fn of_league(executor: impl PgExecutor<'_>, league: LeagueId) -> sqlx::Result<Option<Room>> {
    sqlx::query_as!(
        Room,
        r#"select id as "id: RoomId", matrix_id, alias, name, topic, event_id as "event_id: MatchId", stand,
                  creator_id as "creator_id: UserId", is_private, created_at, opened_at, half_made_at,
                  slow_mode_seconds, league_id as "league_id: LeagueId"
           from rooms where league_id = $1"#,
        league.0,
    )
    .fetch_optional(executor)
    .await
}

/// Whether a user is a member of a league.
pub(super) async fn is_in_league(executor: impl PgExecutor<'_>, league: LeagueId, user: UserId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from league_members where user_id = $1 and league_id = $2) as "is_member!""#,
        user.0,
        league.0,
    )
    .fetch_one(executor)
    .await
}

/// Number of league rooms whose creator a user is, apart from the room of this league. Also of deleted leagues.
pub(super) async fn count_league_rooms(
    connection: &mut PgConnection,
    creator: UserId,
    except: LeagueId,
) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from rooms where creator_id = $1 and league_id <> $2"#,
        creator.0,
        except.0,
    )
    .fetch_one(connection)
    .await
}

pub(super) async fn set_creator(connection: &mut PgConnection, room: RoomId, creator: UserId) -> sqlx::Result<()> {
    sqlx::query!("update rooms set creator_id = $2 where id = $1", room.0, creator.0).execute(connection).await?;
    Ok(())
}

/// Claims the creation of a room. Returns whether the claim succeeded.
pub(super) async fn claim(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    now: OffsetDateTime,
    made_until: OffsetDateTime,
) -> sqlx::Result<bool> {
    let claimed = sqlx::query!(
        "update rooms set made_until = $3
         where id = $1 and opened_at is null and discarded_at is null and made_until <= $2",
        room.0,
        now,
        made_until,
    )
    .execute(executor)
    .await?;
    Ok(claimed.rows_affected() == 1)
}

/// Releases the claim that lasts until `made_until`. A claim of another process is kept.
pub(super) async fn release(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    made_until: OffsetDateTime,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update rooms set made_until = $3 where id = $1 and made_until = $2 and opened_at is null",
        room.0,
        made_until,
        now,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Records since when the homeserver has only the alias of a room. Keeps an earlier time.
pub(super) async fn note_half_made(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!("update rooms set half_made_at = coalesce(half_made_at, $2) where id = $1", room.0, now)
        .execute(executor)
        .await?;
    Ok(())
}

/// Locks the row that changes with a room's members. Take it before the room's row, in the same order as the membership
/// sync.
async fn lock_activity(connection: &mut PgConnection, room: RoomId) -> sqlx::Result<()> {
    sqlx::query_scalar!("select room_id from room_activity where room_id = $1 for update", room.0)
        .fetch_optional(connection)
        .await?;
    Ok(())
}

/// Stores the homeserver's id of a room, before any Matrix event in the room is handled.
pub(super) async fn set_matrix_id(executor: impl PgExecutor<'_>, room: RoomId, matrix_id: &str) -> sqlx::Result<()> {
    sqlx::query!("update rooms set matrix_id = $2 where id = $1", room.0, matrix_id).execute(executor).await?;
    Ok(())
}

/// Makes a room visible. Returns whether it was not visible before.
pub(super) async fn open(connection: &mut PgConnection, room: RoomId, now: OffsetDateTime) -> sqlx::Result<bool> {
    lock_activity(connection, room).await?;
    let opened = sqlx::query!(
        "update rooms set opened_at = $2 where id = $1 and opened_at is null and discarded_at is null",
        room.0,
        now,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "update room_activity set last_activity = greatest(last_activity, $2), compared_at = $2 where room_id = $1",
        room.0,
        now,
    )
    .execute(connection)
    .await?;
    Ok(opened.rows_affected() == 1)
}

pub(super) async fn get(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<Option<Room>> {
    sqlx::query_as!(
        Room,
        r#"select id as "id: RoomId", matrix_id, alias, name, topic, event_id as "event_id: MatchId", stand,
                  creator_id as "creator_id: UserId", is_private, created_at, opened_at, half_made_at,
                  slow_mode_seconds, league_id as "league_id: LeagueId"
           from rooms where id = $1"#,
        room.0,
    )
    .fetch_optional(executor)
    .await
}

/// Returns the open room with this homeserver id.
pub(super) async fn find(executor: impl PgExecutor<'_>, matrix_id: &str) -> sqlx::Result<Option<Room>> {
    sqlx::query_as!(
        Room,
        r#"select id as "id: RoomId", matrix_id, alias, name, topic, event_id as "event_id: MatchId", stand,
                  creator_id as "creator_id: UserId", is_private, created_at, opened_at, half_made_at,
                  slow_mode_seconds, league_id as "league_id: LeagueId"
           from rooms where matrix_id = $1 and opened_at is not null"#,
        matrix_id,
    )
    .fetch_optional(executor)
    .await
}

/// Number of open rooms, or of those of a match.
pub(super) async fn count_open(connection: &mut PgConnection, event: Option<MatchId>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from rooms
           where opened_at is not null and matrix_id is not null and ($1::bigint is null or event_id = $1)"#,
        event.map(|event| event.0),
    )
    .fetch_one(connection)
    .await
}

/// A page of the open rooms, or of those of a match, latest first.
pub(super) async fn list_open(
    executor: impl PgExecutor<'_>,
    event: Option<MatchId>,
    paging: Paging,
) -> sqlx::Result<Vec<RoomSummary>> {
    sqlx::query_as!(
        RoomSummary,
        r#"select r.matrix_id as "matrix_id!", r.name, r.topic, r.event_id as "event_id: MatchId", r.is_private,
                  a.member_count, r.created_at
           from rooms r join room_activity a on a.room_id = r.id
           where r.opened_at is not null and r.matrix_id is not null and ($1::bigint is null or r.event_id = $1)
           order by r.id desc limit $2 offset $3"#,
        event.map(|event| event.0),
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn summary(executor: impl PgExecutor<'_>, matrix_id: &str) -> sqlx::Result<Option<RoomSummary>> {
    sqlx::query_as!(
        RoomSummary,
        r#"select r.matrix_id as "matrix_id!", r.name, r.topic, r.event_id as "event_id: MatchId", r.is_private,
                  a.member_count, r.created_at
           from rooms r join room_activity a on a.room_id = r.id
           where r.matrix_id = $1 and r.opened_at is not null"#,
        matrix_id,
    )
    .fetch_optional(executor)
    .await
}

/// Requested rooms from before `before` that never opened and have no active claim, and rooms whose removal failed.
pub(super) async fn abandoned(
    executor: impl PgExecutor<'_>,
    before: OffsetDateTime,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<RoomId>> {
    sqlx::query_scalar!(
        r#"select id as "id: RoomId" from rooms
           where opened_at is null and stand is null and created_at < $1
             and (made_until <= $2 or discarded_at is not null)
           order by id limit 100"#,
        before,
        now,
    )
    .fetch_all(executor)
    .await
}

/// Stands planned before `before` that are not open and have no active claim.
pub(super) async fn unmade_stands(
    connection: &mut PgConnection,
    before: OffsetDateTime,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<RoomId>> {
    sqlx::query_scalar!(
        r#"select id as "id: RoomId" from rooms
           where opened_at is null and stand is not null and created_at < $1
             and made_until <= $2 and discarded_at is null
           order by id limit 1000"#,
        before,
        now,
    )
    .fetch_all(connection)
    .await
}

/// Marks a room as discarded, so that no process creates or opens it. Returns `None` if the room was opened or claimed
/// in the meantime.
pub(super) async fn discard(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    now: OffsetDateTime,
) -> sqlx::Result<Option<Room>> {
    sqlx::query_as!(
        Room,
        r#"update rooms set discarded_at = $2
           where id = $1 and opened_at is null and (made_until <= $2 or discarded_at is not null)
           returning id as "id: RoomId", matrix_id, alias, name, topic, event_id as "event_id: MatchId", stand,
                     creator_id as "creator_id: UserId", is_private, created_at, opened_at, half_made_at,
                  slow_mode_seconds, league_id as "league_id: LeagueId""#,
        room.0,
        now,
    )
    .fetch_optional(executor)
    .await
}

/// Deletes a discarded room, which was never visible to users.
pub(super) async fn delete_discarded(connection: &mut PgConnection, room: RoomId) -> sqlx::Result<()> {
    lock_activity(connection, room).await?;
    sqlx::query!("delete from rooms where id = $1 and opened_at is null and discarded_at is not null", room.0)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn membership(
    executor: impl PgExecutor<'_>,
    user: UserId,
    room: RoomId,
) -> sqlx::Result<Option<Membership>> {
    let found =
        sqlx::query_scalar!("select membership from room_members where user_id = $1 and room_id = $2", user.0, room.0,)
            .fetch_optional(executor)
            .await?;
    found.map(|name| name.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))).transpose()
}

/// Rooms on the homeserver that a user has joined or is invited to.
pub(super) async fn of_user(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<(Room, Membership)>> {
    let rows = sqlx::query!(
        r#"select r.id as "id: RoomId", r.matrix_id, r.alias, r.name, r.topic, r.event_id as "event_id: MatchId", r.stand,
                  r.creator_id as "creator_id: UserId", r.is_private, r.created_at, r.opened_at, r.half_made_at,
                  r.slow_mode_seconds, r.league_id as "league_id: LeagueId", m.membership
           from room_members m join rooms r on r.id = m.room_id
           where m.user_id = $1 and m.membership in ('join', 'invite') and r.matrix_id is not null order by r.id"#,
        user.0,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter()
        .map(|row| {
            let membership = row.membership.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            let room = Room {
                id: row.id,
                matrix_id: row.matrix_id,
                alias: row.alias,
                name: row.name,
                topic: row.topic,
                event_id: row.event_id,
                stand: row.stand,
                creator_id: row.creator_id,
                is_private: row.is_private,
                created_at: row.created_at,
                opened_at: row.opened_at,
                half_made_at: row.half_made_at,
                slow_mode_seconds: row.slow_mode_seconds,
                league_id: row.league_id,
            };
            Ok((room, membership))
        })
        .collect()
}

/// Number of public rooms that opened until a time and match a pattern.
pub(super) async fn count_public(
    executor: impl PgExecutor<'_>,
    pattern: Option<&str>,
    until: OffsetDateTime,
) -> sqlx::Result<i64> {
    let Some(pattern) = pattern else {
        return sqlx::query_scalar!(
            r#"select count(*) as "count!" from rooms where not is_private and opened_at <= $1"#,
            until,
        )
        .fetch_one(executor)
        .await;
    };
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from rooms
           where not is_private and opened_at <= $1 and lower(name) like lower($2)"#,
        until,
        pattern,
    )
    .fetch_one(executor)
    .await
}

/// Difference between the number of rooms that a user may see and the number of public rooms that opened until a time:
/// newer rooms, private rooms of the user, and rooms whose creator the user has blocked. The limit is never reached; it
/// makes PostgreSQL use the index for any time.
pub(super) async fn count_difference(
    executor: impl PgExecutor<'_>,
    user: UserId,
    pattern: Option<&str>,
    until: OffsetDateTime,
) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"with blocked as materialized (select blocked_id from blocks where user_id = $1)
           select (select count(*) from (
                       select is_private, name from rooms where opened_at > $3 order by opened_at desc limit 10000
                   ) as r
                   where not r.is_private and ($2::text is null or lower(r.name) like lower($2)))
                + (select count(*) from room_members m join rooms r on r.id = m.room_id
                   where m.user_id = $1 and m.membership in ('join', 'invite') and r.is_private
                     and r.opened_at is not null and r.creator_id <> all (array(select blocked_id from blocked))
                     and ($2::text is null or lower(r.name) like lower($2)))
                - (select count(*) from rooms r
                   where r.creator_id = any (array(select blocked_id from blocked)) and not r.is_private
                     and r.opened_at is not null and ($2::text is null or lower(r.name) like lower($2)))
                as "difference!""#,
        user.0,
        pattern,
        until,
    )
    .fetch_one(executor)
    .await
}

/// A row of a list. An empty page has one row with only the total.
struct ListRow {
    /// Null if the total is counted separately.
    total: Option<i64>,
    member_count: Option<i64>,
    is_joined: Option<bool>,
    last_activity: Option<OffsetDateTime>,
    matrix_id: Option<String>,
    name: Option<String>,
    topic: Option<String>,
    is_private: Option<bool>,
    stand: Option<i32>,
    slow_mode_seconds: Option<i32>,
    event_id: Option<MatchId>,
    start_time: Option<OffsetDateTime>,
    home_team: Option<String>,
    away_team: Option<String>,
}

/// Returns a page of the rooms that a user may see, most recently active first. Also returns the total, if it is small: of
/// the rooms that the user has joined, or of those of a match.
///
/// The page is found first: all else is read only for its rooms.
pub(super) async fn list(
    db: &PgPool,
    user: UserId,
    filter: &RoomFilter,
    paging: Paging,
) -> sqlx::Result<(Vec<ListedRoom>, Option<i64>)> {
    let mut tx = database::begin_with(db, database::CUSTOM_PLANS).await?;
    let rows = sqlx::query_as!(
        ListRow,
        r#"with mine as materialized (
               select room_id, membership from room_members
               where user_id = $1 and membership in ('join', 'invite')
           ), matching as not materialized (
               select a.room_id as id, a.last_activity, a.member_count, m.membership is not distinct from 'join' as is_joined
               from rooms r join room_activity a on a.room_id = r.id left join mine m on m.room_id = r.id
               where r.opened_at is not null
                 and (not r.is_private or m.room_id is not null)
                 and (r.creator_id is null or r.creator_id not in (select blocked_id from blocks where user_id = $1))
                 and (not $2 or m.membership = 'join')
                 and ($3::bigint is null or r.event_id = $3)
                 and ($4::text is null or lower(r.name) like lower($4))
           ), page as (
               select * from matching order by last_activity desc, id desc limit $5 offset $6
           )
           select case when $2 or $3 is not null then (select count(*) from matching) end as total,
                  p.member_count as "member_count?", p.is_joined as "is_joined?", p.last_activity as "last_activity?",
                  r.matrix_id, r.name as "name?", r.topic as "topic?", r.is_private as "is_private?", r.stand,
                  r.slow_mode_seconds as "slow_mode_seconds?", e.id as "event_id?: MatchId",
                  e.start_time as "start_time?", h.name as "home_team?", w.name as "away_team?"
           from (select 1) as always
           left join page p on true
           left join rooms r on r.id = p.id
           left join events e on e.id = r.event_id
           left join teams h on h.id = e.home_team_id
           left join teams w on w.id = e.away_team_id
           order by p.last_activity desc, p.id desc"#,
        user.0,
        filter.joined,
        filter.event_id.map(|id| id.0),
        filter.search.as_ref().map(Search::pattern),
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    let total = rows.first().and_then(|row| row.total);
    let listed = rows.into_iter().filter_map(|row| {
        let event = row.event_id.and_then(|id| Some((id, row.home_team?, row.away_team?, row.start_time?)));
        Some(ListedRoom {
            matrix_id: row.matrix_id?,
            name: row.name?,
            topic: row.topic?,
            event,
            stand: row.stand,
            member_count: row.member_count?,
            is_joined: row.is_joined?,
            is_private: row.is_private?,
            last_activity: row.last_activity?,
            slow_mode_seconds: row.slow_mode_seconds?,
        })
    });
    Ok((listed.collect(), total))
}

/// A match with the fields that determine the names of its rooms.
pub(super) struct MatchRow {
    pub(super) event_id: MatchId,
    pub(super) home: String,
    pub(super) away: String,
    pub(super) tournament: String,
    pub(super) start_time: OffsetDateTime,
    pub(super) status: String,
    pub(super) venue: String,
}

/// Matches without a room, in one tournament or in all.
pub(super) async fn roomless_matches(
    connection: &mut PgConnection,
    tournament: Option<TournamentId>,
    most: i64,
) -> sqlx::Result<Vec<MatchRow>> {
    sqlx::query_as!(
        MatchRow,
        r#"select e.id as "event_id: MatchId", h.name as home, w.name as away, t.name as tournament, e.start_time,
                  e.status, e.venue
           from events e join teams h on h.id = e.home_team_id join teams w on w.id = e.away_team_id
           join tournaments t on t.id = e.tournament_id
           where ($1::bigint is null or e.tournament_id = $1)
             and not exists (select 1 from rooms r where r.event_id = e.id and r.stand = 1)
           order by e.id limit $2"#,
        tournament.map(|id| id.0),
        most,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn a_match(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<Option<MatchRow>> {
    sqlx::query_as!(
        MatchRow,
        r#"select e.id as "event_id: MatchId", h.name as home, w.name as away, t.name as tournament, e.start_time,
                  e.status, e.venue
           from events e join teams h on h.id = e.home_team_id join teams w on w.id = e.away_team_id
           join tournaments t on t.id = e.tournament_id
           where e.id = $1"#,
        event.0,
    )
    .fetch_optional(connection)
    .await
}

/// A stand with its stored name, and the current data of its match.
pub(super) struct StandRow {
    pub(super) id: RoomId,
    pub(super) stand: i32,
    pub(super) name: String,
    pub(super) topic: String,
    pub(super) of: MatchRow,
}

/// The stands of a tournament's matches, and of all matches of these teams.
pub(super) async fn stands_of(
    connection: &mut PgConnection,
    tournament: TournamentId,
    teams: &[i64],
) -> sqlx::Result<Vec<StandRow>> {
    let rows = sqlx::query!(
        r#"select r.id as "id: RoomId", r.stand as "stand!", r.name, r.topic, e.id as "event_id: MatchId",
                  h.name as home, w.name as away, t.name as tournament, e.start_time, e.status, e.venue
           from rooms r join events e on e.id = r.event_id
           join teams h on h.id = e.home_team_id join teams w on w.id = e.away_team_id
           join tournaments t on t.id = e.tournament_id
           where r.stand is not null
             and (e.tournament_id = $1 or e.home_team_id = any($2) or e.away_team_id = any($2))
           order by r.id"#,
        tournament.0,
        teams,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| StandRow {
            id: row.id,
            stand: row.stand,
            name: row.name,
            topic: row.topic,
            of: MatchRow {
                event_id: row.event_id,
                home: row.home,
                away: row.away,
                tournament: row.tournament,
                start_time: row.start_time,
                status: row.status,
                venue: row.venue,
            },
        })
        .collect())
}

pub(super) async fn rename(connection: &mut PgConnection, room: RoomId, name: &str, topic: &str) -> sqlx::Result<()> {
    sqlx::query!("update rooms set name = $2, topic = $3 where id = $1", room.0, name, topic)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn last_stand(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<i32> {
    sqlx::query_scalar!(r#"select coalesce(max(stand), 0) as "last!" from rooms where event_id = $1"#, event.0)
        .fetch_one(connection)
        .await
}

/// Numbers of planned and of open rooms for a tournament's matches.
pub(super) async fn progress(executor: impl PgExecutor<'_>, tournament: TournamentId) -> sqlx::Result<(i64, i64)> {
    let row = sqlx::query!(
        r#"select count(*) as "planned!", count(r.opened_at) as "open!"
           from rooms r join events e on e.id = r.event_id where e.tournament_id = $1 and r.stand = 1"#,
        tournament.0,
    )
    .fetch_one(executor)
    .await?;
    Ok((row.planned, row.open))
}

/// A page of a room's members after a user, sorted by user id, with whether they wrote or joined since then.
pub(super) async fn members_with_activity(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    after: i64,
    active_since: OffsetDateTime,
    most: i64,
) -> sqlx::Result<Vec<(i64, bool)>> {
    let rows = sqlx::query!(
        r#"select user_id, coalesce(active_at >= $3, false) as "is_active!" from room_members
           where room_id = $1 and membership = 'join' and user_id > $2
           order by user_id limit $4"#,
        room.0,
        after,
        active_since,
        most,
    );
    Ok(rows.fetch_all(executor).await?.into_iter().map(|row| (row.user_id, row.is_active)).collect())
}

/// Numbers of remote members of these rooms: all, and new members since then. Remote members have no account, so
/// they have no team and no predictions.
pub(super) async fn count_remote_members(
    executor: impl PgExecutor<'_>,
    rooms: &[RoomId],
    active_since: OffsetDateTime,
) -> sqlx::Result<(i64, i64)> {
    let rooms: Vec<i64> = rooms.iter().map(|room| room.0).collect();
    let row = sqlx::query!(
        r#"select count(distinct matrix_user_id) as "total!",
                  count(distinct matrix_user_id) filter (where changed_at >= $2) as "active!"
           from remote_members where room_id = any($1) and membership = 'join'"#,
        &rooms,
        active_since,
    )
    .fetch_one(executor)
    .await?;
    Ok((row.total, row.active))
}

/// A user's prediction of a room's match.
pub(super) struct PickRow {
    pub(super) user_id: i64,
    pub(super) prediction: String,
    /// Whether it was made or replaced within the activity period.
    pub(super) is_recent: bool,
}

/// Predictions of these users for a match.
pub(super) async fn picks(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    users: &[i64],
    active_since: OffsetDateTime,
) -> sqlx::Result<Vec<PickRow>> {
    sqlx::query_as!(
        PickRow,
        r#"select user_id, prediction, updated_at >= $3 as "is_recent!" from predictions
           where user_id = any($1) and event_id = $2"#,
        users,
        event.0,
        active_since,
    )
    .fetch_all(executor)
    .await
}

/// Number of these users per favourite team, by slug. Only the two teams of the match count, if there is one.
pub(super) async fn supporters(
    executor: impl PgExecutor<'_>,
    event: Option<MatchId>,
    users: &[i64],
) -> sqlx::Result<Vec<(String, i64)>> {
    let rows = sqlx::query!(
        r#"select t.slug, count(*) as "fans!" from user_teams f join teams t on t.id = f.team_id
           where f.user_id = any($1) and f.rank = 0
             and ($2::bigint is null
                  or t.id in (select unnest(array[home_team_id, away_team_id]) from events where id = $2))
           group by t.slug"#,
        users,
        event.map(|id| id.0),
    );
    Ok(rows.fetch_all(executor).await?.into_iter().map(|row| (row.slug, row.fans)).collect())
}

/// Slugs of the two teams of a match.
pub(super) async fn team_slugs(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        "select t.slug from events e join teams t on t.id in (e.home_team_id, e.away_team_id) where e.id = $1",
        event.0,
    )
    .fetch_all(executor)
    .await
}

/// The `most` of these users with the most correct predictions over all matches, then with the highest accuracy.
pub(super) async fn best_predictors(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    most: i64,
) -> sqlx::Result<Vec<Predictor>> {
    sqlx::query_as!(
        Predictor,
        r#"select user_id as "user_id: UserId", correct, settled from user_scores
           where user_id = any($1) and scope = 'all' and settled > 0
           order by correct desc, correct::double precision / settled desc, user_id limit $2"#,
        users,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Usernames by user id, without deleted accounts.
pub(super) async fn usernames(executor: impl PgExecutor<'_>, users: &[i64]) -> sqlx::Result<BTreeMap<i64, String>> {
    let rows =
        sqlx::query!("select user_id, username from users where user_id = any($1) and deleted_at is null", users);
    Ok(rows.fetch_all(executor).await?.into_iter().map(|row| (row.user_id, row.username)).collect())
}

/// Number of members of a room, and its stored statistics.
pub(super) async fn size(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<Option<Size>> {
    sqlx::query_as!(
        Size,
        r#"select a.room_id as "room: RoomId", a.member_count as members, s.statistics as "statistics?", s.due_at as "due_at?"
           from room_activity a left join room_statistics s on s.room_id = a.room_id where a.room_id = $1"#,
        room.0,
    )
    .fetch_optional(executor)
    .await
}

/// Like [`size`], for the first stands of a match.
pub(super) async fn sizes_of_stands(
    executor: impl PgExecutor<'_>,
    event: MatchId,
    most: i64,
) -> sqlx::Result<Vec<Size>> {
    sqlx::query_as!(
        Size,
        r#"select r.id as "room: RoomId", a.member_count as members, s.statistics as "statistics?", s.due_at as "due_at?"
           from rooms r join room_activity a on a.room_id = r.id left join room_statistics s on s.room_id = a.room_id
           where r.event_id = $1 and r.stand is not null order by r.stand limit $2"#,
        event.0,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Claims the computation of a room's statistics, if they are due. Returns whether the claim succeeded.
pub(super) async fn claim_statistics(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    now: OffsetDateTime,
    until: OffsetDateTime,
) -> sqlx::Result<bool> {
    let claimed = sqlx::query!(
        "insert into room_statistics as s (room_id, claimed_until) values ($1, $3)
         on conflict (room_id) do update set claimed_until = excluded.claimed_until
           where s.claimed_until <= $2 and (s.due_at is null or s.due_at <= $2)",
        room.0,
        now,
        until,
    )
    .execute(executor)
    .await?;
    Ok(claimed.rows_affected() == 1)
}

/// Whether statistics are stored and not due.
pub(super) async fn are_statistics_fresh(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let fresh = sqlx::query_scalar!(
        r#"select coalesce(due_at > $2, false) as "fresh!" from room_statistics where room_id = $1"#,
        room.0,
        now,
    )
    .fetch_optional(executor)
    .await?;
    Ok(fresh.unwrap_or_default())
}

/// Stores statistics under the claim that lasts until `claimed_until`. Returns whether the claim still held.
pub(super) async fn put_statistics(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    claimed_until: OffsetDateTime,
    statistics: &serde_json::Value,
    due_at: OffsetDateTime,
) -> sqlx::Result<bool> {
    let put = sqlx::query!(
        "update room_statistics set statistics = $3, due_at = $4, claimed_until = $4
         where room_id = $1 and claimed_until = $2",
        room.0,
        claimed_until,
        statistics,
        due_at,
    )
    .execute(executor)
    .await?;
    Ok(put.rows_affected() == 1)
}

/// Ends the claim that lasts until `claimed_until` earlier. A claim of another process is kept.
pub(super) async fn shorten_claim(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    claimed_until: OffsetDateTime,
    end: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update room_statistics set claimed_until = $3 where room_id = $1 and claimed_until = $2",
        room.0,
        claimed_until,
        end,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Deletes statistics that were due before this time; returns how many.
pub(super) async fn sweep_statistics(
    executor: impl PgExecutor<'_>,
    before: OffsetDateTime,
    most: i64,
) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from room_statistics where room_id in (
             select room_id from room_statistics where coalesce(due_at, claimed_until) < $1
             order by coalesce(due_at, claimed_until) limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}

/// One of a match's rooms, with its occupied seats.
pub(super) struct Stand {
    pub(super) room: RoomId,
    pub(super) number: i32,
    pub(super) members: i64,
    /// Seats reserved for users who are joining.
    pub(super) reserved: i64,
    /// Whether the homeserver has the room.
    pub(super) is_open: bool,
}

/// Serialises the reservation of seats for a match, until the transaction ends.
pub(super) async fn lock_stands(connection: &mut PgConnection, event: MatchId) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('matchday stands', $1))", event.0)
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// A user's membership in a room.
pub(super) struct MemberOf {
    pub(super) room: RoomId,
    pub(super) membership: Membership,
    /// Number of the stand, for a match's own rooms.
    pub(super) stand: Option<i32>,
    pub(super) matrix_id: Option<String>,
}

/// The user's memberships in a room, and in all stands of a match, ordered by stand.
pub(super) async fn memberships(
    executor: impl PgExecutor<'_>,
    user: UserId,
    room: RoomId,
    event: Option<MatchId>,
) -> sqlx::Result<Vec<MemberOf>> {
    let rows = sqlx::query!(
        r#"select r.id as "id: RoomId", m.membership, r.stand, r.matrix_id
           from room_members m join rooms r on r.id = m.room_id
           where m.user_id = $1 and (r.id = $2 or r.event_id = $3 and r.stand is not null)
           order by r.stand"#,
        user.0,
        room.0,
        event.map(|event| event.0),
    )
    .fetch_all(executor)
    .await?;
    let mut memberships = Vec::with_capacity(rows.len());
    for row in rows {
        let membership = row.membership.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        memberships.push(MemberOf { room: row.id, membership, stand: row.stand, matrix_id: row.matrix_id });
    }
    Ok(memberships)
}

/// Seats that are reserved for these users, with the numbers of their stands.
pub(super) async fn kept_seats(
    connection: &mut PgConnection,
    users: &[i64],
    event: MatchId,
    now: OffsetDateTime,
) -> sqlx::Result<HashMap<UserId, (RoomId, i32)>> {
    let seats = sqlx::query!(
        r#"select s.user_id as "user_id: UserId", r.id as "id: RoomId", r.stand as "stand!"
           from seats s join rooms r on r.id = s.room_id
           where s.user_id = any($1) and s.event_id = $2 and s.expires_at > $3"#,
        users,
        event.0,
        now,
    )
    .fetch_all(connection)
    .await?;
    Ok(seats.into_iter().map(|seat| (seat.user_id, (seat.id, seat.stand))).collect())
}

/// Which of these users are banned from which of a match's rooms.
pub(super) async fn bans_from_stands(
    connection: &mut PgConnection,
    users: &[i64],
    event: MatchId,
) -> sqlx::Result<HashSet<(UserId, RoomId)>> {
    let bans = sqlx::query!(
        r#"select m.user_id as "user_id: UserId", m.room_id as "room_id: RoomId"
           from room_members m join rooms r on r.id = m.room_id
           where m.user_id = any($1) and m.membership = 'ban' and r.event_id = $2 and r.stand is not null"#,
        users,
        event.0,
    )
    .fetch_all(connection)
    .await?;
    Ok(bans.into_iter().map(|ban| (ban.user_id, ban.room_id)).collect())
}

/// A match's rooms in order, each with the number of its members and reserved seats.
pub(super) async fn stands(
    connection: &mut PgConnection,
    event: MatchId,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<Stand>> {
    sqlx::query_as!(
        Stand,
        r#"select r.id as "room: RoomId", r.stand as "number!", a.member_count as members,
                  coalesce(s.seats, 0) as "reserved!", r.opened_at is not null as "is_open!"
           from rooms r
           join room_activity a on a.room_id = r.id
           left join (select room_id, count(*) as seats from seats
                      where expires_at > $2
                        and room_id in (select id from rooms where event_id = $1 and stand is not null)
                      group by room_id) s on s.room_id = r.id
           where r.event_id = $1 and r.stand is not null
           order by r.stand"#,
        event.0,
        now,
    )
    .fetch_all(connection)
    .await
}

/// Reserves seats of a match for users, each in a room.
pub(super) async fn keep_seats(
    connection: &mut PgConnection,
    event: MatchId,
    seats: &[(UserId, RoomId)],
    until: OffsetDateTime,
) -> sqlx::Result<()> {
    let users: Vec<i64> = seats.iter().map(|(user, _)| user.0).collect();
    let rooms: Vec<i64> = seats.iter().map(|(_, room)| room.0).collect();
    sqlx::query!(
        "insert into seats (user_id, event_id, room_id, expires_at)
         select s.user_id, $2, s.room_id, $4 from unnest($1::bigint[], $3::bigint[]) as s (user_id, room_id)
         order by s.user_id
         on conflict (user_id, event_id) do update set room_id = excluded.room_id, expires_at = excluded.expires_at",
        &users,
        event.0,
        &rooms,
        until,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn free_seat(executor: impl PgExecutor<'_>, user: UserId, event: MatchId) -> sqlx::Result<()> {
    sqlx::query!("delete from seats where user_id = $1 and event_id = $2", user.0, event.0).execute(executor).await?;
    Ok(())
}
