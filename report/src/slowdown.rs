//! Table of a sweep: how long a collective takes with and without noise, by rank count.

use simulate::stats::{KNEE_RATIO, Knee};
use study::{
    jobs::collective::{SeriesKnee, Sweep},
    run::point::{FEWEST_FOR_INTERVAL, Point, Series},
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

/// What takes over in the sentences about these series, by `noise` of their sweep: without any, only the latencies of
/// messages vary.
pub(crate) fn varies(noise: &str, series: &Series) -> &'static str {
    match series.noise.as_deref().unwrap_or(noise) {
        "none" => "variation of the network",
        _ => "noise",
    }
}

/// The same as a sentence with its evidence, uncapitalised.
fn knee_sentence(knee: &Knee, what: &str, ranks: impl Fn(u64) -> String) -> String {
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
        "{what} takes over {}: {from} the median is more than 10 % above the noiseless time{unknown}.",
        knee_place(knee, ranks)
    )
}

/// Where [`varies`] takes over in these points of one series, as a sentence, uncapitalised.
pub(crate) fn knee_or_none<'a>(
    knee: Option<&Knee>,
    what: &str,
    points: impl IntoIterator<Item = &'a Point>,
    ranks: impl Fn(u64) -> String,
) -> String {
    match knee {
        Some(knee) => knee_sentence(knee, what, ranks),
        None => no_knee(points, what, ranks),
    }
}

/// What is known of the points of a series without a knee. At the largest rank count, the median is not certainly off
/// the noiseless line.
fn no_knee<'a>(
    points: impl IntoIterator<Item = &'a Point>,
    what: &str,
    ranks: impl Fn(u64) -> String,
) -> String {
    let mut points: Vec<&Point> = points.into_iter().collect();
    points.sort_by_key(|point| point.ranks);
    if points.iter().any(|point| !point.has_interval()) {
        return few_runs(what);
    }
    let limit = |point: &Point| KNEE_RATIO * point.noiseless_us;
    let within = |point: &&&Point| point.median_high_us <= limit(point);
    let Some(other) = points.iter().rev().find(|point| !within(point)) else {
        return "the median stays within 10 % of the noiseless time.".to_owned();
    };
    let at = ranks(other.ranks);
    let largest = points.last().filter(within).map(|point| ranks(point.ranks));
    match (largest, other.median_low_us > limit(other)) {
        (Some(largest), true) => {
            format!(
                "the median is more than 10 % above the noiseless time at {at} ranks, but not at {largest}."
            )
        }
        (Some(largest), false) => format!(
            "the median is within 10 % of the noiseless time at {largest} ranks; too few runs to tell at {at}."
        ),
        (None, _) => format!(
            "too few runs to tell where {what} takes over: at {at} ranks, the 95 % interval of the median includes \
             10 % above the noiseless time."
        ),
    }
}

fn few_runs(what: &str) -> String {
    format!(
        "fewer than {FEWEST_FOR_INTERVAL} runs have no 95 % confidence interval, and cannot tell where {what} \
         takes over: specify more with --runs."
    )
}

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
    let text = match sweep.is_noisy() {
        true => findings(&sweep.about.noise, &sweep.knees, &sweep.points, options),
        false => String::new(),
    };
    match blame_sweep(sweep, options) {
        Some(blame) => format!("{text}\n{blame}"),
        None => text,
    }
}

