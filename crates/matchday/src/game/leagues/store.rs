//! SQL queries for leagues.

use std::collections::HashMap;

use platform::{database, encryption::Encrypted, shards::Ranges};
use sqlx::{PgConnection, PgExecutor, PgPool};
use time::OffsetDateTime;
use web::{
    ids::{LeagueId, TournamentId, UserId},
    paging::Paging,
};

use super::{
    codes::StoredCode,
    places_lost::NewResult,
    rules::{CountsFrom, League, MemberScore, Visibility},
    sums::Member,
};
use crate::{
    game::scores::rules::Score,
    identity::{accounts::Person, avatars::AvatarKey, idempotency::KeyedRequest},
};

/// A league with its code, its room, and the membership of one user.
#[derive(Clone)]
pub(super) struct StoredLeague {
    pub(super) league: League,
    pub(super) code: Encrypted,
    pub(super) has_chat: bool,
    /// Matrix id of the room, once it exists.
    pub(super) room: Option<String>,
    /// Time at which the user joined; `None` if they are not a member.
    pub(super) joined_at: Option<OffsetDateTime>,
}

struct Row {
    id: LeagueId,
    name: String,
    owner_id: UserId,
    visibility: String,
    counts_from: String,
    tournament_ids: Vec<i64>,
    from_round: Option<i16>,
    from_time: Option<OffsetDateTime>,
    max_members: i32,
    member_count: i32,
    members_version: i64,
    code_ciphertext: Vec<u8>,
    code_key: i16,
    has_chat: bool,
    created_at: OffsetDateTime,
    room: Option<String>,
    joined_at: Option<OffsetDateTime>,
}

impl TryFrom<Row> for StoredLeague {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        let unknown = || sqlx::Error::Decode("a stored league is invalid".into());
        Ok(Self {
            league: League {
                id: row.id,
                name: row.name,
                owner: row.owner_id,
                visibility: Visibility::of_name(&row.visibility).ok_or_else(unknown)?,
                counts_from: CountsFrom::of_name(&row.counts_from).ok_or_else(unknown)?,
                tournaments: row.tournament_ids.into_iter().map(TournamentId).collect(),
                from_round: row.from_round,
                from: row.from_time,
                max_members: row.max_members,
                member_count: row.member_count,
                members_version: row.members_version,
                created_at: row.created_at,
            },
            code: Encrypted { key_version: row.code_key, bytes: row.code_ciphertext },
            has_chat: row.has_chat,
            room: row.room,
            joined_at: row.joined_at,
        })
    }
}

/// Selects leagues with the membership of the user `$1`. This is a macro because checked queries accept only literals.
macro_rules! leagues {
    ($rest:tt, $($value:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"select l.id as "id!: LeagueId", l.name as "name!", l.owner_id as "owner_id!: UserId",
                      l.visibility as "visibility!", l.counts_from as "counts_from!", l.tournament_ids as "tournament_ids!",
                      l.from_round, l.from_time, l.max_members as "max_members!", l.member_count as "member_count!",
                      l.members_version as "members_version!", l.code_ciphertext as "code_ciphertext!",
                      l.code_key as "code_key!", l.has_chat as "has_chat!", l.created_at as "created_at!",
                      r.matrix_id as "room?",
                      m.joined_at as "joined_at?"
               from leagues l
               left join rooms r on r.league_id = l.id and r.opened_at is not null
               left join league_members m on m.league_id = l.id and m.user_id = $1 "#
                + $rest,
            $($value),+
        )
    };
}

pub(super) async fn find(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: LeagueId,
) -> sqlx::Result<Option<StoredLeague>> {
    let row = leagues!("where l.id = $2", user.0, id.0).fetch_optional(executor).await?;
    row.map(StoredLeague::try_from).transpose()
}

/// Finds the league with a code, by the hashes of the code under all keys.
pub(super) async fn find_by_code(
    executor: impl PgExecutor<'_>,
    user: UserId,
    digests: &[Vec<u8>],
) -> sqlx::Result<Option<StoredLeague>> {
    let row = leagues!("where l.code_digest = any($2)", user.0, digests).fetch_optional(executor).await?;
    row.map(StoredLeague::try_from).transpose()
}

