//! The SP2 study on a comparable node: an uninterrupted exchange of about 160 us, the dispatcher every
//! 10 ms, another timer every 6025 us, the swapper every second, page faults of more than 200 us. Its
//! measured exchange: mean 173 us, standard deviation 58 us, skewed to the right.

use simulate::noise::{Model, Noise, Offsets, Timeline, draw};
use simulate::resample::alltoall::{self, Mode, Schedule};
use simulate::resample::exchange::{self, Order, PER_WALK};
use simulate::resample::{Distribution, Exchange, Sampler, ks_distance};

const US: i64 = 1_000_000;
const SECOND: i64 = 1_000_000 * US;

/// 0 to 1.
fn unit(key: u64, counter: u64) -> f64 {
    (draw(key, counter) >> 11) as f64 / (1u64 << 53) as f64
}

/// A hundred seconds of such a node.
fn node() -> Timeline {
    let mut at = 0.0;
    let mut faults = Vec::new();
    for number in 0.. {
        // Every 32 ms on average, 200 to 600 us long.
        at += -(1.0 - unit(1, number)).ln() * 32_000.0;
        let length = 200.0 + 400.0 * unit(2, number);
        if at > 99e6 {
            break;
        }
        faults.push(((at * 1e6) as i64, (length * 1e6) as i64));
        at += length;
    }
    let parts = [
        Timeline::new(faults, 100 * SECOND).unwrap(),
        Timeline::periodic(10_000 * US, 50 * US).unwrap(),
        Timeline::periodic(6_025 * US, 60 * US).unwrap(),
        Timeline::periodic(SECOND, 1_500 * US).unwrap(),
    ];
    Timeline::superposed(&parts).unwrap()
}

fn noise() -> Noise {
    Noise::new(vec![node()], Model::Preempt, Offsets::Random).unwrap().repeating(true)
}

/// Uninterrupted: 160 us and slightly more, in whole microseconds as from a clock.
fn uninterrupted() -> Exchange {
    let times: Vec<_> = (0..10_000).map(|i| 160 * US + (unit(3, i) * 8.0) as i64 * US).collect();
    Exchange::Drawn(Sampler::of(&times).unwrap())
}

fn one_to_one_config<'a>(
    noise: &'a Noise,
    order: Order,
    seed: u64,
    measured: &'a [i64],
) -> exchange::Config<'a> {
    exchange::Config {
        exchange: uninterrupted(),
        noise,
        order,
        samples: 200_000,
        per_walk: PER_WALK,
        seed,
        measured,
    }
}

fn one_to_one(
    noise: &Noise,
    order: Order,
    seed: u64,
    measured: &[i64],
) -> exchange::ExchangeResult {
    exchange::run(&one_to_one_config(noise, order, seed, measured), None).unwrap()
}

fn all_to_all(processors: u64, mode: Mode<'_>) -> alltoall::AlltoallResult {
    let config = alltoall::Config {
        processors,
        samples: 4_000,
        schedule: Schedule::Tournament,
        mode,
        seed: 11,
    };
    alltoall::run(&config, None).unwrap()
}

/// A sweep over the number of processors, to check the claims.
fn sweep(mode: &Mode<'_>) -> Vec<alltoall::AlltoallResult> {
    [2, 4, 8, 16, 32].into_iter().map(|processors| all_to_all(processors, mode.clone())).collect()
}

#[test]
fn interruptions_over_uninterrupted_times_give_the_measured_exchange() {
    let noise = noise();
    let measured = one_to_one(&noise, Order::InTime, 1, &[]);
    let (mean, sd) = (measured.summary.mean / 1e6, measured.summary.sd / 1e6);
    assert!((mean - 173.0).abs() < 3.0 && (sd - 58.0).abs() < 6.0, "mean {mean}, sd {sd}");
    assert!(measured.summary.skewness > 3.0, "{:?}", measured.summary);
    // Simulated again with other random numbers: the same distribution.
    let again = one_to_one(&noise, Order::InTime, 2, &measured.series);
    assert!(again.ks_distance.unwrap() < 0.01, "{:?}", again.ks_distance);
    // Without the interruptions: a different one.
    let quiet = Noise::none();
    let without = one_to_one(&quiet, Order::InTime, 2, &measured.series);
    assert!(without.ks_distance.unwrap() > 0.08, "{:?}", without.ks_distance);
    // The histogram agrees with the series.
    let bins = &measured.distribution;
    assert!((bins.mean() - measured.summary.mean).abs() < 1.0);
    for (quantile, exact) in [(0.25, measured.summary.q25), (0.99, measured.summary.p99)] {
        let ratio = bins.quantile(quantile) as f64 / exact as f64;
        assert!((ratio - 1.0).abs() < 1e-3, "{quantile}: {ratio}");
    }
}

