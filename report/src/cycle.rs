//! Table of simulated cycles: what noise costs a butterfly allreduce, and what redundant exchanges
//! recover.

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, time},
};

/// One point, mean times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CycleRow {
    pub ranks: u64,
    pub noiseless: f64,
    pub conventional: f64,
    pub redundant: f64,
    /// None if noise costs nothing.
    pub recovery: Option<f64>,
    /// Half width of its 95 % interval; None for a single run.
    pub recovery_half_width: Option<f64>,
}

#[must_use]
pub fn cycle(rows: &[CycleRow], options: Options) -> String {
    let us = |us: f64| time(us * 1e3);
    let mut grid = Grid::new(vec![
        Column::number("ranks"),
        Column::number("noiseless"),
        Column::number("conventional"),
        Column::number("redundant"),
        Column::number("recovery"),
        Column::number("95 % interval").expendable(1),
    ]);
    for row in rows {
        let interval = row.recovery.zip(row.recovery_half_width);
        grid.row(
            Tone::Plain,
            vec![
                count(row.ranks),
                us(row.noiseless),
                us(row.conventional),
                us(row.redundant),
                row.recovery.map_or("-".to_owned(), |recovery| format!("{recovery:.3}")),
                interval.map_or("-".to_owned(), |(recovery, half)| {
                    format!("{:.3} to {:.3}", recovery - half, recovery + half)
                }),
            ],
        );
    }
    grid.render(options.style()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_that_is_not_there_is_a_dash() {
        let row = CycleRow {
            ranks: 1 << 16,
            noiseless: 160.0,
            conventional: 1_500.0,
            redundant: 1_000.0,
            recovery: Some(0.373),
            recovery_half_width: Some(0.01),
        };
        let text = cycle(&[row], Options::default());
        assert!(text.contains("0.373") && text.contains("0.363 to 0.383"), "{text}");
        let none = CycleRow { recovery: None, ..row };
        assert!(cycle(&[none], Options::default()).trim_end().ends_with('-'));
    }
}
