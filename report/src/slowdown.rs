//! Table of a sweep: how long a collective takes with and without noise, by rank count.

use simulate::stats::Knee;
use study::{
    jobs::collective::{SeriesKnee, Sweep},
    run::point::{FEWEST_FOR_INTERVAL, Point},
};

use crate::{
    Options,
    blame::blame_sweep,
    grid::{Column, Grid, Tone},
    words::{precise, wrap},
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

/// The table of a sweep, whose rows can be printed as they are simulated.
pub struct SweepRows {
    grid: Grid,
    options: Options,
    several: bool,
}

impl SweepRows {
    /// `series` are the labels of all series.
    #[must_use]
    pub fn new(series: &[String], options: Options) -> SweepRows {
        let several = series.len() > 1;
        let mut columns = Vec::new();
        if several {
            let widest = series.iter().map(String::len).max().unwrap_or(0);
            columns.push(Column::text("series", widest).reserve(widest));
        }
        columns.extend([
            Column::number("ranks").reserve(7),
            Column::number("noiseless").reserve(7),
            Column::number("min").reserve(7).expendable(5),
            Column::number("q25").reserve(7).expendable(4),
            Column::number("median").reserve(7),
            Column::number("95 % interval").reserve(18).expendable(1),
            Column::number("q75").reserve(7).expendable(3),
            Column::number("p99").reserve(7).expendable(2),
            Column::number("max").reserve(7),
            Column::number("slowdown").reserve(8),
        ]);
        SweepRows { grid: Grid::new(columns), options, several }
    }

    #[must_use]
    pub fn header(&self) -> String {
        self.grid.layout(self.options.style()).header()
    }

    #[must_use]
    pub fn row(&self, point: &Point) -> String {
        let us = |us: f64| precise(us * 1e3);
        let mut cells = if self.several { vec![point.series.label()] } else { Vec::new() };
        let [low, high] = point.median_ci95_us;
        cells.extend([
            point.ranks.to_string(),
            us(point.noiseless_us),
            us(point.min_us),
            us(point.q25_us),
            us(point.median_us),
            match point.has_interval() {
                true => format!("{} to {}", us(low), us(high)),
                false => "-".to_owned(),
            },
            us(point.q75_us),
            us(point.p99_us),
            us(point.max_us),
            format!("{:.2}", point.slowdown_median),
        ]);
        self.grid.layout(self.options.style()).line(Tone::Plain, &cells)
    }
}

/// The table, followed by [`slowdown_findings`].
#[must_use]
pub fn slowdown(sweep: &Sweep, options: Options) -> String {
    let series: Vec<String> = sweep.knees.iter().map(|knee| knee.series.label()).collect();
    let table = SweepRows::new(&series, options);
    let rows = sweep.points.iter().map(|point| table.row(point) + "\n");
    let rows: String = rows.collect();
    format!("{}\n{rows}{}", table.header(), slowdown_findings(sweep, options))
}

/// What follows the table: the knee of each series, and the breakdown of the critical path, if any.
#[must_use]
pub fn slowdown_findings(sweep: &Sweep, options: Options) -> String {
    let has_intervals = sweep.points.iter().all(Point::has_interval);
    let text = findings(&sweep.knees, sweep.is_noisy(), has_intervals, options);
    match blame_sweep(sweep, options) {
        Some(blame) => format!("{text}\n{blame}"),
        None => text,
    }
}

/// The knee of each series.
pub(crate) fn findings(
    knees: &[SeriesKnee],
    noisy: bool,
    has_intervals: bool,
    options: Options,
) -> String {
    if noisy && !has_intervals {
        let few = format!(
            "fewer than {FEWEST_FOR_INTERVAL} runs have no 95 % confidence interval, and cannot tell where noise \
             takes over: specify more with --runs."
        );
        return format!("\n{}\n", wrap(&few, options.style().width, ""));
    }
    let several = knees.len() > 1;
    let mut text = String::new();
    for SeriesKnee { series, knee } in knees.iter().filter(|_| noisy) {
        let which = if several { format!("{}: ", series.label()) } else { String::new() };
        let said = match &knee.knee {
            Some(knee) => knee_sentence(knee, |n| n.to_string()),
            None => NO_KNEE.to_owned(),
        };
        text += &format!("\n{}\n", wrap(&format!("{which}{said}"), options.style().width, ""));
    }
    text
}
