//! Ends a recording when something happens, and keeps only the last seconds before it, as a flight
//! recorder does.

use std::{
    collections::VecDeque,
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use trace::{
    Block, Detour, LaneId, LaneTotals, Record, RecordFlags, Source, SourceId, TraceError, Trailer,
    Writer,
};

use crate::options::{Condition, Trigger};

/// Events kept at most: about 200 MB. Beyond, fewer seconds are kept.
const MOST_EVENTS: usize = 1 << 22;

/// What ended the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    pub lane: LaneId,
    /// On the recording's clock.
    pub start_ns: u64,
    pub len_ns: u64,
}

/// The last seconds of a recording, in memory until it ends.
pub struct Kept {
    writer: Box<Writer<File>>,
    condition: Condition,
    keep_ns: u64,
    most_events: usize,
    /// Whether each source is the one to wait for.
    matches: Vec<bool>,
    blocks: VecDeque<Block>,
    events: usize,
    /// Everything before this time may have been dropped.
    dropped_to_ns: u64,
    /// The end of what was dropped for lack of memory, though it was to be kept.
    full_to_ns: u64,
    newest_ns: u64,
    met: Option<Met>,
    /// Set when it happens.
    happened: Arc<AtomicBool>,
}

impl Kept {
    pub fn new(
        writer: Box<Writer<File>>,
        condition: Condition,
        keep_ns: u64,
        happened: Arc<AtomicBool>,
    ) -> Kept {
        Kept {
            writer,
            condition,
            keep_ns,
            most_events: MOST_EVENTS,
            matches: Vec::new(),
            blocks: VecDeque::new(),
            events: 0,
            dropped_to_ns: 0,
            full_to_ns: 0,
            newest_ns: 0,
            met: None,
            happened,
        }
    }

    pub fn writer(&mut self) -> &mut Writer<File> {
        &mut self.writer
    }

    pub fn met(&self) -> Option<Met> {
        self.met
    }

    pub fn add_source(&mut self, id: SourceId, source: &Source) -> Result<(), TraceError> {
        let index = id.0 as usize;
        if self.matches.len() <= index {
            self.matches.resize(index + 1, false);
        }
        self.matches[index] = self.condition.names(source);
        self.writer.add_source(id, source)
    }

    pub fn add(&mut self, block: &Block) {
        if self.met.is_none() {
            self.met = self.look(block);
            if self.met.is_some() {
                self.happened.store(true, Ordering::Release);
            }
        }
        self.newest_ns = self.newest_ns.max(last_ns(block));
        self.events += events(block);
        self.blocks.push_back(block.clone());
        let old = self.met.map_or(self.newest_ns, |met| met.start_ns).saturating_sub(self.keep_ns);
        while let Some(first) = self.blocks.front() {
            let last = last_ns(first);
            if last >= old && self.events <= self.most_events {
                break;
            }
            self.events -= events(first);
            self.dropped_to_ns = self.dropped_to_ns.max(last);
            if last >= old {
                self.full_to_ns = self.full_to_ns.max(last);
            }
            self.blocks.pop_front();
        }
    }

    /// The first thing in a block that fulfils the condition.
    fn look(&self, block: &Block) -> Option<Met> {
        let longer = self.condition.longer_ns;
        let met = |start_ns, len_ns| Some(Met { lane: block.lane, start_ns, len_ns });
        if self.condition.trigger == Trigger::Detour {
            let long = block.detours.iter().find(|detour| detour.len_ns > longer)?;
            return met(long.start_ns, long.len_ns);
        }
        let named =
            |record: &&Record| self.matches.get(record.source.0 as usize).copied().unwrap_or(false);
        let taken = |(detour, records): (&Detour, &[Record])| {
            let ns = records.iter().filter(named).map(|record| record.cost_ns);
            let ns = ns.fold(0, u64::saturating_add);
            (ns > longer).then_some((detour.start_ns, ns))
        };
        if let Some((start_ns, ns)) = block.composed().find_map(taken) {
            return met(start_ns, ns);
        }
        let beside = |record: &&Record| {
            let flags = record.flags;
            !flags.contains(RecordFlags::IN_DETOUR)
                && !flags.contains(RecordFlags::BASELINE)
                && record.net_ns > longer
        };
        let long = block.records.iter().filter(named).find(beside)?;
        met(long.start_ns, long.net_ns)
    }

