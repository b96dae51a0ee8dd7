//! Latencies of individual messages. Each differs from L by a deviation drawn from measured ones: a
//! function of seed, run, sender and the number of the sender's message, so that nothing is stored per
//! message and any thread can recompute any of them.

use rand::seq::SliceRandom;
use random::Stream;
use thiserror::Error;

use crate::{
    simd::{self, Plain, Vector},
    time::Time,
};

use super::{draw, key};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LatencyError {
    #[error("no latencies to draw from")]
    Empty,
    #[error("{count} latencies are too many (at most {most}); use a sample of them")]
    TooMany { count: usize, most: usize },
    #[error("a latency of {} is out of range (0 to 1 hour)", Time(*ps))]
    OutOfRange { ps: i64 },
    #[error("the median latency is 0: deviations cannot be scaled by it; add them instead")]
    NoMedian,
}

const LONGEST: i64 = 3_600_000_000_000_000;
/// Of the random numbers that pair half round trips.
const SHUFFLE: u64 = 0x7061_6972_735f_6f66;
/// In medians.
const SPIKE: i64 = 3;

/// What a measured latency says about the latency of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rule {
    /// L plus its difference from the median of the measured ones.
    #[default]
    Add,
    /// L times its ratio to their median, as in the published runs with network noise.
    Scale,
    /// The measured ones are half round trips, each the mean of two messages, and vary less than a message does:
    /// L plus the differences of two of them from the median, whose variance is that of one message. A spike, beyond
    /// three medians, is rare enough to be that of one message, and stays alone.
    HalfRoundTrip,
    /// The measured ones are exchanges: two messages at the same time, and whatever delays one of the two ranks is
    /// in the time of both. So one of the messages has the difference from the median, and the other one has none.
    Exchange,
}

impl Rule {
    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Add => "add",
            Rule::Scale => "scale",
            Rule::HalfRoundTrip => "half-round-trip",
            Rule::Exchange => "exchange",
        }
    }
}

/// Which of the measured latencies a message gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Any, independently of all others.
    #[default]
    Random,
    /// All messages of a run get one of this many consecutive ones, at random: what was measured
    /// together stays together, and is met by all ranks.
    Block(u32),
    /// Each rank starts at a random one and continues in order: what was measured together stays
    /// together, and is met by one rank.
    InOrder,
}

/// Deviations from L, in the order in which they were measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    above: Above,
    least: i64,
    order: Order,
    /// How many of them come from one measured latency.
    of_each: u64,
}

/// How far deviations are above the least one, ps.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Above {
    /// All of them, in order.
    Measured(Numbers),
    /// Many, of which any is drawn at random.
    Ranked(Ranked),
}

