//! Slots of the counts, and positions in lists of follows. No I/O.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use platform::shards::Ranges;
use time::OffsetDateTime;
use utoipa::IntoParams;
use web::{
    fields::{FromParameters, FromQuery, Parameters},
    ids::UserId,
};

/// Number of rows over which the followers of a user are counted. As many users can follow the same user at the same
/// time without waiting for each other.
const SLOTS: i64 = 16;

/// Slot with the number of users whom a user follows. Only the user changes it, so it needs no further slots.
pub(super) const FOLLOWING_SLOT: i16 = 0;

const USUAL_PER_PAGE: i64 = 20;
const MOST_PER_PAGE: i64 = 100;

/// Slot in which a follower is counted. It depends only on the follower, so a slot never becomes negative.
pub(super) fn slot_of(follower: UserId) -> i16 {
    i16::try_from(follower.0.rem_euclid(SLOTS)).unwrap_or_default()
}

/// A change of the counts of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountChange {
    pub(super) user: UserId,
    pub(super) slot: i16,
    pub(super) followers: i64,
    pub(super) following: i64,
}

/// Returns the changes that new (1) or deleted (-1) follows make, each given as the follower and the followed user. They
/// are in the order in which all writers lock the rows, by shard and user; otherwise two writers could wait for each other.
pub(super) fn count_changes(
    shards: &Ranges,
    follows: impl IntoIterator<Item = (UserId, UserId)>,
    by: i64,
) -> Vec<CountChange> {
    let both = |(follower, followed): (UserId, UserId)| {
        [
            CountChange { user: follower, slot: FOLLOWING_SLOT, followers: 0, following: by },
            CountChange { user: followed, slot: slot_of(follower), followers: by, following: 0 },
        ]
    };
    let mut changes: Vec<CountChange> = follows.into_iter().flat_map(both).collect();
    changes.sort_unstable_by_key(|change| (shards.shard_of(change.user.0), change.user, change.slot));
    changes
}

/// A position in a list of follows, opaque to clients: directly after the follow with this time and this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowCursor {
    pub(super) followed_at: OffsetDateTime,
    pub(super) user: UserId,
}

impl fmt::Display for FollowCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The database stores microseconds.
        let micros = i64::try_from(self.followed_at.unix_timestamp_nanos() / 1_000).unwrap_or_default();
        let bytes = [micros.to_be_bytes(), self.user.0.to_be_bytes()].concat();
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromQuery for FollowCursor {
    const EXPECTED: &'static str = "must be a cursor from an earlier response";

    fn from_query(text: &str) -> Option<Self> {
        let bytes: [u8; 16] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
        let number = |half: &[u8]| Some(i64::from_be_bytes(half.try_into().ok()?));
        let (micros, user) = (number(&bytes[..8])?, number(&bytes[8..])?);
        let followed_at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000).ok()?;
        // Follows have existed since this service; other times are forged, and some of them no database can store.
        let is_plausible = user >= 1 && (1970..10_000).contains(&followed_at.year());
        is_plausible.then_some(Self { followed_at, user: UserId(user) })
    }
}

/// Requested part of a list of follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FollowPaging {
    /// Number of users to return. Values above 100 are treated as 100.
    #[param(rename = "per_page", value_type = Option<i64>, minimum = 1, default = 20, example = 20)]
    pub(super) limit: i64,
    /// Value of `next_cursor` in the previous response.
    #[param(rename = "cursor", value_type = Option<String>, example = "AAY-QpYbQAAAAAAAAAAADA")]
    pub(super) after: Option<FollowCursor>,
}

struct PerPage(i64);

impl FromQuery for PerPage {
    const EXPECTED: &'static str = "must be a positive integer";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&number| number >= 1).map(Self)
    }
}

impl FromParameters for FollowPaging {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        let per_page = parameters.optional::<PerPage>("per_page");
        let after = parameters.optional("cursor");
        let limit = per_page?.map_or(USUAL_PER_PAGE, |PerPage(number)| number.min(MOST_PER_PAGE));
        Some(Self { limit, after: after? })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn cursor(micros: i64, user: i64) -> FollowCursor {
        let followed_at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000).expect("a time");
        FollowCursor { followed_at, user: UserId(user) }
    }

    #[test]
    fn forged_cursor_is_refused() {
        let read = |query: &str| Parameters::parse::<FollowPaging>(query).ok();
        assert_eq!(read(""), Some(FollowPaging { limit: 20, after: None }));
        assert_eq!(read("per_page=1000"), Some(FollowPaging { limit: 100, after: None }));
        let good = cursor(1_795_186_800_000_000, 12);
        assert_eq!(read(&format!("cursor={good}")), Some(FollowPaging { limit: 20, after: Some(good) }));
        for bad in ["", "x!", "AAAAAAAAAGQ", &format!("{good}A"), &format!("{good}="), &cursor(0, 0).to_string()] {
            assert_eq!(read(&format!("cursor={bad}")), None, "{bad}");
        }
        for bad in ["per_page=0", "per_page=x", "per_page="] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn cursor_round_trips(micros in 0_i64..253_402_300_800_000_000, user in 1_i64..) {
            let cursor = cursor(micros, user);
            prop_assert_eq!(FollowCursor::from_query(&cursor.to_string()), Some(cursor));
        }

        #[test]
        fn parsed_cursor_is_canonical(text in prop_oneof![".*", "[A-Za-z0-9_-]{21,23}", "AAY[A-Za-z0-9_-]{8}A{10}."]) {
            if let Some(cursor) = FollowCursor::from_query(&text) {
                prop_assert_eq!(cursor.to_string(), text);
            }
        }

        #[test]
        fn count_changes_are_ordered_and_add_up(
            pairs in prop::collection::vec((1_i64..40, 1_i64..40), 0..60), by in prop_oneof![Just(1_i64), Just(-1)],
            shards in prop_oneof![Just(Vec::<i32>::new()), Just(vec![i32::MIN, -1_000_000_000, 0, 1_000_000_000])]
        ) {
            let shards = Ranges::from(shards);
            let pairs: Vec<(UserId, UserId)> = pairs.into_iter().map(|(a, b)| (UserId(a), UserId(b))).collect();
            let changes = count_changes(&shards, pairs.clone(), by);
            let order = |change: &CountChange| (shards.shard_of(change.user.0), change.user, change.slot);
            prop_assert!(changes.is_sorted_by_key(order));
            let (mut followers, mut following) = (HashMap::new(), HashMap::new());
            for change in changes {
                *followers.entry(change.user).or_insert(0) += change.followers;
                *following.entry(change.user).or_insert(0) += change.following;
            }
            let number = |count: usize| by * i64::try_from(count).expect("a small number");
            for user in (1..40).map(UserId) {
                let expected = number(pairs.iter().filter(|(_, followed)| *followed == user).count());
                prop_assert_eq!(followers.get(&user).copied().unwrap_or_default(), expected);
                let expected = number(pairs.iter().filter(|(follower, _)| *follower == user).count());
                prop_assert_eq!(following.get(&user).copied().unwrap_or_default(), expected);
            }
        }

        #[test]
        fn slot_is_in_range(user in any::<i64>()) {
            prop_assert!((0..16).contains(&slot_of(UserId(user))));
        }
    }
}
