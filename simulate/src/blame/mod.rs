//! Why a run took as long as it did. The critical path runs from the end of the last rank back to the
//! start; its time is split by cause, to the picosecond. Noise on the path delayed the run; noise
//! elsewhere was absorbed.
//!
//! Nothing on the path waits: the path always goes through the operation waited for, so its share of
//! [`Part::Waiting`] is 0 under either set of rules. How long the ranks themselves wait is in
//! [`Blame::ranks`].
//!
//! The noise on the path is the part of the finish time that would disappear with it if the path
//! stayed the same; without noise, another path may be the longest. So a noiseless run takes at least
//! the finish time minus the noise on the path.

mod ranks;
mod runs;
#[cfg(test)]
mod tests;

pub use runs::{Blames, Look, PairBlame, SourceBlame, blame_runs, blame_runs_with};

use std::collections::BTreeMap;

use crate::{
    event::{Log, Part},
    loggops::Params,
    noise::{RunNoise, WorkError},
};

/// Time by cause, ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split([i64; Part::ALL.len()]);

impl Split {
    pub fn of(&self, part: Part) -> i64 {
        self.0[part as usize]
    }

    pub fn add(&mut self, part: Part, ps: i64) {
        self.0[part as usize] += ps;
    }

    pub fn total(&self) -> i64 {
        self.0.iter().sum()
    }
}

/// Effect of one source's detours on the work of a rank, ps. A detour that hits two things a CPU does
/// at once, a receive and a calc, counts for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub on_path: i64,
    pub absorbed: i64,
}

impl Share {
    pub fn hit(&self) -> i64 {
        self.on_path + self.absorbed
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// When the last rank finished, and which rank that was.
    pub finish: i64,
    pub last: u32,
    /// The critical path; sums to the finish time.
    pub path: Split,
    /// Each rank's time until its end, by cause; sums to that end.
    pub ranks: Vec<Split>,
    /// Noise that hit any work, by source and rank. The shares on the path sum to the path's noise.
    pub noise: BTreeMap<(u32, u32), Share>,
}

/// Takes the log of a run and the noise of that run.
pub fn blame(log: &Log, params: &Params, noise: &RunNoise<'_>) -> Result<Blame, WorkError> {
    let last = log.last();
    let mut path = Split::default();
    let mut on_path = vec![false; log.steps().len()];
    for leg in log.back_from(last) {
        for (part, ps) in leg.parts {
            path.add(part, ps);
        }
        let [.., (_, noise)] = leg.parts;
        if noise != 0 {
            on_path[leg.step as usize] = true;
        }
    }
    let mut shares: BTreeMap<(u32, u32), Share> = BTreeMap::new();
    for (step, on_path) in log.steps().iter().zip(on_path) {
        if step.noise == 0 || noise.is_none() {
            continue;
        }
        let local = noise.local(u64::from(step.rank));
        local.hits(noise.model(), step.clock, step.asked, |hit| {
            let share = shares.entry((hit.source, step.rank)).or_default();
            if on_path {
                share.on_path += hit.length;
            } else {
                share.absorbed += hit.length;
            }
        })?;
    }
    let finish = log.end(last);
    Ok(Blame { finish, last, path, ranks: ranks::splits(log, params), noise: shares })
}
