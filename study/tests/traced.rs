//! The blame of runs made by hand, against closed forms.

#[path = "../../program/tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use mpi_abi::Call;
use proptest::prelude::*;
use simulate::loggops::Params;
use study::{
    explain::traced::{TracedBlame, blame, recordings_in},
    jobs::{app, hypotheses},
    noise,
    run::{
        point::Point,
        work::{Unwatched, Work},
    },
};
use support::{HostClock, Made, START};
use tempfile::TempDir;
use trace::{
    Block, Class, Detour, Lane, LaneId, LaneTotals, Manifest, Mode, Overwrite, Record, RecordFlags,
    Source, SourceId, Trailer, Writer,
};

/// Sources of made noise.
const DAEMON: u32 = 0;
const TICK: u32 = 1;

/// A hit: source, start since the beginning of the run, and length.
type Hit = (u32, u64, u64);

/// Writes the recording of a node: for each rank on it, its hits in the order of time.
fn record(dir: &Path, clock: HostClock, ranks: &[(u32, &[Hit])]) -> PathBuf {
    let host = format!("node{}", clock.host);
    let path = dir.join(format!("node-{host}.detour"));
    let lanes = ranks.iter().map(|(rank, _)| {
        let (pid, tid) = (100 + rank, 100 + rank);
        Lane::Thread { pid, tid, name: "app".into() }
    });
    let manifest = Manifest {
        host,
        mode: Mode::Program,
        started_monotonic_ns: START.strict_add_signed(clock.offset_ns),
        lanes: lanes.collect(),
        ..Manifest::default()
    };
    let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).unwrap();
    for (id, class, name) in [(DAEMON, Class::Thread, "fakemond"), (TICK, Class::Timer, "tick")] {
        let source = Source {
            class,
            name: name.into(),
            unit: None,
            detail: None,
            pids: Vec::new(),
            own: false,
            program: false,
            policy: None,
            cause: None,
        };
        writer.add_source(SourceId(id), &source).unwrap();
    }
    for (lane, (_, hits)) in (0..).zip(ranks) {
        for hits in hits.chunks(trace::BLOCK_EVENTS / 2) {
            let mut block = Block::new(LaneId(lane));
            for (source, start_ns, len_ns) in hits {
                let (start_ns, len_ns) = (*start_ns, *len_ns);
                block.detours.push(Detour { start_ns, len_ns, records: 1, ..Detour::default() });
                block.records.push(Record {
                    start_ns,
                    gross_ns: len_ns,
                    net_ns: len_ns,
                    cost_ns: len_ns,
                    source: SourceId(*source),
                    cpu: 0,
                    depth: 0,
                    flags: RecordFlags::IN_DETOUR,
                });
            }
            writer.write_block(&block).unwrap();
        }
    }
    let totals = |lane| LaneTotals { lane, from_ns: 0, to_ns: 1 << 40, ..LaneTotals::default() };
    let lanes = (0..ranks.len() as u32).map(totals).collect();
    writer.finish(Trailer { lanes, ..Trailer::default() }).unwrap();
    path
}

