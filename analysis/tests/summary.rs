//! Summaries of small synthetic recordings: what is counted, what is omitted, what sums up.

#[allow(dead_code)]
mod common;
#[path = "../../tests/cpu_time/mod.rs"]
mod cpu_time;

use std::convert::Infallible;

use analysis::{Contents, CostBasis, Summary, summarise};
use common::Rng;
use proptest::prelude::*;
use trace::{
    Block, Class, CpuSettings, Detour, Lane, LaneId, LaneTotals, Manifest, Mode, Node, Record,
    RecordFlags, Source, SourceId, Trailer,
};

fn source(class: Class, name: &str, unit: Option<&str>, detail: Option<&str>) -> Source {
    Source {
        class,
        name: name.into(),
        unit: unit.map(Into::into),
        detail: detail.map(Into::into),
        pids: Vec::new(),
        own: false,
        program: false,
        policy: None,
        cause: None,
    }
}

fn record(start_ns: u64, source: u32, net_ns: u64, cost_ns: u64, flags: RecordFlags) -> Record {
    Record {
        start_ns,
        gross_ns: net_ns,
        net_ns,
        cost_ns,
        source: SourceId(source),
        cpu: 0,
        depth: 0,
        flags,
    }
}

const IN: RecordFlags = RecordFlags::IN_DETOUR;
const TICK: u32 = 0;
const DAEMON_A: u32 = 1;
const DAEMON_B: u32 = 2;
const IDLE: u32 = 3;
const PROBE: u32 = 4;
const NAMESAKE: u32 = 5;

fn sources() -> Vec<Source> {
    vec![
        source(Class::Timer, "tick", None, None),
        source(Class::Thread, "daemon", Some("d.service"), Some("hrtimer_wakeup")),
        source(Class::Thread, "daemon", Some("d.service"), Some("sshd")),
        source(Class::Idle, "idle", None, None),
        source(Class::Thread, "probe", None, None),
        Source { own: true, ..source(Class::Thread, "daemon", Some("d.service"), None) },
    ]
}

fn one_cpu(mode: Mode) -> Manifest {
    Manifest {
        host: "node".into(),
        mode,
        lanes: vec![Lane::Cpu { cpu: 3 }],
        cpus: vec![CpuSettings {
            cpu: 3,
            t_min_ns: 20.0,
            threshold_ns: 180.0,
            timer_histogram: vec![],
        }],
        ..Manifest::default()
    }
}

fn trailer(to_ns: u64) -> Trailer {
    let totals = LaneTotals { lane: 0, to_ns, ..LaneTotals::default() };
    Trailer { lanes: vec![totals], ..Trailer::default() }
}

fn summary_of(manifest: &Manifest, trailer: Option<&Trailer>, blocks: Vec<Block>) -> Summary {
    let sources = sources();
    let contents = Contents {
        manifest,
        sources: &sources,
        lanes: &manifest.lanes,
        trailer,
        cut_off: &[],
        truncated: None,
    };
    let Ok(summary) = summarise(&contents, blocks.into_iter().map(Ok::<_, Infallible>));
    summary
}

fn block(detours: Vec<Detour>, records: Vec<Record>) -> Block {
    Block { lane: LaneId(0), detours, records }
}

#[test]
fn fine_grained_sources_become_one_row_and_its_detail() {
    let detours = (0..3)
        .map(|i| Detour {
            start_ns: i * 1000,
            len_ns: 100,
            outside_ns: 0,
            records: 1,
            ..Detour::default()
        })
        .collect();
    let records = vec![
        record(0, DAEMON_A, 80, 100, IN),
        record(1000, DAEMON_B, 80, 100, IN),
        record(2000, DAEMON_A, 80, 100, IN),
    ];
    let s = summary_of(
        &one_cpu(Mode::Attributed),
        Some(&trailer(10_000)),
        vec![block(detours, records)],
    );
    assert_eq!(s.sources.len(), 1);
    let row = &s.sources[0];
    assert_eq!((row.count, row.net_ns_total, row.cost_ns_total), (3, 240, 300));
    assert_eq!(row.detail.as_deref(), Some("woken by hrtimer_wakeup 2x, sshd 1x"));
    assert_eq!((row.cost_ns_p50, row.cost_ns_p99, row.cost_ns_max), (100, 100, 100));
    assert_eq!(s.units.len(), 1);
    assert_eq!(s.units[0].cost_ns_total, 300);
    assert_eq!(s.entry_exit_ns_total, 60);
    assert_eq!(s.cpus[0].thread_detours, 3);
    assert!((s.cpus[0].noise_pct - 3.0).abs() < 1e-9);
    assert_eq!(s.attributed.time_pct, Some(100.0));
}

