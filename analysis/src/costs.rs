//! Distributions of lengths as HDR histograms: 3 significant digits, memory independent of the number
//! of values.

use hdrhistogram::Histogram;

/// The longest value in a histogram, nearly five hours: its memory grows with it.
const LONGEST: u64 = 1 << 44;

/// Number of values up to `ns` and above the previous bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    pub ns: u64,
    pub count: u64,
}

/// Distribution of the lengths of each source, in addition to a [`crate::Summary`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// One per row of the summary's sources, in the same order: whole interruptions.
    pub sources: Vec<Vec<Bin>>,
    /// Parts of detours that no record explains.
    pub outside: Vec<Bin>,
}

/// Durations and their quantiles.
pub(crate) struct Distribution {
    digits: u8,
    counts: Counts,
    max: u64,
}

enum Counts {
    /// Until the first value: a table of thousands of sources stays small.
    Empty,
    /// While no bin can overflow, in half the memory.
    Narrow(Histogram<u32>),
    /// From 2^32 values on: ticks of a day on 256 CPUs.
    Wide(Histogram<u64>),
}

impl Counts {
    /// Makes room for `more` values with so many digits.
    fn reserve(&mut self, more: u64, digits: u8) {
        // Histograms start small and grow with the largest value seen.
        if let Counts::Empty = self {
            *self = Histogram::new(digits).map_or(Counts::Empty, Counts::Narrow);
        }
        if let Counts::Narrow(narrow) = self
            && narrow.len().saturating_add(more) > u64::from(u32::MAX)
        {
            *self = Counts::Wide(widened(narrow));
        }
    }
}

fn widened(narrow: &Histogram<u32>) -> Histogram<u64> {
    let mut wide = Histogram::new_from(narrow);
    for step in narrow.iter_recorded() {
        // The range is the same, so every value is within it.
        let _ = wide.record_n(step.value_iterated_to(), u64::from(step.count_at_value()));
    }
    wide
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution::new(true)
    }
}

impl Distribution {
    /// With three digits if `fine`, otherwise with one, in a fiftieth of the memory.
    pub(crate) fn new(fine: bool) -> Self {
        Distribution { digits: if fine { 3 } else { 1 }, counts: Counts::Empty, max: 0 }
    }

    pub(crate) fn add(&mut self, value: u64) {
        self.counts.reserve(1, self.digits);
        // Longer values occur only in damaged files; `max` keeps them exactly.
        let within = value.min(LONGEST);
        let _ = match &mut self.counts {
            Counts::Empty => Ok(()),
            Counts::Narrow(counts) => counts.record(within),
            Counts::Wide(counts) => counts.record(within),
        };
        self.max = self.max.max(value);
    }

    pub(crate) fn quantile(&self, q: f64) -> u64 {
        let value = match &self.counts {
            Counts::Empty => 0,
            Counts::Narrow(counts) => counts.value_at_quantile(q),
            Counts::Wide(counts) => counts.value_at_quantile(q),
        };
        // A bucket's upper edge can lie above the largest value in it; longer values share a bucket.
        if value >= LONGEST { self.max } else { value.min(self.max) }
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn count(&self) -> u64 {
        match &self.counts {
            Counts::Empty => 0,
            Counts::Narrow(counts) => counts.len(),
            Counts::Wide(counts) => counts.len(),
        }
    }

    /// Adds all values of another distribution.
    pub(crate) fn join(&mut self, other: &Distribution) {
        self.counts.reserve(other.count(), self.digits);
        // Adding fails only for values out of range, which do not occur.
        let _ = match (&mut self.counts, &other.counts) {
            (Counts::Empty, _) | (_, Counts::Empty) => Ok(()),
            (Counts::Narrow(counts), Counts::Narrow(more)) => counts.add(more),
            (Counts::Wide(counts), Counts::Narrow(more)) => counts.add(widened(more)),
            (Counts::Wide(counts), Counts::Wide(more)) => counts.add(more),
            (Counts::Narrow(_), Counts::Wide(_)) => unreachable!("room for as many was made"),
        };
        self.max = self.max.max(other.max);
    }

    /// Its bins, ascending.
    pub(crate) fn bins(&self) -> Vec<Bin> {
        let bin = |ns: u64, count: u64| Bin { ns: ns.min(self.max), count };
        match &self.counts {
            Counts::Empty => Vec::new(),
            Counts::Narrow(counts) => {
                let steps = counts.iter_recorded();
                steps.map(|s| bin(s.value_iterated_to(), s.count_at_value().into())).collect()
            }
            Counts::Wide(counts) => {
                let steps = counts.iter_recorded();
                steps.map(|s| bin(s.value_iterated_to(), s.count_at_value())).collect()
            }
        }
    }
}

/// Merges two lists of bins.
pub(crate) fn together(one: Vec<Bin>, other: Vec<Bin>) -> Vec<Bin> {
    let mut all = one;
    all.extend(other);
    all.sort_by_key(|bin| bin.ns);
    all.dedup_by(|next, kept| {
        let same = next.ns == kept.ns;
        if same {
            kept.count += next.count;
        }
        same
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_largest_bin_keep_their_maximum() {
        let mut all = Distribution::default();
        all.add(1_000_000_000_000_000_000);
        assert_eq!((all.quantile(0.5), all.max()), (all.max(), 1_000_000_000_000_000_000));
    }

    #[test]
    fn more_than_four_billion_values_are_counted() {
        let (mut all, mut ticks) = (Distribution::default(), Distribution::default());
        ticks.add(1_500);
        for _ in 0..33 {
            all.join(&ticks);
            let twice = Distribution { counts: Counts::Empty, ..ticks };
            let before = std::mem::replace(&mut ticks, twice);
            ticks.join(&before);
            ticks.join(&before);
        }
        all.add(9_000_000);
        assert_eq!(all.count(), 1 << 33);
        assert_eq!((all.quantile(0.5), all.quantile(1.0)), (1_500, 9_000_000));
        assert_eq!(all.bins().iter().map(|bin| bin.count).sum::<u64>(), 1 << 33);
        // A wide histogram takes what a narrow one holds.
        let mut few = Distribution::default();
        few.add(7);
        few.join(&all);
        assert_eq!((few.count(), few.quantile(0.0)), ((1 << 33) + 1, 7));
    }

    #[test]
    fn bins_hold_every_value_and_end_at_the_largest() {
        let mut all = Distribution::default();
        for value in [5, 5, 1_000_003, 70] {
            all.add(value);
        }
        let bins = all.bins();
        assert_eq!(bins.iter().map(|b| b.count).sum::<u64>(), 4);
        assert_eq!(bins.first(), Some(&Bin { ns: 5, count: 2 }));
        assert_eq!(bins.last(), Some(&Bin { ns: 1_000_003, count: 1 }));
        let twice = together(bins.clone(), bins);
        assert_eq!((twice.len(), twice[0].count), (3, 4));
        assert!(Distribution::default().bins().is_empty());
    }
}
