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
    /// Created at the first value: a table of thousands of sources stays small.
    histogram: Option<Histogram<u32>>,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution::new(true)
    }
}

impl Distribution {
    /// With three digits if `fine`, otherwise with one, in a fiftieth of the memory.
    pub(crate) fn new(fine: bool) -> Self {
        Distribution { digits: if fine { 3 } else { 1 }, histogram: None, max: 0 }
    }

    pub(crate) fn add(&mut self, value: u64) {
        if self.histogram.is_none() {
            // Starts small and grows with the largest value seen.
            self.histogram = Histogram::new(self.digits).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            // Longer values occur only in damaged files; `max` keeps them exactly.
            let _ = histogram.record(value.min(LONGEST));
        }
        self.max = self.max.max(value);
    }

    pub(crate) fn quantile(&self, q: f64) -> u64 {
        let value = self.histogram.as_ref().map_or(0, |h| h.value_at_quantile(q));
        // A bucket's upper edge can lie above the largest value in it; longer values share a bucket.
        if value >= LONGEST { self.max } else { value.min(self.max) }
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// Adds all values of another distribution.
    pub(crate) fn join(&mut self, other: &Distribution) {
        let Some(values) = &other.histogram else { return };
        match &mut self.histogram {
            // Fails only for values out of range, which do not occur.
            Some(histogram) => drop(histogram.add(values)),
            None => self.histogram = Some(values.clone()),
        }
        self.max = self.max.max(other.max);
    }

    /// Its bins, ascending.
    pub(crate) fn bins(&self) -> Vec<Bin> {
        let Some(histogram) = &self.histogram else { return Vec::new() };
        let bins = histogram.iter_recorded().map(|step| Bin {
            ns: step.value_iterated_to().min(self.max),
            count: u64::from(step.count_at_value()),
        });
        bins.collect()
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