#[test]
fn a_recorder_of_the_same_name_has_a_row_of_its_own() {
    let records = vec![record(0, DAEMON_A, 80, 100, IN), record(1000, NAMESAKE, 70, 90, IN)];
    let detour = |start_ns, len_ns| Detour {
        start_ns,
        len_ns,
        outside_ns: 0,
        records: 1,
        ..Detour::default()
    };
    let blocks = vec![block(vec![detour(0, 100), detour(1000, 90)], records)];
    let s = summary_of(&one_cpu(Mode::Attributed), Some(&trailer(10_000)), blocks);
    let rows: Vec<_> = s.sources.iter().map(|row| (row.own, row.cost_ns_total)).collect();
    assert_eq!(rows, [(false, 100), (true, 90)]);
}

#[test]
fn a_continued_record_adds_time_to_its_interruption_and_is_not_counted() {
    let more = IN.with(RecordFlags::CONTINUED);
    let b = block(
        vec![Detour { start_ns: 0, len_ns: 60, outside_ns: 0, records: 3, ..Detour::default() }],
        vec![
            record(0, TICK, 10, 10, IN),
            record(1, TICK, 20, 20, more),
            record(2, TICK, 30, 30, more),
        ],
    );
    let s = summary_of(&one_cpu(Mode::Attributed), Some(&trailer(1000)), vec![b]);
    let row = &s.sources[0];
    assert_eq!((row.count, row.continued, row.cost_ns_total), (1, 2, 60));
    assert_eq!((row.cost_ns_p50, row.cost_ns_max), (60, 60));
}

/// The recorder writes its time as a continuation and its beginning as a point, at the same start.
#[test]
fn a_task_whose_switch_was_not_seen_is_one_interruption() {
    let (more, point) = (IN.with(RecordFlags::CONTINUED), IN.with(RecordFlags::POINT));
    let costs = [100, 300, 200];
    let hidden = |(i, &ns): (u64, &u64)| {
        [record(i * 1000, DAEMON_A, ns, ns, more), record(i * 1000, DAEMON_B, 0, 0, point)]
    };
    let detour = |(i, &len_ns): (u64, &u64)| Detour {
        start_ns: i * 1000,
        len_ns,
        outside_ns: 0,
        records: 2,
        ..Detour::default()
    };
    let b = block(
        (0..).zip(&costs).map(detour).collect(),
        (0..).zip(&costs).flat_map(hidden).collect(),
    );
    let s = summary_of(&one_cpu(Mode::Attributed), Some(&trailer(10_000)), vec![b]);
    let row = &s.sources[0];
    assert_eq!((row.count, row.cost_ns_total), (3, 600));
    assert_eq!((row.cost_ns_p50, row.cost_ns_max), (200, 300));
}

#[test]
fn the_baseline_closes_the_account_but_is_no_source() {
    let b = block(
        vec![Detour { start_ns: 0, len_ns: 500, outside_ns: 0, records: 2, ..Detour::default() }],
        vec![
            record(0, TICK, 300, 400, IN),
            record(1, PROBE, 100, 100, IN.with(RecordFlags::BASELINE)),
        ],
    );
    let s = summary_of(&one_cpu(Mode::Attributed), Some(&trailer(1000)), vec![b]);
    assert_eq!(s.unbalanced_detours, 0);
    assert_eq!(s.sources.len(), 1);
    assert_eq!(s.attributed.time_pct, Some(80.0));
    assert_eq!(s.cpus[0].thread_detours, 0);
}

