//! The detours that hit a piece of work, by source: the same walk as for its time, reported.

use super::{
    Local, Model,
    local::{Met, WorkError},
};

/// Time that a source took from a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub source: u32,
    /// When it began, on the clock of the work. If detours have no position in time, as in LogGOPSim's
    /// rule, they follow the work.
    pub at: i64,
    pub length: i64,
}

impl Local<'_> {
    /// Reports everything that delays this work, in order. The sum is what the model adds to it.
    /// `time` is CPU time for [`Model::CpuTime`].
    pub fn hits(
        &self,
        model: Model,
        time: i64,
        work: i64,
        mut tell: impl FnMut(Hit),
    ) -> Result<(), WorkError> {
        let timeline = self.timeline();
        let mut parts = |index: usize, mut at: i64, length: i64, times: i64| {
            timeline.origin().tell(index, length, |source, length| {
                let length = length.saturating_mul(times);
                tell(Hit { source, at, length });
                at = at.saturating_add(length);
            });
        };
        if model == Model::LogGopSim {
            let mut at = time + work;
            self.loggopsim_telling(time, work, |index, length| {
                parts(index, at, length, 1);
                at += length;
            })?;
            return Ok(());
        }
        let mut now = time;
        self.at(time).work_telling(time, work, |met| match met {
            Met::Detour { index, from, to } => {
                parts(index, from, to - from, 1);
                now = to;
            }
            // More work than one turn of the timeline: reported together, from the start.
            Met::Turns(turns) => {
                for index in 0..timeline.len() {
                    let length = timeline.end(index) - timeline.start(index);
                    parts(index, now, length, turns);
                }
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::noise::{Shares, Timeline};

    fn hits(local: &Local<'_>, model: Model, time: i64, work: i64) -> Vec<Hit> {
        let mut hits = Vec::new();
        local.hits(model, time, work, |hit| hits.push(hit)).unwrap();
        hits
    }

    #[test]
    fn a_detour_is_told_with_its_place_and_its_sources() {
        let mut sources = Shares::default();
        sources.push(50, [(1, 20), (2, 30)]);
        sources.push(10, [(3, 10)]);
        let trace = Timeline::new([(100, 50), (200, 10)], 1_000).unwrap();
        let trace = trace.shared_by(sources).unwrap();
        let local = Local::new(&trace, 0, true);
        let hit = |source, at, length| Hit { source, at, length };
        assert_eq!(
            hits(&local, Model::Preempt, 90, 100),
            [hit(1, 100, 20), hit(2, 120, 30), hit(3, 200, 10)]
        );
        // Begun inside: only the rest of it.
        assert_eq!(hits(&local, Model::Preempt, 125, 1), [hit(2, 125, 25)]);
        assert_eq!(hits(&local, Model::LogGopSim, 90, 20), []);
    }

    proptest! {
        #[test]
        fn what_is_told_is_what_the_model_adds(
            gaps in prop::collection::vec((0i64..100, 1i64..50), 2..20),
            tail in 1i64..50, offset in 0i64..1000, time in 0i64..3000, work in 0i64..9_000,
        ) {
            let mut at = 0;
            let mut list = Vec::new();
            let mut sources = Shares::default();
            for (gap, length) in gaps {
                list.push((at + gap, length));
                sources.push(length, [(1, length / 3), (2, length / 2)]);
                at += gap + length;
            }
            let trace = Timeline::new(list, at + tail).unwrap().shared_by(sources).unwrap();
            let local = Local::new(&trace, offset % trace.span(), true);
            for model in [Model::Preempt, Model::LogGopSim] {
                let done = match model {
                    Model::LogGopSim => local.loggopsim(time, work),
                    _ => local.preempt(time, work),
                };
                // LogGOPSim does not support work longer than its trace.
                let Ok(done) = done else { continue };
                let told: i64 = hits(&local, model, time, work).iter().map(|hit| hit.length).sum();
                prop_assert_eq!(told, done - time - work);
            }
        }
    }
}
