//! Uninterrupted exchange times, and both partners' interruptions in time order: a processor's trace
//! continues from its first exchange to its last.

use std::ops::Range;

use crate::noise::{Noise, draw, key};
use crate::resample::side::Side;
use crate::resample::{Exchange, ResampleError};

use super::{
    AlltoallResult, Config, Schedule, pairing,
    schedule::{self, Meeting},
};

const TIME: u64 = 23;

struct Processor<'a> {
    ready: i64,
    idle: i64,
    side: Side<'a>,
}

impl Processor<'_> {
    fn done(&mut self, start: i64, end: i64) {
        self.idle += start - self.ready;
        self.ready = end;
    }
}

pub(super) fn run(
    config: &Config<'_>,
    exchange: &Exchange,
    noise: &Noise,
    samples: Range<u64>,
    outcome: &mut AlltoallResult,
) -> Result<(), ResampleError> {
    let mut before = vec![0; config.processors as usize];
    let mut all: Vec<Processor<'_>> = Vec::with_capacity(config.processors as usize);
    for sample in samples {
        let here = noise.run(config.seed, sample);
        all.clear();
        all.extend((0..config.processors).map(|processor| Processor {
            ready: 0,
            idle: 0,
            side: Side::new(here, processor),
        }));
        let times = key(config.seed, TIME, sample);
        match &config.schedule {
            Schedule::Tournament => pairing::exchanges(all.len(), |number, one, other| {
                let work = exchange.time(draw(times, number));
                let start = all[one].ready.max(all[other].ready);
                let end = all[one].side.work(start, work)?.max(all[other].side.work(start, work)?);
                all[one].done(start, end);
                all[other].done(start, end);
                Ok::<_, ResampleError>(())
            })?,
            Schedule::Rounds(collective) => schedule::rounds(collective, |meetings| {
                for &Meeting { one, other, .. } in meetings {
                    (before[one], before[other]) = (all[one].ready, all[other].ready);
                }
                for &Meeting { number, one, other, both } in meetings {
                    let work = exchange.time(draw(times, number));
                    let start = before[one].max(before[other]);
                    let mut end = all[one].side.work(start, work)?;
                    if both {
                        end = end.max(all[other].side.work(start, work)?);
                        all[other].done(start, end);
                    }
                    all[one].done(start, end);
                }
                Ok::<_, ResampleError>(())
            })?,
        }
        outcome.record(all.iter().map(|processor| (processor.ready, processor.idle)))?;
    }
    Ok(())
}
