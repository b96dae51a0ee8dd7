//! Views of results: text for a terminal, JSON for scripts, metrics for monitoring, pages with figures
//! ([`html`]), diagrams of simulated runs.
//!
//! In: an [`analysis::Summary`], a result of [`study`] or the profile of a program. Out: strings; nothing here computes results or
//! writes anywhere.
//! Names come from the recorded node, where any process may choose any name: control characters never
//! reach the terminal, and markup never reaches the page.

#![forbid(unsafe_code)]

mod actions;
mod advice;
mod alltoall;
mod app;
mod blame;
mod cycle;
mod diff;
mod dist;
mod exchange;
mod fleet;
mod grid;
mod headline;
pub mod html;
mod inject;
mod isolation;
mod latency;
mod longest;
mod losses;
mod network;
mod nodes;
mod notes;
mod openmetrics;
mod processes;
mod profile;
mod programs;
mod schedule;
mod schedule_stats;
mod skeleton;
mod slowdown;
mod sources;
mod tables;
mod tail;
mod timeline;
mod traced;
mod waiting;
mod whatif;

use analysis::{By, Summary};
use serde::Serialize;
use study::{decide::decision::Report, json::Document, run::shards::Whole};

pub use actions::decision;
pub use advice::advice;
pub use alltoall::alltoall;
pub use analysis::words::{self, json_safe, message_safe};
pub use app::app;
pub use blame::{blame, blame_sweep};
pub use cycle::cycle;
pub use diff::{diff, headline as diff_headline};
pub use dist::{dist, verdict as dist_verdict};
pub use exchange::exchange;
pub use fleet::fleet;
pub use html::{
    diff::{Side, diff_html},
    dist::dist_html,
    latency::latency_html,
    profile::profile_html,
    simulated::{
        Pictures, alltoall_pictures, app_pictures, cycle_pictures, exchange_pictures,
        goal_pictures, skeleton_pictures, sweep_pictures,
    },
    traced::traced_html,
};
pub use inject::injected;
pub use isolation::isolation;
pub use latency::latency;
pub use longest::{happened, longest};
pub use losses::losses;
pub use network::{network, network_toml};
pub use openmetrics::{Bounds, openmetrics};
pub use profile::profile;
pub use programs::{deviation, programs};
pub use schedule::schedule;
pub use schedule_stats::schedule_stats;
pub use skeleton::{skeleton, skeleton_findings};
pub use slowdown::{SweepRows, slowdown, slowdown_findings};
pub use tail::tails;
pub use timeline::{diagram, trace_events};
pub use traced::traced;
pub use whatif::whatif;

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
    /// Rows of the first table.
    pub by: By,
}

impl Default for Options {
    fn default() -> Self {
        Options { width: 100, colour: false, all: false, top: 15, by: By::Process }
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
    let by = |by: By, table: fn(&Summary, Options) -> Option<String>| {
        (options.by == by).then(|| table(summary, options)).flatten()
    };
    let unless = |by: By, table: fn(&Summary, Options) -> Option<String>| {
        (options.by != by).then(|| table(summary, options)).flatten()
    };
    let sections = [
        headline::headline(summary, options),
        by(By::Process, processes::processes),
        by(By::Unit, tables::units).or_else(|| no_rows(summary, options.by)),
        by(By::Source, sources::sources),
        by(By::Source, sources::details),
        by(By::Class, processes::classes),
        by(By::Cpu, tables::cpus),
        nodes::nodes(summary, options),
        tables::waits(summary, options),
        tables::threads(summary, options),
        unless(By::Cpu, tables::cpus),
        unless(By::Unit, tables::units),
        tables::outside(summary, options),
        notes::notes(summary, options),
    ];
    let mut text = sections.into_iter().flatten().collect::<Vec<String>>().join("\n\n");
    text.push('\n');
    text
}

/// Instead of a table without rows.
fn no_rows(summary: &Summary, by: By) -> Option<String> {
    let text = match by {
        By::Unit if summary.units.is_empty() => "No source of this recording belongs to a unit.",
        By::Cpu if summary.cpus.is_empty() => "This recording is of threads, not of CPUs.",
        _ => return None,
    };
    Some(text.to_owned())
}

/// What to do first, and the summary.
#[must_use]
pub fn decided(report: &Report, options: Options) -> String {
    actions::decision(&report.decision, options) + &text(&report.summary, options)
}

/// A result as JSON text, indented, with the version of its keys. Control characters are written as `\u`
/// escapes, which any JSON parser turns back into the same strings.
///
/// # Errors
/// Never in practice: every result has a JSON form.
pub fn json_text<T: Serialize + ?Sized>(result: &T) -> serde_json::Result<String> {
    Ok(json_safe(&serde_json::to_string_pretty(&Document::of(result))?))
}

/// The same on one line.
///
/// # Errors
/// As [`json_text`].
pub fn json_line<T: Serialize + ?Sized>(result: &T) -> serde_json::Result<String> {
    Ok(json_safe(&serde_json::to_string(&Document::of(result))?))
}

/// Any simulation as text.
#[must_use]
pub fn simulation(result: &Whole, options: Options) -> String {
    match result {
        Whole::Collective(sweep) => slowdown(sweep, options),
        Whole::Exchange(exchanges) => exchange(exchanges, options),
        Whole::Alltoall(alltoalls) => alltoall(alltoalls, options),
        Whole::Cycle(cycles) => cycle(cycles, options),
        Whole::Goal(finishes) => schedule(finishes, options),
        Whole::App(sweep) => app(sweep, options),
    }
}
