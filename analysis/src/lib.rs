//! Analysis of a recording: which sources took the time, how often, how long, how regularly, and how
//! much remains unexplained.
//!
//! In: the contents of a trace (blocks of events as a stream, manifest, source and lane tables,
//! trailer). Out: a [`Summary`], plain values that serialise to the JSON of `detour report --json`.
//! Nothing here opens files, reads clocks or prints.
//!
//! [`summarise`] processes a complete recording; [`Summariser`] does so block by block, for callers that
//! show a recording while it grows. Memory is bounded by the number of sources and lanes, not by the
//! number of events: distributions are HDR histograms (3 significant digits) and the start times
//! kept for the period test are capped.
//!
//! A damaged trace never causes a panic: records with an unknown source and detours whose parts do not
//! sum up are counted and shown in the summary.

#![forbid(unsafe_code)]

mod by;
mod comparable;
mod compare;
mod costs;
mod detail;
mod finish;
mod interruptions;
mod lanes;
mod nodes;
mod pass;
pub mod period;
mod processes;
mod program;
mod rates;
mod rows;
mod starts;
mod summary;
pub mod views;
pub mod words;

pub use by::{By, GroupKey};
pub use comparable::{Incomparable, Part, Scope, scope};
pub use compare::{Change, Comparison, Interval, Recording, Side, Verdict, compare};
pub use costs::{Bin, Costs};
pub use detail::details_of;
pub use interruptions::Interruptions;
pub use nodes::{FAR, FEWEST as FEWEST_NODES};
pub use pass::Summariser;
pub use program::{ThreadFacts, ThreadTime, Threads, lend_noise};
pub use rates::{BlockSum, RateCounter, Rates, RowRates, blocks_of_time};
pub use summary::*;

use trace::{Block, Lane, LaneTotals, Manifest, Reader, Source, Trailer};

/// Everything in a recording except its events.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    pub manifest: &'a Manifest,
    pub sources: &'a [Source],
    /// The lane table; [`trace::LaneId`] is an index into it.
    pub lanes: &'a [Lane],
    /// None if the recording is truncated.
    pub trailer: Option<&'a Trailer>,
    /// How long lanes were watched, if there is no trailer.
    pub cut_off: &'a [LaneTotals],
    /// Why the file ends early.
    pub truncated: Option<&'a str>,
}

impl<'a> Contents<'a> {
    /// Contents of an open trace. The caller, which reads the blocks, knows whether it is truncated.
    pub fn of<R>(reader: &'a Reader<R>, truncated: Option<&'a str>) -> Contents<'a> {
        Contents {
            manifest: reader.manifest(),
            sources: reader.sources(),
            lanes: reader.lanes(),
            trailer: reader.trailer(),
            cut_off: reader.cut_off(),
            truncated,
        }
    }
}

impl<'a> Contents<'a> {
    /// How long lanes were watched, as far as known.
    pub(crate) fn lane_totals(&self) -> &'a [LaneTotals] {
        self.trailer.map_or(self.cut_off, |trailer| &trailer.lanes)
    }
}

/// Summarises a complete recording in one pass over its blocks.
///
/// # Errors
/// Returns the first error of the stream. To keep what came before it, use [`Summariser`] and pass the
/// error as [`Contents::truncated`].
pub fn summarise<E>(
    contents: &Contents<'_>,
    blocks: impl IntoIterator<Item = Result<Block, E>>,
) -> Result<Summary, E> {
    let mut summariser = Summariser::new(contents.manifest.mode);
    for block in blocks {
        summariser.add(&block?, contents.sources);
    }
    Ok(summariser.finish(contents))
}
