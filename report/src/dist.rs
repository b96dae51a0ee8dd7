//! Distributions as text: what a person would say about them, then tables.

use study::dist::{ChangeKind, Comparison, Distribution, Distributions, Finding, Fit, FoundMode};

use crate::{
    Options,
    grid::{Column, Grid, Style, Tone},
    words::{capital, count, cut, percent, percent_said, plural, precise, safe, wrap},
};

/// Characters of a name in a sentence.
const NAME: usize = 60;
/// Modes in a sentence, of one distribution and of a comparison.
const MODES: usize = 6;
const CHANGED: usize = 3;
/// Sentences about single distributions.
const SENTENCES: usize = 4;

/// All distributions as text.
#[must_use]
pub fn dist(result: &Distributions, options: Options) -> String {
    let style = options.style();
    let mut verdict = verdict(result);
    let more = verdict.len().saturating_sub(SENTENCES.max(result.shifts.len()));
    verdict.truncate(verdict.len() - more);
    if more > 0 {
        verdict.push(format!("And {more} more."));
    }
    let said: Vec<String> = verdict.iter().map(|line| wrap(line, style.width, "")).collect();
    let sections = [
        Some(style.title(&said.join("\n"))),
        Some(figures(result, options)),
        Some(quantiles(result, options)),
        Some(modes(result, options)),
        fits(result, options),
        tails(result, options),
        shifts(result, options),
        Some(about(result, style)),
    ];
    sections.into_iter().flatten().collect::<Vec<String>>().join("\n\n") + "\n"
}

/// One sentence for each comparison, or about each distribution if there is none.
#[must_use]
pub fn verdict(result: &Distributions) -> Vec<String> {
    let labels = Labels::of(result);
    match result.shifts.is_empty() {
        true => result.files.iter().map(|file| alone(file, &labels)).collect(),
        false => result.shifts.iter().map(|shift| compared(shift, &labels)).collect(),
    }
}

/// Names without their directory, if that is enough to tell them apart.
pub(crate) struct Labels {
    short: bool,
}

impl Labels {
    pub(crate) fn of(result: &Distributions) -> Labels {
        let names = |of: fn(&str) -> &str| {
            let names = result.files.iter().map(|file| of(&file.name));
            names.collect::<std::collections::BTreeSet<_>>().len()
        };
        Labels { short: names(without_directory) == names(|name| name) }
    }

    /// As long as it is.
    pub(crate) fn whole(&self, name: &str) -> String {
        safe(if self.short { without_directory(name) } else { name })
    }

    /// For a sentence.
    pub(crate) fn label(&self, name: &str) -> String {
        cut(&self.whole(name), NAME)
    }
}

/// What is in parentheses, the source or the point, is not a path.
fn without_directory(name: &str) -> &str {
    let path = name.split(" (").next().unwrap_or(name);
    path.rfind('/').map_or(name, |at| &name[at + 1..])
}

fn alone(file: &Distribution, labels: &Labels) -> String {
    let each =
        |mode: &FoundMode| format!("{} ({})", brief(mode.at), percent_said(100.0 * mode.share));
    let modes = match &file.modes[..] {
        [] => String::new(),
        [only] => format!("one mode at {}", brief(only.at)),
        modes => {
            // The largest, in order of place.
            let mut largest: Vec<&FoundMode> = modes.iter().collect();
            largest.sort_by(|a, b| b.share.total_cmp(&a.share));
            largest.truncate(MODES);
            largest.sort_by(|a, b| a.at.total_cmp(&b.at));
            let said: Vec<String> = largest.into_iter().map(each).collect();
            let which = if modes.len() > MODES { ", the largest" } else { "," };
            format!("{} modes{which} at {}", modes.len(), listed(&said))
        }
    };
    let samples = plural(file.n, "sample");
    format!("{}: {samples}, {modes}{}.", labels.label(&file.name), best(file))
}

/// The best fit, in words.
fn best(file: &Distribution) -> String {
    let Some(fit) = file.fits.as_ref().and_then(|fits| fits.first()) else {
        return String::new();
    };
    let off = percent_said(100.0 * fit.ks_distance);
    match fit.verdict {
        "good" => format!("; {} fits", with_article(fit.family)),
        "close" => format!("; {} is close (at most {off} off)", with_article(fit.family)),
        _ => format!("; no simple distribution fits (best: {}, {off} off)", fit.family),
    }
}