/// Blames a directory, and checks what must hold for every run.
fn of(dir: &TempDir) -> TracedBlame {
    let program = program::open(dir.path()).unwrap();
    let recordings = recordings_in(dir.path()).unwrap();
    let (found, _) = blame(&program, &recordings, 2, u64::MAX).unwrap();
    let path = &found.path;
    assert_eq!(path.compute_ns + path.communication_ns + path.noise_ns, found.wall_ns);
    assert_eq!(path.sources.iter().map(|row| row.ns).sum::<u64>(), path.noise_ns);
    assert_eq!(path.ranks.iter().map(|row| row.ns).sum::<u64>(), found.wall_ns);
    let rows: u64 = found.waits.iter().map(|row| row.ns).sum();
    assert_eq!(rows + found.other_waits_ns, found.waiting_ns);
    let causes = &found.causes;
    let sum = causes.noise_ns + causes.compute_ns + causes.communication_ns + causes.unexplained_ns;
    assert_eq!(sum, found.waiting_ns);
    assert_eq!(found.sources.iter().map(|row| row.ns).sum::<u64>(), causes.noise_ns);
    let ranks = found.by_rank.iter().map(|row| (&row.by, Some(row.rank)));
    let regions = found.by_region.iter().map(|row| (&row.by, None));
    for (by, _) in ranks.clone().chain(regions.clone()) {
        assert_eq!(by.late_sender_ns + by.late_receiver_ns + by.collective_ns, by.ns);
        let causes = by.noise_ns + by.compute_ns + by.communication_ns + by.unexplained_ns;
        assert_eq!(causes, by.ns);
    }
    assert_eq!(ranks.map(|(by, _)| by.ns).sum::<u64>(), found.waiting_ns);
    assert_eq!(regions.map(|(by, _)| by.ns).sum::<u64>(), found.waiting_ns);
    let csv = study::explain::traced::csv(&found);
    for by in ["rank,", "region,", "cause,"] {
        let lines = csv.lines().filter(|line| line.starts_with(by));
        let ns = |line: &str| line.rsplit(',').next().unwrap().parse::<u64>().unwrap();
        assert_eq!(lines.map(ns).sum::<u64>(), found.waiting_ns, "{csv}");
    }
    let profile = program::profile(&program, 2).unwrap();
    assert_eq!(found.waiting_ns, profile.waits.total_ns, "the waiting of the profile");
    for row in &profile.by_rank {
        let own = found.by_rank.iter().find(|own| own.rank == row.rank).unwrap();
        assert!((own.by.s - row.wait_s).abs() < 1e-9, "rank {}: {} s", row.rank, row.wait_s);
    }
    for class in ["late sender", "late receiver", "collective"] {
        let of_class = found.waits.iter().filter(|row| row.class.name() == class);
        let of_profile = profile.waits.pairs.iter().filter(|pair| pair.class == class);
        assert_eq!(
            of_class.map(|row| row.ns).sum::<u64>(),
            of_profile.map(|pair| pair.wait_ns).sum::<u64>(),
            "{class}"
        );
    }
    found
}

/// Ranks of one host.
fn ranks<const N: usize>(dir: &TempDir) -> [Made; N] {
    std::array::from_fn(|rank| Made::new(dir.path(), rank as u32, N as u32))
}

/// Class, late rank, kind, source and time of the waits.
fn waits(blame: &TracedBlame) -> Vec<(&str, u32, &str, &str, u64)> {
    let rows = blame.waits.iter();
    rows.map(|row| {
        let source = row.cause.source.as_ref().map_or("", |source| source.name.as_str());
        (row.class.name(), row.cause.rank, row.cause.kind, source, row.ns)
    })
    .collect()
}

fn path(blame: &TracedBlame) -> [u64; 3] {
    [blame.path.compute_ns, blame.path.communication_ns, blame.path.noise_ns]
}

#[test]
fn a_hit_before_the_others_began_to_wait_is_what_they_wait_for() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b] = ranks(&dir);
    a.collective(Call::Allreduce, 10_000, 14_000, 0);
    b.collective(Call::Allreduce, 13_000, 14_000, 0);
    a.finish(15_000);
    b.finish(15_000);
    record(dir.path(), HostClock::default(), &[(0, &[]), (1, &[(DAEMON, 2_000, 3_000)])]);
    let blame = of(&dir);
    assert_eq!(blame.wall_ns, 15_000);
    assert_eq!(path(&blame), [11_000, 1_000, 3_000]);
    assert_eq!(waits(&blame), [("collective", 1, "noise", "fakemond", 3_000)]);
    assert_eq!(blame.waits[0].call, "MPI_Allreduce");
    let source = &blame.path.sources[0].source;
    assert_eq!((source.name.as_str(), source.host.as_str()), ("fakemond", "node0"));
    assert_eq!(blame.unexplained_pct, 0.0);
    assert_eq!(blame.path.changes, 1);
}

