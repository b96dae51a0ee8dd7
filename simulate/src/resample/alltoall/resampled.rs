//! Exchange times drawn from a set. Several samples are computed together: the pairing is the same in
//! all of them, so it is computed once and the loop over samples is branch-free.

use std::ops::Range;

use crate::noise::{draw, key};
use crate::resample::{ResampleError, Sampler};

use super::{AlltoallResult, Config, pairing};

/// Samples computed together: one cache line of times.
const LANES: usize = 8;
const TIME: u64 = 22;

pub(super) fn run(
    config: &Config<'_>,
    sampler: &Sampler,
    samples: Range<u64>,
    outcome: &mut AlltoallResult,
) -> Result<(), ResampleError> {
    let processors = config.processors as usize;
    let mut ready = vec![[0i64; LANES]; processors];
    let mut idle = vec![[0i64; LANES]; processors];
    for first in samples.clone().step_by(LANES) {
        ready.fill([0; LANES]);
        idle.fill([0; LANES]);
        let keys: [u64; LANES] =
            std::array::from_fn(|lane| key(config.seed, TIME, first + lane as u64));
        pairing::exchanges(processors, |number, one, other| {
            let (ready_one, ready_other) = (ready[one], ready[other]);
            let (idle_one, idle_other) = (idle[one], idle[other]);
            let start: [i64; LANES] =
                std::array::from_fn(|lane| ready_one[lane].max(ready_other[lane]));
            idle[one] =
                std::array::from_fn(|lane| idle_one[lane] + (start[lane] - ready_one[lane]));
            idle[other] =
                std::array::from_fn(|lane| idle_other[lane] + (start[lane] - ready_other[lane]));
            let end: [i64; LANES] =
                std::array::from_fn(|lane| start[lane] + sampler.pick(draw(keys[lane], number)));
            (ready[one], ready[other]) = (end, end);
            Ok::<_, ResampleError>(())
        })?;
        // The last batch may not use all lanes.
        let used = (samples.end - first).min(LANES as u64) as usize;
        for lane in 0..used {
            outcome
                .record(ready.iter().zip(&idle).map(|(ready, idle)| (ready[lane], idle[lane])))?;
        }
    }
    Ok(())
}
