//! The noise of the cycles, as one rank after another meets it: periodic, by arithmetic (`periodic`), or any
//! other, by looking it up.

use std::sync::OnceLock;

use crate::noise::{RunNoise, WorkError};

pub(super) trait Detours: Copy + Sync {
    /// What a rank knows about the detours before it.
    type Ahead: Ahead;

    /// At time 0. `key` is that of the run's phases.
    fn first(&self, key: u64, rank: u64) -> Self::Ahead;

    /// When work begun at `time` ends: each detour interrupts it. Times of a rank never decrease.
    fn work(&self, ahead: &mut Self::Ahead, time: i64, work: i64) -> i64;
}

pub(super) trait Ahead: Copy + Send + Sync {
    /// Work that ends by then meets no detour. May lie in the past.
    fn clear(&self) -> i64;
}

/// The start of the next detour.
impl Ahead for i64 {
    #[inline]
    fn clear(&self) -> i64 {
        *self
    }
}

/// State of a rank. Kept small: eight million of them stream through the caches in each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank<A> {
    /// When it has what the round needs. The kernels define what a negative value means.
    pub ready: i64,
    pub next: A,
}

/// The noise of one run, looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded<'a> {
    pub run: RunNoise<'a>,
    /// Why the run cannot go on: the noise is too short. Its times are meaningless then.
    pub failed: &'a OnceLock<WorkError>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    rank: u32,
    clear: i64,
}

impl Ahead for Known {
    #[inline]
    fn clear(&self) -> i64 {
        self.clear
    }
}

impl Detours for Recorded<'_> {
    type Ahead = Known;

    fn first(&self, _: u64, rank: u64) -> Known {
        Known { rank: rank as u32, clear: self.run.local(rank).clear_until(0) }
    }

    #[inline]
    fn work(&self, ahead: &mut Known, time: i64, work: i64) -> i64 {
        if time + work <= ahead.clear {
            return time + work;
        }
        let local = self.run.local(u64::from(ahead.rank));
        match local.preempt(time, work) {
            Ok(done) => {
                ahead.clear = local.clear_until(done);
                done
            }
            Err(error) => {
                self.failed.get_or_init(|| error);
                time
            }
        }
    }
}
