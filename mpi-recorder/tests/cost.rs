//! What the collector adds to a call, as `programs/cost.c` measures it: in CPU time, wrapped and bare calls in one run.

mod support;

use std::collections::BTreeMap;
use support::*;

/// The best of several runs, since disturbances only add. The targets are in `cargo xtask bench`; this finds a cost of
/// another order.
fn a_recorded_call_costs_no_more_than_ten_readings_of_the_clock(mpi: Mpi) -> Ended {
    const ATTEMPTS: usize = 5;
    let program = mpi.compile("cost.c", &["-ldl"]).unwrap();
    let mut best = BTreeMap::new();
    for _ in 0..ATTEMPTS {
        let trace_dir = fresh("trace");
        let output = run(mpi.recorded(1, &trace_dir).arg(&program));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let clock = text.lines().find_map(|line| line.strip_prefix("reading the clock "));
        let clock: f64 = clock.unwrap().trim_end_matches(" ns").parse().unwrap();
        for line in text.lines() {
            let Some((name, rest)) = line.split_once(" bare ") else { continue };
            let (_, added) = rest.split_once(" added ").unwrap();
            let added: f64 = added.split(' ').next().unwrap().parse().unwrap();
            let ratio = best.entry(name.trim().to_owned()).or_insert(f64::INFINITY);
            *ratio = ratio.min(added / clock);
        }
        // Without the collector nothing would be added.
        assert!(count_events(&trace_dir.join("rank-0.mpi")).0 > 1_000_000);
        std::fs::remove_dir_all(&trace_dir).unwrap();
        if best.iter().all(|(name, ratio)| *ratio < limit(name)) {
            println!("{}: readings of the clock: {best:.1?}", mpi.name);
            break;
        }
    }
    assert_eq!(best.len(), 6, "{best:?}");
    let met = best.iter().all(|(name, ratio)| *ratio < limit(name));
    assert!(met, "readings of the clock: {best:?}");
    Ended::Done
}

/// A test that fails again is counted, mostly without reading the clock; written like any call, it costs about three
/// readings.
fn limit(name: &str) -> f64 {
    let counted = ["MPI_Test, not complete", "MPI_Iprobe, nothing there"];
    if counted.contains(&name) { 2.0 } else { 10.0 }
}

const TESTS: &[Test] = &[(
    "a_recorded_call_costs_no_more_than_ten_readings_of_the_clock",
    a_recorded_call_costs_no_more_than_ten_readings_of_the_clock,
)];

fn main() {
    run_tests(TESTS);
}
