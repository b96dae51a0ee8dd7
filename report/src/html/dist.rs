//! Distributions as one self-contained page: density, cumulative share and tail of all files on common axes, then
//! the tables of the text.

use std::path::Path;

use analysis::words::shell_quoted;
use askama::Template;
use study::dist::{BinCount, Distribution, Distributions, Request, Sample};

use super::{
    SCRIPT, SCRIPT_SHA256, STYLE,
    commands::Command,
    legend::Key,
    plot::{HALF, Plot, WIDE},
    scale::{Scale, Unit},
    shapes::{Curve, thinned},
    tables::{LINES, NAME, ROWS, limited, micro},
};
use crate::{
    dist::{Labels, column, number, p_value, parameters, quantile_label, signed, verdict},
    words::{capital, count, cut, percent},
};

#[derive(Template)]
#[template(path = "dist.html")]
struct Page {
    style: &'static str,
    script: &'static str,
    script_sha256: &'static str,
    title: String,
    headline: String,
    /// Sentences about the other comparisons.
    verdict: Vec<String>,
    keys: Vec<Key>,
    /// Distributions without a colour.
    not_drawn: usize,
    figures: Option<Figures>,
    rows: Vec<Vec<String>>,
    quantiles: Vec<Vec<String>>,
    modes: Vec<Vec<String>>,
    fits: Vec<Vec<String>>,
    tails: Vec<Vec<String>>,
    shifts: Vec<Vec<String>>,
    first: String,
    notes: Vec<String>,
    commands: Vec<Command>,
}

/// Colours.
const SERIES: usize = 7;
const HEIGHT: f64 = 320.0;
/// The body extends this many times the distance from the 10th to the 90th percentile above the median.
const BODY: f64 = 6.0;
/// Bins of a density, unless the command line names some.
const BINS: usize = 160;

/// The page.
///
/// # Errors
/// Never in practice: writing to a string cannot fail.
pub fn dist_html(
    result: &Distributions,
    request: &Request,
    page: &Path,
) -> Result<String, std::fmt::Error> {
    let line = request.command(result.seed);
    let target = shell_quoted(&page.display().to_string());
    let labels = Labels::of(result);
    let name = |text: &str| cut(&labels.whole(text), NAME);
    let drawn = &result.files[..result.files.len().min(SERIES)];
    let keys: Vec<Key> = drawn
        .iter()
        .enumerate()
        .map(|(number, file)| Key { class: format!("s{number}"), name: name(&file.name) })
        .collect();
    let mut said = verdict(result).into_iter().map(|text| micro(&limited(&text)));
    let (headline, rest) = parted(&said.next().unwrap_or_default());
    let page = Page {
        style: STYLE,
        script: SCRIPT,
        script_sha256: SCRIPT_SHA256,
        title: match drawn {
            [only] => name(&only.name),
            _ => format!("{} distributions", result.files.len()),
        },
        headline,
        verdict: rest.into_iter().chain(said).take(LINES).collect(),
        figures: figures(drawn, &keys),
        not_drawn: result.files.len() - drawn.len(),
        rows: result.files.iter().take(ROWS).map(|file| row(file, name(&file.name))).collect(),
        quantiles: result
            .files
            .iter()
            .take(ROWS)
            .map(|file| {
                let q = &file.quantiles;
                let values = [
                    q.p1, q.p5, q.p10, q.p25, q.p50, q.p75, q.p90, q.p95, q.p99, q.p99_9, q.p99_99,
                ];
                std::iter::once(name(&file.name)).chain(values.map(micro_column)).collect()
            })
            .collect(),
        modes: each(result, |file, rows| {
            rows.extend(file.modes.iter().map(|mode| {
                let [low, high] = mode.share_ci95.map(|share| percent(100.0 * share));
                let ends = |[low, high]: [f64; 2]| {
                    format!("{} to {}", micro_column(low), micro_column(high))
                };
                vec![
                    name(&file.name),
                    micro_column(mode.at),
                    ends(mode.ci95),
                    percent(100.0 * mode.share),
                    format!("{low} to {high}"),
                    ends([mode.from, mode.to]),
                ]
            }));
        }),
        fits: each(result, |file, rows| {
            rows.extend(file.fits.iter().flatten().map(|fit| {
                vec![
                    name(&file.name),
                    fit.family.to_owned(),
                    number(fit.ks_distance),
                    p_value(fit.p_value),
                    fit.verdict.to_owned(),
                    spaced(&parameters(fit)),
                ]
            }));
        }),
        tails: each(result, |file, rows| {
            rows.extend(file.tail.iter().map(|tail| {
                vec![
                    name(&file.name),
                    micro_column(tail.threshold),
                    count(tail.n),
                    number(tail.shape),
                    micro_column(tail.scale),
                    number(tail.ks_distance),
                    p_value(tail.p_value),
                ]
            }));
        }),
        shifts: result
            .shifts
            .iter()
            .flat_map(|comparison| {
                comparison.quantiles.iter().map(|shift| {
                    vec![
                        name(&comparison.second),
                        quantile_label(shift.p),
                        micro_column(shift.first),
                        micro_column(shift.second),
                        spaced(&signed(shift.shift)),
                        spaced(&format!("{} to {}", signed(shift.ci95[0]), signed(shift.ci95[1]))),
                        if shift.differs { "yes" } else { "" }.to_owned(),
                    ]
                })
            })
            .take(ROWS)
            .collect(),
        first: result.files.first().map_or_else(String::new, |file| name(&file.name)),
        notes: crate::dist::notes(result)
            .iter()
            .take(LINES)
            .map(|line| micro(&limited(line)))
            .collect(),
        keys,
        commands: vec![
            Command::new("This page", format!("{line} --html {target}")).limited(),
            Command::new("The tables in a terminal", format!("{line} --all")).limited(),
        ],
    };
    page.render().map_err(|_| std::fmt::Error)
}

