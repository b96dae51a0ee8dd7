//! Cycles: the three cases by rank count, and the overhead by number of cycles (Figures 8 and 9 of the
//! study).

use study::jobs::cycle::{Cycles, Point};

use super::{
    super::{
        legend::Key,
        plot::{Plot, WIDE},
        scale::{Scale, Unit, ranks, short, us},
    },
    Figure, HEIGHT, Pictures, curve, key, noise,
};
use crate::words::count;

const US: f64 = 1e3;
/// The column of a table with several.
const NOISE: &str = "noise";
/// Identifiers of the figures of each noise.
const IDS: [[&str; 2]; 4] = [
    ["cycles-ranks", "cycles-overhead"],
    ["cycles-ranks-2", "cycles-overhead-2"],
    ["cycles-ranks-3", "cycles-overhead-3"],
    ["cycles-ranks-4", "cycles-overhead-4"],
];

/// The figures of cycles.
#[must_use]
pub fn cycle_pictures(cycles: &Cycles) -> Pictures {
    let keys = ["noiseless", "conventional", "redundant"].map(str::to_owned);
    let keys: Vec<Key> = keys.into_iter().enumerate().map(|(n, name)| key(n, name)).collect();
    let about = &cycles.about;
    let most = cycles.points.iter().max_by_key(|point| (point.ranks, point.cycles));
    let words = most.and_then(|point| point.noise.as_ref()).or(about.noise.as_ref());
    let cause = match (words, about.period_us, about.duration_us) {
        (Some(words), ..) => noise(words),
        (None, Some(period), Some(duration)) => {
            format!("detours of {} every {}", us(duration), us(period))
        }
        _ => "noise".to_owned(),
    };
    let headline = match most {
        Some(Point { ranks: most, cycles, recovery: Some(recovery), .. }) => format!(
            "At {} ranks and {} cycles, redundant exchanges recover {}\u{a0}% of what {cause} cost",
            ranks(*most),
            count(u64::from(*cycles)),
            short(recovery * 100.0)
        ),
        _ => format!("Cycles of compute and butterfly allreduce under {cause}"),
    };
    let mut notes = vec![
        format!("Network {}; redundant rounds: {}.", about.net, about.redundant_rounds),
        "Noiseless: noise in the compute phases only.".to_owned(),
    ];
    notes.extend(about.remarks.iter().cloned());
    let several = cycles.points.iter().any(|point| point.noise.is_some());
    Pictures {
        title: "cycles",
        sections: Vec::new(),
        findings: vec![headline],
        figures: figures(cycles, &keys),
        keys,
        header: [
            "ranks",
            "cycles",
            "noiseless",
            "conventional",
            "redundant",
            "overhead",
            "with redundancy",
            "recovery",
            "95\u{a0}%",
            NOISE,
        ]
        .iter()
        .filter(|name| several || **name != NOISE)
        .map(|name| (*name).to_owned())
        .collect(),
        rows: cycles.points.iter().map(row).collect(),
        notes,
    }
}

/// Two for each noise; of many noises, those of the first.
fn figures(cycles: &Cycles, keys: &[Key]) -> Vec<Figure> {
    let mut noises: Vec<Option<&str>> = Vec::new();
    for point in &cycles.points {
        if !noises.contains(&point.noise.as_deref()) {
            noises.push(point.noise.as_deref());
        }
    }
    let mut figures = Vec::new();
    for (noise, [of_ranks, of_cycles]) in noises.into_iter().zip(IDS) {
        let own = cycles.points.iter().filter(|point| point.noise.as_deref() == noise);
        let own = Cycles { about: cycles.about.clone(), points: own.cloned().collect() };
        let both = [by_ranks(&own, keys, of_ranks), by_cycle(&own, keys, of_cycles)];
        figures.extend(both.into_iter().flatten().map(|figure| Figure {
            caption: match noise {
                Some(noise) => format!("{} Noise {noise}.", figure.caption),
                None => figure.caption,
            },
            ..figure
        }));
    }
    figures
}

