//! A sample of any size in bounded memory.
//!
//! In: blocks of samples, numbered, added in any order by any number of threads. Out: a [`Sample`]. Up
//! to 2^20 samples are all kept, in order. Of more, a grid keeps the counts ([`grid`](crate::grid)),
//! a seeded choice of runs of consecutive samples keeps how they follow one another, and the largest
//! are kept exactly. The result depends on the blocks and their numbers only, to the bit.

use crate::{
    grid::{Atom, Grid},
    moments::Moments,
};

/// Samples that are kept, all of them or as runs.
pub const KEPT: usize = 1 << 20;
/// Consecutive samples of a run, if not all are kept.
pub const RUN: usize = 1 << 12;
const RUNS: usize = KEPT / RUN;
/// Largest samples that are always exact.
const LARGEST: usize = 1 << 14;

/// What is known of a sample while it is read.
#[derive(Clone, Debug)]
pub struct Sketch {
    seed: u64,
    grid: Grid,
    /// By number of the block.
    moments: Vec<(u64, Moments)>,
    ends: Option<(i64, i64)>,
    largest: Largest,
    /// All samples by block, until there are too many.
    all: Option<Vec<(u64, Vec<i64>)>>,
    kept: usize,
    runs: Vec<Run>,
    /// Runs of a higher order are known not to be among the first.
    bound: u64,
}

/// Consecutive samples, in the order of a random number: the first ones are kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    order: u64,
    block: u64,
    number: u64,
    values: Vec<i64>,
}

impl Sketch {
    /// The origin has to be the same for sketches that are merged; the smallest value of the first block
    /// is a good one.
    pub fn new(origin: i64, seed: u64) -> Sketch {
        Sketch {
            seed,
            grid: Grid::new(origin),
            moments: Vec::new(),
            ends: None,
            largest: Largest::default(),
            all: Some(Vec::new()),
            kept: 0,
            runs: Vec::new(),
            bound: u64::MAX,
        }
    }

    /// Adds the block with this number. Blocks should have at least 2^14 samples, if there are as many:
    /// runs do not extend over their ends.
    pub fn add(&mut self, block: u64, values: &[i64]) {
        let (Some(&low), Some(&high)) = (values.iter().min(), values.iter().max()) else { return };
        self.ends = join(self.ends, Some((low, high)));
        self.moments.push((block, Moments::of(values, self.grid.origin())));
        self.grid.add(values);
        self.largest.add(values, high);
        for (number, run) in (0u64..).zip(values.chunks_exact(RUN)) {
            let order = random::draw(random::draw(self.seed, block), number);
            if self.runs.len() >= 2 * RUNS {
                self.thin();
            }
            if order <= self.bound {
                self.runs.push(Run { order, block, number, values: run.to_vec() });
            }
        }
        self.kept += values.len();
        self.forget();
        if let Some(all) = &mut self.all {
            all.push((block, values.to_vec()));
        }
    }

    /// The same as adding the blocks of both to one.
    pub fn merge(&mut self, other: Sketch) {
        self.grid.merge(&other.grid);
        self.moments.extend(other.moments);
        self.ends = join(self.ends, other.ends);
        self.largest.merge(&other.largest);
        self.runs.extend(other.runs);
        self.thin();
        self.kept += other.kept;
        self.all = self.all.take().zip(other.all).map(|(mut all, more)| {
            all.extend(more);
            all
        });
        self.forget();
    }

    fn forget(&mut self) {
        if self.kept > KEPT {
            self.all = None;
        }
    }

    fn thin(&mut self) {
        self.runs.sort_unstable();
        self.runs.truncate(RUNS);
        if let Some(last) = self.runs.get(RUNS - 1) {
            self.bound = last.order;
        }
    }

