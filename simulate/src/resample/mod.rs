//! Resampling, after the SP2 study of 1995: whole distributions of times instead of means. Draws times
//! from measurements, overlays interruptions, and pairs processors as in an all-to-all.
//!
//! Input: an uninterrupted or a measured exchange time as a [`Distribution`] or a [`Sampler`], and
//! noise as `noise::Noise`. Output: the distribution of an exchange ([`exchange`]), of an all-to-all's
//! idle time and total time ([`alltoall`]). Times are picoseconds; every random number is a function
//! of the seed and its purpose, so results do not depend on threads.

#![forbid(unsafe_code)]

pub mod alltoall;
mod distribution;
pub mod exchange;
mod export;
mod parts;
mod sampler;
mod series;
mod side;

use thiserror::Error;

use crate::{
    noise::{SpreadError, WorkError},
    time::Time,
};

pub use distribution::{Distribution, DistributionError, Unit};
pub use export::ExportError;
pub use sampler::Sampler;
pub use series::{Summary, ks_distance};

/// Longest single time, 13 days: sums of a few must not overflow.
pub const LONGEST: i64 = 1 << 60;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ResampleError {
    #[error("an all-to-all needs at least 2 processors, not {0}")]
    TooFewProcessors(u64),
    #[error("too many processors: {0} (at most 65536)")]
    TooManyProcessors(u64),
    #[error("the number of samples must be at least 1")]
    NoSamples,
    #[error("too many samples: {0} (at most 2^28)")]
    TooManySamples(u64),
    #[error("a walk needs at least 1 exchange")]
    EmptyWalk,
    #[error("an exchange of {} is out of range (0 to 13 days)", Time(*ps))]
    NotATime { ps: i64 },
    #[error("a sample would exceed 50 days; use fewer processors or shorter exchanges")]
    TooLong,
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    #[error(transparent)]
    Noise(#[from] SpreadError),
    #[error(transparent)]
    Work(#[from] WorkError),
}

/// The duration of an uninterrupted exchange.
#[derive(Clone, Debug, PartialEq)]
pub enum Exchange {
    Constant(i64),
    Drawn(Sampler),
}

impl Exchange {
    fn check(&self) -> Result<(), ResampleError> {
        match *self {
            Exchange::Constant(ps) if !(0..=LONGEST).contains(&ps) => {
                Err(ResampleError::NotATime { ps })
            }
            _ => Ok(()),
        }
    }

    /// From 64 random bits.
    #[inline]
    fn time(&self, bits: u64) -> i64 {
        match self {
            Exchange::Constant(ps) => *ps,
            Exchange::Drawn(sampler) => sampler.pick(bits),
        }
    }
}
