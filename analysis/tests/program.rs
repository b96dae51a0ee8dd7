//! Synthetic recordings of programs: what counts once, the base of percentages, and what belongs to the
//! program.

use std::convert::Infallible;

use analysis::{Contents, Summary, summarise};
use trace::{
    Block, Class, CpuSettings, Detour, Lane, LaneId, LaneTotals, Manifest, Mode, Record,
    RecordFlags, Source, SourceId, Trailer, Wait,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const SPINNER: u32 = 0;
const TICK: u32 = 1;
const DAEMON: u32 = 2;
const FAULT: u32 = 3;

fn source(class: Class, name: &str, policy: Option<&str>) -> Source {
    Source {
        class,
        name: name.into(),
        unit: None,
        detail: None,
        pids: Vec::new(),
        own: false,
        program: false,
        policy: policy.map(Into::into),
        cause: None,
    }
}

/// Without process IDs: the program had exited.
fn sources() -> Vec<Source> {
    vec![
        source(Class::Thread, "spin", None),
        source(Class::Timer, "tick", None),
        source(Class::Thread, "daemon", Some("SCHED_FIFO 60")),
        source(Class::PageFault, "spin", None),
    ]
}

fn record(source: u32, cpu: u16, (start_ns, len): (u64, u64), flags: RecordFlags) -> Record {
    Record {
        start_ns,
        gross_ns: len,
        net_ns: len,
        cost_ns: len,
        source: SourceId(source),
        cpu,
        depth: 0,
        flags,
    }
}

fn slice(block: &mut Block, source: u32, cpu: u16, span: (u64, u64)) {
    block.records.push(record(source, cpu, span, RecordFlags::BASELINE));
}

fn wait(block: &mut Block, by: u32, cpu: u16, span: (u64, u64), kind: Wait) {
    block.detours.push(Detour {
        start_ns: span.0,
        len_ns: span.1,
        outside_ns: 0,
        records: 1,
        wait: kind,
    });
    block.records.push(record(by, cpu, span, RecordFlags::IN_DETOUR));
}

struct Program {
    lanes: Vec<Lane>,
    totals: Vec<LaneTotals>,
    blocks: Vec<Block>,
    /// Waits and interruptions of at least this length were recorded; 0 if unknown.
    threshold_ns: f64,
}

impl Program {
    fn of(threads: u32, watched_ns: u64) -> Program {
        let thread = |tid| Lane::Thread { pid: 100, tid: 100 + tid, name: "spin".into() };
        let totals = |lane| LaneTotals { lane, to_ns: watched_ns, ..LaneTotals::default() };
        Program {
            lanes: (0..threads).map(thread).collect(),
            totals: (0..threads).map(totals).collect(),
            blocks: (0..threads).map(|lane| Block::new(LaneId(lane))).collect(),
            threshold_ns: 0.0,
        }
    }

    fn summary(self) -> Summary {
        self.summary_with(&sources())
    }

    fn summary_with(self, sources: &[Source]) -> Summary {
        let settings = CpuSettings { threshold_ns: self.threshold_ns, ..CpuSettings::default() };
        let cpus = if self.threshold_ns > 0.0 { vec![settings] } else { Vec::new() };
        let manifest = Manifest { mode: Mode::Program, cpus, ..Manifest::default() };
        let trailer = Trailer { lanes: self.totals, ..Trailer::default() };
        let contents = Contents {
            manifest: &manifest,
            sources,
            lanes: &self.lanes,
            trailer: Some(&trailer),
            cut_off: &[],
            truncated: None,
        };
        let Ok(summary) = summarise(&contents, self.blocks.into_iter().map(Ok::<_, Infallible>));
        summary
    }
}

/// 250 ticks a second on one CPU, each of which hits all of these threads: one runs, the others wait.
fn ticks(threads: u32, marked: bool) -> Program {
    let mut program = Program::of(threads, SECOND);
    for (lane, block) in program.blocks.iter_mut().enumerate() {
        for tick in 0..250 {
            let flags = match marked && !(tick as usize + lane).is_multiple_of(threads as usize) {
                true => RecordFlags::IN_DETOUR.with(RecordFlags::REPEATED),
                false => RecordFlags::IN_DETOUR,
            };
            let span = (tick * 4 * MS, 5_000);
            let (start_ns, len_ns) = span;
            block.detours.push(Detour { start_ns, len_ns, records: 1, ..Detour::default() });
            block.records.push(record(TICK, 1, span, flags));
        }
    }
    program
}

#[test]
fn an_interrupt_that_hits_many_threads_is_one_event() {
    for marked in [true, false] {
        for threads in [1, 4, 16] {
            let summary = ticks(threads, marked).summary();
            let tick = &summary.sources[0];
            let hits = 250 * u64::from(threads);
            assert_eq!((tick.count, tick.hits), (250, hits), "{threads} threads, {marked}");
            assert!((tick.rate_hz - 250.0).abs() < 2.0, "{}", tick.rate_hz);
            // Each thread lost the time.
            assert_eq!(tick.cost_ns_total, hits * 5_000);
            let period = tick.period_ns;
            assert!(period.is_some_and(|ns| ns.abs_diff(4 * MS) < 10_000), "{period:?}");
            assert_eq!(tick.per_cpu.iter().map(|part| part.count).sum::<u64>(), 250);
            assert_eq!(tick.per_lane.iter().map(|part| part.hits).sum::<u64>(), hits);
        }
    }
}

/// A thread that shares its CPU equally with a daemon, and sleepers that run briefly.
fn one_busy_thread(sleepers: u32, known: bool) -> Program {
    let mut program = Program::of(1 + sleepers, SECOND);
    for turn in 0..125 {
        let from = turn * 8 * MS;
        let busy = &mut program.blocks[0];
        wait(busy, DAEMON, 0, (from, 4 * MS), Wait::Preempted);
        slice(busy, SPINNER, 0, (from + 4 * MS, 4 * MS));
    }
    for block in &mut program.blocks[1..] {
        slice(block, SPINNER, 1, (300 * MS, MS));
    }
    if known {
        let times = [(500 * MS, 500 * MS)].into_iter().chain(vec![(MS, 0); sleepers as usize]);
        for (totals, (run, waited)) in program.totals.iter_mut().zip(times) {
            (totals.run_ns, totals.wait_ns) = (Some(run), Some(waited));
        }
    }
    program
}

#[test]
fn sleepers_dilute_nothing() {
    for known in [true, false] {
        let summary = one_busy_thread(7, known).summary();
        assert!((summary.threads[0].lost_pct - 50.0).abs() < 0.1, "{:?}", summary.threads[0]);
        // 500 of 1007 ms: sleepers count only while they ran.
        assert!((summary.noise_pct - 100.0 * 500.0 / 1007.0).abs() < 0.1, "{}", summary.noise_pct);
        assert_eq!(summary.wanted_ns_total, Some(1_007 * MS));
        let lend: Vec<bool> = summary.threads.iter().map(|thread| thread.lends_noise).collect();
        assert_eq!(lend, [&[true][..], &[false; 7]].concat());
    }
}

#[test]
fn waits_of_older_recordings_are_what_lies_between_slices() {
    let mut program = one_busy_thread(1, false);
    for detour in program.blocks.iter_mut().flat_map(|block| &mut block.detours) {
        detour.wait = Wait::None;
    }
    // Interruptions inside a slice are part of the run time.
    let (start_ns, len_ns) = (5 * MS, 10_000);
    program.blocks[0]
        .detours
        .insert(1, Detour { start_ns, len_ns, records: 1, ..Detour::default() });
    program.blocks[0]
        .records
        .insert(1, record(TICK, 0, (start_ns, len_ns), RecordFlags::IN_DETOUR));
    let summary = program.summary();
    let busy = &summary.threads[0];
    assert_eq!((busy.run_ns, busy.wait_ns), (Some(500 * MS), Some(500 * MS)));
    assert!((busy.lost_pct - 50.0).abs() < 0.1, "{busy:?}");
    assert!(summary.waits.is_empty());
}

#[test]
fn without_time_slices_percentages_are_of_the_watched_time() {
    let mut program = one_busy_thread(1, false);
    for block in &mut program.blocks {
        block.records.retain(|record| !record.flags.contains(RecordFlags::BASELINE));
    }
    let summary = program.summary();
    assert_eq!(summary.wanted_ns_total, None);
    assert!((summary.noise_pct - 25.0).abs() < 0.1, "{}", summary.noise_pct);
}

#[test]
fn kinds_of_waits_and_policies_are_told() {
    let mut program = one_busy_thread(0, true);
    let block = &mut program.blocks[0];
    let at = SECOND + 100;
    // Woken, then migrated before it ran: one wake-up of 3 ms.
    wait(block, DAEMON, 0, (at, 2 * MS), Wait::Woken);
    wait(block, DAEMON, 1, (at + 2 * MS, MS), Wait::Migrated);
    slice(block, SPINNER, 1, (at + 3 * MS, MS));
    wait(block, DAEMON, 1, (at + 9 * MS, MS), Wait::Woken);
    slice(block, SPINNER, 1, (at + 10 * MS, MS));
    let summary = program.summary();
    let kinds: Vec<(Wait, u64, u64)> =
        summary.waits.iter().map(|row| (row.kind, row.count, row.wait_ns_total)).collect();
    let wanted =
        [(Wait::Preempted, 125, 500 * MS), (Wait::Woken, 2, 3 * MS), (Wait::Migrated, 1, MS)];
    assert_eq!(kinds, wanted);
    let thread = &summary.threads[0];
    assert_eq!(thread.waits.len(), 3);
    let latency = thread.wakeup_latency.expect("it was woken");
    assert_eq!((latency.count, latency.ns_max), (2, 3 * MS));
    assert!(latency.ns_p50.abs_diff(MS) < MS / 500, "{latency:?}");
    assert_eq!(summary.wakeup_latency, thread.wakeup_latency);
    assert_eq!(summary.wakeup_latency_from_ns, Some(1_000));
    let daemon = summary.sources.iter().find(|row| row.name == "daemon").expect("it took time");
    assert_eq!(daemon.policy.as_deref(), Some("SCHED_FIFO 60"));
}

/// Shorter waits are not in the file: latencies cover only the others.
#[test]
fn wakeup_latencies_are_of_waits_from_the_threshold_on() {
    let from_ns = |threshold_ns| {
        let mut program = one_busy_thread(0, true);
        program.threshold_ns = threshold_ns;
        wait(&mut program.blocks[0], DAEMON, 0, (SECOND + 100, 2 * MS), Wait::Woken);
        program.summary().wakeup_latency_from_ns
    };
    assert_eq!(from_ns(0.0), Some(1_000));
    assert_eq!(from_ns(500.0), Some(1_000));
    assert_eq!(from_ns(50_000.0), Some(50_000));
    assert_eq!(one_busy_thread(0, true).summary().wakeup_latency_from_ns, None);
}

/// Three threads take turns on two CPUs.
fn three_for_two() -> Program {
    let mut program = Program::of(3, SECOND);
    for turn in 0..250u64 {
        let span = (turn * 4 * MS, 4 * MS);
        let waits = (turn % 3) as usize;
        let mut cpu = 0;
        for lane in 0..3 {
            if lane == waits {
                wait(&mut program.blocks[lane], SPINNER, 0, span, Wait::Preempted);
            } else {
                slice(&mut program.blocks[lane], SPINNER, cpu, span);
                cpu += 1;
            }
        }
    }
    let (start_ns, len_ns) = (1, 2_000);
    program.blocks[1]
        .detours
        .insert(0, Detour { start_ns, len_ns, records: 1, ..Detour::default() });
    program.blocks[1].records.insert(0, record(FAULT, 0, (1, 2_000), RecordFlags::IN_DETOUR));
    program
}

#[test]
fn a_program_is_known_by_its_lanes_and_its_competition_with_itself_is_found() {
    let summary = three_for_two().summary();
    for row in &summary.sources {
        assert!(row.program, "{row:?}");
    }
    let found = summary.self_competition.expect("they wait for each other");
    assert!((found.runnable_threads - 3.0).abs() < 0.05, "{found:?}");
    assert_eq!(found.cpus, 2);
    assert_eq!(found.wait_ns_total, SECOND);
    assert!((found.wanted_pct - 100.0 / 3.0).abs() < 0.1, "{found:?}");
    assert_eq!(found.contested_cpus, [0]);

    let other = one_busy_thread(0, true).summary();
    assert_eq!(other.self_competition, None);
    assert!(other.sources.iter().all(|row| !row.program));
}

#[test]
fn another_process_of_the_same_name_is_not_the_program() {
    let mut sources = sources();
    sources[SPINNER as usize].program = true;
    let other = sources.len() as u32;
    sources.push(source(Class::Thread, "spin", Some("SCHED_FIFO 60")));
    let mut program = Program::of(1, 30 * MS);
    let block = &mut program.blocks[0];
    slice(block, SPINNER, 0, (0, 10 * MS));
    wait(block, other, 0, (10 * MS, 10 * MS), Wait::Preempted);
    slice(block, SPINNER, 0, (20 * MS, 10 * MS));
    let summary = program.summary_with(&sources);
    let rows =
        summary.sources.iter().map(|row| (row.name.as_str(), row.program, row.cost_ns_total));
    assert_eq!(rows.collect::<Vec<_>>(), [("spin", false, 10 * MS)]);
    assert!(summary.self_competition.is_none());
}

/// The thread faults at the end of a slice, sleeps, is woken, waits, and runs again.
#[test]
fn what_a_thread_slept_in_a_page_fault_it_wanted_to_run() {
    for interruptions in [0, 20] {
        let mut program = Program::of(1, 30 * MS);
        let block = &mut program.blocks[0];
        let mut detour = |source, (start_ns, len_ns): (u64, u64)| {
            block.detours.push(Detour { start_ns, len_ns, records: 1, ..Detour::default() });
            block.records.push(record(source, 0, (start_ns, len_ns), RecordFlags::IN_DETOUR));
        };
        for tick in 0..interruptions {
            detour(TICK, (tick * 100_000, 1_000));
        }
        detour(FAULT, (9 * MS, 11 * MS));
        slice(block, SPINNER, 0, (0, 10 * MS));
        wait(block, DAEMON, 0, (20 * MS, 2 * MS), Wait::Woken);
        slice(block, SPINNER, 0, (22 * MS, 8 * MS));
        let summary = program.summary();
        let threads: Vec<_> = summary.threads.iter().map(|thread| thread.wanted_ns).collect();
        // 18 ms on a CPU, 2 ms waiting for one, 10 ms asleep.
        assert_eq!(threads, [Some(30 * MS)], "{interruptions} interruptions");
    }
}
