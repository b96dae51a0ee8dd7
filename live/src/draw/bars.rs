//! One line per CPU or thread: a bar of the time taken by class, and its strip.

use analysis::words::{cut, percent, safe};
use trace::{Class, Mode};

use super::{
    look::Look,
    text::{Line, Pen},
};
use crate::{
    choices::{Choices, Span},
    picture::{Area, Picture, Style},
    snapshot::{LaneShown, Snapshot},
};

const EIGHTHS: usize = 8;

/// Height of this section including its heading: at most a third of the screen.
pub(super) fn rows_for(lanes: usize, height: u16) -> u16 {
    let most = (height / 3).max(2);
    (u16::try_from(lanes).unwrap_or(u16::MAX).saturating_add(1)).min(most)
}

/// Widths of the name and the bar; the number has a fixed width, and the strip gets the rest.
fn widths(area: Area) -> (usize, usize) {
    match area.width {
        0..60 => (8, 10),
        60..120 => (10, 16),
        _ => (18, 30),
    }
}

pub(super) fn draw(
    snapshot: &Snapshot,
    choices: &Choices,
    look: &Look,
    picture: &mut Picture,
    area: Area,
) {
    let (name_width, bar_width) = widths(area);
    let mut pen = Pen::new(picture, area, look);
    let room = usize::from(area.height.saturating_sub(1));
    let shown = chosen(snapshot, choices, room);
    let columns = usize::from(area.width).saturating_sub(name_width + bar_width + 10);
    heading(snapshot, choices, &mut pen, (name_width, bar_width, columns), shown.len());
    for (number, lane) in (1..).zip(shown) {
        let line = pen.line(number);
        line.put(&format!("{:name_width$}", cut(&safe(&lane.name), name_width - 1)), Style::PLAIN);
        let span_ns = snapshot.span_ns[choices.span as usize];
        bar(lane, span_ns, choices, look, line, bar_width);
        strip(lane, choices, look, line, columns);
    }
}

/// All lanes in order, or the ones that lost most time if not all fit.
fn chosen<'a>(snapshot: &'a Snapshot, choices: &Choices, room: usize) -> Vec<&'a LaneShown> {
    let mut lanes: Vec<&LaneShown> = snapshot.lanes.iter().collect();
    if lanes.len() > room {
        // By a longer span, so that lines do not jump around.
        let recent = |lane: &&LaneShown| taken(lane, Span::TenSeconds, choices.threads);
        lanes.sort_by_key(|lane| std::cmp::Reverse(recent(lane)));
        lanes.truncate(room);
    }
    lanes
}

fn heading(
    snapshot: &Snapshot,
    choices: &Choices,
    pen: &mut Pen<'_>,
    (name_width, bar_width, columns): (usize, usize, usize),
    shown: usize,
) {
    let line = pen.line(0);
    let total = snapshot.lanes.len();
    let what = if snapshot.mode == Mode::Program { "thread" } else { "CPU" };
    let what = if shown < total { format!("{shown}/{total}") } else { what.to_owned() };
    line.put(&format!("{what:name_width$}"), Style::DIM);
    let threads = if choices.threads { "" } else { ", no threads" };
    let taken = format!("taken, {}{threads}", choices.span.name());
    let bar_and_number = bar_width + 10;
    line.put(&format!("{:bar_and_number$}", cut(&taken, bar_and_number - 1)), Style::DIM);
    let seconds = columns / 4;
    let what = match snapshot.mode {
        Mode::KernelOnly => "longest record",
        _ => "longest detour",
    };
    line.put(&format!("{what} per 1/4 s, last {seconds} s"), Style::DIM);
}

/// Time taken from a lane, with or without threads.
fn taken(lane: &LaneShown, span: Span, threads: bool) -> u64 {
    let parts = lane.taken[span as usize].iter().zip(Class::ALL);
    parts.filter(|(_, class)| threads || *class != Class::Thread).map(|(ns, _)| ns).sum()
}

fn bar(
    lane: &LaneShown,
    span_ns: u64,
    choices: &Choices,
    look: &Look,
    line: &mut Line<'_>,
    width: usize,
) {
    let whole = span_ns.max(1) as f64;
    let room = width * EIGHTHS;
    let (mut filled, mut so_far) = (0, 0.0);
    let mut last = Class::OutsideKernel;
    for (ns, class) in lane.taken[choices.span as usize].iter().zip(Class::ALL) {
        if *ns == 0 || (class == Class::Thread && !choices.threads) {
            continue;
        }
        so_far += *ns as f64 / whole;
        // Round the end positions, not the parts, so that the bar length matches the sum.
        let end = ((so_far * room as f64).round() as usize / EIGHTHS).min(width);
        line.put(&look.bar().repeat(end.saturating_sub(filled)), look.class(class));
        filled = filled.max(end);
        last = class;
    }
    // The last cell is drawn in eighths; any noise shows at least one.
    let eighths = ((so_far * room as f64).round() as usize).saturating_sub(filled * EIGHTHS);
    let eighths = eighths.max(usize::from(so_far > 0.0 && filled == 0));
    let part = if filled < width { look.part(eighths) } else { "" };
    line.put(part, look.class(last));
    line.put(&look.rest().repeat(width - filled - part.chars().count()), Style::DIM);
    let share = 100.0 * taken(lane, choices.span, choices.threads) as f64 / whole;
    line.put(&format!(" {:>7}  ", percent(share.min(100.0))), Style::PLAIN);
}

fn strip(lane: &LaneShown, choices: &Choices, look: &Look, line: &mut Line<'_>, columns: usize) {
    let missing = columns.saturating_sub(lane.strip.len());
    line.put(&" ".repeat(missing), Style::PLAIN);
    let from = lane.strip.len().saturating_sub(columns);
    for &(thread, kernel) in &lane.strip[from..] {
        let thread = thread.filter(|_| choices.threads);
        let longest = [thread, kernel].into_iter().flatten().max_by_key(|cell| cell.longest_ns);
        match longest {
            Some(cell) => line.put(look.height(cell.longest_ns), look.class(cell.class)),
            None => line.put(" ", Style::PLAIN),
        }
    }
}
