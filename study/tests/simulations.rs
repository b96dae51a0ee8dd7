//! Simulations against closed forms, and properties of their results that hold for any noise.

use std::{fs, path::PathBuf};

use simulate::{
    collectives::Op,
    event::{Rendezvous, Rules},
    goal::{CalcUnit, Form},
    graph::{self, Graph},
    loggops::Params,
    noise::Model,
    resample::exchange::{Order, PER_WALK},
};
use study::{
    error,
    jobs::{alltoall, collective, cycle, exchange, goal, job, schedule},
    network,
    network::samples::Spec,
    noise,
    run::{
        point::Point,
        shard::Shard,
        work::{Unwatched, Watch, Work},
    },
    units,
};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/two-cpus.detour");

const WORK: Work<'static> = Work { seed: 1, threads: 2, memory: || 1 << 32, watch: &Unwatched };

/// A file in the target's temporary directory; each test uses its own names.
fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn net(text: &str) -> Params {
    network::parse(text).expect("a network")
}

fn of(noise: &str) -> noise::Request {
    noise::Request { noise: vec![noise.into()], ..noise::Request::default() }
}

fn without(sources: &[&str]) -> noise::Request {
    let without = sources.iter().map(|&source| source.to_owned()).collect();
    noise::Request { without, ..of(DEMO) }
}

/// An allreduce of one byte.
fn request(ranks: &[u64], runs: u64, noise: noise::Request) -> collective::Request {
    collective::Request {
        net_local: None,
        latency: None,
        after_barrier: false,
        jobs: vec![job::Request::default()],
        ranks: ranks.to_vec(),
        runs,
        sizes: vec![1],
        nets: vec![net("cnl")],
        rendezvous: network::RENDEZVOUS,
        net_scales: vec![1.0],
        with_coscheduled: false,
        blame: false,
        noise,
        resume: None,
        times: None,
    }
}

fn barriers(iterations: u64, compute: &str) -> job::Request {
    job::Request {
        ops: vec![Op::Barrier],
        iterations,
        compute: units::picoseconds(compute).expect("a time"),
        ..job::Request::default()
    }
}

#[test]
fn a_source_that_is_left_out_costs_nothing_any_more() {
    let median = |sources: &[&str]| {
        let request = collective::Request {
            nets: vec![net("alps")],
            ..request(&[64], 200, without(sources))
        };
        collective::simulate(&request, &WORK).unwrap().points[0].median_us
    };
    let all = median(&[]);
    assert!(median(&["timer"]) < all);
    assert!(median(&["timer:tick"]) < all);
    assert!(median(&["thread", "kthread"]) < all / 2.0);
    let outside = median(&["outside_kernel"]);
    assert!(outside < all);
    // Also by the names in a report.
    assert_eq!(median(&["microarchitecture", "hypervisor_or_smi"]), outside);
}

#[test]
fn a_recording_is_noise_in_every_model() {
    for model in Model::ALL {
        let noise = noise::Request { model: Some(model), ..of(DEMO) };
        let sweep = collective::simulate(&request(&[256], 20, noise.clone()), &WORK).unwrap();
        assert_eq!(sweep.about.noise_model, model.name());
        assert!(sweep.points[0].slowdown_median > 1.1, "{model:?}: {sweep:?}");
        let exchanges = exchange::Request {
            exchange: Spec::Constant(150_000_000),
            noise: noise.clone(),
            order: Order::InTime,
            samples: 20_000,
            per_walk: PER_WALK,
            measured: None,
        };
        let mean_us = exchange::simulate(&exchanges, &WORK).unwrap().mean_us;
        assert!(mean_us > 151.0, "{model:?}: {mean_us}");
        let alltoalls = alltoall::Request {
            op: Op::Alltoall,
            algorithm: None,
            measured: None,
            ranks: vec![8],
            samples: 500,
            exchange: Spec::Constant(150_000_000),
            resample: None,
            source: None,
            noise,
            size: None,
        };
        let total_us = alltoall::simulate(&alltoalls, &WORK).unwrap().points[0].total_mean_us;
        assert!(total_us > 7.0 * 151.0, "{model:?}: {total_us}");
    }
}

