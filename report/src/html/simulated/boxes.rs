//! Collectives: box plots by rank count, one colour per series.

use study::{
    jobs::{collective::Sweep, skeleton::Skeletons},
    run::point::{Point, Series},
};

use super::{
    super::{
        boxplot,
        legend::Key,
        plot::{Plot, WIDE},
        scale::{Scale, US, Unit, ranks, short, us},
        tables::NAME,
    },
    COLOURS, Figure, HEIGHT, IDS, Pictures, key, noise, with_legend,
};
use crate::{
    slowdown::{knee_or_none, varies},
    words::{capital, cut},
};

/// The figures of a sweep.
#[must_use]
pub fn sweep_pictures(sweep: &Sweep) -> Pictures {
    let about = &sweep.about;
    let headline = format!(
        "{} ({}) under {}",
        capital(&about.op.replace('|', ", ")),
        about.algorithm.replace('|', ", "),
        noise(&about.noise)
    );
    pictures(sweep, "collective", headline)
}

/// The figures of a skeleton's sweep.
#[must_use]
pub fn skeleton_pictures(result: &Skeletons) -> Pictures {
    let about = &result.about;
    let mut sweep = result.as_sweep();
    sweep.about.net.clone_from(&about.net);
    sweep.about.remarks.clone_from(&about.remarks);
    pictures(&sweep, "skeleton", format!("Model of {} under {}", about.model, noise(&about.noise)))
}

fn pictures(sweep: &Sweep, title: &'static str, headline: String) -> Pictures {
    let series: Vec<&Series> = sweep.knees.iter().map(|knee| &knee.series).collect();
    let panels = panels(&series);
    let keys: Vec<Key> = match &panels[..] {
        [only] if only.len() > 1 => keys(only),
        _ => Vec::new(),
    };
    let drawn = panels.iter().take(IDS.len());
    let figures = drawn.zip(IDS).filter_map(|(panel, id)| draw(sweep, panel, id, keys.is_empty()));
    let figures: Vec<Figure> = figures.collect();
    let several = series.len() > 1;
    let knees = sweep.knees.iter().filter(|_| sweep.is_noisy()).map(|knee| {
        let own = sweep.points.iter().filter(|point| point.series == knee.series);
        let what = varies(&sweep.about.noise, &knee.series);
        let said = knee_or_none(knee.knee.knee.as_ref(), what, own, ranks);
        match several {
            true => format!("{}: {said}", knee.series.label()),
            false => capital(&said),
        }
    });
    let knees: Vec<String> = knees.collect();
    // A few sentences; of more, the table is easier to read.
    let (findings, further) =
        if knees.len() > 4 { (Vec::new(), knees) } else { (knees, Vec::new()) };
    let about = &sweep.about;
    let mut notes = vec![format!("Network {}.", about.net.replace('|', ", "))];
    let left_out = panels.iter().skip(IDS.len()).map(Vec::len).sum::<usize>();
    if left_out > 0 {
        notes.push(format!("{left_out} more series are in the table only."));
    }
    notes.extend(about.remarks.iter().cloned().chain(further));
    Pictures {
        title,
        sections: Vec::new(),
        findings: std::iter::once(headline).chain(findings).collect(),
        keys,
        figures,
        header: [
            "series",
            "ranks",
            "noiseless",
            "min",
            "q25",
            "median",
            "95\u{a0}%",
            "q75",
            "p99",
            "max",
            "slowdown",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: sweep.points.iter().map(row).collect(),
        notes,
    }
}

fn row(point: &Point) -> Vec<String> {
    let [low, high] = point.median_ci95_us;
    vec![
        cut(&point.series.label(), NAME),
        ranks(point.ranks),
        us(point.noiseless_us),
        us(point.min_us),
        us(point.q25_us),
        us(point.median_us),
        format!("{} to {}", us(low), us(high)),
        us(point.q75_us),
        us(point.p99_us),
        us(point.max_us),
        format!("{}×", short(point.slowdown_median)),
    ]
}

fn keys(series: &[&Series]) -> Vec<Key> {
    series.iter().enumerate().map(|(n, one)| key(n, cut(&one.label(), NAME))).collect()
}

/// At most seven series per figure, one colour each. Of more, as many as differ in one respect only: the
/// lengths of one rate, for example.
fn panels<'a>(series: &[&'a Series]) -> Vec<Vec<&'a Series>> {
    let most = COLOURS.len();
    let alike = |panel: &[&Series]| {
        let first = respects(panel[0]);
        let differ = |at: usize| panel.iter().any(|one| respects(one)[at] != first[at]);
        (0..first.len()).filter(|&at| differ(at)).count() <= 1
    };
    let fits = |&size: &usize| series.len().is_multiple_of(size) && series.chunks(size).all(alike);
    let size = match series.len() {
        few if few <= most => few.max(1),
        _ => (2..=most).rev().find(fits).unwrap_or(most),
    };
    series.chunks(size).map(<[_]>::to_vec).collect()
}

