//! The modes of a sample: places around which its values gather. Latencies that take one of several paths
//! have several, which a mean hides.
//!
//! Two modes are separate if the valley between them is deeper than chance explains: if a density has one
//! peak, then of three intervals in a row, the middle one is at least as dense as one of its
//! neighbours. A valley is an interval that is less dense than one on its left and one on its right, both
//! beyond what a random sample would show. The chance is bounded, not estimated: of `a` spacings with a
//! total width A and `b` with a total width B, all equally dense, A/(A + B) has a beta distribution, whose
//! tail Chernoff's inequality bounds. Nothing is assumed about the shape of a mode, and no width has to
//! be chosen. The deepest valley divides the sample, and both parts are examined in the same way.

use rand::RngExt;
use random::{Stream, bootstrap};

use crate::{
    grid::{self, Atom},
    normal,
    sketch::Sample,
};

/// A place around which values gather.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// The highest point.
    pub at: f64,
    /// 95 % interval of the place.
    pub ci95: (f64, f64),
    /// Of all samples: those between the valleys on either side.
    pub share: f64,
    /// The valleys, or the ends of the sample.
    pub from: f64,
    pub to: f64,
    /// The narrowest interval that holds half of the mode.
    pub core: (f64, f64),
    /// Share of all samples per unit of the values, at the highest point.
    pub density: f64,
}

/// Samples are grouped into cells of equal count; a valley consists of cells.
const CELLS: u64 = 1024;
/// A valley is at most this dense, compared with either side: shallower ones do not matter, however certain.
const DEPTH: f64 = 0.8;
/// A smaller share of the samples is not a mode.
pub const LEAST_SHARE: f64 = 0.005;
/// Modes and valleys narrower than this many bins of the grid are not told from the steps of a clock.
const NARROWEST: f64 = 12.0;
/// Logarithm of the chance of a valley; a test finds that samples with one mode exceed it in less than 1 of 100 cases.
const EVIDENCE: f64 = 7.0;
const REPLICATES: usize = 200;

/// Cells of equal count: edges.
struct Cells {
    edges: Vec<f64>,
    /// Samples per cell.
    count: f64,
    min: i64,
}

impl Cells {
    fn of(steps: &Steps<'_>, sample: &Sample) -> Cells {
        let count = (sample.n() / CELLS).max(1) as f64;
        let mut cells = Cells { edges: Vec::new(), count, min: sample.min };
        let atoms = sample.atoms();
        let Some(first) = atoms.first() else { return cells };
        let mut right = first.low as f64;
        cells.edges.push(right);
        let mut filled = 0.0;
        let mut put = |cells: &mut Cells, from: f64, to: f64, samples: f64| {
            let mut done = 0.0;
            while filled + (samples - done) >= count {
                done += count - filled;
                filled = 0.0;
                cells.edges.push(from + (to - from) * done / samples);
            }
            filled += samples - done;
        };
        for (at, atom) in atoms.iter().enumerate() {
            let value = atom.value() as f64;
            if atom.count == 1 {
                // A single sample has the space since the last one.
                if at > 0 {
                    put(&mut cells, right, value, 1.0);
                    right = value;
                }
                continue;
            }
            // Equal values are spread over the step of the clock. If there is space before them, it has
            // one of them.
            let (before, after) = steps.halves(at);
            let next =
                atoms.get(at + 1).map_or(f64::INFINITY, |next| match steps.is_apart(at + 1) {
                    true => next.low as f64 - 0.5,
                    false => (value + next.value() as f64) / 2.0,
                });
            let left = if at == 0 { value - before } else { right.max(value - before) };
            let end = (value + after).min(next.max(value));
            if at == 0 {
                cells.edges[0] = left;
                right = left;
            }
            let samples = atom.count as f64;
            let mut rest = samples;
            // Less than half a step is rounding.
            if left > right + before {
                let part = left + (end - left) / samples;
                put(&mut cells, right, part, 1.0);
                right = part;
                rest -= 1.0;
            }
            put(&mut cells, right, end, rest);
            right = end;
        }
        // What is left over belongs to the last cell.
        if let [.., _, last] = &mut cells.edges[..] {
            *last = last.max(right);
        }
        cells
    }

    fn len(&self) -> usize {
        self.edges.len().saturating_sub(1)
    }

    fn width(&self, from: usize, to: usize) -> f64 {
        self.edges[to] - self.edges[from]
    }

    /// Width below which nothing is resolved.
    fn resolution(&self, edge: f64) -> f64 {
        NARROWEST * grid::width((edge - self.min as f64).max(0.0) as u64) as f64
    }
}

/// What equal values stand for: the ticks of a clock, or themselves.
///
/// If a few values ([`MOST_MODES`] or fewer) hold most samples, each stands for itself, however far it is from the
/// others. They are ticks if there are at least [`FEWEST_TICKS`] of them, most of them one step apart: with fewer, a
/// coarse clock cannot be told from as many paths, and the values are shown as they are.
struct Steps<'a> {
    atoms: &'a [Atom],
    /// Those that stand for themselves.
    apart: Vec<usize>,
}

/// Ticks of a coarse clock are at least so many.
const FEWEST_TICKS: usize = 5;

