//! The periodicity of each source, as a spectrum.
//!
//! The power at a frequency is |sum of exp(2 pi i f t)|^2 / n^2 over the start times t of a source: 1
//! when all are in phase, about 1/n without that period. It is computed per lane and segment of time
//! and averaged over them (weighted by events), because several CPUs need not be in phase. A periodic
//! source shows its frequency and harmonics.

use realfft::RealFftPlanner;
use trace::Mode;

use crate::Summary;
use crate::period::MIN_EVENTS;
use crate::views::Series;

/// Bins of one segment; the transform is twice as long, which halves the spacing of its lines.
const BINS: usize = 1 << 16;
/// Longest segment: 128 us per bin, frequencies up to 3.9 kHz.
const STRETCH_NS: u64 = 128_000 * BINS as u64;
/// Segments, evenly spread over the recording, and lanes per series (those with the most events).
const STRETCHES: u64 = 4;
const LANES: usize = 4;
/// Points of a displayed spectrum; each is the maximum of the lines it represents.
const COLUMNS: usize = 480;
/// Highest frequency shown, and the fewest cycles per segment of the lowest.
const HIGHEST_HZ: f64 = 10_000.0;
const LOWEST_CYCLES: f64 = 4.0;
/// Frequencies above this multiple of the source's rate are not shown: only harmonics are there.
const OVERTONES: f64 = 8.0;

/// The spectrum of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    pub series: usize,
    /// (frequency in Hz, power), ascending.
    pub lines: Vec<(f64, f64)>,
}

/// One series on one lane.
struct Part {
    series: usize,
    lane: u32,
    /// The segment in `bins`.
    stretch: Option<u64>,
    events: u64,
    bins: Vec<f64>,
}

/// Sums over lanes and segments.
struct Sum {
    power: Vec<f64>,
    events: f64,
    /// Number of segments in the sum.
    stretches: f64,
}

pub(super) struct Collector {
    from_ns: u64,
    stretch_ns: u64,
    /// One segment in this many is used.
    every: u64,
    parts: Vec<Part>,
    sums: Vec<Option<Sum>>,
    planner: RealFftPlanner<f64>,
}

impl Collector {
    pub(super) fn new(series: &[Series], summary: &Summary, from_ns: u64, to_ns: u64) -> Self {
        let span = to_ns.saturating_sub(from_ns).max(1);
        let stretch_ns = span.min(STRETCH_NS).max(BINS as u64);
        let mut parts = Vec::new();
        for (index, one) in series.iter().enumerate() {
            for lane in lanes(one, summary) {
                let bins = Vec::new();
                parts.push(Part { series: index, lane, stretch: None, events: 0, bins });
            }
        }
        Collector {
            from_ns,
            stretch_ns,
            every: (span / stretch_ns).div_ceil(STRETCHES).max(1),
            parts,
            sums: series.iter().map(|_| None).collect(),
            planner: RealFftPlanner::new(),
        }
    }

    pub(super) fn add(&mut self, series: usize, lane: u32, start_ns: u64) {
        let since = start_ns.saturating_sub(self.from_ns);
        let stretch = since / self.stretch_ns;
        if !stretch.is_multiple_of(self.every) {
            return;
        }
        let Some(at) = self.parts.iter().position(|p| p.series == series && p.lane == lane) else {
            return;
        };
        if self.parts[at].stretch != Some(stretch) {
            self.close(at);
            self.parts[at].stretch = Some(stretch);
        }
        let part = &mut self.parts[at];
        part.bins.resize(2 * BINS, 0.0);
        let within = u128::from(since % self.stretch_ns) * BINS as u128;
        if let Some(bin) = part.bins.get_mut((within / u128::from(self.stretch_ns)) as usize) {
            *bin += 1.0;
            part.events += 1;
        }
    }

    /// Adds the power of a finished segment to the sum of its series.
    fn close(&mut self, at: usize) {
        let Some(part) = self.parts.get_mut(at) else { return };
        let events = std::mem::take(&mut part.events) as f64;
        if events < MIN_EVENTS as f64 {
            part.bins.fill(0.0);
            return;
        }
        let mean = events / BINS as f64;
        for bin in part.bins.iter_mut().take(BINS) {
            *bin -= mean;
        }
        let transform = self.planner.plan_fft_forward(2 * BINS);
        let mut lines = transform.make_output_vec();
        let done = transform.process(&mut part.bins, &mut lines).is_ok();
        part.bins.fill(0.0);
        let Some(sum) = self.sums.get_mut(part.series).filter(|_| done) else { return };
        let sum = sum.get_or_insert_with(|| Sum {
            power: vec![0.0; lines.len()],
            events: 0.0,
            stretches: 0.0,
        });
        sum.events += events;
        sum.stretches += 1.0;
        for (power, line) in sum.power.iter_mut().zip(&lines) {
            // |..|^2 / n^2, weighted by n.
            *power += line.norm_sqr() / events;
        }
    }

    pub(super) fn finish(mut self) -> Vec<Spectrum> {
        for at in 0..self.parts.len() {
            self.close(at);
        }
        let stretch_s = self.stretch_ns as f64 / 1e9;
        let sums = self.sums.iter().enumerate();
        sums.filter_map(|(series, sum)| {
            let sum = sum.as_ref()?;
            Some(Spectrum { series, lines: shown(sum, stretch_s) })
        })
        .collect()
    }
}

/// The lanes with most events of a series, or the CPUs if lanes are threads. For unattributed time, the
/// first lanes.
fn lanes(series: &Series, summary: &Summary) -> Vec<u32> {
    match series {
        Series::Source(row) => {
            let Some(row) = summary.sources.get(*row) else { return Vec::new() };
            let mut lanes: Vec<(u32, u64)> = match summary.mode {
                Mode::Program => row.per_cpu.iter().map(|part| (part.cpu, part.count)).collect(),
                _ => row.per_lane.iter().map(|part| (part.lane, part.count)).collect(),
            };
            lanes.sort_by_key(|&(lane, count)| (std::cmp::Reverse(count), lane));
            lanes.into_iter().take(LANES).map(|(lane, _)| lane).collect()
        }
        // A mixture of sources has the periods of all of them.
        Series::Others(_) => Vec::new(),
        Series::Outside => (0..LANES as u32).collect(),
    }
}

/// Lines binned into columns that are evenly spaced in the logarithm of the frequency.
fn shown(sum: &Sum, stretch_s: f64) -> Vec<(f64, f64)> {
    // Line k is at frequency k / (2 segment lengths).
    let frequency = |k: usize| k as f64 / (2.0 * stretch_s);
    let lowest = LOWEST_CYCLES / stretch_s;
    let highest = frequency(sum.power.len()).min(HIGHEST_HZ).max(2.0 * lowest);
    let rate = sum.events / (sum.stretches * stretch_s);
    let mut columns: Vec<Option<(f64, f64)>> = vec![None; COLUMNS];
    for (k, power) in sum.power.iter().enumerate().skip(1) {
        let at = (frequency(k) / lowest).ln() / (highest / lowest).ln() * COLUMNS as f64;
        if at < 0.0 || at >= COLUMNS as f64 || frequency(k) > OVERTONES * rate {
            continue;
        }
        let line = (frequency(k), (power / sum.events).min(1.0));
        let column = &mut columns[at as usize];
        if column.is_none_or(|best| line.1 > best.1) {
            *column = Some(line);
        }
    }
    columns.into_iter().flatten().collect()
}