/// Returns a page of the leagues of a user, last joined first, and their number.
pub(super) async fn of_user(
    connection: &mut PgConnection,
    user: UserId,
    pattern: Option<&str>,
    paging: Paging,
) -> sqlx::Result<(Vec<StoredLeague>, i64)> {
    let rows = leagues!(
        "where m.user_id is not null and ($2::text is null or lower(l.name) like lower($2))
         order by m.joined_at desc, l.id desc limit $3 offset $4",
        user.0,
        pattern,
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(&mut *connection)
    .await?;
    let total = sqlx::query_scalar!(
        r#"select count(*) as "count!" from leagues l join league_members m on m.league_id = l.id
           where m.user_id = $1 and ($2::text is null or lower(l.name) like lower($2))"#,
        user.0,
        pattern,
    )
    .fetch_one(connection)
    .await?;
    Ok((rows.into_iter().map(StoredLeague::try_from).collect::<Result<_, _>>()?, total))
}

/// Returns a page of the public leagues that a user can see, newest first. Finds the page first: all else is read only for
/// its leagues, and not for those of earlier pages.
pub(super) async fn public(
    db: &PgPool,
    user: UserId,
    hidden_owners: &[i64],
    pattern: Option<&str>,
    paging: Paging,
) -> sqlx::Result<Vec<StoredLeague>> {
    let mut tx = database::begin_with(db, database::CUSTOM_PLANS).await?;
    let rows = leagues!(
        "where l.id = any (array(
             select p.id from leagues p
             where p.visibility = 'public' and ($3::text is null or lower(p.name) like lower($3))
               and (p.owner_id not in (select b.blocked from unnest($2::bigint[]) as b (blocked))
                    or p.id in (select j.league_id from league_members j where j.user_id = $1))
             order by p.id desc limit $4 offset $5))
         order by l.id desc",
        user.0,
        hidden_owners,
        pattern,
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    rows.into_iter().map(StoredLeague::try_from).collect()
}

/// Number of public leagues.
pub(super) async fn count_public(db: &PgPool, pattern: Option<&str>) -> sqlx::Result<i64> {
    let mut tx = database::begin_with(db, database::CUSTOM_PLANS).await?;
    let count = sqlx::query_scalar!(
        r#"select count(*) as "count!" from leagues
           where visibility = 'public' and ($1::text is null or lower(name) like lower($1))"#,
        pattern,
    )
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(count)
}

/// Number of public leagues of these owners without the user as a member.
pub(super) async fn count_hidden(
    executor: impl PgExecutor<'_>,
    user: UserId,
    hidden_owners: &[i64],
    pattern: Option<&str>,
) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"select count(*) as "count!" from leagues l left join league_members m on m.league_id = l.id and m.user_id = $1
           where l.visibility = 'public' and m.user_id is null and l.owner_id = any($2)
             and ($3::text is null or lower(l.name) like lower($3))"#,
        user.0,
        hidden_owners,
        pattern,
    )
    .fetch_one(executor)
    .await
}

/// Users who have blocked this user, or whom this user has blocked.
pub(super) async fn blocked_either_way(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"select blocked_id as "id!" from blocks where user_id = $1
           union select user_id from blocks where blocked_id = $1"#,
        user.0,
    )
    .fetch_all(executor)
    .await
}

/// Users whom this user has blocked.
pub(super) async fn blocked_by(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!("select blocked_id from blocks where user_id = $1", user.0).fetch_all(executor).await
}

/// Number of these tournaments that exist.
pub(super) async fn existing_tournaments(executor: impl PgExecutor<'_>, ids: &[i64]) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from tournaments where id = any($1)"#, ids)
        .fetch_one(executor)
        .await
}

/// Locks the user's row until the transaction ends. Returns false if the account was deleted.
pub(super) async fn lock_user(connection: &mut PgConnection, user: UserId) -> sqlx::Result<bool> {
    let found = sqlx::query_scalar!(
        r#"select deleted_at is null as "exists!" from users where user_id = $1 for no key update"#,
        user.0,
    )
    .fetch_optional(connection)
    .await?;
    Ok(found.unwrap_or_default())
}

/// Number of leagues that a user belongs to.
pub(super) async fn count_of_user(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from league_members where user_id = $1"#, user.0)
        .fetch_one(executor)
        .await
}

/// A league before it is stored.
pub(super) struct NewLeague<'a> {
    pub(super) name: &'a str,
    pub(super) owner: UserId,
    pub(super) visibility: Visibility,
    pub(super) counts_from: CountsFrom,
    pub(super) tournaments: &'a [i64],
    pub(super) from_round: Option<i16>,
    pub(super) from: Option<OffsetDateTime>,
    pub(super) max_members: i32,
    pub(super) has_chat: bool,
}

