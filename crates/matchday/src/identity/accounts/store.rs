//! SQL queries for user accounts.

use std::collections::{HashMap, HashSet};

use sqlx::{PgConnection, PgExecutor};
use time::{Date, OffsetDateTime};
use web::ids::UserId;

use super::{
    people::Person,
    restrictions::{PhoneMac, Term, Terms},
    service::Account,
};
use crate::identity::{avatars::AvatarKey, phone::Phone, usernames::Username};

/// Locks the user's row until the transaction ends, which serialises changes to one user. Returns whether the user
/// exists.
pub(crate) async fn lock(connection: &mut PgConnection, user: UserId) -> sqlx::Result<bool> {
    let found = sqlx::query_scalar!("select user_id from users where user_id = $1 for no key update", user.0)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

/// Reserves an id for a user that is about to be created.
pub(super) async fn next_id(connection: &mut PgConnection) -> sqlx::Result<UserId> {
    sqlx::query_scalar!(r#"select nextval(pg_get_serial_sequence('users', 'user_id')) as "id!""#)
        .fetch_one(connection)
        .await
        .map(UserId)
}

pub(super) async fn insert(connection: &mut PgConnection, account: &Account) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into users (user_id, created_at, username, username_is_generated, phone, phone_verified_at)
         overriding system value
         values ($1, $2, $3, $4, $5, case when $5::text is null then null else $2::timestamptz end)",
        account.id.0,
        account.created_at,
        account.username.as_str(),
        account.username_is_generated,
        account.phone.as_ref().map(Phone::as_str),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the account at `now`. Expired bans and mutes are left out, even if no worker has lifted them yet.
pub(crate) async fn find(
    executor: impl PgExecutor<'_>,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<Option<Account>> {
    sqlx::query_as!(
        Account,
        r#"select user_id as "id: UserId", created_at, username as "username: Username", username_is_generated,
                  phone as "phone: Phone", name, shows_name, avatar_key as "avatar: AvatarKey", email, date_of_birth,
                  has_chat_account,
                  case when banned_until <= $2 then null else banned_at end as banned_at,
                  case when banned_until <= $2 then null else banned_until end as banned_until,
                  case when muted_until <= $2 then null else muted_at end as muted_at,
                  case when muted_until <= $2 then null else muted_until end as muted_until
           from users where user_id = $1 and deleted_at is null"#,
        user.0,
        now,
    )
    .fetch_optional(executor)
    .await
}

/// Owners of a set of usernames.
pub(crate) struct UsernameOwners {
    /// Current owners. A username that its owner has replaced has none.
    pub(crate) users: HashMap<String, UserId>,
    /// Usernames whose owners deleted their accounts.
    pub(crate) departed: HashSet<String>,
}

/// Finds the owners of these usernames. Claims and users are distributed by different keys, so this takes two queries.
pub(crate) async fn username_owners(connection: &mut PgConnection, usernames: &[&str]) -> sqlx::Result<UsernameOwners> {
    let claims =
        sqlx::query!("select username, user_id from username_claims where username = any($1)", usernames as &[&str])
            .fetch_all(&mut *connection)
            .await?;
    let owners: Vec<i64> = claims.iter().map(|claim| claim.user_id).collect();
    let rows = sqlx::query!(r#"select user_id as "id: UserId", username from users where user_id = any($1)"#, &owners)
        .fetch_all(connection)
        .await?;
    let requested: HashSet<&str> = usernames.iter().copied().collect();
    let users = rows.into_iter().filter(|row| requested.contains(row.username.as_str()));
    Ok(UsernameOwners {
        users: users.map(|row| (row.username, row.id)).collect(),
        // Account deletion sets the owner of the claim to 0.
        departed: claims.into_iter().filter(|claim| claim.user_id == 0).map(|claim| claim.username).collect(),
    })
}

/// Account behind a chat user, as far as chat shows it or decides by it.
#[derive(Clone, Debug)]
pub(crate) struct ChatProfile {
    /// `None` if the account was deleted.
    pub(crate) id: Option<UserId>,
    /// `None` if the user hides the name.
    pub(crate) name: Option<String>,
    pub(crate) avatar: Option<AvatarKey>,
    /// Banned from the service, or deleted.
    pub(crate) is_banned: bool,
    pub(crate) is_muted: bool,
}

/// Returns the accounts that have or had these usernames. Claims and users are distributed by different keys, so this
/// takes two queries.
pub(crate) async fn chat_profiles(
    connection: &mut PgConnection,
    usernames: &[&str],
    now: OffsetDateTime,
) -> sqlx::Result<HashMap<String, ChatProfile>> {
    let claims =
        sqlx::query!("select username, user_id from username_claims where username = any($1)", usernames as &[&str])
            .fetch_all(&mut *connection)
            .await?;
    let owners: Vec<i64> = claims.iter().map(|claim| claim.user_id).collect();
    let rows = sqlx::query!(
        r#"select user_id as "id: UserId", case when shows_name then name end as name,
                  avatar_key as "avatar: AvatarKey",
                  banned_at is not null and (banned_until is null or banned_until > $2) as "is_banned!",
                  muted_at is not null and (muted_until is null or muted_until > $2) as "is_muted!"
           from users where user_id = any($1) and deleted_at is null"#,
        &owners,
        now,
    )
    .fetch_all(connection)
    .await?;
    let profile = |user_id: i64| match rows.iter().find(|row| row.id.0 == user_id) {
        Some(row) => ChatProfile {
            id: Some(row.id),
            name: row.name.clone(),
            avatar: row.avatar.clone(),
            is_banned: row.is_banned,
            is_muted: row.is_muted,
        },
        None => ChatProfile { id: None, name: None, avatar: None, is_banned: true, is_muted: true },
    };
    Ok(claims.into_iter().map(|claim| (claim.username, profile(claim.user_id))).collect())
}

/// Returns the users among these who are neither deleted nor suspended.
pub(crate) async fn people(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    now: OffsetDateTime,
) -> sqlx::Result<HashMap<UserId, Person>> {
    let rows = sqlx::query_as!(
        Person,
        r#"select user_id as "id: UserId", username, name, shows_name, avatar_key as "avatar: AvatarKey"
           from users
           where user_id = any($1) and deleted_at is null and (banned_at is null or banned_until <= $2)"#,
        users,
        now,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|person| (person.id, person)).collect())
}

pub(crate) async fn usernames(connection: &mut PgConnection, users: &[i64]) -> sqlx::Result<HashMap<UserId, String>> {
    let rows = sqlx::query!(r#"select user_id as "id: UserId", username from users where user_id = any($1)"#, users)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.username)).collect())
}

/// Records that this service created the homeserver account of this name, unless the username has changed since.
pub(super) async fn note_chat_account(
    executor: impl PgExecutor<'_>,
    user: UserId,
    username: &Username,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update users set has_chat_account = true where user_id = $1 and username = $2",
        user.0,
        username.as_str(),
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Lets a user replace their username once more, unless the chat account exists after all.
pub(super) async fn allow_another_username(
    executor: impl PgExecutor<'_>,
    user: UserId,
    username: &Username,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update users set username_is_generated = true where user_id = $1 and username = $2 and not has_chat_account",
        user.0,
        username.as_str(),
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Returns the account that owns a phone. The owner cannot change while that account is locked.
pub(crate) async fn phone_owner(connection: &mut PgConnection, phone: &Phone) -> sqlx::Result<Option<UserId>> {
    sqlx::query_scalar!(r#"select user_id as "user_id: UserId" from phone_claims where phone = $1"#, phone.as_str(),)
        .fetch_optional(connection)
        .await
}

/// Claims a phone and returns whether it was free. Waits for a concurrent transaction that claims the same phone.
pub(crate) async fn claim_phone(
    connection: &mut PgConnection,
    phone: &Phone,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let claimed = sqlx::query!(
        "insert into phone_claims (phone, user_id, claimed_at) values ($1, $2, $3)
         on conflict (phone) do nothing returning phone",
        phone.as_str(),
        user.0,
        now,
    )
    .fetch_optional(connection)
    .await?;
    Ok(claimed.is_some())
}

/// Claims a phone for a user that is about to be created. Returns the user's id, or `None` if the phone is taken.
pub(super) async fn claim_phone_for_new(
    connection: &mut PgConnection,
    phone: &Phone,
    now: OffsetDateTime,
) -> sqlx::Result<Option<UserId>> {
    sqlx::query_scalar!(
        r#"insert into phone_claims (phone, user_id, claimed_at)
           values ($1, nextval(pg_get_serial_sequence('users', 'user_id')), $2)
           on conflict (phone) do nothing returning user_id as "user_id: UserId""#,
        phone.as_str(),
        now,
    )
    .fetch_optional(connection)
    .await
}

pub(crate) async fn release_phone(connection: &mut PgConnection, phone: &Phone, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("delete from phone_claims where phone = $1 and user_id = $2", phone.as_str(), user.0)
        .execute(connection)
        .await?;
    Ok(())
}

pub(crate) async fn set_phone(
    connection: &mut PgConnection,
    user: UserId,
    phone: &Phone,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update users set phone = $2, phone_verified_at = $3 where user_id = $1",
        user.0,
        phone.as_str(),
        now,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes the phone of an account, because another account has it.
pub(crate) async fn clear_phone(connection: &mut PgConnection, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("update users set phone = null, phone_verified_at = null where user_id = $1", user.0)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn set_username(connection: &mut PgConnection, user: UserId, username: &Username) -> sqlx::Result<()> {
    sqlx::query!(
        "update users set username = $2, username_is_generated = false, has_chat_account = false where user_id = $1",
        user.0,
        username.as_str(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn set_profile(
    connection: &mut PgConnection,
    user: UserId,
    name: Option<&str>,
    email: Option<&str>,
    date_of_birth: Option<Date>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update users set name = $2, email = $3, date_of_birth = $4 where user_id = $1",
        user.0,
        name,
        email,
        date_of_birth,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Sets the ban and the mute together.
pub(crate) async fn set_terms(connection: &mut PgConnection, user: UserId, terms: Terms) -> sqlx::Result<()> {
    sqlx::query!(
        "update users set banned_at = $2, banned_until = $3, muted_at = $4, muted_until = $5 where user_id = $1",
        user.0,
        terms.ban.map(|ban| ban.since),
        terms.ban.and_then(|ban| ban.until),
        terms.mute.map(|mute| mute.since),
        terms.mute.and_then(|mute| mute.until),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the reason and the time of the latest ban and of the latest mute, by their names.
pub(super) async fn latest_restrictions(
    executor: impl PgExecutor<'_>,
    user: UserId,
) -> sqlx::Result<HashMap<String, (String, OffsetDateTime)>> {
    let rows = sqlx::query!(
        "select distinct on (action) action, reason, created_at from restrictions
         where user_id = $1 and action in ('ban', 'mute') order by action, id desc",
        user.0,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.action, (row.reason, row.created_at))).collect())
}

/// An entry of the user's restriction history.
pub(crate) struct Noted<'a> {
    pub(crate) action: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) operator: &'a str,
    pub(crate) until: Option<OffsetDateTime>,
}

pub(crate) async fn note_restriction(
    connection: &mut PgConnection,
    user: UserId,
    noted: &Noted<'_>,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into restrictions (user_id, action, reason, operator, created_at, until) values ($1, $2, $3, $4, $5, $6)",
        user.0,
        noted.action,
        noted.reason,
        noted.operator,
        now,
        noted.until,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Stores the restrictions of an account with the hash of a phone.
pub(crate) async fn keep_phone(
    connection: &mut PgConnection,
    user: UserId,
    phone: PhoneMac,
    terms: Terms,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into restricted_phones (mac, key_version, user_id, banned_at, banned_until, muted_at, muted_until)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (mac) do update set user_id = excluded.user_id,
             banned_at = excluded.banned_at, banned_until = excluded.banned_until,
             muted_at = excluded.muted_at, muted_until = excluded.muted_until",
        &phone.mac[..],
        phone.key_version,
        user.0,
        terms.ban.map(|ban| ban.since),
        terms.ban.and_then(|ban| ban.until),
        terms.mute.map(|mute| mute.since),
        terms.mute.and_then(|mute| mute.until),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes the restrictions stored with these hashes.
pub(crate) async fn forget_phone(connection: &mut PgConnection, macs: &[PhoneMac]) -> sqlx::Result<()> {
    sqlx::query!("delete from restricted_phones where mac = any($1)", &bytes(macs)).execute(connection).await?;
    Ok(())
}

fn bytes(macs: &[PhoneMac]) -> Vec<Vec<u8>> {
    macs.iter().map(|phone| phone.mac.to_vec()).collect()
}

/// Restrictions that follow a phone, whichever key hashed it.
pub(crate) async fn terms_of_phone(connection: &mut PgConnection, macs: &[PhoneMac]) -> sqlx::Result<Terms> {
    let rows = sqlx::query!(
        "select banned_at, banned_until, muted_at, muted_until from restricted_phones where mac = any($1)",
        &bytes(macs),
    )
    .fetch_all(connection)
    .await?;
    let term = |since: Option<OffsetDateTime>, until| since.map(|since| Term { since, until });
    Ok(rows.into_iter().fold(Terms::default(), |terms, row| {
        let (ban, mute) = (term(row.banned_at, row.banned_until), term(row.muted_at, row.muted_until));
        terms.longer(Terms { ban, mute })
    }))
}

/// Applies the account's restrictions to its current phone and to the phones that it has released.
pub(crate) async fn update_phones(
    connection: &mut PgConnection,
    user: UserId,
    macs: &[PhoneMac],
    terms: Terms,
) -> sqlx::Result<()> {
    if terms == Terms::default() {
        sqlx::query!("delete from restricted_phones where user_id = $1 or mac = any($2)", user.0, &bytes(macs))
            .execute(connection)
            .await?;
        return Ok(());
    }
    sqlx::query!(
        "update restricted_phones set banned_at = $3, banned_until = $4, muted_at = $5, muted_until = $6
         where user_id = $1 or mac = any($2)",
        user.0,
        &bytes(macs),
        terms.ban.map(|ban| ban.since),
        terms.ban.and_then(|ban| ban.until),
        terms.mute.map(|mute| mute.since),
        terms.mute.and_then(|mute| mute.until),
    )
    .execute(connection)
    .await?;
    Ok(())
}
