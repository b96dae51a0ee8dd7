//! Tests that fail, one soon after the other: does the rank wait, or does it test while it works?
//!
//! The time between such tests is short in both cases, and a program that waits must not count as computing:
//! what it waits for may come earlier in a simulation. What happens next tells them apart. A rank that goes on
//! with something else did not wait for what it tested, so all of that time was work. If what it tested
//! completes, it may have been either. Then the other runs of failing tests decide: if many of them were work,
//! and their tests followed each other as fast, it is the same loop, and its time is work as well.

use mpi_abi::{Outcome, RequestRun};

/// Requests that are remembered of a run of tests; more are counted as tested.
const MOST_RANGES: usize = 256;

/// At least this share of the time between failing tests is known to be work.
const SHARE: f64 = 0.25;

/// Tests of the same loop follow each other as fast, within this factor.
const AS_FAST: f64 = 2.0;

/// What a call says about the tests before it.
#[derive(Clone, Copy)]
pub enum Next<'a> {
    /// A test of these requests that completed none of them.
    Fails(&'a [RequestRun]),
    /// A test that completed some of these.
    Succeeds(&'a [RequestRun]),
    /// Waits for some of these.
    Waits(&'a [RequestRun]),
    /// Looked for a message that was not there, or was.
    Missed,
    Found,
    Other,
}

impl Next<'_> {
    pub fn fails(self) -> bool {
        matches!(self, Next::Fails(_) | Next::Missed)
    }
}

/// Time without what the kernel took, and that, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spell {
    pub own: i64,
    pub taken: i64,
}

/// Failing tests that follow each other.
#[derive(Debug, Default)]
struct Run {
    /// First and last request of each range.
    tested: Vec<(u64, u64)>,
    all_tested: bool,
    looked: bool,
    /// In and between the tests, from the end of the first one to what follows the last.
    spell: Spell,
    tests: u64,
}

impl Run {
    fn add(&mut self, next: Next<'_>) {
        self.looked |= matches!(next, Next::Missed);
        let Next::Fails(runs) = next else { return };
        for range in runs.iter().map(range) {
            // Most tests are those of the one before.
            if self.tested.contains(&range) {
                continue;
            }
            match self.tested.len() < MOST_RANGES {
                true => self.tested.push(range),
                false => self.all_tested = true,
            }
        }
    }

    fn has(&self, run: &RequestRun) -> bool {
        let (first, last) = range(run);
        self.all_tested || self.tested.iter().any(|of| of.0 <= last && first <= of.1)
    }

    /// Whether the rank has got what it tested, or waits for it.
    fn ends_with(&self, next: Next<'_>) -> bool {
        match next {
            Next::Succeeds(runs) => runs.iter().any(|run| is_done(run) && self.has(run)),
            Next::Waits(runs) => runs.iter().any(|run| self.has(run)),
            Next::Found => self.looked,
            Next::Fails(_) | Next::Missed | Next::Other => false,
        }
    }
}

fn range(run: &RequestRun) -> (u64, u64) {
    (run.first, run.first.saturating_add(u64::from(run.count.max(1)) - 1))
}

pub fn is_done(run: &RequestRun) -> bool {
    matches!(run.outcome, Outcome::Completed | Outcome::Cancelled | Outcome::Started)
}

/// A run that ended with what it tested, at this step.
#[derive(Debug)]
struct Open {
    step: u32,
    spell: Spell,
    tests: u64,
}

/// How a run of failing tests has ended.
pub enum Ended {
    /// All of it was work.
    Worked(Spell),
    /// That is not known yet; see [`Polling::work`].
    Unknown,
}

/// The failing tests of a rank.
#[derive(Debug, Default)]
pub struct Polling {
    run: Option<Run>,
    open: Vec<Open>,
    worked_ns: i64,
    worked_tests: u64,
    unknown_ns: i64,
}

impl Polling {
    /// Whether the last call was a test that failed.
    pub fn is_on(&self) -> bool {
        self.run.is_some()
    }

    /// Adds time in or between tests; `tests` of them have failed in it.
    pub fn spend(&mut self, spell: Spell, tests: u64) {
        if let Some(run) = &mut self.run {
            run.spell.own = run.spell.own.saturating_add(spell.own);
            run.spell.taken = run.spell.taken.saturating_add(spell.taken);
            run.tests += tests;
        }
    }