#[test]
fn idle_is_noise_only_inside_a_detour() {
    let b = block(
        vec![Detour { start_ns: 100, len_ns: 50, outside_ns: 0, records: 1, ..Detour::default() }],
        vec![
            record(0, IDLE, 90, 90, RecordFlags::default()),
            record(100, IDLE, 50, 50, IN),
            record(200, IDLE, 90, 90, RecordFlags::default()),
        ],
    );
    let s = summary_of(&one_cpu(Mode::Attributed), Some(&trailer(1000)), vec![b]);
    assert_eq!(s.sources.len(), 1);
    assert_eq!((s.sources[0].count, s.sources[0].cost_ns_total), (1, 50));
}

#[test]
fn time_outside_the_kernel_is_split_at_one_microsecond() {
    let lens = [200, 999, 1000, 5000];
    let detours = lens
        .iter()
        .map(|&len| Detour {
            start_ns: len * 10,
            len_ns: len,
            outside_ns: len,
            records: 0,
            ..Detour::default()
        })
        .collect();
    let b = block(detours, vec![]);
    let s = summary_of(&one_cpu(Mode::Attributed), Some(&trailer(100_000)), vec![b.clone()]);
    let rows: Vec<_> =
        s.outside_kernel.iter().map(|r| (r.class.as_str(), r.count, r.cost_ns_total)).collect();
    assert_eq!(rows, [("microarchitecture", 2, 1199), ("unexplained", 2, 6000)]);
    assert_eq!(s.attributed.time_pct, Some(0.0));
    assert_eq!(s.attributed_over_1us.count_pct, Some(0.0));
    assert_eq!((s.cpus[0].longest_ns, s.cpus[0].longest_at_ns), (5000, 50_000));

    // In a guest the hypervisor takes the time, and firmware only if an SMI was counted.
    let guest = Manifest { hypervisor: Some("KVM".into()), ..one_cpu(Mode::Attributed) };
    let mut end = trailer(100_000);
    end.steal_ns = Some(120_000_000);
    end.lanes[0].counters.insert("steal_ns".into(), 120_000_000);
    let class = |end: &Trailer| {
        let s = summary_of(&guest, Some(end), vec![b.clone()]);
        assert_eq!(s.outside_evidence.steal_ns, Some(120_000_000));
        assert_eq!(s.cpus[0].steal_ns, Some(120_000_000));
        s.outside_kernel[1].class.clone()
    };
    assert_eq!(class(&end), "hypervisor");
    end.lanes[0].counters.insert("smi".into(), 0);
    assert_eq!(class(&end), "hypervisor");
    end.lanes[0].counters.insert("smi".into(), 2);
    assert_eq!(class(&end), "hypervisor_or_smi");

    let s = summary_of(&one_cpu(Mode::ProbeOnly), Some(&trailer(100_000)), vec![b]);
    assert_eq!(s.cpus[0].resolution_hz, Some(25e6));
    assert!(s.outside_kernel.iter().all(|r| r.class.starts_with("unattributed")));
}

#[test]
fn a_detour_whose_parts_do_not_add_up_is_counted() {
    let detour =
        |len_ns| Detour { start_ns: 0, len_ns, outside_ns: 10, records: 1, ..Detour::default() };
    let records = vec![record(0, TICK, 90, 90, IN), record(0, TICK, 90, 90, IN)];
    let b = block(vec![detour(100), detour(101)], records);
    let s = summary_of(&one_cpu(Mode::Attributed), Some(&trailer(1000)), vec![b]);
    assert_eq!(s.unbalanced_detours, 1);
}

#[test]
fn without_a_probe_cost_is_the_net_time_of_the_records() {
    let b = block(vec![], vec![record(0, TICK, 100, 100, RecordFlags::default())]);
    let s = summary_of(&one_cpu(Mode::KernelOnly), Some(&trailer(1000)), vec![b]);
    assert_eq!(s.cost_basis, CostBasis::Records);
    assert_eq!(s.attributed.time_pct, None);
    assert!((s.cpus[0].noise_pct - 10.0).abs() < 1e-9);
    assert!((s.sources[0].share_pct - 100.0).abs() < 1e-9);
}