/// The knee of each series, as a paragraph each, or as one if they say the same.
pub(crate) fn findings(
    noise: &str,
    knees: &[SeriesKnee],
    points: &[Point],
    options: Options,
) -> String {
    let said = |SeriesKnee { series, knee }: &SeriesKnee| {
        let own = points.iter().filter(|point| point.series == *series);
        knee_or_none(knee.knee.as_ref(), varies(noise, series), own, |n| n.to_string())
    };
    let all: Vec<String> = knees.iter().map(said).collect();
    let alike = all.windows(2).all(|pair| pair[0] == pair[1]);
    let few = knees.first().map(|knee| few_runs(varies(noise, &knee.series)));
    let paragraphs: Vec<String> = match &all[..] {
        [first] => vec![first.clone()],
        [first, ..] if alike && Some(first) == few.as_ref() => vec![first.clone()],
        [first, ..] if alike => vec![format!("all series: {first}")],
        _ => {
            let of = knees.iter().zip(&all);
            of.map(|(knee, said)| format!("{}: {said}", knee.series.label())).collect()
        }
    };
    let paragraph = |text: &String| format!("\n{}\n", wrap(text, options.style().width, ""));
    paragraphs.iter().map(paragraph).collect()
}

#[cfg(test)]
mod tests {
    use simulate::stats;
    use study::run::point::Runs;

    use super::*;

    /// A noiseless time of 100 us, and runs that take these times, 10 each.
    fn point(ranks: u64, times_us: &[i64]) -> Point {
        let times_ps: Vec<i64> =
            times_us.iter().flat_map(|us| std::iter::repeat_n(us * 1_000_000, 10)).collect();
        let series = study::run::point::Series { net_scale: 1.0, ..Default::default() };
        let noiseless_ps = 100_000_000;
        Point::of(&Runs { series, ranks, messages: 1, noiseless_ps, times_ps, took_s: 1.0 })
            .unwrap()
    }

    fn said(points: &[Point]) -> String {
        let knee = stats::knee(&points.iter().map(Point::for_knee).collect::<Vec<_>>());
        knee_or_none(knee.as_ref(), "noise", points, |ranks| ranks.to_string())
    }

    #[test]
    fn without_noise_the_variation_of_the_network_takes_over() {
        let points = [point(2, &[101, 109]), point(4, &[120, 130])];
        let knee = stats::knee(&points.iter().map(Point::for_knee).collect::<Vec<_>>());
        let knee = study::jobs::collective::KneeKeys { knee, ..Default::default() };
        let said = |noise: &str, of_series: Option<&str>| {
            let series = Series { noise: of_series.map(str::to_owned), ..points[0].series.clone() };
            let points = points.clone().map(|point| Point { series: series.clone(), ..point });
            findings(noise, &[SeriesKnee { series, knee }], &points, Options::default())
        };
        let network = "\nvariation of the network takes over between 2 and 4 ranks";
        assert!(said("none", None).starts_with(network), "{}", said("none", None));
        assert!(said("none|periodic:1kHz,10us", Some("none")).starts_with(network));
        for (noise, of_series) in
            [("periodic:1kHz,10us", None), ("none|periodic:1kHz,10us", Some("periodic:1kHz,10us"))]
        {
            assert!(said(noise, of_series).starts_with("\nnoise takes over between 2 and 4 ranks"));
        }
    }

    #[test]
    fn what_is_said_without_a_knee_is_what_is_known() {
        let (near, far, either) = ([101, 109], [120, 130], [105, 120]);
        assert_eq!(
            said(&[point(2, &near), point(4, &near)]),
            "the median stays within 10 % of the noiseless time."
        );
        let text = said(&[point(2, &near), point(4, &far), point(8, &near)]);
        assert!(text.contains("above the noiseless time at 4 ranks, but not at 8."), "{text}");
        let text = said(&[point(8, &near), point(4, &either)]);
        assert!(text.contains("at 8 ranks; too few runs to tell at 4."), "{text}");
        let text = said(&[point(2, &far), point(4, &either)]);
        assert!(
            text.starts_with("too few runs to tell where noise takes over: at 4 ranks"),
            "{text}"
        );
        assert!(said(&[point(2, &near), point(4, &far)]).starts_with("noise takes over between 2"));
        assert!(said(&[Point { runs: 5, ..point(2, &far) }]).starts_with("fewer than 6 runs"));
    }
}
