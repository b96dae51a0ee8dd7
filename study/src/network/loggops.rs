//! LogGOPS parameters of a measured network: in, the times of [`link::measure`]; out, [`Net`], which `--net` reads
//! from a file.
//!
//! The model of an eager message of s bytes, with n = s - 1: the sender takes os + n O, the network L + n G, the
//! receiver or + n O; a larger one is preceded by a handshake of os + 2 L. os and or are measured inside of calls at 1
//! byte, where what is left of half a round trip is L. G + 2 O is fitted to the half round trips of all sizes, of which
//! O has what the slopes of os and or over s show. g is the distance of small messages that follow each other. If
//! only the CPU limits them, g is that limit: the model then predicts the same distance. S is where a send begins to
//! wait for its receiver. All fits are of relative errors, so that a byte counts as much as a megabyte.

use link::measure::{AtSize, Eager, Measured, Times};
use random::{Stream, bootstrap};
use serde::{Deserialize, Serialize};

/// The network between two processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Net {
    /// Always `detour-net`.
    pub kind: String,
    /// The estimate that the parameters at the top are: `median`.
    pub estimate: String,
    #[serde(flatten)]
    pub chosen: Estimate,
    /// From the medians of repeated measurements: what a message usually takes.
    pub median: Estimate,
    /// From their minima: what it takes if nothing disturbs it.
    pub minimum: Estimate,
    /// Half round trips by message size.
    pub sizes: Vec<Size>,
    /// The half round trip as a function of the size in as few straight lines as fit within 1.5 %.
    pub pieces: Vec<Piece>,
    /// RMS deviation of the pieces from the measured half round trips, %.
    pub pieces_residual_pct: f64,
    /// What makes the result doubtful.
    pub warnings: Vec<String>,
    #[serde(flatten)]
    pub about: About,
    /// Minimum cost of reading the clock at either end; subtracted from all times.
    pub timer_ns: [f64; 2],
    /// Blocks of measurements; intervals come from resampling them.
    pub blocks: u64,
    pub measured_s: f64,
}

/// Where and how a network was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    pub hosts: [String; 2],
    /// The MPI library, or TCP.
    pub transport: String,
    /// UTC, ISO 8601.
    pub date: String,
    pub method: String,
}

/// LogGOPS parameters with their 95 % intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Latency.
    #[serde(rename = "L_us")]
    pub latency_us: f64,
    #[serde(rename = "L_us_ci95")]
    pub latency_us_ci95: [f64; 2],
    /// CPU time of a send.
    pub os_us: f64,
    pub os_us_ci95: [f64; 2],
    /// CPU time of a receive.
    pub or_us: f64,
    pub or_us_ci95: [f64; 2],
    /// Gap between messages.
    pub g_us: f64,
    pub g_us_ci95: [f64; 2],
    /// Gap per byte.
    #[serde(rename = "G_ns_per_B")]
    pub gap_ns_per_byte: f64,
    #[serde(rename = "G_ns_per_B_ci95")]
    pub gap_ns_per_byte_ci95: [f64; 2],
    /// CPU time per byte, at either end.
    #[serde(rename = "O_ns_per_B")]
    pub overhead_ns_per_byte: f64,
    #[serde(rename = "O_ns_per_B_ci95")]
    pub overhead_ns_per_byte_ci95: [f64; 2],
    /// Messages of more bytes wait for their receiver; absent if none of those measured did.
    #[serde(rename = "S_B", skip_serializing_if = "Option::is_none")]
    pub eager_limit: Option<u64>,
    #[serde(rename = "S_B_ci95", skip_serializing_if = "Option::is_none")]
    pub eager_limit_ci95: Option<[u64; 2]>,
    /// RMS deviation of the model from the measured half round trips, %; above S with the handshake of
    /// `--rendezvous handshake`.
    pub residual_pct: f64,
    /// The same for messages up to S.
    pub residual_eager_pct: f64,
    /// The same for larger messages; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual_rendezvous_pct: Option<f64>,
}

/// Half round trips of one message size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Size {
    pub bytes: u64,
    pub median_us: f64,
    pub minimum_us: f64,
    /// By the parameters, of the chosen estimate.
    pub model_us: f64,
    /// By the pieces.
    pub pieces_us: f64,
}

