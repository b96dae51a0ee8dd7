//! Exchange times drawn from a set. Several samples are computed together: the pairing is the same in
//! all of them, so it is computed once and the loop over samples is branch-free.

use std::ops::Range;

use crate::noise::{draw, key};
use crate::resample::{ResampleError, Sampler};

use super::{
    AlltoallResult, Config, Schedule, pairing,
    schedule::{self, Meeting},
};

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
    let mut before = ready.clone();
    for first in samples.clone().step_by(LANES) {
        ready.fill([0; LANES]);
        idle.fill([0; LANES]);
        let keys: [u64; LANES] =
            std::array::from_fn(|lane| key(config.seed, TIME, first + lane as u64));
        match &config.schedule {
            Schedule::Tournament => pairing::exchanges(processors, |number, one, other| {
                let took = drawn(sampler, &keys, number);
                let (ready_one, ready_other) = (ready[one], ready[other]);
                let start = latest(&ready_one, &ready_other);
                wait(&mut idle[one], &start, &ready_one);
                wait(&mut idle[other], &start, &ready_other);
                let end: [i64; LANES] = std::array::from_fn(|lane| start[lane] + took[lane]);
                (ready[one], ready[other]) = (end, end);
                Ok::<_, ResampleError>(())
            })?,
            Schedule::Rounds(collective) => schedule::rounds(collective, |meetings| {
                for &Meeting { one, other, .. } in meetings {
                    (before[one], before[other]) = (ready[one], ready[other]);
                }
                for &Meeting { number, one, other, both } in meetings {
                    let took = drawn(sampler, &keys, number);
                    let start = latest(&before[one], &before[other]);
                    let end: [i64; LANES] = std::array::from_fn(|lane| start[lane] + took[lane]);
                    wait(&mut idle[one], &start, &before[one]);
                    ready[one] = end;
                    if both {
                        wait(&mut idle[other], &start, &before[other]);
                        ready[other] = end;
                    }
                }
                Ok::<_, ResampleError>(())
            })?,
        }
        // The last batch may not use all lanes.
        let used = (samples.end - first).min(LANES as u64) as usize;
        for lane in 0..used {
            outcome
                .record(ready.iter().zip(&idle).map(|(ready, idle)| (ready[lane], idle[lane])))?;
        }
    }
    Ok(())
}

#[inline(always)]
fn drawn(sampler: &Sampler, keys: &[u64; LANES], number: u64) -> [i64; LANES] {
    std::array::from_fn(|lane| sampler.pick(draw(keys[lane], number)))
}

#[inline(always)]
fn latest(one: &[i64; LANES], other: &[i64; LANES]) -> [i64; LANES] {
    std::array::from_fn(|lane| one[lane].max(other[lane]))
}

/// Adds the time from when a processor was ready to the start of the exchange.
#[inline(always)]
fn wait(idle: &mut [i64; LANES], start: &[i64; LANES], ready: &[i64; LANES]) {
    *idle = std::array::from_fn(|lane| idle[lane] + (start[lane] - ready[lane]));
}
