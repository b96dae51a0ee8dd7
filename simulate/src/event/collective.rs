//! A collective over all ranks on what earlier schedules have left, without a schedule of its own: round by
//! round over the ranks, by the rules of the engine. Several times as fast, since it needs neither
//! operations nor dependencies, and bit for bit the same (`simulate/tests/skeletons.rs`).
//!
//! In a round a rank sends, then receives; the receive is posted as the send begins. What it does next
//! waits for both.

use std::ops::ControlFlow;

use super::{Carried, EventError, Options, Rules, cost::Costs, state::Slot, work::Work};
use crate::{
    collectives::{Collective, Pattern, Span},
    loggops::Params,
    noise::RunNoise,
};

/// Runs a collective whose reductions take no time. False, with nothing done, if it takes a schedule: for
/// messages that wait for their receivers, noise that runs on CPU time, latencies that vary, and ranks with
/// several CPUs.
pub fn run_collective_on(
    collective: &Collective,
    params: &Params,
    options: &Options,
    noise: &RunNoise,
    carried: &mut Carried,
) -> Result<bool, EventError> {
    let ranks = collective.ranks() as usize;
    let work = Work::new(noise);
    let mut costs = Costs::new(params, options.local)?;
    let mut can = options.model == Rules::Loggops
        && !work.has_clock()
        && noise.latencies().is_none()
        && (carried.ends.is_empty() || carried.slots.len() == ranks && carried.ends.len() == ranks)
        && ranks <= u32::MAX as usize;
    let _ = collective.rounds(&mut |spans| {
        // Also if the size is out of range: the engine says where.
        can &= spans.iter().all(|span| {
            costs.of(span.bytes, 0, 0).is_ok()
                && costs.of(span.bytes, 0, u32::MAX).is_ok()
                && !costs.may_wait(span.bytes)
        });
        if can { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if !can {
        return Ok(false);
    }
    carried.begin(ranks);
    let Carried { slots, ends, arrivals, .. } = carried;
    arrivals.resize(ranks, 0);
    let mut run = Run { work, costs, slots, times: ends, arrivals };
    let mut result = Ok(());
    let _ = collective.rounds(&mut |spans| {
        result = run.round(spans);
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    match result {
        Ok(()) => Ok(true),
        Err(error) => {
            carried.clear();
            Err(error)
        }
    }
}

struct Run<'a> {
    work: Work<'a>,
    costs: Costs,
    slots: &'a mut [Slot],
    /// When each rank is done with everything so far; while it sends, when the send began.
    times: &'a mut [i64],
    /// When the first byte of a rank's message arrives.
    arrivals: &'a mut [i64],
}

impl Run<'_> {
    fn round(&mut self, spans: &[Span]) -> Result<(), EventError> {
        let Run { work, costs, slots, times, arrivals } = self;
        let ranks = times.len();
        for span in spans {
            each(span, ranks, |src, dst| {
                let (cost, _) = costs.of(span.bytes, src as u32, dst as u32)?;
                let slot = &mut slots[src];
                let start = times[src].max(slot.send_free);
                let end = work.done(src as u32, &mut slot.met, start, cost.send_cpu)?;
                slot.cpu_free = end;
                slot.send_free = end - cost.send_cpu + cost.gap;
                times[src] = start;
                arrivals[dst] = end + cost.latency;
                Ok(())
            })?;
        }
        for span in spans {
            each(span, ranks, |src, dst| {
                let (cost, _) = costs.of(span.bytes, src as u32, dst as u32)?;
                let slot = &mut slots[dst];
                let first_byte = arrivals[dst].max(slot.recv_free);
                slot.recv_free = first_byte + cost.gap;
                let start = (first_byte + cost.transfer).max(slot.received);
                let taken = work.done(dst as u32, &mut slot.met, start, cost.recv_cpu)?;
                slot.received = taken.max(times[dst]);
                slot.end = slot.end.max(slot.received);
                // If it has sent, its CPU was not free before that.
                times[dst] = slot.received.max(slot.cpu_free);
                Ok(())
            })?;
        }
        // Ranks that only send.
        for span in spans.iter().filter(|span| !span.is_full(ranks as u64)) {
            each(span, ranks, |src, _| {
                times[src] = times[src].max(slots[src].cpu_free);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Calls `message` with the sender and the receiver of each message. A loop for each pattern, without
/// divisions.
#[inline(always)]
fn each(
    span: &Span,
    ranks: usize,
    mut message: impl FnMut(usize, usize) -> Result<(), EventError>,
) -> Result<(), EventError> {
    match span.pattern {
        Pattern::Shift { distance } => {
            let distance = distance as usize;
            for src in 0..ranks {
                let up = src + distance;
                message(src, if up < ranks { up } else { up - ranks })?;
            }
        }
        _ => {
            for (src, dst) in span.edges(ranks as u64) {
                message(src as usize, dst as usize)?;
            }
        }
    }
    Ok(())
}
