//! The summary of a recording.

use std::io::{Read, Seek};

use analysis::{Contents, Costs, Summariser, Summary};
use trace::Reader;

use crate::recording::open;

/// An unreadable block ends the summary, but what precedes it is summarised.
pub fn summarise<R: Read + Seek>(reader: &Reader<R>) -> (Summary, Costs) {
    let mut summariser = Summariser::new(reader.manifest().mode);
    let mut broken = None;
    for block in reader.blocks() {
        match block {
            Ok(block) => summariser.add(&block, reader.sources()),
            Err(error) => {
                broken = Some(error.to_string());
                break;
            }
        }
    }
    let truncated = broken.or(open::not_whole(reader));
    summariser.finish_with_costs(&Contents::of(reader, truncated.as_deref()))
}
