//! Why a run took that long. The critical path is what the last rank's end followed from, back to the
//! beginning; its time is split by what it was spent on, to the picosecond. Noise on it made the run
//! longer; noise that hit elsewhere was absorbed.
//!
//! Nothing on the path waits: it always goes through what is waited for, so that its share of
//! [`Part::Waiting`] is 0 with either set of rules. Where the ranks themselves wait is in
//! [`Blame::ranks`].
//!
//! What the noise on the path comes to is how much of the finish time goes with it as long as the path
//! stays where it is; without it another path may be the longest. So a run without any noise takes no
//! less than the finish less the noise on the path.

mod ranks;
mod runs;
#[cfg(test)]
mod tests;

pub use runs::{Blames, PairBlame, SourceBlame, blame_runs};

use std::collections::BTreeMap;

use crate::{
    event::{Log, Part},
    loggops::Params,
    noise::{RunNoise, WorkError},
};

/// Time by what it was spent on, ps.
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

/// What a source's detours did to the work of a rank, ps. A detour that meets two things that a CPU
/// does at once, a receive and a calc, counts for both.
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
    /// When the last rank was done, and which it is.
    pub finish: i64,
    pub last: u32,
    /// The critical path; adds up to the finish.
    pub path: Split,
    /// What each rank's time until its end was spent on; adds up to that.
    pub ranks: Vec<Split>,
    /// Noise that hit anything, by source and rank. Those on the path add up to the path's noise.
    pub noise: BTreeMap<(u32, u32), Share>,
}

/// Takes the log of a run and the noise it ran under.
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