/// Stores a league with its owner as the first member.
pub(super) async fn insert(
    connection: &mut PgConnection,
    new: &NewLeague<'_>,
    code: &StoredCode,
    now: OffsetDateTime,
    request: Option<KeyedRequest>,
) -> sqlx::Result<LeagueId> {
    let id = sqlx::query_scalar!(
        r#"insert into leagues (name, owner_id, visibility, counts_from, tournament_ids, from_round, from_time, max_members,
                                member_count, code_digest, code_ciphertext, code_key, has_chat, created_at)
           values ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10, $11, $12, $13)
           returning id as "id: LeagueId""#,
        new.name,
        new.owner.0,
        new.visibility.name(),
        new.counts_from.name(),
        new.tournaments,
        new.from_round,
        new.from,
        new.max_members,
        code.digest,
        code.encrypted.bytes,
        code.encrypted.key_version,
        new.has_chat,
        now,
    )
    .fetch_one(&mut *connection)
    .await?;
    insert_member(connection, id, new.owner, now, request).await?;
    Ok(id)
}

/// Takes a place in a league. Returns false if it is full or was deleted. Locks the league until the transaction ends.
pub(super) async fn take_place(connection: &mut PgConnection, league: LeagueId) -> sqlx::Result<bool> {
    let taken = sqlx::query!(
        "update leagues set member_count = member_count + 1, members_version = members_version + 1
         where id = $1 and member_count < max_members",
        league.0,
    )
    .execute(connection)
    .await?;
    Ok(taken.rows_affected() == 1)
}

/// Returns false if the user is a member already.
pub(super) async fn insert_member(
    connection: &mut PgConnection,
    league: LeagueId,
    user: UserId,
    now: OffsetDateTime,
    request: Option<KeyedRequest>,
) -> sqlx::Result<bool> {
    let inserted = sqlx::query!(
        "insert into league_members (user_id, league_id, joined_at, request_key, request_digest) values ($1, $2, $3, $4, $5)
         on conflict (user_id, league_id) do nothing",
        user.0,
        league.0,
        now,
        request.as_ref().map(|request| &request.key.0[..]),
        request.as_ref().map(|request| &request.digest[..]),
    )
    .execute(connection)
    .await?;
    Ok(inserted.rows_affected() == 1)
}

/// Returns the league that a user created or joined with the key of this request, and whether by the same request.
pub(super) async fn of_request(
    executor: impl PgExecutor<'_>,
    user: UserId,
    request: KeyedRequest,
) -> sqlx::Result<Option<(LeagueId, bool)>> {
    let row = sqlx::query!(
        r#"select league_id as "league: LeagueId", request_digest = $3 as "is_same!"
           from league_members where user_id = $1 and request_key = $2"#,
        user.0,
        &request.key.0[..],
        &request.digest[..],
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| (row.league, row.is_same)))
}

/// Locks a league until the transaction ends. Returns its owner and the number of members; `None` if it was deleted.
pub(super) async fn lock(connection: &mut PgConnection, league: LeagueId) -> sqlx::Result<Option<(UserId, i32)>> {
    let row = sqlx::query!(
        r#"select owner_id as "owner: UserId", member_count from leagues where id = $1 for update"#,
        league.0,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| (row.owner, row.member_count)))
}

/// Removes a member of a locked league. Returns false if the user is not a member.
pub(super) async fn delete_member(connection: &mut PgConnection, league: LeagueId, user: UserId) -> sqlx::Result<bool> {
    let deleted = sqlx::query!("delete from league_members where user_id = $1 and league_id = $2", user.0, league.0)
        .execute(&mut *connection)
        .await?;
    if deleted.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query!(
        "update leagues set member_count = member_count - 1, members_version = members_version + 1 where id = $1",
        league.0,
    )
    .execute(connection)
    .await?;
    Ok(true)
}

/// Remembers that a user cannot join a league again.
pub(super) async fn insert_removal(
    connection: &mut PgConnection,
    league: LeagueId,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into league_removals (user_id, league_id, removed_at) values ($1, $2, $3)
         on conflict (user_id, league_id) do nothing",
        user.0,
        league.0,
        now,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn was_removed(executor: impl PgExecutor<'_>, league: LeagueId, user: UserId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from league_removals where user_id = $1 and league_id = $2) as "was!""#,
        user.0,
        league.0,
    )
    .fetch_one(executor)
    .await
}

pub(super) async fn is_member(executor: impl PgExecutor<'_>, league: LeagueId, user: UserId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from league_members where user_id = $1 and league_id = $2) as "is!""#,
        user.0,
        league.0,
    )
    .fetch_one(executor)
    .await
}