impl Above {
    fn len(&self) -> usize {
        match self {
            Above::Measured(list) => list.len(),
            Above::Ranked(ranked) => ranked.count,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Numbers {
    /// Up to 4 ms, as on most networks: half the size leaves room in the cache.
    Little(Vec<u32>),
    Much(Vec<i64>),
}

impl Numbers {
    fn new(list: Vec<i64>) -> Numbers {
        let little: Result<Vec<u32>, _> = list.iter().map(|ps| u32::try_from(*ps)).collect();
        match little {
            Ok(little) => Numbers::Little(little),
            Err(_) => Numbers::Much(list),
        }
    }

    fn len(&self) -> usize {
        match self {
            Numbers::Little(list) => list.len(),
            Numbers::Much(list) => list.len(),
        }
    }

    #[inline(always)]
    fn gather<V: Vector>(&self, index: V) -> V {
        match self {
            Numbers::Little(list) => V::gather_u32(list, index),
            Numbers::Much(list) => V::gather(list, index),
        }
    }
}

/// Many deviations, reduced to what stays in the L1 cache: the largest, each of them, and quantiles of the others.
/// The share of draws below any deviation differs from that of the measured ones by at most 1 / 2048, and by
/// nothing in the tail.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranked {
    /// The largest, in descending order, then [`QUANTILES`] of all.
    list: Numbers,
    largest: i64,
    count: usize,
}

const QUANTILES: usize = 1 << QUANTILE_BITS;
const QUANTILE_BITS: u32 = 11;
/// One in so many is among the largest.
const LARGEST: usize = 64;
/// So few are drawn from as they are.
const FEW: usize = 2 * QUANTILES;

impl Ranked {
    fn new(mut all: Vec<i64>) -> Ranked {
        all.sort_unstable_by_key(|above| std::cmp::Reverse(*above));
        let largest = all.len().div_ceil(LARGEST);
        // The middle of each part.
        let quantile = |part: usize| all[((2 * part + 1) * all.len()) >> (QUANTILE_BITS + 1)];
        let list = all[..largest].iter().copied().chain((0..QUANTILES).map(quantile)).collect();
        Ranked { list: Numbers::new(list), largest: largest as i64, count: all.len() }
    }
}

impl Latencies {
    /// From measured latencies in ps, for a network with this L. No message takes less than no time.
    pub fn new(
        measured: &[i64],
        latency: i64,
        rule: Rule,
        order: Order,
    ) -> Result<Latencies, LatencyError> {
        let most = if rule == Rule::Exchange { 1 << 30 } else { 1 << 31 };
        if measured.len() > most {
            return Err(LatencyError::TooMany { count: measured.len(), most });
        }
        if let Some(&ps) = measured.iter().find(|ps| !(0..=LONGEST).contains(*ps)) {
            return Err(LatencyError::OutOfRange { ps });
        }
        let median = median(measured).ok_or(LatencyError::Empty)?;
        if rule == Rule::Scale && median == 0 {
            return Err(LatencyError::NoMedian);
        }
        let added = |&ps: &i64| (ps - median).max(-latency);
        let deviations: Vec<i64> = match rule {
            Rule::Add => measured.iter().map(added).collect(),
            Rule::Exchange => measured.iter().flat_map(|ps| [added(ps), 0]).collect(),
            Rule::Scale => {
                let scaled = |&ps: &i64| {
                    (latency as f64 * (ps as f64 / median as f64)).round() as i64 - latency
                };
                measured.iter().map(scaled).collect()
            }
            Rule::HalfRoundTrip => {
                // In order, the next one, of the same episode; otherwise any, whatever the order of the file.
                let mut others = measured.to_vec();
                match order {
                    Order::Random => others.shuffle(&mut Stream::new(key(SHUFFLE, 0, 0))),
                    _ => others.rotate_left(1),
                }
                let usual = |ps: i64| ps <= SPIKE * median;
                let of_both = |(&ps, &other): (&i64, &i64)| {
                    let second = if usual(ps) && usual(other) { other - median } else { 0 };
                    (ps - median + second).max(-latency)
                };
                measured.iter().zip(&others).map(of_both).collect()
            }
        };
        let of_each = if rule == Rule::Exchange { 2 } else { 1 };
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        for &deviation in &deviations {
            (least, most) = (least.min(deviation), most.max(deviation));
        }
        if most > LONGEST {
            return Err(LatencyError::OutOfRange { ps: most });
        }
        let count = deviations.len();
        let above = deviations.into_iter().map(|deviation| deviation - least).collect();
        let above = match order == Order::Random && count > FEW {
            true => Above::Ranked(Ranked::new(above)),
            false => Above::Measured(Numbers::new(above)),
        };
        Ok(Latencies { above, least, order, of_each })
    }

    /// The least deviation; not positive, unless all are equal.
    pub fn least(&self) -> i64 {
        self.least
    }

    pub(super) fn run(&self, seed: u64, run: u64, purpose: u64) -> RunLatencies<'_> {
        RunLatencies { all: self, key: key(seed, purpose, run), sent: 0 }
    }
}

fn median(list: &[i64]) -> Option<i64> {
    let mut list = list.to_vec();
    let middle = list.len() / 2;
    (!list.is_empty()).then(|| *list.select_nth_unstable(middle).1)
}

/// The latencies of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunLatencies<'a> {
    all: &'a Latencies,
    key: u64,
    /// Messages that every rank has sent before the first one.
    sent: u64,
}

impl<'a> RunLatencies<'a> {
    pub fn least(&self) -> i64 {
        self.all.least
    }

