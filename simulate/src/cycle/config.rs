//! The configuration of a cycle run, and its validation.

use thiserror::Error;

use crate::{
    loggops::{Params, ParamsError},
    noise::WorkError,
    time::Time,
};

use super::Periodic;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CycleError {
    #[error("{0} is not a power of two (a butterfly needs 2, 4, 8, ... ranks)")]
    NotAPowerOfTwo(u64),
    #[error("too many ranks: {ranks} (at most {MAX_RANKS})")]
    TooManyRanks { ranks: u64 },
    #[error("the number of {0} must be at least 1")]
    Nothing(&'static str),
    #[error("the work must not be negative")]
    NegativeWork,
    #[error("noise of {} every {} leaves no time for work", Time(*duration_ps), Time(*period_ps))]
    NoTimeLeft { period_ps: i64, duration_ps: i64 },
    #[error("a period of {} is too long (at most 26 days)", Time(*period_ps))]
    PeriodTooLong { period_ps: i64 },
    #[error("redundant round {round} does not exist (the last round is {last})")]
    NoSuchRound { round: u32, last: u32 },
    #[error("the run may exceed 26 days of simulated time; simulate a shorter run")]
    TooLong,
    #[error("cannot order the redundant exchanges: the network latency must be above 0")]
    NotSettled,
    #[error("redundant-butterfly does not support {0}")]
    Unsupported(&'static str),
    #[error("redundant-butterfly requires ranks that start together")]
    Apart,
    #[error(transparent)]
    Params(#[from] ParamsError),
    #[error(transparent)]
    Noise(#[from] WorkError),
}

/// 2^30 ranks take 16 GiB.
pub const MAX_RANKS: u64 = 1 << 30;

/// Longest simulated time, and longest period: the sum of two must not overflow.
pub(super) const LONGEST: i64 = 1 << 61;

/// Times in ps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A power of two.
    pub ranks: u64,
    /// Noise: a detour of `duration` every `period`, at a random phase per rank; unless runs are given
    /// other noise.
    pub period: i64,
    pub duration: i64,
    /// CPU time of the compute phase of each cycle.
    pub work: i64,
    pub cycles: u32,
    /// L.
    pub latency: i64,
    /// o.
    pub overhead: i64,
    /// G, fs per byte.
    pub gap_per_byte_fs: i64,
    pub bytes: u64,
    /// Bit r: a redundant message follows the original one of round r. None: every round except the
    /// first.
    pub redundant_rounds: Option<u64>,
    pub runs: u64,
    pub seed: u64,
}

impl Config {
    /// The paper's network and its first noise; no work.
    pub fn paper(ranks: u64) -> Config {
        Config {
            ranks,
            period: 10_000_000_000,
            duration: 100_000_000,
            work: 0,
            cycles: 10,
            latency: 1_000_000,
            overhead: 1_000,
            gap_per_byte_fs: 1_000_000,
            bytes: 1,
            redundant_rounds: None,
            runs: 1,
            seed: 1,
        }
    }

    /// Memory of a run under noise that is looked up, bytes.
    pub fn memory(&self) -> u64 {
        self.ranks.saturating_mul(3 * 8)
    }

    pub fn rounds(&self) -> u32 {
        self.ranks.trailing_zeros()
    }

    pub(super) fn checked(&self) -> Result<Plan<Periodic>, CycleError> {
        if !self.ranks.is_power_of_two() || self.ranks < 2 {
            return Err(CycleError::NotAPowerOfTwo(self.ranks));
        }
        if self.ranks > MAX_RANKS {
            return Err(CycleError::TooManyRanks { ranks: self.ranks });
        }
        for (name, count) in [("cycles", u64::from(self.cycles)), ("runs", self.runs)] {
            if count == 0 {
                return Err(CycleError::Nothing(name));
            }
        }
        if self.work < 0 {
            return Err(CycleError::NegativeWork);
        }
        let noise = Periodic::new(self.period, self.duration)?;
        let params = Params {
            latency: self.latency,
            send_overhead: self.overhead,
            recv_overhead: self.overhead,
            gap: 0,
            gap_per_byte_fs: self.gap_per_byte_fs,
            overhead_per_byte_fs: 0,
            eager_limit: u64::MAX,
            sizes: None,
        };
        params.check()?;
        let message = params.message(self.bytes)?;
        let rounds = self.rounds();
        let redundant = self.redundant_rounds.unwrap_or(every_round_but_the_first(rounds));
        if redundant >> rounds != 0 {
            let round = u64::BITS - 1 - redundant.leading_zeros();
            return Err(CycleError::NoSuchRound { round, last: rounds - 1 });
        }
        let plan = Plan {
            ranks: self.ranks as usize,
            rounds,
            cycles: self.cycles,
            work: self.work,
            noise,
            costs: Costs { cpu: message.send_cpu, flight: message.latency + message.transfer },
            redundant,
        };
        // Checked before the simulation, so that nothing can overflow later.
        let round = 3 * noise.at_most(plan.costs.cpu) + i128::from(plan.costs.flight);
        let cycle = noise.at_most(self.work) + i128::from(rounds) * round;
        if i128::from(self.cycles) * cycle > i128::from(LONGEST) {
            return Err(CycleError::TooLong);
        }
        Ok(plan)
    }
}

/// The paper's redundant set.
pub fn every_round_but_the_first(rounds: u32) -> u64 {
    ((1u64 << rounds.min(63)) - 1) & !1
}

/// Cost of a message, ps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// At either end.
    pub cpu: i64,
    /// Between them.
    pub flight: i64,
}

/// A checked configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan<D> {
    pub ranks: usize,
    pub rounds: u32,
    pub cycles: u32,
    pub work: i64,
    pub noise: D,
    pub costs: Costs,
    pub redundant: u64,
}

impl<D> Plan<D> {
    /// The same cycles under other noise.
    pub fn under<E>(self, noise: E) -> Plan<E> {
        let Plan { ranks, rounds, cycles, work, costs, redundant, .. } = self;
        Plan { ranks, rounds, cycles, work, noise, costs, redundant }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_run_is_refused() {
        let paper = Config::paper(1024);
        assert!(paper.checked().is_ok());
        let refused = |config: Config| config.checked().unwrap_err();
        assert_eq!(refused(Config::paper(0)), CycleError::NotAPowerOfTwo(0));
        assert_eq!(refused(Config::paper(1)), CycleError::NotAPowerOfTwo(1));
        assert_eq!(refused(Config::paper(1000)), CycleError::NotAPowerOfTwo(1000));
        assert!(matches!(refused(Config::paper(1 << 40)), CycleError::TooManyRanks { .. }));
        assert_eq!(refused(Config { runs: 0, ..paper.clone() }), CycleError::Nothing("runs"));
        assert_eq!(refused(Config { cycles: 0, ..paper.clone() }), CycleError::Nothing("cycles"));
        assert_eq!(refused(Config { work: -1, ..paper.clone() }), CycleError::NegativeWork);
        for (period, duration) in [(0, 0), (10, 10), (-5, 1), (10, -1)] {
            let noise = Config { period, duration, ..paper.clone() };
            assert!(matches!(refused(noise), CycleError::NoTimeLeft { .. }));
        }
        let forever = Config { period: i64::MAX, ..paper.clone() };
        assert_eq!(refused(forever), CycleError::PeriodTooLong { period_ps: i64::MAX });
        assert!(Config { period: LONGEST, ..paper.clone() }.checked().is_ok());
        assert!(matches!(
            refused(Config { latency: -1, ..paper.clone() }),
            CycleError::Params(ParamsError::Negative { name: "L" })
        ));
        assert!(matches!(
            refused(Config { bytes: u64::MAX, ..paper.clone() }),
            CycleError::Params(ParamsError::MessageTooLong { .. })
        ));
        assert_eq!(
            refused(Config { redundant_rounds: Some(1 << 10), ..paper.clone() }),
            CycleError::NoSuchRound { round: 10, last: 9 }
        );
        assert_eq!(refused(Config { work: i64::MAX, ..paper.clone() }), CycleError::TooLong);
        let dense = Config { work: 1 << 40, period: 1 << 40, duration: (1 << 40) - 1, ..paper };
        assert_eq!(refused(dense), CycleError::TooLong);
    }

    #[test]
    fn the_papers_set_leaves_out_the_first_round() {
        assert_eq!(every_round_but_the_first(1), 0);
        assert_eq!(every_round_but_the_first(4), 0b1110);
    }
}
