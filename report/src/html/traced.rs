//! The blame of a real run as one self-contained page: the critical path, noise, waits, ranks over time.

use std::path::Path;

use analysis::words::shell_quoted;
use askama::Template;
use study::explain::traced::{Drawn, TracedBlame};

use super::{
    SCRIPT, SCRIPT_SHA256, STYLE, bars,
    commands::Command,
    lanes::{self, Marks},
    scale::time,
    tables::{LINES, NAME, ROWS, limited, micro},
};
use crate::{
    profile::{command, run, warning},
    traced::{late_by, notes, path_rows, path_said, source_rows, unknown, waiting_said},
    words::{count, cut, percent, percent_said, safe},
};

#[derive(Template)]
#[template(path = "blame.html")]
struct Page {
    style: &'static str,
    script: &'static str,
    script_sha256: &'static str,
    title: String,
    headline: String,
    waiting: String,
    command: Option<String>,
    warnings: Vec<String>,
    facts: Vec<(&'static str, String)>,
    /// Or why there is none.
    timeline: Result<String, String>,
    part: String,
    path: Vec<Vec<String>>,
    sources: Vec<Vec<String>>,
    more_sources: usize,
    waits: Vec<Vec<String>>,
    more_waits: Option<String>,
    /// None if no rank waited, or if there are too many to be drawn.
    bars: Option<String>,
    regions: Vec<Vec<String>>,
    ranks: Vec<Vec<String>>,
    more_ranks: usize,
    notes: Vec<String>,
    commands: Vec<Command>,
}

/// The page of a blame, written to `page`, of the traces in `directory`.
///
/// # Errors
/// Never in practice: writing to a string cannot fail.
pub fn traced_html(
    blame: &TracedBlame,
    drawn: &Drawn,
    directory: &Path,
    page: &Path,
) -> Result<String, std::fmt::Error> {
    let profile = &drawn.profile;
    let sources = source_rows(blame);
    let warnings = unknown(blame).into_iter().chain(warning(profile));
    let page = Page {
        style: STYLE,
        script: SCRIPT,
        script_sha256: SCRIPT_SHA256,
        title: match profile.command.first() {
            Some(name) => cut(&safe(name.rsplit('/').next().unwrap_or(name)), NAME),
            None => "MPI program".to_owned(),
        },
        headline: micro(&limited(&format!("{}: {}", run(profile), path_said(blame)))),
        waiting: micro(&limited(&waiting_said(blame))),
        command: command(profile),
        warnings: warnings.map(|text| limited(&text)).collect(),
        facts: facts(blame),
        timeline: match &drawn.timeline {
            Some(timeline) => {
                Ok(lanes::draw(timeline, Some(&Marks { path: &drawn.path, hits: &drawn.hits })))
            }
            None => Err(format!(
                "Omitted: timelines are limited to {} ranks, and this run has {}.",
                program::TIMELINE_RANKS,
                count(u64::from(profile.ranks_read))
            )),
        },
        part: drawn.timeline.as_ref().map_or_else(String::new, |all| time(all.part_ns as f64)),
        path: path_rows(blame)
            .into_iter()
            .take(ROWS)
            .map(|(depth, name, ns)| {
                let name = format!("{}{}", "\u{a0}\u{a0}".repeat(depth), cut(&name, NAME));
                vec![name, length(ns), share(ns, blame.wall_ns)]
            })
            .collect(),
        sources: sources
            .iter()
            .take(ROWS)
            .map(|(source, path_ns, wait_ns)| {
                vec![
                    cut(&crate::words::name(&source.name), NAME),
                    source.class.name().to_owned(),
                    cut(&source.unit.as_deref().map(safe).unwrap_or_default(), NAME),
                    cut(&safe(&source.host), NAME),
                    length(*path_ns),
                    share(*path_ns, blame.wall_ns),
                    length(*wait_ns),
                    share(*wait_ns, blame.waiting_ns),
                ]
            })
            .collect(),
        more_sources: sources.len().saturating_sub(ROWS),
        waits: waits(blame),
        more_waits: more_waits(blame),
        bars: bars(blame),
        regions: regions(blame),
        ranks: blame
            .path
            .ranks
            .iter()
            .take(ROWS)
            .map(|row| {
                vec![
                    row.rank.to_string(),
                    length(row.ns),
                    share(row.ns, blame.wall_ns),
                    length(row.noise_ns),
                ]
            })
            .collect(),
        more_ranks: blame.path.ranks.len().saturating_sub(ROWS),
        notes: notes(blame).iter().take(LINES).map(|line| micro(&limited(line))).collect(),
        commands: commands(directory, page),
    };
    page.render().map_err(|_| std::fmt::Error)
}

fn length(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        ns => time(ns as f64),
    }
}

