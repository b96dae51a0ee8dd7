//! A long recording on a large machine: the events of 128 CPUs go through the writer at full speed.
//! Memory stays flat, including the index, and everything can be read back.

#[path = "../../tests/reliability/mod.rs"]
mod reliability;

use std::fs;

use trace::{
    Block, Class, Detour, Lane, LaneId, Lost, Manifest, Overwrite, Reader, Record, RecordFlags,
    Source, SourceId, Trailer, Writer,
};

const LANES: u32 = 128;
const SOURCES: u32 = 5;
/// Few, since the number of blocks matters: the recorder writes one per second and lane.
const PER_SECOND: u64 = 4;
const SECONDS_OF_A_DAY: u64 = 86_400;
/// From a third of the recording on. Entries of 48 bytes kept for every block would be 3.5 MiB more in a
/// quarter of an hour, and a growing vector takes twice that.
const GROWTH_KIB: u64 = 2 << 10;
/// Memory limit of a recorder. The entries of a day's blocks alone would be 500 MiB.
const MOST_KIB: u64 = 64 << 10;

#[test]
fn a_quarter_of_an_hour_on_128_cpus_takes_no_more_memory_than_its_first_minutes() {
    write_and_read("a quarter of an hour", SECONDS_OF_A_DAY / 96);
}

#[test]
#[ignore = "a whole day; cargo xtask test --all runs it"]
fn a_day_on_128_cpus_takes_no_more_memory_than_its_first_hours() {
    write_and_read("a day", SECONDS_OF_A_DAY);
}

/// One second of a lane, as the recorder writes it.
fn fill(block: &mut Block, second: u64) {
    block.detours.clear();
    block.records.clear();
    for i in 0..PER_SECOND {
        let number = second * PER_SECOND + i;
        let start_ns = number * (1_000_000_000 / PER_SECOND) + number * 7_919 % 1_000;
        let net_ns = 1_500 + number * 31 % 700;
        let len_ns = net_ns + 800;
        block.detours.push(Detour {
            start_ns,
            len_ns,
            outside_ns: 0,
            records: 1,
            ..Detour::default()
        });
        block.records.push(Record {
            start_ns: start_ns + 300,
            gross_ns: net_ns,
            net_ns,
            cost_ns: len_ns,
            source: SourceId((number % u64::from(SOURCES)) as u32),
            cpu: block.lane.0 as u16,
            depth: 1,
            flags: RecordFlags::IN_DETOUR,
        });
    }
}

fn write_and_read(name: &str, seconds: u64) {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{}.detour", name.replace(' ', "-")));
    let lanes = (0..LANES).map(|cpu| Lane::Cpu { cpu }).collect();
    let manifest = Manifest { lanes, ..Manifest::default() };
    let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).expect("created");
    for id in 0..SOURCES {
        let source = Source {
            class: Class::Timer,
            name: format!("timer {id}"),
            unit: None,
            detail: None,
            pids: Vec::new(),
            own: false,
            program: false,
            policy: None,
            cause: None,
        };
        writer.add_source(SourceId(id), &source).expect("added");
    }
    let mut blocks: Vec<Block> = (0..LANES).map(|lane| Block::new(LaneId(lane))).collect();
    let mut early_kib = 0;
    for second in 0..seconds {
        for block in &mut blocks {
            fill(block, second);
            writer.write_block(block).expect("written");
        }
        writer.flush().expect("flushed");
        if second == seconds / 3 {
            early_kib = peak_kib();
        }
    }
    writer.finish(Trailer::default()).expect("finished");
    let late_kib = peak_kib();
    assert!(late_kib <= early_kib + GROWTH_KIB, "{early_kib} KiB, then {late_kib} KiB");
    assert!(late_kib < MOST_KIB, "{late_kib} KiB");

    let reader = Reader::open(&path).expect("opened");
    assert_eq!(reader.truncated(), None);
    let opened_kib = peak_kib();
    let mut seen = vec![0u64; LANES as usize];
    let mut expected = Block::new(LaneId(0));
    for block in reader.blocks() {
        let block = block.expect("a block");
        let second = &mut seen[block.lane.0 as usize];
        expected.lane = block.lane;
        fill(&mut expected, *second);
        assert!(block == expected, "second {second} of {:?} is another", block.lane);
        *second += 1;
    }
    assert!(seen.iter().all(|&second| second == seconds), "{seen:?} of {seconds} seconds");
    assert_eq!(reader.damaged_blocks(), []);
    assert_eq!(reader.trailer().map(|trailer| trailer.lost), Some(Lost::default()));
    let bytes = fs::metadata(&path).map_or(0, |meta| meta.len());
    fs::remove_file(&path).expect("removed");
    let blocks = u64::from(LANES) * seconds;
    reliability::note(
        &format!("a recording of {name} on {LANES} CPUs: {blocks} blocks through the writer"),
        1,
        &format!(
            "all {} MB read back the same; peak memory {early_kib} KiB after a third, {late_kib} KiB \
             at the end, {opened_kib} KiB once opened for reading",
            bytes / 1_000_000,
        ),
    );
}

/// Peak memory of this process.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}