    /// None if there were no samples.
    pub fn finish(mut self) -> Option<Sample> {
        let (min, max) = self.ends?;
        self.moments.sort_unstable_by_key(|(block, _)| *block);
        let mut moments = Moments::default();
        self.moments.iter().for_each(|(_, block)| moments.merge(block));
        if let Some(mut all) = self.all {
            all.sort_unstable_by_key(|(block, _)| *block);
            let run: Vec<i64> = all.into_iter().flat_map(|(_, values)| values).collect();
            let mut sorted = run.clone();
            sorted.sort_unstable();
            let atoms = sorted.chunk_by(|a, b| a == b);
            let atoms = atoms.map(|same| exactly(same[0], same.len() as u64)).collect();
            return Some(Sample::of(moments, (min, max), atoms, Vec::new(), vec![run]));
        }
        self.thin();
        // In the order of the samples.
        self.runs.sort_unstable_by_key(|run| (run.block, run.number));
        let runs = self.runs.into_iter().map(|run| run.values).collect();
        Some(Sample::of(moments, (min, max), self.grid.atoms(), self.largest.sorted(), runs))
    }
}

fn exactly(value: i64, count: u64) -> Atom {
    Atom { low: value, high: value, count }
}

fn join(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (one, None) | (None, one) => one,
    }
}

/// The largest values so far, and at most as many others.
#[derive(Clone, Debug, Default)]
struct Largest {
    values: Vec<i64>,
    /// Everything at or below this is known not to matter.
    floor: Option<i64>,
}

impl Largest {
    fn add(&mut self, values: &[i64], high: i64) {
        if self.floor.is_some_and(|floor| high <= floor) {
            return;
        }
        let mut floor = self.floor.unwrap_or(i64::MIN);
        for &value in values {
            if value > floor || self.floor.is_none() {
                self.values.push(value);
                if self.values.len() >= 2 * LARGEST {
                    self.shrink();
                    floor = self.floor.unwrap_or(floor);
                }
            }
        }
    }

    fn merge(&mut self, other: &Largest) {
        self.values.extend(&other.values);
        if self.values.len() >= LARGEST {
            self.shrink();
        }
    }

    /// Equal values at the floor are dropped or not: all that are kept are still the largest.
    fn shrink(&mut self) {
        self.values.select_nth_unstable_by(LARGEST - 1, |a, b| b.cmp(a));
        self.floor = Some(self.values[LARGEST - 1]);
        self.values.truncate(LARGEST);
    }

    /// The largest first.
    fn sorted(mut self) -> Vec<i64> {
        self.values.sort_unstable_by(|a, b| b.cmp(a));
        self.values.truncate(LARGEST);
        self.values
    }
}

/// A whole sample: its counts in order of size, and as many of its values in order of time as are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub moments: Moments,
    pub min: i64,
    pub max: i64,
    atoms: Vec<Atom>,
    /// Samples up to and including each atom.
    cumulative: Vec<u64>,
    /// The largest, first; empty if the atoms are exact.
    largest: Vec<i64>,
    /// Consecutive samples; one run if all are kept, none if the order is unknown.
    runs: Vec<Vec<i64>>,
    /// The atoms are the bins of a histogram: where in them the samples are is unknown.
    binned: bool,
}

impl Sample {
    fn of(
        moments: Moments,
        (min, max): (i64, i64),
        mut atoms: Vec<Atom>,
        largest: Vec<i64>,
        runs: Vec<Vec<i64>>,
    ) -> Sample {
        // The outermost bins end where the samples do.
        if let Some(first) = atoms.first_mut() {
            first.low = first.low.max(min);
        }
        if let Some(last) = atoms.last_mut() {
            last.high = last.high.min(max);
        }
        let mut seen = 0;
        let cumulative = atoms.iter().map(|atom| {
            seen += atom.count;
            seen
        });
        let cumulative = cumulative.collect();
        Sample { moments, min, max, atoms, cumulative, largest, runs, binned: false }
    }

    /// Samples in order of time. None if there are none.
    pub fn of_values(values: &[i64], seed: u64) -> Option<Sample> {
        let mut sketch = Sketch::new(*values.first()?, seed);
        for (number, block) in (0..).zip(values.chunks(1 << 16)) {
            sketch.add(number, block);
        }
        sketch.finish()
    }

    /// A sample whose order is unknown: (value, count). None if it is empty.
    pub fn of_counts(mut counts: Vec<(i64, u64)>) -> Option<Sample> {
        counts.retain(|(_, count)| *count > 0);
        counts.sort_unstable();
        let mut atoms: Vec<Atom> = Vec::new();
        let origin = counts.first()?.0;
        let mut moments = Moments::default();
        for (value, count) in counts {
            moments.merge(&Moments::repeated(value, count, origin));
            match atoms.last_mut() {
                Some(last) if last.low == value => last.count += count,
                _ => atoms.push(exactly(value, count)),
            }
        }
        let (min, max) = (atoms.first()?.low, atoms.last()?.high);
        Some(Sample::of(moments, (min, max), atoms, Vec::new(), Vec::new()))
    }