fn with_article(family: &str) -> String {
    match family {
        "F" => "an F distribution".to_owned(),
        family => format!("a {family} distribution"),
    }
}

fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn compared(comparison: &Comparison, labels: &Labels) -> String {
    let [first, second] = [&comparison.first, &comparison.second].map(|name| labels.label(name));
    let (quantiles, modes): (Vec<&Finding>, Vec<&Finding>) =
        comparison.findings.iter().partition(|finding| finding.change == ChangeKind::Quantile);
    let said = match comparison.findings.is_empty() {
        true if comparison.quantiles.is_empty() => "too few samples to compare".to_owned(),
        true => "no significant difference (95 % intervals)".to_owned(),
        false => {
            let said = modes.into_iter().take(CHANGED).chain(quantiles).map(finding);
            said.collect::<Vec<String>>().join("; ")
        }
    };
    format!("{second} against {first}: {said}.")
}

/// A difference in words.
pub(crate) fn finding(finding: &Finding) -> String {
    let [first, second] =
        finding.shares.unwrap_or_default().map(|share| percent_said(100.0 * share));
    let at = brief(finding.at);
    match finding.change {
        ChangeKind::ModeGone => format!("the mode at {at}, {first} of all, is gone"),
        ChangeKind::ModeMerged => {
            format!("the mode at {at}, {first} of all, is no longer separate")
        }
        ChangeKind::ModeNew => format!("a mode at {at}, {second} of all, is new"),
        ChangeKind::ModeMoved => {
            let to = finding.to.map_or_else(String::new, brief);
            format!("the mode at {at}, {first} of all, moved to {to}")
        }
        ChangeKind::ModeShare => {
            let [before, after] = finding.shares.unwrap_or_default();
            let verb = if after > before { "grew" } else { "shrank" };
            format!("the mode at {at} {verb} from {first} to {second} of all")
        }
        ChangeKind::Quantile => shifted(finding),
    }
}

fn shifted(finding: &Finding) -> String {
    let by = finding.to.unwrap_or(finding.at) - finding.at;
    let [mut low, mut high] = finding.ci95.unwrap_or_default();
    if by < 0.0 {
        (low, high) = (-high, -low);
    }
    let verb = if by > 0.0 { "rose" } else { "fell" };
    // In the unit of the quantile, with as many digits as the interval has meaning.
    let (scale, unit) = unit_of(finding.at.abs().max(by.abs()));
    let wide = ((high - low) / scale).abs().max(1e-9);
    let digits = (1.0 - wide.log10().floor()).clamp(0.0, 9.0) as usize;
    let write = |us: f64| trimmed(&format!("{:.digits$}", us / scale));
    let what = quantile_name(finding.p.unwrap_or(0.5));
    format!("{what} {verb} by {} {unit} ({} to {})", write(by.abs()), write(low), write(high))
}

pub(crate) fn quantile_name(p: f64) -> String {
    if p == 0.5 {
        return "the median".to_owned();
    }
    format!("the {}th percentile", trimmed(&format!("{:.2}", 100.0 * p)))
}

/// `p50`, `p99.9`.
pub(crate) fn quantile_label(p: f64) -> String {
    format!("p{}", trimmed(&format!("{:.2}", 100.0 * p)))
}

/// The unit for a time in us: how many us it is, and its name.
fn unit_of(us: f64) -> (f64, &'static str) {
    match us {
        us if us < 0.9995 => (1e-3, "ns"),
        us if us < 999.5 => (1.0, "us"),
        us if us < 999.5e3 => (1e3, "ms"),
        _ => (1e6, "s"),
    }
}

/// Without zeros at the end.
fn trimmed(number: &str) -> String {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => number.to_owned(),
    }
}

/// A time in us with up to three digits and its unit.
pub(crate) fn brief(us: f64) -> String {
    let (scale, unit) = unit_of(us.abs());
    let value = us / scale;
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{} {unit}", trimmed(&format!("{value:.digits$}")))
}