/// The most important finding of a sentence, and the others.
fn parted(said: &str) -> (String, Option<String>) {
    match said.split_once("; ") {
        Some((first, rest)) => (format!("{first}."), Some(capital(rest))),
        None => (said.to_owned(), None),
    }
}

fn micro_column(us: f64) -> String {
    spaced(&column(us))
}

/// `5.7us` of a column becomes `5.7 µs`.
fn spaced(text: &str) -> String {
    let mut apart = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if matches!(c, 'n' | 'u' | 'm' | 's') && apart.ends_with(|c: char| c.is_ascii_digit()) {
            apart.push(' ');
        }
        apart.push(c);
    }
    micro(&apart)
}

fn each(
    result: &Distributions,
    rows_of: impl Fn(&Distribution, &mut Vec<Vec<String>>),
) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    result.files.iter().for_each(|file| rows_of(file, &mut rows));
    rows.truncate(ROWS);
    rows
}

fn row(file: &Distribution, name: String) -> Vec<String> {
    vec![
        name,
        count(file.n),
        micro_column(file.min),
        micro_column(file.mean),
        micro_column(file.mode),
        micro_column(file.sd),
        file.cv.map_or_else(|| "-".to_owned(), number),
        number(file.skewness),
        number(file.kurtosis),
        micro_column(file.about_min.sd),
        number(file.about_min.skewness),
        number(file.about_min.kurtosis),
        micro_column(file.max),
    ]
}

/// Density, cumulative share and tail.
struct Figures {
    density: String,
    density_note: String,
    cumulative: String,
    tail: String,
    /// If values are shown relative to the smallest one.
    relative: Option<String>,
}

/// The values of the axes, in ns.
struct Axes {
    /// Subtracted from all values, if they hardly differ from it.
    from: f64,
    body: Scale,
    tail: Scale,
}

fn ns(ps: f64) -> f64 {
    ps / 1e3
}