#[test]
fn the_peers_rules_are_the_peers_without_noise_too() {
    let noiseless = |model| {
        let noise = noise::Request { model: Some(model), ..of("none") };
        let job = job::Request { graph: Graph::LogGopSim, ..job::Request::default() };
        let request = collective::Request {
            jobs: vec![job],
            sizes: vec![100_000],
            nets: vec![net("L=1us,o=1us,g=3us,G=1ns,O=1ns")],
            ..request(&[64], 1, noise)
        };
        let sweep = collective::simulate(&request, &WORK).unwrap();
        assert!(!sweep.is_noisy());
        assert_eq!(sweep.points[0].median_us, sweep.points[0].noiseless_us);
        sweep.points[0].noiseless_us
    };
    assert!(noiseless(Model::LogGopSim) < noiseless(Model::Preempt));
}

#[test]
fn processors_wait_for_each_other_the_more_the_more_there_are() {
    let times = scratch("study-measured.txt");
    fs::write(&times, "# us\n150\n150\n151\n160\n300\n").unwrap();
    let request = alltoall::Request {
        op: Op::Alltoall,
        algorithm: None,
        measured: None,
        ranks: vec![2, 4, 32],
        samples: 2000,
        exchange: Spec::Constant(0),
        resample: Some(times),
        source: None,
        noise: of("none"),
        size: None,
    };
    let alltoalls = alltoall::simulate(&request, &WORK).unwrap();
    assert_eq!(alltoalls.about.mode, "resample");
    let points = &alltoalls.points;
    assert!(points.is_sorted_by(|a, b| a.relative_throughput > b.relative_throughput));
    assert!(points.is_sorted_by(|a, b| a.idle_mean_us < b.idle_mean_us));
    assert!(points.is_sorted_by(|a, b| a.idle_zero_pct > b.idle_zero_pct));
    let names: Vec<String> = alltoalls.distributions().into_iter().map(|(name, _)| name).collect();
    for name in ["idle_2", "idle_all_4", "total_32"] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
}

/// Lanes of 10 and 40 ms with a detour of 100 us at the start of each millisecond.
fn lanes_of_different_spans(name: &str) -> PathBuf {
    let lane = |count: u64| {
        let detours: Vec<[u64; 2]> = (0..count).map(|i| [i * 1_000_000, 100_000]).collect();
        serde_json::json!({ "span_ns": count * 1_000_000, "detours": detours })
    };
    let path = scratch(name);
    fs::write(&path, serde_json::json!({ "runs": [lane(10), lane(40)] }).to_string()).unwrap();
    path
}

/// 50 ms of work, of which 0.9 ms fit in a millisecond: 55.5 ms and the rest of a period.
#[test]
fn coscheduled_ranks_lose_what_one_rank_loses() {
    let trace = lanes_of_different_spans("study-coscheduled.json");
    let noise = noise::Request {
        noise: vec![trace.into()],
        repeat_trace: true,
        ..noise::Request::default()
    };
    let request = collective::Request {
        jobs: vec![barriers(50, "1ms")],
        nets: vec![net("L=0")],
        with_coscheduled: true,
        ..request(&[256], 40, noise)
    };
    let both = collective::simulate(&request, &WORK).unwrap();
    let [apart, together] = &both.points[..] else { panic!("two series") };
    let (least, most) = (together.min_us, together.max_us);
    assert!(least >= 55_500.0 && most <= 55_700.0, "{least} to {most}");
    // Independently, the last rank of each barrier is hit by two detours.
    assert!(apart.min_us > 59_000.0);
    let noise = noise::Request { coscheduled: true, ..request.noise.clone() };
    let alone = collective::Request { noise, with_coscheduled: false, ..request };
    let alone = collective::simulate(&alone, &WORK).unwrap();
    assert_eq!((alone.points[0].min_us, alone.points[0].max_us), (least, most));
}