    /// Writes what is kept, and closes the file.
    pub fn finish(mut self, mut trailer: Trailer) -> Result<u64, TraceError> {
        let end_ns = trailer.lanes.iter().map(|lane| lane.to_ns).max().unwrap_or(self.newest_ns);
        // Counted back from what happened: the end comes a little later.
        let happened_ns = self.met.map_or(end_ns, |met| met.start_ns.min(end_ns));
        let wanted_ns = happened_ns.saturating_sub(self.keep_ns);
        let from_ns = wanted_ns.max(self.dropped_to_ns);
        if self.full_to_ns > wanted_ns {
            trailer.remarks.push(format!(
                "only the last {:.3} s were kept instead of {:.3} s (more than {} events)",
                happened_ns.saturating_sub(from_ns) as f64 / 1e9,
                self.keep_ns as f64 / 1e9,
                self.most_events,
            ));
        }
        for block in &self.blocks {
            let block = since(block, from_ns);
            if events(&block) > 0 {
                self.writer.write_block(&block)?;
            }
        }
        for lane in trailer.lanes.iter_mut().filter(|lane| lane.from_ns < from_ns) {
            let LaneTotals { lane: id, to_ns, .. } = *lane;
            // The counters are of the whole recording.
            *lane = LaneTotals {
                lane: id,
                from_ns: from_ns.min(to_ns),
                to_ns,
                ..LaneTotals::default()
            };
        }
        let (_, bytes) = self.writer.finish_and_count(trailer)?;
        Ok(bytes)
    }
}

fn events(block: &Block) -> usize {
    block.detours.len() + block.records.len()
}

fn last_ns(block: &Block) -> u64 {
    let detours = block.detours.iter().map(|d| d.start_ns.saturating_add(d.len_ns));
    let records = block.records.iter().map(|r| r.start_ns.saturating_add(r.gross_ns));
    detours.chain(records).max().unwrap_or(0)
}

/// The events of a block that begin after a time.
fn since(block: &Block, from_ns: u64) -> Block {
    let mut left = Block::new(block.lane);
    left.detours.extend(block.detours.iter().filter(|detour| detour.start_ns >= from_ns));
    let records = block.records_with_detours().filter(|(record, detour)| match detour {
        Some(detour) => detour.start_ns >= from_ns,
        None => record.start_ns >= from_ns,
    });
    left.records.extend(records.map(|(record, _)| *record));
    left
}

#[cfg(test)]
mod tests {
    use trace::{Class, Lane, Manifest, Mode, Overwrite, Reader};

    use super::*;

    const MS: u64 = 1_000_000;

    fn strike(block: &mut Block, source: u32, start_ns: u64, len_ns: u64) {
        let detour = Detour { start_ns, len_ns, outside_ns: 0, records: 1, ..Detour::default() };
        block.detours.push(detour);
        let (gross_ns, net_ns, cost_ns) = (len_ns, len_ns, len_ns);
        let (source, flags) = (SourceId(source), RecordFlags::IN_DETOUR);
        block.records.push(Record {
            start_ns,
            gross_ns,
            net_ns,
            cost_ns,
            source,
            cpu: 0,
            depth: 0,
            flags,
        });
    }