#[test]
fn noise_that_hits_both_ranks_alike_is_not_the_cause_of_an_imbalance() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b] = ranks(&dir);
    a.collective(Call::Barrier, 10_000, 13_000, 0);
    b.collective(Call::Barrier, 12_000, 13_000, 0);
    a.finish(13_000);
    b.finish(13_000);
    let tick: &[Hit] = &[(TICK, 4_000, 500)];
    record(dir.path(), HostClock::default(), &[(0, tick), (1, tick)]);
    let blame = of(&dir);
    assert_eq!(waits(&blame), [("collective", 1, "compute", "", 2_000)]);
    assert_eq!(path(&blame), [11_500, 1_000, 500]);
}

#[test]
fn noise_of_the_waiting_rank_shortens_the_wait_and_causes_nothing() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b] = ranks(&dir);
    a.collective(Call::Barrier, 12_000, 16_000, 0);
    b.collective(Call::Barrier, 15_000, 16_000, 0);
    a.finish(16_000);
    b.finish(16_000);
    let hits: [&[Hit]; 2] = [&[(TICK, 1_000, 2_000)], &[(DAEMON, 1_000, 5_000)]];
    record(dir.path(), HostClock::default(), &[(0, hits[0]), (1, hits[1])]);
    let blame = of(&dir);
    assert_eq!(waits(&blame), [("collective", 1, "noise", "fakemond", 3_000)]);
}

#[test]
fn a_chain_of_waits_leads_to_the_rank_that_was_hit() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b, mut c] = ranks(&dir);
    c.send(6_000, 6_000, 1, 8);
    b.recv(3_000, 6_000, 2, 8);
    b.send(6_100, 6_100, 0, 8);
    a.recv(3_100, 6_500, 1, 8);
    [a, b, c].into_iter().for_each(|rank| rank.finish(7_000));
    record(dir.path(), HostClock::default(), &[(0, &[]), (1, &[]), (2, &[(DAEMON, 1_000, 3_000)])]);
    let blame = of(&dir);
    assert_eq!(waits(&blame), [("late sender", 2, "noise", "fakemond", 6_000)]);
    // The last 900 on rank 0, 100 on rank 1, the rest on rank 2.
    assert_eq!(path(&blame), [500 + 100 + 3_000, 400, 3_000]);
    let on: Vec<(u32, u64)> = blame.path.ranks.iter().map(|row| (row.rank, row.ns)).collect();
    assert_eq!(on, [(2, 6_000), (0, 900), (1, 100)]);
}

#[test]
fn what_happened_before_the_last_common_synchronisation_does_not_count() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b] = ranks(&dir);
    a.collective(Call::Barrier, 10_000, 15_000, 0);
    b.collective(Call::Barrier, 15_000, 15_000, 0);
    // The same work again, now with more computation on rank 1.
    a.collective(Call::Barrier, 25_000, 27_000, 0);
    b.collective(Call::Barrier, 27_000, 27_000, 0);
    a.finish(27_000);
    b.finish(27_000);
    record(dir.path(), HostClock::default(), &[(0, &[]), (1, &[(DAEMON, 2_000, 5_000)])]);
    let blame = of(&dir);
    let expected =
        [("collective", 1, "noise", "fakemond", 5_000), ("collective", 1, "compute", "", 2_000)];
    assert_eq!(waits(&blame), expected);
    assert_eq!(path(&blame), [22_000, 0, 5_000]);
}

#[test]
fn a_rank_that_is_hit_inside_a_collective_holds_up_the_others() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b] = ranks(&dir);
    a.collective(Call::Allreduce, 2_000, 5_100, 0);
    b.collective(Call::Allreduce, 1_000, 5_050, 0);
    a.finish(6_000);
    b.finish(5_500);
    record(dir.path(), HostClock::default(), &[(0, &[]), (1, &[(DAEMON, 1_500, 3_500)])]);
    let blame = of(&dir);
    // Rank 0 came last, so the path is on it; until 2,000 the hit was absorbed.
    assert_eq!(path(&blame), [2_900, 100, 3_000]);
    assert_eq!(waits(&blame), [("collective", 0, "compute", "", 1_000)]);
}