/// Deletes a league that has no members.
pub(super) async fn delete(connection: &mut PgConnection, league: LeagueId) -> sqlx::Result<()> {
    sqlx::query!("delete from league_removals where league_id = $1", league.0).execute(&mut *connection).await?;
    sqlx::query!("delete from leagues where id = $1", league.0).execute(connection).await?;
    Ok(())
}

pub(super) async fn set_code(connection: &mut PgConnection, league: LeagueId, code: &StoredCode) -> sqlx::Result<()> {
    sqlx::query!(
        "update leagues set code_digest = $2, code_ciphertext = $3, code_key = $4 where id = $1",
        league.0,
        code.digest,
        code.encrypted.bytes,
        code.encrypted.key_version,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Changes a league. Returns false if it has more members than the new maximum.
pub(super) async fn change(
    connection: &mut PgConnection,
    league: LeagueId,
    name: Option<&str>,
    max_members: Option<i32>,
) -> sqlx::Result<bool> {
    let changed = sqlx::query!(
        "update leagues set name = coalesce($2, name), max_members = coalesce($3, max_members)
         where id = $1 and member_count <= coalesce($3, max_members)",
        league.0,
        name,
        max_members,
    )
    .execute(connection)
    .await?;
    Ok(changed.rows_affected() == 1)
}

pub(super) async fn set_owner(connection: &mut PgConnection, league: LeagueId, owner: UserId) -> sqlx::Result<()> {
    sqlx::query!("update leagues set owner_id = $2 where id = $1", league.0, owner.0).execute(connection).await?;
    Ok(())
}

/// Returns the member who joined first, except one.
pub(super) async fn oldest_member(
    connection: &mut PgConnection,
    league: LeagueId,
    except: UserId,
) -> sqlx::Result<Option<UserId>> {
    sqlx::query_scalar!(
        r#"select user_id as "user_id: UserId" from league_members where league_id = $1 and user_id <> $2
           order by joined_at, user_id limit 1"#,
        league.0,
        except.0,
    )
    .fetch_optional(connection)
    .await
}

/// Returns the leagues of a user.
pub(super) async fn leagues_of(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<LeagueId>> {
    sqlx::query_scalar!(
        r#"select league_id as "league_id: LeagueId" from league_members where user_id = $1 order by league_id"#,
        user.0,
    )
    .fetch_all(executor)
    .await
}

/// Returns the members of a league, with the times at which they joined.
pub(super) async fn members(executor: impl PgExecutor<'_>, league: LeagueId) -> sqlx::Result<Vec<Member>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id: UserId", joined_at from league_members where league_id = $1 order by user_id"#,
        league.0,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.joined_at)).collect())
}

/// Returns the members of these leagues, with the times at which they joined.
pub(super) async fn members_of_leagues(
    executor: impl PgExecutor<'_>,
    leagues: &[i64],
) -> sqlx::Result<HashMap<LeagueId, Vec<Member>>> {
    let rows = sqlx::query!(
        r#"select league_id as "league_id: LeagueId", user_id as "user_id: UserId", joined_at
           from league_members where league_id = any($1)"#,
        leagues,
    )
    .fetch_all(executor)
    .await?;
    let mut members: HashMap<LeagueId, Vec<Member>> = HashMap::new();
    for row in rows {
        members.entry(row.league_id).or_default().push((row.user_id, row.joined_at));
    }
    Ok(members)
}

/// Returns the memberships of these users, in leagues that count one of these tournaments, or in all leagues.
pub(super) async fn memberships(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    tournaments: Option<&[i64]>,
) -> sqlx::Result<Vec<(LeagueId, Member)>> {
    let rows = sqlx::query!(
        r#"select m.league_id as "league_id: LeagueId", m.user_id as "user_id: UserId", m.joined_at
           from league_members m join leagues l on l.id = m.league_id
           where m.user_id = any($1) and ($2::bigint[] is null or l.tournament_ids && $2)"#,
        users,
        tournaments,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.league_id, (row.user_id, row.joined_at))).collect())
}

/// Returns these leagues, in the order of their ids.
pub(super) async fn leagues(executor: impl PgExecutor<'_>, ids: &[i64]) -> sqlx::Result<Vec<League>> {
    let rows = leagues!("where l.id = any($2) order by l.id", 0_i64, ids).fetch_all(executor).await?;
    rows.into_iter().map(|row| Ok(StoredLeague::try_from(row)?.league)).collect()
}

