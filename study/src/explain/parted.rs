//! What somebody was late by: the difference between two paths into the past.
//!
//! A wait ends when the late rank arrives, and begins when the waiting one does. The paths into both moments are the
//! same before some moment in the past, at which they part; as both end there, the lengths of the two paths since then
//! differ by the length of the wait. What the path of the late rank has more of is what it was late by: first computation
//! in one region is set off against that in the same region, noise against that of the same source, then what is left of
//! each kind against the rest of that kind. Real and simulated runs are judged by this rule alike.

use std::{collections::BTreeMap, mem::discriminant};

/// What parts of both paths are set off against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Like {
    /// Noise of a source.
    Noise(u32),
    /// Computation in a region.
    Compute(u32),
    Communication,
    Unexplained,
}

/// Two paths since they parted; `S` is what a part of them is.
pub struct Compared<S> {
    sums: BTreeMap<Like, Sums<S>>,
}

struct Sums<S> {
    /// Time on the path of the late rank, and on that of the waiting one.
    late: u64,
    waiting: u64,
    /// The path of the late rank.
    spent: BTreeMap<S, u64>,
}

impl<S> Sums<S> {
    fn excess(&self) -> u64 {
        self.late.saturating_sub(self.waiting)
    }
}

impl<S: Ord + Copy> Default for Compared<S> {
    fn default() -> Compared<S> {
        Compared { sums: BTreeMap::new() }
    }
}

impl<S: Ord + Copy> Compared<S> {
    pub fn clear(&mut self) {
        self.sums.clear();
    }

    /// Adds a part of the path of the late rank, or of the waiting one.
    pub fn add(&mut self, of_late: bool, like: Like, spent: S, time: u64) {
        let none = Sums { late: 0, waiting: 0, spent: BTreeMap::new() };
        let sums = self.sums.entry(like).or_insert(none);
        match of_late {
            true => {
                sums.late += time;
                *sums.spent.entry(spent).or_default() += time;
            }
            false => sums.waiting += time,
        }
    }

    /// Divides a wait among what the late rank's path has more of, in proportion. None is what the paths do not
    /// explain. The parts add up to the wait.
    pub fn divide(&self, wait: u64, mut each: impl FnMut(Option<S>, u64)) {
        let (late, waiting) =
            self.sums.values().fold((0, 0), |sum, one| (sum.0 + one.late, sum.1 + one.waiting));
        // The lengths differ by the length of the wait, unless a path is not complete.
        let unexplained = (wait + waiting).saturating_sub(late);
        let all: Vec<(&Like, &Sums<S>)> = self.sums.iter().collect();
        // A kind is what is left of it after setting off, and how much more of some of it there was before.
        let kinds = || {
            all.chunk_by(|a, b| discriminant(a.0) == discriminant(b.0)).map(|kind| {
                let sum = |time: fn(&Sums<S>) -> u64| kind.iter().map(|one| time(one.1)).sum();
                let (late, waiting): (u64, u64) = (sum(|one| one.late), sum(|one| one.waiting));
                (kind, late.saturating_sub(waiting), sum(Sums::excess))
            })
        };
        let whole: u64 = kinds().map(|(_, net, _)| net).sum();
        let mut shares = Shares::new(wait, whole + unexplained);
        for (kind, net, excess) in kinds() {
            let mut of_kind = Shares::new(shares.next(net), excess);
            for (_, sums) in kind {
                let mut within = Shares::new(of_kind.next(sums.excess()), sums.late);
                for (spent, time) in &sums.spent {
                    match within.next(*time) {
                        0 => {}
                        part => each(Some(*spent), part),
                    }
                }
            }
        }
        match shares.next(unexplained) {
            0 => {}
            share => each(None, share),
        }
    }
}

/// Divides a number in proportion to others. The shares add up to it.
struct Shares {
    number: u64,
    whole: u64,
    /// Sum of the weights so far, and of the shares.
    weights: u64,
    given: u64,
}

impl Shares {
    fn new(number: u64, whole: u64) -> Shares {
        Shares { number, whole: whole.max(1), weights: 0, given: 0 }
    }

    fn next(&mut self, weight: u64) -> u64 {
        self.weights += weight;
        let due = u128::from(self.number) * u128::from(self.weights) / u128::from(self.whole);
        let share = due as u64 - self.given;
        self.given = due as u64;
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_what_is_divided() {
        let mut shares = Shares::new(100, 7);
        let all: Vec<u64> = [1, 2, 0, 3, 1].map(|weight| shares.next(weight)).into();
        assert_eq!(all, [14, 28, 0, 43, 15]);
    }

    #[test]
    fn what_both_paths_have_is_set_off() {
        let mut compared = Compared::default();
        for (of_late, like, spent, time) in [
            (true, Like::Compute(0), 1, 9),
            (true, Like::Compute(1), 1, 10),
            (true, Like::Noise(0), 7, 2),
            (false, Like::Compute(0), 2, 3),
            (false, Like::Compute(1), 2, 10),
        ] {
            compared.add(of_late, like, spent, time);
        }
        let divided = |wait| {
            let mut parts = Vec::new();
            compared.divide(wait, |spent, time| parts.push((spent, time)));
            parts
        };
        assert_eq!(divided(8), [(Some(7), 2), (Some(1), 6)]);
        // Something is missing on the path of the late rank.
        assert_eq!(divided(10), [(Some(7), 2), (Some(1), 6), (None, 2)]);
        // Or on the other one.
        assert_eq!(divided(4), [(Some(7), 1), (Some(1), 3)]);
    }

    #[test]
    fn computation_elsewhere_is_set_off_before_noise_is_blamed_less() {
        let mut compared = Compared::default();
        compared.add(true, Like::Compute(0), 1, 10);
        compared.add(true, Like::Noise(0), 7, 5);
        compared.add(false, Like::Compute(1), 2, 10);
        let mut parts = Vec::new();
        compared.divide(5, |spent, time| parts.push((spent, time)));
        assert_eq!(parts, [(Some(7), 5)]);
    }
}