    /// After this many more messages of every rank.
    pub(super) fn after(self, messages: u64) -> RunLatencies<'a> {
        RunLatencies { sent: self.sent + messages, ..self }
    }

    /// How far the latency of a message differs from L.
    #[inline]
    pub fn deviation(&self, sender: u64, message: u64) -> i64 {
        self.message(message).deviation(sender)
    }

    /// The deviations of all ranks' messages of this number.
    #[inline]
    pub(crate) fn message(&self, number: u64) -> MessageLatencies<'a> {
        let number = self.sent + number;
        let all = self.all.above.len() as u64;
        let (bits, first, count) = match self.all.order {
            Order::Random => (draw(self.key, number), 0, all),
            Order::Block(length) => {
                let of_each = self.all.of_each;
                let first =
                    (u128::from(draw(self.key, u64::MAX)) * u128::from(all / of_each)) >> 64;
                let length = (of_each * u64::from(length.max(1))).min(all);
                (draw(self.key, number), of_each * first as u64, length)
            }
            Order::InOrder => (draw(self.key, 0), number % all, all),
        };
        MessageLatencies {
            above: &self.all.above,
            least: self.all.least,
            keys: [(bits & 0xffff_ffff) as i64, (bits >> 32) as i64],
            first: first as i64,
            count: count as i64,
        }
    }
}

/// The deviations of the messages of one number, one per sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageLatencies<'a> {
    above: &'a Above,
    least: i64,
    keys: [i64; 2],
    first: i64,
    count: i64,
}

/// Odd, with about as many ones as zeros.
const FACTORS: [i64; 2] = [0x9e37_79b9, 0x85eb_ca6b];

