//! Why simulated runs took as long as they did: the parts of the critical path, and the noise on it.

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, name, percent, plural, safe, time, wrap},
};

/// Figures of one or several runs; times in nanoseconds, means if there are several runs.
#[derive(Clone, Debug, PartialEq)]
pub struct BlameFigures {
    pub runs: u64,
    pub ranks: u64,
    pub finish: f64,
    /// The rank that finishes last, or last most often, and in how many runs.
    pub last: (u64, u64),
    pub parts: Vec<BlamePart>,
    pub sources: Vec<BlameSource>,
    /// Noise on the path and absorbed noise, over all sources.
    pub on_path: f64,
    pub absorbed: f64,
}

/// A component of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlamePart {
    pub name: &'static str,
    /// Time on the critical path, and the quartiles over the runs.
    pub path: f64,
    pub path_between: (f64, f64),
    /// Mean over the ranks.
    pub rank: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BlameSource {
    pub name: String,
    pub class: String,
    pub unit: String,
    /// The recorder's own threads.
    pub own: bool,
    pub on_path: f64,
    pub on_path_max: f64,
    pub absorbed: f64,
    /// Runs in which it is on the path.
    pub runs: u64,
    /// The rank on which it took the most from the path.
    pub worst_rank: Option<u64>,
}

#[must_use]
pub fn blame(figures: &BlameFigures, options: Options) -> String {
    let many = figures.runs > 1;
    let mut text = heading(figures, options) + "\n\n" + &parts(figures, many, options) + "\n";
    if figures.sources.is_empty() {
        return text;
    }
    text += &format!("\n{}\n", sources(figures, many, options));
    let shown = options.shown(figures.sources.len());
    if shown < figures.sources.len() {
        let more = (figures.sources.len() - shown) as u64;
        text += &format!("{}\n", plural(more, "more source"));
    }
    let all = figures.on_path + figures.absorbed;
    let sentence = format!(
        "{} of noise hit the ranks' work{}: {} of it on the critical path, {} ({}) absorbed.",
        time(all),
        if many { " per run" } else { "" },
        time(figures.on_path),
        time(figures.absorbed),
        percent(100.0 * figures.absorbed / all.max(f64::MIN_POSITIVE)),
    );
    text + "\n" + &wrap(&sentence, options.style().width, "") + "\n"
}

fn heading(figures: &BlameFigures, options: Options) -> String {
    let (rank, times) = figures.last;
    let sentence = if figures.runs > 1 {
        format!(
            "Where the time went, mean of {} runs: the last of {} finishes after {}; rank {rank} \
             is last most often ({times} times).",
            count(figures.runs),
            plural(figures.ranks, "rank"),
            time(figures.finish)
        )
    } else {
        format!(
            "Where the time went: the last of {}, rank {rank}, finishes after {}.",
            plural(figures.ranks, "rank"),
            time(figures.finish)
        )
    };
    wrap(&sentence, options.style().width, "")
}

fn parts(figures: &BlameFigures, many: bool, options: Options) -> String {
    let mut columns =
        vec![Column::text("part", 7), Column::number("critical path"), Column::number("share")];
    if many {
        columns.push(Column::number("quartiles").expendable(1));
    }
    columns.push(Column::number("rank mean").expendable(2));
    let mut grid = Grid::new(columns);
    let mut row = |tone, name: &str, path: f64, between: Option<(f64, f64)>, rank: f64| {
        let share = 100.0 * path / figures.finish.max(f64::MIN_POSITIVE);
        // In the peer model an empty message takes -G.
        let spent = |ns: f64| if ns < 0.0 { format!("-{}", time(-ns)) } else { time(ns) };
        let mut cells = vec![name.to_owned(), spent(path), percent(share)];
        if many {
            let between = between.map(|(low, high)| format!("{} to {}", spent(low), spent(high)));
            cells.push(between.unwrap_or_default());
        }
        cells.push(spent(rank));
        grid.row(tone, cells);
    };
    // Parts that are zero everywhere are omitted.
    for part in figures.parts.iter().filter(|part| part.path != 0.0 || part.rank != 0.0) {
        let tone = if part.name == "noise" { Tone::Strong } else { Tone::Plain };
        row(tone, part.name, part.path, Some(part.path_between), part.rank);
    }
    let rank = figures.parts.iter().map(|part| part.rank).sum();
    row(Tone::Dim, "total", figures.finish, None, rank);
    grid.render(options.style())
}

fn sources(figures: &BlameFigures, many: bool, options: Options) -> String {
    let mut columns = vec![
        Column::text("noise source", 12),
        Column::text("class", 5).expendable(2),
        Column::text("unit", 8).expendable(4),
        Column::number("on path"),
    ];
    if many {
        columns.extend([Column::number("max").expendable(1), Column::number("runs")]);
    }
    columns.extend([Column::number("worst rank").expendable(3), Column::number("absorbed")]);
    let mut grid = Grid::new(columns);
    let shown = &figures.sources[..options.shown(figures.sources.len())];
    for source in shown {
        let own = if source.own { "*" } else { "" };
        let tone = if source.on_path > 0.0 { Tone::Plain } else { Tone::Dim };
        let mut cells = vec![
            format!("{}{own}", name(&source.name)),
            source.class.clone(),
            safe(&source.unit),
            time(source.on_path),
        ];
        if many {
            cells.extend([time(source.on_path_max), count(source.runs)]);
        }
        let worst = source.worst_rank.map_or("-".to_owned(), |rank| rank.to_string());
        cells.extend([worst, time(source.absorbed)]);
        grid.row(tone, cells);
    }
    let mut text = grid.render(options.style());
    if shown.iter().any(|source| source.own) {
        text += "\n* the recorder itself: absent in production";
    }
    text
}

/// One point of a sweep: the parts of its path, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct BlameRow {
    pub series: String,
    pub ranks: u64,
    pub figures: BlameFigures,
}

/// The parts of the path by rank count, then the sources at the last point.
#[must_use]
pub fn blame_sweep(rows: &[BlameRow], options: Options) -> String {
    let Some(last) = rows.last() else { return String::new() };
    if let [only] = rows {
        return blame(&only.figures, options);
    }
    let present = |index: &usize| rows.iter().any(|row| row.figures.parts[*index].path != 0.0);
    let indices: Vec<usize> = (0..last.figures.parts.len()).filter(present).collect();
    let several = rows.iter().any(|row| !row.series.is_empty());
    let mut columns = if several { vec![Column::text("series", 8)] } else { Vec::new() };
    columns.extend([Column::number("ranks"), Column::number("critical path")]);
    columns.extend(indices.iter().map(|&i| Column::number(last.figures.parts[i].name)));
    columns.extend([Column::number("absorbed"), Column::text("top source", 8).expendable(1)]);
    let mut grid = Grid::new(columns);
    for row in rows {
        let mut cells = if several { vec![row.series.clone()] } else { Vec::new() };
        cells.extend([count(row.ranks), time(row.figures.finish)]);
        cells.extend(indices.iter().map(|&i| time(row.figures.parts[i].path)));
        let worst = row.figures.sources.iter().find(|source| source.on_path > 0.0);
        cells.push(time(row.figures.absorbed));
        cells.push(worst.map_or("-".to_owned(), |source| name(&source.name)));
        grid.row(Tone::Plain, cells);
    }
    let sentence = "Critical path by part, mean of the runs:";
    format!("{sentence}\n\n{}\n\n", grid.render(options.style())) + &blame(&last.figures, options)
}
