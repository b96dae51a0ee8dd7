//! The figures of simulated exchanges between two nodes.

use study::jobs::exchange::Exchanges;

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, percent, time},
};

/// The table, followed by an explanation of the results.
#[must_use]
pub fn exchange(results: &Exchanges, options: Options) -> String {
    let us = |us: f64| time(us * 1e3);
    let mut grid = Grid::new(vec![
        Column::number("samples").expendable(2),
        Column::number("mean"),
        Column::number("sd"),
        Column::number("min").expendable(3),
        Column::number("q25").expendable(1),
        Column::number("median"),
        Column::number("q75").expendable(1),
        Column::number("p99"),
        Column::number("max"),
        Column::number("skewness").expendable(4),
        Column::number("autocorrelation").expendable(5),
    ]);
    let cells = vec![
        count(results.samples),
        us(results.mean_us),
        us(results.sd_us),
        us(results.min_us),
        us(results.q25_us),
        us(results.median_us),
        us(results.q75_us),
        us(results.p99_us),
        us(results.max_us),
        format!("{:.2}", results.skewness),
        format!("{:.3}", results.autocorrelation),
    ];
    grid.row(Tone::Plain, cells);
    let mut text = grid.render(options.style()) + "\n";
    let uninterrupted = results.about.uninterrupted_mean_us;
    if uninterrupted > 0.0 && results.about.noise != "none" {
        let added = 100.0 * (results.mean_us / uninterrupted - 1.0);
        text += &format!(
            "\nAn uninterrupted exchange takes {} on average; interruptions add {}.\n",
            us(uninterrupted),
            percent(added)
        );
    }
    if let Some(distance) = results.ks_distance {
        text += &format!(
            "\nKolmogorov-Smirnov distance to the measured distribution: {distance:.4}.\n"
        );
    }
    text
}
