//! Finds the positions of many ranks in the noise together: each lookup misses the cache, and together
//! the misses overlap.

use super::{
    draw::draw_many,
    lookup::Lookup,
    nodes::{NodeKeys, Nodes},
    periodic::Periodic,
    timeline::MAX_SPAN,
};
use crate::simd::{List, Vector};

/// One run's noise, with independent random offsets of the ranks or nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Many<'a> {
    pub(super) lookup: &'a Lookup,
    /// Start and length of each timeline in the lookup.
    pub(super) bases: &'a [i64],
    pub(super) spans: &'a [i64],
    /// If there is one timeline, of this noise.
    pub(super) periodic: Option<Periodic>,
    /// If ranks share nodes.
    pub(super) nodes: Option<(&'a Nodes, NodeKeys)>,
    pub(super) timeline_key: u64,
    pub(super) offset_key: u64,
    pub(super) repeat: bool,
}

/// A rank's timeline in the lookup.
#[derive(Clone, Copy)]
pub(crate) struct Turn<V> {
    /// Number that its offset is drawn with: that of the rank or of its node.
    drawn: V,
    pub base: V,
    pub span: V,
    /// The latest time for which the noise is defined.
    pub limit: V,
}

impl Many<'_> {
    /// The timelines of these ranks.
    #[inline(always)]
    pub fn turn<V: Vector>(&self, ranks: V) -> Turn<V> {
        let (drawn, base, span) = match (&self.nodes, self.bases, self.spans) {
            (Some((nodes, keys)), bases, spans) => {
                let (node, timeline) = nodes.place_many(ranks, keys);
                (node, V::gather(bases, timeline), V::gather(spans, timeline))
            }
            (None, [base], [span]) => (ranks, V::splat(*base), V::splat(*span)),
            (None, bases, spans) => {
                let bits = draw_many(self.timeline_key, ranks);
                let timeline = below(bits, V::splat(bases.len() as i64));
                (ranks, V::gather(bases, timeline), V::gather(spans, timeline))
            }
        };
        Turn { drawn, base, span, limit: if self.repeat { V::splat(MAX_SPAN) } else { span } }
    }

    /// Positions of these ranks in the lookup, each at its own time; negative if they have wrapped
    /// around their timeline more than once, which only [`Local`](super::Local) supports.
    #[inline(always)]
    pub fn positions<V: Vector>(&self, turn: &Turn<V>, times: V) -> V {
        let span = turn.span;
        let at = times.add(below(draw_many(self.offset_key, turn.drawn), span));
        let at = at.select(!span.above(at), at.sub(span));
        let known = span.above(at) & at.above(V::splat(-1));
        V::splat(-1).select(known, at.add(turn.base))
    }

    /// The first detours that have not ended at these positions; arbitrary for negative ones.
    #[inline(always)]
    pub fn first_after<V: Vector>(&self, positions: &List, indices: &mut List) {
        match self.periodic {
            Some(Periodic { length, .. }) => {
                indices.set_len(positions.len());
                for at in positions.steps() {
                    let inside = V::splat(length).above(positions.at(at));
                    indices.set(at, V::splat(1).select(inside, V::splat(0)));
                }
            }
            None => self.lookup.first_after_all::<V>(positions, indices),
        }
    }

    pub fn lookup(&self) -> &Lookup {
        self.lookup
    }
}

