//! Uninterrupted exchange times, and both partners' interruptions in time order: a processor's trace
//! continues from its first exchange to its last.

use std::ops::Range;

use crate::noise::{Noise, draw, key};
use crate::resample::side::Side;
use crate::resample::{Exchange, ResampleError};

use super::{AlltoallResult, Config, pairing};

const TIME: u64 = 23;

struct Processor<'a> {
    ready: i64,
    idle: i64,
    side: Side<'a>,
}

pub(super) fn run(
    config: &Config<'_>,
    exchange: &Exchange,
    noise: &Noise,
    samples: Range<u64>,
    outcome: &mut AlltoallResult,
) -> Result<(), ResampleError> {
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
        pairing::exchanges(all.len(), |number, one, other| {
            let work = exchange.time(draw(times, number));
            let start = all[one].ready.max(all[other].ready);
            let end = all[one].side.work(start, work)?.max(all[other].side.work(start, work)?);
            for processor in [one, other] {
                let processor = &mut all[processor];
                processor.idle += start - processor.ready;
                processor.ready = end;
            }
            Ok::<_, ResampleError>(())
        })?;
        outcome.record(all.iter().map(|processor| (processor.ready, processor.idle)))?;
    }
    Ok(())
}
