//! Exports, read back by the importer where it supports the format.

#[allow(dead_code)]
#[path = "../../trace/tests/common/mod.rs"]
mod common;
mod packets;
mod parquet;

use std::io::Cursor;

use formats::export::{ExportError, ExportFormat, export};
use formats::import::{ImportOptions, Imported, import_bytes, runs_to_trace};
use trace::{
    Block, CpuSettings, Detour, LaneId, LaneTotals, Manifest, Merge, Mode, Reader, SourceId,
    Trailer, Wait, Writer,
};

const LANES: u32 = 3;
const SPAN: u64 = 60_000_000_000;

fn trace() -> Reader<Cursor<Vec<u8>>> {
    let settings =
        |cpu| CpuSettings { cpu, t_min_ns: 20.0, threshold_ns: 180.0, ..CpuSettings::default() };
    let cpus = (0..LANES).map(settings).collect();
    let manifest = Manifest { cpus, ..common::manifest(LANES) };
    let mut writer = Writer::new(Cursor::new(Vec::new()), &manifest).unwrap();
    for (id, source) in (0..).zip(common::sources()) {
        writer.add_source(SourceId(id), &source).unwrap();
    }
    // The last lane lost nothing.
    let mut cpus: Vec<_> = (0..LANES - 1).map(|lane| common::Cpu::new(lane, 5)).collect();
    for _ in 0..3 {
        for cpu in &mut cpus {
            writer.write_block(&cpu.block(400)).unwrap();
        }
    }
    let bytes = writer.finish(common::trailer(LANES, SPAN)).unwrap();
    Reader::new(bytes).unwrap()
}

fn detours(reader: &Reader<Cursor<Vec<u8>>>, lane: u32) -> Vec<(f64, f64)> {
    let blocks = reader.blocks_of(LaneId(lane)).map(Result::unwrap);
    let pair = |d: Detour| (d.start_ns as f64, d.len_ns as f64);
    blocks.flat_map(|block| block.detours).map(pair).collect()
}

