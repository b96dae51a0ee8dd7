//! The table of a sweep: how long a collective takes with and without noise, by rank count.

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::count,
};

/// One point of a sweep, times in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowdownRow {
    /// What sets this series apart from the others of the sweep; empty when there is one only.
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

/// The table, and under it where noise takes over, series by series.
pub fn slowdown(rows: &[SlowdownRow], knees: &[(String, Option<u64>)], options: Options) -> String {
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
            // One rank has nothing to wait for, and takes no time.
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
        text += &match knee {
            Some(ranks) => format!(
                "\n{which}noise takes over at {} ranks: from there on the median is more than a \
                 tenth above the noiseless time.\n",
                count(*ranks)
            ),
            None => format!(
                "\n{which}the median stays within a tenth of the noiseless time (or the runs are too \
                 few to say otherwise).\n"
            ),
        };
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
