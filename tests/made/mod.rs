//! Synthetic recordings for tests: sources with known rates and durations.

// Each test uses what it needs.
#![allow(dead_code)]

use std::path::PathBuf;

use trace::{
    Block, Class, CpuSettings, Detour, Isolation, Lane, LaneId, LaneTotals, Manifest, Mode,
    Overwrite, Record, RecordFlags, Source, SourceId, Topology, Trailer, Writer,
};

/// How a source behaves on each of its CPUs.
#[derive(Clone, Copy)]
pub struct Habit {
    pub class: Class,
    pub name: &'static str,
    pub unit: Option<&'static str>,
    pub every_ns: u64,
    pub takes_ns: u64,
    /// None: on every CPU.
    pub cpu: Option<u32>,
}

pub const MS: u64 = 1_000_000;
pub const US: u64 = 1_000;

/// The tick takes most of the time, the daemon costs most at scale, the interrupt costs nothing.
pub const TICK: Habit = Habit {
    class: Class::Timer,
    name: "tick",
    unit: None,
    every_ns: 4 * MS,
    takes_ns: 4 * US,
    cpu: None,
};
pub const DAEMON: Habit = Habit {
    class: Class::Thread,
    name: "fakemond",
    unit: Some("fakemond.service"),
    every_ns: 100 * MS,
    takes_ns: 80 * US,
    cpu: None,
};
pub const HELPER: Habit = Habit {
    class: Class::Thread,
    name: "fakehelper",
    unit: Some("fakemond.service"),
    every_ns: 900 * MS,
    takes_ns: 30 * US,
    cpu: Some(0),
};
pub const CARD: Habit = Habit {
    class: Class::Irq,
    name: "eth0",
    unit: None,
    every_ns: 50 * MS,
    takes_ns: US,
    cpu: Some(0),
};

fn scattered(seed: u64, i: u64) -> u64 {
    let z = (seed ^ i).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A file in the target's temporary directory.
pub fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The node of a recording.
pub struct Node {
    pub host: String,
    pub job: Option<String>,
    pub started_unix_s: f64,
}

/// Writes a recording of this many CPUs and seconds. Each source runs at its rate, with a jitter of up
/// to half a period; what would overlap waits.
pub fn recording(name: &str, mode: Mode, cpus: u32, seconds: u64, habits: &[Habit]) -> String {
    let node = Node { host: "node01".into(), job: None, started_unix_s: 0.0 };
    recording_of(name, node, mode, cpus, seconds, habits)
}

/// The same on a given node.
pub fn recording_of(
    name: &str,
    node: Node,
    mode: Mode,
    cpus: u32,
    seconds: u64,
    habits: &[Habit],
) -> String {
    let manifest = manifest(node, mode, cpus, 180.0);
    write(name, &manifest, seconds, habits)
}

/// A recording whose probe had another threshold.
pub fn with_threshold(
    name: &str,
    threshold_ns: f64,
    cpus: u32,
    seconds: u64,
    habits: &[Habit],
) -> String {
    let node = Node { host: "node01".into(), job: None, started_unix_s: 0.0 };
    write(name, &manifest(node, Mode::Attributed, cpus, threshold_ns), seconds, habits)
}

fn manifest(node: Node, mode: Mode, cpus: u32, threshold_ns: f64) -> Manifest {
    Manifest {
        host: node.host,
        job_id: node.job,
        started_unix_s: node.started_unix_s,
        kernel: "6.1.0".into(),
        mode,
        lanes: (0..cpus).map(|cpu| Lane::Cpu { cpu }).collect(),
        cpus: (0..cpus)
            .map(|cpu| CpuSettings { cpu, t_min_ns: 20.0, threshold_ns, ..CpuSettings::default() })
            .collect(),
        // One more CPU than is measured does everything else.
        topology: Topology { online: format!("0-{cpus}"), ..Topology::default() },
        isolation: Isolation {
            measured: format!("1-{cpus}"),
            housekeeping: "0".into(),
            ..Isolation::default()
        },
        ..Manifest::default()
    }
}

fn write(name: &str, manifest: &Manifest, seconds: u64, habits: &[Habit]) -> String {
    let path = scratch(name);
    let to_ns = seconds * 1_000_000_000;
    let cpus = manifest.lanes.len() as u32;
    let mut writer = Writer::create(&path, Overwrite::Yes, manifest).expect("created");
    for (id, habit) in (0..).zip(habits) {
        let source = Source {
            class: habit.class,
            name: habit.name.into(),
            unit: habit.unit.map(Into::into),
            detail: (habit.class == Class::Irq).then(|| "irq 24".into()),
            pids: Vec::new(),
            own: false,
            program: false,
            policy: None,
            cause: None,
        };
        writer.add_source(SourceId(id), &source).expect("added");
    }
    for cpu in 0..cpus {
        let mut events: Vec<(u64, usize)> = Vec::new();
        for (id, habit) in habits.iter().enumerate() {
            if habit.cpu.is_some_and(|only| only != cpu) {
                continue;
            }
            for i in 0..to_ns / habit.every_ns {
                let seed = u64::from(cpu) << 40 | (id as u64) << 32;
                let off = scattered(seed, i) % (habit.every_ns / 2).max(1);
                events.push((i * habit.every_ns + off, id));
            }
        }
        events.sort_unstable();
        let mut free_at = 0;
        for part in events.chunks(trace::BLOCK_EVENTS) {
            let mut block = Block::new(LaneId(cpu));
            for &(at, id) in part {
                let (start_ns, len_ns) = (at.max(free_at), habits[id].takes_ns);
                free_at = start_ns + len_ns;
                if free_at > to_ns {
                    break;
                }
                strike(&mut block, SourceId(id as u32), cpu as u16, (start_ns, len_ns));
                if manifest.mode == Mode::KernelOnly {
                    block.detours.clear();
                    block.records.last_mut().expect("one").flags = RecordFlags::default();
                }
            }
            writer.write_block(&block).expect("written");
        }
    }
    let lane = |lane| LaneTotals { lane, from_ns: 0, to_ns, ..LaneTotals::default() };
    let trailer = Trailer { lanes: (0..cpus).map(lane).collect(), ..Trailer::default() };
    writer.finish(trailer).expect("finished");
    path.to_str().expect("text").to_owned()
}

/// A detour of this length with this source only.
pub fn strike(block: &mut Block, source: SourceId, cpu: u16, (start_ns, len_ns): (u64, u64)) {
    block.detours.push(Detour { start_ns, len_ns, outside_ns: 0, records: 1, ..Detour::default() });
    block.records.push(Record {
        start_ns,
        gross_ns: len_ns,
        net_ns: len_ns,
        cost_ns: len_ns,
        source,
        cpu,
        depth: 0,
        flags: RecordFlags::IN_DETOUR,
    });
}
