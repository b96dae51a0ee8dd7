//! Table of a sweep: how long a collective takes with and without noise, by rank count.

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::wrap,
};

/// One point of a sweep, times in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowdownRow {
    /// Distinguishes this series from the others of the sweep; empty if there is only one.
    pub series: String,
    pub ranks: u64,
    pub noiseless: f64,
    pub min: f64,
    pub q25: f64,
    pub median: f64,
    /// 95 % interval of the median.
    pub median_between: (f64, f64),
    pub q75: f64,
    pub p99: f64,
    pub max: f64,
}

/// Where noise takes over: above `above` and at or below `ranks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knee {
    /// The smallest simulated rank count at and above which the median stays off the noiseless line.
    pub ranks: u64,
    /// The largest smaller rank count known to be on the line, if any.
    pub above: Option<u64>,
    /// Whether nothing smaller than `ranks` was simulated.
    pub smallest: bool,
}

impl Knee {
    /// `between 512 and 1024 ranks` or `at or below 65536 ranks`; `ranks` formats the counts.
    pub(crate) fn place(&self, ranks: impl Fn(u64) -> String) -> String {
        match self.above {
            Some(above) => format!("between {} and {} ranks", ranks(above), ranks(self.ranks)),
            None if self.ranks == 1 => "at a single rank".to_owned(),
            None => format!("at or below {} ranks", ranks(self.ranks)),
        }
    }

    /// The same as a sentence with its evidence, uncapitalised.
    pub(crate) fn sentence(&self, ranks: impl Fn(u64) -> String) -> String {
        let at = ranks(self.ranks);
        let from = match (self.above, self.smallest) {
            (None, true) => format!("at {at} (the smallest simulated) and above,"),
            _ => format!("at {at} and above,"),
        };
        let unknown = match (self.above, self.smallest) {
            (None, false) => " (too few runs to tell for fewer ranks)",
            _ => "",
        };
        format!(
            "noise takes over {}: {from} the median is more than 10 % above the noiseless \
             time{unknown}.",
            self.place(ranks)
        )
    }
}

/// Shown if no knee was found.
pub(crate) const NO_KNEE: &str = "the median stays within 10 % of the noiseless time (or there are \
                                  too few runs to tell).";

/// The table, followed by the knee of each series.
pub fn slowdown(
    rows: &[SlowdownRow],
    knees: &[(String, Option<Knee>)],
    options: Options,
) -> String {
    let style = options.style();
    let several = rows.iter().any(|row| !row.series.is_empty());
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
    for row in rows {
        let mut cells = if several { vec![row.series.clone()] } else { Vec::new() };
        cells.extend([
            row.ranks.to_string(),
            figure(row.noiseless),
            figure(row.min),
            figure(row.q25),
            figure(row.median),
            format!("{} to {}", figure(row.median_between.0), figure(row.median_between.1)),
            figure(row.q75),
            figure(row.p99),
            figure(row.max),
            // A single rank waits for nothing and takes no time.
            if row.noiseless > 0.0 {
                format!("{:.2}", row.median / row.noiseless)
            } else {
                "1.00".to_owned()
            },
        ]);
        grid.row(Tone::Plain, cells);
    }
    let mut text = grid.render(style) + "\n";
    for (series, knee) in knees {
        let which = if series.is_empty() { String::new() } else { format!("{series}: ") };
        let said = knee.map_or_else(|| NO_KNEE.to_owned(), |knee| knee.sentence(|n| n.to_string()));
        text += &format!("\n{}\n", wrap(&format!("{which}{said}"), style.width, ""));
    }
    text
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