/// Returns the last of the next leagues that count a tournament, in the order of their ids.
pub(super) async fn page_of_tournament(
    db: &PgPool,
    tournament: TournamentId,
    after: LeagueId,
    limit: i64,
) -> sqlx::Result<Option<LeagueId>> {
    let mut tx = database::begin_with(db, database::CUSTOM_PLANS).await?;
    let last = sqlx::query_scalar!(
        "select max(id) from
           (select id from leagues where id > $1 and tournament_ids && array[$2::bigint] order by id limit $3) page",
        after.0,
        tournament.0,
        limit,
    )
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(last.map(LeagueId))
}

/// Returns the leagues with ids in `after..=until` (excluding `after`) that count a tournament.
pub(super) async fn of_tournament(
    db: &PgPool,
    tournament: TournamentId,
    after: LeagueId,
    until: LeagueId,
) -> sqlx::Result<Vec<League>> {
    let mut tx = database::begin_with(db, database::CUSTOM_PLANS).await?;
    let rows = leagues!(
        "where l.id > $2 and l.id <= $4 and l.tournament_ids && array[$3::bigint] order by l.id",
        0_i64,
        after.0,
        tournament.0,
        until.0,
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    rows.into_iter().map(|row| Ok(StoredLeague::try_from(row)?.league)).collect()
}

/// Returns how a result changed the scores of users: points of the new result minus those of the result that it replaces.
pub(super) async fn result_changes(
    executor: impl PgExecutor<'_>,
    result: &NewResult,
    users: &[i64],
) -> sqlx::Result<Vec<(UserId, Score)>> {
    let rows = sqlx::query!(
        r#"select c.user_id as "user!: UserId",
                  sum(case when c.revision = $2 then c.points else -c.points end)::integer as "points!",
                  sum(case when c.revision = $2 then c.exact else -c.exact end)::integer as "exact!",
                  sum(case when c.revision = $2 then c.correct else -c.correct end)::integer as "correct!",
                  sum(case when c.revision = $2 then 1 else -1 end)::integer as "settled!"
           from result_points c
           where c.event_id = $1 and c.revision in ($2, $3) and c.user_id = any($4)
           group by c.user_id"#,
        result.event.0,
        result.revision,
        result.previous,
        users,
    )
    .fetch_all(executor)
    .await?;
    let score = |points, exact, correct, settled| Score { points, exact, correct, settled, answered: 0 };
    Ok(rows.into_iter().map(|row| (row.user, score(row.points, row.exact, row.correct, row.settled))).collect())
}

/// Returns the tournaments of these matches.
pub(super) async fn tournaments_of(executor: impl PgExecutor<'_>, matches: &[i64]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!("select distinct tournament_id from events where id = any($1)", matches)
        .fetch_all(executor)
        .await
}

/// Returns the members of a league with ids greater than `after`, in the order of their ids.
pub(super) async fn members_after(
    executor: impl PgExecutor<'_>,
    league: LeagueId,
    after: i64,
    limit: i64,
) -> sqlx::Result<Vec<Member>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id: UserId", joined_at from league_members
           where league_id = $1 and user_id > $2 order by user_id limit $3"#,
        league.0,
        after,
        limit,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.joined_at)).collect())
}

/// Returns the members of a league with ids less than `before`, the greatest one first.
pub(super) async fn members_before(
    executor: impl PgExecutor<'_>,
    league: LeagueId,
    before: UserId,
    limit: i64,
) -> sqlx::Result<Vec<UserId>> {
    sqlx::query_scalar!(
        r#"select user_id as "user_id: UserId" from league_members
           where league_id = $1 and user_id < $2 order by user_id desc limit $3"#,
        league.0,
        before.0,
        limit,
    )
    .fetch_all(executor)
    .await
}

/// Returns the users among these who are members, with their names. Not a join: PostgreSQL would read all members of the
/// league and merge.
pub(super) async fn named_members(
    executor: impl PgExecutor<'_>,
    league: LeagueId,
    users: &[i64],
) -> sqlx::Result<HashMap<UserId, Person>> {
    let rows = sqlx::query_as!(
        Person,
        r#"select u.user_id as "id: UserId", u.username, u.name, u.shows_name, u.avatar_key as "avatar: AvatarKey"
           from users u
           where u.user_id = any($2)
             and (select true from league_members m where m.user_id = u.user_id and m.league_id = $1)"#,
        league.0,
        users,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|player| (player.id, player)).collect())
}

/// Returns ids and names of the leagues that have both users as members, highest id first. The queries are separate,
/// because the members of different users may be on different nodes.
pub(super) async fn shared_leagues(
    db: &PgPool,
    user: UserId,
    other: UserId,
    most: i64,
) -> sqlx::Result<Vec<(LeagueId, String)>> {
    let mut ids = leagues_of(db, user).await?;
    if user != other {
        let others = leagues_of(db, other).await?;
        ids.retain(|id| others.contains(id));
    }
    let ids: Vec<i64> = ids.into_iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"select id as "id: LeagueId", name from leagues where id = any($1) order by id desc limit $2"#,
        &ids,
        most,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.name)).collect())
}

