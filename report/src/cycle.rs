//! Table of simulated cycles: what noise costs a butterfly allreduce, and what redundant exchanges
//! recover.

use study::jobs::cycle::Cycles;

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, time},
};

#[must_use]
pub fn cycle(results: &Cycles, options: Options) -> String {
    let us = |us: f64| time(us * 1e3);
    let several = results.points.iter().any(|row| row.cycles != results.about.cycles);
    let noises = results.points.iter().any(|row| row.noise.is_some());
    let mut columns = Vec::new();
    if noises {
        columns.push(Column::text("noise", 24));
    }
    columns.push(Column::number("ranks"));
    if several {
        columns.push(Column::number("cycles"));
    }
    columns.extend([
        Column::number("noiseless"),
        Column::number("conventional"),
        Column::number("redundant"),
        Column::number("overhead").expendable(2),
        Column::number("with redundancy").expendable(3),
        Column::number("recovery"),
        Column::number("95 % interval").expendable(1),
    ]);
    let mut grid = Grid::new(columns);
    for row in &results.points {
        let mut cells = Vec::new();
        if noises {
            cells.push(row.noise.clone().unwrap_or_default());
        }
        cells.push(count(row.ranks));
        if several {
            cells.push(count(u64::from(row.cycles)));
        }
        cells.extend([
            us(row.noiseless_us),
            us(row.conventional_us),
            us(row.redundant_us),
            us(row.conventional_overhead_us),
            us(row.redundant_overhead_us),
            row.recovery.map_or("-".to_owned(), |recovery| format!("{recovery:.3}")),
            row.recovery_ci95
                .map_or("-".to_owned(), |[low, high]| format!("{low:.3} to {high:.3}")),
        ]);
        grid.row(Tone::Plain, cells);
    }
    grid.render(options.style()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    use study::jobs::cycle::Point;

    #[test]
    fn a_recovery_that_is_not_there_is_a_dash() {
        let point = Point {
            ranks: 1 << 16,
            noiseless_us: 160.0,
            conventional_us: 1_500.0,
            redundant_us: 1_000.0,
            recovery: Some(0.373),
            recovery_ci95: Some([0.363, 0.383]),
            ..Point::default()
        };
        let results = |point| Cycles { points: vec![point], ..Cycles::default() };
        let text = cycle(&results(point.clone()), Options::default());
        assert!(text.contains("0.373") && text.contains("0.363 to 0.383"), "{text}");
        let none = Point { recovery: None, recovery_ci95: None, ..point };
        assert!(cycle(&results(none), Options::default()).trim_end().ends_with('-'));
    }
}
