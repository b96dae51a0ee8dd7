//! The period test on processes with a known period, and on processes without one.

#[allow(dead_code)]
mod common;

use analysis::period::{Finder, Later, Whole};
use common::*;

/// The period of a source in a recording that ends with its last event.
fn period(times: Vec<f64>) -> Option<f64> {
    let last = times.iter().copied().fold(0.0, f64::max);
    period_within(times, last)
}

/// The same in a recording that lasts until `to`.
fn period_within(times: Vec<f64>, to: f64) -> Option<f64> {
    let starts = sorted(times);
    let whole = Whole { from_ns: 0, to_ns: to as u64, events: starts.len() as u64, later: None };
    let found = Finder::new().find(&starts, &whole).map(|p| p.period_ns);
    if let Some(period) = found {
        let per_period = starts.len() as f64 * period / to;
        assert!((0.75..=1.25).contains(&per_period), "{per_period} events per {period} ns");
    }
    found
}

#[track_caller]
fn assert_period(times: Vec<f64>, expected: f64, tolerance: f64) {
    let found = period(times);
    assert!(
        found.is_some_and(|p| (p / expected - 1.0).abs() < tolerance),
        "expected {expected}, found {found:?}"
    );
}

#[test]
fn a_tick_of_250_hz_with_jitter_missed_and_extra_events_has_a_period_of_4_ms() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut tick = beat(&mut rng, 2500, 4.0 * MS, 20.0 * US, 0.05);
        tick.extend((0..200).map(|_| rng.unit() * 10_000.0 * MS));
        assert_period(tick, 4.0 * MS, 1e-3);
    }
}

#[test]
fn a_tick_that_skips_a_few_of_its_beats_keeps_its_period() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let missed = 0.15 * rng.unit();
        assert_period(beat(&mut rng, 1000, 4.0 * MS, 10.0 * US, missed), 4.0 * MS, 1e-3);
        // One that skips half of them occurs every 8 ms on average, but not periodically.
        assert_eq!(period(beat(&mut rng, 1000, 4.0 * MS, 10.0 * US, 0.5)), None);
    }
}

#[test]
fn foreign_events_one_for_five_of_its_own_do_not_hide_a_beat() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut mixed = beat(&mut rng, 1000, 10.0 * MS, 30.0 * US, 0.0);
        mixed.extend((0..200).map(|_| rng.unit() * 10_000.0 * MS));
        assert_period(mixed, 10.0 * MS, 1e-3);
    }
}

#[test]
fn a_daemon_of_10_ms_with_50_us_of_jitter_is_found_whether_or_not_the_jitter_adds_up() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        assert_period(beat(&mut rng, 1000, 10.0 * MS, 50.0 * US, 0.0), 10.0 * MS, 1e-3);
        assert_period(sleeper(&mut rng, 16_000, 10.0 * MS, 50.0 * US), 10.0 * MS, 1e-3);
    }
}

#[test]
fn bursts_have_no_period_whether_or_not_they_come_at_regular_intervals() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let size = 2 + (rng.unit() * 30.0) as usize;
        let spacing = 6.75 * US * (1.0 + 100.0 * rng.unit());
        let regular = beat(&mut rng, 100, 100.0 * MS, 100.0 * US, 0.0);
        let random = poisson(&mut rng, 100, 100.0 * MS);
        for bursts in [regular, random] {
            let even = bursts.iter().flat_map(|t| (0..size).map(move |i| t + i as f64 * spacing));
            assert_eq!(
                period(even.collect()),
                None,
                "seed {seed}, {size} events {spacing} ns apart"
            );
            let spread = 4.0 * MS;
            let uneven: Vec<f64> =
                bursts.iter().flat_map(|t| [0.0; 3].map(|_| t + rng.unit() * spread)).collect();
            assert_eq!(period(uneven), None, "seed {seed}");
        }
    }
}

/// Page faults of a program that starts: 11,400 in a second of 10, 6.75 us apart.
#[test]
fn what_is_regular_for_a_part_of_the_recording_has_no_period() {
    let faults = (0..11_400).map(|i| 1_000.0 * MS + f64::from(i) * 6.75 * US).collect();
    assert_eq!(period_within(faults, 10_000.0 * MS), None);
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let tick = beat(&mut rng, 1000, 4.0 * MS, 10.0 * US, 0.0);
        // It begins late, ends early, or continues without a period.
        let late = tick.iter().map(|t| t + 1_500.0 * MS).collect();
        assert_eq!(period_within(late, 5_500.0 * MS), None, "seed {seed}");
        assert_eq!(period_within(tick.clone(), 5_500.0 * MS), None, "seed {seed}");
        let random = poisson(&mut rng, 800, 4.0 * MS);
        let after = tick.iter().copied().chain(random.iter().map(|t| 4_000.0 * MS + t));
        assert_eq!(period(after.collect()), None, "seed {seed}");
        assert!(period_within(tick, 4_000.0 * MS).is_some());
    }
}