impl MessageLatencies<'_> {
    pub fn deviation(&self, sender: u64) -> i64 {
        let mut all = [0; simd::LANES];
        self.deviations(Plain::splat(sender as i64)).store(&mut all);
        all[0]
    }

    /// For several senders. Two multiplications of 32 bits, folded: SplitMix64's of 64 bits would take
    /// longer than the rest of a round. The number of the message is in the keys, which are
    /// SplitMix64's.
    #[inline(always)]
    pub fn deviations<V: Vector>(&self, senders: V) -> V {
        let mut bits = senders;
        for (key, factor) in self.keys.into_iter().zip(FACTORS) {
            let product = bits.xor(V::splat(key)).mul_low(V::splat(factor));
            bits = product.xor(product.shr(32));
        }
        let mut index = bits.mul_low(V::splat(self.count)).shr(32);
        if self.first > 0 {
            index = index.add(V::splat(self.first));
            let all = V::splat(self.above.len() as i64);
            index = index.select(!all.above(index), index.sub(all));
        }
        let above = match self.above {
            Above::Measured(list) => list.gather(index),
            Above::Ranked(Ranked { list, largest, .. }) => {
                let largest = V::splat(*largest);
                let part = bits.shr(32 - QUANTILE_BITS).and(V::splat(QUANTILES as i64 - 1));
                list.gather(part.add(largest).select(largest.above(index), index))
            }
        };
        above.add(V::splat(self.least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    fn latencies(count: i64, order: Order) -> Latencies {
        let measured: Vec<i64> = (0..count).map(|at| 1_000 + at).collect();
        Latencies::new(&measured, 1_000 + count / 2, Rule::Add, order).unwrap()
    }

    fn of(noise: &Noise, run: u64, sender: u64, message: u64) -> i64 {
        noise.run(7, run).latencies().unwrap().deviation(sender, message)
    }

    #[test]
    fn a_latency_is_added_or_scales_l() {
        let measured = [2_000, 1_000, 4_000];
        let all = |latency, rule| -> Vec<i64> {
            let all = Latencies::new(&measured, latency, rule, Order::InOrder).unwrap();
            let noise = Noise::none().with_latencies(Some(all));
            let mut all: Vec<i64> = (0..3).map(|message| of(&noise, 0, 5, message)).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(all(5_000, Rule::Add), [-1_000, 0, 2_000]);
        // No message takes less than no time.
        assert_eq!(all(600, Rule::Add), [-600, 0, 2_000]);
        assert_eq!(all(600, Rule::Scale), [-300, 0, 600]);
        // 2 and 1, 1 and 4, 4 and 2 us, less twice the median.
        assert_eq!(all(5_000, Rule::HalfRoundTrip), [-1_000, 1_000, 2_000]);
        assert_eq!(all(600, Rule::HalfRoundTrip), [-600, 1_000, 2_000]);
        let spiky = [2_000, 1_000, 9_000, 2_000];
        let spiky = Latencies::new(&spiky, 5_000, Rule::HalfRoundTrip, Order::InOrder).unwrap();
        let noise = Noise::none().with_latencies(Some(spiky));
        let mut all: Vec<i64> = (0..4).map(|message| of(&noise, 0, 5, message)).collect();
        all.sort_unstable();
        assert_eq!(all, [-1_000, -1_000, 0, 7_000]);
        let none = Latencies::new(&[], 1, Rule::Add, Order::Random);
        assert_eq!(none, Err(LatencyError::Empty));
        assert!(Latencies::new(&[-1], 1, Rule::Add, Order::Random).is_err());
        assert!(Latencies::new(&[i64::MAX], 1, Rule::Add, Order::Random).is_err());
        assert_eq!(
            Latencies::new(&[0, 0, 1], 1, Rule::Scale, Order::Random),
            Err(LatencyError::NoMedian)
        );
    }

    /// Messages whose round trips were measured vary as the messages did, not as the halves of round trips.
    #[test]
    fn half_round_trips_give_the_variance_of_a_message() {
        let message = |at: u64| (0..4).map(|part| (draw(part, at) % 500) as i64).sum::<i64>();
        let halves: Vec<i64> =
            (0..50_000).map(|at| (message(2 * at) + message(2 * at + 1)) / 2).collect();
        let variance = |all: &[i64]| {
            let mean = all.iter().sum::<i64>() as f64 / all.len() as f64;
            all.iter().map(|&it| (it as f64 - mean).powi(2)).sum::<f64>() / all.len() as f64
        };
        let messages = variance(&(0..100_000).map(message).collect::<Vec<_>>());
        let drawn = |rule| {
            let all = Latencies::new(&halves, 5_000, rule, Order::Random).unwrap();
            let noise = Noise::none().with_latencies(Some(all));
            variance(&(0..100_000).map(|sender| of(&noise, 0, sender, 0)).collect::<Vec<_>>())
        };
        let ratio = drawn(Rule::HalfRoundTrip) / messages;
        assert!((0.97..1.03).contains(&ratio), "{ratio}");
        // In whatever order they are in the file.
        let mut sorted = halves.clone();
        sorted.sort_unstable();
        let all = Latencies::new(&sorted, 5_000, Rule::HalfRoundTrip, Order::Random).unwrap();
        let noise = Noise::none().with_latencies(Some(all));
        let drawn_sorted: Vec<i64> = (0..100_000).map(|sender| of(&noise, 0, sender, 0)).collect();
        let ratio = variance(&drawn_sorted) / messages;
        assert!((0.97..1.03).contains(&ratio), "{ratio}");
        let ratio = drawn(Rule::Add) / messages;
        assert!((0.48..0.52).contains(&ratio), "{ratio}");
    }

    /// What delays a rank delays both ends of an exchange: the slower of two messages is late as often as an exchange
    /// was.
    #[test]
    fn exchanges_are_late_as_often_as_measured() {
        let exchanges: Vec<i64> = (0..50_000)
            .map(|at| if draw(3, at).is_multiple_of(50) { 9_000 } else { 1_000 })
            .collect();
        let late_in = |rule, order| {
            let all = Latencies::new(&exchanges, 5_000, rule, order).unwrap();
            let noise = Noise::none().with_latencies(Some(all));
            let is_late = |run, sender| of(&noise, run, sender, 0) > 0;
            let (runs, pairs) = (1_000, 100);
            let of_run = |run| {
                let is_late = |pair: &u64| is_late(run, 2 * pair) || is_late(run, 2 * pair + 1);
                (0..pairs).filter(is_late).count()
            };
            (0..runs).map(of_run).sum::<usize>() as f64 / (runs * pairs) as f64
        };
        let late = |rule| late_in(rule, Order::Random);
        let measured = exchanges.iter().filter(|&&ps| ps > 1_000).count() as f64 / 50_000.0;
        let ratio = late(Rule::Exchange) / measured;
        assert!((0.93..1.07).contains(&ratio), "{ratio}");
        let ratio = late(Rule::Add) / measured;
        assert!((1.85..2.1).contains(&ratio), "{ratio}");
        // Blocks are of exchanges: either message of a pair has the delay half of the time.
        let ratio = late_in(Rule::Exchange, Order::Block(1)) / measured;
        assert!((0.5..1.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn hours_are_as_exact_as_microseconds() {
        let all = [0, LONGEST / 3, LONGEST];
        let all = Latencies::new(&all, 0, Rule::Add, Order::InOrder).unwrap();
        let noise = Noise::none().with_latencies(Some(all));
        let mut all: Vec<i64> = (0..3).map(|message| of(&noise, 0, 0, message)).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 0, LONGEST - LONGEST / 3]);
    }

    /// Of many, the largest 64th are drawn as often as others and exactly; of the rest, quantiles.
    #[test]
    fn many_are_drawn_as_their_distribution_has_them() {
        let count = 100_000i64;
        // Cubes: a long tail, with one far away.
        let mut measured: Vec<i64> = (0..count).map(|at| (at / 100).pow(3)).collect();
        measured[17] = LONGEST / 2;
        let median = (count / 200).pow(3);
        let all = Latencies::new(&measured, median, Rule::Add, Order::Random).unwrap();
        let Above::Ranked(ranked) = &all.above else { panic!("not ranked") };
        assert!(ranked.list.len() < 4096, "{} in the L1 cache", ranked.list.len());
        let mut sorted = measured.clone();
        sorted.sort_unstable();
        let noise = Noise::none().with_latencies(Some(all));
        let draws = 1 << 21;
        let mut drawn: Vec<i64> =
            (0..draws).map(|sender| of(&noise, 0, sender, 3) + median).collect();
        drawn.sort_unstable();
        // With n draws from one distribution, the distance is above 2 / sqrt(n) once in 1500 times.
        for (at, value) in sorted.iter().enumerate().step_by(97) {
            let below = drawn.partition_point(|it| it < value) as f64 / draws as f64;
            let upto = drawn.partition_point(|it| it <= value) as f64 / draws as f64;
            let share = at as f64 / count as f64;
            let near = below - 0.0019 < share && share < upto + 0.0019;
            assert!(near, "{value}: {share}, not {below} to {upto}");
        }
        let tail = &sorted[sorted.len() - sorted.len() / LARGEST..];
        let mut found: Vec<i64> = drawn[drawn.len() - drawn.len() / 70..].to_vec();
        found.dedup();
        assert!(found.iter().all(|it| tail.contains(it)) && found.len() > tail.len() / 120);
        let farthest = drawn.iter().filter(|it| **it > LONGEST / 3).count();
        assert!((5..45).contains(&farthest), "{farthest} instead of 21");
    }

    /// Neighbours, consecutive messages and consecutive runs: each pair of draws falls into each pair of
    /// bins equally often (chi-squared with 255 degrees of freedom: 255 and a standard deviation of 23).
    #[test]
    fn draws_are_uniform_and_independent_of_their_neighbours() {
        let noise = Noise::none().with_latencies(Some(latencies(16, Order::Random)));
        for (rank, message, run) in
            [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 0, 0), (16, 0, 0), (1024, 1, 0)]
        {
            let mut bins = [[0u32; 16]; 16];
            let senders = 1 << 15;
            for sender in 0..senders {
                for number in 0..4 {
                    let bin = |rank, message, run| (of(&noise, run, rank, message) + 8) as usize;
                    let (a, b) =
                        (bin(sender, number, 0), bin(sender + rank, number + message, run));
                    bins[a][b] += 1;
                }
            }
            let expected = f64::from(4 * senders as u32) / 256.0;
            let off = |&count: &u32| (f64::from(count) - expected).powi(2) / expected;
            let chi: f64 = bins.iter().flatten().map(off).sum();
            assert!((150.0..375.0).contains(&chi), "{chi} at {rank} {message} {run}");
        }
    }

    #[test]
    fn what_was_measured_together_stays_together() {
        let noise = Noise::none().with_latencies(Some(latencies(10_000, Order::Block(50))));
        let wrapped = |a: i64, b: i64| (a - b).rem_euclid(10_000).min((b - a).rem_euclid(10_000));
        let mut firsts = std::collections::BTreeSet::new();
        for run in 0..40 {
            let first = of(&noise, run, 0, 0);
            firsts.insert(first / 500);
            let near = |rank, message| wrapped(of(&noise, run, rank, message), first) < 50;
            assert!((0..200).all(|rank| (0..10).all(|message| near(rank, message))));
        }
        assert!(firsts.len() > 10, "{firsts:?}");
        let noise = Noise::none().with_latencies(Some(latencies(10_000, Order::InOrder)));
        let mut starts = std::collections::BTreeSet::new();
        for rank in 0..200 {
            let start = of(&noise, 0, rank, 0);
            starts.insert(start);
            let next = |message| of(&noise, 0, rank, message as u64);
            assert!((1..40).all(|at| wrapped(next(at), start) == at));
            // A job after others continues where they ended.
            let run = noise.run(7, 0).after_messages(9);
            assert_eq!(run.latencies().unwrap().deviation(rank, 3), next(12));
        }
        assert!(starts.len() > 190);
    }
}
