//! The threads of a recorded program: how long each ran, how long it wanted to, what it waited for,
//! and which sources are the program itself.
//!
//! In: the blocks of its lanes. Out: [`ThreadFacts`]. Two rules are defined here, for the report, the
//! page, comparisons and simulations alike:
//!
//! - **The base of every percentage** of a program is the time its threads wanted to run: running or
//!   runnable. Sleep does not count.
//! - **Whose noise ranks get**: that of threads that wanted to run for at least half as long as the
//!   busiest one ([`lend_noise`]). Most programs have short-lived helpers, and threads that sleep nearly
//!   all the time; a rank on one of those would see no noise at all.

pub(crate) mod competition;
pub(crate) mod events;
mod walk;

use std::collections::{BTreeMap, HashSet};

use trace::{Block, Class, Lane, LaneTotals, RecordFlags, Source};

use crate::Contents;
use crate::lanes;
use competition::Competition;
pub(crate) use walk::{WaitSum, Walk};

/// Fraction of the longest wanted time that a thread needs for its noise to be used for ranks.
const ENOUGH: f64 = 0.5;

/// Follows the threads of a program through its blocks.
#[derive(Default)]
pub struct Threads {
    pub(crate) lanes: BTreeMap<u32, Walk>,
    /// Sources of the time slices of the program's own threads.
    own: HashSet<u32>,
    pub(crate) competition: Option<Competition>,
}

impl Threads {
    #[must_use]
    pub fn new() -> Threads {
        Threads::default()
    }

    /// Also detects competition among the program's threads.
    pub(crate) fn with_competition() -> Threads {
        Threads { competition: Some(Competition::default()), ..Threads::default() }
    }

    pub fn add(&mut self, block: &Block) {
        let next = self.lanes.len();
        let walk = self.lanes.entry(block.lane.0).or_insert_with(|| Walk::new(next));
        walk.add(block, self.competition.as_mut());
        let slices = block.records.iter().filter(|r| r.flags.contains(RecordFlags::BASELINE));
        self.own.extend(slices.map(|slice| slice.source.0));
    }

    /// The results after all blocks have been added.
    #[must_use]
    pub fn finish(&self, contents: &Contents<'_>) -> ThreadFacts {
        // Synthetic recordings and those of other tools have no time slices.
        let slices_known = self.lanes.values().any(Walk::has_run);
        let none = Walk::new(0);
        let totals = lanes::totals(contents);
        let lanes = (0u32..).zip(contents.lanes).zip(totals);
        let times = lanes.map(|((id, lane), totals)| {
            let walk = self.lanes.get(&id).unwrap_or(&none);
            match lane {
                Lane::Cpu { .. } => None,
                Lane::Thread { .. } => wanted(walk, totals, slices_known),
            }
        });
        ThreadFacts { times: times.collect(), program: self.program(contents) }
    }

    /// For each source, whether it is the program itself: its time slices are on the program's lanes, or
    /// its process or thread is one of them. Its page faults are those of the same name and unit.
    ///
    /// Newer recorders mark the program's sources, by process.
    fn program(&self, contents: &Contents<'_>) -> Vec<bool> {
        if contents.sources.iter().any(|source| source.program) {
            return contents.sources.iter().map(|source| source.program).collect();
        }
        let mut numbers: HashSet<u32> = HashSet::new();
        for lane in contents.lanes {
            if let Lane::Thread { pid, tid, .. } = lane {
                numbers.extend([*pid, *tid]);
            }
        }
        if numbers.is_empty() {
            return vec![false; contents.sources.len()];
        }
        let runs = |source: &Source| matches!(source.class, Class::Thread | Class::Kthread);
        let mut threads: HashSet<(&str, Option<&str>)> = HashSet::new();
        for (id, source) in (0u32..).zip(contents.sources) {
            let listed = || source.pids.iter().any(|pid| numbers.contains(pid));
            if runs(source) && !source.own && (self.own.contains(&id) || listed()) {
                threads.insert((&source.name, source.unit.as_deref()));
            }
        }
        let belongs = |source: &Source| {
            let listed = || source.pids.iter().any(|pid| numbers.contains(pid));
            let known = || threads.contains(&(source.name.as_str(), source.unit.as_deref()));
            match source.class {
                _ if source.own => false,
                Class::Thread | Class::Kthread => known(),
                Class::PageFault => listed() || known(),
                _ => false,
            }
        };
        contents.sources.iter().map(belongs).collect()
    }
}

/// How long a thread ran and wanted to run; None if not recorded.
fn wanted(walk: &Walk, totals: Option<&LaneTotals>, slices_known: bool) -> Option<ThreadTime> {
    let recorded = totals.and_then(|totals| Some((totals.run_ns?, totals.wait_ns?)));
    if recorded.is_none() && !slices_known {
        return None;
    }
    let (run_ns, wait_ns, slept_ns) = match recorded {
        // The recorder also counts waits that are too short to be detours.
        Some((run_ns, wait_ns)) => (run_ns, wait_ns.max(walk.waited_ns()), walk.slept_ns()),
        None if walk.waited_ns() > 0 => (walk.run_ns(), walk.waited_ns(), walk.slept_ns()),
        // An older recording, which does not mark waits.
        None => (walk.run_ns(), walk.slept_ns(), 0),
    };
    let wanted_ns = run_ns.saturating_add(wait_ns).saturating_add(slept_ns);
    // Lost time was wanted, even if records of time slices are missing.
    let wanted_ns = wanted_ns.max(walk.lost_ns());
    Some(ThreadTime { run_ns, wait_ns, wanted_ns })
}

/// How a thread spent the time it wanted to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// On a CPU, interruptions included.
    pub run_ns: u64,
    /// Runnable, but not running.
    pub wait_ns: u64,
    /// Both together, plus sleep in page faults.
    pub wanted_ns: u64,
}

/// What is known about the threads of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadFacts {
    /// By lane. None for CPUs, and if not recorded.
    pub times: Vec<Option<ThreadTime>>,
    /// By source: whether it is the program itself.
    pub program: Vec<bool>,
}

impl ThreadFacts {
    /// Base of a lane's percentages, if recorded.
    #[must_use]
    pub fn wanted_ns(&self, lane: usize) -> Option<u64> {
        self.times.get(lane).copied().flatten().map(|time| time.wanted_ns)
    }
}

/// For each lane, whether its noise is used for ranks. `base_ns` is how long each wanted to run, or was
/// watched if that is unknown. CPUs always qualify.
#[must_use]
pub fn lend_noise(lanes: &[Lane], base_ns: &[u64]) -> Vec<bool> {
    let most = base_ns.iter().copied().max().unwrap_or(0);
    let enough = ENOUGH * most as f64;
    let base = |index: usize| base_ns.get(index).copied().unwrap_or(0) as f64;
    let lanes = lanes.iter().enumerate();
    lanes.map(|(index, lane)| matches!(lane, Lane::Cpu { .. }) || base(index) >= enough).collect()
}
