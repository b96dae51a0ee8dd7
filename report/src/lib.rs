//! Output of results: the summary of a recording as text for a terminal, as JSON for scripts, as
//! metrics for monitoring and, with figures and projections, as a page ([`html`]).
//!
//! In: an [`analysis::Summary`]. Out: strings; nothing here computes results or writes anywhere.
//! Names come from the recorded node, where any process may choose any name: control characters never
//! reach the terminal, and markup never reaches the page.

#![forbid(unsafe_code)]

pub mod advice;
mod alltoall;
mod blame;
mod cycle;
mod diff;
mod exchange;
mod grid;
mod headline;
pub mod html;
mod nodes;
mod notes;
mod openmetrics;
mod place;
mod schedule;
mod schedule_stats;
mod slowdown;
mod sources;
mod tables;
mod timeline;
mod whatif;
pub mod words;

use analysis::Summary;

pub use alltoall::{AlltoallRow, alltoall};
pub use blame::{BlameFigures, BlamePart, BlameRow, BlameSource, blame, blame_sweep};
pub use cycle::{CycleRow, cycle};
pub use diff::{Projected, Projection, diff, headline as diff_headline};
pub use exchange::{ExchangeFigures, exchange};
pub use headline::{label as source_label, outside_label};
pub use html::diff::diff_html;
pub use openmetrics::{Bounds, openmetrics};
pub use schedule::{ScheduleFigures, ScheduleUnit, schedule};
pub use schedule_stats::{ScheduleStats, schedule_stats};
pub use slowdown::{Knee, SlowdownRow, slowdown};
pub use timeline::{Bar, Detour, Doing, Flight, Picture, Stretch, diagram, trace_events};
pub use words::{json_safe, message_safe};

pub use whatif::{GainFigures, Verdict, WhatIf, WhatIfGroup, WhatIfRow, to_gain, whatif};

use grid::Style;

/// Layout of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Columns of the terminal.
    pub width: usize,
    pub colour: bool,
    /// Show every source, unit, thread and CPU, and tables at full width.
    pub all: bool,
    /// Rows shown per table unless `all` is set.
    pub top: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { width: 100, colour: false, all: false, top: 15 }
    }
}

impl Options {
    fn style(&self) -> Style {
        Style { colour: self.colour, width: self.width.max(40), whole: self.all }
    }

    fn shown(&self, rows: usize) -> usize {
        if self.all { rows } else { rows.min(self.top) }
    }
}

/// The summary as text: a sentence, then tables in order of importance.
#[must_use]
pub fn text(summary: &Summary, options: Options) -> String {
    let sections = [
        headline::headline(summary, options),
        sources::sources(summary, options),
        sources::details(summary, options),
        nodes::nodes(summary, options),
        tables::waits(summary, options),
        tables::threads(summary, options),
        tables::cpus(summary, options),
        tables::units(summary, options),
        tables::outside(summary, options),
        notes::notes(summary, options),
    ];
    let mut text = sections.into_iter().flatten().collect::<Vec<String>>().join("\n\n");
    text.push('\n');
    text
}

/// The summary as JSON, with the keys that scripts rely on.
///
/// # Errors
/// Never in practice: every field of a summary has a JSON form.
pub fn json(summary: &Summary) -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(summary)
}

/// [`json`] as text, indented. Control characters are written as `\u` escapes, which any JSON parser
/// turns back into the same strings.
///
/// # Errors
/// As [`json`].
pub fn json_text(summary: &Summary) -> serde_json::Result<String> {
    Ok(words::json_safe(&serde_json::to_string_pretty(summary)?))
}

/// Any other JSON as text, escaped in the same way.
///
/// # Errors
/// As [`json`].
pub fn json_value_text(value: &serde_json::Value) -> serde_json::Result<String> {
    Ok(words::json_safe(&serde_json::to_string_pretty(value)?))
}

/// Readable name of a source: threads by name, everything else with its class.
#[must_use]
pub fn label(class: trace::Class, name: &str) -> String {
    headline::label_of(class, name)
}