#[test]
fn ranks_cannot_meet_noise_together_that_is_not_there() {
    let none = || of("none");
    for (option, noise, with_coscheduled) in [
        ("--coscheduled", noise::Request { coscheduled: true, ..none() }, false),
        ("--with-coscheduled", none(), true),
        ("--synchronised", noise::Request { synchronised: Some(1), ..none() }, false),
    ] {
        let request = collective::Request { with_coscheduled, ..request(&[4], 2, noise) };
        let said = collective::simulate(&request, &WORK).unwrap_err().to_string();
        assert!(said.starts_with(option) && said.contains("requires --noise"), "{said}");
    }
}

#[test]
fn a_noise_rate_without_a_use_is_refused() {
    for noise in ["none", "periodic:1000Hz,200us", "poisson:1000Hz,200us"] {
        let noise = noise::Request { period: Some(1_000_000_000), ..of(noise) };
        let said = noise.load(&WORK).map(|_| ()).unwrap_err().to_string();
        assert!(said.starts_with("--noise-rate requires a file with only lengths"), "{said}");
    }
}

/// A second of work under 1000 detours per second of 500 us takes two.
#[test]
fn a_noise_rate_is_that_of_the_detours() {
    let file = scratch("study-noise-rate.hgrm");
    let exchanges = exchange::Request {
        exchange: Spec::Constant(500_000_000),
        noise: of("none"),
        order: Order::InTime,
        samples: 1000,
        per_walk: PER_WALK,
        measured: None,
    };
    let exchanges = exchange::simulate(&exchanges, &WORK).unwrap();
    exchanges.distribution.write_hgrm(&mut fs::File::create(&file).unwrap()).unwrap();
    let simulate = |rate: &str| {
        let noise = noise::Request {
            noise: vec![file.clone().into()],
            repeat_trace: true,
            period: Some(units::period(rate).unwrap()),
            ..noise::Request::default()
        };
        let request =
            collective::Request { jobs: vec![barriers(1, "500s")], ..request(&[1], 10, noise) };
        collective::simulate(&request, &WORK)
    };
    let slowdown = simulate("1000Hz").unwrap().points[0].slowdown_median;
    assert!((slowdown - 2.0).abs() < 2e-3, "{slowdown}");
    let said = error::in_words(&simulate("2000Hz").unwrap_err());
    assert!(said.contains("2000 detours per second") && said.contains("--noise-rate"), "{said}");
}

/// One round over two ranks of 16 KiB, which is above S: N, and o + 2 L more for the handshake.
#[test]
fn large_messages_wait_for_a_handshake_as_collective_and_as_schedule() {
    let params = net("L=2us,o=1us,g=0,G=1ns,O=0,S=4096");
    let noiseless = |size: u64, rendezvous| {
        let request = collective::Request {
            jobs: vec![barriers(1, "0")],
            sizes: vec![size],
            nets: vec![params],
            rendezvous,
            ..request(&[2], 1, of("none"))
        };
        let sweep = collective::simulate(&request, &WORK).unwrap();
        assert_eq!(sweep.about.rendezvous, rendezvous.name());
        sweep.points[0].noiseless_us
    };
    let n = 1.0 + 2.0 + 16.383 + 1.0;
    let near = |time: f64, expected: f64| {
        assert!((time - expected).abs() < 1e-9, "{time} instead of {expected}");
    };
    near(noiseless(16 << 10, Rendezvous::ClosedForm), n);
    near(noiseless(16 << 10, Rendezvous::Handshake), n + 1.0 + 2.0 * 2.0);
    near(noiseless(4096, Rendezvous::Handshake), 1.0 + 2.0 + 4.095 + 1.0);

    let file = scratch("study-large.goal");
    let job = barriers(1, "0").job(2, 16 << 10, Params::FREE).unwrap();
    let written = graph::schedule(&job, Graph::InOrder).unwrap();
    goal::write(Some(&file), Form::Text, &written, CalcUnit::default()).unwrap();
    for rendezvous in [Rendezvous::Handshake, Rendezvous::ClosedForm] {
        let request = schedule::Request {
            net_local: None,
            latency: None,
            file: file.clone(),
            rules: Rules::Loggops,
            unit: Some(schedule::Unit::Ns),
            calc_unit: CalcUnit::default(),
            offsets: None,
            rendezvous: Some(rendezvous),
            net: params,
            net_scale: 1.0,
            runs: 1,
            blame: false,
            picture: None,
            noise: of("none"),
        };
        let finishes = schedule::simulate(&request, &WORK).unwrap();
        near(finishes.max.ps as f64 / 1e6, noiseless(16 << 10, rendezvous));
    }
    // The cycle's messages are eager.
    let request = cycle::Request {
        ranks: vec![2],
        period: 1_000_000_000,
        duration: 0,
        noise: None,
        compute: 0,
        cycles: vec![1],
        runs: 1,
        size: 16 << 10,
        net: params,
        redundant_rounds: cycle::parse_rounds("none").unwrap(),
    };
    let said = cycle::simulate(&request, &WORK).unwrap_err().to_string();
    assert!(said.contains("eager limit"), "{said}");
}

