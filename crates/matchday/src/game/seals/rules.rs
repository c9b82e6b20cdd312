//! Merkle trees over the hashes of predictions, and the chain of seals; no I/O.
//!
//! The tree is that of RFC 9162, section 2.1. Its leaves are sorted by their hashes, so their order reveals nothing about
//! users. Hashes are stored in tiles of [`TILE`]: all splits of the tree above the size of a tile are at multiples of it,
//! so the tree over all leaves is the tree over the roots of the tiles, and a proof needs one tile of each level.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::ids::{MatchId, TournamentId};

use crate::game::predictions::receipts::{Hash, timestamp};

/// Version of the format of a seal.
pub const VERSION: u8 = 1;

/// Number of hashes in a tile: a power of two.
pub const TILE: usize = 256;

/// Greatest number of leaves that are held in memory at the same time, in 32 bytes each. The predictions of a larger match
/// are read several times, each time for another range of hashes.
const MOST_IN_MEMORY: u64 = 1 << 21;

/// First bytes of the hashed data, which separate the uses of the hash.
const NODE_PREFIX: u8 = 1;
const SEAL_PREFIX: u8 = 2;

/// Hash of an inner node.
fn node(left: Hash, right: Hash) -> Hash {
    Hash::of(&[&[NODE_PREFIX], &left.0, &right.0])
}

/// Root of the tree over these hashes.
pub fn root(hashes: &[Hash]) -> Hash {
    match hashes {
        [] => Hash::of(&[]),
        [only] => *only,
        _ => {
            let (left, right) = hashes.split_at(split(hashes.len()));
            node(root(left), root(right))
        }
    }
}

/// Largest power of two below a number that is at least 2.
fn split(count: usize) -> usize {
    count.next_power_of_two() / 2
}

/// Inclusion path of the leaf at `index`, from the leaf up. Empty if there is no such leaf.
pub fn path(hashes: &[Hash], index: usize) -> Vec<Hash> {
    if hashes.len() < 2 || index >= hashes.len() {
        return Vec::new();
    }
    let at = split(hashes.len());
    let (left, right) = hashes.split_at(at);
    let (mut path, sibling) = if index < at { (path(left, index), right) } else { (path(right, index - at), left) };
    path.push(root(sibling));
    path
}

/// Consecutive hashes of one level of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// 0 for leaves.
    pub level: i16,
    /// Position among the tiles of the level.
    pub number: i32,
    pub hashes: Vec<Hash>,
}

/// Levels of a tree with this number of leaves: the number of hashes of each. The last one has one tile.
pub fn levels(count: u64) -> Vec<u64> {
    let mut levels = vec![count];
    let mut hashes = count;
    while hashes > TILE as u64 {
        hashes = hashes.div_ceil(TILE as u64);
        levels.push(hashes);
    }
    levels
}

/// Builds a tree from leaves in ascending order, with memory for one unfinished tile per level.
#[derive(Debug, Default)]
pub struct TreeBuilder {
    count: u64,
    levels: Vec<Level>,
}

#[derive(Debug, Default)]
struct Level {
    /// Number of finished tiles.
    finished: i32,
    hashes: Vec<Hash>,
}

impl TreeBuilder {
    /// Adds a leaf. Appends the tiles that it completes to `tiles`.
    pub fn push(&mut self, leaf: Hash, tiles: &mut Vec<Tile>) {
        self.count += 1;
        self.push_at(0, leaf, tiles);
    }

    fn push_at(&mut self, level: usize, hash: Hash, tiles: &mut Vec<Tile>) {
        if self.levels.len() <= level {
            self.levels.push(Level::default());
        }
        self.levels[level].hashes.push(hash);
        if self.levels[level].hashes.len() == TILE {
            self.complete(level, tiles);
        }
    }

    /// Ends the tile of a level, and adds its root to the next level.
    fn complete(&mut self, level: usize, tiles: &mut Vec<Tile>) {
        let Level { finished, hashes } = &mut self.levels[level];
        let hashes = std::mem::take(hashes);
        let tile_root = root(&hashes);
        tiles.push(Tile { level: i16::try_from(level).unwrap_or(i16::MAX), number: *finished, hashes });
        *finished += 1;
        self.push_at(level + 1, tile_root, tiles);
    }

    /// Returns the number of leaves and the root. Appends the remaining tiles to `tiles`.
    pub fn finish(mut self, tiles: &mut Vec<Tile>) -> (u64, Hash) {
        let mut level = 0;
        while level < self.levels.len() {
            let Level { finished, hashes } = &mut self.levels[level];
            if *finished == 0 {
                let hashes = std::mem::take(hashes);
                let top = root(&hashes);
                // A single root of a full tile below needs no tile.
                if level == 0 || hashes.len() > 1 {
                    tiles.push(Tile { level: i16::try_from(level).unwrap_or(i16::MAX), number: 0, hashes });
                }
                return (self.count, top);
            }
            if !hashes.is_empty() {
                self.complete(level, tiles);
            }
            level += 1;
        }
        (0, root(&[]))
    }
}