/// Numbers below `bound`, each from 64 random bits.
#[inline(always)]
pub(super) fn below<V: Vector>(bits: V, bound: V) -> V {
    // The upper half of the product, from 32-bit halves, which vectors can multiply. The compiler
    // turns the usual form into a scalar instruction without vector equivalent, so the bound is split
    // one bit lower.
    let (high, low) = (bits.shr(32), bits);
    let (bound_high, bound_low) = (bound.shr(31), bound.and(V::splat((1 << 31) - 1)));
    let middle = low.mul_low(bound_high).add(low.mul_low(bound_low).shr(31)).shr(1);
    let middle = high.mul_low(bound_low).add(middle).shr(31);
    high.mul_low(bound_high).add(middle).shr(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        noise::{Model, Noise, Offsets, RunNoise, Timeline, draw},
        simd::{self, Kernel, MOST, WIDTHS, at_most},
    };

    struct Below<'a>(&'a [(u64, i64)]);

    impl Kernel for Below<'_> {
        type Output = Vec<i64>;

        fn run<V: Vector>(self) -> Vec<i64> {
            let one = |&(bits, bound): &(u64, i64)| {
                let mut all = [0; simd::LANES];
                below(V::splat(bits as i64), V::splat(bound)).store(&mut all);
                all[7]
            };
            self.0.iter().map(one).collect()
        }
    }

    #[test]
    fn a_random_number_below_a_bound_is_the_upper_half_of_a_product() {
        let mut cases: Vec<_> =
            (0..1000).map(|i| (draw(3, i), (draw(4, i) >> (2 + i % 60)) as i64)).collect();
        cases.extend([(u64::MAX, i64::MAX), (u64::MAX, 1 << 62), (u64::MAX, 1), (0, i64::MAX)]);
        let expected: Vec<_> = cases
            .iter()
            .map(|&(bits, bound)| ((u128::from(bits) * bound as u128) >> 64) as i64)
            .collect();
        for width in WIDTHS {
            assert_eq!(at_most(width, || simd::widest(Below(&cases))), expected);
        }
    }

    /// Until when ranks are clear, each from its own time; None if unknown.
    struct Clear<'a> {
        many: Many<'a>,
        ranks: &'a [u64],
        times: &'a [i64],
    }

    impl Kernel for Clear<'_> {
        type Output = Vec<Option<i64>>;

        fn run<V: Vector>(self) -> Self::Output {
            let Clear { many, ranks, times } = self;
            let mut all = Vec::new();
            for (ranks, times) in ranks.chunks(MOST).zip(times.chunks(MOST)) {
                let mut lists: [List; 4] = Default::default();
                let [numbers, begins, positions, indices] = &mut lists;
                for (&rank, &time) in ranks.iter().zip(times) {
                    numbers.push(1, V::splat(rank as i64));
                    begins.push(1, V::splat(time));
                }
                positions.set_len(ranks.len());
                for at in numbers.steps() {
                    let ranks: V = numbers.at(at);
                    positions.set(at, many.positions(&many.turn(ranks), begins.at(at)));
                }
                many.first_after::<V>(positions, indices);
                for (at, &time) in times.iter().enumerate() {
                    let mut limit = [0; simd::LANES];
                    many.turn(numbers.at::<V>(at)).limit.store(&mut limit);
                    let index = V::splat(indices.one(at));
                    let mut start = [0; simd::LANES];
                    many.lookup().starts(index).store(&mut start);
                    let position = positions.one(at);
                    let until = (start[0] - position + time).min(limit[0]);
                    all.push((position >= 0).then_some(until));
                }
            }
            all
        }
    }

    /// Compares them with each rank alone; returns how many are unknown.
    fn unknown(run: &RunNoise<'_>, ranks: &[u64], times: &[i64]) -> usize {
        let Some(many) = run.many() else { return ranks.len() };
        let [clear, rest @ ..] =
            WIDTHS.map(|width| at_most(width, || simd::widest(Clear { many, ranks, times })));
        assert_eq!(rest, [clear.clone(), clear.clone()]);
        for ((&clear, &rank), &time) in clear.iter().zip(ranks).zip(times) {
            if let Some(clear) = clear {
                assert_eq!(clear, run.local(rank).clear_until(time), "rank {rank} from {time} on");
            }
        }
        clear.iter().filter(|clear| clear.is_none()).count()
    }

    #[test]
    fn ranks_on_nodes_are_found_where_each_is() {
        let lane = |at: i64, span| Timeline::new((0..40).map(|i| (at + i * 70, 1 + i % 60)), span);
        let lanes: Vec<_> = (0..7).map(|i| lane(i, if i < 3 { 30_000 } else { 40_000 })).collect();
        let lanes = lanes.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
        // Consecutive ones, and those at which a division might be one off.
        let ranks: Vec<u64> = (0..300).chain((1 << 32) - 300..1 << 32).collect();
        let cases = [(vec![3, 4], 1..=3), (vec![1; 7], 1..=1)];
        for (counts, per_node) in cases {
            for per_node in per_node {
                let nodes = Nodes::new(&lanes, &counts, per_node);
                assert!(nodes.is_some());
                let noise = Noise::new(lanes.clone(), Model::Preempt, Offsets::Random).unwrap();
                let noise = noise.on_nodes(nodes);
                assert_eq!(unknown(&noise.run(42, 5), &ranks, &[17; 600]), 0);
            }
        }
        // Lanes of one node of every size.
        let lanes: Vec<_> = (0..64).map(|i| lane(i, 30_000).unwrap()).collect();
        for count in 1..=64usize {
            for per_node in [1, count.div_ceil(2), count] {
                let nodes = Nodes::new(&lanes[..count], &[count], per_node as u64);
                let noise = Noise::new(lanes[..count].to_vec(), Model::Preempt, Offsets::Random);
                let noise = noise.unwrap().on_nodes(nodes);
                assert_eq!(unknown(&noise.run(1, 2), &ranks, &[5; 600]), 0);
            }
        }
    }

    #[test]
    fn many_ranks_are_found_where_each_is() {
        let dense = Timeline::new((0..300).map(|i| (i * 70 + i % 7, 1 + i % 60)), 30_000).unwrap();
        let crowd = (0..200).map(|i| (if i < 150 { 1_000 + 3 * i } else { 200 * i }, 1 + i % 2));
        let crowd = Timeline::new(crowd, 50_000).unwrap();
        let late = Timeline::new([(49_000, 900)], 50_000).unwrap();
        let periodic = Timeline::periodic(40_000, 300).unwrap();
        let silent = Timeline::new([], 60_000).unwrap();
        let ranks: Vec<u64> = (0..1000).map(|i| i * 7).collect();
        for timelines in [
            vec![dense.clone()],
            vec![crowd.clone()],
            vec![late.clone()],
            vec![periodic],
            vec![dense.clone(), late, dense.clone(), crowd],
        ] {
            for repeat in [false, true] {
                let noise = Noise::new(timelines.clone(), Model::Preempt, Offsets::Random).unwrap();
                let noise = noise.repeating(repeat);
                let run = noise.run(42, 5);
                assert_eq!(unknown(&run, &ranks, &[0; 1000]), 0);
                let times = |most| ranks.iter().map(|&r| r as i64 * 911 % most).collect::<Vec<_>>();
                assert_eq!(unknown(&run, &ranks, &times(30_000)), 0);
                // Some of these are more than a turn away.
                let far = unknown(&run, &ranks, &times(100_000));
                assert!((1..900).contains(&far), "{far}");
            }
        }
        let noise = Noise::new(vec![dense, silent], Model::Preempt, Offsets::Random).unwrap();
        assert!(noise.run(42, 5).many().is_none());
        assert!(noise.with_offsets(Offsets::Shared).run(42, 5).many().is_none());
    }
}