/// A straight line: a message of s bytes takes `fixed_us` + s `ns_per_B` / 1000.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// The smallest and the largest message that it was fitted to.
    pub from_bytes: u64,
    pub to_bytes: u64,
    pub fixed_us: f64,
    #[serde(rename = "ns_per_B")]
    pub ns_per_byte: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum View {
    Minimum,
    Median,
}

impl View {
    fn of(self, times: Times) -> f64 {
        match self {
            View::Minimum => times.minimum,
            View::Median => times.median,
        }
    }

    /// One figure for all blocks.
    fn over(self, mut values: Vec<f64>) -> f64 {
        values.sort_unstable_by(f64::total_cmp);
        let index = if self == View::Minimum { 0 } else { values.len() / 2 };
        let middle = values.get(index).copied().unwrap_or(0.0);
        match self {
            View::Median if values.len().is_multiple_of(2) && index > 0 => {
                (middle + values[index - 1]) / 2.0
            }
            _ => middle,
        }
    }
}

/// All blocks in one figure per size and pattern, ns.
struct Table {
    /// Size and half round trip.
    half: Vec<(f64, f64)>,
    send: Vec<(f64, f64)>,
    receive: Vec<(f64, f64)>,
    interval: Vec<(f64, f64)>,
    eager_limit: Option<u64>,
}

impl Table {
    /// `counts` says how often each block is used.
    fn new(measured: &Measured, counts: &[u32], view: View) -> Table {
        let figure = |index: usize, time: &dyn Fn(&AtSize) -> Option<f64>| -> Option<f64> {
            let blocks = measured.blocks.iter().zip(counts);
            let values = blocks.flat_map(|(block, &count)| {
                let value = block.get(index).and_then(time);
                std::iter::repeat_n(value, count as usize)
            });
            let values: Vec<f64> = values.flatten().collect();
            (!values.is_empty()).then(|| view.over(values))
        };
        let mut table = Table {
            half: Vec::new(),
            send: Vec::new(),
            receive: Vec::new(),
            interval: Vec::new(),
            eager_limit: measured.eager_limit,
        };
        for (index, &bytes) in measured.sizes.iter().enumerate() {
            let bytes = bytes as f64;
            let eager = |of: fn(&Eager) -> Times| {
                figure(index, &|size| size.eager.as_ref().map(|eager| view.of(of(eager))))
            };
            let trip = figure(index, &|size| Some(view.of(size.round_trip))).unwrap_or(0.0);
            table.half.push((bytes, trip / 2.0));
            table.send.extend(eager(|eager| eager.send).map(|time| (bytes, time)));
            table.receive.extend(eager(|eager| eager.receive).map(|time| (bytes, time)));
            let distance = figure(index, &|size| {
                let eager = size.eager.as_ref().filter(|eager| eager.messages > 1)?;
                let more = view.of(eager.burst) - view.of(size.round_trip);
                Some((more / f64::from(eager.messages - 1)).max(0.0))
            });
            table.interval.extend(distance.map(|time| (bytes, time)));
        }
        table
    }

    fn is_eager(&self, bytes: f64) -> bool {
        self.eager_limit.is_none_or(|limit| bytes <= limit as f64)
    }
}

/// The line that minimises relative errors: its value at 1 byte, and its slope, which is not negative.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    // Weights 1/y²; a time of zero, below what the clock resolves, must not count for ever.
    let [mut w, mut x, mut y, mut xx, mut xy] = [0.0; 5];
    for &(bytes, time) in points {
        let weight = time.max(1.0).powi(-2);
        let more = bytes - 1.0;
        w += weight;
        x += weight * more;
        y += weight * time;
        xx += weight * more * more;
        xy += weight * more * time;
    }
    if w == 0.0 {
        return (0.0, 0.0);
    }
    let spread = w * xx - x * x;
    let slope = if spread > 1e-12 * w * xx { (w * xy - x * y) / spread } else { 0.0 };
    let slope = slope.max(0.0);
    ((y - slope * x) / w, slope)
}