/// One of the passes over the predictions of a match, each for another range of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    number: u64,
    of: u64,
}

impl Pass {
    /// Passes for about this number of leaves, in the order of hashes.
    pub fn all(count: u64) -> impl Iterator<Item = Self> + Send {
        Self::of_at_most(count, MOST_IN_MEMORY)
    }

    /// Passes with about this number of leaves each.
    pub fn of_at_most(count: u64, most: u64) -> impl Iterator<Item = Self> + Send {
        let of = count.div_ceil(most.max(1)).max(1);
        (0..of).map(move |number| Self { number, of })
    }

    /// Capacity for the leaves of this pass among about this number: hashes are spread evenly.
    pub fn expected(self, count: u64) -> usize {
        let share = count / self.of.max(1);
        usize::try_from(share + share / 50 + 1_000).unwrap_or_default()
    }

    pub fn contains(self, hash: &Hash) -> bool {
        let position = hash.0.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        (u128::from(position) * u128::from(self.of)) >> 64 == u128::from(self.number)
    }
}

/// A seal over the predictions of a match. Each includes the hash of the one before, so no seal can be changed or removed
/// without changing all later ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Seal {
    /// Position in the chain of all seals, without gaps.
    #[schema(minimum = 1, example = 2)]
    pub sequence: i64,
    #[schema(example = 1)]
    pub version: u8,
    pub event_id: MatchId,
    /// 1 for the first seal of the match. The last one counts.
    #[schema(minimum = 1, example = 1)]
    pub event_sequence: i32,
    /// Number of predictions.
    #[schema(minimum = 0, example = 3)]
    pub count: i64,
    /// Root of the Merkle tree over the hashes of the predictions (RFC 9162, SHA-256).
    #[schema(value_type = String, example = "0a66ccdaa9bc84e24e49b24ab34f0bfb6572f0816f966a17f31f52f1b493e421")]
    pub root: Hash,
    /// Start of the match at sealing. Predictions that were accepted before it count.
    #[serde(with = "timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000000Z")]
    pub start_time: OffsetDateTime,
    #[serde(with = "timestamp")]
    #[schema(example = "2026-11-20T15:00:02.250000Z")]
    pub sealed_at: OffsetDateTime,
    /// Hash of the seal before; zeros for the first one.
    #[schema(value_type = String, example = "745fe03047eafe4f42cf8c28afbbeb15bad0a8b326aa3db45c25c85974c85049")]
    pub previous: Hash,
    /// SHA-256 of all fields above.
    #[schema(value_type = String, example = "80dd93d2cf5c6dade0265bd19165bdc26ed8f42cfc211e25ee8a5174ffbb2feb")]
    pub hash: Hash,
    /// Base64 of the time-stamp token of an authority over `hash` (RFC 3161, DER); null if there is none, or none yet.
    #[schema(required)]
    pub timestamp_token: Option<Token>,
}

/// A time-stamp token in DER, as Base64 text in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct Token(String);

impl Token {
    pub fn of(der: &[u8]) -> Self {
        Self(STANDARD.encode(der))
    }
}

/// The contents of a seal, before it has a place in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub event: MatchId,
    pub event_sequence: i32,
    pub count: i64,
    pub root: Hash,
    pub start_time: OffsetDateTime,
}

impl Content {
    /// Appends a seal to the chain that ends with the seal of this sequence and hash.
    pub fn seal(self, (sequence, previous): (i64, Hash), sealed_at: OffsetDateTime) -> Seal {
        let Self { event, event_sequence, count, root, start_time } = self;
        let sequence = sequence + 1;
        let hash = Hash::of(&[
            &[SEAL_PREFIX, VERSION],
            &sequence.to_be_bytes(),
            &event.0.to_be_bytes(),
            &event_sequence.to_be_bytes(),
            &count.to_be_bytes(),
            &root.0,
            &timestamp::micros(start_time).to_be_bytes(),
            &timestamp::micros(sealed_at).to_be_bytes(),
            &previous.0,
        ]);
        Seal {
            sequence,
            version: VERSION,
            event_id: event,
            event_sequence,
            count,
            root,
            start_time,
            sealed_at,
            previous,
            hash,
            timestamp_token: None,
        }
    }
}

