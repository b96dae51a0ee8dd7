//! Pictures of a simulated run, rank by rank: as a diagram ([`diagram`]) for a few ranks, as a trace
//! for a viewer ([`trace_events`]) for many.

mod axis;
mod chrome;
mod svg;

pub use chrome::trace_events;
pub use svg::diagram;

/// A run, ready to be drawn. Times are picoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// A line above it.
    pub title: String,
    pub ranks: u32,
    pub finish: i64,
    /// What CPUs do.
    pub work: Vec<Bar>,
    /// While NICs are taken.
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
    /// What detours take of it.
    pub noise: Vec<Detour>,
    pub on_path: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Detour {
    pub source: String,
    pub from: i64,
    pub to: i64,
}

/// A message from CPU to CPU: numbers in [`Picture::work`], and when it left and arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flight {
    pub sender: usize,
    pub receiver: usize,
    /// Of either end.
    pub nics: (u8, u8),
    pub left: i64,
    pub arrived: i64,
    /// Asks for a message or grants it, and carries none.
    pub control: bool,
    pub on_path: bool,
}

/// A stretch of the critical path.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    pub rank: u32,
    pub from: i64,
    pub to: i64,
    /// What of: o, L, noise and so on.
    pub part: &'static str,
}

/// Rows of a rank: its CPUs, or its NICs.
fn units(bars: &[Bar]) -> u8 {
    bars.iter().map(|bar| bar.unit).max().map_or(0, |most| most.saturating_add(1))
}
