//! The events of a trace, block by block.

use std::io::{Read, Seek};

use super::frames::{self, Fault, Scratch};
use super::index::{InFileOrder, LaneEntries};
use super::{Damage, Reader, lock};
use crate::error::TraceError;
use crate::format::columns;
use crate::format::v1::IndexEntry;
use crate::model::{Block, LaneId, SourceId};

/// Iterates over blocks. Each call of [`Reader::blocks`] starts from the beginning.
pub struct Blocks<'a, R> {
    reader: &'a Reader<R>,
    entries: Entries<'a>,
    scratch: Option<Scratch>,
}

enum Entries<'a> {
    All(InFileOrder<'a>),
    Lane(LaneEntries<'a>),
    None,
}

impl<'a, R> Blocks<'a, R> {
    pub(super) fn new(reader: &'a Reader<R>, lane: Option<LaneId>) -> Self {
        let entries = match lane {
            Some(lane) => reader.index.of_lane(lane.0).map_or(Entries::None, Entries::Lane),
            None => Entries::All(reader.index.in_file_order()),
        };
        Blocks { reader, entries, scratch: None }
    }
}

impl Iterator for Entries<'_> {
    type Item = IndexEntry;

    fn next(&mut self) -> Option<IndexEntry> {
        match self {
            Entries::All(entries) => entries.next(),
            Entries::Lane(entries) => entries.next(),
            Entries::None => None,
        }
    }
}

impl<R: Read + Seek> Iterator for Blocks<'_, R> {
    type Item = Result<Block, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        for entry in self.entries.by_ref() {
            match self.reader.load(&entry, &mut self.scratch) {
                Ok(block) => return Some(Ok(block)),
                Err(Fault::Damaged(why)) => self.reader.note(Damage::of(&entry, why)),
                Err(Fault::Io(source)) => {
                    let file = self.reader.file.clone();
                    return Some(Err(TraceError::Io { what: "read", file, source }));
                }
            }
        }
        None
    }
}

impl<R: Read + Seek> Reader<R> {
    fn load(&self, entry: &IndexEntry, scratch: &mut Option<Scratch>) -> Result<Block, Fault> {
        let scratch = match scratch {
            Some(scratch) => scratch,
            None => scratch.insert(Scratch::new().map_err(Fault::Io)?),
        };
        // Only reading needs the file; decompression runs in parallel with other threads' reads.
        lock(&self.input).fetch(entry, scratch)?;
        let (header, raw) = frames::unpack(entry, scratch)?;
        let mut block = columns::decode(raw, &header.summary)
            .map_err(|why| Fault::Damaged(format!("inconsistent block: {why}")))?;
        if block.lane != entry.lane() {
            return Err(Fault::Damaged("the index refers to another lane".to_owned()));
        }
        frames::add_waits(&mut block.detours, scratch)?;
        self.settle_sources(&mut block)?;
        Ok(block)
    }

    /// Ensures that every record's source is in the table.
    fn settle_sources(&self, block: &mut Block) -> Result<(), Fault> {
        let known = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        let max = block.records.iter().map(|record| record.source.0).max();
        let Some(stranger) = max.filter(|&id| id >= known) else { return Ok(()) };
        let Some(unknown) = self.unknown_source else {
            let why = format!("it refers to source {stranger}, but there are {known} sources");
            return Err(Fault::Damaged(why));
        };
        for record in &mut block.records {
            if record.source.0 >= known {
                record.source = SourceId(unknown);
            }
        }
        Ok(())
    }
}