fn share(part: u64, whole: u64) -> String {
    percent(100.0 * part as f64 / whole.max(1) as f64)
}

fn facts(blame: &TracedBlame) -> Vec<(&'static str, String)> {
    let said = |part: u64, whole: u64| percent_said(100.0 * part as f64 / whole.max(1) as f64);
    vec![
        ("wall time", length(blame.wall_ns)),
        ("noise on the critical path", length(blame.path.noise_ns)),
        ("waiting of all ranks", length(blame.waiting_ns)),
        ("of it from noise", said(blame.causes.noise_ns, blame.waiting_ns)),
        ("from computation", said(blame.causes.compute_ns, blame.waiting_ns)),
        ("from communication", said(blame.causes.communication_ns, blame.waiting_ns)),
        ("unexplained", said(blame.causes.unexplained_ns, blame.waiting_ns)),
    ]
}

fn waits(blame: &TracedBlame) -> Vec<Vec<String>> {
    let row = |row: &study::explain::traced::WaitRow| {
        vec![
            row.class.name().to_owned(),
            row.call.to_owned(),
            row.cause.rank.to_string(),
            cut(&late_by(&row.cause), NAME),
            cut(&row.cause.region.as_deref().map(safe).unwrap_or_default(), NAME),
            length(row.ns),
            share(row.ns, blame.waiting_ns),
        ]
    };
    blame.waits.iter().take(ROWS).map(row).collect()
}

/// Ranks whose waiting is drawn.
const BARS: usize = 256;

/// What each rank waited for.
fn bars(blame: &TracedBlame) -> Option<String> {
    if blame.by_rank.len() > BARS {
        return None;
    }
    let row = |row: &study::explain::traced::RankWaits| {
        let [sender, receiver, collective] = row.by.classes().map(|(_, ns)| ns as f64);
        let classes = [sender, receiver, collective, 0.0];
        let bar = bars::Bar { name: "", classes, noise: row.by.noise_ns as f64 };
        bars::Row { label: format!("rank {}", row.rank), bars: vec![bar] }
    };
    let rows: Vec<bars::Row> = blame.by_rank.iter().map(row).collect();
    bars::draw("waits", "Waiting by rank", &rows).map(|(svg, _)| svg)
}

fn regions(blame: &TracedBlame) -> Vec<Vec<String>> {
    if blame.by_region.iter().all(|row| row.region.is_none()) {
        return Vec::new();
    }
    let row = |row: &study::explain::traced::RegionWaits| {
        let name = row.region.as_deref().map_or("(no region)".to_owned(), safe);
        let mut cells =
            vec![cut(&name, NAME), length(row.by.ns), share(row.by.ns, blame.waiting_ns)];
        cells.extend(row.by.classes().map(|(_, ns)| length(ns)));
        cells.push(length(row.by.noise_ns));
        cells
    };
    blame.by_region.iter().take(ROWS).map(row).collect()
}

/// The sum of the rows that are not on the page.
fn more_waits(blame: &TracedBlame) -> Option<String> {
    let left: u64 = blame.waits.iter().skip(ROWS).map(|row| row.ns).sum();
    match left + blame.other_waits_ns {
        0 => None,
        ns => Some(format!("And other causes, {} in total.", time(ns as f64))),
    }
}

fn commands(directory: &Path, page: &Path) -> Vec<Command> {
    let [directory, page] = [directory, page].map(|path| shell_quoted(&path.display().to_string()));
    let command = |what: &str, options: &str| {
        let line = format!("detour blame {directory} {options}");
        Command { what: what.to_owned(), line }.limited()
    };
    vec![
        command("This page", &format!("--html {page}")),
        command("The tables as JSON", "--json"),
        command("The waiting as CSV", "--csv /dev/stdout"),
    ]
}
