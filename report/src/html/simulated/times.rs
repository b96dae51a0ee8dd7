//! Exchanges, all-to-alls and schedules: distributions of their times.

use simulate::{collectives::Op, resample::Distribution};
use study::jobs::{alltoall::Alltoalls, exchange::Exchanges, schedule::Finishes};

use super::{
    super::{
        legend::Key,
        plot::{Plot, WIDE},
        scale::{Scale, Unit, ranks, short, time, us},
    },
    COLOURS, Figure, HEIGHT, Pictures, curve, key, noise,
};
use crate::words::count;

/// Bins per decade of a density.
const PER_DECADE: f64 = 20.0;
/// Points of a line: as many as can be told apart.
const MOST: usize = 1_000;

fn ns(ps: i64) -> f64 {
    ps as f64 / 1e3
}

/// Density and tail on a common logarithmic axis.
fn distributions(all: &[(Key, &Distribution)], what: &str) -> Vec<Figure> {
    let positive = all.iter().filter(|(_, one)| one.max() > 0);
    let longest = positive.clone().map(|(_, one)| ns(one.max())).fold(0.0, f64::max);
    // Times below a ten-thousandth of the longest are negligible.
    let shortest = positive.map(|(_, one)| ns(one.min()).max(longest / 1e4));
    let shortest = shortest.fold(f64::INFINITY, f64::min);
    let Some(x) = Scale::decades([shortest, longest].into_iter(), Unit::Nanoseconds) else {
        return Vec::new();
    };
    let densities: Vec<Vec<(f64, f64)>> = all.iter().map(|(_, one)| density(one, x)).collect();
    let top = densities.iter().flatten().map(|point| point.1).fold(0.0, f64::max);
    let y = Scale::linear(0.0, top * 1.08, Unit::Share);
    let mut often = Plot::new("density", &format!("Distribution: {what}"), (WIDE, HEIGHT), x, y)
        .titles(what, "share per twentieth of a decade");
    let rarest = all.iter().map(|(_, one)| 1.0 / one.len().max(1) as f64);
    let Some(y) = Scale::decades(rarest.chain([1.0]), Unit::Share) else { return Vec::new() };
    let mut rare = Plot::new("tail", &format!("Tail: {what}"), (WIDE, HEIGHT), x, y)
        .titles(what, "share at least as long");
    for ((key, one), density) in all.iter().zip(&densities) {
        often.line(&key.class, &key.name, density);
        rare.line(&key.class, &key.name, &tail(one, x));
    }
    let figure = |plot: Plot, caption: &str| Figure {
        svg: plot.finish(),
        size: (WIDE, HEIGHT),
        caption: caption.to_owned(),
    };
    vec![
        figure(often, "Density."),
        figure(rare, "Tail: the share that takes at least this long, up to the longest."),
    ]
}

fn density(of: &Distribution, x: Scale) -> Vec<(f64, f64)> {
    let mut cells: std::collections::BTreeMap<i32, u64> = std::collections::BTreeMap::new();
    for bin in of.bins() {
        let at = ns(bin.high.min(of.max()));
        if at >= x.from {
            *cells.entry((at.log10() * PER_DECADE).floor() as i32).or_insert(0) += bin.count;
        }
    }
    let (Some(&first), Some(&last)) = (cells.keys().next(), cells.keys().next_back()) else {
        return Vec::new();
    };
    let share = |cell: i32| cells.get(&cell).copied().unwrap_or(0) as f64 / of.len().max(1) as f64;
    (first - 1..=last + 1)
        .map(|cell| (10f64.powf((f64::from(cell) + 0.5) / PER_DECADE), share(cell)))
        .collect()
}

fn tail(of: &Distribution, x: Scale) -> Vec<(f64, f64)> {
    let total = of.len().max(1) as f64;
    let mut beyond = of.len();
    let mut line: Vec<(f64, f64)> = Vec::new();
    let mut placed = f64::NEG_INFINITY;
    for bin in of.bins() {
        let at = ns(bin.high.min(of.max()));
        let place = x.place(at);
        let last = bin.count == beyond;
        if at >= x.from && (place - placed > 1.0 / MOST as f64 || last) {
            line.push((at, beyond as f64 / total));
            placed = place;
        }
        beyond = beyond.saturating_sub(bin.count);
    }
    line
}

