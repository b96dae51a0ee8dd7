//! Detours in nanoseconds over one interval, with exact preemption; used to derive the fixed quanta.

use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum NoiseError {
    #[error("detours overlap or are out of order at {at_ns} ns")]
    OutOfOrder { at_ns: u64 },
    #[error("the detour at {at_ns} ns ends beyond the time range")]
    Overflow { at_ns: u64 },
}

/// Detours in time order, without overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detours {
    starts: Vec<u64>,
    /// End of each.
    ends: Vec<u64>,
}

impl Detours {
    /// From (start, length) in nanoseconds.
    pub fn new(detours: impl IntoIterator<Item = (u64, u64)>) -> Result<Detours, NoiseError> {
        let mut checked = Detours::default();
        let mut last_end = 0;
        for (start, length) in detours {
            let end = start.checked_add(length).ok_or(NoiseError::Overflow { at_ns: start })?;
            if start < last_end {
                return Err(NoiseError::OutOfOrder { at_ns: start });
            }
            last_end = end;
            checked.starts.push(start);
            checked.ends.push(end);
        }
        Ok(checked)
    }

    /// From the first detour's start to the last one's end.
    pub fn span(&self) -> (u64, u64) {
        (self.starts.first().copied().unwrap_or(0), self.ends.last().copied().unwrap_or(0))
    }

    /// A walk through the detours from a point in time.
    pub fn from(&self, now: u64) -> Walk<'_> {
        // The first detour that has not ended by then.
        let next = self.ends.partition_point(|&end| end <= now);
        Walk { detours: self, next, now }
    }
}

/// A worker subject to detours: it has a time, and work advances it.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    detours: &'a Detours,
    next: usize,
    now: u64,
}

impl Walk<'_> {
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Does this much work and returns when it is done; None on overflow.
    pub fn work(&mut self, mut work: u64) -> Option<u64> {
        while let Some(&start) = self.detours.starts.get(self.next) {
            let free = start.saturating_sub(self.now);
            if work <= free && self.now < start {
                break;
            }
            if work == 0 && self.now <= start {
                break;
            }
            work -= free.min(work);
            self.now = self.detours.ends[self.next].max(self.now);
            self.next += 1;
        }
        self.now = self.now.checked_add(work)?;
        Some(self.now)
    }

    /// Works until a point in time and returns how much was done.
    pub fn work_until(&mut self, until: u64) -> u64 {
        let mut done = 0;
        while let Some(&start) = self.detours.starts.get(self.next) {
            if start >= until {
                break;
            }
            done += start.saturating_sub(self.now);
            let end = self.detours.ends[self.next];
            if end > until {
                self.now = until;
                return done;
            }
            self.now = end.max(self.now);
            self.next += 1;
        }
        done += until.saturating_sub(self.now);
        self.now = until.max(self.now);
        done
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn detours(list: &[(u64, u64)]) -> Detours {
        Detours::new(list.iter().copied()).unwrap()
    }

    /// Detours from the gap before each and its length.
    fn laid_out(gaps: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut at = 0;
        let mut list = Vec::new();
        for &(gap, length) in gaps {
            at += gap;
            list.push((at, length));
            at += length;
        }
        list
    }

    #[test]
    fn work_goes_on_after_each_detour_until_it_is_done() {
        let noise = detours(&[(100, 50), (200, 50)]);
        assert_eq!(noise.from(0).work(100), Some(100));
        assert_eq!(noise.from(0).work(101), Some(151));
        assert_eq!(noise.from(0).work(150), Some(200));
        assert_eq!(noise.from(0).work(151), Some(251));
        assert_eq!(noise.from(120).work(10), Some(160));
    }

    #[test]
    fn a_second_of_work_under_periodic_noise_takes_a_tenth_more() {
        // 1000 Hz x 100 us: 0.9 ms of work fit in each millisecond.
        let noise = detours(&(0..2_000).map(|i| (i * 1_000_000, 100_000)).collect::<Vec<_>>());
        let done = noise.from(0).work(1_000_000_000).unwrap();
        assert_eq!(done, 1_111_200_000);
    }

    #[test]
    fn overlapping_detours_are_refused() {
        assert_eq!(Detours::new([(0, 10), (5, 10)]), Err(NoiseError::OutOfOrder { at_ns: 5 }));
        assert!(Detours::new([(u64::MAX, 10)]).is_err());
    }

    proptest! {
        #[test]
        fn cutting_work_into_pieces_changes_nothing(
            gaps in prop::collection::vec((0u64..100, 0u64..50), 0..20),
            pieces in prop::collection::vec(0u64..200, 1..20),
        ) {
            let list = laid_out(&gaps);
            let noise = detours(&list);
            let mut walk = noise.from(0);
            for &piece in &pieces {
                walk.work(piece);
            }
            let whole = noise.from(0).work(pieces.iter().sum()).unwrap();
            prop_assert_eq!(walk.now(), whole);
        }

        #[test]
        fn work_and_time_agree(
            gaps in prop::collection::vec((1u64..100, 1u64..50), 0..20), until in 0u64..3_000,
        ) {
            let list = laid_out(&gaps);
            let noise = detours(&list);
            let done = noise.from(0).work_until(until);
            let lost: u64 =
                list.iter().map(|&(s, l)| (s + l).min(until).saturating_sub(s)).sum();
            prop_assert_eq!(done + lost, until);
        }
    }
}
