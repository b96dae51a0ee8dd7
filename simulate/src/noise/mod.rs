//! Noise as the simulator sees it: which detours there are ([`Timeline`]), which of them each rank
//! meets ([`Noise`]), and what they do to its work ([`Model`]).
//!
//! Times are picoseconds, signed, from the start of the run.

mod composed;
mod detours;
mod draw;
mod hits;
mod local;
mod lookup;
mod many;
mod origin;
mod side_by_side;
mod spread;
mod timeline;

pub use composed::{Composed, Taken};
pub use detours::{Detours, NoiseError, Walk};
pub use draw::{draw, key};
pub use hits::Hit;
pub use local::{Cursor, Local, WorkError};
pub(crate) use lookup::Lookup;
pub(crate) use many::Many;
pub use origin::{Shares, UNKNOWN};
pub(crate) use spread::Periodic;
pub use spread::{Noise, Offsets, RunNoise, SpreadError};
pub use timeline::{Timeline, TimelineError};

/// What a detour does to work that it meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Model {
    /// Exact: work goes on after each detour until it is done.
    #[default]
    Preempt,
    /// The position in the trace advances with local work (and the detours it meets) only, not while
    /// a rank waits.
    CpuTime,
    /// The peer's rule: the detours that begin in the work's nominal window are added to it once.
    LogGopSim,
}

impl Model {
    pub const ALL: [Model; 3] = [Model::Preempt, Model::CpuTime, Model::LogGopSim];

    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Preempt => "preempt",
            Model::CpuTime => "cpu-time",
            Model::LogGopSim => "loggopsim",
        }
    }
}
