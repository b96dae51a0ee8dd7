//! Sums over sliding windows: time is divided into buckets, and a window is the last few full ones.

/// Length of a bucket, and of one column of the strip.
pub(crate) const BUCKET_NS: u64 = 250_000_000;
/// The longest window, ten seconds.
pub(crate) const WINDOW: u64 = 40;
/// One more that is being filled, and some for late events.
const SLOTS: usize = 48;

/// Count, total time and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub count: u64,
    pub ns: u64,
    pub longest_ns: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, other: Sum) {
        self.count += other.count;
        self.ns = self.ns.saturating_add(other.ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// One value per bucket, for the last `N` buckets.
#[derive(Clone, Debug)]
pub(crate) struct Ring<T, const N: usize = SLOTS> {
    /// Bucket number and value.
    slots: Vec<(u64, T)>,
}

impl<T: Copy + Default, const N: usize> Default for Ring<T, N> {
    fn default() -> Self {
        Ring { slots: Vec::new() }
    }
}

impl<T: Copy + Default, const N: usize> Ring<T, N> {
    /// The bucket with this number; None if it is too old.
    pub(crate) fn at(&mut self, bucket: u64) -> Option<&mut T> {
        if self.slots.is_empty() {
            // Allocated on first use: most sources are seen only once.
            self.slots = vec![(0, T::default()); N];
        }
        let slot = self.slots.get_mut(bucket as usize % N)?;
        if slot.0 > bucket {
            return None;
        }
        if slot.0 < bucket {
            *slot = (bucket, T::default());
        }
        Some(&mut slot.1)
    }

    pub(crate) fn get(&self, bucket: u64) -> Option<T> {
        let slot = self.slots.get(bucket as usize % N)?;
        (slot.0 == bucket).then_some(slot.1)
    }

    /// The values of the last `buckets` buckets before `end`.
    pub(crate) fn last(&self, end: u64, buckets: u64) -> impl Iterator<Item = T> + '_ {
        let from = end.saturating_sub(buckets);
        self.slots.iter().filter(move |slot| (from..end).contains(&slot.0)).map(|slot| slot.1)
    }
}

impl Ring<Sum> {
    /// Adds an event that took `ns` between `start` and `start + length`, and adds it to `total`. It
    /// counts where it ends.
    pub(crate) fn record(
        &mut self,
        total: &mut Sum,
        counted: bool,
        start: u64,
        length: u64,
        ns: u64,
    ) {
        let count = u64::from(counted);
        total.add(Sum { count, ns, longest_ns: ns });
        spread(start, length, ns, |bucket, part| {
            if let Some(sum) = self.at(bucket) {
                sum.add(Sum { count: 0, ns: part, longest_ns: 0 });
            }
        });
        if let Some(sum) = self.at(bucket(start.saturating_add(length))) {
            sum.add(Sum { count, ns: 0, longest_ns: ns });
        }
    }
}

pub(crate) fn bucket(ns: u64) -> u64 {
    ns / BUCKET_NS
}

/// Distributes `ns` evenly over the time from `start` to `start + length`, and gives each bucket its part:
/// a thread that ran for a second took a quarter of it from each of four buckets.
pub(crate) fn spread(start: u64, length: u64, ns: u64, mut put: impl FnMut(u64, u64)) {
    let end = start.saturating_add(length);
    let (first, last) = (bucket(start), bucket(end));
    if first == last {
        put(first, ns);
        return;
    }
    // Skip buckets older than any window: a record may be a day long.
    let mut at = first.max(last.saturating_sub(SLOTS as u64));
    let mut from = start.max(at * BUCKET_NS);
    while at <= last {
        let to = end.min((at + 1) * BUCKET_NS);
        let part = u128::from(ns) * u128::from(to - from) / u128::from(length);
        put(at, part as u64);
        from = to;
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_the_full_buckets_before_its_end() {
        let mut ring: Ring<u64> = Ring::default();
        for bucket in 0..100 {
            *ring.at(bucket).expect("new") += 1 + bucket;
        }
        assert_eq!(ring.last(99, 4).sum::<u64>(), 96 + 97 + 98 + 99);
        assert_eq!(ring.get(99), Some(100));
        assert!(ring.at(2).is_none(), "long gone");
        assert_eq!(ring.get(2), None);
    }

    #[test]
    fn what_lasts_longer_than_a_bucket_is_laid_over_several() {
        let mut parts = Vec::new();
        spread(BUCKET_NS / 2, 2 * BUCKET_NS, 1_000, |bucket, ns| parts.push((bucket, ns)));
        assert_eq!(parts, [(0, 250), (1, 500), (2, 250)]);
        parts.clear();
        spread(10, 0, 7, |bucket, ns| parts.push((bucket, ns)));
        assert_eq!(parts, [(0, 7)]);
        let mut count = 0;
        spread(0, u64::MAX, u64::MAX, |_, _| count += 1);
        assert_eq!(count, SLOTS + 1);
    }
}
