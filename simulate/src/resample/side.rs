//! One node working under its noise, in any of the three models: queried in time order, it looks up
//! its detours only when the next one is due.

use crate::noise::{Local, Model, RunNoise, WorkError};

#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'a> {
    local: Option<Local<'a>>,
    model: Model,
    /// `cpu-time`: the node's position in its trace, which advances only with its own work.
    position: i64,
    /// Until when (or up to which position) there is no detour.
    clear: i64,
}

/// Longest run without noise.
const LIMIT: i64 = 1 << 62;

impl<'a> Side<'a> {
    pub fn new(noise: RunNoise<'a>, rank: u64) -> Side<'a> {
        let local = (!noise.is_none()).then(|| noise.local(rank));
        let clear = match (&local, noise.model()) {
            (None, _) => LIMIT,
            // LogGOPSim's rule depends on the length of the work: never take the fast path.
            (_, Model::LogGopSim) => i64::MIN,
            (Some(local), _) => local.clear_until(0),
        };
        Side { local, model: noise.model(), position: 0, clear }
    }

    /// When work begun at `time` is done. `work` is at most [`super::LONGEST`]; times must not
    /// decrease.
    #[inline]
    pub fn work(&mut self, time: i64, work: i64) -> Result<i64, WorkError> {
        match self.model {
            Model::Preempt | Model::LogGopSim if time + work <= self.clear => Ok(time + work),
            Model::CpuTime if self.position + work <= self.clear => {
                self.position += work;
                end(time, work)
            }
            _ => self.met(time, work),
        }
    }

    #[cold]
    fn met(&mut self, time: i64, work: i64) -> Result<i64, WorkError> {
        let Some(local) = &self.local else { return Err(WorkError::Overflow) };
        match self.model {
            Model::Preempt => {
                let mut detours = local.at(time);
                let done = detours.work(time, work)?;
                self.clear = detours.clear_until(done);
                Ok(done)
            }
            Model::CpuTime => {
                let mut detours = local.at(self.position);
                let done = detours.work(self.position, work)?;
                let took = done - self.position;
                self.position = done;
                self.clear = detours.clear_until(done);
                end(time, took)
            }
            Model::LogGopSim => local.loggopsim(time, work),
        }
    }
}

fn end(time: i64, took: i64) -> Result<i64, WorkError> {
    time.checked_add(took).filter(|&end| end <= LIMIT).ok_or(WorkError::Overflow)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::noise::{Noise, Offsets, Timeline};

    proptest! {
        #[test]
        fn the_short_way_is_the_long_one(
            gaps in prop::collection::vec((1i64..300, 1i64..50), 1..20), tail in 1i64..50,
            offset in 0i64..1000, steps in prop::collection::vec((0i64..100, 0i64..90), 1..50),
        ) {
            let mut at = 0;
            let mut list = Vec::new();
            for (gap, length) in gaps {
                list.push((at + gap, length));
                at += gap + length;
            }
            let timeline = Timeline::new(list, at + tail + 500).unwrap();
            for model in Model::ALL {
                let offsets = Offsets::Given(vec![offset]);
                let noise =
                    Noise::new(vec![timeline.clone()], model, offsets).unwrap().repeating(true);
                let local = noise.run(1, 1).local(0);
                let mut side = Side::new(noise.run(1, 1), 0);
                let (mut now, mut position) = (0, 0);
                for &(pause, work) in &steps {
                    now += pause;
                    let expected = match model {
                        Model::Preempt => local.preempt(now, work),
                        Model::LogGopSim => local.loggopsim(now, work),
                        Model::CpuTime => {
                            let done = local.preempt(position, work).unwrap();
                            let took = done - position;
                            position = done;
                            Ok(now + took)
                        }
                    };
                    let done = side.work(now, work);
                    prop_assert_eq!(&done, &expected);
                    // Work too long for LogGOPSim's rule is an error in both.
                    now = done.unwrap_or(now);
                }
            }
        }
    }

    #[test]
    fn without_noise_work_takes_its_time_and_no_longer_than_can_be_counted() {
        let noise = Noise::none();
        let mut side = Side::new(noise.run(0, 0), 5);
        assert_eq!(side.work(7, 5), Ok(12));
        assert_eq!(side.work(LIMIT, 1), Err(WorkError::Overflow));
    }
}