impl Axes {
    fn of(files: &[Distribution]) -> Option<Axes> {
        let samples = || files.iter().map(|file| &file.sample);
        let low = samples().map(|sample| ns(sample.min as f64)).fold(f64::INFINITY, f64::min);
        // A long tail would leave no room for the body.
        let body_end = |sample: &Sample| {
            let [p10, p50, p90] = [0.1, 0.5, 0.9].map(|p| sample.quantile(p));
            let wide = if p90 > p10 { p50 + BODY * (p90 - p10) } else { f64::INFINITY };
            ns(wide.min(sample.quantile(0.999)))
        };
        let high = samples().map(body_end).fold(0.0, f64::max);
        if !low.is_finite() {
            return None;
        }
        let from = if high - low < 0.05 * low { low } else { 0.0 };
        let (low, high) = (low - from, (high - from).max(low - from));
        // Tails over more than a decade need a logarithmic axis.
        let body = match low > 0.0 && high > 12.0 * low {
            true => Scale::log(low, high, Unit::Nanoseconds),
            false => {
                let margin = 0.02 * (high - low);
                Scale::linear((low - margin).max(0.0), high + margin, Unit::Nanoseconds)
            }
        };
        let ends = samples().flat_map(|sample| [sample.min, sample.max]);
        let tail = Scale::decades(ends.map(|ps| ns(ps as f64) - from), Unit::Nanoseconds);
        Some(Axes { from, body, tail: tail.unwrap_or(body) })
    }
}

fn figures(files: &[Distribution], keys: &[Key]) -> Option<Figures> {
    let axes = Axes::of(files)?;
    let x_title = if axes.from > 0.0 { "above the smallest" } else { "value" };
    let given = files.iter().any(|file| file.bins.is_some());
    let densities: Vec<Curve> = files
        .iter()
        .map(|file| match &file.bins {
            Some(bins) => given_density(bins, file.n, &axes),
            None => density(&file.sample, &axes),
        })
        .collect();
    let highest = densities.iter().flatten().map(|point| point.1).fold(0.0, f64::max);
    let (unit, y_title) = match given {
        true => (Unit::Plain, "share per us"),
        false => (Unit::Share, "share per bin"),
    };
    let y = Scale::linear(0.0, highest * 1.05, unit);
    let mut pdf = Plot::new("pdf", "Density of the samples", (WIDE, HEIGHT), axes.body, y)
        .titles(x_title, y_title);
    let y = Scale::linear(0.0, 1.0, Unit::Share);
    let half = (HALF, HEIGHT);
    let mut cdf = Plot::new("cdf", "Cumulative distribution of the samples", half, axes.body, y)
        .titles(x_title, "share at most as large");
    let rarest = files.iter().map(|file| 1.0 / file.n.max(1) as f64);
    let y = Scale::decades(rarest.chain([1.0]), Unit::Share)?;
    let mut tail = Plot::new("tail", "Tail of the samples", half, axes.tail, y)
        .titles(x_title, "share at least as large");
    for ((file, key), points) in files.iter().zip(keys).zip(&densities) {
        pdf.line(&key.class, &key.name, points);
        let (below, beyond) = steps(&file.sample, axes.from);
        cdf.line(&key.class, &key.name, &thinned(&cdf, below));
        tail.line(&key.class, &key.name, &thinned(&tail, beyond));
    }
    let density_note = match given {
        true => "In the bins of --bins.".to_owned(),
        false => format!(
            "In {BINS} bins of equal {}; larger values are in the tail only.",
            if axes.body.log { "ratio" } else { "width" }
        ),
    };
    Some(Figures {
        density: pdf.finish(),
        density_note,
        cumulative: cdf.finish(),
        tail: tail.finish(),
        relative: (axes.from > 0.0).then(|| micro_column(axes.from / 1e3)),
    })
}

