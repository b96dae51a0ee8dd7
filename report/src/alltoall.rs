//! Table of simulated all-to-alls: how long processors wait for each other, by rank count.

use study::jobs::alltoall::Alltoalls;

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, percent, time},
};

#[must_use]
pub fn alltoall(results: &Alltoalls, options: Options) -> String {
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
    for row in &results.points {
        grid.row(
            Tone::Plain,
            vec![
                count(row.ranks),
                percent(row.idle_zero_pct),
                us(row.idle_mean_us),
                us(row.idle_p99_us),
                us(row.idle_max_us),
                us(row.total_mean_us),
                us(row.total_p99_us),
                format!("{:.4}", row.relative_throughput),
                row.throughput_mb_s.flatten().map(|rate| format!("{rate:.3}")).unwrap_or_default(),
            ],
        );
    }
    let mut text = grid.render(options.style()) + "\n";
    for point in &results.points {
        if let (Some(distance), Some(mean)) = (point.ks_distance, point.measured_mean_us) {
            text += &format!(
                "measured: total mean {}; Kolmogorov-Smirnov distance of the totals {distance:.3}\n",
                us(mean)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    use study::jobs::alltoall::Point;

    #[test]
    fn a_throughput_is_shown_where_it_is_known() {
        let point = Point {
            ranks: 32,
            samples: 1000,
            idle_zero_pct: 1.5,
            idle_mean_us: 120.0,
            idle_p99_us: 800.0,
            idle_max_us: 2_100.0,
            total_mean_us: 5_500.0,
            total_p99_us: 7_000.0,
            relative_throughput: 0.951,
            ..Point::default()
        };
        let results = |point| Alltoalls { points: vec![point], ..Alltoalls::default() };
        let text = alltoall(&results(point.clone()), Options::default());
        assert!(text.contains("0.9510") && text.contains("5.50 ms"), "{text}");
        assert!(!text.contains("MB/s"), "{text}");
        let known = Point { throughput_mb_s: Some(Some(38.97)), ..point };
        assert!(alltoall(&results(known.clone()), Options::default()).contains("38.970"));
        let measured = Point { ks_distance: Some(0.123), measured_mean_us: Some(5_600.0), ..known };
        let text = alltoall(&results(measured), Options::default());
        assert!(
            text.contains("5.60 ms; Kolmogorov-Smirnov distance of the totals 0.123"),
            "{text}"
        );
    }
}
