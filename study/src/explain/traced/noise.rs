//! What the kernel took from the ranks of a run, by source, on the clock of the run.
//!
//! In: recordings of the nodes, whose lanes are threads; out: for each rank the hits of its main thread, which do
//! not overlap.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use anyhow::{Result, bail};
use program::{Clocks, Program};
use trace::{Lane, LaneId, Mode, Reader, RecordFlags, RowKey, outside_kind, outside_names};

use crate::{explain::traced::Source, recording::open::not_whole};

/// An interval that a rank lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub from: i64,
    pub to: i64,
    /// The rank whose thread was interrupted.
    pub slot: u32,
    /// Its sources, in [`Noise::parts`].
    first: u32,
    count: u32,
    /// How much of the sources' time is before `from`, if the hit was cut.
    skipped: u64,
}

impl Hit {
    /// The part of it within an interval; None if there is nothing of it.
    pub fn within(&self, from: i64, to: i64) -> Option<Hit> {
        let (start, end) = (self.from.max(from), self.to.min(to));
        let skipped = self.skipped + start.saturating_sub(self.from).max(0) as u64;
        (start < end).then_some(Hit { from: start, to: end, skipped, ..*self })
    }

    fn ns(&self) -> u64 {
        (self.to - self.from) as u64
    }
}

/// The noise of all ranks.
#[derive(Clone, Debug, Default)]
pub struct Noise {
    /// By their number.
    pub sources: Vec<Source>,
    /// For each source, the first one that differs in nothing but the host: noise of the same kind.
    pub kinds: Vec<u32>,
    /// By rank, in the order of time. None if no recording has its main thread.
    pub hits: Vec<Option<Vec<Hit>>>,
    /// Sources of hits, and the time that each took. They follow each other in this order.
    parts: Vec<(u32, u64)>,
    /// Time of the ranks that was recorded, from their begins to their ends.
    pub covered_ns: u64,
    pub recordings: u64,
    /// What is wrong with the recordings.
    pub remarks: Vec<String>,
}

impl Noise {
    /// From recordings in this order: of several with the same rank, the first counts.
    pub fn read(
        paths: &[PathBuf],
        program: &Program,
        clocks: &Clocks,
        spans: &[(i64, i64)],
    ) -> Result<Noise> {
        let mut noise = Noise { hits: vec![None; program.ranks.len()], ..Noise::default() };
        let mut numbers = HashMap::new();
        for path in paths {
            let reader = Reader::open(path)?;
            noise.add(&reader, program, clocks, spans, &mut numbers)?;
        }
        let mut kinds = BTreeMap::new();
        for (number, source) in (0u32..).zip(&noise.sources) {
            let key = (source.class, &source.name, &source.unit, source.own);
            noise.kinds.push(*kinds.entry(key).or_insert(number));
        }
        Ok(noise)
    }

    fn add(
        &mut self,
        reader: &Reader,
        program: &Program,
        clocks: &Clocks,
        spans: &[(i64, i64)],
        numbers: &mut HashMap<(RowKey, String), u32>,
    ) -> Result<()> {
        let manifest = reader.manifest();
        if !manifest.nodes.is_empty() {
            bail!(
                "{} is merged from several nodes and lacks their clocks: specify the recordings of \
                 the nodes",
                reader.name()
            );
        }
        let slots = slots(program, &manifest.host);
        let mut lanes = Vec::new();
        for (index, lane) in (0u32..).zip(reader.lanes()) {
            if let Lane::Thread { pid, tid, .. } = lane
                && pid == tid
                && let Some(&slot) = slots.get(pid)
            {
                lanes.push((LaneId(index), slot));
            }
        }
        if lanes.is_empty() {
            let what = match manifest.mode {
                Mode::Program => "has no thread of this run's ranks",
                _ => "covers CPUs instead of this run's ranks",
            };
            bail!(
                "{} {what}: record both together with `detour mpi record --noise`",
                reader.name()
            );
        }
        let host = manifest.host.as_str();
        let mut number = |key: RowKey, sources: &mut Vec<Source>| {
            let next = sources.len() as u32;
            *numbers.entry((key, host.to_owned())).or_insert_with_key(|(key, host)| {
                sources.push(Source {
                    class: key.class,
                    name: key.name.clone(),
                    unit: key.unit.clone(),
                    host: host.clone(),
                    own: key.own,
                });
                next
            })
        };
        let named: Vec<u32> =
            reader.sources().iter().map(|row| number(row.row_key(), &mut self.sources)).collect();
        let outside = outside_names(manifest, reader.trailer())
            .map(|name| number(RowKey::outside(name), &mut self.sources));
        let unnamed = number(RowKey::outside("unexplained"), &mut self.sources);
        for (lane, slot) in lanes {
            let Some(place @ None) = self.hits.get_mut(slot) else { continue };
            let rank = &program.ranks[slot];
            let clock = clocks.host(rank.host);
            let common = |ns: u64| {
                let ns = manifest.started_monotonic_ns.saturating_add(ns);
                clock.common(i64::try_from(ns).unwrap_or(i64::MAX))
            };
            let mut hits: Vec<Hit> = Vec::new();
            for block in reader.blocks_of(lane) {
                let block = block?;
                for (detour, records) in block.composed() {
                    let from = common(detour.start_ns);
                    let to = common(detour.start_ns.saturating_add(detour.len_ns));
                    // Lanes are in the order of time; a damaged file may say otherwise.
                    let free = hits.last().map_or(i64::MIN, |hit| hit.to);
                    if to <= from.max(free) {
                        continue;
                    }
                    let first = self.parts.len();
                    let records =
                        records.iter().filter(|r| !r.flags.contains(RecordFlags::BASELINE));
                    for record in records.filter(|record| record.cost_ns > 0) {
                        let source = named.get(record.source.0 as usize).copied();
                        self.parts.push((source.unwrap_or(unnamed), record.cost_ns));
                    }
                    if detour.outside_ns > 0 || self.parts.len() == first {
                        let outside = outside[outside_kind(detour.outside_ns)];
                        self.parts.push((outside, detour.outside_ns));
                    }
                    let hit = Hit {
                        from,
                        to,
                        slot: slot as u32,
                        first: u32::try_from(first)?,
                        count: (self.parts.len() - first) as u32,
                        skipped: 0,
                    };
                    hits.extend(hit.within(free, i64::MAX));
                }
            }
            *place = Some(hits);
            let (begin, end) = spans.get(slot).copied().unwrap_or_default();
            if let Some(totals) = reader.totals(lane) {
                let (from, to) = (common(totals.from_ns).max(begin), common(totals.to_ns).min(end));
                self.covered_ns += to.saturating_sub(from).max(0) as u64;
            }
        }
        self.recordings += 1;
        self.remarks
            .extend(not_whole(reader).map(|why| format!("{} is incomplete: {why}", reader.name())));
        if let Some(trailer) = reader.trailer().filter(|trailer| trailer.lost.records > 0) {
            let lost = trailer.lost.records;
            self.remarks.push(format!("{}: {lost} kernel records lost", reader.name()));
        }
        Ok(())
    }

