//! Replays: generated entries of a large machine go through the assembler and the writer at full speed,
//! and memory stays within its bounds.

use std::{env, fs, path::Path, process::Command};

use trace::{Lane, Manifest, Overwrite, Reader, Trailer, Writer};

use super::*;
use crate::pipeline::order::{Entry, Stream};

const CPUS: u32 = 128;
/// A record of each CPU every quarter of a second, so that it has a block every second.
const A_SECOND: u64 = 4;
const QUARTER_OF_AN_HOUR: u64 = 900;
const DAY: u64 = 86_400;
/// Memory limit of a recorder, including the names of kernel functions.
const MOST_KIB: u64 = 64 << 10;
/// From a third of the recording on. Entries of 48 bytes kept for every block would be 3.5 MiB more in a
/// quarter of an hour.
const GROWTH_KIB: u64 = 2 << 10;
/// Set in the process that does the work.
const REPLAYS: &str = "DETOUR_REPLAYS";

#[test]
fn a_quarter_of_an_hour_on_128_cpus_stays_within_64_mib() {
    in_a_process_of_its_own("a_quarter_of_an_hour_on_128_cpus_stays_within_64_mib", || {
        replay(QUARTER_OF_AN_HOUR);
    });
}

#[test]
#[ignore = "a whole day; cargo xtask test --all runs it"]
fn a_day_on_128_cpus_stays_within_64_mib() {
    in_a_process_of_its_own("a_day_on_128_cpus_stays_within_64_mib", || replay(DAY));
}

/// The kernel counts memory per process, and other tests use some as well.
fn in_a_process_of_its_own(test: &str, work: impl FnOnce()) {
    if env::var_os(REPLAYS).is_some() {
        return work();
    }
    let (_, place) = module_path!().split_once("::").expect("in a crate");
    let name = format!("{place}::{test}");
    let mut again = Command::new(env::current_exe().expect("this test has a file"));
    again.args(["--exact", &name, "--include-ignored", "--nocapture"]).env(REPLAYS, "1");
    let output = again.output().expect("started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Writes what all CPUs record to this file.
fn assembler(path: &Path) -> Assembler {
    let lanes = (0..CPUS).map(|cpu| Lane::Cpu { cpu }).collect();
    let manifest = Manifest { lanes, ..Manifest::default() };
    let writer = Writer::create(path, Overwrite::Yes, &manifest).expect("created");
    Assembler::new(
        Output::File(Box::new(writer)),
        Names::of_this_machine(false),
        Subject::Cpus((0..CPUS).collect()),
        0,
        ClockLine::default(),
    )
}

fn replay(seconds: u64) {
    let path = env::temp_dir().join(format!("detour-replay-{}.detour", std::process::id()));
    let mut assembler = assembler(&path);
    let mut batch = Batch::default();
    let mut early_kib = 0;
    for second in 0..seconds {
        batch.clear();
        for part in 0..A_SECOND {
            let start = (second * A_SECOND + part) * (1_000_000_000 / A_SECOND);
            for cpu in 0..CPUS as u16 {
                batch.entries.push(tick(start + u64::from(cpu), cpu));
            }
        }
        assembler.accept_and_write(&batch, true);
        if second == seconds / 3 {
            early_kib = peak_kib();
        }
    }
    let assembled = assembler.finish();
    assert_eq!((assembled.unwritten, assembled.write_error), (0, None));
    let Output::File(writer) = assembled.output else { panic!("another output") };
    writer.finish(Trailer::default()).expect("finished");
    let late_kib = peak_kib();
    println!("{early_kib} KiB after a third, {late_kib} KiB at the end");
    assert!(late_kib <= early_kib + GROWTH_KIB, "{early_kib} KiB, then {late_kib} KiB");
    assert!(late_kib < MOST_KIB, "{late_kib} KiB");
    let reader = Reader::open(&path).expect("a trace");
    assert_eq!(reader.block_infos().len() as u64, seconds * u64::from(CPUS));
    let records: u64 = reader.block_infos().map(|info| u64::from(info.records)).sum();
    assert_eq!(records, seconds * u64::from(CPUS) * A_SECOND);
    fs::remove_file(&path).expect("removed");
}

#[test]
fn a_burst_on_every_cpu_takes_no_more_room_than_all_lanes_may_have() {
    let path = env::temp_dir().join(format!("detour-burst-{}.detour", std::process::id()));
    let mut assembler = assembler(&path);
    let mut batch = Batch::default();
    let mut sent = 0;
    // Some CPUs in turn have a burst of their own, and then all at once.
    const ALONE: u32 = 16;
    for turn in 0..2 * ALONE {
        batch.clear();
        for number in 0..60_000_u64 {
            let cpu = if turn < ALONE { turn } else { number as u32 % CPUS };
            batch.entries.push(tick(u64::from(turn) * 1_000_000_000 + number * 10_000, cpu as u16));
        }
        sent += batch.entries.len() as u64;
        assembler.accept_and_write(&batch, false);
        let open: usize = assembler.lanes.iter().map(Open::events).sum();
        assert!(open < OPEN_EVENTS, "{open} events are open");
        let room: usize = assembler.lanes.iter().map(|lane| lane.block.records.capacity()).sum();
        assert!(room <= 3 * OPEN_EVENTS, "room for {room} records is kept");
    }
    let Output::File(writer) = assembler.finish().output else { panic!("another output") };
    writer.finish(Trailer::default()).expect("finished");
    let reader = Reader::open(&path).expect("a trace");
    let records: u64 = reader.block_infos().map(|info| u64::from(info.records)).sum();
    fs::remove_file(&path).expect("removed");
    assert_eq!(records, sent);
}

/// A local timer interrupt as it is in the ring buffer.
fn tick(start: u64, cpu: u16) -> Entry {
    const NET_NS: u64 = 1_500;
    const LOCAL_TIMER: u64 = 0xec;
    let place = u64::from(cpu) << 32 | u64::from(kind::VECTOR) << 48;
    Stream::default().entry([start, NET_NS, NET_NS, 0, LOCAL_TIMER, place, 0])
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn a_detour_is_as_long_as_its_turns_less_one_shortest_turn_each() {
    let jump = Jump { from: 1_000, to: 5_000 };
    let length = |count| {
        let lost = Turns { jump, count }.lost(30);
        lost.to - lost.from
    };
    assert_eq!([length(1), length(2)], [4_000 - 30, 4_000 - 2 * 30]);
    // Saturates at zero, whatever the calibration measured.
    let lost = Turns { jump, count: 1 }.lost(1_000_000);
    assert_eq!(lost, Jump { from: 1_000, to: 1_000 });
}