#[test]
fn a_knee_at_the_smallest_simulated_rank_count_is_an_upper_bound() {
    let knee = |ranks: &[u64], runs, noise| {
        let sweep = collective::simulate(&request(ranks, runs, of(noise)), &WORK).unwrap();
        assert_eq!(sweep.knee, sweep.knees[0].knee);
        sweep.knee.knee
    };
    let noise = "periodic:100Hz,200us";
    let smallest = knee(&[65536], 20, noise).expect("a knee");
    assert_eq!((smallest.ranks, smallest.above), (65536, None));
    assert!(smallest.is_upper_bound() && smallest.smallest);
    // Two ranks are hit by a detour now and then, 1024 nearly always.
    let between = knee(&[2, 1024, 65536], 20, noise).expect("a knee");
    assert_eq!((between.ranks, between.above), (1024, Some(2)));
    assert!(!between.is_upper_bound());
    assert_eq!(knee(&[2], 5, "periodic:1Hz,1us"), None);
}

#[test]
fn results_depend_on_the_seed_alone() {
    let simulate = |seed, threads| {
        let work = Work { seed, threads, ..WORK };
        let sweep = collective::simulate(&request(&[64, 512], 30, of(DEMO)), &work).unwrap();
        sweep.points.iter().map(|point| (point.median_us, point.max_us)).collect::<Vec<_>>()
    };
    let first = simulate(1, 1);
    assert_eq!(simulate(1, 2), first);
    assert_eq!(simulate(1, 7), first);
    assert_ne!(simulate(2, 1), first);
}

#[test]
fn shards_together_are_the_whole() {
    let request = request(&[64, 512], 31, of(DEMO));
    let whole = collective::simulate(&request, &WORK).unwrap();
    let shard =
        |number| collective::simulate_shard(&request, &WORK, Shard { number, of: 3 }).unwrap();
    let mut joined = shard(1);
    joined.join(shard(2)).unwrap();
    joined.join(shard(3)).unwrap();
    let joined = joined.finish().unwrap();
    // The speed is not a result.
    let quiet = |sweep: collective::Sweep| {
        let points = sweep.points.into_iter();
        points
            .map(|point| study::run::point::Point { messages_per_s: 0.0, ..point })
            .collect::<Vec<_>>()
    };
    assert_eq!(joined.about, whole.about);
    assert_eq!(quiet(joined), quiet(whole));
}

/// A watcher can stop a simulation, which then returns a recognisable error.
#[test]
fn a_simulation_that_is_stopped_says_so() {
    struct Stop;
    impl Watch for Stop {
        fn expect(&self, total: u64) {
            assert!(total > 0);
        }

        fn now(&self, _what: &str) {}

        fn advance(&self, _by: u64) -> bool {
            false
        }

        fn remark(&self, _remark: &str) {}
    }
    let work = Work { watch: &Stop, ..WORK };
    let error = collective::simulate(&request(&[64], 100, of(DEMO)), &work).unwrap_err();
    assert!(error::was_stopped(&error), "{error:#}");
}

