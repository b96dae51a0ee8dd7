//! Draws a snapshot as a picture of any size; if space is short, the least important
//! parts are omitted first.

mod bars;
mod help;
mod look;
mod table;
mod text;

use analysis::words::{cpu_list_said, percent, safe, time};
use trace::Mode;

pub use look::Look;

use self::text::Pen;
use crate::{
    choices::Choices,
    picture::{Area, Picture, Style},
    snapshot::Snapshot,
};

/// Below this size only a short message fits.
const NARROWEST: u16 = 24;
const LOWEST: u16 = 5;

/// Draws everything; the picture is cleared first.
pub fn draw(snapshot: &Snapshot, choices: &Choices, look: &Look, picture: &mut Picture) {
    let area = picture.area();
    picture.clear();
    if area.width < NARROWEST || area.height < LOWEST {
        let mut pen = Pen::new(picture, area, look);
        pen.line(0).put("terminal too small", Style::PLAIN);
        return;
    }
    let lanes = bars::rows_for(snapshot.lanes.len(), area.height);
    let (head, rest) = split(area, header_lines(area));
    let (middle, foot) = split(rest, rest.height - footer_lines(area));
    let (bars, table) = split(middle, lanes);
    header(snapshot, choices, look, picture, head);
    bars::draw(snapshot, choices, look, picture, bars);
    table::draw(snapshot, choices, look, picture, table);
    footer(snapshot, choices, look, picture, foot);
    if choices.help {
        help::draw(look, picture, area);
    }
}

fn header_lines(area: Area) -> u16 {
    if area.height >= 10 { 2 } else { 1 }
}

fn footer_lines(area: Area) -> u16 {
    if area.height >= 10 { 2 } else { 1 }
}

/// The first `lines` of an area, and the rest.
fn split(area: Area, lines: u16) -> (Area, Area) {
    let lines = lines.min(area.height);
    let first = Area { height: lines, ..area };
    let rest = Area { y: area.y + lines, height: area.height - lines, ..area };
    (first, rest)
}

fn header(snapshot: &Snapshot, choices: &Choices, look: &Look, picture: &mut Picture, area: Area) {
    let mut pen = Pen::new(picture, area, look);
    let line = pen.line(0);
    line.put("detour top ", Style::BOLD);
    if choices.paused {
        line.put(" PAUSED ", Style::REVERSED);
        line.put(" ", Style::PLAIN);
    }
    line.put(&safe(&snapshot.host), Style::PLAIN);
    line.put(&format!("  {}", watched(snapshot)), Style::PLAIN);
    let seconds = snapshot.now_ns / 1_000_000_000;
    let clock = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    line.put_right(&clock, Style::PLAIN);
    cost(snapshot, pen.line(1));
}

/// A short description of what is watched.
fn watched(snapshot: &Snapshot) -> String {
    let cpus = cpu_list_said(&snapshot.cpus);
    match snapshot.mode {
        Mode::Attributed => format!("probe and kernel records of {cpus}"),
        Mode::ProbeOnly => format!("probe only on {cpus}, no sources"),
        Mode::KernelOnly => format!("kernel records of {cpus}, no probe"),
        Mode::Program => format!("{} threads of a program", snapshot.lanes.len()),
        Mode::Imported => String::new(),
    }
}

/// The cost of watching, and lost events.
fn cost(snapshot: &Snapshot, line: &mut text::Line<'_>) {
    let cost = &snapshot.cost;
    let own = cost.threads_pct.map_or("unknown".to_owned(), percent);
    line.put(&format!("overhead {own} of a CPU"), Style::DIM);
    if let Some(bpf) = cost.bpf_pct {
        line.put(&format!(", BPF {} of the CPUs watched", percent(bpf)), Style::DIM);
    }
    if cost.probes > 0 {
        let plural = if cost.probes == 1 { "" } else { "s" };
        line.put(&format!(", and {} CPU{plural} for the probe", cost.probes), Style::DIM);
    }
    let lost = snapshot.lost;
    let total = lost.records + lost.detours + lost.unseen;
    if total > 0 {
        line.put(&format!("  {total} lost"), Style::BOLD);
    }
}

fn footer(snapshot: &Snapshot, choices: &Choices, look: &Look, picture: &mut Picture, area: Area) {
    let mut pen = Pen::new(picture, area, look);
    let last = area.height.saturating_sub(1);
    if last > 0 {
        let said = choices.message.clone().or_else(|| about_selected(snapshot, choices));
        let said = said.or_else(|| snapshot.limits.first().cloned()).unwrap_or_default();
        pen.line(0).put(&safe(&said), Style::PLAIN);
    }
    let line = pen.line(last);
    if choices.typing {
        line.put(&format!("filter: {}_", safe(&choices.filter)), Style::BOLD);
        line.put("   Enter: apply, Esc: cancel", Style::DIM);
        return;
    }
    if last == 0
        && let Some(message) = &choices.message
    {
        line.put(&safe(message), Style::PLAIN);
        return;
    }
    for (key, what) in [
        ("q", "quit"),
        ("p", if choices.paused { "resume" } else { "pause" }),
        ("s", "sort"),
        ("/", "filter"),
        ("b", "rows"),
        ("i", "span"),
        ("w", "write"),
        ("?", "help"),
    ] {
        line.put(&format!(" {key} "), Style::REVERSED);
        line.put(&format!(" {what}  "), Style::PLAIN);
    }
    if !choices.filter.is_empty() {
        line.put(&format!("[{}]", safe(&choices.filter)), Style::BOLD);
    }
}

/// What the selected row consists of.
fn about_selected(snapshot: &Snapshot, choices: &Choices) -> Option<String> {
    let key = choices.selected.as_ref()?;
    let rows = choices.rows(snapshot);
    let row = rows.iter().find(|row| row.key == *key)?;
    let mut said = key.said();
    if let Some(unit) = &key.unit {
        said.push_str(&format!(" of {unit}"));
    }
    let parts = row.parts.iter().map(|(what, ns)| format!("{what} {}", time(*ns as f64)));
    let parts: Vec<String> = parts.collect();
    if !parts.is_empty() {
        said.push_str(&format!(": {}", parts.join(", ")));
    }
    Some(said)
}
