//! What the recorded noise costs parallel jobs: collectives with and without the largest sources, and
//! the idle times of an all-to-all.

use study::{
    decide::projection::{Idle, Projection},
    run::point::Point,
};

use super::{
    boxplot,
    plot::{HALF, Margins, Plot, WIDE, coordinate, escape},
    scale::{Scale, US, Unit, ranks, us},
};
use crate::{
    slowdown::knee_place,
    words::{count, cut},
};

/// Characters of a variant's name.
const NAME: usize = 60;

/// Names come from the recording and may have any length.
pub(super) fn with_short_names(projection: &Projection) -> Projection {
    let mut short = projection.clone();
    let of_job = short.job.as_mut().and_then(|job| job.without.as_mut());
    for variant in short.without.iter_mut().chain(of_job) {
        variant.name = cut(&variant.name, NAME);
    }
    short
}

/// How much longer the job takes than on silent nodes, with all noise and without what the first action
/// removes.
pub(super) fn job(projection: &Projection) -> Option<String> {
    let curve = projection.job.as_ref()?;
    let (first, last) = (curve.points.first()?, curve.points.last()?);
    let longer = |p: &Point| (p.median_us / p.noiseless_us.max(1e-9) - 1.0).max(0.0);
    let bound =
        |p: &Point, end: usize| (p.median_ci95_us[end] / p.noiseless_us.max(1e-9) - 1.0).max(0.0);
    let variants = curve.without.iter().flat_map(|without| &without.points);
    let all = curve.points.iter().chain(variants).chain(&curve.with_tail);
    let top = all.map(|p| bound(p, 1).max(longer(p))).fold(0.001, f64::max);
    let x = Scale::log(first.ranks as f64 / 1.3, last.ranks as f64 * 1.3, Unit::Ranks);
    let y = Scale::linear(0.0, top * 1.08, Unit::Share);
    let label = "How much longer the job takes than on silent nodes, by ranks";
    let mut plot = Plot::new("job", label, (WIDE, 340.0), x, y)
        .margins(Margins { right: 204.0, ..Margins::default() })
        .titles("ranks", "longer than on silent nodes");
    let mut lines = vec![("all", "all noise", curve.points.as_slice())];
    if let Some(without) = &curve.without {
        lines.push(("i0", without.name.as_str(), without.points.as_slice()));
    }
    if !curve.with_tail.is_empty() {
        lines.push(("i1", "all noise, fitted tails", curve.with_tail.as_slice()));
    }
    let mut ends = Vec::new();
    for (class, name, points) in lines {
        let line: Vec<(f64, f64)> = points.iter().map(|p| (p.ranks as f64, longer(p))).collect();
        plot.line(class, name, &line);
        plot.dots(&format!("{class} big"), name, line.iter().copied());
        for point in points {
            let x = coordinate(plot.at_x(point.ranks as f64));
            let [low, high] = [0, 1].map(|end| coordinate(plot.at_y(bound(point, end))));
            plot.mark(&format!(r#"<path class="line {class}" d="M{x} {low}V{high}"/>"#));
        }
        if let Some(end) = line.last() {
            ends.push((plot.at_y(end.1), class.to_owned(), cut(name, 30)));
        }
    }
    label_ends(&mut plot, ends);
    Some(plot.finish())
}

/// Boxes over ranks, the noiseless line and the knee.
pub(super) fn boxes(projection: &Projection) -> Option<String> {
    let points = &projection.points;
    let (first, last) = (points.first()?, points.last()?);
    let times = points.iter().flat_map(|p| [p.noiseless_us, p.whiskers_us[0], p.max_us]);
    let y = Scale::decades(times.map(|us| us * US), Unit::Nanoseconds)?;
    let x = Scale::log(first.ranks as f64 / 1.6, last.ranks as f64 * 1.6, Unit::Ranks);
    let label = "Time of the collective by ranks: box plots, noiseless line, knee";
    let mut plot = Plot::new("slowdown", label, (WIDE, 420.0), x, y)
        .margins(Margins { top: 26.0, ..Margins::default() })
        .titles("ranks", &format!("time of one {}", projection.operation));
    let line: Vec<_> = points.iter().map(|p| (p.ranks as f64, p.noiseless_us * US)).collect();
    plot.line("noiseless", "noiseless", &line);
    if let Some(&(x, y)) = line.last() {
        plot.text("right", plot.at_x(x), plot.at_y(y) - 9.0, "noiseless");
    }
    if let Some(knee) = &projection.knee {
        let (x, top, bottom) = (
            coordinate(plot.at_x(knee.ranks as f64)),
            coordinate(plot.top()),
            coordinate(plot.bottom()),
        );
        plot.mark(&format!(r#"<path class="knee" d="M{x} {top}V{bottom}"/>"#));
        plot.over(&format!(
            r#"<text class="note knee" x="{x}" y="18">noise takes over {}</text>"#,
            knee_place(knee, ranks)
        ));
    }
    let spacing = plot.inner_width() / (last.ranks as f64 / first.ranks as f64).log2().max(1.0);
    let half = (spacing * 0.28).clamp(2.0, 18.0);
    for point in points {
        let x = plot.at_x(point.ranks as f64);
        boxplot::one(&mut plot, point, None, x, half);
    }
    Some(plot.finish())
}

/// Median slowdown over ranks, with all noise and without the largest sources.
pub(super) fn without(projection: &Projection) -> Option<String> {
    if projection.without.is_empty() {
        return None;
    }
    let (first, last) = (projection.points.first()?, projection.points.last()?);
    let all = projection.without.iter().flat_map(|w| &w.points).chain(&projection.points);
    let slowdowns =
        all.flat_map(|p| [p.slowdown_median, p.median_high_us / p.noiseless_us.max(1e-9)]);
    let y = Scale::decades(slowdowns.filter(|s| s.is_finite()).map(|s| s.max(1.0)), Unit::Times)?;
    let x = Scale::log(first.ranks as f64, last.ranks as f64, Unit::Ranks);
    let mut plot =
        Plot::new("without", "Slowdown with and without the largest sources", (WIDE, 360.0), x, y)
            .margins(Margins { right: 204.0, ..Margins::default() })
            .titles("ranks", "median slowdown");
    let line = |points: &mut dyn Iterator<Item = &Point>| -> Vec<(f64, f64)> {
        let points = points.filter(|p| p.slowdown_median.is_finite());
        points.map(|p| (p.ranks as f64, p.slowdown_median.max(1.0))).collect()
    };
    let mut ends: Vec<(f64, String, String)> = Vec::new();
    // Only at the rank counts of the variants, so that the lines are comparable.
    let asked =
        |p: &&Point| projection.without.iter().any(|w| w.points.iter().any(|q| q.ranks == p.ranks));
    let everything = line(&mut projection.points.iter().filter(asked));
    if let Some(end) = everything.last() {
        ends.push((plot.at_y(end.1), "all".to_owned(), "all noise".to_owned()));
    }
    plot.line("all", "all noise", &everything);
    plot.dots("all big", "all noise", everything.iter().copied());
    for variant in &projection.without {
        let class = variant.source.map_or("su".to_owned(), |row| format!("s{row}"));
        let points = line(&mut variant.points.iter());
        if let Some(end) = points.last() {
            ends.push((plot.at_y(end.1), class.clone(), cut(&variant.name, 30)));
        }
        plot.line(&class, &variant.name, &points);
        plot.dots(&format!("{class} big"), &variant.name, points.iter().copied());
    }
    label_ends(&mut plot, ends);
    Some(plot.finish())
}

/// Labels at the ends of their lines (height, class, name), moved apart where they would overlap.
fn label_ends(plot: &mut Plot, mut ends: Vec<(f64, String, String)>) {
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = 0.0f64;
    for (y, class, name) in ends {
        let y = (y + 4.0).max(free);
        free = y + 15.0;
        plot.over(&format!(
            concat!(
                r#"<g class="end {class}"><circle cx="{}" cy="{}" r="4.5"/>"#,
                r#"<text x="{}" y="{}">{}</text></g>"#
            ),
            WIDE - 186.0,
            coordinate(y - 4.0),
            WIDE - 176.0,
            coordinate(y),
            escape(&name),
            class = class,
        ));
    }
}

/// Idle times: density and tail.
pub(super) fn idle(projection: &Projection) -> Option<(String, String)> {
    let all = &projection.idle;
    let longest = all.iter().map(|i| i.max_us * US).fold(0.0, f64::max);
    if longest <= 0.0 {
        return None;
    }
    // Idle times below a ten-thousandth of the longest are negligible.
    let x = Scale::decades([longest / 1e4, longest].into_iter(), Unit::Nanoseconds)?;
    let rarest = all.iter().map(|i| 1.0 / i.samples.max(1) as f64);
    let y = Scale::decades(rarest.chain([1.0]), Unit::Share)?;
    let mut tail = Plot::new("idle-tail", "Tail of idle times", (HALF, 320.0), x, y)
        .titles("idle time of processor 0", "share at least as long");
    let densities: Vec<Vec<(f64, f64)>> = all.iter().map(|i| density(i, x.from)).collect();
    let top = densities.iter().flatten().map(|p| p.1).fold(0.0, f64::max);
    let y = Scale::linear(0.0, top * 1.08, Unit::Share);
    let mut often = Plot::new("idle", "Distribution of idle times", (HALF, 320.0), x, y)
        .titles("idle time of processor 0", "share per tenth of a decade");
    for ((index, one), density) in all.iter().enumerate().zip(&densities) {
        let (class, name) = (format!("i{index}"), format!("{} processors", one.processors));
        often.line(&class, &name, density);
        let (mut beyond, mut line) = (one.samples, Vec::new());
        let mut last_x = f64::NEG_INFINITY;
        for (index, &(end, n)) in one.bins.iter().enumerate() {
            let ns = end * US;
            let far = tail.at_x(ns) - last_x >= 0.7 || index + 1 == one.bins.len();
            if ns >= x.from && far {
                last_x = tail.at_x(ns);
                line.push((ns, beyond as f64 / one.samples.max(1) as f64));
            }
            beyond = beyond.saturating_sub(n);
        }
        tail.line(&class, &name, &line);
    }
    Some((often.finish(), tail.finish()))
}

fn density(idle: &Idle, from: f64) -> Vec<(f64, f64)> {
    let mut cells: std::collections::BTreeMap<i32, u64> = std::collections::BTreeMap::new();
    for &(end, n) in idle.bins.iter().filter(|(end, _)| end * US >= from) {
        *cells.entry(((end * US).log10() * 10.0).floor() as i32).or_insert(0) += n;
    }
    let (Some(&first), Some(&last)) = (cells.keys().next(), cells.keys().next_back()) else {
        return Vec::new();
    };
    let share = |cell: i32| cells.get(&cell).copied().unwrap_or(0) as f64;
    let samples = idle.samples.max(1) as f64;
    (first..=last).map(|c| (10f64.powf((f64::from(c) + 0.5) / 10.0), share(c) / samples)).collect()
}

/// The table under the idle times.
pub(super) fn idle_rows(projection: &Projection) -> Vec<Vec<String>> {
    let row = |i: &Idle| {
        vec![
            i.processors.to_string(),
            count(i.samples),
            Unit::Share.write(i.zero_share),
            us(i.mean_us),
            us(i.p99_us),
            us(i.max_us),
        ]
    };
    projection.idle.iter().map(row).collect()
}