/// Every other rank meets a detour of 1 us plus an exponential time with a mean of 10 us; the slowest of n decides.
/// The median of the largest of n is known: the recording has it up to its own size, and a fitted tail beyond.
#[test]
fn a_tail_reaches_where_the_recording_ends() {
    use rand::RngExt;
    const WORK_PS: i64 = 500_000_000;
    let (detours, ranks, runs) = (20_000, 1 << 19, 9);
    let mut stream = random::Stream::new(11);
    let lengths: Vec<f64> =
        (0..detours).map(|_| 1_000.0 - 10_000.0 * (1.0 - stream.random::<f64>()).ln()).collect();
    let rows: String =
        (0u64..).zip(&lengths).map(|(at, ns)| format!("{}.0\t{ns:.1}\n", at * 1_000_000)).collect();
    let file = scratch("exponential.txt");
    let period = detours as f64 / 1e3;
    fs::write(&file, format!("# Selfish Benchmark\n{rows}# Measurement period: {period}\n"))
        .unwrap();
    let noise = noise::Request { repeat_trace: true, ..of(&file.display().to_string()) };
    // The median of the time that the slowest rank loses in half a period, us. None meets two.
    let slowest = |noise: noise::Request| {
        let loaded = noise.load(&WORK).expect("noise");
        let lost = |run: u64| {
            let run = loaded.noise.run(1, run);
            let lost =
                (0..ranks).map(|rank| run.local(rank).preempt(0, WORK_PS).unwrap() - WORK_PS);
            lost.max().unwrap() as f64 / 1e6
        };
        let mut lost: Vec<f64> = (0..runs).map(lost).collect();
        lost.sort_unstable_by(f64::total_cmp);
        (lost[lost.len() / 2], loaded.tails)
    };
    let longest = lengths.iter().copied().fold(0.0, f64::max) / 1e3;
    let exact = 1.0 - 10.0 * (-(0.5f64.ln() / (0.5 * ranks as f64)).exp_m1()).ln();
    let (plain, none) = slowest(noise.clone());
    assert!(plain < 1.001 * longest && none.is_empty(), "{plain} {longest}");
    let (tailed, tails) = slowest(noise::Request { tail: true, ..noise });
    assert!(tails[0].tail_pct > 0.0 && tails[0].copies == 13, "{tails:?}");
    assert!(tailed > 1.1 * longest, "{tailed} is not longer than {longest}");
    // The shape is known to 0.03 from 2,000 peaks. From fewer, the prior makes tails longer than exponential ones:
    // of 2,000 detours, the slowest rank would lose 1.6 times as much.
    assert!((0.85..1.25).contains(&(tailed / exact)), "{tailed} instead of {exact}");
}

#[test]
fn a_tail_needs_a_recording() {
    let noise = noise::Request { tail: true, ..of("periodic:1000Hz,25us") };
    let error = collective::simulate(&request(&[2], 1, noise), &WORK).unwrap_err();
    assert!(error.to_string().contains("--tail requires a recording"), "{error:#}");
}

#[test]
fn the_tails_of_a_recording_keep_its_nodes() {
    let plain = collective::simulate(&request(&[64], 20, of(DEMO)), &WORK).unwrap();
    let request = request(&[64], 20, noise::Request { tail: true, ..of(DEMO) });
    let tailed = collective::simulate(&request, &WORK).unwrap();
    assert!(tailed.about.noise.ends_with("with fitted tails"), "{}", tailed.about.noise);
    assert!(tailed.about.remarks.len() == plain.about.remarks.len() + 1);
    assert!(tailed.points[0].median_us > 0.0);
    // The same bits with any number of threads.
    let one = Work { threads: 1, ..WORK };
    let again = collective::simulate(&request, &one).unwrap();
    let times = |sweep: &collective::Sweep| {
        let point = &sweep.points[0];
        (point.min_us, point.median_us, point.mean_us, point.max_us, sweep.about.tails.clone())
    };
    assert_eq!(times(&again), times(&tailed));
}

