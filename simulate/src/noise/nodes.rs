//! Ranks on nodes that were recorded as a whole: consecutive ranks share a node, each has a CPU of its
//! own, and all of them are at the same moment of the recording.

use super::{Timeline, draw, spread::below};
use crate::simd::Vector;

/// The recorded nodes, and how many ranks share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    ranks_per_node: u64,
    /// Rounded down, for vectors: 2^(32 + shift) / ranks per node.
    reciprocal: i64,
    shift: u32,
    /// First timeline and number of timelines of each recorded node.
    firsts: Vec<i64>,
    counts: Vec<i64>,
    /// Every rank of a node has its CPU: the first rank the first one, and so on.
    whole: bool,
}

/// Numbers that place a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeKeys {
    /// Which recorded node it is like.
    pub node: u64,
    /// The CPU of its first rank, if there are more CPUs than ranks.
    pub first: u64,
}

impl Nodes {
    /// `counts` are the numbers of timelines of each node, in order. None if a node has fewer than the
    /// ranks that share it, or if the timelines of a node have different spans.
    #[must_use]
    pub fn new(timelines: &[Timeline], counts: &[usize], ranks_per_node: u64) -> Option<Nodes> {
        let total = counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
        let enough = counts.iter().all(|&count| count as u64 >= ranks_per_node);
        if total != Some(timelines.len()) || !enough || ranks_per_node == 0 || counts.is_empty() {
            return None;
        }
        let mut rest = timelines;
        for &count in counts {
            let (node, after) = rest.split_at(count);
            if node.windows(2).any(|pair| pair[0].span() != pair[1].span()) {
                return None;
            }
            rest = after;
        }
        let firsts = counts.iter().scan(0, |next, &count| {
            let first = *next;
            *next += count as i64;
            Some(first)
        });
        // Vectors multiply 32 bits; no machine has a node with more ranks.
        let shift = ranks_per_node.ilog2();
        let reciprocal =
            ((1u128 << (32 + shift)) / u128::from(ranks_per_node)).min(u32::MAX.into());
        (ranks_per_node < 1 << 31).then(|| Nodes {
            ranks_per_node,
            reciprocal: reciprocal as i64,
            shift,
            firsts: firsts.collect(),
            counts: counts.iter().map(|&count| count as i64).collect(),
            whole: counts.iter().all(|&count| count as u64 == ranks_per_node),
        })
    }

    #[must_use]
    pub fn ranks_per_node(&self) -> u64 {
        self.ranks_per_node
    }

    /// The node of a rank, and its timeline.
    #[inline]
    pub(super) fn place(&self, rank: u64, keys: &NodeKeys) -> (u64, usize) {
        let (node, slot) = (rank / self.ranks_per_node, rank % self.ranks_per_node);
        let like = below(draw(keys.node, node), self.counts.len() as i64) as usize;
        let (first, count) = (self.firsts[like], self.counts[like]);
        let from = if self.whole { 0 } else { below(draw(keys.first, node), count) };
        (node, (first + (from + slot as i64) % count) as usize)
    }

    /// The same for many ranks below 2^32.
    #[inline(always)]
    pub(super) fn place_many<V: Vector>(&self, ranks: V, keys: &NodeKeys) -> (V, V) {
        let per_node = V::splat(self.ranks_per_node as i64);
        // Lanes without a rank may hold any number; their results are not used, but looked up.
        let ranks = ranks.and(V::splat(u32::MAX.into()));
        // At most one too small.
        let quotient = ranks.mul_low(V::splat(self.reciprocal)).shr(32).shr(self.shift);
        let slot = ranks.sub(quotient.mul(per_node));
        let over = slot.above(V::splat(self.ranks_per_node as i64 - 1));
        let node = quotient.select(over, quotient.add(V::splat(1)));
        let slot = slot.select(over, slot.sub(per_node));
        let (first, count) = match (&self.firsts[..], &self.counts[..]) {
            ([first], [count]) => (V::splat(*first), V::splat(*count)),
            (firsts, counts) => {
                let number = V::splat(counts.len() as i64);
                let like = super::many::below(super::draw::draw_many(keys.node, node), number);
                (V::gather(firsts, like), V::gather(counts, like))
            }
        };
        if self.whole {
            return (node, first.add(slot));
        }
        let from = super::many::below(super::draw::draw_many(keys.first, node), count);
        let at = from.add(slot);
        let at = at.select(!count.above(at), at.sub(count));
        (node, first.add(at))
    }
}