/// A time in us, for columns.
pub(crate) fn column(us: f64) -> String {
    // To whole picoseconds, so that 45 ns is not 44.99.
    precise((us * 1e6).round() / 1e3)
}

/// The same with its sign.
pub(crate) fn signed(us: f64) -> String {
    format!("{}{}", if us > 0.0 { "+" } else { "" }, column(us))
}

/// A number without a unit, with three digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{value:.2e}"),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        // What rounding leaves of a symmetric distribution's skewness.
        v if v < 1e-9 => "0".to_owned(),
        v if v >= 0.0995 => format!("{value:.2}"),
        v if v >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

fn titled(style: Style, title: &str, grid: &Grid) -> String {
    format!("{}\n{}", style.title(title), grid.render(style))
}

/// In the first row of several.
fn once(place: usize, name: String) -> String {
    if place == 0 { name } else { String::new() }
}

fn first_column() -> Column {
    Column::text("file", 14)
}

fn figures(result: &Distributions, options: Options) -> String {
    let labels = Labels::of(result);
    let mut grid = Grid::new(vec![
        first_column(),
        Column::number("n"),
        Column::number("min").expendable(4),
        Column::number("mean"),
        Column::number("mode"),
        Column::number("sd"),
        Column::number("cv").expendable(6),
        Column::number("skew").expendable(5),
        Column::number("kurtosis").expendable(7),
        Column::number("sd from min").expendable(8),
        Column::number("skew from min").expendable(9),
        Column::number("max").expendable(3),
    ]);
    for file in &result.files {
        grid.row(
            Tone::Plain,
            vec![
                labels.whole(&file.name),
                count(file.n),
                column(file.min),
                column(file.mean),
                column(file.mode),
                column(file.sd),
                file.cv.map_or_else(|| "-".to_owned(), number),
                number(file.skewness),
                number(file.kurtosis),
                column(file.about_min.sd),
                number(file.about_min.skewness),
                column(file.max),
            ],
        );
    }
    titled(options.style(), "Distributions", &grid)
}

fn quantiles(result: &Distributions, options: Options) -> String {
    let labels = Labels::of(result);
    let mut grid = Grid::new(vec![
        first_column(),
        Column::number("p1").expendable(6),
        Column::number("p10").expendable(4),
        Column::number("p25").expendable(2),
        Column::number("p50"),
        Column::number("p75").expendable(3),
        Column::number("p90").expendable(1),
        Column::number("p99"),
        Column::number("p99.9"),
        Column::number("p99.99").expendable(5),
    ]);
    for file in &result.files {
        let q = &file.quantiles;
        let values = [q.p1, q.p10, q.p25, q.p50, q.p75, q.p90, q.p99, q.p99_9, q.p99_99];
        let cells = values.into_iter().map(column);
        grid.row(Tone::Plain, std::iter::once(labels.whole(&file.name)).chain(cells).collect());
    }
    titled(options.style(), "Quantiles", &grid)
}

fn modes(result: &Distributions, options: Options) -> String {
    let labels = Labels::of(result);
    let mut grid = Grid::new(vec![
        first_column(),
        Column::number("mode at"),
        Column::number("95 %").expendable(2),
        Column::number("share"),
        Column::number("95 %").expendable(1),
        Column::number("valleys").expendable(3),
    ]);
    for file in &result.files {
        for (place, mode) in file.modes.iter().enumerate() {
            let [low, high] = mode.share_ci95;
            grid.row(
                Tone::Plain,
                vec![
                    once(place, labels.whole(&file.name)),
                    column(mode.at),
                    format!("{} to {}", column(mode.ci95[0]), column(mode.ci95[1])),
                    percent(100.0 * mode.share),
                    format!("{} to {}", percent(100.0 * low), percent(100.0 * high)),
                    format!("{} to {}", column(mode.from), column(mode.to)),
                ],
            );
        }
    }
    titled(options.style(), "Modes", &grid)
}

/// The parameters of a fit.
pub(crate) fn parameters(fit: &Fit) -> String {
    let shapes: Vec<String> = fit.shape.iter().map(|shape| number(*shape)).collect();
    let shapes = shapes.join(", ");
    let (scale, from) = (column(fit.scale), column(fit.location));
    match fit.family {
        "log-normal" => format!("from {from}, median +{scale}, sigma {shapes}"),
        "gamma" => format!("from {from}, scale {scale}, shape {shapes}"),
        _ => format!("from {from}, scale {scale}, d1 and d2 {shapes}"),
    }
}