/// Parameters in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fitted {
    latency: f64,
    send: f64,
    receive: f64,
    gap: f64,
    gap_per_byte: f64,
    overhead_per_byte: f64,
    /// Whether the calls take longer than the message, so that they must overlap.
    overlap: bool,
}

/// Slopes tried first: so many, down to this part of the largest.
const STEPS: f64 = 120.0;
const STEPS_BACK: f64 = 1e6;
/// The golden section, and how often it is applied: to the last bits.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
const GOLDEN_STEPS: u32 = 60;

impl Fitted {
    fn of(table: &Table) -> Fitted {
        let at_one = |points: &[(f64, f64)]| points.first().map_or(0.0, |&(_, time)| time);
        let whole = at_one(&table.half);
        let (mut send, mut receive) = (at_one(&table.send), at_one(&table.receive));
        // Round trips must come out right: what the parts have too much is taken from them in proportion.
        let overlap = send + receive > whole && whole > 0.0;
        if overlap {
            let share = whole / (send + receive);
            (send, receive) = (send * share, receive * share);
        }
        let latency = if overlap { 0.0 } else { (whole - send - receive).max(0.0) };
        let mut fitted = Fitted {
            latency,
            send,
            receive,
            gap: at_one(&table.interval),
            gap_per_byte: 0.0,
            overhead_per_byte: 0.0,
            overlap,
        };
        let per_byte = fitted.per_byte(table);
        let slopes = line(&table.send).1 + line(&table.receive).1;
        fitted.overhead_per_byte = slopes.min(per_byte) / 2.0;
        fitted.gap_per_byte = per_byte - 2.0 * fitted.overhead_per_byte;
        fitted
    }

    /// G + 2 O: the squares of the logarithms of model over measurement are least.
    fn per_byte(&self, table: &Table) -> f64 {
        let points: Vec<(f64, f64, f64)> = table
            .half
            .iter()
            .filter(|&&(bytes, time)| bytes > 1.0 && time > 0.0)
            .map(|&(bytes, time)| (self.half(bytes, table.is_eager(bytes)), bytes - 1.0, time))
            .collect();
        let squares = |slope: f64| -> f64 {
            let of = |&(fixed, more, time): &(f64, f64, f64)| ((fixed + slope * more) / time).ln();
            points.iter().map(|point| of(point).powi(2)).sum()
        };
        // No point needs more than all its time; a network with several slopes may have several valleys.
        let most = points.iter().map(|&(_, more, time)| time / more).fold(0.0, f64::max);
        if most <= 0.0 {
            return 0.0;
        }
        let step = STEPS_BACK.powf(1.0 / STEPS);
        let candidates = (0..=STEPS as i32).map(|index| most / step.powi(index)).chain([0.0]);
        let best = candidates.map(|slope| (squares(slope), slope));
        let Some((_, best)) = best.min_by(|a, b| a.0.total_cmp(&b.0)) else { return 0.0 };
        let (mut low, mut high) = (best / step, best * step);
        for _ in 0..GOLDEN_STEPS {
            let third = (high - low) * GOLDEN;
            if squares(high - third) <= squares(low + third) {
                high = low + third;
            } else {
                low = high - third;
            }
        }
        let found = low.midpoint(high);
        if squares(found) <= squares(best) { found } else { best }
    }

    /// Half a round trip.
    fn half(&self, bytes: f64, is_eager: bool) -> f64 {
        let more = (bytes - 1.0).max(0.0);
        let payload = self.send
            + self.latency
            + self.receive
            + more * (self.gap_per_byte + 2.0 * self.overhead_per_byte);
        // A request and its acknowledgement come first.
        if is_eager { payload } else { self.send + 2.0 * self.latency + payload }
    }

    /// RMS relative deviation from the measured half round trips, %, of these messages; None if there are none.
    fn residual(&self, table: &Table, of: impl Fn(bool) -> bool) -> Option<f64> {
        let points = table.half.iter().map(|&(bytes, time)| (bytes, table.is_eager(bytes), time));
        let points = points.filter(|&(_, eager, _)| of(eager));
        deviation(points.map(|(bytes, eager, time)| (self.half(bytes, eager), time)))
    }
}