fn exported(reader: &Reader<Cursor<Vec<u8>>>, format: ExportFormat, lane: Option<u32>) -> String {
    let mut out = Vec::new();
    export(reader, format, lane.map(LaneId), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn reimported(
    reader: &Reader<Cursor<Vec<u8>>>,
    format: ExportFormat,
    lane: Option<u32>,
) -> Imported {
    let text = exported(reader, format, lane);
    let imported = import_bytes("exported", text.as_bytes(), &ImportOptions::default()).unwrap();
    // Import and export use the same format names.
    assert_eq!(format!("{:?}", imported.format), format!("{format:?}"));
    imported
}

#[test]
fn netgauge_and_json_exports_read_back_the_same_lane_by_lane() {
    let reader = trace();
    for format in [ExportFormat::Netgauge, ExportFormat::Json] {
        let imported = reimported(&reader, format, None);
        assert_eq!(imported.runs.len(), LANES as usize, "{format:?}");
        for (lane, run) in (0..).zip(&imported.runs) {
            assert_eq!(run.detours, detours(&reader, lane), "{format:?}");
            assert_eq!((run.t_min_ns, run.threshold_ns), (Some(20.0), Some(180.0)), "{format:?}");
            assert_eq!(run.span_ns, SPAN as f64, "{format:?}");
        }
        let one = reimported(&reader, format, Some(1));
        assert_eq!(one.runs.len(), 1);
        assert_eq!(one.runs[0].detours, detours(&reader, 1));
    }
}

#[test]
fn a_json_export_of_a_program_names_what_its_threads_waited_for() {
    let manifest = Manifest { mode: Mode::Program, ..common::manifest(1) };
    let mut writer = Writer::new(Cursor::new(Vec::new()), &manifest).unwrap();
    let detour = |start_ns, wait| Detour { start_ns, len_ns: 10, outside_ns: 10, records: 0, wait };
    let detours =
        vec![detour(100, Wait::Woken), detour(200, Wait::None), detour(300, Wait::Preempted)];
    writer.write_block(&Block { detours, ..Block::new(LaneId(0)) }).unwrap();
    let reader = Reader::new(writer.finish(Trailer::default()).unwrap()).unwrap();
    let mut bytes = Vec::new();
    export(&reader, ExportFormat::Json, None, &mut bytes).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let run = &value["runs"][0];
    assert_eq!(run["detours"], serde_json::json!([[100, 10], [200, 10], [300, 10]]));
    assert_eq!(run["waits"], serde_json::json!(["woken", "none", "preempted"]));
    assert_eq!(reimported(&reader, ExportFormat::Json, None).runs[0].detours.len(), 3);
}

#[test]
fn a_csv_export_reads_back_the_same() {
    let reader = trace();
    let imported = reimported(&reader, ExportFormat::Csv, None);
    assert_eq!(imported.runs.len(), LANES as usize);
    for (lane, run) in (0..).zip(&imported.runs) {
        assert_eq!(run.detours, detours(&reader, lane));
        assert_eq!(run.header["lane"], format!("cpu{lane}"));
    }
}

/// Windows other than from 0 to the last detour, and a lane without a detour.
#[test]
fn export_and_import_keep_the_window_of_every_lane() {
    let mut writer = Writer::new(Cursor::new(Vec::new()), &common::manifest(3)).unwrap();
    let block = |lane, start_ns| Block {
        detours: vec![Detour { start_ns, len_ns: 10, outside_ns: 10, ..Detour::default() }],
        ..Block::new(LaneId(lane))
    };
    writer.write_block(&block(0, 9_000)).unwrap();
    writer.write_block(&block(1, 2_000_000_000)).unwrap();
    let windows = [(7_000, 5_000_000_123), (1_999_999_999, 3_000_000_001), (5, 4_000_000_000)];
    let lanes = (0..).zip(windows).map(|(lane, (from_ns, to_ns))| LaneTotals {
        lane,
        from_ns,
        to_ns,
        ..LaneTotals::default()
    });
    let trailer = Trailer { lanes: lanes.collect(), ..Trailer::default() };
    let reader = Reader::new(writer.finish(trailer).unwrap()).unwrap();
    let window = |totals: &LaneTotals| (totals.from_ns, totals.to_ns);
    for format in [ExportFormat::Netgauge, ExportFormat::Json, ExportFormat::Csv] {
        let parts = runs_to_trace(&reimported(&reader, format, None).runs).unwrap();
        let imported: Vec<_> = parts.trailer.lanes.iter().map(window).collect();
        assert_eq!(imported, windows, "{format:?}");
    }
    let formats =
        [ExportFormat::Netgauge, ExportFormat::Json, ExportFormat::Csv, ExportFormat::LogGopSim];
    for (format, lane) in formats.into_iter().flat_map(|f| [(f, 0), (f, 1)]) {
        let parts = runs_to_trace(&reimported(&reader, format, Some(lane)).runs).unwrap();
        let imported = window(&parts.trailer.lanes[0]);
        assert_eq!(imported, windows[lane as usize], "{format:?}, lane {lane}");
    }
}

/// CPU time of this thread, ns.
fn cpu_ns() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split_whitespace().next().unwrap().parse().unwrap()
}

/// The same number of detours on ten lanes and on two thousand: the minimum of several attempts.
#[test]
fn the_cost_of_a_loggopsim_export_does_not_grow_with_lanes_times_detours() {
    const DETOURS: u64 = 100_000;
    let cost = |lanes: u64| {
        let mut writer =
            Writer::new(Cursor::new(Vec::new()), &common::manifest(lanes as u32)).unwrap();
        for lane in 0..lanes {
            let detour = |n| Detour {
                start_ns: (n * lanes + lane) * 1_000,
                len_ns: 10,
                outside_ns: 10,
                ..Detour::default()
            };
            let detours = (0..DETOURS / lanes).map(detour).collect();
            writer.write_block(&Block { detours, ..Block::new(LaneId(lane as u32)) }).unwrap();
        }
        let reader =
            Reader::new(writer.finish(common::trailer(lanes as u32, SPAN)).unwrap()).unwrap();
        let attempt = |_| {
            let start = cpu_ns();
            assert_eq!(
                exported(&reader, ExportFormat::LogGopSim, None).lines().count() as u64,
                DETOURS + 5
            );
            cpu_ns() - start
        };
        (0..5).map(attempt).min().unwrap()
    };
    let (few, many) = (cost(10), cost(2_000));
    // Searching all lanes for each detour would take a hundred times as long.
    assert!(many < 10 * few, "{few} ns for 10 lanes, {many} ns for 2,000");
}

#[test]
fn what_was_exported_of_one_cpu_comes_back_as_that_cpu() {
    let reader = trace();
    for format in [ExportFormat::Netgauge, ExportFormat::Json, ExportFormat::Csv] {
        let parts = runs_to_trace(&reimported(&reader, format, Some(1)).runs).unwrap();
        assert_eq!(parts.manifest.lanes, [reader.lanes()[1].clone()], "{format:?}");
        assert_eq!(parts.manifest.cpus[0].cpu, 1);
    }
}

#[test]
fn a_loggopsim_export_of_one_lane_is_that_lane_and_of_all_their_union() {
    let reader = trace();
    let one = reimported(&reader, ExportFormat::LogGopSim, Some(0));
    assert_eq!(one.runs[0].detours, detours(&reader, 0));
    let all = reimported(&reader, ExportFormat::LogGopSim, None);
    let union = &all.runs[0].detours;
    let covered = |&(start, length): &(f64, f64)| {
        union.iter().any(|&(from, lasts)| from <= start && start + length <= from + lasts)
    };
    assert!((0..2).all(|lane| detours(&reader, lane).iter().all(covered)));
    let sum = |list: &[(f64, f64)]| list.iter().map(|(_, length)| length).sum::<f64>();
    let apart = sum(&detours(&reader, 0)) + sum(&detours(&reader, 1));
    assert!(sum(union) <= apart);
    assert!(union.windows(2).all(|two| two[0].0 + two[0].1 < two[1].0));
}

#[test]
fn histogram_exports_keep_counts_and_three_digits_of_every_length() {
    let reader = trace();
    let all: Vec<f64> =
        (0..LANES).flat_map(|lane| detours(&reader, lane)).map(|(_, l)| l).collect();
    let longest = all.iter().copied().fold(0.0, f64::max);
    for format in [ExportFormat::HistogramLog, ExportFormat::Percentiles] {
        let imported = reimported(&reader, format, None);
        let run = &imported.runs[0];
        assert_eq!(run.count(), all.len() as u64, "{format:?}");
        let last = run.distribution.last().unwrap().0;
        assert!((last - longest).abs() <= longest * 1e-3, "{format:?}: {last} for {longest}");
        // The time of all lanes, since the lengths are those of all.
        let spans = (u64::from(LANES) * SPAN) as f64;
        assert!(
            (run.span_ns / spans - 1.0).abs() < 1e-2,
            "{format:?}: {} for {spans}",
            run.span_ns
        );
    }
    let log = reimported(&reader, ExportFormat::HistogramLog, None);
    let (sum, lost) = (all.iter().sum::<f64>(), log.runs[0].lost_ns());
    assert!((lost - sum).abs() <= sum * 1e-3, "{lost} for {sum}");
}

#[test]
fn no_changed_byte_of_a_histogram_log_makes_the_importer_panic() {
    let mut bytes = exported(&trace(), ExportFormat::HistogramLog, Some(0)).into_bytes();
    for at in 0..bytes.len() {
        let kept = bytes[at];
        for changed in [b'A', b'/', b'9', b'\n'] {
            bytes[at] = changed;
            let _ = import_bytes("changed", &bytes, &ImportOptions::default());
        }
        bytes[at] = kept;
    }
}

#[test]
fn records_are_exported_with_the_names_of_their_sources() {
    let reader = trace();
    let text = exported(&reader, ExportFormat::RecordsCsv, Some(1));
    let records: usize = reader.blocks_of(LaneId(1)).map(|b| b.unwrap().records.len()).sum();
    assert_eq!(text.lines().count(), 1 + records);
    assert!(text.lines().any(|line| line.contains(",timer,tick,,tick_nohz_handler,")));
    assert!(text.lines().skip(1).all(|line| line.starts_with("cpu1,")));
}

#[test]
fn an_import_written_as_a_trace_exports_the_same_again() {
    let reader = trace();
    let imported = reimported(&reader, ExportFormat::Netgauge, None);
    let parts = runs_to_trace(&imported.runs).unwrap();
    let mut writer = Writer::new(Cursor::new(Vec::new()), &parts.manifest).unwrap();
    parts.blocks.iter().for_each(|block| writer.write_block(block).unwrap());
    let again = Reader::new(writer.finish(parts.trailer).unwrap()).unwrap();
    for lane in 0..LANES {
        assert_eq!(detours(&again, lane), detours(&reader, lane));
    }
    assert_eq!(reimported(&again, ExportFormat::Json, None).runs[0].t_min_ns, Some(20.0));
}

#[test]
fn a_perfetto_trace_holds_every_detour_and_record_on_the_track_of_its_source() {
    let reader = trace();
    let mut bytes = Vec::new();
    let exported = export(&reader, ExportFormat::Perfetto, None, &mut bytes).unwrap();
    let trace = packets::read(&bytes);
    let (mut detours, mut records) = (0, 0);
    for block in reader.blocks().map(Result::unwrap) {
        let cpu = format!("cpu{}", block.lane.0);
        for (detour, own) in block.composed() {
            let slices = &trace.slices[&[&cpu, "detours"].map(str::to_owned)[..]];
            let slice = slices.iter().find(|slice| slice.start == detour.start_ns).unwrap();
            assert_eq!(slice.length, detour.len_ns);
            assert_eq!(slice.numbers["outside_ns"], detour.outside_ns);
            assert_eq!(slice.numbers["records"], own.len() as u64);
            detours += 1;
        }
        for record in &block.records {
            let source = &reader.sources()[record.source.0 as usize];
            let track = match &source.unit {
                Some(unit) => format!("{} ({unit})", source.name),
                None => source.name.clone(),
            };
            let path = [cpu.clone(), source.class.name().to_owned(), track];
            let slices = &trace.slices[&path[..]];
            let slice = slices.iter().find(|slice| slice.start == record.start_ns).unwrap();
            assert_eq!(slice.length, record.gross_ns);
            assert_eq!(slice.numbers["net_ns"], record.net_ns);
            assert_eq!(slice.numbers["cost_ns"], record.cost_ns);
            assert!(slice.name.starts_with(&source.name), "{}", slice.name);
            assert_eq!(slice.category, source.class.name());
            records += 1;
        }
    }
    assert_eq!(trace.slices.values().map(Vec::len).sum::<usize>(), detours + records);
    assert_eq!(exported.rows, (detours + records) as u64);
    assert!(detours > 100 && records > 1_000);
}

#[test]
fn a_perfetto_trace_of_one_lane_has_that_lane_alone() {
    let reader = trace();
    let mut bytes = Vec::new();
    export(&reader, ExportFormat::Perfetto, Some(LaneId(1)), &mut bytes).unwrap();
    let trace = packets::read(&bytes);
    assert!(!trace.slices.is_empty());
    assert!(trace.slices.keys().all(|path| path[0] == "cpu1"));
}

#[test]
fn a_parquet_table_reads_back_with_detours_and_sources() {
    let reader = trace();
    let mut bytes = Vec::new();
    let exported = export(&reader, ExportFormat::Parquet, None, &mut bytes).unwrap();
    let table = parquet::read(&bytes);
    assert_eq!(exported.rows, table.rows as u64);
    let number = |column: &str, row: usize| match &table.columns[column][row] {
        parquet::Value::Number(number) => Some(*number),
        parquet::Value::Missing => None,
        other => panic!("{column}: {other:?}"),
    };
    let text = |column: &str, row: usize| match &table.columns[column][row] {
        parquet::Value::Text(text) => Some(text.clone()),
        parquet::Value::Missing => None,
        other => panic!("{column}: {other:?}"),
    };
    // The parts of every detour add up to its length.
    let mut lost = std::collections::BTreeMap::new();
    let mut lengths = std::collections::BTreeMap::new();
    for row in 0..table.rows {
        let Some(detour) = number("detour", row) else { continue };
        let key = (text("lane", row).unwrap(), detour);
        *lost.entry(key.clone()).or_insert(0) += number("cost_ns", row).unwrap();
        lengths.insert(key, number("detour_length_ns", row).unwrap());
    }
    assert_eq!(lost, lengths);
    let wanted: usize = reader.block_infos().map(|info| info.detours as usize).sum();
    assert_eq!(lost.len(), wanted);
    // Every record is present, with the strings of its source.
    let mut records: Vec<_> = reader.blocks().flat_map(|block| block.unwrap().records).collect();
    records.sort_by_key(|record| (record.cpu, record.start_ns, record.depth));
    let mut rows: Vec<usize> = (0..table.rows)
        .filter(|&row| text("class", row).as_deref() != Some("outside_kernel"))
        .collect();
    let of = |row: usize| ["cpu", "start_ns", "depth"].map(|column| number(column, row).unwrap());
    rows.sort_by_key(|&row| of(row));
    assert_eq!(rows.len(), records.len());
    for (row, record) in rows.into_iter().zip(records) {
        let source = &reader.sources()[record.source.0 as usize];
        assert_eq!(number("net_ns", row), Some(record.net_ns as i64));
        assert_eq!(number("gross_ns", row), Some(record.gross_ns as i64));
        assert_eq!(text("name", row).as_ref(), Some(&source.name));
        assert_eq!(text("unit", row), source.unit);
        assert_eq!(text("detail", row), source.detail);
        assert_eq!(number("baseline", row), Some(0));
    }
    assert!(table.about["detour.host"] == "node1");
}

/// The trace of two nodes; each starts a second after the previous one.
fn merged() -> Reader<Cursor<Vec<u8>>> {
    let nodes = [0, 1].map(|number| {
        let settings = CpuSettings {
            cpu: 0,
            t_min_ns: 20.0 + f64::from(number),
            threshold_ns: 180.0,
            ..CpuSettings::default()
        };
        let manifest = Manifest {
            host: format!("host{number}"),
            started_unix_s: 1000.0 + f64::from(number),
            cpus: vec![settings],
            ..common::manifest(1)
        };
        let mut writer = Writer::new(Cursor::new(Vec::new()), &manifest).unwrap();
        for (id, source) in (0..).zip(common::sources()) {
            writer.add_source(SourceId(id), &source).unwrap();
        }
        writer.write_block(&common::Cpu::new(0, 5).block(400)).unwrap();
        writer.finish(common::trailer(1, SPAN)).unwrap()
    });
    let open = |file: &Cursor<Vec<u8>>| Reader::new(file.clone());
    let merge = Merge::read(&nodes, open).unwrap();
    let mut bytes = Vec::new();
    let writer = Writer::new(&mut bytes, merge.manifest()).unwrap();
    merge.write(open, writer).unwrap();
    Reader::new(Cursor::new(bytes)).unwrap()
}

#[test]
fn lanes_of_several_nodes_are_told_apart_and_keep_their_settings() {
    let reader = merged();
    for format in [ExportFormat::Netgauge, ExportFormat::Json, ExportFormat::Csv] {
        let imported = reimported(&reader, format, None);
        assert_eq!(imported.runs.len(), 2);
        for (lane, run) in (0..).zip(&imported.runs) {
            assert_eq!(run.detours, detours(&reader, lane));
            if format == ExportFormat::Csv {
                assert_eq!(run.header["lane"], format!("host{lane}/cpu0"));
            } else {
                assert_eq!(run.t_min_ns, Some(20.0 + f64::from(lane)));
            }
        }
    }
}

#[test]
fn a_lane_that_does_not_exist_is_named() {
    let reader = trace();
    let error = export(&reader, ExportFormat::Csv, Some(LaneId(9)), Vec::new()).unwrap_err();
    assert!(matches!(error, ExportError::NoSuchLane { lane: 9, last: 2 }));
}

/// A recording without a trailer, as after a crash.
#[test]
fn a_recording_that_was_cut_off_says_how_long_it_watched() {
    let second = 1_000_000_000;
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &common::manifest(1)).unwrap();
    writer.watched_from(LaneId(0), 1_001).unwrap();
    let detour = Detour { start_ns: second / 2, len_ns: 500, outside_ns: 500, ..Detour::default() };
    writer.write_block(&Block { detours: vec![detour], ..Block::new(LaneId(0)) }).unwrap();
    writer.settled(10 * second).unwrap();
    drop(writer);
    let reader = Reader::new(Cursor::new(bytes)).unwrap();
    assert!(reader.truncated().is_some());
    let mut text = Vec::new();
    export(&reader, ExportFormat::Netgauge, None, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("# Watched [ns]: 1001 10000000000"), "{text}");
}
