//! Start times kept for the period test, within a fixed budget.
//!
//! Every (source row, lane) keeps its first start times, contiguously, because a period is a property
//! of neighbours; later events are counted per slice of time. When all start times together exceed the
//! budget, the cap per pair is halved and every list truncated to it.

use crate::period::Later;

/// Start times over all rows and lanes: 64 MiB.
const BUDGET: usize = 8 << 20;
/// Initial cap per row and lane.
const CAP: usize = 1 << 14;
/// Least cap per row and lane: still far more than the test needs.
const CAP_MIN: usize = 1 << 8;

/// Start times of one source on one lane.
#[derive(Default)]
pub(crate) struct Starts {
    pub(crate) first: Vec<u64>,
    /// Counts of later events, if any.
    pub(crate) later: Option<Box<Later>>,
}

impl Starts {
    fn count_later(&mut self, start_ns: u64) {
        self.later.get_or_insert_default().add(start_ns);
    }
}

pub(crate) struct Budget {
    cap: usize,
    used: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { cap: CAP, used: 0 }
    }
}

impl Budget {
    pub(crate) fn keep(&mut self, starts: &mut Starts, start_ns: u64) {
        if starts.later.is_none() && starts.first.len() < self.cap {
            starts.first.push(start_ns);
            self.used += 1;
        } else {
            starts.count_later(start_ns);
        }
    }

    /// Called once per block; if true, [`Budget::cut`] must be called on every list.
    pub(crate) fn must_cut(&mut self) -> bool {
        let over = self.used > BUDGET && self.cap > CAP_MIN;
        if over {
            self.cap /= 2;
            self.used = 0;
        }
        over
    }

    pub(crate) fn cut(&mut self, starts: &mut Starts) {
        if starts.first.len() > self.cap {
            for start_ns in starts.first.split_off(self.cap) {
                starts.count_later(start_ns);
            }
            starts.first.shrink_to_fit();
        }
        self.used += starts.first.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_start_times_stay_within_the_budget() {
        let mut budget = Budget::default();
        let mut lists: Vec<Starts> = (0..1500).map(|_| Starts::default()).collect();
        for start in 0..10_000 {
            for list in &mut lists {
                budget.keep(list, start);
            }
            while budget.must_cut() {
                for list in &mut lists {
                    budget.cut(list);
                }
            }
        }
        let kept: usize = lists.iter().map(|list| list.first.len()).sum();
        assert!(kept <= BUDGET + lists.len(), "{kept}");
        let first = |list: &Starts| list.first.iter().enumerate().all(|(i, &s)| s == i as u64);
        assert!(lists.iter().all(first));
        assert!(lists.iter().all(|list| list.later.is_some()));
    }
}
