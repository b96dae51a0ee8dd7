//! Consecutive exchanges between two nodes. Each takes an uninterrupted time, drawn or constant, and
//! ends when both sides are done: interruptions on either side delay both.
//!
//! In time order ([`Order::InTime`]) the pair walks through both nodes' traces from random offsets, so
//! that an interruption that has just occurred will not recur soon. [`Order::Independent`] discards
//! that: every exchange begins at a random position in the traces. The uninterrupted times are the
//! same in both, so any difference is due to the order alone.

use std::ops::Range;

use rayon::prelude::*;

use crate::noise::{Noise, draw, key};

use super::side::Side;
use super::{Distribution, Exchange, ResampleError, Summary, Unit, ks_distance};

const TIME: u64 = 21;
const MAX_SAMPLES: u64 = 1 << 28;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    InTime,
    Independent,
}

#[derive(Clone, Debug)]
pub struct Config<'a> {
    /// Uninterrupted exchange.
    pub exchange: Exchange,
    pub noise: &'a Noise,
    pub order: Order,
    pub samples: u64,
    /// Exchanges of one pair before the next begins elsewhere in the traces.
    pub per_walk: u64,
    pub seed: u64,
    /// Measured exchanges to compare with; may be empty.
    pub measured: &'a [i64],
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeResult {
    pub summary: Summary,
    pub distribution: Distribution,
    /// Two-sample distance to the measured exchanges.
    pub ks_distance: Option<f64>,
    /// Every exchange, walk by walk, ps.
    pub series: Vec<i64>,
}

/// Default number of exchanges per pair.
pub const PER_WALK: u64 = 1_000;

/// `progress` gets the number of samples done since its last call, from any thread.
pub fn run(
    config: &Config<'_>,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<ExchangeResult, ResampleError> {
    let series = share(config, 0..config.walks(), progress)?;
    ExchangeResult::of(series, config.per_walk, config.measured)
}

impl Config<'_> {
    /// Pairs of nodes, one after the other; the last may have fewer exchanges.
    pub fn walks(&self) -> u64 {
        self.samples.div_ceil(self.per_walk.max(1))
    }
}

