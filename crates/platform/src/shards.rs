//! Assignment of users to shards: of the batch writers, and of Citus where the database is distributed.
//!
//! A shard is a slice of the range of PostgreSQL's `hashint8(user_id)`. Citus places the rows of a distributed table the
//! same way. Sharding keeps the writes of one user in order. On Citus, it also keeps every batch on one node: a statement
//! for users of several shards is planned and sent once for each of them, and cannot lock rows.

use std::sync::Arc;

use sqlx::PgConnection;
use tokio::sync::OnceCell;

use crate::citus;

/// Writer of a user among `shards` batch writers, starting at 0.
pub fn shard_of(user: i64, shards: usize) -> usize {
    let position = u64::try_from(i64::from(hash(user)) - i64::from(i32::MIN)).unwrap_or_default();
    let shard = (position * u64::try_from(shards).unwrap_or(1)) >> 32;
    usize::try_from(shard).unwrap_or_default()
}

/// The shards of the user tables in Citus. Read from the database on first use, because a process starts without it.
/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shards(Arc<OnceCell<Ranges>>);

impl Shards {
    /// One shard with all users, in any database.
    pub fn one() -> Self {
        Self(Arc::new(OnceCell::from(Ranges::default())))
    }

    /// Returns the shards if they were read before.
    pub fn known(&self) -> Option<&Ranges> {
        self.0.get()
    }

    /// Returns the shards, after reading them on the first call. They change only when an operator splits a shard, and
    /// the processes must be restarted then.
    pub async fn get(&self, connection: &mut PgConnection) -> sqlx::Result<&Ranges> {
        self.0.get_or_try_init(|| read(connection)).await
    }
}

async fn read(connection: &mut PgConnection) -> sqlx::Result<Ranges> {
    if !citus::is_present(connection).await? {
        return Ok(Ranges::default());
    }
    let starts = sqlx::query_scalar(
        "select shardminvalue::integer from pg_dist_shard where logicalrelid = 'users'::regclass order by 1",
    );
    starts.fetch_all(connection).await.map(Ranges)
}

/// First hash of each shard, in order. Empty on plain PostgreSQL, where all users are in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<i32>);

impl From<Vec<i32>> for Ranges {
    /// Takes the first hash of each shard, in ascending order.
    fn from(starts: Vec<i32>) -> Self {
        Self(starts)
    }
}

impl Ranges {
    /// Shard of a user, starting at 0.
    pub fn shard_of(&self, user: i64) -> usize {
        if self.0.len() < 2 {
            return 0;
        }
        let hash = hash(user);
        self.0.partition_point(|&start| start <= hash).saturating_sub(1)
    }

    /// Value for the condition `($n::bigint[] is null or user_id = any($n))`, by which Citus finds the shard of a
    /// statement. `None` on plain PostgreSQL, where comparing each row with a long array would cost more than the rest
    /// of the statement.
    pub fn only<'a>(&self, users: &'a [i64]) -> Option<&'a [i64]> {
        (!self.0.is_empty()).then_some(users)
    }

    /// Divides users by shard, in the order of shards. The users of a shard keep their order.
    pub fn group(&self, users: &[i64]) -> Vec<Vec<i64>> {
        let mut groups = vec![Vec::new(); self.0.len().max(1)];
        for &user in users {
            groups[self.shard_of(user)].push(user);
        }
        groups.retain(|group| !group.is_empty());
        groups
    }
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

    /// Ranges of equal size, as Citus creates them.
    fn ranges(shards: i64) -> Ranges {
        let start = |shard| i32::try_from(i64::from(i32::MIN) + shard * ((1 << 32) / shards)).expect("in the range");
        Ranges((0..shards).map(start).collect())
    }

    #[test]
    fn plain_database_has_one_group() {
        let plain = Ranges::default();
        assert_eq!(plain.group(&[3, 1, 2]), [[3, 1, 2]]);
        assert_eq!(plain.group(&[]), Vec::<Vec<i64>>::new());
        assert_eq!((plain.only(&[1]), ranges(1).only(&[1])), (None, Some(&[1][..])));
    }

    #[test]
    fn users_are_grouped_by_range() {
        let (ranges, users) = (ranges(32), (1..=1_000).collect::<Vec<i64>>());
        let groups = ranges.group(&users);
        assert_eq!(groups.len(), 32);
        for group in &groups {
            assert!(group.is_sorted() && group.iter().all(|&user| ranges.shard_of(user) == ranges.shard_of(group[0])));
        }
        assert!(groups.is_sorted_by_key(|group| ranges.shard_of(group[0])));
        let mut all = groups.concat();
        all.sort_unstable();
        assert_eq!(all, users);
    }

    proptest! {
        #[test]
        fn writers_and_equal_ranges_agree(user: i64, power in 0_u32..7) {
            let shards = 1_usize << power;
            prop_assert_eq!(ranges(1 << power).shard_of(user), shard_of(user, shards));
        }

        #[test]
        fn every_user_has_a_shard(user: i64, shards in 1_usize..100) {
            prop_assert!(shard_of(user, shards) < shards);
        }
    }
}
