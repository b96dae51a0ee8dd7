//! How long the transitions inside a detour usually take: from the probe into an interrupt, from there
//! into a softirq, and back out. No tracepoint covers these gaps.
//!
//! For each pair of neighbours the last gaps are kept. A gap counts as entry or exit cost up to four
//! times the tenth percentile of its kind, never less than 2 us and never more than 50 us; the excess
//! was taken outside the kernel. The tenth percentile, because on a machine with frequent steal most
//! gaps may contain some; the ceiling, because no kernel takes longer.

use trace::Class;

/// A neighbour of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The begin or the end of the detour.
    Border,
    /// A record; true for one without a length, whose gaps are its length.
    Of(Class, bool),
}

const FLOOR_NS: u64 = 2_000;
const CEILING_NS: u64 = 50_000;
/// Until this many gaps of a kind are known, the ceiling applies.
const ENOUGH: u32 = 16;
const KEPT: usize = 64;
/// The border, plus one for each class.
const EDGES: usize = Class::ALL.len() + 1;

#[derive(Clone)]
struct Gaps {
    last: [u32; KEPT],
    seen: u32,
    limit: u64,
}

pub struct GapModel {
    kinds: Vec<Gaps>,
}

impl Default for GapModel {
    fn default() -> Self {
        let none = Gaps { last: [0; KEPT], seen: 0, limit: CEILING_NS };
        GapModel { kinds: vec![none; EDGES * EDGES] }
    }
}

impl GapModel {
    /// Splits a gap into entry and exit cost and the rest, and learns from it.
    pub fn split(&mut self, before: Edge, after: Edge, gap: u64) -> (u64, u64) {
        if matches!(before, Edge::Of(_, true)) || matches!(after, Edge::Of(_, true)) {
            return (gap, 0);
        }
        let gaps = &mut self.kinds[index(before) * EDGES + index(after)];
        gaps.learn(gap);
        let cost = gap.min(gaps.limit);
        (cost, gap - cost)
    }
}

impl Gaps {
    fn learn(&mut self, gap: u64) {
        self.last[self.seen as usize % KEPT] = u32::try_from(gap).unwrap_or(u32::MAX);
        self.seen = self.seen.saturating_add(1);
        // Sorting 64 numbers for every gap would cost more than it gains.
        if self.seen >= ENOUGH && self.seen.is_multiple_of(ENOUGH) {
            let known = (self.seen as usize).min(KEPT);
            let mut sorted = self.last;
            sorted[..known].sort_unstable();
            self.limit = (4 * u64::from(sorted[known / 10])).clamp(FLOOR_NS, CEILING_NS);
        }
    }
}

fn index(edge: Edge) -> usize {
    match edge {
        Edge::Border => 0,
        Edge::Of(class, _) => class as usize + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Edge = Edge::Of(Class::Timer, false);

    #[test]
    fn usual_gaps_are_entry_cost_and_the_excess_is_outside() {
        let mut model = GapModel::default();
        for i in 0..200 {
            assert_eq!(model.split(Edge::Border, TICK, 1_500 + i), (1_500 + i, 0));
        }
        let (cost, beyond) = model.split(Edge::Border, TICK, 1_000_000);
        assert!((6_000..8_000).contains(&cost), "{cost}");
        assert_eq!(cost + beyond, 1_000_000);
    }

    #[test]
    fn steals_in_most_gaps_do_not_become_usual() {
        let mut model = GapModel::default();
        let mut outside = 0;
        for i in 0..1_000u64 {
            let gap = if i % 5 == 0 { 1_500 } else { 4_000_000 };
            outside += model.split(Edge::Border, TICK, gap).1;
        }
        assert!(outside as f64 > 0.98 * 800.0 * 4e6, "{outside}");
    }

    #[test]
    fn every_class_has_a_place_of_its_own() {
        let mut places: Vec<usize> =
            Class::ALL.iter().map(|&c| index(Edge::Of(c, false))).collect();
        places.push(index(Edge::Border));
        places.sort_unstable();
        assert_eq!(places, (0..EDGES).collect::<Vec<_>>());
    }

    #[test]
    fn a_point_takes_its_gaps_whole() {
        let mut model = GapModel::default();
        let fault = Edge::Of(Class::PageFault, true);
        assert_eq!(model.split(Edge::Border, fault, 300_000), (300_000, 0));
    }
}