#[test]
fn a_beat_has_to_go_on_after_the_start_times_that_were_kept() {
    let find = |until: u64| {
        let starts: Vec<u64> = (0..1_000).map(|i| i * 4_000_000).collect();
        let mut later = Later::default();
        (1_000..until).for_each(|i| later.add(i * 4_000_000));
        let to_ns = 10_000 * 4_000_000;
        let whole = Whole { from_ns: 0, to_ns, events: until, later: Some(&later) };
        Finder::new().find(&starts, &whole).map(|p| p.period_ns.round())
    };
    assert_eq!(find(10_000), Some(4e6));
    assert_eq!(find(8_000), None);
}

/// Two threads that want the CPU take turns of a few ticks each.
#[test]
fn time_slices_of_a_few_ticks_have_no_period() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let most = 2.0 + (rng.unit() * 4.0).floor();
        let mut at = 0.0;
        let times = (0..1000).map(|_| {
            at += ((1.0 + (rng.unit() * most).floor()) + (1.0 + (rng.unit() * most).floor()))
                * 4.0
                * MS;
            at + rng.normal(5.0 * US)
        });
        assert_eq!(period(times.collect()), None, "seed {seed}");
    }
}

#[test]
fn a_tick_that_pauses_while_its_cpu_idles_has_no_period_of_the_recording() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut times = Vec::new();
        let mut from = 0.0;
        for _ in 0..10 {
            let run = 20 + (rng.unit() * 40.0) as usize;
            times.extend(beat(&mut rng, run, 4.0 * MS, 10.0 * US, 0.0).iter().map(|t| t + from));
            from += 500.0 * MS + rng.exponential(500.0 * MS) + run as f64 * 4.0 * MS;
        }
        assert_eq!(period(times), None, "seed {seed}");
    }
}

#[test]
fn a_regular_spacing_within_bursts_at_random_times_is_not_a_period() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let bursts = poisson(&mut rng, 100, 100.0 * MS);
        let times = bursts.iter().flat_map(|t| [0.0, 1.0, 2.0].map(|i| t + i * MS)).collect();
        assert_eq!(period(times), None, "seed {seed}");
    }
}

#[test]
fn the_fundamental_is_reported_whatever_the_period() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let period = 50.0 * US * (rng.unit() * 10.0).exp();
        let n = 12 + (rng.unit() * 600.0) as usize;
        let jitter = rng.unit() * 0.02 * period;
        assert_period(beat(&mut rng, n, period, jitter, 0.0), period, 0.01);
    }
}

#[test]
fn of_two_interleaved_beats_one_is_reported_or_none() {
    let mut found = 0;
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let a = 10.0 * MS;
        let b = if seed < 50 { 1.625 * MS } else { a * (0.11 + 0.85 * rng.unit()) };
        let count = |p: f64| (5_000.0 * MS / p) as usize;
        let mut times = beat(&mut rng, count(a), a, 5.0 * US, 0.0);
        times.extend(beat(&mut rng, count(b), b, 5.0 * US, 0.0));
        if let Some(p) = period(times) {
            found += 1;
            let one = [a, b].iter().any(|x| (p / x - 1.0).abs() < 0.01);
            assert!(one, "seed {seed}: {a} and {b} gave {p}");
        }
    }
    assert!(found > 20, "{found}");
}

#[test]
fn fewer_than_eight_events_have_no_period() {
    for n in 0..8 {
        assert_eq!(period((0..n).map(|i| f64::from(i) * MS).collect()), None);
    }
    assert_period((0..8).map(|i| f64::from(i) * MS).collect(), MS, 1e-3);
}

#[test]
fn a_poisson_process_of_any_rate_has_no_period() {
    for seed in 0..2000u64 {
        let mut rng = Rng::new(seed);
        let n = 8 + (rng.unit() * 5.5).exp() as usize * (1 + seed as usize % 4);
        let mean = US * (rng.unit() * 14.0).exp();
        let times = poisson(&mut rng, n, mean);
        assert_eq!(period(times), None, "seed {seed}, {n} events");
    }
}

#[test]
fn bursts_at_random_times_have_no_period() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let n = 10 + (rng.unit() * 200.0) as usize;
        let times = poisson(&mut rng, n, 20.0 * MS);
        let spread = rng.unit() * 5.0 * MS;
        let bursts: Vec<f64> =
            times.iter().flat_map(|t| [0.0; 4].map(|_| t + rng.unit() * spread)).collect();
        assert_eq!(period(bursts), None, "seed {seed}");
    }
}

#[test]
fn gaps_that_vary_by_a_third_are_not_a_period() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        assert_eq!(period(sleeper(&mut rng, 1000, 10.0 * MS, 3.3 * MS)), None, "seed {seed}");
    }
}

#[test]
fn equal_start_times_and_times_out_of_order_are_survived() {
    let find = |starts: &[u64]| {
        let whole = Whole { from_ns: 0, to_ns: u64::MAX, events: 100, later: None };
        Finder::new().find(starts, &whole)
    };
    assert_eq!(find(&[5; 100]), None);
    let _ = find(&(0..100).rev().map(|i| i * 1_000_000).collect::<Vec<_>>());
    let extremes: Vec<u64> = (0..100).map(|i| if i % 2 == 0 { 0 } else { u64::MAX }).collect();
    let _ = find(&extremes);
}