#[test]
fn without_a_trailer_the_window_runs_from_the_first_event_to_the_last_and_losses_are_unknown() {
    let detour = |start_ns| Detour {
        start_ns,
        len_ns: 100,
        outside_ns: 100,
        records: 0,
        ..Detour::default()
    };
    let b = block(vec![detour(1000), detour(1900)], vec![]);
    let s = summary_of(&one_cpu(Mode::Attributed), None, vec![b]);
    assert!(!s.cpus[0].window_known);
    assert!((s.duration_s - 1e-6).abs() < 1e-15);
    assert!((s.cpus[0].noise_pct - 20.0).abs() < 1e-9);
    assert_eq!(s.lost.records, None);
    assert!(s.truncated.is_some());
}

#[test]
fn an_empty_recording_has_an_empty_summary() {
    let s = summary_of(&one_cpu(Mode::Attributed), Some(&trailer(1000)), vec![]);
    assert_eq!((s.detours, s.sources.len(), s.outside_kernel.len()), (0, 0, 0));
    assert_eq!(s.attributed.time_pct, None);
    assert_eq!(s.cpus.len(), 1);
    assert_eq!(s.cpus[0].noise_pct, 0.0);
    let s = summary_of(&Manifest::default(), None, vec![]);
    assert_eq!((s.duration_s, s.noise_pct), (0.0, 0.0));
}

/// A second of ticks on 64 CPUs: every 4 ms on the first of them, with different phases, and at random on
/// the others.
fn ticks_on_64_cpus(periodic: u32) -> Summary {
    let mut manifest = one_cpu(Mode::Attributed);
    manifest.lanes = (0..64).map(|cpu| Lane::Cpu { cpu }).collect();
    let mut rng = Rng::new(7);
    let blocks = (0..64).map(|lane| {
        let phase = rng.next() % 4_000_000;
        let mut starts: Vec<u64> = match lane < periodic {
            true => (0..250).map(|i| phase + i * 4_000_000 + rng.next() % 20_000).collect(),
            false => (0..240).map(|_| rng.next() % 1_000_000_000).collect(),
        };
        starts.sort_unstable();
        let starts = starts.into_iter();
        let records: Vec<Record> = starts
            .map(|t| Record { cpu: lane as u16, ..record(t, TICK, 2000, 5000, IN) })
            .collect();
        let detours = records
            .iter()
            .map(|r| Detour {
                start_ns: r.start_ns,
                len_ns: 5000,
                outside_ns: 0,
                records: 1,
                ..Detour::default()
            })
            .collect();
        Block { lane: LaneId(lane), detours, records }
    });
    summary_of(&manifest, None, blocks.collect())
}

/// A detour with more records than fit into memory: they are in the file on their own, and their time is a
/// sum in the detour.
#[test]
fn a_sum_is_time_but_no_event() {
    let alone = |i: u64| record(10_000 + i * 1_000, TICK, 500, 0, RecordFlags::SUMMED);
    let mut records: Vec<Record> = (0..30).map(alone).collect();
    let sum = IN.with(RecordFlags::SUMMED);
    records.push(record(9_000, TICK, 0, 15_000, sum));
    records.push(record(41_000, TICK, 700, 900, IN));
    let detour = Detour {
        start_ns: 9_000,
        len_ns: 16_000,
        outside_ns: 100,
        records: 2,
        ..Detour::default()
    };
    let block = Block { lane: LaneId(0), detours: vec![detour], records };
    let s = summary_of(&one_cpu(Mode::Attributed), None, vec![block]);
    let ticks = &s.sources[0];
    assert_eq!((ticks.count, ticks.hits), (31, 31));
    assert_eq!((ticks.net_ns_total, ticks.cost_ns_total), (30 * 500 + 700, 15_900));
    assert!(ticks.cost_ns_p50.abs_diff(500) < 10, "{}", ticks.cost_ns_p50);
    assert_eq!(ticks.cost_ns_max, 900);
}

