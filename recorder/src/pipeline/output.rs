//! Where a recording goes: to a file, or to a live feed.

use std::{
    fs::File,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use trace::{Block, Lane, LaneId, Manifest, Overwrite, Source, SourceId, TraceError, Writer};

use crate::{
    feed::{Feed, HAND_OVER_EVERY},
    options::{Options, Until},
    pipeline::until::Kept,
};

/// The most that a killed recorder loses.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

pub enum Output {
    File(Box<Writer<File>>),
    /// Only the last seconds reach the file.
    Kept(Box<Kept>),
    Feed(Feed),
}

/// What to do with an existing file.
pub fn overwrite(options: &Options) -> Overwrite {
    if options.force { Overwrite::Yes } else { Overwrite::Recording }
}

impl Output {
    pub fn open(
        options: &Options,
        feed: Option<&Feed>,
        manifest: &Manifest,
        happened: &Arc<AtomicBool>,
    ) -> Result<Output, TraceError> {
        match feed {
            Some(feed) => {
                feed.start(manifest);
                Ok(Output::Feed(feed.clone()))
            }
            None => {
                let writer = Writer::create(&options.output, overwrite(options), manifest)?;
                let writer = Box::new(writer);
                Ok(match &options.until {
                    None => Output::File(writer),
                    Some(Until { condition, keep }) => {
                        let keep_ns = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
                        let happened = Arc::clone(happened);
                        let kept = Kept::new(writer, condition.clone(), keep_ns, happened);
                        Output::Kept(Box::new(kept))
                    }
                })
            }
        }
    }

    pub fn flush_every(&self) -> Duration {
        match self {
            Output::File(_) => FLUSH_EVERY,
            // What ends the recording is seen soon after it happens.
            Output::Kept(_) | Output::Feed(_) => HAND_OVER_EVERY,
        }
    }

    pub fn add_source(&mut self, id: SourceId, source: &Source) -> Result<(), TraceError> {
        match self {
            Output::File(writer) => writer.add_source(id, source),
            Output::Kept(kept) => kept.add_source(id, source),
            Output::Feed(feed) => {
                feed.source(id, source);
                Ok(())
            }
        }
    }

    pub fn add_lane(&mut self, id: LaneId, lane: &Lane) -> Result<(), TraceError> {
        match self {
            Output::File(writer) => writer.add_lane(id, lane),
            Output::Kept(kept) => kept.writer().add_lane(id, lane),
            Output::Feed(feed) => {
                feed.lane(id, lane);
                Ok(())
            }
        }
    }

    /// Writes a block, or hands it over; `unwritten` counts losses.
    pub fn write_block(&mut self, block: &Block, unwritten: &mut u64) -> Result<(), TraceError> {
        let events = (block.detours.len() + block.records.len()) as u64;
        match self {
            Output::File(writer) => writer.write_block(block).inspect_err(|_| *unwritten += events),
            Output::Kept(kept) => {
                kept.add(block);
                Ok(())
            }
            Output::Feed(feed) => {
                *unwritten += feed.block(block.clone());
                Ok(())
            }
        }
    }

    /// Why the file ends before the recording does.
    pub fn cut_off(&self) -> Option<&str> {
        match self {
            Output::File(writer) => writer.cut_off(),
            Output::Kept(_) | Output::Feed(_) => None,
        }
    }

    /// Notes that a lane is watched from here on.
    pub fn watched_from(&mut self, lane: LaneId, from_ns: u64) {
        match self {
            // Only needed if the recording is cut off: an error here does not make it incomplete.
            Output::File(writer) => drop(writer.watched_from(lane, from_ns)),
            Output::Kept(_) | Output::Feed(_) => {}
        }
    }

    /// `settled_ns` is how far all events are settled, and `unwritten` the losses so far.
    pub fn flush(&mut self, settled_ns: u64, unwritten: u64) -> Result<(), TraceError> {
        match self {
            Output::File(writer) => {
                drop(writer.settled(settled_ns));
                writer.flush()
            }
            Output::Kept(_) => Ok(()),
            Output::Feed(feed) => {
                feed.settled(settled_ns);
                feed.unwritten(unwritten);
                Ok(())
            }
        }
    }
}