    /// A test that seemed to fail has completed something: its requests are spread over several records.
    pub fn completed(&mut self) {
        self.run = None;
    }

    /// A call that comes after everything so far, at this step. Returns what the tests before it were, if they
    /// end with it.
    pub fn next(&mut self, next: Next<'_>, step: u32) -> Option<Ended> {
        if next.fails() {
            self.run.get_or_insert_default().add(next);
            return None;
        }
        let run = self.run.take()?;
        if run.spell.own + run.spell.taken <= 0 {
            return None;
        }
        // The first one, whose own time is not in it.
        let tests = run.tests + 1;
        if run.ends_with(next) {
            self.unknown_ns = self.unknown_ns.saturating_add(run.spell.own);
            self.open.push(Open { step, spell: run.spell, tests });
            return Some(Ended::Unknown);
        }
        self.worked_ns = self.worked_ns.saturating_add(run.spell.own);
        self.worked_tests += tests;
        Some(Ended::Worked(run.spell))
    }

    /// The steps where runs have ended that were work, after all, and how long it took.
    pub fn work(self) -> Vec<(u32, Spell)> {
        let all = self.worked_ns.saturating_add(self.unknown_ns);
        if self.worked_tests == 0 || (self.worked_ns as f64) < SHARE * all as f64 {
            return Vec::new();
        }
        let usual = self.worked_ns as f64 / self.worked_tests as f64;
        let as_fast = |open: &Open| {
            let ns = open.spell.own as f64 / open.tests as f64;
            ns <= usual * AS_FAST && usual <= ns * AS_FAST
        };
        self.open.into_iter().filter(as_fast).map(|open| (open.step, open.spell)).collect()
    }
}

#[cfg(test)]
mod tests {
    use mpi_abi::Actual;

    use super::*;

    fn request(first: u64, outcome: Outcome) -> [RequestRun; 1] {
        [RequestRun { first, count: 1, outcome, actual: Actual::AS_POSTED }]
    }

    /// Calls `MPI_Test` on a request this often, for `ns` each, then another function.
    fn run(polling: &mut Polling, tested: u64, tests: u64, ns: i64, next: Next<'_>) -> bool {
        let pending = request(tested, Outcome::Pending);
        for test in 0..tests {
            polling.next(Next::Fails(&pending), 0);
            polling.spend(Spell { own: ns, taken: 0 }, u64::from(test + 1 < tests));
        }
        matches!(polling.next(next, 7), Some(Ended::Worked(_)))
    }

    #[test]
    fn a_rank_that_gets_what_it_tests_waited() {
        let mut polling = Polling::default();
        let done = request(1, Outcome::Completed);
        for _ in 0..100 {
            assert!(!run(&mut polling, 1, 1_000, 80, Next::Succeeds(&done)));
        }
        // A few tests in passing are work, and say nothing about loops that wait.
        for _ in 0..10 {
            assert!(run(&mut polling, 1, 1, 500, Next::Other));
        }
        assert!(polling.work().is_empty());
    }

    #[test]
    fn a_wait_for_what_was_tested_is_one_and_for_another_is_not() {
        let mut polling = Polling::default();
        let (own, other) = (request(1, Outcome::Pending), request(2, Outcome::Completed));
        assert!(!run(&mut polling, 1, 10, 80, Next::Waits(&own)));
        assert!(run(&mut polling, 1, 10, 80, Next::Waits(&other)));
        assert!(run(&mut polling, 1, 10, 80, Next::Succeeds(&other)));
        assert!(run(&mut polling, 1, 10, 80, Next::Found));
    }

    /// Updates of a table, tests for those of others in between, sends whenever there are enough: HPCC's RandomAccess.
    #[test]
    fn a_rank_that_works_between_its_tests_works() {
        let mut polling = Polling::default();
        let (done, sent) = (request(1, Outcome::Completed), request(2, Outcome::Completed));
        for _ in 0..50 {
            assert!(run(&mut polling, 1, 1_000, 300, Next::Succeeds(&sent)));
            assert!(!run(&mut polling, 1, 1_000, 330, Next::Succeeds(&done)));
        }
        // A loop that only waits is faster.
        assert!(!run(&mut polling, 1, 100_000, 70, Next::Succeeds(&done)));
        let work = polling.work();
        assert_eq!(work.len(), 50);
        assert!(work.iter().all(|(step, spell)| *step == 7 && spell.own == 330_000));
    }
}
