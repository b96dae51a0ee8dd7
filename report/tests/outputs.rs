//! Complete outputs for small recordings, kept as snapshots so that they do not change by accident. The
//! recordings are synthetic and go through the analysis like real ones.

use std::collections::BTreeMap;
use std::convert::Infallible;

use analysis::By;
use analysis::{Contents, Summary, summarise};
use report::{Options, json_text, text};
use trace::{
    Block, CgroupTotals, Class, CpuSettings, Detour, Lane, LaneId, LaneTotals, Lost, Manifest,
    MissingHook, Mode, Overhead, Record, RecordFlags, Source, SourceId, Trailer,
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

/// The last row is the recorder's own, the one before has a hostile name.
fn sources() -> Vec<Source> {
    let mut sources = vec![
        source(Class::Timer, "tick", None, Some("tick_nohz_handler")),
        source(Class::Thread, "fakemond", Some("fakemond.service"), Some("hrtimer_wakeup")),
        source(Class::Thread, "fakemond", Some("fakemond.service"), Some("sshd")),
        source(Class::Softirq, "TIMER", None, Some("process_timeout")),
        source(Class::Softirq, "TIMER", None, Some("delayed_work_timer_fn")),
        source(Class::Kthread, "kworker: vmstat_update", None, None),
        source(Class::Irq, "virtio0-input", None, None),
        source(Class::Thread, "\u{1b}[2Jevil\r\u{202e}", Some("user.slice/\u{7}x"), None),
        source(Class::Thread, "detour", Some("detour.scope"), None),
    ];
    sources[1].pids = vec![812];
    sources[2].pids = vec![812];
    sources[8].own = true;
    sources
}

/// Start, source, net time, additional cost, and time outside the kernel.
type Event = (u64, u32, u64, u64, u64);

/// A pseudo-random number (the finaliser of SplitMix64).
fn scattered(i: u64) -> u64 {
    let z = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32
}

fn events(cpu: u64) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for i in 0..2500 {
        let jitter = (i * 7919 + cpu * 13) % 9_000;
        events.push((cpu * 1_700_000 + i * 4_000_000 + jitter, 0, 3_000 + jitter / 4, 4_000, 130));
        if i % 10 == 3 {
            let waker = if i == 13 { 2 } else { 1 };
            events.push((
                cpu * 500_000 + i * 4_000_000 + 2_000_000,
                waker,
                20_000 + jitter,
                5_000,
                0,
            ));
        }
        if i % 250 == 7 {
            events.push((i * 4_000_000 + 3_000_000, 5, 9_000, 4_500, 250));
            events.push((i * 4_000_000 + 3_100_000, 3 + (i / 250 % 4 == 0) as u32, 1_500, 700, 0));
        }
        if scattered(i * 2 + cpu) % 100 < 3 {
            events.push((i * 4_000_000 + 1_000_000 + jitter * 31, 6, 2_200, 1_400, 0));
        }
    }
    events.push((9_000_000_500, 7, 90_000, 5_000, 0));
    events.push((9_200_000_500, 8, 12_000, 5_000, 2_500));
    events.sort_unstable();
    events
}

fn block(lane: u32, events: &[Event], in_detours: bool) -> Block {
    let mut block = Block::new(LaneId(lane));
    for &(start_ns, source, net_ns, entry_ns, outside_ns) in events {
        let cost_ns = if in_detours { net_ns + entry_ns } else { net_ns };
        block.records.push(Record {
            start_ns,
            gross_ns: net_ns,
            net_ns,
            cost_ns,
            source: SourceId(source),
            cpu: lane as u16,
            depth: 0,
            flags: if in_detours { RecordFlags::IN_DETOUR } else { RecordFlags::default() },
        });
        if in_detours {
            let len_ns = cost_ns + outside_ns;
            block.detours.push(Detour {
                start_ns,
                len_ns,
                outside_ns,
                records: 1,
                ..Detour::default()
            });
        }
    }
    block
}

/// The same detours without any kernel record.
fn nameless(lane: u32) -> Block {
    let mut block = block(lane, &events(u64::from(lane)), true);
    block.records.clear();
    for detour in &mut block.detours {
        detour.outside_ns = detour.len_ns;
        detour.records = 0;
    }
    block
}