#[test]
fn a_period_of_few_cpus_is_not_that_of_the_source() {
    // Those with the period are the ones with the most events.
    for (periodic, expected) in [(4, None), (31, None), (33, Some(4))] {
        let period = ticks_on_64_cpus(periodic).sources[0].period_ns;
        assert_eq!(period.map(|ns| (ns + 1_000_000 / 2) / 1_000_000), expected, "{periodic}");
    }
}

#[test]
fn ticks_on_64_cpus_with_different_phases_have_the_period_of_one() {
    let s = ticks_on_64_cpus(64);
    assert_eq!(s.cpus.len(), 64);
    assert_eq!(s.sources[0].per_cpu.len(), 64);
    assert_eq!(s.sources[0].per_lane.len(), 64);
    let period = s.sources[0].period_ns;
    assert!(period.is_some_and(|p| p.abs_diff(4_000_000) < 4_000), "{period:?}");
}

#[test]
fn what_is_regular_for_a_moment_of_the_recording_has_no_period() {
    let starts = || (0..100).map(|i| 1_000_000 + i * 4_000);
    let records: Vec<Record> = starts().map(|t| record(t, TICK, 500, 600, IN)).collect();
    let detours: Vec<Detour> = starts()
        .map(|start_ns| Detour {
            start_ns,
            len_ns: 600,
            outside_ns: 0,
            records: 1,
            ..Detour::default()
        })
        .collect();
    let period = |recorded_ns| {
        let blocks = vec![block(detours.clone(), records.clone())];
        summary_of(&one_cpu(Mode::Attributed), Some(&trailer(recorded_ns)), blocks).sources[0]
            .period_ns
    };
    assert_eq!((period(2_000_000), period(1_000_000_000)), (None, None));
}

/// Two busy threads that alternate strictly by time slices: as regular as a daemon, but not periodic.
#[test]
fn time_slices_are_no_period_and_short_runs_at_the_same_times_are_one() {
    let period = |takes_ns| {
        let starts = || (0..250).map(|i| i * 8_000_000);
        let records = starts().map(|t| record(t, DAEMON_A, takes_ns, takes_ns, IN)).collect();
        let detour =
            |start_ns| Detour { start_ns, len_ns: takes_ns, records: 1, ..Detour::default() };
        let blocks = vec![block(starts().map(detour).collect(), records)];
        summary_of(&one_cpu(Mode::Attributed), Some(&trailer(2_000_000_000)), blocks).sources[0]
            .period_ns
    };
    assert_eq!((period(4_000_000), period(200_000)), (None, Some(8_000_000)));
}

#[test]
fn rates_are_those_while_a_node_was_watched() {
    const SECOND: u64 = 1_000_000_000;
    let node = |first_lane| Node { first_lane, lanes: 1, ..Node::default() };
    let lanes: Vec<Lane> = (0..2).map(|cpu| Lane::Cpu { cpu }).collect();
    let nodes = vec![node(0), node(1)];
    let manifest = Manifest { lanes, nodes, ..one_cpu(Mode::Attributed) };
    // Ten seconds each, the second an hour after the first.
    let totals = |lane: u32| {
        let from_ns = u64::from(lane) * 3600 * SECOND;
        LaneTotals { lane, from_ns, to_ns: from_ns + 10 * SECOND, ..LaneTotals::default() }
    };
    let trailer = Trailer { lanes: vec![totals(0), totals(1)], ..Trailer::default() };
    let ticks = |lane: u32| {
        let at = |i| u64::from(lane) * 3600 * SECOND + i * SECOND / 100;
        let detour = |i| Detour {
            start_ns: at(i),
            len_ns: 2_100,
            outside_ns: 2_000,
            records: 1,
            ..Detour::default()
        };
        Block {
            lane: LaneId(lane),
            detours: (0..1000).map(detour).collect(),
            records: (0..1000).map(|i| record(at(i), TICK, 80, 100, IN)).collect(),
        }
    };
    let s = summary_of(&manifest, Some(&trailer), vec![ticks(0), ticks(1)]);
    assert!((s.duration_s - 3610.0).abs() < 1e-9, "{}", s.duration_s);
    assert!((s.sources[0].rate_hz - 200.0).abs() < 1e-9, "{}", s.sources[0].rate_hz);
    assert!((s.outside_kernel[0].rate_hz - 200.0).abs() < 1e-9, "{}", s.outside_kernel[0].rate_hz);
}

