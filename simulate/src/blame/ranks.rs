//! How each rank spent its time: what its CPUs were busy with, and how long none of them was.
//!
//! When a receive overlaps other work of the same CPU, the time counts for whichever began first, so
//! that the parts sum to the rank's end.

use super::Split;
use crate::{
    event::{Log, Part, Step, What},
    loggops::Params,
};

pub(super) fn splits(log: &Log, params: &Params) -> Vec<Split> {
    let mut order: Vec<u32> = (0..log.steps().len() as u32).collect();
    let key = |index: &u32| {
        let step = &log.steps()[*index as usize];
        (step.rank, step.start, *index)
    };
    order.sort_unstable_by_key(key);
    let mut splits = vec![Split::default(); log.ranks() as usize];
    let mut busy_until = vec![0; log.ranks() as usize];
    for index in order {
        let step = &log.steps()[index as usize];
        let (split, until) = (&mut splits[step.rank as usize], &mut busy_until[step.rank as usize]);
        // Under LogGOPSim's rules a CPU's time may move back, so a rank may end before its last step.
        let end = step.end.min(log.end(step.rank));
        if end <= *until {
            continue;
        }
        let start = step.start.max(*until);
        split.add(Part::Waiting, start - *until);
        share_out(split, step, end - start, params);
        *until = end;
    }
    for (rank, split) in splits.iter_mut().enumerate() {
        split.add(Part::Waiting, log.end(rank as u32) - busy_until[rank]);
    }
    splits
}

/// A share of a step: the noise first, since it is what made the step longer.
fn share_out(split: &mut Split, step: &Step, time: i64, params: &Params) {
    let noise = step.noise.min(time);
    split.add(Part::Noise, noise);
    let work = time - noise;
    if step.what == What::Calc {
        split.add(Part::Compute, work);
        return;
    }
    let o = if step.what == What::Receive { params.recv_overhead } else { params.send_overhead };
    let overhead = work.min(o);
    split.add(Part::Overhead, overhead);
    split.add(step.beyond, work - overhead);
}