/// In what series can differ.
fn respects(series: &Series) -> [String; 8] {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let noise = text(&series.noise);
    let (rate, length) = noise.rsplit_once(',').unwrap_or((&noise, ""));
    [
        text(&series.op),
        text(&series.algorithm),
        text(&series.net),
        rate.to_owned(),
        length.to_owned(),
        series.size.to_string(),
        series.net_scale.to_string(),
        series.coscheduled.to_string(),
    ]
}

fn of<'a>(sweep: &'a Sweep, series: &Series) -> impl Iterator<Item = &'a Point> {
    sweep.points.iter().filter(move |point| point.series == *series)
}

fn draw(sweep: &Sweep, panel: &[&Series], id: &'static str, named: bool) -> Option<Figure> {
    let points = || panel.iter().flat_map(|series| of(sweep, series));
    let mut counts: Vec<u64> = points().map(|point| point.ranks).collect();
    counts.sort_unstable();
    counts.dedup();
    let (first, last) = (*counts.first()?, *counts.last()?);
    let times = points().flat_map(|p| [p.noiseless_us, p.min_us, p.max_us]);
    let y = Scale::decades(times.map(|us| us * US), Unit::Nanoseconds)?;
    let x = Scale::log(first as f64 / 1.6, last as f64 * 1.6, Unit::Ranks);
    let keys = keys(panel);
    let alone = panel.len() == 1 && sweep.knees.len() == 1;
    let (margins, legend) = with_legend(if named && !alone { &keys } else { &[] });
    let height = HEIGHT + margins.top;
    let mut plot = Plot::new(id, "Time by ranks: box plots", (WIDE, height), x, y)
        .margins(margins)
        .titles("ranks", "time");
    plot.over(&legend);
    // Series with the same noiseless times share a line.
    let mut lines: Vec<Vec<(f64, f64)>> = Vec::new();
    for series in panel {
        let line: Vec<_> =
            of(sweep, series).map(|p| (p.ranks as f64, p.noiseless_us * US)).collect();
        if !lines.contains(&line) {
            plot.line("noiseless", "noiseless", &line);
            lines.push(line);
        }
    }
    let apart = counts.windows(2).map(|two| plot.at_x(two[1] as f64) - plot.at_x(two[0] as f64));
    let room = apart.fold(plot.inner_width() / 2.5, f64::min) * 0.84;
    let slot = (room / panel.len() as f64).clamp(2.5, 36.0);
    for (number, (series, key)) in panel.iter().zip(&keys).enumerate() {
        let shift = (number as f64 - (panel.len() as f64 - 1.0) / 2.0) * slot;
        for point in of(sweep, series) {
            let x = plot.at_x(point.ranks as f64) + shift;
            boxplot::one(&mut plot, point, Some(key), x, slot * 0.4);
        }
    }
    let caption = format!(
        "Boxes are quartiles with the median, whiskers the most extreme runs within 1.5 times the \
         interquartile range, dots the outliers. Grey: without noise.{}",
        if panel.len() > 1 { " Series are drawn side by side at each rank count." } else { "" }
    );
    Some(Figure { svg: plot.finish(), size: (WIDE, height), caption })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(rates: usize, lengths: usize) -> Vec<Series> {
        let one = |n: usize| Series {
            noise: Some(format!("periodic:{}Hz,{}us", n / lengths, n % lengths)),
            ..Series::default()
        };
        (0..rates * lengths).map(one).collect()
    }

    #[test]
    fn many_series_are_divided_where_something_else_changes() {
        let sizes = |rates, lengths| {
            let all = all(rates, lengths);
            let all: Vec<&Series> = all.iter().collect();
            panels(&all).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(3, 4), [4, 4, 4]);
        assert_eq!(sizes(1, 7), [7]);
        assert_eq!(sizes(2, 3), [6]);
        assert_eq!(sizes(1, 9), [3, 3, 3]);
        assert_eq!(sizes(1, 11), [7, 4]);
        assert_eq!(sizes(5, 5), [5; 5]);
    }
}
