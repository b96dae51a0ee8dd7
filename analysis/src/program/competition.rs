//! How much a program competes with itself: how many of its threads are runnable while some of them wait
//! for others, and how many CPUs it uses.
//!
//! Time is divided into bins that widen as the recording grows, so that memory does not depend on its
//! length.

use crate::rows::{CpuSlots, at};

const BINS: usize = 1 << 13;
const FIRST_WIDTH_NS: u64 = 1_000_000;
/// A CPU counts as used if the program spent at least this share of its time on it.
const USED: f64 = 0.01;
/// Maximum number of waits for threads not yet known to belong to the program.
const UNDECIDED: usize = 1 << 16;

#[derive(Clone, Copy, Default)]
struct Bin {
    /// Sum over all threads of the time they were running or waiting.
    runnable_ns: u64,
    /// Time they waited for other threads of the program.
    contested_ns: u64,
}

impl Bin {
    fn take_in(&mut self, other: &Bin) {
        self.runnable_ns = self.runnable_ns.saturating_add(other.runnable_ns);
        self.contested_ns = self.contested_ns.saturating_add(other.contested_ns);
    }
}

/// A wait for threads of one row.
#[derive(Clone, Copy)]
struct Undecided {
    row: u32,
    start_ns: u64,
    end_ns: u64,
    ns: u64,
}

/// Mean number of runnable threads over the time that they waited for each other, and the number of
/// CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Crowd {
    pub(crate) runnable: f64,
    pub(crate) cpus: usize,
}

pub(crate) struct Competition {
    width_ns: u64,
    bins: Vec<Bin>,
    /// The latest time seen: the last bin may not be full.
    end_ns: u64,
    slots: CpuSlots,
    /// Time on each CPU, by slot.
    run_ns: Vec<u64>,
    undecided: Vec<Undecided>,
}

impl Default for Competition {
    fn default() -> Self {
        Competition {
            width_ns: FIRST_WIDTH_NS,
            bins: Vec::new(),
            end_ns: 0,
            slots: CpuSlots::default(),
            run_ns: Vec::new(),
            undecided: Vec::new(),
        }
    }
}

impl Competition {
    /// A thread wanted to run.
    pub(crate) fn runnable(&mut self, start_ns: u64, end_ns: u64) {
        self.spread(start_ns, end_ns, |bin, ns| {
            bin.runnable_ns = bin.runnable_ns.saturating_add(ns);
        });
    }

    /// A thread ran.
    pub(crate) fn running(&mut self, cpu: u16, start_ns: u64, end_ns: u64) {
        let run_ns = at(&mut self.run_ns, self.slots.slot(cpu));
        *run_ns = run_ns.saturating_add(end_ns.saturating_sub(start_ns));
        self.runnable(start_ns, end_ns);
    }

    /// From `start` to `end` a thread waited, and lost `ns`, while a thread of `row` ran that is known
    /// to belong to the program, or may turn out to.
    pub(crate) fn contested(&mut self, row: u32, known: bool, (start, end): (u64, u64), ns: u64) {
        if known {
            self.weigh(start, end, ns);
        } else if self.undecided.len() < UNDECIDED {
            self.undecided.push(Undecided { row, start_ns: start, end_ns: end, ns });
        }
    }

    fn weigh(&mut self, start_ns: u64, end_ns: u64, ns: u64) {
        let length = u128::from(end_ns.saturating_sub(start_ns).max(1));
        self.spread(start_ns, end_ns, |bin, part| {
            let share = u128::from(ns) * u128::from(part) / length;
            bin.contested_ns = bin.contested_ns.saturating_add(share as u64);
        });
    }