fn row(point: &Point) -> Vec<String> {
    let none = || "-".to_owned();
    let mut cells = vec![
        ranks(point.ranks),
        count(u64::from(point.cycles)),
        us(point.noiseless_us),
        us(point.conventional_us),
        us(point.redundant_us),
        us(point.conventional_overhead_us),
        us(point.redundant_overhead_us),
        point.recovery.map_or_else(none, |recovery| format!("{recovery:.3}")),
        point.recovery_ci95.map_or_else(none, |[low, high]| format!("{low:.3} to {high:.3}")),
    ];
    cells.extend(point.noise.clone());
    cells
}

/// A mean and its interval, us.
type Mean = (f64, Option<[f64; 2]>);

/// Time of the largest number of cycles.
fn by_ranks(cycles: &Cycles, keys: &[Key], id: &'static str) -> Option<Figure> {
    let points: Vec<&Point> =
        cycles.points.iter().filter(|point| point.cycles == cycles.about.cycles).collect();
    let (first, last) = (points.first()?, points.last()?);
    let times = points.iter().flat_map(|p| [p.noiseless_us, p.conventional_us, p.redundant_us]);
    let y = Scale::decades(times.map(|us| us * US), Unit::Nanoseconds)?;
    let x = Scale::log(first.ranks as f64 / 1.3, last.ranks as f64 * 1.3, Unit::Ranks);
    let mut plot = Plot::new(id, "Time of all cycles by ranks", (WIDE, HEIGHT), x, y)
        .titles("ranks", "time of all cycles");
    let cases: [fn(&Point) -> Mean; 3] = [
        |p| (p.noiseless_us, p.noiseless_ci95_us),
        |p| (p.conventional_us, p.conventional_ci95_us),
        |p| (p.redundant_us, p.redundant_ci95_us),
    ];
    for (key, case) in keys.iter().zip(cases) {
        let of = |point: &&Point| {
            let (mean, interval) = case(point);
            (point.ranks as f64, mean * US, interval.map(|ends| ends.map(|us| us * US)))
        };
        curve(&mut plot, key, &points.iter().map(of).collect::<Vec<_>>());
    }
    let caption = format!(
        "Mean time of {} cycles with its 95\u{a0}% interval.",
        count(u64::from(cycles.about.cycles))
    );
    Some(Figure { svg: plot.finish(), size: (WIDE, HEIGHT), caption })
}

/// Overhead of the largest number of ranks.
fn by_cycle(cycles: &Cycles, keys: &[Key], id: &'static str) -> Option<Figure> {
    let most = cycles.points.iter().map(|point| point.ranks).max()?;
    let points: Vec<&Point> = cycles.points.iter().filter(|point| point.ranks == most).collect();
    let (true, Some(last)) = (points.len() > 1, points.last()) else { return None };
    let overheads =
        points.iter().flat_map(|p| [p.conventional_overhead_us, p.redundant_overhead_us]);
    let top = overheads.fold(0.0, f64::max) * US;
    let x = Scale::linear(0.0, f64::from(last.cycles) * 1.04, Unit::Plain);
    let y = Scale::linear(0.0, top * 1.08, Unit::Nanoseconds);
    let mut plot = Plot::new(id, "Overhead by cycle", (WIDE, HEIGHT), x, y)
        .titles("cycles", "longer than noiseless");
    let cases: [fn(&Point) -> f64; 2] =
        [|p| p.conventional_overhead_us, |p| p.redundant_overhead_us];
    for (key, case) in keys.iter().skip(1).zip(cases) {
        let of = |point: &&Point| (f64::from(point.cycles), case(point) * US, None);
        curve(&mut plot, key, &points.iter().map(of).collect::<Vec<_>>());
    }
    let caption = format!("What noise costs {} ranks, by number of cycles.", ranks(most));
    Some(Figure { svg: plot.finish(), size: (WIDE, HEIGHT), caption })
}
