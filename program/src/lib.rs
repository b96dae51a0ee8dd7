//! Traces of MPI programs.
//!
//! In: a directory with one `rank-N.mpi` for each rank, written by the collector or by [`import`]; out: a
//! [`Program`] ([`open`]), the calls of its ranks on one clock ([`stream`]), a [`Profile`] ([`profile`]),
//! and every wait with the rank that it was for ([`dependencies`]). [`merge`] joins the directories of nodes that share no file system.
//!
//! Whatever the files contain, nothing panics, and memory is bounded by limits of this crate and not by
//! sizes that the files claim.

#![forbid(unsafe_code)]

mod chunks;
mod clock;
mod engine;
mod hash;
mod import;
mod kinds;
mod matching;
mod merge;
mod open;
mod profile;
mod rank;
mod reader;
mod stored;
mod timeline;
mod waited;
pub mod write;

pub use chunks::{Arena, CallMoment, Damage, Moment, Repeat, Span, What};
pub use clock::{Clocks, HostClock, HostCorrection};
pub use engine::ReadError;
pub use hash::{FastMap, fast_map};
pub use import::{Accept, Import, ImportError, import};
pub use kinds::{Failure, Kind, Meaning, Shape, Total, is_of_buffer, meanings, operation_name};
pub use matching::{LATE_RECEIVER_BYTES, Tie};
pub use merge::{MergeError, MergedRun, leftovers, merge};
pub use open::{Host, OpenError, Program, Rank, open, open_partial};
pub use profile::{
    CallRow, CollectiveWait, Collector, CommunicatorRow, LostSums, Matrix, Pair, Pattern, Profile,
    RankRow, RegionRow, SizeRow, WaitSums, clocks, dependencies, profile, profile_over_time,
};
pub use reader::stream;
pub use timeline::{TIMELINE_RANKS, Timeline, TimelineLane};
pub use waited::{Dependencies, WaitClass, Waited, call_name};
