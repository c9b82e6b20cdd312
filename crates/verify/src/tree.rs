//! Merkle trees of RFC 9162, section 2.1, with SHA-256.

use sha2::{Digest as _, Sha256};

use crate::fields::Hash;

/// Hash of a leaf's entry.
pub(crate) fn leaf_hash(entry: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update([0x00]);
    hasher.update(entry);
    Hash(hasher.finalize().into())
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update([0x01]);
    hasher.update(left.0);
    hasher.update(right.0);
    Hash(hasher.finalize().into())
}

/// Root over leaf hashes in this order (section 2.1.1), computed from left to right: complete subtrees wait on a stack
/// until their sibling is complete too.
pub(crate) fn root(leaves: impl IntoIterator<Item = Hash>) -> Hash {
    let mut stack: Vec<(u32, Hash)> = Vec::new();
    for leaf in leaves {
        let (mut level, mut hash) = (0, leaf);
        while let Some((_, left)) = stack.pop_if(|(other, _)| *other == level) {
            hash = node_hash(&left, &hash);
            level += 1;
        }
        stack.push((level, hash));
    }
    let Some((_, mut hash)) = stack.pop() else { return Hash(Sha256::digest([]).into()) };
    while let Some((_, left)) = stack.pop() {
        hash = node_hash(&left, &hash);
    }
    hash
}

/// Root that follows from a leaf and its inclusion path (section 2.1.3.2); `None` if the path has the wrong length.
pub(crate) fn root_from_path(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    let (mut position, mut last, mut hash) = (index, size - 1, leaf);
    for sibling in path {
        if last == 0 {
            return None;
        }
        if position & 1 == 1 || position == last {
            hash = node_hash(sibling, &hash);
            while position & 1 == 0 && position != 0 {
                position >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        position >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Root as section 2.1.1 defines it.
    fn defined_root(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Hash(Sha256::digest([]).into()),
            [only] => *only,
            _ => {
                let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
                node_hash(&defined_root(left), &defined_root(right))
            }
        }
    }

    /// Root, and the inclusion path of every leaf as section 2.1.3.1 defines it.
    fn defined_paths(leaves: &[Hash]) -> (Hash, Vec<Vec<Hash>>) {
        if leaves.len() < 2 {
            return (defined_root(leaves), vec![Vec::new(); leaves.len()]);
        }
        let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
        let ((left, mut paths), (right, further)) = (defined_paths(left), defined_paths(right));
        let at = paths.len();
        paths.extend(further);
        for (index, path) in paths.iter_mut().enumerate() {
            path.push(if index < at { right } else { left });
        }
        (node_hash(&left, &right), paths)
    }

    fn leaves(count: usize) -> Vec<Hash> {
        let mut leaves: Vec<Hash> = (0..count).map(|number| leaf_hash(&number.to_be_bytes())).collect();
        leaves.sort_unstable();
        leaves
    }

    fn flipped(mut hash: Hash, bit: usize) -> Hash {
        hash.0[bit / 8 % 32] ^= 1 << (bit % 8);
        hash
    }

    #[test]
    fn every_proof_of_small_trees_verifies() {
        for count in 1..=130 {
            let leaves = leaves(count);
            let top = root(leaves.iter().copied());
            let (defined, paths) = defined_paths(&leaves);
            assert_eq!((top, top), (defined, defined_root(&leaves)), "{count}");
            for (index, (&leaf, path)) in leaves.iter().zip(&paths).enumerate() {
                assert_eq!(root_from_path(leaf, index as u64, count as u64, path), Some(top), "{index} of {count}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

        #[test]
        fn all_proofs_verify_and_changed_ones_fail(count in 1_usize..=5_000, bit in 0_usize..256, step in 0_usize..16) {
            let leaves = leaves(count);
            let top = root(leaves.iter().copied());
            let (defined, paths) = defined_paths(&leaves);
            prop_assert_eq!(top, defined);
            prop_assert_ne!(root(leaves.iter().map(|&leaf| if leaf == leaves[bit % count] { flipped(leaf, bit) } else { leaf })), top);
            let size = count as u64;
            for (at, (&leaf, path)) in (0..).zip(leaves.iter().zip(&paths)) {
                prop_assert_eq!(root_from_path(leaf, at, size, path), Some(top));
            }
            // Each change costs as much as a proof, so only some proofs are changed.
            for (index, (&leaf, path)) in leaves.iter().zip(&paths).enumerate().step_by(1 + count / 64) {
                let at = index as u64;
                prop_assert_ne!(root_from_path(flipped(leaf, bit), at, size, path), Some(top), "leaf");
                prop_assert_ne!(root_from_path(leaf, at, size, path), Some(flipped(top, bit)), "root");
                for place in 0..path.len() {
                    let mut changed = path.clone();
                    changed[place] = flipped(changed[place], bit);
                    prop_assert_ne!(root_from_path(leaf, at, size, &changed), Some(top), "path");
                }
                prop_assert_ne!(root_from_path(leaf, at ^ (1 << step), size, path), Some(top), "index");
                if path.len() > 1 {
                    let mut swapped = path.clone();
                    swapped.swap(0, path.len() - 1);
                    prop_assert_ne!(root_from_path(leaf, at, size, &swapped), Some(top), "order");
                    prop_assert_ne!(root_from_path(leaf, at, size, &path[1..]), Some(top), "shorter");
                }
                let longer = [&path[..], &[leaf]].concat();
                prop_assert_eq!(root_from_path(leaf, at, size, &longer), None, "longer");
            }
        }

        #[test]
        fn another_order_has_another_root(count in 2_usize..500, one in 0_usize..500, other in 0_usize..500) {
            let leaves = leaves(count);
            let mut swapped = leaves.clone();
            swapped.swap(one % count, other % count);
            prop_assume!(swapped != leaves);
            prop_assert_ne!(root(swapped), root(leaves));
        }
    }
}