/// Returns the names of these users. A deleted user has the name `deleted-` and the id, until a worker ends the membership.
pub(super) async fn players(executor: impl PgExecutor<'_>, users: &[i64]) -> sqlx::Result<HashMap<UserId, Person>> {
    let rows = sqlx::query_as!(
        Person,
        r#"select user_id as "id: UserId", username, name, shows_name, avatar_key as "avatar: AvatarKey"
           from users where user_id = any($1)"#,
        users,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|player| (player.id, player)).collect())
}

/// A round of a tournament that counts for a league.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundRow {
    pub(super) tournament: TournamentId,
    /// `None` for matches without a round.
    pub(super) round: Option<i16>,
    pub(super) with_result: i64,
    /// Number of matches that have no result yet and are not void.
    pub(super) open: i64,
    /// Number of matches with a result that has not reached all scores.
    pub(super) pending: i64,
    /// Number of questions that are resolved.
    pub(super) resolved: i64,
    /// Time of the first match or question of the round, and of the tournament, whether it counts or not.
    pub(super) first: OffsetDateTime,
    pub(super) tournament_first: OffsetDateTime,
    /// Time of the last match or question of the round.
    pub(super) last: OffsetDateTime,
}

/// Returns the rounds of these tournaments with the matches and questions from a round or a time on.
pub(super) async fn rounds(
    executor: impl PgExecutor<'_>,
    tournaments: &[i64],
    from_round: Option<i16>,
    from: Option<OffsetDateTime>,
) -> sqlx::Result<Vec<RoundRow>> {
    sqlx::query_as!(
        RoundRow,
        r#"select tournament_id as "tournament!: TournamentId", round, count(*) filter (where with_result) as "with_result!",
                  count(*) filter (where open) as "open!", count(*) filter (where pending) as "pending!",
                  count(*) filter (where resolved) as "resolved!", min(first) as "first!",
                  min(tournament_first) as "tournament_first!", max(start_time) as "last!"
           from (select *, min(start_time) over (partition by tournament_id, round) as first,
                        min(start_time) over (partition by tournament_id) as tournament_first
           from (select e.tournament_id, e.round, e.start_time, e.status = 'finished' as with_result,
                        e.status not in ('finished', 'abandoned', 'cancelled', 'awarded') as open,
                        exists (select 1 from event_results r where r.event_id = e.id and r.applied_at is null) as pending,
                        false as resolved
                 from events e where e.tournament_id = any($1)
                 union all
                 select q.tournament_id, case when q.event_id is null then q.round else e.round end,
                        coalesce(q.locks_at, e.start_time), false, false, false, q.resolution is not null
                 from questions q left join events e on e.id = q.event_id where q.tournament_id = any($1)) a) c
           where ($2::smallint is null or round >= $2) and ($3::timestamptz is null or start_time >= $3)
           group by tournament_id, round"#,
        tournaments,
        from_round,
        from,
    )
    .fetch_all(executor)
    .await
}

/// How far the scores follow the results of some tournaments.
pub(super) struct Applied {
    /// Number of results that have reached all scores, including corrections, and the time of the latest.
    pub(super) results: i64,
    pub(super) latest: Option<OffsetDateTime>,
    /// Whether a result has not reached all scores.
    pub(super) is_pending: bool,
}

pub(super) async fn applied(executor: impl PgExecutor<'_>, tournaments: &[i64]) -> sqlx::Result<Applied> {
    sqlx::query_as!(
        Applied,
        r#"select count(applied_at) as "results!", max(applied_at) as latest,
                  coalesce(bool_or(applied_at is null), false) as "is_pending!"
           from (select r.applied_at from event_results r join events e on e.id = r.event_id
                 where e.tournament_id = any($1)
                 union all
                 select r.applied_at from question_results r join questions q on q.id = r.question_id
                 where q.tournament_id = any($1)) results"#,
        tournaments,
    )
    .fetch_one(executor)
    .await
}

/// Scores of a user, summed over the scopes of a table, and over those of its latest round.
struct Sums {
    user_id: UserId,
    username: Option<String>,
    name: Option<String>,
    shows_name: Option<bool>,
    avatar: Option<AvatarKey>,
    points: i32,
    exact: i32,
    correct: i32,
    settled: i32,
    latest_points: i32,
    latest_exact: i32,
    latest_correct: i32,
    latest_settled: i32,
}

