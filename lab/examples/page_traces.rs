//! Recordings that a page has to cope with, written to the given directory: nothing recorded, one
//! detour, one CPU, 64 CPUs, names that are markup, only records, a program's threads, nodes to be
//! merged, and (with `--large`) ten million detours. Generated from counters: the same each time.

use std::{io::BufWriter, path::Path, process::ExitCode};

use trace::{
    Block, Class, Detour, Lane, LaneId, LaneTotals, Manifest, Mode, Record, RecordFlags, Source,
    SourceId, Trailer, Writer,
};

const HOSTILE: &str = "</title></svg><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&";

struct Shape {
    file: &'static str,
    host: &'static str,
    /// Or threads of a program.
    cpus: u32,
    detours: u64,
    seconds: u64,
    hostile: bool,
    mode: Mode,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next() else {
        eprintln!("usage: page_traces DIRECTORY [--large]");
        return ExitCode::from(2);
    };
    let usual = Shape {
        file: "",
        host: "node1",
        cpus: 2,
        detours: 20_000,
        seconds: 10,
        hostile: false,
        mode: Mode::Attributed,
    };
    let mut shapes = vec![
        Shape { file: "none", detours: 0, ..usual },
        Shape { file: "one", detours: 1, cpus: 1, ..usual },
        Shape { file: "one-cpu", cpus: 1, ..usual },
        Shape { file: "many-cpus", cpus: 64, detours: 200_000, ..usual },
        Shape { file: "hostile", hostile: true, ..usual },
        Shape { file: "records-only", mode: Mode::KernelOnly, ..usual },
        Shape { file: "no-names", mode: Mode::ProbeOnly, ..usual },
        Shape { file: "program", mode: Mode::Program, ..usual },
        Shape { file: "node1", ..usual },
        Shape { file: "node2", host: "node2", ..usual },
        Shape { file: "node3", host: "node3", detours: 60_000, ..usual },
    ];
    if arguments.next().as_deref() == Some("--large") {
        shapes.push(Shape { file: "million", detours: 1_000_000, seconds: 100, ..usual });
        shapes.push(Shape { file: "ten-million", detours: 10_000_000, seconds: 600, ..usual });
    }
    for shape in shapes {
        if let Err(error) = write(&shape, Path::new(&directory)) {
            eprintln!("page_traces: {}: {error}", shape.file);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn scattered(i: u64) -> u64 {
    let z = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) ^ (z >> 31)
}

fn sources(hostile: bool) -> Vec<Source> {
    let source = |class, name: &str, unit: Option<&str>| Source {
        class,
        name: if hostile { format!("{HOSTILE}{name}") } else { name.to_owned() },
        unit: unit.map(|unit| if hostile { format!("{HOSTILE}{unit}") } else { unit.to_owned() }),
        detail: Some(if hostile { HOSTILE.repeat(50) } else { "woken by timer".to_owned() }),
        pids: vec![42],
        own: false,
        program: false,
        policy: None,
        cause: None,
    };
    let mut all = vec![
        source(Class::Timer, "tick", None),
        source(Class::Thread, "fakemond", Some("fakemond.service")),
        source(Class::Irq, "eth0-rx-0", None),
        source(Class::Softirq, "NET_RX", None),
        source(Class::Kthread, "kworker: vmstat_update", None),
        source(Class::PageFault, "collector", Some("metrics.service")),
    ];
    for i in 0..30 {
        all.push(source(Class::Thread, &format!("daemon{i}"), Some("daemons.slice")));
    }
    all
}

fn write(shape: &Shape, directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let text = |plain: &str| if shape.hostile { HOSTILE.to_owned() } else { plain.to_owned() };
    let mut manifest = Manifest {
        detour_version: "0.1.0".to_owned(),
        host: text(shape.host),
        kernel: text("6.12.0"),
        command_line: vec!["detour".to_owned(), "record".to_owned(), text("-d10s")],
        started_unix_s: 1_700_000_000.0,
        mode: shape.mode,
        cpu_model: text("a processor"),
        lanes: (0..shape.cpus).map(|number| lane(shape.mode, number)).collect(),
        ..Manifest::default()
    };
    if shape.hostile {
        manifest.limits = vec![HOSTILE.repeat(100); 200];
        manifest.isolation.kernel_command_line = HOSTILE.repeat(10_000);
    }
    let path = directory.join(format!("{}.detour", shape.file));
    let mut writer = Writer::new(BufWriter::new(std::fs::File::create(path)?), &manifest)?;
    for (id, source) in sources(shape.hostile).iter().enumerate() {
        writer.add_source(SourceId(id as u32), source)?;
    }
    let span = shape.seconds * 1_000_000_000;
    let each = shape.detours / u64::from(shape.cpus);
    for cpu in 0..shape.cpus {
        let mut block = Block::new(LaneId(cpu));
        for i in 0..each {
            detour(shape, cpu, i, span / each.max(1), &mut block);
            if block.detours.len() + block.records.len() >= 60_000 {
                writer.write_block(&block)?;
                block = Block::new(LaneId(cpu));
            }
        }
        writer.write_block(&block)?;
    }
    let totals = |lane| LaneTotals { lane, from_ns: 0, to_ns: span, ..LaneTotals::default() };
    let lanes = (0..shape.cpus).map(totals).collect();
    let remarks = if shape.hostile { vec![HOSTILE.to_owned()] } else { Vec::new() };
    writer.finish(Trailer { lanes, remarks, ..Trailer::default() })?;
    Ok(())
}

/// Threads belong to the process behind all sources.
fn lane(mode: Mode, number: u32) -> Lane {
    match mode {
        Mode::Program => Lane::Thread { pid: 42, tid: 42 + number, name: "solver".to_owned() },
        _ => Lane::Cpu { cpu: number },
    }
}

/// The i-th detour of a CPU: every other one a regular tick, the rest something else with a long tail.
fn detour(shape: &Shape, cpu: u32, i: u64, gap: u64, block: &mut Block) {
    let bits = scattered(i * 64 + u64::from(cpu));
    let is_tick = i.is_multiple_of(2);
    let kind = match bits % 50 {
        _ if is_tick => 0,
        0..4 => 1,
        4..14 => 2,
        14..20 => 3,
        20..22 => 4,
        22..24 => 5,
        24..26 => 6 + (bits >> 8) as u32 % 30,
        _ => u32::MAX,
    };
    let named = kind != u32::MAX && shape.mode != Mode::ProbeOnly;
    let stretch = 1.0 + ((bits >> 20) % 1000) as f64 / 40.0 * (((bits >> 32) % 97) / 96) as f64;
    let usual = [1_500.0, 40_000.0, 3_000.0, 5_000.0, 9_000.0, 1_200.0];
    let typical = if named { usual.get(kind as usize).copied().unwrap_or(15_000.0) } else { 250.0 };
    let wide = (((bits >> 40) % 1024) as f64 / 512.0 - 1.0) * 0.9;
    let len_ns = ((typical * stretch * wide.exp()) as u64).min(gap * 2 / 3).max(120);
    let late = if is_tick { gap / 50 } else { gap / 5 };
    let start_ns = i * gap + (bits >> 50) % late.max(1);
    let only_records = shape.mode == Mode::KernelOnly;
    if named {
        let flags = if only_records { RecordFlags::default() } else { RecordFlags::IN_DETOUR };
        block.records.push(Record {
            start_ns,
            gross_ns: len_ns,
            net_ns: len_ns,
            cost_ns: len_ns,
            source: SourceId(kind),
            cpu: cpu as u16,
            depth: 1,
            flags,
        });
    }
    if !only_records {
        let outside_ns = if named { 0 } else { len_ns };
        block.detours.push(Detour {
            start_ns,
            len_ns,
            outside_ns,
            records: u32::from(named),
            ..Detour::default()
        });
    }
}