impl<'a> Steps<'a> {
    fn of(sample: &'a Sample) -> Steps<'a> {
        /// The values that stand for themselves hold this share of the samples,
        const HOLD: f64 = 0.9;
        /// and each is repeated so often on average.
        const REPEATED: u64 = 5;
        let atoms = sample.atoms();
        let mut heavy: Vec<usize> = (0..atoms.len()).collect();
        let by_count = |a: &usize, b: &usize| atoms[*b].count.cmp(&atoms[*a].count).then(a.cmp(b));
        if heavy.len() > MOST_MODES {
            heavy.select_nth_unstable_by(MOST_MODES, by_count);
            heavy.truncate(MOST_MODES);
        }
        heavy.sort_unstable_by(by_count);
        let mut held = 0;
        let enough = heavy.iter().position(|&at| {
            held += atoms[at].count;
            held as f64 >= HOLD * sample.n() as f64
        });
        let Some(last) = enough else { return Steps { atoms, apart: Vec::new() } };
        heavy.truncate(last + 1);
        heavy.sort_unstable();
        if held < REPEATED * heavy.len() as u64 || are_ticks(atoms, &heavy) {
            heavy.clear();
        }
        Steps { atoms, apart: heavy }
    }

    fn is_apart(&self, at: usize) -> bool {
        self.apart.binary_search(&at).is_ok()
    }

    /// Half of the step to the next value on either side. A value far from all others has the step of those
    /// around it, up to a factor of 10, as between 9.99 and 10.0. All of the space beside a value that stands for
    /// itself belongs to its neighbour.
    fn halves(&self, at: usize) -> (f64, f64) {
        const AROUND: usize = 8;
        let atoms = self.atoms;
        let own = (atoms[at].high - atoms[at].low + 1) as f64 / 2.0;
        if self.is_apart(at) {
            return (own, own);
        }
        let step = |from: usize| (atoms[from + 1].value() - atoms[from].value()) as f64;
        let (from, to) = (at.saturating_sub(AROUND), (at + AROUND).min(atoms.len() - 1));
        let mut steps: Vec<f64> = (from..to).map(step).collect();
        steps.sort_unstable_by(f64::total_cmp);
        let longest = match steps[..] {
            [] => return (own, own),
            // Two values say nothing about a step.
            [only] => only / 8.0,
            _ => 10.0 * steps[(steps.len() - 1) / 2],
        };
        let before = at.checked_sub(1).map(|before| (step(before), self.is_apart(before)));
        let after = (at + 1 < atoms.len()).then(|| (step(at), self.is_apart(at + 1)));
        let half = |this: Option<(f64, bool)>, other: Option<(f64, bool)>| {
            let (step, whole) = this.or(other).unwrap_or((0.0, false));
            own.max(step.min(longest) / if whole && this.is_some() { 1.0 } else { 2.0 })
        };
        (half(before, after), half(after, before))
    }
}

/// Whether most of the repeated values are one step apart, and these too.
fn are_ticks(atoms: &[Atom], these: &[usize]) -> bool {
    /// Rounding of a step.
    const ALIKE: f64 = 1.34;
    let between = |pair: &[i64]| (pair[1] - pair[0]) as f64;
    let repeated: Vec<i64> = atoms.iter().filter(|atom| atom.count > 1).map(Atom::value).collect();
    let mut gaps: Vec<f64> = repeated.windows(2).map(between).collect();
    if repeated.len() < FEWEST_TICKS {
        return false;
    }
    gaps.sort_unstable_by(f64::total_cmp);
    let step = gaps[(gaps.len() - 1) / 2];
    let alike = gaps.iter().filter(|&&gap| gap <= ALIKE * step && step <= ALIKE * gap).count();
    let values: Vec<i64> = these.iter().map(|&at| atoms[at].value()).collect();
    let near = values.windows(2).filter(|pair| between(pair) <= OVER_TICKS * step).count();
    2 * alike > gaps.len() && 2 * near >= values.len().saturating_sub(1)
}

/// Minus the logarithm of a bound on the chance that `a` spacings are so wide compared with `b` others.
fn evidence(a: f64, wide_a: f64, b: f64, wide_b: f64) -> f64 {
    let n = a + b - 1.0;
    let share = wide_a / (wide_a + wide_b);
    let expected = (a - 1.0) / n;
    // Not less dense by enough.
    if a * wide_b > DEPTH * b * wide_a || expected >= share || !share.is_finite() {
        return 0.0;
    }
    let part = |q: f64, p: f64| if q > 0.0 { q * (q / p).ln() } else { 0.0 };
    n * (part(expected, share) + part(1.0 - expected, 1.0 - share))
}

/// Numbers of cells that are examined together.
fn lengths(most: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut length = 1;
    while length <= most {
        lengths.push(length);
        length = (length + length.div_ceil(3)).max(length + 1);
    }
    lengths
}

/// The most certain valley between cells `from` and `to`, and its evidence.
fn valley(
    cells: &Cells,
    (from, to): (usize, usize),
    least: usize,
    evident: f64,
) -> Option<(usize, usize, f64)> {
    let total = to - from;
    if total < 2 * least + 1 {
        return None;
    }
    let lengths = lengths(total);
    // The narrowest interval of each length that ends at or before a place, and that starts there or later.
    let infinite = || vec![f64::INFINITY; total + 1];
    let wide = |start: usize, end: usize| {
        cells.width(start, end).max(cells.resolution(cells.edges[start]))
    };
    let sides: Vec<(usize, Vec<f64>, Vec<f64>)> = lengths
        .iter()
        .map(|&length| {
            let (mut left, mut right) = (infinite(), infinite());
            for end in length..=total {
                left[end] = left[end - 1].min(wide(from + end - length, from + end));
            }
            for start in (0..=total - length).rev() {
                right[start] = right[start + 1].min(wide(from + start, from + start + length));
            }
            (length, left, right)
        })
        .collect();
    let mut best: Option<(usize, usize, f64)> = None;
    for &valley in &lengths {
        for start in least..total.saturating_sub(valley + least) + 1 {
            let end = start + valley;
            let width = cells.width(from + start, from + end);
            if width < cells.resolution(cells.edges[from + start]) {
                continue;
            }
            let enough = best.map_or(evident, |(_, _, found)| found);
            let a = valley as f64 * cells.count;
            // There are more short intervals than long ones to be found by chance.
            let rarity = |length: usize| (cells.len() as f64 / length as f64).ln();
            let against = |narrowest: f64, length: usize| {
                let b = length as f64 * cells.count;
                evidence(a, width, b, narrowest) - rarity(valley) - rarity(length)
            };
            let left = sides.iter().map(|(length, left, _)| against(left[start], *length));
            let left = left.fold(0.0, f64::max);
            if left <= enough {
                continue;
            }
            let right = sides.iter().map(|(length, _, right)| against(right[end], *length));
            let found = left.min(right.fold(0.0, f64::max));
            if found > enough {
                best = Some((from + start, from + end, found));
            }
        }
    }
    best
}

/// The least dense place within a valley, as an edge between cells.
fn lowest(cells: &Cells, (from, to): (usize, usize)) -> usize {
    let length = ((to - from) / 4).max(1);
    let widest = (from..=to - length)
        .max_by(|&a, &b| cells.width(a, a + length).total_cmp(&cells.width(b, b + length)));
    let start = widest.unwrap_or(from);
    // Of a single cell, the edge on the side of which the neighbour is wider.
    let middle = start + length / 2;
    match length {
        1 if start + 1 < cells.len()
            && (start == 0
                || cells.width(start + 1, start + 2) > cells.width(start - 1, start)) =>
        {
            start + 1
        }
        _ => middle,
    }
}

/// The modes of a sample, in order of place, and the step of its clock if it has a coarse one.
#[derive(Clone, Debug, PartialEq)]
pub struct Modes {
    pub modes: Vec<Mode>,
    /// Values gather at about this distance, as of a coarse clock, which are not counted as modes.
    pub step: Option<f64>,
}

/// At least one mode of any sample. Values that follow one another in episodes are worth less:
/// `inflation` is the factor by which they widen intervals, squared.
///
/// The ticks of a coarse clock, with rounding and jitter, are a comb of many narrow modes. It is smoothed over a few
/// ticks, again and again if need be, until what is left is not one.
pub fn find(sample: &Sample, inflation: f64, seed: u64) -> Modes {
    const MOST_TIMES: usize = 40;
    let mut modes = separate(sample, inflation, seed);
    let (mut step, mut over) = (None, 0.0);
    let mut smoothed;
    let mut last = sample;
    for _ in 0..MOST_TIMES {
        let Some(tick) = comb(last, &modes) else { break };
        // Always wider than before.
        over = (OVER_TICKS * tick).max(1.5 * over);
        let Some(next) = smooth_over(sample, over) else { break };
        step = step.or(Some(tick));
        smoothed = next;
        last = &smoothed;
        modes = separate(last, inflation, seed);
    }
    // Smoothing extends over the ends.
    let (min, max) = (sample.min as f64, sample.max as f64 + 1.0);
    for mode in &mut modes {
        for end in [&mut mode.from, &mut mode.to, &mut mode.at] {
            *end = end.clamp(min, max);
        }
    }
    Modes { modes, step }
}

/// Ticks over which a comb is smoothed.
const OVER_TICKS: f64 = 4.0;

/// Nobody distinguishes more modes: what has more is smoothed, the closest first.
pub const MOST_MODES: usize = 8;

/// The distance between neighbouring modes, if they are a comb: too many, or all multiples of one distance apart, or
/// hardly further apart than the values themselves.
fn comb(sample: &Sample, modes: &[Mode]) -> Option<f64> {
    const REGULAR: usize = 8;
    const APART: f64 = 0.05;
    const DENSE: usize = 5;
    const STEPS: f64 = 12.0;
    let mut distances: Vec<f64> = modes.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    if modes.len() < DENSE {
        return None;
    }
    distances.sort_unstable_by(f64::total_cmp);
    let tick = distances[distances.len() / 2];
    // The first and the last one may have gathered a tail.
    let inner = &modes[1..modes.len() - 1];
    let regular = modes.len() >= REGULAR
        && inner.windows(2).all(|pair| {
            let ticks = (pair[1].at - pair[0].at) / tick;
            ticks.round() >= 1.0 && (ticks - ticks.round()).abs() <= APART * ticks
        });
    // Between the values of the middle mode.
    let atoms = sample.atoms();
    let middle = modes[modes.len() / 2].at;
    let at = atoms.partition_point(|atom| (atom.value() as f64) < middle).min(atoms.len() - 1);
    let (before, after) = Steps::of(sample).halves(at);
    let dense = tick <= STEPS * 2.0 * before.min(after);
    match regular || dense {
        true => Some(tick),
        false if modes.len() > MOST_MODES => Some(distances[distances.len() / 4]),
        false => None,
    }
}

/// The sample with every value spread over a triangle this wide on either side, in bins of a quarter of that. A comb of
/// a quarter of the width leaves a ripple of less than a tenth.
fn smooth_over(sample: &Sample, width: f64) -> Option<Sample> {
    const PARTS: i64 = 4;
    let bin = width / PARTS as f64;
    if bin < 1.0 {
        return None;
    }
    let mut weights: Vec<(i64, f64)> = Vec::new();
    for atom in sample.atoms() {
        let place = atom.value() as f64 / bin;
        let nearest = place.round() as i64;
        let near = nearest - PARTS..=nearest + PARTS;
        let weight = |number: i64| (PARTS as f64 - (number as f64 - place).abs()).max(0.0);
        let total: f64 = near.clone().map(weight).sum();
        let count = atom.count as f64;
        weights.extend(near.map(|number| (number, count * weight(number) / total)));
    }
    weights.sort_unstable_by_key(|(number, _)| *number);
    // Rounded so that all samples remain.
    let (mut sum, mut given) = (0.0f64, 0u64);
    let counts = weights.chunk_by(|a, b| a.0 == b.0).map(|same| {
        sum += same.iter().map(|(_, weight)| weight).sum::<f64>();
        let count = (sum.round() as u64).saturating_sub(given);
        given += count;
        ((same[0].0 as f64 * bin).round() as i64, count)
    });
    Sample::of_counts(counts.collect())
}

fn separate(sample: &Sample, inflation: f64, seed: u64) -> Vec<Mode> {
    let steps = Steps::of(sample);
    let cells = Cells::of(&steps, sample);
    let mut cuts = Vec::new();
    let least = (LEAST_SHARE * cells.len() as f64).ceil().max(1.0) as usize;
    let mut open = vec![(0, cells.len())];
    while let Some((from, to)) = open.pop() {
        if let Some((start, end, _)) = valley(&cells, (from, to), least, EVIDENCE) {
            let cut = lowest(&cells, (start, end));
            if cut > from && cut < to {
                cuts.push(cut);
                open.extend([(from, cut), (cut, to)]);
            }
        }
    }
    cuts.sort_unstable();
    let mut ends: Vec<f64> = vec![sample.min as f64];
    ends.extend(cuts.iter().map(|&cut| cells.edges[cut]));
    ends.push(sample.max as f64 + 1.0);
    let mut modes = Vec::new();
    for (number, pair) in (0u64..).zip(ends.windows(2)) {
        let stream = Stream::new(random::key(seed, 0x6d6f_6465, number));
        modes.extend(mode((sample, &steps), (pair[0], pair[1]), inflation, stream));
    }
    modes
}

/// The mode between two valleys.
fn mode(
    (sample, steps): (&Sample, &Steps<'_>),
    (from, to): (f64, f64),
    inflation: f64,
    mut stream: Stream,
) -> Option<Mode> {
    let atoms = sample.atoms();
    let first = atoms.partition_point(|atom| (atom.value() as f64) < from);
    let end = atoms.partition_point(|atom| (atom.value() as f64) < to);
    let own = &atoms[first..end];
    let n: u64 = own.iter().map(|atom| atom.count).sum();
    if n == 0 {
        return None;
    }
    let core = shortest_half(own, n);
    // Wide enough for the values of one step of the clock.
    let place = own.partition_point(|atom| (atom.value() as f64) < (core.0 + core.1) / 2.0);
    let (before, after) = steps.halves((first + place).min(atoms.len() - 1));
    let step = 2.0 * before.min(after);
    let wide = (core.1 - core.0).max(step);
    let (edge, far_edge) = (from - step / 2.0, to + step / 2.0);
    let low = (core.0 - wide).max(edge);
    let high = (core.1 + wide).min(far_edge);
    // Where the sample ends, the density may fall from its highest value to nothing.
    let walls = |low: f64, high: f64| {
        let (min, max) = (sample.min as f64, sample.max as f64 + 1.0);
        (from <= min && low <= edge, to >= max && high >= far_edge)
    };
    // Of a normal mode, the narrowest half is 1.349 standard deviations wide.
    let mut smoother = Smoother::new(low, high, step, wide / 1.349, n as f64 / inflation);
    smoother.walls = walls(low, high);
    smoother.count(own);
    // Once more around the peak: the steep side of a skewed mode is narrower than its half.
    let scale = smoother.steepness().max(wide / 1.349 / 8.0);
    let around = (smoother.peak().0 - 6.0 * scale, smoother.peak().0 + 6.0 * scale);
    let (low, high) = (low.max(around.0), high.min(around.1));
    let mut smoother = Smoother::new(low, high, step, scale, n as f64 / inflation);
    smoother.walls = walls(low, high);
    smoother.count(own);
    let within = |place: f64| place.clamp(from, to);
    let (at, height) = smoother.peak();
    let at = within(at);
    let places = (0..REPLICATES).map(|_| {
        let again = smoother
            .counts
            .iter()
            .map(|&count| (count + (count * inflation).sqrt() * normal(stream.random())).max(0.0));
        within(smoother.peak_of(&again.collect::<Vec<f64>>()).0)
    });
    let (low_at, high_at) = bootstrap::interval(at, places.collect());
    let all = sample.n() as f64;
    Some(Mode {
        at,
        ci95: (low_at, high_at),
        share: n as f64 / all,
        from,
        to,
        core,
        density: height / all,
    })
}

/// Counts in narrow bins, smoothed by a normal kernel.
struct Smoother {
    low: f64,
    bin: f64,
    step: f64,
    counts: Vec<f64>,
    kernel: Vec<f64>,
    /// Nothing is beyond the lower and the upper end: what the kernel puts there is reflected. Otherwise a density
    /// that is highest at an end would have its peak as far inside as the kernel is wide.
    walls: (bool, bool),
}

impl Smoother {
    const BINS: usize = 256;

    /// For a peak with this standard deviation and number of samples.
    fn new(low: f64, high: f64, step: f64, scale: f64, n: f64) -> Smoother {
        let bin = ((high - low) / Self::BINS as f64).max(1e-9);
        let bandwidth = (0.9 * scale * n.max(2.0).powf(-1.0 / 7.0)).max(step / 2.0);
        let weights = (0..Self::BINS).map(|k| (-0.5 * (k as f64 * bin / bandwidth).powi(2)).exp());
        let mut kernel: Vec<f64> = weights.take_while(|weight| *weight > 1e-4).collect();
        // Heights are counts per unit of the values.
        let total = bin * (2.0 * kernel.iter().sum::<f64>() - kernel[0]);
        kernel.iter_mut().for_each(|weight| *weight /= total);
        let counts = vec![0.0; Self::BINS];
        Smoother { low, bin, step, counts, kernel, walls: (false, false) }
    }

    fn count(&mut self, atoms: &[Atom]) {
        for atom in atoms {
            let place = (atom.value() as f64 - self.low) / self.bin;
            spread(&mut self.counts, place, self.step / self.bin, atom.count as f64);
        }
    }

    fn peak(&self) -> (f64, f64) {
        self.peak_of(&self.counts)
    }

    /// Place and height.
    fn peak_of(&self, counts: &[f64]) -> (f64, f64) {
        let (place, height) = highest(&smooth(counts, &self.kernel, self.walls));
        // The whole of the first or last bin is at the wall.
        let last = (counts.len() - 1) as f64;
        let bins = match self.walls {
            (true, _) if place <= 0.0 => 0.0,
            (_, true) if place >= last => last + 1.0,
            _ => place + 0.5,
        };
        (self.low + bins * self.bin, height)
    }

    /// Standard deviation of a normal peak that is as steep as the steeper side of this one.
    fn steepness(&self) -> f64 {
        let heights = smooth(&self.counts, &self.kernel, self.walls);
        let (place, height) = highest(&heights);
        let top = (place.round().max(0.0) as usize).min(heights.len() - 1);
        let is_half = |at: &usize| heights[*at] < height / 2.0;
        let left = (0..top).rev().find(is_half).map(|at| top - at);
        let right = (top..heights.len()).find(is_half).map(|at| at - top);
        let half = left.into_iter().chain(right).min().unwrap_or(heights.len());
        // A normal peak falls to a half after 1.177 standard deviations.
        half as f64 * self.bin / 1.177
    }
}

/// Adds samples to bins, evenly from half a step below a place to half a step above.
fn spread(counts: &mut [f64], at: f64, step: f64, samples: f64) {
    let (from, to) = (at - step / 2.0, at + step / 2.0);
    if to <= 0.0 || from >= counts.len() as f64 {
        return;
    }
    if step < 1e-9 {
        counts[(at as usize).min(counts.len() - 1)] += samples;
        return;
    }
    let last = (to.ceil() as usize).min(counts.len());
    for (bin, count) in counts.iter_mut().enumerate().take(last).skip(from.max(0.0) as usize) {
        let inside = (to.min(bin as f64 + 1.0) - from.max(bin as f64)).max(0.0);
        *count += samples * inside / step;
    }
}

/// The narrowest interval that holds half of the samples.
fn shortest_half(atoms: &[Atom], n: u64) -> (f64, f64) {
    let half = n.div_ceil(2);
    let (mut best, mut end, mut held) = ((0, atoms.len() - 1), 0, 0);
    let mut narrowest = i64::MAX;
    for start in 0..atoms.len() {
        while held < half && end < atoms.len() {
            held += atoms[end].count;
            end += 1;
        }
        if held < half {
            break;
        }
        let width = atoms[end - 1].value() - atoms[start].value();
        if width < narrowest {
            narrowest = width;
            best = (start, end - 1);
        }
        held -= atoms[start].count;
    }
    (atoms[best.0].value() as f64, atoms[best.1].value() as f64)
}

/// What falls beyond a wall is reflected.
fn smooth(counts: &[f64], kernel: &[f64], walls: (bool, bool)) -> Vec<f64> {
    let mut smooth = vec![0.0; counts.len()];
    for (place, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        for (distance, weight) in kernel.iter().enumerate() {
            let below = match place.checked_sub(distance) {
                Some(below) => Some(below),
                None if walls.0 => Some(distance - place - 1),
                None => None,
            };
            let above = match place + distance {
                above if above < counts.len() => Some(above),
                above if walls.1 => (2 * counts.len() - 1).checked_sub(above),
                _ => None,
            };
            // Itself once.
            let below = below.filter(|_| distance > 0);
            for place in [below, above].into_iter().flatten() {
                if let Some(sum) = smooth.get_mut(place) {
                    *sum += count * weight;
                }
            }
        }
    }
    smooth
}

/// Place and height of the highest point, by a parabola through the highest bin and its neighbours.
fn highest(heights: &[f64]) -> (f64, f64) {
    let top = (0..heights.len()).max_by(|&a, &b| heights[a].total_cmp(&heights[b])).unwrap_or(0);
    let at = |place: Option<usize>| place.and_then(|place| heights.get(place)).copied();
    let (Some(before), Some(here), Some(after)) =
        (at(top.checked_sub(1)), at(Some(top)), at(top.checked_add(1)))
    else {
        return (top as f64, heights.get(top).copied().unwrap_or(0.0));
    };
    let bend = before - 2.0 * here + after;
    let shift = if bend < 0.0 { 0.5 * (before - after) / bend } else { 0.0 };
    (top as f64 + shift.clamp(-0.5, 0.5), here)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: f64 = 1e6;

    fn unit(key: u64, i: u64) -> f64 {
        ((random::draw(key, i) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    fn sample(n: u64, value: impl Fn(u64) -> f64) -> Sample {
        let values: Vec<i64> = (0..n).map(|i| (value(i) * US).round() as i64).collect();
        Sample::of_values(&values, 1).unwrap()
    }

    /// Parts of a mixture: share, place, standard deviation.
    type Part = (f64, f64, f64);
    const PAPER: [Part; 3] = [(0.6, 4.6, 0.1), (0.3, 5.7, 0.2), (0.1, 7.5, 0.25)];

    fn mixture(parts: &[Part], i: u64) -> f64 {
        let (mut u, z) = (unit(11, i), normal(random::draw(12, i)));
        for &(share, at, sd) in parts {
            if u < share {
                return at + sd * z;
            }
            u -= share;
        }
        let (_, at, sd) = parts[parts.len() - 1];
        at + sd * z
    }

    /// The modes are these, within a seventh of a standard deviation, or what few samples allow.
    fn assert_modes(sample: &Sample, parts: &[Part], what: &str) {
        let Modes { modes, .. } = find(sample, 1.0, 3);
        let said: Vec<String> =
            modes.iter().map(|m| format!("{:.3} ({:.4})", m.at / US, m.share)).collect();
        assert_eq!(modes.len(), parts.len(), "{what}, {}: {said:?}", sample.n());
        for (mode, &(share, at, sd)) in modes.iter().zip(parts) {
            // 4 standard deviations of the count, and what overlaps.
            let error = 4.0 * (share * (1.0 - share) / sample.n() as f64).sqrt() + 0.013;
            assert!((mode.share - share).abs() < error.min(share / 2.0), "{what}: {said:?}");
            let few = 5.0 * (mode.share * sample.n() as f64).powf(-1.0 / 3.0);
            assert!((mode.at / US - at).abs() < sd * few.max(0.15), "{what}: {said:?}");
            assert!(mode.ci95.0 <= mode.at && mode.at <= mode.ci95.1 && mode.from < mode.to);
        }
    }

    #[test]
    fn three_modes_of_a_network_are_found_with_their_shares_in_any_number_of_samples() {
        for n in [1_000, 10_000, 100_000, 10_000_000] {
            assert_modes(&sample(n, |i| mixture(&PAPER, i)), &PAPER, "published");
        }
        let wide = [(0.5, 4.6, 0.3), (0.3, 5.7, 0.3), (0.2, 7.5, 0.4)];
        let rare = [(0.69, 4.6, 0.15), (0.3, 5.7, 0.15), (0.01, 7.5, 0.2)];
        let narrow = [(0.69, 4.6, 0.15), (0.01, 5.7, 0.05), (0.3, 7.5, 0.3)];
        for n in [10_000, 100_000, 2_000_000] {
            assert_modes(&sample(n, |i| mixture(&wide, i)), &wide, "wide");
            assert_modes(&sample(n, |i| mixture(&rare, i)), &rare, "rare");
            assert_modes(&sample(n, |i| mixture(&narrow, i)), &narrow, "narrow");
            let far = |i| 1e6 + mixture(&PAPER, i);
            let shifted = PAPER.map(|(share, at, sd)| (share, 1e6 + at, sd));
            assert_modes(&sample(n, far), &shifted, "far from zero");
        }
    }

    #[test]
    fn the_steps_of_a_clock_are_not_modes() {
        let parts = [(0.6, 4.6, 0.15), (0.3, 5.7, 0.2), (0.1, 7.5, 0.25)];
        for n in [1_000, 10_000, 100_000, 2_000_000] {
            for step in [0.001, 0.01, 0.05] {
                let stepped = |i| (mixture(&parts, i) / step).round() * step;
                assert_modes(&sample(n, stepped), &parts, "steps");
            }
            let ticks = |i| ((mixture(&parts, i) * 24.0).round() / 24.0 * 1e3).floor() / 1e3;
            assert_modes(&sample(n, ticks), &parts, "a clock of 24 MHz");
            let one = [(1.0, 5.0, 0.2)];
            let jitter = |i| (mixture(&one, i) * 24.0).round() / 24.0 + 1e-3 * unit(8, i).round();
            let jittered = sample(n, jitter);
            assert_modes(&jittered, &one, "a clock of 24 MHz with jitter");
            let digits = |i| {
                let value = 4.0 + (1.5 * normal(random::draw(12, i))).exp();
                format!("{value:.2e}").parse().unwrap()
            };
            assert_eq!(find(&sample(n, digits), 1.0, 3).modes.len(), 1, "three digits, {n}");
        }
    }

    #[test]
    fn one_mode_stays_one_whatever_its_shape() {
        type Shape = fn(f64, f64, f64) -> f64;
        let shapes: [(&str, Shape); 7] = [
            ("uniform", |u, _, _| 5.0 + u),
            ("normal", |_, _, z| 100.0 + z),
            ("log-normal", |_, _, z| 4.0 + z.exp()),
            ("wide log-normal", |_, _, z| 4.0 + (2.0 * z).exp()),
            ("exponential", |u, _, _| 4.0 - u.ln()),
            ("gamma", |u, v, _| 4.0 - (u * v).ln()),
            ("Pareto", |u, _, _| 4.0 * u.powf(-0.7)),
        ];
        let mut wrong = Vec::new();
        for (n, times) in [(200, 40), (1_000, 40), (20_000, 10), (1_500_000, 1)] {
            for (name, shape) in shapes {
                for time in 0..times {
                    let key = random::key(n, time, 7);
                    let draw = |i| {
                        let z = normal(random::draw(key ^ 3, i));
                        shape(unit(key ^ 1, i), unit(key ^ 2, i), z)
                    };
                    let found = find(&sample(n, draw), 1.0, 3).modes.len();
                    if found != 1 {
                        wrong.push((name, n, time, found));
                    }
                }
            }
        }
        // Of 637 samples, the bound allows a few.
        assert!(wrong.len() <= 3, "{wrong:?}");
    }

    #[test]
    fn rounding_and_jitter_of_a_clock_are_not_modes() {
        // Half of a time in ticks of 10 ns, jittered by a nanosecond and rounded to one, with a tail; and ticks of 3.3 ns.
        for n in [20_000, 200_000] {
            for (tick, jitter) in [(0.005, 0.0006), (0.01, 0.001), (0.0033, 0.0004)] {
                let value = |i: u64| {
                    let tail = if unit(9, i) < 0.02 { -20.0 * unit(10, i).ln() } else { 0.0 };
                    let time = 2.4 + 0.05 * normal(random::draw(12, i)) + tail;
                    let ticks = (time / tick).round() * tick + jitter * (unit(13, i) - 0.5);
                    (ticks * 1e3).round() / 1e3
                };
                let Modes { modes, .. } = find(&sample(n, value), 1.0, 3);
                let said: Vec<String> =
                    modes.iter().map(|m| format!("{:.3} ({:.4})", m.at / US, m.share)).collect();
                assert!(modes.len() <= 2, "{n} {tick}: {said:?}");
                assert!((modes[0].at / US - 2.4).abs() < 0.02, "{n} {tick}: {said:?}");
            }
        }
    }

    #[test]
    fn many_modes_that_are_not_a_comb_stay_apart() {
        let hops = |i: u64| {
            let hop = random::draw(14, i) % 7;
            2.0 + [0.0, 0.21, 0.47, 0.63, 0.9, 1.2, 1.36][hop as usize]
                + 0.02 * normal(random::draw(12, i))
        };
        let rounded = |i| (hops(i) * 1e3).round() / 1e3;
        assert_eq!(find(&sample(50_000, rounded), 1.0, 3).modes.len(), 7);
    }

    #[test]
    fn each_of_a_few_values_is_a_mode() {
        type Atoms<'a> = &'a [(f64, f64)];
        let paper: Atoms = &[(0.5, 4.6), (0.3, 5.7), (0.2, 7.5)];
        let cases: [(u64, Atoms); 6] = [
            (10_000, paper),
            (150, &[(1.0 / 3.0, 1.0), (1.0 / 3.0, 2.0), (1.0 / 3.0, 9.0)]),
            (10_000, &[(0.5, 4.0), (0.3, 6.0), (0.2, 8.0)]),
            (30_000, &[(0.25, 1.0), (0.25, 2.0), (0.25, 3.0), (0.25, 4.0)]),
            (100, paper),
            (3_000_000, paper),
        ];
        for (n, atoms) in cases {
            for outliers in [0, n / 50] {
                // The exact shares; the outliers are far apart.
                let value = |i: u64| {
                    if i >= n - outliers {
                        return 20.0 + 500.0 * unit(8, i);
                    }
                    let mut u = i as f64 / (n - outliers) as f64 + 1e-9;
                    let found = atoms.iter().find(|(share, _)| {
                        u -= share;
                        u < 0.0
                    });
                    found.unwrap_or(&atoms[atoms.len() - 1]).1
                };
                let modes = find(&sample(n, value), 1.0, 3).modes;
                let said: Vec<(f64, f64)> =
                    modes.iter().map(|mode| (mode.at / US, mode.share)).collect();
                assert!(modes.len() >= atoms.len(), "{n} {outliers}: {said:?}");
                for (mode, (share, at)) in modes.iter().zip(atoms) {
                    // Of many samples, the grid has four digits.
                    assert!((mode.at / US / at - 1.0).abs() < 1e-4, "{n} {outliers}: {said:?}");
                    assert!((mode.share - share).abs() < 0.025, "{n} {outliers}: {said:?}");
                }
                // Outliers are at most one mode more.
                let most = atoms.len() + usize::from(outliers > 0);
                assert!(modes.len() <= most, "{n} {outliers}: {said:?}");
            }
        }
    }

    #[test]
    fn five_neighbouring_multiples_of_a_step_are_ticks() {
        for n in [1_000, 100_000] {
            // Nearly all samples are on five ticks.
            let coarse = |i| (5.0 + 0.8 * normal(random::draw(12, i))).round();
            assert_eq!(find(&sample(n, coarse), 1.0, 3).modes.len(), 1, "{n}");
            let equal = |i: u64| (1 + i % 5) as f64;
            assert_eq!(find(&sample(n, equal), 1.0, 3).modes.len(), 1, "{n}");
            // Three ticks around each of three places.
            let places = |i: u64| {
                let tick = [0.0, 0.1, -0.1, 0.0][(i / 16 % 4) as usize];
                [4.0, 4.0, 6.0, 8.0][(i % 4) as usize] + tick
            };
            assert_eq!(find(&sample(n, places), 1.0, 3).modes.len(), 3, "{n}");
        }
    }

    #[test]
    fn few_values_have_modes_of_their_own() {
        let two = sample(1_000, |i| if unit(8, i) < 0.3 { 5.0 } else { 8.0 });
        let found = find(&two, 1.0, 3);
        let places: Vec<f64> = found.modes.iter().map(|mode| (mode.at / US).round()).collect();
        assert_eq!(places, [5.0, 8.0]);
        for values in [&[7][..], &[7, 7, 7], &[1, 1_000_000]] {
            let sample = Sample::of_values(values, 1).unwrap();
            let modes = find(&sample, 1.0, 3).modes;
            assert_eq!(modes.len(), 1, "{values:?}");
            assert!(modes[0].density.is_finite() && modes[0].share == 1.0, "{modes:?}");
        }
    }

    /// Samples that share the offset of their episode: as many values as episodes are what there is to know, and the
    /// rest repeats them.
    #[test]
    fn episodes_are_not_modes() {
        for (length, spread) in [(20, 0.2), (300, 0.3), (3_000, 1.0)] {
            for n in [10_000, 100_000] {
                let value = |i: u64| {
                    let offset = normal(random::draw(6, i / length));
                    10.0 + 0.1 * (spread * normal(random::draw(5, i)) + offset)
                };
                let found = find(&sample(n, value), 1.0, 1).modes;
                assert_eq!(found.len(), 1, "{length}, {n}: {found:?}");
            }
        }
    }

    /// Densities that are highest at an end of the sample, and one that is equally high everywhere.
    #[test]
    fn a_mode_at_an_end_is_found_there() {
        for n in [5_000, 50_000, 1_000_000] {
            let of = |value: &dyn Fn(f64) -> f64| {
                let modes = find(&sample(n, |i| value(unit(31, i))), 1.0, 3).modes;
                assert_eq!(modes.len(), 1, "{n}: {modes:?}");
                let us = |at: f64| at / US;
                (us(modes[0].at), us(modes[0].ci95.0), us(modes[0].ci95.1))
            };
            // The smallest of n values is 1/n of the mean above the end.
            let near = 10.0 / n as f64 * 8.0;
            let (at, low, high) = of(&|u| -10.0 * u.ln());
            assert!(
                (-1e-6..=near).contains(&low) && at <= 1.0 && high < 2.0,
                "{n}: {at} {low} {high}"
            );
            let (at, low, high) = of(&|u| 1.0 - 2.0 * u.ln());
            assert!(
                (1.0..=1.0 + near).contains(&low) && at <= 1.2 && high < 1.4,
                "{n}: {at} {low} {high}"
            );
            let (at, low, high) = of(&|u| 100.0 + 10.0 * u.ln());
            assert!((100.0 - near..=100.0 + 1e-5).contains(&high), "{n}: {at} {low} {high}");
            assert!(at >= 99.0 && low > 98.0, "{n}: {at} {low} {high}");
            let (at, low, high) = of(&|u| 5.0 + u);
            assert!(
                5.0 <= low && low <= at && at <= high && high <= 6.0 + 1e-5,
                "{n}: {low} {high}"
            );
        }
    }
}