/// Published when a match is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealFact {
    pub tournament_id: TournamentId,
    pub seal: Seal,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    fn hash(text: &str) -> Hash {
        serde_json::from_value(text.into()).expect("a hash")
    }

    fn leaves(count: u32) -> Vec<Hash> {
        let mut leaves: Vec<Hash> = (0..count).map(|number| Hash::of(&[&number.to_be_bytes()])).collect();
        leaves.sort_unstable();
        leaves
    }

    fn built(leaves: &[Hash]) -> (u64, Hash, Vec<Tile>) {
        let (mut builder, mut tiles) = (TreeBuilder::default(), Vec::new());
        for &leaf in leaves {
            builder.push(leaf, &mut tiles);
        }
        let (count, top) = builder.finish(&mut tiles);
        (count, top, tiles)
    }

    /// Path of a leaf as it is put together from one tile per level.
    fn path_from_tiles(tiles: &[Tile], count: u64, index: usize) -> Vec<Hash> {
        let (mut path_found, mut index) = (Vec::new(), index);
        for (level, _) in levels(count).into_iter().enumerate() {
            let (number, within) = (index / TILE, index % TILE);
            let tile = tiles
                .iter()
                .find(|tile| usize::try_from(tile.level) == Ok(level) && usize::try_from(tile.number) == Ok(number));
            path_found.extend(path(&tile.expect("stored").hashes, within));
            index = number;
        }
        path_found
    }

    #[test]
    fn examples_have_published_roots_and_hashes() {
        let sorted = [
            "462980f83603ebad0795981ac4242544b30618398f8c99a4a64143df9c21938c",
            "a536d2645a3461b7af8ee713518f150af68ae8c2318cb9a870febdce5b9c597a",
            "c209907349400729dbcbdfe88f41d48b16f933c232a2ed5b89e1a1db2188ef10",
        ]
        .map(hash);
        let over_both = hash("399e239c1be8bb25c96a5faf6bd63ee3cf41ca8c287ba1f0e73ca5c2eaab30f1");
        let top = hash("0a66ccdaa9bc84e24e49b24ab34f0bfb6572f0816f966a17f31f52f1b493e421");
        assert_eq!((root(&sorted[..2]), root(&sorted)), (over_both, top));
        assert_eq!(path(&sorted, 1), [sorted[0], sorted[2]]);
        assert_eq!(path(&sorted, 2), [over_both]);

        let empty = Content {
            event: MatchId(6),
            event_sequence: 1,
            count: 0,
            root: root(&[]),
            start_time: datetime!(2026-11-20 12:00 UTC),
        };
        let first = empty.seal((0, Hash::default()), datetime!(2026-11-20 12:00:01.5 UTC));
        assert_eq!(first.root, hash("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
        assert_eq!(first.hash, hash("745fe03047eafe4f42cf8c28afbbeb15bad0a8b326aa3db45c25c85974c85049"));
        let content = Content {
            event: MatchId(7),
            event_sequence: 1,
            count: 3,
            root: top,
            start_time: datetime!(2026-11-20 15:00 UTC),
        };
        let second = content.seal((1, first.hash), datetime!(2026-11-20 15:00:02.25 UTC));
        assert_eq!((second.sequence, second.previous), (2, first.hash));
        assert_eq!(second.hash, hash("80dd93d2cf5c6dade0265bd19165bdc26ed8f42cfc211e25ee8a5174ffbb2feb"));
        let shown = serde_json::to_value(&second).expect("JSON");
        assert_eq!(shown["sealed_at"], "2026-11-20T15:00:02.250000Z");
        assert_eq!(shown["timestamp_token"], serde_json::Value::Null);
        assert_eq!(serde_json::from_value::<Seal>(shown).expect("a seal"), second);
    }

    #[test]
    fn tiles_have_the_same_tree_at_boundaries() {
        for count in [0, 1, 2, 255, 256, 257, 511, 512, 513, 65_535, 65_536, 65_537, 66_000] {
            let leaves = leaves(count);
            let (number, top, tiles) = built(&leaves);
            assert_eq!((number, top), (u64::from(count), root(&leaves)), "{count}");
            let stored: usize = tiles.iter().filter(|tile| tile.level == 0).map(|tile| tile.hashes.len()).sum();
            assert_eq!(stored, leaves.len());
            for index in [0, leaves.len() / 3, leaves.len() / 2, leaves.len().saturating_sub(1)] {
                if index < leaves.len() {
                    assert_eq!(path_from_tiles(&tiles, number, index), path(&leaves, index), "{count} {index}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn tiles_have_the_same_paths(count in 1_u32..2_000, index in 0_usize..2_000) {
            let leaves = leaves(count);
            let index = index % leaves.len();
            let (number, top, tiles) = built(&leaves);
            prop_assert_eq!(top, root(&leaves));
            prop_assert_eq!(path_from_tiles(&tiles, number, index), path(&leaves, index));
        }

        #[test]
        fn each_hash_is_in_one_pass(bytes: [u8; 32], count in 0_u64..10_000_000, most in 1_u64..2_000_000) {
            let passes: Vec<Pass> = Pass::of_at_most(count, most).take(100).collect();
            prop_assume!(count / most < 100);
            prop_assert_eq!(passes.iter().filter(|pass| pass.contains(&Hash(bytes))).count(), 1);
        }

        #[test]
        fn passes_follow_the_order_of_hashes(one: [u8; 32], other: [u8; 32], count in 1_u64..50) {
            let place = |hash: &Hash| Pass::of_at_most(count, 1).position(|pass| pass.contains(hash));
            let (low, high) = if one <= other { (one, other) } else { (other, one) };
            prop_assert!(place(&Hash(low)) <= place(&Hash(high)));
        }
    }
}