/// The exchanges of these walks, identical to those of [`run`]: consecutive shares form its series.
pub fn share(
    config: &Config<'_>,
    walks: Range<u64>,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<Vec<i64>, ResampleError> {
    if config.samples == 0 {
        return Err(ResampleError::NoSamples);
    }
    if config.samples > MAX_SAMPLES {
        return Err(ResampleError::TooManySamples(config.samples));
    }
    if config.per_walk == 0 {
        return Err(ResampleError::EmptyWalk);
    }
    config.exchange.check()?;
    config.noise.check(2)?;
    let begin_of = |walk: u64| walk.saturating_mul(config.per_walk).min(config.samples);
    let count = begin_of(walks.end).saturating_sub(begin_of(walks.start));
    let mut series = vec![0; count as usize];
    let per_walk = config.per_walk.min(config.samples) as usize;
    let times = key(config.seed, TIME, 0);
    series.par_chunks_mut(per_walk).enumerate().try_for_each(|(index, series)| {
        let walk = walks.start + index as u64;
        let first = begin_of(walk);
        let begin =
            |run: u64| [0, 1].map(|side| Side::new(config.noise.run(config.seed, run), side));
        let mut now = 0;
        let mut sides = begin(walk);
        for (sample, took) in (first..).zip(series.iter_mut()) {
            if config.order == Order::Independent {
                now = 0;
                sides = begin(sample);
            }
            let work = config.exchange.time(draw(times, sample));
            let end = exchange(&mut sides, now, work)?;
            *took = end - now;
            now = end;
        }
        if let Some(progress) = progress {
            progress(series.len() as u64);
        }
        Ok::<_, ResampleError>(())
    })?;
    Ok(series)
}

/// Mean uninterrupted time of the exchanges that are simulated, ps: what was drawn, not what is expected,
/// so that only interruptions make a difference.
pub fn uninterrupted_mean(config: &Config<'_>) -> f64 {
    let times = key(config.seed, TIME, 0);
    let time = |sample| i128::from(config.exchange.time(draw(times, sample)));
    let sum: i128 = (0..config.samples).into_par_iter().map(time).sum();
    sum as f64 / config.samples.max(1) as f64
}

impl ExchangeResult {
    /// The statistics of all exchanges, walk by walk.
    pub fn of(
        series: Vec<i64>,
        per_walk: u64,
        measured: &[i64],
    ) -> Result<ExchangeResult, ResampleError> {
        let longest = series.iter().copied().max().unwrap_or(0);
        let mut distribution = Distribution::new(Unit::for_times_up_to(longest));
        for &time in &series {
            distribution.record(time)?;
        }
        let per_walk = per_walk.min(series.len() as u64) as usize;
        Ok(ExchangeResult {
            summary: Summary::of(&series, per_walk),
            distribution,
            ks_distance: ks_distance(&series, measured),
            series,
        })
    }
}

/// An exchange ends when both sides are done.
#[inline]
fn exchange(
    [one, other]: &mut [Side<'_>; 2],
    begin: i64,
    work: i64,
) -> Result<i64, crate::noise::WorkError> {
    Ok(one.work(begin, work)?.max(other.work(begin, work)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{Model, Offsets, Timeline, WorkError};

    const US: i64 = 1_000_000;

    fn given(timeline: Timeline, offsets: [i64; 2], model: Model) -> Noise {
        Noise::new(vec![timeline], model, Offsets::Given(offsets.to_vec())).unwrap()
    }

    fn config(noise: &Noise, order: Order, samples: u64) -> Config<'_> {
        Config {
            exchange: Exchange::Constant(160 * US),
            noise,
            order,
            samples,
            per_walk: PER_WALK,
            seed: 5,
            measured: &[],
        }
    }

    #[test]
    fn an_exchange_ends_when_both_sides_are_through() {
        // Each side has one detour: the pair meets both in turn.
        let timeline = Timeline::new([(200 * US, 50 * US)], 10_000 * US).unwrap();
        let noise = given(timeline, [0, 9_640 * US], Model::Preempt);
        let outcome = run(&config(&noise, Order::InTime, 5), None).unwrap();
        // Side 0 is interrupted from 200 to 250, side 1 from 560 to 610.
        assert_eq!(outcome.series, [160, 210, 160, 210, 160].map(|time| time * US));
        assert_eq!(outcome.summary.max, 210 * US);
        assert_eq!(outcome.distribution.len(), 5);
    }

    #[test]
    fn the_models_differ_where_a_side_waits_for_the_other() {
        // Side 0 is interrupted from 50 to 150, and so is done at 200; side 1 waits from 100. Its own
        // detour comes 110 after its start: in wall-clock time that is while it waits.
        let timeline =
            Timeline::new([(1000, 1), (1150, 100), (2110, 60), (5000, 10)], 6_000).unwrap();
        let end = |model| {
            let noise = given(timeline.clone(), [1100, 2000], model);
            let config = Config {
                exchange: Exchange::Constant(100),
                per_walk: 2,
                ..config(&noise, Order::InTime, 2)
            };
            run(&config, None).unwrap().series
        };
        assert_eq!(end(Model::Preempt), [200, 100]);
        assert_eq!(end(Model::LogGopSim), [200, 100]);
        assert_eq!(end(Model::CpuTime), [200, 160]);
    }

    #[test]
    fn independent_draws_lose_the_correlation_in_time() {
        // Half of the time quiet, half busy, in long phases.
        let busy = (0..250).map(|i| (i * 2_000 * US, 60 * US));
        let timeline = Timeline::new(busy, 1_000_000 * US).unwrap();
        let every = |step: i64| (0..500_000 / step).map(move |i| (i * step * US, 60 * US));
        let dense = Timeline::new(every(200), 1_000_000 * US).unwrap();
        let outcome = |timeline: &Timeline, order| {
            let noise = Noise::new(vec![timeline.clone()], Model::Preempt, Offsets::Random)
                .unwrap()
                .repeating(true);
            run(&config(&noise, order, 100_000), None).unwrap().summary
        };
        let in_time = outcome(&dense, Order::InTime);
        let independent = outcome(&dense, Order::Independent);
        assert!(in_time.autocorrelation > 0.5, "{in_time:?}");
        assert!(independent.autocorrelation.abs() < 0.02, "{independent:?}");
        // Regular interruptions: after one there is none for a while.
        let regular = outcome(&timeline, Order::InTime);
        assert!(regular.autocorrelation < -0.02, "{regular:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_series_on_any_number_of_threads() {
        let timeline = Timeline::periodic(10_000 * US, 70 * US).unwrap();
        let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap();
        for order in [Order::InTime, Order::Independent] {
            let on = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| run(&config(&noise, order, 5_500), None).unwrap())
            };
            let one = on(1);
            assert_eq!(one, on(2));
            assert_eq!(one, on(7));
            let other = Config { seed: 6, ..config(&noise, order, 5_500) };
            assert_ne!(one.series, run(&other, None).unwrap().series);
        }
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let none = Noise::none();
        let fine = config(&none, Order::InTime, 10);
        assert!(run(&fine, None).is_ok());
        let refused = |config: Config<'_>| run(&config, None).unwrap_err();
        assert_eq!(refused(Config { samples: 0, ..fine.clone() }), ResampleError::NoSamples);
        assert_eq!(refused(Config { per_walk: 0, ..fine.clone() }), ResampleError::EmptyWalk);
        let negative = Config { exchange: Exchange::Constant(-1), ..fine.clone() };
        assert_eq!(refused(negative), ResampleError::NotATime { ps: -1 });
        let short = Timeline::new([(10 * US, US)], 1_000 * US).unwrap();
        let noise = Noise::new(vec![short], Model::Preempt, Offsets::Random).unwrap();
        assert!(matches!(
            refused(Config { noise: &noise, ..fine }),
            ResampleError::Work(WorkError::TraceTooShort { .. })
        ));
    }
}