fn manifest(mode: Mode) -> Manifest {
    let settings = |cpu| CpuSettings {
        cpu,
        t_min_ns: 21.46,
        threshold_ns: 193.1,
        timer_histogram: Vec::new(),
    };
    Manifest {
        detour_version: "0.1.0".into(),
        host: "node01".into(),
        kernel: "6.18.44".into(),
        started_unix_s: 1_700_000_000.0,
        mode,
        hypervisor: Some("KVM".into()),
        lanes: vec![Lane::Cpu { cpu: 0 }, Lane::Cpu { cpu: 1 }],
        cpus: vec![settings(0), settings(1)],
        ..Manifest::default()
    }
}

fn trailer(switches: u64) -> Trailer {
    let totals = |lane| LaneTotals {
        lane,
        from_ns: 0,
        to_ns: 10_000_000_000,
        iterations: 400_000_000,
        counters: BTreeMap::from([
            ("context-switches".to_owned(), switches),
            ("steal_ns".to_owned(), 60_000_000 * u64::from(lane)),
        ]),
        ..LaneTotals::default()
    };
    Trailer {
        lanes: vec![totals(0), totals(1)],
        closure_error: Some(1.2e-5),
        steal_ns: Some(60_000_000),
        overhead: Overhead {
            events: 12_345,
            bpf_ns_total: Some(3_400_000),
            cpu_pct: Some(0.017),
            reader_cpu_ns: 12_000_000,
        },
        ..Trailer::default()
    }
}

fn summary(
    manifest: &Manifest,
    trailer: Option<&Trailer>,
    truncated: Option<&str>,
    blocks: Vec<Block>,
) -> Summary {
    let sources = sources();
    let contents = Contents {
        manifest,
        sources: &sources,
        lanes: &manifest.lanes,
        trailer,
        cut_off: &[],
        truncated,
    };
    let Ok(summary) = summarise(&contents, blocks.into_iter().map(Ok::<_, Infallible>));
    summary
}

fn attributed() -> Summary {
    let blocks = vec![block(0, &events(0), true), block(1, &events(1), true)];
    summary(&manifest(Mode::Attributed), Some(&trailer(262)), None, blocks)
}

#[track_caller]
fn fits(text: &str, width: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= width, "wider than {width}: {line:?}");
        assert_eq!(line, line.trim_end(), "space at the end of a line");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}

#[test]
fn an_attributed_recording() {
    let text = text(&attributed(), Options::default());
    fits(&text, 100);
    insta::assert_snapshot!(text);
}

#[test]
fn the_cgroup_to_record_is_one_that_is_listed_as_a_shell_takes_it() {
    let quiet = CgroupTotals { cgroup: "/quiet".into(), ..CgroupTotals::default() };
    let throttled = CgroupTotals {
        host: Some("n1".into()),
        cgroup: "/a b/it's".into(),
        periods: 10,
        throttled_periods: 4,
        throttled_ns: 1_000_000,
        ..CgroupTotals::default()
    };
    let mut summary = attributed();
    summary.cgroups = vec![quiet, throttled];
    let text = text(&summary, Options { width: 400, ..Options::default() });
    let hint = r"on n1: detour record --cgroup '/a b/it'\''s' shows every wait";
    assert!(text.contains(hint) && !text.contains("/quiet"), "{text}");
}

#[test]
fn an_attributed_recording_on_narrow_and_wide_terminals() {
    for width in [60, 80, 140, 200] {
        let text = text(&attributed(), Options { width, ..Options::default() });
        fits(&text, width);
        insta::assert_snapshot!(format!("width_{width}"), text);
    }
}

#[test]
fn an_attributed_recording_in_colour() {
    let colour = text(&attributed(), Options { colour: true, ..Options::default() });
    assert!(colour.lines().all(|l| l == l.trim_end()));
    assert!(!colour.contains("\u{1b}[2J"), "a process name reached the terminal");
    insta::assert_snapshot!(colour.replace('\u{1b}', "ESC"));
}

#[test]
fn only_the_largest_sources_unless_all_are_asked_for() {
    let by_source = Options { by: By::Source, ..Options::default() };
    let options = Options { top: 2, ..by_source };
    let few = text(&attributed(), options);
    assert!(few.contains("more sources, "), "{few}");
    assert!(few.contains("(--all shows them)"));
    assert!(!few.contains("virtio0-input"));
    let all = text(&attributed(), Options { all: true, ..options });
    assert!(all.contains("virtio0-input"));
    assert!(!all.contains("--all"));
    // Not truncated, however narrow the terminal.
    let row = "kthread  kworker: vmstat_update ";
    assert!(text(&attributed(), Options { all: true, width: 40, ..options }).contains(row));
    assert!(!text(&attributed(), Options { width: 40, ..by_source }).contains(row));
}