/// Every combination of the lists is a series with the points that it has on its own.
#[test]
fn lists_of_operations_networks_and_noise_are_series() {
    let barrier = job::Request { ops: vec![Op::Barrier], ..job::Request::default() };
    let ring = job::Request { algorithm: Some("ring".to_owned()), ..job::Request::default() };
    let resume = scratch("study-series.resume");
    let _ = fs::remove_file(&resume);
    let lists = collective::Request {
        jobs: vec![job::Request::default(), ring, barrier],
        nets: vec![net("cnl"), net("xt4")],
        resume: Some(resume),
        ..request(&[8, 64], 5, of("poisson:1kHz|100Hz,20us|90us"))
    };
    let sweep = collective::simulate(&lists, &WORK).unwrap();
    let series = lists.series();
    assert_eq!((series.len(), sweep.points.len(), sweep.knees.len()), (24, 48, 24));
    let labels: std::collections::BTreeSet<_> = series.iter().map(|one| one.label()).collect();
    assert_eq!(labels.len(), 24);
    assert_eq!(series[4].label(), "allreduce, dissemination, xt4, poisson:1kHz,20us, 1 B");
    assert_eq!(sweep.about.op, "allreduce|barrier");
    assert_eq!(sweep.about.algorithm, "dissemination|ring");
    assert_eq!(sweep.about.noise.split('|').count(), 4);

    let times = |point: &Point| (point.ranks, point.noiseless_us, point.median_us, point.max_us);
    let mut expected = Vec::new();
    for job in &lists.jobs {
        for net in &lists.nets {
            for noise in ["1kHz,20us", "1kHz,90us", "100Hz,20us", "100Hz,90us"] {
                let one = collective::Request {
                    jobs: vec![job.clone()],
                    nets: vec![*net],
                    ..request(&[8, 64], 5, of(&format!("poisson:{noise}")))
                };
                let alone = collective::simulate(&one, &WORK).unwrap();
                assert_eq!(one.series()[0].label(), "1 B");
                expected.extend(alone.points.iter().map(times));
            }
        }
    }
    assert_eq!(sweep.points.iter().map(times).collect::<Vec<_>>(), expected);

    // As two shards, and from the file of finished points.
    let shard =
        |number| collective::simulate_shard(&lists, &WORK, Shard { number, of: 2 }).unwrap();
    let mut both = shard(1);
    both.join(shard(2)).unwrap();
    assert_eq!(both.finish().unwrap().points.iter().map(times).collect::<Vec<_>>(), expected);
    assert_eq!(collective::simulate(&lists, &WORK).unwrap(), sweep);
}

/// Two sources of random noise on a node take the sum of their shares. A run may be longer than the sample.
#[test]
fn superposed_random_arrivals_add_up_and_are_endless() {
    let noise = noise::Request {
        noise: vec!["poisson:1kHz,200us".into(), "poisson:1kHz,200us".into()],
        ..noise::Request::default()
    };
    let loaded = noise.load(&WORK).unwrap();
    let [lane] = loaded.noise.timelines() else { panic!("one lane") };
    assert!((lane.share() - 0.4).abs() < 1e-3, "{}", lane.share());
    assert_eq!(loaded.words, "poisson:1kHz,200us + poisson:1kHz,200us");
    let request = collective::Request {
        jobs: vec![barriers(1, "1000s")],
        ..request(&[1], 3, of("poisson:1kHz,200us"))
    };
    let point = &collective::simulate(&request, &WORK).unwrap().points[0];
    assert!((point.median_us / 1.25e9 - 1.0).abs() < 0.005, "{}", point.median_us);
}

fn cycles(noise: Option<noise::Request>, cycles: &[u32]) -> cycle::Request {
    cycle::Request {
        ranks: vec![16, 1024],
        period: 10_000_000_000,
        duration: 100_000_000,
        noise,
        compute: 500_000_000,
        cycles: cycles.to_vec(),
        runs: 60,
        size: 1,
        net: net("L=1us,o=1ns,G=1ns"),
        redundant_rounds: cycle::parse_rounds("all-but-first").unwrap(),
    }
}

