//! Table of simulated all-to-alls: how long processors wait for each other, by rank count.

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, percent, time},
};

/// One point, times in microseconds. Idle times are those of processor 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlltoallRow {
    pub ranks: u64,
    pub idle_zero_pct: f64,
    pub idle_mean: f64,
    pub idle_p99: f64,
    pub idle_max: f64,
    pub total_mean: f64,
    pub total_p99: f64,
    pub relative_throughput: f64,
    /// None if the message size is unknown.
    pub throughput_mb_s: Option<f64>,
}

#[must_use]
pub fn alltoall(rows: &[AlltoallRow], options: Options) -> String {
    let us = |us: f64| time(us * 1e3);
    let mut grid = Grid::new(vec![
        Column::number("ranks"),
        Column::number("never idle"),
        Column::number("idle mean"),
        Column::number("p99").expendable(1),
        Column::number("max").expendable(2),
        Column::number("total mean"),
        Column::number("p99").expendable(3),
        Column::number("rel. throughput"),
        Column::number("MB/s"),
    ]);
    for row in rows {
        grid.row(
            Tone::Plain,
            vec![
                count(row.ranks),
                percent(row.idle_zero_pct),
                us(row.idle_mean),
                us(row.idle_p99),
                us(row.idle_max),
                us(row.total_mean),
                us(row.total_p99),
                format!("{:.4}", row.relative_throughput),
                row.throughput_mb_s.map(|rate| format!("{rate:.3}")).unwrap_or_default(),
            ],
        );
    }
    grid.render(options.style()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throughput_is_shown_where_it_is_known() {
        let row = AlltoallRow {
            ranks: 32,
            idle_zero_pct: 1.5,
            idle_mean: 120.0,
            idle_p99: 800.0,
            idle_max: 2_100.0,
            total_mean: 5_500.0,
            total_p99: 7_000.0,
            relative_throughput: 0.951,
            throughput_mb_s: None,
        };
        let text = alltoall(&[row], Options::default());
        assert!(text.contains("0.9510") && text.contains("5.50 ms"), "{text}");
        assert!(!text.contains("MB/s"), "{text}");
        let known = AlltoallRow { throughput_mb_s: Some(38.97), ..row };
        assert!(alltoall(&[known], Options::default()).contains("38.970"));
    }
}