impl Sums {
    fn score(&self) -> MemberScore {
        let score = |points, exact, correct, settled| Score { points, exact, correct, settled, ..Score::default() };
        MemberScore {
            all: score(self.points, self.exact, self.correct, self.settled),
            latest_round: score(self.latest_points, self.latest_exact, self.latest_correct, self.latest_settled),
        }
    }
}

/// Selects sums of the scores `s` in the scopes `$2`, and in those of the latest round, `$3`. This is a macro because
/// checked queries accept only literals.
macro_rules! sums {
    ($columns:tt, $rest:tt, $($value:expr),+ $(,)?) => {
        sqlx::query_as!(
            Sums,
            "select " + $columns + r#",
                    coalesce(sum(s.points) filter (where s.scope = any($2)), 0)::integer as "points!",
                    coalesce(sum(s.exact) filter (where s.scope = any($2)), 0)::integer as "exact!",
                    coalesce(sum(s.correct) filter (where s.scope = any($2)), 0)::integer as "correct!",
                    coalesce(sum(s.settled) filter (where s.scope = any($2)), 0)::integer as "settled!",
                    coalesce(sum(s.points) filter (where s.scope = any($3)), 0)::integer as "latest_points!",
                    coalesce(sum(s.exact) filter (where s.scope = any($3)), 0)::integer as "latest_exact!",
                    coalesce(sum(s.correct) filter (where s.scope = any($3)), 0)::integer as "latest_correct!",
                    coalesce(sum(s.settled) filter (where s.scope = any($3)), 0)::integer as "latest_settled!" "#
                + $rest,
            $($value),+
        )
    };
}

/// Sums the scores of these users in `scopes`, and those in `latest`. Users without a score are missing.
pub(super) async fn score_sums(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    scopes: &[String],
    latest: &[String],
) -> sqlx::Result<Vec<(UserId, MemberScore)>> {
    let rows = sums!(
        r#"s.user_id as "user_id!: UserId", null as "username?", null as "name?",
           null::boolean as "shows_name?", null as "avatar?: AvatarKey""#,
        "from user_scores s where s.user_id = any($1) and s.scope = any($2::text[] || $3::text[]) group by s.user_id",
        users,
        scopes,
        latest,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.score())).collect())
}

/// A member with their name, unless the row of the user is missing, and their score.
pub(super) struct ScoredMember {
    pub(super) user: UserId,
    pub(super) player: Option<Person>,
    pub(super) score: MemberScore,
}

/// Returns the members of a league with their scores in `scopes` and in `latest`, in the order of their ids.
pub(super) async fn member_scores(
    executor: impl PgExecutor<'_>,
    league: LeagueId,
    scopes: &[String],
    latest: &[String],
) -> sqlx::Result<Vec<ScoredMember>> {
    let rows = sums!(
        r#"m.user_id as "user_id!: UserId", u.username as "username?", u.name as "name?",
           u.shows_name as "shows_name?", u.avatar_key as "avatar?: AvatarKey""#,
        "from league_members m
         left join users u on u.user_id = m.user_id
         left join user_scores s on s.user_id = m.user_id and s.scope = any($2::text[] || $3::text[])
         where m.league_id = $1
         group by m.user_id, u.username, u.name, u.shows_name, u.avatar_key
         order by m.user_id",
        league.0,
        scopes,
        latest,
    )
    .fetch_all(executor)
    .await?;
    let member = |row: Sums| {
        let (user, score) = (row.user_id, row.score());
        let player = row.username.zip(row.shows_name).map(|(username, shows_name)| Person {
            id: user,
            username,
            name: row.name,
            shows_name,
            avatar: row.avatar,
        });
        ScoredMember { user, player, score }
    };
    Ok(rows.into_iter().map(member).collect())
}

/// Scopes that count for members whose matches count from a time after `after`, and not after `until`.
pub(super) struct TimedScopes {
    pub(super) scopes: Vec<String>,
    /// Whether each is part of the score in the latest round, instead of the score in all rounds.
    pub(super) are_latest: Vec<bool>,
    pub(super) after: Vec<OffsetDateTime>,
    pub(super) until: Vec<OffsetDateTime>,
}