/// Share of the samples in bins that are equally wide on the axis.
fn density(sample: &Sample, axes: &Axes) -> Curve {
    let Scale { log, from, to, .. } = axes.body;
    let edge = |number: usize| {
        let share = number as f64 / BINS as f64;
        if log { from * (to / from).powf(share) } else { from + (to - from) * share }
    };
    let below = |number: usize| sample.below((edge(number) + axes.from) * 1e3);
    let n = sample.n() as f64;
    (0..BINS)
        .map(|bin| {
            let middle = match log {
                true => (edge(bin) * edge(bin + 1)).sqrt(),
                false => (edge(bin) + edge(bin + 1)) / 2.0,
            };
            (middle, (below(bin + 1) - below(bin)).max(0.0) / n)
        })
        .collect()
}

/// Share per us in the bins of the command line, as an outline.
fn given_density(bins: &[BinCount], n: u64, axes: &Axes) -> Curve {
    let mut outline = Curve::new();
    let mut last = f64::NEG_INFINITY;
    for &BinCount { from, to, count } in bins {
        let (left, right) = (from * 1e3 - axes.from, to * 1e3 - axes.from);
        // Nothing is in between.
        if last.is_finite() && left > last {
            outline.extend([(last, 0.0), (left, 0.0)]);
        }
        let height = count as f64 / n as f64 / (to - from).max(1e-9);
        outline.extend([(left, height), (right, height)]);
        last = right;
        if right > axes.body.to {
            break;
        }
    }
    // What is beyond one line of the figure cannot be seen.
    const MOST: usize = 20_000;
    let every = outline.len().div_ceil(MOST).max(1);
    outline.into_iter().step_by(every).collect()
}

/// Share of the samples at most, and at least, as large as each value.
fn steps(sample: &Sample, from: f64) -> (Curve, Curve) {
    let n = sample.n() as f64;
    let (mut seen, mut below, mut beyond) = (0u64, Vec::new(), Vec::new());
    for atom in sample.atoms() {
        let x = ns(atom.value() as f64) - from;
        below.push((x, seen as f64 / n));
        beyond.push((x, (n - seen as f64) / n));
        seen += atom.count;
        below.push((x, seen as f64 / n));
    }
    (below, beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_density_sum_to_what_is_shown() {
        let values: Vec<i64> = (0..10_000).map(|i| 4_000_000 + 300 * i).collect();
        let sample = Sample::of_values(&values, 1).unwrap();
        let scale = |log: bool| match log {
            true => Scale::log(3_000.0, 8_000.0, Unit::Nanoseconds),
            false => Scale::linear(3_000.0, 8_000.0, Unit::Nanoseconds),
        };
        for log in [true, false] {
            let axes = Axes { from: 0.0, body: scale(log), tail: scale(log) };
            let sum: f64 = density(&sample, &axes).iter().map(|point| point.1).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        }
        let (below, beyond) = steps(&sample, 0.0);
        assert_eq!((beyond[0].1, below[below.len() - 1].1), (1.0, 1.0));
    }

    #[test]
    fn units_are_apart_from_their_numbers() {
        assert_eq!(spaced("from 4.2us, shape 1.0e-5"), "from 4.2\u{a0}µs, shape 1.0e-5");
        assert_eq!(spaced("-400ns to +1.5ms"), "-400\u{a0}ns to +1.5\u{a0}ms");
    }

    #[test]
    fn the_area_of_given_bins_is_one() {
        let axis = Scale::linear(0.0, 1e9, Unit::Nanoseconds);
        let axes = Axes { from: 0.0, body: axis, tail: axis };
        let bins =
            [(1.0, 2.0, 3), (4.0, 6.0, 1)].map(|(from, to, count)| BinCount { from, to, count });
        let outline = given_density(&bins, 4, &axes);
        let area: f64 =
            outline.windows(2).map(|p| (p[1].0 - p[0].0) / 1e3 * (p[0].1 + p[1].1) / 2.0).sum();
        assert!((area - 1.0).abs() < 1e-9, "{outline:?}");
    }
}