    /// None if no thread waited for another thread of the program. `belongs` selects the program's rows.
    pub(crate) fn finish(&mut self, belongs: impl Fn(u32) -> bool) -> Option<Crowd> {
        for wait in std::mem::take(&mut self.undecided) {
            if belongs(wait.row) {
                self.weigh(wait.start_ns, wait.end_ns, wait.ns);
            }
        }
        let (mut weight, mut runnable) = (0.0, 0.0);
        for (index, bin) in (0u64..).zip(&self.bins).filter(|(_, bin)| bin.contested_ns > 0) {
            let seen = self.end_ns.saturating_sub(index * self.width_ns);
            let width = seen.clamp(1, self.width_ns) as f64;
            let contested = bin.contested_ns as f64;
            weight += contested;
            runnable += contested * bin.runnable_ns as f64 / width;
        }
        let enough = USED * self.run_ns.iter().map(|&ns| ns as f64).sum::<f64>();
        let cpus = self.run_ns.iter().filter(|&&ns| ns as f64 >= enough).count();
        (weight > 0.0).then(|| Crowd { runnable: runnable / weight, cpus })
    }

    fn spread(&mut self, start_ns: u64, end_ns: u64, mut put: impl FnMut(&mut Bin, u64)) {
        if end_ns <= start_ns {
            return;
        }
        self.end_ns = self.end_ns.max(end_ns);
        while (end_ns - 1) / self.width_ns >= BINS as u64 {
            self.widen();
        }
        let (first, last) = (start_ns / self.width_ns, (end_ns - 1) / self.width_ns);
        if self.bins.len() <= last as usize {
            self.bins.resize(last as usize + 1, Bin::default());
        }
        let bins = (first..=last).zip(&mut self.bins[first as usize..]);
        for (index, bin) in bins {
            let (from, to) = (index * self.width_ns, (index + 1).saturating_mul(self.width_ns));
            put(bin, end_ns.min(to) - start_ns.max(from));
        }
    }

    fn widen(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        let narrow = std::mem::take(&mut self.bins);
        self.bins = narrow
            .chunks(2)
            .map(|pair| {
                let mut bin = pair[0];
                pair.iter().skip(1).for_each(|other| bin.take_in(other));
                bin
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Three threads take turns on two CPUs: one always waits.
    fn three_for_two(turns: u64, turn_ns: u64) -> Competition {
        let mut competition = Competition::default();
        for turn in 0..turns {
            let span = (turn * turn_ns, (turn + 1) * turn_ns);
            competition.running(0, span.0, span.1);
            competition.running(7, span.0, span.1);
            competition.runnable(span.0, span.1);
            competition.contested(3, turn % 2 == 0, span, turn_ns);
        }
        competition
    }

    #[test]
    fn runnable_threads_and_cpus_are_counted_while_they_compete() {
        for turns in [10, 100_000] {
            let mut competition = three_for_two(turns, 4 * MS);
            // Later they do not compete; that time does not count.
            let end = turns * 4 * MS;
            competition.running(7, 2 * end, 3 * end);
            let crowd = competition.finish(|row| row == 3).expect("they compete");
            // The bin in which they stop is partly empty.
            assert!((crowd.runnable - 3.0).abs() < 0.01, "{crowd:?}");
            assert_eq!(crowd.cpus, 2);
            assert!(competition.bins.len() <= BINS);
        }
    }

    #[test]
    fn nobody_competes_who_waits_for_others() {
        let mut competition = Competition::default();
        competition.running(0, 0, 10 * MS);
        competition.runnable(10 * MS, 20 * MS);
        competition.contested(5, false, (10 * MS, 20 * MS), 10 * MS);
        assert_eq!(competition.finish(|_| false), None);
    }

    #[test]
    fn times_of_a_damaged_file_do_not_take_it_down() {
        let mut competition = Competition::default();
        competition.running(u16::MAX, u64::MAX - 5, u64::MAX);
        competition.runnable(0, u64::MAX);
        competition.contested(0, true, (7, u64::MAX), u64::MAX);
        competition.contested(0, true, (u64::MAX, 7), u64::MAX);
        assert!(competition.finish(|_| true).is_some());
        assert!(competition.bins.len() <= BINS);
    }
}
