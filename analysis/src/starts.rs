//! Start times kept for the period test, within a fixed budget.
//!
//! Every (source row, lane) keeps its first start times, contiguous, because a period is a property
//! of neighbours. When all of them together pass the budget, the cap per pair is halved and every
//! list cut back to it.

/// Start times over all rows and lanes: 64 MiB.
const BUDGET: usize = 8 << 20;
/// Per row and lane, at first.
const CAP: usize = 1 << 14;
/// Per row and lane, at least: still far more than the test needs.
const CAP_MIN: usize = 1 << 8;

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
    pub(crate) fn keep(&mut self, starts: &mut Vec<u64>, start_ns: u64) {
        if starts.len() < self.cap {
            starts.push(start_ns);
            self.used += 1;
        }
    }

    /// Asked once per block; then every list is to be given to [`Budget::cut`].
    pub(crate) fn must_cut(&mut self) -> bool {
        let over = self.used > BUDGET && self.cap > CAP_MIN;
        if over {
            self.cap /= 2;
            self.used = 0;
        }
        over
    }

    pub(crate) fn cut(&mut self, starts: &mut Vec<u64>) {
        starts.truncate(self.cap);
        starts.shrink_to_fit();
        self.used += starts.len();
    }

    pub(crate) fn is_full(&self, starts: &[u64]) -> bool {
        starts.len() >= self.cap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_start_times_stay_within_the_budget() {
        let mut budget = Budget::default();
        let mut lists: Vec<Vec<u64>> = vec![Vec::new(); 1500];
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
        let kept: usize = lists.iter().map(Vec::len).sum();
        assert!(kept <= BUDGET + lists.len(), "{kept}");
        assert!(lists.iter().all(|l| l.iter().enumerate().all(|(i, &s)| s == i as u64)));
    }
}