    /// The bins of a histogram; each counts by its middle. They must not overlap. None if all are empty.
    pub fn of_bins(mut bins: Vec<Atom>) -> Option<Sample> {
        bins.retain(|bin| bin.count > 0);
        bins.sort_unstable_by_key(|bin| bin.low);
        let origin = bins.first()?.value();
        let mut moments = Moments::default();
        for bin in &bins {
            moments.merge(&Moments::repeated(bin.value(), bin.count, origin));
        }
        let ends = (bins.first()?.low, bins.last()?.high);
        let binned = bins.iter().any(|bin| bin.low < bin.high);
        let sample = Sample::of(moments, ends, bins, Vec::new(), Vec::new());
        Some(Sample { binned, ..sample })
    }

    /// Whether only the bins of the samples are known.
    pub fn is_binned(&self) -> bool {
        self.binned
    }

    /// The bin of the p-quantile; the quantile itself if values are known.
    pub fn within(&self, p: f64) -> (f64, f64) {
        let value = self.quantile(p);
        if !self.binned {
            return (value, value);
        }
        let at = |end: usize| self.atoms.get(end.min(self.atoms.len() - 1));
        let from = at(self.atoms.partition_point(|atom| (atom.high as f64) < value.floor()));
        let to = at(self.atoms.partition_point(|atom| (atom.high as f64) < value.ceil()));
        let low = from.map_or(value, |atom| atom.low as f64);
        (low.min(value), to.map_or(value, |atom| atom.high as f64).max(value))
    }

    /// The largest share of the samples in one value or bin.
    pub fn heaviest(&self) -> f64 {
        let most = self.atoms.iter().map(|atom| atom.count).max().unwrap_or(0);
        most as f64 / self.n().max(1) as f64
    }

    pub fn n(&self) -> u64 {
        self.moments.n
    }

    /// The counts: of single values if [`is_exact`](Sample::is_exact), else of narrow bins.
    pub fn atoms(&self) -> &[Atom] {
        &self.atoms
    }

    pub fn is_exact(&self) -> bool {
        self.largest.is_empty()
    }

    /// Consecutive samples; one run if all are kept, none if their order is unknown.
    pub fn runs(&self) -> &[Vec<i64>] {
        &self.runs
    }

    /// The value with this many smaller ones or equal ones before it.
    fn order_statistic(&self, rank: u64) -> f64 {
        let from_top = (self.n() - 1).saturating_sub(rank) as usize;
        if let Some(&value) = self.largest.get(from_top) {
            return value as f64;
        }
        let at = self.cumulative.partition_point(|&seen| seen <= rank);
        let Some(atom) = self.atoms.get(at) else { return self.max as f64 };
        if rank == 0 {
            return self.min as f64;
        }
        // Spread evenly over the bin.
        let before = self.cumulative[at] - atom.count;
        let share = ((rank - before) as f64 + 0.5) / atom.count as f64;
        atom.low as f64 + (atom.high - atom.low) as f64 * share
    }

    /// The p-quantile, 0 to 1: interpolated between neighbouring samples.
    pub fn quantile(&self, p: f64) -> f64 {
        let at = p.clamp(0.0, 1.0) * (self.n() - 1) as f64;
        let low = self.order_statistic(at.floor() as u64);
        match at.fract() {
            0.0 => low,
            part => low + (self.order_statistic(at.ceil() as u64) - low) * part,
        }
    }

    /// The largest samples, up to `most` of them, the largest first.
    pub fn top(&self, most: usize) -> Vec<i64> {
        if !self.is_exact() {
            return self.largest.iter().copied().take(most).collect();
        }
        let mut top = Vec::new();
        for atom in self.atoms.iter().rev() {
            let room = (most - top.len()) as u64;
            top.extend(std::iter::repeat_n(atom.value(), atom.count.min(room) as usize));
            if top.len() >= most {
                break;
            }
        }
        top
    }

