//! Assignment of users to shards of the batch writers; no I/O.
//!
//! A shard is an equal slice of the range of PostgreSQL's `hashint8(user_id)`. Citus places the rows of a distributed
//! table the same way, so with as many writer shards as Citus shards, each batch stays on one of them. On a single
//! node, sharding only keeps the writes of one user in order.

/// Shard of a user, starting at 0.
pub fn shard_of(user: i64, shards: usize) -> usize {
    let position = u64::try_from(i64::from(hash(user)) - i64::from(i32::MIN)).unwrap_or_default();
    let shard = (position * u64::try_from(shards).unwrap_or(1)) >> 32;
    usize::try_from(shard).unwrap_or_default()
}

/// PostgreSQL's `hashint8`: folds the two halves of the number into one, so equal numbers of all integer types
/// have equal hashes, and applies Bob Jenkins' final mix.
fn hash(number: i64) -> i32 {
    let halves = number.cast_unsigned();
    let (high, low) = ((halves >> 32) as u32, (halves & 0xffff_ffff) as u32);
    let key = low ^ if number >= 0 { high } else { !high };
    let start: u32 = 0x9e37_79b9_u32.wrapping_add(4).wrapping_add(3_923_095);
    let (mut a, mut b, mut c) = (start.wrapping_add(key), start, start);
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    c.cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sqlx::PgPool;

    use super::*;
    use crate::testing::{as_service, with_database};

    #[tokio::test]
    async fn hash_equals_postgresql() {
        with_database(async |options| {
            let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
            let mut numbers: Vec<i64> =
                (-300..300).chain([i64::MIN, i64::MAX, 1 << 32, (1 << 32) - 1, -(1 << 32)]).collect();
            numbers.extend((0_i64..2_000).map(|n| n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n << 7)));
            let theirs: Vec<i32> = sqlx::query_scalar(
                "select hashint8(n) from unnest($1::bigint[]) with ordinality as u (n, at) order by at",
            )
            .bind(&numbers)
            .fetch_all(&db)
            .await
            .expect("hashed");
            let ours: Vec<i32> = numbers.iter().copied().map(hash).collect();
            assert_eq!(ours, theirs);
            db.close().await;
        })
        .await;
    }

    #[test]
    fn users_spread_evenly() {
        for shards in [1, 2, 3, 4, 32] {
            let mut users = vec![0_usize; shards];
            for user in 1..=32_000 {
                users[shard_of(user, shards)] += 1;
            }
            let fair = 32_000 / shards;
            assert!(users.iter().all(|&count| count.abs_diff(fair) < fair / 4 + 1), "{users:?}");
        }
    }

    proptest! {
        #[test]
        fn every_user_has_a_shard(user: i64, shards in 1_usize..100) {
            prop_assert!(shard_of(user, shards) < shards);
        }
    }
}
