//! A simulated run, rank by rank: as a diagram ([`diagram`]) for a few ranks, as a trace for a viewer
//! ([`trace_events`]) for many.

mod axis;
mod chrome;
mod svg;

use study::explain::picture::Bar;

pub use chrome::trace_events;
pub use svg::diagram;

/// Number of CPUs or NICs per rank.
fn units(bars: &[Bar]) -> u8 {
    bars.iter().map(|bar| bar.unit).max().map_or(0, |most| most.saturating_add(1))
}