#[test]
fn a_daemon_that_moves_between_cpus_keeps_its_period() {
    let mut manifest = one_cpu(Mode::Attributed);
    manifest.lanes = (0..16).map(|cpu| Lane::Cpu { cpu }).collect();
    let mut rng = Rng::new(7);
    let blocks = (0..100u64).map(|i| {
        let lane = (rng.next() % 16) as u32;
        let r = record(i * 10_000_000 + rng.next() % 50_000, DAEMON_A, 50, 50, IN);
        let d = Detour {
            start_ns: r.start_ns,
            len_ns: 50,
            outside_ns: 0,
            records: 1,
            ..Detour::default()
        };
        Block { lane: LaneId(lane), detours: vec![d], records: vec![r] }
    });
    let s = summary_of(&manifest, None, blocks.collect());
    let period = s.sources[0].period_ns;
    assert!(period.is_some_and(|p| p.abs_diff(10_000_000) < 10_000), "{period:?}");
}

#[test]
fn threads_of_a_program_are_ranked_by_the_time_they_lost() {
    let mut manifest = one_cpu(Mode::Program);
    let thread = |tid| Lane::Thread { pid: 10, tid, name: format!("worker{tid}") };
    manifest.lanes = vec![thread(11), thread(12)];
    let lost = |lane, len_ns| Block {
        lane: LaneId(lane),
        detours: vec![Detour {
            start_ns: 0,
            len_ns,
            outside_ns: 0,
            records: 1,
            ..Detour::default()
        }],
        records: vec![record(0, TICK, len_ns, len_ns, IN)],
    };
    let s = summary_of(&manifest, None, vec![lost(0, 100), lost(1, 300)]);
    let rows: Vec<_> = s.threads.iter().map(|t| (t.tid, t.lost_ns_total)).collect();
    assert_eq!(rows, [(12, 300), (11, 100)]);
    assert!(s.cpus.is_empty());
}

#[test]
fn the_summary_holds_every_key_that_scripts_rely_on() -> Result<(), serde_json::Error> {
    let b = block(
        vec![Detour { start_ns: 0, len_ns: 150, outside_ns: 50, records: 1, ..Detour::default() }],
        vec![record(0, TICK, 80, 100, IN)],
    );
    let s = summary_of(&one_cpu(Mode::Attributed), Some(&trailer(1000)), vec![b]);
    let json = serde_json::to_value(&s)?;
    let keys: [(&str, &[&str]); 8] = [
        (
            "",
            &[
                "host",
                "kernel",
                "duration_s",
                "cpus",
                "sources",
                "attributed",
                "outside_kernel",
                "lost",
                "closure_error",
                "overhead",
            ],
        ),
        ("/cpus/0", &["cpu", "t_min_ns", "threshold_ns", "detours", "noise_pct"]),
        (
            "/sources/0",
            &[
                "class",
                "name",
                "unit",
                "detail",
                "count",
                "net_ns_total",
                "cost_ns_total",
                "cost_ns_p50",
                "cost_ns_p99",
                "cost_ns_max",
                "period_ns",
            ],
        ),
        ("/attributed", &["time_pct", "count_pct"]),
        ("/attributed_over_1us", &["time_pct", "count_pct"]),
        ("/outside_kernel/0", &["class", "count", "cost_ns_total"]),
        ("/lost", &["records", "detours", "unmatched"]),
        ("/overhead", &["events", "bpf_ns_total", "cpu_pct"]),
    ];
    for (at, names) in keys {
        for name in names {
            assert!(json.pointer(at).is_some_and(|v| v.get(name).is_some()), "{at}/{name}");
        }
    }
    Ok(())
}