#[test]
fn a_rank_that_is_hit_while_mpi_starts_holds_up_the_others() {
    let dir = TempDir::new().unwrap();
    // Both have started at 10,000: until then, the collectors agree on the clocks.
    let anchor = |at: u64| mpi_abi::Anchor { ticks: START + at, ns: START + at };
    let mut made = [(0, 1_000), (1, 0)].map(|(rank, called)| {
        let header = support::header(rank, 2, HostClock::default());
        let (load, start) = (anchor(called), anchor(10_000));
        let header = mpi_abi::FileHeader { load, start, ..header };
        Made::with(dir.path(), header, HostClock::default(), program::write::Ticks::NS)
    });
    for (made, begin) in made.iter_mut().zip([1_000, 0]) {
        let entry = mpi_abi::Entry::plain(mpi_abi::Signature::of(Call::Init), 0, 0);
        made.call(begin, 7_000, entry);
    }
    made.into_iter().for_each(|made| made.finish(12_000));
    // Absorbed until rank 0 comes at 1,000; the second hit is behind MPI_Init.
    let hits: &[Hit] = &[(DAEMON, 500, 2_500), (DAEMON, 8_000, 1_000)];
    record(dir.path(), HostClock::default(), &[(0, &[]), (1, hits)]);
    let blame = of(&dir);
    // Rank 0 was last: 1,000 before it called, 9,000 until both had started, 2,000 after that.
    assert_eq!(path(&blame), [3_000, 6_000, 3_000]);
    assert_eq!(waits(&blame), []);
}

#[test]
fn a_receiver_that_is_hit_after_it_has_posted_holds_up_the_sender() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b] = ranks(&dir);
    // Posted by both before 30,000; rank 1 cannot take the message before 80,000.
    let request = b.begin(Call::Irecv, 20_000, 20_100, 0, 0, 1 << 20);
    a.send(30_000, 90_000, 1, 1 << 20);
    b.wait(25_000, 90_000, &[request]);
    a.finish(100_000);
    b.finish(95_000);
    record(dir.path(), HostClock::default(), &[(0, &[]), (1, &[(DAEMON, 27_000, 53_000)])]);
    let blame = of(&dir);
    assert_eq!(path(&blame), [40_000, 10_000, 50_000]);
    // Rank 1 had waited until rank 0 sent.
    assert_eq!(waits(&blame), [("late sender", 0, "compute", "", 5_000)]);
}

#[test]
fn a_late_receiver_has_the_region_that_it_was_late_in() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b] = ranks(&dir);
    a.send(500, 6_000, 1, 1 << 20);
    b.name(1, "solve");
    b.name(2, "inner");
    b.region(1, true, 500);
    b.region(2, true, 1_000);
    b.region(2, false, 4_500);
    b.region(1, false, 5_000);
    b.recv(5_000, 6_000, 0, 1 << 20);
    a.finish(6_000);
    b.finish(6_000);
    let blame = of(&dir);
    let rows: Vec<(&str, Option<&str>, u64)> = blame
        .waits
        .iter()
        .map(|row| (row.class.name(), row.cause.region.as_deref(), row.ns))
        .collect();
    // Both computed for 500 outside of regions.
    let expected =
        [("late receiver", Some("solve/inner"), 3_500), ("late receiver", Some("solve"), 1_000)];
    assert_eq!(rows, expected);
    assert_eq!(blame.noise.missing_ranks, [0, 1]);
    let path: Vec<_> =
        blame.path.regions.iter().map(|row| (row.region.as_deref(), row.ns)).collect();
    assert_eq!(path, [(Some("solve/inner"), 3_500), (Some("solve"), 1_000), (None, 500)]);
}