/// Sums scores of users in the scopes that count from a time on. Returns the positions of the users with their scores;
/// those without a score are missing.
pub(super) async fn timed_score_sums(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    starts: &[OffsetDateTime],
    wanted: &TimedScopes,
) -> sqlx::Result<Vec<(usize, MemberScore)>> {
    let rows = sqlx::query!(
        r#"select m.number as "number!",
                  coalesce(sum(s.points) filter (where not t.is_latest), 0)::integer as "points!",
                  coalesce(sum(s.exact) filter (where not t.is_latest), 0)::integer as "exact!",
                  coalesce(sum(s.correct) filter (where not t.is_latest), 0)::integer as "correct!",
                  coalesce(sum(s.settled) filter (where not t.is_latest), 0)::integer as "settled!",
                  coalesce(sum(s.points) filter (where t.is_latest), 0)::integer as "latest_points!",
                  coalesce(sum(s.exact) filter (where t.is_latest), 0)::integer as "latest_exact!",
                  coalesce(sum(s.correct) filter (where t.is_latest), 0)::integer as "latest_correct!",
                  coalesce(sum(s.settled) filter (where t.is_latest), 0)::integer as "latest_settled!"
           from unnest($1::bigint[], $2::timestamptz[]) with ordinality as m (user_id, start, number)
           join unnest($3::text[], $4::boolean[], $5::timestamptz[], $6::timestamptz[]) as t (scope, is_latest, after, until)
             on m.start > t.after and m.start <= t.until
           join user_scores s on s.user_id = m.user_id and s.scope = t.scope
           where s.user_id = any($1)
           group by m.number"#,
        users,
        starts,
        &wanted.scopes,
        &wanted.are_latest,
        &wanted.after,
        &wanted.until,
    )
    .fetch_all(executor)
    .await?;
    let score = |points, exact, correct, settled| Score { points, exact, correct, settled, ..Score::default() };
    let summed = rows.into_iter().map(|row| {
        let all = score(row.points, row.exact, row.correct, row.settled);
        let latest_round = score(row.latest_points, row.latest_exact, row.latest_correct, row.latest_settled);
        (position(row.number), MemberScore { all, latest_round })
    });
    Ok(summed.collect())
}

/// Position of a number that PostgreSQL counts from 1.
fn position(number: i64) -> usize {
    usize::try_from(number - 1).unwrap_or(usize::MAX)
}

/// Rounds whose predictions and answers are read for members whose matches count from a time after `after`, and not after
/// `until`.
pub(super) struct TimedRounds {
    pub(super) tournaments: Vec<i64>,
    /// 0 for matches without a round.
    pub(super) rounds: Vec<i16>,
    pub(super) after: Vec<OffsetDateTime>,
    pub(super) until: Vec<OffsetDateTime>,
}

/// Points of a member in a round, summed from predictions or answers.
pub(super) struct RoundScore {
    /// Position of the member.
    pub(super) at: usize,
    pub(super) round: Option<i16>,
    pub(super) score: Score,
}

/// Sums the points of users from their predictions and answers, for matches that start, and questions that lock, at or
/// after the time of each; see `timed_scores.sql`. Predictions and answers of a round are separate rows.
pub(super) async fn timed_scores(
    executor: impl PgExecutor<'_>,
    shards: &Ranges,
    users: &[i64],
    starts: &[OffsetDateTime],
    wanted: &TimedRounds,
) -> sqlx::Result<Vec<RoundScore>> {
    let rows = sqlx::query_file!(
        "src/game/leagues/timed_scores.sql",
        users,
        starts,
        &wanted.tournaments,
        &wanted.rounds,
        &wanted.after,
        &wanted.until,
        shards.only(users),
    )
    .fetch_all(executor)
    .await?;
    let scored = rows.into_iter().map(|row| {
        let (points, exact, correct) = (row.points, row.exact, row.correct);
        let score = Score { points, exact, correct, settled: row.settled, answered: row.answered };
        RoundScore { at: position(row.number), round: row.round, score }
    });
    Ok(scored.collect())
}

/// Returns up to a hundred leagues whose room does not exist yet and that are older than `before`. Leaves out leagues of
/// owners who are creators of `most_rooms` league rooms.
pub(super) async fn without_room(
    executor: impl PgExecutor<'_>,
    before: OffsetDateTime,
    most_rooms: i64,
) -> sqlx::Result<Vec<LeagueId>> {
    sqlx::query_scalar!(
        r#"select id as "id: LeagueId" from leagues l
           where has_chat and created_at < $1
             and not exists (select 1 from rooms r where r.league_id = l.id and r.opened_at is not null)
             and (select count(*) from rooms r where r.creator_id = l.owner_id and r.league_id <> l.id) < $2
           order by id limit 100"#,
        before,
        most_rooms,
    )
    .fetch_all(executor)
    .await
}