    /// A detour of 4 us every millisecond, with one of 700 us after 3 s; what is left of it, and what ended
    /// it.
    fn recorded(
        condition: &str,
        name: &str,
        most_events: usize,
    ) -> (Option<Met>, Vec<u64>, bool, Vec<String>) {
        let path = std::env::temp_dir().join(format!("detour-until-{name}-{}", std::process::id()));
        let manifest = Manifest {
            mode: Mode::Attributed,
            lanes: vec![Lane::Cpu { cpu: 0 }],
            ..Manifest::default()
        };
        let writer = Writer::create(&path, Overwrite::Yes, &manifest).unwrap();
        let happened = Arc::new(AtomicBool::new(false));
        let condition = condition.parse().unwrap();
        let mut kept = Kept::new(Box::new(writer), condition, 1_000 * MS, Arc::clone(&happened));
        kept.most_events = most_events;
        for (id, name) in [(0, "tick"), (1, "fakemond")] {
            let (detail, unit, policy, cause) = (None, None, None, None);
            let (class, name, pids) = (Class::Thread, name.to_owned(), Vec::new());
            let (own, program) = (false, false);
            let source = Source { class, name, unit, detail, pids, own, program, policy, cause };
            kept.add_source(SourceId(id), &source).unwrap();
        }
        let mut ended_ns = 5_000 * MS;
        for tenth in 0..50 {
            let mut block = Block::new(LaneId(0));
            for ms in 100 * tenth..100 * (tenth + 1) {
                match ms {
                    3_000 => strike(&mut block, 1, ms * MS, 700_000),
                    _ => strike(&mut block, 0, ms * MS, 4_000),
                }
            }
            kept.add(&block);
            if happened.load(Ordering::Acquire) {
                ended_ns = 100 * (tenth + 1) * MS;
                break;
            }
        }
        let met = kept.met();
        let lane = LaneTotals { lane: 0, from_ns: 0, to_ns: ended_ns, ..LaneTotals::default() };
        kept.finish(Trailer { lanes: vec![lane], ..Trailer::default() }).unwrap();
        let reader = Reader::open(&path).unwrap();
        let blocks = reader.blocks().map(Result::unwrap);
        let starts: Vec<u64> =
            blocks.flat_map(|block| block.detours.into_iter().map(|d| d.start_ns / MS)).collect();
        let totals = reader.totals(LaneId(0)).unwrap();
        let whole = totals.from_ns == starts[0] * MS && totals.to_ns == ended_ns;
        std::fs::remove_file(&path).unwrap();
        (met, starts, whole, reader.trailer().unwrap().remarks.clone())
    }

    #[test]
    fn the_last_second_before_it_happened_is_kept() {
        let met = Met { lane: LaneId(0), start_ns: 3_000 * MS, len_ns: 700_000 };
        for condition in ["detour>500us", "source=fakemond>0.1ms", "process=fakemond>699us"] {
            let (ended, starts, whole, remarks) = recorded(condition, "met", MOST_EVENTS);
            assert_eq!(ended, Some(met), "{condition}");
            assert_eq!(starts, (2_000..3_100).collect::<Vec<_>>(), "{condition}");
            assert!(whole && remarks.is_empty(), "{condition}: {remarks:?}");
        }
    }

    #[test]
    fn what_does_not_happen_ends_nothing() {
        for condition in ["detour>700us", "source=tick>100us", "process=nobody>0us"] {
            let (ended, starts, whole, _) = recorded(condition, "unmet", MOST_EVENTS);
            assert_eq!((ended, starts.len(), whole), (None, 1_000, true), "{condition}");
            assert_eq!(starts[0], 4_000);
        }
    }

    #[test]
    fn fewer_seconds_than_asked_for_are_reported() {
        // A block has 200 events.
        let (_, starts, _, remarks) = recorded("detour>500us", "full", 1_000);
        assert_eq!(starts, (2_600..3_100).collect::<Vec<_>>());
        let [remark] = &remarks[..] else { panic!("{remarks:?}") };
        assert!(
            remark.starts_with("only the last 0.401 s were kept instead of 1.000 s"),
            "{remark}"
        );
    }

    #[test]
    fn mistyped_conditions_are_refused() {
        for wrong in
            ["", "detour", "detour>", "detour>fast", "source>1us", "source=>1us", "x=y>1us"]
        {
            let error = wrong.parse::<Condition>().expect_err(wrong);
            assert!(error.contains("detour>500us"), "{error}");
        }
        let kworker: Condition = "source=kworker/0:1>1>10us".parse().unwrap();
        assert_eq!(kworker.trigger, Trigger::Source("kworker/0:1>1".into()));
    }
}