/// The figures of exchanges.
#[must_use]
pub fn exchange_pictures(exchanges: &Exchanges) -> Pictures {
    let name = "exchanges".to_owned();
    let added = 100.0 * (exchanges.mean_us / exchanges.about.uninterrupted_mean_us.max(1e-9) - 1.0);
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    Pictures {
        title: "exchanges",
        sections: Vec::new(),
        findings: match exchanges.about.noise.as_str() {
            "none" => Vec::new(),
            by => vec![format!(
                "Interruptions by {} make exchanges {}\u{a0}% longer on average",
                noise(by),
                short(added)
            )],
        },
        keys: Vec::new(),
        figures: distributions(&[(key(0, name), &exchanges.distribution)], "time of an exchange"),
        header: ["", "time"].map(str::to_owned).to_vec(),
        rows: vec![
            row("uninterrupted mean", us(exchanges.about.uninterrupted_mean_us)),
            row("mean", us(exchanges.mean_us)),
            row("standard deviation", us(exchanges.sd_us)),
            row("min", us(exchanges.min_us)),
            row("q25", us(exchanges.q25_us)),
            row("median", us(exchanges.median_us)),
            row("q75", us(exchanges.q75_us)),
            row("p99", us(exchanges.p99_us)),
            row("max", us(exchanges.max_us)),
        ],
        notes: std::iter::once(format!("{} exchanges.", count(exchanges.samples)))
            .chain(exchanges.about.remarks.iter().cloned())
            .collect(),
    }
}

