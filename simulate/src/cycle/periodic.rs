//! Periodic noise as seen by one rank: a detour at the start of every period, shifted by the rank's
//! phase. The same rules as `noise::Local::preempt` (tested below), without its table: a rank only
//! keeps the start of its next detour.

use crate::noise::draw;

use super::CycleError;
use super::config::LONGEST;
use super::detours::Detours;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periodic {
    period: i64,
    duration: i64,
}

/// After every run.
const NEVER: i64 = 1 << 62;

impl Periodic {
    pub fn new(period: i64, duration: i64) -> Result<Periodic, CycleError> {
        if period <= 0 || duration < 0 || duration >= period {
            return Err(CycleError::NoTimeLeft { period_ps: period, duration_ps: duration });
        }
        if period > LONGEST {
            return Err(CycleError::PeriodTooLong { period_ps: period });
        }
        Ok(Periodic { period, duration })
    }

    /// A rank's position in its period at time 0.
    pub fn phase(&self, key: u64, rank: u64) -> i64 {
        ((u128::from(draw(key, rank)) * self.period as u128) >> 64) as i64
    }

    /// Start of the first detour that has not ended at time 0, from this phase on.
    pub fn first_from(&self, phase: i64) -> i64 {
        if self.duration == 0 {
            NEVER
        } else if phase < self.duration {
            -phase
        } else {
            self.period - phase
        }
    }

    /// Upper bound on the duration of work of this length.
    pub(super) fn at_most(&self, work: i64) -> i128 {
        let detours = i128::from(work / (self.period - self.duration)) + 2;
        i128::from(work) + detours * i128::from(self.duration)
    }
}

impl Detours for Periodic {
    /// Start of the first detour that may still matter.
    type Ahead = i64;

    fn first(&self, key: u64, rank: u64) -> i64 {
        self.first_from(self.phase(key, rank))
    }

    /// Work begun at `time` is interrupted by each detour and continues after it. `next` must be the
    /// start of a detour no later than the first to end after `time`; on return it is the start of a
    /// detour no later than the first to end after the work.
    #[inline]
    fn work(&self, next: &mut i64, time: i64, work: i64) -> i64 {
        let late = time - *next - self.duration;
        if late >= 0 {
            *next += (late / self.period + 1) * self.period;
        }
        if time + work <= *next {
            return time + work;
        }
        let mut left = work - (*next - time).max(0);
        let mut now = *next + self.duration;
        *next += self.period;
        let free = self.period - self.duration;
        if left > free {
            let whole = (left - 1) / free;
            left -= whole * free;
            now += whole * self.period;
            *next += whole * self.period;
        }
        now + left
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::noise::{Local, Timeline, key};

    proptest! {
        #[test]
        fn it_preempts_as_the_general_noise_does(
            period in 2i64..200, share in 0f64..1.0, phase in 0f64..1.0,
            steps in prop::collection::vec((0i64..300, 0i64..500), 1..20),
        ) {
            let duration = (period as f64 * share) as i64;
            let phase = (period as f64 * phase) as i64;
            let noise = Periodic::new(period, duration).unwrap();
            let timeline = Timeline::periodic(period, duration).unwrap();
            let local = Local::new(&timeline, phase, true);
            let (mut time, mut next) = (0, noise.first_from(phase));
            for (pause, work) in steps {
                time += pause;
                let done = noise.work(&mut next, time, work);
                prop_assert_eq!(done, local.preempt(time, work).unwrap());
                prop_assert!(i128::from(done - time) <= noise.at_most(work));
                time = done;
            }
        }
    }

    /// The paper draws the length of a compute phase: W + (W/P + 1) D with probability (W mod P)/P,
    /// else W + (W/P) D. Over all phases outside a detour, preemption gives exactly that with the free
    /// time P - D of each period in place of P.
    #[test]
    fn the_papers_compute_phase_is_preemption_at_a_random_phase() {
        for (period, duration, work) in
            [(1000, 10, 0), (1000, 10, 666), (1000, 10, 990), (1000, 10, 4321), (100, 30, 555)]
        {
            let noise = Periodic::new(period, duration).unwrap();
            let free = period - duration;
            let (fewest, more) = (work / free, work % free);
            let mut longer = 0;
            for phase in duration..period {
                let took = noise.work(&mut noise.first_from(phase), 0, work);
                // Work that ends as the detour begins is not hit by it.
                let met = (took - work) / duration;
                assert_eq!((took - work) % duration, 0);
                assert!(met == fewest || met == fewest + 1 || (more == 0 && met + 1 == fewest));
                longer += took - work;
            }
            // Mean over the phases: W D / (P - D); the one phase that ends as a detour begins is
            // within one detour of it.
            assert!((longer - work * duration).abs() <= duration, "{longer} {work}");
            // The paper's mean, W D / P, is less by the share of the noise.
            let paper = work as f64 / period as f64 * duration as f64;
            let here = longer as f64 / free as f64;
            let share = duration as f64 / period as f64;
            assert!((here - paper).abs() <= here * share + duration as f64 / free as f64);
        }
    }

    #[test]
    fn phases_are_spread_over_the_period() {
        let noise = Periodic::new(1000, 10).unwrap();
        let key = key(1, 2, 3);
        let mut tenths = [0; 10];
        for rank in 0..10_000 {
            tenths[noise.phase(key, rank) as usize / 100] += 1;
        }
        assert!(tenths.iter().all(|&count| (850..1150).contains(&count)), "{tenths:?}");
    }
}
