//! Claims of the study of redundant exchanges, at sizes affordable in a test; `cargo xtask validate`
//! covers the 8 Mi ranks of its figures.

use simulate::{
    cycle::{Case, Config, end_of_case, ends_under, run, share_by_cycle},
    noise::Noise,
};

const MS: i64 = 1_000_000_000;

/// (period, work) of the three experiments; detours of 100 us.
const EXPERIMENTS: [(i64, i64); 3] =
    [(10 * MS, 0), (10 * MS, 6_666_670_000), (100 * MS, 66_666_700_000)];

fn experiment(number: usize, ranks: u64, runs: u64) -> Config {
    let (period, work) = EXPERIMENTS[number];
    Config { period, work, runs, ..Config::paper(ranks) }
}

#[test]
fn redundant_exchanges_win_back_more_than_a_third() {
    for (number, expected) in [(0, 0.30..0.38), (1, 0.38..0.45), (2, 0.33..0.46)] {
        let outcome = run(&experiment(number, 4096, 40), None).unwrap();
        let recovery = outcome.recovery().unwrap();
        assert!(expected.contains(&recovery.value), "{number}: {recovery:?}");
        assert!(recovery.half_width.unwrap() < 0.05, "{number}: {recovery:?}");
        assert!(outcome.runs.iter().all(|run| run.noiseless <= run.conventional));
    }
}

#[test]
fn noise_costs_more_the_more_ranks_there_are() {
    let mean = |ranks| run(&experiment(0, ranks, 20), None).unwrap().mean(|run| run.conventional);
    let means = [64, 512, 4096, 32768].map(mean);
    assert!(means.is_sorted_by(|fewer, more| fewer.value < more.value), "{means:?}");
}

#[test]
fn without_noise_redundancy_costs_one_send_per_round_at_most() {
    let quiet = Config { duration: 0, ..experiment(0, 256, 1) };
    let outcome = run(&quiet, None).unwrap();
    let [times] = outcome.runs[..] else { panic!("one run") };
    assert_eq!(times.noiseless, times.conventional);
    // The wait for the message is 1 us; the redundant send of 1 ns fits into it.
    assert_eq!(times.redundant, times.conventional);
    assert_eq!(outcome.recovery(), None);
}

#[test]
fn the_noiseless_case_has_noise_in_its_compute_phases() {
    let config = Config { cycles: 1, ..experiment(1, 64, 1) };
    let ends = end_of_case(&config, 0, Case::Noiseless).unwrap();
    let (last, first) = (ends.iter().max().unwrap(), ends.iter().min().unwrap());
    let exchanges = 6 * 1_002_000;
    // One rank met a detour, and all waited for it.
    assert_eq!(*last, config.work + config.duration + exchanges);
    assert!(last - first < exchanges);
}

#[test]
fn every_rank_ends_at_the_same_time_on_any_number_of_threads() {
    // Large enough for several blocks, in the cached rounds and beyond; one set with gaps.
    let config = Config { cycles: 3, ..experiment(0, 1 << 15, 1) };
    for set in [None, Some(0b0010_0100_1000)] {
        let config = Config { redundant_rounds: set, ..config.clone() };
        for case in Case::ALL {
            let on = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| end_of_case(&config, 0, case).unwrap())
            };
            let one = on(1);
            assert_eq!(one, on(2));
            assert_eq!(one, on(7));
        }
    }
    let runs = Config { ranks: 512, runs: 9, ..config };
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(&runs, None).unwrap())
    };
    assert_eq!(on(1), on(7));
}

#[test]
fn fewer_redundant_rounds_win_back_less() {
    let recovery = |set| {
        let config = Config { redundant_rounds: set, ..experiment(0, 1024, 40) };
        run(&config, None).unwrap().recovery().unwrap().value
    };
    let (all, half, none) = (recovery(None), recovery(Some(0b01_0101_0100)), recovery(Some(0)));
    assert_eq!(none, 0.0);
    assert!(all > half && half > 0.05, "{all} {half}");
}

#[test]
fn progress_adds_up_to_the_cycles_of_all_cases() {
    let told = std::sync::atomic::AtomicU64::new(0);
    let tell = |count| {
        told.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
    };
    run(&experiment(0, 64, 5), Some(&tell)).unwrap();
    assert_eq!(told.into_inner(), 3 * 5 * 10);
}

/// Noise without detours takes the place of the periodic one, as any other does.
#[test]
fn no_noise_is_a_noise() {
    let noisy = experiment(0, 64, 3);
    let quiet = Config { duration: 0, ..noisy.clone() };
    let none = Noise::none();
    let found = share_by_cycle(&noisy, Some(&none), &[5, 10], 0..3, None).unwrap();
    assert_eq!(found, share_by_cycle(&quiet, None, &[5, 10], 0..3, None).unwrap());
    for case in Case::ALL {
        let found = ends_under(&noisy, &none, 1, case).unwrap();
        assert_eq!(found, end_of_case(&quiet, 1, case).unwrap());
    }
}