/// The figures of all-to-alls: idle times of the last rank counts that have a colour, and their means.
#[must_use]
pub fn alltoall_pictures(alltoalls: &Alltoalls) -> Pictures {
    // Ranks that never wait have no distribution to draw.
    let waits = || alltoalls.outcomes.iter().filter(|one| one.idle_first.max() > 0);
    let shown = waits().skip(waits().count().saturating_sub(COLOURS.len())).enumerate();
    let idle: Vec<(Key, &Distribution)> = shown
        .map(|(n, one)| (key(n, format!("{} ranks", ranks(one.processors))), &one.idle_first))
        .collect();
    let keys: Vec<Key> = idle.iter().map(|(key, _)| key.clone()).collect();
    let mut figures = distributions(&idle, "idle time of rank 0");
    figures.extend(idle_by_ranks(alltoalls));
    let last = alltoalls.points.last();
    let is_alltoall = alltoalls.about.op == Op::Alltoall.name();
    let name = if is_alltoall { "all-to-all" } else { &alltoalls.about.op };
    Pictures {
        sections: Vec::new(),
        title: if is_alltoall { "all-to-all" } else { "operation of exchanges" },
        findings: last
            .map(|point| {
                format!(
                    "With {} ranks under {}, rank 0 waits {} per {name} on average",
                    ranks(point.ranks),
                    noise(&alltoalls.about.noise),
                    us(point.idle_mean_us)
                )
            })
            .into_iter()
            .collect(),
        keys,
        figures,
        header: [
            "ranks",
            "samples",
            "no wait",
            "idle",
            "p99",
            "max",
            "total",
            "p99",
            "max",
            "relative throughput",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: alltoalls
            .points
            .iter()
            .map(|point| {
                vec![
                    ranks(point.ranks),
                    count(point.samples),
                    Unit::Share.write(point.idle_zero_pct / 100.0),
                    us(point.idle_mean_us),
                    us(point.idle_p99_us),
                    us(point.idle_max_us),
                    us(point.total_mean_us),
                    us(point.total_p99_us),
                    us(point.total_max_us),
                    short(point.relative_throughput),
                ]
            })
            .collect(),
        notes: alltoalls.about.remarks.clone(),
    }
}

fn idle_by_ranks(alltoalls: &Alltoalls) -> Option<Figure> {
    let points = &alltoalls.points;
    let (first, last) = (points.first()?, points.last()?);
    let top = points.iter().map(|point| point.idle_mean_us * 1e3).fold(0.0, f64::max);
    if points.len() < 2 || top <= 0.0 {
        return None;
    }
    let x = Scale::log(first.ranks as f64 / 1.3, last.ranks as f64 * 1.3, Unit::Ranks);
    let y = Scale::linear(0.0, top * 1.08, Unit::Nanoseconds);
    let mut plot = Plot::new("idle-ranks", "Mean idle time by ranks", (WIDE, HEIGHT), x, y)
        .titles("ranks", "mean idle time of rank 0");
    let line: Vec<_> =
        points.iter().map(|point| (point.ranks as f64, point.idle_mean_us * 1e3, None)).collect();
    let all = Key { class: "all".to_owned(), name: "mean".to_owned() };
    curve(&mut plot, &all, &line);
    let caption = "How long rank 0 waits for its partners, on average.".to_owned();
    Some(Figure { svg: plot.finish(), size: (WIDE, HEIGHT), caption })
}

/// The figures of a schedule: when the ranks of the first run end, and how long all runs take.
#[must_use]
pub fn goal_pictures(finishes: &Finishes) -> Pictures {
    let runs: Vec<i64> = finishes.max_per_run.iter().map(|time| time.ps).collect();
    let mut figures = Vec::new();
    // Runs without noise are all the same.
    if let Ok(all) = Distribution::of(&runs)
        && runs.len() > 1
        && all.max() > all.min()
    {
        figures = distributions(&[(key(0, "runs".to_owned()), &all)], "time of the schedule");
    }
    figures.extend(ends(finishes));
    let took = time(ns(finishes.median_of_runs.ps));
    let headline = match finishes.slowdown_median {
        Some(slowdown) => format!(
            "The schedule takes {took} under {}: {}× its noiseless time",
            noise(&finishes.about.noise),
            short(slowdown)
        ),
        None => format!("The schedule takes {took}"),
    };
    let row = |name: &str, ps: i64| vec![name.to_owned(), time(ns(ps))];
    let noiseless = finishes.noiseless.iter().map(|time| row("noiseless", time.ps));
    Pictures {
        title: "schedule",
        sections: Vec::new(),
        findings: vec![headline],
        keys: Vec::new(),
        figures,
        header: ["", "time"].map(str::to_owned).to_vec(),
        rows: noiseless
            .chain([
                row("shortest run", finishes.min_of_runs.ps),
                row("median of all runs", finishes.median_of_runs.ps),
                row("p99", finishes.p99_of_runs.ps),
                row("longest run", finishes.max_of_runs.ps),
            ])
            .collect(),
        notes: vec![
            format!(
                "{} ranks, {} messages, {} runs.",
                count(finishes.ranks.len() as u64),
                count(finishes.messages),
                count(runs.len() as u64)
            ),
            format!("Network {}.", finishes.about.net),
        ],
    }
}

/// When the ranks of the first run end; of many, the latest of each group.
fn ends(finishes: &Finishes) -> Option<Figure> {
    let ends = &finishes.ranks;
    if ends.len() < 2 {
        return None;
    }
    let group = ends.len().div_ceil(MOST);
    let latest = |(number, ranks): (usize, &[study::jobs::schedule::Time])| {
        let latest = ranks.iter().map(|time| time.ps).max().unwrap_or(0);
        ((number * group) as f64, ns(latest))
    };
    let points: Vec<(f64, f64)> = ends.chunks(group).enumerate().map(latest).collect();
    let top = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let x = Scale::linear(0.0, ends.len() as f64, Unit::Plain);
    let y = Scale::linear(0.0, top * 1.08, Unit::Nanoseconds);
    let mut plot = Plot::new("ends", "End of each rank", (WIDE, HEIGHT), x, y)
        .titles("rank", "end in the first run");
    plot.dots("s0 big", "rank", points.into_iter());
    let caption = match group {
        1 => "When each rank of the first run ends.".to_owned(),
        group => format!("When the ranks of the first run end: the latest of each {group}."),
    };
    Some(Figure { svg: plot.finish(), size: (WIDE, HEIGHT), caption })
}