/// A p-value; of small ones, the magnitude is noise.
pub(crate) fn p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

fn fits(result: &Distributions, options: Options) -> Option<String> {
    let labels = Labels::of(result);
    let mut grid = Grid::new(vec![
        first_column(),
        Column::text("distribution", 10),
        Column::number("KS distance"),
        Column::number("p").expendable(1),
        Column::text("verdict", 5),
        Column::text("parameters", 12).expendable(2),
    ]);
    let mut any = false;
    for file in &result.files {
        for (place, fit) in file.fits.iter().flatten().enumerate() {
            any = true;
            grid.row(
                if fit.verdict == "poor" { Tone::Dim } else { Tone::Plain },
                vec![
                    once(place, labels.whole(&file.name)),
                    fit.family.to_owned(),
                    number(fit.ks_distance),
                    p_value(fit.p_value),
                    fit.verdict.to_owned(),
                    parameters(fit),
                ],
            );
        }
    }
    any.then(|| titled(options.style(), "Fits, best first", &grid))
}

fn tails(result: &Distributions, options: Options) -> Option<String> {
    let labels = Labels::of(result);
    let mut grid = Grid::new(vec![
        first_column(),
        Column::number("above"),
        Column::number("samples"),
        Column::number("shape"),
        Column::number("scale"),
        Column::number("KS distance").expendable(2),
        Column::number("p").expendable(1),
    ]);
    let mut any = false;
    for file in &result.files {
        if let Some(tail) = &file.tail {
            any = true;
            grid.row(
                Tone::Plain,
                vec![
                    labels.whole(&file.name),
                    column(tail.threshold),
                    count(tail.n),
                    number(tail.shape),
                    column(tail.scale),
                    number(tail.ks_distance),
                    p_value(tail.p_value),
                ],
            );
        }
    }
    any.then(|| titled(options.style(), "Tails, generalised Pareto", &grid))
}

fn shifts(result: &Distributions, options: Options) -> Option<String> {
    let labels = Labels::of(result);
    let mut grid = Grid::new(vec![
        first_column(),
        Column::text("quantile", 6),
        Column::number("first"),
        Column::number("this").expendable(1),
        Column::number("shift"),
        Column::number("95 %"),
    ]);
    for comparison in &result.shifts {
        for (place, shift) in comparison.quantiles.iter().enumerate() {
            grid.row(
                if shift.differs { Tone::Strong } else { Tone::Plain },
                vec![
                    once(place, labels.whole(&comparison.second)),
                    quantile_label(shift.p),
                    column(shift.first),
                    column(shift.second),
                    signed(shift.shift),
                    format!("{} to {}", signed(shift.ci95[0]), signed(shift.ci95[1])),
                ],
            );
        }
    }
    let first = &result.shifts.first()?.first;
    let title = match result.shifts.iter().all(|other| other.first == *first) {
        true => format!("Shifts against {}", labels.label(first)),
        false => "Shifts against the same of the first file".to_owned(),
    };
    Some(titled(options.style(), &title, &grid))
}