/// RMS relative deviation of pairs of model and measurement, %.
fn deviation(pairs: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for (model, time) in pairs.filter(|&(_, time)| time > 0.0) {
        sum += (model / time - 1.0).powi(2);
        count += 1;
    }
    (count > 0).then(|| 100.0 * (sum / f64::from(count)).sqrt())
}

const RESAMPLES: usize = 400;
/// Purpose of the random numbers.
const PURPOSE: u64 = 0x6c6f_6767_6f70_7321;

fn estimate(measured: &Measured, view: View, seed: u64) -> (Estimate, Fitted) {
    let blocks = measured.blocks.len();
    let table = Table::new(measured, &vec![1; blocks], view);
    let fitted = Fitted::of(&table);
    let mut stream = Stream::new(random::key(seed, PURPOSE, u64::from(view == View::Median)));
    let mut counts = vec![0; blocks];
    let mut again = Vec::new();
    for _ in 0..RESAMPLES {
        bootstrap::resample(&mut stream, &mut counts);
        again.push(Fitted::of(&Table::new(measured, &counts, view)));
    }
    let interval = |of: fn(&Fitted) -> f64| {
        let (low, high) = bootstrap::interval(of(&fitted), again.iter().map(of).collect());
        [low, high]
    };
    let us = |[low, high]: [f64; 2]| [low / 1e3, high / 1e3];
    let estimate = Estimate {
        latency_us: fitted.latency / 1e3,
        latency_us_ci95: us(interval(|fitted| fitted.latency)),
        os_us: fitted.send / 1e3,
        os_us_ci95: us(interval(|fitted| fitted.send)),
        or_us: fitted.receive / 1e3,
        or_us_ci95: us(interval(|fitted| fitted.receive)),
        g_us: fitted.gap / 1e3,
        g_us_ci95: us(interval(|fitted| fitted.gap)),
        gap_ns_per_byte: fitted.gap_per_byte,
        gap_ns_per_byte_ci95: interval(|fitted| fitted.gap_per_byte),
        overhead_ns_per_byte: fitted.overhead_per_byte,
        overhead_ns_per_byte_ci95: interval(|fitted| fitted.overhead_per_byte),
        eager_limit: measured.eager_limit,
        eager_limit_ci95: measured.eager_limit.map(|limit| [limit, limit]),
        residual_pct: fitted.residual(&table, |_| true).unwrap_or(0.0),
        residual_eager_pct: fitted.residual(&table, |eager| eager).unwrap_or(0.0),
        residual_rendezvous_pct: fitted.residual(&table, |eager| !eager),
    };
    (estimate, fitted)
}

/// Fits the parameters. The seed is that of the intervals.
#[must_use]
pub fn fit(measured: &Measured, about: About, seed: u64) -> Net {
    let (median, fitted) = estimate(measured, View::Median, seed);
    let (minimum, _) = estimate(measured, View::Minimum, seed);
    let all = vec![1; measured.blocks.len()];
    let usual = Table::new(measured, &all, View::Median);
    let least = Table::new(measured, &all, View::Minimum);
    let pieces = pieces(&usual);
    let sizes: Vec<Size> = usual
        .half
        .iter()
        .zip(&least.half)
        .map(|(&(bytes, time), &(_, least))| Size {
            bytes: bytes as u64,
            median_us: time / 1e3,
            minimum_us: least / 1e3,
            model_us: fitted.half(bytes, usual.is_eager(bytes)) / 1e3,
            pieces_us: half_round_trip_us(&pieces, bytes as u64),
        })
        .collect();
    let by_pieces = sizes.iter().map(|size| (size.pieces_us, size.median_us));
    let mut net = Net {
        kind: "detour-net".to_owned(),
        estimate: "median".to_owned(),
        chosen: median.clone(),
        median,
        minimum,
        pieces_residual_pct: deviation(by_pieces).unwrap_or(0.0),
        pieces,
        sizes,
        warnings: Vec::new(),
        about,
        timer_ns: measured.timer_ns,
        blocks: measured.blocks.len() as u64,
        measured_s: measured.seconds,
    };
    net.warnings = warnings(&net, &fitted);
    net
}

