//! Work under noise: when work begun at a given time ends.

use super::{EventError, builder::LONGEST};
use crate::noise::{Model, RunNoise};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    noise: RunNoise<'a>,
    silent: bool,
    model: Model,
}

impl<'a> Work<'a> {
    pub fn new(noise: &RunNoise<'a>) -> Work<'a> {
        Work { noise: *noise, silent: noise.is_none(), model: noise.model() }
    }

    /// Whether the order of work changes the noise it meets.
    pub fn has_clock(&self) -> bool {
        !self.silent && self.model == Model::CpuTime
    }

    /// `met` belongs to the CPU that does the work.
    #[inline(always)]
    pub fn done(&self, rank: u32, met: &mut Met, start: i64, work: i64) -> Result<i64, EventError> {
        let done = start + work;
        let clear = self.silent || met.clear_from <= start && done <= met.clear_until;
        let done = if clear { done } else { self.noisy(rank, met, start, work)? };
        if done > LONGEST {
            return Err(EventError::TooLong { rank });
        }
        Ok(done)
    }

    fn noisy(&self, rank: u32, met: &mut Met, start: i64, work: i64) -> Result<i64, EventError> {
        let local = self.noise.local(u64::from(rank));
        let result = match self.model {
            Model::Preempt => local.preempt_and_clear(start, work).map(|(done, clear)| {
                (met.clear_from, met.clear_until) = (clear.from, clear.until);
                done
            }),
            Model::LogGopSim => local.loggopsim(start, work),
            Model::CpuTime => local.preempt(met.clock, work).map(|then| {
                let took = then - met.clock;
                met.clock = then;
                start + took
            }),
        };
        result.map_err(|source| EventError::Noise { rank, source })
    }
}

/// The noise state of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    /// Its CPU time so far, for the model in which noise runs on CPU time.
    clock: i64,
    /// No detour between these: most work needs no lookup.
    clear_from: i64,
    clear_until: i64,
}

impl Met {
    /// A CPU that is known to be clear of detours between these.
    pub fn known(clear_from: i64, clear_until: i64) -> Met {
        Met { clock: 0, clear_from, clear_until }
    }

    /// What [`Met::known`] takes.
    pub fn clear(&self) -> (i64, i64) {
        (self.clear_from, self.clear_until)
    }
}

impl Default for Met {
    fn default() -> Met {
        Met { clock: 0, clear_from: 0, clear_until: -1 }
    }
}
