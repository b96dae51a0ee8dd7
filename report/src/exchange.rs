//! The figures of simulated exchanges between two nodes.

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, percent, time},
};

/// Times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExchangeFigures {
    pub samples: u64,
    /// Mean of an uninterrupted exchange.
    pub uninterrupted: f64,
    pub mean: f64,
    pub sd: f64,
    pub min: f64,
    pub q25: f64,
    pub median: f64,
    pub q75: f64,
    pub p99: f64,
    pub max: f64,
    pub skewness: f64,
    /// Between successive exchanges of the same pair.
    pub autocorrelation: f64,
    /// Distance to measured exchanges, if any.
    pub ks_distance: Option<f64>,
}

/// The table, followed by an explanation of the figures.
#[must_use]
pub fn exchange(figures: &ExchangeFigures, options: Options) -> String {
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
        count(figures.samples),
        us(figures.mean),
        us(figures.sd),
        us(figures.min),
        us(figures.q25),
        us(figures.median),
        us(figures.q75),
        us(figures.p99),
        us(figures.max),
        format!("{:.2}", figures.skewness),
        format!("{:.3}", figures.autocorrelation),
    ];
    grid.row(Tone::Plain, cells);
    let mut text = grid.render(options.style()) + "\n";
    if figures.uninterrupted > 0.0 {
        let added = 100.0 * (figures.mean / figures.uninterrupted - 1.0);
        text += &format!(
            "\nAn uninterrupted exchange takes {} on average; interruptions add {}.\n",
            us(figures.uninterrupted),
            percent(added)
        );
    }
    if let Some(distance) = figures.ks_distance {
        text += &format!(
            "\nKolmogorov-Smirnov distance to the measured distribution: {distance:.4}.\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_look_like_this() {
        let figures = ExchangeFigures {
            samples: 100_000,
            uninterrupted: 150.0,
            mean: 173.0,
            sd: 58.0,
            min: 150.0,
            q25: 150.0,
            median: 151.0,
            q75: 180.0,
            p99: 420.0,
            max: 1_210.0,
            skewness: 3.1,
            autocorrelation: -0.02,
            ks_distance: Some(0.125),
        };
        let text = exchange(&figures, Options::default());
        assert!(text.contains("173 us") && text.contains("1.21 ms"), "{text}");
        assert!(text.contains("interruptions add 15.3%"), "{text}");
        assert!(text.contains("0.1250"), "{text}");
        let quiet = ExchangeFigures { uninterrupted: 0.0, ks_distance: None, ..figures };
        assert_eq!(exchange(&quiet, Options::default()).lines().count(), 2);
    }
}