/// Above this, minimum and median belong to different states of the machine, %. In shared memory, lucky exchanges take
/// two thirds of the usual time on quiet machines too.
const APART_PCT: f64 = 60.0;
/// Above this, a straight line is not the network, %.
const BENT_PCT: f64 = 10.0;
/// Above this, a parameter is not known, as a share of it.
const WIDE: f64 = 0.2;

fn warnings(net: &Net, fitted: &Fitted) -> Vec<String> {
    let mut warnings = Vec::new();
    let apart = deviation(net.sizes.iter().map(|size| (size.median_us, size.minimum_us)));
    if let Some(apart) = apart.filter(|&apart| apart > APART_PCT) {
        warnings.push(format!(
            "round trips usually take {apart:.0} % longer than the shortest ones: noise on the \
             nodes disturbs the measurement, or several processes share a CPU; record the noise \
             with `detour record`, or use the parameters under `minimum`"
        ));
    }
    let Estimate { residual_pct, .. } = net.chosen;
    if residual_pct > BENT_PCT {
        let middle = net.sizes.iter().filter(|size| size.median_us > 0.0);
        let worst = middle.max_by(|a, b| {
            let off = |size: &Size| (size.model_us / size.median_us).ln().abs();
            off(a).total_cmp(&off(b))
        });
        let worst = worst.map_or(String::new(), |size| {
            let (factor, bytes) = (size.model_us / size.median_us, size.bytes);
            format!(", most at {bytes} B, by a factor of {factor:.2}")
        });
        warnings.push(format!(
            "the parameters deviate from the round trips by {residual_pct:.0} %{worst}: one \
             straight line does not fit all sizes of this network; simulations use the measured \
             `pieces`"
        ));
    }
    if fitted.overlap {
        warnings.push(
            "os + or exceeds the half round trip: send and receive overlap, so both are reduced to \
             what the round trip leaves, and L is 0"
                .to_owned(),
        );
    }
    let known = &net.chosen;
    for (name, value, [low, high]) in [
        ("L", known.latency_us, known.latency_us_ci95),
        ("os", known.os_us, known.os_us_ci95),
        ("or", known.or_us, known.or_us_ci95),
        ("g", known.g_us, known.g_us_ci95),
    ] {
        // 10 ns are within what reading a clock varies by.
        if high - low > WIDE * value && high - low > 0.01 {
            warnings.push(format!(
                "{name} is uncertain ({low:.3} to {high:.3} us): measure longer (--duration), or on quieter nodes"
            ));
        }
    }
    warnings
}

/// Largest deviation of a piece from a measured time.
const PIECE: f64 = 0.015;

/// As few lines as deviate by less than [`PIECE`]; of these, the ones with the least squares. A break is always at
/// the eager limit.
fn pieces(table: &Table) -> Vec<Piece> {
    let points = &table.half;
    let fits = |from: usize, to: usize| -> Option<(f64, Piece)> {
        let part = &points[from..to];
        if table.is_eager(part[0].0) != table.is_eager(part[part.len() - 1].0) {
            return None;
        }
        let (at_one, slope) = line(part);
        let errors = || part.iter().map(|&(x, y)| (at_one + slope * (x - 1.0)) / y.max(1.0) - 1.0);
        // Two points make a line, unless it would have to fall.
        (part.len() <= 1 || errors().all(|error| error.abs() < PIECE)).then(|| {
            let piece = Piece {
                from_bytes: part[0].0 as u64,
                to_bytes: part[part.len() - 1].0 as u64,
                fixed_us: (at_one - slope) / 1e3,
                ns_per_byte: slope,
            };
            (errors().map(|error| error * error).sum::<f64>(), piece)
        })
    };
    // Best way to describe the first points: number of pieces, squares, where the last piece begins.
    let mut best: Vec<(usize, f64, usize)> = vec![(0, 0.0, 0)];
    for to in 1..=points.len() {
        let ways = (0..to).filter_map(|from| {
            let (squares, _) = fits(from, to)?;
            Some((best[from].0 + 1, best[from].1 + squares, from))
        });
        let way = ways.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        best.push(way.unwrap_or((best[to - 1].0 + 1, best[to - 1].1, to - 1)));
    }
    let (mut found, mut to) = (Vec::new(), points.len());
    while to > 0 {
        let from = best[to].2;
        found.extend(fits(from, to).map(|(_, piece)| piece));
        to = from;
    }
    found.reverse();
    found
}

