//! A simulated run, rank by rank: as a diagram ([`diagram`]) for a few ranks, as a trace for a viewer
//! ([`trace_events`]) for many.

mod axis;
mod chrome;
mod svg;

pub use chrome::trace_events;
pub use svg::diagram;

/// A run to be drawn. Times are in picoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// Title line.
    pub title: String,
    pub ranks: u32,
    pub finish: i64,
    /// Activity of the CPUs.
    pub work: Vec<Bar>,
    /// Occupancy of the NICs.
    pub nics: Vec<Bar>,
    pub flights: Vec<Flight>,
    /// The critical path, from the end to the beginning.
    pub path: Vec<Stretch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doing {
    Compute,
    Send,
    Receive,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub rank: u32,
    /// Which of the rank's CPUs or NICs.
    pub unit: u8,
    pub doing: Doing,
    pub from: i64,
    pub to: i64,
    pub name: String,
    /// Detours within it.
    pub noise: Vec<Detour>,
    pub on_path: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Detour {
    pub source: String,
    pub from: i64,
    pub to: i64,
}

/// A message from CPU to CPU: indices into [`Picture::work`], and when it left and arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flight {
    pub sender: usize,
    pub receiver: usize,
    /// NIC at each end.
    pub nics: (u8, u8),
    pub left: i64,
    pub arrived: i64,
    /// A request or grant of the rendezvous protocol, without payload.
    pub control: bool,
    pub on_path: bool,
}

/// A stretch of the critical path.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    pub rank: u32,
    pub from: i64,
    pub to: i64,
    /// Its part: o, L, noise and so on.
    pub part: &'static str,
}

/// Number of CPUs or NICs per rank.
fn units(bars: &[Bar]) -> u8 {
    bars.iter().map(|bar| bar.unit).max().map_or(0, |most| most.saturating_add(1))
}