#[test]
fn recordings_of_several_hosts_are_on_the_clock_of_the_run() {
    let dir = TempDir::new().unwrap();
    let clocks =
        [HostClock::default(), HostClock { host: 1, offset_ns: 7_000_000, ..HostClock::default() }];
    let mut made = (0..).zip(clocks).map(|(rank, clock)| Made::on(dir.path(), rank, 2, clock));
    let (mut a, mut b) = (made.next().unwrap(), made.next().unwrap());
    a.collective(Call::Allreduce, 100_000, 190_000, 0);
    b.collective(Call::Allreduce, 180_000, 190_000, 0);
    a.finish(200_000);
    b.finish(200_000);
    record(dir.path(), clocks[0], &[(0, &[(TICK, 5_000, 1_000)])]);
    record(dir.path(), clocks[1], &[(1, &[(DAEMON, 20_000, 81_000)])]);
    let blame = of(&dir);
    assert_eq!(waits(&blame), [("collective", 1, "noise", "fakemond", 80_000)]);
    assert_eq!(blame.waits[0].cause.source.as_ref().unwrap().host, "node1");
    assert_eq!(path(&blame), [109_000, 10_000, 81_000]);
}

#[test]
fn a_recording_that_is_not_of_the_run_is_refused() {
    let dir = TempDir::new().unwrap();
    let [a, b] = ranks(&dir);
    a.finish(1_000);
    b.finish(1_000);
    let other = record(dir.path(), HostClock::default(), &[(7, &[])]);
    let program = program::open(dir.path()).unwrap();
    let error = blame(&program, &[other], 1, u64::MAX).unwrap_err().to_string();
    assert!(error.contains("has no thread of this run's ranks"), "{error}");
}

#[test]
fn too_many_waits_for_the_memory_are_refused() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b] = ranks(&dir);
    a.collective(Call::Barrier, 1_000, 2_000, 0);
    b.collective(Call::Barrier, 1_900, 2_000, 0);
    a.finish(2_000);
    b.finish(2_000);
    let program = program::open(dir.path()).unwrap();
    let error = blame(&program, &[], 1, 100).unwrap_err().to_string();
    assert!(error.contains("1 waits need"), "{error}");
}

/// Steps of a bulk-synchronous program: computation and one hit for each rank.
type Steps = Vec<Vec<(u64, u64)>>;

/// How the ranks meet after each step.
#[derive(Clone, Copy, Debug)]
enum Meeting {
    /// All leave together, this long after the last has come.
    Allreduce(u64),
    /// Each waits for its left neighbour, which has sent before.
    Ring,
}

/// Makes a run by simulating it.
fn run(dir: &Path, steps: &Steps, meeting: Meeting) {
    let count = steps[0].len();
    let mut made: Vec<Made> =
        (0..count).map(|rank| Made::new(dir, rank as u32, count as u32)).collect();
    let mut now = vec![0u64; count];
    let mut hits: Vec<Vec<Hit>> = vec![Vec::new(); count];
    for step in steps {
        for (rank, (compute, noise)) in step.iter().enumerate() {
            let half = compute / 2;
            if *noise > 0 {
                hits[rank].push((DAEMON, now[rank] + half, *noise));
            }
            now[rank] += compute + noise;
        }
        match meeting {
            Meeting::Allreduce(takes) => {
                let end = now.iter().max().unwrap() + takes;
                for (rank, made) in made.iter_mut().enumerate() {
                    made.collective(Call::Allreduce, now[rank], end, 0);
                    now[rank] = end;
                }
            }
            Meeting::Ring => {
                let sent = now.clone();
                for (rank, made) in made.iter_mut().enumerate() {
                    let left = (rank + count - 1) % count;
                    let request =
                        made.begin(Call::Irecv, sent[rank], sent[rank], left as i32, 0, 8);
                    made.send(sent[rank], sent[rank] + 10, ((rank + 1) % count) as i32, 8);
                    let end = (sent[rank] + 20).max(sent[left] + 20);
                    made.wait(sent[rank] + 10, end, &[request]);
                    now[rank] = end;
                }
            }
        }
    }
    let end = *now.iter().max().unwrap();
    made.into_iter().zip(&now).for_each(|(made, at)| made.finish(*at));
    assert!(end > 0);
    let rows: Vec<(u32, &[Hit])> = (0..).zip(hits.iter().map(Vec::as_slice)).collect();
    record(dir, HostClock::default(), &rows);
}

