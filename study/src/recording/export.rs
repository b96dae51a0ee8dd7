//! A recording as fixed work or fixed time quanta, and the lanes of CPUs; other formats are in
//! [`formats::export`].

use std::{io::Write, time::Duration};

use anyhow::{Context, Result, bail};
use formats::export;
use simulate::{noise::Detours, quantum};
use trace::{Lane, LaneId};

use crate::recording::open::AnyReader;

/// Noise as a series of quanta, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantum {
    /// The time taken by each quantum of work.
    FixedWork(u64),
    /// The work done in each quantum of time.
    FixedTime(u64),
}

/// The lane of a CPU.
pub fn lane_of(reader: &AnyReader, cpu: u32) -> Result<LaneId> {
    let all = (0u32..).zip(reader.lanes());
    let lanes: Vec<u32> =
        all.filter(|(_, lane)| **lane == Lane::Cpu { cpu }).map(|(id, _)| id).collect();
    match lanes[..] {
        [] => bail!("{} has no CPU {cpu}", reader.name()),
        [lane] => Ok(LaneId(lane)),
        _ => bail!(
            "{} has a CPU {cpu} on each of {} nodes: omit -c, or export the trace of a single node",
            reader.name(),
            lanes.len()
        ),
    }
}

/// Writes the quanta of all lanes, or of one. Lanes that are shorter than one quantum have none, but an
/// empty file is most likely a wrong unit.
pub fn quanta(
    reader: &AnyReader,
    quantum: Quantum,
    lane: Option<LaneId>,
    out: &mut dyn Write,
) -> Result<()> {
    if reader.lanes().is_empty() {
        bail!("{} has no CPUs or threads to export", reader.name());
    }
    let column = match quantum {
        Quantum::FixedWork(_) => "took_ns",
        Quantum::FixedTime(_) => "work_ns",
    };
    let header = format!("lane,start_ns,{column}");
    let (mut header, mut longest_ns) = (Some(header), 0);
    for index in 0..reader.lanes().len() as u32 {
        if lane.is_none_or(|wanted| wanted.0 == index) {
            longest_ns =
                longest_ns.max(quanta_of(reader, quantum, LaneId(index), &mut header, out)?);
        }
    }
    if header.is_some() {
        let (Quantum::FixedWork(ns) | Quantum::FixedTime(ns)) = quantum;
        let what = match quantum {
            Quantum::FixedWork(_) => "quantum of work",
            Quantum::FixedTime(_) => "quantum",
        };
        bail!(
            "{} is too short for a {what} of {}: it was recorded for {} (use a shorter --quantum)",
            reader.name(),
            words(ns),
            words(longest_ns)
        );
    }
    Ok(())
}

fn words(ns: u64) -> String {
    format!("{:?}", Duration::from_nanos(ns)).replace('µ', "u")
}

/// Returns how long the lane was recorded, in ns. The first quantum writes the header.
fn quanta_of(
    reader: &AnyReader,
    quantum: Quantum,
    lane: LaneId,
    header: &mut Option<String>,
    out: &mut dyn Write,
) -> Result<u64> {
    let mut detours = Vec::new();
    for block in reader.blocks_of(lane) {
        detours.extend(block?.detours.iter().map(|d| (d.start_ns, d.len_ns)));
    }
    let detours = Detours::new(detours).with_context(|| {
        format!("cannot compute quanta for lane {} of {}", lane.0, reader.name())
    })?;
    let (from, to) = match reader.totals(lane) {
        Some(totals) => (totals.from_ns, totals.to_ns),
        None => detours.span(),
    };
    // Not collected: there may be a quantum for every nanosecond.
    let quanta: Box<dyn Iterator<Item = (u64, u64)>> = match quantum {
        Quantum::FixedWork(ns) => Box::new(quantum::fixed_work(&detours, from, to, ns)?),
        Quantum::FixedTime(ns) => Box::new(quantum::fixed_time(&detours, from, to, ns)?),
    };
    let name = export::lane_cell(reader, lane);
    for (start, value) in quanta {
        if let Some(header) = header.take() {
            writeln!(out, "{header}")?;
        }
        writeln!(out, "{name},{start},{value}")?;
    }
    Ok(to.saturating_sub(from))
}
