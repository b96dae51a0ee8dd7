//! Detours over time, thinned so that any recording fits on a page.
//!
//! Of all detours of one series in one cell (an interval of time and a range of lengths) the longest is
//! kept. When there are too many cells, they are made twice as large. So the longest of every series
//! and of every interval is always kept; only detours hidden under it are dropped.

use std::collections::HashMap;

/// Maximum number of points on a page.
const POINTS: usize = 30_000;
/// Initial number of time intervals, and of length ranges per decade: about the pixels of a figure.
const COLUMNS: u64 = 1_024;
const PER_DECADE: f64 = 48.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub start_ns: u64,
    pub len_ns: u64,
    pub series: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scatter {
    /// By series, then in time order.
    pub points: Vec<Point>,
    /// Number of detours per series, shown or not.
    pub totals: Vec<u64>,
}

impl Scatter {
    #[must_use]
    pub fn total(&self) -> u64 {
        self.totals.iter().sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Spot {
    series: u16,
    row: u16,
    column: u32,
}

pub(super) struct Collector {
    from_ns: u64,
    span_ns: u64,
    /// Cells are `1 << grain` times their initial width and height.
    grain: u32,
    cells: HashMap<Spot, Point>,
    totals: Vec<u64>,
}

impl Collector {
    pub(super) fn new(from_ns: u64, to_ns: u64, series: usize) -> Self {
        let span_ns = to_ns.saturating_sub(from_ns).max(1);
        Collector { from_ns, span_ns, grain: 0, cells: HashMap::new(), totals: vec![0; series] }
    }

    pub(super) fn add(&mut self, start_ns: u64, len_ns: u64, series: usize) {
        let Some(total) = self.totals.get_mut(series) else { return };
        *total += 1;
        self.keep(Point { start_ns, len_ns, series });
        while self.cells.len() > POINTS {
            self.grain += 1;
            for point in std::mem::take(&mut self.cells).into_values() {
                self.keep(point);
            }
        }
    }

    fn keep(&mut self, point: Point) {
        let cell = self.cell(&point);
        let kept = self.cells.entry(cell).or_insert(point);
        // The earlier of two equals, so that the reading order does not matter.
        let order = |p: &Point| (p.len_ns, std::cmp::Reverse(p.start_ns));
        if order(&point) > order(kept) {
            *kept = point;
        }
    }

    fn cell(&self, point: &Point) -> Spot {
        let since = u128::from(point.start_ns.saturating_sub(self.from_ns));
        let column = since * u128::from(COLUMNS) / u128::from(self.span_ns);
        let row = (point.len_ns.max(1) as f64).log10() * PER_DECADE;
        Spot {
            series: point.series as u16,
            row: row as u16 >> self.grain.min(15),
            column: u32::try_from(column).unwrap_or(u32::MAX) >> self.grain.min(31),
        }
    }

    pub(super) fn finish(self) -> Scatter {
        let mut points: Vec<Point> = self.cells.into_values().collect();
        points.sort_unstable_by_key(|p| (p.series, p.start_ns, p.len_ns));
        Scatter { points, totals: self.totals }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_detours_are_all_there() {
        let mut collector = Collector::new(0, 1_000_000_000, 2);
        for i in 0..500 {
            collector.add(i * 2_000_000, 100 + i, (i % 2) as usize);
        }
        let scatter = collector.finish();
        assert_eq!((scatter.points.len(), scatter.total()), (500, 500));
    }

    #[test]
    fn of_many_the_longest_of_every_series_and_moment_stay() {
        let (span, columns) = (10_000_000_000u64, 64u64);
        let mut collector = Collector::new(0, span, 2);
        let mut longest = [0u64; 2];
        let mut per_column = vec![0u64; columns as usize];
        let mut state = 1u64;
        for i in 0..400_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (start, len) = (i * 25_000, 50 + (state >> 33) % (1 << (state >> 60)).max(1));
            let series = (state >> 59 & 1) as usize;
            longest[series] = longest[series].max(len);
            let column = &mut per_column[(start * columns / span) as usize];
            *column = (*column).max(len);
            collector.add(start, len, series);
        }
        let scatter = collector.finish();
        assert!(scatter.points.len() <= POINTS);
        assert_eq!(scatter.total(), 400_000);
        for (series, &len) in longest.iter().enumerate() {
            assert!(scatter.points.iter().any(|p| p.series == series && p.len_ns == len));
        }
        for (column, &len) in per_column.iter().enumerate() {
            let at = |p: &&Point| p.start_ns * columns / span == column as u64;
            assert_eq!(scatter.points.iter().filter(at).map(|p| p.len_ns).max(), Some(len));
        }
    }

    #[test]
    fn times_of_a_damaged_file_do_not_take_it_down() {
        let mut collector = Collector::new(5, 5, 1);
        collector.add(0, 0, 0);
        collector.add(u64::MAX, u64::MAX, 0);
        collector.add(1, 1, 7);
        assert_eq!(collector.finish().points.len(), 2);
    }
}