fn steps(compute: impl Strategy<Value = u64> + Clone) -> impl Strategy<Value = Steps> {
    let noise = prop_oneof![3 => Just(0u64), 1 => 1..5_000u64];
    (2..6usize, 1..30usize).prop_flat_map(move |(ranks, steps)| {
        let rank = (compute.clone(), noise.clone());
        prop::collection::vec(prop::collection::vec(rank, ranks), steps)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn with_even_work_all_waiting_is_noise_and_the_path_has_the_longest_hit_of_each_step(
        steps in steps(Just(10_000u64)),
        takes in 1..1_000u64,
    ) {
        let dir = TempDir::new().unwrap();
        run(dir.path(), &steps, Meeting::Allreduce(takes));
        let blame = of(&dir);
        prop_assert_eq!(blame.causes.noise_ns, blame.waiting_ns);
        let longest: u64 =
            steps.iter().map(|step| step.iter().map(|(_, noise)| noise).max().unwrap()).sum();
        prop_assert_eq!(blame.path.noise_ns, longest);
        prop_assert_eq!(blame.path.compute_ns, 10_000 * steps.len() as u64);
        prop_assert_eq!(blame.path.communication_ns, takes * steps.len() as u64);
    }

    #[test]
    fn in_a_pipeline_all_ranks_behind_a_hit_wait_for_it_once(
        ranks in 3..6usize,
        count in 1..12usize,
        (rank, step) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        length in 1..20_000u64,
    ) {
        let (rank, step) = (rank.index(ranks), step.index(count));
        let dir = TempDir::new().unwrap();
        let takes = |r: usize, s: usize| 10_000 + if (r, s) == (rank, step) { length } else { 0 };
        let mut made: Vec<Made> =
            (0..ranks).map(|r| Made::new(dir.path(), r as u32, ranks as u32)).collect();
        let (mut now, mut hit) = (vec![0u64; ranks], 0);
        for s in 0..count {
            let mut sent = 0;
            for r in 0..ranks {
                if r > 0 {
                    let end = now[r].max(sent);
                    made[r].recv(now[r], end, r as i32 - 1, 8);
                    now[r] = end;
                }
                if (r, s) == (rank, step) {
                    hit = now[r] + 5_000;
                }
                now[r] += takes(r, s);
                if r + 1 < ranks {
                    sent = now[r];
                    made[r].send(sent, sent, r as i32 + 1, 8);
                }
            }
        }
        made.into_iter().zip(&now).for_each(|(made, at)| made.finish(*at));
        let hits = [(DAEMON, hit, length)];
        let rows: Vec<(u32, &[Hit])> =
            (0..ranks).map(|r| (r as u32, if r == rank { &hits[..] } else { &[] })).collect();
        record(dir.path(), HostClock::default(), &rows);
        let blame = of(&dir);
        prop_assert_eq!(blame.path.noise_ns, length);
        prop_assert_eq!(blame.unexplained_pct, 0.0);
        let noise = blame.waits.iter().filter(|row| row.cause.kind == "noise");
        prop_assert!(noise.clone().all(|row| row.cause.rank == rank as u32));
        // Each rank behind it is late by the hit once, and is not held up by it again.
        let behind = (ranks - 1 - rank) as u64;
        prop_assert_eq!(blame.causes.noise_ns, length * behind);
    }

    #[test]
    fn parts_add_up_and_do_not_depend_on_threads(
        steps in steps(1_000..20_000u64),
        ring in any::<bool>(),
    ) {
        let dir = TempDir::new().unwrap();
        run(dir.path(), &steps, if ring { Meeting::Ring } else { Meeting::Allreduce(100) });
        let two = serde_json::to_string(&of(&dir)).unwrap();
        let program = program::open(dir.path()).unwrap();
        let recordings = recordings_in(dir.path()).unwrap();
        for threads in [1, 5] {
            let (found, _) = blame(&program, &recordings, threads, u64::MAX).unwrap();
            prop_assert_eq!(&two, &serde_json::to_string(&found).unwrap());
        }
    }
}

#[test]
fn waiting_is_counted_for_the_rank_that_waits_in_the_region_it_is_in() {
    let dir = TempDir::new().unwrap();
    let [mut a, mut b] = ranks(&dir);
    for rank in [&mut a, &mut b] {
        rank.name(1, "solve");
        rank.region(1, true, 1_000);
    }
    a.collective(Call::Allreduce, 10_000, 14_000, 0);
    b.collective(Call::Allreduce, 13_000, 14_000, 0);
    for rank in [&mut a, &mut b] {
        rank.region(1, false, 14_500);
    }
    b.recv(15_000, 17_500, 0, 8);
    a.send(17_000, 17_200, 1, 8);
    a.finish(20_000);
    b.finish(20_000);
    let blame = of(&dir);
    let rows: Vec<(u32, u64, u64)> = blame
        .by_rank
        .iter()
        .map(|row| (row.rank, row.by.collective_ns, row.by.late_sender_ns))
        .collect();
    assert_eq!(rows, [(0, 3_000, 0), (1, 0, 2_000)]);
    let regions: Vec<(Option<&str>, u64)> =
        blame.by_region.iter().map(|row| (row.region.as_deref(), row.by.ns)).collect();
    assert_eq!(regions, [(Some("solve"), 3_000), (None, 2_000)]);
}

/// Twenty steps of 10 ms. In each, rank 1 loses 3 ms to the daemon, which rank 0 waits for.
fn with_daemon(dir: &TempDir) {
    const MS: u64 = 1_000_000;
    let [mut a, mut b] = ranks(dir);
    let mut hits = Vec::new();
    for step in 0..20 {
        let begin = step * 13 * MS;
        hits.push((DAEMON, begin + 2 * MS, 3 * MS));
        a.collective(Call::Allreduce, begin + 10 * MS, begin + 13 * MS, 0);
        b.collective(Call::Allreduce, begin + 13 * MS - 1_000, begin + 13 * MS, 0);
    }
    a.finish(20 * 13 * MS);
    b.finish(20 * 13 * MS);
    record(dir.path(), HostClock::default(), &[(0, &[]), (1, &hits)]);
}

/// Two and eight ranks on a network of 1 us, without noise.
fn request(dir: &TempDir) -> app::Request {
    app::Request {
        source: app::Source::of(vec![dir.path().to_owned()]),
        parts: vec![app::Part::All],
        ranks: vec![2, 8],
        runs: 9,
        nets: vec![with_latency(1_000_000)],
        rendezvous: study::network::RENDEZVOUS,
        net_scales: vec![1.0],
        net_local: None,
        latency: None,
        with_coscheduled: false,
        blame: true,
        noise: noise::Request { noise: vec!["none".into()], ..noise::Request::default() },
        questions: Vec::new(),
        sensitivity: false,
        resume: None,
    }
}

fn with_latency(latency: i64) -> Params {
    Params { latency, ..Params::FREE }
}

fn simulate(request: &app::Request) -> anyhow::Result<app::Sweep> {
    let work = Work { seed: 1, threads: 2, memory: || 1 << 32, watch: &Unwatched };
    app::simulate(request, &work)
}

fn simulated(dir: &TempDir, without: &[&str], questions: &[&str]) -> anyhow::Result<app::Sweep> {
    let mut request = request(dir);
    request.noise.without = without.iter().map(|name| (*name).to_owned()).collect();
    request.questions = questions.iter().map(|text| hypotheses::parse(text).unwrap()).collect();
    simulate(&request)
}

#[test]
fn each_series_of_networks_and_noise_is_the_run_with_them_alone() {
    let dir = TempDir::new().unwrap();
    with_daemon(&dir);
    let nets = [with_latency(1_000_000), with_latency(500_000_000)];
    let noises =
        ["poisson:100Hz,50us", "poisson:100Hz,2ms", "poisson:10Hz,50us", "poisson:10Hz,2ms"];
    let with = |nets: &[Params], noise: &str| {
        let mut request = app::Request { nets: nets.to_vec(), ..request(&dir) };
        request.noise.noise = vec![noise.into()];
        simulate(&request).unwrap()
    };
    let all = with(&nets, "poisson:100Hz|10Hz,50us|2ms");
    assert_eq!(all.about.noise.split('|').count(), 4, "{}", all.about.noise);
    assert_eq!(all.about.net.split('|').count(), 2, "{}", all.about.net);
    let mut points = all.points.iter();
    for net in nets {
        for noise in noises {
            let alone = with(&[net], noise);
            for expected in &alone.points {
                let point = points.next().unwrap();
                assert_eq!(point.series.noise.as_deref(), Some(noise));
                assert!(point.series.net.is_some() && expected.series.net.is_none());
                let about = (point.ranks, &point.blame);
                assert_eq!(about, (expected.ranks, &expected.blame));
                let times = |point: &Point| (point.noiseless_us, point.median_us, point.p99_us);
                assert_eq!(times(point), times(expected));
            }
        }
    }
    assert!(points.next().is_none());
    // What is measured once is measured with the first network.
    assert_eq!(all.identity_s, with(&nets[..1], noises[0]).identity_s);
    assert_ne!(all.identity_s, with(&nets[1..], noises[0]).identity_s);
}

#[test]
fn noise_recorded_with_a_program_is_what_it_meets_when_sources_are_left_out() {
    let dir = TempDir::new().unwrap();
    with_daemon(&dir);
    let sweep = simulated(&dir, &[], &["without fakemond"]).unwrap();
    assert_eq!(sweep.about.noise, "recorded with the program");
    let own = &sweep.points[0];
    // 20 steps of 10 ms, and of 13 ms with the daemon; the run may begin within a hit.
    assert!((own.noiseless_us / 200e3 - 1.0).abs() < 0.01, "{}", own.noiseless_us);
    assert!((own.median_us / 260e3 - 1.0).abs() < 0.02, "{}", own.median_us);
    let effect = &sweep.hypotheses[0];
    assert_eq!((effect.ranks, effect.median_us), (2, own.noiseless_us));
    assert!((effect.gain_pct - 100.0 * 3.0 / 13.0).abs() < 1.5, "{}", effect.gain_pct);
    // One rank waits for the other, whichever moment of the recording it begins at.
    let waits = own.blame.as_ref().unwrap().waits.as_ref().unwrap();
    assert_eq!(waits.sources[0].source.name, "fakemond");
    assert!((waits.sources[0].s / 60e-3 - 1.0).abs() < 0.06, "{:?}", waits.sources);
    assert!(waits.ranks[0].by.noise_s > 10.0 * waits.ranks[1].by.noise_s, "{:?}", waits.ranks);
    let words = effect.critical.as_deref().unwrap();
    assert!(words.starts_with("compute of rank ") && !words.contains("noise"), "{words}");
    let before = study::explain::states::path_in_words(&effect.path_before);
    assert!(before.contains("noise from fakemond 2"), "{before}");
    // Copies have nodes of their own, at other moments of the recording: some node is always hit.
    assert!(sweep.points[1].median_us >= own.median_us);

    let sweep = simulated(&dir, &["fakemond"], &[]).unwrap();
    assert!(sweep.points.iter().all(|point| point.median_us == point.noiseless_us));
    // Without a source in question, the program meets no noise, as before.
    assert_eq!(simulated(&dir, &[], &["net-scale 10"]).unwrap().about.noise, "none");
    let refused = simulated(&dir, &["nothing"], &[]).unwrap_err();
    assert!(format!("{refused:#}").contains("no source named 'nothing'"), "{refused:#}");
}