fn any_block() -> impl Strategy<Value = Block> {
    let record = (any::<u64>(), any::<u64>(), any::<u64>(), 0u32..7, any::<u16>(), any::<u8>())
        .prop_map(|(start_ns, net_ns, cost_ns, source, cpu, flags)| Record {
            cpu,
            ..record(start_ns, source, net_ns, cost_ns, RecordFlags(flags))
        });
    let detour = (any::<u64>(), any::<u64>(), any::<u64>(), 0u32..40).prop_map(
        |(start_ns, len_ns, outside_ns, records)| Detour {
            start_ns,
            len_ns,
            outside_ns,
            records,
            ..Detour::default()
        },
    );
    let records = prop::collection::vec(record, 0..40);
    (any::<u32>(), prop::collection::vec(detour, 0..10), records)
        .prop_map(|(lane, detours, records)| Block { lane: LaneId(lane % 3), detours, records })
}

/// Detours whose parts sum to their length.
fn sound_block() -> impl Strategy<Value = Block> {
    let parts = prop::collection::vec((0u32..3, 1u64..10_000, 0u64..3_000), 0..4);
    prop::collection::vec((parts, 0u64..2_000, 1u64..100_000), 0..50).prop_map(|detours| {
        let mut block = block(vec![], vec![]);
        let mut at = 0;
        for (parts, outside_ns, gap) in detours {
            at += gap;
            let start_ns = at;
            for &(source, net_ns, entry_ns) in &parts {
                block.records.push(record(at, source, net_ns, net_ns + entry_ns, IN));
                at += net_ns + entry_ns;
            }
            at += outside_ns;
            let records = parts.len() as u32;
            block.detours.push(Detour {
                start_ns,
                len_ns: at - start_ns,
                outside_ns,
                records,
                ..Detour::default()
            });
        }
        block
    })
}

proptest! {
    #[test]
    fn the_parts_add_up_to_the_whole(b in sound_block()) {
        let s = summary_of(&one_cpu(Mode::Attributed), None, vec![b]);
        let named: u64 = s.sources.iter().map(|r| r.cost_ns_total).sum();
        let net: u64 = s.sources.iter().map(|r| r.net_ns_total).sum();
        let outside: u64 = s.outside_kernel.iter().map(|r| r.cost_ns_total).sum();
        prop_assert_eq!(s.unbalanced_detours, 0);
        prop_assert_eq!(named + outside, s.detour_ns_total);
        prop_assert_eq!(net + s.entry_exit_ns_total, named);
        for row in &s.sources {
            prop_assert_eq!(row.per_cpu.iter().map(|p| p.cost_ns_total).sum::<u64>(), row.cost_ns_total);
            prop_assert_eq!(row.per_lane.iter().map(|p| p.count).sum::<u64>(), row.count);
            prop_assert!(row.cost_ns_p50 <= row.cost_ns_p99 && row.cost_ns_p99 <= row.cost_ns_max);
        }
    }

    #[test]
    fn any_damaged_block_is_survived(blocks in prop::collection::vec(any_block(), 0..4)) {
        let s = summary_of(&one_cpu(Mode::Attributed), None, blocks);
        prop_assert!(s.noise_pct.is_finite());
    }
}

#[test]
fn time_grows_with_the_number_of_threads_not_with_its_square() {
    let sum_up = |threads: u32| {
        let thread = |tid| Lane::Thread { pid: 1, tid, name: "worker".into() };
        let lanes = (0..threads).map(thread).collect();
        let manifest = Manifest { lanes, ..one_cpu(Mode::Program) };
        let totals = |lane| LaneTotals { lane, to_ns: 1000, ..LaneTotals::default() };
        let trailer = Trailer { lanes: (0..threads).map(totals).collect(), ..Trailer::default() };
        let summary = summary_of(&manifest, Some(&trailer), vec![]);
        assert_eq!(summary.threads.len(), threads as usize);
    };
    let growth = cpu_time::growth(64, || sum_up(2_000), || sum_up(128_000));
    assert!(growth < 16.0, "{growth}");
}
