//! The blame of a real run as text: how much of its critical path is noise, what the waiting comes from; then tables.

use program::Profile;
use study::explain::traced::{LateBy, Source, TracedBlame, WaitsBy};

use crate::{
    Options,
    grid::{Column, Grid, Style, Tone},
    profile::{command, run, warning},
    waiting::{class_columns, state_columns},
    words::{count, cut, label_of, percent, percent_said, plural, safe, tight, time, wrap},
};

/// Characters of the name of a host or a source in a sentence.
const NAME: usize = 60;

/// The blame as text; the profile is that of the same run.
#[must_use]
pub fn traced(blame: &TracedBlame, profile: &Profile, options: Options) -> String {
    let style = options.style();
    let sections = [
        Some(headline(blame, profile, style)),
        Some(path(blame, options)),
        sources(blame, options),
        waits(blame, options),
        waiting_ranks(blame, options),
        waiting_regions(blame, options),
        Some(ranks(blame, options)),
        about(blame, style),
    ];
    sections.into_iter().flatten().collect::<Vec<String>>().join("\n\n") + "\n"
}

fn share(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn said(ns: u64) -> String {
    time(ns as f64)
}

/// `fakemond on node7`.
pub(crate) fn source_on(source: &Source) -> String {
    let name = cut(&label_of(source.class, &source.name), NAME);
    match source.host.is_empty() {
        true => name,
        false => format!("{name} on {}", cut(&safe(&source.host), NAME)),
    }
}

/// How much of the critical path is noise, and whose.
pub(crate) fn path_said(blame: &TracedBlame) -> String {
    let path = &blame.path;
    let whole = said(blame.wall_ns);
    if blame.noise.recordings == 0 {
        return format!(
            "The critical path of {whole} is {} computation and {} communication; noise was not recorded.",
            percent_said(share(path.compute_ns, blame.wall_ns)),
            percent_said(share(path.communication_ns, blame.wall_ns)),
        );
    }
    let mut text = format!(
        "{} of {whole} on the critical path is noise ({})",
        said(path.noise_ns),
        percent_said(share(path.noise_ns, blame.wall_ns))
    );
    if let Some(first) = path.sources.first() {
        text += &format!(
            ", {} of that from {}",
            percent_said(share(first.ns, path.noise_ns)),
            source_on(&first.source)
        );
    }
    text + "."
}

/// What the waiting comes from.
pub(crate) fn waiting_said(blame: &TracedBlame) -> String {
    if blame.waiting_ns == 0 {
        return "No rank waited for another.".to_owned();
    }
    let causes = &blame.causes;
    let of_all = |ns: u64| percent_said(share(ns, blame.waiting_ns));
    let mut text = format!("The ranks waited for {} in total", said(blame.waiting_ns));
    match blame.sources.first() {
        Some(first) => {
            text +=
                &format!("; {} of it comes from {}", of_all(first.ns), source_on(&first.source));
            if blame.sources.len() > 1 {
                text += &format!(", {} from all noise", of_all(causes.noise_ns));
            }
        }
        None => text += "; none of it comes from noise",
    }
    text += &format!(
        ", {} from computation, {} from communication",
        of_all(causes.compute_ns),
        of_all(causes.communication_ns)
    );
    if causes.unexplained_ns > 0 {
        text += &format!("; {} is unexplained", of_all(causes.unexplained_ns));
    }
    text + "."
}

/// What is not known about the noise.
pub(crate) fn unknown(blame: &TracedBlame) -> Option<String> {
    let missing = &blame.noise.missing_ranks;
    if blame.noise.recordings == 0 {
        return Some(
            "The noise of this run was not recorded: on all ranks it counts as computation or communication \
             (record with `detour mpi record --noise`)."
                .to_owned(),
        );
    }
    match missing.as_slice() {
        [] => None,
        [rank] => {
            Some(format!("The noise of rank {rank} was not recorded: it counts as computation."))
        }
        ranks => Some(format!(
            "The noise of {} was not recorded: it counts as computation.",
            plural(ranks.len() as u64, "rank")
        )),
    }
}

fn headline(blame: &TracedBlame, profile: &Profile, style: Style) -> String {
    let first = format!("{}. {}", run(profile), path_said(blame));
    let mut lines = vec![
        style.title(&wrap(&first, style.width, "")),
        wrap(&waiting_said(blame), style.width, ""),
    ];
    lines.extend(unknown(blame).map(|text| wrap(&text, style.width, "")));
    lines.extend(warning(profile).map(|text| wrap(&text, style.width, "")));
    if let Some(command) = command(profile) {
        lines.push(wrap(&format!("Command: {command}"), style.width, "    "));
    }
    lines.join("\n")
}

fn titled(style: Style, title: &str, grid: &Grid) -> String {
    format!("{}\n{}", style.title(title), grid.render(style))
}

/// The sum of the rows that are not shown.
fn rest(text: &mut String, left: usize, what: &str) {
    if left > 0 {
        text.push_str(&format!("\nand {} (--all shows them)", plural(left as u64, what)));
    }
}

/// The parts of the path: computation by region, communication by function, noise.
pub(crate) fn path_rows(blame: &TracedBlame) -> Vec<(usize, String, u64)> {
    let path = &blame.path;
    let mut rows = vec![(0, "computation".to_owned(), path.compute_ns)];
    if path.regions.iter().any(|row| row.region.is_some()) {
        rows.extend(path.regions.iter().map(|row| {
            let name = row.region.as_deref().map_or_else(|| "outside of regions".to_owned(), safe);
            (1, name, row.ns)
        }));
    }
    rows.push((0, "communication".to_owned(), path.communication_ns));
    rows.extend(path.calls.iter().map(|row| (1, row.call.to_owned(), row.ns)));
    rows.push((0, "noise".to_owned(), path.noise_ns));
    rows
}

fn path(blame: &TracedBlame, options: Options) -> String {
    let mut grid =
        Grid::new(vec![Column::text("part", 18), Column::number("time"), Column::number("share")]);
    let mut left = 0;
    let mut shown = 0;
    for (depth, name, ns) in path_rows(blame) {
        shown = if depth == 0 { 0 } else { shown + 1 };
        if shown > options.shown(usize::MAX) {
            left += 1;
            continue;
        }
        let tone = if name == "noise" && depth == 0 { Tone::Strong } else { Tone::Plain };
        let cells = vec![
            format!("{}{name}", "  ".repeat(depth)),
            tight(ns),
            percent(share(ns, blame.wall_ns)),
        ];
        grid.row(tone, cells);
    }
    grid.row(Tone::Dim, vec!["total".to_owned(), tight(blame.wall_ns), String::new()]);
    let mut text = titled(options.style(), "Critical path", &grid);
    rest(&mut text, left, "more row");
    text
}

/// Noise by source: on the path, and what of the waiting it caused.
pub(crate) fn source_rows(blame: &TracedBlame) -> Vec<(&Source, u64, u64)> {
    let waited = |source: &Source| {
        let found = blame.sources.iter().find(|row| row.source == *source);
        found.map_or(0, |row| row.ns)
    };
    let on_path = |source: &Source| blame.path.sources.iter().any(|row| row.source == *source);
    let path = blame.path.sources.iter().map(|row| (&row.source, row.ns, waited(&row.source)));
    let others = blame.sources.iter().filter(|row| !on_path(&row.source));
    path.chain(others.map(|row| (&row.source, 0, row.ns))).collect()
}

fn sources(blame: &TracedBlame, options: Options) -> Option<String> {
    let rows = source_rows(blame);
    if rows.is_empty() {
        return None;
    }
    let mut grid = Grid::new(vec![
        Column::text("noise source", 12),
        Column::text("class", 5).expendable(2),
        Column::text("unit", 8).expendable(3),
        Column::text("host", 6).expendable(1),
        Column::number("on path"),
        Column::number("share"),
        Column::number("waiting"),
        Column::number("share"),
    ]);
    let shown = options.shown(rows.len());
    for (source, path_ns, wait_ns) in rows.iter().take(shown) {
        let own = if source.own { "*" } else { "" };
        grid.row(
            Tone::Plain,
            vec![
                format!("{}{own}", crate::words::name(&source.name)),
                source.class.name().to_owned(),
                source.unit.as_deref().map(safe).unwrap_or_default(),
                safe(&source.host),
                tight(*path_ns),
                percent(share(*path_ns, blame.wall_ns)),
                tight(*wait_ns),
                percent(share(*wait_ns, blame.waiting_ns)),
            ],
        );
    }
    let mut text = titled(
        options.style(),
        "Noise on the critical path, and the waiting that it caused",
        &grid,
    );
    rest(&mut text, rows.len() - shown, "more source");
    if rows.iter().take(shown).any(|(source, ..)| source.own) {
        text += "\n* the recorder itself: absent in production";
    }
    Some(text)
}

/// What made a rank late, in words.
pub(crate) fn late_by(cause: &LateBy) -> String {
    match (&cause.source, cause.call) {
        (Some(source), _) => label_of(source.class, &source.name),
        (None, Some(call)) => call.to_owned(),
        (None, None) if cause.kind == "compute" => "computation".to_owned(),
        (None, None) => cause.kind.to_owned(),
    }
}

fn waits(blame: &TracedBlame, options: Options) -> Option<String> {
    if blame.waits.is_empty() {
        return None;
    }
    let mut grid = Grid::new(state_columns());
    let shown = options.shown(blame.waits.len());
    let mut left = blame.waiting_ns;
    for row in blame.waits.iter().take(shown) {
        left = left.saturating_sub(row.ns);
        let tone = if row.cause.kind == "noise" { Tone::Strong } else { Tone::Plain };
        grid.row(
            tone,
            vec![
                row.class.name().to_owned(),
                row.call.to_owned(),
                row.cause.rank.to_string(),
                late_by(&row.cause),
                row.cause.region.as_deref().map(safe).unwrap_or_default(),
                tight(row.ns),
                percent(share(row.ns, blame.waiting_ns)),
            ],
        );
    }
    let mut text = titled(options.style(), "Waiting by cause", &grid);
    if left > 0 {
        text += &format!("\nand other causes, {} in total", time(left as f64));
    }
    Some(text)
}

fn waiting_ranks(blame: &TracedBlame, options: Options) -> Option<String> {
    let rows = blame.by_rank.iter().map(|row| (row.rank.to_string(), &row.by)).collect();
    waiting_by(blame, "Waiting by rank", "rank", rows, options)
}

fn waiting_regions(blame: &TracedBlame, options: Options) -> Option<String> {
    // Without regions there is nothing to tell apart.
    blame.by_region.iter().find(|row| row.region.is_some())?;
    let name = |region: &Option<String>| region.as_deref().map_or("(no region)".to_owned(), safe);
    let rows = blame.by_region.iter().map(|row| (name(&row.region), &row.by)).collect();
    waiting_by(blame, "Waiting by region", "region", rows, options)
}

fn waiting_by(
    blame: &TracedBlame,
    title: &str,
    column: &'static str,
    rows: Vec<(String, &WaitsBy)>,
    options: Options,
) -> Option<String> {
    if blame.waiting_ns == 0 {
        return None;
    }
    let mut columns =
        vec![Column::text(column, 12), Column::number("waiting"), Column::number("share")];
    columns.extend(class_columns());
    let mut grid = Grid::new(columns);
    let shown = options.shown(rows.len());
    for (name, by) in rows.iter().take(shown) {
        let mut cells = vec![name.clone(), tight(by.ns), percent(share(by.ns, blame.waiting_ns))];
        cells.extend(by.classes().map(|(_, ns)| tight(ns)));
        cells.push(tight(by.noise_ns));
        grid.row(Tone::Plain, cells);
    }
    let mut text = titled(options.style(), title, &grid);
    rest(&mut text, rows.len() - shown, "more row");
    Some(text)
}

fn ranks(blame: &TracedBlame, options: Options) -> String {
    let mut grid = Grid::new(vec![
        Column::number("rank"),
        Column::number("on path"),
        Column::number("share"),
        Column::number("of it noise"),
    ]);
    let rows = &blame.path.ranks;
    let shown = options.shown(rows.len());
    for row in rows.iter().take(shown) {
        grid.row(
            Tone::Plain,
            vec![
                row.rank.to_string(),
                tight(row.ns),
                percent(share(row.ns, blame.wall_ns)),
                tight(row.noise_ns),
            ],
        );
    }
    let title = format!(
        "Ranks on the critical path, which changes from one to another {} times",
        count(blame.path.changes)
    );
    let mut text = titled(options.style(), &title, &grid);
    rest(&mut text, rows.len() - shown, "more rank");
    text
}

/// What limits the answer.
pub(crate) fn notes(blame: &TracedBlame) -> Vec<String> {
    let mut lines = Vec::new();
    if blame.noise.recordings > 0 && blame.noise.covered_pct < 99.0 {
        lines.push(format!(
            "Noise was recorded in {} of the ranks' time.",
            percent_said(blame.noise.covered_pct)
        ));
    }
    lines.extend(blame.remarks.iter().map(|remark| safe(remark)));
    lines
}

fn about(blame: &TracedBlame, style: Style) -> Option<String> {
    let lines: Vec<String> =
        notes(blame).iter().map(|line| wrap(line, style.width, "  ")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
