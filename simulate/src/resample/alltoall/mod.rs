//! All-to-all by pairwise exchanges: in each step every processor exchanges with another one, as in a
//! round-robin tournament (`pairing`). An exchange starts when both partners are ready; the one that
//! was ready earlier has been idle. The result of many samples is the distributions of the idle time
//! and of the total time.
//!
//! [`Mode`] defines how long an exchange takes: a time drawn from measured exchanges, noise included,
//! as in the SP2 study; or an uninterrupted time that both partners' traces interrupt, which keeps the
//! correlation in time that the study found missing. Any other collective can take the place of the
//! tournament ([`Schedule`]).

mod outcome;
mod pairing;
mod resampled;
mod schedule;
mod traced;

use std::ops::Range;

use rayon::prelude::*;

use crate::noise::Noise;

use super::{Exchange, LONGEST, ResampleError, Sampler, Unit};
use schedule::Extent;

pub use outcome::AlltoallResult;
pub use pairing::{partner, steps};
pub use schedule::Schedule;

const MAX_PROCESSORS: u64 = 1 << 16;

#[derive(Clone, Debug)]
pub enum Mode<'a> {
    /// Every exchange takes a time drawn from measured ones.
    Resample(Sampler),
    /// An uninterrupted time, and both partners' interruptions in time order.
    Trace { exchange: Exchange, noise: &'a Noise },
}

#[derive(Clone, Debug)]
pub struct Config<'a> {
    pub processors: u64,
    pub samples: u64,
    /// Of as many ranks as processors.
    pub schedule: Schedule,
    pub mode: Mode<'a>,
    pub seed: u64,
}

/// Default number of samples, as in the study.
pub const SAMPLES: u64 = 100_000;

/// Samples per thread and batch. The result does not depend on it.
const CHUNK: u64 = 128;

/// `progress` gets the number of samples done since its last call, from any thread.
pub fn run(
    config: &Config<'_>,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<AlltoallResult, ResampleError> {
    share(config, 0..config.samples, progress)
}

/// The samples with these numbers. [`join`](AlltoallResult::join) combines shares into the result of [`run`].
pub fn share(
    config: &Config<'_>,
    samples: Range<u64>,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<AlltoallResult, ResampleError> {
    share_in_chunks(config, samples, CHUNK, progress)
}

fn share_in_chunks(
    config: &Config<'_>,
    all: Range<u64>,
    chunk: u64,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<AlltoallResult, ResampleError> {
    let processors = config.processors;
    if processors < 2 {
        return Err(ResampleError::TooFewProcessors(processors));
    }
    if processors > MAX_PROCESSORS {
        return Err(ResampleError::TooManyProcessors(processors));
    }
    let extent = config.schedule.extent(processors);
    let unit = check(config, extent)?;
    let none = || AlltoallResult::new(processors, extent, unit);
    (0..(all.end.saturating_sub(all.start)).div_ceil(chunk))
        .into_par_iter()
        .try_fold(none, |mut outcome, index| {
            let first = all.start + index * chunk;
            let samples = first..all.end.min(first + chunk);
            let count = samples.end - samples.start;
            match &config.mode {
                Mode::Resample(sampler) => {
                    resampled::run(config, sampler, samples, &mut outcome)?;
                }
                Mode::Trace { exchange, noise } => {
                    traced::run(config, exchange, noise, samples, &mut outcome)?;
                }
            }
            if let Some(progress) = progress {
                progress(count);
            }
            Ok(outcome)
        })
        .try_reduce(none, |mut one, other| {
            one.join(&other)?;
            Ok(one)
        })
}

/// Rejects invalid configurations, and selects the unit of the results.
fn check(config: &Config<'_>, extent: Extent) -> Result<Unit, ResampleError> {
    if config.samples == 0 {
        return Err(ResampleError::NoSamples);
    }
    let longest = match &config.mode {
        Mode::Resample(sampler) | Mode::Trace { exchange: Exchange::Drawn(sampler), .. } => {
            sampler.max()
        }
        Mode::Trace { exchange: Exchange::Constant(time), .. } => *time,
    };
    if let Mode::Trace { exchange, noise } = &config.mode {
        exchange.check()?;
        noise.check(config.processors)?;
    }
    // Upper bound: all exchanges of a step take the longest time.
    let total = longest.checked_mul(extent.rounds as i64).filter(|&total| total <= LONGEST);
    Ok(Unit::for_times_up_to(total.ok_or(ResampleError::TooLong)?))
}

#[cfg(test)]
mod tests;
