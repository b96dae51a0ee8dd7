//! Detours of a recording made without the probe, derived from its kernel records: whatever ran on a CPU
//! took that time from a rank that could have run there.
//!
//! A job that ran during the recording is not noise. A process that used a large share of a CPU is taken
//! for it: its own time is left out, what interrupted it is not. A service of the node is not a job.

use std::{cmp::Reverse, collections::HashMap};

use analysis::words;
use anyhow::{Context, Result};
use simulate::noise::Composed;
use trace::{Class, LaneId, Mode, ProcessKey, RecordFlags};

use crate::{
    decide::action::LOAD_PCT,
    recording::{load::is_of_the_node, open::AnyReader, recorded::lane_words},
};

/// Which records of a recording without detours take time.
pub struct Derived {
    /// For each row of the trace's source table, whether its time was taken from ranks.
    takes: Vec<bool>,
    /// The processes taken for the job, by name.
    job: Vec<ProcessKey>,
}

impl Derived {
    /// None for a recording that has detours. Reading stops at a damaged block, which readers of the lanes
    /// will report.
    pub fn of(reader: &AnyReader) -> Option<Derived> {
        if reader.manifest().mode != Mode::KernelOnly {
            return None;
        }
        let sources = reader.sources();
        let mut threads: HashMap<(u32, ProcessKey), u64> = HashMap::new();
        let mut of_source: HashMap<u32, u64> = HashMap::new();
        let mut last: Option<LaneId> = None;
        let mut finish = |lane: LaneId, of_source: &mut HashMap<u32, u64>| {
            for (source, ns) in of_source.drain() {
                let Some(row) = sources.get(source as usize) else { continue };
                let service = is_of_the_node(row.unit.as_deref());
                if row.class == Class::Thread && !row.own && !service {
                    let sum = threads.entry((lane.0, row.process_key())).or_default();
                    *sum = sum.saturating_add(ns);
                }
            }
        };
        for block in reader.blocks() {
            let Ok(block) = block else { break };
            if let Some(before) = last.replace(block.lane).filter(|before| *before != block.lane) {
                finish(before, &mut of_source);
            }
            for record in &block.records {
                let sum = of_source.entry(record.source.0).or_default();
                *sum = sum.saturating_add(record.net_ns);
            }
        }
        if let Some(lane) = last {
            finish(lane, &mut of_source);
        }
        let is_load = |lane: u32, ns: u64| {
            let totals = reader.totals(LaneId(lane));
            let span = totals.map_or(0, |totals| totals.to_ns.saturating_sub(totals.from_ns));
            span > 0 && 100.0 * ns as f64 / span as f64 >= LOAD_PCT
        };
        let mut job: Vec<ProcessKey> = threads
            .into_iter()
            .filter(|((lane, _), ns)| is_load(*lane, *ns))
            .map(|((_, process), _)| process)
            .collect();
        job.sort_unstable();
        job.dedup();
        let takes = sources.iter().map(|source| match source.class {
            Class::Idle => false,
            Class::Thread => !job.contains(&source.process_key()),
            _ => true,
        });
        Some(Derived { takes: takes.collect(), job })
    }

    /// Whether a process is taken for the job.
    pub fn is_job(&self, process: &ProcessKey) -> bool {
        self.job.binary_search(process).is_ok()
    }

    /// What the results rest on.
    pub fn remark(&self) -> String {
        let basis = "detours are derived from kernel records, without the costs of entry and exit";
        let names: Vec<String> = self.job.iter().map(|job| words::safe(&job.process)).collect();
        match names.len() {
            0 => basis.to_owned(),
            1 => format!(
                "{basis}; {} is assumed to be the job, so its time is not noise (if it is a \
                 daemon, record with the probe)",
                names[0]
            ),
            _ => format!(
                "{basis}; {} are assumed to be the job, so their time is not noise (if one is a \
                 daemon, record with the probe)",
                names.join(", ")
            ),
        }
    }

    /// Adds what took time from ranks on a lane. `source_of` translates rows of the source table.
    pub fn fill(
        &self,
        reader: &AnyReader,
        lane: LaneId,
        source_of: &[u32],
        shortest_ns: u64,
        composed: &mut Composed,
    ) -> Result<()> {
        let from_ns = composed.from_ns();
        let mut taken: Vec<Taken> = Vec::new();
        for block in reader.blocks_of(lane) {
            let block = block?;
            let records = block.records.iter().filter(|record| {
                let takes = self.takes.get(record.source.0 as usize).copied().unwrap_or(false);
                takes && !record.flags.contains(RecordFlags::BASELINE)
            });
            for record in records {
                let Some(&source) = source_of.get(record.source.0 as usize) else { continue };
                let end_ns = record.start_ns.saturating_add(record.gross_ns);
                let start_ns = record.start_ns.max(from_ns);
                let net_ns = record.net_ns.min(end_ns.saturating_sub(start_ns));
                taken.push(Taken { start_ns, end_ns, net_ns, source });
            }
        }
        // Records are in the order of their ends; an interrupt follows what it interrupted.
        taken.sort_unstable_by_key(|t| (t.start_ns, Reverse(t.end_ns), t.source, t.net_ns));
        for together in joined(&taken) {
            let len_ns = together.iter().map(|t| t.net_ns).fold(0, u64::saturating_add);
            if len_ns > 0 && len_ns >= shortest_ns {
                let parts = together.iter().map(|t| (t.source, t.net_ns));
                composed
                    .push(together[0].start_ns, len_ns, parts)
                    .with_context(|| lane_words(&reader.lanes()[lane.0 as usize]))?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    start_ns: u64,
    end_ns: u64,
    net_ns: u64,
    source: u32,
}

/// Runs of records that overlap or follow each other immediately: one detour each.
fn joined(taken: &[Taken]) -> impl Iterator<Item = &[Taken]> {
    let mut rest = taken;
    std::iter::from_fn(move || {
        let mut end_ns = rest.first()?.end_ns;
        let mut count = 1;
        while let Some(next) = rest.get(count).filter(|next| next.start_ns <= end_ns) {
            end_ns = end_ns.max(next.end_ns);
            count += 1;
        }
        let (together, after) = rest.split_at(count);
        rest = after;
        Some(together)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_immediately_is_one_detour() {
        let taken = |start_ns, end_ns| Taken { start_ns, end_ns, net_ns: 1, source: 0 };
        // A thread with an interrupt inside, its successor, and a later one.
        let all = [taken(10, 50), taken(20, 30), taken(50, 60), taken(61, 70)];
        let lengths: Vec<usize> = joined(&all).map(<[Taken]>::len).collect();
        assert_eq!(lengths, [3, 1]);
        assert_eq!(joined(&[]).count(), 0);
    }
}
