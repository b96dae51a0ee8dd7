//! The report as one self-contained page: no network, and readable without scripts.
//!
//! In: a summary, the figures' data and, optionally, a projection. Out: HTML with the figures as inline
//! SVG. One small script adds tooltips and zoom; the style sheet alone toggles the series. A content
//! security policy allows only that script to run, whatever a recording contains; and text from a
//! recording is truncated to a length that fits a page.

mod actions;
mod bars;
mod boxplot;
mod commands;
pub(crate) mod diff;
pub(crate) mod dist;
mod heat;
mod lanes;
pub mod latency;
mod legend;
mod matrix;
mod nodes;
mod plot;
mod processes;
pub(crate) mod profile;
mod projection;
mod rows;
mod scale;
mod scatter;
mod shapes;
pub(crate) mod simulated;
mod spectrum;
mod tables;
pub(crate) mod traced;

use analysis::{Costs, Summary, views::Views};
use askama::Template;
use study::decide::{advice::Remedies, decision::Decision, projection::Projection};
use trace::{Lane, Manifest};

use crate::{headline, notes};
pub use commands::{Command, commands};
use legend::Key;

const STYLE: &str = include_str!("../../templates/report.css");
const SCRIPT: &str = include_str!("../../templates/report.js");
/// Hash of [`SCRIPT`]; a test reports the new value if it changes.
const SCRIPT_SHA256: &str = "qZF2ecS1I6qUJk4sEGFu+R0J8dhkCKSuMUumofv10IY=";

/// Everything the page shows.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub summary: &'a Summary,
    pub decision: &'a Decision,
    pub costs: &'a Costs,
    pub views: &'a Views,
    pub manifest: &'a Manifest,
    pub lanes: &'a [Lane],
    pub remedies: &'a Remedies,
    /// Or why there is none.
    pub projection: Result<&'a Projection, &'a str>,
    pub commands: &'a [Command],
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    style: &'static str,
    script: &'static str,
    script_sha256: &'static str,
    title: String,
    headline: String,
    /// That the node was not idle.
    not_idle: Option<String>,
    /// What the job loses, and what to do about it; or why it was not simulated.
    decided: Result<actions::Actions, String>,
    /// Finding for a program that competes with itself.
    finding: Option<String>,
    warning: Option<String>,
    facts: Vec<(String, String)>,
    keys: &'a [Key],
    /// Those shown initially, and the rest.
    processes: (Vec<processes::Process>, Vec<processes::Process>),
    /// What they are sorted by.
    ranked_by: String,
    sources: (Vec<tables::Source>, Vec<tables::Source>),
    more_sources: Option<String>,
    nodes: Option<nodes::Nodes>,
    scatter: Option<String>,
    scatter_note: String,
    shapes: Option<shapes::Shapes>,
    /// Or why there is none.
    spectrum: Result<spectrum::Spectrum, &'static str>,
    heat: Option<String>,
    heat_note: Option<String>,
    projection: Option<tables::Projected>,
    no_projection: Option<String>,
    cpus: Vec<Vec<String>>,
    threads: Vec<Vec<String>>,
    /// Explains the wake-up columns of the thread table.
    woken: Option<String>,
    waits: Vec<Vec<String>>,
    notes: Vec<String>,
    manifest: Vec<(String, String)>,
    commands: &'a [Command],
}

/// What the processes are sorted by: gains are those of a job of some size.
fn ranked_by(input: &Input<'_>) -> String {
    let (rows, by) = crate::processes::ranked(input.summary);
    let simulated = rows.iter().any(|row| row.gain_pct.is_some());
    match input.decision.job.as_ref().filter(|_| simulated) {
        Some(job) => format!("{by} on {} ranks", crate::words::count(job.ranks)),
        None => by.to_owned(),
    }
}

/// The page.
///
/// # Errors
/// Never in practice: writing to a string cannot fail.
pub fn page(input: &Input<'_>) -> Result<String, std::fmt::Error> {
    let Input { summary, views, .. } = *input;
    let keys = legend::keys(&views.series, summary);
    let spectrum = spectrum::draw(views, summary, &keys);
    let projection = input.projection.map(projection::with_short_names);
    let commands: Vec<Command> = input.commands.iter().map(Command::limited).collect();
    let mut sources = tables::sources(summary, input.remedies, &keys);
    let rest = sources.split_off(sources.len().min(tables::FIRST));
    let page = Page {
        style: STYLE,
        script: SCRIPT,
        script_sha256: SCRIPT_SHA256,
        title: tables::title(summary),
        headline: tables::micro(&tables::limited(&headline::sentence(summary))),
        not_idle: crate::actions::not_idle(&input.decision.load, "")
            .map(|text| tables::limited(&text)),
        decided: actions::actions(input.decision),
        finding: headline::in_its_own_way(summary).map(|text| tables::micro(&text)),
        warning: headline::warning(summary).map(|text| tables::limited(&text)),
        facts: tables::facts(summary),
        processes: processes::processes(summary),
        ranked_by: ranked_by(input),
        sources: (sources, rest),
        more_sources: tables::more_sources(summary),
        nodes: nodes::nodes(summary),
        scatter: scatter::draw(views, &keys),
        scatter_note: scatter::thinned(views),
        shapes: shapes::draw(views, input.costs, &keys),
        spectrum,
        heat: heat::draw(views, input.lanes, &input.manifest.nodes),
        heat_note: (views.heat.left_out > 0)
            .then(|| format!("The noisiest; {} more are not shown.", views.heat.left_out)),
        projection: projection.as_ref().ok().map(tables::projected),
        no_projection: projection.err().map(tables::limited),
        cpus: tables::cpus(summary),
        threads: tables::threads(summary),
        woken: crate::tables::woken(summary).map(|text| tables::micro(&text)),
        waits: tables::waits(summary),
        notes: notes::lines(summary)
            .iter()
            .take(tables::LINES)
            .map(|line| tables::micro(&tables::limited(line)))
            .collect(),
        manifest: tables::manifest(input.manifest),
        commands: &commands,
        keys: &keys,
    };
    page.render().map_err(|_| std::fmt::Error)
}

#[cfg(test)]
mod tests;
