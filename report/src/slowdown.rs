//! Table of a sweep: how long a collective takes with and without noise, by rank count.

use simulate::stats::Knee;
use study::collective::{SeriesKnee, Sweep};

use crate::{
    Options,
    blame::blame_sweep,
    grid::{Column, Grid, Tone},
    words::wrap,
};

/// `between 512 and 1024 ranks` or `at or below 65536 ranks`; `ranks` formats the counts.
pub(crate) fn knee_place(knee: &Knee, ranks: impl Fn(u64) -> String) -> String {
    match knee.above {
        Some(above) => format!("between {} and {} ranks", ranks(above), ranks(knee.ranks)),
        None if knee.ranks == 1 => "at a single rank".to_owned(),
        None => format!("at or below {} ranks", ranks(knee.ranks)),
    }
}

/// The same as a sentence with its evidence, uncapitalised.
pub(crate) fn knee_sentence(knee: &Knee, ranks: impl Fn(u64) -> String) -> String {
    let at = ranks(knee.ranks);
    let from = match (knee.above, knee.smallest) {
        (None, true) => format!("at {at} (the smallest simulated) and above,"),
        _ => format!("at {at} and above,"),
    };
    let unknown = match (knee.above, knee.smallest) {
        (None, false) => " (too few runs to tell for fewer ranks)",
        _ => "",
    };
    format!(
        "noise takes over {}: {from} the median is more than 10 % above the noiseless time{unknown}.",
        knee_place(knee, ranks)
    )
}

/// Shown if no knee was found.
pub(crate) const NO_KNEE: &str = "the median stays within 10 % of the noiseless time (or there are \
                                  too few runs to tell).";

/// The table, followed by the knee of each series and the breakdown of the critical path, if any.
#[must_use]
pub fn slowdown(sweep: &Sweep, options: Options) -> String {
    // Tables of numbers are not shortened.
    let style = Options { all: true, ..options }.style();
    let several = sweep.knees.len() > 1;
    let mut columns = Vec::new();
    if several {
        columns.push(Column::text("series", 8));
    }
    columns.extend([
        Column::number("ranks"),
        Column::number("noiseless us"),
        Column::number("min").expendable(3),
        Column::number("q25").expendable(1),
        Column::number("median us"),
        Column::number("95 % interval").expendable(4),
        Column::number("q75").expendable(1),
        Column::number("p99").expendable(2),
        Column::number("max"),
        Column::number("slowdown"),
    ]);
    let mut grid = Grid::new(columns);
    for point in &sweep.points {
        let mut cells = if several { vec![point.series.label()] } else { Vec::new() };
        let [low, high] = point.median_ci95_us;
        cells.extend([
            point.ranks.to_string(),
            figure(point.noiseless_us),
            figure(point.min_us),
            figure(point.q25_us),
            figure(point.median_us),
            format!("{} to {}", figure(low), figure(high)),
            figure(point.q75_us),
            figure(point.p99_us),
            figure(point.max_us),
            format!("{:.2}", point.slowdown_median),
        ]);
        grid.row(Tone::Plain, cells);
    }
    let mut text = grid.render(style) + "\n";
    for SeriesKnee { series, knee } in sweep.knees.iter().filter(|_| sweep.is_noisy()) {
        let which = if several { format!("{}: ", series.label()) } else { String::new() };
        let said = match &knee.knee {
            Some(knee) => knee_sentence(knee, |n| n.to_string()),
            None => NO_KNEE.to_owned(),
        };
        text += &format!("\n{}\n", wrap(&format!("{which}{said}"), style.width, ""));
    }
    match blame_sweep(sweep, options) {
        Some(blame) => format!("{text}\n{blame}"),
        None => text,
    }
}

/// Four digits are enough for a table.
fn figure(us: f64) -> String {
    let digits = if us >= 1000.0 {
        0
    } else if us >= 100.0 {
        1
    } else if us >= 10.0 {
        2
    } else {
        3
    };
    format!("{us:.digits$}")
}
