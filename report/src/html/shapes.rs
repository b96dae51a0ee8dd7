//! Distribution of the lengths of each source: density, cumulative share, and tail.

use analysis::{Bin, Costs, views::Series, views::Views};

use super::{
    legend::Key,
    plot::{HALF, Plot, THIRD},
    scale::{Scale, Unit},
};

/// Bins per decade of the density.
const PER_DECADE: f64 = 10.0;
const HEIGHT: f64 = 300.0;

/// (length in ns, share).
pub(super) type Curve = Vec<(f64, f64)>;

pub(super) struct Shapes {
    pub(super) density: String,
    pub(super) cumulative: String,
    pub(super) tail: String,
}

/// The bins of a series; None for a mixture.
fn bins<'a>(series: &Series, costs: &'a Costs) -> Option<&'a [Bin]> {
    match series {
        Series::Source(row) => costs.sources.get(*row).map(Vec::as_slice),
        Series::Others(_) => None,
        Series::Outside => Some(costs.outside.as_slice()),
    }
    .filter(|bins| !bins.is_empty())
}

pub(super) fn draw(views: &Views, costs: &Costs, keys: &[Key]) -> Option<Shapes> {
    let named = || views.series.iter().zip(keys);
    let mut all: Vec<(&Key, &[Bin])> =
        named().filter_map(|(series, key)| Some((key, bins(series, costs)?))).collect();
    // All detours, for comparison.
    let whole = Key { class: "all".to_owned(), name: "all detours".to_owned() };
    if !views.lengths.is_empty() {
        all.push((&whole, &views.lengths));
    }
    all.reverse();
    let lengths = all.iter().flat_map(|(_, bins)| bins.iter().map(|b| b.ns.max(1) as f64));
    let x = Scale::decades(lengths, Unit::Nanoseconds)?;
    let total = |bins: &[Bin]| bins.iter().map(|b| b.count).sum::<u64>().max(1) as f64;

    let densities: Vec<_> = all.iter().map(|(key, bins)| (*key, density(bins))).collect();
    let shares = densities.iter().flat_map(|(_, lines)| lines.iter().map(|p| p.1));
    let y = Scale::decades(shares, Unit::Share)?;
    let plot = |id, label: &str, y: Scale, title: &str| {
        Plot::new(id, label, (THIRD, HEIGHT), x, y).titles("length", title)
    };
    let mut pdf = plot("pdf", "Density of lengths", y, "share per tenth of a decade");
    for (key, lines) in &densities {
        pdf.line(&key.class, &key.name, lines);
    }
    let y = Scale::linear(0.0, 1.0, Unit::Share);
    let mut cdf = plot("cdf", "Cumulative distribution of lengths", y, "share at most as long");
    let rarest = all.iter().map(|(_, bins)| 1.0 / total(bins));
    let y = Scale::decades(rarest.chain([1.0]), Unit::Share)?;
    let mut tail = plot("tail", "Tail of lengths", y, "share at least as long");
    for (key, bins) in &all {
        let (below, beyond) = steps(bins);
        cdf.line(&key.class, &key.name, &thinned(&cdf, below));
        tail.line(&key.class, &key.name, &thinned(&tail, beyond));
    }
    Some(Shapes { density: pdf.finish(), cumulative: cdf.finish(), tail: tail.finish() })
}

/// The lengths of all detours of two recordings: cumulative share and tail.
pub(super) fn overlay(sides: [(&Key, &[Bin]); 2]) -> Option<(String, String)> {
    let lengths = sides.iter().flat_map(|(_, bins)| bins.iter().map(|b| b.ns.max(1) as f64));
    let x = Scale::decades(lengths, Unit::Nanoseconds)?;
    let total = |bins: &[Bin]| bins.iter().map(|b| b.count).sum::<u64>().max(1) as f64;
    let rarest = sides.iter().map(|(_, bins)| 1.0 / total(bins));
    let y = Scale::decades(rarest.chain([1.0]), Unit::Share)?;
    let plot = |id, label: &str, y: Scale, title: &str| {
        Plot::new(id, label, (HALF, HEIGHT), x, y).titles("length", title)
    };
    let whole = Scale::linear(0.0, 1.0, Unit::Share);
    let mut cdf = plot("cdf", "Cumulative distribution of lengths", whole, "share at most as long");
    let mut tail = plot("tail", "Tail of lengths", y, "share at least as long");
    for (key, bins) in sides {
        let (below, beyond) = steps(bins);
        cdf.line(&key.class, &key.name, &thinned(&cdf, below));
        tail.line(&key.class, &key.name, &thinned(&tail, beyond));
    }
    Some((cdf.finish(), tail.finish()))
}

/// Share of values in each tenth of a decade, as an outline.
fn density(bins: &[Bin]) -> Curve {
    let total = bins.iter().map(|b| b.count).sum::<u64>().max(1) as f64;
    let mut cells: std::collections::BTreeMap<i32, u64> = std::collections::BTreeMap::new();
    for bin in bins {
        let cell = ((bin.ns.max(1) as f64).log10() * PER_DECADE).floor() as i32;
        *cells.entry(cell).or_insert(0) += bin.count;
    }
    let middle = |cell: i32| 10f64.powf((f64::from(cell) + 0.5) / PER_DECADE);
    cells.iter().map(|(&cell, &n)| (middle(cell), n as f64 / total)).collect()
}

/// Share of values at most as long, and at least as long, for each bin.
fn steps(bins: &[Bin]) -> (Curve, Curve) {
    let total = bins.iter().map(|b| b.count).sum::<u64>().max(1) as f64;
    let (mut seen, mut below, mut beyond) = (0u64, Vec::new(), Vec::new());
    for bin in bins {
        let x = bin.ns.max(1) as f64;
        below.push((x, seen as f64 / total));
        beyond.push((x, (total - seen as f64) / total));
        seen += bin.count;
        below.push((x, seen as f64 / total));
    }
    (below, beyond)
}

/// Drops points too close to the previous one; keeps the last.
pub(super) fn thinned(plot: &Plot, points: Curve) -> Curve {
    let mut kept = Curve::new();
    let far = |a: (f64, f64), b: (f64, f64)| {
        (plot.at_x(a.0) - plot.at_x(b.0)).abs() + (plot.at_y(a.1) - plot.at_y(b.1)).abs() >= 0.7
    };
    let last = points.last().copied();
    for point in points {
        if kept.last().is_none_or(|&before| far(point, before)) {
            kept.push(point);
        }
    }
    if let Some(last) = last.filter(|last| kept.last() != Some(last)) {
        kept.push(last);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_starts_with_everything_and_ends_at_the_longest() {
        let bins = [Bin { ns: 100, count: 3 }, Bin { ns: 1_000_000, count: 1 }];
        let (below, beyond) = steps(&bins);
        assert_eq!(beyond, [(100.0, 1.0), (1e6, 0.25)]);
        assert_eq!(below.last(), Some(&(1e6, 1.0)));
        let shares: f64 = density(&bins).iter().map(|p| p.1).sum();
        assert!((shares - 1.0).abs() < 1e-12);
    }
}