/// Notes: how to read the figures, and what limits them.
pub(crate) fn notes(result: &Distributions) -> Vec<String> {
    let labels = Labels::of(result);
    let many = result.files.len() > SENTENCES;
    let mut notes = Vec::new();
    if many {
        let said = "intervals by bootstrap of blocks of consecutive samples, whose lengths are in the JSON";
        notes.push(said.to_owned());
    }
    for file in &result.files {
        let name = labels.label(&file.name);
        notes.extend(file.remarks.iter().map(|remark| format!("{name}: {}", safe(remark))));
        if let Some(step) = file.step {
            notes.push(format!(
                "{name}: values cluster at every {}, as with a coarse clock; these are not counted \
                 as modes",
                brief(step)
            ));
        }
        match &file.blocks {
            _ if many => {}
            Some(blocks) => notes.push(format!(
                "{name}: intervals by bootstrap of {} of {}{}",
                plural(blocks.count, "block"),
                plural(blocks.length, "sample"),
                episodes(blocks.inflation),
            )),
            None => notes.push(format!(
                "{name}: intervals assume independent samples (order unknown, or too few samples)"
            )),
        }
        if !file.exact {
            notes.push(format!(
                "{name}: of more than 2^20 samples, quantiles are accurate to 0.02 %; the largest 16384 are exact"
            ));
        }
    }
    notes.push(
        "skewness and kurtosis are standardised moments (kurtosis of a normal distribution: 3); from min: the \
         same about the minimum"
            .to_owned(),
    );
    if result
        .files
        .iter()
        .flat_map(|file| file.fits.iter().flatten())
        .any(|fit| fit.verdict == "close")
    {
        notes.push(
            "close: there are enough samples to reject the distribution, but it is off by 3 % of them at most"
                .to_owned(),
        );
    }
    notes
}

/// That samples resemble their neighbours.
fn episodes(inflation: f64) -> String {
    match inflation {
        factor if factor >= 1.5 => {
            format!("; samples are autocorrelated, so {} count as one", number(factor))
        }
        _ => String::new(),
    }
}

fn about(result: &Distributions, style: Style) -> String {
    let lines = notes(result)
        .into_iter()
        .map(|note| wrap(&format!("- {}.", capital_first(&note)), style.width, "  "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Names keep their case.
fn capital_first(note: &str) -> String {
    if note.contains(": ") { note.to_owned() } else { capital(note) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantile(p: f64, at: f64, to: f64, ci95: [f64; 2]) -> Finding {
        let (shares, ci95) = (None, Some(ci95));
        Finding { change: ChangeKind::Quantile, at, to: Some(to), shares, p: Some(p), ci95 }
    }

    fn mode(change: ChangeKind, at: f64, to: Option<f64>, shares: [f64; 2]) -> Finding {
        Finding { change, at, to, shares: Some(shares), p: None, ci95: None }
    }

    #[test]
    fn differences_are_what_a_person_would_say() {
        for (found, said) in [
            (
                mode(ChangeKind::ModeGone, 5.7, None, [0.3, 0.01]),
                "the mode at 5.7 us, 30 % of all, is gone",
            ),
            (
                mode(ChangeKind::ModeNew, 7.5, None, [0.0, 0.1]),
                "a mode at 7.5 us, 10 % of all, is new",
            ),
            (
                mode(ChangeKind::ModeMerged, 5.7, None, [0.3, 0.2]),
                "the mode at 5.7 us, 30 % of all, is no longer separate",
            ),
            (
                mode(ChangeKind::ModeMoved, 4.6, Some(4.85), [0.6, 0.6]),
                "the mode at 4.6 us, 60 % of all, moved to 4.85 us",
            ),
            (
                mode(ChangeKind::ModeShare, 4.6, Some(4.6), [0.6, 0.2]),
                "the mode at 4.6 us shrank from 60 % to 20 % of all",
            ),
            (quantile(0.5, 4.7, 5.1, [0.3, 0.5]), "the median rose by 0.4 us (0.3 to 0.5)"),
            (
                quantile(0.999, 800.0, 500.0, [-400.0, -200.0]),
                "the 99.9th percentile fell by 300 us (200 to 400)",
            ),
            (
                quantile(0.99, 0.5, 0.75, [0.2, 0.31]),
                "the 99th percentile rose by 250 ns (200 to 310)",
            ),
        ] {
            assert_eq!(finding(&found), said);
        }
    }

    #[test]
    fn numbers_keep_their_meaning() {
        assert_eq!(brief(5.7), "5.7 us");
        assert_eq!(brief(0.0416667), "41.7 ns");
        assert_eq!(brief(1_234_567.0), "1.23 s");
        assert_eq!((signed(-0.4), signed(0.4)), ("-400ns".to_owned(), "+400ns".to_owned()));
        assert_eq!(number(12345.6), "12346");
        assert_eq!(number(-0.004), "-0.0040");
        assert_eq!(number(2.1e-18), "0");
        assert_eq!(quantile_label(0.999), "p99.9");
        assert_eq!(p_value(0.0), "<0.001");
    }
}