#[test]
fn independent_draws_lose_how_interruptions_follow_each_other() {
    // The timers alone: a timer that has just interrupted an exchange will not interrupt the next.
    let timers = [(10_000, 50), (6_025, 60)]
        .map(|(period, length)| Timeline::periodic(period * US, length * US).unwrap());
    let timers = Timeline::superposed(&timers).unwrap();
    let timers = Noise::new(vec![timers], Model::Preempt, Offsets::Random).unwrap().repeating(true);
    let autocorrelation = |order| {
        // Short walks, since the phase between the two nodes' timers is fixed in each.
        let config =
            exchange::Config { per_walk: 100, ..one_to_one_config(&timers, order, 1, &[]) };
        exchange::run(&config, None).unwrap().summary.autocorrelation
    };
    // Each timer alone would give minus its probability to interrupt an exchange, about 2 %.
    let in_time = autocorrelation(Order::InTime);
    assert!((-0.035..-0.01).contains(&in_time), "{in_time}");
    let independent = autocorrelation(Order::Independent);
    assert!(independent.abs() < 0.008, "{independent}");
    // And the mean differs: long interruptions are hit more often, since an exchange may also begin
    // inside one.
    let noise = noise();
    let in_time = one_to_one(&noise, Order::InTime, 1, &[]).summary;
    let independent = one_to_one(&noise, Order::Independent, 1, &[]).summary;
    assert!(independent.mean > 1.02 * in_time.mean, "{} {}", independent.mean, in_time.mean);
    assert!(independent.sd > 1.2 * in_time.sd);
}

#[test]
fn throughput_falls_and_idle_time_rises_with_the_number_of_processors() {
    let noise = noise();
    let measured = one_to_one(&noise, Order::InTime, 1, &[]).distribution;
    let resample = Mode::Resample(measured.sampler().unwrap());
    let trace = Mode::Trace { exchange: uninterrupted(), noise: &noise };
    for mode in [resample, trace] {
        let points = sweep(&mode);
        assert_eq!(points[0].relative_throughput(), 1.0);
        for next in points.windows(2) {
            let [fewer, more] = next else { unreachable!() };
            assert!(more.relative_throughput() < fewer.relative_throughput());
            assert!(more.idle.mean() > fewer.idle.mean());
            assert!(more.idle.quantile(0.99) > fewer.idle.quantile(0.99));
            assert!(more.idle_first.zero_share() < fewer.idle_first.zero_share());
        }
        let (four, many) = (&points[1], &points[4]);
        // "Drops drastically".
        assert!(four.idle_first.zero_share() > 0.1, "{}", four.idle_first.zero_share());
        assert!(many.idle_first.zero_share() < 0.01, "{}", many.idle_first.zero_share());
        assert!(many.idle_first.mean() > 4.0 * four.idle_first.mean());
        assert!(many.idle_first.max() > four.idle_first.max());
    }
}

#[test]
fn a_set_resampled_through_its_histogram_keeps_its_shape() {
    let noise = noise();
    let measured = one_to_one(&noise, Order::InTime, 1, &[]);
    let sampler = measured.distribution.sampler().unwrap();
    let drawn: Vec<_> = (0..200_000).map(|i| sampler.pick(draw(5, i))).collect();
    let again = Distribution::of(&drawn).unwrap();
    for quantile in [0.01, 0.25, 0.5, 0.75, 0.9] {
        let ratio =
            again.quantile(quantile) as f64 / measured.distribution.quantile(quantile) as f64;
        assert!((ratio - 1.0).abs() < 0.02, "{quantile}: {ratio}");
    }
    assert!((sampler.mean() / measured.summary.mean - 1.0).abs() < 1e-3);
    // Bins move values by up to half their width, so whole microseconds are compared.
    let binned = |times: &[i64]| times.iter().map(|time| (time + US / 2) / US).collect::<Vec<_>>();
    assert!(ks_distance(&binned(&drawn), &binned(&measured.series)).unwrap() < 0.01);
}