/// The same noise in two ways: detours of 100 us every 10 ms by arithmetic, and as any other noise.
#[test]
fn cycles_under_periodic_noise_and_under_the_same_noise_looked_up_agree() {
    let arithmetic = cycle::simulate(&cycles(None, &[3, 10]), &WORK).unwrap();
    let request = cycles(Some(of("periodic:100Hz,100us")), &[3, 10]);
    let looked_up = cycle::simulate(&request, &WORK).unwrap();
    assert_eq!(looked_up.about.noise.as_deref(), Some("periodic:100Hz,100us"));
    assert_eq!((looked_up.about.period_us, arithmetic.about.period_us), (None, Some(10_000.0)));
    // The phases of the ranks are others.
    for (one, other) in arithmetic.points.iter().zip(&looked_up.points) {
        assert_eq!((one.ranks, one.cycles), (other.ranks, other.cycles));
        let within = |[low, high]: [f64; 2], [from, to]: [f64; 2]| low <= to && from <= high;
        assert!(within(one.conventional_ci95_us.unwrap(), other.conventional_ci95_us.unwrap()));
        assert!(within(one.redundant_ci95_us.unwrap(), other.redundant_ci95_us.unwrap()));
        let overhead = one.conventional_us - one.noiseless_us;
        assert!((one.conventional_overhead_us - overhead).abs() < 1e-6);
        assert!(one.redundant_overhead_us < one.conventional_overhead_us);
    }
    // Shards of it are the same runs.
    let shard = |number| cycle::simulate_shard(&request, &WORK, Shard { number, of: 3 }).unwrap();
    let mut all = shard(1);
    all.join(shard(2)).unwrap();
    all.join(shard(3)).unwrap();
    assert_eq!(all.finish().unwrap(), looked_up);
}

#[test]
fn cycles_under_a_list_of_noise_are_those_under_each() {
    let request = cycles(Some(of("periodic:100Hz,100us|200us")), &[2, 3]);
    let both = cycle::simulate(&request, &WORK).unwrap();
    let mut expected = Vec::new();
    for noise in ["periodic:100Hz,100us", "periodic:100Hz,200us"] {
        let one = cycle::simulate(&cycles(Some(of(noise)), &[2, 3]), &WORK).unwrap();
        let named = |point| cycle::Point { noise: Some(noise.to_owned()), ..point };
        expected.extend(one.points.into_iter().map(named));
    }
    assert_eq!(both.points, expected);
    assert_eq!(both.about.noise.as_deref(), Some("periodic:100Hz,100us|periodic:100Hz,200us"));
    let shard = |number| cycle::simulate_shard(&request, &WORK, Shard { number, of: 2 }).unwrap();
    let mut all = shard(1);
    all.join(shard(2)).unwrap();
    assert_eq!(all.finish().unwrap(), both);
}

/// Co-scheduled detours of 20 us every 50 us leave 30 us of each 50 us: compute is stretched to 5/3, and
/// all ranks lose the same.
#[test]
fn coscheduled_cycles_lose_what_one_rank_loses() {
    let noise = noise::Request { coscheduled: true, ..of("periodic:20kHz,20us") };
    let result = cycle::simulate(&cycles(Some(noise), &[10]), &WORK).unwrap();
    for point in &result.points {
        let compute = 10.0 * 500.0 * 5.0 / 3.0;
        let rounds = 10.0 * f64::from(point.ranks.ilog2()) * 1.003 * 5.0 / 3.0;
        let took = point.conventional_us;
        assert!((took - compute - rounds).abs() < 100.0, "{took} {compute} {rounds}");
    }
}

/// Figure 9 of the paper: the overhead grows linearly with the cycles, but for the first.
#[test]
fn the_overhead_of_each_further_cycle_is_the_same() {
    let request =
        cycle::Request { ranks: vec![1 << 14], compute: 0, ..cycles(None, &[1, 2, 6, 11]) };
    let result = cycle::simulate(&request, &WORK).unwrap();
    let [first, second, sixth, eleventh] = &result.points[..] else { panic!("four points") };
    let slope = |from: &cycle::Point, to: &cycle::Point| {
        (to.conventional_overhead_us - from.conventional_overhead_us)
            / f64::from(to.cycles - from.cycles)
    };
    assert!(first.conventional_overhead_us > slope(second, sixth));
    assert!((slope(second, sixth) / slope(sixth, eleventh) - 1.0).abs() < 0.15);
    let recovery = eleventh.recovery.unwrap();
    assert!((0.25..0.5).contains(&recovery), "{recovery}");
}