    /// Number of samples at most this large; those of a bin are spread evenly over it.
    pub fn below(&self, value: f64) -> f64 {
        let at = self.atoms.partition_point(|atom| (atom.high as f64) < value);
        let before = if at == 0 { 0 } else { self.cumulative[at - 1] } as f64;
        match self.atoms.get(at) {
            Some(atom) if atom.low as f64 <= value => {
                let wide = (atom.high - atom.low) as f64;
                let share = if wide > 0.0 { (value - atom.low as f64) / wide } else { 1.0 };
                before + atom.count as f64 * share
            }
            _ => before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(n: u64) -> Vec<i64> {
        // Spread over many doublings, far from zero.
        (0..n)
            .map(|i| 5_000_000_000 + (random::draw(1, i) >> (20 + random::draw(2, i) % 40)) as i64)
            .collect()
    }

    fn sketched(values: &[i64], threads: usize) -> Sample {
        let blocks: Vec<(u64, &[i64])> = (0..).zip(values.chunks(20_000)).collect();
        let mut parts: Vec<Sketch> = (0..threads).map(|_| Sketch::new(values[0], 3)).collect();
        // The last blocks first.
        for (place, (number, block)) in blocks.iter().rev().enumerate() {
            parts[place % threads].add(*number, block);
        }
        let mut parts = parts.into_iter();
        let mut whole = parts.next().unwrap();
        parts.for_each(|part| whole.merge(part));
        whole.finish().unwrap()
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        for n in [100_000, 3_000_000] {
            let values = made(n);
            let one = sketched(&values, 1);
            // Not assert_eq: it would print them.
            assert!(one == sketched(&values, 2));
            assert!(one == sketched(&values, 7));
            assert_eq!(one.n(), n);
        }
    }

    #[test]
    fn quantiles_of_many_samples_are_those_of_the_sorted_ones_to_four_digits_and_exact_at_the_ends()
    {
        let values = made(3_000_000);
        let sample = sketched(&values, 2);
        assert!(!sample.is_exact());
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let from = sample.min as f64;
        for p in [0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99] {
            let true_value = sorted[(p * 2_999_999.0) as usize] as f64;
            let error = (sample.quantile(p) - true_value).abs() / (true_value - from).max(1.0);
            assert!(error < 2e-4, "{p}: {error}");
        }
        for rank in [1, 10, 5_000] {
            let p = 1.0 - rank as f64 / 2_999_999.0;
            let exact = sorted[2_999_999 - rank] as f64;
            assert!((sample.quantile(p) - exact).abs() <= 1e-9 * exact);
        }
        assert_eq!(sample.top(3), sorted.iter().rev().take(3).copied().collect::<Vec<_>>());
        let below = sample.below(sorted[1_000_000] as f64);
        assert!((below - 1_000_000.0).abs() < 1_000.0, "{below}");
    }

    #[test]
    fn runs_are_consecutive_samples() {
        let values: Vec<i64> = (0..2_000_000).collect();
        let sample = sketched(&values, 3);
        assert_eq!(sample.runs().len(), RUNS);
        for run in sample.runs() {
            assert_eq!(run.len(), RUN);
            assert!(run.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
        assert!(sample.runs().windows(2).all(|pair| pair[0][0] < pair[1][0]));
        let few = sketched(&values[..50_000], 3);
        assert!(few.runs() == [values[..50_000].to_vec()]);
    }

    #[test]
    fn counts_are_a_sample_without_order() {
        let counted = Sample::of_counts(vec![(7, 2), (3, 1), (7, 1), (9, 0)]).unwrap();
        let listed = Sample::of_values(&[7, 3, 7, 7], 0).unwrap();
        assert_eq!(counted.atoms(), listed.atoms());
        assert_eq!((counted.min, counted.max, counted.n()), (3, 7, 4));
        assert_eq!(counted.quantile(0.5), 7.0);
        assert_eq!(counted.top(2), [7, 7]);
        assert_eq!((counted.below(2.0), counted.below(3.0), counted.below(8.0)), (0.0, 1.0, 4.0));
        assert!(counted.runs().is_empty());
        assert_eq!(Sample::of_counts(Vec::new()), None);
        assert_eq!(Sample::of_values(&[], 0), None);
    }
}
