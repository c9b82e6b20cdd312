//! Users and sessions, inserted in bulk because real logins would take too long.

use std::{fmt::Write as _, ops::RangeInclusive};

use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Executor as _, PgPool};

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Token of a user in the service's format: `md_<user in base 36>_<secret>_<checksum>`.
pub(crate) fn token(user: u64) -> String {
    let digit = |byte: u8| char::from(DIGITS[usize::from(byte) % DIGITS.len()]);
    let one = Sha256::digest(user.to_be_bytes());
    let secret = one.iter().chain(Sha256::digest(one).iter()).take(43).map(|&byte| digit(byte)).collect::<String>();
    let start = format!("md_{}_{secret}", base36(user));
    let sum = crc32fast::hash(start.as_bytes());
    let checksum: String = (0..6).rev().map(|place| digit((u64::from(sum) / 62_u64.pow(place) % 62) as u8)).collect();
    format!("{start}_{checksum}")
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[usize::try_from(number % 36).unwrap_or_default()]);
        number /= 36;
        if number == 0 {
            digits.reverse();
            return String::from_utf8(digits).expect("digits");
        }
    }
}

/// Inserts users 1 to `count`, the first `with_session` of them with a session.
pub(crate) async fn make(pool: &PgPool, count: u64, with_session: u64) -> anyhow::Result<()> {
    let users =
        format!("insert into users (created_at, username) select now(), 'fan' || n from generate_series(1, {count}) n");
    pool.execute(AssertSqlSafe(users)).await?;
    // By these, the service finds the user of a chat account.
    pool.execute(
        "insert into username_claims (username, user_id, claimed_at) select username, user_id, created_at from users
         on conflict do nothing",
    )
    .await?;
    make_sessions(pool, 1..=with_session).await
}

/// Inserts a session of each of these users.
pub(crate) async fn make_sessions(pool: &PgPool, users: RangeInclusive<u64>) -> anyhow::Result<()> {
    let mut connection = pool.acquire().await?;
    connection.execute("create temp table known (user_id bigint, token_hash bytea)").await?;
    let mut rows = connection.copy_in_raw("copy known from stdin").await?;
    let mut text = String::new();
    let last = *users.end();
    for user in users {
        let hash = hex::encode(Sha256::digest(token(user).as_bytes()));
        let _ = writeln!(text, "{user}\t\\\\x{hash}");
        if text.len() > 1 << 20 || user == last {
            rows.send(std::mem::take(&mut text).into_bytes()).await?;
        }
    }
    rows.finish().await?;
    connection
        .execute(
            "insert into sessions (user_id, token_hash, created_at, last_used_at, expires_at)
             select user_id, token_hash, now(), now(), now() + interval '30 days' from known on conflict do nothing",
        )
        .await?;
    connection.execute("drop table known").await?;
    Ok(())
}
