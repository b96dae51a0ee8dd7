//! Reads a trace: complete, cut off, or partly damaged.
//!
//! Opening reads only the index and the small tables; blocks of events are read on demand, any number of
//! times, from any thread. A file without an index (the recorder was killed, the disk was full) is
//! followed frame by frame instead. Damage costs the frame it is in: it is counted and reported, not
//! fatal.

mod blocks;
mod frames;
mod index;
mod open;
mod progress;
mod tables;
mod totals;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use blocks::Blocks;

use crate::error::TraceError;
use crate::format::v1::IndexEntry;
use crate::manifest::{LaneTotals, Manifest, Trailer};
use crate::model::{Lane, LaneId, Source};
use frames::Input;
use index::Index;
use totals::Totals;

/// An open trace.
pub struct Reader<R = File> {
    input: Mutex<Input<R>>,
    /// For messages.
    file: String,
    manifest: Manifest,
    trailer: Option<Trailer>,
    sources: Vec<Source>,
    /// The row that stands for sources whose rows were lost with a damaged frame.
    unknown_source: Option<u32>,
    lanes: Vec<Lane>,
    index: Index,
    totals: Totals,
    /// What is known about the lanes without a trailer.
    cut_off: Vec<LaneTotals>,
    truncated: Option<String>,
    damage: Mutex<BTreeMap<u64, Damage>>,
}

/// A part of the file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// What was there: `events`, `sources`, `lanes`, `trailer`, `index`, `header`.
    pub what: &'static str,
    /// The lane, for `events`.
    pub lane: Option<LaneId>,
    /// Number of detours and records lost, for `events`.
    pub detours: u32,
    pub records: u32,
    pub why: String,
}

impl Damage {
    fn plain(offset: u64, what: &'static str, why: impl Into<String>) -> Damage {
        Damage { offset, what, lane: None, detours: 0, records: 0, why: why.into() }
    }

    fn of(entry: &IndexEntry, why: impl Into<String>) -> Damage {
        let mut damage = Damage::plain(entry.offset, entry.kind.name(), why);
        if damage.what == "events" {
            damage.lane = Some(entry.lane());
            damage.detours = entry.summary.detours;
            damage.records = entry.summary.records;
        }
        damage
    }
}

/// What a block contains, available without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    pub lane: LaneId,
    /// Earliest start and latest end of its events.
    pub first_ns: u64,
    pub last_ns: u64,
    pub detours: u32,
    pub records: u32,
    /// Size in the file.
    pub bytes: u64,
}

impl BlockInfo {
    fn of(entry: &IndexEntry) -> BlockInfo {
        BlockInfo {
            lane: entry.lane(),
            first_ns: entry.summary.first_ns,
            last_ns: entry.summary.last_ns,
            detours: entry.summary.detours,
            records: entry.summary.records,
            bytes: entry.end() - entry.offset,
        }
    }
}

impl Reader<File> {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        // Checked first, because opening a pipe blocks until there is a writer.
        if let Ok(metadata) = std::fs::metadata(path)
            && !metadata.is_file()
        {
            let looks_like = match metadata.is_dir() {
                true => "a directory; specify a trace in it",
                false => "a device, pipe or socket; copy its content to a file first",
            };
            return Err(TraceError::NotATrace { file: name, looks_like });
        }
        let file = File::open(path).map_err(|source| TraceError::Io {
            what: "open",
            file: name.clone(),
            source,
        })?;
        Reader::named(file, name)
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Reads a trace from anything that implements `Read` and `Seek`.
    pub fn new(input: R) -> Result<Self, TraceError> {
        Reader::named(input, "the input".to_owned())
    }

    /// The same, with the name for messages.
    pub fn named(input: R, name: String) -> Result<Self, TraceError> {
        open::open(input, name)
    }

    /// The blocks of all lanes in file order. Damaged ones are skipped, see [`Reader::damaged_blocks`].
    pub fn blocks(&self) -> Blocks<'_, R> {
        Blocks::new(self, None)
    }

    /// The blocks of one lane, which are in time order.
    pub fn blocks_of(&self, lane: LaneId) -> Blocks<'_, R> {
        Blocks::new(self, Some(lane))
    }
}

impl<R> Reader<R> {
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// None if the recording was cut off.
    pub fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// The trailer's totals of a lane; for a recording that was cut off, how long it is known to have
    /// been watched.
    pub fn totals(&self, lane: LaneId) -> Option<&LaneTotals> {
        match &self.trailer {
            Some(trailer) => trailer.lanes.get(self.totals.place(lane)?),
            None => self.cut_off.iter().find(|totals| totals.lane == lane.0),
        }
    }

    /// The lanes of a recording that was cut off, as far as it noted how long they were watched.
    pub fn cut_off(&self) -> &[LaneTotals] {
        &self.cut_off
    }

    /// The source table; every `SourceId` of every block is an index into it.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The lane table; every `LaneId` of every block is an index into it.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The name used in messages: the path it was opened with.
    pub fn name(&self) -> &str {
        &self.file
    }

    /// Why the events end early, if they do: the file is cut off, or a write failed while recording.
    pub fn truncated(&self) -> Option<&str> {
        self.truncated.as_deref()
    }

    /// What could not be read so far. Complete once every block has been read.
    pub fn damaged_blocks(&self) -> Vec<Damage> {
        lock(&self.damage).values().cloned().collect()
    }

    /// The contents of the file, block by block, in file order.
    pub fn block_infos(&self) -> impl ExactSizeIterator<Item = BlockInfo> + '_ {
        self.index.in_file_order().map(|entry| BlockInfo::of(&entry))
    }

    /// The same for one lane.
    pub fn block_infos_of(&self, lane: LaneId) -> impl Iterator<Item = BlockInfo> + '_ {
        let entries = self.index.of_lane(lane.0).into_iter().flatten();
        entries.map(|entry| BlockInfo::of(&entry))
    }

    fn note(&self, damage: Damage) {
        lock(&self.damage).entry(damage.offset).or_insert(damage);
    }
}

/// The data behind these locks stays valid if a holder panics, so a poisoned lock is not an error.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
