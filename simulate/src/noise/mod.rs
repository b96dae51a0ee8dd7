//! Noise in the simulator: the detours ([`Timeline`]), which of them each rank meets ([`Noise`]), and
//! their effect on its work ([`Model`]); and the variation of the network ([`Latencies`]).
//!
//! Times are picoseconds, signed, from the start of the run.

mod composed;
mod detours;
mod draw;
mod hits;
mod latencies;
mod local;
mod lookup;
mod many;
mod nodes;
mod origin;
mod periodic;
mod side_by_side;
mod spread;
mod timeline;

pub use composed::{Composed, Taken};
pub use detours::{Detours, NoiseError, Walk};
pub use hits::Hit;
pub(crate) use latencies::MessageLatencies;
pub use latencies::{Latencies, LatencyError, Order, Rule, RunLatencies};
pub use local::{Clear, Cursor, Local, WorkError};
pub(crate) use lookup::Lookup;
pub(crate) use many::Many;
pub use nodes::Nodes;
pub use origin::{Shares, UNKNOWN};
pub(crate) use periodic::Periodic;
pub use random::{draw, key};
pub use spread::{Noise, Offsets, RunNoise, SpreadError};
pub use timeline::{Timeline, TimelineError};

/// The effect of a detour on the work it hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Model {
    /// Exact: work continues after each detour until it is done.
    #[default]
    Preempt,
    /// The position in the trace advances only with local work (and the detours it meets), not while a
    /// rank waits.
    CpuTime,
    /// LogGOPSim's rule: the detours that begin in the work's nominal window are added to it once.
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