#[test]
fn a_recording_with_losses_limits_and_missing_hooks() {
    let mut manifest = manifest(Mode::Attributed);
    manifest.hooks_missing = vec![MissingHook {
        hook: "csd_function_entry".into(),
        lost: "the function that an IPI runs".into(),
        why: "this kernel does not have it; needs 6.12 or later".into(),
    }];
    manifest.limits = vec!["CPU 2 was left out: it is offline.".into()];
    let mut trailer = trailer(100);
    trailer.lost = Lost {
        records: 12,
        detours: 1,
        unmatched: 2,
        overflow: 0,
        unwritten: 3,
        skipped: 16,
        records_ns: 45_000,
    };
    trailer.remarks = vec!["The clock stepped back once.".into()];
    let mut broken = block(0, &events(0)[..200], true);
    broken.detours[7].len_ns += 1;
    broken.records[9].source = SourceId(99);
    broken.records.push(Record {
        start_ns: 9_900_000_000,
        flags: RecordFlags::default(),
        cost_ns: 700,
        ..broken.records[0]
    });
    let text = text(&summary(&manifest, Some(&trailer), None, vec![broken]), Options::default());
    fits(&text, 100);
    insta::assert_snapshot!(text);
}

#[test]
fn a_probe_only_recording() {
    let blocks = vec![nameless(0), nameless(1)];
    let mut trailer = trailer(262);
    trailer.overhead = Overhead::default();
    trailer.closure_error = None;
    let summary = summary(&manifest(Mode::ProbeOnly), Some(&trailer), None, blocks);
    let text = text(&summary, Options::default());
    fits(&text, 100);
    insta::assert_snapshot!(text);
}

#[test]
fn a_kernel_only_recording() {
    let blocks = vec![block(0, &events(0), false), block(1, &events(1), false)];
    let mut trailer = trailer(0);
    trailer.lanes.iter_mut().for_each(|l| l.counters.clear());
    let summary = summary(&manifest(Mode::KernelOnly), Some(&trailer), None, blocks);
    let text = text(&summary, Options::default());
    fits(&text, 100);
    insta::assert_snapshot!(text);
}

#[test]
fn a_recording_of_a_program() {
    let mut manifest = manifest(Mode::Program);
    let thread = |tid, name: &str| Lane::Thread { pid: 4000, tid, name: name.into() };
    manifest.lanes = vec![thread(4000, "solver"), thread(4001, "solver-io\u{1b}[31m")];
    manifest.cpus.clear();
    let blocks = vec![block(0, &events(0), true), block(1, &events(1)[..900], true)];
    let text = text(&summary(&manifest, Some(&trailer(0)), None, blocks), Options::default());
    fits(&text, 100);
    insta::assert_snapshot!(text);
}

#[test]
fn an_empty_recording() {
    let summary = summary(&manifest(Mode::Attributed), Some(&trailer(0)), None, Vec::new());
    let text = text(&summary, Options::default());
    fits(&text, 100);
    insta::assert_snapshot!(text);
}

#[test]
fn a_recording_that_was_cut_off() {
    let blocks = vec![block(0, &events(0)[..500], true)];
    let reason = "block 3 ends in the middle";
    let summary = summary(&manifest(Mode::Attributed), None, Some(reason), blocks);
    let text = text(&summary, Options::default());
    fits(&text, 100);
    insta::assert_snapshot!(text);
}

#[test]
fn the_cpus_of_a_large_node_are_shown_noisiest_first() {
    let mut manifest = manifest(Mode::Attributed);
    manifest.lanes = (0..64).map(|cpu| Lane::Cpu { cpu }).collect();
    let blocks =
        (0..64).map(|lane| block(lane, &events(0)[..40 + 5 * lane as usize], true)).collect();
    let text = text(&summary(&manifest, Some(&trailer(0)), None, blocks), Options::default());
    fits(&text, 100);
    assert!(text.contains("on CPUs 0-63"), "{text}");
    assert!(text.contains("and 48 more CPUs"), "{text}");
}

#[test]
fn the_json_of_an_attributed_recording() -> Result<(), serde_json::Error> {
    insta::assert_json_snapshot!(serde_json::to_value(attributed())?);
    Ok(())
}

#[test]
fn json_text_holds_the_same_values_and_nothing_a_terminal_obeys() -> Result<(), serde_json::Error> {
    let summary = attributed();
    let text = json_text(&summary)?;
    assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')));
    let mut expected = serde_json::to_value(&summary)?;
    expected["schema"] = 1.into();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text)?, expected);
    Ok(())
}