    /// Hits of a rank that are at least in part within an interval.
    fn overlapping(&self, slot: u32, from: i64, to: i64) -> impl Iterator<Item = Hit> {
        let hits = self.hits.get(slot as usize).and_then(Option::as_deref).unwrap_or_default();
        let first = hits.partition_point(|hit| hit.to <= from);
        hits[first..].iter().map_while(move |hit| hit.within(from, to))
    }

    /// How much a rank lost in an interval.
    pub fn lost_ns(&self, slot: u32, from: i64, to: i64) -> u64 {
        self.overlapping(slot, from, to).map(|hit| hit.ns()).sum()
    }

    /// The hits of a rank within an interval, cut to it.
    pub fn hits_within(&self, slot: u32, from: i64, to: i64) -> Vec<Hit> {
        self.overlapping(slot, from, to).collect()
    }

    /// The sources of a hit. Their times add up to its length.
    pub fn sources_of(&self, hit: &Hit, mut each: impl FnMut(u32, u64)) {
        let parts = &self.parts[hit.first as usize..][..hit.count as usize];
        let (begin, end) = (hit.skipped, hit.skipped + hit.ns());
        let mut at = 0u64;
        for (place, (source, ns)) in parts.iter().enumerate() {
            // The last has what the others leave: clocks of hosts run at slightly different rates.
            let last = place + 1 == parts.len();
            let next = if last { u64::MAX } else { at.saturating_add(*ns) };
            let (from, to) = (at.max(begin), next.min(end));
            if from < to {
                each(*source, to - from);
            }
            at = next;
        }
    }

    /// Ranks without a recording of their noise.
    pub fn missing(&self, program: &Program) -> Vec<u32> {
        let rows = program.ranks.iter().zip(&self.hits);
        rows.filter(|(_, hits)| hits.is_none()).map(|(rank, _)| rank.rank).collect()
    }
}

/// The ranks of a host by PID.
fn slots(program: &Program, host: &str) -> HashMap<u32, usize> {
    let of_host = |rank: &program::Rank| {
        program.hosts.get(rank.host as usize).is_some_and(|found| found.name == host)
    };
    let ranks = program.ranks.iter().enumerate();
    ranks.filter(|(_, rank)| of_host(rank)).map(|(slot, rank)| (rank.pid, slot)).collect()
}

/// A hit made by hand: begin, end and sources.
#[cfg(test)]
type MadeHit<'a> = (i64, i64, &'a [(u32, u64)]);

#[cfg(test)]
impl Noise {
    /// Noise made by hand, by rank.
    pub fn made(sources: Vec<Source>, ranks: &[&[MadeHit<'_>]]) -> Noise {
        let kinds = (0..sources.len() as u32).collect();
        let mut noise = Noise { sources, kinds, ..Noise::default() };
        for (slot, hits) in (0u32..).zip(ranks) {
            let mut made = Vec::new();
            for (from, to, parts) in *hits {
                let first = noise.parts.len() as u32;
                noise.parts.extend_from_slice(parts);
                let count = parts.len() as u32;
                made.push(Hit { from: *from, to: *to, slot, first, count, skipped: 0 });
            }
            noise.hits.push(Some(made));
        }
        noise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_a_cut_hit_are_those_of_its_part() {
        let noise = Noise::made(Vec::new(), &[&[(100, 200, &[(7, 30), (8, 60), (9, 10)])]]);
        let parts = |from, to| {
            let mut found = Vec::new();
            for hit in noise.hits_within(0, from, to) {
                noise.sources_of(&hit, |source, ns| found.push((source, ns)));
            }
            found
        };
        assert_eq!(parts(0, 1_000), [(7, 30), (8, 60), (9, 10)]);
        assert_eq!(parts(110, 150), [(7, 20), (8, 20)]);
        assert_eq!(parts(185, 300), [(8, 5), (9, 10)]);
        assert_eq!(parts(200, 300), []);
        assert_eq!(noise.lost_ns(0, 150, 1_000), 50);
    }
}