/// Half a round trip by the pieces: between two pieces, on the straight line that connects them; below and above, on
/// the nearest.
#[must_use]
pub fn half_round_trip_us(pieces: &[Piece], bytes: u64) -> f64 {
    let on = |piece: &Piece, bytes: u64| piece.fixed_us + piece.ns_per_byte * bytes as f64 / 1e3;
    let after = pieces.iter().position(|piece| bytes <= piece.to_bytes);
    let Some(after) = after else { return pieces.last().map_or(0.0, |piece| on(piece, bytes)) };
    let next = &pieces[after];
    match after.checked_sub(1).map(|before| &pieces[before]) {
        Some(before) if bytes < next.from_bytes => {
            let (low, high) = (on(before, before.to_bytes), on(next, next.from_bytes));
            let whole = (next.from_bytes - before.to_bytes) as f64;
            low + (high - low) * (bytes - before.to_bytes) as f64 / whole
        }
        _ => on(next, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a network with known parameters; `disturbed` blocks take more by this factor.
    fn made(disturbed: usize, factor: f64) -> Measured {
        let limit = 8192;
        let sizes = vec![1, 16, 256, 1024, 4096, 8192, 8193, 16384, 65536];
        let of = |ns: f64| Times { minimum: ns, median: ns };
        let at = |bytes: u64, factor: f64| {
            let n = bytes as f64 - 1.0;
            let (send, receive) = (900.0 + 0.1 * n, 700.0 + 0.1 * n);
            let half = send + 1500.0 + 0.4 * n + receive;
            let eager = bytes <= limit;
            let half = if eager { half } else { half + 900.0 + 2.0 * 1500.0 };
            AtSize {
                round_trip: of(2.0 * half * factor),
                eager: eager.then(|| Eager {
                    send: of(send * factor),
                    receive: of(receive * factor),
                    burst: of((2.0 * half + 31.0 * (1200.0 + 0.4 * n)) * factor),
                    messages: 32,
                }),
            }
        };
        let block = |number: usize| {
            let factor = if number < disturbed { factor } else { 1.0 };
            sizes.iter().map(|&bytes| at(bytes, factor)).collect()
        };
        Measured {
            timer_ns: [20.0, 20.0],
            eager_limit: Some(limit),
            blocks: (0..20).map(block).collect(),
            sizes: sizes.clone(),
            seconds: 1.0,
        }
    }

    fn near(value: f64, wanted: f64) -> bool {
        (value / wanted - 1.0).abs() < 1e-7
    }

    #[test]
    fn the_parameters_of_a_made_network_come_back() {
        let net = fit(&made(0, 1.5), About::default(), 1);
        for estimate in [&net.chosen, &net.median, &net.minimum] {
            assert!(near(estimate.latency_us, 1.5), "{estimate:?}");
            assert!(near(estimate.os_us, 0.9) && near(estimate.or_us, 0.7), "{estimate:?}");
            assert!(near(estimate.g_us, 1.2), "{estimate:?}");
            assert!(near(estimate.gap_ns_per_byte, 0.4), "{estimate:?}");
            assert!(near(estimate.overhead_ns_per_byte, 0.1), "{estimate:?}");
            assert_eq!(estimate.eager_limit, Some(8192));
            assert!(estimate.residual_pct < 1e-5);
            assert!(estimate.residual_rendezvous_pct.unwrap() < 1e-5);
        }
        // One line on either side of S.
        assert_eq!(net.pieces.len(), 2);
        assert!(near(half_round_trip_us(&net.pieces, 2048), 3.1 + 2.047 * 0.6));
        assert!(net.warnings.is_empty(), "{:?}", net.warnings);
    }

    #[test]
    fn a_disturbed_block_widens_the_interval_but_not_the_result() {
        let net = fit(&made(6, 1.5), About::default(), 1);
        assert!(near(net.chosen.latency_us, 1.5));
        // Six of twenty are a minority in nearly all resamples.
        assert!(near(net.minimum.latency_us_ci95[1], 1.5));
        let net = fit(&made(9, 1.5), About::default(), 1);
        assert!(net.chosen.latency_us_ci95[1] > 2.2, "{:?}", net.chosen);
        assert!(net.warnings.iter().any(|warning| warning.contains("L is uncertain")));
        // The same seed gives the same bits.
        assert_eq!(net, fit(&made(9, 1.5), About::default(), 1));
    }

    #[test]
    fn a_machine_that_is_mostly_disturbed_is_warned_about() {
        let net = fit(&made(15, 2.0), About::default(), 1);
        assert!(near(net.minimum.latency_us, 1.5) && near(net.median.latency_us, 3.0));
        assert!(net.warnings[0].contains("100 % longer"), "{:?}", net.warnings);
    }

    #[test]
    fn calls_that_overlap_leave_the_round_trip_as_it_is() {
        let mut measured = made(0, 1.5);
        for size in measured.blocks.iter_mut().flatten() {
            if let Some(eager) = &mut size.eager {
                for times in [&mut eager.send, &mut eager.receive] {
                    *times = Times { minimum: times.minimum * 4.0, median: times.median * 4.0 };
                }
            }
        }
        let net = fit(&measured, About::default(), 1);
        assert_eq!(net.chosen.latency_us, 0.0);
        assert!(near(net.chosen.os_us + net.chosen.or_us, 3.1), "{:?}", net.chosen);
        assert!(near(net.sizes[0].model_us, 3.1), "{:?}", net.sizes[0]);
        assert!(net.chosen.residual_eager_pct < 10.0, "{:?}", net.chosen);
        assert!(net.warnings.iter().any(|warning| warning.contains("overlap")));
    }

    #[test]
    fn a_copy_in_small_messages_does_not_slow_large_ones_down() {
        // As in shared memory: eager messages are copied twice, large ones once and fast.
        let mut measured = made(0, 1.0);
        for block in &mut measured.blocks {
            for (size, &bytes) in block.iter_mut().zip(&measured.sizes) {
                let times = &mut size.round_trip;
                if bytes > 8192 {
                    let ns = 2.0 * (7_000.0 + 0.1 * bytes as f64);
                    *times = Times { minimum: ns, median: ns };
                }
            }
        }
        let net = fit(&measured, About::default(), 1);
        assert!(near(net.chosen.latency_us, 1.5));
        let off = |size: &Size| (size.model_us / size.median_us).ln().abs();
        assert!(net.sizes.iter().all(|size| off(size) < 0.6), "{:?}", net.sizes);
        assert!(
            net.warnings.iter().any(|warning| warning.contains("`pieces`")),
            "{:?}",
            net.warnings
        );
        assert!(net.pieces_residual_pct < 1.0);
    }

    #[test]
    fn a_bent_curve_is_several_pieces() {
        let half =
            |bytes: f64| 1000.0 + if bytes < 1000.0 { 5.0 * bytes } else { 4500.0 + 0.5 * bytes };
        let sizes: Vec<u64> = (0..20).map(|power| 1 << power).collect();
        let table = Table {
            half: sizes.iter().map(|&bytes| (bytes as f64, half(bytes as f64))).collect(),
            send: Vec::new(),
            receive: Vec::new(),
            interval: Vec::new(),
            eager_limit: None,
        };
        let pieces = pieces(&table);
        assert_eq!(pieces.len(), 2, "{pieces:?}");
        for bytes in [1u64, 3, 100, 600, 2000, 100_000, 1 << 21] {
            let error = half_round_trip_us(&pieces, bytes) * 1e3 / half(bytes as f64) - 1.0;
            assert!(error.abs() < 0.02, "{bytes}: {error}");
        }
    }

    #[test]
    fn nothing_measured_is_no_panic() {
        let net = fit(&Measured::default(), About::default(), 0);
        assert_eq!(net.chosen.latency_us, 0.0);
        assert_eq!(half_round_trip_us(&net.pieces, 7), 0.0);
    }
}
